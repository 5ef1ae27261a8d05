"""Arrays and NumPy's doubles among operands of calls: native code wraps them in tensors once their spec is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, spec_of
from kernels.compiler import jit
from kernels.native import registry
from kernels.native.call_structs import KNOWN_ARRAYS, KnownArray
from kernels.native.memory import where
from kernels.native.tape_structs import RegistryTable

Array = np.ndarray[Any, Any]


class Adopted:
    """Specs of arrays by dtype, shape and strides: a hash table that native code reads, one entry a row."""

    def __init__(self) -> None:
        self._rows = np.zeros((KNOWN_ARRAYS, KnownArray.SIZE), np.int64)
        self._specs: list[Spec | None] = [None] * KNOWN_ARRAYS
        self._double = spec_of(0.0)
        native = jit.load_module("native.calls.adopting_native")
        self._enter, hit = native.enter.entry_point, native.hit_adopted.address
        for at, word in {
            RegistryTable.known_arrays: where(self._rows),
            RegistryTable.numpy_double: id(np.float64),
            RegistryTable.numpy_spec: id(self._double),
            RegistryTable.hit_adopted: hit,
        }.items():
            registry.put(registry.REGISTRY.address, at, word)

    def enter(self, array: Array, spec: Spec) -> None:
        """Enter the spec of a tensor of an array's memory."""
        row = self._enter(id(array), id(spec))
        if row >= 0:
            self._specs[row] = spec
