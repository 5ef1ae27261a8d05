"""Names of parameters in the ids of tests: the text of a lambda, small numbers and structures as they are written."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from types import EllipsisType, FunctionType
from typing import Any

import numpy as np

LONGEST = 60


def name_of(value: object) -> str | None:
    """Return what stands for a parameter; None where pytest's own name is as good."""
    if isinstance(value, str):
        return shortened(value) if len(value) > LONGEST or "\n" in value else None
    if isinstance(value, FunctionType) and value.__name__ == "<lambda>":
        return shortened(body_of(value))
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, np.ndarray | tuple | list | dict) and is_plain(value):
        return shortened(written(value))
    return None


def shortened(text: str) -> str:
    """Return text on one line, cut where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def is_plain(value: object) -> bool:
    """Whether a value is made of numbers, text, classes and functions alone, so that all processes write it alike."""
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return value is None or isinstance(value, (*WRITTEN, *PLAIN))


def written(value: Any) -> str:
    """Return a value about as a program has it."""
    for kind, write in WRITTEN.items():
        if isinstance(value, kind):
            return write(value)
    return repr(value)


def _array(value: np.ndarray[Any, Any]) -> str:
    return str(value.tolist()) if value.size <= 4 else f"{value.dtype.name}{value.shape}"


def _function(value: FunctionType) -> str:
    return body_of(value) if value.__name__ == "<lambda>" else value.__name__


WRITTEN: dict[type, Callable[[Any], str]] = {
    tuple: lambda value: f"({', '.join(map(written, value))}{',' * (len(value) == 1)})",
    list: lambda value: f"[{', '.join(map(written, value))}]",
    dict: lambda value: ", ".join(f"{key}={written(one)}" for key, one in value.items()) or "{}",
    np.ndarray: _array,
    FunctionType: _function,
    type: lambda value: value.__name__,
    np.ufunc: lambda value: value.__name__,
    np.dtype: str,
    np.generic: str,
    EllipsisType: lambda _: "...",
}
PLAIN = (bool, int, float, str, slice)


def body_of(function: FunctionType) -> str:
    """Return the text of what a lambda gives, or its bare name where its source is not at hand."""
    places = [place for place in function.__code__.co_positions() if None not in place and place[3]]
    lines = linecache.getlines(function.__code__.co_filename)
    if not places or not lines:
        return "lambda"
    first, last = min((p[0], p[2]) for p in places), max((p[1], p[3]) for p in places)
    text = [line.encode() for line in lines[first[0] - 1 : last[0]]]  # columns count bytes
    text[-1] = text[-1][: last[1]]
    text[0] = text[0][first[1] :]
    return b" ".join(text).decode()
