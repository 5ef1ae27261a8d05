"""Loops of Python code: heads, visits, the values that they carry."""

from __future__ import annotations

import dis
import inspect
import itertools
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from tape.tensors import dtypes, modes
from tape.tensors.bytecode import FLIPPED, ControlFlow, touches_locals
from tape.tensors.pytrees import flattened
from tape.tensors.tensor import Tensor
from tape.watching import frame_events, loop_numbers
from tape.watching.frame_events import CodeListener, CodeReads, Result, is_collecting, is_decided, of_code
from tape.watching.loop_numbers import TYPE_READERS, LoopNumber, fits, loop_number, plain_number
from tape.watching.loop_states import LoopState, Test, state_of, tests_of
from tape.watching.number_uses import OPERATORS, outcomes_in

# A program may repeat an iteration only if the next one starts from the same Python state: the locals that are live
# where the loop begins anew. Two kinds of state may change and are understood: the iterator of ``range``, and counters.

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_SIGNS = {"+": 1, "+=": 1, "-": -1, "-=": -1}
_MOST_NAMES = 3  # variables that are told of
_APPENDS = frozenset(("LIST_APPEND", "SET_ADD", "MAP_ADD"))
_LOADED = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK"))
_WITH_LOOPS = frozenset(("tape.ode.loops", "tape.ode.implicit_stages"))
"""Modules of ours whose loops are watched as those of users are: they run a user's function in each iteration."""
_ONLY_RANGE = "a loop over range, zip, enumerate, tensors or lists of numbers can be repeated natively, no other one"


class CounterTest(NamedTuple):
    """A comparison of a counter: how far it has been counted there, the operator, a number or the name of a local."""

    counted: int
    operator: str
    threshold: int | str


class Counter(NamedTuple):
    """A local that an iteration counts up by ``step``, and otherwise only compares."""

    name: str
    step: int
    comparisons: tuple[CounterTest, ...]


class Unfit(Exception):  # noqa: N818 (the call is made again, not failed)
    """What a loop does with its numbers cannot be done with tensors."""


class PythonLoop:
    """A loop of a code object, by its ``heads``: the test of a while loop, which stands twice in the code.

    Or the instruction that backward jumps lead to. The last one is the ``head`` by which the loop is known.
    ``reason`` says why it stays Python, if so, with its line. ``live``: the names of the locals that are read, in the
    loop or after it, before they are stored, in a fixed order; ``read`` are those that an iteration reads, and
    ``behind`` those that are read after the loop. ``counters``: those of them that may differ from iteration to
    iteration. ``values``: what a ``for`` loop runs over; ``targets``: what takes these, if anybody reads it.
    ``changing``: the locals that are recorded as tensors where they are numbers, since these changed with iterations;
    None if that is not needed, and ``plain`` says why it cannot be.
    """

    def __init__(self, flow: ControlFlow, head: int, test: Test | None) -> None:
        body, heads = (flow.body(head), (head,)) if test is None else (test.body, (test.first, test.again))
        self.code, self.heads = flow.code, tuple([flow.steps[i].offset for i in heads])
        self.line = flow.steps[heads[-1]].line or flow.code.co_firstlineno
        self.is_for = flow.steps[head].name == "FOR_ITER"
        self.live = tuple(sorted(frozenset[str]().union(*[flow.live(i) for i in heads])))
        self.body, self.setup = _offsets(flow, body), frozenset[int]()
        """Offsets of the instructions in the loop, and of those that make its iterator."""
        self.lines = {flow.steps[i].line for i in body}
        self.exits = _offsets(flow, frozenset(_exits(flow, body)))  # offsets of those outside of it that may follow
        self.values, self.targets, self.begins = None, None, -1
        self.changing: set[str] | None = None
        self.plain = ""
        self.counters: tuple[Counter, ...] = ()
        self.read = self.behind = frozenset[str]()
        reason = _reason(flow, head, body, is_visible=test is not None)
        if self.is_for and not reason:
            start, self.values = loop_numbers.values_of(flow, head)
            self.setup = _offsets(flow, frozenset(range(start, head)))
            if not _is_unread(flow, head, body):
                self.targets, self.begins = loop_numbers.targets_of(flow, head, _exits(flow, body))
                reason = "" if self.targets else "its variables are more than locals that the loop alone reads"
            reason = reason or ("" if self.values else _ONLY_RANGE)
        self.reason = reason and f"{reason} (the loop at {self.location})"
        if not reason:
            self.counters = tuple(_counters(flow, heads, body))
            whole = body if test is None else body.union(range(test.first, head))
            self.read = self.read.union(*[flow.read_within(i, whole) for i in heads])
            self.behind = self.behind.union(*[flow.live(i) for i in _exits(flow, whole)])

    @property
    def head(self) -> int:
        """The head by which it is known."""
        return self.heads[-1]

    @property
    def location(self) -> str:
        """Where the loop is."""
        return f"{self.code.co_filename}:{self.line} in {self.code.co_qualname}"

    def __repr__(self) -> str:
        return f"<loop at line {self.line} of {self.code.co_qualname}: {self.reason or 'supported'}>"


@of_code
def loops_of(code: CodeType) -> dict[int, PythonLoop]:
    """Return the loops of a code object by the offsets of their heads, with those that are not supported."""
    flow = ControlFlow(code)
    loops = [PythonLoop(flow, head, test) for head, test in tests_of(flow).items()]
    return {loop.head: loop for loop in loops}


def told_of(loop: PythonLoop, names: dict[str, Any]) -> str:
    """Return as text which variables change with each iteration, where, and what would help."""
    if not names:
        return "what its variables hold changes with each iteration"
    stores = {s.argval: s for s in dis.get_instructions(loop.code) if s.offset in loop.body and "STORE" in s.opname}
    shown = []
    for name in list(names)[:_MOST_NAMES]:
        store = stores.get(name.partition(".")[0]) or stores.get(name.rpartition(".")[2])
        line = store.positions.lineno if store is not None and store.positions is not None else None
        shown.append(name if line is None else f"{name} (line {line})")
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    changes = "changes" if len(names) == 1 else "change"
    help_ = loop.plain or "tensors, and numbers in local variables, may change"
    return f"{', '.join(shown)}{more} {changes} with each iteration ({help_})"


def _offsets(flow: ControlFlow, body: frozenset[int]) -> frozenset[int]:
    starts = {flow.steps[i].offset for i in body}
    return frozenset(at for at, i in flow.number.items() if i in body or flow.steps[i].offset in starts)


def _reason(flow: ControlFlow, head: int, body: frozenset[int], *, is_visible: bool) -> str:
    if flow.code.co_flags & _SUSPENDED or not flow.code.co_flags & inspect.CO_OPTIMIZED:
        return "a loop of a generator, a coroutine or a class body stays Python"
    if _fills(flow, head):
        return "a comprehension stays Python"
    stored = [flow.steps[i] for i in sorted(body) if flow.steps[i].name in ("STORE_GLOBAL", "DELETE_GLOBAL")]
    if stored:
        return f"the global {stored[0].value} is changed at line {stored[0].line}"
    if not (is_visible or _is_visible(flow, head, body)):
        return "iterations of this loop cannot be told apart by their lines"
    return ""


def _fills(flow: ControlFlow, head: int) -> bool:
    """Whether a loop adds to a container that is on the stack while it runs.

    Other values on the stack below the loop, such as iterators of outer loops, are the same from iteration to
    iteration: nothing in the loop reaches them there.
    """
    heads = [(other, flow.body(other)) for other in flow.heads()]
    for i, step in enumerate(flow.steps):
        if step.name in _APPENDS and step.value > 1:
            around = sorted((len(body), other) for other, body in heads if i in body)
            if head in [other for _, other in around[: step.value - 1]]:
                return True
    return False


def _is_visible(flow: ControlFlow, head: int, body: frozenset[int]) -> bool:
    """Whether each return to the head, and each way from the loop's end to its next beginning, is reported.

    A trace function is called at backward jumps. Where a loop's code follows its head, the way out and back to the
    head takes such a jump to somewhere before the head.
    """
    if frame_events.REPORTS_INSTRUCTIONS:
        return True
    before = flow.leading_to(flow.before[head], head)
    ways = [(i, j) for i, after in enumerate(flow.after) for j in after if j <= i]
    targets = [j for _, j in ways if j == head or (j in before and j not in body)]
    return min(body) >= head and all(flow.steps[j].line is not None for j in targets)


def _is_unread(flow: ControlFlow, head: int, body: frozenset[int]) -> bool:
    """Whether the variable of a for loop is a local that is read nowhere; loops within may have the same one."""
    store = flow.steps[head + 1]
    if store.name != "STORE_FAST" or store.value in flow.always_live:
        return False
    within = [flow.steps[i] for i in body if flow.steps[i].value == store.value and touches_locals(flow.steps[i])]
    is_stored = all(step.name == "STORE_FAST" for step in within)
    return is_stored and all(store.value not in flow.live(i) for i in (head, *_exits(flow, body)))


def _exits(flow: ControlFlow, body: frozenset[int]) -> Iterator[int]:
    for i in body:
        yield from (j for j in flow.after[i] if j not in body)


def _counters(flow: ControlFlow, heads: tuple[int, ...], body: frozenset[int]) -> Iterator[Counter]:
    stored = {flow.steps[i].value for i in body if flow.steps[i].name == "STORE_FAST"}
    for name in sorted((stored & flow.live(heads[-1])) - flow.always_live):
        counter = _counter(flow, heads, body, name)
        if counter is not None and all(name not in flow.live(i) for i in _exits(flow, body)):
            yield counter


def _counter(flow: ControlFlow, heads: tuple[int, ...], body: frozenset[int], name: str) -> Counter | None:
    uses = {i for i in body if flow.steps[i].value == name and touches_locals(flow.steps[i])}
    updates = {i + 3: step for i in uses if (step := _update(flow, i, name)) is not None}
    counted = _counted(flow, heads, body, updates)
    if counted is None or not updates:
        return None
    compared = {i: _comparison(flow, i) for i in uses - updates.keys() - {i - 3 for i in updates}}
    comparisons = []
    for i, comparison in compared.items():
        if comparison is None or i not in counted[0]:
            return None
        threshold, steps = comparison[1], [flow.steps[i] for i in body]
        changed = [s for s in steps if s.value == threshold and touches_locals(s) and s.name not in _LOADED]
        if isinstance(threshold, str) and (changed or threshold in flow.always_live):
            return None
        comparisons.append(CounterTest(counted[0][i], *comparison))
    return Counter(name, counted[1], tuple(sorted(set(comparisons), key=str)))


def _update(flow: ControlFlow, i: int, name: str) -> int | None:
    names = [step.name for step in flow.steps[i : i + 4]]
    if names[1:] != ["LOAD_CONST", "BINARY_OP", "STORE_FAST"] or names[0] not in _LOADED:
        return None
    _, constant, operation, store = flow.steps[i : i + 4]
    sign = _SIGNS.get(operation.value)
    if type(constant.value) is not int or store.value != name or sign is None or flow.targets & {i + 1, i + 2, i + 3}:
        return None
    return sign * constant.value


def _counted(
    flow: ControlFlow, heads: tuple[int, ...], body: frozenset[int], updates: dict[int, int]
) -> tuple[dict[int, int], int] | None:
    pending = [head for head in heads if head in body]
    at, ends = dict.fromkeys(pending, 0), set[int]()
    while pending:
        i = pending.pop()
        after = at[i] + updates.get(i, 0)
        for j, count in [(j, after) for j in flow.next[i]] + [(j, at[i]) for j in flow.handlers[i]]:
            if j in heads:
                ends.add(count)
            elif j in body and j not in at:
                at[j] = count
                pending.append(j)
            elif j in body and at[j] != count:
                return None
    return (at, ends.pop()) if len(ends) == 1 else None


def _comparison(flow: ControlFlow, i: int) -> tuple[str, int | str] | None:
    for first, other in ((i, i + 1), (i - 1, i - 1)):
        if first + 2 >= len(flow.steps) or flow.targets & {first + 1, first + 2}:
            continue
        compare, threshold = flow.steps[first + 2], flow.steps[other]
        is_number = threshold.name == "LOAD_CONST" and type(threshold.value) is int
        if compare.name == "COMPARE_OP" and (is_number or threshold.name in _LOADED):
            return compare.value if first == i else FLIPPED[compare.value], threshold.value
    return None


# Which loops a call runs through, and the Python state at each return to their heads.
#
# While a call is recorded, functions with loops that are supported report each visit of a head. Two visits of one
# entry with equal states, tensors apart, begin iterations that do the same, as far as Python decides.


class HeadVisit:
    """The flow of a call is at the head of a loop.

    ``entry`` is a number that all visits have from which the loop was not left; ``number`` counts them. ``remaining``:
    how many iterations, with the one that begins here, go the same way as far as the iterator and counters decide;
    None if these never decide otherwise. ``count``: the tensor that was the argument of ``range``, if it was one; it
    may have been written to since. ``exhausted``: the iterator has no more, so that the loop is left here.
    ``identities``: whether the code that ran looks at which of two objects is which.
    """

    __slots__ = (
        "count", "entry", "exhausted", "identities", "loop", "number", "reason", "remaining", "state", "substitutes"
    )  # fmt: skip

    def __init__(self, entry: _Entry, state: LoopState, remaining: int | None) -> None:
        self.loop, self.entry, self.number, self.count = entry.loop, entry.serial, entry.number, entry.count
        self.state, self.remaining, self.identities = state, remaining, entry.scope.identities
        self.substitutes = entry.substitutes
        self.exhausted, self.reason = entry.number == entry.total, state.reason
        """Why the iteration that begins here cannot be repeated natively, or nothing."""


class HeadWatch(CodeListener):
    """Watches the heads of loops, too. ``visit`` is called at each visit of a head.

    If it returns False, it is not called again before the loop is left. With a ``recorder`` the numbers that a loop
    changes are tensors while it runs, where it is known that this helps: ``substituted`` are such loops.
    """

    def __init__(
        self,
        visit: Callable[[HeadVisit], Any],
        begins: Callable[[CodeType, dict[str, Any]], Any] | None = None,
        recorder: Any = None,
    ) -> None:
        super().__init__(begins)
        self.visit, self.recorder = visit, recorder
        self.substituted: dict[PythonLoop, int] = {}
        """With when they were entered first, in the order of what is executed, and the operations recorded before."""
        self.unfit = ""

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function, watched. ``Unfit`` where numbers had to stay numbers; from the next call on, they do."""
        try:
            result = super().call(function, *args)
            if self.substituted:
                self._check()
        except Exception as error:
            if not self.substituted:
                raise
            self.give_up(self.unfit or f"as tensors its numbers raise {type(error).__name__}: {error}")
        leaves, template = flattened(result, none=True) if self.substituted else ([], None)
        is_plain = template is None or not any(type(x) is LoopNumber for x in leaves)
        return result if is_plain else template.filled([plain_number(x) for x in leaves])  # type: ignore[union-attr]

    def give_up(self, reason: str) -> None:
        """Have the call made again, and the numbers of its loops be numbers from now on."""
        for loop in self.substituted:
            loop.plain = reason
        raise Unfit(reason)

    def is_recording(self) -> bool:
        """Whether operations are recorded, in the precision of Python's numbers."""
        active: Any = modes.current().recorder
        is_followed = active is not None and active is self.recorder and not active.stopped
        return is_followed and dtypes.get_default_dtype() == np.float64

    def refuse(self, reason: str) -> None:
        """Stop the call, which is made again."""
        self.unfit = self.unfit or reason
        raise Unfit(reason)

    def _check(self) -> None:
        since = min(self.substituted.values())
        for serial, code, *_ in self.executed.values():
            if serial > since and (asked := TYPE_READERS.intersection(frame_events.reads_of(code).variables)):
                self.refuse(f"{code.co_qualname} calls {min(asked)}, which tells tensors from numbers")
        if self.unfit:
            self.refuse(self.unfit)

    def begin(self, frame: FrameType) -> _Activation | None:
        """Return what follows a frame, called at its beginning: nothing for nearly all."""
        super().begin(frame)
        plan = None if self.reason or is_collecting() else _plan_of(frame.f_code, frame)
        return None if plan is None else _Activation(self, plan)

    def concerns(self, frame: FrameType) -> bool:
        """Return whether a frame has loops that are watched, or code that counts."""
        return super().concerns(frame) or _plan_of(frame.f_code, frame) is not None


class _Plan:
    """What is followed in frames of one code object."""

    def __init__(self, loops: list[PythonLoop]) -> None:
        self.heads = {head: loop for loop in loops for head in loop.heads}
        self.reads: dict[int, CodeReads] = {
            loop.head: frame_events.reads_within(loop.code, loop.body) for loop in loops
        }
        self.setups = frozenset[int]().union(*[loop.setup for loop in loops])
        self.begins = {loop.begins: loop for loop in loops if loop.targets}
        self.points = frozenset((*self.heads, *self.begins)).union(*[loop.exits for loop in loops])


@of_code
def _plan_of(code: CodeType, frame: FrameType) -> _Plan | None:
    """Return what is followed in frames of a code object; None where nothing is."""
    module = frame_events.module_of_frame(frame)
    is_skipped = is_decided(module) and module not in _WITH_LOOPS
    loops = [] if is_skipped else [loop for loop in loops_of(code).values() if not loop.reason]
    return _Plan(loops) if loops else None


class _Entry:
    """One entry of a loop: all visits from which the loop was not left."""

    serials = itertools.count()

    def __init__(self, loop: PythonLoop, frame: FrameType, since: int, reads: CodeReads) -> None:
        self.scope, self.since = frame_events.LoopScope(), since
        self.scope.add(frame.f_code, frame.f_globals, frame.f_builtins, reads)
        self.loop, self.serial, self.number, self.stopped = loop, next(self.serials), 0, False
        self.template: Any = None  # the latest one; equal ones are one object
        self.total: int | None = None
        self.count: Tensor | None = None
        self.reason = ""
        self.index: Any = None
        """The number of the iteration as a tensor, which what a for loop runs over is picked by."""
        self.placed = 0  # how many iterations began with what was picked
        self.substitutes = False  # whether numbers are tensors
        self.values = None if loop.values is None else loop_numbers.values_in(loop.values, frame)
        if self.values is not None:
            is_tensor = isinstance(self.values.count, Tensor)
            self.count, self.total = (self.values.count, None) if is_tensor else (None, self.values.count)
        elif loop.values is not None:
            self.reason = f"what the loop at {loop.location} runs over is not plain"

    def substitute(self, watch: HeadWatch, frame: FrameType) -> None:
        """Let the numbers that the loop changes be tensors in the iteration that begins."""
        loop, names = self.loop, self.loop.changing
        if self.number == 0 and names is not None and not loop.plain and not self.reason and watch.is_recording():
            is_picked = loop.targets is None or (self.values is not None and self.values.are_tensors())
            self.substitutes = is_picked and not TYPE_READERS.intersection(self.scope.codes[0][1])
            if self.substitutes:
                watch.substituted.setdefault(loop, self.since)
                self.index = None if loop.targets is None else loop_number(0)
        elif self.index is not None:
            if self.placed != self.number:
                watch.refuse("the line of the for statement reads its variables")
            self.index = loop_number(self.index + 1)
        for name in names if self.substitutes and names is not None else ():
            value = frame.f_locals.get(name)
            if type(value) in (int, float) and fits(value):
                loop_numbers.set_local(frame, name, loop_number(value))

    def place(self, frame: FrameType) -> None:
        """Let what the loop runs over be picked by the number of the iteration."""
        if self.index is not None and not self.stopped:
            self.placed += 1
            assert self.values is not None
            loop_numbers.fill(frame, self.loop.targets, self.values.at(self.index))


class _Activation:
    """Follows one activation of a function."""

    def __init__(self, watch: HeadWatch, plan: _Plan) -> None:
        self.watch, self.plan, self.points, self.setups = watch, plan, plan.points, plan.setups
        self.entries: dict[int, _Entry] = {}

    def is_entry(self, offset: int) -> bool:
        """Return whether the head of a for loop that is not entered is here."""
        loop = self.plan.heads.get(offset)
        return loop is not None and loop.is_for and offset not in self.entries

    def at(self, frame: FrameType, offset: int) -> None:
        """Take in that an instruction is next."""
        try:
            for head, entry in tuple(self.entries.items()):
                if offset not in entry.loop.body:
                    del self.entries[head]
            loop = self.plan.heads.get(offset)
            if loop is not None:
                if loop.head not in self.entries:
                    since, reads = next(self.watch.serials), self.plan.reads[loop.head]
                    self.entries[loop.head] = _Entry(loop, frame, since, reads)
                self._visit(frame, self.entries[loop.head])
            elif (loop := self.plan.begins.get(offset)) is not None and loop.head in self.entries:
                self.entries[loop.head].place(frame)
        except Unfit:
            raise
        except Exception as error:  # noqa: BLE001 (the user's function goes on)
            self.watch.reason = f"loops cannot be watched: {error!r}"

    def _visit(self, frame: FrameType, entry: _Entry) -> None:
        if is_collecting():  # an interrupt kept its end from being told
            self.watch.reason = "a garbage collection was interrupted while loops were watched"
        elif not entry.stopped:
            for serial, *called in tuple(self.watch.executed.values()):
                if serial > entry.since:
                    entry.scope.add(*called)
            entry.substitute(self.watch, frame)
            entry.stopped = self.watch.visit(_visit_of(entry, frame)) is False
            if entry.number == 0 and (entry.substitutes or not entry.stopped):
                self.watch.known.clear()  # what runs from now on runs in the loop
        entry.number += 1


def _visit_of(entry: _Entry, frame: FrameType) -> HeadVisit:
    loop, variables = entry.loop, frame.f_locals
    reads_values = loop.targets is not None and not entry.substitutes
    if entry.reason or reads_values:
        return HeadVisit(entry, LoopState(entry.reason or _changing_values(entry)), None)
    tested = {c.name: [t.threshold for t in c.comparisons if isinstance(t.threshold, str)] for c in loop.counters}
    counters = [c for c in loop.counters if all(type(variables.get(x)) is int for x in (c.name, *tested[c.name]))]
    bases = outcomes_in(frame, variables)
    bases |= {c.name: (c.step, variables[c.name] - c.step * entry.number) for c in counters}
    bounds = [None if entry.total is None else entry.total - entry.number]
    for c in counters:
        for test in c.comparisons:
            limit = variables[test.threshold] if isinstance(test.threshold, str) else test.threshold
            bounds.append(iterations_alike(test, c.step, variables[c.name], limit))
    live = {name: variables[name] for name in loop.live if name in variables}
    if entry.index is not None:
        live["the number of the iteration"] = entry.index
    state = state_of(live, bases, loop.location, entry.scope)
    if state.template == entry.template:
        state.template, state.apart = entry.template, entry.template[0]
    entry.template = state.template
    return HeadVisit(entry, state, min([bound for bound in bounds if bound is not None], default=None))


def _changing_values(entry: _Entry) -> str:
    """Return that the variables of a for loop change, and why they are no tensors."""

    def names_of(targets: Any) -> list[str]:
        return [targets] if type(targets) is str else [name for part in targets for name in names_of(part)]

    names, why = names_of(entry.loop.targets), entry.loop.plain or (entry.values.kept if entry.values else "")
    changes = "changes" if len(names) == 1 else "change"
    return f"{', '.join(names)} {changes} with each iteration" + (f" ({why})" if why else "")


def iterations_alike(comparison: CounterTest, step: int, value: int, limit: int) -> int | None:
    """Return after how many steps of a counter, one or more, a comparison with a limit comes out otherwise."""
    compare, now = OPERATORS[comparison.operator], value + comparison.counted
    met = (limit - now) // step if step else 0
    ways = [k for k in (met, met + 1) if k > 0 and compare(now + k * step, limit) != compare(now, limit)]
    return ways[0] if step and ways else None
