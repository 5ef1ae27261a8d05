"""Calls in the table that pick elements by arrays (kernels/native/indexing/picking_native.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.call_cache.entries import Entry, Key
from kernels.compiler import jit
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.native import words
from kernels.native.calls.computation import Computation
from kernels.native.memory import where

Array = np.ndarray[Any, Any]
LARGEST = 1 << 11
"""Elements of the largest result: what says how they are picked takes as many words, or more."""


@dataclass(frozen=True)
class Taking:
    """How an array of places counts: which of its elements for each of the result's, and how far a place goes."""

    which: Array
    step: int
    extent: int
    least: int


@dataclass(frozen=True)
class Picking:
    """How elements are picked: what the place of each begins with, and what arrays add to that.

    Of a mask: the places of all that it could pick, as they follow each other in memory, and how many go together.
    """

    base: Array
    takings: tuple[Taking, ...] = ()
    inner: int = 0

    def places(self, arrays: list[Array]) -> Array:
        """Return the places, as numbers of elements, that these arrays pick, or one mask."""
        if self.inner:
            return self.base[arrays[0].reshape(-1)]
        found = self.base.copy()
        for one, array in zip(self.takings, arrays, strict=True):
            given = np.asarray(array, np.int64).reshape(-1)[one.which.reshape(found.shape)]
            found += np.where(given < 0, given + one.extent, given) * one.step
        return found

    def layout(self, kept: list[Any]) -> Array:
        """Return it in words; the arrays that they refer to are kept."""
        base = _flat(self.base, kept)
        found = [len(base) // max(self.inner, 1), len(self.takings), self.inner, where(base)]
        for one in self.takings:
            found += [one.step, one.extent, one.least, where(_flat(one.which, kept))]
        return np.array(found, np.int64)


def _flat(array: Array, kept: list[Any]) -> Array:
    kept.append(np.array(array, np.int64).reshape(-1))
    found: Array = kept[-1]
    return found


def takes(op: int, given: tuple[Any, ...]) -> bool:
    """Whether native code takes what a call was given: a tensor, then arrays, lists and what indexes take."""
    return _words(op, given)[0] >= 0


def _words(op: int, given: tuple[Any, ...]) -> tuple[int, Array]:
    index, addresses = np.zeros(32, np.int64), np.array([*map(id, given), 0], np.int64)
    hashed = jit.load_module("native.indexing.index_arrays_native").words_of(
        op, where(addresses), len(given), where(index)
    )
    return hashed, index


def enter(op: int, above: Form | Spec, given: tuple[Any, ...], form: Form | Spec, wanted: bool, how: Picking) -> None:
    """Let native code repeat a call on a tensor of a form: ``given`` is all that it was given, the tensor first."""
    hashed, index = _words(op, given)
    spec = form.spec
    if hashed < 0 or not spec.shape or max(how.base.size, spec.size) > LARGEST:
        return
    entry = Entry(Key(op, (above,), (wanted,), hashed), form)
    entry[words.K_B] = words.BY_ARRAYS
    if wanted:
        entry.records(form)
    entry.computes(Computation(words.PICKED, layout=how.layout(entry.kept), count=spec.dtype.itemsize, picks=(1,)))
    entry.shapes(spec)
    entry.keep(words.E_KEY, index, where(index))
    entry.write()


@dataclass(frozen=True)
class Putting:
    """What is written where arrays pick: how they do, the shape, and how far in a value each of its elements stands."""

    how: Picking
    shape: tuple[int, ...]
    offsets: Array
    largest: int
    """Bytes of the tensor."""
    once: int = 0
    """Where no place may be there twice: how many there are."""


def enter_write(before: Key, given: tuple[Any, ...], form: Form | Spec, what: Putting) -> None:
    """Let native code repeat ``x[key] = value``: ``given`` are x and key; the tensor has this form then."""
    hashed, index = _words(before.op, given)
    if hashed < 0 or not what.shape or max(what.how.base.size, what.offsets.size) > LARGEST:
        return
    dtype = form.spec.dtype
    entry = Entry(Key(before.op, before.forms, before.wanted, hashed), form)
    entry[words.K_B] = words.BY_ARRAYS
    if any(before.wanted):
        entry.records(form)
        entry.sizes(what.largest, 0)
    kind = {"f8": words.NEST, "f4": words.NEST4}.get(dtype.str[1:], words.NEST_INT)
    bounds = (int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), _MOST)) if dtype.kind in "iu" else None
    entry.computes(Computation(kind, layout=what.how.layout(entry.kept), count=dtype.itemsize, bounds=bounds))
    entry[words.E_DATA], entry[words.E_EXTENT] = where(_flat(what.offsets, entry.kept)), what.once
    entry[words.E_NDIM] = len(what.shape)
    entry.words_of(words.E_SHAPE, what.shape)
    entry.keep(words.E_KEY, index, where(index))
    entry.write()


_MOST = np.iinfo(np.int64).max
