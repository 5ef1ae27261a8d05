"""Timing two functions against each other, `ratio(slow, fast)`; testing gradients, `taylor_test(f, x)`.

A time measured alone says little on a machine that does other things too. `ratio` runs the two
functions in turn, many short pairs in one process, and reports the median of the pairs' quotients:
whatever slows the machine for a while slows both halves of a pair.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tape.checks.taylor import DotProducts, TaylorTest, dot_product_test, taylor_test

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DotProducts", "Ratio", "TaylorTest", "dot_product_test", "ratio", "taylor_test"]

# A call of 5 nanoseconds is none: past this many calls in one half the clock is at fault.
_MOST_CALLS = 1_000_000
# A setup may take far longer than the call it is for.
_MOST_SETUPS = 1_000


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer `slow` took than `fast`; `str()` of it is one line.

    Attributes:
        median: The median over the pairs of (time of slow) / (time of fast).
        lower: The first quartile of those quotients.
        upper: Their third quartile.
        slow: The median time of one call of `slow`, in seconds.
        fast: The median time of one call of `fast`, in seconds.
        pairs: The number of pairs.
    """

    median: float
    lower: float
    upper: float
    slow: float
    fast: float
    pairs: int

    def __str__(self) -> str:
        """Return for example `12.3 times (12.1 to 12.6 in 30 pairs: 456 ms and 37.1 ms)`."""
        return (
            f"{self.median:.3g} times ({self.lower:.3g} to {self.upper:.3g} in {self.pairs} pairs: "
            f"{_seconds(self.slow)} and {_seconds(self.fast)})"
        )


def ratio(
    slow: Callable[..., object], fast: Callable[..., object], *, pairs: int = 30, min_time: float = 0.005,
    setup_slow: Callable[[], object] | None = None, setup_fast: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:  # fmt: skip
    """Measure how many times longer `slow` takes than `fast`, in interleaved pairs.

    Each function is called once to warm up, then as often in a row as one half of a pair needs to
    last `min_time`: the two counts are found apart, so that a microsecond may be set against a
    second, and times are per call. Pairs alternate in order (slow fast, fast slow, ...), so that
    neither function always runs in the other's wake.

    The garbage collector runs before each half and stays as it was found during it. Switched off,
    it would hide the cost of reference cycles, which callers pay; not run before, one function
    would pay for the other's. What was alive at the start is kept out of these collections
    (`gc.freeze`): scanning all imported modules is no work of either function.

    Args:
        slow: The function expected to take longer; called without arguments, or with what
            `setup_slow` returned. If it takes less time the ratio is below 1.
        fast: The other one.
        pairs: How many pairs; 30 or more for a figure that will be quoted.
        min_time: What one half lasts at least, in seconds. With a setup, a half is at most 1000
            calls and may be shorter, and each call is timed by itself: a tenth of a microsecond
            of the clock's own comes on top.
        setup_slow: Called, untimed, before each call of `slow`; its result is the only argument,
            and is dropped before the next.
        setup_fast: The same for `fast`.
        clock: Returns seconds; `time.process_time` leaves out what other processes took.

    Returns:
        The median quotient, its quartiles, and both median times.

    Raises:
        ValueError: If `pairs` is below 1, `min_time` is not positive, or the clock stands still.

    What either function or a setup raises passes through.
    """
    if pairs < 1:
        raise ValueError(f"ratio: pairs must be at least 1, got {pairs}")
    if not min_time > 0:
        raise ValueError(f"ratio: min_time must be positive, got {min_time}")
    with _only_new_garbage():
        first = _Half(slow, setup_slow, clock, min_time)
        second = _Half(fast, setup_fast, clock, min_time)
        times = []
        for number in range(pairs):
            seconds = {half: half.seconds_per_call() for half in ((second, first) if number % 2 else (first, second))}
            times.append((seconds[first], seconds[second]))
    return _summary(times)


def _summary(times: list[tuple[float, float]]) -> Ratio:
    quotients = [slow / fast for slow, fast in times]
    lower, median, upper = statistics.quantiles(quotients, method="inclusive") if len(times) > 1 else quotients * 3
    slow_times, fast_times = zip(*times, strict=True)
    return Ratio(median, lower, upper, statistics.median(slow_times), statistics.median(fast_times), len(times))


class _Half:
    """One of the two functions, and how many calls of it make one half of a pair."""

    def __init__(
        self, function: Callable[..., object], setup: Callable[[], object] | None, clock: Callable[[], float],
        min_time: float,
    ) -> None:  # fmt: skip
        self._function, self._setup, self._clock = function, setup, clock
        self._most = _MOST_SETUPS if setup else _MOST_CALLS
        self._calls = 1
        self._seconds()  # warms up: compiles, fills caches
        seconds = self._seconds()
        while seconds < min_time and self._calls < self._most:
            factor = 1.2 * min_time / seconds if seconds > 0 else math.inf
            self._calls = min(math.ceil(self._calls * min(factor, 10)), self._most)
            seconds = self._seconds()
        if not seconds > 0:
            raise ValueError(f"ratio: the clock did not move during {self._calls} calls")

    def seconds_per_call(self) -> float:
        return self._seconds() / self._calls

    def _seconds(self) -> float:
        function, clock, calls = self._function, self._clock, self._calls
        if self._setup is None:
            gc.collect()
            start = clock()
            for _ in range(calls):
                function()
            return clock() - start
        return self._seconds_after(self._setup)

    def _seconds_after(self, setup: Callable[[], object]) -> float:
        """Time each call apart: one state is alive at a time, made and dropped off the clock."""
        function, clock = self._function, self._clock
        gc.collect()
        seconds = 0.0
        for _ in range(self._calls):
            state = setup()
            start = clock()
            function(state)
            seconds += clock() - start
            del state
        return seconds


@contextmanager
def _only_new_garbage() -> Iterator[None]:
    """Take what is alive now out of the collector's sight; it costs 80 ms a look with PyTorch."""
    if gc.get_freeze_count():  # the caller froze something: unfreezing would undo that
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _seconds(value: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
