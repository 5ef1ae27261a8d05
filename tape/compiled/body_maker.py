"""Bodies of rolled loops, and the recipe that they are part of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.foundation.specs import Spec, spec_of
from kernels.kinds.routine import LOOP_STATE, Guard
from kernels.kinds.views import Write
from kernels.native.structs import StepWords
from kernels.operations.views import CLONE, LOOP_AGAIN, LOOP_BEGIN, LOOP_END
from kernels.programs.program import Lines, ProgramNode, Recipe, StepKind, Steps
from tape.compiled import loop_spans
from tape.compiled.loop_spans import DoesNotFitError, Heads, IterationBody, LoopSpan, NativeLoop, RecordedTrace, Ref
from tape.compiled.repeated_iterations import RepeatedIterations
from tape.tensors.recorder import same_kind
from tape.tensors.tensor import Tensor, as_array

_MOST_KINDS = 256
"""Kinds of copies that are kept: there are as many steps of one as lists of results, say, have tensors."""
Before = Callable[[int], Ref | None]


class _BodyMaker:
    """Tells steps of a recording, and the loops among them, as a body."""

    ref_kind = "local"
    """What refs to nodes of the body are called."""

    def __init__(self, heads: Heads, first: int, last: int, inner: Sequence[LoopSpan]) -> None:
        self.heads, self.trace = heads, heads.trace
        self.first, self.last, self.inner = first, last, inner
        self.body = IterationBody(recording=heads.trace.recording)
        self.at = first  # the step that is told
        self.refs: dict[int, Ref] = {}
        self.shared: dict[int, tuple[Ref, ...]] = {}
        """The phis that begin with the same node, which the iteration reads, where it is not the same for all."""

    def _take_steps(self) -> None:
        at = self.first
        for loop in self.inner:
            self._steps(at, loop.start, loop.drawn)
            self._loop(loop)
            at = loop.stop
        self._steps(at, self.last, -1)

    def _operands(self, nodes: Sequence[int]) -> tuple[Ref, ...]:
        for place, node in enumerate(nodes):
            if node in self.shared:
                self.body.choices[len(self.body.steps), place] = frozenset(self.shared[node])
        return tuple([self.ref(node) for node in nodes])

    def _steps(self, first: int, stop: int, left_out: int) -> None:
        body, trace = self.body, self.trace
        for at in range(first, stop):
            if at == left_out or at in trace.unused:
                continue
            self.at = at
            operands = self._operands(trace.operands(at))
            self._check_write(at, operands)
            body.steps.append((trace.kind(at), self.ref(trace.result(at)), operands, self.trace.line(at)))
            if at in trace.guards:
                body.guards.append(self.trace.recording.guards[trace.guards[at]])

    def _check_write(self, at: int, operands: Sequence[Ref]) -> None:
        """Raise for a step that writes to what the body must leave alone."""

    def _refused(self, source: ProgramNode) -> str:
        """Return why a node must not be written behind a loop that carries it; empty if it may."""
        return "it carries an argument that is written behind it" if source.argument else ""

    def _kept(self, node: int, phi: Ref, written: set[int], line: int) -> Ref:
        """Return what stands for a node from here on: a phi, or a copy of it if the node is written."""
        if node not in written:
            return phi
        if refused := self._refused(self.trace.recipe.nodes[node]):
            raise DoesNotFitError(refused)
        return self._copied(node, phi, line)

    def _copied(self, node: int, ref: Ref, line: int) -> Ref:
        kind, entry = copy_of(self.trace.recipe.nodes[node], wanted=self.trace.recipe.wants(node))
        copy = self._added(entry)
        self.body.steps.append((kind, copy, (ref,), line))
        return copy

    def _loop(self, loop: LoopSpan) -> None:
        """Take a loop, whose phis are copies of what its first iteration starts from; what follows reads these."""
        first, line = loop.visits[0], self.trace.line(loop.start)
        places = loop_spans.phis_of(self.trace, loop)
        phis = [self._copied(node, self._operands([node])[0], line) for node in [first.nodes[k] for k in places]]
        count = None if loop.count is None else self.ref(loop.count)
        written = self.trace.written(loop.start, loop.stop)
        forget_views(self.refs, self.trace, written)
        state = self._added(ProgramNode(LOOP_STATE))
        bodies = self._bodies(loop, places, written)
        self.body.steps.append(
            NativeLoop(state, tuple(phis), count, loop.limit, loop.counted, loop.apart, first.line, bodies, line)
        )
        written, results = self.trace.written(loop.stop, self.last), results_of(loop, places)
        forget_views(self.refs, self.trace, written & results.keys())
        for node, k in results.items():
            self.refs[node] = self._kept(node, phis[k], written, line)
            self.shared.pop(node, None)

    def _bodies(self, loop: LoopSpan, places: list[int], written: set[int]) -> list[IterationBody]:
        """Return the bodies of a loop that writes to the memory of some nodes."""
        bodies = bodies_of(self.heads, loop, places, self.refs.get)
        loop_spans.check_repeats(bodies, "")
        return bodies

    def ref(self, node: int) -> Ref:
        """Return what a body calls a node."""
        if node < 0:
            return "number", self.trace.recipe.steps.numbers[~node]
        known = self.refs.get(node)
        if known is None:
            known = self.refs[node] = self._new(node)
        return known

    def _new(self, node: int) -> Ref:
        entry = self.trace.recipe.nodes[node]
        if loop_spans.is_within(self.inner, self.trace.made[node]):
            raise DoesNotFitError("what an iteration made is used behind the loop, and no variable holds it")
        self.trace.check_known(node, self.at)
        return self._added(entry, *[None if n is None else self.ref(n) for n in (entry.base, entry.family)])

    def _added(self, entry: ProgramNode, base: Ref | None = None, family: Ref | None = None) -> Ref:
        self.body.nodes.append((entry, base, family))
        return self.ref_kind, len(self.body.nodes) - 1


class _IterationMaker(_BodyMaker):
    """Tells one iteration. ``before`` says what it calls a node from before the loop, if it knows it."""

    def __init__(self, heads: Heads, span: LoopSpan, phis: list[int], before: Before, number: int) -> None:
        first = span.start if number == 0 else span.ends[number - 1]
        super().__init__(heads, first, span.ends[number], heads.within(span, number))
        self.span, self.before = span, before
        self._leaves: dict[Any, Ref] = {}
        self.written = self.trace.written(self.first, self.last)
        visit, line = span.visits[number], self.trace.line(first)
        self.begin, self.after = [[v.nodes[place] for place in phis] for v in span.visits[number : number + 2]]
        for node in dict.fromkeys(self.begin):
            holders = [k for k, other in enumerate(self.begin) if other == node]
            holders = [k for k in holders if visit.read[phis[k]]] or holders
            self.refs[node] = self._kept(node, ("phi", holders[0]), self.written, line)
            if len(holders) > 1:
                self.shared[node] = tuple([("phi", k) for k in holders])

    def made(self) -> IterationBody:
        """Return the body."""
        self._take_steps()
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

    def _check_write(self, at: int, operands: Sequence[Ref]) -> None:
        recording, recipe = self.trace.recording, self.trace.recipe
        if at in recording.taken_over and operands[0][0] != "phi":
            sources = recording.original_sources
            for node in self.begin:
                source = sources.get(node, sources.get(recipe.base_of(node)))
                array = as_array(source) if isinstance(source, Tensor) else source
                if array is not None and np.may_share_memory(array, recording.taken_over[at]):
                    raise DoesNotFitError("it writes to an argument, or to a constant")
        is_write = isinstance(self.trace.kind(at).op, Write)
        if is_write and self.ref(recipe.base_of(self.trace.result(at)))[0] != self.ref_kind:
            raise DoesNotFitError("it writes to memory from before")

    def _refused(self, source: ProgramNode) -> str:
        is_fixed = source.argument or source.constant is not None
        return "it writes to an argument, or to a constant" if is_fixed else ""

    def _bodies(self, loop: LoopSpan, places: list[int], written: set[int]) -> list[IterationBody]:
        def above(node: int) -> Ref | None:
            return None if is_view_of(self.trace, node, written) else self._above(node)

        try:
            return bodies_of(self.heads, loop, places, above)
        except DoesNotFitError as error:
            raise DoesNotFitError(str(error), error.inner or loop.line) from None

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
            key = entry.spec, entry.constant.tobytes(), id(self.trace.recording.original_sources.get(node))
            if key not in self._leaves:
                self.body.leaves.append((entry, node))
                self._leaves[key] = "leaf", len(self.body.leaves) - 1
            return self._leaves[key]
        if entry.argument or 0 <= trace.origin(node) < self.span.start:
            known = self.before(node)
            if known is not None:
                return known
        is_view = entry.base is not None and (trace.made[node] < 0 or entry.base in self.written)
        if not (self.first <= trace.made[node] < self.last or is_view):
            raise DoesNotFitError("it uses a tensor of an iteration before, which no variable holds")
        return super()._new(node)


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


def bodies_of(heads: Heads, span: LoopSpan, phis: list[int], before: Before) -> list[IterationBody]:
    """Return the bodies of a loop, one for iterations that did the same."""
    bodies: list[IterationBody] = []
    latest: list[int] = []  # the last iteration of each
    repeated = RepeatedIterations(heads, span, phis)
    for number in range(len(span.ends)):
        known = next((k for k, other in enumerate(latest) if repeated.is_same(other, number)), None)
        if known is not None:
            bodies[known] = replace(bodies[known], seen=bodies[known].seen + 1)
        else:
            before_it = bodies
            bodies = loop_spans.joined(bodies, [_IterationMaker(heads, span, phis, before, number).made()])
            known = next((k for k, body in enumerate(before_it) if bodies[k] is not body), len(before_it))
            latest += [number] * (len(bodies) - len(latest))
        latest[known] = number
    return bodies


# The recipe of a recorded call with its Python loops as native ones, each with the bodies that are known of it.

Above = Callable[[Any], int]  # what returns the nodes that bodies of a loop within another one know as those above


class Rolled(_BodyMaker):
    """A recording whose loops are told by their bodies; everything else is as it was recorded."""

    ref_kind = "outer"

    def __init__(self, heads: Heads, spans: Sequence[LoopSpan]) -> None:
        trace, recording, old = heads.trace, heads.trace.recording, heads.trace.recipe
        if spans and any(at >= (*trace.starts, 0)[spans[0].start] for at in recording.draws):
            raise DoesNotFitError("random numbers are drawn in it, or behind it")
        starts = [*trace.starts, len(trace.words)]
        for span in spans:
            if any(starts[span.start] <= at < starts[span.stop] for at in recording.kept_calls):
                raise DoesNotFitError("an autograd.Function is called in it, whose backward is to run")
        super().__init__(heads, 0, len(trace.starts), spans)
        self.arguments = [_outer(self.ref(node)) for node in old.arguments]
        self.written = {_outer(self.refs[node]) for node in old.written}
        self._take_steps()
        phis = {phi for loop in self.body.loops() for phi in loop.phis}
        self.outputs: list[int] = []
        for node in old.outputs:
            ref = self.ref(node)
            if (self.body.nodes[ref[1]][1] or ref) in phis:  # the way back through loops would change it
                ref = self._copied(node, ref, -1)
            self.outputs.append(_outer(ref))

    def join(self, other: Rolled) -> None:
        """Take in the bodies that another call knew, which went the same way outside of loops: these come first."""
        for loop, bodies in zip(self.body.loops(), self._joined(other), strict=True):
            loop.bodies = bodies

    def difference(self, other: Rolled) -> str:
        """Return in what the loops of another call that went the same way outside of these differ, or nothing."""
        try:
            self._joined(other)
        except DoesNotFitError as error:
            return str(error)
        return ""

    def _joined(self, other: Rolled) -> list[list[IterationBody]]:
        pairs = zip(self.body.loops(), other.body.loops(), strict=True)
        return [loop_spans.joined(known.bodies, loop.bodies) for loop, known in pairs]

    def lacks_bodies(self, least: int) -> bool:
        """Whether a loop that runs a certain number of times has no body that was seen so often."""
        return any(loop.counted and not loop_spans.usable(loop.bodies, least) for loop in self.body.loops())

    def put(self, recording: Any, *, least: int | None) -> None:
        """Give a recording the recipe with loops, of the bodies that were seen so often; of none where that is None."""
        made = _Assembly(self, least)
        recording.recipe, recording.guards = made.recipe, made.guards
        recording.sources, recording.readers = made.sources, made.readers
        recording.path, recording.guard_positions = tuple(made.path), made.guard_positions


class _Assembly:
    def __init__(self, rolled: Rolled, least: int | None) -> None:
        old = rolled.trace.recipe
        self.rolled, self.least, self.nodes, self.steps = rolled, least, list[ProgramNode](), Steps()
        self.lines = None if old.lines is None else Lines([*old.lines.table])
        self.guards: list[Any] = []
        self.path: list[bytes] = []  # what guards outside of loops expect, and a mark for each loop
        self.guard_positions: list[int] = []  # of each guard, where it stands in the path; -1 for those in loops
        self._kinds: dict[Any, list[int]] = {}
        self.sources: dict[int, Any] = {}
        self.readers: dict[int, Any] = {}
        for node, ref in rolled.refs.items():
            self._read(rolled.body.recording, node, _outer(ref))
        self._steps(rolled.body, _outer)
        self.recipe = Recipe(self.nodes, self.steps, rolled.arguments, rolled.outputs, rolled.written, self.lines)
        self.recipe.frugal = old.frugal
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
        if self.lines is None or known is None or number < 0 or body.recording is self.rolled.body.recording:
            return number
        entry, table = known.table[number], self.lines.table
        if entry not in table:
            table.append(entry)
        return table.index(entry)

    def _loop(self, loop: NativeLoop, line: int, place: Above) -> None:
        """Put a loop that has bodies: its marks and these."""
        bodies = loop_spans.usable(loop.bodies, self.least)
        if not bodies:
            return
        phis, state = [place(phi) for phi in loop.phis], place(loop.state)
        operands = phis if loop.count is None else [*phis, place(loop.count)]
        params = (loop.limit, loop.count is not None, loop.counted, loop.line)
        self._step(StepKind(LOOP_BEGIN, None, params, len(operands)), state, operands, line)
        for body in bodies:
            self._body(state, phis, body, place)
        self._step(StepKind(LOOP_END, None, (), 0), state, [], line)

    def _body(self, state: int, phis: Sequence[int], body: IterationBody, above: Above) -> None:
        places: dict[Ref, int] = {("phi", k): node for k, node in enumerate(phis)}
        for k, (node, old) in enumerate(body.leaves):
            known = self.rolled.refs.get(old) if body.recording is self.rolled.body.recording else None
            if known is None:
                known = "outer", len(self.nodes)
                self.nodes.append(node)
                self._read(body.recording, old, _outer(known))
            places["leaf", k] = _outer(known)
        first = len(self.nodes)
        places |= {("local", k): first + k for k in range(len(body.nodes))}

        def place(ref: Ref) -> int:
            return above(ref[1]) if ref[0] == "above" else _outer(ref) if ref[0] == "outer" else places[ref]

        self._steps(body, place)
        self._step(StepKind(LOOP_AGAIN, None, (), len(body.updates)), state, [place(o) for o in body.updates], -1)

    def _steps(self, body: IterationBody, place: Above) -> None:
        """Put the nodes and the steps of a body."""
        for node, *of in body.nodes:
            base, family = [None if ref is None else place(ref) for ref in of]
            self.nodes.append(replace(node, base=base, family=family))
        guards, is_outside = iter(body.guards), body is self.rolled.body
        for step in body.steps:
            if isinstance(step, NativeLoop):
                if is_outside:
                    self.path.append(f"loop at {step.line}: {step.limit}, {step.counted}, {step.apart}".encode())
                self._loop(step, self._line_of(body, step.number), place)
                continue
            kind, result, operands, line = step
            values = [(o[1],) if o[0] == "number" else place(o) for o in operands]
            self._step(kind, place(result), values, self._line_of(body, line))
            if isinstance(kind.op, Guard):
                self.guards.append(next(guards))
                self.guard_positions.append(len(self.path) if is_outside else -1)
                self.path += [self.guards[-1].value] * is_outside


def _outer(ref: Ref) -> int:
    """Return the node that is known from outside of all loops."""
    return int(ref[1])


def rolled(heads: Heads) -> tuple[Rolled | None, list[LoopSpan], str]:
    """Return a recording with those of its loops that fit, None if none does; these, and why another does not."""
    reason = ""
    while spans := heads.spans():
        whole = _tried(heads, spans)
        if isinstance(whole, Rolled):
            return whole, spans, reason
        apart = [(span, _tried(heads, [span])) for span in spans]
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


def _tried(heads: Heads, spans: Sequence[LoopSpan]) -> Rolled | str:
    """Return a recording with these loops, or why they do not fit; loops within them that do not are their steps.

    Before that, variables of these that hold the same tensor at some iterations are one phi, where they always do.
    """
    while True:
        try:
            return Rolled(heads, spans)
        except DoesNotFitError as error:
            if not error.inner:
                return f"the loop at {spans[0].line}: {error}"
            if error.inner in heads.apart:
                heads.apart.discard(error.inner)
            else:
                heads.flat.add(error.inner)
