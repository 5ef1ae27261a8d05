"""Norms and condition numbers of matrices under PyTorch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations.matrices.arguments import identity, matrix_of, square_of
from tape.operations.matrices.decompositions import svdvals
from tape.operations.matrices.solves import inverse
from tape.operations.operators import FUNCTIONS
from tape.operations.parameters import also
from tape.operations.reductions.norms import _norm_of, vector_norm
from tape.recording import record, views
from tape.recording.arguments import dim_of
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor, as_array, constant_tensor

_where = FUNCTIONS["where"]
_MATRIX = 2


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


def _top_level_norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: Any = None, dtype: Any = None, *, axis: Any = None,
    keepdims: Any = None,
) -> Tensor:  # fmt: skip
    """Return the norm of all elements, or of vectors over ``dim``: linalg.vector_norm under PyTorch's old name.

    ``p`` is a number, "fro" (2), or "nuc": the sum of the singular values of the matrices along two dims, ``dim`` or
    all that there are. RuntimeError for other names, and where "nuc" has no two dims.

    >>> tape.norm(tape.tensor([[3.0, -4.0], [5.0, 12.0]]), dim=1).tolist()
    [5.0, 13.0]
    >>> tape.norm(tape.tensor([[3.0, 0.0], [0.0, 4.0]]), "nuc")
    tensor(7.)
    """
    dims = axis if dim is None else dim
    if not isinstance(p, str) or (p == "fro" and (dims is None or isinstance(dims, int) or len(dims) <= _MATRIX)):
        order = 2 if p is None or p == "fro" else p
        return _norm_of(input, order, dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims)
    a = tensor_of(input)
    axes = tuple(range(len(a.spec.shape))) if dims is None else dims
    return matrix_norm(a, p, axes, bool(keepdims if keepdim is None else keepdim), dtype=dtype)


_top_level_norm.__name__ = _top_level_norm.__qualname__ = "norm"
public()(argued(_top_level_norm))
