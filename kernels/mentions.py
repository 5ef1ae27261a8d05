"""What a tape's pullbacks mention and a write is about to overwrite: saved first, as a copy.

Nothing is noted while operations are recorded. The first write reads the tape for the arrays it saves, later ones
only what was appended since, so that a loop of n writes takes a time that grows as n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.entries import instruction_at
from kernels.intervals import Intervals
from kernels.memory import where
from kernels.observing import Array
from kernels.respecified import respecified

_WORK = 10_000
"""How hard to look whether two patterns of strides meet in an element; undecided counts as yes."""


class Mentions:
    """The saved arrays of one tape by where their memory is. Whoever asks is among the tape's readers."""

    def __init__(self, entries: Any) -> None:
        self.entries = entries
        self.forget()

    def forget(self) -> None:
        """Hold nothing: instructions have been dropped."""
        self._places = Intervals()
        self._seen, self._moves = 0, self.entries.moves

    def _read(self) -> None:
        """File the arrays appended since the last time; all of them, if instructions were dropped meanwhile."""
        entries = self.entries
        if self._moves != entries.moves:
            self.forget()
        size = len(entries)
        if size == self._seen:
            return
        try:
            fresh = iter(entries.arrays(self._seen))
            for array, place, last in zip(fresh, fresh, fresh, strict=True):
                self._places.add(*span(array), (place, last))
            self._seen = size
        except BaseException:  # an interrupt: half of this is on file
            self.forget()
            raise

    def overwrite(self, array: Array) -> None:
        """Replace each saved array that shares elements with this one, about to be written, by a copy."""
        self._read()
        copies: dict[int, Array] = {}
        for place, last in self._places.meeting(*span(array)):
            saved = self.entries.kept(place, last)  # if that is a copy by now, it meets nothing
            if meet(saved, array):
                if id(saved) not in copies:
                    copies[id(saved)] = np.array(saved, order="K")
                self._replace(place, last, saved, copies[id(saved)])

    def _replace(self, place: Any, last: int, saved: Array, copy: Array) -> None:
        """Put a copy in the place of a saved array; the form follows where the strides of the two differ.

        A finalizer, in the middle of this, may do the same, so that there is nothing left to do.
        """
        form = self.entries.form(last)
        if copy.strides != saved.strides:
            found = instruction_at(self.entries, last)
            at = next(k for k, value in enumerate(found.saved) if value is saved)
            form = respecified(form, at, copy.strides)
        self.entries.replace(place, last, saved, copy, form.code)
        self._places.discard(*span(saved), (place, last))


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
