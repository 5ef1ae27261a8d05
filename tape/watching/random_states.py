"""States of random number generators: a call that advances one cannot be replayed."""

from __future__ import annotations

import ctypes
import pickle
import random
from collections.abc import Iterable
from typing import Any

import numpy as np

GENERATORS: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_TWISTER = 4 * 625
"""Bytes of a Mersenne twister: its words, and how many of them were used."""


def state_of(generator: Any) -> Any:
    """Return what tells states of a generator apart."""
    if issubclass(type(generator), random.Random):
        return random.Random.getstate(generator)
    bits = generator if issubclass(type(generator), np.random.BitGenerator) else generator._bit_generator
    if type(bits) is np.random.MT19937:  # whose ``state`` takes 30 us
        return ctypes.string_at(bits.ctypes.state_address, _TWISTER)
    return pickle.dumps(bits.state)


class RandomStates:
    """The states of Python's and NumPy's global generators, and of others, by name, before a call."""

    def __init__(self, known: Iterable[tuple[str, Any]]) -> None:
        shared = [("Python's random", random._inst), ("np.random", np.random.mtrand._rand)]
        self._before = [(name, x, state_of(x)) for name, x in (*shared, *known)]

    def reason(self) -> str:
        """Return why the call cannot be replayed, if it drew from one."""
        drawn = [name for name, x, state in self._before if state_of(x) != state]
        return f"the call draws random numbers from {drawn[0]}, which programs do not hold" if drawn else ""
