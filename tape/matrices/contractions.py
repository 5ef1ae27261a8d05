"""Products of vectors, matrices and tensors under PyTorch's names; they are made of matrix products."""

from __future__ import annotations

import math
import operator
from typing import Any

from kernels.operations.registry import OPS
from tape.matrices.einsum import contract
from tape.operations.diagonals import diagonal
from tape.operations.matmul import bmm, dot, mm, mv
from tape.recording import routine_calls, views
from tape.recording.arguments import dim_of, either
from tape.recording.parameters import also
from tape.recording.promotion import tensors_of
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.hooks import public
from tape.tensors.operands import _merge, tensor_of
from tape.tensors.tensor import Tensor

_OPS: dict[str, Any] = OPS
_CROSS: Any = _OPS["cross"]
_MATRIX = 2
_SPACE = 3


def _ranked(name: str, argument: str, x: Tensor, rank: int) -> Tensor:
    if len(x.spec.shape) != rank:
        raise RuntimeError(f"{name}: Expected {rank}-D argument {argument}, but got {len(x.spec.shape)}-D")
    return x


@public("ger")
def outer(input: Any, vec2: Any) -> Any:
    """Return the products (m, n) of each element of a vector with each of another.

    >>> tape.outer(tape.tensor([1.0, 2.0]), tape.tensor([1.0, 3.0])).tolist()
    [[1.0, 3.0], [2.0, 6.0]]
    """
    a, b = tensors_of(input, vec2)
    a, b = _ranked("outer", "self", a, 1), _ranked("outer", "vec2", b, 1)
    return views.unsqueeze(a, 1) * b


@public()
def vdot(input: Any, other: Any) -> Tensor:
    """Return the inner product of two vectors, 0-d.

    >>> tape.vdot(tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))
    tensor(11.)
    """
    a, b = tensors_of(input, other)
    if len(a.spec.shape) != 1 or len(b.spec.shape) != 1:
        raise RuntimeError(f"vdot: 1D tensors expected, but got {len(a.spec.shape)}D and {len(b.spec.shape)}D tensors")
    return dot(a, b)


@public()
def inner(input: Any, other: Any) -> Any:
    """Return the sums of products over the last dim of both; the other dims stand side by side.

    >>> tape.inner(tape.eye(2), tape.tensor([3.0, 4.0]))
    tensor([3., 4.])
    """
    a, b = tensors_of(input, other)
    left, right = a.spec.shape, b.spec.shape
    if not left or not right:
        return a * b
    if left[-1] != right[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(left)} and {list(right)}"
        )
    return tensordot(a, b, ([-1], [-1]))


@public(methods=False)
@also(axes="dims")
def tensordot(a: Any, b: Any, dims: Any = 2) -> Tensor:
    """Return the sums of products over the last ``dims`` dims of a and the first of b, or over two lists of dims.

    A dim of extent 1 is broadcast.

    >>> tape.tensordot(tape.ones(2, 3), tape.ones(3, 4), 1).shape
    tape.Size([2, 4])
    """
    a, b = tensors_of(a, b)
    left, right = contracted_dims(a, b, dims)
    for i, j in zip(left, right, strict=True):
        n, m = a.spec.shape[i], b.spec.shape[j]
        if n != m and 1 not in (n, m):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {n} in dim {i} and second has size {m} in "
                f"dim {j}"
            )
        if n != m:
            a, b = (a, b.sum(j, keepdim=True)) if n == 1 else (a.sum(i, keepdim=True), b)
    a_labels = tuple(f"a{k}" for k in range(len(a.spec.shape)))
    b_labels = tuple(a_labels[left[right.index(k)]] if k in right else f"b{k}" for k in range(len(b.spec.shape)))
    kept = {*a_labels, *b_labels} - {a_labels[i] for i in left}
    return contract(a, a_labels, b, b_labels, kept)[0]


def contracted_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]]:
    """Return the dims of both that ``dims`` of tensordot says."""
    ranks = len(a.spec.shape), len(b.spec.shape)
    if isinstance(dims, (tuple, list)):
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    else:
        count = operator.index(dims)
        if not 0 <= count <= min(ranks):
            raise RuntimeError(f"tensordot expects dims >= 0 and dims < ndim_a or ndim_b, but got dims={count}")
        left, right = list(range(ranks[0] - count, ranks[0])), list(range(count))
    if len(left) != len(right):
        raise RuntimeError("tensordot: both dimension lists should have same length")
    return [dim_of(a, d) for d in left], [dim_of(b, d) for d in right]


@public()
def kron(input: Any, other: Any) -> Any:
    """Return the Kronecker product: each element of the first times the whole of the other.

    >>> tape.kron(tape.tensor([1.0, 10.0]), tape.tensor([1.0, 2.0]))
    tensor([ 1.,  2., 10., 20.])
    """
    a, b = tensors_of(input, other)
    rank = max(len(a.spec.shape), len(b.spec.shape))
    left, right = ((1,) * (rank - len(x.spec.shape)) + x.spec.shape for x in (a, b))
    spread = views.reshape(a, tuple(n for size in left for n in (size, 1)))
    spread = spread * views.reshape(b, tuple(n for size in right for n in (1, size)))
    return views.shaped(spread, tuple(m * n for m, n in zip(left, right, strict=True)))


@public()
def trace(input: Any) -> Any:
    """Return the sum of the diagonal of a matrix, 0-d.

    >>> tape.trace(tape.eye(3))
    tensor(3.)
    """
    x = tensor_of(input)
    if len(x.spec.shape) != _MATRIX:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {len(x.spec.shape)}")
    return diagonal(x).sum()


@public()
@argued
def cross(input: Any, other: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Return the vector product along a dim of size 3: the first of that size if not given.

    >>> tape.cross(tape.tensor([1.0, 0.0, 0.0]), tape.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    a, b = tensors_of(input, other)
    at = either("dim", dim, "axis", axis, None)
    if at is None:
        at = next((k for k, n in enumerate(a.spec.shape) if n == _SPACE), None)
        if at is None:
            raise RuntimeError(f"cross: no dimension of size 3 in input; its shape is {list(a.spec.shape)}")
    return vector_product("cross", a, b, at)


def vector_product(name: str, a: Any, b: Any, dim: int) -> Tensor:
    """Return the vector product along a dim of size 3; shapes are broadcast."""
    a, b = tensors_of(a, b)
    sizes = [x.spec.shape[dim_of(x, dim)] for x in (a, b)]
    if sizes != [_SPACE, _SPACE]:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {sizes[0]} and {sizes[1]}")
    shape = _merge(name, a.spec.shape, b.spec.shape)
    a, b = (x if x.spec.shape == shape else views.expand(x, shape) for x in (a, b))
    return routine_calls.call(_CROSS, a, b, dim=dim)  # type: ignore[no-any-return]


def vecdot(x: Any, y: Any, *, dim: int = -1) -> Any:
    """Return the sums of products along a dim; shapes are broadcast.

    >>> tape.linalg.vecdot(tape.eye(2), tape.tensor([3.0, 4.0]))
    tensor([3., 4.])
    """
    x, y = tensors_of(x, y)
    sizes = [z.spec.shape[dim_of(z, dim)] for z in (x, y)]
    if sizes[0] != sizes[1]:
        raise RuntimeError(
            f"linalg.vecdot: inconsistent tensor size, expected tensor {list(x.spec.shape)} and src "
            f"{list(y.spec.shape)} to have the same number of elements in dim {dim}, but got {sizes[0]} and {sizes[1]}"
        )
    return (x * y).sum(dim)


def multi_dot(tensors: Any) -> Tensor:
    """Return the product of two or more matrices in the cheapest order; the first and the last may be vectors.

    >>> tape.linalg.multi_dot([tape.ones(2, 9), tape.ones(9, 1), tape.ones(1, 3)]).shape
    tape.Size([2, 3])
    """
    matrices = tensors_of(*tensors)
    if len(matrices) < 2:  # noqa: PLR2004
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(matrices)}")
    sides = [x.spec.shape for x in matrices]
    vector = len(sides[0]) == 1, len(sides[-1]) == 1
    if vector[0]:
        matrices[0] = views.unsqueeze(matrices[0], 0)
    if vector[1]:
        matrices[-1] = views.unsqueeze(matrices[-1], 1)
    for k, x in enumerate(matrices):
        if len(x.spec.shape) != _MATRIX:
            raise RuntimeError(f"multi_dot(): tensor {k} must be 2D but got {len(x.spec.shape)}D")
        if k and matrices[k - 1].spec.shape[1] != x.spec.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {k - 1} and {k} with shapes {list(sides[k - 1])} and {list(sides[k])} cannot be "
                "multiplied"
            )
    extents = [matrices[0].spec.shape[0], *(x.spec.shape[1] for x in matrices)]
    product = _chain(matrices, _splits(extents), 0, len(matrices) - 1)
    ends = (0,) * vector[0] + (-1,) * vector[1]
    return views.reshape(product, ()) if len(ends) == _MATRIX else views.squeeze(product, ends[0]) if ends else product


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Return where to split each run of matrices, by the least number of multiplications."""
    count = len(sizes) - 1
    cost: dict[tuple[int, int], int] = {(i, i): 0 for i in range(count)}
    splits = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = {
                k: cost[i, k] + cost[k + 1, j] + math.prod((sizes[i], sizes[k + 1], sizes[j + 1])) for k in range(i, j)
            }
            splits[i, j] = min(costs, key=costs.__getitem__)
            cost[i, j] = costs[splits[i, j]]
    return splits


def _chain(matrices: list[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return matrices[i]
    k = splits[i, j]
    return mm(_chain(matrices, splits, i, k), _chain(matrices, splits, k + 1, j))


@public(methods=False)
def chain_matmul(*matrices: Any) -> Tensor:
    """Return the product of matrices, f(a, b, c) or f([a, b, c]), in the cheapest order.

    >>> tape.chain_matmul(tape.ones(2, 3), tape.ones(3, 4)).shape
    tape.Size([2, 4])
    """
    factors = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else matrices
    return views.clone(tensor_of(factors[0])) if len(factors) == 1 else multi_dot(factors)


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Return the convolution of two vectors as np.convolve does: mode "full", "same" or "valid".

    >>> np.convolve(tape.tensor([1.0, 2.0]), [1.0, 1.0])
    tensor([1., 3., 2.])
    """
    x, y = (views.reshape(t, -1) if not t.spec.shape else t for t in map(tensor_of, (a, v)))
    if not x.spec.size or not y.spec.size:
        raise ValueError(f"{'a' if not x.spec.size else 'v'} cannot be empty")
    if len(x.spec.shape) != 1 or len(y.spec.shape) != 1:
        raise ValueError("object too deep for desired array")
    m, n = sorted((x.spec.size, y.spec.size))
    full = routine_calls.call(_OPS["convolve"], x, y)
    if mode == "full":
        return full  # type: ignore[no-any-return]
    starts = {"same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}
    if mode not in starts:
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    start, size = starts[mode]
    return full[start : start + size]  # type: ignore[no-any-return]


# Products added to an input, beta * input + alpha * product, under PyTorch's names.


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
