"""Views, the same memory under another shape: the record, its instruction form, where it stands in a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from kernels.arrays.specs import Spec, Strides, view_spec
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.native.memory import where
from kernels.native.tape_structs import VIEW
from kernels.records.op import Op
from kernels.records.symbols import Rule


@dataclass(frozen=True, eq=False, kw_only=True)
class View(Op):
    """The same memory under another shape: ``apply(array, *params)`` is the view, of values and gradients.

    ``batch(size, shape, *params)`` returns the parameters of the same view of a batch of so many arrays of a shape,
    the batch in front; without it ``vmap`` refuses. ``indexes``: the parameter is a basic index. ``broadcasts``: the
    array gets dims of one in front, as many as the result has. ``element``: a result without dims is what NumPy gives
    as a scalar, a value. ``hides``: nobody has the array, so that the result is none's view to the caller.
    ``samples`` are pairs of a shape and parameters, for the tests.
    """

    contribution: ClassVar[str] = "{} is a view of it"
    inputs: ClassVar[tuple[str, ...]] = ("x",)
    tape_kind: ClassVar[int] = VIEW

    apply: Callable[..., Any]
    batch: Callable[..., tuple[Any, ...]] | None = None
    indexes: bool = False
    broadcasts: bool = False
    hides: bool = False
    element: bool = False
    samples: tuple[tuple[tuple[int, ...], tuple[Any, ...]], ...] = ()
    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...] = (True,), params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of a view: no kernel, its consumers write to the gradient of the base."""
        return Form(self, specs, spec, wanted, ("offset",), (None,), params, name)

    def lower(self, step: Any, lowering: Any) -> None:
        """Add no task: the result stands in the memory of the base."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Part(View):
    """One of several results of a routine, which stand end to end in one array. No record of the tables."""

    def __post_init__(self) -> None:
        """Register nothing."""


def view_pattern(op: View, source: Spec, value: np.ndarray[Any, Any], params: tuple[Any, ...]) -> tuple[Spec, int]:
    """Return the spec of a view, given its value, and its offset in the gradient of its source, in bytes.

    The view is taken once more, of a stand-in with the strides of the source's gradient. Raises ValueError where
    the gradient cannot be viewed so (a reshape of a tensor whose memory is ordered otherwise).
    """
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, source.dtype), source.shape, source.gradient)
    gradient = op.apply(stand_in, *params)
    offset = where(gradient) - where(stand_in) if gradient.size else 0
    return view_spec(value.shape, value.strides, value.dtype, gradient.strides, source.buffer_size), offset


def strided_batch(size: int, shape: Strides, to: Strides, strides: Strides, offset: int) -> tuple[Any, ...]:
    """Return the parameters of :func:`strided` of a batch."""
    return (size, *to), (math.prod(shape), *strides), offset


def strided(x: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """Return a view of the elements in order; shape, strides and offset count elements."""
    ends = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = offset + sum(min(e, 0) for e in ends), offset + sum(max(e, 0) for e in ends)
    if offset < 0 or (0 not in shape and not 0 <= low <= high < x.size):
        raise ValueError(f"as_strided: shape {shape}, strides {strides}, offset {offset} leave {x.size} elements")
    if type(x) is np.ndarray and x.flags.c_contiguous and x.size and 0 not in shape:
        # Of the array's memory itself: whose it is tells writes what they need not look for.
        return np.ndarray(shape, x.dtype, x, offset * x.itemsize, [s * x.itemsize for s in strides])
    flat = x.reshape(-1, copy=False)[offset:]
    return np.lib.stride_tricks.as_strided(flat, shape, [s * flat.strides[0] for s in strides])
