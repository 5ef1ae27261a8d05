"""Banded, Toeplitz and sparse matrices against SciPy, and against dense matrices of the same elements."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

import tape
from tests.support.matrix_domains import differentiated

quick = pytest.mark.quick
rng = np.random.default_rng(6)
BANDS = rng.uniform(-0.5, 0.5, (4, 6)) + 3.0 * (np.arange(4) == 1)[:, None]
UPPER = rng.uniform(-0.5, 0.5, (3, 6)) + 3.0 * (np.arange(3) == 2)[:, None]
VECTOR, COLUMNS = rng.uniform(-1, 1, 6), rng.uniform(-1, 1, (6, 2))
DENSE = (rng.uniform(-1, 1, (6, 6)) + 3 * np.eye(6)) * (rng.random((6, 6)) < 0.4 + np.eye(6))
MATRIX = scipy.sparse.csr_array(DENSE)


@quick
def test_banded_solves_are_scipys() -> None:
    for b in (VECTOR, COLUMNS):
        found = tape.linalg.solve_banded((2, 1), tape.tensor(BANDS), b)
        np.testing.assert_array_equal(found.numpy(), scipy.linalg.solve_banded((2, 1), BANDS, b))
        found = tape.linalg.solveh_banded(tape.tensor(UPPER), b)
        np.testing.assert_array_equal(found.numpy(), scipy.linalg.solveh_banded(UPPER, b))
        found = tape.linalg.solve_toeplitz(tape.tensor(BANDS[1]), b)
        np.testing.assert_array_equal(found.numpy(), scipy.linalg.solve_toeplitz(BANDS[1], b))
    found = tape.linalg.solve_toeplitz((tape.tensor(BANDS[1]), BANDS[0]), VECTOR)
    np.testing.assert_array_equal(found.numpy(), scipy.linalg.solve_toeplitz((BANDS[1], BANDS[0]), VECTOR))


def test_gradients_reach_what_scipy_reads() -> None:
    bands, b = (tape.tensor(x, requires_grad=True) for x in (BANDS, VECTOR))
    tape.linalg.solve_banded((2, 1), bands, b).sum().backward()
    unused = np.zeros(BANDS.shape, bool)
    unused[0, 0] = unused[2, -1] = unused[3, -2:] = True
    assert ((bands.grad.numpy() == 0) == unused).all()
    differentiated(tape.linalg.solveh_banded, UPPER, VECTOR)
    differentiated(tape.linalg.solve_toeplitz, BANDS[1], VECTOR)


@pytest.mark.parametrize("bands", [(0, 0), (3, 0), (0, 2), (7, 1)], ids=str)
def test_bands_of_all_widths(bands: tuple[int, int]) -> None:
    lower, upper = bands
    ab = rng.uniform(-0.3, 0.3, (lower + upper + 1, 4))
    ab[upper] += 3
    differentiated(lambda ab, b: tape.linalg.solve_banded(bands, ab, b), ab, VECTOR[:4])


def test_bad_structures() -> None:
    x = tape.tensor(BANDS)
    with pytest.raises(ValueError, match=r"l\+u\+1"):
        tape.linalg.solve_banded((1, 1), x, VECTOR)
    with pytest.raises(ValueError, match="do not fit"):
        tape.linalg.solve_banded((2, 1), x, VECTOR[:3])
    with pytest.raises(ValueError, match="one length"):
        tape.linalg.solve_toeplitz((x[0], x[0, :2]), VECTOR)
    with pytest.raises(ValueError, match="row for each diagonal"):
        tape.linalg.solveh_banded(x[0], VECTOR)
    with pytest.raises(TypeError, match="dtype bool"):
        tape.linalg.solve_banded((2, 1), x > 0, VECTOR)
    for call in (
        lambda: tape.linalg.solve_banded((2, 1), x * 0, VECTOR),
        lambda: tape.linalg.solveh_banded(-x, VECTOR),
        lambda: tape.linalg.solve_toeplitz(x[0] * 0, VECTOR),
    ):
        with pytest.raises(tape.linalg.LinAlgError, match="singular"):
            call()


def made(data: Any = None, **kwargs: Any) -> tape.sparse.CSR:
    return tape.sparse.csr(MATRIX, tape.tensor(MATRIX.data, requires_grad=True) if data is None else data, **kwargs)


@quick
def test_sparse_products_and_solves_are_those_of_the_dense_matrix() -> None:
    for b in (VECTOR, COLUMNS):
        for sparse, dense in ((made(), DENSE), (made().T, DENSE.T)):
            x = tape.tensor(b, requires_grad=True)
            np.testing.assert_allclose((sparse @ x).detach().numpy(), dense @ b, rtol=1e-13)
            np.testing.assert_allclose(
                tape.sparse.spsolve(sparse, x).detach().numpy(), np.linalg.solve(dense, b), rtol=1e-11
            )
            value = (tape.sparse.spsolve(sparse, x) * (sparse @ x)).sum()
            value.backward()
            a, y = (tape.tensor(z, requires_grad=True) for z in (dense, b))
            (tape.linalg.solve(a, y) * (a @ y)).sum().backward()
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9)
            by_element = a.grad.numpy() if dense is DENSE else a.grad.numpy().T
            np.testing.assert_allclose(sparse.data.grad.numpy(), by_element[MATRIX.nonzero()], rtol=1e-9)
    assert "6 by 6" in repr(made())
    assert made().shape == made().T.shape == (6, 6)


def test_the_factors_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, splu = [], scipy.sparse.linalg.splu
    monkeypatch.setattr(scipy.sparse.linalg, "splu", lambda a: calls.append(1) or splu(a))
    a, b = made(), tape.tensor(VECTOR, requires_grad=True)
    x = b
    for _ in range(3):
        x = tape.sparse.spsolve(a, x)
    x.sum().backward()
    assert len(calls) == 1
    with tape.no_grad():
        a.data.mul_(2.0)
    np.testing.assert_allclose(tape.sparse.spsolve(a, VECTOR).detach().numpy(), np.linalg.solve(2 * DENSE, VECTOR))
    assert len(calls) == 2
    del a, x, b
    program = tape.record(lambda d, b: tape.sparse.spsolve(made(d), b).sum(), MATRIX.data, VECTOR)
    found = program.value_and_grad(3 * MATRIX.data, VECTOR)
    np.testing.assert_allclose(found[0], np.linalg.solve(3 * DENSE, VECTOR).sum(), rtol=1e-12)
    np.testing.assert_allclose(found[1][1], np.linalg.solve(3 * DENSE.T, np.ones(6)), rtol=1e-12)


def test_factors_go_with_the_values() -> None:
    a = tape.sparse.CSR([1.0, 2.0], [1, 0], [0, 1, 2], (2, 2))
    tape.sparse.spsolve(a, np.ones(2))
    pattern = a.pattern
    assert len(pattern._factors) == 1
    del a
    assert not pattern._factors
    again = pickle.loads(pickle.dumps(pattern))  # noqa: S301
    assert again is pattern


def test_forms_of_sparse_matrices() -> None:
    a = tape.sparse.CSR([1.0, 2.0, 3.0], [0, 0, 1], [0, 2, 3], (2, 2))
    assert a.to_dense().tolist() == [[3, 0], [0, 3]]
    assert a.T.to_dense().tolist() == a.T.to_scipy().toarray().tolist() == [[3, 0], [0, 3]]
    assert a.replaced(tape.zeros(3)).to_scipy().nnz == a.nnz == 3
    empty = tape.sparse.CSR(tape.zeros(0), [], [0, 0, 0], (2, 3))
    assert (empty @ tape.ones(3)).tolist() == [0, 0]


def test_bad_sparse_matrices() -> None:
    a = tape.sparse.CSR([1.0, 2.0, 3.0], [0, 0, 1], [0, 2, 3], (2, 2))
    for data, indices, indptr in (
        ([1.0], [0, 0, 1], [0, 2, 3]), ([1.0, 2.0, 3.0], [0, 2, 1], [0, 2, 3]), ([1.0, 2.0, 3.0], [0, 0, 1], [0, 2]),
        ([1.0, 2.0, 3.0], [0, 0, 1], [0, 3, 2]), ([1, 2, 3], [0, 0, 1], [0, 2, 3]), ([1.0], [0.5], [0, 1, 1]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="CSR"):
            tape.sparse.CSR(np.array(data), indices, indptr, (2, 2))
    with pytest.raises(ValueError, match="dimension mismatch"):
        a @ tape.ones(3)
    with pytest.raises(ValueError, match="values wanted"):
        a.replaced(tape.ones(2))
    with pytest.raises(ValueError, match="do not fit"):
        tape.sparse.spsolve(a, tape.ones(3))
    with pytest.raises(ValueError, match="square"):
        tape.sparse.spsolve(tape.sparse.CSR(tape.zeros(0), [], [0, 0, 0], (2, 3)), tape.ones(2))
    with pytest.raises(TypeError, match=r"tape\.sparse\.csr"):
        tape.sparse.spsolve(MATRIX, tape.ones(6))
    with pytest.raises(tape.linalg.LinAlgError, match="singular"):
        tape.sparse.spsolve(a.replaced(tape.tensor([1.0, -1.0, 1.0])), tape.ones(2))
