"""What the core's benches leave out: a stencil in place, a whole Jacobian, a whole Hessian.

PyTorch refuses the backward of the stencil in place, so its row is a functional form (`torch.cat`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench import bars, bench_by_hand
from bench.bars import PAIRS, MatrixBar, RatioBar, Scoreboard, ratio_bars_of
from bench.rows import ROWS, measure, pytorch, seconds_of, tape, time_row
from bench.workloads import (
    LAYERS,
    REACTION,
    ROSENBROCK,
    ROSENBROCK_HESSIAN,
    STENCIL,
    MatrixWorkload,
    Workload,
    layers_of,
    reaction_of,
    rosenbrock_hessian_of,
    stencil_of,
)
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from bench.by_hand import Array

# A row of a matrix is about so long, in at most so many rounds.
SECONDS = 0.4
ROUNDS = 100


def _leaf(lib: Any, workload: MatrixWorkload, *, requires_grad: bool = False) -> Any:
    return lib.tensor(workload.x, dtype=lib.float64, requires_grad=requires_grad)


def _functional(lib: Any, workload: MatrixWorkload) -> Callable[[], Array]:
    """Return the whole matrix by `autograd.functional`: PyTorch's takes a backward a row."""
    function, rooms = workload.function_of(lib), importlib.import_module(f"{lib.__name__}.autograd.functional")
    derive = rooms.hessian if workload.hessian else rooms.jacobian
    return lambda: derive(function, _leaf(lib, workload)).numpy()


def _func(lib: Any, workload: MatrixWorkload) -> Callable[[], Array]:
    """Return the whole matrix by `func`: PyTorch's uses vmap."""
    function = workload.function_of(lib)
    derive = (lib.func.hessian if workload.hessian else lib.func.jacrev)(function)
    return lambda: derive(_leaf(lib, workload)).numpy()


def _backwards(lib: Any, workload: MatrixWorkload) -> Callable[[], Array]:
    """Return the Jacobian, or the Hessian by a recorded gradient, by a backward for each row."""
    function, grad = workload.function_of(lib), lib.autograd.grad
    units = [lib.tensor(unit, dtype=lib.float64) for unit in np.eye(len(workload.answer))]

    def run() -> Array:
        x = _leaf(lib, workload, requires_grad=True)
        y = function(x)
        if workload.hessian:
            (y,) = grad(y, x, create_graph=True)
        return np.stack([grad(y, x, unit, retain_graph=True)[0].numpy() for unit in units])

    return run


MATRIX_ROWS: dict[str, Callable[[MatrixWorkload], Callable[[], Array]]] = {
    bars.ONE_SWEEP: lambda workload: _functional(tape(), workload),
    bars.BACKWARDS: lambda workload: _backwards(tape(), workload),
    bars.BY_HAND: lambda workload: lambda: workload.by_hand(workload.x, *workload.constants),
    bars.PYTORCH_FUNCTIONAL: lambda workload: _functional(pytorch(), workload),
    bars.PYTORCH_FUNC: lambda workload: _func(pytorch(), workload),
}


def check_matrix(got: Array, workload: MatrixWorkload) -> None:
    """Assert a matrix against that by hand, to 1e-10 of its largest entry; zeros are exact."""
    wanted = workload.answer
    assert got.shape == wanted.shape
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())
    np.testing.assert_array_equal(got[wanted == 0.0], 0.0)


def _checked(row: str, workload: MatrixWorkload) -> Callable[[], Array]:
    """Return the run of a row, after asserting what it returns."""
    run = MATRIX_ROWS[row](workload)
    check_matrix(run(), workload)
    return run


@pytest.mark.quick
@pytest.mark.parametrize("workload", [stencil_of(12, 5)], ids=str)
def test_stencil_by_hand(workload: Workload) -> None:
    """The gradient by hand agrees with complex steps, and the functional form with the text in place."""
    bench_by_hand.test_by_hand(workload)
    leaves = [tape().tensor(leaf, dtype=tape().float64) for leaf in workload.leaves]
    assert workload.functional is not None
    np.testing.assert_allclose(workload.functional(tape(), *leaves).item(), workload.answer[0], rtol=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("workload", [reaction_of(9), layers_of(6)], ids=str)
def test_jacobian_by_hand(workload: MatrixWorkload) -> None:
    """The Jacobians by hand agree with complex steps, a column each."""
    step = 1e-30
    columns = [
        np.imag(workload.function(np, workload.x + 1j * step * unit, *workload.constants)) / step
        for unit in np.eye(len(workload.x))
    ]
    check_matrix(np.stack(columns, axis=1), workload)


@pytest.mark.quick
def test_hessian_by_hand() -> None:
    """The Hessian by hand agrees with complex steps through the gradient by hand."""
    workload, step = rosenbrock_hessian_of(9), 1e-30
    rows = []
    for unit in np.eye(len(workload.x)):
        x = workload.x + 1j * step * unit
        _, (gradient,) = ROSENBROCK.by_hand(x)
        rows.append(np.imag(np.asarray(gradient)) / step)
    check_matrix(np.stack(rows), workload)


@pytest.mark.parametrize("workload", [pytest.param(stencil_of(1000, 10), marks=pytest.mark.quick), STENCIL], ids=str)
@pytest.mark.parametrize("row", ROWS)
def test_row(benchmark: BenchmarkFixture, row: str, workload: Workload) -> None:
    """One row of the workload's group."""
    time_row(benchmark, row, workload)


@pytest.mark.parametrize("bar", ratio_bars_of(STENCIL), ids=str)
def test_bar(bar: RatioBar, scoreboard: Scoreboard) -> None:
    """The interleaved ratio that a bar is about."""
    measure(bar, scoreboard)


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, in its vmap
@pytest.mark.parametrize("workload", [REACTION, LAYERS, ROSENBROCK_HESSIAN], ids=str)
@pytest.mark.parametrize("row", MATRIX_ROWS)
def test_matrix_row(benchmark: BenchmarkFixture, row: str, workload: MatrixWorkload) -> None:
    """One row of a matrix's group."""
    run = _checked(row, workload)
    rounds = min(max(1, round(SECONDS / seconds_of(run))), ROUNDS)
    benchmark.group, benchmark.name = workload.name, row
    benchmark.pedantic(run, rounds=rounds, warmup_rounds=1)


@pytest.mark.quick
@pytest.mark.parametrize("bar", bars.MATRICES, ids=str)
def test_matrix_bar(bar: MatrixBar, scoreboard: Scoreboard) -> None:
    """The interleaved ratio of two ways to the same matrix."""
    slow, fast = (_checked(row, bar.workload) for row in (bar.slow, bar.fast))
    measured = ratio(slow, fast, pairs=PAIRS)
    scoreboard.add(bar, measured.median, str(measured))
