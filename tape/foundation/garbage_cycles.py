"""Reference cycles of hooks and contexts that hold their own tensor, or its node.

Python's collector does not see through a tape.
"""

from __future__ import annotations

import builtins
import gc
import sys
from types import FunctionType, ModuleType
from typing import Any

_MOST = 1 << 16
"""Objects that are looked at; hooks that lead to more keep what they hold."""


def let_go(held: list[Any]) -> int:
    """Release the slots of tensors and nodes that only ``held`` can reach; return the work of a search in vain.

    ``held`` are objects that a tape alone refers to; the list grows. This is trial deletion: an object with more
    references than come from within is reachable from elsewhere, and so is what it refers to. The work is the number of
    objects that were looked at, 0 if something was released.
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
    """Return the ids of these objects and of all that they refer to, directly or not; the list grows."""
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
    """Return the objects that an object refers to and that can be part of a cycle through a hook."""
    referents = [referent for referent in gc.get_referents(obj) if gc.is_tracked(referent)]
    if type(obj) is FunctionType:
        referents = [
            referent for referent in referents if referent is not obj.__globals__ and referent is not vars(builtins)
        ]
    return [referent for referent in referents if not isinstance(referent, (type, ModuleType))]


def _counts(held: list[Any]) -> list[int]:
    return [sys.getrefcount(obj) for obj in held]


_ALONE = _counts([object()])[0]
"""The count of references to an object that is in the counted list alone."""
