"""Tensors give no warnings of floating point, as PyTorch's: ``tape.first_nonfinite`` tells where a NaN came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def silently(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Return what a function gives, without NumPy's warnings."""
    with np.errstate(all="ignore"):
        return function(*given, **named)
