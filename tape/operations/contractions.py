"""Products of vectors, matrices and tensors under PyTorch's names, and einsum.

An operand is seen with a label for each dim. Repeated labels are diagonals, labels that nothing else needs are
summed, and the rest of a pair is one (batched) matrix product of views, so its gradients are matrix products too.
"""

from __future__ import annotations

import functools
import math
import operator
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.operations import OPS
from tape.errors import shorten
from tape.operations.diagonals import diagonal
from tape.operations.matmul import bmm, dot, matmul, mm, mv, product_of_batches
from tape.recording import foreign_calls, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also, dim_of, with_axis
from tape.recording.promotion import tensors_of
from tape.tensors.hooks import public
from tape.tensors.operands import _merge, tensor_of
from tape.tensors.tensor import Tensor

Labels = tuple[str, ...]


@public(methods=False)
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Return the sum of products that an equation such as "bij,bjk->bik" names.

    An ellipsis stands for dims that are broadcast; without "->" the result has the labels that appear once, in
    alphabetical order. ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` gives labels as numbers. The result may be a view.

    >>> tape.einsum("ij,j->i", tape.eye(2), tape.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if not isinstance(equation, str):
        equation, operands = _from_numbers((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    tensors = tensors_of(*operands)
    try:
        inputs, output, path = _plan(equation, tuple(x.spec.shape for x in tensors))
    except Exception as error:
        shorten(error)
        raise
    terms = [_alone(x, labels) for x, labels in zip(tensors, inputs, strict=True)]
    terms = [_squeezed(terms, k) for k in range(len(terms))]
    for chosen in path:
        taken = [terms[i] for i in chosen]
        terms = [t for i, t in enumerate(terms) if i not in chosen]
        while len(taken) > 1:
            (a, b), taken = taken[:2], taken[2:]
            others = {*output, *(label for _, labels in (*terms, *taken) for label in labels)}
            taken.insert(0, contract(*a, *b, others))
        terms.append(taken[0])
    ((contracted, labels),) = terms
    contracted, labels = _summed(contracted, labels, {*output})
    result = _ordered(contracted, labels, output)
    if any(result is x for x in tensors):  # a view, as PyTorch has it
        return views.expand(result, result.spec.shape)
    return result


def _from_numbers(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    pairs = len(args) // 2
    parts = [_letters(args[2 * k + 1]) for k in range(pairs)]
    arrow = f"->{_letters(args[-1])}" if len(args) % 2 else ""
    return ",".join(parts) + arrow, args[: 2 * pairs : 2]


def _letters(numbers: Any) -> str:
    return "".join("..." if n is Ellipsis else string.ascii_letters[n] for n in numbers)


@functools.lru_cache(512)
def _plan(equation: str, shapes: tuple[Any, ...]) -> tuple[list[Labels], Labels, list[tuple[int, ...]]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(shapes):
        more = "more" if len(shapes) > len(texts) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
    inputs = [_labels(text, len(shape), k) for k, (text, shape) in enumerate(zip(texts, shapes, strict=True))]
    dots = max((sum(label.startswith(".") for label in labels) for labels in inputs), default=0)
    output = _output(right, inputs, dots) if arrow else _implied(inputs, dots)
    _check_sizes(inputs, shapes)
    if len(shapes) < 3:  # noqa: PLR2004 (nothing to choose)
        return inputs, output, [tuple(range(len(shapes)))]
    return inputs, output, _path(inputs, output, shapes)


def _labels(text: str, rank: int, k: int) -> Labels:
    before, dots, after = text.partition("...")
    named = len(before) + len(after)
    if not (before + after).isalpha() and named:
        raise RuntimeError(f"einsum(): invalid subscript given in operand {k}: {text!r}; letters and one ... only")
    if named > rank or (named < rank and not dots):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions "
            f"({rank}) for operand {k}" + ("" if dots else " and no ellipsis was given")
        )
    return (*before, *(f".{i}" for i in range(rank - named, 0, -1)), *after)


def _output(text: str, inputs: list[Labels], dots: int) -> Labels:
    before, ellipsis, after = text.partition("...")
    known = {label for labels in inputs for label in labels}
    for label in before + after:
        if label not in known:
            raise RuntimeError(
                f"einsum(): output subscript {label} does not appear in the equation for any input operand"
            )
        if (before + after).count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {label} appears more than once in the output")
    return (*before, *((f".{i}" for i in range(dots, 0, -1)) if ellipsis else ()), *after)


def _implied(inputs: list[Labels], dots: int) -> Labels:
    every = [label for labels in inputs for label in labels if label[0] != "."]
    return (*(f".{i}" for i in range(dots, 0, -1)), *sorted(label for label in {*every} if every.count(label) == 1))


def _check_sizes(inputs: list[Labels], shapes: tuple[Any, ...]) -> None:
    sizes: dict[str, int] = {}
    for k, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        for label, n in zip(labels, shape, strict=True):
            seen = sizes.setdefault(label, n)
            if n not in (seen, 1) and seen != 1:
                raise RuntimeError(
                    f"einsum(): subscript {label} has size {n} for operand {k} which does not broadcast with "
                    f"previously seen size {seen}"
                )
            sizes[label] = max(seen, n) if min(seen, n) else 0


def _path(inputs: list[Labels], output: Labels, shapes: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Ask NumPy for the order, with letters for all labels."""
    letters: dict[str, str] = {}
    for label in (label for labels in inputs for label in labels):
        letters.setdefault(label, string.ascii_letters[len(letters)])
    text = ",".join("".join(letters[x] for x in labels) for labels in inputs)
    stand_ins = [np.broadcast_to(np.empty(()), shape) for shape in shapes]
    path = np.einsum_path(f"{text}->{''.join(letters[x] for x in output)}", *stand_ins, optimize="greedy")[0]
    return [tuple(step) for step in path[1:]]


Term = tuple[Tensor, Labels]


def _alone(x: Tensor, labels: Labels) -> Term:
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = diagonal(x, 0, first, second)
            labels = (*(n for i, n in enumerate(labels) if i not in (first, second)), label)
    return x, labels


def _squeezed(terms: Sequence[Term], k: int) -> Term:
    x, labels = terms[k]
    wide = {
        label for y, others in terms for label, n in zip(others, y.spec.shape, strict=True) if n != 1
    }  # fmt: skip
    drop = tuple(i for i, label in enumerate(labels) if x.spec.shape[i] == 1 and label in wide)
    if not drop:
        return x, labels
    return views.squeeze(x, drop), tuple(n for i, n in enumerate(labels) if i not in drop)


def _summed(x: Tensor, labels: Labels, kept: set[str]) -> Term:
    drop = tuple(i for i, label in enumerate(labels) if label not in kept)
    if not drop:
        return x, labels
    return x.sum(drop), tuple(label for label in labels if label in kept)


def _ordered(x: Tensor, labels: Labels, wanted: Sequence[str]) -> Tensor:
    order = tuple(labels.index(label) for label in wanted)
    return x if order == tuple(range(len(order))) else views.permute(x, order)


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.spec.shape == shape else views.reshape(x, shape)


def contract(a: Tensor, a_labels: Labels, b: Tensor, b_labels: Labels, others: set[str]) -> Term:
    """Multiply two operands and sum over the labels that they share and nothing else needs."""
    a, a_labels = _summed(a, a_labels, {*b_labels, *others})
    b, b_labels = _summed(b, b_labels, {*a_labels, *others})
    sizes = dict(zip((*a_labels, *b_labels), (*a.spec.shape, *b.spec.shape), strict=True))
    both = [label for label in a_labels if label in b_labels]
    batch, over = [n for n in both if n in others], [n for n in both if n not in others]
    rows, columns = [n for n in a_labels if n not in both], [n for n in b_labels if n not in both]
    lead, m, k, n = (tuple(sizes[label] for label in group) for group in (batch, rows, over, columns))
    a, b = _ordered(a, a_labels, [*batch, *rows, *over]), _ordered(b, b_labels, [*batch, *over, *columns])
    labels = (*batch, *rows, *columns)
    if not over:
        wide = _shaped(a, (*lead, *m, *(1,) * len(n)))
        return wide * _shaped(b, (*lead, *(1,) * len(m), *n)), labels
    if not rows and not columns and batch:
        return (a * b).sum(tuple(range(len(batch), len(batch) + len(over)))), labels
    inner = (math.prod(k),)
    left, right = (math.prod(m),) if rows else (), (math.prod(n),) if columns else ()
    if not batch:
        return _shaped(matmul(_shaped(a, left + inner), _shaped(b, inner + right)), (*m, *n)), labels
    count, one = (math.prod(lead),), (1,)
    product = product_of_batches(
        _shaped(a, (*count, *(left or one), *inner)), _shaped(b, (*count, *inner, *(right or one)))
    )
    return _shaped(product, (*lead, *m, *n)), labels


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
@cached_call()
@with_axis
def cross(input: Any, other: Any, dim: Any = None) -> Tensor:
    """Return the vector product along a dim of size 3: the first of that size if not given.

    >>> tape.cross(tape.tensor([1.0, 0.0, 0.0]), tape.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    a, b = tensors_of(input, other)
    if dim is None:
        dim = next((k for k, n in enumerate(a.spec.shape) if n == _SPACE), None)
        if dim is None:
            raise RuntimeError(f"cross: no dimension of size 3 in input; its shape is {list(a.spec.shape)}")
    return vector_product("cross", a, b, dim)


def vector_product(name: str, a: Any, b: Any, dim: int) -> Tensor:
    """Return the vector product along a dim of size 3; shapes are broadcast."""
    a, b = tensors_of(a, b)
    sizes = [x.spec.shape[dim_of(x, dim)] for x in (a, b)]
    if sizes != [_SPACE, _SPACE]:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {sizes[0]} and {sizes[1]}")
    shape = _merge(name, a.spec.shape, b.spec.shape)
    a, b = (x if x.spec.shape == shape else views.expand(x, shape) for x in (a, b))
    return foreign_calls.call(_CROSS, a, b, dim=dim)  # type: ignore[no-any-return]


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
    full = foreign_calls.call(_OPS["convolve"], x, y)
    if mode == "full":
        return full  # type: ignore[no-any-return]
    starts = {"same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}
    if mode not in starts:
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    start, size = starts[mode]
    return full[start : start + size]  # type: ignore[no-any-return]


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
