"""Timing several functions against each other: each in turn, many rounds, quotients within a round.

`tape.testing.ratio` does this for two. Here a round runs each of the functions once, in an order
that moves on from round to round, and a slow one sits out some rounds. A batch of calls that is
timed follows one that is not: caches are the function's own again, threads of its library awake.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# What a batch of calls lasts at least, and what all batches of one function may last together.
BATCH_SECONDS = 0.005
TOTAL_SECONDS = 1.2
# A call longer than this needs no other before it.
LONG_SECONDS = 0.05
ROUNDS = 31
FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class Times:
    """The seconds of one call in each round that a function took part in."""

    rounds: dict[int, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.rounds.values())

    def over(self, other: Times) -> float:
        """Return the median quotient of the rounds that both took part in."""
        both = self.rounds.keys() & other.rounds.keys()
        return statistics.median(self.rounds[k] / other.rounds[k] for k in both)


def times_in_turn(functions: dict[str, Callable[[], object]]) -> dict[str, Times]:
    """Return the times of functions that have been called before."""
    gc.collect()
    gc.freeze()  # what was imported is no work of theirs
    try:
        plans = {name: _plan(function) for name, function in functions.items()}
        times = {name: Times() for name in functions}
        for k in range(ROUNDS):
            for name in _rotated(list(functions), k):
                calls, every = plans[name]
                if k % every == 0:
                    times[name].rounds[k] = _settled_seconds(functions[name], calls)
        return times
    finally:
        gc.unfreeze()


def _rotated(names: list[str], k: int) -> list[str]:
    first = k % len(names)
    return names[first:] + names[:first]


def _plan(function: Callable[[], object]) -> tuple[int, int]:
    """Return how many calls make a batch, and of how many rounds one is taken part in."""
    calls = 1
    seconds = min(_seconds(function, calls) for _ in range(2))
    while seconds * calls < BATCH_SECONDS:
        calls = math.ceil(calls * min(10.0, 1.2 * BATCH_SECONDS / max(seconds * calls, 1e-9)))
        seconds = _seconds(function, calls)
    rounds = min(ROUNDS, max(FEWEST_ROUNDS, int(TOTAL_SECONDS / (2 * seconds * calls))))
    return calls, max(1, ROUNDS // rounds)


def _settled_seconds(function: Callable[[], object], calls: int) -> float:
    """Return the seconds of one call after an untimed batch; a long call is timed as it is."""
    gc.collect()
    seconds = _batch(function, calls)
    return seconds if seconds * calls > LONG_SECONDS else _batch(function, calls)


def _seconds(function: Callable[[], object], calls: int) -> float:
    """Return the seconds of one call, of a batch."""
    gc.collect()
    return _batch(function, calls)


def _batch(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def readable(seconds: float) -> str:
    """Return for example `1.23 us`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
