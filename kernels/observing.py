"""What goes into a sweep and what comes out: seeds, observers, outcome. Shared by the native and the plain one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.layouts import Spec

Array = np.ndarray[Any, Any]


class FreedError(Exception):
    """An instruction that the sweep needs is no longer on the tape."""


@dataclass(slots=True)
class Seed:
    """The cotangent that a sweep starts from, with its spec and its offset in the family's shadow.

    ``slot`` is its number; before the leaves among the roots are served, it may be a leaf.
    """

    slot: Any
    spec: Spec
    value: Array | float
    offset: int | None = None


@dataclass(slots=True)
class Observer:
    """A slot or leaf whose gradient is asked for: after the sweep ``gradient`` has it, None if nothing reached it.

    ``key`` is a slot number or a leaf, an object with a ``spec``.
    """

    key: Any
    spec: Spec
    offset: int = 0
    gradient: Array | None = None


Outcome = tuple[list[tuple[Any, Array | float]], list[tuple[int, Spec, Array]]]
"""What a sweep leaves: the gradient of each leaf, and the cotangents of slots on other tapes with their specs."""
