"""Writes, and tensors that share memory, which native code repeats; see call_table.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels.call_cache import entries as calls
from kernels.call_cache import part_entries
from kernels.call_cache.entries import Key, Notification
from kernels.foundation.specs import broadcast, dense
from kernels.kinds import views
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Form
from kernels.kinds.views import Write
from kernels.language import jit
from kernels.native import allocation, call_structs
from kernels.native.calls.function_type import operation
from kernels.native.memory import where
from kernels.native.structs import RegistryTable
from tape.recording import pick_calls
from tape.recording.pick_calls import Plan, by_index, ready
from tape.recording.promotion import with_tensor
from tape.recording.views import CLONE, clone
from tape.repeated_calls.call_table import NATIVE_OPERANDS, NATIVELY, ask, number_of, number_of_op, provide, repeating
from tape.tensors import modes
from tape.tensors.tensor import Tensor, as_array
from tape.tensors.view_families import Stale, base_of, has_views, is_view

Method = TypeVar("Method", bound=Callable[..., Any])
_ITEMS = (int, np.int64, slice, type(None), type(...))


def repeated_in_place(op: Elementwise, in_place: Method, augmented: int = 0) -> Method:
    """Return a method that does an operation in place, which native code repeats with the calls of that operation.

    ``augmented``: ``call_structs.AUGMENTED`` for ``x += y``.
    """
    if op.identity or len(op.inputs) > call_structs.MOST_OPERANDS or not NATIVELY:
        return in_place
    number = number_of_op(op) | call_structs.WRITES | augmented | (call_structs.NUMBERED if op.scalar else 0)
    return repeating(number, _write_in_place)(in_place)


def _write_in_place(*_: Any, **__: Any) -> None:
    provide(RegistryTable.hit_in_place, "native.calls.in_place_native", "hit_in_place")


def install_assign(
    assign: Callable[[Tensor, Any, Any], None],
    written: Callable[[Tensor], None],
    release: Callable[[Tensor, Tensor], bool],
) -> None:
    """Install the Python side of ``x[key] = value``; native code calls ``written`` after a write that it did itself.

    ``release(x, x)`` gives elements of x memory of their own, and returns whether there were any.
    """

    def once(x: Tensor, key: Any, *value: Any) -> None:
        if not value:
            raise TypeError("Tensor does not support deleting items")
        if type(value[0]) is np.ndarray and type(x) is Tensor and value[0].dtype is x._form.spec.dtype:
            x[key] = with_tensor(value[0])  # native code repeats that
            return
        is_base = type(x) is Tensor and base_of(x) is x
        if is_base and modes.given_arrays() and has_views(x) and release(x, x):
            x[key] = value[0]  # native code can do it now
            return
        if not is_base or type(value[0]) not in NATIVE_OPERANDS or modes.unobserved_tape() is None:
            assign(x, key, *value)
            return
        provide(RegistryTable.assign, "native.indexing.assigning_native", "assign")
        relation = _relation(x, key, value[0])
        source = clone(value[0]) if relation == call_structs.OVERLAPPING else value[0]
        seen = _key(call_structs.OP_ASSIGN, x, source, value[0])
        assign(x, key, source)
        if seen is not None and _is_native(seen, x) and not (relation == call_structs.SAME and any(seen.wanted)):
            _enter_write(seen, x, key, source)

    ask(call_structs.OP_ASSIGN, once, written)
    if NATIVELY:
        allocation.put(allocation.REGISTRY.address, RegistryTable.clone, number_of(CLONE.name))
        allocation.put(allocation.REGISTRY.address, RegistryTable.stale_type, id(Stale))


def _shown(x: Tensor, key: Any) -> Any:
    """Return the part of a tensor's array that ints, slices, None and Ellipsis name; None of any other key."""
    keys, array = key if type(key) is tuple else (key,), x._value
    if type(array) is not np.ndarray or any(type(item) not in _ITEMS for item in keys):
        return None
    return array[keys if ... in keys else (*keys, ...)]


def _relation(x: Tensor, key: Any, value: Any) -> int:
    """Return how a value stands to the part that it is written to; where native code writes, it goes by the same."""
    if not _is_view_of(x, value):
        return call_structs.APART
    try:
        part = _shown(x, key)
    except (IndexError, TypeError, ValueError):
        return call_structs.APART  # the write raises it
    if part is None:
        return call_structs.OVERLAPPING  # so picked elements may
    how = views.write_computation(value.spec, x.spec, part) if _fits(value.spec.shape, part.shape) else None
    if how is None or how.layout is None:
        return call_structs.APART  # not written by native code
    relation: Callable[..., int] = jit.load_module("native.indexing.assigning_native").relation
    return relation(where(how.layout), where(value._value), where(part), part.itemsize)


def _is_view_of(x: Tensor, value: Any) -> bool:
    return type(value) is Tensor and is_view(value) and value._base is x


def _enter_write(seen: Key, x: Tensor, key: Any, value: Any) -> None:
    """Enter a finished ``x[key] = value``."""
    shown, array = _shown(x, key), as_array(x)
    if shown is None:
        provide(RegistryTable.assign_at, "native.indexing.putting_native", "assign_at")
        _enter_write_at(seen, (x, key), value, by_index)
        return
    source = None if seen.forms[2] is None else seen.forms[2].spec
    how = views.write_computation(source, x.spec, shown)
    if how is not None:
        start = where(shown) - where(array)
        part_entries.enter_write(seen, key, x._form, how, part_entries.Part(shown, start, start, any(seen.wanted)))


def _key(op: int, x: Tensor, value: Any, operand: Any) -> Key | None:
    """Return the key in the table of a write that is about to happen; None beside living views but the operand.

    ``value`` is the operand, or a copy of it. Afterwards a view has another slot.
    """
    if has_views(x, but=operand):
        return None
    source = value if type(value) is Tensor else None
    wants = x._slot is not None, source is not None and source._slot is not None
    forms = x._form, None, None if source is None else source._form
    return Key(op, forms, wants if modes.active() else (False, False))


def _is_native(seen: Key, x: Tensor) -> bool:
    """Whether native code can repeat a write that has happened."""
    form, (before, _, source) = x._form, seen.forms
    recorded = type(form) is Form and isinstance(form.op, Write) and type(x._slot) is int
    if type(x._value) is not np.ndarray or not (recorded if any(seen.wanted) else form is before):
        return False
    return not seen.wanted[1] or form.specs[1] is source.spec  # type: ignore[union-attr]  # else a part of it was written


def putting(name: str, plan: Plan, *, adds: bool = False) -> Callable[[Method], Method]:
    """Let native code repeat a method that writes its last argument to places, or adds it to them.

    The places are of arguments before that: ``plan(spec, *arguments)`` says which.
    """
    number = number_of(name) | (call_structs.ADDING if adds else 0)

    def enter(seen: Key, x: Tensor, args: tuple[Any, ...]) -> None:
        *arguments, value = args
        spec = x.spec
        if not _is_native(seen, x) or (adds and spec.dtype not in _ADDED):
            return
        if spec.strides == dense(spec.shape, spec.dtype.itemsize):
            provide(RegistryTable.hit_put, "native.indexing.putting_native", "hit_put")
            _enter_write_at(seen, (x, *arguments), value, plan, adds=adds)

    def decorated(method: Method) -> Method:
        @functools.wraps(method)
        def once(x: Any, *args: Any, **named: Any) -> Any:
            is_base = type(x) is Tensor and base_of(x) is x
            if not is_base or not args or named or type(args[-1]) not in NATIVE_OPERANDS:
                return method(x, *args, **named)
            if modes.unobserved_tape() is None:
                return method(x, *args)
            operand = args[-1]
            if _is_view_of(x, operand):
                args = *args[:-1], clone(operand)
            seen = _key(number, x, args[-1], operand)
            result = method(x, *args)
            if seen is not None:
                enter(seen, x, args)
            return result

        return operation(number | call_structs.PUTS, once, method, method) if NATIVELY else method

    return decorated


def _enter_write_at(seen: Key, args: tuple[Any, ...], value: Any, plan: Plan, *, adds: bool = False) -> None:
    """Enter a write to places that the arrays among the arguments name."""
    x, spec = args[0], seen.forms[0].spec  # type: ignore[union-attr]
    source = value.spec if type(value) is Tensor else None
    if spec.overlaps or spec.strides != spec.gradient or not 0 < spec.size <= _LARGEST or not spec.shape:
        return
    if source is None and (spec.dtype.kind == "b" or spec.dtype == np.float16):
        return
    ready()
    how = plan(spec, *args[1:]) if part_entries.takes(seen.op, args) else None
    if how is None:
        return
    items = args[1] if seen.op == call_structs.OP_ASSIGN else args[1:]
    places = how.places([item for item in pick_calls.array_key(items) if isinstance(item, np.ndarray)])
    shape = places.shape
    if not places.size:
        return
    if any(seen.wanted) and not adds and pick_calls.last_ones(places, spec.size) is not None:
        return  # what was recorded is fewer places
    if source is not None and (source.dtype != spec.dtype or not _fits(source.shape, shape)):
        return
    strides = (0,) * len(shape) if source is None else broadcast(source.shape, source.strides, shape)
    offsets = np.zeros(shape, np.int64)
    for axis, stride in enumerate(strides):
        offsets += (np.arange(shape[axis]) * stride).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    once = spec.size if source is not None and any(seen.wanted) and not how.inner and not adds else 0
    putting_plan = part_entries.Putting(how, shape, offsets, spec.bytes, once)
    part_entries.enter_picked_write(seen, args, x._form, putting_plan)


def _fits(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a value of a shape is broadcast to another, and no part of it is written."""
    lead = len(to) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, to[lead:], strict=True))


_ADDED = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.int64))
"""Dtypes in which native code adds."""
_LARGEST = 1 << 16
"""Elements of the largest tensor that is written to at places."""


def sharing(name: str) -> Callable[[Method], Method]:
    """Let native code repeat a method that returns a tensor without history that shares memory and version counter."""
    number = number_of(name)

    def enter(result: Tensor, x: Any, *args: Any, **named: Any) -> None:
        is_base = type(x) is Tensor and base_of(x) is x and type(x._value) is np.ndarray
        if is_base and result._value is x._value and not args and not named and modes.unobserved_tape() is not None:
            provide(RegistryTable.hit_shared, "calls.tensor_native", "hit_shared")
            calls.enter(Key(number, (x._form,)), result._form, None, Notification(None, 1), 0)

    return repeating(number | call_structs.SHARES, enter)
