"""New tensors like another: of its shape and dtype (``zeros_like(x)``), or of its dtype (``x.new_zeros(2, 3)``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from tape.conversions import creation
from tape.conversions.creation import filled, finished, shape_of, sizes_of
from tape.foundation.dtypes import dtype_of
from tape.foundation.memory_formats import check_format
from tape.recording import record
from tape.tensors.tensor import Tensor, method


def spec_like(name: str, input: Any, memory_format: Any) -> Spec:
    """Return the spec of the tensor that a factory was given, TypeError if it is none, and check the memory format."""
    if memory_format is not None:
        check_format(name, memory_format)
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return input._form.spec


def zeros_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return a tensor of zeros, of the shape and dtype of ``input``."""
    spec = spec_like("zeros_like", input, memory_format)
    array = np.zeros(spec.shape, spec.dtype if dtype is None else dtype_of(dtype))
    return finished("zeros_like", array, device, requires_grad, layout, pin_memory)


def ones_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return a tensor of ones, of the shape and dtype of ``input``."""
    spec = spec_like("ones_like", input, memory_format)
    array = filled(spec.shape, spec.dtype if dtype is None else dtype_of(dtype))
    return finished("ones_like", array, device, requires_grad, layout, pin_memory)


def empty_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return a tensor whose elements are not set, of the shape and dtype of ``input``."""
    spec = spec_like("empty_like", input, memory_format)
    array = record.unset(spec.shape, spec.dtype if dtype is None else dtype_of(dtype))
    return finished("empty_like", array, device, requires_grad, layout, pin_memory)


def full_like(
    input: Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Return a tensor filled with one number, of the shape and dtype of ``input``."""
    spec = spec_like("full_like", input, memory_format)
    return creation.full(
        spec.shape, fill_value, dtype=spec.dtype if dtype is None else dtype, layout=layout, device=device,
        requires_grad=requires_grad, pin_memory=pin_memory,
    )  # fmt: skip


@method()
def new_zeros(
    x: Tensor, *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of zeros, of the dtype of this one."""
    array = np.zeros(sizes_of("new_zeros", shape, size), x.spec.dtype if dtype is None else dtype_of(dtype))
    return finished("new_zeros", array, device, requires_grad, layout, pin_memory)


@method()
def new_ones(
    x: Tensor, *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of ones, of the dtype of this one."""
    array = filled(sizes_of("new_ones", shape, size), x.spec.dtype if dtype is None else dtype_of(dtype))
    return finished("new_ones", array, device, requires_grad, layout, pin_memory)


@method()
def new_empty(
    x: Tensor, *shape: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor whose elements are not set, of the dtype of this one."""
    array = record.unset(sizes_of("new_empty", shape, size), x.spec.dtype if dtype is None else dtype_of(dtype))
    return finished("new_empty", array, device, requires_grad, layout, pin_memory)


@method()
def new_full(
    x: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor filled with one number, of the dtype of this one."""
    return creation.full(
        shape_of((size,)), fill_value, dtype=x.spec.dtype if dtype is None else dtype, layout=layout, device=device,
        requires_grad=requires_grad, pin_memory=pin_memory,
    )  # fmt: skip


@method()
def new_tensor(
    x: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a new leaf holding a copy of data, of the dtype of this one."""
    return creation.tensor(
        data, dtype=x.spec.dtype if dtype is None else dtype, device=device, requires_grad=requires_grad,
        pin_memory=pin_memory,
    )  # fmt: skip

