"""Values that pullbacks read later: memory that others can write, and the protection of what is saved."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.foundation.locks import cached_property
from kernels.foundation.specs import Array, Intervals
from kernels.kinds.form import Form, restrided
from kernels.kinds.reference_tape import SavedArrays, instruction_at, saved_arrays
from kernels.native import allocation, pool
from kernels.native.call_structs import EXPOSED
from kernels.native.memory import where
from kernels.native.structs import LARGE, TAPE_BITS, RegistryTable

# Memory that code outside may write without anybody seeing it, as NumPy does: what pullbacks keep of it is copied.

_holders: dict[int, dict[int, ReferenceType[Any]]] = {}
"""By the id of an array that owns memory: those through whom others may write there, as long as they live."""
_roots: dict[int, ReferenceType[Array]] = {}
_counts = np.zeros(2 * EXPOSED + 1, np.int64)
"""How many such arrays there are by their addresses, for native code, and in all: never too few. Then which one of each
place it is, or _SEVERAL."""
_only = _counts[EXPOSED + 1 :]
_SEVERAL = -1
allocation.put(allocation.REGISTRY.address, RegistryTable.exposed, where(_counts))


def root_of(array: Array) -> Array:
    """Return the array that owns an array's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def expose(array: Array, holder: Any = None) -> None:
    """Mark the memory of an array as exposed while ``holder`` lives, by default the array that owns the memory."""
    root = root_of(array)
    key, holder = id(root), root if holder is None else holder
    if type(root.base) is bytes or id(holder) in _holders.get(key, ()):
        return
    place = _place(key)
    _only[place] = key if _counts[place] == 0 or _only[place] == key else _SEVERAL
    _counts[place] += 1
    _counts[EXPOSED] += 1
    holders = _holders.setdefault(key, {})
    _roots[key] = ref(root, partial(_died, key))
    holders[id(holder)] = ref(holder, partial(_end, key, id(holder)))


def _place(key: int) -> int:
    return (key >> 4) & (EXPOSED - 1)


def _end(key: int, holder: int, _: Any) -> None:
    holders = _holders.get(key)
    if holders is not None and holders.pop(holder, None) is not None:
        if not holders:
            _holders.pop(key, None)
            _roots.pop(key, None)
        _counts[_place(key)] -= 1
        _counts[EXPOSED] -= 1


def _died(key: int, _: Any) -> None:
    """Forget an array that has died, whose id is free, although a holder may live on."""
    for holder in list(_holders.get(key, ())):
        _end(key, holder, None)


def copied(array: Array) -> Array:
    """Return a copy in the order of the elements in memory; what stands at several places is copied once."""
    source = array[(*[slice(0, 1) if step == 0 else slice(None) for step in array.strides], ...)]
    copy = pool.call(partial(source.copy, "K")) if source.nbytes >= LARGE else source.copy("K")
    return copy if copy.shape == array.shape else np.broadcast_to(copy, array.shape)


def kept_arguments(arguments: Iterable[Any]) -> list[Any]:
    """Return the arguments of a call as its pullback may keep them: the caller's arrays copied."""
    return [copied(x) if isinstance(x, np.ndarray) else x for x in arguments]


def is_exposed(array: Array) -> bool:
    """Whether others may write the memory of an array."""
    return bool(_holders) and id(root_of(array)) in _holders


def exposed_roots() -> list[Array]:
    """Return the arrays that own exposed memory."""
    return [root for reference in list(_roots.values()) if (root := reference()) is not None]


def unexposed(form: Form, saved: tuple[Any, ...]) -> tuple[Form, tuple[Any, ...]]:
    """Return the form and the saved values of an instruction with copies of exposed memory."""
    if not _holders:
        return form, saved
    values = list(saved)
    for k, value in enumerate(saved):
        if type(value) is np.ndarray and is_exposed(value):
            values[k] = copy = copied(value)
            if copy.strides != value.strides:
                form = restrided(form, k, copy.strides)
    return form, tuple(values)


# Saved values that a write is about to overwrite are copied first; recording costs nothing for this. A write looks
# through the tape for saved arrays where it writes; when writes have looked at many, the arrays are filed by their
# memory, so that a loop of n writes takes a time that grows as n. What is on file names instructions by their slots,
# and so outlives that others are dropped.

_WORK = 10_000  # work limit for finding out whether two strided arrays share an element; undecided counts as yes
_LOOKS_PER_FILING = 200  # so many saved arrays are looked at in the time that one takes to be filed
_WORDS = 8  # words of an instruction, about
_COUNT = (1 << TAPE_BITS) - 1


class _File(NamedTuple):
    """Saved arrays by their memory: all of those of the instructions up to a slot, and how many were filed."""

    places: Intervals
    seen: int = 0
    count: int = 0


class SavedValues:
    """The saved arrays of one tape by their memory. Callers are registered as readers of the tape."""

    def __init__(self, entries: Any) -> None:
        self.entries = entries
        self.forget()

    @cached_property
    def _saved(self) -> SavedArrays:
        return saved_arrays(self.entries)

    def forget(self) -> None:
        """Have nothing on file."""
        self._file = _File(Intervals())
        self._gone = self._looked = 0

    def dropped(self, words: int) -> None:
        """Count instructions of so many words as dropped; what is on file of them is skipped, up to a half."""
        self._gone += words
        if self._gone > _WORDS * self._file.count:
            self.forget()

    def protect(self, array: Array) -> None:
        """Replace each saved array that shares elements with this one, about to be written, by a copy."""
        copies: dict[int, Array] = {}
        for slot, number in self._meeting(*span(array)):
            at = self._saved.placed(slot, number)
            if at is None:
                continue
            saved = self.entries.kept(*at)  # if that is a copy by now, it meets nothing
            if meet(saved, array):
                if id(saved) not in copies:
                    copies[id(saved)] = np.array(saved, order="K")
                self._replace(*at, saved, copies[id(saved)])
                self._file.places.discard(*span(saved), (slot, number))

    def _meeting(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return slots and numbers of saved arrays in a range; many that are looked at one by one are filed first."""
        fresh = min(self.entries.next - (self._file.seen & _COUNT), self.entries.count)
        self._looked += fresh
        if self._looked > _LOOKS_PER_FILING * fresh:
            self._bring_up_to_date()
        file = self._file
        places: list[int] = self._saved.meeting(low, high, file.seen)
        return [*file.places.meeting(low, high), *zip(places[::2], places[1::2], strict=True)]

    def _bring_up_to_date(self) -> None:
        """File what was saved since the last time, counted as seen at the end: interrupts or threads miss none."""
        file = self._file
        fresh = self._saved.arrays(file.seen)
        for array, slot, number in zip(fresh[::3], fresh[1::3], fresh[2::3], strict=True):
            file.places.add(*span(array), (slot, number))
        self._file = _File(file.places, max((file.seen, *fresh[1::3])), file.count + len(fresh) // 3)
        self._looked = 0

    def _replace(self, place: Any, last: int, saved: Array, copy: Array) -> None:
        """Put a copy in the place of a saved array, with a form of its strides, unless a finalizer has just done so."""
        form = self.entries.form(last)
        if copy.strides != saved.strides:
            instruction = instruction_at(self.entries, last)
            at = next(k for k, value in enumerate(instruction.saved) if value is saved)
            form = restrided(form, at, copy.strides)
        self.entries.replace(place, last, saved, copy, form.code)


def span(array: Array) -> tuple[int, int]:
    """Return the range of bytes that an array's elements stand in."""
    if not array.flags.c_contiguous:
        return byte_bounds(array)
    start = where(array)
    return start, start + array.nbytes


def meet(a: Array, b: Array) -> bool:
    """Whether two arrays share an element, or may: where that is too hard to say."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_WORK)
    except np.exceptions.TooHardError:
        return True
