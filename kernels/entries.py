"""A tape's entries taken apart into instructions: for listings, for the plain sweep, for tests."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernels.forms import Form

MOVES: Any = threading.RLock()
"""Held while instructions are dropped, and by whoever keeps places in a tape's entries from moving.

The thread that holds it may come again: a collection of garbage, a signal, a profiler may run anything anywhere.
"""
if hasattr(os, "register_at_fork"):  # a child must not inherit it held, nor entries half moved
    os.register_at_fork(before=MOVES.acquire, after_in_parent=MOVES.release, after_in_child=MOVES.release)


nested = MOVES._is_owned  # noqa: SLF001 (threading.Condition asks it too)
"""Whether this thread is in the middle of what needs the entries where they are, and must not drop any."""
MOVING: list[None] = []
"""Not empty while some thread drops instructions."""
REPLACED = [0]
"""Counts the saved values that were replaced by copies."""


def settled() -> None:
    """Wait until no other thread is dropping instructions. What counts itself as a reader then finds them all."""
    if MOVING:
        with MOVES:
            pass


def take_out(entries: list[Any], part: slice, marks: bytes) -> list[Any]:
    """Keep, of a part of a tape, the entries marked with 1; return what stood there, which is not let go of here.

    Whatever this thread is called away for meanwhile may append, and replace saved values by copies.
    """
    while True:
        count, there = REPLACED[0], entries[part]
        kept = list(itertools.compress(there, marks))
        # fmt: off
        if REPLACED[0] == count: entries[part] = kept; return there  # noqa: E701, E702 (nothing comes in between)
        # fmt: on


@dataclass(slots=True)
class Instruction:
    """One instruction taken apart."""

    start: int
    stop: int
    slot: int
    operands: tuple[Any, ...]
    saved: tuple[Any, ...]
    form: Form


def instruction_at(entries: list[Any], last: int) -> Instruction:
    """Return the instruction whose opcode stands at ``last``."""
    form: Form = entries[last].form
    start = last + 1 - form.entries
    first = start + 1 + len(form.specs)
    operands, saved = tuple(entries[start + 1 : first]), tuple(entries[first:last])
    return Instruction(start, last + 1, entries[start], operands, saved, form)


def snapshot(entries: list[Any]) -> list[Any]:
    """Return a copy of a tape's entries that no thread was just moving."""
    with MOVES:
        return list(entries)


def instructions(entries: list[Any], down_to: int = 0) -> Iterator[Instruction]:
    """Yield a tape's instructions, last first, down to a slot: slots ascend along a tape."""
    stop = len(entries)
    while stop > 0:
        instruction = instruction_at(entries, stop - 1)
        if instruction.slot < down_to:
            return
        yield instruction
        stop = instruction.start
