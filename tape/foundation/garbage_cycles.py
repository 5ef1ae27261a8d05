"""Hooks that hold their own tensor, or its node: cycles through a tape, which Python's collector cannot see."""

from __future__ import annotations

import builtins
import gc
import sys
from types import FunctionType, ModuleType
from typing import Any

_MOST = 1 << 16
"""Objects that are looked at; hooks that lead to more keep what they hold."""


def let_go(held: list[Any]) -> int:
    """Let what only ``held`` can reach refer to its slots without holding them; return how many objects that cost.

    ``held`` are objects that a tape alone refers to; it grows. This is trial deletion: whatever has more references
    than come from within is reached from elsewhere, and so is what it refers to.
    """
    inner = {id(one): 1 for one in held}  # references that are accounted for: the tape's
    for one in held:
        for other in _referents(one):
            if id(other) not in inner:
                inner[id(other)] = 0
                held.append(other)
            inner[id(other)] += 1
        if len(held) > _MOST:
            return len(held)
    reached = _reached([one for one, count in zip(held, _counts(held), strict=True) if count - _ALONE > inner[id(one)]])
    alone = [one for one in held if id(one) not in reached and _has_slot(one)]
    for one in alone:
        one._unheld()
    return 0 if alone else len(held)


def _reached(outer: list[Any]) -> set[int]:
    """Return the ids of these objects and of what they lead to; the list grows."""
    found = {id(one) for one in outer}
    for one in outer:
        for other in _referents(one):
            if id(other) not in found:
                found.add(id(other))
                outer.append(other)
    return found


def _has_slot(one: Any) -> bool:
    """Whether it is a computed tensor, or a node."""
    return hasattr(type(one), "_unheld") and type(one._slot) is int


def _referents(one: Any) -> list[Any]:
    """Return what an object refers to, of what can be part of a cycle through a hook."""
    found = [other for other in gc.get_referents(one) if gc.is_tracked(other)]
    if type(one) is FunctionType:
        found = [other for other in found if other is not one.__globals__ and other is not vars(builtins)]
    return [other for other in found if not isinstance(other, (type, ModuleType))]


def _counts(held: list[Any]) -> list[int]:
    return [sys.getrefcount(one) for one in held]


_ALONE = _counts([object()])[0]
"""What counting shows of an object that is in the list of those counted, and nowhere else."""
