"""A tape's entries taken apart into instructions: for listings, for the plain sweep, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernels.forms import FORMS, Form
from kernels.words import B_ENTRIES


@dataclass(slots=True)
class Instruction:
    """One instruction taken apart."""

    start: int
    stop: int
    slot: int
    operands: tuple[Any, ...]
    saved: tuple[Any, ...]
    form: Form


def instructions(entries: list[Any]) -> Iterator[Instruction]:
    """Yield a tape's instructions, last first."""
    stop = len(entries)
    while stop > 0:
        form = FORMS[entries[stop - 1]]
        start = stop - int(form.block[B_ENTRIES])
        first = start + 1 + len(form.specs)
        operands, saved = tuple(entries[start + 1 : first]), tuple(entries[first : stop - 1])
        yield Instruction(start, stop, entries[start], operands, saved, form)
        stop = start
