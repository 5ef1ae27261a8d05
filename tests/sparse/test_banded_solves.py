"""Solves with narrow sparse patterns, in any order of their unknowns, against SciPy and dense matrices."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import tape
from tests.support.matrix_domains import differentiated

quick = pytest.mark.quick


def permuted_band(n: int, below: int, above: int, seed: int, *, permuted: bool = True) -> Any:
    """Return a banded matrix in another order, with gaps; its diagonal is small, so that pivots are exchanged."""
    rng = np.random.default_rng(seed)
    i, j = np.indices((n, n))
    dense = rng.uniform(-1, 1, (n, n)) * ((i - j <= below) & (j - i <= above)) * (rng.random((n, n)) < 0.9)
    dense = dense * np.where(i == j, 1e-3, 1.0)
    order = rng.permutation(n) if permuted else np.arange(n)
    return scipy.sparse.csr_array(dense[order][:, order])


def is_regular(matrix: Any) -> bool:
    dense = matrix.toarray()
    return bool(matrix.nnz and np.linalg.matrix_rank(dense) == len(dense) and np.linalg.cond(dense) < 1e8)


def solved(pattern: Any, data: Any, b: Any, *, trans: bool = False) -> Any:
    matrix = tape.sparse.csr(pattern, data)
    return tape.sparse.spsolve(matrix.T if trans else matrix, b)


@quick
@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(0, 3), st.integers(0, 3), st.integers(0, 99), st.booleans(), st.integers(0, 2))
def test_solutions_are_scipys(n: int, below: int, above: int, seed: int, trans: bool, k: int) -> None:
    matrix = permuted_band(n, below, above, seed)
    b = np.random.default_rng(seed).normal(size=(n, k) if k else n)
    dense = matrix.toarray().T if trans else matrix.toarray()
    if not is_regular(matrix):
        return
    found = solved(matrix, tape.tensor(matrix.data), b, trans=trans).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = scipy.sparse.linalg.spsolve(scipy.sparse.csc_array(dense), b).reshape(b.shape)
    tolerance = 1e-14 * np.linalg.cond(dense) * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=max(tolerance, 1e-12))


@quick
def test_narrow_patterns_are_found_in_any_order() -> None:
    for below, above in ((1, 1), (2, 2), (0, 3), (3, 1)):
        matrix = permuted_band(40, below, above, 1)
        band = tape.sparse.csr(matrix).pattern.band
        assert band is not None
        assert band.below + band.above <= 4 * max(below, above)
    line = scipy.sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(60, 60))
    one = scipy.sparse.eye_array(60)
    grid = scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line)
    arrow = scipy.sparse.csr_array((np.ones(3000), (np.zeros(3000, int), np.arange(3000))), (3000, 3000))
    for wide in (grid, arrow, arrow.T):
        assert tape.sparse.csr(wide).pattern.band is None
    twice = tape.sparse.CSR([1.0, 2.0, 3.0, 1.0, 1.0], [0, 0, 1, 2, 3], [0, 2, 3, 4, 5], (4, 4))
    assert twice.pattern.band is None
    assert tape.sparse.spsolve(twice, tape.ones(4)).tolist() == [1 / 3, 1 / 3, 1.0, 1.0]


CASES = {"vector": (), "columns": (2,), "transposed": ()}


@quick
@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives(name: str) -> None:
    matrix = permuted_band(12, 1, 2, 342)
    assert tape.sparse.csr(matrix).pattern.band is not None
    assert is_regular(matrix)
    data = matrix.data / np.abs(matrix.data).max()
    b = np.random.default_rng(0).normal(size=(12, *CASES[name]))
    differentiated(lambda data, b: solved(matrix, data, b, trans=name == "transposed") * 0.01, data, b)

    def by_dense(data: Any, b: Any) -> Any:
        dense = tape.sparse.csr(matrix, data).to_dense()
        return tape.linalg.solve(dense.T if name == "transposed" else dense, b)

    def by_band(data: Any, b: Any) -> Any:
        return solved(matrix, data, b, trans=name == "transposed")

    rng = np.random.default_rng(1)
    points = tape.tensor(data), tape.tensor(b)
    directions = tape.tensor(rng.normal(size=data.shape)), tape.tensor(rng.normal(size=b.shape))
    for function in (lambda f: f(*points), lambda f: tape.func.jvp(f, points, directions)[1]):
        np.testing.assert_allclose(function(by_band).numpy(), function(by_dense).numpy(), rtol=1e-8)
    hessians = [tape.func.hessian(lambda d, f=f: (f(d, points[1]) ** 2).sum())(points[0]) for f in (by_band, by_dense)]
    np.testing.assert_allclose(hessians[0].numpy(), hessians[1].numpy(), rtol=1e-7, atol=1e-6)
    batch = tape.func.vmap(by_band, in_dims=(None, 0))(points[0], tape.stack([points[1], 2.0 * points[1]]))
    np.testing.assert_allclose(batch[1].numpy(), 2.0 * by_dense(*points).numpy(), rtol=1e-8)


@quick
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [0, 2])
def test_compiled_programs_solve_themselves(dtype: type, k: int) -> None:
    matrix = permuted_band(30, 2, 1, 3)
    tight = 1e-7 if dtype is np.float64 else 2e-2

    def loss(data: Any, b: Any) -> Any:
        a = tape.sparse.csr(matrix, data)
        x = tape.sparse.spsolve(a, b)
        return (x * tape.sparse.spsolve(a.T, b * 0.5)).sum() + (x[::2] * b[::2]).sum()

    compiled = tape.compile(tape.value_and_grad(loss, (0, 1)), mode="max")
    data = (matrix.data + 1e-2).astype(dtype)
    for seed in range(5):
        b = np.random.default_rng(seed).normal(size=(30, k) if k else 30).astype(dtype)
        value, gradients = compiled(data.copy(), b)
        expected, others = tape.value_and_grad(loss, (0, 1))(data, b)
        np.testing.assert_allclose(value, expected, rtol=tight)
        for one, other in zip(gradients, others, strict=True):
            np.testing.assert_allclose(one, other, rtol=tight, atol=tight * np.abs(other).max())
    assert compiled.calls["recorded"] <= 2
    explained = str(compiled.explain())
    assert "machine code" in explained
    assert "by Python" not in explained


@quick
def test_singular_matrices_raise() -> None:
    matrix = permuted_band(8, 1, 1, 0)

    def solution(data: Any, b: Any) -> Any:
        return solved(matrix, data, b).sum()

    compiled = tape.compile(tape.value_and_grad(solution), mode="max")
    for _ in range(4):
        compiled(matrix.data.copy(), np.ones(8))
    zeros = np.where(matrix.nonzero()[0] == 3, 0.0, matrix.data)
    for function in (solution, compiled):
        with pytest.raises(tape.linalg.LinAlgError, match="singular"):
            function(zeros, np.ones(8))
        assert np.isnan(np.asarray(function(zeros * np.nan, np.ones(8))[0] if function is compiled else np.nan))
    value, _ = compiled(matrix.data.copy(), np.ones(8))
    np.testing.assert_allclose(value, np.linalg.solve(matrix.toarray(), np.ones(8)).sum(), rtol=1e-9)
