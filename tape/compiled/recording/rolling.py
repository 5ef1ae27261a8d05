"""Python loops in recorded calls: iterations that did the same from the same Python state become bodies of one loop.

At the visits of a loop's head the Python state is compared, tensors apart. Where it is equal, Python decides the same
until other values leave for it; so what an iteration did is known from where it began, and need not be recorded again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.kinds.guard import Guard
from kernels.kinds.write import Write
from kernels.programs.recording.notifying_words import HEAD
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import StepKind
from tape.compiled.recording.sameness import same, same_kind
from tape.watching.head_visits import HeadVisit

MOST_BODIES = 16
"""Ways through one iteration."""
_FEW = 2
"""Iterations that may all differ."""
Ref = tuple[str, Any]
"""A node as a body knows it: a phi, a local or a leaf by number, or one from before the loop; or a Python number."""


class DoesNotFitError(Exception):
    """What a loop did cannot be told as bodies of a native one."""


class Visit:
    """A visit of a loop's head, in a recording: which words had been recorded, and the nodes of the state's tensors."""

    __slots__ = ("at", "count", "entry", "line", "nodes", "number", "reason", "remaining", "template")

    def __init__(self, visit: HeadVisit, at: int, nodes: list[int], count: int | None) -> None:
        self.at, self.nodes, self.count = at, nodes, count
        self.entry, self.number, self.remaining = visit.entry, visit.number, visit.remaining
        self.template, self.reason, self.line = visit.state.template, visit.reason, visit.loop.location


@dataclass(slots=True)
class Body:
    """One way through an iteration: its steps, the nodes that they make, constants, and what the next starts from."""

    steps: list[tuple[StepKind, Ref, tuple[Ref, ...], int]] = field(default_factory=list)
    nodes: list[tuple[Node, Ref | None, Ref | None]] = field(default_factory=list)
    """Each with the node whose memory, and whose gradient, it is part of."""
    leaves: list[tuple[Node, int]] = field(default_factory=list)
    """Constants, with their nodes in the recording."""
    updates: tuple[Ref, ...] = ()
    guards: list[Any] = field(default_factory=list)
    recording: Any = None


@dataclass(slots=True)
class Span:
    """One loop of a recording: the steps of its iterations, what they start from and end with, how many there may be.

    ``ends`` are where each iteration ends; ``count`` the node of the number of iterations, and ``drawn`` the step at
    which Python got it, if it is one.
    """

    start: int
    ends: list[int]
    visits: list[Visit]
    limit: int | None
    counted: bool
    count: int | None = None
    drawn: int = -1

    @property
    def stop(self) -> int:
        """The step behind the last iteration."""
        return self.ends[-1] if self.ends else self.start


class Trace:
    """The steps of a recording, and what made its nodes."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.words, self.starts = recipe, recipe.steps.words.tolist(), recipe.steps.starts
        self.made: dict[int, int] = {}
        self.guards: dict[int, int] = {}
        """The steps that are guards, with their numbers."""
        for at, start in enumerate(self.starts):
            op = self.kind(at).op
            if isinstance(op, Guard):
                self.guards[at] = len(self.guards)
            elif not isinstance(op, Write):
                self.made.setdefault(self.words[start + 1], at)

    def kind(self, at: int) -> StepKind:
        """Return the kind of a step."""
        return self.recipe.steps.kinds[self.words[self.starts[at]]]

    def result(self, at: int) -> int:
        """Return the node of a step's result."""
        return self.words[self.starts[at] + 1]

    def operands(self, at: int) -> list[int]:
        """Return the operands of a step: nodes, or words of numbers."""
        start = self.starts[at] + HEAD
        return self.words[start : start + self.kind(at).count]

    def origin(self, node: int) -> int:
        """Return the step that made a node, or what it is a view of; -1 if none did."""
        at = self.made.get(node)
        base = self.recipe.nodes[node].base
        return at if at is not None else (-1 if base is None else self.origin(base))


def spans_of(trace: Trace, visits: Sequence[Visit], without: Collection[int]) -> list[Span]:
    """Return the loops that native ones may repeat, outer ones instead of those within; some entries left out."""
    entries: dict[int, list[Visit]] = {}
    for visit in visits:
        if visit.entry not in without:
            entries.setdefault(visit.entry, []).append(visit)
    spans: list[Span] = []
    for those in entries.values():
        span = _span(trace, those)
        if span is not None and (not spans or span.start >= spans[-1].stop):
            spans.append(span)
    return spans


def unrolled(trace: Trace, visits: Sequence[Visit], spans: Sequence[Span]) -> str:
    """Return why a loop is in none of these, nor within one; empty if there is none such."""
    entries = {visit.entry for span in spans for visit in span.visits}
    for visit in visits:
        at = bisect_left(trace.starts, visit.at)
        within = visit.entry in entries or any(span.start <= at < span.stop for span in spans)
        if (visit.reason or visit.number > 1) and not within:
            return f"the loop at {visit.line}: {visit.reason or 'what its variables hold changes with each iteration'}"
    return ""


def _span(trace: Trace, visits: list[Visit]) -> Span | None:
    last, first = visits[-1], len(visits) - 1
    while first > 0 and visits[first - 1].number == visits[first].number - 1 and _alike(trace, visits[first - 1], last):
        first -= 1
    visits = visits[first:]
    if (
        last.reason
        or (len(visits) == 1 and last.count is None)
        or any(trace.recipe.nodes[n].base is not None for n in _changing(visits))
    ):
        return None
    ends = [bisect_left(trace.starts, visit.at) for visit in visits]
    span = Span(ends[0], ends[1:], visits, None, counted=False)
    if last.count is not None:
        return _counted_by_tensor(trace, span)
    remaining, count = visits[0].remaining, len(visits) - 1
    if remaining is not None and remaining < count:
        return None
    if remaining is not None:  # where Python decides, the iteration that ends the loop is none of the others' kind
        span.limit, span.counted = (count, True) if remaining == count else (remaining - 1, False)
    stop = span.stop if span.counted else len(trace.starts)  # a guard may leave it
    return span if any(span.start <= at < stop for at in trace.guards) else None


def _counted_by_tensor(trace: Trace, span: Span) -> Span | None:
    """Take in that a loop runs as often as a tensor says, which Python looked at right before."""
    visit, iterations = span.visits[0], len(span.visits) - 1
    before = bisect_left(trace.starts, visit.at) - 1
    drawn = before in trace.guards and trace.operands(before)[0] == visit.count
    if visit.number or not drawn or _is_written(trace, visit.count):
        return None
    value = trace.recipe.nodes[trace.operands(before)[1]].constant
    if value is None or int(value) != iterations or visit.remaining is not None:  # it was left before
        return None
    span.count, span.drawn, span.counted = visit.count, before, True
    return span


def _is_written(trace: Trace, node: int | None) -> bool:
    base = trace.recipe.base_of(node) if node is not None else -1
    writes = (at for at in range(len(trace.starts)) if isinstance(trace.kind(at).op, Write))
    return any(trace.recipe.base_of(trace.result(at)) == base for at in writes)


def _alike(trace: Trace, a: Visit, b: Visit) -> bool:
    """Whether visits begin iterations that do the same, as far as Python decides."""
    if a.reason or a.template != b.template or len(a.nodes) != len(b.nodes):
        return False
    recipe, nodes = trace.recipe, trace.recipe.nodes
    return all(
        x == y or (nodes[x].spec is nodes[y].spec and recipe.wants(x) == recipe.wants(y) and nodes[x].base is None)
        for x, y in zip(a.nodes, b.nodes, strict=True)
    )


def _changing(visits: Sequence[Visit]) -> list[int]:
    columns = zip(*[visit.nodes for visit in visits], strict=True)
    return [node for column in columns if len(set(column)) > 1 for node in column]


def phis_of(trace: Trace, span: Span) -> list[int]:
    """Return the places in the state of the tensors that are phis: those with memory of their own."""
    nodes, places = trace.recipe.nodes, list[int]()
    seen: set[tuple[int, ...]] = set()
    for k, column in enumerate(zip(*[visit.nodes for visit in span.visits], strict=True)):
        if column not in seen and nodes[column[0]].base is None:
            places.append(k)
            seen.add(column)
    return places


class _BodyMaker:
    """Tells one iteration as a body."""

    def __init__(self, trace: Trace, span: Span, phis: list[int], outer: dict[int, int], number: int) -> None:
        self.trace, self.span, self.outer = trace, span, outer
        self.first = span.start if number == 0 else span.ends[number - 1]
        self.last = span.ends[number]
        begin, end = span.visits[number].nodes, span.visits[number + 1].nodes
        self.refs: dict[int, Ref] = {}
        for k, place in enumerate(phis):
            self.refs.setdefault(begin[place], ("phi", k))
        self.after = [end[place] for place in phis]
        self.body = Body()
        self._leaves: dict[Any, Ref] = {}

    def made(self, lines: Sequence[int], recording: Any) -> Body:
        """Return the body."""
        body, trace = self.body, self.trace
        for at in range(self.first, self.last):
            kind, result = trace.kind(at), trace.result(at)
            operands = tuple([self.ref(o) for o in trace.operands(at)])
            if isinstance(kind.op, Write) and self.ref(trace.recipe.base_of(result))[0] != "local":
                raise DoesNotFitError("it writes to memory from before")
            body.steps.append((kind, self.ref(result), operands, lines[at] if len(lines) else -1))
        body.updates = tuple([self.ref(node) for node in self.after])
        body.guards = [recording.guards[k] for at, k in trace.guards.items() if self.first <= at < self.last]
        body.recording = recording
        return body

    def ref(self, node: int) -> Ref:
        """Return what a body calls a node."""
        if node < 0:
            return "number", self.trace.recipe.steps.numbers[~node]
        known = self.refs.get(node)
        if known is None:
            known = self.refs[node] = self._new(node)
        return known

    def _new(self, node: int) -> Ref:
        entry, origin = self.trace.recipe.nodes[node], self.trace.origin(node)
        if entry.constant is not None:
            return self._leaf(node, entry)
        if entry.argument or (0 <= origin < self.span.start and node in self.outer):
            return "outer", self.outer[node]
        within = node in self.trace.made and self.first <= self.trace.made[node] < self.last
        if not within and (entry.base is None or node in self.trace.made):
            raise DoesNotFitError("it uses a tensor of an iteration before, which no variable holds")
        base = None if entry.base is None else self.ref(entry.base)
        family = None if entry.family is None else self.ref(entry.family)
        self.body.nodes.append((entry, base, family))
        return "local", len(self.body.nodes) - 1

    def _leaf(self, node: int, entry: Node) -> Ref:
        assert entry.constant is not None
        key = entry.spec, entry.constant.tobytes()
        if key not in self._leaves:
            self.body.leaves.append((entry, node))
            self._leaves[key] = "leaf", len(self.body.leaves) - 1
        return self._leaves[key]


def bodies_of(
    trace: Trace, span: Span, phis: list[int], outer: dict[int, int], recording: Any, lines: Sequence[int]
) -> list[tuple[Body, int]]:
    """Return the different bodies of a loop, in the order they came, each with how often.

    ``outer`` has the numbers of nodes from before the loop.
    """
    bodies: list[tuple[Body, int]] = []
    for number in range(len(span.ends)):
        count_body(bodies, _BodyMaker(trace, span, phis, outer, number).made(lines, recording), 1)
        if len(bodies) > MOST_BODIES:
            raise DoesNotFitError(f"there are more than {MOST_BODIES} ways through an iteration")
    if len(bodies) == len(span.ends) > _FEW:
        raise DoesNotFitError("no iteration did the same as another")
    return bodies


def count_body(bodies: list[tuple[Body, int]], body: Body, seen: int) -> None:
    """Count a body that was seen so often with the one that did the same, or as another."""
    place = next((k for k, (known, _) in enumerate(bodies) if _same_body(known, body)), None)
    if place is None:
        bodies.append((body, seen))
    else:
        bodies[place] = bodies[place][0], bodies[place][1] + seen


def _same_body(a: Body, b: Body) -> bool:
    """Whether two iterations did the same."""
    if len(a.steps) != len(b.steps) or a.updates != b.updates or len(a.nodes) != len(b.nodes):
        return False
    return (
        len(a.leaves) == len(b.leaves)
        and all(map(_same_step, a.steps, b.steps))
        and all(_traits(x) == _traits(y) for x, y in zip(a.nodes, b.nodes, strict=True))
        and all(_same_leaf(a, x, b, y) for x, y in zip(a.leaves, b.leaves, strict=True))
    )


def _traits(node: tuple[Node, Ref | None, Ref | None]) -> tuple[Any, ...]:
    entry, base, family = node
    return entry.spec, base, family, entry.offset, entry.buffer_offset, entry.differentiable


def _same_step(x: Any, y: Any) -> bool:
    (kind, result, operands, _), (kind2, result2, operands2, _) = x, y
    if result != result2 or not same_kind(kind, kind2):
        return False
    return all(
        a[0] == b[0] and (same(a[1], b[1]) if a[0] == "number" else a[1] == b[1])
        for a, b in zip(operands, operands2, strict=True)
    )


def _same_leaf(a: Body, x: tuple[Node, int], b: Body, y: tuple[Node, int]) -> bool:
    (one, i), (other, j) = x, y
    assert one.constant is not None
    assert other.constant is not None
    if one.spec is not other.spec:
        return False
    source = a.recording.all_sources.get(i)  # what calls read from one place, it may hold another value each time
    shared = a.recording is not b.recording and source is not None and source is b.recording.all_sources.get(j)
    return shared or one.constant.tobytes() == other.constant.tobytes()
