"""Views and joins: the same elements under another shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.views import Join, View
from kernels.native.structs import ARGUED, JOINS
from kernels.operations import OPS
from tape.recording import record
from tape.recording.cached_calls import by_join, cached_call, number_of
from tape.recording.parameters import dim_of, ints_of, taking_out, with_axis
from tape.recording.promotion import alike
from tape.tensors import modes, view_families
from tape.tensors.dtypes import check_format
from tape.tensors.operands import operand
from tape.tensors.tensor import Tensor, method, scalar_or_array

VIEWS = {name: op for name, op in OPS.items() if isinstance(op, View)}
CLONE: Any = OPS["clone"]


def _completed(x: Tensor, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return a shape with its -1 worked out; RuntimeError if it cannot hold the elements."""
    size = x.spec.size
    if shape.count(-1) > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred")
    rest = math.prod(n for n in shape if n != -1)
    if -1 in shape and rest > 0 and size % rest == 0:
        shape = tuple(size // rest if n == -1 else n for n in shape)
    if -1 in shape or math.prod(shape) != size:
        raise RuntimeError(f"{name}: shape '{list(shape)}' is invalid for input of size {size}")
    return shape


@method()
@cached_call()
def view(x: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Return a view of another shape; RuntimeError where strides do not allow one."""
    if len(sizes) == 1 and isinstance(sizes[0], (type, np.dtype)):
        raise NotImplementedError("view(dtype), of the same bytes, is not supported; x.to(dtype) converts the values")
    wanted = _completed(x, ints_of(sizes if size is None else (size,)), "view")
    try:
        return record.view(VIEWS["view"], x, (wanted,))
    except ValueError:
        raise RuntimeError(
            f"view size is not compatible with input tensor's size and stride (shape {list(x.spec.shape)} to "
            f"{list(wanted)}). Use .reshape(...) instead."
        ) from None


@method()
@cached_call()
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """Return a view of another shape where strides allow one, else a copy."""
    wanted = _completed(input, ints_of(sizes if shape is None else (shape,)), "reshape")
    try:
        return record.view(VIEWS["view"], input, (wanted,))
    except ValueError:
        copy = shaped(clone(input), wanted)
        view_families.set_rebase_source(copy)
        return copy


@cached_call()
def shaped(copy: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a copy that nobody else has in another shape: to the caller a tensor of its own, and no view."""
    return record.view(VIEWS["unsafe_view"], contiguous(copy), (shape,))


@cached_call()
def repeated(copy: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the same of a copy that holds a tensor several times."""
    return record.view(VIEWS["repeated"], contiguous(copy), (shape,))


@method()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Return the tensor with dims ``start_dim`` to ``end_dim`` run together; itself where there is nothing to do.

    In functions that were given NumPy arrays it is a copy, as NumPy's.
    """
    shape = input.spec.shape
    first, last = dim_of(input, start_dim), dim_of(input, end_dim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last and shape:
        return clone(input) if modes.given_arrays() else input
    if modes.given_arrays():
        input = clone(input)  # NumPy's is a copy
    return reshape(input, *shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


@method()
@cached_call()
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Return a view with two dims exchanged."""
    order = list(range(len(input.spec.shape)))
    i, j = dim_of(input, dim0), dim_of(input, dim1)
    if order:
        order[i], order[j] = order[j], order[i]
    return record.view(VIEWS["transpose"], input, (tuple(order),))


@method()
@cached_call()
def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Return a view with the dims in the order given."""
    order = tuple(dim_of(input, d) for d in ints_of(order if dims is None else (dims,)))
    if sorted(order) != list(range(len(input.spec.shape))):
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            "ordering of dimensions i.e. "
            f"input.dim() = {len(input.spec.shape)} is not equal to len(dims) = {len(order)}"
        )
    return record.view(VIEWS["permute"], input, (order,))


@method()
@cached_call()
def t(input: Tensor) -> Tensor:
    """Return a matrix transposed; tensors of less than two dims as they are."""
    rank = len(input.spec.shape)
    if rank > 2:  # noqa: PLR2004
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
    return record.view(VIEWS["t"], input, (tuple(range(rank))[::-1],))


def _turned(x: Tensor) -> Tensor:
    """The tensor with its dims reversed, a view."""
    return record.view(VIEWS["permute"], x, (tuple(range(len(x.spec.shape)))[::-1],))


method("T")(property(cached_call()(_turned)))


@method()
@cached_call()
@with_axis
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Return a view without dims of length one, or without ``dim`` where its length is one."""
    shape = input.spec.shape
    if dim is None:
        return record.view(VIEWS["squeeze"], input, (tuple(n for n in shape if n != 1),))
    dims = {dim_of(input, d) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))}
    kept = tuple(n for i, n in enumerate(shape) if i not in dims or n != 1)
    return record.view(VIEWS["squeeze_dims" if isinstance(dim, (tuple, list)) else "squeeze_dim"], input, (kept,))


@method()
@cached_call()
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Return a view with a dim of length one inserted."""
    at = dim_of(input, dim, extra=1)
    shape = input.spec.shape
    return record.view(VIEWS["unsqueeze"], input, ((*shape[:at], 1, *shape[at:]),))


@method()
@cached_call()
def expand(x: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Return a view with dims of length one repeated; -1 keeps a dim."""
    wanted, shape = ints_of(sizes if size is None else (size,)), x.spec.shape
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"expand({list(wanted)}): the number of sizes provided ({len(wanted)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(shape)})"
        )
    full = tuple(shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(wanted))
    for i, n in enumerate(full):
        if n < 0 or (i >= lead and shape[i - lead] not in (n, 1)):
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size "
                f"({shape[i - lead] if i >= lead else 'new'}) at non-singleton dimension {i}. Target sizes: "
                f"{list(full)}. Tensor sizes: {list(shape)}"
            )
    return record.view(VIEWS["expand"], x, (full,))


@method()
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int = 0) -> Tensor:
    """Return a view of any pattern of the elements in order; strides and offset count elements.

    ValueError where the pattern leaves the tensor, or its elements do not lie evenly apart.
    """
    steps = ints_of((stride,))
    if min(steps, default=0) < 0:
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(steps)}")
    return strided(input, ints_of((size,)), steps, storage_offset)


def strided(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """Return :func:`as_strided`, with negative strides too, which the gradient of a flip needs."""
    return record.view(VIEWS["as_strided"], x, (shape, strides, offset))


@method()
@cached_call(number=number_of(CLONE.name))
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """Return a copy in memory of its own, recorded."""
    if memory_format is not None:
        check_format("clone", memory_format)
    value = scalar_or_array(np.array(input._value, copy=True, order="C"))
    return record.finish(CLONE, (input,), value)


@method()
def contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    """Return the tensor itself if its memory is C-contiguous, else a copy."""
    if memory_format is not None:
        check_format("contiguous", memory_format)
    value = x._value
    return x if type(value) is float or value.flags.c_contiguous else clone(x)  # type: ignore[union-attr]


@taking_out
@cached_call(by_join, marks=ARGUED | JOINS)
@with_axis
def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Join tensors end to end along ``dim``; the other dims agree."""
    return _join("concatenate", tensors, dim, new=False)


@taking_out
@cached_call(by_join, marks=ARGUED | JOINS)
@with_axis
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Join tensors of one shape side by side along a new ``dim``."""
    return _join("stack", tensors, dim, new=True)


def _join(name: str, tensors: Any, dim: Any, *, new: bool) -> Tensor:
    op = OPS[name]
    assert isinstance(op, Join)
    checked, axis = _checked(name, tuple(tensors), dim, new=new)
    return record.finish(op, checked, _together(op, [o._value for o in checked], axis, new=new), (axis, new))


def _together(op: Join, values: list[Any], axis: int, *, new: bool) -> Any:
    """Return the joined values; a shorter way than NumPy's for numbers, and for arrays along a new first axis."""
    if new and type(values[0]) is float:
        return np.array(values)
    if new and axis == 0:
        joined = np.ascontiguousarray(np.concatenate([np.atleast_1d(v) for v in values]))  # of columns it is none
        return joined.reshape(len(values), *np.shape(values[0]))
    return np.ascontiguousarray(op.join(values, axis=axis))


def _checked(name: str, tensors: tuple[Any, ...], dim: Any, *, new: bool) -> tuple[tuple[Tensor, ...], int]:
    """Return operands of one dtype, and the axis."""
    operands = tuple([_operand(o) for o in tensors])
    if not operands:
        raise (RuntimeError if new else ValueError)(f"{name}(): expected a non-empty list of Tensors")
    if any(o.spec.dtype != operands[0].spec.dtype for o in operands):
        operands = tuple(alike(*tensors))
    model = operands[0] if new else next((o for o in operands if o.spec.shape != (0,)), operands[0])
    axis = dim_of(model, dim, extra=int(new)) if model.spec.shape or new else 0
    if not new and len(model.spec.shape) > 1:  # as in PyTorch, what is of shape (0,) joins anything
        none = (*model.spec.shape[:axis], 0, *model.spec.shape[axis + 1 :])
        operands = tuple(reshape(o, none) if o.spec.shape == (0,) else o for o in operands)
    _check_join(name, operands, new=new)
    if not new and any(
        i != axis and n != m
        for o in operands
        for i, (n, m) in enumerate(zip(o.spec.shape, operands[0].spec.shape, strict=True))
    ):
        shapes = ", ".join(str(list(o.spec.shape)) for o in operands)
        raise RuntimeError(f"{name}: Sizes of tensors must match except in dimension {axis}. Got shapes {shapes}")
    return operands, axis


def _operand(value: Any) -> Tensor:
    value = operand(value)
    if not isinstance(value, Tensor):
        raise TypeError(f"expected Tensor as element in a list to join, got {type(value).__name__}")
    return value


def _check_join(name: str, operands: tuple[Tensor, ...], *, new: bool) -> None:
    first = operands[0].spec.shape
    for o in operands:
        if new and o.spec.shape != first:
            raise RuntimeError(
                f"{name} expects each tensor to be equal size, but got {list(first)} and {list(o.spec.shape)}"
            )
        if not new and not o.spec.shape:
            raise RuntimeError("zero-dimensional tensor cannot be concatenated; use tape.stack")
        if len(o.spec.shape) != len(first):
            raise RuntimeError(
                f"{name}: Tensors must have same number of dimensions: got {len(first)} and {len(o.spec.shape)}"
            )


__all__ = [
    "as_strided", "cat", "clone", "flatten", "permute", "reshape", "squeeze", "stack", "t", "transpose", "unsqueeze",
]  # fmt: skip
