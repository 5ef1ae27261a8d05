"""What a run of the benchmarks shows: how far it is, and one table of tape's times and of what rivals take of them."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bench.bars import GRAD, PYTORCH_ARRAYS, PYTORCH_GRAD, VALUE_AND_GRAD
from bench.in_turn import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest
    from _pytest.terminal import TerminalReporter

RIVALS = {
    "by hand": "hand", "PyTorch": "PyTorch", "JAX": "JAX", "CasADi": "CasADi", "autograd": "HIPS", "asdex": "asdex",
    "sparsejac": "sparsejac",
}  # fmt: skip
"""Columns, and what is part of the names of their rows; the first that fits counts."""
_PARTNERS = {PYTORCH_GRAD: GRAD, PYTORCH_ARRAYS: VALUE_AND_GRAD}
"""Rows of PyTorch's that ask for gradients as one of tape's does."""
_PAIR = re.compile(r"^(.*): (.+?)(?:'s jit)? / tape ?(.*)$")
_EVERY = 10.0  # seconds from one line of progress to the next


class Progress:
    """A line every few seconds: how many are done, for how long, and about how long it still takes.

    By what each took in the last run, which the cache of pytest has; by the mean of those done where it was not in it.
    """

    def __init__(self, reporter: TerminalReporter, cache: Any) -> None:
        self.reporter, self.cache = reporter, cache
        self.known: dict[str, float] = {} if cache is None else cache.get("bench/seconds", {})
        self.left: list[str] = []
        self.took: defaultdict[str, float] = defaultdict(float)
        self.begin = self.shown = time.perf_counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what there is to do."""
        self.left = [item.nodeid for item in session.items]
        self.begin = self.shown = time.perf_counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one from the list, and say how far that is."""
        self.took[report.nodeid] += report.duration
        if report.when != "teardown":
            return
        self.left.remove(report.nodeid)
        if time.perf_counter() > self.shown + _EVERY and self.left:
            self.shown = time.perf_counter()
            self.reporter.write_line(self.line(self.shown - self.begin))

    def line(self, seconds: float) -> str:
        """Return the line after so many seconds."""
        mean = sum(self.took.values()) / len(self.took)
        left = sum(self.known.get(name, mean) for name in self.left)
        done, count = len(self.took), len(self.took) + len(self.left)
        return f"[{done} of {count} after {_clock(seconds)}, about {_clock(left)} left]"

    def pytest_sessionfinish(self) -> None:
        """Keep what each took."""
        if self.cache is not None and self.took:
            self.cache.set("bench/seconds", {**self.known, **self.took})


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _rival(name: str) -> str | None:
    return next((column for column, part in RIVALS.items() if part in name), None)


class Comparison:
    """Times of cases by who ran them, and ratios that were measured in pairs, which count where there are both."""

    def __init__(self) -> None:
        self.times: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self.ratios: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)

    def take(self, benchmarks: Iterable[Any], bars: Iterable[dict[str, Any]]) -> None:
        """Take in what pytest-benchmark timed, and the bars of one library's time over another's."""
        for each in benchmarks:
            if each.group and each.name and not each.has_error:
                self.times[each.group][each.name] = each.stats.median
        for bar in bars:
            if (found := _PAIR.match(bar["bar"])) and (rival := _rival(found[2])):
                self.ratios[found[1], found[3]][rival] = bar["figure"]

    def rows(self) -> list[list[str]]:
        """Return the table: case, tape's way, its time, and each rival's over that."""
        found: list[tuple[str, str, float | None, dict[str, float]]] = []
        for case, times in self.times.items():
            theirs = [(rival, who) for who in times if not is_tapes(who) and (rival := _rival(who))]
            theirs.sort(key=lambda pair: pair[1] in _PARTNERS)
            for who in filter(is_tapes, times):
                way = who.removeprefix("tape ")
                ratios = {rival: times[x] / times[who] for rival, x in theirs if _PARTNERS.get(x, who) == who}
                found.append((case, way, times[who], ratios | self.ratios.pop((case, way), {})))
        found += [(case, way, None, ratios) for (case, way), ratios in self.ratios.items()]
        columns = [rival for rival in RIVALS if any(rival in row[3] for row in found)]
        return [["case", "tape", "time", *columns]] + [
            [case, way, "" if seconds is None else readable(seconds), *[_cell(ratios.get(x)) for x in columns]]
            for case, way, seconds, ratios in found
            if ratios
        ]


def is_tapes(who: str) -> bool:
    """Whether a row is one of tape's own."""
    return who.startswith("tape") or who in ("dynamic", "interpreter", "compiled")


def _cell(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:,.0f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's lines, the first two columns on the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(cell.ljust(n) if k < 2 else cell.rjust(n) for k, (cell, n) in cells).rstrip())
    return lines
