"""Saved values that a write is about to overwrite are copied first.

Recording an operation costs nothing for this. A write looks through the tape for saved arrays where it writes; when
writes have looked at many, the arrays are filed by their memory, so that a loop of n writes takes a time that grows
as n. What is on file names instructions by their slots, and so outlives that others are dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.arrays.sweep_interface import Array
from kernels.foundation.intervals import Intervals
from kernels.foundation.locks import cached_property
from kernels.instructions.entries import SavedArrays, instruction_at, saved_arrays
from kernels.instructions.restrided import restrided
from kernels.native.memory import where
from kernels.native.tape_structs import TAPE_BITS

_WORK = 10_000
"""Work limit for finding out whether two strided arrays share an element; undecided counts as yes."""
_LOOKS_PER_FILING = 200
"""So many saved arrays are looked at in the time that one takes to be filed."""
_WORDS = 8
"""Words of an instruction, about."""
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
        """Return the slots and numbers of saved arrays in a range: of those on file, and of the others one by one.

        To file an array takes as long as to look at some hundreds: that is done once so much has been looked at.
        """
        fresh = min(self.entries.next - (self._file.seen & _COUNT), self.entries.count)
        self._looked += fresh
        if self._looked > _LOOKS_PER_FILING * fresh:
            self._bring_up_to_date()
        file = self._file
        places: list[int] = self._saved.meeting(low, high, file.seen)
        return [*file.places.meeting(low, high), *zip(places[::2], places[1::2], strict=True)]

    def _bring_up_to_date(self) -> None:
        """File the arrays saved since the last time.

        What is on file is counted as seen at the end, so that an interrupt, or another thread that does the same,
        has an array looked at twice, and none missed.
        """
        file = self._file
        fresh = self._saved.arrays(file.seen)
        for array, slot, number in zip(fresh[::3], fresh[1::3], fresh[2::3], strict=True):
            file.places.add(*span(array), (slot, number))
        self._file = _File(file.places, max((file.seen, *fresh[1::3])), file.count + len(fresh) // 3)
        self._looked = 0

    def _replace(self, place: Any, last: int, saved: Array, copy: Array) -> None:
        """Put a copy in the place of a saved array; the form follows where the strides of the two differ.

        A finalizer, in the middle of this, may do the same, so that there is nothing left to do.
        """
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
