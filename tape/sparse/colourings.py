"""Colourings: groups of columns, or rows, of a sparse derivative that one sweep computes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.language import jit
from kernels.native.memory import where

ORDERS = ("natural", "largest first", "smallest last")
_LARGEST_GRAPH = 1 << 25  # neighbours, some counted several times, of a graph that is made
_MOST_STEPS = 1 << 29  # from vertex to vertex, of a colouring
_AGAIN = 9  # times that a graph is coloured again
_FEW = 24  # cuts between rows that are pulled and others that are tried; columns that are coloured in any case


@dataclass(frozen=True)
class Colouring:
    """Which columns and rows of a matrix are computed together, and where its elements then are.

    ``columns`` has the colour of each column, ``rows`` that of each row, -1 for those of which none is computed. The
    sums of the columns of each colour are ``column_count`` vectors as long as a column, one behind the other; those of
    rows follow. ``places`` says for each element of the pattern, in the order of CSR, where among them it is.
    """

    columns: Array
    rows: Array
    column_count: int
    row_count: int
    places: Array

    @property
    def count(self) -> int:
        """The number of colours."""
        return self.column_count + self.row_count


def colouring(pattern: Any, by: str | None = None, order: str | None = None) -> Colouring:
    """Colour the elements of a pattern, SciPy's sparse matrix of m by n, greedily.

    ``by`` says what is computed: sums of ``"columns"``, of ``"rows"``, of ``"both"`` (rows that are much longer than
    the others, or columns, are computed apart) or, of a symmetric matrix, of columns of which each element is in one of
    two (``"stars"``). Columns of one colour have no row in common; rows likewise. A colouring by stars has no path of
    four vertices in two colours. Without ``by`` it is what needs fewest colours; rows if these need no more.
    ``order``, ``"natural"``, ``"largest first"`` or ``"smallest last"``, is the order in which columns get colours;
    without, it is the best of them, and of others that follow from it. ValueError for other words, and for stars of a
    matrix that is not symmetric.

    Source: Gebremedhin, Manne and Pothen, What color is your Jacobian? SIAM Review 47 (2005).

    >>> import scipy.sparse
    >>> tape.sparse.colouring(scipy.sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(9, 9))).count
    3
    """
    matrix = _of_ones(pattern)
    if order is not None and order not in ORDERS:
        raise ValueError(f"colouring: order is one of {', '.join(map(repr, ORDERS))}, not {order!r}")
    ways = {"columns": _by_columns, "rows": _by_rows, "both": _by_both, "stars": _by_stars}
    if by is not None:
        if by not in ways:
            raise ValueError(f"colouring: by is one of {', '.join(map(repr, ways))}, not {by!r}")
        return ways[by](matrix, order)
    colourings = [_by_rows(matrix, order)]
    if colourings[0].count > _longest(matrix):
        colourings.append(_by_columns(matrix, order))
    if _is_uneven(matrix):
        colourings.append(_by_both(matrix, order))
    return min(colourings, key=lambda one: one.count)


def _of_ones(pattern: Any) -> Any:
    """Return a pattern as CSR whose columns stand in order."""
    matrix = pattern.tocsr().copy()
    matrix.data = np.ones(len(matrix.data), np.int64)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _longest(matrix: Any) -> int:
    return int(np.diff(matrix.indptr).max(initial=0))


def _is_uneven(matrix: Any) -> bool:
    """Whether some rows, and some columns, are longer than others."""
    return all(len(set(np.diff(one.indptr).tolist())) > 1 for one in (matrix, matrix.T.tocsr()))


def _apart(matrix: Any, order: str | None) -> tuple[Array, int]:
    """Colour the columns so that those of one colour have no row in common.

    Each has its own where a row has half of them. Where the graph of columns that meet is large it is not made.
    """
    n, lengths = matrix.shape[1], np.diff(matrix.indptr).astype(np.int64)
    steps, longest = int((lengths**2).sum()), _longest(matrix)
    if n > _FEW and 2 * longest > n:
        return np.arange(n), n
    turned = matrix.T.tocsr()
    if steps <= _LARGEST_GRAPH:
        return _greedy("coloured_apart", turned @ matrix, order, longest)
    colours, seen = np.full(n, -1), np.full(n + 1, -1)
    arrays = [x.astype(np.int64) for x in (matrix.indptr, matrix.indices, turned.indptr, turned.indices)]
    by_rows = jit.load_module("programs.patterns_native").coloured_by_rows.entry_point
    return colours, by_rows(*map(where, (*arrays, colours, seen)), n)


def _greedy(way: str, graph: Any, order: str | None, least: int) -> tuple[Array, int]:
    """Colour the vertices of a graph in one order, or in all until there are as few colours as there can be.

    Of no order the best is coloured again, a colour's vertices together, by which there are never more colours.
    """
    native, graph = jit.load_module("programs.patterns_native"), graph.tocsr()
    n, starts, near = graph.shape[0], graph.indptr.astype(np.int64), graph.indices.astype(np.int64)

    def coloured(vertices: Array) -> tuple[Array, int]:
        colours, seen = np.full(n, -1), np.full(2 * n + 1, -1)
        vertices = np.ascontiguousarray(vertices)
        return colours, getattr(native, way).entry_point(*map(where, (starts, near, vertices, colours, seen)), n)

    best = coloured(_order(order or ORDERS[0], starts, near))
    for name in ORDERS[1:] if order is None and best[1] > least else ():
        best = min(best, coloured(_order(name, starts, near)), key=lambda one: one[1])
    random = np.random.default_rng(0)
    for again in range(_AGAIN if order is None else 0):
        colours, count = best
        if count <= least:
            break
        ranks = (-np.arange(count), -np.bincount(colours, minlength=count), random.permutation(count))[again % 3]
        best = min(coloured(np.argsort(ranks[colours], kind="stable")), best, key=lambda one: one[1])
    return best


def _order(name: str, starts: Array, near: Array) -> Array:
    n = len(starts) - 1
    if name == ORDERS[0]:
        return np.arange(n)
    sources = np.repeat(np.arange(n), np.diff(starts))
    degrees = np.bincount(sources[sources != near], minlength=n)
    if name == ORDERS[1]:
        return np.argsort(-degrees, kind="stable")
    heads, links, order = np.full(n + 1, -1), np.zeros(2 * n, np.int64), np.zeros(n, np.int64)
    smallest_last = jit.load_module("programs.patterns_native").smallest_last.entry_point
    smallest_last(*map(where, (starts, near, degrees, heads, links, order)), n)
    return order


def _coordinates(matrix: Any) -> tuple[Array, Array]:
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows, matrix.indices.astype(np.int64)


def _placed(matrix: Any, columns: tuple[Array, int], rows: tuple[Array, int]) -> Colouring:
    """Return a colouring by which elements of rows that have a colour are sums of rows, and the others of columns."""
    (of_columns, column_count), (of_rows, row_count) = columns, rows
    m, n = matrix.shape
    i, j = _coordinates(matrix)
    pulled = column_count * m + of_rows[i] * n + j
    return Colouring(
        of_columns, of_rows, column_count, row_count, np.where(of_rows[i] >= 0, pulled, of_columns[j] * m + i)
    )


def _none(count: int) -> tuple[Array, int]:
    return np.full(count, -1), 0


def _by_columns(matrix: Any, order: str | None) -> Colouring:
    return _placed(matrix, _apart(matrix, order), _none(matrix.shape[0]))


def _by_rows(matrix: Any, order: str | None) -> Colouring:
    return _placed(matrix, _none(matrix.shape[1]), _apart(matrix.T.tocsr(), order))


def _by_both(matrix: Any, order: str | None) -> Colouring:
    """Compute the longest rows by themselves, and what is left by columns; or the longest columns, and then by rows."""
    rows, first = _cut(matrix, order)
    columns, other = _cut(matrix.T.tocsr(), order)
    if first[1] + rows[1] <= other[1] + columns[1]:
        return _placed(matrix, first, rows)
    i, j = _coordinates(matrix)
    (of_columns, column_count), (of_rows, row_count) = columns, other
    m, n = matrix.shape
    pushed, pulled = of_columns[j] * m + i, column_count * m + of_rows[i] * n + j
    return Colouring(of_columns, of_rows, column_count, row_count, np.where(of_columns[j] >= 0, pushed, pulled))


def _cut(matrix: Any, order: str | None) -> tuple[tuple[Array, int], tuple[Array, int]]:
    """Return colours of the longest rows, and of columns for what is left: of so many rows that fewest are needed."""
    m, lengths = matrix.shape[0], np.diff(matrix.indptr)
    longest = np.argsort(-lengths, kind="stable")
    sorted_lengths = lengths[longest]
    best = _none(m), _apart(matrix, order)
    cuts = [0, *(np.flatnonzero(np.diff(sorted_lengths)) + 1).tolist()][1:_FEW]
    for cut in cuts:
        if sorted_lengths[cut] + 1 >= best[0][1] + best[1][1]:
            continue
        chosen = np.sort(longest[:cut])
        left = np.ones(m, bool)
        left[chosen] = False
        colours, count = _apart(matrix[chosen].T.tocsr(), order)
        rest = _apart(matrix[left], order)
        if count + rest[1] < best[0][1] + best[1][1]:
            of_rows = np.full(m, -1)
            of_rows[chosen] = colours
            best = (of_rows, count), rest
    return best


def _by_stars(matrix: Any, order: str | None) -> Colouring:
    m, n = matrix.shape
    if m != n or (matrix != matrix.T).nnz:
        raise ValueError(f"colouring: stars are of a symmetric pattern; this one, of {m} by {n}, is not")
    lengths = np.diff(matrix.indptr).astype(np.int64)
    too_large = int((lengths**2).sum()) > _MOST_STEPS
    colours, count = (np.arange(n), n) if too_large else _greedy("coloured_in_stars", matrix, order, 2)
    i, j = _coordinates(matrix)
    # An element is alone with its colour in its row, or its mirror image is.
    _, which, times = np.unique(i * count + colours[j], return_inverse=True, return_counts=True)
    alone = times[which] == 1
    places = np.where(alone, colours[j] * n + i, colours[i] * n + j)
    return Colouring(colours, np.full(m, -1), count, 0, places)
