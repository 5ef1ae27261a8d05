"""How long steps are: they are judged by estimates of their error, and not differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape.operations.elementwise import FUNCTIONS

copysign, logical_not, logical_or, maximum, minimum, sqrt, where = (
    FUNCTIONS[name] for name in ("copysign", "logical_not", "logical_or", "maximum", "minimum", "sqrt", "where")
)
SAFETY, LEAST, MOST = 0.9, 0.2, 10.0
"""Steps are shorter than the estimate allows by the first factor, and change by factors between the others."""
_SMALLEST = 1e-5  # of values and slopes, below which they say nothing of the first step
_LEAST_ERROR = 1e-4
_FLAT = 1e-15


def norm(x: Any, scale: Any) -> Any:
    """Return the root mean square of what is divided by its scale."""
    ratio = x / scale
    return sqrt((ratio * ratio).mean())


def judged(estimates: Sequence[Any], y: Any, z: Any, rtol: Any, atol: Any) -> Any:
    """Return the error of a step from ``y`` to ``z`` in units of what the tolerances allow; nothing is differentiated.

    Of two estimates the second one corrects the first, as in DOP853.
    """
    scale = atol + rtol * maximum(abs(y.detach()), abs(z.detach()))
    errors = [norm(estimate.detach(), scale) for estimate in estimates]
    if len(errors) == 1:
        return errors[0]
    fifth, third = errors
    return fifth * fifth / sqrt(fifth * fifth + 0.01 * third * third + 1e-300)


def first_step(f: Any, t: Any, y: Any, slope: Any, length: Any, order: int, rtol: Any, atol: Any) -> Any:
    """Return the length of the first step, as Hairer, Norsett and Wanner choose it: Solving ODEs I, II.4.

    ``length`` is that of the whole way, with its sign; one slope is computed.
    """
    t, y, slope, length = (x.detach() for x in (t, y, slope, length))
    scale = atol + rtol * abs(y)
    of_value, of_slope = norm(y, scale), norm(slope, scale)
    small = logical_or(of_value < _SMALLEST, of_slope < _SMALLEST)
    guess = where(small, 1e-6, 0.01 * of_value / where(small, 1.0, of_slope))
    guess = minimum(guess, abs(length))
    h = copysign(guess, length)
    curvature = norm(f(t + h, y + h * slope).detach() - slope, scale) / where(guess > 0, guess, 1.0)
    largest = maximum(of_slope, curvature)
    flat = logical_not(largest > _FLAT)
    longer = where(flat, maximum(1e-3 * guess, 1e-6), (0.01 / where(flat, 1.0, largest)) ** (1 / order))
    return copysign(minimum(minimum(100.0 * guess, longer), abs(length)), length)


def next_step(error: Any, good: Any, step: Any, last_error: Any, top: Any, order: int, weight: float) -> Any:
    """Return the length of the next step, the error that counts after it, and by what factor it may grow.

    By the control of Hairer's codes: proportional, and by ``weight`` integral.
    """
    shrunk = (error + 1e-20) ** (1 / order - 0.75 * weight)
    grown = SAFETY / shrunk * last_error**weight if weight else SAFETY / shrunk
    factor = where(good, minimum(top, grown), SAFETY / shrunk)
    factor = where(error < float("inf"), maximum(factor, LEAST), LEAST)
    return step.detach() * factor, where(good, maximum(error, _LEAST_ERROR), last_error), where(good, MOST, 1.0)
