"""Calls in the table that pick elements by arrays (kernels/native/indexing/picking_native.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.call_cache.entries import Entry, Key
from kernels.compiler import jit
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Descriptor
from kernels.native.call_structs import BY_ARRAYS, NEST, NEST4, NEST_INT, PICKED, CallEntry
from kernels.native.calls.computation import Computation
from kernels.native.memory import where

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


def enter_write(before: Key, args: tuple[Any, ...], form: Descriptor, putting: Putting) -> None:
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
