"""Tensors copied to another dtype, which native code repeats."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tape import recording
from tape.call_table import copying
from tape.tensor import Tensor


def cast(x: Tensor, dtype: Any, op: Any = recording.TO_COPY) -> Tensor:
    """Copy to a dtype, recorded where both are floating."""
    return _to(op, dtype)(x)


@functools.cache
def _to(op: Any, dtype: Any) -> Callable[[Tensor], Tensor]:
    def copied(x: Tensor) -> Tensor:
        return recording.to_dtype(x, dtype, op)

    return copying(op, dtype)(copied)
