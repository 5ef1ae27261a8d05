"""The arguments behind the tensors of a call, as part of its key in native code's table."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.compiler import jit
from kernels.foundation.data_classes import dataclass
from kernels.native.call_structs import MOST_ARGUMENT_WORDS
from kernels.native.memory import where


@dataclass(frozen=True)
class Arguments:
    """The arguments behind the tensors of a call: as words, with their hash, and the objects that these refer to."""

    words: np.ndarray[Any, Any]
    hashed: int
    objects: tuple[Any, ...]


_CONSTANT = frozenset((bool, str, type, type(None)))


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
    """Return arguments as part of a key; None if they are mutable, or too many."""
    everything = (*args, *kwargs.values())
    for x in everything:
        if type(x) not in (int, float, tuple, list) and type(x) not in _CONSTANT and not isinstance(x, np.dtype):
            return None  # native code compares sequences by their items
    names = tuple(kwargs)
    argument_words = np.zeros(MOST_ARGUMENT_WORDS, np.int64)
    addresses = np.array([*map(id, everything), 0], np.int64)
    native = jit.load_module("native.calls.arguments_native")
    hashed = native.words_of(where(addresses), len(args), id(names), where(argument_words)) if everything else 0
    return Arguments(argument_words, hashed, (names, everything)) if hashed >= 0 else None
