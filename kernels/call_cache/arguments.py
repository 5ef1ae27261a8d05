"""What is given behind the tensors of a call, as native code finds the call by it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.compiler import jit
from kernels.foundation.data_classes import dataclass
from kernels.native import words
from kernels.native.memory import where


@dataclass(frozen=True)
class Arguments:
    """What is given behind the tensors of a call: its words, their hash, and what these refer to."""

    words: np.ndarray[Any, Any]
    hashed: int
    given: tuple[Any, ...]


_CONSTANT = frozenset((bool, str, type, type(None)))


def arguments(given: tuple[Any, ...], named: dict[str, Any]) -> Arguments | None:
    """Return arguments as native code finds a call by them; None where they may change, or are too many."""
    everything = (*given, *named.values())
    for x in everything:
        if type(x) not in (int, float, tuple, list) and type(x) not in _CONSTANT and not isinstance(x, np.dtype):
            return None  # of sequences native code looks at what is in them
    names = tuple(named)
    found, addresses = np.zeros(words.MOST_ARGUMENT_WORDS, np.int64), np.array([*map(id, everything), 0], np.int64)
    native = jit.load_module("native.calls.arguments_native")
    hashed = native.words_of(where(addresses), len(given), id(names), where(found)) if everything else 0
    return Arguments(found, hashed, (names, everything)) if hashed >= 0 else None
