"""``TAPE_DEBUG=1``: each word of a tape is checked before a sweep reads it, against the forms and the registry.

Native code trusts the words of a tape. Here damage is reported, naming the instruction and the word, before it becomes
a wrong gradient or a crash. Nothing that a word points to is read before it is known to be memory. It is slow, and done
only where ``guards.DEBUG`` says so.

Each time the header, the counts, the blocks of all forms and every word that is new or other than at the last check
are looked at; what the others point to only now and then, with the whole tape.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernels.foundation.specs import Array, Spec, is_object, with_subclasses, word_at
from kernels.foundation.tables import cached_property
from kernels.kinds.form import Form
from kernels.language import jit
from kernels.native import memory, pool
from kernels.native.memory import data_of
from kernels.native.pool import DamagedError
from kernels.native.structs import (
    CHUNK,
    CHUNK_BITS,
    DOUBLE,
    GONE,
    HELD,
    NUMBER,
    OBJECT,
    TAPE_BITS,
    Chunk,
    FormBlock,
    RegistryTable,
    TapeHeader,
)

# Pictures of a tape, for ``TAPE_DEBUG=1``: as it is at one moment, and what of it is as when it was last checked.
#
# An instruction is known again by its slot, which is unique, and is unchanged if all its words are: wherever on the
# tape it stands after others have been dropped. Words are compared by array programs, a thousand in the time that
# checking one takes. Words say nothing about what they point to: so the whole tape is due again once as many words
# have been checked or dropped as it has, a few for each check counted in. Then the work of all checks is linear in
# words and checks.
#
# The forms of what is unchanged are looked at each time: their blocks are known again by where and how they begin.

Words = np.ndarray[Any, Any]
CHUNK_WORDS = 1 + (Chunk.SIZE + 4 * CHUNK) // 8
EACH_CHECK = 64  # words that a check counts for besides those it looks at
_FIRST_RUN = 64
_Head = ctypes.c_int64 * (FormBlock.form + 1)


class Picture(NamedTuple):
    """A tape at one moment: its header, its words, its chunks behind their addresses."""

    header: Words
    words: Words
    chunks: Words


def taken(header: int) -> Picture:
    """Take a picture of a tape."""
    room = 1 << 12
    while True:
        copy = np.empty(room, np.int64)
        wanted = jit.load_module("native.tape_native").picture(header, data_of(copy), room)
        if wanted <= room:
            header_words, size = copy[: TapeHeader.SIZE], int(copy[TapeHeader.size])
            rest = TapeHeader.SIZE + size if wanted > TapeHeader.SIZE else wanted
            return Picture(header_words, copy[TapeHeader.SIZE : rest], copy[rest:wanted].reshape(-1, CHUNK_WORDS))
        room = 2 * wanted


class Checked(NamedTuple):
    """The words of a tape when nothing was wrong with them; of each instruction its slot and where it ends."""

    words: Words
    slots: Words
    ends: Words
    heads: dict[int, tuple[int, bytes]]  # how the blocks of its forms began, and where
    since: int = 0  # words that were checked or dropped since the whole tape was checked

    @property
    def is_due(self) -> bool:
        """Whether the whole tape is to be checked now."""
        return self.since >= len(self.words)

    def length(self, k: int) -> int:
        """Return how many words an instruction has, by its number."""
        return int(self.ends[k] - self.ends[k - 1]) if k else int(self.ends[0])

    def unchanged(self, tape_words: Words, start: int, stop: int) -> tuple[int, int]:
        """Return which instructions are as they were that end, in these words, with the one between two places.

        They are those from the first number to below the second.
        """
        last = int(np.searchsorted(self.slots, tape_words[start]))
        if last == len(self.slots) or self.slots[last] != tape_words[start]:
            return 0, 0
        end = int(self.ends[last])
        begin = end - _alike(tape_words[:stop], self.words[:end])
        first = 0 if begin == 0 else int(np.searchsorted(self.ends, begin)) + 1
        return (first, last + 1) if first <= last else (0, 0)


NOTHING = Checked(*(np.empty(0, np.int64) for _ in range(3)), {})


def _alike(now: Words, before: Words) -> int:
    """Return how many of their last words are the same."""
    done, run, most = 0, _FIRST_RUN, min(len(now), len(before))
    while done < most:
        count = min(run, most - done)
        i, j = len(now) - done, len(before) - done
        odd = np.flatnonzero(now[i - count : i] != before[j - count : j])
        if odd.size:
            return done + count - 1 - int(odd[-1])
        done, run = done + count, 2 * run
    return done


_checked: dict[int, tuple[int, Checked]] = {}


def last_checked(header: int) -> Checked:
    """Return how a tape was when it was last checked; nothing if it never was, or is due again."""
    record = _checked.get(header)
    if record is None or record[0] != word_at(header + 8 * TapeHeader.number) or record[1].is_due:
        return NOTHING
    return record[1]


def keep(header: int, before: Checked, now: Checked, kept: int) -> None:
    """Keep the state of a tape that has been checked, with ``kept`` words unchanged since the last check."""
    seen = len(now.words) - kept + len(before.words) - kept + EACH_CHECK
    since = before.since + seen if before is not NOTHING else 0
    for other, (number, _) in _checked.copy().items():
        if word_at(memory.REGISTRY.tapes + 8 * number) != other:
            _checked.pop(other, None)
    _checked[header] = word_at(header + 8 * TapeHeader.number), now._replace(since=since)


NO_FORM = "the instruction that ends at word {0}: this word, its form, is {1}, {2}"
Complaint: TypeAlias = str  # A sentence that says what is wrong; "" if nothing is


class InstructionLayout:
    """What an instruction must look like that has a form."""

    def __init__(self, form: Form, entries: int) -> None:
        self.form, self.entries = form, entries

    @cached_property
    def kinds(self) -> list[int]:
        """What kind of word each saved value is."""
        kinds: list[int] = self.form.block[len(self.form.block) - len(self.form.saved) :].tolist()
        return kinds

    @cached_property
    def specs(self) -> list[Spec | None]:
        """The spec of each saved value, None of what is no operand's and not the result's."""
        form, names = self.form, self.form.op.inputs
        return [form.specs[names.index(n)] if n in names else form.spec if n == "y" else None for n in form.saved]


def layout_of(code: int) -> InstructionLayout | Complaint:
    """Return what an instruction of this form looks like; a sentence if there is no such form."""
    reference = memory.REGISTRY.living.get(code)
    form = reference() if reference is not None else None
    if form is None:
        return "no living form's number"
    block = data_of(form.block)
    if word_at(memory.REGISTRY.forms + 8 * code) != block or form.code != code:
        return f"the number of form {form.name}, whose block the registry has not"
    inputs, saved = len(form.specs), len(form.saved)
    head = _Head.from_address(block)
    if head[: FormBlock.buffer] != [2 + inputs + saved, inputs, saved] or head[FormBlock.form] != id(form):
        return f"the number of form {form.name}, whose block has been written over"
    return InstructionLayout(form, 2 + inputs + saved)


def head_of(code: int) -> tuple[int, bytes]:
    """Return where the block of a form begins, of which nothing is wrong, and how."""
    block = word_at(memory.REGISTRY.forms + 8 * code)
    return block, ctypes.string_at(block, ctypes.sizeof(_Head))


def stands(code: int, head: tuple[int, bytes] | None) -> bool:
    """Whether a form lives, and its block is as it was."""
    reference = memory.REGISTRY.living.get(code)
    if head is None or reference is None or reference() is None:
        return False
    block, content = head
    return word_at(memory.REGISTRY.forms + 8 * code) == block and ctypes.string_at(block, len(content)) == content


COUNT = (1 << TAPE_BITS) - 1
_TRIES = 3  # pictures of a tape that others may be changing: what is wrong with it is wrong in all of them


def checking(function: Callable[..., int], rows: pool.GuardedArrays, header: Callable[[Any], int]) -> Any:
    """Return a function that first checks blocks of memory, the sweep's, and the tape of its first argument."""

    def checked(first: Any, *args: Any) -> int:
        pool.check_blocks()
        rows.check()
        check(header(first))
        return function(first, *args)

    return checked


def check(header: int) -> None:
    """Raise DamagedError, naming instruction and word, if a tape is not as it must be."""
    before = last_checked(header)
    for _ in range(_TRIES):
        checker = _Checker(header, taken(header), before)
        complaint, before = checker.complaint(), NOTHING
        if complaint is None:
            keep(header, checker.before, checker.now(), checker.kept)
            return
    raise DamagedError(f"TAPE_DEBUG: {complaint}")


class _Checker:
    """What is wrong with a picture of a tape, one sentence each."""

    def __init__(self, address: int, picture: Picture, before: Checked) -> None:
        self.address, self.picture, self.before, self.kept = address, picture, before, 0
        self.number, self.next = (int(picture.header[at]) for at in (TapeHeader.number, TapeHeader.next))
        self.layouts: dict[int, InstructionLayout | Complaint] = {}
        self.heads: dict[int, tuple[int, bytes]] = {}
        self.known: dict[int, str] = {}
        self.slots: list[Array] = []
        self.ends: list[Array] = []
        self.leaf = word_at(memory.REGISTRY.address + 8 * RegistryTable.leaf_type)
        self.arrays = set(with_subclasses(id(np.ndarray)))

    def complaint(self) -> str | None:
        """Return the first that is found."""
        for check in (self._header, self._instructions, self._counts):
            for fault in check():
                return f"tape {self.number}, {fault}"
        return None

    def _header(self) -> Iterator[str]:
        size, room, chunks, rooms, dead = (
            int(self.picture.header[at])
            for at in (TapeHeader.size, TapeHeader.room, TapeHeader.chunks, TapeHeader.directory_room, TapeHeader.dead)
        )
        if not 0 <= size <= room:
            yield f"its header: {size} words are used of {room}"
        if not 0 <= chunks <= rooms:
            yield f"its header: {chunks} chunks are used of {rooms}"
        if dead < 0 or not 0 <= self.next <= COUNT:
            yield f"its header: {dead} results are dead, the next slot is {self.next}"
        if not 0 < self.number < memory.MOST_TAPES or word_at(memory.REGISTRY.tapes + 8 * self.number) != self.address:
            yield "its header: the registry has another tape of this number"

    def _instructions(self) -> Iterator[str]:
        """Walk from the end, as native code does."""
        tape_words, stop = self.picture.words, len(self.picture.words)
        below = self.number << TAPE_BITS | self.next
        while stop > 0:
            layout = self._layout_of(int(tape_words[stop - 1]))
            if isinstance(layout, str):
                yield NO_FORM.format(stop - 1, tape_words[stop - 1], layout)
                return
            start = stop - layout.entries
            name = f"instruction {layout.form.name} in words {start} to {stop - 1}"
            if start < 0:
                yield f"{name}: it begins before the tape does"
                return
            first, last = self.before.unchanged(tape_words, start, stop)
            if first < last and tape_words[start] < below:
                ends = self.before.ends[first:last] + (stop - self.before.ends[last - 1])
                yield from self._forms(ends)
                start = int(ends[0]) - self.before.length(first)
                self.slots.append(self.before.slots[first:last])
                self.ends.append(ends)
                self.kept += stop - start
            else:
                for at, part, why in self._wrong(tape_words[start:stop].tolist(), layout, below):
                    yield f"{name}: word {start + at}, {part}, is {tape_words[start + at]}, {why}"
                self.slots.append(tape_words[start : start + 1])
                self.ends.append(np.array([stop]))
            below, stop = int(tape_words[start]), start
        if (count := sum(map(len, self.slots))) != self.picture.header[TapeHeader.count]:
            yield f"its header: {self.picture.header[TapeHeader.count]} instructions, but there are {count}"

    def _forms(self, ends: Array) -> Iterator[str]:
        """Look at the forms of instructions that are as they were, each once."""
        tape_words = self.picture.words
        codes = tape_words[ends - 1]
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            if stands(code, head := self.before.heads.get(code)):
                self.heads[code] = head
            elif isinstance(layout := self._layout_of(code), str):
                yield NO_FORM.format(int(ends[codes == code][-1]) - 1, code, layout)

    def now(self) -> Checked:
        """Return how the tape is, once there are no complaints."""
        return Checked(self.picture.words, _joined(self.slots), _joined(self.ends), self.heads)

    def _layout_of(self, code: int) -> InstructionLayout | Complaint:
        layout = self.layouts.get(code)
        if layout is None:
            layout = self.layouts[code] = layout_of(code)
            if isinstance(layout, InstructionLayout):
                self.heads[code] = head_of(code)
        return layout

    def _wrong(self, tape_words: list[int], layout: InstructionLayout, below: int) -> Iterator[tuple[int, str, str]]:
        """Yield the words of an instruction that are wrong: where, what it is there, why."""
        slot, inputs = tape_words[0], len(layout.form.specs)
        if slot >> TAPE_BITS != self.number:
            yield 0, "its slot", "not one of this tape"
        elif slot >= below:
            yield 0, "its slot", "not below the next one's"
        for i, operand in enumerate(tape_words[1 : 1 + inputs]):
            if operand and (why := self._wrong_operand(operand, slot)):
                yield 1 + i, f"operand {i}", why
        for j, kind in enumerate(layout.kinds):
            if why := self._wrong_saved(tape_words[1 + inputs + j], kind, layout, j):
                yield 1 + inputs + j, f"saved {layout.form.saved[j]!r}", why

    def _wrong_operand(self, operand: int, slot: int) -> Complaint:
        if operand < 0:
            kind = self._type_at(-operand)
            if isinstance(kind, str):
                return kind
            return "" if kind == self.leaf or not self.leaf else "the address of no leaf"
        if operand >> TAPE_BITS == self.number:
            return "" if operand < slot else "a slot that is not before the result's"
        if not 0 < operand >> TAPE_BITS < memory.MOST_TAPES:
            return "no slot"
        count = jit.load_module("native.tape_native").holders(operand)
        return {-1: "a slot that its tape has not reached", 0: "a slot of another tape that nobody holds"}.get(
            count, ""
        )

    def _wrong_saved(self, value: int, kind: int, layout: InstructionLayout, j: int) -> Complaint:
        if kind == DOUBLE:
            return ""
        if kind == NUMBER:
            most = layout.form.spec.buffer_size * layout.form.spec.dtype.itemsize
            return "" if 0 <= value <= most else f"an offset out of a buffer of {most} bytes"
        kind_of_object = self._type_at(value)
        if isinstance(kind_of_object, str):
            return kind_of_object
        if kind == OBJECT:
            return ""
        return _wrong_array(value, layout.specs[j]) if kind_of_object in self.arrays else "the address of no array"

    def _type_at(self, address: int) -> int | Complaint:
        """Return the address of the type of the object at an address; a sentence if there is none."""
        fault = self.known.get(address)
        if fault is None:
            fault = self.known[address] = "" if is_object(address) else "the address of no object"
        return fault or word_at(address + 8)

    def _counts(self) -> Iterator[str]:
        """The chunks say where the first instruction of their slots stands, and how many have each."""
        starts = np.append(0, _joined(self.ends))  # and behind them, where all end
        counts = _joined(self.slots) & COUNT
        first = int(self.picture.header[TapeHeader.first_chunk])
        covered = (counts >> CHUNK_BITS >= first) & (counts >> CHUNK_BITS < first + len(self.picture.chunks))
        if not covered.all():
            yield f"slot {counts[~covered][0]}: no chunk counts who has it"
        for k in np.flatnonzero(self._odd(counts, starts, first)).tolist():
            chunk, low = self.picture.chunks[k], (first + k) << CHUNK_BITS
            begin, end = np.searchsorted(counts, (low, low + CHUNK))
            name = f"the chunk of slots {low} to {low + CHUNK - 1}"
            if chunk[0] == 0:
                yield f"{name} is gone, but there are instructions of these slots"
            elif chunk[1] != starts[begin]:
                yield f"{name} says that they begin at word {chunk[1]}: it is word {starts[begin]}"
            who = chunk[3:].view(np.int32)
            if (odd := np.flatnonzero(who & ~(HELD | GONE))).size:
                yield f"{name}: the count of slot {low + odd[0]} is {who[odd[0]]:#x}"
            if (held := int((who & HELD).sum())) != chunk[2]:
                yield f"{name}: they are had by {held}, but the sum is {chunk[2]}"
            if (gone := np.flatnonzero(who[counts[begin:end] - low] & GONE)).size:
                yield f"{name}: slot {counts[begin:end][gone[0]]} is marked as gone, but its instruction is there"

    def _odd(self, counts: Array, starts: Array, first: int) -> Array:
        """Whether there is something wrong with each chunk, all at once."""
        chunks, numbers = self.picture.chunks, np.arange(len(self.picture.chunks)) + first
        begin, end = (np.searchsorted(counts, (numbers + k) << CHUNK_BITS) for k in range(2))
        who = chunks[:, 3:].view(np.int32)
        gone = who[(counts >> CHUNK_BITS) - first, counts & (CHUNK - 1)] & GONE
        odd = (chunks[:, 1] != starts[begin]) | (chunks[:, 2] != (who & HELD).sum(1))
        odd |= (who & ~(HELD | GONE)).any(1)
        odd[(counts[gone != 0] >> CHUNK_BITS) - first] = True
        return np.where(chunks[:, 0] == 0, end > begin, odd)


def _joined(parts: list[Array]) -> Array:
    """Join what was found from the end."""
    return np.concatenate(parts[::-1]) if parts else np.empty(0, np.int64)


def _wrong_array(address: int, spec: Spec | None) -> str:
    """Say what is wrong with a saved array, whose kernels read it as its spec says."""
    array = ctypes.cast(address, ctypes.py_object).value
    if spec is None or array.dtype != spec.dtype:
        return "" if spec is None else f"an array of {array.dtype}, where the form has {spec.dtype}"
    if array.shape != spec.shape:
        return f"an array of shape {array.shape}, where the form has {spec.shape}"
    apart = [(a, b) for a, b, n in zip(array.strides, spec.strides, spec.shape, strict=True) if n > 1 and a != b]
    return f"an array of strides {array.strides}, where the form has {spec.strides}" if array.size and apart else ""
