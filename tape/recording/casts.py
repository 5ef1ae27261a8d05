"""Tensors copied to another dtype, which native code repeats."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tape.recording import record
from tape.repeated_calls.call_table import copying
from tape.tensors.tensor import Tensor


def cast(x: Tensor, dtype: Any, op: Any = record.TO_COPY) -> Tensor:
    """Copy to a dtype, recorded where both are floating."""
    return _to(op, dtype)(x)


@functools.cache
def _to(op: Any, dtype: Any) -> Callable[[Tensor], Tensor]:
    def copied(x: Tensor) -> Tensor:
        return record.to_dtype(x, dtype, op)

    return copying(op, dtype)(copied)
