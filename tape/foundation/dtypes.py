"""The dtypes of tensors, which are NumPy's, under PyTorch's names; and the default one."""

from __future__ import annotations

from typing import Any

import numpy as np

float64 = double = np.dtype(np.float64)
float32 = float = np.dtype(np.float32)  # noqa: A001 (PyTorch's names)
float16 = half = np.dtype(np.float16)
int64 = long = np.dtype(np.int64)
int32 = int = np.dtype(np.int32)  # noqa: A001
int16 = short = np.dtype(np.int16)
int8 = np.dtype(np.int8)
uint8 = np.dtype(np.uint8)
bool = np.dtype(np.bool_)  # noqa: A001

__all__ = [
    "bool",
    "double",
    "float",
    "float16",
    "float32",
    "float64",
    "half",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "long",
    "short",
    "uint8",
]


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """Return a dtype as tensors have it: of this machine's byte order, whatever order it is given in."""
    wanted: np.dtype[Any] = np.dtype(dtype)
    if not wanted.isnative:
        wanted = wanted.newbyteorder("=")
    return wanted


def check_gradient(dtype: np.dtype[Any]) -> None:
    """Raise RuntimeError where tensors of a dtype have no gradients."""
    if dtype not in (float64, float32):
        kind = "floating point and complex dtype" if dtype.kind != "f" else "dtype float64 and float32"
        raise RuntimeError(f"Only Tensors of {kind} can require gradients, got {dtype.name}; give dtype=tape.float64")


DEFAULT = {"dtype": float64}
"""What ``get_default_dtype`` returns, for those who cannot spare a call."""


def set_default_dtype(dtype: Any) -> None:
    """Make float32 or float64 the dtype of new tensors of Python floats."""
    wanted = np.dtype(dtype)
    if wanted not in (float32, float64):
        raise TypeError(f"only floating-point types are supported as the default type, got {wanted}")
    DEFAULT["dtype"] = wanted


def get_default_dtype() -> np.dtype[Any]:
    """Return the dtype of new tensors of Python floats."""
    return DEFAULT["dtype"]
