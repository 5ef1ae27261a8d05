"""Extrema over axes as statements: a pass finds the extremum, another says where it stands, for the gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.programs.fusing.composed_operations import TracedArray
from kernels.programs.fusing.scalar_rules import ScalarOperation, ScalarRule, rule_of
from kernels.programs.rolling.rolled_program import Uncompiled
from kernels.records.symbols import cut

Axes = tuple[int, ...]


def evenly(x: TracedArray, axes: Axes, *, largest: bool, pullback: Any) -> TracedArray:
    """Return extrema whose ties, nan included, share the gradient as the record's ``pullback`` says."""
    fixed = x.constant()
    y = _extremum(fixed, axes, largest=largest)
    if not x.ref.wanted:
        return y
    ties = np.add.reduce(_indicator(_is_extremum(fixed, y)), axis=axes, keepdims=True)
    operation = _picked(("x", "top", "n"), rule_of(pullback, x.dtype))
    return x.reduced_by(operation, (x, y, ties), axes)


def first(x: TracedArray, axis: int, *, largest: bool) -> TracedArray:
    """Return extrema along an axis; the first of equals, a nan if there is one, has the gradient."""
    fixed, axes = x.constant(), (axis,)
    y = _extremum(fixed, axes, largest=largest)
    if not x.ref.wanted:
        return y
    count = x.ref.spec.shape[axis]
    if count > 1 / np.finfo(x.dtype).eps:
        raise Uncompiled(f"places that are no numbers in {x.dtype}")
    shape = [1] * len(x.ref.spec.shape)
    shape[axis] = count
    places = x.trace.constant(np.arange(float(count)).reshape(shape))
    place = -np.maximum.reduce(np.where(_is_extremum(fixed, y), -places, -math.inf), axis=axes, keepdims=True)
    rule = rule_of(lambda g, i, n: cut(i != n, g), x.dtype)
    return x.reduced_by(_picked(("x", "top", "i", "n"), rule), (x, y, places, place), axes)


def _picked(inputs: tuple[str, ...], pullback: ScalarRule) -> ScalarOperation:
    """Return the operation whose result is ``top``, with the gradient that ``x`` has of it."""
    return ScalarOperation(
        "picked", inputs, ScalarRule("{top}", frozenset({"top"}), 0), (pullback, *[None] * (len(inputs) - 1))
    )


def _extremum(x: Any, axes: Axes, *, largest: bool) -> Any:
    """Return extrema with dims of 1 in the place of axes: nan where there is one."""
    known = x == x
    top = np.maximum.reduce(np.where(known, x if largest else -x, -math.inf), axis=axes, keepdims=True)
    unknown = np.add.reduce(np.where(known, 0.0, 1.0), axis=axes, keepdims=True)
    return np.where(unknown > 0.0, math.nan, top if largest else -top)


def _is_extremum(x: Any, y: Any) -> Any:
    return np.logical_or(x == y, np.logical_and(x != x, y != y))


def _indicator(mask: Any) -> Any:
    return np.where(mask, 1.0, 0.0)
