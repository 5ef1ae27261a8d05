"""How native code finds the elements of a result of a call that it repeats."""

from __future__ import annotations

from typing import Any

import numpy as np  # noqa: TC002 (the class is made of it)

from kernels.arrays.numpy_loops import InnerLoop
from kernels.arrays.specs import Spec
from kernels.foundation.data_classes import dataclass

NO_LOOP = InnerLoop(0, 0)


@dataclass(frozen=True)
class Computation:
    """How native code finds the elements of a result: a kind of kernels/native/words.py, and what that takes."""

    kind: int
    loop: InnerLoop = NO_LOOP
    function: Any = None
    """Of Python's, which gives the value."""
    layout: np.ndarray[Any, Any] | None = None
    count: int = 0
    """Operands and the result."""
    picks: tuple[int, ...] = ()
    """What is saved: the number of an operand, PICK_RESULT, PICK_SCALE."""
    initial: float = 0.0
    scale: float = 0.0
    bounds: tuple[int, int] | None = None
    """Between which the numbers among the operands have to be, where integers are computed."""
    ties: np.ndarray[Any, Any] | None = None
    """The nest in which the ties of an extremum are counted."""
    context: Any = None
    """What an instruction of Python's keeps first."""
    extra: Spec | None = None
    """Of a second result, int64 and of the same shape; ``pair`` makes one of a tuple of both."""
    pair: Any = None
