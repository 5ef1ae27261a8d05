"""LU and LDL factors of matrices under PyTorch's names: packed as LAPACK packs them, and apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape.operations.matrices.arguments import MATRIX, matrix_of, square_of
from tape.operations.matrices.decompositions import wants
from tape.operations.operators import FUNCTIONS
from tape.operations.parameters import also
from tape.recording import routine_calls, views
from tape.return_types import named
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor, as_array, constant_tensor

_OPS: dict[str, Any] = OPS
_where = FUNCTIONS["where"]
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


def _top_level_lu(A: Any, pivot: bool = True, get_infos: bool = False) -> Any:  # noqa: N803
    """Return the packed factors of (*, m, n) matrices and the int32 rows exchanged, from 1: linalg.lu_factor_ex.

    With ``get_infos`` also which pivot is the first that is 0, from 1, or 0.

    >>> tape.lu(tape.tensor([[1.0, 2.0], [4.0, 4.0]]))[1]
    tensor([2, 2], dtype=tape.int32)
    """
    factors = _factors("linalg.lu_factor", A, pivot)
    return LUWithInfo(*factors) if get_infos else factors[:2]


_top_level_lu.__name__ = _top_level_lu.__qualname__ = "lu"
public()(_top_level_lu)


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
    """Return pivots that fit packed factors; RuntimeError, with PyTorch's words, for others."""
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
    return routine_calls.call(_OPS["lu_permutation"], pivots, n=packed.spec.shape[-2], dtype=packed.spec.dtype.str)


def _triangles(packed: Tensor) -> tuple[Any, Any]:
    """Return L and U of packed factors."""
    m, n = packed.spec.shape[-2:]
    k = min(m, n)
    below, above = constant_tensor(np.tri(m, k, -1, dtype=bool)), constant_tensor(~np.tri(k, n, -1, dtype=bool))
    eye = constant_tensor(np.eye(m, k, dtype=packed.spec.dtype))
    return _where(below, packed[..., :k], eye), _where(above, packed[..., :k, :], 0)


def _factors(name: str, matrix: Any, pivot: bool, *, check: bool = False) -> Any:
    """Return packed factors, the rows exchanged, and which pivot is zero."""
    a = matrix_of(name, matrix)
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return routine_calls.call(_OPS["lu_factor"], a, check=name if check else "")


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
    return routine_calls.call(_OPS["ldl_factor"], a, check=name if check else "")
