"""What native code calls the arguments of a compiled function: as its parameters are called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PATH = re.compile(r"argument (\w+)(.*)", re.DOTALL)


def named(function: Callable[..., Any], paths: Sequence[str]) -> list[str]:
    """Return names for leaves of a call, which a signature knows by paths such as ``argument 0['a']``.

    A position becomes the name of the parameter, if that is known; parts follow behind underscores.
    """
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # a function of C
        parameters = []
    positional = [p.name for p in parameters if p.kind in _POSITIONAL]
    return [_name(path, positional) for path in paths]


def _name(path: str, positional: Sequence[str]) -> str:
    match = _PATH.fullmatch(path)
    if match is None:
        return path
    head, rest = match.groups()
    if head.isdigit():
        head = positional[int(head)] if int(head) < len(positional) else f"x{head}"
    return "_".join([head, *re.findall(r"\w+", rest)])
