"""What leads to the roots of a sweep, and what is dropped from a tape: in plain Python."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from kernels.entries import MOVES, MOVING, Instruction, nested, take_out
from kernels.forms import Form
from kernels.layouts import Spec
from kernels.observing import FreedError, Readers, Seed
from kernels.words import ADDS, B_ENTRIES, B_FREES, CLEARS, TAPE_BITS


def key_of(operand: Any) -> Any:
    """Return what a shadow is found by: a slot, or a leaf itself, which is equal to no other."""
    return operand


@dataclass(slots=True)
class Graph:
    """What leads from leaves to the roots of a sweep.

    ``marked`` are the instructions, last first; ``ends`` the leaves, and slots of other tapes, with their specs;
    ``split`` the writes that need shadows apart: something later refers to the version before them.
    """

    marked: list[Instruction]
    ends: dict[Any, tuple[Any, Spec]]
    split: set[Any]

    def foreign(self) -> list[int]:
        """Return the slots of other tapes."""
        return [operand for operand, _ in self.ends.values() if type(operand) is int]

    def narrow(self, leading: set[Any], hooked: set[Any]) -> None:
        """Keep the instructions with operands that lead to what is asked for, and those of slots with hooks."""
        self.marked = [i for i in self.marked if i.slot in hooked or any(key_of(o) in leading for o in i.operands)]


def mark(entries: list[Any], number: int, seeds: list[Seed]) -> Graph:
    """Find what leads to the roots of a sweep; FreedError if it is no longer there."""
    low, high = number << TAPE_BITS, number + 1 << TAPE_BITS
    pending, split = {seed.slot for seed in seeds}, set()
    found: dict[Any, Any] = {}
    marked: list[Instruction] = []
    stop = len(entries)
    while pending and stop > 0:  # as entries.instructions does, without making those that are passed by
        last = stop - 1
        form: Form = entries[last].form
        start = stop - form.entries
        slot = entries[start]
        if slot in pending:
            pending.discard(slot)
            first = start + 1 + len(form.specs)
            operands = tuple(entries[start + 1 : first])
            saved = tuple(entries[first:last]) if first < last else ()
            marked.append(Instruction(start, stop, slot, operands, saved, form))
            if form.kind >= CLEARS and form.kind <= ADDS and (operands[0] in pending or operands[0] in found):
                split.add(slot)
            for operand, spec in zip(operands, form.specs, strict=True):
                if type(operand) is int and low <= operand < high:
                    pending.add(operand)
                elif operand is not None:
                    found[key_of(operand)] = (operand, spec)
        stop = start
    if pending:
        raise FreedError
    return Graph(marked, found, split)


def relevant(graph: Graph, keys: set[Any]) -> set[Any]:
    """Return the slots that lead to these keys, or to other tapes, where what is asked for may stand."""
    leading = keys.union(graph.foreign())
    for instruction in reversed(graph.marked):
        if not leading.isdisjoint(instruction.operands):
            leading.add(instruction.slot)
    return leading


def drop(readers: Readers, entries: list[Any], marked: list[Instruction]) -> list[Any] | None:
    """Drop from a tape what saved values, and what needs that, if nobody else reads the tape.

    Returns what stood there: whoever lets go of it runs finalizers, which may record, write and sweep.
    """
    readers.swept += sum(instruction.stop - instruction.start for instruction in marked)
    if nested():
        return None
    with MOVES:
        try:
            MOVING.append(None)
            return _drop(entries, marked) if len(readers.readers) == 1 else None
        finally:
            MOVING.clear()


def _drop(entries: list[Any], marked: list[Instruction]) -> list[Any]:
    gone: set[int] = set()
    keep = bytearray(b"\x01" * len(entries))
    for instruction in reversed(marked):
        if instruction.form.block[B_FREES] or any(type(o) is int and o in gone for o in instruction.operands):
            gone.add(instruction.slot)
            keep[instruction.start : instruction.stop] = bytes(instruction.stop - instruction.start)
    return take_out(entries, slice(len(keep)), bytes(keep))


def collect(entries: list[Any], dying: int) -> tuple[int, list[Any] | None]:
    """Drop the instructions whose results nobody can reach.

    Returns how many entries they had, and what stood there, for the caller to let go.
    """
    lost: dict[int, int] = {dying: 1}
    size = len(entries)
    keep = bytearray(b"\x01" * size)
    stop = size
    while stop > 0:
        form = entries[stop - 1].form
        start = stop - int(form.block[B_ENTRIES])
        # Besides the tape's own reference, getrefcount counts its argument.
        if sys.getrefcount(entries[start]) - lost.get(entries[start], 0) <= 2:  # noqa: PLR2004
            keep[start:stop] = bytes(stop - start)
            for at in range(start + 1, start + 1 + len(form.specs)):
                if type(entries[at]) is int:
                    key = entries[at] ^ 0  # an equal number: no variable, and no key, may refer to the slot itself
                    lost[key] = lost.get(key, 0) + 1
        stop = start
    gone = keep.count(0)
    return gone, take_out(entries, slice(size), bytes(keep)) if gone else None
