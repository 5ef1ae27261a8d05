"""Fortran's order in reshape, ravel and flatten, windows that slide, and SciPy's form of solve_triangular."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tape
from tape import array_api

A = np.arange(24.0).reshape(2, 3, 4)
ORDERED: dict[str, Any] = {
    "reshape": lambda a: np.reshape(a, (4, 6), order="F"),
    "reshape to a guess": lambda a: np.reshape(a, (3, -1), order="F"),
    "reshape to one": lambda a: np.reshape(a, -1, order="F"),
    "ravel": lambda a: np.ravel(a, order="F"),
    "x.ravel(order)": lambda a: a.ravel(order="F"),
    "x.ravel('F')": lambda a: a.ravel("F"),
    "x.ravel()": lambda a: a.ravel(),
    "x.flatten(order)": lambda a: a.flatten(order="F"),
    "x.flatten('F')": lambda a: a.flatten("F"),
    "x.flatten('C')": lambda a: a.flatten("C"),
    "x.flatten()": lambda a: a.flatten(),
    "windows of one axis": lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=1),
    "windows of two axes": lambda a: np.lib.stride_tricks.sliding_window_view(a, (2, 3), axis=(0, 2)),
    "windows of all axes": lambda a: np.lib.stride_tricks.sliding_window_view(a, (1, 2, 2)),
    "windows of an axis twice": lambda a: np.lib.stride_tricks.sliding_window_view(a, (2, 2), axis=(2, 2)),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("turned", [False, True])
def test_orders_and_windows_are_numpys(name: str, turned: bool) -> None:
    a = A.T if turned else A
    if name.startswith("windows") and turned:
        a = np.ascontiguousarray(a.T).copy()
    x = tape.tensor(a, requires_grad=True)
    got, expected = ORDERED[name](x), ORDERED[name](a)
    np.testing.assert_array_equal(got.detach().numpy(), expected)
    weights = np.cos(np.arange(expected.size)).reshape(expected.shape)
    (got * weights).sum().backward()
    places = ORDERED[name](np.arange(a.size).reshape(a.shape)).ravel()
    np.testing.assert_allclose(x.grad.numpy().ravel(), np.bincount(places, weights.ravel(), a.size))


def test_a_flattened_copy_is_one() -> None:
    x = tape.tensor(A)
    assert not np.shares_memory(x.flatten("C").numpy(), x.numpy())
    with pytest.raises(TypeError, match="order"):
        x.ravel(order="K")
    with pytest.raises(ValueError, match="2 extents of windows for 1 axes"):
        np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=1)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", [0, "T"])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("columns", [None, 2])
def test_solve_triangular_as_scipys(lower: bool, trans: Any, unit_diagonal: bool, columns: int | None) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(3, 3)) + 3 * np.eye(3), rng.normal(size=(3,) if columns is None else (3, columns))
    arguments = {"lower": lower, "trans": trans, "unit_diagonal": unit_diagonal}
    x, y = tape.tensor(a, requires_grad=True), tape.tensor(b, requires_grad=True)
    got = tape.linalg.solve_triangular(x, y, **arguments)
    np.testing.assert_allclose(got.detach().numpy(), scipy.linalg.solve_triangular(a, b, **arguments), rtol=1e-12)
    assert tape.autograd.gradcheck(lambda x, y: tape.linalg.solve_triangular(x, y, **arguments), (x, y))
    np.testing.assert_allclose(
        tape.linalg.solve_triangular(a, b).numpy(), scipy.linalg.solve_triangular(a, b), rtol=1e-12
    )


def test_solve_triangular_takes_one_form() -> None:
    upper, vector = np.triu(np.arange(1.0, 10.0).reshape(3, 3)), np.ones(3)
    for trans in ("N", 1, 2, "C"):
        np.testing.assert_allclose(
            tape.linalg.solve_triangular(upper, vector, trans=trans).numpy(),
            scipy.linalg.solve_triangular(upper, vector, trans=trans),
        )
    a, b = tape.eye(2), tape.ones(2, 1)
    with pytest.raises(TypeError, match="give upper"):
        tape.linalg.solve_triangular(a, b, upper=True, lower=True)
    with pytest.raises(ValueError, match="trans is 0"):
        tape.linalg.solve_triangular(a, b, trans="X")


def test_the_namespace_has_what_xarray_asks_for() -> None:
    x = tape.tensor(A, requires_grad=True)
    namespace = x.__array_namespace__()
    assert namespace is array_api
    calls: list[Any] = [
        lambda xp, a: xp.pad(a, ((0, 0), (1, 2), (0, 1))),
        lambda xp, a: xp.einsum("ijk,ijk->i", a, a),
        lambda xp, a: xp.gradient(a, np.array([0.0, 1.0, 3.0, 4.0]), axis=2),
        lambda xp, a: xp.transpose(a, (2, 0, 1)),
        lambda xp, a: xp.cumsum(a, axis=1),
        lambda xp, a: xp.cumprod(a, axis=0),
        lambda xp, a: xp.lib.stride_tricks.sliding_window_view(a, 2, axis=2),
    ]
    for call in calls:
        got = call(namespace, x)
        assert got.requires_grad
        np.testing.assert_allclose(got.detach().numpy(), call(np, A), rtol=1e-13)
    np.testing.assert_array_equal(namespace.isin(x, [3.0]).numpy(), np.isin(A, [3.0]))
    np.testing.assert_allclose(
        tape.tensordot(x, x, axes=([0, 1], [0, 1])).detach().numpy(), np.tensordot(A, A, ([0, 1],) * 2)
    )
