"""A tape's entries taken apart into instructions: for listings, for the plain sweep, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kernels.compiler.jit import bound
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.instructions.reference_tape import PlainTape
from kernels.native.heap_types import NATIVE
from kernels.native.tape.tape_type import words_of_tape


@dataclass(slots=True)
class Instruction:
    """One instruction taken apart. Where it stands is a place among words, or in the list of the plain tape."""

    start: int
    stop: int
    slot: int
    operands: tuple[Any, ...]
    saved: tuple[Any, ...]
    form: Form


def entries_of(number: int, count: int) -> Any:
    """Return what a new tape of this number writes to, whose first slot has this count."""
    return words_of_tape(number, count) if NATIVE else PlainTape(number, count)


class SavedArrays(NamedTuple):
    """What finds the arrays that a tape's instructions saved: see kernels/native/tape/record_native.py."""

    arrays: Callable[[int], list[Any]]
    meeting: Callable[[int, int, int], list[int]]
    placed: Callable[[int, int], Any]


def saved_arrays(entries: Any) -> SavedArrays:
    """Return it for a tape; native code for it is there from the first write on."""
    if isinstance(entries, PlainTape):
        return SavedArrays(entries.arrays, entries.meeting, entries.placed)
    return SavedArrays(*[bound("native.tape.record_native", name, entries) for name in SavedArrays._fields])


def instruction_at(entries: Any, last: int) -> Instruction:
    """Return the instruction whose last word stands there."""
    instruction = Instruction(*entries.at(last))
    if instruction.form.numbers:
        instruction.saved = instruction.form.shaped(instruction.saved)
    return instruction


def instructions(entries: Any, down_to: int = 0) -> Iterator[Instruction]:
    """Yield a tape's instructions, last first, down to a slot: slots ascend along a tape.

    Nothing may be dropped meanwhile: register as a reader of the tape.
    """
    stop = len(entries)
    while stop > 0:
        instruction = instruction_at(entries, stop - 1)
        if instruction.slot < down_to:
            return
        yield instruction
        stop = instruction.start


def locate(entries: Any, slot: int) -> Instruction | None:
    """Return the instruction with this result; None if it is gone."""
    stop = entries.find(slot)
    instruction = instruction_at(entries, stop - 1) if stop else None
    return instruction if instruction is not None and instruction.slot == slot else None
