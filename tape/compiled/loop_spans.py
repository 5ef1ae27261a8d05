"""Spans of loops in a recording, and their bodies."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from kernels.kinds.routine import Guard
from kernels.kinds.views import View, Write
from kernels.operations.views import CLONE
from kernels.programs.program import HEAD, ProgramNode, Recipe, StepKind
from tape.tensors.recorder import same, same_kind
from tape.watching.loop_states import changed_names, is_number
from tape.watching.python_loops import HeadVisit, PythonLoop, loops_of, told_of

MOST_BODIES = 16  # ways through one iteration
_DIFFERENT = "an iteration did something else than another, though no value that left for Python was another one"
_FEW = 2  # iterations that may all differ
Ref = tuple[str, Any]
"""A node as a body knows it: a phi, a local or a leaf by number, or one from before the loop; or a Python number.

A body of a loop within another's knows the nodes of that one as those ``above``.
"""
BodyStep = tuple[StepKind, Ref, tuple[Ref, ...], int]  # A kind, the result, operands, and the number of the line


class DoesNotFitError(Exception):
    """What a loop did cannot be told as bodies of a native one; ``inner`` is where the loop is, if within another."""

    def __init__(self, reason: str, inner: str = "") -> None:
        super().__init__(reason)
        self.inner = inner


@dataclass(slots=True)
class IterationBody:
    """One way through an iteration: its steps, the nodes that they make, constants, and what the next starts from."""

    steps: list[BodyStep | NativeLoop] = field(default_factory=list)
    nodes: list[tuple[ProgramNode, Ref | None, Ref | None]] = field(default_factory=list)
    """Each with the node whose memory, and whose gradient, it is part of."""
    leaves: list[tuple[ProgramNode, int]] = field(default_factory=list)
    """Constants, with their nodes in the recording."""
    updates: tuple[Ref, ...] = ()
    choices: dict[tuple[int, int], frozenset[Ref]] = field(default_factory=dict)
    """What operands may be, by step (-1 for ``updates``) and place, where several phis began with the same tensor."""
    guards: list[Any] = field(default_factory=list)
    recording: Any = None
    seen: int = 1  # how often an iteration did this
    calls: int = 1  # in how many calls

    def merged(self, other: IterationBody) -> IterationBody:
        """Return a body that knows of another that did the same, and of the loops within both."""
        loops = iter(other.loops())
        steps = [x.joined(next(loops).bodies) if isinstance(x, NativeLoop) else x for x in self.steps]
        calls = self.calls + other.calls * (self.recording is not other.recording)
        return replace(self, steps=steps, seen=self.seen + other.seen, calls=calls)._chosen(other)

    def _chosen(self, other: IterationBody) -> IterationBody:
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
                kind, result, operands, line = steps[step]  # type: ignore[misc]
                steps[step] = kind, result, (*operands[:place], one, *operands[place + 1 :]), line
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
        """Whether it was seen so often, and, if it reads constants, in two calls, which found them the same."""
        steps = [s for s in self.steps if not isinstance(s, NativeLoop) and not isinstance(s[0].op, Guard)]
        constants = any(operand[0] == "leaf" for _, _, operands, _ in steps for operand in operands)
        often = self.seen >= least and not self.choices and (self.calls > 1 or not constants)
        return often and all(usable(loop.bodies, least) for loop in self.loops() if loop.counted)


@dataclass(slots=True)
class NativeLoop:
    """A loop, in a body or in none: its own node, its phis, which are nodes of their own, and its bodies.

    Two are equal that are one loop, whatever their iterations did.
    """

    state: Ref
    phis: tuple[Ref, ...]
    count: Ref | None
    limit: int | None
    counted: bool
    apart: bool
    line: str
    bodies: list[IterationBody] = field(compare=False)
    number: int = field(compare=False)  # that of its line

    def joined(self, bodies: Sequence[IterationBody]) -> NativeLoop:
        """Return this loop with what else was seen of it."""
        try:
            return replace(self, bodies=joined(self.bodies, bodies))
        except DoesNotFitError as error:
            raise DoesNotFitError(str(error), error.inner or self.line) from None


def usable(bodies: Sequence[IterationBody], least: int | None) -> list[IterationBody]:
    """Return the bodies that may be replayed, of those that were seen so often; none for None."""
    return [body for body in bodies if least is not None and body.is_known(least)]


def check_repeats(bodies: Sequence[IterationBody], inner: str) -> None:
    """Raise where no iteration did the same as another."""
    if len(bodies) == sum(body.seen for body in bodies) > _FEW:
        raise DoesNotFitError(f"no iteration did the same as another{_parting(*bodies[-2:])}", inner)
    for body in bodies:
        for loop in body.loops():
            check_repeats(loop.bodies, loop.line)


def joined(known: Sequence[IterationBody], bodies: Sequence[IterationBody]) -> list[IterationBody]:
    """Return what is known of a loop's bodies with what else was seen; these come last.

    Of two that did the same there is one. Where two did something else though no value that left for Python was another
    one, something is not seen: DoesNotFitError.
    """
    all_bodies = list(known)
    for body in bodies:
        for k, other in enumerate(all_bodies):
            if not _is_body_apart(other, body):
                all_bodies[k] = other.merged(body)
                break
        else:
            all_bodies.append(body)
    if len(all_bodies) > MOST_BODIES:
        where = _parting(*all_bodies[-2:])
        raise DoesNotFitError(f"there are more than {MOST_BODIES} ways through an iteration{where}")
    return all_bodies


def _parting(a: IterationBody, b: IterationBody) -> str:
    """Return by which value two iterations went another way."""
    guards = iter(a.guards)
    for at, (x, y) in enumerate(zip(a.steps, b.steps, strict=False)):
        if isinstance(x, NativeLoop) or isinstance(y, NativeLoop):
            break
        guard = next(guards, None) if isinstance(x[0].op, Guard) else None
        if not _is_same_step(a, x, b, y, at):
            return "" if guard is None else f", by the value that leaves for Python at {guard.line}{_AS_ARGUMENT}"
    return ""


_AS_ARGUMENT = " (NumPy's arrays and lists that a number of the loop looks up are to be arguments, as arrays)"


def _is_body_apart(a: IterationBody, b: IterationBody) -> bool:
    """Whether another value that left for Python has one iteration go another way than the other."""
    for at, (x, y) in enumerate(zip(a.steps, b.steps, strict=False)):
        if isinstance(x, NativeLoop) or isinstance(y, NativeLoop):
            if x != y:
                return True
        elif not _is_same_step(a, x, b, y, at):
            ops = x[0].op, y[0].op
            of_one = all(isinstance(op, Guard) for op in ops) and (x[2][0] == y[2][0] or _may_be_same(a, b, at, 0))
            if of_one or CLONE in ops:  # a loop begins, of which one has none
                return True
            raise DoesNotFitError(_DIFFERENT)
    nodes = [[(x.spec, *of, x.offset, x.buffer_offset, x.differentiable) for x, *of in body.nodes] for body in (a, b)]
    traits = [(len(body.steps), len(body.updates), made) for body, made in zip((a, b), nodes, strict=True)]
    if traits[0] != traits[1] or not all(a.may_be(-1, k) & b.may_be(-1, k) for k in range(len(a.updates))):
        raise DoesNotFitError(_DIFFERENT)
    return False


def _is_same_step(a: IterationBody, x: BodyStep, b: IterationBody, y: BodyStep, at: int) -> bool:
    (kind, result, operands, _), (other_kind, other_result, others, _) = x, y
    if result != other_result or not same_kind(kind, other_kind):
        return False
    pairs = enumerate(zip(operands, others, strict=True))
    return all(_is_same_operand(a, one, b, other) or _may_be_same(a, b, at, k) for k, (one, other) in pairs)


def _may_be_same(a: IterationBody, b: IterationBody, at: int, place: int) -> bool:
    """Whether there is a choice of what operands are, and they may be the same phi."""
    is_choice = (at, place) in a.choices or (at, place) in b.choices
    return is_choice and not a.may_be(at, place).isdisjoint(b.may_be(at, place))


def _is_same_operand(a: IterationBody, one: Ref, b: IterationBody, other: Ref) -> bool:
    if one[0] != other[0]:
        return False
    if one[0] != "leaf":
        return same(one[1], other[1]) if one[0] == "number" else bool(one[1] == other[1])
    (x, i), (y, j) = a.leaves[one[1]], b.leaves[other[1]]
    assert x.constant is not None
    assert y.constant is not None
    source = a.recording.original_sources.get(i)  # what calls read from one place, it may hold another value each time
    shared = a.recording is not b.recording and source is not None and source is b.recording.original_sources.get(j)
    return x.spec is y.spec and (shared or x.constant.tobytes() == y.constant.tobytes())


# Python loops in recorded calls: the iterations that did the same as far as Python decides.
#
# At the visits of a loop's head the Python state is compared, tensors apart. Where it is equal, Python decides the
# same until other values leave for it; so what an iteration did is known from where it began, and need not be recorded
# again.

_FEWEST = 2  # visits of which the last one may be left out


class Visit:
    """A visit of a loop's head, in a recording: which words had been recorded, and the nodes of the state's tensors.

    A node is there twice if two locals hold it. ``read`` and ``behind`` say of each whether the code of an iteration,
    and that behind the loop, may read it by this name. ``serial``: how many visits, of any loop, came before.
    ``counters`` count the writes to the tensors.
    """

    __slots__ = (
        "apart", "at", "behind", "count", "counters", "entry", "exhausted", "identities", "line", "loop", "nodes",
        "number", "read", "reason", "remaining", "serial", "substitutes", "template", "writes",
    )  # fmt: skip

    def __init__(
        self, visit: HeadVisit, serial: int, at: int, nodes: list[int], counters: list[list[int]], count: int | None
    ) -> None:
        self.serial, self.at, self.nodes, self.count = serial, at, nodes, count
        self.counters, self.writes = counters, [counter[0] for counter in counters]
        self.entry, self.number, self.remaining = visit.entry, visit.number, visit.remaining
        self.template, self.apart = visit.state.template, visit.state.apart
        self.reason, self.line = visit.reason, visit.loop.location
        self.loop, self.substitutes = visit.loop, visit.substitutes
        loop, self.identities, self.exhausted = visit.loop, visit.identities, visit.exhausted
        locals_ = frozenset(loop.live)
        self.read = [name in loop.read or name not in locals_ for name in visit.state.names]
        self.behind = [name in loop.behind or name not in locals_ for name in visit.state.names]

    @property
    def is_written(self) -> bool:
        """Whether a tensor has been written in place since, so that it matters who else holds it."""
        return any(counter[0] != before for counter, before in zip(self.counters, self.writes, strict=True))


@dataclass(slots=True)
class LoopSpan:
    """One loop of a recording: the steps of its iterations, what they start from and end with, how many there may be.

    ``ends`` are where each iteration ends; ``count`` the node of the number of iterations, and ``drawn`` the step at
    which Python got it, if it is one. ``apart``: which locals hold the same tensor changes from iteration to iteration.
    """

    start: int
    ends: list[int]
    visits: list[Visit]
    limit: int | None
    counted: bool
    count: int | None = None
    drawn: int = -1
    apart: bool = False

    @property
    def stop(self) -> int:
        """The step behind the last iteration."""
        return self.ends[-1] if self.ends else self.start

    @property
    def exhausted(self) -> bool:
        """Whether the loop was left where an iteration would have begun."""
        return self.count is not None or self.visits[-1].exhausted

    @property
    def line(self) -> str:
        """Where the loop is."""
        return self.visits[0].line

    def surrounds(self, other: LoopSpan) -> bool:
        """Whether another loop was entered in one of its iterations."""
        return self.visits[0].serial < other.visits[0].serial < self.visits[-1].serial


class RecordedTrace:
    """The steps of a recording, and what made its nodes."""

    def __init__(self, recording: Any) -> None:
        recipe: Recipe = recording.recipe
        self.recording, self.recipe = recording, recipe
        words, starts = np.array(recipe.steps.words, np.int64), np.array(recipe.steps.starts, np.int64)
        self.word_array, self.start_array = words, np.append(starts, len(words))
        self.words: list[int] = words.tolist()
        self.starts = recipe.steps.starts
        self.line_array = np.full(len(starts), -1) if recipe.lines is None else recipe.lines.of_steps(recipe.steps)
        self._lines: list[int] = self.line_array.tolist()
        self._of_guards = recipe.steps.of_kind(Guard)
        self.guards = {at: number for number, at in enumerate(self._of_guards)}
        """The steps that are guards, with their numbers."""
        self.made_array = np.full(len(recipe.nodes), -1)
        makes = np.array([not isinstance(kind.op, (Guard, Write)) for kind in recipe.steps.kinds], bool)
        makers = np.flatnonzero(makes[words[starts]])[::-1]  # of several the first one remains
        self.made_array[words[starts[makers] + 1]] = makers
        self.made: list[int] = self.made_array.tolist()
        """The step that made each node, -1 if none did."""
        elements = [at for at in recipe.steps.of_kind(View) if getattr(self.kind(at).op, "element", False)]
        used = {node for at in range(len(self.starts)) for node in self.operands(at)} if elements else set()
        used.update(recipe.outputs)
        self.unused = {at for at in elements if self.result(at) not in used}
        """Views of a tensor's elements that iteration gave, and nobody used."""
        self._writes = recipe.steps.of_kind(Write)

    def has_guard(self, first: int, stop: int) -> bool:
        """Whether there is a guard among steps."""
        number = bisect_left(self._of_guards, first)
        return number < len(self._of_guards) and self._of_guards[number] < stop

    def written(self, first: int, stop: int) -> set[int]:
        """Return the nodes whose memory some steps write."""
        writes = self._writes[bisect_left(self._writes, first) : bisect_left(self._writes, stop)]
        return {self.recipe.base_of(self.result(at)) for at in writes}

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

    def line(self, at: int) -> int:
        """Return the number of a step's line; -1 if it is not known."""
        return self._lines[at] if at < len(self._lines) else -1

    def check_known(self, node: int, at: int) -> None:
        """DoesNotFitError for a view with a history of its own, as of ``detach``, which a step before this one made.

        Such a view is made anew where a loop writes to its memory, and its history would be lost.
        """
        entry = self.recipe.nodes[node]
        apart = entry.base is not None and entry.family is None and entry.differentiable
        if apart and self.made[node] not in (-1, at):
            raise DoesNotFitError("it writes to memory that tensors share which were detached before, and require grad")

    def origin(self, node: int) -> int:
        """Return the step that made a node, or what it is a view of; -1 if none did."""
        at, base = self.made[node], self.recipe.nodes[node].base
        return at if at >= 0 or base is None else self.origin(base)


class Heads:
    """Loop-head visits of one recording. ``without``: entries to ignore; ``flat``: loops unrolled in others."""

    def __init__(self, trace: RecordedTrace, visits: Sequence[Visit]) -> None:
        self.trace, self.visits = trace, visits
        self.without: set[int] = set()
        self.flat: set[str] = set()
        self.apart = {those[0].line for those in _entries(visits) if _is_apart(trace, those)}
        """The loops in some entry of which it changes which locals hold the same tensor, which nobody asks."""
        self.apart -= {v.line for v in visits if v.line in self.apart and (v.identities or v.is_written)}

    def spans(self) -> list[LoopSpan]:
        """Return the loops that native ones may repeat, outer ones instead of those within."""
        visits = [visit for visit in self.visits if visit.entry not in self.without]
        return self._outermost(visits, len(self.trace.starts), least=1)

    def within(self, span: LoopSpan, number: int) -> list[LoopSpan]:
        """Return the loops within an iteration of a loop, also those that had none: another may have some."""
        first, after = span.visits[number], span.visits[number + 1]
        visits = [v for v in self.visits[first.serial + 1 : after.serial] if v.line not in self.flat]
        return self._outermost(visits, span.ends[number], least=0)

    def _outermost(self, visits: Iterable[Visit], end: int, *, least: int) -> list[LoopSpan]:
        entries = _entries(visits)
        spans = [_span(self.trace, those, end, least=least, apart=those[0].line in self.apart) for those in entries]
        outer: list[LoopSpan] = []
        for span in sorted([span for span in spans if span is not None], key=lambda span: span.visits[0].serial):
            if not (outer and outer[-1].surrounds(span)):
                outer.append(span)
        return outer


def _entries(visits: Iterable[Visit]) -> Iterable[list[Visit]]:
    entries: dict[int, list[Visit]] = {}
    for visit in visits:
        entries.setdefault(visit.entry, []).append(visit)
    return entries.values()


def is_within(spans: Sequence[LoopSpan], at: int) -> bool:
    """Whether a step is one of these loops', which are in order."""
    before = bisect_right(spans, at, key=lambda span: span.start)
    return before > 0 and at < spans[before - 1].stop


def unrolled(trace: RecordedTrace, visits: Sequence[Visit], spans: Sequence[LoopSpan], failed: str) -> str:
    """Return why a loop is in none of these, nor within one: ``failed``, if that is known; empty if there is none such.

    From the next call on, the numbers that such loops change are tensors, unless these did not help.
    """
    repeated, reasons = Counter(visit.entry for span in spans for visit in span.visits), list[str]()
    for those in _entries(visits):
        at, loop, names = bisect_left(trace.starts, those[0].at), those[0].loop, dict[str, Any]()
        part = repeated[those[0].entry]
        if part > len(those) - _FEW if part else is_within(spans, at):
            continue
        for one, other in pairwise(those[:MOST_BODIES]):
            names |= changed_names(one.apart, other.apart)
        if not part and (those[-1].reason or those[-1].number > 1):
            reason = next((visit.reason for visit in those if visit.reason), "") or told_of(loop, names)
            reasons.append(f"the loop at {loop.location}: {reason}")
        known = loop.changing or set()
        new = {name for name, was in names.items() if name in loop.live and is_number(was)} - known
        if those[0].substitutes and those[-1].number > 1 and not new:
            others = told_of(loop, names) if names else "as tensors they do not help"
            why = failed.removeprefix(f"the loop at {loop.location}: ") or others
            loop.plain = loop.plain or ("" if part else why)
        elif (new or loop.targets) and _leaves_values(trace, those, {span.visits[0].loop for span in spans}):
            trace.recording.is_trial |= loop.changing != known | new
            loop.changing = known | new
    return failed or next(iter(reasons), "")


def _leaves_values(trace: RecordedTrace, visits: list[Visit], native: Container[PythonLoop]) -> bool:
    """Whether values left for Python in a loop, other than what ends ``native`` ones; it may have but one visit."""
    first, loop = bisect_left(trace.starts, visits[0].at), visits[0].loop
    if len(visits) > 1:
        return trace.has_guard(first, bisect_left(trace.starts, visits[-1].at))
    lines = Counter(trace.recording.guards[number].line for at, number in trace.guards.items() if at >= first)
    ends = {each.line for each in loops_of(loop.code).values() if each in native}
    others = ({line for *_, line in loop.code.co_lines()} - loop.lines) | ends
    return any(
        count > 1 and line not in {f"{loop.code.co_filename}:{n}" for n in others} for line, count in lines.items()
    )


def _is_apart(trace: RecordedTrace, visits: list[Visit]) -> bool:
    """Whether it changes from iteration to iteration which locals hold the same tensor; not at the first one alone."""
    if all(visit.template == visits[-1].template for visit in visits):
        return False
    shared, apart = [len(_alike_at_end(trace, visits, apart=apart)) for apart in (False, True)]
    return shared + 1 < apart


def _alike_at_end(trace: RecordedTrace, visits: list[Visit], *, apart: bool) -> list[Visit]:
    """Return the last visits of an entry that begin iterations which do the same.

    Where the last visit alone is of another kind, as that after which a flag ends the loop, iterations end before it.
    """
    if len(visits) > _FEWEST and not visits[-1].reason and not _alike(trace, visits[-2], visits[-1], apart=apart):
        visits = visits[:-1]
    last, first = visits[-1], len(visits) - 1
    while (
        first > 0
        and visits[first - 1].number == visits[first].number - 1
        and _alike(trace, visits[first - 1], last, apart=apart)
    ):
        first -= 1
    return visits[first:]


def _span(trace: RecordedTrace, entry: list[Visit], end: int, *, least: int, apart: bool) -> LoopSpan | None:
    """Return the iterations of one entry, which ends before a step, that a native loop may repeat, if so many."""
    visits = _alike_at_end(trace, entry, apart=apart)
    last, columns = visits[-1], zip(*[visit.nodes for visit in visits], strict=True)
    changing = [node for column in columns if len(set(column)) > 1 for node in column]
    few = len(visits) <= least and last.count is None
    if last.reason or few or any(trace.recipe.nodes[node].base is not None for node in changing):
        return None
    ends = [bisect_left(trace.starts, visit.at) for visit in visits]
    span = LoopSpan(ends[0], ends[1:], visits, None, counted=False, apart=apart)
    if last.count is not None:
        return _counted_by_tensor(trace, span)
    count, more = len(visits) - 1, entry[-1].number - last.number
    remaining = None if visits[0].remaining is None else visits[0].remaining - more
    if remaining is not None and remaining < count:
        return None
    if remaining is not None:  # where Python decides, the iteration that ends the loop is none of the others' kind
        span.limit, span.counted = (count, True) if remaining == count else (remaining - 1, False)
    stop = span.stop if span.counted else end  # a guard may leave it
    return span if trace.has_guard(span.start, stop) else None


def _counted_by_tensor(trace: RecordedTrace, span: LoopSpan) -> LoopSpan | None:
    """Take in that a loop runs as often as a tensor says, which Python looked at right before."""
    visit, iterations = span.visits[0], len(span.visits) - 1
    before = bisect_left(trace.starts, visit.at) - 1
    drawn = before in trace.guards and trace.operands(before)[0] == visit.count
    written = trace.written(0, len(trace.starts))
    if visit.number or visit.count is None or not drawn or trace.recipe.base_of(visit.count) in written:
        return None
    value = trace.recipe.nodes[trace.operands(before)[1]].constant
    if value is None or int(value) != iterations or visit.remaining is not None:  # it was left before
        return None
    span.count, span.drawn, span.counted = visit.count, before, True
    return span


def _alike(trace: RecordedTrace, a: Visit, b: Visit, *, apart: bool) -> bool:
    is_other = a.apart != b.apart if apart else a.template != b.template
    if a.reason or is_other or len(a.nodes) != len(b.nodes):
        return False
    recipe, nodes = trace.recipe, trace.recipe.nodes
    pairs = [(x, y) for x, y in zip(a.nodes, b.nodes, strict=True) if x != y]
    return all(
        nodes[x].base is None
        and (nodes[x] is nodes[y] or (nodes[x].spec is nodes[y].spec and recipe.wants(x) == recipe.wants(y)))
        for x, y in pairs
    )


def phis_of(trace: RecordedTrace, span: LoopSpan) -> list[int]:
    """Return the places in the state of the tensors that are phis: those with memory of their own."""
    nodes, places = trace.recipe.nodes, list[int]()
    seen: set[tuple[int, ...]] = set()
    for k, column in enumerate(zip(*[visit.nodes for visit in span.visits], strict=True)):
        if (span.apart or column not in seen) and nodes[column[0]].base is None:
            places.append(k)
            seen.add(column)
    return places
