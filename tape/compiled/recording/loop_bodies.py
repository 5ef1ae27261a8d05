"""Bodies of a native loop: what its iterations did; those that did the same are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernels.kinds.loop import Guard
from kernels.ops.views import CLONE
from kernels.programs.recording.program import Node
from kernels.programs.recording.program_words import StepKind
from tape.compiled.recording.sameness import same, same_kind

MOST_BODIES = 16
"""Ways through one iteration."""
_DIFFERENT = "an iteration did something else than another, though no value that left for Python was another one"
_FEW = 2
"""Iterations that may all differ."""
Ref = tuple[str, Any]
"""A node as a body knows it: a phi, a local or a leaf by number, or one from before the loop; or a Python number.

A body of a loop within another's knows the nodes of that one as those ``above``.
"""
BodyStep = tuple[StepKind, Ref, tuple[Ref, ...], int]
"""A kind, the result, operands, and the number of the line."""


class DoesNotFitError(Exception):
    """What a loop did cannot be told as bodies of a native one; ``inner`` is where the loop is, if within another."""

    def __init__(self, reason: str, inner: str = "") -> None:
        super().__init__(reason)
        self.inner = inner


@dataclass(slots=True)
class Body:
    """One way through an iteration: its steps, the nodes that they make, constants, and what the next starts from."""

    steps: list[BodyStep | NativeLoop] = field(default_factory=list)
    nodes: list[tuple[Node, Ref | None, Ref | None]] = field(default_factory=list)
    """Each with the node whose memory, and whose gradient, it is part of."""
    leaves: list[tuple[Node, int]] = field(default_factory=list)
    """Constants, with their nodes in the recording."""
    updates: tuple[Ref, ...] = ()
    choices: dict[tuple[int, int], frozenset[Ref]] = field(default_factory=dict)
    """What operands may be, by step (-1 for ``updates``) and place, where several phis began with the same tensor."""
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
        return replace(self, steps=steps, seen=self.seen + other.seen, calls=calls)._chosen(other)

    def _chosen(self, other: Body) -> Body:
        """Return this body with operands that are those of the other one, too, where there is a choice."""
        choices = dict[tuple[int, int], frozenset[Ref]]()
        steps, updates = list(self.steps), list(self.updates)
        for step, place in self.choices.keys() | other.choices.keys():
            both = self.may_be(step, place) & other.may_be(step, place)
            if len(both) > 1:
                choices[step, place] = both
            one = min(both)
            if step < 0:
                updates[place] = one
            else:
                steps[step] = _with_operand(steps[step], place, one)
        return replace(self, steps=steps, updates=tuple(updates), choices=choices)

    def may_be(self, step: int, place: int) -> frozenset[Ref]:
        """Return what an operand of a step, or an update for -1, may be: one, unless there is a choice."""
        known = self.choices.get((step, place))
        if known is not None:
            return known
        operands = self.updates if step < 0 else self.steps[step][2]  # type: ignore[index]
        return frozenset((operands[place],))

    def loops(self) -> list[NativeLoop]:
        """Return the loops within it."""
        return [step for step in self.steps if isinstance(step, NativeLoop)]

    def is_known(self, least: int) -> bool:
        """Whether it was seen so often, and it is known what it reads.

        If it reads constants, in two calls, which found them the same.
        """
        often = self.seen >= least and not self.choices and (self.calls > 1 or not self._has_constants())
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
    apart: bool
    line: str
    bodies: list[Body]
    number: int
    """That of its line."""

    @property
    def traits(self) -> tuple[Any, ...]:
        """What is the same of loops that are one, whatever their iterations did."""
        return self.state, self.phis, self.count, self.limit, self.counted, self.apart, self.line

    def joined(self, bodies: Sequence[Body]) -> NativeLoop:
        """Return this loop with what else was seen of it."""
        try:
            return replace(self, bodies=joined(self.bodies, bodies))
        except DoesNotFitError as error:
            raise DoesNotFitError(str(error), error.inner or self.line) from None


def usable(bodies: Sequence[Body], least: int | None) -> list[Body]:
    """Return the bodies that may be replayed, of those that were seen so often; none for None."""
    return [body for body in bodies if least is not None and body.is_known(least)]


def check_repeats(bodies: Sequence[Body], inner: str) -> None:
    """Raise where no iteration did the same as another."""
    if len(bodies) == sum(body.seen for body in bodies) > _FEW:
        raise DoesNotFitError("no iteration did the same as another", inner)
    for body in bodies:
        for loop in body.loops():
            check_repeats(loop.bodies, loop.line)


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
    for at, (x, y) in enumerate(zip(a.steps, b.steps, strict=False)):
        if isinstance(x, NativeLoop) or isinstance(y, NativeLoop):
            if not (isinstance(x, NativeLoop) and isinstance(y, NativeLoop) and x.traits == y.traits):
                return True
        elif not _is_same_step(a, x, b, y, at):
            if _are_guards_of_one(a, x, b, y, at) or CLONE in (
                x[0].op,
                y[0].op,
            ):  # a loop begins, of which one has none
                return True
            raise DoesNotFitError(_DIFFERENT)
    traits = [(len(body.steps), len(body.updates), list(map(_traits, body.nodes))) for body in (a, b)]
    if traits[0] != traits[1] or not all(a.may_be(-1, k) & b.may_be(-1, k) for k in range(len(a.updates))):
        raise DoesNotFitError(_DIFFERENT)
    return False


def _traits(node: tuple[Node, Ref | None, Ref | None]) -> tuple[Any, ...]:
    entry, base, family = node
    return entry.spec, base, family, entry.offset, entry.buffer_offset, entry.differentiable


def _is_same_step(a: Body, x: BodyStep, b: Body, y: BodyStep, at: int) -> bool:
    (kind, result, operands, _), (other_kind, other_result, others, _) = x, y
    if result != other_result or not same_kind(kind, other_kind):
        return False
    pairs = enumerate(zip(operands, others, strict=True))
    return all(_is_same_operand(a, one, b, other) or _may_be_same(a, b, at, k) for k, (one, other) in pairs)


def _may_be_same(a: Body, b: Body, at: int, place: int) -> bool:
    """Whether there is a choice of what operands are, and they may be the same phi."""
    is_choice = (at, place) in a.choices or (at, place) in b.choices
    return is_choice and not a.may_be(at, place).isdisjoint(b.may_be(at, place))


def _with_operand(step: BodyStep | NativeLoop, place: int, operand: Ref) -> BodyStep:
    """Return a step with another operand."""
    assert not isinstance(step, NativeLoop)
    kind, result, operands, line = step
    return kind, result, (*operands[:place], operand, *operands[place + 1 :]), line


def _are_guards_of_one(a: Body, x: BodyStep, b: Body, y: BodyStep, at: int) -> bool:
    """Whether two steps look at the same value."""
    are_guards = isinstance(x[0].op, Guard) and isinstance(y[0].op, Guard)
    return are_guards and (x[2][0] == y[2][0] or _may_be_same(a, b, at, 0))


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
