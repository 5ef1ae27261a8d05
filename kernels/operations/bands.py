"""The table of banded matrices that are factored once, for all that is solved with them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import Array, Strides
from kernels.kinds.routine import Routine
from kernels.operations.solves import LinAlgError, lapack
from kernels.rules.op import dispatched

# A banded matrix A is an array (n, below + above + 1) whose row j is column j: A[i, j] stands at [j, above + i - j].
# Its factors are (n, 2 below + above + 2): LAPACK's columns, then how far below the diagonal the pivot was. Their
# gradients and tangents are those of the matrix, at its own places: all that is solved with them adds to one gradient.

NARROW = 64  # diagonals besides the main one, up to which LAPACK's bands are faster than SuperLU
_MOST_ROWS, _MOST_DIAGONALS = 4096, 32  # of matrices that compiled programs factor themselves
_NARROW_ALREADY = 16
Numbers = dict[str, int]


class Band(NamedTuple):
    """How a sparse matrix is banded: equation and unknown k are those at ``order[k]``, which stand at ``inverse``."""

    order: Array
    inverse: Array
    below: int
    above: int
    places: Array
    """Of each element of the band, by columns, its place among the values; behind them where there is none."""


def band_of(rows: Array, columns: Array, n: int) -> Band | None:
    """Return how a square pattern is banded, as it is or by Cuthill and McKee's order reversed; None for a wide one.

    It is wide as well where its factors would be no smaller than the matrix, or where two elements have one place.
    """
    if not len(rows) or max(np.bincount(rows).max(), np.bincount(columns).max()) > NARROW + 1:
        return None
    order = np.arange(n)
    below, above = _widths(rows, columns)
    if below + above > _NARROW_ALREADY or 2 * below + above >= n:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        both = csr_array((np.ones(2 * len(rows)), (np.r_[rows, columns], np.r_[columns, rows])), shape=(n, n))
        reordered = reverse_cuthill_mckee(both, symmetric_mode=True).astype(np.int64)
        inverse = np.argsort(reordered)
        widths = _widths(inverse[rows], inverse[columns])
        if sum(widths) < below + above:
            order, (below, above) = reordered, widths
    if below + above > NARROW or 2 * below + above >= n:
        return None
    inverse = np.argsort(order)
    places = np.full((n, below + above + 1), len(rows))
    places[inverse[columns], above + inverse[rows] - inverse[columns]] = np.arange(len(rows))
    single = np.count_nonzero(places < len(rows)) == len(rows)
    return Band(order, inverse, below, above, places) if single else None


def _widths(rows: Array, columns: Array) -> tuple[int, int]:
    return max(0, int((rows - columns).max())), max(0, int((columns - rows).max()))


@dispatched
def band_lu(bands: Any, *, below: int) -> Any:
    """Return the factors of a matrix with so many diagonals below the main one; LinAlgError if it is singular."""
    n, width = bands.shape
    above = width - 1 - below
    columns = np.zeros((n, width + below), bands.dtype)
    columns[:, below:] = bands
    lu, pivots, info = lapack("gbtrf", bands.dtype)(columns.T, below, above, overwrite_ab=True)
    if info > 0:
        raise LinAlgError(
            f"sparse.spsolve: The solver failed because the input matrix is singular: pivot {info} is zero"
        )
    return np.column_stack((lu.T, (pivots - np.arange(n)).astype(bands.dtype)))


def _band_lu_jvp(t: Any, below: int) -> Any:
    before, behind = (np.zeros((t.shape[0], k), t.dtype) for k in (below, 1))
    return np.concatenate([before, t, behind], -1)


@dispatched
def band_solve(lu: Any, b: Any, *, below: int, trans: bool = False) -> Any:
    """Return the solution, a vector or the columns of a matrix, with a matrix of these factors, or transposed."""
    n, width = lu.shape
    pivots = np.arange(n) + lu[:, -1].astype(np.int64)
    columns, above = np.array(lu[:, :-1]).T, width - 2 - 2 * below
    return lapack("gbtrs", lu.dtype)(columns, below, above, b, pivots, trans=int(trans))[0]


def _others(shape: Strides, below: int, sign: int) -> tuple[Array, Array]:
    """Return of each element of factors the row or column so far from that of its place, and whether it is there."""
    n, width = shape
    k = np.arange(width) - (width - 2 - below)
    others = np.arange(n)[:, None] + sign * k
    inside = (others >= 0) & (others < n) & (k <= below) & (k >= 2 + 2 * below - width)
    return np.where(inside, others, 0), inside


def _band_solve_vjp(g: Any, y: Any, lu: Any, below: int, trans: bool, needs: Any) -> Any:
    g_b = band_solve(lu, g, below=below, trans=not trans)
    if not needs[0]:
        return None, g_b
    rows, inside = _others(lu.shape, below, 1)
    x, z = (y, g_b) if trans else (g_b, y)
    products = x[rows] * z[:, None]
    return np.where(inside, -(products if len(y.shape) == 1 else np.sum(products, axis=-1)), 0.0), g_b


def _band_solve_jvp(t_lu: Any, t_b: Any, y: Any, lu: Any, below: int, trans: bool) -> Any:
    right = 0.0 if t_b is None else t_b
    if t_lu is not None:
        right = right - _product(t_lu, y, below, trans)
    return band_solve(lu, right, below=below, trans=trans)


def _product(t: Any, y: Any, below: int, trans: bool) -> Any:
    """Return the product of a matrix, which stands as that of factors, or of it transposed, and of a solution."""
    others, inside = _others(t.shape, below, 1 if trans else -1)
    elements = np.where(inside, t if trans else t[others, np.arange(t.shape[1])], 0.0)
    return np.sum((elements if len(y.shape) == 1 else elements[..., None]) * y[others], axis=1)


def _directly(name: str, n: int, numbers: Numbers) -> tuple[str, Numbers]:
    small = 0 < n <= _MOST_ROWS and numbers["below"] + numbers["above"] <= _MOST_DIAGONALS
    return (f"banded_native.{name}" if small else ""), {"n": n, **numbers}


def _factored_directly(shape: Strides, below: int) -> tuple[str, Numbers]:
    return _directly("band_lu", shape[0], {"below": below, "above": shape[1] - 1 - below})


def _solved_directly(shape: Strides, b: Strides, below: int, trans: bool) -> tuple[str, Numbers]:
    numbers = {"below": below, "above": shape[1] - 2 - 2 * below, "trans": int(trans), "m": (*b, 1)[1]}
    return _directly("band_solve", shape[0] if numbers["m"] else 0, numbers)


Routine(
    name="band_lu", doc="The factors of a banded matrix.", grad_fn="BandLuBackward0", forward=band_lu,
    vjp=lambda g, below: g[:, below:-1],
    jvp=_band_lu_jvp,
    direct=_factored_directly, samples=((((6, 3),), {"below": 0}),),  # whose factors are the matrix
)  # fmt: skip
Routine(
    name="band_solve", doc="The solution of equations with a banded matrix of which factors are given.",
    grad_fn="BandSolveBackward0", forward=band_solve, vjp=_band_solve_vjp, jvp=_band_solve_jvp, direct=_solved_directly,
    samples=(
        (((6, 4), (6,)), {"below": 1, "trans": False}),
        (((5, 3), (5, 2)), {"below": 1, "trans": True}),
    ),
    domain=("factors", "real"),
)  # fmt: skip
