"""Values written to places that index tensors, masks and views name: in place, and into copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape import grouping, index_arrays, indexing, shaping, writing
from tape.dims import dim_of
from tape.fitting import array_like
from tape.operands import check_broadcast, operand
from tape.picking import check_index, check_vector, picked_along, true_places
from tape.public import implements, public
from tape.reducing import tensor_of
from tape.tensor import Array, Tensor, method

_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _both(in_place: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Install ``f_`` as a method, and ``f``, which writes into a copy, as a function and a method."""
    name = in_place.__name__.removesuffix("_")

    def function(x: Any, *args: Any, **kwargs: Any) -> Tensor:
        return in_place(shaping.clone(tensor_of(x)), *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (in_place.__doc__ or "").replace(", in place", ", in a copy", 1)
    function.__wrapped__ = in_place  # type: ignore[attr-defined]  # its signature
    public()(function)
    return method()(in_place)


@_both
def scatter_(
    x: Tensor, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Write ``src``, or one value, to the places ``x[index[i][j]][j]`` for dim 0 and so on, in place.

    The last of several values for one place stays; ``reduce`` "add" or "multiply" takes all of them. RuntimeError
    where index or src do not fit, or a place does not exist.
    """
    given = operand(src if value is None else value)
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError("scatter: reduce argument must be either add or multiply.")
    axis, at = _places(x, dim, index, "scatter")
    if reduce == "multiply":
        given = given if isinstance(given, Tensor) else tensor_of(np.full(at.shape, given, x.spec.dtype))
        return scatter_reduce_(x, dim, at, given, "prod")
    given = _source(x, at, given, "scatter") if isinstance(given, Tensor) and given.spec.shape else given
    return indexing.put(x, _numbers(x, axis, at), given, "scatter_", adds=reduce == "add")


@_both
def scatter_add_(x: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """Add ``src`` to the places ``x[index[i][j]][j]`` for dim 0 and so on, in place; all values for a place add up."""
    axis, at = _places(x, dim, index, "scatter_add")
    given = _source(x, at, tensor_of(src), "scatter_add")
    return indexing.put(x, _numbers(x, axis, at), given, "scatter_add_", adds=True)


@_both
def scatter_reduce_(x: Tensor, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """Reduce all values of ``src`` for a place, chosen as by :func:`scatter_`, to one, in place.

    ``reduce`` is "sum", "prod", "mean", "amax" or "amin"; without ``include_self`` what stood there does not count.
    Equal extrema share the gradient.
    """
    axis, at = _places(x, dim, index, "scatter_reduce")
    given = _source(x, at, tensor_of(src), "scatter_reduce")
    return _reduced(x, _numbers(x, axis, at), given, reduce, include_self, "scatter_reduce_")


def _reduced(x: Tensor, numbers: Array, given: Tensor, reduce: str, include_self: bool, name: str) -> Tensor:
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"{name}: reduce argument must be one of {', '.join(_REDUCTIONS)}, got {reduce}")
    writing.check(x, name, reads=True)
    places = numbers.reshape(-1)
    if not places.size:
        return x
    if reduce not in ("sum", "mean"):
        flat = shaping.reshape(given, -1)
        for targets, values in grouping.reduced(x, places, flat, reduce, include_self=include_self):
            indexing.put(x, targets, values, name, apart=True)
        return x
    if not include_self:
        indexing.put(x, np.unique(places), 0, name, apart=True)
    indexing.put(x, numbers, given, name, adds=True)
    if reduce == "mean":
        counts = np.bincount(places, minlength=x.spec.size) + include_self
        divisor = np.maximum(counts, 1).reshape(x.spec.shape).astype(x.spec.dtype)
        x.copy_(x / divisor if x.spec.dtype.kind == "f" else np.floor_divide(x, divisor))
    return x


def _places(x: Tensor, dim: int, index: Any, name: str) -> tuple[int, Array]:
    """Return an index, checked against a tensor, and the axis along which it counts."""
    axis, at = dim_of(x, dim), index_arrays.integers(index, name)
    check_index(name, x, axis, at)
    index_arrays.check_bounds(at, x.spec.shape[axis] if x.spec.shape else 1, axis, RuntimeError)
    return axis, at


def _numbers(x: Tensor, axis: int, at: Array) -> Array:
    return index_arrays.along(x.spec.shape, axis, at if x.spec.shape else at.reshape(-1)[:1].reshape(()))


def _source(x: Tensor, at: Array, src: Tensor, name: str) -> Tensor:
    """Return the part of a source that an index has the shape of."""
    if src.spec.dtype != x.spec.dtype:
        raise RuntimeError(
            f"{name}(): Expected self.dtype to be equal to src.dtype, got {x.spec.dtype.name} and {src.spec.dtype.name}"
        )
    if src.spec.shape == at.shape:
        return src if x.spec.shape else shaping.reshape(src, ())
    if len(src.spec.shape) != at.ndim or any(n > m for n, m in zip(at.shape, src.spec.shape, strict=True)):
        raise RuntimeError(
            f"{name}: Expected index {list(at.shape)} to be no larger than self {list(x.spec.shape)} apart from the "
            f"dimension of the places, and to be no larger size than src {list(src.spec.shape)}"
        )
    return indexing.index(src, tuple(slice(n) for n in at.shape))


@_both
def index_add_(x: Tensor, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """Add ``alpha`` times the places of ``source`` along ``dim`` to those that a vector names, in place."""
    axis, at, given = _rows(x, dim, index, source, "index_add_")
    numbers = index_arrays.across(x.spec.shape, axis, at)
    return indexing.put(x, numbers, given if alpha == 1 else given * alpha, "index_add_", adds=True)


@_both
def index_copy_(x: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """Write the places of ``source`` along ``dim`` to those that a vector names, in place; the last one stays."""
    axis, at, given = _rows(x, dim, index, source, "index_copy_")
    kept = index_arrays.last_ones(at, len(at) and int(at.max()) + 1)
    if kept is not None:
        at, given = at[kept], picked_along(given, axis, kept)
    numbers = index_arrays.across(x.spec.shape, axis, at)
    return indexing.put(x, numbers, shaping.reshape(given, numbers.shape), "index_copy_", apart=True)


@_both
def index_reduce_(x: Tensor, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Tensor:
    """Reduce the places of ``source`` along ``dim`` onto those that a vector names, in place.

    ``reduce`` is "prod", "mean", "amax" or "amin"; without ``include_self`` what stood there does not count.
    """
    axis, at, given = _rows(x, dim, index, source, "index_reduce_")
    return _reduced(x, index_arrays.across(x.spec.shape, axis, at), given, reduce, include_self, "index_reduce_")


@_both
def index_fill_(x: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """Write one number, or a 0-d tensor, to the places along ``dim`` that a vector names, in place."""
    value = operand(value)
    if isinstance(value, Tensor) and value.spec.shape:
        raise RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{len(value.spec.shape)} dimension(s)."
        )
    axis, n, at = _vector(x, dim, index, "index_fill_", IndexError)
    places = np.unique(index_arrays.wrapped(at, n, axis))
    return indexing.put(x, index_arrays.across(x.spec.shape, axis, places), value, "index_fill_", apart=True)


def _vector(
    x: Tensor, dim: int, index: Any, name: str, error: type[Exception] = RuntimeError
) -> tuple[int, int, Array]:
    """Return an axis, its extent, and a vector of places along it."""
    at = index_arrays.integers(index, name, error)
    check_vector(name, at)
    axis = dim_of(x, dim)
    return axis, x.spec.shape[axis] if x.spec.shape else 1, at.reshape(-1)


def _rows(x: Tensor, dim: int, index: Any, source: Any, name: str) -> tuple[int, Array, Tensor]:
    """Return an axis, places along it, and a source with as many."""
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
    index_arrays.check_bounds(at, n, axis)
    return axis, at, src if src.spec.shape == wanted else shaping.reshape(src, wanted)


@public()
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write values to the elements picked by a tuple of index tensors, in a copy; with ``accumulate`` add them."""
    return shaping.clone(tensor_of(x)).index_put_(indices, values, accumulate)


@_both
def masked_scatter_(x: Tensor, mask: Any, source: Any) -> Tensor:
    """Write the first elements of ``source`` where a bool mask, broadcast to this shape, holds, in place."""
    mask, source = tensor_of(mask), tensor_of(source)
    if mask.spec.dtype != np.bool_:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.spec.dtype.name}"
        )
    if source.spec.dtype != x.spec.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {x.spec.dtype.name} and "
            f"{source.spec.dtype.name}"
        )
    check_broadcast("masked_scatter_", (x, mask))
    writing.fitting(mask, x.spec.shape, np.dtype(np.bool_), "masked_scatter_")
    places = true_places(mask, x.spec.shape)
    if len(places) > source.spec.size:
        raise RuntimeError(
            "masked_scatter_: Number of elements of source < number of ones in mask: "
            f"{source.spec.size} < {len(places)}"
        )
    values = indexing.index(shaping.reshape(source, -1), slice(len(places)))
    return indexing.put(x, places, values, "masked_scatter_", apart=True)


@public(methods=False)
def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """Return a copy filled where a bool mask, broadcast together, holds with one number, or with a 0-d tensor."""
    return tensor_of(x).masked_fill(mask, value)


@public()
def slice_scatter(x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Return a copy with ``src`` in a slice along ``dim``."""
    result = shaping.clone(tensor_of(x))
    key = (slice(None),) * dim_of(result, dim) + (slice(start, end, step),)
    return _filled(result, indexing.index(result, key), src)


@public()
def select_scatter(x: Any, src: Any, dim: int, index: int) -> Tensor:
    """Return a copy with ``src`` at one place along ``dim``."""
    result = shaping.clone(tensor_of(x))
    return _filled(result, result.select(dim, index), src)


@public()
def diagonal_scatter(x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy with ``src`` on the diagonal of two dims."""
    result = shaping.clone(tensor_of(x))
    return _filled(result, result.diagonal(offset, dim1, dim2), src)


def _filled(result: Tensor, part: Tensor, src: Any) -> Tensor:
    src = tensor_of(src)
    if src.spec.shape != part.spec.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.spec.shape)}, "
            f"slice size = {list(part.spec.shape)}"
        )
    part.copy_(src)
    return result


@implements(np.put_along_axis)
def _put_along_axis(arr: Tensor, indices: Any, values: Any, axis: int | None) -> None:
    at = index_arrays.integers(indices, "np.put_along_axis", IndexError)
    if axis is None:
        _put(arr, at, values)
        return
    axis = dim_of(arr, axis)
    places = list(np.ogrid[tuple(map(slice, at.shape))])
    places[axis] = at
    arr[tuple(places)] = values


@implements(np.put)
def _put(a: Tensor, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write to the elements of these numbers; values too few are used over and over."""
    at = np.arange(a.spec.size).take(np.reshape(index_arrays.integers(ind, "np.put"), -1), mode=mode)  # type: ignore[call-overload]
    values: Any = np.resize(array_like(v), at.shape)
    indexing.put(a, at, values if values.spec.dtype == a.spec.dtype else values.to(a.spec.dtype), "np.put")


@implements(np.copyto)
def _copyto(dst: Tensor, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Copy values, broadcast, into a tensor, where a mask holds."""
    given = tensor_of(src)
    allowed = np.can_cast(given.spec.dtype, dst.spec.dtype, casting)  # type: ignore[arg-type]
    if not allowed and isinstance(src, (Tensor, np.ndarray)):
        raise TypeError(f"Cannot cast array data from {given.spec.dtype!r} to {dst.spec.dtype!r} by rule {casting!r}")
    dst.copy_(given if where is True else given.to(dst.spec.dtype).where(tensor_of(where), dst))
