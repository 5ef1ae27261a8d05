"""Regions of memory that a program's pointers are, where values stand in them, and elements as text."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from kernels.foundation.data_classes import dataclass
from kernels.programs.expanding.scalar_program import Terms
from kernels.programs.fusing.scalar_rules import BOOL, FLOAT32, FLOAT64, INT64
from kernels.programs.rolling.rolled_program import Uncompiled

Array = np.ndarray[Any, Any]
Dtype = np.dtype[Any]
POINTERS = {FLOAT64: "pointer_f8", FLOAT32: "pointer_f4", BOOL: "pointer_b1", INT64: "pointer_i8"}


@dataclass(slots=True, eq=False)
class Region:
    """Memory of one pointer, ``name``; of ``role`` argument, constant, result or work, the ``place``-th of these."""

    name: str
    role: str
    place: int
    dtype: Dtype
    size: int = 0
    """Bytes, of workspace."""
    begin: int = 0
    """Bytes behind a line of the cache that it begins at, in a workspace."""
    names: list[str] = field(default_factory=list)
    """Names of memory in whose place it is used afterwards."""


@dataclass(slots=True, eq=False)
class Home:
    """Where a value stands: a region, bytes from its begin, and bytes for the steps of loops."""

    region: Region
    constant: int = 0
    rows: list[tuple[int, int]] = field(default_factory=list)
    """The loops of which each step has a row, outermost first, with its bytes."""
    parity: tuple[int, int] | None = None
    """The loop of which rows alternate between two, and the bytes of one."""
    without: str = ""
    """The index of a nest whose steps all use the same memory."""
    blocked: list[int] = field(default_factory=list)
    """The loops in blocks of which the rows are those of one block."""


def element_text(region: Region, constant: int, terms: Terms) -> str:
    """Return an element of a region, so many bytes from its begin, as text."""
    item = region.dtype.itemsize
    if constant % item or any(step % item for name, step in terms if name[0] in "ikeojryc"):
        raise Uncompiled("elements are not aligned")
    parts = []
    for name, step in terms:
        if name[0] == "n":  # bytes that are looked up
            whole = name if step == item else f"{step // item} * {name}"
            parts.append(whole if step % item == 0 else f"{step} * {name} // {item}")
        elif step:
            parts.append(name if step == item else f"{step // item} * {name}")
    if constant or not parts:
        parts.append(str(constant // item))
    return f"{region.name}[{' + '.join(parts)}]"
