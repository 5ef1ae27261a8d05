"""What goes into a sweep and what comes out: seeds, observers, outcome. Shared by the native and the plain one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from kernels.arrays.specs import Spec
from kernels.foundation.data_classes import dataclass

Array = np.ndarray[Any, Any]


class FreedError(Exception):
    """An instruction that the sweep needs is no longer on the tape."""


class CrossingError(Exception):
    """The graph of a sweep of one tape leads to another."""


class HookedError(CrossingError):
    """The graph leads to a leaf with hooks, and this sweep cannot run them."""


class Readers(Protocol):
    """The readers of a tape's entries: ``readers`` has an item for each. Entries are dropped only by the last reader.

    ``swept`` counts the entries that sweeps have looked at.
    """

    readers: list[None]
    swept: int


@dataclass(slots=True)
class Seed:
    """The cotangent that a sweep starts from, with its spec and its offset in the family's gradient buffer.

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


Wanted = tuple[set[Any], bool]
"""The leaves that a sweep is for, and whether the root must lead to no others."""


@dataclass(slots=True)
class Task:
    """What a sweep is to do: go back from the seeds over the entries of the tape of this number.

    ``observers`` receive their gradients. With ``restrict`` only what leads to an observer is computed, and no leaf
    is delivered. If ``free`` counts no other reader of the tape, the instructions that saved values are dropped, and
    those that need them, unless an observer is ``required`` and nothing reached it. ``cross_tape``: the
    graph may lead to other tapes. With ``batch`` the seeds have a leading axis of that length, and all gradients do:
    so many sweeps in one. ``hooked`` are the ids of leaves that have hooks: ``reached`` is called with each, and with
    its gradient, as soon as all of it is there.
    """

    entries: Any
    number: int
    seeds: list[Seed]
    observers: Sequence[Observer] = ()
    restrict: bool = False
    free: Readers | None = None
    cross_tape: bool = False
    required: bool = False
    batch: int = 0
    hooked: Collection[int] = ()
    reached: Callable[[Any, Any], None] | None = None

    def releasing(self) -> Readers | None:
        """Return the readers of a tape whose instructions may go, now that the sweep is done."""
        starved = self.required and any(o.asked and o.gradient is None for o in self.observers)
        return None if starved else self.free


Outcome = tuple[list[tuple[Any, Array | float]], list[tuple[int, Spec, Array]]]
"""What a sweep leaves: the gradient of each leaf, and the cotangents of slots on other tapes with their specs."""
