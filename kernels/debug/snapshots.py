"""Pictures of a tape, for ``TAPE_DEBUG=1``: as it is at one moment, and what of it is as when it was last checked.

An instruction is known again by its slot, which is unique, and is unchanged if all its words are: wherever on the tape
it stands after others have been dropped. Words are compared by array programs, a thousand in the time that checking one
takes. Words say nothing about what they point to: so the whole tape is due again once as many words have been checked
or dropped as it has, a few for each check counted in. Then the work of all checks is linear in words and checks.

The forms of what is unchanged are looked at each time: their blocks are known again by where and how they begin.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernels.arrays.address_probe import word_at
from kernels.arrays.specs import Spec
from kernels.compiler import jit
from kernels.foundation.locks import cached_property
from kernels.instructions.form import Form
from kernels.native import registry
from kernels.native.memory import data_of
from kernels.native.tape_structs import CHUNK, Chunk, FormBlock, TapeHeader

Words = np.ndarray[Any, Any]
CHUNK_WORDS = 1 + (Chunk.SIZE + 4 * CHUNK) // 8
EACH_CHECK = 64
"""Words that a check counts for besides those it looks at."""
_FIRST_RUN = 64
_Head = ctypes.c_int64 * (FormBlock.form + 1)


class Picture(NamedTuple):
    """A tape at one moment: its header, its words, its chunks behind their addresses."""

    header: Words
    words: Words
    chunks: Words


@functools.cache
def native() -> Any:
    """Return what reads a tape at once."""
    return jit.load_module("native.tape.checking_native")


def taken(header: int) -> Picture:
    """Take a picture of a tape."""
    room = 1 << 12
    while True:
        copy = np.empty(room, np.int64)
        wanted = native().picture(header, data_of(copy), room)
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
    heads: dict[int, tuple[int, bytes]]
    """How the blocks of its forms began, and where."""
    since: int = 0
    """Words that were checked or dropped since the whole tape was checked."""

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
    for other, (number, _) in list(_checked.items()):
        if word_at(registry.REGISTRY.tapes + 8 * number) != other:
            _checked.pop(other, None)
    _checked[header] = word_at(header + 8 * TapeHeader.number), now._replace(since=since)


Complaint: TypeAlias = str
"""A sentence that says what is wrong; "" if nothing is."""


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
    reference = registry.REGISTRY.living.get(code)
    form = reference() if reference is not None else None
    if form is None:
        return "no living form's number"
    block = data_of(form.block)
    if word_at(registry.REGISTRY.forms + 8 * code) != block or form.code != code:
        return f"the number of form {form.name}, whose block the registry has not"
    inputs, saved = len(form.specs), len(form.saved)
    head = _Head.from_address(block)
    if head[: FormBlock.buffer] != [2 + inputs + saved, inputs, saved] or head[FormBlock.form] != id(form):
        return f"the number of form {form.name}, whose block has been written over"
    return InstructionLayout(form, 2 + inputs + saved)


def head_of(code: int) -> tuple[int, bytes]:
    """Return where the block of a form begins, of which nothing is wrong, and how."""
    block = word_at(registry.REGISTRY.forms + 8 * code)
    return block, ctypes.string_at(block, ctypes.sizeof(_Head))


def stands(code: int, head: tuple[int, bytes] | None) -> bool:
    """Whether a form lives, and its block is as it was."""
    reference = registry.REGISTRY.living.get(code)
    if head is None or reference is None or reference() is None:
        return False
    block, content = head
    return word_at(registry.REGISTRY.forms + 8 * code) == block and ctypes.string_at(block, len(content)) == content
