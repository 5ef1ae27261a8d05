"""``TAPE_DEBUG=1``: each word of a tape is checked before a sweep reads it, against the forms and the registry.

Native code believes the words of a tape. What is wrong with them is told here by the instruction and the word, before
it becomes a wrong gradient or the end of the process. Nothing that a word points to is read before it is known to be
memory. It is slow, and done only where ``guards.DEBUG`` says so.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kernels import guards, jit, registry, words
from kernels.form import Form, inputs_of
from kernels.guards import DamagedError
from kernels.layouts import Spec
from kernels.memory import data_of
from kernels.probing import is_object, with_subclasses, word_at
from kernels.tape_words import header_of

COUNT = (1 << words.TAPE_BITS) - 1
_CHUNK_WORDS = 1 + (words.C_COUNTS + 4 * words.CHUNK) // 8
_TRIES = 3
"""Pictures of a tape that others may be changing: what is wrong with it is wrong in all of them."""


class Picture(NamedTuple):
    """A tape at one moment: its header, its words, its chunks behind their addresses."""

    header: np.ndarray[Any, Any]
    words: list[int]
    chunks: np.ndarray[Any, Any]


class About(NamedTuple):
    """What an instruction must look like that has a form."""

    form: Form
    entries: int
    kinds: list[int]
    specs: list[Spec | None]


def marking(mark: Callable[[int], int], rows: guards.Rows) -> Callable[[int], int]:
    """Return what marks a tape for a sweep when all has been checked: blocks of memory, the sweep's, the tape."""

    def checked(address: int) -> int:
        _check_all(rows, word_at(address + 8 * words.H_TAPE))
        return mark(address)

    return checked


def beginning(begin: Callable[..., int], rows: guards.Rows) -> Callable[..., int]:
    """Return what begins the backward of some entries, likewise."""

    def checked(entries: Any, *given: Any) -> int:
        _check_all(rows, header_of(entries))
        return begin(entries, *given)

    return checked


def _check_all(rows: guards.Rows, header: int) -> None:
    guards.check_blocks()
    rows.check()
    check(header)


def check(header: int) -> None:
    """Raise DamagedError, naming instruction and word, if a tape is not as it must be."""
    for _ in range(_TRIES):
        found = _Checker(header, _picture(header)).complaint()
        if found is None:
            return
    raise DamagedError(f"TAPE_DEBUG: {found}")


@functools.cache
def _native() -> Any:
    return jit.load_module("checking_native")


def _picture(header: int) -> Picture:
    room = 1 << 12
    while True:
        copy = np.empty(room, np.int64)
        wanted = _native().picture(header, data_of(copy), room)
        if wanted <= room:
            own, size = copy[: words.TAPE_WORDS], int(copy[words.T_SIZE])
            rest = words.TAPE_WORDS + size if wanted > words.TAPE_WORDS else wanted
            return Picture(own, copy[words.TAPE_WORDS : rest].tolist(), copy[rest:wanted].reshape(-1, _CHUNK_WORDS))
        room = 2 * wanted


class _Checker:
    """What is wrong with a picture of a tape, one sentence each."""

    def __init__(self, address: int, picture: Picture) -> None:
        self.address, self.picture = address, picture
        self.number, self.next = (int(picture.header[at]) for at in (words.T_NUMBER, words.T_NEXT))
        self.abouts: dict[int, About | str] = {}
        self.known: dict[int, str] = {}
        self.slots: list[int] = []
        self.starts: list[int] = []
        self.leaf = word_at(registry.REGISTRY.address + 8 * words.G_LEAF)
        self.arrays = set(with_subclasses(id(np.ndarray)))

    def complaint(self) -> str | None:
        """Return the first that is found."""
        for check in (self._header, self._instructions, self._counts):
            for found in check():
                return f"tape {self.number}, {found}"
        return None

    def _header(self) -> Iterator[str]:
        size, room, chunks, rooms, dead = (
            int(self.picture.header[at])
            for at in (words.T_SIZE, words.T_ROOM, words.T_CHUNKS, words.T_DIRROOM, words.T_DEAD)
        )
        if not 0 <= size <= room:
            yield f"its header: {size} words are used of {room}"
        if not 0 <= chunks <= rooms:
            yield f"its header: {chunks} chunks are used of {rooms}"
        if dead < 0 or not 0 <= self.next <= COUNT:
            yield f"its header: {dead} results are dead, the next slot is {self.next}"
        if (
            not 0 < self.number < registry.MOST_TAPES
            or word_at(registry.REGISTRY.tapes + 8 * self.number) != self.address
        ):
            yield "its header: the registry has another tape of this number"

    def _instructions(self) -> Iterator[str]:
        """Walk from the end, as native code does."""
        own, stop, below = self.picture.words, len(self.picture.words), self.number << words.TAPE_BITS | self.next
        while stop > 0:
            about = self._about(own[stop - 1])
            if isinstance(about, str):
                yield f"the instruction that ends at word {stop - 1}: this word, its form, is {own[stop - 1]}, {about}"
                return
            start = stop - about.entries
            name = f"instruction {about.form.name} in words {start} to {stop - 1}"
            if start < 0:
                yield f"{name}: it begins before the tape does"
                return
            for at, what, why in self._wrong(own[start:stop], about, below):
                yield f"{name}: word {start + at}, {what}, is {own[start + at]}, {why}"
            below, stop = own[start], start
            self.slots.append(below)
            self.starts.append(start)
        if len(self.slots) != self.picture.header[words.T_COUNT]:
            yield f"its header: {self.picture.header[words.T_COUNT]} instructions, but there are {len(self.slots)}"

    def _about(self, code: int) -> About | str:
        found = self.abouts.get(code)
        if found is None:
            found = self.abouts[code] = _about(code)
        return found

    def _wrong(self, own: list[int], about: About, below: int) -> Iterator[tuple[int, str, str]]:
        """Yield the words of an instruction that are wrong: where, what it is there, why."""
        slot, inputs = own[0], len(about.form.specs)
        if slot >> words.TAPE_BITS != self.number:
            yield 0, "its slot", "not one of this tape"
        elif slot >= below:
            yield 0, "its slot", "not below the next one's"
        for i, operand in enumerate(own[1 : 1 + inputs]):
            if operand and (why := self._wrong_operand(operand, slot)):
                yield 1 + i, f"operand {i}", why
        for j, kind in enumerate(about.kinds):
            if why := self._wrong_saved(own[1 + inputs + j], kind, about, j):
                yield 1 + inputs + j, f"saved {about.form.saved[j]!r}", why

    def _wrong_operand(self, operand: int, slot: int) -> str:
        if operand < 0:
            kind = self._type_at(-operand)
            if isinstance(kind, str):
                return kind
            return "" if kind == self.leaf or not self.leaf else "the address of no leaf"
        if operand >> words.TAPE_BITS == self.number:
            return "" if operand < slot else "a slot that is not before the result's"
        if not 0 < operand >> words.TAPE_BITS < registry.MOST_TAPES:
            return "no slot"
        count = _native().holders(operand)
        return {-1: "a slot that its tape has not reached", 0: "a slot of another tape that nobody holds"}.get(
            count, ""
        )

    def _wrong_saved(self, value: int, kind: int, about: About, j: int) -> str:
        if kind == words.DOUBLE:
            return ""
        if kind == words.NUMBER:
            most = about.form.spec.shadow * about.form.spec.dtype.itemsize
            return "" if 0 <= value <= most else f"an offset out of a shadow of {most} bytes"
        found = self._type_at(value)
        if isinstance(found, str):
            return found
        if kind == words.OBJECT:
            return ""
        return _wrong_array(value, about.specs[j]) if found in self.arrays else "the address of no array"

    def _type_at(self, address: int) -> int | str:
        """Return the address of the type of the object at an address; a sentence if there is none."""
        found = self.known.get(address)
        if found is None:
            found = self.known[address] = "" if is_object(address) else "the address of no object"
        return found or word_at(address + 8)

    def _counts(self) -> Iterator[str]:
        """The chunks say where the first instruction of their slots stands, and how many have each."""
        starts, size = np.array(self.starts[::-1], np.int64), len(self.picture.words)
        counts = np.array(self.slots[::-1], np.int64) & COUNT
        first = int(self.picture.header[words.T_FIRST])
        covered = (counts >> words.CHUNK_BITS >= first) & (
            counts >> words.CHUNK_BITS < first + len(self.picture.chunks)
        )
        if not covered.all():
            yield f"slot {counts[~covered][0]}: no chunk counts who has it"
        for k, chunk in enumerate(self.picture.chunks):
            low = (first + k) << words.CHUNK_BITS
            begin, end = np.searchsorted(counts, (low, low + words.CHUNK))
            name = f"the chunk of slots {low} to {low + words.CHUNK - 1}"
            if chunk[0] == 0:
                if end > begin:
                    yield f"{name} is gone, but there are instructions of these slots"
                continue
            start = int(starts[begin]) if begin < len(starts) else size
            if chunk[1] != start:
                yield f"{name} says that they begin at word {chunk[1]}: it is word {start}"
            who = chunk[3:].view(np.int32)
            if (odd := np.flatnonzero(who & ~(words.HELD | words.GONE))).size:
                yield f"{name}: the count of slot {low + odd[0]} is {who[odd[0]]:#x}"
            if (held := int((who & words.HELD).sum())) != chunk[2]:
                yield f"{name}: they are had by {held}, but the sum is {chunk[2]}"
            if (gone := np.flatnonzero(who[counts[begin:end] - low] & words.GONE)).size:
                yield f"{name}: slot {counts[begin:end][gone[0]]} is marked as gone, but its instruction is there"


def _about(code: int) -> About | str:
    """Return what an instruction of this form looks like; a sentence if there is no such form."""
    reference = registry.REGISTRY.living.get(code)
    form = reference() if reference is not None else None
    if form is None:
        return "no living form's number"
    block = form.block.tolist()
    if word_at(registry.REGISTRY.forms + 8 * code) != data_of(form.block) or form.code != code:
        return f"the number of form {form.name}, whose block the registry has not"
    inputs, saved = len(form.specs), len(form.saved)
    if block[: words.B_SHADOW] != [2 + inputs + saved, inputs, saved] or block[words.B_FORM] != id(form):
        return f"the number of form {form.name}, whose block has been written over"
    names = inputs_of(form.op)
    specs = [form.specs[names.index(n)] if n in names else form.spec if n == "y" else None for n in form.saved]
    return About(form, block[words.B_ENTRIES], block[len(block) - saved :], specs)


def _wrong_array(address: int, spec: Spec | None) -> str:
    """Say what is wrong with a saved array, whose kernels read it as its spec says."""
    array = ctypes.cast(address, ctypes.py_object).value
    if spec is None or array.dtype != spec.dtype:
        return "" if spec is None else f"an array of {array.dtype}, where the form has {spec.dtype}"
    if array.shape != spec.shape:
        return f"an array of shape {array.shape}, where the form has {spec.shape}"
    apart = [(a, b) for a, b, n in zip(array.strides, spec.strides, spec.shape, strict=True) if n > 1 and a != b]
    return f"an array of strides {array.strides}, where the form has {spec.strides}" if array.size and apart else ""
