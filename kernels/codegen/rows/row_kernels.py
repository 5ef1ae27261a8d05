"""Kernels out of a file of them, for float64 or float32: only what is called is compiled."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kernels.codegen import elements
from kernels.compiler import jit
from kernels.compiler.module_texts import PACKAGE, content_of

if TYPE_CHECKING:
    import numpy as np


@functools.cache
def have_text(*files: str) -> bool:
    """Whether the kernels' text is there, which a frozen application may lack."""
    return all(isinstance(content_of(f"{PACKAGE}.{file}"), str) for file in files)


@functools.cache
def address(file: str, name: str, dtype: np.dtype[Any]) -> int:
    """Compile one kernel of a file, or find it; return its address."""
    kernel = jit.load_function(file, name, dtype.name, {elements.__name__: elements.meaning(dtype)})
    return int(kernel.address)
