"""The part of a tape that leads to the roots of a sweep: found, narrowed to what is asked for, dropped afterwards."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from kernels.foundation.numpy_arrays import FreedError, Readers, Seed
from kernels.foundation.specs import Spec
from kernels.foundation.tables import dataclass
from kernels.kinds.reference_tape import Instruction, instruction_at
from kernels.native.structs import ADDS, CLEARS, TAPE_BITS, VIEW, FormBlock


@dataclass(slots=True)
class MarkedGraph:
    """What leads from leaves to the roots of a sweep.

    ``marked`` are the instructions, last first; ``ends`` the leaves, and slots of other tapes, with their specs;
    ``split`` the writes that need gradient buffers apart: something later refers to the version before them.
    """

    marked: list[Instruction]
    ends: dict[Any, Spec]
    split: set[Any]

    def foreign(self) -> list[int]:
        """Return the slots of other tapes."""
        return [operand for operand in self.ends if type(operand) is int]

    def narrow(self, leading: set[Any], hooked: set[Any]) -> None:
        """Keep the instructions with operands that lead to what is asked for, and those of slots with hooks."""
        self.marked = [i for i in self.marked if i.slot in hooked or not leading.isdisjoint(i.operands)]


def mark(entries: Any, number: int, seeds: list[Seed]) -> MarkedGraph:
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
                ends[operand] = spec
    if pending:
        raise FreedError
    return MarkedGraph(marked, ends, split)


def relevant(graph: MarkedGraph, keys: set[Any]) -> set[Any]:
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


class Families:
    """Which gradient buffer each tensor of a graph has its gradient in.

    A view's gradient is a part of its base's buffer; the versions of a tensor that is written in place share one
    buffer. Only slots that are ``kept``, since somebody looks at their gradient, have a buffer of their own.
    """

    def __init__(self, marked: list[Instruction], kept: set[Any]) -> None:
        aliases = (VIEW, CLEARS, ADDS)
        self.homes = {i.slot: i for i in marked if i.form.kind in aliases and i.operands[0] is not None}
        self.kept = kept
        self.buffers: dict[Any, Any] = {}
        """By slot or leaf, made at the first contribution."""

    def home(self, key: Any) -> tuple[Any, int]:
        """Return the slot or leaf whose buffer holds a gradient, and where in it the gradient begins."""
        alias = self.homes.get(key)
        if alias is None:
            return key, 0
        offset = alias.saved[0] if alias.form.kind == VIEW else 0
        while key in self.homes and key not in self.kept:
            key = self.homes[key].operands[0]
        return key, offset

    def above(self, instruction: Instruction) -> Any:
        """Return whose buffer a view, or the version that a write made, contributes to."""
        return self.home(instruction.operands[0])[0]


# Leaves with hooks: their gradient is complete behind the instruction that uses them first, which is swept last.


def last_uses(order: Iterable[tuple[int, Sequence[Any]]], wanted: set[int]) -> dict[int, int]:
    """Return where leaves, by id, are used for the last time; ``order`` has places and operands, the last first."""
    places: dict[int, int] = {}
    for place, operands in order:
        for operand in operands:
            if id(operand) in wanted:
                places[id(operand)] = place
                wanted.discard(id(operand))
        if not wanted:
            break
    return places


def by_slot(graph: MarkedGraph, steps: set[Any] | None, wanted: Container[int]) -> dict[int, list[Any]]:
    """Return leaves, those of these ids, by the slot of the instruction that uses them for the last time.

    ``steps`` are the slots of the instructions that run; None for all.
    """
    leaves = {id(end): end for end in graph.ends if id(end) in wanted}
    order = (
        (instruction.slot, instruction.operands)
        for instruction in reversed(graph.marked)
        if steps is None or instruction.slot in steps
    )
    stops: dict[int, list[Any]] = {}
    for key, slot in last_uses(order, set(leaves)).items() if leaves else ():
        stops.setdefault(slot, []).append(leaves[key])
    return stops
