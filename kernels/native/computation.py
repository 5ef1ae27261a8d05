"""How native code computes the result of a call that it repeats."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.foundation import numpy_arrays
from kernels.foundation.numpy_arrays import InnerLoop
from kernels.foundation.specs import Spec, Strides, broadcast, dense, spec_of
from kernels.foundation.tables import dataclass
from kernels.native.structs import NEW

NO_LOOP = InnerLoop(0, 0)


@dataclass(frozen=True)
class Computation:
    """How native code computes a result, and where it goes: kind and target of structs.py, and what these need."""

    kind: int
    loop: InnerLoop = NO_LOOP
    function: Any = None
    """A Python function that computes the value."""
    layout: np.ndarray[Any, Any] | None = None
    count: int = 0
    """How many operands there are, with the result."""
    picks: tuple[int, ...] = ()
    """What is saved: the number of an operand, PICK_RESULT, PICK_SCALE."""
    initial: float = 0.0
    scale: float = 0.0
    bounds: tuple[int, int] | None = None
    """The range of Python ints among the operands, where integers are computed."""
    ties: np.ndarray[Any, Any] | None = None
    """The nest in which the ties of an extremum are counted."""
    context: Any = None
    """The context that an instruction run by Python saves first."""
    extra: Spec | None = None
    """The spec of a second result, int64 and of the same shape; ``pair`` makes the returned object of both."""
    pair: Any = None
    target: int = NEW
    shape: Strides | None = None
    """Of the array that is made, where it is not the result's: of a view, or of the places that are written."""
    strides: Strides = ()
    """Of a view."""
    start: int = 0
    """Where a view or a part begins in memory, in bytes; ``offset``: where in the gradient buffer."""
    offset: int = 0
    writeable: bool = False
    """Whether a view can be written."""
    offsets: np.ndarray[Any, Any] | None = None
    """Of the elements of a value that is written to places, in bytes."""
    extent: int = 0
    """How many places there are, if none may be written twice."""
    kept: tuple[Any, ...] = ()
    """What ``layout`` refers to."""


def is_fresh(spec: Spec) -> bool:
    """Whether a result is laid out as NumPy makes arrays."""
    return spec.strides == dense(spec.shape, spec.dtype.itemsize) and spec_of(np.empty(spec.shape, spec.dtype)) is spec


def strides_along(source: Spec | None, spec: Spec) -> Strides:
    """Return an operand's strides along the dims of a result; None is a number."""
    return (0,) * len(spec.shape) if source is None else broadcast(source.shape, source.strides, spec.shape)


def loop_of(ufunc: Any, dtypes: tuple[np.dtype[Any], ...]) -> InnerLoop | None:
    """Return NumPy's inner loop; None where there is none for these dtypes."""
    try:
        return numpy_arrays.find(ufunc, dtypes) if isinstance(ufunc, np.ufunc) else None
    except (LookupError, ValueError):
        return None


def of_arrays(function: Any) -> Any:
    """Return a function of arrays as one of numbers, too."""
    return lambda *operands: function(*map(np.asarray, operands))


def to_array(function: Any) -> Any:
    """Return a function whose result may be a number as one that returns an array."""
    return lambda *operands: np.asarray(function(*operands))
