"""What the compiler makes of a program: source, machine code, and how it is called."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.foundation.data_classes import dataclass
from kernels.programs.compiler.account import Account

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class CompiledCode:
    """One native function, ``int64 run(int64 table)``, and what it takes.

    The table is the address of int64 words: the addresses of the arguments, of the constants, of the results, and
    that of ``work`` bytes of workspace, aligned to 64; behind that, if there are ``parts``, the address of these.
    An argument has the strides of its spec; a result is dense, in C order: the outputs, then the gradients of the
    first output by the arguments in ``differentiated``. The function returns -1, or the number of the guard that
    missed, or how many guards there are where a call gave up; then results are undefined. It keeps nothing between
    calls and writes to results and workspace alone. If there are ``owners``, Python may run in it: whoever calls it
    need not hold the interpreter's lock, but must not keep others from it.
    """

    address: int
    source: str
    """Native source that does the same without threads: a module in the part of Python that
    kernels/compiler/translation.py translates, whose cfunc is called ``run``."""
    arguments: list[Spec]
    constants: list[Array]
    outputs: list[Spec]
    gradients: list[Spec]
    differentiated: list[int]
    work: int
    elements: int
    """How many elements are computed, about: the work of a call."""
    owners: list[Any] = field(default_factory=list)
    """What has to live as long as it: what native functions that it calls belong to."""
    parts: Array | None = None
    """Addresses of what it calls: parts of its loops, behind what runs them in threads, and pieces of a long one."""
    account: Account | None = None
    """What became of the program; None of one that was written by hand."""
