"""What the iterations of a recorded loop did, told as bodies of a native one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.arrays.specs import Spec, spec_of
from kernels.kinds.loop import LOOP_STATE
from kernels.kinds.write import Write
from kernels.ops.views import CLONE
from kernels.programs.recording.program import Node
from kernels.programs.recording.program_words import StepKind
from tape.compiled.recording.loop_bodies import Body, DoesNotFitError, NativeLoop, Ref, check_repeats, joined
from tape.compiled.recording.loop_spans import Heads, Span, Trace, Visit, phis_of
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

    def __init__(self, recorded: Recorded, span: Span, phis: list[int], before: Before, number: int) -> None:
        self.recorded, self.trace, self.span, self.before = recorded, recorded.heads.trace, span, before
        self.first = span.start if number == 0 else span.ends[number - 1]
        self.last = span.ends[number]
        begin, end = span.visits[number].nodes, span.visits[number + 1].nodes
        self.refs: dict[int, Ref] = {}
        self.after = [end[place] for place in phis]
        self.inner = recorded.heads.within(span, number)
        self.body = Body(recording=recorded.recording)
        self.at = self.first
        """The step that is told."""
        self._leaves: dict[Any, Ref] = {}
        self.written = self.trace.written(self.first, self.last)
        self.shared: dict[int, tuple[Ref, ...]] = {}
        """The phis that begin with the same node, which the iteration reads, where it is not the same for all."""
        self.begin = [begin[place] for place in phis]
        self._begin(span.visits[number], phis)

    def _begin(self, visit: Visit, phis: list[int]) -> None:
        """Know what the nodes are that the iteration begins with."""
        for node in dict.fromkeys(self.begin):
            holders = [k for k, other in enumerate(self.begin) if other == node]
            holders = [k for k in holders if visit.read[phis[k]]] or holders
            self.refs[node] = self._kept(node, ("phi", holders[0]), self.written)
            if len(holders) > 1:
                self.shared[node] = tuple([("phi", k) for k in holders])

    def made(self) -> Body:
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
        """Return what the next step calls its operands."""
        for place, node in enumerate(nodes):
            if node in self.shared:
                self.body.choices[len(self.body.steps), place] = frozenset(self.shared[node])
        return tuple([self.ref(node) for node in nodes])

    def _steps(self, first: int, stop: int, left_out: int) -> None:
        """Take steps as they are."""
        body, trace = self.body, self.trace
        for at in range(first, stop):
            if at == left_out:
                continue
            self.at = at
            kind, result = trace.kind(at), trace.result(at)
            operands = self._operands(trace.operands(at))
            if at in self.recorded.recording.taken_over and operands[0][0] != "phi":
                self._check_apart(self.recorded.recording.taken_over[at])
            if isinstance(kind.op, Write) and self.ref(trace.recipe.base_of(result))[0] != "local":
                raise DoesNotFitError("it writes to memory from before")
            body.steps.append((kind, self.ref(result), operands, self.recorded.line(at)))
            if at in trace.guards:
                body.guards.append(self.recorded.recording.guards[trace.guards[at]])

    def _check_apart(self, memory: Any) -> None:
        """Raise where an iteration begins to write memory of a constant that a phi began with."""
        sources, recipe = self.recorded.recording.all_sources, self.trace.recipe
        for node in self.begin:
            source = sources.get(node, sources.get(recipe.base_of(node)))
            array = as_array(source) if isinstance(source, Tensor) else source
            if array is not None and np.may_share_memory(array, memory):
                raise DoesNotFitError("it writes to an argument, or to a constant")

    def _kept(self, node: int, phi: Ref, written: set[int]) -> Ref:
        """Return what stands for a node from here on: a phi, or a copy of it if the node is written."""
        if node not in written:
            return phi
        source = self.trace.recipe.nodes[node]
        if source.argument or source.constant is not None:
            raise DoesNotFitError("it writes to an argument, or to a constant")
        return self._copied(node, phi, self.recorded.line(self.first))

    def _copied(self, node: int, ref: Ref, line: int) -> Ref:
        """Take a copy of a node, which is called so."""
        kind, entry = copy_of(self.trace.recipe.nodes[node], wanted=self.trace.recipe.wants(node))
        copy = self._local(entry)
        self.body.steps.append((kind, copy, (ref,), line))
        return copy

    def _loop(self, loop: Span) -> None:
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

        state = self._local(Node(LOOP_STATE))
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
            return self._leaf(node, entry)
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

    def _local(self, entry: Node, base: Ref | None = None, family: Ref | None = None) -> Ref:
        self.body.nodes.append((entry, base, family))
        return "local", len(self.body.nodes) - 1

    def _leaf(self, node: int, entry: Node) -> Ref:
        assert entry.constant is not None
        key = entry.spec, entry.constant.tobytes(), id(self.recorded.recording.all_sources.get(node))
        if key not in self._leaves:
            self.body.leaves.append((entry, node))
            self._leaves[key] = "leaf", len(self.body.leaves) - 1
        return self._leaves[key]


def results_of(loop: Span, places: Sequence[int]) -> dict[int, int]:
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


def forget_views(known: dict[int, Any], trace: Trace, written: set[int]) -> None:
    """Know no views any more of memory that is written in a loop or behind it: from the loop on, it is another."""
    for node in [node for node in known if is_view_of(trace, node, written)]:
        del known[node]


def is_view_of(trace: Trace, node: int, written: set[int]) -> bool:
    """Whether a node is a view of one of the nodes that are written."""
    return node not in written and trace.recipe.base_of(node) in written


def copy_of(entry: Node, *, wanted: bool) -> tuple[StepKind, Node]:
    """Return the kind of the step that copies a node, and the copy: in C order, if it is one of a view."""
    spec = entry.spec if entry.base is None else spec_of(np.empty(entry.spec.shape, entry.spec.dtype))
    return _copying(entry.spec, spec, wanted), Node(spec, differentiable=wanted)


@functools.lru_cache(maxsize=_MOST_KINDS)
def _copying(source: Spec, target: Spec, wanted: bool) -> StepKind:
    form = CLONE.form((source,), target, (True,)) if wanted else None
    return StepKind(CLONE, form, (), 1)


def bodies_of(recorded: Recorded, span: Span, phis: list[int], outer: Mapping[int, int]) -> list[Body]:
    """Return the different bodies of a loop, in the order they came.

    ``outer`` has the numbers of nodes from before the loop.
    """

    def before(node: int) -> Ref | None:
        return ("outer", outer[node]) if node in outer else None

    bodies = _bodies(recorded, span, phis, before)
    check_repeats(bodies, "")
    return bodies


def _bodies(recorded: Recorded, span: Span, phis: list[int], before: Before) -> list[Body]:
    bodies: list[Body] = []
    for number in range(len(span.ends)):
        bodies = joined(bodies, [_BodyMaker(recorded, span, phis, before, number).made()])
    return bodies
