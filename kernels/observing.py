"""What goes into a sweep and what comes out: seeds, observers, outcome. Shared by the native and the plain one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kernels.layouts import Spec

Array = np.ndarray[Any, Any]


class FreedError(Exception):
    """An instruction that the sweep needs is no longer on the tape."""


class CrossingError(Exception):
    """The graph of a sweep of one tape leads to another."""


class Readers(Protocol):
    """Who reads a tape's entries: ``readers`` has an item for each. Only one that is alone, holding MOVES, drops any.

    ``swept`` counts the entries that sweeps have looked at.
    """

    readers: list[None]
    swept: int


@dataclass(slots=True)
class Seed:
    """The cotangent that a sweep starts from, with its spec and its offset in the family's shadow.

    ``slot`` is its number; before the leaves among the roots are served, it may be a leaf. In a batched sweep the
    value has a leading axis of the batch.
    """

    slot: Any
    spec: Spec
    value: Array | float
    offset: int | None = None


@dataclass(slots=True)
class Observer:
    """A slot or leaf whose gradient is looked at: after the sweep ``gradient`` has it, None if nothing reached it.

    ``key`` is a slot number or a leaf, an object with a ``spec``. ``hook`` is called with the gradient when the
    sweep comes to the slot's instruction; an array that it returns takes the gradient's place. ``after`` is called
    with the gradients of the instruction's operands and of its result, and returns those of the operands. ``asked``:
    a sweep that computes only what is asked for computes this.
    """

    key: Any
    spec: Spec
    offset: int = 0
    gradient: Array | None = None
    hook: Callable[[Array], Array | None] | None = None
    after: Callable[[list[Array | None], Array], list[Array | None]] | None = None
    asked: bool = True


Outcome = tuple[list[tuple[Any, Array | float]], list[tuple[int, Spec, Array]]]
"""What a sweep leaves: the gradient of each leaf, and the cotangents of slots on other tapes with their specs."""
