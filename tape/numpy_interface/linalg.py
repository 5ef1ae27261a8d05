"""NumPy's linear algebra on tensors: np.linalg.* and the products, with NumPy's arguments, defaults and results."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tape.matrices import contractions, decompositions, determinants, solves
from tape.matrices.decompositions import MATRIX, square_of, tensor_like
from tape.operations import diagonals, rearranging
from tape.operations.matmul import matmul
from tape.recording import record, views
from tape.tensors.hooks import NUMPY, implements
from tape.tensors.tensor import Tensor


@functools.lru_cache(8)
def _kind(function: Any, *shape: int) -> Any:
    """Return the class of the named tuple that a function of NumPy's returns."""
    return type(function(np.ones(shape)))


def _only(name: str, value: Any, supported: Any, argument: str) -> None:
    if value is not supported:
        raise TypeError(f"np.{name} of a tensor takes {argument}={supported!r} only")


@implements(np.dot, records="dot mv vm mm")
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    _only("dot", out, None, "out")
    a, b = tensor_like(a), tensor_like(b)
    ranks = len(a.spec.shape), len(b.spec.shape)
    if 0 in ranks:
        return a * b
    return matmul(a, b) if max(ranks) <= MATRIX else contractions.tensordot(a, b, ([-1], [-2 if ranks[1] > 1 else -1]))


@implements(np.linalg.matmul)
def _matmul(x1: Any, x2: Any) -> Tensor:
    return matmul(tensor_like(x1), tensor_like(x2))


@implements(np.inner)
def _inner(a: Any, b: Any) -> Any:
    return contractions.inner(tensor_like(a), tensor_like(b))


@implements(np.outer)
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    _only("outer", out, None, "out")
    return contractions.outer(*(views.reshape(tensor_like(x), -1) for x in (a, b)))


@implements(np.linalg.outer)
def _linalg_outer(x1: Any, x2: Any) -> Any:
    return contractions.outer(tensor_like(x1), tensor_like(x2))


@implements(np.vdot)
def _vdot(a: Any, b: Any) -> Tensor:
    return contractions.vdot(*(views.reshape(tensor_like(x), -1) for x in (a, b)))


@implements(np.matvec)
def _matvec(x1: Any, x2: Any) -> Tensor:
    return views.squeeze(matmul(tensor_like(x1), views.unsqueeze(tensor_like(x2), -1)), -1)


@implements(np.vecmat)
def _vecmat(x1: Any, x2: Any) -> Tensor:
    return views.squeeze(matmul(views.unsqueeze(tensor_like(x1), -2), tensor_like(x2)), -2)


@implements(np.vecdot, np.linalg.vecdot)
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    a, b = (rearranging.movedim(tensor_like(x), axis, -1) for x in (x1, x2))
    if a.spec.shape[-1] != b.spec.shape[-1]:
        raise ValueError(f"np.vecdot: axes of {a.spec.shape[-1]} and {b.spec.shape[-1]} elements do not fit")
    product: Any = a * b
    kind = product.spec.dtype  # sums of bools are bools, and integers stay as wide as they are
    return NUMPY[np.sum](product, -1, kind if kind.kind in "iub" else None)


@implements(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    left, right = tensor_like(a), tensor_like(b)
    for i, j in zip(*contractions.contracted_dims(left, right, axes), strict=True):
        if left.spec.shape[i] != right.spec.shape[j]:  # no extent of 1 is broadcast here
            raise ValueError(
                f"np.tensordot: shapes {left.spec.shape} and {right.spec.shape} differ in axes {i} and {j}"
            )
    return contractions.tensordot(left, right, axes)


@implements(np.linalg.tensordot)
def _linalg_tensordot(x1: Any, x2: Any, *, axes: Any = 2) -> Tensor:
    return _tensordot(x1, x2, axes)


@implements(np.kron)
def _kron(a: Any, b: Any) -> Any:
    return contractions.kron(tensor_like(a), tensor_like(b))


@implements(np.einsum)
def _einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Tensor:
    _only("einsum", out, None, "out")
    if kwargs:
        raise TypeError(f"np.einsum of a tensor does not take {', '.join(kwargs)}")
    del optimize  # the order is always planned
    return contractions.einsum(*operands)


@implements(np.cross, records="cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = (_last(tensor_like(x), at) for x, at in ((a, axisa), (b, axisb)))
    product = contractions.vector_product("cross", a, b, -1)
    rank = len(product.spec.shape)
    order = [*range(rank - 1)]
    order.insert(axisc % rank, rank - 1)
    return views.permute(product, tuple(order))


def _last(x: Tensor, axis: int) -> Tensor:
    rank = len(x.spec.shape)
    if axis % rank == rank - 1:
        return x
    return views.permute(x, (*(k for k in range(rank) if k != axis % rank), axis % rank))


@implements(np.linalg.cross, records="cross")
def _linalg_cross(x1: Any, x2: Any, *, axis: int = -1) -> Tensor:
    return contractions.vector_product("cross", tensor_like(x1), tensor_like(x2), axis)


@implements(np.trace)
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    _only("trace", out, None, "out")
    return diagonals.diagonal(a, offset, axis1, axis2).sum(-1, dtype=dtype)


@implements(np.linalg.trace)
def _linalg_trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Any:
    return _trace(x, offset, -2, -1, dtype)


@implements(np.linalg.diagonal, records="diagonal")
def _linalg_diagonal(x: Any, *, offset: int = 0) -> Tensor:
    return diagonals.diagonal(x, offset, -2, -1)


@implements(np.convolve, records="convolve")
def _convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    return contractions.convolve(tensor_like(a), tensor_like(v), mode)


@implements(np.polyval)
def _polyval(p: Any, x: Any) -> Any:
    p, x = tensor_like(p), tensor_like(x)
    y = x * 0
    for k in range(len(p)):
        y = y * x + p[k]
    return y


@implements(np.linalg.solve, records="solve")
def _solve(a: Any, b: Any) -> Tensor:
    a, b = square_of("linalg.solve", a), tensor_like(b)
    if len(b.spec.shape) == 1 and len(a.spec.shape) > MATRIX:
        return views.squeeze(solves.solve(a, views.unsqueeze(b, -1)), -1)
    if len(b.spec.shape) == len(a.spec.shape) - 1 > 1:  # matrices to NumPy; PyTorch could see vectors
        b = views.unsqueeze(b, 0)
    return solves.solve(a, b)


@implements(np.linalg.inv, records="inv")
def _inv(a: Any) -> Tensor:
    return solves.inverse(a)


@implements(np.linalg.pinv, records="pinv")
def _pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    return determinants.pinv(a, rcond, hermitian, rtol=rtol)


@implements(np.linalg.det, records="det")
def _det(a: Any) -> Tensor:
    return determinants.det(a)


@implements(np.linalg.slogdet, records="slogdet")
def _slogdet(a: Any) -> Any:
    return _kind(np.linalg.slogdet, 1, 1)(*determinants.slogdet(a))


@implements(np.linalg.cholesky, records="cholesky")
def _cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    return decompositions.cholesky(a, upper)


@implements(np.linalg.qr, records="qr")
def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode == "raw":
        raise TypeError("np.linalg.qr of a tensor takes mode 'reduced', 'complete' or 'r'")
    factors = decompositions.qr(a, mode)
    return factors.R if mode == "r" else _kind(np.linalg.qr, 1, 1)(*factors)


@implements(np.linalg.eigh, records="eigh")
def _eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803 (NumPy's name)
    return _kind(np.linalg.eigh, 1, 1)(*decompositions.eigh(a, UPLO))


@implements(np.linalg.eigvalsh, records="eigvalsh")
def _eigvalsh(a: Any, UPLO: str = "L") -> Tensor:  # noqa: N803
    return decompositions.eigvalsh(a, UPLO)


@implements(np.linalg.svd, records="svd")
def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    _only("linalg.svd", hermitian, supported=False, argument="hermitian")
    if not compute_uv:
        return decompositions.svdvals(a)
    return _kind(np.linalg.svd, 1, 1)(*decompositions.svd(a, full_matrices))


@implements(np.linalg.svdvals, records="svdvals")
def _svdvals(x: Any, /) -> Tensor:
    return decompositions.svdvals(x)


@implements(np.linalg.lstsq, records="lstsq")
def _lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    a, b = tensor_like(a), tensor_like(b)
    solution = determinants.lstsq(a, b, None if rcond is None else max(float(rcond), 0.0), driver="gelsd")
    residuals = solution.residuals
    if int(solution.rank.item()) < a.spec.shape[-1]:
        residuals = residuals[:0]
    if len(b.spec.shape) == 1 and residuals.spec.size:
        residuals = views.reshape(residuals, -1)
    return solution.solution, residuals, int(solution.rank.item()), solution.singular_values


@implements(np.linalg.matrix_rank, records="matrix_rank")
def _matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:  # noqa: N803
    return determinants.matrix_rank(A, tol, hermitian, rtol=rtol)


@implements(np.linalg.matrix_power)
def _matrix_power(a: Any, n: int) -> Tensor:
    return determinants.matrix_power(a, n)


@implements(np.linalg.cond)
def _cond(x: Any, p: Any = None) -> Tensor:
    return determinants.cond(x, p)


@implements(np.linalg.multi_dot)
def _multi_dot(arrays: Any, *, out: Any = None) -> Tensor:
    _only("linalg.multi_dot", out, None, "out")
    return contractions.multi_dot(arrays)


@implements(np.linalg.tensorsolve)
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Tensor:
    return determinants.tensorsolve(a, b, axes)


@implements(np.linalg.tensorinv)
def _tensorinv(a: Any, ind: int = 2) -> Tensor:
    return determinants.tensorinv(a, ind)


@implements(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A002 (NumPy's name)
    x = tensor_like(x)
    x = x if x.spec.dtype.kind == "f" else record.to_dtype(x, np.dtype(np.float64))
    if ord is not None and axis is None and len(x.spec.shape) not in (1, MATRIX):
        raise ValueError("Improper number of dimensions to norm.")
    return determinants.norm(x, ord, axis, keepdims)


@implements(np.linalg.matrix_norm)
def _matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:  # noqa: A002 (NumPy's name)
    return determinants.matrix_norm(x, ord, keepdim=keepdims)
