"""Calls in the table that show, or write, part of a tensor (parts_native.py, assigning_native.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.call_cache.entries import Entry, Key, Notification
from kernels.foundation.specs import Spec
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Descriptor, Form
from kernels.language import jit
from kernels.native.c_api import A_WRITEABLE
from kernels.native.call_structs import BY_ARRAYS, NEST, NEST4, NEST_INT, OP_PART, PICKED, CallEntry
from kernels.native.calls.computation import Computation
from kernels.native.memory import where

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


# Calls in the table that pick elements by arrays (kernels/native/indexing/index_arrays_native.py).

Array = np.ndarray[Any, Any]
LARGEST = 1 << 11
"""The most elements of a result: its description takes as many words, or more."""


@dataclass(frozen=True)
class Taking:
    """How one index array picks: which of its elements belongs to each of the result's, and the stride of its axis."""

    which: Array
    step: int
    extent: int
    least: int


@dataclass(frozen=True)
class Picking:
    """How elements are picked: a base offset for each element, and what index arrays add to it.

    For a mask: the numbers of all elements that it could pick, in order, and how many go with each of its own.
    """

    base: Array
    takings: tuple[Taking, ...] = ()
    inner: int = 0

    def places(self, arrays: list[Array]) -> Array:
        """Return the numbers of the elements that these arrays, or one mask, pick."""
        if self.inner:
            return self.base[arrays[0].reshape(-1)]
        places = self.base.copy()
        for taking, array in zip(self.takings, arrays, strict=True):
            indices = np.asarray(array, np.int64).reshape(-1)[taking.which.reshape(places.shape)]
            places += np.where(indices < 0, indices + taking.extent, indices) * taking.step
        return places

    def layout(self, kept: list[Any]) -> Array:
        """Return the description as words; ``kept`` gets the arrays that they refer to."""
        base = _flat(self.base, kept)
        layout = [len(base) // max(self.inner, 1), len(self.takings), self.inner, where(base)]
        for taking in self.takings:
            layout += [taking.step, taking.extent, taking.least, where(_flat(taking.which, kept))]
        return np.array(layout, np.int64)


def _flat(array: Array, kept: list[Any]) -> Array:
    kept.append(np.array(array, np.int64).reshape(-1))
    flat: Array = kept[-1]
    return flat


def takes(op: int, args: tuple[Any, ...]) -> bool:
    """Whether native code accepts these arguments: a tensor, then arrays, lists and items of indexes."""
    return _words(op, args)[0] >= 0


def _words(op: int, args: tuple[Any, ...]) -> tuple[int, Array]:
    index, addresses = np.zeros(32, np.int64), np.array([*map(id, args), 0], np.int64)
    hashed = jit.load_module("native.indexing.index_arrays_native").words_of(
        op, where(addresses), len(args), where(index)
    )
    return hashed, index


def enter(op: int, above: Descriptor, args: tuple[Any, ...], form: Descriptor, wanted: bool, how: Picking) -> None:
    """Let native code repeat a call on a tensor of a form: ``args`` are all arguments, the tensor first."""
    hashed, index = _words(op, args)
    spec = form.spec
    if hashed < 0 or not spec.shape or max(how.base.size, spec.size) > LARGEST:
        return
    entry = Entry(Key(op, (above,), (wanted,), hashed), form)
    entry[CallEntry.second] = BY_ARRAYS
    if wanted:
        entry.records(form)
    entry.computes(Computation(PICKED, layout=how.layout(entry.kept), count=spec.dtype.itemsize, picks=(1,)))
    entry.shapes(spec)
    entry.keep(CallEntry.key, index, where(index))
    entry.write()


@dataclass(frozen=True)
class Putting:
    """A write to picked elements: how they are picked, the value's shape, and the offset of each of its elements."""

    how: Picking
    shape: tuple[int, ...]
    offsets: Array
    largest: int
    """Bytes of the tensor."""
    once: int = 0
    """Where no element may be picked twice: how many elements there are; else 0."""


def enter_picked_write(before: Key, args: tuple[Any, ...], form: Descriptor, putting: Putting) -> None:
    """Let native code repeat ``x[key] = value``: ``args`` are x and key; the tensor has this form then."""
    hashed, index = _words(before.op, args)
    if hashed < 0 or not putting.shape or max(putting.how.base.size, putting.offsets.size) > LARGEST:
        return
    dtype = form.spec.dtype
    entry = Entry(Key(before.op, before.forms, before.wanted, hashed), form)
    entry[CallEntry.second] = BY_ARRAYS
    if any(before.wanted):
        entry.records(form)
        entry.sizes(putting.largest, 0)
    kind = {"f8": NEST, "f4": NEST4}.get(dtype.str[1:], NEST_INT)
    bounds = (int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), _MOST)) if dtype.kind in "iu" else None
    entry.computes(Computation(kind, layout=putting.how.layout(entry.kept), count=dtype.itemsize, bounds=bounds))
    entry[CallEntry.data], entry[CallEntry.extent] = where(_flat(putting.offsets, entry.kept)), putting.once
    entry[CallEntry.ndim] = len(putting.shape)
    entry.words_of(CallEntry.shape, putting.shape)
    entry.keep(CallEntry.key, index, where(index))
    entry.write()


_MOST = np.iinfo(np.int64).max
