"""The sweep in plain Python and NumPy: where the native one cannot read memory, and to test it against.

A gradient buffer is a flat array of its family's size; rules run on arrays as they stand in the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import (
    Array,
    CrossingError,
    GradientObserver,
    Outcome,
    Seed,
    Task,
    add_to,
    changed,
    pattern,
    plant,
    shaped,
)
from kernels.foundation.specs import Spec
from kernels.kinds.form import Pull
from kernels.kinds.reference_tape import Instruction
from kernels.native.structs import ADDS, CLEARS, PULLS, PYTHON, VIEW
from kernels.rules.loop_printer import PrintedLoop
from kernels.sweeps.graph import Graph, drop, key_of, mark, relevant
from kernels.sweeps.leaves import by_slot, refuse
from kernels.sweeps.reference_pullbacks import contribute, elements_of, run


def sweep(task: Task) -> Outcome:
    """Sweep a tape; see :func:`kernels.sweeps.reverse.sweep`."""
    graph = mark(task.entries, task.number, task.seeds)
    if not task.cross_tape and graph.foreign():
        raise CrossingError
    if task.hooked and task.reached is None:
        refuse(list(graph.ends.values()), task.hooked)
    hooks = (task.hooked, task.reached) if task.reached is not None else None
    outcome = sweep_graph(graph, task.seeds, task.observers, restrict=task.restrict, batch=task.batch, hooks=hooks)
    if (readers := task.releasing()) is not None:
        drop(readers, task.entries, graph.marked)
    return outcome


def sweep_graph(
    graph: Graph,
    seeds: list[Seed],
    observers: Sequence[GradientObserver],
    *,
    restrict: bool,
    batch: int = 0,
    hooks: tuple[Collection[int], Callable[[Any, Any], None]] | None = None,
) -> Outcome:
    """Sweep instructions that have been found back from the seeds; nothing is dropped.

    With ``restrict`` the graph keeps only those that were needed: the others may be swept again.
    ``hooks``: which leaves have some, by id, and who is given the gradient of such a leaf.
    """
    keyed = {key_of(observer.key): observer for observer in observers}
    marked = graph.marked
    state = State(marked, set(keyed) | graph.split | {seed.slot for seed in seeds}, batch)
    if restrict:
        asked = {key_of(o.key) for o in observers if o.asked}
        state.relevant = relevant(graph, asked)
    for seed in seeds:
        plant(state.buffer_of(seed.slot, seed.spec), seed)
    stops = Stops(graph, keyed, state, hooks, restrict=restrict) if hooks else None
    for instruction in marked:
        if state.relevant is None or instruction.slot in state.relevant:
            observer = keyed.get(instruction.slot)
            if observer is not None and observer.hook is not None and instruction.slot in state.buffers:
                _hook(observer, state.buffers[instruction.slot])
            _step(instruction, state, observer)
            if stops is not None:
                stops.after(instruction.slot)
    ends = graph.ends if stops is None else {k: end for k, end in graph.ends.items() if k not in stops.reached}
    outcome = _outcome(ends, state.buffers, keyed, restrict)
    _give_observers(keyed, state.buffers)
    if state.relevant is not None:
        graph.narrow(state.relevant, {key for key, o in keyed.items() if o.asked and (o.hook or o.after)})
    return outcome


class State:
    """The gradient buffers of a sweep, and whose gradient buffer each slot writes to."""

    def __init__(self, marked: list[Instruction], kept: set[Any], batch: int) -> None:
        self.homes = {i.slot: i for i in marked if i.form.kind in _ALIASES and i.operands[0] is not None}
        self.kept = kept
        self.batch = batch
        self.relevant: set[Any] | None = None
        self.buffers: dict[Any, Array] = {}
        self.stash: dict[Any, Any] = {}

    def home(self, key: Any) -> tuple[Any, int]:
        """Return whose gradient buffer a slot writes to, and where its pattern begins."""
        alias = self.homes.get(key)
        offset, top = alias.saved[0] if alias is not None and alias.form.kind == VIEW else 0, key
        while top in self.homes and top not in self.kept:
            top = key_of(self.homes[top].operands[0])
        return top, offset

    def above(self, instruction: Instruction) -> Any:
        """Return whose gradient buffer that of a view, or of the version before a write, is."""
        return self.home(key_of(instruction.operands[0]))[0]

    def buffer_of(self, key: Any, spec: Spec) -> Array:
        """Return a gradient buffer, made at the first contribution."""
        if key not in self.buffers:
            shape = (self.batch, spec.buffer_size) if self.batch else (spec.buffer_size,)
            self.buffers[key] = np.full(shape, -0.0, spec.dtype)
        return self.buffers[key]


class Stops:
    """Where the leaves that have hooks have all of their gradient, and who is given it."""

    def __init__(
        self,
        graph: Graph,
        keyed: dict[Any, GradientObserver],
        state: State,
        hooks: tuple[Collection[int], Callable[[Any, Any], None]],
        *,
        restrict: bool,
    ) -> None:
        hooked, self.give = hooks
        self.state, self.reached = state, set[Any]()
        ends = [(k, id(end)) for k, (end, _) in graph.ends.items()]
        wanted = {end for k, end in ends if end in hooked and (k in keyed or not restrict)}
        self.stops = by_slot(graph, state.relevant, wanted)

    def after(self, slot: int) -> None:
        """Hand over the leaves that are used for the last time by the instruction that has just run."""
        for end in self.stops.get(slot, ()):
            key = key_of(end)
            if key in self.state.buffers:
                self.reached.add(key)
                self.give(end, _delivered(self.state.buffers[key], end.spec))


_ALIASES = (VIEW, CLEARS, ADDS)


def _hook(observer: GradientObserver, buffer: Array) -> None:
    assert observer.hook is not None
    place = pattern(buffer, observer.spec, observer.offset)
    replacement = observer.hook(place + place.dtype.type(0.0))
    if replacement is not None:
        place[...] = changed(place, replacement)


def _give_observers(keyed: dict[Any, GradientObserver], buffers: dict[Any, Array]) -> None:
    """Give each observer its gradient, None if nothing has been contributed to it."""
    for key, observer in keyed.items():
        observer.gradient, buffer = None, buffers.get(key)
        if buffer is not None:
            observer.gradient = pattern(buffer, observer.spec, observer.offset) + observer.spec.dtype.type(0.0)


def _step(instruction: Instruction, state: State, observer: GradientObserver | None) -> None:
    """Run the pullbacks of one instruction; an observed view, or version, folds into the gradient buffer above it."""
    form, slot = instruction.form, instruction.slot
    if form.kind == PYTHON or (observer is not None and observer.after is not None and slot in state.buffers):
        _python(instruction, state, observer)
        return
    apart = slot in state.homes and slot in state.kept
    if form.kind == VIEW:
        if apart and slot in state.buffers:
            state.buffer_of(state.above(instruction), form.spec)[...] += state.buffers[slot]
        return
    home = state.above(instruction) if slot in state.homes and not apart else slot
    if home not in state.buffers:
        return
    cotangent = state.buffers[home].copy() if apart else state.buffers[home]
    _contribute(instruction, cotangent, state)
    if apart:
        state.buffer_of(state.above(instruction), form.spec)[...] += cotangent
    if home == slot and slot not in state.kept:
        del state.buffers[slot]


def _contribute(instruction: Instruction, cotangent: Array, state: State) -> None:
    form = instruction.form
    for i, operand in enumerate(instruction.operands):
        if form.pulls[i] is not None and not (i == 0 and form.kind != PULLS):
            _pull(instruction, i, operand, cotangent, state)
    if form.kind == CLEARS and form.pulls[0] is not None:
        for row in np.atleast_2d(cotangent):
            _clear(form.pulls[0], row, instruction.saved)


def _pull(instruction: Instruction, i: int, operand: Any, cotangent: Array, state: State) -> None:
    form, key = instruction.form, key_of(operand)
    spec = form.specs[i]
    if operand is None or spec is None or (state.relevant is not None and key not in state.relevant):
        return
    top, offset = state.home(key)
    target = state.buffer_of(top, spec)
    start = instruction.saved[0] if form.kind != PULLS else 0
    pairs = zip(np.atleast_2d(target), np.atleast_2d(cotangent), strict=True)
    for row, cotangent_row in pairs:
        contribute(form, i, row, offset, cotangent_row, instruction.saved, start)


def _clear(pull: Pull, buffer: Array, saved: tuple[Any, ...]) -> None:
    assert isinstance(pull, PrintedLoop)
    places = saved[1] if pull.scatter is not None else None
    buffer[elements_of(pull, places, buffer.itemsize).reshape(-1) + saved[0] // buffer.itemsize] = -0.0


def _python(instruction: Instruction, state: State, observer: GradientObserver | None) -> None:
    """Let Python compute what the instruction contributes to its operands, and add that."""
    start = state.home(key_of(instruction.operands[0]))[1] if instruction.form.kind == VIEW else 0
    buffer = state.buffers.get(instruction.slot)
    contributions = run(instruction, buffer, observer, state.stash, batch=state.batch, start=start)
    for operand, source, value in zip(instruction.operands, instruction.form.specs, contributions, strict=True):
        relevant = state.relevant is None or key_of(operand) in state.relevant
        if operand is not None and source is not None and value is not None and relevant:
            top, offset = state.home(key_of(operand))
            add_to(
                pattern(state.buffer_of(top, source), source, offset),
                value + source.dtype.type(instruction.form.op.nothing),
            )


def _outcome(
    ends: dict[Any, Any], buffers: dict[Any, Array], keyed: dict[Any, GradientObserver], restrict: bool
) -> Outcome:
    leaves: list[Any] = []
    foreign: list[Any] = []
    for key, (operand, spec) in ends.items():
        if key in keyed:
            continue
        buffer = buffers.get(key)
        if buffer is None:
            continue
        if type(operand) is int:
            foreign.append((operand, spec, pattern(buffer, spec, 0).copy()))
        elif not restrict:
            leaves.append((operand, _delivered(buffer, operand.spec)))
    return leaves, foreign


def _delivered(buffer: Array, spec: Spec) -> Array | float:
    """Return the gradient of a leaf as it is handed over."""
    gradient = (shaped if buffer.ndim == 1 else _patterned)(buffer, spec) + spec.dtype.type(0.0)
    return float(gradient) if _is_scalar(spec) and buffer.ndim == 1 else np.asarray(gradient)


def _patterned(buffer: Array, spec: Spec) -> Array:
    return pattern(buffer, spec, 0)


def _is_scalar(spec: Spec) -> bool:
    return spec.shape == () and spec.dtype == np.float64
