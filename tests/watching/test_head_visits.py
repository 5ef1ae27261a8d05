"""Visits of heads are those of a run, whatever ends a loop; a thread is not traced after a call, whatever ends that."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tape
from kernels.foundation.tables import Lock
from kernels.language import jit
from tape.errors import CompileWarning
from tape.watching.frame_events import REPORTS_INSTRUCTIONS, monitoring
from tape.watching.python_loops import HeadVisit, HeadWatch
from tests.support.loop_visits import equal_states, is_unwatched, loops, only, visits_of

pytestmark = pytest.mark.quick

X = tape.tensor(100.0)
ADDS = """
from __future__ import annotations

def add(a: int, b: int) -> int:
    return a + b
"""


def halved(x: Any) -> Any:
    """Run six times."""
    while x > 1:
        x = x * 0.5
        helper(x)
    return x


def helper(x: Any) -> int:
    """Call something of C's."""
    return len([x])


def counts(function: Callable[..., Any], *args: Any) -> list[int]:
    """Return how many visits each entry had, in the order of the entries."""
    visits = visits_of(function, *args)
    return [len(list(group)) for _, group in itertools.groupby(sorted(v.entry for v in visits))]


def forever(x: Any) -> Any:
    """Leave a loop in several places."""
    while True:
        x = x * 0.5
        if x < 1:
            break
        if x < 10:
            continue
        if x > 1000:
            return x
    return x


def nested(x: Any) -> Any:
    """Run loops in a loop."""
    while x > 1:
        y = x
        while y > 50:
            y = y * 0.5
        for _ in range(2):
            y = y + 1
        x = x * 0.5
    return x


def guarded(x: Any) -> Any:
    """Raise in a loop, and go on."""
    while x > 1:
        try:
            x = x * 0.5
            if x < 10:
                raise KeyError  # noqa: TRY301 (that is the point)
        except KeyError:
            continue
        finally:
            x = x * 1.0
    return x


def left_by_exception(x: Any) -> Any:
    """Enter a loop twice, which an exception leaves."""
    for _ in range(2):
        with contextlib.suppress(KeyError):
            y = x
            while y > 1:
                y = y * 0.5
                if y < 10:
                    raise KeyError
    return x


def within(x: Any) -> Any:
    """Open a context in each iteration."""
    while x > 1:
        with contextlib.nullcontext():
            x = x * 0.5
    return x


def recursive(x: Any, depth: int = 2) -> Any:
    """Call itself in a loop."""
    k = 0
    while k < 2:
        k += 1
        if depth > 0:
            recursive(x, depth - 1)
    return x


def test_visits_are_counted_by_entry() -> None:
    assert counts(halved, X) == [8]
    assert counts(within, X) == [8]
    assert counts(left_by_exception, X) == [3, 4, 4]


def test_a_loop_without_end_that_is_continued_has_two_heads_each_with_entries() -> None:
    """The way of ``continue`` leads to another instruction: the inner of the two is left by it. Not from 3.14 on."""
    heads = 1 if sys.version_info >= (3, 14) else 2
    assert [loop.reason for loop in loops(forever)] == [""] * heads
    assert counts(forever, X) == ([7] if heads == 1 else [4, 4, 1, 1, 1])


def test_a_loop_with_a_test_that_is_continued_is_one() -> None:
    assert only(guarded).reason == ""
    assert counts(guarded, X) == [8]


def test_loops_in_a_loop_are_entered_anew() -> None:
    visits = visits_of(nested, X)
    outer, inner, over_range = loops(nested)
    of = {loop: [v for v in visits if v.loop is loop] for loop in (outer, inner, over_range)}
    assert [v.number for v in of[outer]] == list(range(8))
    assert [v.remaining for v in of[over_range]] == [2, 1, 0] * 7
    assert [v.number for v in of[inner]] == [0, 1, *[0] * 6]


def test_each_activation_has_entries_of_its_own() -> None:
    assert sorted(counts(recursive, X)) == [3] * 7


def test_states_of_loops_in_which_nothing_else_changes_are_equal() -> None:
    for function in (halved, within):
        assert only(function).reason == ""
        assert equal_states(visits_of(function, X)[1:])


def test_a_visit_that_returns_false_ends_the_visits_of_an_entry() -> None:
    visits: list[HeadVisit] = []

    def visit(v: HeadVisit) -> bool:
        visits.append(v)
        return len(visits) < 2

    HeadWatch(visit).call(halved, X)
    assert [v.number for v in visits] == [0, 1]


def test_a_function_that_raises_leaves_no_trace() -> None:
    for kind in (ValueError, KeyboardInterrupt, SystemExit):

        def raising(x: Any, kind: Any = kind) -> None:
            while x > 1:
                x = x * 0.5
                if x < 10:
                    raise kind

        with pytest.raises(kind):
            HeadWatch(list).call(raising, X)  # type: ignore[arg-type]
        assert is_unwatched()
        assert len(visits_of(halved, X)) == 8


def test_a_visit_that_raises_spoils_the_watch_and_not_the_function() -> None:
    watch = HeadWatch(lambda _: 1 / 0)
    assert float(watch.call(halved, X)) < 1
    assert "ZeroDivisionError" in watch.reason
    assert is_unwatched()


def interrupting(after: int, seen: list[int]) -> Callable[..., None]:
    """Return a profile function that raises at an event: a call or a return, or a return of C's."""

    def profile(frame: Any, event: str, _: Any) -> None:
        entered = event == "return" and frame.f_code is getattr(Lock.__enter__, "__code__", None)
        if event == "c_call" or entered:  # no interrupt is taken there; locks that end with `with` rely on it
            return
        seen.append(1)
        if len(seen) == after:
            raise KeyboardInterrupt

    return profile


def test_an_interrupt_at_any_call_or_return_leaves_the_thread_untraced() -> None:
    """Where Python takes interrupts: as functions begin, and as they return."""
    assert len(visits_of(halved, X)) == 8  # what is compiled once is
    for after in itertools.count(1):
        seen: list[int] = []
        watch = HeadWatch(lambda _: None)
        interrupted = True
        try:
            sys.setprofile(interrupting(after, seen))
            watch.call(halved, X)
            sys.setprofile(None)
            interrupted = False
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert is_unwatched(), after
        if not interrupted:
            break
    assert after > 30
    assert len(visits_of(halved, X)) == 8


def test_an_interrupt_in_a_visit_ends_the_call() -> None:
    for after in range(7):
        numbers: list[int] = []

        def visit(v: HeadVisit, after: int = after, numbers: list[int] = numbers) -> None:
            numbers.append(v.number)
            if v.number == after:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            HeadWatch(visit).call(halved, X)
        assert numbers == list(range(after + 1))
        assert is_unwatched()
        assert len(visits_of(halved, X)) == 8


def test_threads_have_watches_of_their_own() -> None:
    meeting, results = threading.Barrier(2), dict[int, list[int]]()

    def work(name: int) -> None:
        def slow(x: Any) -> Any:
            while x > name:
                x = x * 0.5
                meeting.wait(10)
            return x

        numbers: list[int] = []
        watch = HeadWatch(lambda v: numbers.append(v.number) if v.loop.code is slow.__code__ else None)
        watch.call(slow, X * name)
        results[name] = [*numbers, is_unwatched()]

    threads = [threading.Thread(target=work, args=(name,)) for name in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {1: [*range(8), True], 2: [*range(8), True]}


@contextlib.contextmanager
def traced() -> Iterator[list[str]]:
    """Trace this thread as a debugger does."""
    events, before = list[str](), sys.gettrace()

    def trace(_: Any, event: str, __: Any) -> Any:
        events.append(event)
        return trace

    sys.settrace(trace)
    try:
        yield events
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)


def test_another_trace_function_is_left_alone() -> None:
    visits: list[HeadVisit] = []
    watch = HeadWatch(visits.append)
    with traced() as events:
        watch.call(halved, X)
    assert "line" in events
    if REPORTS_INSTRUCTIONS:
        assert len(visits) == 8
    else:
        assert "another trace function" in watch.reason
        assert visits == []


@pytest.mark.skipif(REPORTS_INSTRUCTIONS, reason="loops are watched without a trace function")
def test_a_trace_function_that_is_set_within_spoils_the_watch() -> None:
    def debugged(x: Any) -> Any:
        sys.settrace(None)
        return halved(x)

    watch = HeadWatch(lambda _: None)
    watch.call(debugged, X)
    assert "was changed" in watch.reason
    assert is_unwatched()


RATES = {0: 2.0}


class Rates:
    """Code that is found as it runs."""

    def read(self) -> float:
        return RATES[0]


def rated(x: Any) -> Any:
    return x * getattr(Rates(), "Read".lower())()


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    """Profile this thread."""
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        yield
    finally:
        sys.setprofile(before)


def results_of_rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return what calls give while the rate is 2, and then while it is 3."""
    compiled, results = tape.compile(rated, check="never"), []
    for rate in (2.0, 3.0):
        monkeypatch.setitem(RATES, 0, rate)
        results += [compiled(1.5) for _ in range(4)]
    return results


def test_what_code_reads_is_seen_beside_another_trace_function(monkeypatch: pytest.MonkeyPatch) -> None:
    with traced():
        assert results_of_rates(monkeypatch) == [3.0] * 4 + [4.5] * 4
        assert sys.getprofile() is None
    with profiled():
        assert results_of_rates(monkeypatch) == [3.0] * 4 + [4.5] * 4


@pytest.mark.skipif(REPORTS_INSTRUCTIONS, reason="calls are watched without such functions")
def test_beside_a_trace_and_a_profile_function_calls_stay_dynamic(monkeypatch: pytest.MonkeyPatch) -> None:
    with traced(), profiled(), pytest.warns(CompileWarning, match="beside other functions that trace and profile"):
        assert results_of_rates(monkeypatch) == [3.0] * 4 + [4.5] * 4


class Cycle:
    """Read a clock when the collector finds it."""

    finalized = 0

    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        time.perf_counter()
        Cycle.finalized += 1


def littering(x: Any) -> Any:
    """Leave cycles."""
    while x > 1:
        Cycle()
        x = x * 0.5
        helper(x)
    return x


@pytest.fixture
def often() -> Iterator[list[str]]:
    """Have the collector at work all the time, with a callback that reads a clock."""
    phases: list[str] = []

    def note(phase: str, _: dict[str, Any]) -> None:
        time.perf_counter()
        phases.append(phase)

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(5)
    yield phases
    gc.set_threshold(*before)
    gc.callbacks.remove(note)


def test_what_the_garbage_collector_calls_is_no_part_of_a_loop(often: list[str]) -> None:
    visits, before = visits_of(halved, X), len(often)
    assert len(visits) == 8
    assert equal_states(visits)
    assert equal_states(visits_of(halved, X))  # with the callback between those of the watch
    assert len(often) > before > 0


def test_the_compiler_is_no_part_of_a_loop() -> None:
    def compiling(x: Any) -> Any:
        while x > 1:
            x = x * 0.5
            text = f"{ADDS}# {uuid.uuid4()}"  # in no cache
            _ = jit.load_source("watched", text).add.address
        return x

    visits = visits_of(compiling, X)
    assert {visit.loop.code for visit in visits} == {compiling.__code__}
    assert len(visits) == 8


def test_finalizers_that_the_garbage_collector_calls_are_no_part_of_a_loop(often: list[str]) -> None:
    Cycle.finalized = 0
    visits = visits_of(littering, X)
    assert all("time" not in visit.reason and "__del__" not in visit.reason for visit in visits)
    assert Cycle.finalized > 0
    assert often


def test_a_collection_whose_end_is_not_told_spoils_the_watch() -> None:
    visits: list[HeadVisit] = []
    watch = HeadWatch(visits.append)

    def interrupted(x: Any) -> Any:
        while x > 1:
            x = x * 0.5
            if not visits[1:]:
                gc.callbacks[0]("start", {})
        return x

    watch.call(interrupted, X)
    gc.collect()
    assert "interrupted" in watch.reason
    assert len(visits) == 1
    assert equal_states(visits_of(halved, X))


@pytest.mark.skipif(monitoring is None, reason="Python 3.11 traces")
def test_tools_that_take_numbers_of_monitoring_leave_one_or_loops_stay_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def halves(x: Any) -> Any:
        while x > 1:
            x = x * 0.5
        return x

    def explained() -> str:
        compiled = tape.compile(halves)
        assert [compiled(x) for x in (9.0, 3.0, 40.0, 7.0)] == [0.5625, 0.75, 0.625, 0.875]
        return compiled.explain()

    explained()
    own = next(number for number in range(6) if monitoring.get_tool(number) == "tape")
    others = [number for number in range(6) if monitoring.get_tool(number) is None]
    try:
        monitoring.free_tool_id(own)
        for number in (own, *others):
            monitoring.use_tool_id(number, "another")
        assert "all numbers of sys.monitoring are taken" in explained()
        assert results_of_rates(monkeypatch) == [3.0] * 4 + [4.5] * 4
        monitoring.free_tool_id(others[-1])
        assert "unrolled" not in explained()
        assert monitoring.get_tool(others[-1]) == "tape"
        assert monitoring.get_events(own) == 0
    finally:
        for number in (own, *others):
            if monitoring.get_tool(number) == "another":
                monitoring.free_tool_id(number)
