"""Calls in the table that show, or write, part of a tensor (parts_native.py, assigning_native.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.call_cache.entries import Entry, Key, Notification
from kernels.compiler import jit
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Descriptor, Form
from kernels.native.call_structs import NEST, OP_PART, CallEntry
from kernels.native.calls.computation import Computation
from kernels.native.memory import where
from kernels.native.object_structs import A_WRITEABLE

_INTS = int, np.int64


@dataclass(frozen=True)
class Part:
    """What ``x[key]`` shows: an array, and where that begins in the memory and in the gradient, in bytes."""

    shown: np.ndarray[Any, Any]
    start: int
    offset: int
    wanted: bool
    """Whether it is recorded."""


def enter_part(above: Descriptor, key: Any, form: Form, part: Part, notification: Notification) -> None:
    """Let native code repeat ``x[key]`` of tensors of a form; of a form without parameters for any ints."""
    entry = Entry(Key(OP_PART, (above, None), (part.wanted,)), form)
    if _indexes(entry, key, above.spec, part, anywhere=not form.params) and not entry.is_known():
        if not entry.row[CallEntry.extent]:  # a recorder needs the index itself
            entry.notifies(notification)
        _shows(entry, above, form, part)
        entry.write()


def enter_view(op: int, above: Descriptor, args: tuple[Any, ...], form: Form, part: Part) -> None:
    """Let native code repeat a view whose arguments are ints; Python notifies recorders of it."""
    index, addresses = np.zeros(32, np.int64), np.array([*map(id, args), 0], np.int64)
    hashed = jit.load_module("native.calls.keys_native").words_of_arguments(where(addresses), len(args), where(index))
    if hashed >= 0:
        entry = Entry(Key(op, (above, None), (part.wanted,)), form)
        entry.begins(hashed, part.start, part.offset)
        entry.keep(CallEntry.key, index, where(index))
        _shows(entry, above, form, part)
        entry.write()


def enter_write(key: Key, index: Any, form: Descriptor, how: Computation, part: Part) -> None:
    """Let native code repeat ``x[index] = value``, after which the tensor has this form."""
    entry = Entry(key, form)
    entry.computes(how)
    if part.wanted:
        entry.records(form)
        entry.sizes(form.spec.bytes, 0)
    if _indexes(entry, index, form.spec, part):
        entry.write()


def _shows(entry: Entry, above: Descriptor, form: Form, part: Part) -> None:
    shown = part.shown
    if part.wanted:
        entry.records(form)
    entry[CallEntry.kind], entry[CallEntry.ndim] = NEST, shown.ndim
    entry[CallEntry.count] = isinstance(above, Form) and above.is_view
    entry.words_of(CallEntry.shape, shown.shape)
    entry.words_of(CallEntry.strides, shown.strides)
    entry[CallEntry.flags] = A_WRITEABLE if shown.flags.writeable else 0
    entry.sizes(form.spec.bytes, 0)


def _indexes(entry: Entry, index: Any, spec: Spec, part: Part, *, anywhere: bool = True) -> bool:
    """Set an entry's index; ints ``anywhere`` stand for any. False if native code does not accept it."""
    index_words = np.zeros(32, np.int64)
    hashed = jit.load_module("native.calls.keys_native").words_of(id(index), where(index_words))
    ints = index if type(index) is tuple else (index,)
    if anywhere and hashed >= 0 and ints and all(type(i) in _INTS for i in ints):
        entry[CallEntry.constant], entry[CallEntry.extent] = len(ints), len(ints)
        axes = zip(spec.shape, spec.strides, spec.gradient, ints)  # noqa: B905 (the first of them)
        entry.words_of(CallEntry.key, [number for *axis, _ in axes for number in axis])
        entry.begins(0, 0, 0)
    else:
        entry.keep(CallEntry.key, index_words, where(index_words))
        entry.begins(hashed, part.start, part.offset)
    return hashed >= 0
