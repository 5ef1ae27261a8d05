"""How a replay goes, and results as the caller gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape.tensors import modes
from tape.tensors.tensor import Tensor, constant_tensor, scalar_or_array


def outcome(value: Any, tensor: bool) -> Any:
    """Return a result of its own memory as the caller gave his arguments: tensors, or floats and arrays."""
    if tensor:
        return constant_tensor(scalar_or_array(value))
    return float(value) if value.ndim == 0 and value.dtype.kind == "f" else value


def way_of(arguments: Sequence[Any]) -> bool | None:
    """Return None for a native replay; else whether each operation is recorded one by one, for a program or vmap."""
    if modes.current().recorder is not None:
        return True
    return (
        False
        if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in arguments)
        else None
    )
