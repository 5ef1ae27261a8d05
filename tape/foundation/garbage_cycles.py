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
    inner = {id(obj): 1 for obj in held}  # references that are accounted for: the tape's
    for obj in held:
        for referent in _referents(obj):
            if id(referent) not in inner:
                inner[id(referent)] = 0
                held.append(referent)
            inner[id(referent)] += 1
        if len(held) > _MOST:
            return len(held)
    reached = _reached([obj for obj, count in zip(held, _counts(held), strict=True) if count - _ALONE > inner[id(obj)]])
    alone = [obj for obj in held if id(obj) not in reached and _has_slot(obj)]
    for obj in alone:
        obj._unheld()
    return 0 if alone else len(held)


def _reached(outer: list[Any]) -> set[int]:
    """Return the ids of these objects and of what they lead to; the list grows."""
    ids = {id(obj) for obj in outer}
    for obj in outer:
        for referent in _referents(obj):
            if id(referent) not in ids:
                ids.add(id(referent))
                outer.append(referent)
    return ids


def _has_slot(obj: Any) -> bool:
    """Whether it is a computed tensor, or a node."""
    return hasattr(type(obj), "_unheld") and type(obj._slot) is int


def _referents(obj: Any) -> list[Any]:
    """Return what an object refers to, of what can be part of a cycle through a hook."""
    referents = [referent for referent in gc.get_referents(obj) if gc.is_tracked(referent)]
    if type(obj) is FunctionType:
        referents = [
            referent for referent in referents if referent is not obj.__globals__ and referent is not vars(builtins)
        ]
    return [referent for referent in referents if not isinstance(referent, (type, ModuleType))]


def _counts(held: list[Any]) -> list[int]:
    return [sys.getrefcount(obj) for obj in held]


_ALONE = _counts([object()])[0]
"""What counting shows of an object that is in the list of those counted, and nowhere else."""
