"""Structures of arguments and gradients as steps, by which native code opens and makes them."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from kernels.native.memory import HEADER
from kernels.programs.calling.direct_call_structs import (
    DEEPEST,
    MOST_VALUES,
    S_DICT,
    S_END,
    S_FIXED,
    S_LIST,
    S_TUPLE,
    S_VALUE,
)
from tape.tensors.pytrees import LEAF, Structure

_KINDS: dict[Any, int] = {tuple: S_TUPLE, list: S_LIST, dict: S_DICT}


class Unknown(Exception):  # noqa: N818 (no error: Python does it)
    """A structure that native code does not open."""


class Steps:
    """Steps through structures, with what they refer to; ``fixed``: what leaves have to be that are no values.

    :class:`Unknown` for other structures than tuples, lists and dictionaries by names, and where these are many.
    """

    def __init__(self, fixed: dict[int, Any]) -> None:
        self.words: list[int] = []
        self.kept: list[Any] = [fixed]
        self.values, self.count = 0, 0
        self._kinds: set[Any] = set()
        self._fixed, self._leaf = fixed, 0
        if not _tuples_agree():
            raise Unknown

    @classmethod
    def of_arguments(cls, structure: Structure, fixed: dict[int, Any]) -> Steps:
        """Return the steps through arguments by position."""
        positional, named = structure.parts
        if named.parts:
            raise Unknown
        self = cls(fixed)
        self._parts(positional, 0)
        self.count = len(positional.parts)
        if not 0 < self.values <= MOST_VALUES:
            raise Unknown
        return self

    @classmethod
    def of_gradient(cls, structure: Structure) -> Steps:
        """Return the steps through a structure that is to be made."""
        self = cls({})
        self._one(structure, 0, 0)
        if any(kind not in _KINDS for kind in self._kinds):
            raise Unknown
        return self

    def _parts(self, structure: Structure, depth: int) -> None:
        by_name = structure.kind is dict
        for key, part in zip(structure.keys, structure.parts, strict=True):
            if by_name and type(key) is not str:
                raise Unknown
            self._one(part, id(key) if by_name else 0, depth)
        self.words += (S_END, 0, 0, 0)

    def _one(self, structure: Structure, key: int, depth: int) -> None:
        if structure is LEAF:
            number, self._leaf = self._leaf, self._leaf + 1
            if number in self._fixed:
                self.words += (S_FIXED, key, id(self._fixed[number]), 0)
            else:
                self.words += (S_VALUE, key, 0, 0)
                self.values += 1
            return
        kind: Any = structure.kind
        named = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
        if depth >= DEEPEST or not (kind in _KINDS or named):
            raise Unknown
        self._kinds.add(kind)
        self.kept.append(structure)
        self.words += (S_TUPLE if named else _KINDS[kind], key, len(structure.parts), id(kind))
        self._parts(structure, depth + 1)


@functools.cache
def _tuples_agree() -> bool:
    """Check, on a known tuple, that native code finds the items where it looks."""
    probe = 1.5, 2.5
    items = [ctypes.c_int64.from_address(id(probe) + tuple.__basicsize__ + 8 * k).value for k in range(2)]
    return ctypes.c_int64.from_address(id(probe) + HEADER).value == len(probe) and items == [id(x) for x in probe]
