"""Finds out what is at an address, without trusting that it is valid."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any

_TYPES = 4
"""The most levels of metatypes."""
_HEADER = 16


def word_at(address: int) -> int:
    """Return the word at an address that is known to be memory."""
    return ctypes.c_int64.from_address(address).value


def with_subclasses(kind: int) -> Iterator[int]:
    """Yield the address of a type and those of all that derive from it."""
    if kind:
        yield kind
        for derived in type.__subclasses__(ctypes.cast(kind, ctypes.py_object).value):
            yield from with_subclasses(id(derived))


def is_object(address: int) -> bool:
    """Whether there is memory at an address, with a type in it as objects have one; types are objects likewise."""
    for _ in range(_TYPES):
        if address <= 0 or address % 8 or not _is_memory(address):
            return False
        kind = word_at(address + 8)
        if kind == id(type):
            return True
        address = kind
    return False


@functools.cache
def _pipe() -> tuple[int, int, Any]:
    inward, outward = os.pipe()
    os.set_blocking(inward, False)
    os.set_blocking(outward, False)
    write = ctypes.CDLL(None).write
    write.restype, write.argtypes = ctypes.c_ssize_t, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    return inward, outward, write


def _is_memory(address: int) -> bool:
    """Whether an object's header can be read: the system refuses to write them where they cannot."""
    inward, outward, write = _pipe()
    written: int = write(outward, address, _HEADER)
    if written > 0:
        os.read(inward, written)
    return written == _HEADER
