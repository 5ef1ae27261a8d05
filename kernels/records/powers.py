"""Powers by small numbers as products and roots: whole exponents and halves up to ``MOST``.

The order of the products is that of logarithms.py, so that values and kernels agree in every bit. A product
or root is off by at most 3 units in the last place, an inverse by 4 (NumPy's ``power`` by 1, in 20 times the time);
inverses below the smallest normal number are 0, and half powers of -inf are nan, as those of NumPy's ``sqrt``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

MOST = 4


def is_small(p: float) -> bool:
    """Whether a power is made of products and a root."""
    return abs(p) <= MOST and float(2 * p).is_integer()


RAISED = ("whole", "rooted", "power")
"""What raises to a power in kernels: the names of functions of kernels/vectormath.py."""


def raised(p: float) -> int:
    """Return which of RAISED is for an exponent."""
    return 0 if is_small(p) and p >= 0 and float(p).is_integer() else 1 if is_small(p) else 2


def by_products(p: float) -> Callable[[Any], Any]:
    """Return the function that raises to a small power but 0; arrays and symbols can run it."""
    known = {2.0: np.square, 0.5: np.sqrt, -1.0: np.reciprocal, 1.0: np.positive}  # what NumPy's ** takes
    if p in known:
        return known[p]
    n, half = divmod(abs(p), 1.0)

    def product(x: Any) -> Any:
        y = _whole(x, n)
        return y if not half else np.sqrt(x) if y is None else np.multiply(np.sqrt(x), y)

    def inverse(x: Any) -> Any:
        with np.errstate(over="ignore"):  # an inverse that is 0 overflows nowhere
            y = product(x)
        return np.reciprocal(y)

    return product if p > 0 else inverse


def _whole(x: Any, n: float) -> Any:
    """Return a product of so many equal factors; None of none."""
    if n <= 1:
        return x if n else None
    square = np.square(x)
    return square if n == 2 else np.multiply(x, square) if n == 3 else np.square(square)  # noqa: PLR2004 (of MOST)


class Exponent(float):
    """A static exponent as rules take it where they run on arrays: small powers are those of kernels."""

    __array_ufunc__ = None  # so that arrays leave x ** p to us

    def __sub__(self, other: float) -> Exponent:
        return Exponent(float(self) - other)

    def __mul__(self, x: Any) -> Any:
        return float(self) * x

    def __rpow__(self, x: Any, _: Any = None) -> Any:
        small = SMALL.get(float(self))
        return small(x) if small else np.power(x, float(self))


SMALL = {k / 2: by_products(k / 2) for k in range(-2 * MOST, 2 * MOST + 1) if k}
"""The small powers by their exponent."""
