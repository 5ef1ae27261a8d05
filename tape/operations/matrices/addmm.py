"""Products added to an input, beta * input + alpha * product, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from tape.operations.matmul import bmm, mm, mv
from tape.operations.matrices.contractions import _ranked, outer
from tape.recording import views
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor


def _plus(input: Any, product: Tensor, beta: Any, alpha: Any) -> Any:
    """Return beta * input + alpha * product, of the product's shape; with beta 0 the input is not read."""
    input = tensor_of(input)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    input = views.expand(input, product.spec.shape)
    return (input if beta == 1 else input * beta) + product


@public()
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * (mat1 @ mat2), of matrices; the input is expanded to (m, n).

    >>> tape.addmm(tape.ones(2), tape.eye(2), tape.eye(2), alpha=2).tolist()
    [[3.0, 1.0], [1.0, 3.0]]
    """
    return _plus(input, mm(mat1, mat2), beta, alpha)


@public()
def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * (mat @ vec); the input is expanded to (m,).

    >>> tape.addmv(tape.ones(2), tape.eye(2), tape.tensor([1.0, 2.0]))
    tensor([2., 3.])
    """
    return _plus(input, mv(mat, vec), beta, alpha)


@public()
def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * outer(vec1, vec2); the input is expanded to (m, n).

    >>> tape.addr(tape.ones(2, 1), tape.tensor([1.0, 2.0]), tape.ones(1)).tolist()
    [[2.0], [3.0]]
    """
    a, b = _ranked("addr", "vec1", vec1, 1), _ranked("addr", "vec2", vec2, 1)
    return _plus(input, outer(a, b), beta, alpha)


@public()
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * bmm(batch1, batch2); the input is expanded to (b, m, n).

    >>> tape.baddbmm(tape.ones(1), tape.ones(2, 1, 3), tape.ones(2, 3, 1)).tolist()
    [[[4.0]], [[4.0]]]
    """
    return _plus(input, bmm(batch1, batch2), beta, alpha)


@public()
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return beta * input + alpha * the sum of the products of a batch of matrices.

    >>> tape.addbmm(tape.ones(1), tape.ones(2, 1, 3), tape.ones(2, 3, 1)).tolist()
    [[7.0]]
    """
    return _plus(input, bmm(batch1, batch2).sum(0), beta, alpha)
