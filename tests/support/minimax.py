"""Minimax polynomials by the Remez exchange, and what each set of coefficients in llvm_values.py fits.

Of each set: the function that the polynomial stands for, the weight that makes its error one of the result, relative
to the result, and the interval. ``python -m tests.support.minimax`` prints them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp

DIGITS = 50
_NEAR = mp.mpf(10) ** -14  # closer to 0, a quotient of two differences is its limit
_ROUNDS = 12


@dataclass(frozen=True)
class Fit:
    """What a polynomial approximates, and where."""

    function: Callable[[Any], Any]
    at_zero: Any
    weight: Callable[[Any], Any]
    low: Any
    high: Any

    def value(self, x: Any) -> Any:
        """The function, with its limit at 0."""
        return self.function(x) if abs(x) > _NEAR else mp.mpf(self.at_zero)

    def error_of(self, coefficients: Any, points: int = 400) -> Any:
        """Return the greatest error, relative to the result, of a polynomial, lowest coefficient first."""
        places = [self.low + (self.high - self.low) * k / points for k in range(points + 1)]
        given = [mp.mpf(c) for c in reversed(coefficients)]
        return max(abs(self.weight(x) * (horner(given, x) - self.value(x))) for x in places)


def horner(coefficients: Sequence[Any], x: Any) -> Any:
    """Return a polynomial at a point, highest power first; mpmath's own function is about to turn the order."""
    total = mp.mpf(0)
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


def minimax(fit: Fit, degree: int) -> list[Any]:
    """Return the coefficients, lowest first, of the polynomial with the least greatest error."""
    count = degree + 2
    middle, radius = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    points = [middle - radius * mp.cos(mp.pi * k / (count - 1)) for k in range(count)]
    grid = [middle - radius * mp.cos(mp.pi * (k + mp.mpf("0.5")) / (16 * count)) for k in range(16 * count)]
    known = [(x, fit.value(x), fit.weight(x)) for x in grid]
    for _ in range(_ROUNDS):
        found = _levelled(fit, points, degree)
        errors = [w * (horner(found[::-1], x) - y) for x, y, w in known]
        peaks = _peaks(errors)
        while len(peaks) > count:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
        if len(peaks) < count:
            break
        points = [grid[k] for k in peaks]
        heights = [abs(errors[k]) for k in peaks]
        if max(heights) < min(heights) * mp.mpf("1.02"):
            break
    return found


def _levelled(fit: Fit, points: list[Any], degree: int) -> list[Any]:
    """Return the polynomial whose errors at these points are equal, with alternating signs."""
    count = len(points)
    matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
    for i, x in enumerate(points):
        for j in range(degree + 1):
            matrix[i, j] = x**j
        matrix[i, degree + 1] = (-1) ** i / fit.weight(x)
        right[i] = fit.value(x)
    solution = mp.lu_solve(matrix, right)
    return [solution[j] for j in range(degree + 1)]


def _peaks(errors: list[Any]) -> list[int]:
    """Return where, in each run of errors of one sign, the largest stands."""
    peaks: list[int] = []
    for k, error in enumerate(errors):
        if peaks and (error > 0) == (errors[peaks[-1]] > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = k
        else:
            peaks.append(k)
    return peaks


def _odd(function: Callable[[Any], Any], third: Any, high: Any) -> Fit:
    """Fit (f(x) - x) / x**3 as a function of x**2."""

    def rest(u: Any) -> Any:
        x = mp.sqrt(u)
        return (function(x) - x) / x**3

    def weight(u: Any) -> Any:
        u = max(u, _NEAR)
        return u * mp.sqrt(u) / function(mp.sqrt(u))

    return Fit(rest, third, weight, mp.mpf(0), mp.mpf(high) ** 2)


def _atanh_rest(z: Any) -> Any:
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) / s - 2) / z


def _erfcx(t: Any) -> Any:
    a = 2 * (1 + t) / (1 - t)
    return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)


def fits() -> dict[str, Fit]:
    """Return what each name stands for."""
    small, half = mp.mpf(10) ** -7, mp.mpf("0.5")
    log2 = mp.log(2) / 2 * mp.mpf("1.0002")
    root = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mp.mpf("1.0002")
    eighth = mp.pi / 4 * mp.mpf("1.0001")

    def at_least(u: Any) -> Any:
        return max(u, small)

    exp = Fit(lambda r: (mp.exp(r) - 1 - r) / r**2, half, lambda r: max(r * r, small**2) / mp.exp(r), -log2, log2)
    log = Fit(_atanh_rest, mp.mpf(2) / 3, lambda z: at_least(z) / 2, mp.mpf(0), root**2)
    return {
        "EXP": exp,
        "EXPW": exp,
        "EXP2": Fit(lambda r: (2**r - 1) / r, mp.log(2), lambda r: max(abs(r), small) / 2**r, -half, half),
        "SINH": _odd(mp.sinh, mp.mpf(1) / 6, log2),
        "COSH": Fit(lambda u: (mp.cosh(mp.sqrt(u)) - 1) / u, half, at_least, mp.mpf(0), log2**2),
        "LOG": log,
        "LOGW": log,
        "POW": Fit(
            lambda z: (_atanh_rest(z) - mp.mpf(2) / 3) / z,
            mp.mpf(2) / 5,
            lambda z: max(z * z, small**2) / 2,
            mp.mpf(0),
            root**2,
        ),
        "SIN": _odd(mp.sin, -mp.mpf(1) / 6, eighth),
        "COS": Fit(
            lambda u: (mp.cos(mp.sqrt(u)) - 1 + u / 2) / u**2,
            mp.mpf(1) / 24,
            lambda u: max(u * u, small**2) / mp.cos(mp.sqrt(u)),
            mp.mpf(0),
            eighth**2,
        ),
        "TANH": _odd(mp.tanh, -mp.mpf(1) / 3, mp.mpf("0.5502")),
        "TAN": _odd(mp.tan, mp.mpf(1) / 3, eighth),
        "ATAN": _odd(mp.atan, -mp.mpf(1) / 3, 1),
        "ERF": Fit(
            lambda u: mp.erf(mp.sqrt(u)) / mp.sqrt(u) - 1,
            2 / mp.sqrt(mp.pi) - 1,
            lambda _: mp.mpf(1),
            mp.mpf(0),
            mp.mpf("0.2501"),
        ),
        "ERFC": Fit(_erfcx, 1, lambda _: 1 / mp.mpf("1.27"), (mp.mpf("0.499") - 2) / mp.mpf("2.499"), mp.mpf(26) / 30),
    }


if __name__ == "__main__":
    from kernels.language.llvm_values import FITS

    with mp.workdps(DIGITS):
        for form, table in FITS.items():
            for name, coefficients in table.items():
                print(form, name, [float(c) for c in minimax(fits()[name], len(coefficients) - 1)])  # noqa: T201
