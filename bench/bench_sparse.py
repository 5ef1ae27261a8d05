"""Sparse Jacobians: pattern and colouring, colours, and time, beside asdex, sparsejac (JAX) and CasADi in one process.

`python -m pytest bench/bench_sparse.py -s` prints each row and the table at the end. Where the rivals are installed
they are measured; rows of those that are missing say so. Times are processor time, the least of several calls; those
of tape and of one compiled jvp are taken in turn.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from bench import bars
from bench.bars import Bar, Scoreboard
from bench.rows import tape

pytestmark = pytest.mark.filterwarnings("ignore")
CALLS = 200  # until programs are replayed
PATIENCE = 20  # seconds until machine code is there


@dataclass(frozen=True)
class Problem:
    """Equations in ``size`` unknowns, written with operators, reads by places and ``cat``, for every library."""

    size: int
    function: Callable[[Any, Any], Any]
    published: int
    """The most colours that a greedy colouring, of columns, rows or both, is known to need."""


def _brusselator(n: int) -> Problem:
    at = np.arange(n * n).reshape(n, n)
    near = [np.roll(at, shift, axis).ravel() for axis in (0, 1) for shift in (1, -1)]
    first, second = at.ravel(), at.ravel() + n * n

    def run(u: Any, cat: Any) -> Any:
        a, b = u[first], u[second]
        spread = [sum(u[start + place] for place in near) - 4.0 * z for start, z in ((0, a), (n * n, b))]
        return cat([1.0 + a * a * b - 4.4 * a + 10.0 * spread[0], 3.4 * a - a * a * b + 10.0 * spread[1]])

    return Problem(2 * n * n, run, 12)


def _laplacian(n: int) -> Problem:
    at = np.arange(n * n).reshape(n, n)
    inner = at[1:-1, 1:-1].ravel()
    border = np.setdiff1d(at, inner)

    def run(u: Any, cat: Any) -> Any:
        near = sum(u[inner + place] for place in (1, -1, n, -n))
        return cat([near - 4.0 * u[inner] + u[inner] * u[inner] * u[inner], u[border] * u[border]])

    return Problem(n * n, run, 7)


def _chain(n: int) -> Problem:
    inner = np.arange(1, n - 1)
    return Problem(n, lambda u, _: u[inner] * (u[inner + 1] - 2.0 * u[inner] + u[inner - 1]), 3)


def _arrow(n: int) -> Problem:
    rest, first = np.arange(1, n), np.zeros(n - 1, np.int64)
    steps = [np.arange(k, n, 8) for k in range(8)]

    def run(u: Any, cat: Any) -> Any:
        parts = [u[at] * u[at] for at in steps]
        total = sum(part[np.arange(1) + k] for part in parts for k in range(part.shape[0]))
        return cat([total, u[rest] * u[first] + u[rest] * u[rest]])

    return Problem(n, run, 3)


def _control(n: int) -> Problem:
    """A pendulum that is swung up: the defects of the trapezoidal rule; angle, speed and torque at each node."""
    now, then, h = np.arange(n - 1), np.arange(1, n), 0.02

    def run(u: Any, cat: Any) -> Any:
        def rate(at: Any) -> tuple[Any, Any]:
            angle, speed = u[at], u[at + n]
            return speed, u[at + 2 * n] - angle + angle * angle * angle / 6.0 - 0.1 * speed * speed

        (d0, a0), (d1, a1) = rate(now), rate(then)
        return cat([u[then] - u[now] - h / 2 * (d0 + d1), u[then + n] - u[now + n] - h / 2 * (a0 + a1)])

    return Problem(3 * n, run, 6)


PROBLEMS = {
    "Brusselator 2-D, 100 x 100": lambda: _brusselator(100),
    "Laplacian 2-D, 100 x 100": lambda: _laplacian(100),
    "chain of 20,000": lambda: _chain(20_000),
    "arrow of 400": lambda: _arrow(400),
    "optimal control, 5,000 nodes": lambda: _control(5_000),
}
SMALL = {"Brusselator": lambda: _brusselator(6), "Laplacian": lambda: _laplacian(6), "chain": lambda: _chain(30),
         "arrow": lambda: _arrow(30), "control": lambda: _control(12)}  # fmt: skip


def _least(run: Callable[[], Any], calls: int = 12) -> float:
    seconds = []
    for _ in range(calls):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def _add(board: Scoreboard, bar: Bar, figure: float, text: str) -> None:
    board.add(bar, figure, text)
    sys.stdout.write(f"{board.results[-1].verdict}  {bar.name}  {bar.wanted}  {text}\n")
    sys.stdout.flush()


@pytest.mark.quick
@pytest.mark.parametrize("name", SMALL)
def test_values(name: str) -> None:
    """Small problems: the dense Jacobian, and no more colours than published."""
    problem = SMALL[name]()
    x = np.random.default_rng(0).uniform(0.5, 1.5, problem.size)
    function, cat = problem.function, tape().cat
    sparse = tape().sparse.jacobian(lambda u: function(u, cat))
    dense = tape().func.jacrev(lambda u: function(u, cat))(x)
    for _ in range(3):
        np.testing.assert_allclose(sparse(x).toarray(), dense, atol=1e-12)
    assert sparse.colouring(x).count <= problem.published


@pytest.mark.parametrize("name", PROBLEMS)
def test_jacobians(name: str, scoreboard: Scoreboard) -> None:
    """Seconds to pattern and colours, how many, and a Jacobian over as many compiled jvps."""
    problem = PROBLEMS[name]()
    x, t = np.random.default_rng(0).uniform(0.5, 1.5, (2, problem.size))
    written, cat, derivative = problem.function, tape().cat, tape().func.jvp

    def function(u: Any) -> Any:
        return written(u, cat)

    sparse, start = tape().sparse.jacobian(function), time.process_time()
    colours = sparse.colouring(x).count
    seconds = time.process_time() - start
    _add(scoreboard, bars.SPARSE[name, "pattern and colouring"], seconds, f"{seconds:.3f} s")
    _add(scoreboard, bars.SPARSE[name, "colours"], colours, f"{colours} colours, published {problem.published}")
    jvp = tape().compile(lambda x, t: derivative(function, (x,), (t,))[1])
    for _ in range(CALLS):
        sparse(x), jvp(x, t)
    (plan,) = sparse._plans.values()  # noqa: SLF001 (what runs it)
    pulls = plan._pulls  # noqa: SLF001
    end = time.monotonic() + PATIENCE
    while "is being made" in jvp.explain() + pulls.explain() and time.monotonic() < end:
        time.sleep(0.1)
        sparse(x), jvp(x, t)
    pairs = [(_least(lambda: sparse(x), 3), _least(lambda: jvp(x, t), 3)) for _ in range(7)]
    whole, one = (min(column) for column in zip(*pairs, strict=True))
    ratio = whole / (colours * one)
    text = f"{ratio:.3g}: {1e3 * whole:.3g} ms, {_engine(pulls)}; a jvp {1e3 * one:.3g} ms, {_engine(jvp)}"
    _add(scoreboard, bars.SPARSE[name, "Jacobian / (colours x compiled jvp)"], ratio, text)
    for rival, measure in RIVALS.items():
        try:
            first, later, count, matrix = measure(problem, x)
        except ImportError as missing:
            sys.stdout.write(f"skipped  {name}: {rival}: {missing}\n")
            continue
        found = sparse(x)
        assert abs(matrix - found).max() < 1e-6 * abs(found).max()
        text = f"{rival}: {1e3 * later:.3g} ms, {count} colours, first call {first:.3g} s; tape {1e3 * whole:.3g} ms"
        _add(scoreboard, bars.SPARSE[name, f"{rival} / tape"], later / whole, f"{later / whole:.3g}: {text}")


def _engine(compiled: Any) -> str:
    """Return what ``explain()`` says the calls of a compiled function are run by."""
    text = compiled.explain()
    if " replayed," not in text.partition("\n")[0]:
        return "dynamic"
    return "machine code" if "machine code:" in text else "interpreter"


def _jax() -> Any:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def _of_jax(problem: Problem) -> Any:
    jax = _jax()
    return lambda u: problem.function(u, jax.numpy.concatenate)


def _run(run: Any, x: Any) -> None:
    run(x).data.block_until_ready()


def _asdex(problem: Problem, x: Any) -> tuple[float, float, Any, Any]:
    jax, asdex = _jax(), importlib.import_module("asdex")
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coloring = asdex.jacobian_coloring(_of_jax(problem), x)
        run = jax.jit(asdex.jacobian_from_coloring(_of_jax(problem), coloring))
        run(x).data.block_until_ready()
    first = time.process_time() - start
    return first, _least(partial(_run, run, x)), coloring.num_colors, _scipys(run(x))


def _sparsejac(problem: Problem, x: Any) -> tuple[float, float, Any, Any]:
    jax, sparsejac = _jax(), importlib.import_module("sparsejac")
    bcoo = importlib.import_module("jax.experimental.sparse").BCOO
    function, cat = problem.function, tape().cat
    pattern = tape().sparse.jacobian(lambda u: function(u, cat)).pattern(x)
    start = time.process_time()
    run = jax.jit(sparsejac.jacrev(_of_jax(problem), bcoo.from_scipy_sparse(pattern.astype(float))))
    run(x).data.block_until_ready()
    first = time.process_time() - start
    return first, _least(partial(_run, run, x)), "?", _scipys(run(x))


def _scipys(matrix: Any) -> Any:
    from scipy.sparse import coo_array

    return coo_array((np.asarray(matrix.data), np.asarray(matrix.indices).T), shape=matrix.shape).tocsr()


def _casadi(problem: Problem, x: Any) -> tuple[float, float, Any, Any]:
    casadi = importlib.import_module("casadi")
    start = time.process_time()
    u = casadi.SX.sym("u", problem.size)

    y = problem.function(_Symbol(u), lambda parts: _Symbol(casadi.vertcat(*[part.symbol for part in parts]))).symbol
    run = casadi.Function("jacobian", [u], [casadi.jacobian(y, u)])
    run(x)
    first = time.process_time() - start
    matrix = run(x).sparse()
    return first, _least(partial(run, x)), "no", matrix.tocsr()


class _Symbol:
    """CasADi's vector, read by NumPy's arrays of places."""

    __array_ufunc__ = None

    def __init__(self, symbol: Any) -> None:
        self.symbol, self.shape = symbol, symbol.shape

    def __getitem__(self, places: Any) -> _Symbol:
        return _Symbol(self.symbol[[int(place) for place in places]])

    def __add__(self, other: Any) -> _Symbol:
        return _Symbol(self.symbol + getattr(other, "symbol", other))

    def __mul__(self, other: Any) -> _Symbol:
        return _Symbol(self.symbol * getattr(other, "symbol", other))

    def __sub__(self, other: Any) -> _Symbol:
        return _Symbol(self.symbol - getattr(other, "symbol", other))

    def __rsub__(self, other: Any) -> _Symbol:
        return _Symbol(other - self.symbol)

    def __truediv__(self, other: Any) -> _Symbol:
        return _Symbol(self.symbol / getattr(other, "symbol", other))

    __radd__, __rmul__ = __add__, __mul__


RIVALS = {"asdex": _asdex, "sparsejac": _sparsejac, "CasADi": _casadi}
