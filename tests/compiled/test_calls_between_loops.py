"""Operations that are no statements: called between loops, natively or by the interpreter, in loops and out of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numba
import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from kernels.kinds import routine
from kernels.machine_code.compiled_machine import CompiledMachine

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(11, 11)) + 7 * np.eye(11)  # programs factor smaller ones themselves
GRID = RNG.normal(size=(4, 5))
VECTOR = RNG.normal(size=5)


def filtered(a: Any, x: Any) -> Any:
    """Solve and scale, step by step."""
    for _ in range(12):
        x = tape.linalg.solve(a, x) + tape.cumsum(x, 0) * 0.1
        a = a + 0.01 * tape.linalg.inv(a).T
    return (x * x).sum() + tape.linalg.det(a)


def of_a_view(x: Any) -> Any:
    """Read a part of a transposed matrix, and write to a result."""
    y = tape.linalg.inv(x.T[:9, :9]) * 1.0
    z = tape.linalg.cholesky(y @ y.T)
    z[0] = z[1] * 2.0
    return (z * x[:9, :9]).sum()


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solves in a loop": (filtered, (SQUARE, RNG.normal(size=11))),
    "views and writes": (of_a_view, (SQUARE,)),
    "of a number": (lambda x: tape.special.gammaln(x * x + 1.0) * x, (1.5,)),
    "by a kernel": (lambda x: (tape.cumprod(x, 0) * tape.cumsum(x, 1)).sum() + x.std() * x.var(1).sum(), (GRID,)),
    "median": (lambda x: tape.median(x) * x.sum(), (VECTOR,)),
    "of integers": (lambda x: x.sum() * (x > 0).sum() + (x // 1).sum(), (VECTOR,)),
    "batched": (
        lambda x, y: (tape.linalg.inv(x) * tape.linalg.inv(y)).sum(),
        (SQUARE, SQUARE[None] + RNG.normal(size=(3, 1, 11))),
    ),
    "twice the same": (lambda x: (tape.linalg.inv(x) @ tape.linalg.inv(x)).sum(), (SQUARE,)),
    "interpolated": (lambda x: tape.interp(x, np.arange(5.0), VECTOR).sum(), (RNG.uniform(size=7) * 4,)),
}


def machine_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, CompiledMachine, Compilation]:
    program = tape.record(function, *arguments)
    compilation = Compilation(program._recipe, reverse=True)
    return program, CompiledMachine(compilation.code()), compilation


@pytest.mark.quick
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_interpreter(name: str) -> None:
    function, arguments = CASES[name]
    program, machine, compilation = machine_of(function, arguments)
    assert any(line.lstrip().startswith("call_kernel") for line in compilation.source().splitlines())
    value, gradients = program.value_and_grad(*arguments)
    for _ in range(3):
        for got, expected in zip(machine.whole(arguments), (value, *gradients), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.quick
def test_what_python_raises_comes_from_a_call() -> None:
    compiled = tape.compile(tape.value_and_grad(lambda a: tape.linalg.inv(a).sum() * 2.0), mode="max")
    for _ in range(4):
        before = compiled(SQUARE)
    assert "1 call of inv by Python" in compiled.explain()
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        compiled(np.ones((11, 11)))
    np.testing.assert_array_equal(compiled(SQUARE)[1], before[1])


@pytest.mark.quick
def test_an_interrupt_in_a_call_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tape.compile(lambda a: tape.linalg.inv(a).sum() * 2.0, mode="max")
    for _ in range(4):
        compiled(SQUARE)

    came = []

    def interrupted(op: Any, arrays: Any, params: Any) -> Any:
        came.append(op.name)
        if len(came) == 1:
            raise KeyboardInterrupt
        return computed(op, arrays, params)

    computed = routine.computed
    monkeypatch.setattr(routine, "computed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(SQUARE)
    assert came == ["inv"], came
    compiled(SQUARE)


def test_calls_from_several_threads() -> None:
    function, arguments = CASES["solves in a loop"]
    program, machine, _ = machine_of(function, arguments)
    expected, found = program.value_and_grad(*arguments)[1][0], list[Any]()
    threads = [
        threading.Thread(target=lambda: found.extend(machine.whole(arguments)[1] for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for gradient in found:
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-13)


def test_what_has_a_call_is_exported_to_no_c(tmp_path: Path) -> None:
    compiled = tape.compile(lambda a: tape.linalg.inv(a).sum() * 2.0, mode="max")
    for _ in range(4):
        compiled(SQUARE)
    with pytest.raises(TypeError, match="inv"):
        compiled.export_c(tmp_path / "unwritten.c", name="f")


@numba.njit
def _pushed(q: Any, k: Any) -> Any:
    if k > 100.0:
        raise ValueError("too stiff")
    force = np.empty_like(q)
    for i in range(q.size):
        force[i] = 0.1 * q[i - 1] - k * q[i] ** 3
    return force


@numba.njit
def _pushed_vjp(g: Any, q: Any, k: Any) -> Any:
    if k > 50.0:
        raise ValueError("too steep")
    q_bar, k_bar = np.zeros_like(q), 0.0
    for i in range(q.size):
        q_bar[i] -= 3.0 * k * q[i] ** 2 * g[i]
        q_bar[i - 1] += 0.1 * g[i]
        k_bar -= q[i] ** 3 * g[i]
    return q_bar, k_bar


pushed = tape.custom(_pushed, _pushed_vjp)


def swinging(q: Any, p: Any, k: Any) -> Any:
    """Integrate in time what a jitted function gives."""
    for _ in range(30):
        p = p + 0.01 * pushed(q, k)
        q = q + 0.01 * p
    return (q * q).sum() + pushed(q, 2.0 * k)[1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what Numba prints
def test_jitted_functions_are_called_and_what_they_raise_is_told() -> None:
    gradient = tape.value_and_grad(swinging, (0, 1, 2))
    compiled = tape.compile(gradient, mode="max", check="never")
    q, p = np.linspace(0.1, 1.0, 20), np.ones(20)
    for k in (1.3, 0.5, 2.0, 1.3):
        value, gradients = compiled(q, p, k)
        expected, slopes = gradient(q, p, k)
        assert value == pytest.approx(expected, rel=1e-12)
        for got, slope in zip(gradients, slopes, strict=True):
            np.testing.assert_allclose(got, slope, rtol=1e-12)
    assert "calls of _pushed by a kernel" in compiled.explain()
    for k in (60.0, 200.0):
        with pytest.raises(ValueError, match="too s"):  # as in dynamic mode, to which such a call goes back
            compiled(q, p, k)
        assert compiled(q, p, 1.3)[0] == pytest.approx(gradient(q, p, 1.3)[0], rel=1e-12)
    raised = 0
    for k in (60.0, 1.3) * 10:
        try:
            compiled(q, p, k)
        except ValueError:
            raised += 1
    assert raised == 10


@pytest.mark.quick
@pytest.mark.parametrize("size", [4, 45])
@pytest.mark.parametrize("lag", [1, 2, 3])
def test_calls_behind_a_loop_read_what_any_step_gave(lag: int, size: int) -> None:
    """What the last step gave is not all that is kept: of values and of gradients."""

    def passed(x: Any, s: Any) -> Any:
        history = [x]
        for _ in range(8):
            history.append(tape.stack([history[-1] * s, x * 0.5], -1).mean(-1))
        return tape.cumsum(history[-lag], 0).sum() + tape.cumprod(history[-lag - 1], 0).sum()

    gradient = tape.value_and_grad(passed, (0, 1))
    compiled = tape.compile(gradient, mode="max", check="never")
    for k in range(4):
        x, s = np.linspace(0.5, 0.9 + 0.1 * k, size), 0.9 + 0.1 * k
        value, slopes = compiled(x, s)
        expected, expected_slopes = gradient(x, s)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(slopes[0], expected_slopes[0], rtol=1e-11)
        assert slopes[1] == pytest.approx(expected_slopes[1], rel=1e-11)
    assert "8 times" in compiled.explain()


# Small matrices, which programs factor themselves.

LINALG = tape.linalg


def eigenvectors(a: Any, w: Any) -> Any:
    values, vectors = LINALG.eigh(a)
    return (vectors * w).sum() + (values * w[0]).sum()


SMALL: dict[str, Callable[..., Any]] = {
    "inv": lambda a, w: (LINALG.inv(a) * w).sum(),
    "solve": lambda a, w: (LINALG.solve(a, w[:, :2]) * w[:, -2:]).sum(),
    "det": lambda a, w: LINALG.det(a) * w[0, 0],
    "slogdet": lambda a, w: LINALG.slogdet(a)[1] * w[0, 0],
    "cholesky": lambda a, w: (LINALG.cholesky(a) * w).sum(),
    "eigvalsh": lambda a, w: (LINALG.eigvalsh(a) * w[0]).sum(),
    "eigh": eigenvectors,
}
OF_FACTORS = "inv", "solve", "det", "slogdet", "cholesky"


def matrix_of(name: str, n: int, rng: Any, scaled: float = 0.0) -> Any:
    """Return a matrix, its rows and columns scaled by as many powers of ten; symmetric for what reads a triangle."""
    a, rows, columns = rng.normal(size=(n, n)), *10.0 ** rng.uniform(-scaled, scaled, (2, n))
    if name in ("cholesky", "eigh", "eigvalsh"):
        a, columns = a @ a.T / n + np.eye(n), rows
    return a * rows[:, None] * columns


def exactly(name: str, a: Any, w: Any) -> Any:
    """Return the gradient of one of SMALL, by its formula, in 80 digits."""
    x, g = mpmath.matrix(a.tolist()), mpmath.matrix(w.tolist())
    inverse = x**-1
    if name == "inv":
        return -(inverse.T * g * inverse.T)
    if name == "solve":
        return -(inverse.T * g[:, len(a) - 2 :]) * (inverse * g[:, :2]).T
    if name != "cholesky":
        return inverse.T * (g[0, 0] * (mpmath.det(x) if name == "det" else 1))
    factor = mpmath.cholesky(x)
    inner = factor.T * g
    for i in range(len(a)):
        inner[i, i] /= 2
        for j in range(i + 1, len(a)):
            inner[i, j] = 0
    inner = (factor.T) ** -1 * inner * factor**-1
    return (inner + inner.T) / 2


def compiled_small(name: str) -> Any:
    """Return a function's value and gradient, compiled."""
    return tape.compile(tape.value_and_grad(SMALL[name]), mode="max", check="never")


@pytest.mark.parametrize("scaled", [0, 12])
@pytest.mark.parametrize("n", [2, 3, pytest.param(5, marks=pytest.mark.quick), 8])
@pytest.mark.parametrize("name", OF_FACTORS)
def test_small_matrices_are_factored_as_exactly_as_by_lapack(name: str, n: int, scaled: int) -> None:
    rng, compiled = np.random.default_rng(n), compiled_small(name)
    for _ in range(4):
        a, w = matrix_of(name, n, rng, scaled), rng.normal(size=(n, n))
        value, gradient = compiled(a, w)
        dynamic, by_lapack = tape.value_and_grad(SMALL[name])(a, w)
        with mpmath.workdps(80):
            truth = exactly(name, a, w)
            size = max(map(abs, truth))
            errors = [float(max(map(abs, mpmath.matrix(x.tolist()) - truth)) / size) for x in (gradient, by_lapack)]
        assert errors[0] <= max(1e-13, 3 * errors[1])
        assert value == pytest.approx(float(dynamic), rel=1e-11)
    assert "by Python" not in compiled.explain()
    assert "machine code" in compiled.explain()


@pytest.mark.quick
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_eigenvectors_have_the_signs_of_dynamic_mode(n: int) -> None:
    rng, compiled = np.random.default_rng(n), tape.compile(LINALG.eigh, mode="max", check="never")
    for k in range(60):
        a = rng.normal(size=(n, n)) if k % 2 else np.rint(2 * rng.normal(size=(n, n)))
        values, vectors = np.linalg.eigh(a + a.T)
        found = compiled(a + a.T)
        np.testing.assert_allclose(found[0], values, rtol=1e-13, atol=1e-13 * np.abs(values).max())
        if n == 1 or np.diff(values).min() > 1e-3:
            np.testing.assert_allclose(found[1], vectors, atol=1e-11)
    assert "machine code" in compiled.explain()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SMALL)
def test_batches_of_small_matrices(name: str, dtype: type) -> None:
    rng, weights = np.random.default_rng(1), np.random.default_rng(2).normal(size=(2, 6, 6)).astype(dtype)

    def total(a: Any) -> Any:
        if name == "eigh":
            values, vectors = LINALG.eigh(a)
            return (vectors * weights).sum() + (values * weights[:, 0]).sum()
        if name == "solve":
            return (LINALG.solve(a, weights[:, :, :2]) ** 2).sum()
        result = getattr(LINALG, name)(a)
        return ((result[1] if name == "slogdet" else result) * 2).sum()

    gradient = tape.value_and_grad(total)
    compiled = tape.compile(gradient, mode="max", check="never")
    for _ in range(4):
        a = np.stack([matrix_of("cholesky", 6, rng) for _ in range(2)]).astype(dtype)
        for got, expected in zip(compiled(a), gradient(a), strict=True):
            size = np.abs(expected).max()
            np.testing.assert_allclose(got, expected, atol=size * (1e-11 if dtype is np.float64 else 1e-3))
    assert "by Python" not in compiled.explain()


def outcome(f: Any, *args: Any) -> Any:
    """Return what a call gives, or the text of its error."""
    try:
        return f(*args)
    except np.linalg.LinAlgError as error:
        return str(error)


@pytest.mark.quick
@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("name", SMALL)
def test_small_matrices_that_have_no_factors(name: str, n: int) -> None:
    """What raises does so as in dynamic mode; a determinant is 0, and has a gradient."""
    weights = np.random.default_rng(0).normal(size=(n, n))
    good, line = matrix_of("cholesky", n, np.random.default_rng(5)), np.arange(1.0, n + 1)
    unknown = good.copy()
    unknown[1, 0] = np.nan
    for f in (SMALL[name], tape.value_and_grad(SMALL[name])):
        compiled = tape.compile(f, mode="max", check="never")
        for _ in range(3):
            compiled(good, weights)
        for a in (-good, unknown) if name == "eigh" else (np.outer(line, line), -good, unknown, good):
            expected, got = outcome(f, a, weights), outcome(compiled, a, weights)
            if isinstance(expected, str):
                assert got == expected
            else:
                for x, y in zip(*[r if isinstance(r, tuple) else (r,) for r in (got, expected)], strict=True):
                    np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
        assert "machine code" in compiled.explain()


@pytest.mark.quick
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cross_products_are_statements(dim: int) -> None:
    shape = [4, 4, 4]
    shape[dim] = 3
    a, b = np.random.default_rng(3).normal(size=(2, *shape))
    gradient = tape.value_and_grad(lambda a, b: (LINALG.cross(a, b, dim=dim) ** 3).sum(), (0, 1))
    _, machine, compilation = machine_of(lambda a, b: (LINALG.cross(a, b, dim=dim) ** 3).sum(), (a, b))
    assert "call_kernel(" not in compilation.source()
    value, (by_a, by_b) = gradient(a, b)
    for got, expected in zip(machine.whole((a, b)), (value, by_a, by_b), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.quick
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)])
@pytest.mark.parametrize(("upper", "unitriangular"), [(False, False), (True, False), (False, True)])
def test_small_triangles_are_substituted_in_registers(shape: tuple[int, ...], upper: bool, unitriangular: bool) -> None:
    def function(a: Any, b: Any) -> Any:
        return (LINALG.solve_triangular(a, b, upper=upper, unitriangular=unitriangular) ** 3).sum()

    gradient = tape.value_and_grad(function, (0, 1))
    compiled = tape.compile(gradient, mode="max", check="never")
    for k in range(4):
        rng = np.random.default_rng(k)
        a, b = rng.normal(size=shape) + 3 * np.eye(shape[-1]), rng.normal(size=(*shape[:-1], 2))
        (value, slopes), (expected, expected_slopes) = compiled(a, b), gradient(a, b)
        assert value == pytest.approx(expected, rel=1e-12)
        for got, slope in zip(slopes, expected_slopes, strict=True):
            np.testing.assert_allclose(got, slope, rtol=1e-11, atol=1e-12)
    assert "by Python" not in compiled.explain()
    if not unitriangular:
        a[..., 1, 1] = 0.0
        with pytest.raises(np.linalg.LinAlgError, match="diagonal has a zero"):
            compiled(a, b)
