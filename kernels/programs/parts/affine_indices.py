"""Indices that are sums of multiples of bounded integers, and in which steps of a loop two of them can be equal."""

from __future__ import annotations

import ast
import math
from typing import NamedTuple, TypeAlias

Range: TypeAlias = tuple[int, int]
"""The least and the largest value."""
Variable: TypeAlias = tuple[int, Range]
"""A multiple, and what of."""
_MOST = 4_000
"""How many values are tried to find where two indices are equal."""


class Affine(NamedTuple):
    """A number, and multiples of variables by their names, sorted."""

    constant: int
    terms: tuple[tuple[str, int], ...] = ()

    def plus(self, other: Affine, times: int = 1) -> Affine:
        """Return the sum of this and a multiple of another."""
        terms = dict(self.terms)
        for name, step in other.terms:
            terms[name] = terms.get(name, 0) + times * step
        return Affine(
            self.constant + times * other.constant, tuple(sorted((n, step) for n, step in terms.items() if step))
        )

    def step(self, name: str) -> int:
        """Return the multiple of a variable."""
        return dict(self.terms).get(name, 0)


def affine_of(node: ast.expr, known: dict[str, Affine | None]) -> Affine | None:
    """Return what an expression is, where it is affine in what is known of names."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            index: Affine | None = Affine(value)
        case ast.Name(id=name):
            index = known.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            index = _multiple(affine_of(operand, known), -1)
        case ast.BinOp(left=ast.Constant(value=int(times)), op=ast.Mult(), right=right):
            index = _multiple(affine_of(right, known), times)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
            first, second = affine_of(left, known), affine_of(right, known)
            times = 1 if isinstance(sign, ast.Add) else -1
            index = None if first is None or second is None else first.plus(second, times)
        case _:
            index = None
    return index


def _multiple(index: Affine | None, times: int) -> Affine | None:
    return None if index is None else Affine(0).plus(index, times)


def hull(index: Affine, ranges: dict[str, Range]) -> Range | None:
    """Return what values an index has; None where a variable has no bounds."""
    low = high = index.constant
    for name, step in index.terms:
        if name not in ranges:
            return None
        ends = [step * end for end in ranges[name]]
        low, high = low + min(ends), high + max(ends)
    return low, high


def apart(first: Affine, second: Affine, loop: str, private: set[str], ranges: dict[str, Range]) -> int | None:
    """Return how many steps of a loop are at most between two in which the indices are equal; 0 where it is one step.

    ``private`` are variables that each step has of its own. None where that is not known.
    """
    step = first.step(loop)
    if second.step(loop) != step or loop not in ranges:
        return None
    variables: list[Variable] = []
    constant = second.constant - first.constant
    names = {name for name, _ in (*first.terms, *second.terms)} - {loop}
    for name in sorted(names):
        a, b = first.step(name), second.step(name)
        if name not in ranges:
            if name in private or a != b:
                return None
            continue
        low, high = ranges[name]
        if name not in private:
            variables.append((b - a, (low, high)))
        elif a == b:
            variables.append((a, (low - high, high - low)))
        else:
            variables += [(-a, (low, high)), (b, (low, high))]
    variables = [variable for variable in variables if variable[0]]
    count = ranges[loop][1] - ranges[loop][0]
    try:
        if step == 0:
            return count if _distances(constant, variables, None) else 0
        return max(_distances(constant, variables, (step, (-count, count))), default=0)
    except OverflowError:
        return None


def _distances(constant: int, variables: list[Variable], distance: Variable | None) -> set[int]:
    """Return at which distances a sum of multiples is 0, {0} of one without it; OverflowError if that takes long."""
    distances = set[int]()
    sized = sorted([(v, False) for v in variables] + ([(distance, True)] if distance else []), key=_size)
    spreads = [sum(-_size(pair) * max(map(abs, pair[0][1])) for pair in sized[k + 1 :]) for k in range(len(sized))]
    left = _MOST

    def descend(k: int, rest: int, steps: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OverflowError
        if k == len(sized):
            if rest == 0:
                distances.add(steps)
            return
        (times, (low, high)), is_distance = sized[k]
        ends = (-rest - spreads[k]) / times, (-rest + spreads[k]) / times
        for value in range(max(low, math.ceil(min(ends))), min(high, math.floor(max(ends))) + 1):
            descend(k + 1, rest + times * value, abs(value) if is_distance else steps)

    descend(0, constant, 0)
    return distances


def _size(variable: tuple[Variable, bool]) -> int:
    """Return what sorts large multiples first."""
    return -abs(variable[0][0])
