"""What the import sets up: the version, names imported at their first use, cycles kept from the collector."""

from __future__ import annotations

import builtins
import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from kernels.language import jit

# Reference cycles of hooks and contexts that hold their own tensor, or its node.
#
# Python's collector does not see through a tape.

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


# Names of a package that are imported at their first use, so that importing the package stays fast.


def getattr_of(
    package: str, places: Mapping[str, str], instead: Mapping[str, str] | None = None
) -> Callable[[str], Any]:  # fmt: skip
    """Return the ``__getattr__`` (PEP 562) of a package, for names and the modules that define, or are, them.

    ``instead``: what to use in place of names that are not there, for the error.
    """
    advice = dict(instead or {})

    def find(name: str) -> Any:
        if name not in places:
            text = f": {advice[name]}" if name in advice else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{text}", name=name)
        place = places[name]
        module = importlib.import_module(place)
        value = getattr(module, name, module) if place == f"{package}.{name}" else getattr(module, name)
        value = module if isinstance(value, ModuleType) else value  # tape.sparse imports another sparse
        setattr(sys.modules[package], name, value)
        return value

    return find


# ``set_quiet``: whether a line on stderr says that native code is being compiled.

__all__ = ["set_quiet"]


def set_quiet(mode: bool = True) -> None:
    """Write no line on stderr while native code is compiled; with False, write it again.

    The line comes when compiling takes longer than a second, at the first use of operations on a machine: what is
    compiled is cached on disk. In notebooks there is none. ``TAPE_QUIET=1`` in the environment does the same.

    >>> tape.set_quiet()
    """
    jit.set_quiet(mode)


# The version of the distribution.

__version__ = "0.1.0"
