"""Names of a package that are imported at their first use, so that importing the package stays fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


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
