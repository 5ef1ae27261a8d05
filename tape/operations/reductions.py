"""Sums, extrema, truths, counts and norms over dims, PyTorch's; NumPy's keywords are accepted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Reduction
from kernels.operations import OPS
from kernels.rules.op import Op
from tape import return_types
from tape.operations import elementwise
from tape.operations.elementwise import FUNCTIONS, cast, not_nan
from tape.operations.indexing import index
from tape.recording import foreign_calls, promotion, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import Dims, also, dim_of, dims_of, taking_out, with_axis, with_name
from tape.recording.promotion import alike
from tape.tensors import modes
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, method

_OPS: dict[str, Any] = OPS
_INTEGERS = "iub"
_LARGEST = 8  # bytes of uint64, whose sums int64 does not hold


def accumulator(x: Tensor) -> np.dtype[Any]:
    """Return the dtype that integers are summed and multiplied in: int64; of unsigned ones in NumPy uint64."""
    dtype = x._form.spec.dtype
    unsigned = dtype.kind == "u" and (dtype.itemsize == _LARGEST or modes.promotes_as_numpy())
    return np.dtype(np.uint64 if unsigned else np.int64)


def along(op: Op, x: Any, dim: Dims, keepdim: bool, dtype: Any = None) -> Tensor:
    """Reduce over dims as users give them."""
    x = tensor_of(x)
    axes = dims_of(x, dim)
    if dtype is not None and dtype_of(dtype) != x.spec.dtype:
        x = promotion.cast(x, dtype_of(dtype))
    assert isinstance(op, Reduction)
    return promotion.reduction(op, x, axes, bool(keepdim), "" if dim is None else op.dims_grad_fn)


@method()
@cached_call()
@with_axis
def sum(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A001 (PyTorch's and NumPy's name)
    """Return the sum over ``dim`` (an int, a tuple, or None for all); ints and bools sum to int64."""
    input = tensor_of(input)
    if dtype is None and input._form.spec.dtype.kind == "u":
        dtype = accumulator(input)
    return along(_OPS["sum"], input, dim, keepdim, dtype)


@method()
@cached_call()
@with_axis
def mean(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the mean over ``dim`` (an int, a tuple, or None for all); floating tensors only.

    In functions that are given NumPy arrays the mean of integers is in float64, as NumPy's.
    """
    input = tensor_of(input)
    if dtype is None and input.spec.dtype.kind in _INTEGERS:
        if not modes.promotes_as_numpy():
            raise RuntimeError(
                "mean(): could not infer output dtype. Input dtype must be floating point, got "
                f"{input.spec.dtype.name}; convert it first: x.double().mean()"
            )
        dtype = np.float64
    return along(_OPS["mean"], input, dim, keepdim, dtype)


def _extremum(name: str) -> Any:
    pair = getattr(return_types, name)
    over_all, by_rows, pairwise = OPS[f"{name}_all"], OPS[name], elementwise.FUNCTIONS[f"{name}imum"]

    doc = f"""Return the {name}imum of all elements, or of each row along ``dim`` with its place.

    With a tensor as second argument: :func:`{name}imum` of both. Ties: ``x.{name}()`` shares the gradient evenly,
    ``x.{name}(dim)`` gives it to the first of equals, as PyTorch does.
    """

    @method(name)
    @cached_call()
    @with_axis
    @with_name(name, doc)
    def extremum(input: Any, dim: Dims = None, keepdim: bool = False) -> Any:
        input = tensor_of(input)
        if isinstance(dim, Tensor):
            return pairwise(input, dim)
        _not_empty(name, input, dim)
        if dim is None:
            return along(over_all, input, None, keepdim)
        return pair(*promotion.select(by_rows, input, dim_of(input, dim), bool(keepdim)))  # type: ignore[arg-type]

    return extremum


def _not_empty(name: str, x: Tensor, dim: Dims) -> None:
    shape = x.spec.shape
    if 0 in shape and (dim is None or shape[dim_of(x, dim)] == 0):
        kind = RuntimeError if dim is None else IndexError
        raise kind(f"{name}(): Expected reduction dim to be specified for a non-empty dim; shape {list(shape)}")


def _over(name: str) -> Any:
    op = OPS[name]

    @method(name)
    @cached_call()
    @with_axis
    @with_name(name, f"{op.doc[:-1]}, as NumPy's {name}.")
    def over(input: Any, dim: Dims = (), keepdim: bool = False) -> Tensor:
        input = tensor_of(input)
        for dim_ in dims_of(input, dim):
            _not_empty(name, input, dim_)
        return along(op, input, None if dim == () else dim, keepdim)

    return over


max = taking_out(_extremum("max"))  # noqa: A001
min = taking_out(_extremum("min"))  # noqa: A001
amax = taking_out(_over("amax"))
amin = taking_out(_over("amin"))


_where: Any = FUNCTIONS["where"]


def accumulated(x: Any, dtype: Any) -> Tensor:
    """Return what a sum or product accumulates: ints and bools as int64, if no dtype is given."""
    x = tensor_of(x)
    return cast(x, accumulator(x) if dtype is None and x.spec.dtype.kind in "iub" else dtype)


@public()
@cached_call()
@with_axis
def prod(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the product over ``dim`` (an int, a tuple, or None for all); ints and bools multiply to int64.

    The gradient is exact where elements are zero.

    >>> x = tape.tensor([0.0, 2.0, 3.0], requires_grad=True)
    >>> x.prod().backward()
    >>> x.grad
    tensor([6., 0., 0.])
    """
    input = accumulated(input, dtype)
    op = _OPS["prod" if dim is None else "prod_dim"]
    return foreign_calls.call(op, input, dims=dims_of(input, dim), keepdim=bool(keepdim))  # type: ignore[no-any-return]


def _truth(name: str, what: str, example: str) -> Any:
    op = _OPS[name]
    doc = f"""Return whether {what} nonzero or True over ``dim``: bool, but uint8 of uint8, as PyTorch has it.

    >>> tape.{name}(tape.tensor([[0.0, 0.0], [0.0, 2.0], [1.0, 3.0]]), 1).tolist()
    {example}
    """

    @public()
    @cached_call()
    @with_axis
    @with_name(name, doc)
    def truth(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
        input = tensor_of(input)
        result = foreign_calls.call(op, input, dims=dims_of(input, dim), keepdim=bool(keepdim))
        return cast(result, np.uint8 if input.spec.dtype == np.uint8 else None)

    return truth


any = _truth("any", "an element is", "[False, True, True]")  # noqa: A001
all = _truth("all", "all elements are", "[False, False, True]")  # noqa: A001


@public()
@cached_call()
@with_axis
def count_nonzero(input: Any, dim: Dims = None) -> Tensor:
    """Return how many elements over ``dim`` are nonzero or True, as int64.

    >>> tape.count_nonzero(tape.tensor([[0.0, 2.0], [1.0, 3.0]]), 1).tolist()
    [1, 2]
    """
    return counted(tensor_of(input), dim, keepdim=False)


def counted(x: Tensor, dim: Dims, *, keepdim: bool) -> Tensor:
    """Return how many elements over dims are nonzero."""
    return foreign_calls.call(_OPS["count_nonzero"], x, dims=dims_of(x, dim), keepdim=keepdim)  # type: ignore[no-any-return]


def extremum_place(op: Any, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Return the place of an extremum, along a dim or of all elements in order."""
    if x.spec.size == 0 and dim is None:
        raise IndexError(f"{op.name}(): Expected reduction dim to be specified for input.numel() == 0.")
    at = None if dim is None else dim_of(x, dim)
    if at is not None and x.spec.shape and x.spec.shape[at] == 0:
        raise IndexError(f"{op.name}(): Expected reduction dim {at} to have non-zero size.")
    at = at if x.spec.shape else None
    return foreign_calls.call(op, x, dim=at, keepdim=bool(keepdim))  # type: ignore[no-any-return]


def _places(op: Any, extremum: str, example: str) -> Any:
    doc = f"""Return the int64 place of the {extremum} element along ``dim``, or of all elements in order.

    The first of equals; nan counts as {extremum}. IndexError where there is no element.

    >>> tape.{op.name}(tape.tensor([[1.0, 5.0, 3.0], [4.0, 0.0, 2.0]]), 1).tolist()
    {example}
    """

    @public()
    @cached_call()
    @with_axis
    @with_name(op.name, doc)
    def places(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
        input = tensor_of(input)
        if input.spec.dtype == np.bool_:
            raise RuntimeError(f"{op.name}(): does not support bool input; convert it first: x.long().{op.name}()")
        return extremum_place(op, input, dim, keepdim)

    return places


argmax = _places(_OPS["argmax"], "largest", "[1, 0]")
argmin = _places(_OPS["argmin"], "smallest", "[0, 1]")


@public()
@with_axis
def aminmax(input: Any, *, dim: Dims = None, keepdim: bool = False) -> Any:
    """Return the smallest and the largest element, of all or along ``dim``; ties share the gradient evenly.

    >>> tuple(e.tolist() for e in tape.aminmax(tape.tensor([[3.0, 1.0], [2.0, 5.0]]), dim=1))
    ([1.0, 2.0], [3.0, 5.0])
    """
    input = tensor_of(input)
    dims = dims_of(input, dim)
    if 0 in (input.spec.shape[i] for i in dims):
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity; "
            f"the shape is {list(input.spec.shape)}"
        )
    return return_types.aminmax(amin(input, dims, keepdim), amax(input, dims, keepdim))


@public()
@with_axis
def nansum(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the sum over ``dim`` of what is not nan; nan gets no gradient.

    >>> tape.nansum(tape.tensor([1.0, float('nan'), 3.0]))
    tensor(4.)
    """
    input = tensor_of(input)
    input = _where(not_nan(input), input, 0.0) if input.spec.dtype.kind == "f" else input
    return sum(input, dim, keepdim, dtype=dtype)


@public()
@with_axis
def nanmean(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the mean over ``dim`` of what is not nan; nan where nothing is left. Floating tensors only.

    >>> tape.nanmean(tape.tensor([1.0, float('nan'), 3.0]))
    tensor(2.)
    """
    input = tensor_of(input)
    if input.spec.dtype.kind != "f":
        raise RuntimeError(f"nanmean(): expected input to have floating point dtype but got {input.spec.dtype.name}")
    count = counted(not_nan(input), dim, keepdim=bool(keepdim))
    total = nansum(cast(input, dtype), dim, keepdim)
    with np.errstate(invalid="ignore"):
        return total / cast(count, total.spec.dtype)


_LINALG = "linalg.vector_norm"
_clamp_min: Any = FUNCTIONS["clamp_min"]


def norm_of(x: Any, ord: Any, dim: Dims, keepdim: bool, dtype: Any) -> Tensor:  # noqa: A002
    """Return what :func:`vector_norm` does."""
    x = tensor_of(x)
    if isinstance(ord, str):
        raise TypeError(f"{_LINALG}: argument 'ord' must be Number, not str")
    if x.spec.dtype.kind != "f":
        raise RuntimeError(
            f"{_LINALG}: Expected a floating point tensor as input. Got {x.spec.dtype.name}; convert it: x.double()"
        )
    if dtype is not None and not np.can_cast(x.spec.dtype, dtype_of(dtype), "safe"):
        raise RuntimeError(
            f"{_LINALG}: the dtype of the input ({x.spec.dtype.name}) should be convertible without narrowing to the "
            f"specified dtype ({dtype_of(dtype).name})"
        )
    x, order, dims = cast(x, dtype), float(ord), dims_of(x, dim)
    if (order < 0 or math.isinf(order)) and 0 in [x.spec.shape[i] for i in dims]:
        raise RuntimeError(
            f"{_LINALG} cannot compute the {ord} norm on an empty tensor because the operation does not have an "
            f"identity; the shape is {list(x.spec.shape)}"
        )
    if not x.spec.shape:
        norm = foreign_calls.call(_OPS["vector_norm"], views.reshape(x, 1), order=order, dims=(0,), keepdim=True)
        return views.reshape(norm, ())
    return foreign_calls.call(_OPS["vector_norm"], x, order=order, dims=dims, keepdim=bool(keepdim))  # type: ignore[no-any-return]


@cached_call()
@also(input="x")
@with_axis
def vector_norm(x: Any, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """Return the norm of vectors over ``dim`` (an int, a tuple, or None for all), of any order.

    ``inf`` and ``-inf`` are the largest and the smallest absolute value, 0 counts what is not zero. The gradient at 0
    is 0; the largest share theirs evenly. RuntimeError for integers, and where an empty tensor has no norm.

    >>> tape.linalg.vector_norm(tape.tensor([3.0, -4.0]))
    tensor(5.)
    """
    return norm_of(x, ord, dim, keepdim, dtype)


@implements(np.linalg.vector_norm, records="vector_norm")
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:  # noqa: A002
    x = tensor_of(x)
    return vector_norm(x if x.spec.dtype.kind == "f" else cast(x, np.float64), ord, axis, keepdims)


@public()
def dist(input: Any, other: Any, p: Any = 2) -> Tensor:
    """Return the norm of the difference of two tensors, whose shapes broadcast.

    >>> tape.dist(tape.tensor([1.0, 2.0]), tape.tensor([4.0, 6.0]))
    tensor(5.)
    """
    return vector_norm(tensor_of(input) - tensor_of(other), p)


@public(methods=False)
@cached_call()
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = "") -> Tensor:
    """Return the distances between all rows of x1 (..., P, M) and of x2 (..., R, M): (..., P, R).

    Leading dims broadcast. The gradient at distance 0 is 0. RuntimeError for shapes that do not fit,
    integers, and p < 0.
    ``compute_mode`` is PyTorch's and changes nothing.

    >>> tape.cdist(tape.tensor([[0.0, 0.0]]), tape.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    del compute_mode
    a, b = _points("X1", x1), _points("X2", x2)
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, not {p}")
    if a.spec.shape[-1] != b.spec.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {a.spec.shape[-1]} X2: {b.spec.shape[-1]}"
        )
    try:
        lead = np.broadcast_shapes(a.spec.shape[:-2], b.spec.shape[:-2])
    except ValueError:
        raise RuntimeError(
            f"cdist: leading dims of X1 {list(a.spec.shape)} and X2 {list(b.spec.shape)} do not broadcast"
        ) from None
    a, b = (views.expand(x, (*lead, *x.spec.shape[-2:])) for x in alike(a, b))
    return foreign_calls.call(_OPS["cdist"], a, b, order=float(p))  # type: ignore[no-any-return]


def _points(name: str, x: Any) -> Tensor:
    x = tensor_of(x)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.spec.dtype.name}")
    if len(x.spec.shape) < 2:  # noqa: PLR2004
        raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {len(x.spec.shape)}D")
    return x  # type: ignore[no-any-return]


@public(methods=False)
def pdist(input: Any, p: float = 2.0) -> Tensor:
    """Return the distances between the rows of x (N, M), of each pair once: N (N - 1) / 2 of them.

    >>> tape.pdist(tape.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]])).tolist()
    [5.0, 4.0, 3.0]
    """
    input = tensor_of(input)
    if len(input.spec.shape) != 2:  # noqa: PLR2004
        raise RuntimeError(f"pdist only supports 2D tensors, got: {len(input.spec.shape)}D")
    if p < 0:
        raise RuntimeError(f"pdist only supports non-negative p values, not {p}")
    first, second = np.triu_indices(input.spec.shape[0], 1)
    return vector_norm(index(input, first) - index(input, second), p, 1)


@public()
def renorm(input: Any, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """Return x with the slices along ``dim`` whose norm of order p is above ``maxnorm`` made shorter, to this norm.

    RuntimeError for less than two dims, ``p <= 0`` and ``maxnorm < 0``.

    >>> tape.renorm(tape.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    input = tensor_of(input)
    rank = len(input.spec.shape)
    if rank < 2:  # noqa: PLR2004
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {rank} dimensions")
    if p <= 0 or maxnorm < 0:
        raise RuntimeError(
            f"renorm: non-positive-norm not supported, nor maxnorm below 0; got p={p}, maxnorm={maxnorm}"
        )
    at = dim_of(input, dim)
    lengths = vector_norm(input, p, tuple(i for i in range(rank) if i != at), keepdim=True)
    return input * _where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)  # type: ignore[no-any-return]


@public(methods=False)
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between vectors along ``dim``, of shapes that broadcast; lengths count as ``eps``.

    >>> tape.cosine_similarity(tape.tensor([1.0, 0.0]), tape.tensor([3.0, 4.0]), dim=0)
    tensor(0.6000)
    """
    a, b = (x / _clamp_min(vector_norm(x, 2, dim, keepdim=True), eps) for x in _together(x1, x2))
    return (a * b).sum(dim)  # type: ignore[no-any-return]


@public(methods=False)
def pairwise_distance(x1: Any, x2: Any, p: Any = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Return the norms along the last dim of the difference of two tensors, plus ``eps``; shapes broadcast.

    >>> tape.pairwise_distance(tape.tensor([[1.0, 2.0]]), tape.tensor([[4.0, 6.0]]))
    tensor([5.0000])
    """
    a, b = _together(x1, x2)
    return vector_norm(a - b + eps, p, -1, keepdim=keepdim)


def _together(x1: Any, x2: Any) -> list[Tensor]:
    tensors = alike(x1, x2)
    dtype = tensors[0].spec.dtype
    if dtype.kind != "f":
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {dtype.name}")
    shape = np.broadcast_shapes(*(x.spec.shape for x in tensors))
    return [views.expand(x, shape) for x in tensors]
