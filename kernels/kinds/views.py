"""Kinds of records that move elements: views, copies, joins, gathers and writes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from kernels.calls.object_types import Computation
from kernels.foundation.specs import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT64,
    Spec,
    Strides,
    broadcast,
    dense,
    inner_loop,
    silently,
    view_spec,
)
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form, Lowering, ProgramStep, is_fresh, pulls_of, strides_along
from kernels.native.memory import where
from kernels.native.structs import ADDS, CALLED, CLEARS, JOINED, NEST, NEST4, ONCE, VIEW
from kernels.rules.loop_printer import KernelOperand, PrintedLoop, nest_layout
from kernels.rules.op import Flags, Op, Params, Rule, Shapes, passed
from kernels.rules.scalar_loops import KernelCall, OperandPlace, node_of, same


@dataclass(frozen=True, eq=False, kw_only=True)
class View(Op):
    """The same memory under another shape: ``apply(array, *params)`` is the view, of values and gradients.

    ``batch(size, shape, *params)`` returns the parameters of the same view of a batch of so many arrays of a shape,
    the batch in front; without it ``vmap`` refuses. ``indexes``: the parameter is a basic index. ``broadcasts``: the
    array gets dims of one in front, as many as the result has. ``element``: a result without dims is what NumPy gives
    as a scalar, a value. ``hides``: nobody has the array, so that the result is none's view to the caller.
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
    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(self, specs: Any, spec: Spec, wanted: Flags = (True,), params: Params = (), name: str = "") -> Form:
        """Return the form of a view: no kernel, its consumers write to the gradient of the base."""
        return Form(self, specs, spec, wanted, ("offset",), (None,), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether there is one operand; what it shows of that is read from memory."""
        return len(shapes) == 1

    def lower(self, step: Any, lowering: Any) -> None:
        """Add no task: the result stands in the memory of the base."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ResultPart(View):
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy(Op):
    """The same values in new memory, of this or another dtype."""

    is_called: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("x",)
    repeatable: ClassVar[bool] = True

    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(self, specs: Any, spec: Spec, wanted: Flags = (True,), params: Params = (), name: str = "") -> Form:
        """Return the form of a copy, to the result's dtype."""
        (source,) = specs
        target = KernelOperand("target", source.dtype, 0, source.gradient)
        loop = PrintedLoop(passed, spec.shape, (target, KernelOperand("g", spec.dtype, 1, spec.gradient)))
        return Form(self, specs, spec, wanted, (), (loop,), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether the shape is the same."""
        return shapes == [spec.shape]

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Copy elements to another layout or dtype."""
        lowering.copy_between(node_of(step.operands[0]), step.result)

    def recomputed(self, form: Form, _: Params, *values: Any) -> Any:
        """Return the value of a result."""
        return values[0].astype(form.spec.dtype)

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Params) -> Computation | None:
        """Return how native code repeats it on these operands; None where Python has to do it."""
        source, spec = sources[0], form.spec
        if not is_fresh(spec):
            return None
        if source.dtype != spec.dtype or spec.dtype == BOOL:
            quiet = np.can_cast(source.dtype, spec.dtype) or (source.dtype.kind in "iub" and spec.dtype == FLOAT32)
            function = partial(np.array, dtype=spec.dtype, order="C") if quiet else partial(cast, spec.dtype)
            return Computation(CALLED, function=function, count=2)
        if spec.dtype.kind == "f" and spec.dtype not in (FLOAT64, FLOAT32):
            return None
        loop = inner_loop(np.positive, (spec.dtype, spec.dtype))
        if not spec.shape and spec.dtype == FLOAT64:
            return Computation(ONCE, loop, count=2)
        layout = nest_layout(spec.shape, strides_along(source, spec), spec.strides)
        return Computation(NEST, loop, layout=layout, count=2)


def cast(dtype: np.dtype[Any], value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a dtype, in C order."""
    return silently(np.array, value, dtype=dtype, order="C")  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Op):
    """Operands copied side by side along an axis."""

    shaped_by_params: ClassVar[bool] = True
    contribution: ClassVar[str] = "its part of {}"
    repeatable: ClassVar[bool] = True

    join: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of a join along (axis, new); with ``new`` the axis is one that the operands do not have."""
        axis, new = params
        starts = np.cumsum([0] + [1 if new else source.shape[axis] for source in specs[:-1]])
        gradient = list(spec.gradient)
        stride = gradient[axis]
        if new:
            gradient.pop(axis)

        def pull(i: int, source: Spec) -> PrintedLoop:
            target = KernelOperand("target", source.dtype, 0, source.gradient)
            cotangent = KernelOperand("g", spec.dtype, 1, tuple(gradient), offset=int(starts[i]) * stride)
            return PrintedLoop(passed, source.shape, (target, cotangent))

        return Form(self, specs, spec, wanted, (), pulls_of(specs, wanted, pull), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether the operands are alike but for the axis, along which their lengths add up."""
        axis, new = params
        (first, *_), ranks = shapes, {len(shape) for shape in shapes}
        if len(ranks) != 1 or type(axis) is not int or not 0 <= axis < len(first) + bool(new):
            return False
        around = {(*shape[:axis], *shape[axis + (not new) :]) for shape in shapes}
        length = len(shapes) if new else sum(shape[axis] for shape in shapes)
        return len(around) == 1 and (*first[:axis], length, *first[axis + (not new) :]) == spec.shape

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Copy each operand to its part of the result."""
        axis, new = step.params
        strides = list(lowering.spec(step.result).strides)
        stride = strides[axis]
        if new:
            strides.pop(axis)
        start = 0
        for operand in step.operands:
            node = node_of(operand)
            lowering.copy_between(node, step.result, tuple(strides), start * stride)
            start += 1 if new else lowering.spec(node).shape[axis]

    def recomputed(self, form: Form, _: Params, *values: Any) -> Any:
        """Return the value of a result."""
        return self.join(values, axis=form.params[0])

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Params) -> Computation | None:
        """Return how native code repeats it: by NumPy's loop that copies; None where dtypes or ranks differ."""
        (axis, new), spec = params, form.spec
        alike = all(s.dtype == spec.dtype and len(s.shape) == len(sources[0].shape) for s in sources)
        fresh = spec.shape and spec.size and spec.strides == dense(spec.shape, spec.dtype.itemsize)
        if not (alike and fresh and spec.dtype.kind in "fiu" and spec.dtype != np.float16):
            return None
        loop, start, layout = inner_loop(np.positive, (spec.dtype, spec.dtype)), 0, []
        strides = spec.strides[:axis] + spec.strides[axis + 1 :] if new else spec.strides
        nests = [nest_layout(s.shape, s.strides, strides) for s in sources]
        for source, nest in zip(sources, nests, strict=True):
            layout += [where(nest), start * spec.strides[axis]]
            start += 1 if new else source.shape[axis]
        return Computation(JOINED, loop, layout=np.array(layout, np.int64), kept=(nests,))


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Op):
    """Elements picked by index arrays, copied; the same element may be picked more than once."""

    is_called: ClassVar[bool] = True
    contribution: ClassVar[str] = "{}, added at the places picked"
    inputs: ClassVar[tuple[str, ...]] = ("x",)

    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(self, specs: Any, spec: Spec, wanted: Flags = (True,), params: Params = (), name: str = "") -> Form:
        """Return the form of a read by positions ``i`` in the source's gradient, saved or a second operand."""
        source = specs[0]
        specs = (source, None)[: len(specs)]
        operands = (
            KernelOperand("target", source.dtype, 0, (0,) * len(spec.shape)),
            KernelOperand("g", spec.dtype, 1, spec.gradient),
            KernelOperand("i", INT64, 2, dense(spec.shape, INT64.itemsize)),
        )
        loop = PrintedLoop(passed, spec.shape, operands, scatter=source.dtype.itemsize)
        return Form(self, specs, spec, wanted, ("i",), (loop, None)[: len(specs)], params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether there is a place for each element of the result."""
        return all(shape == spec.shape for shape in (*shapes[1:], *[places.shape for places in params])) and (
            len(shapes) == 1 or _are_places(specs[1])
        )

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Copy the elements that places pick, in elements of memory, and of the gradient: see Lowering.places."""
        node = node_of(step.operands[0])
        source, result = lowering.spec(node), lowering.spec(step.result)
        places = lowering.places(step)
        operands = (
            KernelOperand("target", result.dtype, 0, result.strides),
            KernelOperand("x", source.dtype, 1, (0,) * len(result.shape)),
            KernelOperand("i", INT64, 2, lowering.spec(places).strides),
        )
        loop = PrintedLoop(same, result.shape, operands, pullback=False, gather=source.dtype.itemsize)
        lowering.tasks.append(KernelCall(loop, (OperandPlace(step.result), OperandPlace(node), OperandPlace(places))))

    def recomputed(self, form: Form, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        source = form.specs[0]
        assert source is not None
        flat = np.zeros(source.buffer_size, source.dtype)
        np.ndarray(source.shape, source.dtype, flat, 0, source.gradient)[...] = values[0]
        return flat[saved[0]]


# The memory of a family has one gradient, so a write needs none of its own: its result is the base tensor's next
# version, which shares the gradient of the version before.

_PARTS = 2  # operands of a write: the part, and the value; a third is a tensor of places in the part


@dataclass(frozen=True, eq=False, kw_only=True)
class Write(Op):
    """Values written into part of a tensor's memory: the base tensor's next version.

    The gradient of that part goes to the values and is cleared; with ``adds`` the values were added to the part, and
    its gradient stays.
    """

    contribution: ClassVar[str] = "the part of {} that was written"
    adds: bool = False
    pullback: tuple[Rule | None, ...] = (lambda g: g, lambda g: g)

    @property
    def tape_kind(self) -> int:  # type: ignore[override]
        """How a sweep treats its instructions."""
        return ADDS if self.adds else CLEARS

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of a write to (region, None), a pattern in the gradient of the base, or to (None, shape).

        The latter are positions ``i`` of this shape, in elements of the base's gradient. ``spec`` is the base's; the
        second of ``specs`` is the value's, None of a number or where its gradient is not wanted.
        """
        (_, source), (region, shape) = specs, params
        over, strides = (region.shape, region.gradient) if shape is None else (shape, (0,) * len(shape))
        places = () if shape is None else (KernelOperand("i", INT64, 3, dense(shape, INT64.itemsize)),)
        step = None if shape is None else spec.dtype.itemsize
        clear = pull = None
        if wanted[0] and not self.adds:
            target = KernelOperand("target", spec.dtype, 0, strides)
            clear = PrintedLoop(_nothing, over, (target, *places), pullback=False, scatter=step)
        if wanted[1] and source is not None:
            target = KernelOperand("target", source.dtype, 0, broadcast(source.shape, source.gradient, over))
            cotangent = KernelOperand("g", spec.dtype, 1, strides)
            pull = PrintedLoop(passed, over, (target, cotangent, *places), gather=step)
        saved, pattern = ("offset", *(place.name for place in places)), spec if wanted[0] else None
        return Form(self, (pattern, source), spec, wanted, saved, (clear, pull), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether the value spreads over the part, or over the places."""
        if len(shapes) > _PARTS:
            return _are_places(specs[2]) and np.broadcast_shapes(shapes[1], shapes[2]) == shapes[2]
        onto = params[0].shape if params else spec.shape
        return np.broadcast_shapes(*shapes[1:], onto) == onto

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Copy a value into part of a base; what pullbacks need of that part is saved before."""
        lowering.keep_overwritten(step)
        part = lowering.spec(step.result)
        value = lowering.operand(step.operands[1], part.dtype)
        if len(step.operands) == _PARTS and not step.params:
            lowering.copy_between(value, step.result, adds=self.adds)
            return
        places, source = lowering.places(step), lowering.spec(value)
        shape = lowering.spec(places).shape
        operands = (
            KernelOperand("target", part.dtype, 0, (0,) * len(shape)),
            KernelOperand("x", source.dtype, 1, broadcast(source.shape, source.strides, shape)),
            KernelOperand("i", INT64, 2, lowering.spec(places).strides),
        )
        loop = PrintedLoop(same, shape, operands, pullback=False, scatter=part.dtype.itemsize, adds=self.adds)
        lowering.tasks.append(KernelCall(loop, (OperandPlace(step.result), OperandPlace(value), OperandPlace(places))))


def _are_places(spec: Spec | None) -> bool:
    return spec is not None and spec.dtype == INT64 and spec.strides == dense(spec.shape, INT64.itemsize)


def _nothing() -> float:
    return -0.0


def write_computation(source: Spec | None, spec: Spec, shown: np.ndarray[Any, Any]) -> Computation | None:
    """Return how native code repeats a write of a value (None: a number) to part of an array; None if it cannot."""
    dtype = spec.dtype
    if dtype not in (FLOAT64, FLOAT32) or not shown.size or spec.overlaps or spec.strides != spec.gradient:
        return None
    if source is not None and (source.dtype != dtype or len(source.shape) > shown.ndim):
        return None
    along = (0,) * shown.ndim if source is None else broadcast(source.shape, source.strides, shown.shape)
    loop = inner_loop(np.positive, (dtype, dtype))
    layout = nest_layout(shown.shape, along, shown.strides)
    return Computation(NEST4 if dtype == FLOAT32 else NEST, loop, layout=layout, count=2)
