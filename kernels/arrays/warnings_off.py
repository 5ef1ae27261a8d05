"""Tensors give no warnings of floating point, as PyTorch's: ``tape.first_nonfinite`` tells where a NaN came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


@np.errstate(all="ignore")  # a tenth of what a `with` block costs
def silently(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function gives, without NumPy's warnings."""
    return function(*args, **kwargs)


def dividing(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function gives; where it divides integers by zero raise as PyTorch does."""
    try:
        with np.errstate(divide="raise"):
            return function(*args)
    except FloatingPointError:
        raise RuntimeError(f"ZeroDivisionError: {name} of integers where the divisor has a zero") from None


@np.errstate(all="ignore")
def tried(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function gives, without NumPy's warnings; None where it raises, for the caller to run it anew."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001 (it is raised then)
        return None
