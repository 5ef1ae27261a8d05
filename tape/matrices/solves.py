"""Linear solves and inverses under PyTorch's names; matrices stand in the last two dims, batches are broadcast."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from kernels.operations import OPS, factorizations, solves
from tape.matrices.decompositions import MATRIX, batch_of, matrix_of, square_of, together, turned
from tape.operations.elementwise import array_like
from tape.operations.matmul import matmul
from tape.recording import foreign_calls, promotion, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also
from tape.return_types import named
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor

_OPS: dict[str, Any] = OPS
InvEx = named("linalg_inv_ex", "The inverse, and which pivot is zero.", "inverse", "info")
SolveEx = named("linalg_solve_ex", "The solution, and which pivot is zero.", "result", "info")


def solve(A: Any, B: Any, *, left: bool = True) -> Tensor:  # noqa: N803 (PyTorch's names)
    """Return X with A X = B, or X A = B with ``left=False``.

    A is (*, n, n); B is (*, n, k), or a vector (n,), or a batch of vectors (*, n) of A's batch. The gradient uses the
    factors again. LinAlgError if A is singular.

    >>> tape.linalg.solve(tape.tensor([[2.0, 0.0], [1.0, 1.0]]), tape.tensor([2.0, 3.0]))
    tensor([1., 2.])
    """
    a, b = square_of("linalg.solve", A), array_like(B)
    if _is_vector(a, b):
        a = a if left else turned(a)
        if len(a.spec.shape) > MATRIX:
            return views.squeeze(solve(a, views.unsqueeze(b, -1)), -1)
        if a.spec.shape[0] != b.spec.shape[0]:
            _check_rows("linalg.solve", a, views.unsqueeze(b, -1))
        return foreign_calls.call(_OPS["solve"], a, b)[0]  # type: ignore[no-any-return]
    if not left:
        return turned(solve(turned(a), turned(b)))
    _check_rows("linalg.solve", a, b)
    return foreign_calls.call(_OPS["solve"], *together("linalg.solve", a, b))[0]  # type: ignore[no-any-return]


def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:  # noqa: N803
    """Return what :func:`solve` does, and an int32 ``info`` of A's batch: which pivot is the first that is 0, or 0.

    What the result is where ``info`` is not 0 means nothing. LinAlgError there with ``check_errors``.

    >>> tape.linalg.solve_ex(tape.zeros(2, 2), tape.ones(2)).info
    tensor(1, dtype=tape.int32)
    """
    a, b = square_of("linalg.solve", A), array_like(B)
    if vector := _is_vector(a, b):
        b = views.unsqueeze(b, -1)
    across = not left and not vector
    a, b = (turned(a), b if vector else turned(b)) if not left else (a, b)
    _check_rows("linalg.solve", a, b)
    batch = batch_of(a)
    solution, info = foreign_calls.call(
        _OPS["solve_ex"], *together("linalg.solve", a, b), check_errors=bool(check_errors)
    )
    more = len(info.spec.shape) - len(batch)
    info = info[(0,) * more + tuple(slice(0, 1) if n == 1 else slice(None) for n in batch)]
    return SolveEx(views.squeeze(solution, -1) if vector else turned(solution) if across else solution, info)


def _is_vector(a: Tensor, b: Tensor) -> bool:
    shape = b.spec.shape
    return len(shape) == 1 or (len(shape) == len(a.spec.shape) - 1 and shape == a.spec.shape[:-1])


def _check_rows(name: str, a: Tensor, b: Tensor) -> None:
    rows, n = b.spec.shape[-2:] if len(b.spec.shape) >= MATRIX else (0, 0), a.spec.shape[-1]
    if rows[0] != n:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation AX = B ({n}x{n} and {rows[0]}x{rows[1]})"
        )


@public()
@cached_call()
def inverse(input: Any) -> Tensor:
    """Return the inverse of (*, n, n) matrices. LinAlgError if one is singular.

    >>> tape.inverse(tape.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return inverted(input)


def inverted(x: Any) -> Tensor:
    """Return what :func:`inverse` does."""
    return foreign_calls.call(_OPS["inv"], square_of("linalg.inv", x))  # type: ignore[no-any-return]


implements(factorizations.inverse)(inverse)


def inv_ex(A: Any, *, check_errors: bool = False) -> Any:  # noqa: N803
    """Return what :func:`inverse` does, and an int32 ``info`` (*): which pivot is the first that is 0, from 1, or 0.

    What the inverse is where ``info`` is not 0 means nothing. LinAlgError there with ``check_errors``.

    >>> tape.linalg.inv_ex(tape.ones(2, 2)).info
    tensor(2, dtype=tape.int32)
    """
    a = square_of("linalg.inv", A)
    return InvEx(*foreign_calls.call(_OPS["inv_ex"], a, check_errors=bool(check_errors)))


@also(input="A", unit_diagonal="unitriangular")
def solve_triangular(
    A: Any, B: Any, *, upper: bool | None = None, left: bool = True, unitriangular: bool = False,  # noqa: N803
    lower: bool = False, trans: Any = 0,
) -> Tensor:  # fmt: skip
    """Return X with A X = B, or X A = B with ``left=False``, of which A's one triangle is read.

    A is (*, n, n), B (*, n, k). With ``unitriangular`` the diagonal counts as ones. LinAlgError if it has a zero.
    Without ``upper`` as SciPy's function: by ``lower``, with ``trans`` 1 or "T" of A's transpose; B may be a vector.

    >>> tape.linalg.solve_triangular(tape.eye(2) * 2, tape.ones(2, 1), upper=True).tolist()
    [[0.5], [0.5]]
    """
    name = "linalg.solve_triangular"
    if upper is None:
        return _scipys_triangular(array_like(A), array_like(B), lower, trans, left=left, unitriangular=unitriangular)
    if lower or trans:
        raise TypeError(f"{name}: give upper, as PyTorch does, or lower and trans, as SciPy does")
    a, b = square_of(name, A), matrix_of(name, B, "B")
    if not left:
        return turned(solve_triangular(turned(a), turned(b), upper=not upper, unitriangular=unitriangular))
    _check_rows(name, a, b)
    return foreign_calls.call(  # type: ignore[no-any-return]
        _OPS["solve_triangular"], *together(name, a, b), upper=bool(upper), unitriangular=bool(unitriangular)
    )


def _scipys_triangular(a: Tensor, b: Tensor, lower: bool, trans: Any, **kwargs: bool) -> Tensor:
    if trans not in _TRANSPOSED:
        raise ValueError(f"linalg.solve_triangular: trans is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}")
    if _TRANSPOSED[trans]:
        a, lower = turned(a), not lower
    if len(b.spec.shape) == 1:
        return views.squeeze(solve_triangular(a, views.unsqueeze(b, -1), upper=not lower, **kwargs), -1)
    return solve_triangular(a, b, upper=not lower, **kwargs)


_TRANSPOSED = {0: False, "N": False, 1: True, "T": True, 2: True, "C": True}
implements(solves.solve_triangular)(solve_triangular)


@public()
@also(B="input", input2="L")
def cholesky_solve(input: Any, L: Any, upper: bool = False) -> Tensor:  # noqa: N803
    """Return X with A X = ``input``, A given by its Cholesky factor L, or U with ``upper=True``.

    Factors are (*, n, n), ``input`` and X (*, n, k). X is not finite where a factor's diagonal has a zero. The gradient
    to a factor is PyTorch's, with all of its elements free: take L.tril() for that of the triangle alone.

    >>> tape.cholesky_solve(tape.ones(2, 1), tape.eye(2) * 2).tolist()
    [[0.25], [0.25]]
    """
    factor, b = square_of("cholesky_solve", L), matrix_of("cholesky_solve", input, "b")
    rows, n = b.spec.shape[-2:], factor.spec.shape[-1]
    if rows[0] != n:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {n} by {n} but each b matrix is "
            f"{rows[0]} by {rows[1]}"
        )
    b, factor = together("cholesky_solve", b, factor)
    return foreign_calls.call(_OPS["cholesky_solve"], b, factor, upper=bool(upper))  # type: ignore[no-any-return]


implements(factorizations.cholesky_solve)(lambda b, factor, *, upper: cholesky_solve(b, factor, upper))


@public()
@also(L="input")
def cholesky_inverse(input: Any, upper: bool = False) -> Tensor:
    """Return the inverse of A, given by its Cholesky factor, or U with ``upper=True``.

    Both are (*, n, n). The gradient is that of :func:`cholesky_solve`. LinAlgError if a factor's diagonal has a zero.

    >>> tape.cholesky_inverse(tape.eye(2) * 2).tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    factor = square_of("cholesky_inverse", input)
    return foreign_calls.call(_OPS["cholesky_inverse"], factor, upper=bool(upper))  # type: ignore[no-any-return]


def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Tensor:  # noqa: N803
    """Return X with A X = B, A given by ``lu_factor``; X A = B with ``left=False``, A^T for A with ``adjoint``.

    LU is (*, n, n), the int32 pivots (*, n), B and X (*, n, k); with ``left=False`` (*, k, n).

    >>> tape.linalg.lu_solve(*tape.linalg.lu_factor(tape.eye(2) * 2), tape.ones(2, 1)).tolist()
    [[0.5], [0.5]]
    """
    packed, b = square_of("linalg.lu_solve", LU, "LU"), matrix_of("linalg.lu_solve", B, "B")
    if not left:
        return turned(lu_solve(packed, pivots, turned(b), adjoint=not adjoint))
    _check_rows("linalg.lu_solve", packed, b)
    n = packed.spec.shape[-1]
    p = foreign_calls.call(_OPS["lu_permutation"], tensor_of(pivots), n=n, dtype=packed.spec.dtype.str)
    if adjoint:
        half = solve_triangular(turned(packed), b, upper=False)
        return matmul(p, solve_triangular(turned(packed), half, upper=True, unitriangular=True))
    half = solve_triangular(packed, matmul(turned(p), b), upper=False, unitriangular=True)
    return solve_triangular(packed, half, upper=True)


def _top_level_lu_solve(input: Any, LU_data: Any, LU_pivots: Any) -> Tensor:  # noqa: N803
    """Return X with A X = ``input``, A given by ``linalg.lu_factor``.

    LU_data is (*, n, n), the int32 pivots (*, n), ``input`` and X (*, n, k).

    >>> tape.lu_solve(tape.ones(2, 1), *tape.linalg.lu_factor(tape.eye(2) * 2)).tolist()
    [[0.5], [0.5]]
    """
    return lu_solve(LU_data, LU_pivots, input)


_top_level_lu_solve.__name__ = _top_level_lu_solve.__qualname__ = "lu_solve"
public()(_top_level_lu_solve)


# Solves with banded and Toeplitz matrices under SciPy's names, with SciPy's storage of them.
#
# Gradients reach bands, first column and row, and right-hand sides; the unused corners of bands receive 0.

_MATRIX = 2


def _floating(name: str, **operands: Any) -> list[Tensor]:
    tensors = {key: array_like(x) for key, x in operands.items()}
    dtype = np.result_type(np.float32, *(x.spec.dtype for x in tensors.values()))
    for key, x in tensors.items():
        if x.spec.dtype.kind not in "fiu":
            raise TypeError(f"{name}: {key} has dtype {x.spec.dtype.name}; floating tensors only")
    return [x if x.spec.dtype == dtype else promotion.cast(x, dtype) for x in tensors.values()]


def _check(name: str, b: Tensor, n: int) -> None:
    shape = b.spec.shape
    if len(shape) not in (1, _MATRIX) or shape[0] != n:
        raise ValueError(f"{name}: shapes do not fit: the matrix is {n} by {n}, b has shape {list(shape)}")


def solve_banded(l_and_u: Any, ab: Any, b: Any) -> Tensor:
    """Return x with A x = b, A given by its diagonals: ``ab[u + i - j, j] == A[i, j]``.

    ``l_and_u`` are the numbers of diagonals below and above the main one, ab is (l + u + 1, n), b is (n,) or (n, k).
    LinAlgError if A is singular.

    >>> tape.linalg.solve_banded((1, 1), [[0.0, 1.0, 1.0], [4.0, 4.0, 4.0], [1.0, 1.0, 0.0]], [5.0, 6.0, 5.0])
    tensor([1., 1., 1.])
    """
    lower, upper = map(operator.index, l_and_u)
    bands, right = _floating("solve_banded", ab=ab, b=b)
    if len(bands.spec.shape) != _MATRIX or bands.spec.shape[0] != lower + upper + 1:
        raise ValueError(
            f"solve_banded: invalid values for the number of lower and upper diagonals: l+u+1 ({lower + upper + 1}) "
            f"does not equal ab.shape[0]; ab has shape {list(bands.spec.shape)}"
        )
    _check("solve_banded", right, bands.spec.shape[1])
    return foreign_calls.call(_OPS["solve_banded"], bands, right, l_and_u=(lower, upper))  # type: ignore[no-any-return]


implements(factorizations.solve_banded)(lambda ab, b, *, l_and_u: solve_banded(l_and_u, ab, b))


def solveh_banded(ab: Any, b: Any, *, lower: bool = False) -> Tensor:
    """Return x with A x = b, A symmetric and positive-definite, given by the diagonals of one triangle.

    ``ab[u + i - j, j] == A[i, j]`` above the diagonal, ``ab[i - j, j]`` below it with ``lower=True``; ab is
    (u + 1, n), b is (n,) or (n, k). LinAlgError if A is not positive-definite.

    >>> tape.linalg.solveh_banded([[0.0, 1.0], [2.0, 2.0]], [3.0, 3.0])
    tensor([1., 1.])
    """
    bands, right = _floating("solveh_banded", ab=ab, b=b)
    if len(bands.spec.shape) != _MATRIX:
        raise ValueError(f"solveh_banded: ab has shape {list(bands.spec.shape)}; it has a row for each diagonal")
    _check("solveh_banded", right, bands.spec.shape[1])
    return foreign_calls.call(_OPS["solveh_banded"], bands, right, lower=bool(lower))  # type: ignore[no-any-return]


implements(factorizations.solveh_banded)(solveh_banded)


def solve_toeplitz(c_or_cr: Any, b: Any) -> Tensor:
    """Return x with T x = b, T given by its first column, or by the tuple (first column, first row).

    ``row[0]`` is not read.
    The column is (n,), b is (n,) or (n, k). LinAlgError if a leading block of T is singular (Levinson's algorithm).

    >>> tape.linalg.solve_toeplitz([2.0, 1.0], [4.0, 5.0])
    tensor([1., 2.])
    """
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, c_or_cr)
    column, row, right = _floating("solve_toeplitz", c=c, r=r, b=b)
    if len(column.spec.shape) != 1 or column.spec.shape != row.spec.shape:
        raise ValueError(
            f"solve_toeplitz: column and row are vectors of one length, not {list(column.spec.shape)} and "
            f"{list(row.spec.shape)}"
        )
    _check("solve_toeplitz", right, column.spec.shape[0])
    return foreign_calls.call(_OPS["solve_toeplitz"], column, row, right)  # type: ignore[no-any-return]


implements(factorizations.solve_toeplitz)(lambda c, r, b: solve_toeplitz((c, r), b))


__all__ = [
    "cholesky_inverse", "cholesky_solve", "inv_ex", "lu_solve", "solve", "solve_banded", "solve_ex", "solve_toeplitz",
    "solve_triangular", "solveh_banded",
]  # fmt: skip
