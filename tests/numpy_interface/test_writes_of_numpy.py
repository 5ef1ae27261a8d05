"""NumPy's functions that write, and Python's that round, divide and reverse: right with gradients, or a TypeError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

X = np.array([0.5, 1.0, 1.5, 2.0])
N = len(X)
INTO_ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "np.copyto": lambda a, t: np.copyto(a, t),  # noqa: PLW0108
    "np.put": lambda a, t: np.put(a, [0, 2], t[:2]),
    "np.put_along_axis": lambda a, t: np.put_along_axis(a, np.array([0, 2]), t[:2], 0),
    "np.place": lambda a, t: np.place(a, X > 1.0, t),
    "np.putmask": lambda a, t: np.putmask(a, X > 1.0, t),
    "np.add.at": lambda a, t: np.add.at(a, [0, 0], t[:2]),
    "np.multiply.at": lambda a, t: np.multiply.at(a, [0, 0], t[:2]),
    "np.maximum.at": lambda a, t: np.maximum.at(a, [1, 1], t[2:]),
    "np.clip": lambda a, t: np.clip(t, 0.7, 1.2, out=a),
    "np.clip ": lambda a, t: np.clip(t, 0.7, 1.2, a),
    "np.stack": lambda a, t: np.stack([t[:2], t[2:]], out=a.reshape(2, 2)),
    "np.concatenate": lambda a, t: np.concatenate([t[2:], t[:2]], out=a),
}


@pytest.mark.parametrize("name", INTO_ARRAYS)
def test_writes_into_arrays_are_numpys_or_name_the_function(name: str) -> None:
    run, found, expected = INTO_ARRAYS[name], np.ones(N), np.ones(N)
    run(expected, X)
    run(found, tape.tensor(X))
    np.testing.assert_array_equal(found, expected)
    before = found.copy()
    with pytest.raises(TypeError, match=rf"{name.strip()}: .* NumPy array"):
        run(found, tape.tensor(X, requires_grad=True))
    np.testing.assert_array_equal(found, before)


INTO_TENSORS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: run for name, run in INTO_ARRAYS.items() if name != "np.stack"},
    "twice": lambda a, t: np.multiply.at(a, [0, 1, 0], t[:3]),
    "minimum": lambda a, t: np.minimum.at(a, [1, 2], t[:2]),
    "a slice": lambda a, t: np.multiply.at(a, slice(1, 3), t[:2]),
}


@pytest.mark.parametrize("name", INTO_TENSORS)
def test_writes_into_tensors_have_gradients(name: str) -> None:
    run, slope, weights = INTO_TENSORS[name], 1e-6, np.arange(1.0, N + 1)

    def loss(x: Any, make: Any) -> Any:
        target = make(x)
        run(target, x * 1.1)
        return (target * weights).sum()

    x = tape.tensor(X, requires_grad=True)
    y = loss(x, lambda t: t * 0.9)
    y.backward()
    assert y.item() == pytest.approx(loss(X, lambda t: t * 0.9), rel=1e-14)
    ends = [[loss(X + sign * slope * unit, lambda t: t * 0.9) for sign in (1, -1)] for unit in np.eye(N)]
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [(up - down) / (2 * slope) for up, down in ends], atol=1e-7)


@pytest.mark.parametrize("run", [np.full, np.vectorize(lambda x: x * x), np.fill_diagonal])
def test_what_converts_its_arguments_names_itself(run: Any) -> None:
    x = tape.tensor(X, requires_grad=True)
    arguments = {np.full: (3, x[0]), np.fill_diagonal: (np.zeros((N, N)), x)}.get(run, (x,))
    with pytest.raises(TypeError, match=r"np\.(full|vectorize|fill_diagonal) computes on arrays"):
        run(*arguments)


def test_a_wrong_argument_names_the_function() -> None:
    with pytest.raises(TypeError, match=r"np\.copy of a tensor got an unexpected keyword argument 'subok'"):
        np.copy(tape.tensor(X), subok=True)  # type: ignore[call-overload]
    assert np.concatenate([tape.tensor(X), X], dtype=np.float32).dtype == np.float32
    assert np.full_like(tape.zeros(2), tape.tensor(3.0)).tolist() == [3.0, 3.0]  # type: ignore[call-overload]


def test_python_rounds_divides_and_reverses_tensors() -> None:
    x = tape.tensor(X, requires_grad=True)
    assert round(x * 1.07, 1).tolist() == np.round(X * 1.07, 1).tolist()
    assert round(x[0] * 1.5).item() == 1.0
    for one, other in ((divmod(x, 0.3), divmod(X, 0.3)), (divmod(3.1, x), divmod(3.1, X))):
        np.testing.assert_allclose([part.detach() for part in one], other)
    assert [part.item() for part in reversed(x)] == X[::-1].tolist()
    divmod(x, 0.3)[1].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * N


@pytest.mark.parametrize("knots", [[0.0, 1.0, 1.0, 3.0], [0.0, 0.0, 2.0, 2.0], [1.0]])
def test_equal_knots_and_one_knot_are_numpys(knots: list[float]) -> None:
    values, points = np.arange(1.0, 1.0 + len(knots)) ** 2, np.array([-1.0, 0.3, 1.0, 1.7, 2.0, 2.5, 4.0])
    fp = tape.tensor(values, requires_grad=True)
    x = tape.tensor(points, requires_grad=True)
    y = np.interp(x, knots, fp)
    np.testing.assert_array_equal(y.detach().numpy(), np.interp(points, knots, values))
    at_x, at_fp = tape.autograd.grad(y.sum(), (x, fp))
    slopes = [np.interp(points, knots, row).sum() for row in np.eye(len(knots))]  # it is linear in the values
    np.testing.assert_allclose(at_fp.numpy(), slopes, rtol=1e-14)
    inside = ~np.isin(points, knots)
    ends = [np.interp(points + step, knots, values) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(at_x.numpy()[inside], ((ends[0] - ends[1]) / 2e-6)[inside], atol=1e-6)
    np.testing.assert_array_equal(
        np.interp(x, knots, fp, left=-1.0, right=9.0).detach().numpy(), np.interp(points, knots, values, -1.0, 9.0)
    )
