"""New tensors: from data, filled and ranges. Factories take ``dtype``, ``device`` and ``requires_grad``."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.native.pool import reused_arrays
from tape.foundation.devices import check_device
from tape.foundation.dtypes import DEFAULT, check_gradient, dtype_of, get_default_dtype
from tape.recording import casts, record
from tape.recording.views import clone, stack
from tape.tensors.modes import ON_MADE
from tape.tensors.operands import native, plainly, usable
from tape.tensors.tensor import Array, Tensor, as_array, carried, leaf, made, method, plain
from tape.tensors.view_families import show

_FLOAT64 = np.dtype(np.float64)


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return a new leaf holding a copy of data: a number, nested lists, an array.

    Python floats become the default dtype, ints int64, bools bool; arrays keep their dtype. A list with tensors
    that require grad in it is recorded as a stack.
    """
    if device is not None:
        check_device(device)
    if dtype is _FLOAT64 or (dtype is None and DEFAULT["dtype"] is _FLOAT64):
        found: Tensor | None = None if ON_MADE else made(data, requires_grad)
        if found is not None:
            return found
        if type(data) is float:
            return leaf(data, requires_grad=requires_grad)
        if type(data) is np.ndarray and data.dtype is _FLOAT64 and data.ndim:
            return leaf(
                reused_arrays.call(data.copy) if data.nbytes >= reused_arrays.LARGE else data.copy(),
                requires_grad=requires_grad,
            )
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than tape.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        record.left(data)
        data = as_array(data)
    elif isinstance(data, (list, tuple)) and _holds_tensors(data):
        return _stacked(data, dtype, requires_grad=requires_grad)
    array = _array(data, dtype, copy=True)
    if requires_grad:
        check_gradient(array.dtype)
    return leaf(array if array.ndim else carried(array), requires_grad=requires_grad)


def _array(data: Any, dtype: Any, *, copy: bool | None) -> Array:
    """Return data as an array of the dtype asked for, or that PyTorch would take."""
    wanted = None if dtype is None else dtype_of(dtype)
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(usable(data), dtype=wanted, copy=copy)
    array = np.array(data, dtype=wanted)
    kind = array.dtype.kind
    if kind == "f":
        return array if dtype is not None or get_default_dtype() is _FLOAT64 else array.astype(get_default_dtype())
    if kind not in "iub":
        raise TypeError(f"tensor data of type {type(data).__name__} has no numeric dtype (got {array.dtype})")
    return array


def _holds_tensors(data: Any) -> bool:
    kinds = set(map(type, data))
    return Tensor in kinds or (
        (list in kinds or tuple in kinds) and any(_holds_tensors(d) for d in data if isinstance(d, (list, tuple)))
    )


def _stacked(data: Any, dtype: Any, *, requires_grad: bool) -> Tensor:
    parts = [_part(d) for d in data]
    result = stack(parts)
    if dtype is not None:
        result = casts.cast(result, dtype_of(dtype))
    return result.requires_grad_() if requires_grad and result._slot is None else result


def _part(data: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data
    return (
        _stacked(data, None, requires_grad=False)
        if isinstance(data, (list, tuple)) and _holds_tensors(data)
        else tensor(data)
    )


def as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return data as a tensor, sharing memory where it can."""
    check_device(device)
    if isinstance(data, Tensor):
        return data if dtype is None or dtype_of(dtype) == data.spec.dtype else casts.cast(data, dtype_of(dtype))
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        return _stacked(data, dtype, requires_grad=False)
    array = _array(data, dtype, copy=None)
    own = leaf(array if isinstance(data, np.ndarray) else carried(array), requires_grad=False)
    return show(own) if isinstance(data, np.ndarray) else own


def from_numpy(array: Array) -> Tensor:
    """Return a tensor that shares an array's memory."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    return show(leaf(native(plainly(array)), requires_grad=False))


def legacy(cls: type[Tensor], *args: Any) -> Tensor:
    """Make ``Tensor(2, 3)`` (zeros of that shape) or ``Tensor([1, 2])`` of the default dtype, as PyTorch does."""
    del cls
    if len(args) == 1 and not isinstance(args[0], int):
        record.left(args[0])
        data = as_array(args[0]) if isinstance(args[0], Tensor) else args[0]
        return plain(carried(np.array(data, dtype=get_default_dtype())))
    return plain(np.zeros(tuple(map(operator.index, args)) if args else (0,), get_default_dtype()))


Tensor.__new__ = legacy  # type: ignore[method-assign]


def shape_of(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape that a factory was given, as numbers or in one sequence."""
    if len(given) == 1 and not isinstance(given[0], int):
        given = tuple(given[0])
    shape = tuple(map(operator.index, given))
    if shape and min(shape) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    return shape


def finished(array: Array, device: Any, requires_grad: bool) -> Tensor:
    """Return a new array as a leaf."""
    if device is not None:
        check_device(device)
    if requires_grad:
        check_gradient(array.dtype)
    return leaf(array if array.ndim else carried(array), requires_grad=requires_grad)


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], value: Any = 1) -> Array:
    """Fill an array, as NumPy's ``full`` and ``ones`` do."""
    array = np.empty(shape, dtype)
    np.copyto(array, value, casting="unsafe")
    return array


def _factory(name: str, fill: Callable[..., Array], doc: str) -> Callable[..., Tensor]:
    def make(
        *shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, size: Any = None
    ) -> Tensor:
        wanted = DEFAULT["dtype"] if dtype is None else dtype_of(dtype)
        return finished(fill(shape_of(shape if size is None else (size,)), wanted), device, requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return make


zeros = _factory("zeros", np.zeros, "Return a tensor of zeros.")
ones = _factory("ones", _filled, "Return a tensor of ones.")
empty = _factory("empty", np.empty, "Return a tensor whose elements are not set.")


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return a tensor filled with one number, whose type decides the dtype."""
    if not isinstance(fill_value, (int, float, np.generic)):
        raise TypeError(f"full(): fill_value is a number, not {type(fill_value).__name__}")
    if dtype is None:
        dtype = get_default_dtype() if isinstance(fill_value, float) else np.asarray(fill_value).dtype
    return finished(_filled(shape_of((size,)), dtype_of(dtype), fill_value), device, requires_grad)


def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return numbers from start (0 if left out) up to, not including, end."""
    if end is None:
        start, end = 0, start
    if end is None:
        raise TypeError("arange() missing 1 required positional argument: 'end'")
    start = 0 if start is None else start
    if step == 0 or (end - start) * step < 0:
        raise RuntimeError(f"arange: step {step} does not lead from {start} to {end}")
    if dtype is None:
        dtype = get_default_dtype() if any(isinstance(v, float) for v in (start, end, step)) else np.int64
    return finished(np.arange(start, end, step, dtype=dtype_of(dtype)), device, requires_grad)


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return ``steps`` evenly spaced numbers from start to end, both included; 0-d tensors among the two are recorded.

    PyTorch gives no gradient to these.
    """
    return _spaced(np.linspace, "linspace", (start, end, steps), {}, (dtype, device, requires_grad))


def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``steps`` numbers from base**start to base**end, both included, of evenly spaced logarithms."""
    return _spaced(np.logspace, "logspace", (start, end, steps), {"base": base}, (dtype, device, requires_grad))


def _spaced(
    function: Any, name: str, ends: tuple[Any, Any, int], more: dict[str, Any], given: tuple[Any, Any, bool]
) -> Tensor:
    dtype, device, requires_grad = given
    wanted = get_default_dtype() if dtype is None else dtype_of(dtype)
    if ends[-1] < 0:
        raise RuntimeError(f"{name}: number of steps must be non-negative, got {ends[-1]}")
    found = function(*ends, **more, dtype=wanted)
    if not isinstance(found, Tensor):
        return finished(found, device, requires_grad)
    return found.requires_grad_() if requires_grad else found


def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return a matrix with ones on the diagonal."""
    wanted = get_default_dtype() if dtype is None else dtype_of(dtype)
    return finished(np.eye(n, m, dtype=wanted), device, requires_grad)


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return a 0-d tensor of a number, of the default dtype."""
    return full(
        (), s, dtype=get_default_dtype() if dtype is None else dtype, device=device, requires_grad=requires_grad
    )


def like(name: str, make: Callable[..., Tensor], fill: Callable[..., Array] | None = None) -> Callable[..., Tensor]:
    """Return the factory of tensors that have the shape and dtype of another; ``fill`` makes an array of these."""

    def make_like(
        input: Tensor, *args: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **more: Any
    ) -> Tensor:
        spec = input._form.spec
        if fill is not None and dtype is None and not args and not more:
            return finished(fill(spec.shape, spec.dtype), device, requires_grad)
        wanted = spec.dtype if dtype is None else dtype
        return make(spec.shape, *args, dtype=wanted, device=device, requires_grad=requires_grad, **more)

    make_like.__name__ = make_like.__qualname__ = name
    make_like.__module__ = make.__module__
    make_like.__doc__ = f"{(make.__doc__ or '').splitlines()[0][:-1]}, of the shape and dtype of ``x``."
    return make_like


zeros_like = like("zeros_like", zeros, np.zeros)
ones_like = like("ones_like", ones, _filled)
empty_like = like("empty_like", empty, np.empty)
full_like = like("full_like", full)


def _new(name: str, make: Callable[..., Tensor]) -> None:
    """Install ``x.new_zeros(2, 3)``: what a factory makes, of the dtype of x unless another one is given."""

    def new(x: Tensor, *args: Any, dtype: Any = None, **more: Any) -> Tensor:
        return make(*args, dtype=x.spec.dtype if dtype is None else dtype, **more)

    new.__name__ = new.__qualname__ = name
    new.__doc__ = f"{(make.__doc__ or '').splitlines()[0][:-1]}, of the dtype of this one."
    method(name)(new)


for _make in (zeros, ones, empty, full, tensor):
    _new(f"new_{_make.__name__}", _make)
__all__ = [
    "arange", "as_tensor", "clone", "empty", "empty_like", "eye", "from_numpy", "full", "full_like", "linspace",
    "logspace", "ones", "ones_like", "scalar_tensor", "tensor", "zeros", "zeros_like",
]  # fmt: skip
