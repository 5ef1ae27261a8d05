"""What a tape's pullbacks mention and a write is about to overwrite: saved first, as a copy.

Nothing is noted while operations are recorded. The first write reads the tape for the arrays it saves, later ones
only what was appended since, so that a loop of n writes takes a time that grows as n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.entries import REPLACED, instruction_at
from kernels.intervals import Intervals
from kernels.memory import where
from kernels.observing import Array
from kernels.respecified import respecified
from kernels.words import Opcode

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
        """Whether what has been read is where it was: the last instruction of it is, from its slot to its opcode.

        The slot alone would not say so: as an operand it stands in later instructions too.
        """
        entries, seen = self.entries, self._seen
        last = entries[seen - 1] if len(entries) >= seen else None
        if type(last) is not Opcode or seen - last.form.entries != self._start:
            return False
        return bool(entries[self._start] == self._slot)

    def _read(self) -> None:
        """File the arrays appended since the last time; all of them, if instructions were dropped meanwhile."""
        entries = self.entries
        if self._seen and not self._stands():
            self._forget()
        fresh = entries[self._seen :]
        if not fresh:
            return
        try:
            for at in [at for at, entry in enumerate(fresh) if isinstance(entry, np.ndarray)]:
                self._places.add(*span(fresh[at]), at + self._seen)
            seen = self._seen + len(fresh)
            start = seen - fresh[-1].form.entries
            slot = entries[start] ^ 0  # an equal number: references to the slot itself are counted
            self._seen, self._start, self._slot = seen, start, slot
        except BaseException:  # an interrupt: half of this is on file
            self._forget()
            raise

    def overwrite(self, array: Array) -> None:
        """Replace each saved array that shares elements with this one, about to be written, by a copy."""
        self._read()
        found = self._places.meeting(*span(array))
        if not found:
            return
        copies: dict[int, tuple[Array, Array]] = {}
        for at in found:
            saved = self.entries[at]
            if not isinstance(saved, np.ndarray) or not meet(saved, array):
                continue
            if id(saved) not in copies:
                copies[id(saved)] = saved, np.array(saved, order="K")
            self._replace(at, *copies[id(saved)])
            self._places.discard(*span(saved), at)

    def _replace(self, at: int, saved: Array, copy: Array) -> None:
        """Put a copy in the place of a saved array; the form follows where the strides of the two differ.

        A finalizer, in the middle of this, may do the same, so that there is nothing left to do, or another form.
        """
        entries, last = self.entries, at
        while type(entries[last]) is not Opcode:
            last += 1
        part = slice(at, last + 1)
        while entries[at] is saved:
            count, code = REPLACED[0], entries[last]
            if copy.strides != saved.strides:
                found = instruction_at(entries, last)
                place = at - found.start - 1 - len(found.operands)
                code = respecified(found.form, place, copy.strides).code
            now = [copy, *entries[at + 1 : last], code]
            # fmt: off
            if REPLACED[0] == count: REPLACED[0] += 1; entries[part] = now  # noqa: E701, E702 (nothing comes between)
            # fmt: on


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
