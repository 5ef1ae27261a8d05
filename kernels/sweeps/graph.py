"""What leads to the roots of a sweep, and what is dropped from a tape: in plain Python."""

from __future__ import annotations

from typing import Any

from kernels.foundation.numpy_arrays import FreedError, Readers, Seed
from kernels.foundation.specs import Spec
from kernels.foundation.tables import dataclass
from kernels.kinds.reference_tape import Instruction, instruction_at
from kernels.native.structs import ADDS, CLEARS, TAPE_BITS, FormBlock


def key_of(operand: Any) -> Any:
    """Return what a gradient buffer is found by: a slot, or a leaf itself, which is equal to no other."""
    return operand


@dataclass(slots=True)
class Graph:
    """What leads from leaves to the roots of a sweep.

    ``marked`` are the instructions, last first; ``ends`` the leaves, and slots of other tapes, with their specs;
    ``split`` the writes that need gradient buffers apart: something later refers to the version before them.
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


def mark(entries: Any, number: int, seeds: list[Seed]) -> Graph:
    """Find what leads to the roots of a sweep; FreedError if it is no longer there."""
    low, high = number << TAPE_BITS, number + 1 << TAPE_BITS
    pending, split = {seed.slot for seed in seeds}, set()
    ends: dict[Any, Any] = {}
    marked: list[Instruction] = []
    stop = entries.find(max(pending)) if pending else 0
    while pending and stop > 0:
        instruction = instruction_at(entries, stop - 1)
        slot, operands, form, stop = instruction.slot, instruction.operands, instruction.form, instruction.start
        if slot not in pending:
            continue
        pending.discard(slot)
        marked.append(instruction)
        if form.kind >= CLEARS and form.kind <= ADDS and (operands[0] in pending or operands[0] in ends):
            split.add(slot)
        for operand, spec in zip(operands, form.specs, strict=True):
            if type(operand) is int and low <= operand < high:
                pending.add(operand)
            elif operand is not None:
                ends[key_of(operand)] = (operand, spec)
    if pending:
        raise FreedError
    return Graph(marked, ends, split)


def relevant(graph: Graph, keys: set[Any]) -> set[Any]:
    """Return the slots that lead to these keys, or to other tapes, where what is asked for may stand."""
    leading = keys.union(graph.foreign())
    for instruction in reversed(graph.marked):
        if not leading.isdisjoint(instruction.operands):
            leading.add(instruction.slot)
    return leading


def drop(readers: Readers, entries: Any, marked: list[Instruction]) -> None:
    """Drop from a tape what saved values, and what needs that, if nobody else reads the tape."""
    readers.swept += sum(instruction.stop - instruction.start for instruction in marked)
    gone: set[int] = set()
    lasts: list[int] = []
    for instruction in reversed(marked):
        if instruction.form.block[FormBlock.frees] or any(type(o) is int and o in gone for o in instruction.operands):
            gone.add(instruction.slot)
            lasts.append(instruction.stop - 1)
    entries.remove(readers.readers, tuple(lasts))
