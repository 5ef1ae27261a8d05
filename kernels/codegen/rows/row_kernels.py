"""Kernels cut out of a file of them, for doubles or for floats: only what is called is compiled."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.compiler import jit

SINGLE = (("f8", "f4"), ("float64", "float32"), ("ITEM = 8", "ITEM = 4"))
"""What is replaced in the text of a kernel for doubles to get the one for floats."""


@functools.cache
def have_text(*files: str) -> bool:
    """Whether the kernels' text is there to be cut up: a frozen application may hold byte code alone."""
    return all(jit.source_of(file) for file in files)


@functools.cache
def address(file: str, name: str, dtype: np.dtype[Any]) -> int:
    """Compile one kernel of a file, with what stands before the first."""
    first, *parts = jit.source_of(file).split("@cfunc")
    (definition,) = (part for part in parts if f"def {name}(" in part)
    text = f"{first}@cfunc{definition}"
    for double, single in SINGLE if dtype == np.float32 else ():
        text = text.replace(double, single)
    return int(getattr(jit.load_source(f"{name}_{file.rpartition('.')[2]}", text), name).address)
