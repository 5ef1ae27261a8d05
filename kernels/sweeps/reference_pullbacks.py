"""The reverse sweep with NumPy's arrays: pullbacks run as they stand in the records, each contribution in NumPy.

A gradient buffer is a flat array of its family's size; one of a batched sweep has a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from kernels.foundation.specs import (
    SCALAR,
    Array,
    CrossingError,
    GradientObserver,
    Outcome,
    Seed,
    Spec,
    Task,
    add_to,
    changed,
    empty,
    meets_itself,
    pattern,
    plant,
    shaped,
    silently,
)
from kernels.kinds.form import Form, Pull
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.routine import CustomKernel, RoutineCall
from kernels.native.structs import CLEARS, PYTHON, VIEW
from kernels.rules.loop_printer import Factor, KernelOperand, PrintedLoop, Product, RowPull
from kernels.rules.op import Exponent
from kernels.sweeps.reference import Sweep
from kernels.sweeps.workspace import MarkedGraph, drop, mark


def sweep(task: Task) -> Outcome:
    """Sweep a tape; see :func:`kernels.sweeps.reverse.run`."""
    graph = mark(task.entries, task.number, task.seeds)
    if not task.cross_tape and graph.foreign():
        raise CrossingError
    outcome = sweep_graph(graph, task.seeds, task.observers, task.restrict, task.batch, task.hooked, task.reached)
    if (readers := task.releasing()) is not None:
        drop(readers, task.entries, graph.marked)
    return outcome


def sweep_graph(
    graph: MarkedGraph,
    seeds: list[Seed],
    observers: Sequence[GradientObserver],
    restrict: bool,
    batch: int = 0,
    hooked: Collection[int] = (),
    reached: Callable[[Any, Any], None] | None = None,
) -> Outcome:
    """Sweep a graph that may span several tapes; nothing is dropped. The parameters are those of :class:`Task`.

    With ``restrict`` the graph keeps only the instructions that were needed: the others may be swept again.
    """
    array_sweep = ArraySweep(graph, seeds, observers, restrict, batch, reached)
    watched = array_sweep.watched
    array_sweep.run([id(end) for end in graph.ends if id(end) in hooked and (end in watched or not restrict)])
    if array_sweep.relevant is not None:
        graph.narrow(array_sweep.relevant, {key for key, o in watched.items() if o.asked and (o.hook or o.after)})
    return array_sweep.outcome()


class ArraySweep(Sweep):
    """A sweep whose gradients are arrays."""

    def __init__(
        self,
        graph: MarkedGraph,
        seeds: list[Seed],
        observers: Sequence[GradientObserver],
        restrict: bool,
        batch: int,
        reached: Callable[[Any, Any], None] | None,
    ) -> None:
        self.watched = {observer.key: observer for observer in observers}
        asked = {o.key for o in observers if o.asked} if restrict else None
        super().__init__(graph, set(self.watched), {seed.slot for seed in seeds}, asked)
        self.restrict, self.batch, self.reached = restrict, batch, reached
        self.stash: dict[Any, Any] = {}
        self.served: set[Any] = set()
        for observer in observers:
            observer.gradient = None
        for seed in seeds:
            plant(buffer_of(self.buffers, seed.slot, seed.spec, batch), seed)

    def add(self, key: Any, offset: int, spec: Spec, value: Array) -> None:
        """Add to a part of a buffer."""
        add_to(pattern(buffer_of(self.buffers, key, spec, self.batch), spec, offset), value)

    def pull(self, instruction: Instruction, gradient: Array) -> None:
        """Run the pullbacks of an instruction, and the hook behind them."""
        observer = self.watched.get(instruction.slot)
        if observer is not None and observer.after is not None:
            self.call(instruction, gradient)
            return
        for i in range(len(instruction.operands)):
            self._contribute(instruction, i, gradient, 0)

    def call(self, instruction: Instruction, gradient: Array | None) -> None:
        """Have Python compute what an instruction contributes, and hooks look at that; add it."""
        form, observer = instruction.form, self.watched.get(instruction.slot)
        start = self.home(instruction.operands[0])[1] if form.kind == VIEW else 0
        values = run(instruction, gradient, observer, self.stash, batch=self.batch, start=start)
        for operand, spec, value in zip(instruction.operands, form.specs, values, strict=True):
            if spec is not None and value is not None and self.wants(operand):
                self.add(*self.home(operand), spec, value + spec.dtype.type(form.op.nothing))

    def _contribute(self, instruction: Instruction, i: int, gradient: Array, start: int) -> None:
        """Run one pullback, which adds to the operand's gradient where that stands."""
        form, operand, spec = instruction.form, instruction.operands[i], instruction.form.specs[i]
        if form.pulls[i] is not None and spec is not None and self.wants(operand):
            top, offset = self.home(operand)
            rows = np.atleast_2d(buffer_of(self.buffers, top, spec, self.batch))
            for row, cotangent in zip(rows, np.atleast_2d(gradient), strict=True):
                contribute(form, i, row, offset, cotangent, instruction.saved, start)

    def unwrite(self, instruction: Instruction, home: Any) -> None:
        """Give the gradient of what was written to the value; clear it where it stands."""
        form, saved, gradient = instruction.form, instruction.saved, self.buffers[home]
        self._contribute(instruction, 1, gradient, saved[0])
        if form.kind == CLEARS and form.pulls[0] is not None:
            for row in np.atleast_2d(gradient):
                clear(form.pulls[0], row, saved)

    def fold(self, instruction: Instruction, gradient: Array) -> None:
        """Add a whole buffer to another; that of a view with hooks behind it by way of these."""
        observer = self.watched.get(instruction.slot)
        if observer is not None and observer.after is not None:
            self.call(instruction, gradient)
        else:
            buffer_of(self.buffers, self.above(instruction), instruction.form.spec, self.batch)[...] += gradient

    def observe(self, instruction: Instruction) -> None:
        """Run the hook of a result; give the observer the gradient that is passed on."""
        observer = self.watched[instruction.slot]
        place = pattern(self.buffers[observer.key], observer.spec, observer.offset)
        replacement = None if observer.hook is None else observer.hook(place + place.dtype.type(0.0))
        if replacement is not None:
            place[...] = changed(place, replacement)
        self._keep(observer)

    def _keep(self, observer: GradientObserver) -> None:
        place = pattern(self.buffers[observer.key], observer.spec, observer.offset)
        observer.gradient = place + place.dtype.type(0.0)

    def serve(self, leaf: Any) -> None:
        """Hand over the gradient of a leaf."""
        assert self.reached is not None
        self.served.add(leaf)
        self.reached(leaf, _delivered(self.buffers[leaf], leaf.spec))

    def outcome(self) -> Outcome:
        """Return what reached leaves and other tapes; give observers what reached no instruction of the sweep."""
        for key, observer in self.watched.items():
            if key in self.buffers:
                self._keep(observer)
        ends = [
            (end, spec, self.buffers[end])
            for end, spec in self.graph.ends.items()
            if end in self.buffers and end not in self.watched and end not in self.served
        ]
        foreign = [(end, spec, pattern(buffer, spec, 0).copy()) for end, spec, buffer in ends if type(end) is int]
        leaves = [] if self.restrict else [(end, buffer) for end, _, buffer in ends if type(end) is not int]
        return [(leaf, _delivered(buffer, leaf.spec)) for leaf, buffer in leaves], foreign


def buffer_of(buffers: dict[Any, Array], key: Any, spec: Spec, batch: int) -> Array:
    """Return the buffer of a slot or leaf, made at the first contribution of -0.0: nothing."""
    if key not in buffers:
        buffers[key] = empty(spec, batch)
    return buffers[key]


def _delivered(buffer: Array, spec: Spec) -> Array | float:
    """Return the gradient of a leaf as it is handed over."""
    gradient = (shaped(buffer, spec) if buffer.ndim == 1 else pattern(buffer, spec, 0)) + spec.dtype.type(0.0)
    return float(gradient) if spec is SCALAR and buffer.ndim == 1 else np.asarray(gradient)


def clear(pull: Pull, buffer: Array, saved: tuple[Any, ...]) -> None:
    """Take away from a buffer what a write overwrites."""
    assert isinstance(pull, PrintedLoop)
    places = saved[1] if pull.scatter is not None else None
    target = pull.operands[0]
    buffer[_elements(pull, target, places, pull.scatter).reshape(-1) + saved[0] // buffer.itemsize] = -0.0


# What one instruction contributes: native sweeps call this, too, where Python has to act.


def run(
    instruction: Instruction,
    cotangent: Array | None,
    observer: GradientObserver | None,
    stash: dict[Any, Any],
    *,
    batch: int,
    start: int = 0,
) -> list[Array | None]:
    """Return what an instruction contributes to each of its operands, after the hook that stands behind it.

    ``cotangent`` is the gradient buffer of its result, None if nothing reached it; ``start`` where the operand of a
    view begins.
    """
    if cotangent is None:
        return list(instruction.saved[0].pull(instruction, None, stash, batch=batch))
    results = contributions(instruction, cotangent, stash, batch=batch, start=start)
    if observer is None or observer.after is None:
        return results
    shown = [None if result is None else result + result.dtype.type(0.0) for result in results]
    output = pattern(cotangent, observer.spec, observer.offset) + cotangent.dtype.type(0.0)
    pairs = zip(results, observer.after(shown, output), strict=True)
    return [None if new is None or old is None else changed(old, new) for old, new in pairs]


def contributions(
    instruction: Instruction, cotangent: Array, stash: dict[Any, Any], *, batch: int = 0, start: int = 0
) -> list[Array | None]:
    """Return what an instruction contributes to each of its operands, in the operand's shape.

    ``cotangent`` is the gradient buffer of its result; with ``batch`` both have a leading axis. That of a view is its
    family's, in which the operand begins at ``start``.
    """
    form = instruction.form
    if form.kind == PYTHON:
        gradient, context = pattern(cotangent, form.spec, 0), instruction.saved[0]
        kept = gradient if isinstance(context, RoutineCall) else gradient.copy()  # user code may keep it
        return list(context.pull(instruction, kept, stash, batch=batch))
    if batch:
        rows = [contributions(instruction, row, stash, start=start) for row in cotangent]
        return [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]
    results: list[Array | None] = []
    for i, (operand, spec) in enumerate(zip(instruction.operands, form.specs, strict=True)):
        if operand is None or spec is None or (form.pulls[i] is None and form.kind != VIEW):
            results.append(None)
            continue
        if form.kind == VIEW:
            results.append(_once(pattern(cotangent.copy(), spec, start)))
            continue
        buffer, first = empty(spec, 0), lowest(spec)
        contribute(form, i, buffer, first, cotangent, instruction.saved)
        results.append(_once(pattern(buffer, spec, first)))
    return results


def _once(place: Array) -> Array:
    """Return a part of a gradient buffer with each element once, which a tensor that was expanded meets many times."""
    if 0 not in place.strides and not meets_itself(place.shape, place.strides, place.itemsize):
        return place
    at = sum(np.ix_(*[np.arange(n) * stride for n, stride in zip(place.shape, place.strides, strict=True)]))
    _, first = np.unique(np.ravel(at), return_index=True)
    result = np.full(place.shape, -0.0, place.dtype)
    result.reshape(-1)[first] = place.reshape(-1)[first]
    return result


def lowest(spec: Spec) -> int:
    """Return the least offset at which a pattern, whose strides may be negative, fits into a gradient buffer."""
    return -sum([min((n - 1) * stride, 0) for n, stride in zip(spec.shape, spec.gradient, strict=True) if n])


def contribute(
    form: Form, i: int, buffer: Array, offset: int, cotangent: Array, saved: tuple[Any, ...], start: int = 0
) -> None:
    """Add the contribution of one pullback to a buffer; ``start`` is where the cotangent's pattern begins, in bytes."""
    pull, spec = form.pulls[i], form.specs[i]
    assert spec is not None
    if isinstance(pull, Product):
        add_to(pattern(buffer, spec, offset), silently(product, pull, (None, cotangent, *saved)).reshape(spec.shape))
    elif isinstance(pull, (CustomKernel, RowPull)):
        pull.contribute(buffer, offset, cotangent, saved)
    else:
        assert isinstance(pull, PrintedLoop)
        add_by_elements(pull, buffer, offset, cotangent, start, saved)


def add_by_elements(
    loop: PrintedLoop, buffer: Array, offset: int, source: Array, start: int, saved: tuple[Any, ...]
) -> None:
    """Add to a flat buffer what a loop, there or back, makes of another; where their patterns begin is in bytes."""
    if 0 in loop.shape:
        return
    values, (target, g, *others) = (None, None, *saved), loop.operands
    reads = {o.name: as_strided(np.asarray(values[o.place]), loop.shape, o.strides) for o in others}
    places = reads.pop("i", None)
    reads["g"] = source[_elements(loop, g, places, loop.gather) + start // g.dtype.itemsize]
    with np.errstate(all="ignore"):
        result = loop.rule(**reads, **{name: Exponent(value) for name, value in loop.static})
        if loop.expression.head != "cut":
            result = result + 0.0
    cut = (reads["g"] == 0) & np.signbit(reads["g"])
    result = np.broadcast_to(np.where(cut, -0.0, result), loop.shape)
    at = _elements(loop, target, places, loop.scatter) + offset // target.dtype.itemsize
    with np.errstate(all="ignore"):  # elements may meet, where an axis was broadcast
        np.add.at(buffer, at.reshape(-1), result.astype(target.dtype).reshape(-1))


def _elements(loop: PrintedLoop, operand: KernelOperand, places: Array | None, step: int | None) -> Array:
    """Return which element of its gradient buffer each place of a loop meets."""
    item = operand.dtype.itemsize
    flat = np.full(loop.shape, (operand.offset or 0) // item)
    for axis, (n, stride) in enumerate(zip(loop.shape, operand.strides, strict=True)):
        flat += (np.arange(n) * (stride // item)).reshape([-1 if a == axis else 1 for a in range(len(loop.shape))])
    return flat if step is None or places is None else flat + places * (step // item)


def product(pull: Product, values: tuple[Any, ...]) -> Array:
    """Return a product of matrices, there or back: of these values, a by the strides of its factors."""
    m, n, k = pull.extents

    def matrix(factor: Factor, rows: int, columns: int) -> Array:
        return as_strided(np.asarray(values[factor.place]), (rows, columns), factor.strides)

    return np.asarray(matrix(pull.left, m, k) @ matrix(pull.right, k, n) + 0.0)
