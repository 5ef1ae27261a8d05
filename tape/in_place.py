"""In-place operations, on values that the tape has not recorded; anything else raises and says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.op import Elementwise
from kernels.tables import OPS
from tape import errors, modes, rows
from tape.arithmetic import names_of
from tape.operands import check_broadcast, operand
from tape.tensor import AccumulateGrad, Tensor, as_array, method, plain

_INPLACE = {"+": "iadd", "-": "isub", "*": "imul", "/": "itruediv", "**": "ipow"}


def writable(x: Tensor, name: str) -> None:
    """Raise where writing into this tensor's memory would make a recorded value wrong."""
    if modes.current().recorder is not None:
        raise NotImplementedError(errors.IN_PLACE.format(name))
    if type(x._slot) is AccumulateGrad and modes.is_grad_enabled():
        raise RuntimeError(errors.LEAF_IN_PLACE)
    if type(x._slot) is int or (modes.is_grad_enabled() and _family_wants(x)):
        raise NotImplementedError(errors.IN_PLACE.format(name))
    if any(_is_saved(x, tape.entries) for tape in list(modes.tapes.values())):
        raise NotImplementedError(
            f"{name}: this value is saved for a backward that has not run; run backward first, or write x = x.clone()"
        )


def _family_wants(x: Tensor) -> bool:
    base = getattr(x, "_base", None)
    return base is not None and base._slot is not None


def _is_saved(x: Tensor, entries: list[Any]) -> bool:
    if type(x._value) is float:
        return False
    value = as_array(x)
    return any(isinstance(e, np.ndarray) and np.may_share_memory(e, value) for e in list(entries))


def store(x: Tensor, value: Any, name: str) -> Tensor:
    """Write a value into a tensor's memory, broadcast, cast within its kind of dtype."""
    writable(x, name)
    value = _unrecorded(value, name)
    array, given = as_array(x), np.asarray(value._value if isinstance(value, Tensor) else value)
    try:
        shape = np.broadcast_shapes(array.shape, given.shape)
    except ValueError:
        shape = given.shape
    if shape != array.shape:
        raise RuntimeError(
            f"{name}: output with shape {list(array.shape)} doesn't match the broadcast shape {list(shape)}"
        )
    if not np.can_cast(given.dtype, array.dtype, "same_kind"):
        raise RuntimeError(
            f"{name}: result type {given.dtype.name} can't be cast to the desired output type {array.dtype.name}"
        )
    array[...] = given
    return x


def _twin(op: Elementwise, name: str) -> Callable[..., Tensor]:
    def in_place(x: Tensor, *others: Any) -> Tensor:
        writable(x, name)
        others = tuple(_unrecorded(operand(other), name) for other in others)
        check_broadcast(op, (x, *others))
        with modes.no_grad():
            return store(x, rows.elementwise(op, plain(as_array(x)), *others), name)

    in_place.__name__ = in_place.__qualname__ = name
    in_place.__doc__ = f"{op.doc[:-1]}, in place; not on recorded values in this version."
    return in_place


def _unrecorded(value: Any, name: str) -> Any:
    """Return what is to be written, which must not require grad: its gradient would be lost."""
    if isinstance(value, Tensor) and value._slot is not None and modes.is_grad_enabled():
        raise NotImplementedError(errors.IN_PLACE_OF.format(name))
    return value


for _op in list(OPS.values()):
    if isinstance(_op, Elementwise) and len(_op.inputs) <= 2 and (names_of(_op)):  # noqa: PLR2004
        for _name in names_of(_op):
            method(f"{_name}_")(_twin(_op, f"{_name}_"))
        if _op.operator in _INPLACE and len(_op.inputs) == 2:  # noqa: PLR2004
            method(f"__{_INPLACE[_op.operator]}__")(_twin(_op, f"__{_INPLACE[_op.operator]}__"))


@method()
def copy_(x: Tensor, other: Any) -> Tensor:
    """Copy values into this tensor; not into recorded values in this version."""
    return store(x, other, "copy_")


@method()
def fill_(x: Tensor, value: Any) -> Tensor:
    """Fill with one number."""
    return store(x, value, "fill_")


@method()
def zero_(x: Tensor) -> Tensor:
    """Fill with zeros."""
    return store(x, 0, "zero_")


@method("__setitem__")
def assign(x: Tensor, key: Any, value: Any) -> None:
    """Write to a part given by slices and ints."""
    writable(x, "x[...] = ...")
    with modes.no_grad():
        part = x[key]
    store(part, value, "x[...] = ...")
