"""Histograms, sets, medians and quantiles, under PyTorch's and NumPy's names."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels.operations import OPS
from tape import return_types
from tape.operations import scatter
from tape.operations.elementwise import FUNCTIONS, array_like, cast, reduces
from tape.operations.indexing import index
from tape.operations.sorting import along, constant_result, escaped_values, filled, implement_by_values, sort
from tape.recording import creation, foreign_calls, indexed_calls, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import dim_of, dims_of, with_axis, with_name
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor

_SEARCHSORTED: Any = OPS["searchsorted"]


def _floating(name: str, x: Any) -> Any:
    x = tensor_of(x)
    if x.spec.dtype.kind != "f":
        raise NotImplementedError(f'"{name}" not implemented for {x.spec.dtype.name}; convert it first: x.double()')
    return x


def _weights(name: str, weight: Any) -> Any:
    return None if weight is None else escaped_values(tensor_of(weight), name)


@public()
def histogram(input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:  # noqa: A002
    """Return how many elements lie in each bin, and the edges, in the dtype of x; no gradient.

    ``bins`` is their number, over ``range`` or from the smallest element to the largest, or a tensor of edges.
    NotImplementedError for integers, and for a tensor that requires grad.

    >>> tape.histogram(tape.tensor([0.5, 1.5, 1.7]), 2, range=(0.0, 2.0)).hist.tolist()
    [1.0, 2.0]
    """
    input = _floating("histogram", input)
    edges = int(bins) if isinstance(bins, (int, np.integer)) else escaped_values(tensor_of(bins), "histogram")
    if isinstance(edges, int) and edges <= 0:
        raise RuntimeError(f"histogram(): bins must be > 0, but got {edges}")
    heights, edges = np.histogram(
        escaped_values(input, "histogram"), edges, range, density=density, weights=_weights("histogram", weight)
    )
    return return_types.histogram(*(cast(constant_result(part), input.spec.dtype) for part in (heights, edges)))


@public()
def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:  # noqa: A002
    """Return how many elements lie in each of ``bins`` bins from ``min`` to ``max``, in the dtype of x; no gradient.

    With both 0 the bins go from the smallest element to the largest. Elements outside do not count.

    >>> tape.histc(tape.tensor([0.5, 1.5, 1.7]), 2, 0.0, 2.0).tolist()
    [1.0, 2.0]
    """
    input = _floating("histc", input)
    if bins <= 0:
        raise RuntimeError(f"histc(): bins must be > 0, but got {bins}")
    if max < min:
        raise RuntimeError(f"histc(): max must be larger than min; got min {min}, max {max}")
    array = escaped_values(input.detach(), "histc").reshape(-1)
    low, high = float(min), float(max)
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"histc(): range of [{low}, {high}] is not finite")
    low, high = (low - 1, high + 1) if low == high else (low, high)
    return cast(constant_result(np.histogram(array, bins, (low, high))[0]), input.spec.dtype)


@public()
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """Return how often each integer from 0 comes (int64), or the sum of its weights; no gradient.

    Of float32 weights the sums are float32, as PyTorch has it (``np.bincount``: float64), of all others float64.
    RuntimeError for anything but one dim of integers that are not negative.

    >>> tape.bincount(tape.tensor([0, 2, 2]), minlength=4).tolist()
    [1, 0, 2, 0]
    """
    input = tensor_of(input)
    if input.spec.dtype.kind not in "iu":
        raise NotImplementedError(f'"bincount" not implemented for {input.spec.dtype.name}; convert it first: x.long()')
    array = escaped_values(input, "bincount")
    if array.ndim != 1 or (array < 0).any():
        raise RuntimeError(f"bincount only supports 1-d non-negative integral inputs; the shape is {list(array.shape)}")
    if minlength < 0:
        raise RuntimeError("bincount: minlength should be >= 0")
    weight_values = _weights("bincount", weights)
    if weight_values is not None and weight_values.shape != array.shape:
        raise RuntimeError(
            f"bincount: input and weights should have the same length: {list(array.shape)}, {list(weight_values.shape)}"
        )
    if not array.size:
        return constant_result(np.zeros(minlength, np.int64))
    single = weight_values is not None and weight_values.dtype == np.float32
    return cast(constant_result(np.bincount(array, weight_values, minlength)), np.float32 if single else None)


@public()
def searchsorted(
    sorted_sequence: Any, input: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
    sorter: Any = None,
) -> Tensor:  # fmt: skip
    """Return where each value would be inserted into rows that are in order, as int64; no gradient.

    The rows have one dim, or the first dims of the values. ``right=True`` (``side="right"``) inserts behind equal ones;
    ``sorter`` holds the places of the rows' elements in order.

    >>> tape.searchsorted(tape.tensor([1.0, 3.0, 5.0]), tape.tensor([0.0, 3.0, 9.0])).tolist()
    [0, 1, 3]
    """
    rows, x = tensor_of(sorted_sequence), tensor_of(input)
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    if not rows.spec.shape or (len(rows.spec.shape) > 1 and rows.spec.shape[:-1] != x.spec.shape[:-1]):
        raise RuntimeError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
            f"and input value tensor must match, but we got boundaries tensor {list(rows.spec.shape)} and input value "
            f"tensor {list(x.spec.shape)}"
        )
    if sorter is not None:
        order = escaped_values(tensor_of(sorter), "searchsorted")
        if order.shape != rows.spec.shape or order.dtype.kind not in "iu":
            raise RuntimeError(
                f"searchsorted(): sorter has shape {list(order.shape)}, boundaries {list(rows.spec.shape)}"
            )
        rows = constant_result(np.take_along_axis(escaped_values(rows.detach(), "searchsorted"), order, -1))
    where = "right" if right or side == "right" else "left"
    places = foreign_calls.call(_SEARCHSORTED, rows, x, side=where)
    return cast(places, np.int32 if out_int32 else None)


@public(methods=False)
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Return the number of the bucket of each value, between boundaries in order; see :func:`searchsorted`.

    >>> tape.bucketize(tape.tensor([0.0, 3.0, 9.0]), tape.tensor([1.0, 3.0, 5.0]), right=True).tolist()
    [0, 2, 3]
    """
    edges = tensor_of(boundaries)
    if len(edges.spec.shape) != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({len(edges.spec.shape)})")
    return searchsorted(edges, input, out_int32=out_int32, right=right)


@implements(np.searchsorted, records="searchsorted")
def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    if len(tensor_of(a).spec.shape) != 1:
        raise ValueError("np.searchsorted: the sequence has one dim")
    v = v if isinstance(v, Tensor) else np.asarray(v)
    return searchsorted(a, v, side=side, sorter=None if sorter is None else np.asarray(sorter))


@implements(np.digitize)
def _digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    edges = tensor_of(bins if isinstance(bins, Tensor) else np.asarray(bins))
    array = as_array(edges)
    step = np.diff(array)
    if array.ndim != 1 or not ((step >= 0).all() or (step <= 0).all()):
        raise ValueError("bins must be monotonically increasing or decreasing")
    if not array.size or array[0] <= array[-1]:
        return searchsorted(edges, x, right=not right)
    places = searchsorted(constant_result(array[::-1]), x, right=not right)
    return len(array) - places


implement_by_values(np.histogram, np.histogram_bin_edges)


@implements(np.bincount, records="index_put_")
def _sums_of_weights(x: Any, /, weights: Any = None, minlength: int = 0) -> Tensor:
    """Add up weights, with gradients to them, by the integers that they stand beside."""
    at = escaped_values(x, np.bincount.__name__) if isinstance(x, Tensor) else np.asarray(x)
    counts = np.bincount(
        at, None if weights is None else np.zeros(np.shape(weights)), minlength
    )  # raises NumPy's errors
    if weights is None:
        return constant_result(counts)
    zeros = creation.zeros(counts.size, dtype=np.float64)
    return scatter.index_add_(zeros, 0, constant_tensor(at), cast(array_like(weights), np.float64))


implement_by_values(np.intersect1d, np.union1d, np.setdiff1d, np.setxor1d)


@public(methods=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return which elements, of the first tensor's shape, are among those of the second; with ``invert`` are not.

    >>> tape.isin(tape.tensor([1, 2, 3]), tape.tensor([3, 1])).tolist()
    [True, False, True]
    """
    x, among = (escaped_values(array_like(e).detach(), "isin") for e in (elements, test_elements))
    return constant_result(np.isin(x, among, assume_unique=assume_unique, invert=invert))


@implements(np.isin)
def _isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Tensor:
    del kind
    return isin(element, test_elements, assume_unique=assume_unique, invert=invert)


@public()
def unique_consecutive(input: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    """Return the elements, or slices along ``dim``, that differ from the one before; no gradient.

    ``return_inverse`` adds where each element is among them, ``return_counts`` how often each one comes in a row, both
    int64. NotImplementedError for a tensor that requires grad.

    >>> [e.tolist() for e in tape.unique_consecutive(tape.tensor([1, 1, 2, 1]), return_counts=True)]
    [[1, 2, 1], [2, 1, 1]]
    """
    input = tensor_of(input)
    array = escaped_values(input, "unique_consecutive")
    rows = array.reshape(-1) if dim is None else np.moveaxis(array, dim_of(input, dim), 0)
    differs = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))
    first = np.flatnonzero(np.concatenate([np.ones(min(len(rows), 1), np.bool_), differs]))
    values = rows[first] if dim is None else np.moveaxis(rows[first], 0, dim_of(input, dim))
    inverse = np.searchsorted(first, np.arange(len(rows)), side="right") - 1
    inverse = inverse.reshape(input.spec.shape) if dim is None else inverse
    counts = np.diff(first, append=len(rows))
    parts = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return constant_result(values) if len(parts) == 1 else tuple(map(constant_result, parts))


@public(methods=False)
def unravel_index(indices: Any, shape: Any) -> tuple[Tensor, ...]:
    """Return, for each dim of a shape, the places along it of elements numbered in C order.

    ValueError for a number that is none of an element.

    >>> [at.tolist() for at in tape.unravel_index(tape.tensor([3, 5]), (2, 3))]
    [[1, 1], [0, 2]]
    """
    numbers = indexed_calls.integers(indices, "unravel_index", ValueError)
    extents = (shape,) if isinstance(shape, int) else tuple(map(int, shape))
    return tuple(map(constant_result, np.unravel_index(numbers, extents)))


@implements(np.unravel_index)
def _unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Tensor, ...]:
    if order != "C":
        raise TypeError("np.unravel_index of a tensor takes order='C'")
    return unravel_index(indices, shape)


_MODE: Any = OPS["mode"]
_where: Any = FUNCTIONS["where"]


def _middle(name: str, of_what: str, example: str) -> Any:
    op, over_all, kind = OPS[name], OPS[f"{name}_all"], getattr(return_types, name)
    doc = f"""Return the lower median of {of_what}, or of each row along ``dim`` with its int64 place.

    Of an even number the lower of the two in the middle, as PyTorch has it; ``np.{name}`` takes their mean. Ties share
    the gradient of the median of all evenly; along a dim it goes to the place.

    >>> tape.{name}(tape.tensor([[4.0, 1.0, 3.0, 2.0], [1.0, 3.0, float('nan'), 2.0]]), 1).values.tolist()
    {example}
    """

    @public()
    @cached_call()
    @with_axis
    @with_name(name, doc)
    def middle(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        input = tensor_of(input)
        if input.spec.dtype == np.bool_:
            raise NotImplementedError(f'"{name}" not implemented for bool; convert it first: x.long().{name}()')
        if dim is not None:
            return kind(*along(op, input, filled(name, input, dim), keepdim=bool(keepdim)))
        if input.spec.size == 0:
            return tensor_of(
                np.array(np.nan, input.spec.dtype) if input.spec.dtype.kind == "f" else np.zeros((), input.spec.dtype)
            )
        return foreign_calls.call(over_all, input)  # type: ignore[arg-type]

    return middle


median = _middle("median", "all elements, nan if one is nan", "[2.0, nan]")
nanmedian = _middle("nanmedian", "all elements that are not nan", "[2.0, 2.0]")


@public()
@cached_call()
@with_axis
def mode(input: Any, dim: int = -1, keepdim: Any = False) -> Any:
    """Return the most frequent element along ``dim`` (the last), the smallest of several, and its last int64 place.

    >>> tape.mode(tape.tensor([[1, 2, 2], [3, 3, 0]])).values.tolist()
    [2, 3]
    """
    input = tensor_of(input)
    return return_types.mode(*along(_MODE, input, filled("mode", input, dim), keepdim=bool(keepdim)))


@functools.lru_cache(256)
def _positions(count: int, q: tuple[float, ...], method: str) -> Array:
    """Return where quantiles lie between the sorted elements: NumPy finds them in 0, 1, 2, ... itself."""
    return np.quantile(np.arange(max(count, 1), dtype=np.float64), q, method=method)  # type: ignore[call-overload, no-any-return]


def quantiles(
    x: Tensor, q: Array, dims: tuple[int, ...], method: str, *, without_nan: bool = False, keepdim: bool = False,
    shift: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return quantiles over dims, for each q along leading dims; nan where an element is nan, or all are.

    ``shift`` is a tensor of zeros through which q gets its gradient; see :func:`_shift`.
    """
    shape = x.spec.shape
    kept = tuple(i for i in range(len(shape)) if i not in dims)
    turned = views.permute(x, (*kept, *dims)) if shape else x
    rows = sort(views.reshape(turned, (*(shape[i] for i in kept), math.prod(shape[i] for i in dims)))).values
    n, lead = rows.spec.shape[-1], rows.spec.shape[:-1]
    if without_nan:
        record.note_escape(x)  # how many are no nan decides what is picked
        counts = (~np.isnan(as_array(rows))).sum(-1).reshape(-1)
    else:
        counts = np.full(math.prod(lead), n)
    at = np.zeros((q.size, len(counts)))  # where each quantile lies, a column for each row
    for count in np.unique(counts):
        at[:, counts == count] = _positions(int(count), tuple(q.reshape(-1).tolist()), method)[:, None]
    flat = views.reshape(rows, (math.prod(lead), n))
    every = np.arange(math.prod(lead))
    low, high = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
    below: Any = index(flat, (every, low))
    result = below
    if shift is not None or not np.array_equal(low, high):
        between: Any = (at - low).astype(x.spec.dtype)
        if shift is not None:
            steps = np.maximum(counts - 1, 0).astype(x.spec.dtype)
            between = between + views.reshape(cast(shift, x.spec.dtype), (-1, 1)) * steps
        above: Any = index(flat, (every, high))
        apart = above - below
        result = _where(between < 0.5, below + apart * between, above - apart * (1 - between))  # noqa: PLR2004 (as NumPy)
        result = _where(low == high, below, result)
    if not without_nan:
        largest = index(flat, (every, np.full_like(low, n - 1)))
        result = _where(largest == largest, result, largest)  # noqa: PLR0124 (nan)
    lead = tuple(1 if i in dims else m for i, m in enumerate(shape)) if keepdim else lead
    return views.reshape(result, (*q.shape, *lead))


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _checked(name: str, x: Any, q: Any, interpolation: str) -> tuple[Tensor, Array]:
    x = tensor_of(x)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype, not {x.spec.dtype.name}")
    if x.spec.size == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty; the shape is {list(x.spec.shape)}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of {', '.join(_INTERPOLATIONS[:-1])} or nearest, "
            f"but got {interpolation}"
        )
    if not isinstance(q, (Tensor, float, int)):
        raise TypeError(f"{name}(): argument 'q' must be a number or a Tensor, not {type(q).__name__}")
    at = _fractions(q)
    if at.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, not of shape {list(at.shape)}")
    if isinstance(q, Tensor) and q.spec.dtype != x.spec.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor: {q.spec.dtype}, {x.spec.dtype}")
    if not ((at >= 0) & (at <= 1)).all():
        raise RuntimeError(
            f"{name}() q must be in the range [0, 1] but got {at.tolist()}; q values must be in the range [0, 1]"
        )
    return x, at


def _fractions(q: Any) -> Array:
    if isinstance(q, Tensor):
        record.note_escape(q)
        return np.asarray(as_array(q), np.float64)
    return np.asarray(q, np.float64)


def _shift(name: str, q: Any, method: str, scale: float = 1.0) -> Tensor | None:
    """Return zeros with the gradient of q, where it has one: the others of PyTorch's methods make steps."""
    if not isinstance(q, Tensor) or q._slot is None or method in _INTERPOLATIONS[1:]:
        return None
    if method != _INTERPOLATIONS[0]:
        raise NotImplementedError(f"{name}() with method {method!r}: no gradient to q; give q.detach()")
    return (q - q.detach()) / scale


def _function(name: str, what: str, example: str) -> Any:
    doc = f"""{what}

    ``q`` is a number, or a tensor of numbers that become the first dim of the result; ``interpolation`` is linear,
    lower, higher, midpoint or nearest. q has a gradient where it is linear. RuntimeError for q outside of [0, 1],
    integers and empty tensors.

    >>> x = tape.tensor([[1.0, 2.0, 3.0, 5.0], [1.0, 2.0, float('nan'), 4.0]])
    >>> tape.{name}(x, 0.5, 1).tolist()
    {example}
    """

    @public()
    @with_axis
    @with_name(name, doc)
    def function(
        input: Any, q: Any, dim: Any = None, keepdim: Any = False, *, interpolation: str = "linear"
    ) -> Tensor:  # fmt: skip
        input, at = _checked(name, input, q, interpolation)
        dims = dims_of(input, None) if dim is None else (dim_of(input, dim),) if input.spec.shape else ()
        shift, without_nan = _shift(name, q, interpolation), name.startswith("nan")
        return quantiles(input, at, dims, interpolation, without_nan=without_nan, keepdim=bool(keepdim), shift=shift)

    return function


quantile = _function(
    "quantile", "Return quantiles of all elements or along ``dim``; nan where an element is nan.", "[2.5, nan]"
)
nanquantile = _function(
    "nanquantile", "Return quantiles, of all or along ``dim``, of the elements that are not nan.", "[2.5, 2.0]"
)


def _numpy(name: str, scale: float) -> Any:
    without_nan = name.startswith("nan")

    def function(
        x: Tensor, q: Any, axis: Any = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: bool = False, weights: Any = None,
    ) -> Tensor:  # fmt: skip
        del overwrite_input
        if weights is not None:
            raise TypeError(f"np.{name} of a tensor takes no weights=")
        x = x if x.spec.dtype.kind == "f" else cast(x, np.float64)
        if not isinstance(q, (float, int)):  # as NumPy: an array is not weak
            x = cast(x, np.result_type(x.spec.dtype, q.spec.dtype if isinstance(q, Tensor) else np.asarray(q).dtype))
        at = _fractions(q) / scale
        if not ((at >= 0) & (at <= 1)).all():
            raise ValueError(f"{name}: q must be in the range [0, {scale:g}]")
        if x.spec.size == 0:
            raise IndexError(f"np.{name} of an empty tensor of shape {list(x.spec.shape)}")
        shift = _shift(f"np.{name}", q, method, scale)
        return quantiles(x, at, dims_of(x, axis), method, without_nan=without_nan, keepdim=keepdims, shift=shift)

    return function


for _name, _scale in (("quantile", 1.0), ("percentile", 100.0), ("nanquantile", 1.0), ("nanpercentile", 100.0)):
    reduces(getattr(np, _name))(_numpy(_name, _scale))


def _mean_of_middle(name: str) -> Any:
    between = _numpy(name.replace("median", "quantile"), 1.0)

    def function(x: Tensor, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
        del overwrite_input
        if x.spec.size == 0:
            dtype = x.spec.dtype if x.spec.dtype.kind == "f" else np.float64
            return tensor_of(np.full(np.sum(as_array(x), axis, keepdims=keepdims).shape, np.nan, dtype))
        return between(x, 0.5, axis, method="midpoint", keepdims=keepdims)  # type: ignore[no-any-return]

    return function


reduces(np.median)(_mean_of_middle("median"))
reduces(np.nanmedian)(_mean_of_middle("nanmedian"))
