"""Values whose state nobody sees without changing it: iterators and files, and sources of true randomness."""

from __future__ import annotations

import _io
import io
import mmap
import random
import types
from typing import Any

from tape.watching.plain_attributes import MISSING, entry_of_class

_OPAQUE = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, mmap.mmap, random.SystemRandom)
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom, io.FileIO, io.StringIO, io.BytesIO)
_WRITES = frozenset(("write", "writelines", "flush", "close", "closed", "fileno", "isatty", "name"))
"""Attributes of files that read nothing."""


def is_opaque(value: Any, follows: tuple[tuple[str, Any], ...] = ()) -> bool:
    """Whether code that reads a value may find something else at each call; ``follows``: what it reads of it next."""
    kind = type(value)
    if issubclass(kind, _io._IOBase):
        return any(kind is x for x in _FILES) and not (follows and follows[0][1] in _WRITES) and _is_readable(value)
    advance = entry_of_class(kind, "__next__")
    return issubclass(kind, _OPAQUE) or (advance is not MISSING and type(advance) is types.WrapperDescriptorType)


def _is_readable(file: Any) -> bool:
    return not file.closed and bool(file.readable())
