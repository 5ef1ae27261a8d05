"""Every record at 1, 1e3 and 1e6 elements: forward against NumPy and PyTorch, value and gradient against PyTorch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.record_rows import NEAR, SIZES, WHY, RecordRow, rows
from bench.rows import pytorch, tape
from tape.testing import ratio

if TYPE_CHECKING:
    from bench.bars import Scoreboard

PAIRS = 7
_SLOWEST = 1 / 1.2
"""Below this ratio at 1e6 the table says why."""


def _forward(lib: Any, row: RecordRow, arrays: list[Any]) -> Any:
    tensors = [lib.tensor(a) for a in arrays]
    return lambda: row.call(lib, *tensors)


def _both(lib: Any, row: RecordRow, arrays: list[Any]) -> Any:
    def run() -> list[Any]:
        tensors = [lib.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        y = row.call(lib, *tensors)
        y.backward(lib.ones_like(y))
        return [t.grad for t in tensors if t.requires_grad]

    return run


def _agree(row: RecordRow, torch: Any, arrays: list[Any]) -> None:
    """Assert values and gradients of both libraries at a size that may be anything."""
    ours, theirs = (_forward(lib, row, arrays)() for lib in (tape(), torch))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-9, err_msg=row.name)
    if row.differentiable:
        for a, b in zip(_both(tape(), row, arrays)(), _both(torch, row, arrays)(), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-9, err_msg=row.name)


def _figures(row: RecordRow, torch: Any, n: int) -> list[float]:
    """Return NumPy over tape and PyTorch over tape of the value, and PyTorch over tape with the gradient."""
    arrays, plain = row.arrays(n), row.plain
    mine = _forward(tape(), row, arrays)
    found = [float("nan")] * 3
    if plain is not None:
        found[0] = ratio(lambda: plain(*arrays), mine, pairs=PAIRS, min_time=0.001).median
    found[1] = ratio(_forward(torch, row, arrays), mine, pairs=PAIRS, min_time=0.001).median
    if row.differentiable:
        both = _both(torch, row, arrays), _both(tape(), row, arrays)
        found[2] = ratio(*both, pairs=PAIRS, min_time=0.001).median
    return found


@pytest.mark.quick
def test_values() -> None:
    """Values and gradients of all rows are PyTorch's."""
    torch = pytorch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in rows(torch):
            _agree(row, torch, row.arrays(5))


def test_table(scoreboard: Scoreboard) -> None:
    """Print the table."""
    torch = pytorch()
    heads = [f"{what} {n:.0e}" for n in SIZES for what in ("np", "torch", "grad")]
    scoreboard.note("times over tape's: NumPy forward, PyTorch forward, PyTorch value and gradient, at each size")
    scoreboard.note(f"{'record':16}" + "".join(f"{head:>13}" for head in heads))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in rows(torch):
            figures = [figure for n in SIZES for figure in _figures(row, torch, n)]
            slow = any(figure < _SLOWEST for figure in figures[-2:])
            cells = "".join(f"{'' if figure != figure else format(figure, '.2f'):>13}" for figure in figures)  # noqa: PLR0124 (nan)
            scoreboard.note(f"{row.name:16}{cells}{f'  {WHY.get(row.name, NEAR)}' if slow else ''}")
