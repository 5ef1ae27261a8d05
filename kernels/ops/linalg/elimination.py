"""Elimination of small matrices, element by element, so that compiled programs have it in registers.

Gauss and Jordan's, with partial pivoting: where a row below has the larger pivot, both change places by selects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LARGEST = 4
"""Rows of a matrix, at most: the operations grow with their cube."""
Rows = list[list[Any]]


def inverse_parts(a: Any) -> Any:
    """Return the inverse of a matrix as rows of elements; NotImplemented for a large one."""
    n = a.shape[-1]
    if n > LARGEST:
        return NotImplemented
    if n == 2:  # noqa: PLR2004 (where no pivot is needed)
        determinant = _determinant_of_two(a)
        (determinant == 0.0).give_up_where()
        over = 1.0 / determinant
        return [
            [a[..., 1, 1] * over, -a[..., 0, 1] * over],
            [-a[..., 1, 0] * over, a[..., 0, 0] * over],
        ]
    unit = [[float(i == j) for j in range(n)] for i in range(n)]
    return _eliminated(_rows_of(a), unit)


def solution_parts(a: Any, b: Any) -> Any:
    """Return the solution of equations, as rows; NotImplemented for a large matrix, or many right-hand sides."""
    n = a.shape[-1]
    if n > LARGEST or b.shape[-1] > LARGEST or len(a.shape) != 2:  # noqa: PLR2004 (dims of a matrix)
        return NotImplemented
    if len(b.shape) == 1:
        return [row[0] for row in _eliminated(_rows_of(a), [[b[i,]] for i in range(n)])]
    return _eliminated(_rows_of(a), _rows_of(b))


def determinant_parts(a: Any) -> Any:
    """Return the determinant; NotImplemented for a large matrix."""
    n = a.shape[-1]
    if n > LARGEST:
        return NotImplemented
    if n == 2:  # noqa: PLR2004
        return _determinant_of_two(a)
    rows, determinant = _rows_of(a), 1.0
    for k in range(n):
        for i in range(k + 1, n):
            swaps = _take_larger(rows, k, i)
            determinant = determinant * np.where(swaps, -1.0, 1.0)
        determinant = determinant * rows[k][k]
        if k + 1 < n:
            (rows[k][k] == 0.0).give_up_where()
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [None if j <= k else rows[i][j] - factor * rows[k][j] for j in range(n)]
    return determinant


def _determinant_of_two(a: Any) -> Any:
    return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]


def _rows_of(a: Any) -> Rows:
    return [[a[..., i, j] for j in range(a.shape[-1])] for i in range(a.shape[-2])]


def _take_larger(rows: Rows, k: int, i: int) -> Any:
    """Let row k have the larger pivot of its own and that of row i; return where they changed places."""
    swaps = np.abs(rows[i][k]) > np.abs(rows[k][k])
    _swap(rows, swaps, k, i, k)
    return swaps


def _swap(rows: Rows, swaps: Any, k: int, i: int, first: int) -> None:
    """Let two rows change places, from column ``first`` on, where that is said."""
    for j in range(first, len(rows[k])):
        one, other = rows[k][j], rows[i][j]
        if one is not other:
            rows[k][j], rows[i][j] = np.where(swaps, other, one), np.where(swaps, one, other)


def _eliminated(a: Rows, b: Rows) -> Rows:
    """Return the solution of equations with right-hand sides b; the program gives up where a matrix is singular."""
    n = len(a)
    for k in range(n):
        for i in range(k + 1, n):
            swaps = _take_larger(a, k, i)
            _swap(b, swaps, k, i, 0)
        (a[k][k] == 0.0).give_up_where()
        over = 1.0 / a[k][k]
        a[k] = [None if j <= k else x * over for j, x in enumerate(a[k])]
        b[k] = [x * over for x in b[k]]
        for i in range(n):
            if i != k:
                factor = a[i][k]
                a[i] = [None if j <= k else a[i][j] - factor * a[k][j] for j in range(n)]
                b[i] = [x - factor * y for x, y in zip(b[i], b[k], strict=True)]
    return b
