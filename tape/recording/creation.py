"""Tensors made of numbers, sequences, shapes and arrays."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.specs import FLOAT64, Spec, unsupported
from kernels.native import pool
from kernels.native.structs import LARGE
from tape.recording import promotion, record
from tape.recording.parameters import with_name
from tape.recording.views import stack
from tape.tensors.dtypes import (
    DEFAULT,
    Size,
    check_device,
    check_format,
    check_gradient,
    check_memory,
    dtype_of,
    get_default_dtype,
)
from tape.tensors.modes import ON_MADE, note_leaf
from tape.tensors.operands import as_ndarray, native, usable
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, leaf, made, method, scalar_or_array
from tape.tensors.view_families import mark_exported_to_numpy


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """Return a new leaf holding a copy of data: a number, nested lists, an array.

    Python floats become the default dtype, ints int64, bools bool; arrays keep their dtype. A list with tensors
    that require grad in it is recorded as a stack.
    """
    if device is not None:
        check_device(device)
    if pin_memory:
        check_memory("tensor", None, pin_memory)
    if dtype is FLOAT64 or (dtype is None and DEFAULT["dtype"] is FLOAT64):
        at_once: Tensor | None = None if ON_MADE else made(data, requires_grad)
        if at_once is None and type(data) is float:
            at_once = leaf(data, requires_grad=requires_grad)
        elif at_once is None and type(data) is np.ndarray and data.dtype is FLOAT64 and data.ndim:
            copy = pool.call(data.copy) if data.nbytes >= LARGE else data.copy()
            at_once = leaf(copy, requires_grad=requires_grad)
        if at_once is not None:
            if requires_grad:
                note_leaf(at_once)
            return at_once
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than tape.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        record.note_escape(data)
        data = as_array(data)
    elif holds_tensors(data):
        return _stacked(data, dtype, requires_grad=requires_grad)
    array = _array(data, dtype, copy=True)
    return made_leaf(array, requires_grad=requires_grad)


def made_leaf(array: Any, *, requires_grad: bool) -> Tensor:
    """Return a new array as a user's leaf; RuntimeError if its dtype has no gradients, and it is to require grad."""
    if requires_grad:
        check_gradient(array.dtype)
    result = leaf(array if array.ndim else scalar_or_array(array), requires_grad=requires_grad)
    if requires_grad:
        note_leaf(result)
    return result


def _array(data: Any, dtype: Any, *, copy: bool | None) -> Array:
    wanted = None if dtype is None else dtype_of(dtype)
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(usable(data), dtype=wanted, copy=copy)
    array = np.array(data, dtype=wanted)
    kind = array.dtype.kind
    if kind == "f":
        return array if dtype is not None or get_default_dtype() is FLOAT64 else array.astype(get_default_dtype())
    if kind not in "iub":
        if kind == "c":
            raise TypeError(unsupported(array.dtype))
        remedy = "; give its toarray()" if hasattr(data, "toarray") else ""
        raise TypeError(f"tensor data of type {type(data).__name__} has no numeric dtype (got {array.dtype}){remedy}")
    return array


def holds_tensors(data: Any) -> bool:
    """Whether data is a list, or a tuple, that holds tensors, or lists of them."""
    kinds = set(map(type, data)) if isinstance(data, (list, tuple)) else ()
    return Tensor in kinds or ((list in kinds or tuple in kinds) and any(map(holds_tensors, data)))


def _stacked(data: Any, dtype: Any, *, requires_grad: bool = False) -> Tensor:
    parts = (d if isinstance(d, Tensor) else _stacked(d, None) if holds_tensors(d) else tensor(d) for d in data)
    result = stack(list(parts))
    if dtype is not None:
        result = promotion.cast(result, dtype_of(dtype))
    return result.requires_grad_() if requires_grad and result._slot is None else result


def as_tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return data as a tensor, sharing memory where it can."""
    check_device(device)
    if isinstance(data, Tensor):
        return data if dtype is None or dtype_of(dtype) == data.spec.dtype else promotion.cast(data, dtype_of(dtype))
    if holds_tensors(data):
        return _stacked(data, dtype)
    array = _array(data, dtype, copy=None)
    result = leaf(array if isinstance(data, np.ndarray) else scalar_or_array(array), requires_grad=False)
    return mark_exported_to_numpy(result) if isinstance(data, np.ndarray) else result


def from_numpy(array: Array) -> Tensor:
    """Return a tensor that shares an array's memory."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    return mark_exported_to_numpy(leaf(native(as_ndarray(array)), requires_grad=False))


def by_type(dtype: np.dtype[Any], args: tuple[Any, ...]) -> Tensor:
    """Return zeros of a shape given by numbers or a Size, or a copy of a sequence, an array or a tensor."""
    if len(args) == 1 and not isinstance(args[0], (int, Size)):
        record.note_escape(args[0])
        data = as_array(args[0]) if isinstance(args[0], Tensor) else args[0]
        return constant_tensor(scalar_or_array(np.array(data, dtype=dtype)))
    return constant_tensor(np.zeros(shape_of(args) if args else (0,), dtype))


def legacy(cls: type[Tensor], *args: Any) -> Tensor:
    """Make ``Tensor(2, 3)`` (zeros of that shape) or ``Tensor([1, 2])`` of the default dtype, as PyTorch does."""
    del cls
    return by_type(get_default_dtype(), args)


Tensor.__new__ = legacy  # type: ignore[method-assign]


def shape_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape that a factory was given, as numbers or in one sequence."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    shape = tuple(map(operator.index, sizes))
    if shape and min(shape) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    return shape


def finished(name: str, array: Any, device: Any, requires_grad: bool, layout: Any, pin_memory: bool) -> Tensor:
    """Return a new array as a leaf; a tensor is returned itself."""
    if device is not None:
        check_device(device)
    if layout is not None or pin_memory:
        check_memory(name, layout, pin_memory)
    if isinstance(array, Tensor):
        return array.requires_grad_() if requires_grad else array
    return made_leaf(array, requires_grad=requires_grad)


def sizes_of(name: str, shape: tuple[Any, ...], size: Any) -> tuple[int, ...]:
    """Return the shape that a factory was given: ``zeros(2, 3)``, ``zeros((2, 3))`` or ``zeros(size=(2, 3))``."""
    if size is None:
        return shape_of(shape)
    if shape:
        raise TypeError(f"{name}() got multiple values for argument 'size'")
    return shape_of((size,))


def filled(shape: tuple[int, ...], dtype: np.dtype[Any], value: Any = 1) -> Array:
    """Fill an array, as NumPy's ``full`` and ``ones`` do."""
    array = np.empty(shape, dtype)
    np.copyto(array, value, casting="unsafe")
    return array


def _wanted(dtype: Any) -> np.dtype[Any]:
    return DEFAULT["dtype"] if dtype is None else dtype_of(dtype)


def _factory(name: str, what: str, fill: Callable[..., Array]) -> Callable[..., Tensor]:
    @with_name(name, f"Return a tensor of {what}: ``{name}(2, 3)`` or ``{name}((2, 3))``.")
    def function(
        *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        array = fill(shape_of(shape) if size is None else sizes_of(name, shape, size), _wanted(dtype))
        return finished(name, array, device, requires_grad, layout, pin_memory)

    return function


zeros: Callable[..., Tensor] = _factory("zeros", "zeros", np.zeros)
ones: Callable[..., Tensor] = _factory("ones", "ones", filled)


def empty(
    *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return a tensor whose elements are not set: ``empty(2, 3)`` or ``empty((2, 3))``."""
    if memory_format is not None:
        check_format("empty", memory_format)
    array = record.unset(shape_of(shape) if size is None else sizes_of("empty", shape, size), _wanted(dtype))
    return finished("empty", array, device, requires_grad, layout, pin_memory)


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor filled with one number, whose type decides the dtype."""
    fill_value = _number_of("full", fill_value)
    if dtype is None:
        dtype = get_default_dtype() if isinstance(fill_value, float) else np.asarray(fill_value).dtype
    array = filled(shape_of((size,)), dtype_of(dtype), fill_value)
    return finished("full", array, device, requires_grad, layout, pin_memory)


def _number_of(name: str, value: Any) -> Any:
    value = value.item() if isinstance(value, Tensor) and not value.spec.shape else value
    if not isinstance(value, (int, float, np.generic)):
        raise TypeError(f"{name}(): fill_value is a number, not {type(value).__name__}")
    return value


def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
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
    array = np.arange(start, end, step, dtype=dtype_of(dtype))
    return finished("arange", array, device, requires_grad, layout, pin_memory)


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``steps`` evenly spaced numbers from start to end, both included, with gradients to 0-d tensors."""
    values = _spaced("linspace", steps)(start, end, steps, dtype=_wanted(dtype))
    return finished("linspace", values, device, requires_grad, layout, pin_memory)


def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``steps`` numbers from base**start to base**end, both included, of evenly spaced logarithms."""
    values = _spaced("logspace", steps)(start, end, steps, base=base, dtype=_wanted(dtype))
    return finished("logspace", values, device, requires_grad, layout, pin_memory)


def _spaced(name: str, steps: int) -> Any:
    if steps < 0:
        raise RuntimeError(f"{name}: number of steps must be non-negative, got {steps}")
    return getattr(np, name)


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a matrix with ones on the diagonal."""
    return finished("eye", np.eye(n, m, dtype=_wanted(dtype)), device, requires_grad, layout, pin_memory)


def scalar_tensor(
    s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a 0-d tensor of a number, of the default dtype."""
    array = filled((), _wanted(dtype), _number_of("scalar_tensor", s))
    return finished("scalar_tensor", array, device, requires_grad, layout, pin_memory)


__all__ = [
    "arange", "as_tensor", "empty", "empty_like", "eye", "from_numpy", "full", "full_like", "linspace", "logspace",
    "ones", "ones_like", "scalar_tensor", "tensor", "zeros", "zeros_like",
]  # fmt: skip


# New tensors like another: of its shape and dtype (``zeros_like(x)``), or of its dtype (``x.new_zeros(2, 3)``).


def spec_like(name: str, input: Any, memory_format: Any) -> Spec:
    """Return the spec of the tensor that a factory was given, TypeError if it is none, and check the memory format."""
    if memory_format is not None:
        check_format(name, memory_format)
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return input._form.spec


def _like(name: str, what: str, fill: Callable[..., Array]) -> Callable[..., Tensor]:
    @with_name(name, f"Return a tensor {what}, of the shape and dtype of ``input``.")
    def function(
        input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        pin_memory: bool = False, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        spec = spec_like(name, input, memory_format)
        array = fill(spec.shape, spec.dtype if dtype is None else dtype_of(dtype))
        return finished(name, array, device, requires_grad, layout, pin_memory)

    return function


zeros_like: Callable[..., Tensor] = _like("zeros_like", "of zeros", np.zeros)
ones_like: Callable[..., Tensor] = _like("ones_like", "of ones", filled)
empty_like: Callable[..., Tensor] = _like("empty_like", "whose elements are not set", record.unset)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return a tensor filled with one number, of the shape and dtype of ``input``."""
    spec = spec_like("full_like", input, memory_format)
    return full(
        spec.shape, fill_value, dtype=spec.dtype if dtype is None else dtype, layout=layout, device=device,
        requires_grad=requires_grad, pin_memory=pin_memory,
    )  # fmt: skip


def _new(name: str, what: str, fill: Callable[..., Array]) -> None:
    @method(name)
    @with_name(name, f"Return a tensor {what}, of the dtype of this one.")
    def function(
        x: Tensor, *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        array = fill(sizes_of(name, shape, size), x.spec.dtype if dtype is None else dtype_of(dtype))
        return finished(name, array, device, requires_grad, layout, pin_memory)


_new("new_zeros", "of zeros", np.zeros)
_new("new_ones", "of ones", filled)
_new("new_empty", "whose elements are not set", record.unset)


@method()
def new_full(
    x: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor filled with one number, of the dtype of this one."""
    return full(
        shape_of((size,)), fill_value, dtype=x.spec.dtype if dtype is None else dtype, layout=layout, device=device,
        requires_grad=requires_grad, pin_memory=pin_memory,
    )  # fmt: skip


@method()
def new_tensor(
    x: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a new leaf holding a copy of data, of the dtype of this one."""
    return tensor(
        data, dtype=x.spec.dtype if dtype is None else dtype, device=device, requires_grad=requires_grad,
        pin_memory=pin_memory,
    )  # fmt: skip
