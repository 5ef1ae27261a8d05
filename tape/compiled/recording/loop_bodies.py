"""What iterations of a loop did, as bodies of a native one: those that did the same are one body."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from kernels.arrays.specs import Spec, spec_of
from kernels.kinds.guard import Guard
from kernels.kinds.loop import LOOP_STATE
from kernels.kinds.write import Write
from kernels.ops.views import CLONE
from kernels.programs.recording.program import Node
from kernels.programs.recording.program_words import StepKind
from tape.compiled.recording.loop_spans import Heads, Span, Trace, phis_of
from tape.compiled.recording.sameness import same, same_kind

MOST_BODIES = 16
"""Ways through one iteration."""
_DIFFERENT = "an iteration did something else than another, though no value that left for Python was another one"
_FEW = 2
"""Iterations that may all differ."""
_MOST_KINDS = 256
"""Kinds of copies that are kept: there are as many steps of one as lists of results, say, have tensors."""
Ref = tuple[str, Any]
"""A node as a body knows it: a phi, a local or a leaf by number, or one from before the loop; or a Python number.

A body of a loop within another's knows the nodes of that one as those ``above``.
"""
BodyStep = tuple[StepKind, Ref, tuple[Ref, ...], int]
"""A kind, the result, operands, and the number of the line."""
Before = Callable[[int], Ref | None]


class DoesNotFitError(Exception):
    """What a loop did cannot be told as bodies of a native one; ``inner`` is where the loop is, if within another."""

    def __init__(self, reason: str, inner: str = "") -> None:
        super().__init__(reason)
        self.inner = inner


class Recorded(NamedTuple):
    """A recording, the heads of its loops, and the numbers of its steps' lines, if these are kept."""

    recording: Any
    heads: Heads
    lines: Sequence[int]

    def line(self, at: int) -> int:
        """Return the number of a step's line; -1 if it is not known."""
        return self.lines[at] if at < len(self.lines) else -1


@dataclass(slots=True)
class Body:
    """One way through an iteration: its steps, the nodes that they make, constants, and what the next starts from."""

    steps: list[BodyStep | NativeLoop] = field(default_factory=list)
    nodes: list[tuple[Node, Ref | None, Ref | None]] = field(default_factory=list)
    """Each with the node whose memory, and whose gradient, it is part of."""
    leaves: list[tuple[Node, int]] = field(default_factory=list)
    """Constants, with their nodes in the recording."""
    updates: tuple[Ref, ...] = ()
    guards: list[Any] = field(default_factory=list)
    recording: Any = None
    seen: int = 1
    """How often an iteration did this."""
    calls: int = 1
    """In how many calls."""

    def merged(self, other: Body) -> Body:
        """Return a body that knows of another that did the same, and of the loops within both."""
        loops = iter(other.loops())
        steps = [x.joined(next(loops).bodies) if isinstance(x, NativeLoop) else x for x in self.steps]
        calls = self.calls + other.calls * (self.recording is not other.recording)
        return replace(self, steps=steps, seen=self.seen + other.seen, calls=calls)

    def loops(self) -> list[NativeLoop]:
        """Return the loops within it."""
        return [step for step in self.steps if isinstance(step, NativeLoop)]

    def is_known(self, least: int) -> bool:
        """Whether it was seen so often; if it reads constants, in two calls, which found them the same."""
        often = self.seen >= least and (self.calls > 1 or not self._has_constants())
        return often and all(usable(loop.bodies, least) for loop in self.loops() if loop.counted)

    def _has_constants(self) -> bool:
        """Whether a step reads a constant; guards apart."""
        steps = [s for s in self.steps if not isinstance(s, NativeLoop) and not isinstance(s[0].op, Guard)]
        return any(operand[0] == "leaf" for _, _, operands, _ in steps for operand in operands)


@dataclass(slots=True)
class NativeLoop:
    """A loop, in a body or in none: its own node, its phis, which are nodes of their own, and its bodies."""

    state: Ref
    phis: tuple[Ref, ...]
    count: Ref | None
    limit: int | None
    counted: bool
    line: str
    bodies: list[Body]
    number: int
    """That of its line."""

    @property
    def traits(self) -> tuple[Any, ...]:
        """What is the same of loops that are one, whatever their iterations did."""
        return self.state, self.phis, self.count, self.limit, self.counted, self.line

    def joined(self, bodies: Sequence[Body]) -> NativeLoop:
        """Return this loop with what else was seen of it."""
        try:
            return replace(self, bodies=joined(self.bodies, bodies))
        except DoesNotFitError as error:
            raise DoesNotFitError(str(error), error.inner or self.line) from None


def usable(bodies: Sequence[Body], least: int | None) -> list[Body]:
    """Return the bodies that may be replayed, of those that were seen so often; none for None."""
    return [body for body in bodies if least is not None and body.is_known(least)]


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
        self._leaves: dict[Any, Ref] = {}
        self.written = self.trace.written(self.first, self.last)
        for k, place in enumerate(phis):
            phi: Ref = ("phi", k)
            self.refs.setdefault(begin[place], self._kept(begin[place], phi, self.written))

    def made(self) -> Body:
        """Return the body."""
        at = self.first
        for loop in self.inner:
            self._steps(at, loop.start, loop.drawn)
            self._loop(loop)
            at = loop.stop
        self._steps(at, self.last, -1)
        self.body.updates = tuple([self.ref(node) for node in self.after])
        return self.body

    def _steps(self, first: int, stop: int, left_out: int) -> None:
        """Take steps as they are."""
        body, trace = self.body, self.trace
        for at in range(first, stop):
            if at == left_out:
                continue
            kind, result = trace.kind(at), trace.result(at)
            operands = tuple([self.ref(o) for o in trace.operands(at)])
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
        """Take a copy of a node, which is called so."""
        kind, entry = copy_of(self.trace.recipe.nodes[node], wanted=self.trace.recipe.wants(node))
        copy = self._local(entry)
        self.body.steps.append((kind, copy, (ref,), line))
        return copy

    def _loop(self, loop: Span) -> None:
        """Take a loop, whose phis are copies of what its first iteration starts from; what follows reads these."""
        first, line = loop.visits[0], self.recorded.line(loop.start)
        places = phis_of(self.trace, loop)
        phis = [self._copied(node, self.ref(node), line) for node in [first.nodes[place] for place in places]]
        count = None if loop.count is None else self.ref(loop.count)
        forget_views(self.refs, self.trace, loop)
        state = self._local(Node(LOOP_STATE))
        try:
            bodies = _bodies(self.recorded, loop, places, self._above)
        except DoesNotFitError as error:
            raise DoesNotFitError(str(error), error.inner or first.line) from None
        self.body.steps.append(
            NativeLoop(state, tuple(phis), count, loop.limit, loop.counted, first.line, bodies, line)
        )
        written = self.trace.written(loop.stop, self.last)
        for phi, place in zip(phis, places, strict=True):
            node = loop.visits[-1].nodes[place]
            self.refs[node] = self._kept(node, phi, written)

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


def forget_views(known: dict[int, Any], trace: Trace, loop: Span) -> None:
    """Know no views any more of memory that a loop writes: behind it, and in it, that is other memory."""
    written, base_of = trace.written(loop.start, loop.stop), trace.recipe.base_of
    for node in [node for node in known if node not in written and base_of(node) in written]:
        del known[node]


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
    _check_repeats(bodies, "")
    return bodies


def _bodies(recorded: Recorded, span: Span, phis: list[int], before: Before) -> list[Body]:
    bodies: list[Body] = []
    for number in range(len(span.ends)):
        bodies = joined(bodies, [_BodyMaker(recorded, span, phis, before, number).made()])
    return bodies


def _check_repeats(bodies: Sequence[Body], inner: str) -> None:
    """Raise where no iteration did the same as another."""
    if len(bodies) == sum(body.seen for body in bodies) > _FEW:
        raise DoesNotFitError("no iteration did the same as another", inner)
    for body in bodies:
        for loop in body.loops():
            _check_repeats(loop.bodies, loop.line)


def joined(known: Sequence[Body], bodies: Sequence[Body]) -> list[Body]:
    """Return what is known of a loop's bodies with what else was seen; these come last.

    Of two that did the same there is one. Where two did something else though no value that left for Python was another
    one, something is not seen: DoesNotFitError.
    """
    all_bodies = list(known)
    for body in bodies:
        for k, other in enumerate(all_bodies):
            if not _is_apart(other, body):
                all_bodies[k] = other.merged(body)
                break
        else:
            all_bodies.append(body)
    if len(all_bodies) > MOST_BODIES:
        raise DoesNotFitError(f"there are more than {MOST_BODIES} ways through an iteration")
    return all_bodies


def _is_apart(a: Body, b: Body) -> bool:
    """Whether another value that left for Python has one iteration go another way than the other."""
    for x, y in zip(a.steps, b.steps, strict=False):
        if isinstance(x, NativeLoop) or isinstance(y, NativeLoop):
            if not (isinstance(x, NativeLoop) and isinstance(y, NativeLoop) and x.traits == y.traits):
                return True
        elif not _is_same_step(a, x, b, y):
            if _are_guards_of_one(x, y) or CLONE in (x[0].op, y[0].op):  # a loop begins, of which one has none
                return True
            raise DoesNotFitError(_DIFFERENT)
    traits = [(len(body.steps), body.updates, list(map(_traits, body.nodes))) for body in (a, b)]
    if traits[0] != traits[1]:
        raise DoesNotFitError(_DIFFERENT)
    return False


def _traits(node: tuple[Node, Ref | None, Ref | None]) -> tuple[Any, ...]:
    entry, base, family = node
    return entry.spec, base, family, entry.offset, entry.buffer_offset, entry.differentiable


def _is_same_step(a: Body, x: BodyStep, b: Body, y: BodyStep) -> bool:
    (kind, result, operands, _), (other_kind, other_result, others, _) = x, y
    if result != other_result or not same_kind(kind, other_kind):
        return False
    return all(_is_same_operand(a, one, b, other) for one, other in zip(operands, others, strict=True))


def _are_guards_of_one(x: BodyStep, y: BodyStep) -> bool:
    """Whether two steps look at the same value."""
    return isinstance(x[0].op, Guard) and isinstance(y[0].op, Guard) and x[2][0] == y[2][0]


def _is_same_operand(a: Body, one: Ref, b: Body, other: Ref) -> bool:
    if one[0] != other[0]:
        return False
    if one[0] == "leaf":
        return _is_same_leaf(a, a.leaves[one[1]], b, b.leaves[other[1]])
    return same(one[1], other[1]) if one[0] == "number" else bool(one[1] == other[1])


def _is_same_leaf(a: Body, x: tuple[Node, int], b: Body, y: tuple[Node, int]) -> bool:
    (one, i), (other, j) = x, y
    assert one.constant is not None
    assert other.constant is not None
    if one.spec is not other.spec:
        return False
    source = a.recording.all_sources.get(i)  # what calls read from one place, it may hold another value each time
    shared = a.recording is not b.recording and source is not None and source is b.recording.all_sources.get(j)
    return shared or one.constant.tobytes() == other.constant.tobytes()
