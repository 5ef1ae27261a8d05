"""What a handwritten kernel for float64 or float32 imports: the type of its elements, and how memory has them.

The names here are those of float64. Where such a kernel is loaded for float32 (``jit.load_function``), its import of
this module finds ``FLOAT32`` in the module's place: so one source serves both.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.native.memory import load_f4, load_f8, pointer_f4, pointer_f8, store_f4, store_f8

FLOAT64 = SimpleNamespace(ITEM=8, real=np.float64, load=load_f8, store=store_f8, pointer=pointer_f8)
FLOAT32 = SimpleNamespace(ITEM=4, real=np.float32, load=load_f4, store=store_f4, pointer=pointer_f4)

ITEM: int = FLOAT64.ITEM  # the size of an element in bytes
real: Any = FLOAT64.real  # the type of a number, and what turns another to one
load, store, pointer = FLOAT64.load, FLOAT64.store, FLOAT64.pointer
"""Reading and writing an element at an address, and the address as that of elements."""


def meaning(dtype: np.dtype[Any]) -> SimpleNamespace:
    """Return what these names mean for a dtype."""
    return FLOAT32 if dtype == np.float32 else FLOAT64
