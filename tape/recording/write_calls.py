"""Writes that native code repeats, to a part of a tensor or to places in it; see cached_calls.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.call_cache import entries as calls
from kernels.call_cache.entries import Key, arguments, cache_call
from kernels.foundation.specs import dense
from kernels.kinds.form import Form
from kernels.kinds.views import Write, write_computation
from kernels.language import jit
from kernels.native import allocation, call_structs
from kernels.native.memory import where
from kernels.native.structs import RegistryTable
from tape.recording import pick_calls
from tape.recording.cached_calls import NATIVE_OPERANDS, NATIVELY, Miss, number_of
from tape.recording.pick_calls import Plan, by_index
from tape.recording.promotion import with_tensor
from tape.recording.views import CLONE, clone
from tape.tensors import modes
from tape.tensors.tensor import Tensor, as_array
from tape.tensors.view_families import Stale, base_of, has_views, is_view

_ITEMS = (int, np.int64, slice, type(None), type(...))
if NATIVELY:
    allocation.put(allocation.REGISTRY.address, RegistryTable.clone, number_of(CLONE.name))
    allocation.put(allocation.REGISTRY.address, RegistryTable.stale_type, id(Stale))


def assign_call(
    assign: Callable[[Tensor, Any, Any], None], release: Callable[[Tensor, Tensor], bool]
) -> Callable[..., None]:
    """Return what makes and enters ``x[key] = value``.

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
        relation = _relation(x, key, value[0])
        source = clone(value[0]) if relation == call_structs.OVERLAPPING else value[0]
        seen = _key(call_structs.OP_ASSIGN, x, source, value[0])
        assign(x, key, source)
        if seen is not None and _is_native(seen, x) and not (relation == call_structs.SAME and any(seen.wanted)):
            _enter_write(seen, x, key, source)

    return once


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
    how = write_computation(value.spec, x.spec, part) if _fits(value.spec.shape, part.shape) else None
    if how is None or how.layout is None:
        return call_structs.APART  # not written by native code
    relation: Callable[..., int] = jit.load_module("native.calls.writes_native").relation
    return relation(where(how.layout), where(value._value), where(part), part.itemsize)


def _is_view_of(x: Tensor, value: Any) -> bool:
    return type(value) is Tensor and is_view(value) and value._base is x


def _enter_write(seen: Key, x: Tensor, key: Any, value: Any) -> None:
    """Enter a finished ``x[key] = value``."""
    shown, spec = _shown(x, key), x.spec
    if shown is None:
        cache_scatter(seen, (x, key), value, by_index)
        return
    source = None if seen.forms[1] is None else seen.forms[1].spec
    how, asked = write_computation(source, spec, shown), arguments((key,), {}, indexed=True)
    if how is not None and asked is not None:
        start = where(shown) - where(as_array(x))
        how = replace(how, target=call_structs.TO_PART, picks=(2,), start=start, offset=start)
        cache_call(seen, x._form, how, largest=spec.bytes, asked=asked, axes=calls.axes_of(spec, key))


def _key(op: int, x: Tensor, value: Any, operand: Any) -> Key | None:
    """Return the key in the table of a write that is about to happen; None beside living views but the operand.

    ``value`` is the operand, or a copy of it. Afterwards a view has another slot.
    """
    if has_views(x, but=operand):
        return None
    source = value if type(value) is Tensor else None
    wants = x._slot is not None, source is not None and source._slot is not None
    forms = x._form, None if source is None else source._form
    return Key(op, forms, wants if modes.active() else (False, False))


def _is_native(seen: Key, x: Tensor) -> bool:
    """Whether native code can repeat a write that has happened."""
    form, (before, source) = x._form, seen.forms
    recorded = type(form) is Form and isinstance(form.op, Write) and type(x._slot) is int
    if type(x._value) is not np.ndarray or not (recorded if any(seen.wanted) else form is before):
        return False
    return not seen.wanted[1] or form.specs[1] is source.spec  # type: ignore[union-attr]  # else a part of it was written


def scatter_call(plan: Plan, *, adds: bool = False) -> Miss:
    """Return what makes and enters calls that write their last argument to places, or add it to them.

    The places are of arguments before that: ``plan(spec, *arguments)`` says which.
    """

    def miss(method: Callable[..., Any], number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        x: Any = args[0] if args else None
        is_base = type(x) is Tensor and base_of(x) is x
        if not is_base or len(args) == 1 or named or type(args[-1]) not in NATIVE_OPERANDS:
            return method(*args, **named)
        if modes.unobserved_tape() is None:
            return method(*args)
        operand = args[-1]
        if _is_view_of(x, operand):
            args = *args[:-1], clone(operand)
        seen, spec = _key(number, x, args[-1], operand), x.spec
        result = method(*args)
        in_order = spec.strides == dense(spec.shape, spec.dtype.itemsize)
        if seen is not None and in_order and _is_native(seen, x) and not (adds and spec.dtype not in _ADDED):
            cache_scatter(seen, args[:-1], args[-1], plan, adds=adds)
        return result

    return miss


def cache_scatter(seen: Key, args: tuple[Any, ...], value: Any, plan: Plan, *, adds: bool = False) -> None:
    """Enter a write to places that the arrays among the arguments name."""
    x, spec = args[0], seen.forms[0].spec  # type: ignore[union-attr]
    source = value.spec if type(value) is Tensor else None
    if spec.overlaps or spec.strides != spec.gradient or not 0 < spec.size <= _LARGEST or not spec.shape:
        return
    if source is None and (spec.dtype.kind == "b" or spec.dtype == np.float16):
        return
    asked = arguments(args[1:], {}, indexed=True)
    picks = plan(spec, *args[1:]) if asked is not None and asked.arrays else None
    if picks is None:
        return
    items = args[1] if seen.op == call_structs.OP_ASSIGN else args[1:]
    places = picks.places([item for item in pick_calls.array_key(items) if isinstance(item, np.ndarray)])
    if not places.size:
        return
    if any(seen.wanted) and not adds and pick_calls.last_ones(places, spec.size) is not None:
        return  # what was recorded is fewer places
    if source is not None and (source.dtype != spec.dtype or not _fits(source.shape, places.shape)):
        return
    once = source is not None and any(seen.wanted) and not picks.inner and not adds
    how = calls.scatter_computation(picks, spec, source, places.shape, adds=adds, once=once)
    if how is not None:
        cache_call(seen, x._form, how, largest=spec.bytes, asked=asked)


def _fits(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a value of a shape is broadcast to another, and no part of it is written."""
    lead = len(to) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, to[lead:], strict=True))


_ADDED = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.int64))
"""Dtypes in which native code adds."""
_LARGEST = 1 << 16
"""Elements of the largest tensor that is written to at places."""
