"""``tape.compile``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection
from typing import Any

from kernels.programs.calling.tiers import MODES
from tape.compiled.compiled_function import CompiledFunction
from tape.compiled.compiled_gradient import CompiledGradient
from tape.transforms.value_and_grad import made_of

_CHECKS = ("sample", "always", "never")


def compile(  # noqa: A001 (PyTorch's name)
    fun: Callable[..., Any] | None = None,
    *,
    static: Collection[Any] = (),
    traced: Collection[Any] = (),
    check: str = "sample",
    mode: str = "default",
    memory: str | int | None = None,
) -> Any:
    """Return a function of the same arguments and results that is recorded, and then replayed natively where it can be.

    ``fun`` is any function, method, lambda or partial, also one that ``value_and_grad`` or ``tape.func`` gave. Floats,
    NumPy arrays and tensors in its arguments, nested in tuples, lists, dicts and dataclasses, are values; everything
    else belongs to the signature. ``static`` and ``traced`` are names or positions of arguments that are fixed, or
    values, nevertheless. Results are NumPy's where the arguments are, else tensors, and own their memory.

    Values that leave for Python are guards; what the function reads from outside is compared, or read anew, at each
    call. Calls 4, 8, 16, ... of a program are ``check``-ed against dynamic mode: "sample", or "always", "never". What
    no program can hold runs in dynamic mode, with one CompileWarning; ``explain()`` tells what and why. Python's side
    effects happen only when Python runs. ValueError for another ``check`` or ``mode``, TypeError for what cannot be
    called.

    A program is run by an interpreter of native kernels until compiling it to machine code of its own has paid; results
    may then differ from dynamic mode by rounding. ``mode="max"`` compiles it before its first replay, ``mode="eager"``
    never. The decision counts calls and elements, not time, so that it is the same in each run.

    ``memory`` is a limit for the workspace of a program, in bytes or as text, ``"500 MB"`` or ``"2GB"`` (of 1000 MB):
    long loops then keep what they carry at the begin of blocks of steps, and run a block forward again before its
    reverse, which costs at most one more forward pass. Programs are compiled before their first replay; MemoryError
    where one needs more all the same. The first calls, of dynamic mode, are not limited.

    >>> f = tape.compile(lambda x, n: (x**n).sum())
    >>> [f(np.array([1.0, 2.0]), 2) for _ in range(3)]
    [5.0, 5.0, 5.0]
    """
    if check not in _CHECKS:
        raise ValueError(f"compile: check is {check!r}; it is one of {', '.join(map(repr, _CHECKS))}")
    if mode not in MODES:
        raise ValueError(f"compile: mode is {mode!r}; it is one of {', '.join(map(repr, MODES))}")
    budget = None if memory is None else _bytes(memory)
    if budget is not None and mode == "eager":
        raise ValueError('compile: memory is of machine code, which mode="eager" has none of')
    if fun is None:
        return lambda function: compile(function, static=static, traced=traced, check=check, mode=mode, memory=memory)
    if not callable(fun):
        raise TypeError(f"compile: got a {type(fun).__name__}, which cannot be called")
    kind = CompiledFunction if made_of(fun) is None else CompiledGradient
    compiled = kind(fun, _names(static), _names(traced), check)
    compiled.mode, compiled.budget = mode, budget
    return compiled


def _bytes(memory: Any) -> int:
    """Return a number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([kMGT]?)(i?)B?", memory) if isinstance(memory, str) else None
    if match is not None:
        number, prefix, binary = match.groups()
        return int(float(number) * (1024 if binary else 1000) ** " kMGT".index(prefix or " "))
    if isinstance(memory, (str, bool)) or operator.index(memory) <= 0:
        raise ValueError(f'compile: memory is {memory!r}; it is a number of bytes, or text such as "500 MB"')
    return operator.index(memory)


def _names(positions_or_names: Any) -> Collection[Any]:
    alone = isinstance(positions_or_names, (str, int))
    return (positions_or_names,) if alone else tuple(positions_or_names)
