"""NumPy's polynomials, given by their coefficients, the highest power first: arithmetic, calculus and fits."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np

from tape.operations.matrices import contractions
from tape.operations.numpy_arguments import array_like, floating
from tape.operations.whole import composed
from tape.recording import views
from tape.tensors.registration import NUMPY, implements
from tape.tensors.tensor import Tensor, as_array


@implements(np.polyadd)
def _add(a1: Any, a2: Any) -> Tensor:
    a, b = _of_one_length(a1, a2)
    return a + b


@implements(np.polysub)
def _subtract(a1: Any, a2: Any) -> Tensor:
    a, b = _of_one_length(a1, a2)
    return a - b


def _of_one_length(*values: Any) -> list[Tensor]:
    """Return the coefficients with zeros in front of the fewer ones."""
    each = [_vector(x) for x in values]
    most = max(x.spec.size for x in each)
    return [views.cat([x.new_zeros(most - x.spec.size), x]) if x.spec.size < most else x for x in each]


def _vector(x: Any) -> Tensor:
    return NUMPY[np.atleast_1d](array_like(x))  # type: ignore[no-any-return]


@implements(np.polymul)
def _multiply(a1: Any, a2: Any) -> Tensor:
    return contractions.convolve(_without_zeros(a1), _without_zeros(a2))


def _without_zeros(x: Any) -> Tensor:
    """Return coefficients without zeros in front, as NumPy multiplies them; RuntimeError where these want gradients."""
    x = _vector(x)
    trimmed: Tensor = NUMPY[np.trim_zeros](x, "f")
    if trimmed.spec.size < x.spec.size and x._slot is not None:
        raise RuntimeError(
            f"np.polymul: NumPy cuts off the {x.spec.size - trimmed.spec.size} zeros in front of the coefficients, "
            "which then have no gradient; use np.convolve, which keeps them"
        )
    return trimmed if trimmed.spec.size else x.new_zeros(1)


@implements(np.polyder)
def _derivative(p: Any, m: int = 1) -> Tensor:
    times, coefficients = operator.index(m), _vector(p)
    if times < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    for _ in range(times):
        powers = np.arange(coefficients.spec.size - 1, 0, -1)
        coefficients = coefficients[:-1] * powers.astype(coefficients.spec.dtype, copy=False)
    return coefficients


@implements(np.polyint)
def _integral(p: Any, m: int = 1, k: Any = None) -> Tensor:
    """Integrate m times, with constants k, the first of the first integration."""
    times, coefficients = operator.index(m), _vector(p)
    if times < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = _vector(np.zeros(max(times, 1)) if k is None else k)
    if constants.spec.size == 1 < times:
        constants = views.expand(constants, times)
    if constants.spec.size < times:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for i in range(times):
        coefficients = views.cat([coefficients / np.arange(coefficients.spec.size, 0, -1), constants[i : i + 1]])
    return coefficients


@implements(np.polyfit)
def _fit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Tensor:
    """Fit by least squares; gradients go to points, values and weights. TypeError for ``full=`` and ``cov=``."""
    if full or cov:
        raise TypeError("np.polyfit of a tensor takes no full= and no cov=; it returns the coefficients")
    at, values, order = floating(x), floating(y), operator.index(deg) + 1
    _check_fit(at, values, order - 1)
    powers = composed.vander(at, order)
    if w is not None:
        weights = floating(w)
        if weights.spec.shape != at.spec.shape:
            raise TypeError("expected w and y to have the same length, of one dim")
        powers = powers * weights[:, None]
        values = values * (weights if len(values.spec.shape) == 1 else weights[:, None])
    lengths = (powers * powers).sum(0) ** 0.5
    limit = at.spec.size * np.finfo(at.spec.dtype).eps if rcond is None else rcond
    coefficients = NUMPY[np.linalg.lstsq](powers / lengths, values, limit)
    if int(as_array(coefficients[2]) if isinstance(coefficients[2], Tensor) else coefficients[2]) != order:
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=4)
    return coefficients[0] / (lengths if len(values.spec.shape) == 1 else lengths[:, None])  # type: ignore[no-any-return]


def _check_fit(x: Tensor, y: Tensor, degree: int) -> None:
    if degree < 0:
        raise ValueError("expected deg >= 0")
    if len(x.spec.shape) != 1 or not x.spec.size:
        raise TypeError(f"expected non-empty 1D vector for x; the shape is {list(x.spec.shape)}")
    if len(y.spec.shape) not in (1, 2) or y.spec.shape[0] != x.spec.size:
        raise TypeError(
            f"expected x and y to have same length; the shapes are {list(x.spec.shape)}, {list(y.spec.shape)}"
        )


@implements(np.correlate)
def _correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    return contractions.convolve(array_like(a), array_like(v).flip(0), mode)
