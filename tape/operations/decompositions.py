"""Decompositions of matrices, and the arguments that linear algebra shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.operations import OPS, decompositions
from kernels.operations.decompositions import _QR_COMPLETE
from tape.operations.elementwise import FUNCTIONS, array_like
from tape.recording import creation, foreign_calls, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also, with_name
from tape.recording.promotion import alike
from tape.return_types import named
from tape.tensors import modes
from tape.tensors.hooks import implements, public
from tape.tensors.operands import _merge, tensor_of
from tape.tensors.tensor import Tensor, as_array, constant_tensor

MATRIX = 2


def matrix_of(name: str, value: Any, argument: str = "A") -> Tensor:
    """Return a floating tensor of two or more dims; RuntimeError otherwise, with PyTorch's words."""
    x = array_like(value)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {x.spec.dtype.name}; "
            "convert it first: A.double()"
        )
    if len(x.spec.shape) < MATRIX:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")
    return x


def square_of(name: str, value: Any, argument: str = "A") -> Tensor:
    """Return a floating tensor of square matrices; RuntimeError otherwise, with PyTorch's words."""
    x = matrix_of(name, value, argument)
    m, n = x.spec.shape[-2:]
    if m != n:
        raise RuntimeError(f"{name}: {argument} must be batches of square matrices, but they are {m} by {n} matrices")
    return x


def batch_of(x: Tensor) -> tuple[int, ...]:
    """Return the extents in front of the matrices."""
    return x.spec.shape[:-2]


def spread(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Return matrices expanded to these extents in front."""
    shape = (*batch, *x.spec.shape[-2:])
    return x if x.spec.shape == shape else views.expand(x, shape)


def together(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices with the same extents in front, broadcast, and of one dtype."""
    if a.spec.dtype == b.spec.dtype and batch_of(a) == batch_of(b):
        return a, b
    a, b = alike(a, b)
    batch = _merge(name, batch_of(a), batch_of(b))
    return spread(a, batch), spread(b, batch)


def turned(x: Tensor) -> Tensor:
    """Return the view with the last two dims exchanged."""
    return views.transpose(x, -2, -1)


def identity(n: int, like: Tensor) -> Tensor:
    """Return the identity matrix of a tensor's dtype."""
    return tensor_of(np.eye(n, dtype=like.spec.dtype))


# Factorisations of matrices under PyTorch's names: Cholesky, LU, QR, eigenvalues, singular values.
#
# Matrices stand in the last two dims, batches in front. Where values are equal, as far as rounding lets them be, the
# derivative of what depends on the choice of their vectors is nan, as in PyTorch; that of functions of the matrix is
# found by ``tape/engine/double_backward.py``.

_OPS: dict[str, Any] = OPS
_where = FUNCTIONS["where"]
QR = named("linalg_qr", "An orthogonal and an upper triangular factor.", "Q", "R")
OldQR = named("qr", "An orthogonal and an upper triangular factor.", "Q", "R")
Eigh = named("linalg_eigh", "Eigenvalues and eigenvectors, in columns.", "eigenvalues", "eigenvectors")
SVD = named("linalg_svd", "Left vectors in columns, singular values, right vectors in rows.", "U", "S", "Vh")
OldSVD = named("svd", "Left vectors, singular values, right vectors in columns.", "U", "S", "V")
CholeskyEx = named("linalg_cholesky_ex", "The factor, and which leading minor is not positive-definite.", "L", "info")


@public()
@cached_call()
def cholesky(input: Any, upper: bool = False) -> Tensor:
    """Return the lower triangular factor L of positive-definite (*, n, n) matrices A = L L^T, or U of A = U^T U.

    One triangle of A is read; the gradient is symmetric. LinAlgError if A is not positive-definite.

    >>> tape.linalg.cholesky(tape.tensor([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return cholesky_factor(input, upper)


def cholesky_factor(x: Any, upper: bool) -> Tensor:
    """Return what :func:`cholesky` does."""
    a = square_of("linalg.cholesky", x)
    factor = foreign_calls.call(_OPS["cholesky"], turned(a) if upper else a)
    return turned(factor) if upper else factor


@also(input="A")
def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> Any:  # noqa: N803 (PyTorch's names)
    """Return what :func:`cholesky` does, and an int32 ``info`` (*): the order of the minor that is no good, or 0.

    What L is where ``info`` is not 0 means nothing. LinAlgError there with ``check_errors``.

    >>> tape.linalg.cholesky_ex(-tape.eye(2)).info
    tensor(1, dtype=tape.int32)
    """
    a = square_of("linalg.cholesky", A)
    factor, info = foreign_calls.call(_OPS["cholesky_ex"], turned(a) if upper else a, check_errors=bool(check_errors))
    return CholeskyEx(turned(factor) if upper else factor, info)


def qr(A: Any, mode: str = "reduced") -> Any:  # noqa: N803 (PyTorch's names)
    """Return Q and R of (*, m, n) matrices: mode "reduced", "complete", or "r" for R alone (Q is empty then).

    Gradients of "complete" need m <= n; those of all modes that the first columns are independent.

    >>> tape.linalg.qr(tape.ones(3, 2)).R.shape
    tape.Size([2, 2])
    """
    a = matrix_of("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    m, n = a.spec.shape[-2:]
    if mode == "complete" and m > n and wants(a):
        raise RuntimeError(_QR_COMPLETE)
    q, r = foreign_calls.call(_OPS["qr"], a, mode="reduced" if mode == "r" else mode)
    return QR(creation.empty(0, dtype=a.spec.dtype) if mode == "r" else q, r)


def wants(x: Tensor) -> bool:
    """Whether what is computed from a tensor is recorded."""
    return x._slot is not None and modes.is_grad_enabled()


def _uplo(name: str, triangle: str) -> str:
    if triangle not in ("L", "U", "l", "u"):
        raise RuntimeError(f"{name}: Expected UPLO argument to be 'L' or 'U', but got {triangle}")
    return triangle.upper()


def _has_equal(values: Tensor) -> bool:
    """Whether there are equal values whose second derivatives need their vectors; not in programs without guards."""
    recorder = modes.current().recorder
    if not wants(values) or not (recorder is None or recorder.has_guards):
        return False
    return bool(np.any(decompositions.near(as_array(values) if recorder is None else values.detach(), wide=True)))


@also(input="A")
def eigh(A: Any, UPLO: str = "L") -> Any:  # noqa: N803 (PyTorch's names)
    """Return eigenvalues (*, n), ascending, and eigenvectors (*, n, n) of symmetric matrices; one triangle is read.

    >>> tape.linalg.eigh(tape.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """
    a = square_of("linalg.eigh", A)
    return Eigh(*foreign_calls.call(_OPS["eigh"], a, uplo=_uplo("linalg.eigh", UPLO)))


@also(input="A")
def eigvalsh(A: Any, UPLO: str = "L") -> Tensor:  # noqa: N803
    """Return the eigenvalues (*, n), ascending, of symmetric matrices; equal ones share their gradient.

    >>> tape.linalg.eigvalsh(tape.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    a, uplo = square_of("linalg.eigvalsh", A), _uplo("linalg.eigvalsh", UPLO)
    w = foreign_calls.call(_OPS["eigvalsh"], a, uplo=uplo)
    return foreign_calls.call(_OPS["eigh"], a, uplo=uplo)[0] if _has_equal(w) else w  # type: ignore[no-any-return]


def svd(A: Any, full_matrices: bool = True) -> Any:  # noqa: N803
    """Return U, S and Vh of (*, m, n) matrices, the singular values descending.

    The further vectors that ``full_matrices=True`` adds have no gradient: RuntimeError where one reaches them, and nan
    in forward mode.

    >>> tape.linalg.svd(tape.ones(3, 2), full_matrices=False).U.shape
    tape.Size([3, 2])
    """
    a = matrix_of("linalg.svd", A)
    full = bool(full_matrices) and a.spec.shape[-1] != a.spec.shape[-2]
    return SVD(*foreign_calls.call(_OPS["svd"], a, full_matrices=full))


def svdvals(A: Any) -> Tensor:  # noqa: N803
    """Return the singular values (*, min(m, n)) of matrices, descending.

    >>> tape.linalg.svdvals(tape.tensor([[0.0, 2.0], [1.0, 0.0]]))
    tensor([2., 1.])
    """
    a = matrix_of("linalg.svdvals", A)
    s = foreign_calls.call(_OPS["svdvals"], a)
    return foreign_calls.call(_OPS["svd"], a, full_matrices=False)[1] if _has_equal(s) else s  # type: ignore[no-any-return]


@public()
@with_name("qr")
def _top_level_qr(input: Any, some: bool = True) -> Any:
    """Return Q and R of matrices, reduced or, with ``some=False``, complete: see linalg.qr.

    >>> tape.qr(tape.ones(3, 2), some=False).Q.shape
    tape.Size([3, 3])
    """
    return OldQR(*qr(input, "reduced" if some else "complete"))


@public()
@with_name("svd")
def _top_level_svd(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """Return U, S and V (not Vh) of matrices, reduced or, with ``some=False``, complete: see linalg.svd.

    >>> tape.svd(tape.tensor([[0.0, 2.0], [1.0, 0.0]])).S
    tensor([2., 1.])
    """
    a = matrix_of("svd", input)
    if not compute_uv:
        m, n = a.spec.shape[-2:]
        u, v = (creation.zeros((*batch_of(a), k, k), dtype=a.spec.dtype) for k in (m, n))
        return OldSVD(u, svdvals(a), v)
    u, s, vh = svd(a, full_matrices=not some)
    return OldSVD(u, s, turned(vh))


@implements(decompositions.refuse_any)
def _refuse_any(g: Tensor) -> None:
    decompositions.refuse_any(as_array(g))


@implements(decompositions.spectral)
def _spectral(a: Any, d: Any, *, uplo: str, fixed: bool = False) -> Tensor:
    a, d = tensor_of(a), tensor_of(d)
    return foreign_calls.call(_OPS["spectral"], a, d, uplo=uplo, fixed=fixed or d._slot is None)  # type: ignore[no-any-return]


@implements(decompositions.singular)
def _singular(a: Any, d: Any, *, fixed: bool = False) -> Tensor:
    a, d = tensor_of(a), tensor_of(d)
    return foreign_calls.call(_OPS["singular"], a, d, fixed=fixed or d._slot is None)  # type: ignore[no-any-return]


_PACKED = "Both factors in one matrix, the rows exchanged, and which pivot is zero."
LUFactor = named("linalg_lu_factor", "Both factors in one matrix, and the rows exchanged.", "LU", "pivots")
LUFactorEx = named("linalg_lu_factor_ex", _PACKED, "LU", "pivots", "info")
LUWithInfo = named("_lu_with_info", _PACKED, "LU", "pivots", "info")
LU = named("linalg_lu", "A permutation, and the two triangular factors.", "P", "L", "U")
Unpacked = named("lu_unpack", "A permutation, and the two triangular factors.", "P", "L", "U")
LDLFactor = named("linalg_ldl_factor", "Both factors in one matrix, and the rows exchanged.", "LD", "pivots")
LDLFactorEx = named("linalg_ldl_factor_ex", _PACKED, "LD", "pivots", "info")


def lu_factor(A: Any, *, pivot: bool = True) -> Any:  # noqa: N803 (PyTorch's names)
    """Return the factors of (*, m, n) matrices packed in one, and the int32 rows exchanged, from 1; for ``lu_solve``.

    RuntimeError if a factor is singular; ``lu`` and ``lu_factor_ex`` allow that.

    >>> tape.linalg.lu_factor(tape.tensor([[1.0, 2.0], [4.0, 4.0]])).pivots
    tensor([2, 2], dtype=tape.int32)
    """
    return LUFactor(*_factors("torch.linalg.lu_factor", A, pivot, check=True)[:2])


def lu_factor_ex(A: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:  # noqa: N803
    """Return what :func:`lu_factor` does, and an int32 ``info`` (*): which pivot is the first that is 0, from 1, or 0.

    RuntimeError for such a pivot with ``check_errors``.

    >>> tape.linalg.lu_factor_ex(tape.ones(2, 2)).info
    tensor(2, dtype=tape.int32)
    """
    return LUFactorEx(*_factors("torch.linalg.lu_factor_ex", A, pivot, check=bool(check_errors)))


def lu(A: Any, *, pivot: bool = True) -> Any:  # noqa: N803
    """Return P, L and U with A = P L U of (*, m, n) matrices; P has no gradient.

    With k = min(m, n), P is (*, m, m), L (*, m, k) with ones on its diagonal, and U (*, k, n). The gradient needs the
    first k columns to be independent.

    >>> tape.linalg.lu(tape.tensor([[1.0, 2.0], [4.0, 4.0]])).U.tolist()
    [[4.0, 4.0], [0.0, 1.0]]
    """
    packed, pivots, _ = _factors("linalg.lu_factor", A, pivot)
    return LU(_permutation(packed, pivots), *_triangles(packed))


@public()
@with_name("lu")
def _top_level_lu(A: Any, pivot: bool = True, get_infos: bool = False) -> Any:  # noqa: N803
    """Return the packed factors of (*, m, n) matrices and the int32 rows exchanged, from 1: linalg.lu_factor_ex.

    With ``get_infos`` also which pivot is the first that is 0, from 1, or 0.

    >>> tape.lu(tape.tensor([[1.0, 2.0], [4.0, 4.0]]))[1]
    tensor([2, 2], dtype=tape.int32)
    """
    factors = _factors("linalg.lu_factor", A, pivot)
    return LUWithInfo(*factors) if get_infos else factors[:2]


@public(methods=False)
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:  # noqa: N803
    """Return P, L and U (see linalg.lu) of packed factors (*, m, n) and int32 pivots (*, min(m, n)).

    L and U are empty without ``unpack_data``, P without ``unpack_pivots``. RuntimeError for pivots that are not int32,
    or fit no rows.

    >>> tape.lu_unpack(*tape.linalg.lu_factor(tape.tensor([[1.0, 2.0], [4.0, 4.0]]))).L.tolist()
    [[1.0, 0.0], [0.25, 1.0]]
    """
    packed, pivots = tensor_of(LU_data), tensor_of(LU_pivots)
    rank = len(packed.spec.shape)
    if rank < MATRIX:
        raise IndexError(
            f"lu_unpack: Dimension out of range (expected to be in range of [{-max(rank, 1)}, {max(rank, 1) - 1}], "
            "but got -2)"
        )
    nothing = views.reshape(packed, -1)[:0]
    p = _permutation(packed, _checked(packed, pivots)) if unpack_pivots else nothing.detach()
    return Unpacked(p, *(_triangles(packed) if unpack_data else (nothing, nothing[:])))


def _checked(packed: Tensor, pivots: Tensor) -> Tensor:
    *batch, m, n = packed.spec.shape
    if pivots.spec.dtype != np.int32:
        raise RuntimeError(
            "lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype. Note: this "
            "function is intended to be used with the output produced by torch.linalg.lu_factor"
        )
    if pivots.spec.shape != (*batch, min(m, n)):
        raise RuntimeError(
            f"lu_unpack: LU_pivots of shape {list(pivots.spec.shape)} do not fit LU_data of shape "
            f"{list(packed.spec.shape)}; expected {[*batch, min(m, n)]}"
        )
    if ((rows := as_array(pivots)) < 1).any() or (rows > m).any():
        raise RuntimeError(
            "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive. "
            "Did you properly pass the result of lu_factor?"
        )
    return pivots


def _permutation(packed: Tensor, pivots: Tensor) -> Any:
    return foreign_calls.call(_OPS["lu_permutation"], pivots, n=packed.spec.shape[-2], dtype=packed.spec.dtype.str)


def _triangles(packed: Tensor) -> tuple[Any, Any]:
    m, n = packed.spec.shape[-2:]
    k = min(m, n)
    below, above = constant_tensor(np.tri(m, k, -1, dtype=bool)), constant_tensor(~np.tri(k, n, -1, dtype=bool))
    eye = constant_tensor(np.eye(m, k, dtype=packed.spec.dtype))
    return _where(below, packed[..., :k], eye), _where(above, packed[..., :k, :], 0)


def _factors(name: str, matrix: Any, pivot: bool, *, check: bool = False) -> Any:
    a = matrix_of(name, matrix)
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return foreign_calls.call(_OPS["lu_factor"], a, check=name if check else "")


@also(input="A")
def ldl_factor(A: Any, *, hermitian: bool = False) -> Any:  # noqa: N803
    """Return L and D of symmetric (*, n, n) matrices A = L D L^T, packed in one, and LAPACK's int32 pivots (*, n).

    One triangle of A is read. There is no gradient: RuntimeError if A wants one, and if D is singular.

    >>> tape.linalg.ldl_factor(tape.tensor([[4.0, 2.0], [2.0, 5.0]])).LD.tolist()
    [[4.0, 0.0], [0.5, 4.0]]
    """
    del hermitian  # one answer for real matrices
    return LDLFactor(*_ldl("torch.linalg.ldl_factor", A, check=True)[:2])


@also(input="A")
def ldl_factor_ex(A: Any, *, hermitian: bool = False, check_errors: bool = False) -> Any:  # noqa: N803
    """Return what :func:`ldl_factor` does, and an int32 ``info`` (*): which element of D is 0, from 1, or 0.

    RuntimeError for such an element with ``check_errors``.

    >>> tape.linalg.ldl_factor_ex(tape.zeros(2, 2)).info
    tensor(1, dtype=tape.int32)
    """
    del hermitian
    return LDLFactorEx(*_ldl("torch.linalg.ldl_factor_ex", A, check=bool(check_errors)))


def _ldl(name: str, matrix: Any, *, check: bool) -> Any:
    a = square_of(name, matrix)
    if wants(a):
        raise RuntimeError(f"{name}: there is no gradient; give A.detach()")
    return foreign_calls.call(_OPS["ldl_factor"], a, check=name if check else "")


__all__ = [
    "cholesky_ex", "eigh", "eigvalsh", "ldl_factor", "ldl_factor_ex", "lu", "lu_factor", "lu_factor_ex", "qr", "svd",
    "svdvals",
]  # fmt: skip
