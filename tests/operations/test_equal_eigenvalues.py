"""Derivatives at equal eigenvalues and singular values, and at singular matrices: right, or nan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
L = tape.linalg
Q = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
EQUAL = [np.eye(3), np.diag([1.0, 1.0, 2.0]), Q @ np.diag([1.0, 1.0, 2.0]) @ Q.T]
SINGULAR = [np.array([[1.0, 2, 3], [4, 5, 6], [5, 7, 9]]), np.ones((3, 3)), np.zeros((3, 3)), np.diag([1.0, 0.0, 2.0])]


def derivatives(function: Callable[[Any], Any], a: Array) -> tuple[Array, Array]:
    """Return the gradient of a function of a matrix, and the Hessian, as matrices of elements."""
    x = tape.tensor(a, requires_grad=True)
    (gradient,) = tape.autograd.grad(function(x), x, create_graph=True)
    rows = [tape.autograd.grad(g, x, retain_graph=True)[0].numpy() for g in gradient.reshape(-1)]
    return gradient.detach().numpy(), np.array(rows).reshape(a.size, a.size)


def fine(function: Callable[[Any], Any], a: Array) -> None:
    """Check that nothing is finite and wrong: compared with central differences of the gradient."""
    gradient, hessian = derivatives(function, a)
    step = 1e-5
    for k, row in enumerate(hessian):
        moved = np.zeros(a.size)
        moved[k] = step
        up, down = (derivatives(function, a + sign * moved.reshape(a.shape))[0] for sign in (1, -1))
        np.testing.assert_allclose(row, (up - down).ravel() / (2 * step), rtol=1e-6, atol=1e-6)
        slope = function(tape.tensor(a + moved.reshape(a.shape))) - function(tape.tensor(a - moved.reshape(a.shape)))
        np.testing.assert_allclose(gradient.ravel()[k], slope.item() / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.quick
@pytest.mark.parametrize("a", SINGULAR)
def test_determinants_of_singular_matrices_have_two_derivatives(a: Array) -> None:
    fine(L.det, a)
    fine(lambda x: (L.det(x) + 1.0) ** 2, a)


@pytest.mark.parametrize("a", EQUAL)
@pytest.mark.parametrize("function", [lambda x: L.eigvalsh(x + x.T).sum(), lambda x: L.matrix_norm(x, "nuc")])
def test_sums_of_all_values_are_smooth_where_they_are_equal(function: Callable[[Any], Any], a: Array) -> None:
    fine(function, a)


@pytest.mark.parametrize("a", EQUAL[1:])
def test_a_value_that_is_alone_is_smooth_beside_equal_ones(a: Array) -> None:
    fine(lambda x: L.eigvalsh(x + x.T)[-1], a)
    fine(lambda x: L.matrix_norm(x, 2), a)
    x = tape.tensor(a, requires_grad=True)
    (L.eigh((x + x.T) / 2).eigenvectors[:, -1] ** 2)[0].backward()
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("a", EQUAL)
def test_what_equal_values_hide_is_nan(a: Array) -> None:
    def of_matrix(x: Any) -> Any:
        w, v = L.eigh((x + x.T) / 2)
        return ((v * w.log()) @ v.T)[0, 1]  # whose cotangents are zeros at the unit matrix, and whose gradient is not

    def of_values(x: Any) -> Any:
        return (L.eigvalsh((x + x.T) / 2).log() ** 2).sum()

    x = tape.tensor(a, requires_grad=True)
    of_matrix(x).backward()
    assert np.isnan(x.grad.numpy()).all()
    gradient, hessian = derivatives(of_values, a)
    w, v = np.linalg.eigh(a)
    np.testing.assert_allclose(gradient, (v * (2 * np.log(w) / w)) @ v.T, atol=1e-13)
    assert np.isnan(hessian).any(axis=1).all()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_singular_vectors_have_gradients_at_every_scale(scale: float) -> None:
    a = np.random.default_rng(1).normal(size=(4, 3))
    found = []
    for factor in (1.0, scale):
        x = tape.tensor(a * factor, requires_grad=True)
        u, _, vh = L.svd(x, full_matrices=False)
        (u[0, 0] * vh[1, 2]).backward()
        found.append(x.grad.numpy() * factor)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10)
