"""Operations beside PyTorch eager, forward and backward, at 8, 1,000 and 1,000,000 elements: a table of ratios.

`python -m pytest bench/bench_cells.py -m long` prints a line an operation: PyTorch's time over tape's, float64 and
float32 at each size, then the medians and how many cells are below 1. Minima of interleaved runs, one thread each:
other work on the machine makes no cell slower by itself. A picture of the ratios is written beside the report.
"""

from __future__ import annotations

import statistics
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench import bars
from bench.cells import CALLS, CELLS, SIZES, Call, Cell, calls, cells
from bench.rows import pytorch, tape

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.bars import Scoreboard

SECONDS = 0.1
"""What all runs of a cell take together, at least; four rounds are made in any case."""
BATCH = 0.002
DTYPES = ("float64", "float32")


def minima(functions: list[Callable[[], object]]) -> list[float]:
    """Return the least seconds of a call of each of some functions, which take turns."""
    counts, least = [], [float("inf")] * len(functions)
    for function in functions:
        function()
        start = time.perf_counter()
        function()
        counts.append(max(1, int(BATCH / max(time.perf_counter() - start, 1e-7))))
    end, rounds = time.perf_counter() + SECONDS * len(functions), 0
    while rounds < 4 or time.perf_counter() < end:
        for k in range(len(functions)) if rounds % 2 else reversed(range(len(functions))):
            start = time.perf_counter()
            for _ in range(counts[k]):
                functions[k]()
            least[k] = min(least[k], (time.perf_counter() - start) / counts[k])
        rounds += 1
    return least


def ratio_of(cell: Cell | Call, torch: Any) -> float:
    """Return PyTorch's time over tape's."""
    arrays = cell.arrays()
    mine, theirs = minima([cell.run(lib, arrays) for lib in (tape(), torch)])
    return theirs / mine


def _add(scoreboard: Scoreboard, bar: bars.Bar, figure: float) -> None:
    scoreboard.add(bar, figure, f"{figure:.2f}")


def picture(ratios: dict[tuple[str, str, int], float]) -> str:
    """Return an SVG: a row for each operation, a square for each dtype and size, green where tape is ahead."""
    names = list(dict.fromkeys(name for name, _, _ in ratios))
    columns = [(dtype, size) for dtype in DTYPES for size in SIZES]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="420" height="{14 * len(names) + 30}" font-size="10">']
    parts += [f'<text x="{190 + 38 * k}" y="12">{d[5:]} {n:.0e}</text>' for k, (d, n) in enumerate(columns)]
    for row, name in enumerate(names):
        y = 20 + 14 * row
        parts.append(f'<text x="2" y="{y + 10}">{name.replace("&", "&amp;").replace("<", "&lt;")}</text>')
        for k, column in enumerate(columns):
            ratio = ratios.get((name, *column))
            if ratio is not None:
                hue = max(0.0, min(120.0, 60.0 + 40.0 * float(np.log2(ratio))))
                parts.append(f'<rect x="{190 + 38 * k}" y="{y}" width="36" height="12" fill="hsl({hue:.0f},70%,65%)"/>')
                parts.append(f'<text x="{193 + 38 * k}" y="{y + 10}">{ratio:.2f}</text>')
    return "\n".join([*parts, "</svg>"])


@pytest.mark.quick
@pytest.mark.parametrize("group", CELLS)
def test_values(group: str) -> None:
    """Values and gradients at the smallest size are PyTorch's."""
    torch = pytorch()
    for name, text in CELLS[group].items():
        cell = Cell(name, text, SIZES[0], "float64")
        arrays = cell.arrays()
        for a, b in zip(*(cell.run(lib, arrays)() for lib in (tape(), torch)), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-6, 1e-8, err_msg=name)


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own transforms
@pytest.mark.parametrize("name", CALLS)
def test_calls_run(name: str) -> None:
    """What has no comparable value runs in both libraries."""
    for lib in (tape(), pytorch()):
        call = Call(name, SIZES[0], "float64")
        call.run(lib, call.arrays())()


@pytest.mark.long
def test_cells(scoreboard: Scoreboard) -> None:
    """Print the table, and hold medians and the least ratio to their bars."""
    torch, ratios = pytorch(), dict[tuple[str, str, int], float]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell in [*cells(DTYPES), *calls(DTYPES)]:
            ratios[cell.name, cell.dtype, cell.size] = ratio_of(cell, torch)
    scoreboard.note(f"{'PyTorch / tape':26}" + "".join(f"{d[5:]:>5} {n:.0e}" for d in DTYPES for n in SIZES))
    for name in dict.fromkeys(name for name, _, _ in ratios):
        row = [ratios.get((name, dtype, size)) for dtype in DTYPES for size in SIZES]
        scoreboard.note(f"{name:26}" + "".join(f"{'' if r is None else format(r, '.2f'):>11}" for r in row))
    for size in SIZES:
        here = [r for (_, dtype, n), r in ratios.items() if n == size and dtype == "float64"]
        scoreboard.note(f"{size} elements: {sum(r < 1 for r in here)} of {len(here)} cells below 1")
        _add(scoreboard, bars.CELL_MEDIANS[size], statistics.median(here))
    _add(scoreboard, bars.LEAST_CELL, min(ratios.values()))
    folder = Path(".benchmarks")
    if folder.is_dir():
        (folder / "cells.svg").write_text(picture(ratios), encoding="utf-8")
