"""Which loops a call runs through, and the Python state at each return to their heads.

While a call is recorded, functions with loops that are supported report each visit of a head.
Two visits of one entry with equal states, tensors apart, begin iterations that do the same, as far as Python decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, TypeVar

import numpy as np

from tape.tensors.tensor import Tensor
from tape.watching import frame_events
from tape.watching.code_reads import MISSING, CodeReads, Scope, is_decided, module_of, plain_attribute, reads_within
from tape.watching.compared_numbers import outcomes_in
from tape.watching.loop_states import State, state_of
from tape.watching.python_loops import Comparison, Counter, Extent, PythonLoop, loops_of
from tape.watching.snapshots import SKIPPED

Result = TypeVar("Result")

_MOST_CODES = 1 << 14
_BUILTINS: dict[str, Any] = {"range": range, "int": int}


class HeadVisit:
    """The flow of a call is at the head of a loop.

    ``entry`` is a number that all visits have from which the loop was not left; ``number`` counts them. ``remaining``:
    how many iterations, with the one that begins here, go the same way as far as the iterator and counters decide;
    None if these never decide otherwise. ``count``: the tensor that was the argument of ``range``, if it was one; it
    may have been written to since. ``exhausted``: the iterator has no more, so that the loop is left here.
    ``identities``: whether the code that ran looks at which of two objects is which.
    """

    __slots__ = ("count", "entry", "exhausted", "identities", "loop", "number", "remaining", "state")

    def __init__(self, entry: _Entry, state: State, remaining: int | None) -> None:
        self.loop, self.entry, self.number, self.count = entry.loop, entry.serial, entry.number, entry.count
        self.state, self.remaining, self.identities = state, remaining, entry.scope.identities
        self.exhausted = entry.number == entry.total

    @property
    def reason(self) -> str:
        """Why the iteration that begins here cannot be repeated natively, or nothing."""
        return self.state.reason


class HeadWatch:
    """Watches the heads of loops, and what code begins to run, while a function runs in this thread.

    ``visit``, if there is one, is called at each visit of a head; if it returns False, not again before the loop is
    left. ``begins`` is called with code and its globals, each once. ``reason`` says afterwards why its visits do not
    count, if so.
    """

    __slots__ = ("_begins", "_executed", "_visit", "reason", "serials")

    def __init__(
        self,
        visit: Callable[[HeadVisit], Any] | None,
        begins: Callable[[CodeType, dict[str, Any]], Any] | None = None,
    ) -> None:
        self._visit, self._begins, self.reason = visit, begins, ""
        self.serials = itertools.count()
        self._executed: dict[tuple[int, int], tuple[int, CodeType, Any, Any]] = {}
        """The code that was called, with when that was last, its globals and builtins."""

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function, watched. In Python 3.11 it is not where the thread is traced already, as by a debugger."""
        frame_events.observe()
        return frame_events.call(self, function, *args)

    def begin(self, frame: FrameType) -> _Activation | None:
        """Return what follows a frame, called at its beginning: nothing for nearly all."""
        if frame_events.is_collecting():  # finalizers, and callbacks of the collector
            return None
        code, plan, is_followed = _known(frame)
        if is_followed:
            variables = frame.f_globals
            key = id(code), id(variables)
            if self._begins is not None and key not in self._executed:
                self._begins(code, variables)
            self._executed[key] = next(self.serials), code, variables, frame.f_builtins
        return None if plan is None or self._visit is None else _Activation(self, plan)

    def concerns(self, frame: FrameType) -> bool:
        """Return whether a frame has loops that are watched, or code that counts."""
        _, plan, is_followed = _known(frame)
        return plan is not None or is_followed

    def add_executed(self, scope: Scope, since: int) -> None:
        """Add to a scope the code that was called since then."""
        for serial, *called in tuple(self._executed.values()):
            if serial > since:
                scope.add(*called)

    def notify(self, visit: HeadVisit) -> Any:
        """Report a visit."""
        return self._visit is not None and self._visit(visit)


class _Plan:
    """What is followed in frames of one code object."""

    __slots__ = ("heads", "points", "reads", "setups")

    def __init__(self, loops: list[PythonLoop]) -> None:
        self.heads = {head: loop for loop in loops for head in loop.heads}
        self.reads: dict[int, CodeReads] = {loop.head: reads_within(loop.code, loop.body) for loop in loops}
        self.setups = frozenset[int]().union(*[loop.setup for loop in loops])
        self.points = frozenset(self.heads).union(*[loop.exits for loop in loops])


_Known = tuple[CodeType, _Plan | None, bool]
_plans: dict[int, _Known] = {}
"""What is followed in frames of a code object, and whether it counts as code that reads from outside."""


def _known(frame: FrameType) -> _Known:
    """Return the plan of a frame's code, found at its first call."""
    code = frame.f_code
    known = _plans.get(id(code))
    if known is not None:
        return known
    module = str(frame.f_globals.get("__name__"))
    if frame.f_globals.get("_set") is object.__setattr__:  # written by kernels.foundation.data_classes
        module = "tape"
    plan = None
    if module.partition(".")[0] not in SKIPPED:
        loops = [loop for loop in loops_of(code).values() if not loop.reason]
        plan = _Plan(loops) if loops else None
    if len(_plans) >= _MOST_CODES:
        _plans.clear()
    _plans[id(code)] = known = code, plan, not is_decided(module)
    return known


class _Entry:
    """One entry of a loop: all visits from which the loop was not left."""

    __slots__ = ("count", "loop", "number", "reason", "scope", "serial", "since", "stopped", "template", "total")
    serials = itertools.count()

    def __init__(self, loop: PythonLoop, since: int) -> None:
        self.scope, self.since = Scope(), since
        self.loop, self.serial, self.number, self.stopped = loop, next(self.serials), 0, False
        self.template: Any = None
        """The latest one; equal ones are one object."""
        self.total: int | None = None
        self.count: Tensor | None = None
        self.reason = ""

    def evaluate(self, frame: FrameType, extent: Extent) -> None:
        """Take in how many iterations there will be."""
        total = _extent_of(frame, extent)
        if isinstance(total, Tensor):
            self.count = total
        elif total is None:
            self.reason = f"the number of iterations of the loop at {self.loop.location} is not plain"
        else:
            self.total = max(total, 0)


class _Activation:
    """Follows one activation of a function."""

    __slots__ = ("entries", "plan", "watch")

    def __init__(self, watch: HeadWatch, plan: _Plan) -> None:
        self.watch, self.plan = watch, plan
        self.entries: dict[int, _Entry] = {}

    @property
    def points(self) -> frozenset[int]:
        """Offsets of the heads of loops, and of where they are left."""
        return self.plan.points

    @property
    def setups(self) -> frozenset[int]:
        """Offsets of the instructions that make the iterators of for loops."""
        return self.plan.setups

    def is_entry(self, offset: int) -> bool:
        """Return whether the head of a for loop that is not entered is here."""
        loop = self.plan.heads.get(offset)
        return loop is not None and loop.is_for and offset not in self.entries

    def at(self, frame: FrameType, offset: int) -> None:
        """Take in that an instruction is next."""
        try:
            self._at(frame, offset)
        except Exception as error:  # noqa: BLE001 (the user's function goes on)
            self.watch.reason = f"loops cannot be watched: {error!r}"

    def _at(self, frame: FrameType, offset: int) -> None:
        for head, entry in tuple(self.entries.items()):
            if offset not in entry.loop.body:
                del self.entries[head]
        loop = self.plan.heads.get(offset)
        if loop is not None:
            self._visit(frame, self.entries.get(loop.head) or self._entered(frame, loop))

    def _entered(self, frame: FrameType, loop: PythonLoop) -> _Entry:
        entry = self.entries[loop.head] = _Entry(loop, next(self.watch.serials))
        entry.scope.add(frame.f_code, frame.f_globals, frame.f_builtins, self.plan.reads[loop.head])
        if loop.extent is not None:
            entry.evaluate(frame, loop.extent)
        return entry

    def _visit(self, frame: FrameType, entry: _Entry) -> None:
        if frame_events.is_collecting():  # an interrupt kept its end from being told
            self.watch.reason = "a garbage collection was interrupted while loops were watched"
        elif not entry.stopped:
            self.watch.add_executed(entry.scope, entry.since)
            visit = _visit_of(entry, frame)
            entry.stopped = self.watch.notify(visit) is False
        entry.number += 1


def _visit_of(entry: _Entry, frame: FrameType) -> HeadVisit:
    """Return the visit of a head at which a frame is."""
    loop, variables = entry.loop, frame.f_locals
    if entry.reason:
        return HeadVisit(entry, State(entry.reason), None)
    counters = [counter for counter in loop.counters if _is_counting(counter, variables)]
    bases = outcomes_in(frame, variables)
    bases |= {c.name: (c.step, variables[c.name] - c.step * entry.number) for c in counters}
    bounds = [bound for counter in counters for bound in _bounds(counter, variables)]
    if entry.total is not None:
        bounds.append(entry.total - entry.number)
    live = {name: variables[name] for name in loop.live if name in variables}
    state = state_of(live, bases, loop.location, entry.scope)
    if state.template == entry.template:
        state.template = entry.template
    entry.template = state.template
    return HeadVisit(entry, state, min(bounds, default=None))


def _is_counting(counter: Counter, variables: dict[str, Any]) -> bool:
    """Whether a counter and what it is compared with are integers."""
    names = [counter.name, *[c.threshold for c in counter.comparisons if isinstance(c.threshold, str)]]
    return all(type(variables.get(name)) is int for name in names)


def _bounds(counter: Counter, variables: dict[str, Any]) -> Iterator[int]:
    """Yield after how many iterations each comparison of a counter comes out otherwise, if ever."""
    for comparison in counter.comparisons:
        threshold = comparison.threshold
        limit = threshold if isinstance(threshold, int) else variables[threshold]
        bound = iterations_alike(comparison, counter.step, variables[counter.name], limit)
        if bound is not None:
            yield bound


def iterations_alike(comparison: Comparison, step: int, value: int, limit: int) -> int | None:
    """Return after how many steps of a counter, one or more, a comparison with a limit comes out otherwise."""
    distance = limit - value - comparison.counted
    if step == 0:
        return None
    if step < 0:
        distance, step = -distance, -step
        strict = comparison.operator in (">", "<=")
    else:
        strict = comparison.operator in ("<", ">=")
    if comparison.operator in ("==", "!="):
        if distance == 0:
            return 1
        return distance // step if distance > 0 and distance % step == 0 else None
    if not strict:  # it changes one later
        distance += 1
    return -(-distance // step) if distance > 0 else None


def _extent_of(frame: FrameType, extent: Extent) -> Any:
    """Return the number of iterations, or the tensor that holds it; None for anything but plain values."""
    if not _is_builtin(frame, "range") or (extent.is_int and not _is_builtin(frame, "int")):
        return None
    if extent.source == "number":
        return extent.value
    variables = frame.f_locals if extent.source == "local" else frame.f_globals
    value = variables.get(extent.value, MISSING)
    for name in extent.attributes:
        value = plain_attribute(value, name)
    if isinstance(value, Tensor):
        return value
    kinds = (int, float, np.integer, np.floating) if extent.is_int else (int, np.integer)
    return int(value) if isinstance(value, kinds) and not _is_users(type(value)) else None


def _is_users(kind: type) -> bool:
    return module_of(kind).partition(".")[0] not in ("builtins", "numpy")


def _is_builtin(frame: FrameType, name: str) -> bool:
    return name not in frame.f_globals and frame.f_builtins.get(name) is _BUILTINS[name]
