"""Kernels that Python calls itself, for large arrays: outside of sweeps and replays."""

from __future__ import annotations

import ctypes
from typing import Any

LARGE = 1 << 16
"""Bytes of a result from which a call of a kernel costs nothing beside its work."""

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def callable_at(address: int) -> Any:
    """Return the kernel at an address: ``kernel(layout, pointers, accumulate)``, addresses and 0 or 1."""
    return _KERNEL(address)
