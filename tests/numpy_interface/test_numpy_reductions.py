"""NumPy's reductions on tensors, with every argument that they take: each gives what it gives on arrays, or raises."""

from __future__ import annotations

import inspect
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
RNG = np.random.default_rng(3)
MATRIX = RNG.normal(size=(3, 4))
ARRAYS: dict[str, Any] = {
    "matrix": MATRIX,
    "nan": np.where(MATRIX > 1, np.nan, MATRIX),
    "cube": RNG.normal(size=(2, 1, 3)),
    "number": np.array(2.5),
    "float32": MATRIX.astype(np.float32),
    "integers": np.array([[3, 1, 2], [0, 5, 4]]),
    "bools": np.array([[True, False], [True, True]]),
    "empty": np.zeros((0, 3)),
}
AXES = (None, (), 0, 1, -1, (0,), (0, 1), (-1, 0), (0, -2, 1), 3, -4, (0, 0))
FUNCTIONS = [
    *(np.sum, np.mean, np.prod, np.max, np.min, np.amax, np.amin, np.any, np.all, np.var, np.std, np.median, np.ptp),
    *(np.nansum, np.nanmean, np.nanprod, np.nanmax, np.nanmin, np.nanvar, np.nanstd, np.nanmedian),
    *(np.average, np.count_nonzero, np.argmax, np.argmin, np.nanargmax, np.nanargmin),
    *(np.cumsum, np.cumprod, np.nancumsum, np.nancumprod),
]
LEVELS = [np.quantile, np.percentile, np.nanquantile, np.nanpercentile]
UFUNCS = [np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or]


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what a call gives, or the exception that it raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception as e:  # noqa: BLE001 (what NumPy raises for odd arguments)
            return e


def agree(function: Any, array: Any, *args: Any, **kwargs: Any) -> None:
    """Check that a call on a tensor, with and without gradients, gives what it gives on an array."""
    expected = outcome(function, array, *args, **kwargs)
    for grad in (False, True)[: 1 + (array is MATRIX)]:
        x = tape.tensor(array, requires_grad=grad)
        got = outcome(function, x, *args, **kwargs)
        about = f"{function} of {array.dtype}{array.shape}{args}{kwargs}: {got!r}, not {expected!r}"
        if isinstance(expected, Exception):
            if (
                array.ndim == 0
                and isinstance(expected, np.exceptions.AxisError)
                and (0 in (*args, *kwargs.values()) or -1 in (*args, *kwargs.values()))
            ):
                continue  # 0-d tensors take the axes 0 and -1, as arrays do in NumPy's ufuncs only
            assert isinstance(got, (ValueError, TypeError, IndexError, RuntimeError)), about
            continue
        assert isinstance(got, tape.Tensor) or (isinstance(expected, int) and got == expected), about
        if not isinstance(got, tape.Tensor):
            continue
        value = got.detach().numpy()
        assert value.shape == np.shape(expected), about
        assert value.dtype == np.asarray(expected).dtype, about
        tolerance = 1e-5 if np.float32 in (value.dtype, array.dtype) or kwargs.get("dtype") == np.float32 else 1e-12
        assert np.allclose(value, expected, rtol=tolerance, atol=tolerance, equal_nan=True), about
        if grad and got.dtype.kind == "f" and got.requires_grad:
            got.sum().backward()
            assert x.grad is not None, about


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_axes(function: Any) -> None:
    for array, axis in itertools.product(ARRAYS.values(), AXES):
        if function in (np.average, np.median) and not array.size and axis is not None:
            continue  # NumPy divides by zero, or fails to reshape
        agree(function, array, axis)
        if "keepdims" in parameters(function):
            agree(function, array, axis=axis, keepdims=True)


@pytest.mark.parametrize("function", LEVELS)
def test_axes_of_quantiles(function: Any) -> None:
    for name, axis in itertools.product(ARRAYS.keys() - {"bools", "empty"}, AXES):
        array = ARRAYS[name]
        agree(function, array, 0.3, axis=axis)
        agree(function, array, [0.25, 0.5], axis, keepdims=True)


@pytest.mark.parametrize("ufunc", UFUNCS)
def test_axes_of_ufuncs(ufunc: Any) -> None:
    for name, axis in itertools.product(("matrix", "cube", "integers"), AXES):
        agree(ufunc.reduce, ARRAYS[name], axis=axis)
        agree(ufunc.reduce, ARRAYS[name], axis, None, None, True)
        agree(ufunc.reduce, ARRAYS[name], axis, initial=2, where=ARRAYS[name] > 0)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if "where" in parameters(f)])
def test_where_and_initial(function: Any) -> None:
    for name, axis in itertools.product(ARRAYS, AXES[:6]):
        array = ARRAYS[name]
        for where in (array > 0.5, True, False, np.ones(array.shape[-1:], bool), np.zeros(array.shape, bool)):
            agree(function, array, axis, where=where)
            if "initial" in parameters(function):
                agree(function, array, axis, where=where, initial=2)
        if "initial" in parameters(function):
            agree(function, array, axis, initial=0.5)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if "dtype" in parameters(f)])
def test_dtypes(function: Any) -> None:
    floating = "where" in parameters(function) and "ddof" in parameters(function)  # NumPy truncates on the way
    for name, dtype in itertools.product(ARRAYS, (np.float32, np.float64, "f4", float, np.int64, bool, int)):
        if floating and np.dtype(dtype).kind != "f":
            with pytest.raises(TypeError):
                function(tape.tensor(ARRAYS[name]), dtype=dtype)
            continue
        if ARRAYS[name].size or np.dtype(dtype).kind == "f":
            agree(function, ARRAYS[name], dtype=dtype)
            agree(function, ARRAYS[name], 0, dtype)


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if "ddof" in parameters(f)])
def test_corrections(function: Any) -> None:
    for name, axis in itertools.product(ARRAYS.keys() - {"number"}, AXES[:6]):
        array = ARRAYS[name]
        for kwargs in ({"ddof": 1}, {"ddof": 5}, {"correction": 1}, {"ddof": 1, "correction": 1}, {"ddof": 0.5}):
            agree(function, array, axis, **kwargs)
            agree(function, array, axis, where=array > 0, **kwargs)
        if "mean" in parameters(function) and array.dtype.kind == "f" and array.size:
            agree(function, array, axis, mean=np.mean(array, axis, keepdims=True))


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if "out" in parameters(f)])
def test_out(function: Any) -> None:
    array = MATRIX
    expected = function(array, 0)
    for out in (np.empty(4, expected.dtype), tape.empty(4, dtype=expected.dtype)):
        if isinstance(expected, np.ndarray) and expected.shape != (4,):
            continue
        assert function(tape.tensor(array), 0, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-12)
    with pytest.raises((ValueError, TypeError)):
        function(tape.tensor(array), 0, out=np.empty(7, expected.dtype))
    if expected.dtype.kind == "f" and expected.shape == (4,):
        x = tape.tensor(array, requires_grad=True)
        out = tape.zeros(4)
        function(x, axis=0, out=out).sum().backward()
        assert x.grad is not None
        with pytest.raises(TypeError, match="out= is a NumPy array, and the result requires grad"):
            function(x, axis=0, out=np.empty(4))
        with pytest.raises(TypeError, match="Cannot cast"):
            function(tape.tensor(array), axis=0, out=np.empty(4, int))


@pytest.mark.parametrize("axis", [*AXES, (1,)])
def test_flip_and_squeeze(axis: Any) -> None:
    for array in (*ARRAYS.values(), np.ones((1, 2, 1)), np.ones((1, 1))):
        agree(np.flip, array, axis)
        agree(np.squeeze, array, axis)
        agree(np.expand_dims, array, axis) if axis is not None else None
        agree(np.repeat, array, 2, axis)
        agree(np.repeat, array, [2], axis)
    x = tape.ones(2, 1)
    assert x.squeeze(0).shape == (2, 1)  # PyTorch's
    assert tape.sum(x, dim=()).shape == ()  # likewise
