"""Writes, and tensors that share memory, which native code repeats as it does other calls (tape/call_table.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels import call_entries as calls
from kernels import computations, part_entries, pick_entries, words
from kernels.call_entries import Key, Telling
from kernels.form import Form
from kernels.layouts import Spec, broadcast
from kernels.memory import where
from kernels.op import Elementwise, Write
from tape import index_arrays, modes
from tape.call_table import NATIVELY, OWN, ask, number_of, number_of_op, provide, repeating
from tape.families import base_of
from tape.picked_calls import by_index, ready
from tape.promotion import with_tensor
from tape.tensor import Tensor

Method = TypeVar("Method", bound=Callable[..., Any])
_ITEMS = (int, np.int64, slice, type(None), type(...))


def repeated_in_place(op: Elementwise, in_place: Method) -> Method:
    """Return a method that does an operation in place, which native code repeats with the calls of that operation."""
    if op.identity or len(op.inputs) > words.MOST_OPERANDS or not NATIVELY:
        return in_place
    number = number_of_op(op) | words.WRITES | (words.NUMBERED if op.scalar else 0)
    return repeating(number, _write_in_place)(in_place)


def _write_in_place(*_: Any, **__: Any) -> None:
    provide(words.G_HIT_IN_PLACE, "in_place_native", "hit_in_place")


def install_assign(assign: Callable[[Tensor, Any, Any], None], written: Callable[[Tensor], None]) -> None:
    """Let native code ask ``assign`` to write a part, and tell ``written`` of one that has been written where it is."""

    def once(x: Tensor, key: Any, *value: Any) -> None:
        if not value:
            raise TypeError("Tensor does not support deleting items")
        if type(value[0]) is np.ndarray and type(x) is Tensor and value[0].dtype is x._form.spec.dtype:
            x[key] = with_tensor(value[0])  # native code repeats that
            return
        own = type(x) is Tensor and base_of(x) is x
        before, wanted = (x._form, x._slot is not None) if own else (None, False)
        assign(x, key, *value)
        if before is not None and type(value[0]) in OWN and modes.alone() is not None:
            provide(words.G_ASSIGN, "assigning_native", "assign")
            _enter_write(before, wanted, x, key, value[0])

    ask(words.OP_ASSIGN, once, written)


def _enter_write(before: Form | Spec, wanted: bool, x: Tensor, key: Any, value: Any) -> None:
    """Enter ``x[key] = value`` that has been done; what the tensor had before is given."""
    given, array, form = (value if type(value) is Tensor else None), x._value, x._form
    wants = (wanted, given is not None and given._slot is not None) if modes.active() else (False, False)
    recorded = type(form) is Form and isinstance(form.op, Write) and type(x._slot) is int
    if type(array) is not np.ndarray or not (recorded if any(wants) else form is before):
        return
    keys = key if type(key) is tuple else (key,)
    if any(type(one) not in _ITEMS for one in keys):
        _enter_write_at(
            Key(words.OP_ASSIGN, (before, None, None if given is None else given._form), wants), x, key, given
        )
        return
    shown = array[keys if ... in keys else (*keys, ...)]
    how = computations.write(None if given is None else given.spec, before.spec, shown)
    if how is not None:
        seen = Key(words.OP_ASSIGN, (before, None, None if given is None else given._form), wants)
        start = where(shown) - where(array)
        part_entries.enter_write(seen, key, form, how, part_entries.Part(shown, start, start, any(wants)))


def _enter_write_at(seen: Key, x: Tensor, key: Any, given: Tensor | None) -> None:
    """Enter ``x[key] = value`` with arrays in the index."""
    spec = seen.forms[0].spec  # type: ignore[union-attr]
    source = None if given is None else given.spec
    if spec.overlaps or spec.strides != spec.gradient or not 0 < spec.size <= _LARGEST:
        return
    if source is None and (spec.dtype.kind == "b" or spec.dtype == np.float16):
        return
    ready()
    if not pick_entries.takes(words.OP_ASSIGN, (x, key)):
        return
    how, found = by_index(spec, key), index_arrays.places(spec, spec.strides, index_arrays.array_key(key))
    shape = found.shape
    if any(seen.wanted) and index_arrays.last_ones(found, spec.size) is not None:
        return  # what was recorded is fewer places
    if how is None or (source is not None and (source.dtype != spec.dtype or len(source.shape) > len(shape))):
        return
    strides = (0,) * len(shape) if source is None else broadcast(source.shape, source.strides, shape)
    offsets = np.zeros(shape, np.int64)
    for axis, stride in enumerate(strides):
        offsets += (np.arange(shape[axis]) * stride).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    once = spec.size if source is not None and any(seen.wanted) and not how.inner else 0
    provide(words.G_ASSIGN_AT, "putting_native", "assign_at")
    what = pick_entries.Putting(how, shape, offsets, spec.bytes, once)
    pick_entries.enter_write(seen, (x, key), x._form, what)


_LARGEST = 1 << 16
"""Elements of the largest tensor that is written to at places."""


def sharing(name: str) -> Callable[[Method], Method]:
    """Let native code repeat a method that gives a tensor of the same memory, and count of writes, without history."""
    number = number_of(name)

    def enter(result: Tensor, x: Any, *given: Any, **named: Any) -> None:
        own = type(x) is Tensor and base_of(x) is x and type(x._value) is np.ndarray
        if own and result._value is x._value and not given and not named and modes.alone() is not None:
            provide(words.G_HIT_SHARED, "detaching_native", "hit_shared")
            calls.enter(Key(number, (x._form,)), result._form, None, Telling(None, 1), 0)

    return repeating(number | words.SHARES, enter)
