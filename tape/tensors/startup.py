"""What the import of tape sets up: the version, names that are imported at their first use, quiet compiling."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from kernels.language import jit


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


def set_quiet(mode: bool = True) -> None:
    """Write no line on stderr while native code is compiled; with False, write it again.

    The line comes when compiling takes longer than a second, at the first use of operations on a machine: what is
    compiled is cached on disk. In notebooks there is none. ``TAPE_QUIET=1`` in the environment does the same.

    >>> tape.set_quiet()
    """
    jit.set_quiet(mode)


__version__ = "0.1.0"
