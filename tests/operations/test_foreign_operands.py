"""Operands that are no tensors: array-likes are converted, everything else gets the turn of its own operators."""

from __future__ import annotations

import array
import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tape

VALUES = [1.0, -2.0, 3.0]


class Says:
    """An array-like by ``__array__``."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(VALUES)


class Shows:
    """An array-like by ``__array_interface__``."""

    _values = np.array(VALUES)
    __array_interface__ = _values.__array_interface__


class Foreign:
    """Something that knows tensors better than they know it."""

    def _turn(self, _other: Any) -> str:
        return "theirs"

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __rmatmul__ = __rfloordiv__ = __rmod__ = _turn
    __gt__ = __lt__ = __ge__ = __le__ = __eq__ = __ne__ = __rand__ = _turn  # type: ignore[assignment]
    __hash__ = object.__hash__


class WithUfunc(Foreign):
    """One whose operators NumPy's arrays leave the work to."""

    __array_ufunc__ = None

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(VALUES)


class Above(Says):
    """An array-like of a higher priority."""

    __array_priority__ = 1e9

    def __radd__(self, _other: Any) -> str:
        return "theirs"


def array_likes() -> dict[str, Any]:
    found = {
        "list": list(VALUES),
        "tuple": tuple(VALUES),
        "integers": [1, 2, 3],
        "nested": [VALUES, VALUES],
        "range": range(1, 4),
        "array.array": array.array("d", VALUES),
        "memoryview": memoryview(array.array("d", VALUES)),
        "__array__": Says(),
        "__array_interface__": Shows(),
    }
    try:
        import pandas as pd
    except ImportError:
        return found
    return {**found, "Series": pd.Series(VALUES), "DataFrame": pd.DataFrame([VALUES])}


ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("name", array_likes())
def test_array_likes_are_converted(name: str) -> None:
    other = array_likes()[name]
    values, plain = np.array([0.5, 2.0, -1.5]), np.asarray(other)
    for op in (*ARITHMETIC, *COMPARISONS):
        x = tape.tensor(values, requires_grad=True)
        for found, expected in ((op(x, other), op(values, plain)), (op(other, x), op(plain, values))):
            assert type(found) is tape.Tensor
            np.testing.assert_array_equal(found.detach().numpy(), expected)
            assert found.dtype == expected.dtype
    x = tape.tensor(values, requires_grad=True)
    (x * other).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), plain.reshape(-1, 3).sum(0))
    np.testing.assert_array_equal(np.multiply(x, other).detach().numpy(), values * plain)
    np.testing.assert_array_equal(tape.maximum(x, other).detach().numpy(), np.maximum(values, plain))
    if plain.ndim == 1:
        assert (x @ other).item() == pytest.approx(values @ plain)
    y = x * 1.0
    if plain.shape == (3,):
        y += other
        y[:] = other
        np.testing.assert_array_equal(y.detach().numpy(), plain)


@pytest.mark.parametrize("kind", [Foreign, WithUfunc])
def test_foreign_operands_get_their_turn(kind: Any) -> None:
    x = tape.tensor(VALUES, requires_grad=True)
    for op in (*ARITHMETIC, *COMPARISONS, operator.pow, operator.matmul):
        assert op(x, kind()) == "theirs"
    assert (tape.tensor([True]) & kind()) == "theirs"
    assert x + Above() == "theirs"
    for other in (None, "a", object(), {1: 2}, {1}, 1j, Fraction(1, 2)):
        with pytest.raises(TypeError, match=r"unsupported operand|not supported|concatenate"):
            x + other
        with pytest.raises(TypeError, match=r"unsupported operand|not supported|concatenate"):
            other + x
        with pytest.raises(TypeError):
            x @ other
        with pytest.raises(TypeError):
            operator.lt(x, other)
        assert (x == other) is False
        assert (x != other) is True
        with pytest.raises(TypeError, match="an operand is a"):
            tape.add(x, other)


def test_what_would_lose_a_gradient_is_refused() -> None:
    x = tape.tensor(VALUES, requires_grad=True)
    with pytest.raises(TypeError, match=r"list of tensors that require grad; write tape\.stack"):
        x * [x[0], 2.0, 1.0]
    assert (x * [tape.tensor(2.0), 1.0, 1.0]).tolist() == [2.0, -2.0, 3.0]
    with pytest.raises(TypeError, match="an operand is a list of"):
        x * ["a", "b", "c"]
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    for op in (operator.add, operator.mul):
        with pytest.raises(TypeError, match=r"csr_matrix; write its toarray\(\), or tape\.sparse\.csr"):
            op(x, matrix)
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            op(matrix, x)


def test_data_arrays_keep_their_names() -> None:
    xarray = pytest.importorskip("xarray")
    named = xarray.DataArray(VALUES, dims="t")
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for found in (x * named, named * x):
        assert isinstance(found, xarray.DataArray)
        assert found.dims == ("t",)
        (gradient,) = tape.autograd.grad(found.data.sum(), x)
        assert gradient.tolist() == VALUES


def test_frames_and_tensors() -> None:
    pd = pytest.importorskip("pandas")
    x = tape.tensor(VALUES, requires_grad=True)
    assert pd.Series(x.detach()).tolist() == VALUES
    assert pd.Series(x.detach().numpy()).sum() == 2.0
    assert pd.DataFrame({"a": x.detach()})["a"].tolist() == VALUES
    with pytest.raises(RuntimeError, match="detach"):
        pd.Series(x)
    (pd.Series(VALUES) * x).sum().backward()
    assert x.grad.tolist() == VALUES


def test_numpy_s_helpers_take_tensors() -> None:
    x = tape.tensor(VALUES, requires_grad=True)
    np.testing.assert_allclose(x.detach(), VALUES)
    np.testing.assert_array_equal(tape.tensor([1, 2]), [1, 2])
    with pytest.raises(AssertionError, match="Mismatched elements"):
        np.testing.assert_allclose(x.detach(), [1.0, 2.0, 3.0])
    assert np.allclose(x, VALUES)
    assert [e.item() for e in x] == VALUES
    assert [e.item() for e in sorted(x)] == sorted(VALUES)
    total = sum(x)
    assert total.requires_grad
    assert total.item() == 2.0
    assert max(x).item() == 3.0
    assert min(x).item() == -2.0
    assert f"{x[0]:.3f} {x[1]:8.2e} {x.sum():g}" == "1.000 -2.00e+00 2"
    assert f"{tape.tensor(3):04d}" == "0003"
    assert f"{x.detach()}".startswith("tensor(")


@pytest.mark.filterwarnings("ignore::tape.errors.DetachWarning")
def test_plots() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    x, y = tape.linspace(0.0, 1.0, 5), tape.linspace(0.0, 1.0, 5) ** 2
    figure, axes = plt.subplots()
    (line,) = axes.plot(x, y)
    np.testing.assert_array_equal(line.get_ydata(), y.numpy())
    axes.plot(y)
    axes.scatter(x, y, c=y, s=10 * y + 1)
    axes.imshow(x[:, None] * y)
    axes.bar(x, y, width=0.1)
    axes.fill_between(x, y, y + 1)
    axes.errorbar(x, y, yerr=0.1 * y)
    axes.hist(y)
    axes.axhline(y[1])
    axes.contour(x[:, None] * y)
    axes.set_xlim(x[0], x[-1])
    axes.semilogy(x, y + 1)
    axes.quiver(x, y, x, y)
    figure.canvas.draw()
    z = y.requires_grad_()
    for draw in (
        lambda: axes.plot(x, z),
        lambda: axes.plot(z),
        lambda: axes.scatter(x, z),
        lambda: axes.imshow(z[None]),
    ):
        with pytest.raises((RuntimeError, TypeError), match=r"detach\(\)"):
            draw()
    axes.plot(x, z.detach())
    plt.close(figure)
