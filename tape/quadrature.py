"""Integrals of functions by rules of fixed points, with gradients to the bounds and to what the function uses."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tape.recording.promotion import alike
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Array, constant_tensor

__all__ = ["gauss_legendre", "trapezoid"]


@functools.lru_cache(64)
def _legendre(n: int) -> tuple[Array, Array]:
    points, weights = np.polynomial.legendre.leggauss(n)
    return points, weights


def gauss_legendre(f: Callable[..., Any], a: Any, b: Any, n: int = 5, *, args: tuple[Any, ...] = ()) -> Any:
    """Return the integral of f from a to b by the Gauss-Legendre rule of n points, exact for degree 2 n - 1.

    f takes the points as a vector (n,), then ``args``, and returns (..., n); the result is (...). SciPy's fixed_quad.

    >>> tape.quadrature.gauss_legendre(lambda x: x**4, 0.0, 1.0, 3)
    tensor(0.2000)
    """
    a, b, count = _bounds(a, b, n, 1)
    points, weights = (constant_tensor(x.astype(a.spec.dtype)) for x in _legendre(count))
    half = (b - a) * 0.5
    return (tensor_of(f(points * half + (a + b) * 0.5, *args)) * weights).sum(-1) * half


def trapezoid(f: Callable[..., Any], a: Any, b: Any, n: int = 100, *, args: tuple[Any, ...] = ()) -> Any:
    """Return the integral of f from a to b by the trapezoid rule with n intervals.

    f takes the points as a vector (n + 1,), then ``args``, and returns (..., n + 1); the result is (...).

    >>> tape.quadrature.trapezoid(lambda x: x, 0.0, 2.0, 4)
    tensor(2.)
    """
    a, b, count = _bounds(a, b, n, 1)
    places = np.linspace(0.0, 1.0, count + 1).astype(a.spec.dtype)
    weights = np.ones_like(places) / count
    weights[[0, -1]] *= 0.5
    width = b - a
    return (tensor_of(f(constant_tensor(places) * width + a, *args)) * constant_tensor(weights)).sum(-1) * width


def _bounds(a: Any, b: Any, n: int, least: int) -> tuple[Any, Any, int]:
    count = operator.index(n)
    if count < least:
        raise ValueError(f"quadrature: n is {count}; one or more is needed")
    bounds = alike(a, b)
    for x in bounds:
        if x.spec.shape:
            raise ValueError(f"quadrature: the bounds are numbers; one has shape {list(x.spec.shape)}")
    a, b = (x if x.spec.dtype.kind == "f" else x.to(np.float64) for x in bounds)
    return a, b, count
