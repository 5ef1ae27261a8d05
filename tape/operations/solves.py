"""Determinants, inverses, solutions of linear equations, functions of matrices."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from kernels.operations import OPS, factorizations
from kernels.rules.op import DISPATCHED
from tape.operations.copied_views import copy_
from tape.operations.decompositions import MATRIX, batch_of, identity, matrix_of, square_of, svdvals, together, turned
from tape.operations.elementwise import FUNCTIONS, array_like
from tape.operations.matmul import matmul
from tape.operations.reductions import norm_of, vector_norm
from tape.operations.sorting import cumprod
from tape.recording import creation, foreign_calls, promotion, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also, dim_of, with_axis, with_name
from tape.return_types import named
from tape.tensors.hooks import NUMPY, implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array, constant_tensor

# Linear solves and inverses under PyTorch's names; matrices stand in the last two dims, batches are broadcast.

_OPS: dict[str, Any] = OPS
for _op in _OPS.values():
    if getattr(_op, "forward", None) in DISPATCHED and _op.forward not in NUMPY:
        implements(_op.forward)(foreign_calls.calling(_op))
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


@public()
@with_name("lu_solve")
def _top_level_lu_solve(input: Any, LU_data: Any, LU_pivots: Any) -> Tensor:  # noqa: N803
    """Return X with A X = ``input``, A given by ``linalg.lu_factor``.

    LU_data is (*, n, n), the int32 pivots (*, n), ``input`` and X (*, n, k).

    >>> tape.lu_solve(tape.ones(2, 1), *tape.linalg.lu_factor(tape.eye(2) * 2)).tolist()
    [[0.5], [0.5]]
    """
    return lu_solve(LU_data, LU_pivots, input)


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


__all__ = [
    "cholesky_inverse", "cholesky_solve", "cond", "inv_ex", "logdet", "lstsq", "lu_solve", "matrix_norm",
    "matrix_rank", "norm", "pinv", "solve", "solve_banded", "solve_ex", "solve_toeplitz", "solve_triangular",
    "solveh_banded", "tensorinv", "tensorsolve", "vander",
]  # fmt: skip


# Functions of matrices under PyTorch's names: determinants, norms, powers, the exponential, pseudoinverses, ranks.

_where = FUNCTIONS["where"]
Slogdet = named("linalg_slogdet", "Sign and logarithm of a determinant.", "sign", "logabsdet")
Lstsq = named(
    "linalg_lstsq", "The solution of least squares, and what is known of it.",
    "solution", "residuals", "rank", "singular_values",
)  # fmt: skip

_DRIVERS = {
    "gels": (False, False, True), "gelsy": (True, False, False), "gelsd": (True, True, True),
    "gelss": (True, True, True),
}  # fmt: skip
"""Which drivers of least squares tell of ranks, of singular values, of residuals."""


@public()
def det(input: Any) -> Tensor:
    """Return the determinants (*) of (*, n, n) matrices.

    Singular matrices have first and second derivatives too; their third ones raise LinAlgError.

    >>> tape.det(tape.tensor([[1.0, 2.0], [3.0, 5.0]]))
    tensor(-1.0000)
    """
    return foreign_calls.call(_OPS["det"], square_of("linalg.det", input))  # type: ignore[no-any-return]


@public()
def slogdet(input: Any) -> Any:
    """Return sign and logarithm of the absolute value of determinants: 0 and -inf where singular.

    >>> tape.slogdet(-tape.eye(3)).sign
    tensor(-1.)
    """
    return Slogdet(*foreign_calls.call(_OPS["slogdet"], square_of("linalg.slogdet", input)))


@public()
def logdet(input: Any) -> Tensor:
    """Return the logarithms (*) of determinants: nan where negative, -inf where 0.

    >>> tape.logdet(tape.eye(3))
    tensor(0.)
    """
    sign, logabsdet = foreign_calls.call(_OPS["slogdet"], square_of("logdet", input))
    return _where(sign == -1.0, float("nan"), logabsdet)  # type: ignore[no-any-return]


@public()
def matrix_exp(input: Any) -> Tensor:
    """Return the exponentials of (*, n, n) matrices.

    >>> tape.matrix_exp(tape.tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return foreign_calls.call(_OPS["matrix_exp"], square_of("linalg.matrix_exp", input))  # type: ignore[no-any-return]


implements(factorizations.cofactors)(lambda a, y: foreign_calls.call(_OPS["cofactors"], a))  # noqa: ARG005


@public()
def matrix_power(input: Any, n: int) -> Tensor:
    """Return the n-th powers of square matrices; of their inverses if n is negative.

    >>> tape.matrix_power(tape.eye(2) * 2, 3).tolist()
    [[8.0, 0.0], [0.0, 8.0]]
    """
    a, n = square_of("linalg.matrix_power", input), operator.index(n)
    if n < 0:
        return matrix_power(inverse(a), -n)
    if n == 0:
        return copy_(views.clone(a), identity(a.spec.shape[-1], a))
    power, square = None, a
    while n:
        if n & 1:
            power = square if power is None else matmul(power, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    return views.clone(a) if power is a else power  # type: ignore[return-value]


@also(input="A")
def pinv(A: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:  # noqa: N803 (PyTorch's name)
    """Return the pseudoinverses (*, n, m) of (*, m, n) matrices; singular values up to rtol * the largest count as 0.

    ``rtol`` (``rcond`` is its older name) is max(m, n) * eps of the dtype if not given. The gradient is that at
    constant rank.

    >>> tape.linalg.pinv(tape.tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    del hermitian  # the pseudoinverse is the same
    a = matrix_of("linalg.pinv", A)
    rtol = _tolerance(a, rtol if rcond is None else rcond)
    return foreign_calls.call(_OPS["pinv"], a, rtol=rtol)  # type: ignore[no-any-return]


@public()
def pinverse(input: Any, rcond: float = 1e-15) -> Tensor:
    """Return the pseudoinverses of matrices: see linalg.pinv.

    >>> tape.pinverse(tape.tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    return pinv(input, rtol=rcond)


def _tolerance(a: Tensor, tolerance: Any) -> float:
    return float(max(a.spec.shape[-2:]) * np.finfo(a.spec.dtype).eps) if tolerance is None else float(tolerance)


@also(input="A", b="B")
def lstsq(A: Any, B: Any, rcond: Any = None, *, driver: str | None = None) -> Any:  # noqa: N803
    """Return solution, residuals, rank and singular values of least squares, the shortest solution if several.

    A is (*, m, n); B (*, m, k), or (*, m) of A's batch. Solution and residuals have gradients, at constant rank. The
    solution is one for every ``driver``, which says what else is told, and what is empty, as in PyTorch: "gelsy" (the
    default) tells the ranks (*), "gels" the residuals (*, k), "gelsd" and "gelss" both, and the singular values
    (*, min(m, n)). Residuals are empty unless m > n and all ranks are n.

    >>> tape.linalg.lstsq(tape.ones(3, 1), tape.tensor([1.0, 2.0, 6.0])).solution
    tensor([3.0000])
    >>> tape.linalg.lstsq(tape.ones(3, 1), tape.tensor([1.0, 2.0, 6.0]), driver="gels").residuals.shape
    tape.Size([1])
    """
    a, b = matrix_of("torch.linalg.lstsq", A), tensor_of(B)
    if driver not in (None, *_DRIVERS):
        raise RuntimeError(
            f"linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss); got {driver}"
        )
    if not 0 <= len(a.spec.shape) - len(b.spec.shape) <= 1:
        raise RuntimeError(
            "linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) "
            f"<= 1; the shapes are {list(a.spec.shape)} and {list(b.spec.shape)}"
        )
    vector = len(b.spec.shape) == len(a.spec.shape) - 1
    b = views.unsqueeze(b, -1) if vector else b
    m, n = a.spec.shape[-2:]
    if b.spec.shape[-2] != m:
        raise RuntimeError(f"linalg.lstsq: input.size(-2) should match other.size({-1 if vector else -2})")
    a, b = together("linalg.lstsq", a, b)
    solution, rank, s = foreign_calls.call(_OPS["lstsq"], a, b, rcond=_tolerance(a, rcond))
    ranks, values, residual = _DRIVERS[driver or "gelsy"]
    nothing, none = views.reshape(solution, -1)[:0], creation.empty(0, dtype=np.int64)
    residual = residual and m > n and (not ranks or bool((as_array(rank) == n).all()))
    residuals = FUNCTIONS["square"](matmul(a, solution) - b).sum(-2) if residual else nothing
    return Lstsq(
        views.squeeze(solution, -1) if vector else solution,
        residuals,
        rank if ranks else none,
        s if values else creation.empty(0, dtype=s.spec.dtype),
    )


@also(input="A")
def matrix_rank(
    A: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None  # noqa: N803
) -> Tensor:  # fmt: skip
    """Return the ranks (*) of matrices, int64, without a gradient: how many singular values exceed the tolerance.

    >>> tape.linalg.matrix_rank(tape.ones(3, 3))
    tensor(1)
    """
    del hermitian
    a = matrix_of("torch.linalg.matrix_rank", A)
    atol = tol if atol is None else atol
    relative = 0.0 if rtol is None and atol is not None else _tolerance(a, rtol)
    return foreign_calls.call(  # type: ignore[no-any-return]
        _OPS["matrix_rank"], a, atol=float(atol or 0.0), rtol=relative
    )


@also(input="A", other="B")
def tensorsolve(A: Any, B: Any, dims: Any = None) -> Tensor:  # noqa: N803
    """Return X with ``tensordot(A, X, X.ndim) == B``; ``dims`` of A are moved to its end first.

    >>> tape.linalg.tensorsolve(tape.eye(4).reshape(2, 2, 4), tape.ones(2, 2))
    tensor([1., 1., 1., 1.])
    """
    a, b = tensor_of(A), tensor_of(B)
    if dims is not None:
        last = [dim_of(a, d) for d in dims]
        a = views.permute(a, (*(k for k in range(len(a.spec.shape)) if k not in last), *last))
    rest = a.spec.shape[len(b.spec.shape) :]
    n = math.prod(rest)
    if n != b.spec.size or a.spec.size != n * n:
        raise RuntimeError(
            f"linalg.tensorsolve: Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {n} != {b.spec.size}"
        )
    solution = solve(views.reshape(a, (n, n)), views.reshape(b, (n,)))
    return views.reshape(solution, rest)


@also(input="A")
def tensorinv(A: Any, ind: int = 2) -> Tensor:  # noqa: N803
    """Return the inverse of A as a map from its last dims to the first ``ind``.

    >>> tape.linalg.tensorinv(tape.eye(4).reshape(2, 2, 4)).shape
    tape.Size([4, 2, 2])
    """
    a, ind = tensor_of(A), operator.index(ind)
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    front, back = a.spec.shape[:ind], a.spec.shape[ind:]
    if math.prod(front) != math.prod(back):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{math.prod(back)} != {math.prod(front)}"
        )
    inverted = inverse(views.reshape(a, (math.prod(front), math.prod(back))))
    return views.reshape(inverted, (*back, *front))


def vander(x: Any, N: int | None = None) -> Any:  # noqa: N803
    """Return the powers 0 to N - 1 of each element in a new last dim; N is the size of the last dim if not given.

    >>> tape.linalg.vander(tape.tensor([2.0, 3.0]), N=3).tolist()
    [[1.0, 2.0, 4.0], [1.0, 3.0, 9.0]]
    """
    x = tensor_of(x)
    if x.spec.dtype.kind == "b":
        raise RuntimeError("linalg.vander supports floating point, complex, and integer tensors, but got bool")
    x = x if x.spec.shape else views.reshape(x, 1)
    count = x.spec.shape[-1] if N is None else operator.index(N)
    if count <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1. It is {count}")
    x = views.unsqueeze(x, -1)
    powers = cumprod(views.expand(x, (*x.spec.shape[:-1], count - 1)), -1)
    return views.cat([creation.ones(x.spec.shape, dtype=powers.spec.dtype), powers], -1)


@also(input="A")
def cond(A: Any, p: Any = None) -> Tensor:  # noqa: N803
    """Return the condition numbers (*) of matrices in the norm p: None or 2, -2 of any; others of square matrices.

    >>> tape.linalg.cond(tape.tensor([[4.0, 0.0], [0.0, 2.0]]))
    tensor(2.)
    """
    a = matrix_of("linalg.cond", A)
    if p is None or p in (2, -2):
        s = svdvals(a)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]  # noqa: PLR2004
    square_of(f"linalg.cond(ord={p})", a)
    try:
        return matrix_norm(a, p) * matrix_norm(inverse(a), p)
    except np.linalg.LinAlgError:
        record.note_escape(a)  # which of them are singular is not recorded
    singular = np.asarray(np.linalg.det(as_array(a)) == 0)
    safe = _where(constant_tensor(singular[..., None, None]), identity(a.spec.shape[-1], a), a)
    return _where(constant_tensor(singular), float("inf"), matrix_norm(a, p) * matrix_norm(inverse(safe), p))  # type: ignore[no-any-return]


@also(input="A")
def matrix_norm(
    A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None  # noqa: A002, N803
) -> Tensor:  # fmt: skip
    """Return norms of matrices along two dims: "fro", "nuc", inf, -inf, 1, -1, 2, -2.

    >>> tape.linalg.matrix_norm(tape.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    a = matrix_of("linalg.matrix_norm", A)
    a = a if dtype is None else a.to(dtype)
    if isinstance(dim, int) or len(dim) != _MATRIX:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    first, second = (dim_of(a, d) for d in dim)
    if first == second:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {dim}")
    if isinstance(ord, str) or abs(ord) == 2:  # noqa: PLR2004
        norm = _spectral(a, ord, first, second)
    elif abs(ord) in (1, float("inf")):
        rows, over = (first, second) if abs(ord) == 1 else (second, first)
        sums = FUNCTIONS["abs"](a).sum(rows, keepdim=True)
        norm = (sums.amax if ord > 0 else sums.amin)(over, keepdim=True)
        norm = views.squeeze(norm, (first, second))
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if not keepdim:
        return norm  # type: ignore[no-any-return]
    for axis in sorted((first, second)):
        norm = views.unsqueeze(norm, axis)
    return norm  # type: ignore[no-any-return]


def _spectral(a: Tensor, ord: Any, first: int, second: int) -> Any:  # noqa: A002
    """Return the norms that are functions of the singular values."""
    if ord == "fro":
        return vector_norm(a, 2, (first, second))
    if ord not in ("nuc", 2, -2):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    rest = [k for k in range(len(a.spec.shape)) if k not in (first, second)]
    s = svdvals(views.permute(a, (*rest, first, second)))
    return s.sum(-1) if ord == "nuc" else s.amax(-1) if ord > 0 else s.amin(-1)


@also(input="A")
def norm(
    A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None  # noqa: A002, N803
) -> Tensor:  # fmt: skip
    """Return a norm: of vectors along one dim, of matrices along two, of all elements if neither is given.

    Without ``dim`` an ``ord`` makes a vector's or a matrix's norm of x, which has one or two dims. See vector_norm and
    matrix_norm.

    >>> tape.linalg.norm(tape.tensor([3.0, 4.0]))
    tensor(5.)
    """
    x = tensor_of(A)
    dims = (dim,) if isinstance(dim, int) else tuple(range(len(x.spec.shape))) if dim is None else tuple(dim)
    if ord is None:
        return vector_norm(x, 2, dims if dim is not None else None, keepdim, dtype=dtype)
    if len(dims) == 2:  # noqa: PLR2004
        return matrix_norm(x, ord, dims, keepdim, dtype=dtype)
    if len(dims) != 1:
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {len(x.spec.shape)}D."
            if dim is None else f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}"
        )  # fmt: skip
    return vector_norm(x, ord, dims, keepdim, dtype=dtype)


@public()
@cached_call()
@with_axis
@with_name("norm")
def _top_level_norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Return the norm of all elements, or of vectors over ``dim``: linalg.vector_norm under PyTorch's old name.

    ``p`` is a number, "fro" (2), or "nuc": the sum of the singular values of the matrices along two dims, ``dim`` or
    all that there are. RuntimeError for other names, and where "nuc" has no two dims.

    >>> tape.norm(tape.tensor([[3.0, -4.0], [5.0, 12.0]]), dim=1).tolist()
    [5.0, 13.0]
    >>> tape.norm(tape.tensor([[3.0, 0.0], [0.0, 4.0]]), "nuc")
    tensor(7.)
    """
    if not isinstance(p, str) or (p == "fro" and (dim is None or isinstance(dim, int) or len(dim) <= _MATRIX)):
        return norm_of(input, 2 if p is None or p == "fro" else p, dim, keepdim, dtype)
    a = tensor_of(input)
    return matrix_norm(a, p, tuple(range(len(a.spec.shape))) if dim is None else dim, bool(keepdim), dtype=dtype)
