"""Attributes that are read without running any code."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tape.tensors.tensor import Tensor

MISSING = object()
_PLAIN_READS: tuple[Any, ...] = (object.__getattribute__, ModuleType.__getattribute__)


def plain_attribute(value: Any, name: str) -> Any:
    """Return an attribute that stands in an object's dictionary and that no code is run for; else ``MISSING``."""
    kind = type(value)
    if isinstance(value, Tensor) or kind.__getattribute__ not in _PLAIN_READS:
        return MISSING
    if hasattr(getattr(kind, name, None), "__get__"):
        return MISSING
    variables = getattr(value, "__dict__", {})
    return variables.get(name, MISSING) if type(variables) is dict else MISSING
