"""A tape's entries taken apart into instructions: for listings, for the plain sweep, for tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from kernels.forms import FORMS, Form

MOVES = threading.Lock()
"""Held while instructions are dropped, and by whoever keeps places in a tape's entries from moving."""
if hasattr(os, "register_at_fork"):  # a child must not inherit it held, nor entries half moved
    os.register_at_fork(before=MOVES.acquire, after_in_parent=MOVES.release, after_in_child=MOVES.release)


DROPPING: list[int] = []
"""The thread that drops instructions, while it does: what it drops may call it back."""


def settled() -> None:
    """Wait until no other thread is dropping instructions. What counts itself as a reader then finds them all."""
    if MOVES.locked() and get_ident() not in DROPPING:
        with MOVES:
            pass


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
    form = FORMS[entries[last]]
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
