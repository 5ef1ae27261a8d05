"""`tape.testing.ratio` on functions that move a clock of the test's own: no real time is read."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import TYPE_CHECKING

import pytest

from tape.testing import Ratio, ratio

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A clock that stands still until a function moves it, and a log of who did."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def function(self, name: str, *seconds: float) -> Callable[..., None]:
        """Return a function that takes these times in turn, again and again."""
        durations = itertools.cycle(seconds)

        def run(*_: object) -> None:
            self.log.append(name)
            self.now += next(durations)

        return run


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_median_quartiles_and_times(clock: Clock) -> None:
    measured = ratio(clock.function("s", 6.0), clock.function("f", 2.0), pairs=5, clock=clock)
    assert measured == Ratio(median=3.0, lower=3.0, upper=3.0, slow=6.0, fast=2.0, pairs=5)


def test_quotients_of_pairs_not_of_medians(clock: Clock) -> None:
    # After one call to warm up and one to calibrate, the pairs are 8/2, 9/1 and 2/4.
    slow = clock.function("s", 1.0, 1.0, 8.0, 9.0, 2.0)
    fast = clock.function("f", 1.0, 1.0, 2.0, 1.0, 4.0)
    measured = ratio(slow, fast, pairs=3, clock=clock)
    assert measured == Ratio(median=4.0, lower=2.25, upper=6.5, slow=8.0, fast=2.0, pairs=3)


def test_one_slow_pair_does_not_move_the_median(clock: Clock) -> None:
    slow = clock.function("s", *[3.0] * 7, 1000.0)
    measured = ratio(slow, clock.function("f", 1.0), pairs=11, clock=clock)
    assert (measured.lower, measured.median, measured.upper) == (3.0, 3.0, 3.0)


def test_pairs_alternate_in_order(clock: Clock) -> None:
    ratio(clock.function("s", 1.0), clock.function("f", 1.0), pairs=4, clock=clock)
    assert "".join(clock.log) == "ss" + "ff" + "sf" + "fs" + "sf" + "fs"


def test_swapped_pairs_are_not_inverted(clock: Clock) -> None:
    measured = ratio(clock.function("s", 5.0), clock.function("f", 1.0), pairs=2, clock=clock)
    assert (measured.lower, measured.upper) == (5.0, 5.0)


def test_each_half_lasts_min_time_with_counts_of_its_own(clock: Clock) -> None:
    slow, fast = clock.function("s", 1.0), clock.function("f", 2.0**-10)
    measured = ratio(slow, fast, pairs=2, min_time=0.5, clock=clock)
    assert measured.median == pytest.approx(1024)
    runs = ["".join(run) for _, run in itertools.groupby(clock.log)]
    halves_of_fast = [run for run in runs[-4:] if run[0] == "f"]
    assert {run for run in runs if run[0] == "s"} <= {"s", "ss"}
    assert all(len(run) * 2.0**-10 >= 0.5 for run in halves_of_fast)
    assert all(len(run) * 2.0**-10 < 2 * 1.5 * 0.5 for run in halves_of_fast)  # two may adjoin


def test_default_is_thirty_pairs(clock: Clock) -> None:
    assert ratio(clock.function("s", 1.0), clock.function("f", 1.0), clock=clock).pairs == 30


def test_one_pair(clock: Clock) -> None:
    measured = ratio(clock.function("s", 4.0), clock.function("f", 2.0), pairs=1, clock=clock)
    assert (measured.lower, measured.median, measured.upper) == (2.0, 2.0, 2.0)


def test_setup_is_untimed_and_fresh_for_each_call(clock: Clock) -> None:
    states = []

    def setup() -> object:
        clock.now += 1000.0
        return object()

    def consume(state: object) -> None:
        states.append(state)
        clock.now += 0.25

    measured = ratio(consume, clock.function("f", 0.5), pairs=3, min_time=1.0, setup_slow=setup, clock=clock)
    assert (measured.median, measured.slow) == (0.5, 0.25)
    assert len({id(state) for state in states}) == len(states)


def test_one_state_is_alive_at_a_time(clock: Clock) -> None:
    alive: weakref.WeakSet[Clock] = weakref.WeakSet()

    def setup() -> Clock:
        assert not alive
        state = Clock()
        alive.add(state)
        return state

    def consume(_: object) -> None:
        clock.now += 0.25

    ratio(consume, consume, pairs=2, min_time=1.0, setup_slow=setup, setup_fast=setup, clock=clock)
    assert not alive


def test_setup_of_each_side_reaches_its_own_function(clock: Clock) -> None:
    seen = set()

    def note(state: object) -> None:
        seen.add(state)
        clock.now += 1.0

    ratio(
        lambda state: note(("slow", state)),
        lambda state: note(("fast", state)),
        pairs=1,
        setup_slow=lambda: 1,
        setup_fast=lambda: 2,
        clock=clock,
    )
    assert seen == {("slow", 1), ("fast", 2)}


def test_one_side_does_not_pay_for_the_garbage_of_the_other() -> None:
    now = itertools.count().__next__
    garbage_seen = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

    def litter() -> None:
        Cycle()

    def look() -> None:
        garbage_seen.append(sum(type(one) is Cycle for one in gc.get_objects()))

    # The counting clock makes each half one second long, so that each is one call.
    ratio(litter, look, pairs=4, clock=lambda: float(now()))
    assert set(garbage_seen) == {0}


@pytest.mark.parametrize("enabled", [True, False])
def test_collector_stays_as_found(clock: Clock, *, enabled: bool) -> None:
    states = []

    def look() -> None:
        states.append(gc.isenabled())
        clock.now += 1.0

    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        ratio(look, look, pairs=2, clock=clock)
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert set(states) == {enabled}


def test_nothing_stays_frozen_after_an_error(clock: Clock) -> None:
    def fail() -> None:
        raise RuntimeError("mine")

    gc.unfreeze()  # what the suite has frozen
    with pytest.raises(RuntimeError, match="mine"):
        ratio(clock.function("s", 1.0), fail, clock=clock)
    assert gc.get_freeze_count() == 0


def test_what_the_caller_froze_stays_frozen(clock: Clock) -> None:
    gc.freeze()
    try:
        ratio(clock.function("s", 1.0), clock.function("f", 1.0), pairs=2, clock=clock)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": 0}, "pairs must be at least 1, got 0"),
        ({"min_time": 0.0}, r"min_time must be positive, got 0\.0"),
        ({"min_time": float("nan")}, "min_time must be positive, got nan"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ratio(int, int, **arguments)


def test_clock_that_stands_still() -> None:
    with pytest.raises(ValueError, match="the clock did not move"):
        ratio(int, int, setup_slow=int, clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("slow", "fast", "text"),
    [
        (2.5, 0.5, "5 times (4 to 6 in 30 pairs: 2.5 s and 500 ms)"),
        (2.5e-6, 5e-7, "5 times (4 to 6 in 30 pairs: 2.5 us and 500 ns)"),
    ],
)
def test_str_is_one_line(slow: float, fast: float, text: str) -> None:
    assert str(Ratio(median=5.0, lower=4.0, upper=6.0, slow=slow, fast=fast, pairs=30)) == text


def test_real_clock_runs() -> None:
    measured = ratio(lambda: sum(range(2000)), lambda: None, pairs=2, min_time=1e-4)
    assert measured.slow > 0
    assert measured.fast > 0
