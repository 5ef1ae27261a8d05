"""What native functions take and return when they are called from outside, as their annotations say it.

A function whose parameters and result are all annotated can be called by its address: of ``Word``, ``Int32`` and
``Void`` by C, of ``int`` and ``None`` from Python, too. All other functions are part of those that call them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from kernels.foundation.data_classes import dataclass

Word = int
"""An integer of 64 bits, or an address."""
Int32 = int
"""An integer of 32 bits: C's ``int``."""
Void = None
"""Nothing, where C calls."""
Words = int
"""A pointer to integers of 64 bits."""
_KINDS = {
    "int": types.int64, "Word": types.int64, "Int32": types.int32, "Words": types.CPointer(types.int64),
    "None": types.void, "Void": types.void,
}  # fmt: skip
SIGNATURE = types.void(types.CPointer(types.int64), types.CPointer(types.int64), types.int64)
"""Every kernel: layout, pointers (target, cotangent, saved ...), and 1 to accumulate or 0 to store."""
KERNEL = "(layout: Words, pointers: Words, accumulate: Word) -> Void"
"""The parameters of a kernel, as printed ones have them."""


@dataclass(frozen=True)
class Signature:
    """Types of arguments and result, and whether Python calls the function."""

    arguments: tuple[Any, ...]
    result: Any
    from_python: bool


def signature_of(function: Callable[..., Any]) -> Signature | None:
    """Return the signature of a function that is called from outside, None for any other."""
    annotations, code = function.__annotations__, function.__code__
    if len(annotations) <= code.co_argcount:  # the result's is one more
        return None
    *arguments, result = (annotations[name] for name in (*code.co_varnames[: code.co_argcount], "return"))
    kinds = tuple(_KINDS.get(annotation, types.int64) for annotation in arguments)
    return Signature(kinds, _KINDS[result], result in ("int", "None"))
