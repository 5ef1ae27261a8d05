"""NumPy's names, whose arrays can hold what is differentiated: ``import tape.numpy as np`` in place of NumPy's.

Functions that make arrays (``zeros``, ``array``, ``linspace``, ``r_`` and those in ``__all__``) give tensors of
NumPy's floats while something differentiates or records: in functions that ``value_and_grad``, ``compile``, ``vmap``,
``record`` and ``tape.func`` call, and where a leaf that requires grad is alive. Elsewhere, and of integers, booleans
and text, they give NumPy's arrays. All other names are NumPy's own, which take tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.numpy_interface.new_arrays import FUNCTIONS, c_, isscalar, ndarray, r_

__all__ = ["c_", "isscalar", "ndarray", "r_", *FUNCTIONS]  # noqa: PLE0604 (strings)
globals().update({name: getattr(np, name) for name in np.__all__ if name not in __all__} | FUNCTIONS)


def __getattr__(name: str) -> Any:
    return getattr(np, name)


def __dir__() -> list[str]:
    return dir(np)
