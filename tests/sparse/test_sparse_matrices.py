"""Sparse matrices against SciPy's: products with tensors on either side, sums of duplicates, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tape

quick = pytest.mark.quick
rng = np.random.default_rng(1)
MATRIX = scipy.sparse.random_array((4, 5), density=0.5, random_state=1).tocsr()
DENSE = MATRIX.toarray()
OTHER = scipy.sparse.random_array((5, 3), density=0.5, random_state=2).tocsr()
ROW, COLUMN = rng.normal(size=5), rng.normal(size=(4, 1))
FORMATS = ("csr", "csc", "coo", "dia", "lil", "dok", "bsr")


def dense(matrix: Any) -> Any:
    return matrix.to_dense().detach().numpy()


@quick
@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix], ids=lambda k: k.__name__)
@pytest.mark.parametrize("layout", FORMATS)
def test_scipys_matrices_times_tensors(layout: str, kind: Any) -> None:
    matrix = kind(MATRIX).asformat(layout)
    for shape in ((5,), (5, 2), (5, 1)):
        for wanted in (False, True):
            x = tape.tensor(rng.normal(size=shape), requires_grad=wanted)
            y = matrix @ x
            assert type(y) is tape.Tensor
            np.testing.assert_allclose(y.detach().numpy(), DENSE @ x.detach().numpy())
            if wanted:
                (y * y).sum().backward()
                np.testing.assert_allclose(x.grad.numpy(), 2.0 * DENSE.T @ y.detach().numpy())
    for shape in ((4,), (3, 4)):
        x = tape.tensor(rng.normal(size=shape), requires_grad=True)
        y = x @ matrix
        np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy() @ DENSE)
        y.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), np.ones(y.shape) @ DENSE.T)


@quick
def test_products_within_transforms() -> None:
    x, t = rng.normal(size=5), rng.normal(size=5)
    _, tangent = tape.func.jvp(lambda u: MATRIX @ u, (tape.tensor(x),), (tape.tensor(t),))
    np.testing.assert_allclose(tangent.numpy(), DENSE @ t)
    batch = tape.vmap(lambda u: MATRIX @ u)(tape.tensor(np.stack([x, t])))
    np.testing.assert_allclose(batch.numpy(), np.stack([DENSE @ x, DENSE @ t]))
    hessian = tape.func.hessian(lambda u: ((MATRIX @ u) ** 2).sum())(x)
    np.testing.assert_allclose(hessian, 2.0 * DENSE.T @ DENSE)
    pattern = tape.sparse.jacobian(lambda u: (MATRIX @ u) * u[:4]).pattern(x).toarray()
    assert (pattern == ((DENSE != 0) | np.eye(4, 5, dtype=bool))).all()


@quick
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_compiled_functions_see_a_matrix_that_changes(layout: str) -> None:
    matrix = MATRIX.copy().asformat(layout)

    @tape.compile
    def product(u: Any) -> Any:
        return (matrix @ u) * u[:4]

    x = rng.normal(size=5)
    for factor in (1.0, 2.0):
        matrix.data[:] *= factor
        for _ in range(6):
            np.testing.assert_allclose(product(x), (matrix.toarray() @ x) * x[:4])
    assert product.calls["dynamic"] == 0


@quick
def test_dtypes_and_refusals() -> None:
    single = tape.ones(5, dtype=tape.float32)
    assert (MATRIX @ single).dtype == tape.float64
    assert (MATRIX.astype(np.float32) @ single).dtype == tape.float32
    assert (scipy.sparse.eye_array(5, dtype=int).tocsr() @ single).dtype == tape.float32
    with pytest.raises(ValueError, match="dimension mismatch"):
        MATRIX @ tape.ones(4)
    with pytest.raises(TypeError, match="complex128"):
        MATRIX.astype(complex) @ tape.ones(5)
    with pytest.raises(TypeError, match=r"tape\.sparse\.CSR"):
        MATRIX * tape.ones(5, requires_grad=True)


ALGEBRA: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "times sparse": (lambda a: a @ OTHER, lambda d: d @ OTHER.toarray()),
    "sparse times": (lambda a: OTHER.T @ a.T, lambda d: OTHER.toarray().T @ d.T),
    "times itself": (lambda a: a @ a.T, lambda d: d @ d.T),
    "turned times itself": (lambda a: a.T @ a, lambda d: d.T @ d),
    "plus": (lambda a: a + 2.0 * MATRIX, lambda d: d + 2.0 * DENSE),
    "minus": (lambda a: MATRIX - a * a.data.sum(), lambda d: DENSE - d * d.sum()),
    "less": (lambda a: a - MATRIX, lambda d: d - DENSE),
    "by a number": (lambda a: -(3.0 * a.T) / 2.0, lambda d: -(3.0 * d.T) / 2.0),
    "columns scaled": (lambda a: a * ROW, lambda d: d * ROW),
    "rows scaled": (lambda a: tape.tensor(COLUMN) * a, lambda d: d * COLUMN),
}


@quick
@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra_and_its_gradients(name: str) -> None:
    on_sparse, on_dense = ALGEBRA[name]
    values = tape.tensor(MATRIX.data, requires_grad=True)
    full = tape.tensor(DENSE, requires_grad=True)
    found, expected = on_sparse(tape.sparse.csr(MATRIX, values)), on_dense(full)
    np.testing.assert_allclose(dense(found), expected.detach().numpy(), atol=1e-14)
    (found.to_dense() ** 2).sum().backward()
    (expected**2).sum().backward()
    rows = np.repeat(np.arange(4), np.diff(MATRIX.indptr))
    np.testing.assert_allclose(values.grad.numpy(), full.grad.numpy()[rows, MATRIX.indices], atol=1e-12)


@quick
def test_sums_and_diagonals() -> None:
    matrix = tape.sparse.csr(MATRIX)
    for one, array in ((matrix, DENSE), (matrix.T, DENSE.T)):
        np.testing.assert_allclose(one.diagonal().numpy(), np.diagonal(array))
        for axis in (0, 1, -1):
            np.testing.assert_allclose(one.sum(axis).numpy(), array.sum(axis))
        np.testing.assert_allclose(one.sum().item(), array.sum())
    np.testing.assert_allclose((np.ones(4) @ matrix).numpy(), DENSE.sum(0))


@quick
def test_duplicates_add_up() -> None:
    values = tape.tensor(rng.normal(size=(3, 2, 2)), requires_grad=True)
    rows, columns = rng.integers(0, 3, (3, 2, 2)), rng.integers(0, 4, (3, 2, 2))
    matrix = tape.sparse.coo(values, (rows, tape.tensor(columns)), (3, 4))
    flat = values.detach().numpy().ravel(), (rows.ravel(), columns.ravel())
    expected = scipy.sparse.coo_array(flat, shape=(3, 4)).tocsr()
    np.testing.assert_allclose(dense(matrix), expected.toarray())
    assert matrix.nnz == expected.nnz
    (matrix.data**2).sum().backward()
    np.testing.assert_allclose(values.grad.numpy(), 2.0 * expected.toarray()[rows, columns])
    assert tape.sparse.coo(np.zeros(0), ([], []), (2, 0)).shape == (2, 0)


@quick
def test_assembled_matrices_are_solved_in_programs() -> None:
    """A chain of springs, assembled from matrices of elements: the stiffness is what is differentiated by."""
    n = 6
    at = np.stack([np.arange(n), np.arange(1, n + 1)], 1)
    rows, columns = np.repeat(at, 2, 1).reshape(n, 2, 2), np.tile(at, 2).reshape(n, 2, 2)

    def tip(stiffness: Any) -> Any:
        elements = stiffness[:, None, None] * tape.tensor([[1.0, -1.0], [-1.0, 1.0]])
        support = tape.sparse.coo([1e3], ([0], [0]), (n + 1, n + 1))
        load = np.eye(n + 1)[n]
        return tape.sparse.spsolve(tape.sparse.coo(elements, (rows, columns), (n + 1, n + 1)) + support, load)[n]

    springs = rng.uniform(1.0, 2.0, n)
    both = tape.compile(tape.value_and_grad(tip))
    for _ in range(5):
        value, gradient = both(springs)
        np.testing.assert_allclose(value, 1e-3 + (1.0 / springs).sum())
        np.testing.assert_allclose(gradient, -1.0 / springs**2)


@quick
@pytest.mark.parametrize(
    ("indices", "shape", "message"),
    [
        (([0, 1], [0]), (2, 2), "one of each"),
        (([0, 2], [0, 1]), (2, 2), "a row is out of range"),
        (([0, 1], [0, -1]), (2, 2), "a column is out of range"),
        (([0.0, 1.0], [0, 1]), (2, 2), "integers"),
    ],
)
def test_bad_indices(indices: Any, shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tape.sparse.coo([1.0, 2.0], indices, shape)
    with pytest.raises(ValueError, match="scaled by"):
        tape.sparse.csr(MATRIX) * np.ones(3)
    with pytest.raises(ValueError, match="inconsistent shapes"):
        tape.sparse.csr(MATRIX) + OTHER
    with pytest.raises(ValueError, match="dimension mismatch"):
        tape.sparse.csr(MATRIX) @ MATRIX


@pytest.mark.quick
@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda matrix, t: matrix.dot(t), "A @ t"),
        (lambda matrix, t: matrix * t, r"tape\.sparse\.csr\(A\) \* t"),
        (lambda matrix, t: matrix.multiply(t), r"tape\.sparse\.csr\(A\) \* t"),
        (lambda matrix, t: matrix / t, r"tape\.sparse\.csr\(A\) / t"),
    ],
)
def test_methods_of_scipys_matrices_say_what_to_write(call: Any, advice: str) -> None:
    matrix = scipy.sparse.coo_array(np.array([[2.0, 1.0], [0.0, 3.0]]))
    t = tape.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError, match=advice):
        call(matrix, t)
    expected = matrix.toarray() * np.array([1.0, 2.0])
    np.testing.assert_array_equal((tape.sparse.csr(matrix) * t).to_dense().detach().numpy(), expected)
