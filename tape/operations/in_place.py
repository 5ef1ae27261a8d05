"""In-place operations: each is its out-of-place record, followed by a write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.native.structs import AUGMENTED, MOST_OPERANDS, SCATTERS, WRITES
from kernels.operations.registry import OPS
from tape.operations import indexing, writes
from tape.operations.elementwise import FUNCTIONS, RUN
from tape.recording import promotion
from tape.recording.cached_calls import cached_call, number_of_op
from tape.recording.indexed_calls import by_items, scatter_call
from tape.recording.parameters import in_place_of, names_of
from tape.tensors import grad_modes, view_families
from tape.tensors.operands import Number, beside, check_broadcast, is_mask, operand
from tape.tensors.tensor import Tensor, attribute, method, read_extras

_INPLACE = {"+": "iadd", "-": "isub", "*": "imul", "/": "itruediv", "**": "ipow"}


def _in_place(op: Elementwise, name: str) -> Callable[..., Tensor]:
    def run(x: Tensor, *others: Any) -> Tensor:
        writes.check(x, name, reads=True)
        result = RUN[op.name](x, *others)
        return writes.store(x, result, name, fresh=not op.identity)

    in_place: Callable[..., Tensor] = in_place_of(op, name, run)
    in_place.__doc__ = f"{op.doc[:-1]}, in place."
    return in_place


def _scaled_in_place(op: Elementwise, name: str) -> Callable[..., Tensor]:
    """Return the in-place variant of an operation with PyTorch's ``alpha``."""
    add = _adding(op, _operator(op), "+=") if op.operator == "+" else None

    def run(x: Tensor, other: Any) -> Tensor:
        if add is not None:
            return add(x, other)  # type: ignore[no-any-return]
        writes.check(x, name, reads=True)
        return writes.store(x, RUN[op.name](x, other), name, fresh=True)

    in_place: Callable[..., Tensor] = in_place_of(op, name, run)
    in_place.__doc__ = f"{op.doc[:-1]}, in place; ``alpha`` multiplies the second."
    return in_place


def _operator(op: Elementwise) -> Callable[..., Any]:
    name = f"{op.operator}="

    def in_place(x: Tensor, other: Any) -> Tensor:
        writes.check(x, name, reads=True)
        return writes.store(x, RUN[op.name](x, other), name, fresh=True)

    in_place.__name__ = in_place.__qualname__ = f"__{_INPLACE[op.operator]}__"
    in_place.__doc__ = f"{op.doc[:-1]}, in place."
    return in_place


def _adding(op: Elementwise, in_place: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Add in place to memory that other tensors share: the gradient buffer keeps its gradient."""

    def add(x: Tensor, other: Any) -> Tensor:
        if writes.add_again(x, other):
            return x
        if view_families.owns_memory_alone(x) or type(x._value) is float:
            return in_place(x, other)  # type: ignore[no-any-return]
        writes.check(x, name, reads=True)
        spec = x.spec
        if x._slot is not None and view_families.base_of(x)._slot is None:  # a view of what was a leaf
            return in_place(x, other)  # type: ignore[no-any-return]
        value = operand(beside(other, spec.dtype))
        if spec.dtype.kind != "f" or (isinstance(value, Tensor) and value.spec.dtype != spec.dtype):
            return in_place(x, other)  # type: ignore[no-any-return]
        check_broadcast(op.name, (x, value))
        return writes.accumulate(x, writes.value_to_write(value, spec.shape, spec.dtype, name))

    add.__name__ = add.__qualname__ = in_place.__name__
    add.__doc__ = in_place.__doc__
    return add


def _augmented(op: Elementwise) -> Callable[..., Any]:
    run = _operator(op)
    write = _adding(op, run, "+=") if op.operator == "+" else run

    @functools.wraps(run)
    def augmented(x: Tensor, other: Any) -> Any:
        if writes.is_value(x):
            return RUN[op.name](x, other)
        return write(x, other)

    return augmented


def _cached(op: Elementwise, in_place: Callable[..., Any], augmented: int = 0) -> Callable[..., Any]:
    """Return a method that does an operation in place, which native code repeats with the calls of that operation."""
    if op.identity or len(op.inputs) > MOST_OPERANDS:
        return in_place
    return cached_call(None, marks=WRITES | augmented, number=number_of_op(op))(in_place)


def _install(op: Elementwise) -> None:
    if len(op.inputs) > 2:  # noqa: PLR2004
        return
    for name in names_of(op):
        in_place = _scaled_in_place(op, f"{name}_") if op.scaled else _in_place(op, f"{name}_")
        method(f"{name}_")(_cached(op, in_place))
    if op.operator in _INPLACE and len(op.inputs) == 2:  # noqa: PLR2004
        method(f"__{_INPLACE[op.operator]}__")(_cached(op, _augmented(op), AUGMENTED))


for _op in list(OPS.values()):
    if isinstance(_op, Elementwise) and names_of(_op):
        _install(_op)


@method()
def copy_(x: Tensor, other: Any) -> Tensor:
    """Copy values, broadcast, into this tensor."""
    if not isinstance(other, (Tensor, np.ndarray, Number, np.generic)):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
    writes.check(x, "copy_")
    return writes.store(x, other, "copy_", casts=True)


@method()
def fill_(x: Tensor, value: Any) -> Tensor:
    """Fill with one number, or with a 0-d tensor."""
    writes.check(x, "fill_")
    value = operand(beside(value, x.spec.dtype))
    if isinstance(value, Tensor) and value.spec.shape:
        rank = len(value.spec.shape)
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {rank} dimensions.")
    return writes.store(x, value, "fill_", casts=True)


@method()
def zero_(x: Tensor) -> Tensor:
    """Fill with zeros."""
    writes.check(x, "zero_")
    return writes.store(x, 0, "zero_", casts=True)


@method()
def masked_fill_(x: Tensor, mask: Any, value: Any) -> Tensor:
    """Fill where a bool mask, broadcast to this shape, holds with one number, or with a 0-d tensor."""
    writes.check(x, "masked_fill_", reads=True)
    _check_mask(x, mask)
    value = operand(beside(value, x.spec.dtype))
    if isinstance(value, Tensor) and value.spec.shape:
        rank = len(value.spec.shape)
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {rank} dimension(s)."
        )
    result = _filled(x, mask, value)
    return writes.store(x, result, "masked_fill_", fresh=True)


def _check_mask(x: Tensor, mask: Any) -> None:
    mask = operand(mask)
    if not is_mask(mask):
        dtype = mask.spec.dtype.name if isinstance(mask, Tensor) else type(mask).__name__
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {dtype}")
    check_broadcast("masked_fill_", (x, mask))
    writes.value_to_write(mask, x.spec.shape, np.dtype(np.bool_), "masked_fill_")


@method()
def masked_fill(x: Tensor, mask: Any, value: Any) -> Tensor:
    """Return a copy filled where a bool mask, broadcast together, holds with one number, or with a 0-d tensor."""
    return _filled(x, mask, operand(beside(value, x.spec.dtype)))


def _filled(x: Tensor, mask: Any, value: Any) -> Tensor:
    dtype = x.spec.dtype
    if isinstance(value, Tensor):
        value = value if value.spec.dtype == dtype else promotion.cast(value, dtype)
    elif dtype.kind != "f":
        value = dtype.type(value).item()
    return FUNCTIONS["where"](mask, value, x)  # type: ignore[no-any-return]


@method()
def index_put_(x: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write values to the elements that index tensors pick, the last one for each; with ``accumulate`` add them."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError("index_put_: indices is a tuple of tensors, one for each of the first dims")
    return _added_at(x, *indices, values) if accumulate else _put_at(x, *indices, values)


@cached_call(scatter_call(by_items), marks=SCATTERS)
def _put_at(x: Tensor, *items: Any) -> Tensor:
    indexing.assign_at(x, items[:-1], items[-1], "index_put_", item=False)
    return x


@cached_call(scatter_call(by_items, adds=True), marks=SCATTERS)
def _added_at(x: Tensor, *items: Any) -> Tensor:
    indexing.assign_at(x, items[:-1], items[-1], "index_put_", adds=True, item=False)
    return x


@attribute
def _version(x: Tensor) -> int:
    """How often the memory has been written in place."""
    grad_modes.check_counted(x)
    return sum(read_extras(view_families.base_of(x)).counter or ())
