"""Calls that native code repeats: a call that is not in its table runs here, in Python, and is entered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from kernels.call_cache import entries, part_entries
from kernels.call_cache import entries as calls
from kernels.call_cache.entries import Key, Notification
from kernels.calls.object_types import place_of
from kernels.foundation import numpy_arrays
from kernels.foundation.specs import Spec, dense
from kernels.kinds import views
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Form
from kernels.kinds.views import Copy
from kernels.language import jit
from kernels.native import allocation
from kernels.native.c_api import NATIVE, NEW, NEW_VIEW, SET_BASE, agrees, table
from kernels.native.call_structs import (
    CONDITION,
    JOINS,
    MOST_JOINED,
    MOST_OPERANDS,
    NUMBERED,
    OP_PART,
    OPERATIONS,
    SHOWS,
)
from kernels.native.calls.function_type import operation
from kernels.native.memory import where
from kernels.native.structs import PULLS, RegistryTable
from kernels.operations.registry import OPS
from kernels.rules.op import calls_scipy
from tape.tensors import modes
from tape.tensors.tapes import Tape
from tape.tensors.tensor import Tensor
from tape.tensors.view_families import base_of

Method = TypeVar("Method", bound=Callable[..., Any])
NATIVELY = NATIVE and numpy_arrays.readable() and agrees()
NATIVE_OPERANDS = (Tensor, float, int)
"""Types of operands that native code accepts."""
_numbers: dict[str, int] = {}


def number_of(name: str) -> int:
    """Return the number of an operation that has no slot in the type of tensors."""
    return _numbers.setdefault(name, OPERATIONS + len(_numbers))


def operator_number(op: Any) -> int | None:
    """Return the number of an operator that has a slot in the type of tensors; None of any other."""
    return calls.OPERATORS.get((op.operator, len(op.inputs))) if NATIVELY else None


def number_of_op(op: Elementwise) -> int:
    """Return the number of an elementwise operation."""
    number = operator_number(op)
    if number is None:
        number = number_of(op.name) | (CONDITION if op.condition else 0)
    return number


def ask(number: int, once: Callable[..., Any], always: Callable[..., Any]) -> None:
    """Register the functions that native code calls on a miss: ``once`` enters the call, ``always`` does not."""
    _missed.extend((once, always))  # for ever, as the type
    allocation.put(allocation.REGISTRY.missed, 2 * number, id(once))
    allocation.put(allocation.REGISTRY.missed, 2 * number + 1, id(always))


_missed: list[Any] = []


def install(number: int, always: Callable[..., Any], enter: Callable[..., None]) -> None:
    """Install the Python side of an operator of the type of tensors; ``enter`` is as in :func:`repeating`."""
    ask(number, _entering(always, enter), always)


def _entering(always: Callable[..., Any], enter: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(always)
    def once(*args: Any, **named: Any) -> Any:
        result = always(*args, **named)
        if args:  # a call by keywords alone is not entered
            enter(result, *args, **named)
        return result

    return once


def repeating(number: int, enter: Callable[..., None]) -> Callable[[Method], Method]:
    """Let native code repeat a method; ``enter(result, *given, **named)`` enters a call of it that has been made."""

    def decorated(method: Method) -> Method:
        return operation(number, _entering(method, enter), method, method) if NATIVELY else method

    return decorated


def repeated(op: Elementwise, always: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of an operation that native code repeats; ``always`` is its Python side."""
    if not NATIVELY or len(op.inputs) > MOST_OPERANDS:
        return always
    number = _function_number(op)
    function: Callable[..., Any] = operation(number, _entering(always, partial(enter, op)), always, always)
    return function


def _function_number(op: Elementwise) -> int:
    return number_of_op(op) | (NUMBERED if op.scalar else 0)


def repeated_as(op: Elementwise | str, function: Callable[..., Any], missed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that native code repeats by the calls of another; ``missed`` makes those that are not known.

    ``op`` is the operation of the other, or its name in the table, and ``missed`` calls it.
    """
    if not NATIVELY or (not isinstance(op, str) and len(op.inputs) > MOST_OPERANDS):
        return missed
    number = number_of(op) if isinstance(op, str) else _function_number(op)
    repeating_it: Callable[..., Any] = operation(number, missed, missed, function)
    return repeating_it


def enter(op: Elementwise, result: Any, *operands: Any, **named: Any) -> None:
    """Enter a finished call of an operation, unless others than a recorder observed it."""
    whole = len(operands) == len(op.inputs) and all(type(x) in NATIVE_OPERANDS for x in operands)
    if named or not whole or type(result) is not Tensor:
        return
    forms = tuple([x._form if type(x) is Tensor else None for x in operands])
    if float in map(type, operands) and all(form is None or form.spec.dtype.kind != "f" for form in forms):
        return  # the same call with an int is another one
    number = float(operands[-1]) if op.scalar and forms[-1] is None else None
    power = number if result.spec.dtype.kind == "f" else operands[-1]
    notification = Notification(op, len(operands)) if number is None else Notification(OPS[op.scalar], 1, (power,))
    key = key_of(number_of_op(op), operands, forms, 0 if number is None else calls.bits(number))

    def how(saved: tuple[str, ...]) -> Any:
        specs = tuple([None if form is None else form.spec for form in forms])
        return None if calls_scipy(op) else op.computation(specs, result.spec, saved, number)

    enter_call(key, operands, result, notification, how)


def key_of(number: int, operands: tuple[Any, ...], forms: tuple[Any, ...], extra: int) -> Key | None:
    """Return the key of a call in the table; None where others than a recorder observe operations."""
    tape = modes.tape_beside_recorder()
    if tape is None:
        return None
    wanted = tuple([bool(tape) and type(x) is Tensor and x._slot is not None for x in operands])
    return Key(number, forms, wanted, extra)


def enter_call(
    key: Key | None,
    operands: tuple[Any, ...],
    result: Tensor,
    notification: Notification,
    how: Callable[[tuple[str, ...]], Any],
) -> None:
    """Enter a call; ``how(saved)`` returns its computation, or None where native code cannot do it."""
    if key is None or calls.is_known(key):
        return
    form, wanted = result._form, any(key.wanted)
    recorded = type(form) is Form
    pulls = recorded and form.kind == PULLS and type(result._slot) is int  # type: ignore[union-attr]
    done = (wanted and pulls) if recorded else not (wanted and result.spec.dtype.kind == "f")
    if recorded and not all(map(_is_recorded, operands, form.specs)):  # type: ignore[union-attr]
        done = False
    computation = how(form.saved if recorded else ()) if done else None  # type: ignore[union-attr]
    calls.enter(
        key, form, computation, notification, max(x.spec.bytes for x in (*operands, result) if type(x) is Tensor)
    )


def _is_recorded(operand: Any, spec: Spec | None) -> bool:
    """Whether an operand is what was recorded, not cast before: its pullbacks read memory of the spec's dtype."""
    return spec is None or type(operand) is not Tensor or operand.spec.dtype is spec.dtype


def install_part(
    index: Callable[[Tensor, Any], Tensor],
    params: Callable[[Tensor, Any], tuple[Any, ...]],
    copied: Callable[[Tensor, Tensor, Any], None],
) -> None:
    """Install the Python side of ``x[key]``: ``index``; ``params`` returns what a recorder is notified of.

    ``copied`` enters those that are no views.
    """

    def enter_part(result: Tensor, x: Tensor, key: Any) -> None:
        if (seen := _shown(x, result)) is not None:
            notification = Notification(result._form.op, 1, params(x, key))  # type: ignore[union-attr]
            part_entries.enter_part(x._form, key, result._form, seen, notification)  # type: ignore[arg-type]
        else:
            copied(result, x, key)

    install(OP_PART, index, enter_part)


def viewing(name: str) -> Callable[[Method], Method]:
    """Let native code repeat a method that returns a view, with ints and tuples of ints for arguments."""
    number = number_of(f"{name} of a tensor")

    def enter_view(result: Tensor, x: Any, *args: Any, **named: Any) -> None:
        if not named and result is not x and (seen := _shown(x, result)) is not None:
            part_entries.enter_view(number, x._form, args, result._form, seen)  # type: ignore[arg-type]

    return repeating(number | SHOWS, enter_view)


def _shown(x: Tensor, result: Tensor) -> part_entries.Part | None:
    """Return the part of a tensor that a view shows; None where it is no view, or others than a recorder observe it."""
    form = result._form
    if type(form) is not Form or not form.is_view or type(x) is not Tensor or modes.tape_beside_recorder() is None:
        return None
    if not x._form.spec.shape:
        return None  # NumPy's scalars have no views, PyTorch's tensors without dims do: Python knows which it is
    whole, shown = x._value, result._value
    above = x._offset if base_of(x) is not x else 0
    if result._base is not base_of(x) or type(whole) is not np.ndarray or type(shown) is not np.ndarray:
        return None  # of a copy, maybe
    if not shown.size or not np.may_share_memory(whole, shown):
        return None
    return part_entries.Part(shown, where(shown) - where(whole), result._offset - above, type(result._slot) is int)


@functools.cache
def provide(at: int, module: str, name: str) -> None:
    """Load machine code for a slot of the registry at its first use, so that importing tape does not load it."""
    allocation.put(allocation.REGISTRY.address, at, getattr(jit.load_module(module), name).address)


def copying(op: Copy, dtype: np.dtype[Any] | None = None) -> Callable[[Method], Method]:
    """Let native code repeat a method that copies a tensor, to a dtype if one is given."""
    number = number_of(op.name if dtype is None else f"{op.name} as {dtype.str}")

    def enter_copy(result: Tensor, x: Any, *args: Any, **named: Any) -> None:
        if type(x) is Tensor and not args and not named:
            key = key_of(number, (x,), (x._form,), 0)
            enter_call(key, (x,), result, Notification(op, 1), lambda _: views.copy_computation(x.spec, result.spec))

    return repeating(number, enter_copy)


if NATIVELY:
    for at, function in (
        (RegistryTable.new_array, NEW),
        (RegistryTable.new_view, NEW_VIEW),
        (RegistryTable.set_base, SET_BASE),
    ):
        allocation.put(allocation.REGISTRY.address, at, table()[function])
    variables = {
        RegistryTable.active: modes._active,
        RegistryTable.recorder: modes._sole_recorder,
        RegistryTable.mode: modes._mode,
    }
    for at, variable in variables.items():
        allocation.put(allocation.REGISTRY.address, at, id(variable))
    for at, module, name in (
        (RegistryTable.secure, "native.calls.computing_native", "secure"),
        (RegistryTable.hit, "native.calls.calls_native", "hit"),
        (RegistryTable.hit_view, "native.indexing.parts_native", "hit_view"),
    ):
        provide(at, module, name)
    allocation.put(allocation.REGISTRY.address, RegistryTable.tape_type, id(Tape))
    offsets = RegistryTable.entries, RegistryTable.thread, RegistryTable.given_arrays
    for at, place in zip(offsets, place_of(Tape, "entries", "thread", "given_arrays"), strict=True):
        allocation.put(allocation.REGISTRY.address, at, place)


# Lists of tensors joined, which native code repeats for forms that it has seen in this order.


def joining(op: Any, *, new: bool) -> Callable[[Method], Method]:
    """Let native code repeat a function that joins the tensors of a list, along a ``new`` dim or one that they have."""
    number = number_of(op.name)

    def enter(result: Any, tensors: Any, dim: Any = None, *, axis: Any = None) -> None:
        along = (0 if axis is None else axis) if dim is None else dim
        all_tensors = type(tensors) in (list, tuple) and all(type(x) is Tensor for x in tensors)
        if all_tensors and type(along) is int and len(tensors) <= MOST_JOINED and _is_plain(result, tensors):
            _enter(number, op, along, tensors, result, new=new)

    return repeating(number | JOINS, enter)


def _is_plain(result: Tensor, tensors: Any) -> bool:
    """Whether all tensors have one dtype and rank, and the result is C-contiguous and not empty."""
    spec = result.spec
    same = all(x.spec.dtype == spec.dtype for x in tensors)
    fresh = spec.shape and spec.size and spec.strides == dense(spec.shape, spec.dtype.itemsize)
    alike = len({len(x.spec.shape) for x in tensors}) == 1
    return bool(same and alike and fresh and spec.dtype.kind in "fiu" and spec.dtype != np.float16)


def _enter(number: int, op: Any, along: int, tensors: Any, result: Tensor, *, new: bool) -> None:
    tape, form, spec = modes.tape_beside_recorder(), result._form, result.spec
    if tape is None:
        return
    wanted = [bool(tape) and x._slot is not None for x in tensors]
    if any(wanted) is not (type(form) is Form and type(result._slot) is int):
        return
    axis, joined, at = along % len(spec.shape), [], 0
    strides = spec.strides[:axis] + spec.strides[axis + 1 :] if new else spec.strides
    for x, is_wanted in zip(tensors, wanted, strict=True):
        joined.append(entries.Joined(x._form, is_wanted, at * spec.strides[axis], strides))
        at += 1 if new else x.spec.shape[axis]
    provide(RegistryTable.hit_joined, "native.calls.joining_native", "hit_joined")
    entries.enter_join(number, along, joined, form, Notification(op, len(tensors), (axis, new)))
