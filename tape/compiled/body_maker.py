"""Bodies of rolled loops, and the recipe that they are part of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import Spec, spec_of
from kernels.kinds.routine import LOOP_STATE, Guard
from kernels.kinds.views import Write
from kernels.operations.views import CLONE, LOOP_AGAIN, LOOP_BEGIN, LOOP_END
from kernels.programs.program import Lines, ProgramNode, Recipe, StepKind, Steps, StepWords
from tape.compiled.loop_spans import (
    DoesNotFitError,
    Heads,
    IterationBody,
    LoopSpan,
    NativeLoop,
    RecordedTrace,
    Ref,
    check_repeats,
    is_within,
    joined,
    phis_of,
    usable,
)
from tape.tensors.recorder import same_kind
from tape.tensors.tensor import Tensor, as_array

_MOST_KINDS = 256
"""Kinds of copies that are kept: there are as many steps of one as lists of results, say, have tensors."""
Before = Callable[[int], Ref | None]


class Recorded(NamedTuple):
    """A recording, the heads of its loops, and the numbers of its steps' lines, if these are kept."""

    recording: Any
    heads: Heads
    lines: Sequence[int]

    def line(self, at: int) -> int:
        """Return the number of a step's line; -1 if it is not known."""
        return self.lines[at] if at < len(self.lines) else -1


class _BodyMaker:
    """Tells one iteration as a body. ``before`` says what it calls a node from before the loop, if it knows it."""

    def __init__(self, recorded: Recorded, span: LoopSpan, phis: list[int], before: Before, number: int) -> None:
        self.recorded, self.trace, self.span, self.before = recorded, recorded.heads.trace, span, before
        self.first = span.start if number == 0 else span.ends[number - 1]
        self.last = span.ends[number]
        begin, end = span.visits[number].nodes, span.visits[number + 1].nodes
        self.refs: dict[int, Ref] = {}
        self.after = [end[place] for place in phis]
        self.inner = recorded.heads.within(span, number)
        self.body = IterationBody(recording=recorded.recording)
        self.at = self.first  # the step that is told
        self._leaves: dict[Any, Ref] = {}
        self.written = self.trace.written(self.first, self.last)
        self.shared: dict[int, tuple[Ref, ...]] = {}
        """The phis that begin with the same node, which the iteration reads, where it is not the same for all."""
        self.begin = [begin[place] for place in phis]
        visit = span.visits[number]
        for node in dict.fromkeys(self.begin):
            holders = [k for k, other in enumerate(self.begin) if other == node]
            holders = [k for k in holders if visit.read[phis[k]]] or holders
            self.refs[node] = self._kept(node, ("phi", holders[0]), self.written)
            if len(holders) > 1:
                self.shared[node] = tuple([("phi", k) for k in holders])

    def made(self) -> IterationBody:
        """Return the body."""
        at = self.first
        for loop in self.inner:
            self._steps(at, loop.start, loop.drawn)
            self._loop(loop)
            at = loop.stop
        self._steps(at, self.last, -1)
        self.body.updates = tuple([self._update(k, node) for k, node in enumerate(self.after)])
        return self.body

    def _update(self, k: int, node: int) -> Ref:
        """Return what a phi is at the end: itself, perhaps, if it still is the tensor that others began with, too."""
        if self.begin.count(node) <= 1:
            return self.ref(node)
        itself = [("phi", k)] if self.begin[k] == node else []
        may_be: frozenset[Ref] = frozenset((*itself, *self.shared.get(node, (self.refs[node],))))
        if len(may_be) > 1:
            self.body.choices[-1, k] = may_be
        return min(may_be)

    def _operands(self, nodes: Sequence[int]) -> tuple[Ref, ...]:
        for place, node in enumerate(nodes):
            if node in self.shared:
                self.body.choices[len(self.body.steps), place] = frozenset(self.shared[node])
        return tuple([self.ref(node) for node in nodes])

    def _steps(self, first: int, stop: int, left_out: int) -> None:
        body, trace = self.body, self.trace
        for at in range(first, stop):
            if at == left_out:
                continue
            self.at = at
            kind, result = trace.kind(at), trace.result(at)
            operands = self._operands(trace.operands(at))
            if at in self.recorded.recording.taken_over and operands[0][0] != "phi":
                memory = self.recorded.recording.taken_over[at]
                sources, recipe = self.recorded.recording.original_sources, self.trace.recipe
                for node in self.begin:
                    source = sources.get(node, sources.get(recipe.base_of(node)))
                    array = as_array(source) if isinstance(source, Tensor) else source
                    if array is not None and np.may_share_memory(array, memory):
                        raise DoesNotFitError("it writes to an argument, or to a constant")
            if isinstance(kind.op, Write) and self.ref(trace.recipe.base_of(result))[0] != "local":
                raise DoesNotFitError("it writes to memory from before")
            body.steps.append((kind, self.ref(result), operands, self.recorded.line(at)))
            if at in trace.guards:
                body.guards.append(self.recorded.recording.guards[trace.guards[at]])

    def _kept(self, node: int, phi: Ref, written: set[int]) -> Ref:
        """Return what stands for a node from here on: a phi, or a copy of it if the node is written."""
        if node not in written:
            return phi
        source = self.trace.recipe.nodes[node]
        if source.argument or source.constant is not None:
            raise DoesNotFitError("it writes to an argument, or to a constant")
        return self._copied(node, phi, self.recorded.line(self.first))

    def _copied(self, node: int, ref: Ref, line: int) -> Ref:
        kind, entry = copy_of(self.trace.recipe.nodes[node], wanted=self.trace.recipe.wants(node))
        copy = self._local(entry)
        self.body.steps.append((kind, copy, (ref,), line))
        return copy

    def _loop(self, loop: LoopSpan) -> None:
        """Take a loop, whose phis are copies of what its first iteration starts from; what follows reads these."""
        first, line = loop.visits[0], self.recorded.line(loop.start)
        places = phis_of(self.trace, loop)
        begin = [first.nodes[place] for place in places]
        phis = [self._copied(node, self._operands([node])[0], line) for node in begin]
        count = None if loop.count is None else self.ref(loop.count)
        written = self.trace.written(loop.start, loop.stop)
        forget_views(self.refs, self.trace, written)

        def above(node: int) -> Ref | None:
            return None if is_view_of(self.trace, node, written) else self._above(node)

        state = self._local(ProgramNode(LOOP_STATE))
        try:
            bodies = _bodies(self.recorded, loop, places, above)
        except DoesNotFitError as error:
            raise DoesNotFitError(str(error), error.inner or first.line) from None
        self.body.steps.append(
            NativeLoop(state, tuple(phis), count, loop.limit, loop.counted, loop.apart, first.line, bodies, line)
        )
        written, results = self.trace.written(loop.stop, self.last), results_of(loop, places)
        forget_views(self.refs, self.trace, written & results.keys())
        for node, k in results.items():
            self.refs[node] = self._kept(node, phis[k], written)
            self.shared.pop(node, None)

    def ref(self, node: int) -> Ref:
        """Return what a body calls a node."""
        if node < 0:
            return "number", self.trace.recipe.steps.numbers[~node]
        known = self.refs.get(node)
        if known is None:
            known = self.refs[node] = self._new(node)
        return known

    def _above(self, node: int) -> Ref:
        """Return what a body of a loop within this one calls a node."""
        ref = self.ref(node)
        if node in self.shared:
            raise DoesNotFitError(
                "a loop within it reads a tensor that several variables hold, not always the same ones"
            )
        return ref if ref[0] == "outer" else ("above", ref)

    def _new(self, node: int) -> Ref:
        trace, entry = self.trace, self.trace.recipe.nodes[node]
        if entry.constant is not None:
            key = entry.spec, entry.constant.tobytes(), id(self.recorded.recording.original_sources.get(node))
            if key not in self._leaves:
                self.body.leaves.append((entry, node))
                self._leaves[key] = "leaf", len(self.body.leaves) - 1
            return self._leaves[key]
        if entry.argument or 0 <= trace.origin(node) < self.span.start:
            known = self.before(node)
            if known is not None:
                return known
        made = trace.made.get(node, -1)
        if any(loop.start <= made < loop.stop for loop in self.inner):
            raise DoesNotFitError("what an iteration made is used behind the loop, and no variable holds it")
        is_view = entry.base is not None and (node not in trace.made or entry.base in self.written)
        if not (self.first <= made < self.last or is_view):
            raise DoesNotFitError("it uses a tensor of an iteration before, which no variable holds")
        trace.check_known(node, self.at)
        base = None if entry.base is None else self.ref(entry.base)
        family = None if entry.family is None else self.ref(entry.family)
        return self._local(entry, base, family)

    def _local(self, entry: ProgramNode, base: Ref | None = None, family: Ref | None = None) -> Ref:
        self.body.nodes.append((entry, base, family))
        return "local", len(self.body.nodes) - 1


def results_of(loop: LoopSpan, places: Sequence[int]) -> dict[int, int]:
    """Return the nodes that are known behind a loop, with the numbers of their phis.

    Of locals that hold the same tensor, not always the same ones, one may be read behind it. Where the loop is left
    within an iteration, that reads some, too.
    """
    last, results = loop.visits[-1], dict[int, int]()
    for node in dict.fromkeys([last.nodes[place] for place in places]):
        holders = [k for k, place in enumerate(places) if last.nodes[place] == node]
        if loop.exhausted:
            holders = [k for k in holders if last.behind[places[k]]] or holders[:1]
        if len(holders) > 1:
            raise DoesNotFitError("several variables hold the same tensor behind it, not always the same ones")
        results[node] = holders[0]
    return results


def forget_views(known: dict[int, Any], trace: RecordedTrace, written: set[int]) -> None:
    """Know no views any more of memory that is written in a loop or behind it: from the loop on, it is another."""
    for node in [node for node in known if is_view_of(trace, node, written)]:
        del known[node]


def is_view_of(trace: RecordedTrace, node: int, written: set[int]) -> bool:
    """Whether a node is a view of one of the nodes that are written."""
    return node not in written and trace.recipe.base_of(node) in written


def copy_of(entry: ProgramNode, *, wanted: bool) -> tuple[StepKind, ProgramNode]:
    """Return the kind of the step that copies a node, and the copy: in C order, if it is one of a view."""
    spec = entry.spec if entry.base is None else spec_of(np.empty(entry.spec.shape, entry.spec.dtype))
    return _copying(entry.spec, spec, wanted), ProgramNode(spec, differentiable=wanted)


@functools.lru_cache(maxsize=_MOST_KINDS)
def _copying(source: Spec, target: Spec, wanted: bool) -> StepKind:
    form = CLONE.form((source,), target, (True,)) if wanted else None
    return StepKind(CLONE, form, (), 1)


def _bodies(recorded: Recorded, span: LoopSpan, phis: list[int], before: Before) -> list[IterationBody]:
    bodies: list[IterationBody] = []
    for number in range(len(span.ends)):
        bodies = joined(bodies, [_BodyMaker(recorded, span, phis, before, number).made()])
    return bodies


# The recipe of a recorded call with its Python loops as native ones, each with the bodies that are known of it.

Step = tuple[StepKind, int, list[Any], int]
"""A kind, the result, operands (a number in a tuple), and the number of the line."""
Above = Callable[[Any], int]  # what returns the nodes that bodies of a loop within another one know as those above


class Rolled:
    """A recording whose loops are told by their bodies; everything else is as it was recorded."""

    def __init__(self, recording: Any, heads: Heads, spans: Sequence[LoopSpan]) -> None:
        self.recording, self.trace, self.spans = recording, heads.trace, spans
        trace, old = self.trace, self.trace.recipe
        self.nodes: list[ProgramNode] = []
        self.places: dict[int, int] = {}  # the nodes by those of the recording
        self.at = -1  # the step that is taken
        self.pieces: list[list[Step] | NativeLoop] = []
        self.guards: list[list[Any]] = []  # those of each piece
        if spans and any(at >= (*trace.starts, 0)[spans[0].start] for at in recording.draws):
            raise DoesNotFitError("random numbers are drawn in it, or behind it")
        starts = [*trace.starts, len(trace.words)]
        for span in spans:
            if any(starts[span.start] <= at < starts[span.stop] for at in recording.kept_calls):
                raise DoesNotFitError("an autograd.Function is called in it, whose backward is to run")
        numbered = old.lines.of_steps(old.steps).tolist() if old.lines is not None else []
        self.recorded = Recorded(recording, heads, numbered)
        self.arguments = [self._place(node) for node in old.arguments]
        self.written = {self.places[node] for node in old.written}
        begin = 0
        for span in spans:
            self._flat(begin, span.start, span.drawn)
            self._loop(span)
            begin = span.stop
        self._flat(begin, len(trace.starts), -1)
        phis = {phi for loop in self.loops for _, phi in loop.phis}
        self.outputs = list(map(self._place, old.outputs))
        for k, place in enumerate(self.outputs):
            base = self.nodes[place].base
            if (place if base is None else base) in phis:  # the way back through loops would change it
                self.pieces[-1].append(self._copied(place, -1))  # type: ignore[union-attr]
                self.outputs[k] = len(self.nodes) - 1

    def _place(self, node: int) -> int:
        known = self.places.get(node)
        if known is None:
            entry = self.trace.recipe.nodes[node]
            if is_within(self.spans, self.trace.made.get(node, -1)):
                raise DoesNotFitError("what an iteration made is used behind the loop, and no variable holds it")
            self.trace.check_known(node, self.at)
            base, family = (None if n is None else self._place(n) for n in (entry.base, entry.family))
            self.nodes.append(replace(entry, base=base, family=family))
            known = self.places[node] = len(self.nodes) - 1
        return known

    def _flat(self, begin: int, stop: int, left_out: int) -> None:
        steps, trace, guards = [], self.trace, list[Any]()
        for at in range(begin, stop):
            if at == left_out:
                continue
            self.at = at
            if at in trace.guards:
                guards.append(self.recording.guards[trace.guards[at]])
            operands = [self._place(o) if o >= 0 else (trace.recipe.steps.numbers[~o],) for o in trace.operands(at)]
            steps.append((trace.kind(at), self._place(trace.result(at)), operands, self.recorded.line(at)))
        self.pieces.append(steps)
        self.guards.append(guards)

    def _copied(self, place: int, line: int) -> Step:
        node = self.nodes[place]
        family = node if node.family is None else self.nodes[node.family]
        kind, copy = copy_of(node, wanted=node.differentiable or family.differentiable)
        self.nodes.append(copy)
        return kind, len(self.nodes) - 1, [place], line

    def _loop(self, span: LoopSpan) -> None:
        """Begin with copies of what the first iteration starts from; what follows reads these."""
        line, phis = self.recorded.line(span.start), phis_of(self.trace, span)
        copies = [self._copied(self._place(span.visits[0].nodes[place]), line) for place in phis]
        numbers = [result for _, result, _, _ in copies]
        self.pieces[-1].extend(copies)  # type: ignore[union-attr]
        count: Ref | None = None if span.count is None else ("outer", self._place(span.count))
        forget_views(self.places, self.trace, self.trace.written(span.start, span.stop))
        self.nodes.append(ProgramNode(LOOP_STATE))
        state, places = len(self.nodes) - 1, self.places
        bodies = _bodies(self.recorded, span, phis, lambda node: ("outer", places[node]) if node in places else None)
        check_repeats(bodies, "")
        outer, where = tuple([("outer", number) for number in numbers]), span.visits[0].line
        loop = NativeLoop(("outer", state), outer, count, span.limit, span.counted, span.apart, where, bodies, line)
        self.pieces.append(loop)
        self.guards.append([])
        written = self.trace.written(span.stop, len(self.trace.starts))
        results = results_of(span, phis)
        self.places |= {node: numbers[k] for node, k in results.items()}
        kept = [node for node in results if node in written]
        if any(self.trace.recipe.nodes[node].argument for node in kept):
            raise DoesNotFitError("it carries an argument that is written behind it")
        forget_views(self.places, self.trace, {*kept})
        if kept:  # what the loop carries stays as it was
            copies = [self._copied(self.places[node], line) for node in kept]
            self.places |= {node: result for node, (_, result, _, _) in zip(kept, copies, strict=True)}
            self.pieces.append(copies)
            self.guards.append([])

    @property
    def loops(self) -> list[NativeLoop]:
        """The loops, in order."""
        return [piece for piece in self.pieces if isinstance(piece, NativeLoop)]

    def join(self, other: Rolled) -> None:
        """Take in the bodies that another call knew, which went the same way outside of loops: these come first."""
        for loop, bodies in zip(self.loops, self._joined(other), strict=True):
            loop.bodies = bodies

    def difference(self, other: Rolled) -> str:
        """Return in what the loops of another call that went the same way outside of these differ, or nothing."""
        try:
            self._joined(other)
        except DoesNotFitError as error:
            return str(error)
        return ""

    def _joined(self, other: Rolled) -> list[list[IterationBody]]:
        return [joined(known.bodies, loop.bodies) for loop, known in zip(self.loops, other.loops, strict=True)]

    def lacks_bodies(self, least: int) -> bool:
        """Whether a loop that runs a certain number of times has no body that was seen so often."""
        return any(loop.counted and not usable(loop.bodies, least) for loop in self.loops)

    def put(self, recording: Any, *, least: int | None) -> None:
        """Give a recording the recipe with loops, of the bodies that were seen so often; of none where that is None."""
        made = _Assembly(self, least)
        recording.recipe, recording.guards = made.recipe, made.guards
        recording.sources, recording.readers = made.sources, made.readers
        recording.path, recording.guard_positions = tuple(made.path), made.guard_positions


class _Assembly:
    def __init__(self, rolled: Rolled, least: int | None) -> None:
        old = rolled.trace.recipe
        self.rolled, self.least, self.nodes, self.steps = rolled, least, list(rolled.nodes), Steps()
        self.lines = None if old.lines is None else Lines([*old.lines.table])
        self.guards: list[Any] = []
        self.path: list[bytes] = []  # what guards outside of loops expect, and a mark for each loop
        self.guard_positions: list[int] = []  # of each guard, where it stands in the path; -1 for those in loops
        self._kinds: dict[Any, list[int]] = {}
        self.sources: dict[int, Any] = {}
        self.readers: dict[int, Any] = {}
        for node, place in rolled.places.items():
            self._read(rolled.recording, node, place)
        for piece, guards in zip(rolled.pieces, rolled.guards, strict=True):
            if isinstance(piece, NativeLoop):
                self.path.append(f"loop at {piece.line}: {piece.limit}, {piece.counted}, {piece.apart}".encode())
                self._loop(piece, piece.number, _outer)
            else:
                for step in piece:
                    self._step(*step)
                self.guards += guards
                self.guard_positions += range(len(self.path), len(self.path) + len(guards))
                self.path += [guard.value for guard in guards]
        self.recipe = Recipe(self.nodes, self.steps, rolled.arguments, rolled.outputs, rolled.written, self.lines)
        self.steps.fit()

    def _read(self, recording: Any, node: int, place: int) -> None:
        if node in recording.original_sources:
            self.sources[place] = recording.original_sources[node]
        if node in recording.original_readers:
            self.readers[place] = recording.original_readers[node]

    def _step(self, kind: StepKind, result: int, operands: Sequence[Any], line: int) -> None:
        steps, kinds, nodes = self.steps, self.steps.kinds, self.nodes
        specs = [nodes[o].spec if type(o) is int else type(o[0]) for o in (result, *operands)]
        known = self._kinds.setdefault((kind.op, *specs), [])  # steps of a kind have operands alike
        number = next((k for k in known if same_kind(kinds[k], kind)), len(kinds))
        if number == len(kinds):
            known.append(number)
            kinds.append(kind)
        if self.lines is not None:
            self.lines.mark(steps.head[StepWords.used], line)
        steps.add(number, result, [o if type(o) is int else steps.number(o[0]) for o in operands])

    def _line_of(self, body: IterationBody, number: int) -> int:
        known = body.recording.recipe.lines
        if self.lines is None or known is None or number < 0 or body.recording is self.rolled.recording:
            return number
        entry, table = known.table[number], self.lines.table
        if entry not in table:
            table.append(entry)
        return table.index(entry)

    def _loop(self, loop: NativeLoop, line: int, place: Above) -> None:
        """Put a loop that has bodies: its marks and these."""
        bodies, phis, state = usable(loop.bodies, self.least), [place(phi) for phi in loop.phis], place(loop.state)
        if not bodies:
            return
        operands = phis if loop.count is None else [*phis, place(loop.count)]
        params = (loop.limit, loop.count is not None, loop.counted, loop.line)
        self._step(StepKind(LOOP_BEGIN, None, params, len(operands)), state, operands, line)
        for body in bodies:
            self._body(state, phis, body, place)
        self._step(StepKind(LOOP_END, None, (), 0), state, [], line)

    def _body(self, state: int, phis: Sequence[int], body: IterationBody, above: Above) -> None:
        places: dict[Ref, int] = {("phi", k): node for k, node in enumerate(phis)}
        for k, (node, old) in enumerate(body.leaves):
            mine = self.rolled.places.get(old) if body.recording is self.rolled.recording else None
            if mine is None:
                self.nodes.append(node)
                mine = len(self.nodes) - 1
                self._read(body.recording, old, mine)
            places["leaf", k] = mine
        first = len(self.nodes)
        places |= {("local", k): first + k for k in range(len(body.nodes))}

        def place(ref: Ref) -> int:
            return above(ref[1]) if ref[0] == "above" else _outer(ref) if ref[0] == "outer" else places[ref]

        for node, *of in body.nodes:
            base, family = [None if ref is None else place(ref) for ref in of]
            self.nodes.append(replace(node, base=base, family=family))
        guards = iter(body.guards)
        for step in body.steps:
            if isinstance(step, NativeLoop):
                self._loop(step, self._line_of(body, step.number), place)
                continue
            kind, result, operands, line = step
            values = [(o[1],) if o[0] == "number" else place(o) for o in operands]
            self._step(kind, place(result), values, self._line_of(body, line))
            if isinstance(kind.op, Guard):
                self.guards.append(next(guards))
                self.guard_positions.append(-1)
        self._step(StepKind(LOOP_AGAIN, None, (), len(body.updates)), state, [place(o) for o in body.updates], -1)


def _outer(ref: Ref) -> int:
    """Return the node that is known from outside of all loops."""
    return int(ref[1])


def rolled(recording: Any, heads: Heads) -> tuple[Rolled | None, list[LoopSpan], str]:
    """Return a recording with those of its loops that fit, None if none does; these, and why another does not."""
    reason = ""
    while spans := heads.spans():
        whole = _tried(recording, heads, spans)
        if isinstance(whole, Rolled):
            return whole, spans, reason
        apart = [(span, _tried(recording, heads, [span])) for span in spans]
        failed = [(span, tried) for span, tried in apart if isinstance(tried, str)]
        again = {span.line for span, _ in failed if span.apart}
        heads.apart -= again
        if again:
            continue
        reason = reason or next((tried for _, tried in failed), whole)
        if not failed:
            break
        heads.without |= {span.visits[0].entry for span, _ in failed}
    return None, [], reason


def _tried(recording: Any, heads: Heads, spans: Sequence[LoopSpan]) -> Rolled | str:
    """Return a recording with these loops, or why they do not fit; loops within them that do not are their steps.

    Before that, variables of these that hold the same tensor at some iterations are one phi, where they always do.
    """
    while True:
        try:
            return Rolled(recording, heads, spans)
        except DoesNotFitError as error:
            if not error.inner:
                return f"the loop at {spans[0].line}: {error}"
            if error.inner in heads.apart:
                heads.apart.discard(error.inner)
            else:
                heads.flat.add(error.inner)
