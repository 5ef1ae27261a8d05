"""Values written to places that index tensors and masks name: in place, and into copies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.native.structs import SCATTERS
from tape.operations import gather, indexing, reductions, writes
from tape.operations.gather import along_key, check_index, check_vector, picked_along, true_places
from tape.recording import indexed_calls, views
from tape.recording.cached_calls import cached_call
from tape.recording.indexed_calls import across_dim, along_dim, scatter_call
from tape.recording.parameters import dim_of, with_name
from tape.tensors.hooks import public
from tape.tensors.operands import _merge, check_broadcast, operand, tensor_of
from tape.tensors.tensor import Array, Tensor, method


def reduced(
    x: Tensor, numbers: Array, values: Tensor, reduce: str, *, include_self: bool
) -> list[tuple[Array, Tensor]]:
    """Return places of x, numbered in C order, and for each the reduced value of its group.

    ``numbers`` says which place each value is for. Groups of one length are the rows of a matrix that is reduced
    along its columns, so that the gradient is that of the reduction, also where elements are equal.
    """
    pool = views.cat([views.reshape(x, -1), values]) if include_self else values
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    targets, counts = in_order[starts], np.diff(starts, append=len(order))
    if include_self:
        order = order + x.spec.size
    reductions = []
    for count in np.unique(counts):
        group = counts == count
        rows = order[starts[group][:, None] + np.arange(count)]
        if include_self:
            rows = np.concatenate([targets[group][:, None], rows], 1)
        reductions.append((targets[group], _REDUCED[reduce](gather.picked_flat(pool, rows))))
    return reductions


def reduced_by_mapped(
    x: Tensor, key: tuple[Any, ...], source: Any, reduce: str, *, include_self: bool
) -> Tensor | None:  # fmt: skip
    """Return what x becomes where index tensors differ between examples, as values and places compared, all with all.

    None where they do not, or do not fit.
    """
    if not (key and isinstance(source, Tensor) and indexed_calls.differ(*key)):
        return None
    places = indexed_calls.places_of(x.spec, key, wraps=False)
    if places is None or places.spec.shape != source.spec.shape or source.spec.dtype != x.spec.dtype:
        return None
    flat = views.reshape(x, -1, 1)
    there = views.reshape(places, 1, -1) == np.arange(x.spec.size)[:, None]
    rows = _where(there, views.reshape(source, 1, -1), _neutral(reduce, x.spec.dtype))
    counts = there.sum(1)
    if include_self:
        rows, counts = views.cat([flat, rows], 1), counts + 1
    if reduce == "mean":
        total, divisor = rows.sum(1), counts.clamp(min=1).to(x.spec.dtype)
        values = total / divisor if x.spec.dtype.kind == "f" else np.floor_divide(total, divisor)
    else:
        values = rows.sum(1) if reduce == "sum" else _REDUCED[reduce](rows)
    if not include_self:
        values = _where(counts > 0, values, views.reshape(x, -1))
    return views.reshape(values, x.spec.shape)


def _neutral(reduce: str, dtype: np.dtype[Any]) -> Any:
    if reduce not in ("amax", "amin"):
        return dtype.type(reduce == "prod")
    if dtype.kind == "f":
        return dtype.type(-np.inf if reduce == "amax" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if reduce == "amax" else limits.max)


_where: Any = np.where  # of tensors: recorded
_REDUCED: dict[str, Any] = {
    "amax": lambda rows: reductions.amax(rows, 1),
    "amin": lambda rows: reductions.amin(rows, 1),
    "prod": lambda rows: np.prod(rows, axis=1),
}


_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _both(in_place: Callable[..., Tensor], *, whole: Callable[..., Tensor] | None = None) -> Callable[..., Tensor]:
    """Install ``f_`` as a method, and ``f``, which writes into a copy, as a function and a method.

    The copy is of the first argument, or of what ``whole`` returns for all arguments. The docstring of ``f``, its
    example too, is that of ``f_`` with the names exchanged.
    """
    name = in_place.__name__.removesuffix("_")

    doc = (in_place.__doc__ or "").replace(", in place", ", in a copy", 1).replace(f".{name}_(", f".{name}(")

    @public()
    @with_name(name, doc)
    @functools.wraps(in_place)
    def function(x: Any, *args: Any, **kwargs: Any) -> Tensor:
        start = tensor_of(x) if whole is None else whole(x, *args, **kwargs)
        return in_place(views.clone(start), *args, **kwargs)

    return method()(in_place)


@_both
def put_(input: Tensor, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """Write as many values to the elements of these numbers, in C order, in place; with ``accumulate`` add them.

    IndexError for a number out of bounds, and for another number of values; RuntimeError for another dtype.

    >>> tape.zeros(2, 2).put_(tape.tensor([1, -1]), tape.tensor([5.0, 6.0])).tolist()
    [[0.0, 5.0], [0.0, 6.0]]
    """
    writes.check(input, "put_", reads=accumulate)
    values, size, dtype = tensor_of(source), input.spec.size, input.spec.dtype
    if indexed_calls.is_followed(index, adds=accumulate) and indexing.in_order(input) is input:
        fits = values.spec.size == index.spec.size and values.spec.dtype == dtype
        key, flat = (views.reshape(index, -1),), views.reshape(input, -1)
        new = views.reshape(values, -1)
        if fits and indexing.put_followed(flat, key, new, "put_", adds=accumulate, wraps=True):
            return input
    at = indexed_calls.integers(index, "put_")
    if values.spec.size != at.size:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{values.spec.size}, index.numel() = {at.size}"
        )
    if values.spec.dtype != dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype: {dtype}, {values.spec.dtype}")
    numbers = indexed_calls.wrapped(at, size, 0)
    return indexing.put(input, numbers, views.reshape(values, at.shape), "put_", adds=accumulate)


@_both
@cached_call(scatter_call(along_dim), marks=SCATTERS)
def scatter_(
    input: Tensor, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Write ``src``, or one value, to the places ``input[index[i][j]][j]`` for dim 0 and so on, in place.

    The last of several values for one place stays; ``reduce`` "add" or "multiply" takes all of them. A tensor
    ``src`` has the dtype of x, and at least the shape of ``index``, which is of integers. RuntimeError where they do
    not fit, or a place does not exist.

    >>> tape.zeros(3).scatter_(0, tape.tensor([2, 0]), tape.tensor([1.0, 2.0])).tolist()
    [2.0, 0.0, 1.0]
    """
    source = operand(src if value is None else value)
    if reduce is None and indexed_calls.is_followed(index, adds=False):
        fits = source.spec.shape == index.spec.shape if isinstance(source, Tensor) and source.spec.shape else True
        key = along_key(input, dim_of(input, dim), index) if fits else ()
        if key and indexing.put_followed(input, key, source, "scatter_", adds=False, wraps=False):
            return input
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError("scatter: reduce argument must be either add or multiply.")
    if reduce is not None and (reduce == "multiply" or indexed_calls.differ(index)):
        if not isinstance(source, Tensor):
            source = tensor_of(np.full(np.shape(index), source, input.spec.dtype))
        return scatter_reduce_(input, dim, index, source, "prod" if reduce == "multiply" else "sum")
    axis, at = _places(input, dim, index, "scatter")
    source = _source(input, at, source, "scatter") if isinstance(source, Tensor) and source.spec.shape else source
    return indexing.put(input, _numbers(input, axis, at), source, "scatter_", adds=reduce == "add")


@_both
@cached_call(scatter_call(along_dim, adds=True), marks=SCATTERS)
def scatter_add_(input: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """Add ``src`` to the places ``input[index[i][j]][j]`` for dim 0 and so on, in place; all values for a place add up.

    Shapes and dtypes are those of :func:`scatter_`.

    >>> tape.zeros(3).scatter_add_(0, tape.tensor([2, 0, 2]), tape.tensor([1.0, 2.0, 3.0])).tolist()
    [2.0, 0.0, 4.0]
    """
    axis = dim_of(input, dim)
    if indexed_calls.is_followed(index) and isinstance(src, Tensor) and src.spec.shape == index.spec.shape:
        key = along_key(input, axis, index)
        same = src.dtype == input.dtype
        if key and same and indexing.put_followed(input, key, src, "scatter_add_", adds=True, wraps=False):
            return input
    axis, at = _places(input, dim, index, "scatter_add")
    source = _source(input, at, tensor_of(src), "scatter_add")
    return indexing.put(input, _numbers(input, axis, at), source, "scatter_add_", adds=True)


@_both
def scatter_reduce_(input: Tensor, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """Reduce all values of ``src`` for a place, chosen as by :func:`scatter_`, to one, in place.

    ``reduce`` is "sum", "prod", "mean", "amax" or "amin"; without ``include_self`` what stood there does not count.
    Equal extrema share the gradient.

    >>> tape.zeros(2).scatter_reduce_(0, tape.tensor([1, 0, 1]), tape.tensor([1.0, 2.0, 3.0]), "amax").tolist()
    [2.0, 3.0]
    """
    axis = dim_of(input, dim)
    if indexed_calls.differ(index) and _reduced_by_mapped(
        input, along_key(input, axis, index), src, reduce, include_self, "scatter_reduce_"
    ):
        return input
    axis, at = _places(input, dim, index, "scatter_reduce")
    source = _source(input, at, tensor_of(src), "scatter_reduce")
    return _reduced(input, _numbers(input, axis, at), source, reduce, include_self, "scatter_reduce_")


def _reduced_by_mapped(
    x: Tensor, key: tuple[Any, ...], source: Any, reduce: str, include_self: bool, name: str
) -> bool:  # fmt: skip
    """Reduce by index tensors that differ between examples; False, with nothing done, where there are none."""
    values = reduce in _REDUCTIONS and reduced_by_mapped(x, key, source, reduce, include_self=include_self)
    if isinstance(values, Tensor):
        writes.check(x, name, reads=True)
        x.copy_(values)
    return isinstance(values, Tensor)


def _reduced(x: Tensor, numbers: Array, source: Tensor, reduce: str, include_self: bool, name: str) -> Tensor:
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"{name}: reduce argument must be one of {', '.join(_REDUCTIONS)}, got {reduce}")
    writes.check(x, name, reads=True)
    places = numbers.reshape(-1)
    if not places.size:
        return x
    if reduce not in ("sum", "mean"):
        flat = views.reshape(source, -1)
        for targets, values in reduced(x, places, flat, reduce, include_self=include_self):
            indexing.put(x, targets, values, name, apart=True)
        return x
    if not include_self:
        indexing.put(x, np.unique(places), 0, name, apart=True)
    indexing.put(x, numbers, source, name, adds=True)
    if reduce == "mean":
        counts = np.bincount(places, minlength=x.spec.size) + include_self
        divisor = np.maximum(counts, 1).reshape(x.spec.shape).astype(x.spec.dtype)
        x.copy_(x / divisor if x.spec.dtype.kind == "f" else np.floor_divide(x, divisor))
    return x


def _places(x: Tensor, dim: int, index: Any, name: str) -> tuple[int, Array]:
    axis, at = dim_of(x, dim), indexed_calls.integers(index, name)
    check_index(name, x, axis, at)
    indexed_calls.check_bounds(at, x.spec.shape[axis] if x.spec.shape else 1, axis, RuntimeError)
    return axis, at


def _numbers(x: Tensor, axis: int, at: Array) -> Array:
    return indexed_calls.along(x.spec.shape, axis, at if x.spec.shape else at.reshape(-1)[:1].reshape(()))


def _source(x: Tensor, at: Array, src: Tensor, name: str) -> Tensor:
    if src.spec.dtype != x.spec.dtype:
        raise RuntimeError(
            f"{name}(): Expected self.dtype to be equal to src.dtype, got {x.spec.dtype.name} and {src.spec.dtype.name}"
        )
    if not at.size:
        return views.reshape(indexing.index(views.reshape(src, -1), slice(0)), at.shape)
    if src.spec.shape == at.shape:
        return src if x.spec.shape else views.reshape(src, ())
    if len(src.spec.shape) != at.ndim or any(n > m for n, m in zip(at.shape, src.spec.shape, strict=True)):
        raise RuntimeError(
            f"{name}: Expected index {list(at.shape)} to be no larger than self {list(x.spec.shape)} apart from the "
            f"dimension of the places, and to be no larger size than src {list(src.spec.shape)}"
        )
    return indexing.index(src, tuple(slice(n) for n in at.shape))


@_both
@cached_call(scatter_call(across_dim, adds=True), marks=SCATTERS)
def index_add_(input: Tensor, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """Add ``alpha`` times the places of ``source`` along ``dim`` to those that a vector names, in place.

    ``source`` has the dtype of x, and its shape but for ``dim``, where it is as long as the vector of integers.

    >>> tape.zeros(2, 2).index_add_(0, tape.tensor([1, 1]), tape.ones(2, 2), alpha=0.5).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    writes.check(input, "index_add_", reads=True)
    axis = dim_of(input, dim)
    if _fits_rows(input, axis, index, source):
        key, added = (*[slice(None)] * axis, index), source if alpha == 1 else source * alpha
        if indexing.put_followed(input, key, added, "index_add_", adds=True, wraps=False):
            return input
    axis, at, rows = _rows(input, dim, index, source, "index_add_")
    numbers = indexed_calls.across(input.spec.shape, axis, at)
    return indexing.put(input, numbers, rows if alpha == 1 else rows * alpha, "index_add_", adds=True)


def _fits_rows(x: Tensor, axis: int, index: Any, source: Any, *, adds: bool = True) -> bool:
    """Whether a recorder follows an index vector, and rows have the shape and the dtype to be added by it."""
    followed = indexed_calls.is_followed(index, adds=adds)
    if not (followed and isinstance(source, Tensor)) or len(index.spec.shape) != 1:
        return False
    shape = (*x.spec.shape[:axis], *index.spec.shape, *x.spec.shape[axis + 1 :])
    return bool(x.spec.shape) and source.spec.shape == shape and source.spec.dtype == x.spec.dtype


@_both
@cached_call(scatter_call(across_dim), marks=SCATTERS)
def index_copy_(input: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """Write the places of ``source`` along ``dim`` to those that a vector names, in place; the last one stays.

    Shapes and dtypes are those of :func:`index_add_`.

    >>> tape.zeros(2, 2).index_copy_(1, tape.tensor([1]), tape.tensor([[3.0], [4.0]])).tolist()
    [[0.0, 3.0], [0.0, 4.0]]
    """
    axis = dim_of(input, dim)
    if _fits_rows(input, axis, index, source, adds=False):
        key = (*[slice(None)] * axis, index)
        if indexing.put_followed(input, key, source, "index_copy_", adds=False, wraps=False):
            return input
    axis, at, rows = _rows(input, dim, index, source, "index_copy_")
    kept = indexed_calls.last_ones(at, len(at) and int(at.max()) + 1)
    if kept is not None:
        at, rows = at[kept], picked_along(rows, axis, kept)
    numbers = indexed_calls.across(input.spec.shape, axis, at)
    return indexing.put(input, numbers, views.reshape(rows, numbers.shape), "index_copy_", apart=True)


@_both
def index_reduce_(
    input: Tensor, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Reduce the places of ``source`` along ``dim`` onto those that a vector names, in place.

    ``reduce`` is "prod", "mean", "amax" or "amin"; without ``include_self`` what stood there does not count.
    Shapes and dtypes are those of :func:`index_add_`.

    >>> tape.ones(2).index_reduce_(0, tape.tensor([1, 1]), tape.tensor([2.0, 3.0]), "prod").tolist()
    [1.0, 6.0]
    """
    if indexed_calls.differ(index):
        axis = dim_of(input, dim)
        key = (*[slice(None)] * axis, index) if _fits_rows(input, axis, index, source) else ()
        if _reduced_by_mapped(input, key, source, reduce, include_self, "index_reduce_"):
            return input
    axis, at, rows = _rows(input, dim, index, source, "index_reduce_")
    return _reduced(
        input, indexed_calls.across(input.spec.shape, axis, at), rows, reduce, include_self, "index_reduce_"
    )


@_both
def index_fill_(input: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """Write one number, or a 0-d tensor, to the places along ``dim`` that a vector names, in place.

    >>> tape.zeros(2, 3).index_fill_(1, tape.tensor([0, 2]), 7.0).tolist()
    [[7.0, 0.0, 7.0], [7.0, 0.0, 7.0]]
    """
    value = operand(value)
    if isinstance(value, Tensor) and value.spec.shape:
        raise RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{len(value.spec.shape)} dimension(s)."
        )
    key = (*[slice(None)] * dim_of(input, dim), index)
    if indexing.put_followed(input, key, value, "index_fill_", adds=False, wraps=True):
        return input
    axis, n, at = _vector(input, dim, index, "index_fill_", IndexError)
    places = np.unique(indexed_calls.wrapped(at, n, axis))
    return indexing.put(input, indexed_calls.across(input.spec.shape, axis, places), value, "index_fill_", apart=True)


def _vector(
    x: Tensor, dim: int, index: Any, name: str, error: type[Exception] = RuntimeError
) -> tuple[int, int, Array]:
    at = indexed_calls.integers(index, name, error)
    check_vector(name, at)
    axis = dim_of(x, dim)
    return axis, x.spec.shape[axis] if x.spec.shape else 1, at.reshape(-1)


def _rows(x: Tensor, dim: int, index: Any, source: Any, name: str) -> tuple[int, Array, Tensor]:
    axis, n, at = _vector(x, dim, index, name)
    src, shape = tensor_of(source), x.spec.shape
    if src.spec.dtype != x.spec.dtype:
        raise RuntimeError(
            f"{name}(): self ({x.spec.dtype.name}) and source ({src.spec.dtype.name}) must have the same scalar type"
        )
    have = src.spec.shape[axis] if src.spec.shape else 1
    if have != len(at):
        raise (IndexError if name == "index_copy_" else RuntimeError)(
            f"{name}(): Number of indices ({len(at)}) should be equal to source.size(dim): ({have}), for dim: {axis}"
        )
    wanted = tuple(len(at) if k == axis else m for k, m in enumerate(shape))
    if shape and src.spec.shape != wanted and (src.spec.shape or len(shape) > 1):
        raise RuntimeError(
            f"{name}(): source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(shape)} source.shape = {list(src.spec.shape)}"
        )
    indexed_calls.check_bounds(at, n, axis)
    return axis, at, src if src.spec.shape == wanted else views.reshape(src, wanted)


@with_name("masked_scatter")  # what it says of arguments is said of that
def _with_mask(x: Any, mask: Any, source: Any) -> Tensor:
    del source
    x, mask = tensor_of(x), tensor_of(mask)
    return views.expand(x, _merge("masked_scatter", x.spec.shape, mask.spec.shape))


@functools.partial(_both, whole=_with_mask)
def masked_scatter_(input: Tensor, mask: Any, source: Any) -> Tensor:
    """Write the first elements of ``source`` where a bool mask, broadcast to this shape, holds, in place.

    ``source`` has the dtype of x, and at least as many elements as the mask has places.

    >>> tape.zeros(3).masked_scatter_(tape.tensor([True, False, True]), tape.tensor([1.0, 2.0])).tolist()
    [1.0, 0.0, 2.0]
    """
    mask, source = tensor_of(mask), tensor_of(source)
    if mask.spec.dtype != np.bool_:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.spec.dtype.name}"
        )
    if source.spec.dtype != input.spec.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {input.spec.dtype.name} and "
            f"{source.spec.dtype.name}"
        )
    check_broadcast("masked_scatter_", (input, mask))
    writes.value_to_write(mask, input.spec.shape, np.dtype(np.bool_), "masked_scatter_")
    places = true_places(mask, input.spec.shape)
    if len(places) > source.spec.size:
        raise RuntimeError(
            "masked_scatter_: Number of elements of source < number of ones in mask: "
            f"{source.spec.size} < {len(places)}"
        )
    values = indexing.index(views.reshape(source, -1), slice(len(places)))
    return indexing.put(input, places, values, "masked_scatter_", apart=True)
