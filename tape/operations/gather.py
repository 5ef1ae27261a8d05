"""Elements picked by index tensors and masks, and copies with elements replaced; NumPy's functions too."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernels.native.structs import GATHERS
from tape.operations import indexing, writes
from tape.operations.elementwise import FUNCTIONS, array_like
from tape.operations.sorting import escaped_values
from tape.recording import indexed_calls, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.indexed_calls import across_dim, along_dim, along_wide, at_places, gather_call, where_held
from tape.recording.parameters import dim_of
from tape.tensors.hooks import implements, public
from tape.tensors.operands import check_broadcast, operand, tensor_of
from tape.tensors.tensor import Array, Tensor, as_array, leaf


def picked_along(x: Tensor, axis: int, index: Array, name: str = "") -> Tensor:
    """Return copies of the places along an axis that a vector of valid indices names."""
    shape = x.spec.shape
    numbers = partial(indexed_calls.across, shape, axis, index)
    return indexing.pick(x, numbers, lambda array: array.take(index, axis), name)


def picked_flat(x: Tensor, index: Array, name: str = "") -> Tensor:
    """Return copies of the elements with these valid indices, counted in C order."""
    return indexing.pick(x, lambda: index, lambda array: array.reshape(-1).take(index), name)


@public()
@cached_call(gather_call(at_places), marks=GATHERS)
def take(input: Any, index: Any) -> Tensor:
    """Return the elements at these places of the flat tensor, in the shape of the index; negative from the end.

    >>> tape.take(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), tape.tensor([0, -1]))
    tensor([1., 4.])
    """
    input = tensor_of(input)
    if indexed_calls.is_followed(index):
        followed = indexing.pick_followed(views.reshape(input, -1), (index,))
        if followed is not None:
            return followed
    at, size = indexed_calls.integers(index, "take"), input.spec.size
    if at.size and not (-size <= at.min() and at.max() < size):
        wrong = at[(at < -size) | (at >= size)].reshape(-1)[0]
        raise IndexError(f"take: out of range: tried to access index {wrong} on a tensor of {size} elements.")
    return picked_flat(input, indexed_calls.wrapped(at, size, 0), "TakeBackward0")


@public()
@cached_call(gather_call(along_dim), marks=GATHERS)
def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Tensor:
    """Return ``input[i][index[i][j]]`` for dim 1 and so on: along ``dim`` the index says which place to take.

    The index has as many dims as x, and is no longer than x along the others. Where it is not an int64 or int32
    tensor, does not fit, or leaves x: RuntimeError.

    >>> tape.gather(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), 1, tape.tensor([[1], [0]])).tolist()
    [[2.0], [3.0]]
    """
    del sparse_grad
    input = tensor_of(input)
    axis, shape = dim_of(input, dim), input.spec.shape
    if (followed := _followed_along(input, axis, index, broadcasts=False)) is not None:
        return followed
    at = indexed_calls.integers(index, "gather")
    check_index("gather", input, axis, at)
    indexed_calls.check_bounds(at, shape[axis] if shape else 1, axis, RuntimeError)
    return _along(input, axis, at)


def _followed_along(x: Tensor, axis: int, index: Any, *, broadcasts: bool) -> Tensor | None:
    """Return what an index tensor takes along an axis, for a recorder that follows its values; see pick_followed.

    ``broadcasts``: in other dims it broadcasts with x, and counts negative ones from the end; else it may be shorter.
    """
    key = along_key(x, axis, index, broadcasts=broadcasts) if indexed_calls.is_followed(index) else ()
    return indexing.pick_followed(x, key, wraps=broadcasts) if key else None


def along_key(x: Tensor, axis: int, index: Tensor, *, broadcasts: bool = False) -> tuple[Any, ...]:
    """Return the key of all axes by which an index tensor takes along one; empty where the shapes do not fit."""
    shape = index.spec.shape
    if not 0 < len(shape) == len(x.spec.shape):
        return ()
    pairs = [(n, m) for k, (n, m) in enumerate(zip(shape, x.spec.shape, strict=True)) if k != axis]
    if any(n > m or (broadcasts and n < m) for n, m in pairs):
        return ()
    key = [np.arange(n).reshape([-1 if d == k else 1 for d in range(len(shape))]) for k, n in enumerate(shape)]
    return (*key[:axis], index, *key[axis + 1 :])


def _along(x: Tensor, axis: int, index: Array) -> Tensor:
    numbers = indexed_calls.along(x.spec.shape, axis, index)
    return picked_flat(x, numbers.reshape(index.shape), "GatherBackward0")


def check_index(name: str, x: Tensor, axis: int, index: Array, whose: str = "self") -> None:
    """Raise unless an index has as many dims as x, none of them longer, but for ``axis``; or no elements."""
    shape = x.spec.shape
    if not index.size:
        return
    if max(len(shape), 1) != max(index.ndim, 1):
        raise RuntimeError(
            f"{name}: Index tensor must have the same number of dimensions as {whose} tensor, got index "
            f"{list(index.shape)} and {whose} {list(shape)}"
        )
    if any(k != axis and n > m for k, (n, m) in enumerate(zip(index.shape, shape, strict=False))):
        raise RuntimeError(
            f"{name}: Size does not match: expected index {list(index.shape)} to be no larger than {whose} "
            f"{list(shape)} apart from dimension {axis}"
        )


@public()
@cached_call(gather_call(along_wide), marks=GATHERS)
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Tensor:
    """Return the elements that an index picks along ``dim``; x and index broadcast in the other dims.

    Without ``dim``: those of the flat tensor. Negative indices count from the end.

    >>> x = tape.tensor([[3.0, 1.0, 2.0]])
    >>> tape.take_along_dim(x, tape.argsort(x), 1)
    tensor([[1., 2., 3.]])
    """
    input = tensor_of(input)
    if dim is None:
        flat = views.reshape(indices, -1) if isinstance(indices, Tensor) else np.reshape(indices, -1)
        return take_along_dim(views.reshape(input, -1), flat, 0)
    followed = _followed_along(input, dim_of(input, dim), indices, broadcasts=True)
    if followed is not None:
        return followed
    at = indexed_calls.integers(indices, "take_along_dim")
    if at.ndim != len(input.spec.shape):
        raise RuntimeError(
            "take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{len(input.spec.shape)} dimensions for input, and {at.ndim} dimensions for indices"
        )
    axis = dim_of(input, dim)
    at = indexed_calls.wrapped(at, input.spec.shape[axis] if at.ndim else 1, axis)
    shapes = [tuple(1 if k == axis else n for k, n in enumerate(shape)) for shape in (input.spec.shape, at.shape)]
    try:
        shared = np.broadcast_shapes(*shapes)
    except ValueError:
        raise RuntimeError(
            f"take_along_dim(): shapes {list(input.spec.shape)} and {list(at.shape)} do not broadcast "
            f"apart from dim {axis}"
        ) from None
    wide, long = (
        tuple(shape[k] if k == axis else n for k, n in enumerate(shared)) for shape in (input.spec.shape, at.shape)
    )
    return _along(input if input.spec.shape == wide else views.expand(input, wide), axis, np.broadcast_to(at, long))


@public()
@cached_call(gather_call(across_dim), marks=GATHERS)
def index_select(input: Any, dim: int, index: Any) -> Tensor:
    """Return copies of the places along ``dim`` that an integer vector gives.

    >>> tape.index_select(tape.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), 0, tape.tensor([2, 0])).tolist()
    [[5.0, 6.0], [1.0, 2.0]]
    """
    input = tensor_of(input)
    axis, shape = dim_of(input, dim), input.spec.shape
    if isinstance(index, Tensor) and len(index.spec.shape) == 1 and shape:
        followed = indexing.pick_followed(input, (*[slice(None)] * axis, index), wraps=False)
        if followed is not None:
            return followed
    at = indexed_calls.integers(index, "index_select")
    check_vector("index_select", at)
    if at.size and not (at.min() >= 0 and at.max() < (shape[axis] if shape else 1)):
        raise IndexError(
            f"index_select: index out of range in self: {at[(at < 0) | (at >= (shape[axis] if shape else 1))][:1]} of "
            f"dimension {axis} of shape {list(shape)}"
        )
    return picked_along(input, axis, at.reshape(-1), "IndexSelectBackward0") if shape else views.clone(input)


def check_vector(name: str, index: Array) -> None:
    """Raise unless an index is a vector or a number."""
    if index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} and size: {list(index.shape)}"
        )


@public()
@cached_call(gather_call(where_held), marks=GATHERS)
def masked_select(input: Any, mask: Any) -> Tensor:
    """Return the elements where a bool mask holds, in one dim; x and mask broadcast.

    >>> x = tape.tensor([1.0, -2.0, 3.0])
    >>> tape.masked_select(x, x > 0)
    tensor([1., 3.])
    """
    input, mask = tensor_of(input), tensor_of(mask)
    if mask.spec.dtype != np.bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.spec.dtype.name}")
    check_broadcast("masked_select", (input, mask))
    shape = np.broadcast_shapes(input.spec.shape, mask.spec.shape)
    input = input if input.spec.shape == shape else views.expand(input, shape)
    return picked_flat(input, true_places(mask, shape), "MaskedSelectBackward0")


def true_places(mask: Tensor, shape: tuple[int, ...]) -> Array:
    """Return the indices in C order where a mask, broadcast, holds; a program being recorded notes an escape."""
    record.note_escape(mask)
    return np.flatnonzero(np.broadcast_to(as_array(mask), shape))


@public()
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """Return the int64 places of all elements that are not zero: a row each, or with ``as_tuple`` a vector a dim.

    >>> tape.nonzero(tape.tensor([[0.0, 1.0], [2.0, 0.0]])).tolist()
    [[0, 1], [1, 0]]
    """
    input = tensor_of(input)
    record.note_escape(input)
    array = as_array(input)
    if as_tuple:
        return tuple(leaf(at, requires_grad=False) for at in np.nonzero(array if array.ndim else array.reshape(1)))
    indices = np.argwhere(array) if array.ndim else np.zeros((int(array != 0), 0), np.int64)
    return leaf(np.ascontiguousarray(indices), requires_grad=False)


@public()
def argwhere(input: Any) -> Tensor:
    """Return the int64 places of all elements that are not zero, a row each.

    >>> tape.argwhere(tape.tensor([0.0, 1.0, 2.0])).tolist()
    [[1], [2]]
    """
    return nonzero(input)  # type: ignore[no-any-return]


implements(np.argwhere)(argwhere)


@implements(np.nonzero)
def _nonzero(a: Any) -> tuple[Tensor, ...]:
    if not tensor_of(a).spec.shape:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return nonzero(a, as_tuple=True)  # type: ignore[no-any-return]


implements(np.flatnonzero)(lambda a: nonzero(views.reshape(tensor_of(a), -1), as_tuple=True)[0])


@implements(np.take)
def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Tensor:
    if out is not None:
        raise TypeError("np.take of a tensor takes no out=; use out.copy_(np.take(...))")
    x = array_like(a)
    x, along = (views.reshape(x, -1), 0) if axis is None else (x, dim_of(x, axis))
    x = x if x.spec.shape else views.reshape(x, 1)
    if mode == "raise" and (followed := indexing.pick_followed(x, (*[slice(None)] * along, indices))) is not None:
        return followed
    at, n = indexed_calls.integers(indices, "np.take", TypeError), x.spec.shape[along]
    at = np.arange(n).take(at, mode=mode)  # type: ignore[call-overload]  # NumPy checks the mode and the bounds
    picked = picked_along(x, along, np.reshape(at, -1))
    return views.reshape(picked, (*x.spec.shape[:along], *np.shape(at), *x.spec.shape[along + 1 :]))


@implements(np.take_along_axis)
def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tensor:
    x = tensor_of(arr)
    at = indices if isinstance(indices, Tensor) else indexed_calls.integers(indices, "np.take_along_axis", IndexError)
    if at.dtype.kind not in "iu" and at.size:
        raise IndexError(f"np.take_along_axis(): Expected dtype int32/int64 for index, but got {at.dtype.name}")
    if axis is None and at.ndim != 1:
        raise ValueError("when axis=None, `indices` must have a single dimension.")
    if axis is not None and at.ndim != len(x.spec.shape):
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    return take_along_dim(x, at, axis)


@implements(np.compress)
def _compress(condition: Any, a: Any, axis: int | None = None) -> Tensor:
    x, kept = array_like(a), array_like(condition)
    record.note_escape(kept)
    if len(kept.spec.shape) != 1:
        raise ValueError("condition must be a 1-d array")
    x, along = (views.reshape(x, -1), 0) if axis is None else (x, dim_of(x, axis))
    at = np.flatnonzero(as_array(kept))
    indexed_calls.check_bounds(at, x.spec.shape[along], along)
    return picked_along(x, along, at)


implements(np.extract)(lambda condition, arr: _compress(views.reshape(array_like(condition), -1), arr))


@implements(np.select)
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Tensor:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        mask = operand(condition)
        if isinstance(mask, Tensor) and mask.spec.dtype != np.bool_:
            raise TypeError(f"np.select: should be boolean ndarray, not {mask.spec.dtype.name}")
        result = FUNCTIONS["where"](mask, choice, result)
    return result  # type: ignore[no-any-return]


@implements(np.piecewise)
def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Tensor:
    x = tensor_of(x)
    masks = _masks(x, condlist)
    if len(funclist) == len(masks) + 1:
        masks.append(~np.logical_or.reduce(masks))
    elif len(funclist) != len(masks):
        raise ValueError(
            f"with {len(masks)} condition(s), either {len(masks)} or {len(masks) + 1} functions are expected"
        )
    result = tensor_of(np.zeros(x.spec.shape, x.spec.dtype))
    for mask, function in zip(masks, funclist, strict=True):
        if mask.any():
            indexing.assign_at(result, mask, function(x[mask], *args, **kw) if callable(function) else function, "y[m]")
    return result


def _masks(x: Tensor, condlist: Any) -> list[Array]:
    if not isinstance(condlist, (list, tuple)) or (len(condlist) and isinstance(condlist[0], (bool, np.bool_))):
        condlist = condlist if isinstance(condlist, Tensor) and condlist.ndim > x.ndim else [condlist]
    masks = []
    for condition in condlist:
        record.note_escape(condition)
        masks.append(
            np.broadcast_to(
                np.asarray(as_array(condition) if isinstance(condition, Tensor) else condition, bool), x.spec.shape
            )
        )
    return masks


@public()
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write values to the elements picked by a tuple of index tensors, in a copy; with ``accumulate`` add them.

    >>> tape.index_put(tape.zeros(3), (tape.tensor([1, 1]),), tape.tensor([2.0, 3.0]), accumulate=True).tolist()
    [0.0, 5.0, 0.0]
    """
    return views.clone(tensor_of(input)).index_put_(indices, values, accumulate)


@public()
def slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Return a copy with ``src``, of the shape of the slice, in a slice along ``dim``.

    >>> tape.slice_scatter(tape.zeros(4), tape.ones(2), 0, start=1, end=3).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    result = views.clone(tensor_of(input))
    key = (slice(None),) * dim_of(result, dim) + (slice(start, end, step),)
    return _filled(result, indexing.index(result, key), src)


@public()
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Tensor:
    """Return a copy with ``src``, which has no such dim, at one place along ``dim``.

    >>> tape.select_scatter(tape.zeros(2, 2), tape.ones(2), dim=1, index=0).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    result = views.clone(tensor_of(input))
    return _filled(result, result.select(dim, index), src)


@public()
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy with ``src`` on the diagonal of two dims; it has the shape of :func:`diagonal`.

    >>> tape.diagonal_scatter(tape.zeros(2, 2), tape.tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    result = views.clone(tensor_of(input))
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
    at = indexed_calls.integers(indices, "np.put_along_axis", IndexError)
    if axis is None:
        _put(arr, at, values)
        return
    axis = dim_of(arr, axis)
    places = list(np.ogrid[tuple(map(slice, at.shape))])
    places[axis] = at
    arr[tuple(places)] = values


@implements(np.put)
def _put(a: Tensor, ind: Any, v: Any, mode: str = "raise") -> None:
    at = np.arange(a.spec.size).take(np.reshape(indexed_calls.integers(ind, "np.put"), -1), mode=mode)  # type: ignore[call-overload]
    values: Any = np.resize(array_like(v), at.shape)
    indexing.put(a, at, values if values.spec.dtype == a.spec.dtype else values.to(a.spec.dtype), "np.put")


@implements(np.copyto)
def _copyto(dst: Tensor, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    source = tensor_of(src)
    allowed = np.can_cast(source.spec.dtype, dst.spec.dtype, casting)  # type: ignore[arg-type]
    if not allowed and isinstance(src, (Tensor, np.ndarray)):
        raise TypeError(f"Cannot cast array data from {source.spec.dtype!r} to {dst.spec.dtype!r} by rule {casting!r}")
    dst.copy_(source if where is True else source.to(dst.spec.dtype).where(tensor_of(where), dst))


@implements(np.place)
def _place(arr: Tensor, mask: Any, vals: Any) -> None:
    at, values = _masked(arr, mask, np.place.__name__), array_like(vals)
    if at.size and not values.spec.size:
        raise ValueError("Cannot insert from an empty array!")
    if at.size:
        _put(arr, at, values)


@implements(np.putmask)
def _putmask(a: Tensor, mask: Any, values: Any) -> None:
    at, source = _masked(a, mask, np.putmask.__name__), array_like(values)
    if at.size and source.spec.size:
        _put(a, at, indexing.index(views.reshape(source, -1), at % source.spec.size))


def _masked(x: Tensor, mask: Any, name: str) -> Array:
    writes.check(x, name)
    truth = escaped_values(array_like(mask).detach(), name).reshape(-1)
    if truth.size != x.spec.size:
        raise ValueError(f"{name}: mask and data must be the same size; the shape of the data is {list(x.spec.shape)}")
    return np.flatnonzero(truth)
