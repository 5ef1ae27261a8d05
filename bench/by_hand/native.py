"""What every adjoint by hand in Numba is compiled with: NumPy's error model, no fastmath, no cache.

The functions beside this file are what a user who derives an adjoint writes in Numba to be fast:
loops, saved arrays, one call for the value and all gradients. They are the measure of compiled
programs (`bench/bench_compiled.py`); `bench/bench_compiled.py -m quick` holds them against the
workloads' own texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def native(function: Function) -> Function:
    """Return the function compiled at its first call with each kind of arguments."""
    return cast("Function", numba.njit(error_model="numpy", cache=False)(function))
