"""Recorded calls: what a call of a function did, and whether two calls did the same."""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.kinds.reference_tape import root_of
from kernels.native.c_api import NATIVE
from kernels.native.memory import where
from kernels.programs.program import ProgramError, ProgramNode, Recipe, describe
from kernels.rules.loop_printer import DTYPES
from tape.compiled.body_maker import Rolled, rolled
from tape.compiled.call_recorder import CallRecorder
from tape.compiled.function_calls import same, same_kind, same_params
from tape.compiled.loop_spans import Heads, RecordedTrace, Visit, unrolled
from tape.random import Draw
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.pytrees import Structure, flattened
from tape.tensors.tensor import Tensor, as_array
from tape.tensors.view_families import is_view
from tape.transforms import value_and_grad
from tape.watching import frame_events
from tape.watching.python_loops import HeadWatch
from tape.watching.snapshots import ArrayContent
from tape.watching.watched import CodeKey, Finder

_HELD_BY_LOOP = 2
"""References to an object from the loop that counts them."""
(_ALONE,) = map(sys.getrefcount, [object()])
"""What is counted of an object that a list alone holds."""


class Recording:
    """One call: the recipe, its guards, what it read from outside, its results, and why it is ``stopped``, if so."""

    def __init__(self, recorder: CallRecorder, inputs: int) -> None:
        self.recipe: Recipe = recorder.recipe
        self.inputs = inputs
        self.guards, self.stopped = recorder.guards, recorder.stopped
        self.caught, self.catches = recorder.caught, recorder.catches
        """Which error it went on behind, so that it tells of this call alone; whether there are guards of errors."""
        self.outer, self.sources, self.readers = recorder.outer, recorder.sources, recorder.readers
        self.draws, self.kept_calls, self.refilled = recorder.draws, recorder.kept, recorder.refilled
        self.rounds = recorder.rounds or not NATIVE
        """Whether gradients may round otherwise than in dynamic mode, as plain sweeps do."""
        self.original_sources, self.original_readers = self.sources, self.readers
        """Sources as recorded, by the nodes of the unrolled recipe."""
        self.path = tuple([guard.value for guard in self.guards])
        """The values that left for Python, in order: which way the call went; a loop is one mark."""
        self.guard_positions = list(range(len(self.path)))
        self.unrolled = ""
        """Why a loop stays Python."""
        self.rolled: Rolled | None = None
        """What the recipe is of which loops were found: that has these without their bodies."""
        self.taken_over, self.written_outside = recorder.taken_over, [*recorder.taken_over.values(), *recorder.replaced]
        self.template: Structure
        self.reads: Finder
        """What code that ran read from outside, of that which was not known."""
        self.kept: dict[int, Any] = {}
        self.discarded = False
        """Whether it tells of this call alone."""
        self.drawn = ""
        """Why the call cannot be replayed, if it drew random numbers of Python's or NumPy's."""
        self.impure = ""
        """What the call changed outside, so that no call of the function can be replayed."""

    def stop(self, reason: str) -> None:
        """Note why no program can be made of this call; the first reason counts."""
        self.stopped = self.stopped or reason

    def writes(self, values: Sequence[Any]) -> bool:
        """Whether the call wrote to an argument that is no number."""
        arguments = zip(self.recipe.arguments, values, strict=False)
        return any(node in self.recipe.written and isinstance(x, (np.ndarray, Tensor)) for node, x in arguments)

    def check_written(self, values: Sequence[Any]) -> None:
        """Discard the recording where an argument was written that has memory of another."""
        arguments = self.recipe.arguments[: self.inputs]
        written = [i for i, node in enumerate(arguments) if node in self.recipe.written]
        try:
            value_and_grad.check_written([f"argument {i}" for i in range(len(values))], values, written)
        except ProgramError:
            self.discarded = True

    def slim(self, live: dict[int, Any]) -> None:
        """Keep only what a later recording is compared with; what is read by reference need not be copied."""
        self.readers, self.taken_over, self.written_outside = {}, {}, []
        for guard in self.guards:
            guard.tensor = None
        for node, source in live.items():
            if isinstance(source, np.ndarray):
                self.recipe.nodes[node] = replace(self.recipe.nodes[node], constant=source)


class RecordingStage(enum.Enum):
    """Which recording of a call this is: the first, or a later one with or without guards in the earlier."""

    FIRST = enum.auto()
    PLAIN = enum.auto()
    GUARDED = enum.auto()


def record_call(
    function: Callable[[list[Tensor]], Any],
    inputs: list[Tensor],
    *,
    again: RecordingStage,
    codes: Mapping[CodeKey, Any],
    contents: Iterable[ArrayContent] = (),
    graded: bool = False,
) -> tuple[Any, Recording]:
    """Call a function on its arguments' tensors, recorded; return its result, whose tensors own their memory.

    Where there was such a call, the user's lines are kept, and what code reads that is not known by ``codes``; where
    values left for Python in it, loops are found. ``contents`` are of arrays that code reads. ``graded`` turns gradient
    mode on.
    """
    before, recorder = modes.current(), CallRecorder(lines=again is not RecordingStage.FIRST)
    mode, watch, finder = before._replace(recorder=recorder, grad=graded or before.grad), None, Finder(codes)
    recorder.begun = [ArrayContent(content.array) for content in contents]
    if again is not RecordingStage.FIRST:
        watch = HeadWatch(recorder.visited if again is RecordingStage.GUARDED else None, finder.note)
    under = mode, _called, recorder, function, inputs, watch
    leaves, template, outputs = frame_events.rarely_collected(modes.call_under, *under)
    recording = Recording(recorder, len(inputs))
    recording.reads = finder
    recording.template, recording.recipe.outputs = template, outputs
    recording.recipe.steps.fit()
    recording.kept = {i: kept(x) for i, x in enumerate(leaves) if not isinstance(x, Tensor)}
    _look_for_changes(recorder, recording)
    nodes = {id(node): node for node in recording.recipe.nodes}
    names = {node.spec.dtype.name for node in nodes.values()} - DTYPES
    if names:
        recording.stop(f"programs hold no {min(names)}")
    escaped = "" if recording.stopped else _escaped(recorder, leaves)
    if escaped:
        recording.impure = f"a tensor that the call made, {escaped}, stays behind somewhere else than in its result"
    if again is RecordingStage.GUARDED and watch is not None and not (watch.reason or recording.stopped):
        _roll(recording, recorder.visits)
    return template.filled(owned(leaves, inputs)), recording


def _roll(recording: Recording, visits: Sequence[Visit]) -> None:
    """Find the loops of a recording; its recipe has then marks in their place."""
    trace = RecordedTrace(recording.recipe)
    recording.rolled, spans, recording.unrolled = rolled(recording, Heads(trace, visits))
    recording.unrolled = recording.unrolled or unrolled(trace, visits, spans)
    if recording.rolled is not None:
        recording.rolled.put(recording, least=None)


def _called(
    recorder: CallRecorder, function: Callable[[list[Tensor]], Any], inputs: list[Tensor], watch: HeadWatch | None
) -> tuple[list[Any], Structure, list[int]]:
    for x in inputs:
        recorder.argument(x)
    result = function(inputs) if watch is None else watch.call(function, inputs)
    leaves, template = flattened(result, none=True)
    return leaves, template, _outputs(recorder, leaves)


def owned(leaves: Sequence[Any], inputs: Sequence[Tensor]) -> list[Any]:
    """Return results, copied where they are of an argument's memory, parts of another tensor, or one result twice."""
    seen = set(map(_memory, inputs))
    results = []
    for x in leaves:
        if isinstance(x, Tensor) and (is_view(x) or _memory(x) in seen):
            results.append(clone(x))
        else:
            results.append(x)
            seen.update([_memory(x)] if isinstance(x, Tensor) else ())
    return results


def _memory(x: Tensor) -> tuple[str, int]:
    return ("tensor", id(x)) if type(x._value) is float else ("memory", where(root_of(as_array(x))))


def _outputs(recorder: CallRecorder, leaves: Sequence[Any]) -> list[int]:
    try:
        return [] if recorder.stopped else [recorder.reference(x).node for x in leaves if isinstance(x, Tensor)]
    except (ProgramError, NotImplementedError) as error:
        recorder.stop(str(error))
        return []


def kept(x: Any) -> Any:
    """Return a result that is no tensor as it is kept, or given out: an array copied."""
    return x.copy() if isinstance(x, np.ndarray) else x


def _look_for_changes(recorder: CallRecorder, recording: Recording) -> None:
    """Stop where memory changed unseen: what NumPy shares, and what was read from outside."""
    for guard in recorder.guards:
        x = guard.tensor
        if x is not None and getattr(x, "_shared", False) and as_array(x).tobytes() != guard.value:
            recording.stop(f"memory that NumPy shares since {guard.line} was written to")
    written = recording.recipe.written
    if any(recording.recipe.arguments.index(node) >= recording.inputs for node in written):
        recording.stop("a tensor from outside that requires grad was written to")
    try:
        recorder.check()
    except ProgramError as error:
        recording.stop(str(error))


def _escaped(recorder: CallRecorder, leaves: list[Any]) -> str:
    """Return which tensor that the call made is held by anything but its results; empty if none is."""
    held = recorder.held
    outside = {id(x) for x in (*recorder.outer, *recorder.readers.values(), *recorder.sources.values())}
    outside.update(id(held[i]) for i in range(len(recorder.recipe.arguments)))
    shared = [k for k, count in enumerate(map(sys.getrefcount, held)) if count > _ALONE]
    counts = Counter(map(id, leaves))
    counts.update(map(id, map(held.__getitem__, shared)))
    counts.update(id(g.tensor) for g in recorder.guards)
    shared = [k for k in shared if isinstance(held[k], Tensor) and id(held[k]) not in outside]
    if any(sys.getrefcount(held[k]) > counts[id(held[k])] + _HELD_BY_LOOP - 1 for k in shared):
        counts.update(id(x._base) for x in held if isinstance(x, Tensor) and is_view(x))
    for x in (held[k] for k in shared):
        if sys.getrefcount(x) > counts[id(x)] + _HELD_BY_LOOP:
            node = recorder.nodes.get(id(x))
            names = [step.op.name for step in recorder.recipe.steps if step.result == node]
            return f"a result of {names[0]}" if names else "a constant"
    return ""


def difference(a: Recording, b: Recording) -> str:
    """Return in what two calls that went the same way differ; empty where they did the same."""
    one, other = a.recipe, b.recipe
    kinds = zip(one.steps.kinds, other.steps.kinds, strict=False)
    if one.steps.words != other.steps.words or not all(same_kind(x, y) for x, y in kinds):
        for x, y in zip(one.steps, other.steps, strict=False):
            if x.op is not y.op or x.operands != y.operands or not same_params(x.params, y.params):
                return f"operation {x.at} was {x.op.name}, then {y.op.name}"
        return f"there were {len(one.steps)} operations, then {len(other.steps)}"
    numbers = zip(one.steps.numbers, other.steps.numbers, strict=True)
    if not all(same(x, y) for x, y in numbers):
        return "a Python number in an operation was another one"
    if (one.arguments, one.outputs, one.written) != (other.arguments, other.outputs, other.written):
        return "other results were returned, or other arguments written"
    if len(a.outer) != len(b.outer) or not all(map(_is_same_outer, a.outer, b.outer)):
        return "another tensor from outside that requires grad was used, or other random numbers were drawn"
    loops = "" if a.rolled is None or b.rolled is None else b.rolled.difference(a.rolled)
    return loops or _differing_results(a, b) or _differing_constant(a, b)


def _is_same_outer(x: Tensor | Draw, y: Tensor | Draw) -> bool:
    return x is y or (isinstance(x, Draw) and x.same(y))


def _differing_results(a: Recording, b: Recording) -> str:
    if a.template != b.template or a.kept.keys() != b.kept.keys():
        return "the result had another structure"
    return "" if all(same(a.kept[i], b.kept[i]) for i in a.kept) else "a result that is no tensor was another one"


def _differing_constant(a: Recording, b: Recording) -> str:
    ones, others = a.recipe.nodes, b.recipe.nodes  # nodes of one form are one object, most often
    pairs = {pair: i for i, pair in enumerate(zip(map(id, ones), map(id, others), strict=True))}
    for i in pairs.values():
        x, y = ones[i], others[i]
        if not _alike(x, y) and not _live(a, b, i):
            return f"a constant {describe(x.spec)} that the call made, or read from outside, was another one"
    return ""


def live_sources(a: Recording, b: Recording) -> dict[int, Any]:
    """Return what two calls, whose recordings are both still here, read from the same memory, by node of the second."""
    live = {node: a.sources[node] for node in a.sources if _live(a, b, node)}
    one, other = (
        {_identity(x) for x in r.original_sources.values() if isinstance(x, Tensor) or x.size} for r in (a, b)
    )
    known = one & other  # bodies may be of calls before
    more = [(node, x) for node, x in b.sources.items() if node not in a.sources]  # those of loops
    return live | {node: x for node, x in more if _identity(x) in known}


def shared_memory(a: Recording, b: Recording) -> bool:
    """Whether two calls wrote to the same memory from outside, or replaced that of the same tensor."""
    touched = {_identity(x) for x in a.written_outside}
    return any(_identity(x) in touched for x in b.written_outside)


def _identity(x: Any) -> tuple[str, int]:
    return ("tensor", id(x)) if isinstance(x, Tensor) else ("memory", where(x))


def _live(a: Recording, b: Recording, node: int) -> bool:
    one, other = a.sources.get(node), b.sources.get(node)
    if one is None or other is None:
        return False
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return one is other
    return one.size > 0 and where(one) == where(other)


def _alike(x: ProgramNode, y: ProgramNode) -> bool:
    same = (x.spec, x.base, x.offset, x.buffer_offset, x.differentiable, x.family, x.argument) == (
        y.spec,
        y.base,
        y.offset,
        y.buffer_offset,
        y.differentiable,
        y.family,
        y.argument,
    )
    if not same or (x.constant is None) != (y.constant is None):
        return False
    return x.constant is None or y.constant is None or x.constant.tobytes() == y.constant.tobytes()
