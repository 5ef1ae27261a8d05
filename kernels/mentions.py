"""What a tape's pullbacks mention and a write is about to overwrite: saved first, as a copy.

Nothing is noted while operations are recorded. The first write reads the tape for the arrays it saves, later ones
only what was appended since, so that a loop of n writes takes a time that grows as n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.entries import instruction_at
from kernels.forms import FORMS
from kernels.intervals import Intervals
from kernels.memory import where
from kernels.observing import Array
from kernels.respecified import respecified
from kernels.words import OPCODE

_WORK = 10_000
"""How hard to look whether two patterns of strides meet in an element; undecided counts as yes."""


class Mentions:
    """The saved arrays of one tape by where their memory is."""

    def __init__(self, entries: list[Any]) -> None:
        self.entries = entries
        self._forget()

    def _forget(self) -> None:
        self._places = Intervals()
        self._seen = self._start = 0
        self._slot = 0

    def _stands(self) -> bool:
        """Whether what has been read is where it was: the last instruction of it is."""
        there = self.entries[self._start] if len(self.entries) >= self._seen else None
        return type(there) is int and there == self._slot

    def _read(self) -> None:
        """File the arrays appended since the last time; all of them, if instructions were dropped meanwhile."""
        entries = self.entries
        if self._seen and not self._stands():
            self._forget()
        fresh = entries[self._seen :]
        if not fresh:
            return
        for at in [at for at, entry in enumerate(fresh) if type(entry) is np.ndarray]:
            self._places.add(*span(fresh[at]), at + self._seen)
        self._seen += len(fresh)
        self._start = self._seen - FORMS[fresh[-1]].entries
        self._slot = entries[self._start] ^ 0  # an equal number: references to the slot itself are counted

    def overwrite(self, array: Array) -> None:
        """Replace each saved array that shares elements with this one, about to be written, by a copy."""
        self._read()
        found = self._places.meeting(*span(array))
        if not found:
            return
        copies: dict[int, tuple[Array, Array]] = {}
        for at in found:
            saved = self.entries[at]
            if type(saved) is not np.ndarray or not meet(saved, array):
                continue
            if id(saved) not in copies:
                copies[id(saved)] = saved, saved.copy(order="K")
            self._replace(at, *copies[id(saved)])
            self._places.discard(*span(saved), at)

    def _replace(self, at: int, saved: Array, copy: Array) -> None:
        """Put a copy in the place of a saved array; the form follows where the strides of the two differ."""
        entries, last = self.entries, at
        while type(entries[last]) is not int or entries[last] < OPCODE:
            last += 1
        if copy.strides != saved.strides:
            found = instruction_at(entries, last)
            place = at - found.start - 1 - len(found.operands)
            entries[last] = respecified(found.form, place, copy.strides).code
        entries[at] = copy


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
