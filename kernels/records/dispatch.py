"""Functions of arrays that tensors run their own way, by the protocol that NumPy's functions follow.

A rule calls SciPy's solvers through such functions: on arrays they run as written, on tensors what is registered for
them runs, and is recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def dispatched(function: Function) -> Function:
    """Let operands that are no arrays, but know ``__array_function__``, run a function instead."""

    @functools.wraps(function)
    def run(*operands: Any, **params: Any) -> Any:
        for x in operands:
            if not isinstance(x, np.ndarray) and hasattr(x, "__array_function__"):
                return x.__array_function__(run, (type(x),), operands, params)
        return function(*operands, **params)

    return run  # type: ignore[return-value]


def turned(x: Any) -> Any:
    """Return matrices with their last two axes exchanged."""
    n = x.ndim
    return np.transpose(x, (*range(n - 2), n - 1, n - 2))
