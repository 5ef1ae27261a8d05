"""Joining and padding, PyTorch's and NumPy's."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tape.operations import gather, indexing, reductions
from tape.operations.copied_views import of_rank
from tape.operations.elementwise import array_like, cast_by_rule
from tape.operations.rearranging import part
from tape.recording import creation, indexed_calls, record, views
from tape.recording.parameters import dim_of, ints_of
from tape.recording.promotion import alike, tensors_of
from tape.tensors.hooks import NUMPY, implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Array, Tensor, as_array

_MATRIX, _BOX = 2, 3


def _ranked(tensors: Any, rank: int, name: str) -> list[Tensor]:
    ranked = [of_rank(x, rank) for x in tensors_of(*tensors)]
    if not ranked:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return ranked


@public(methods=False)
def hstack(tensors: Any) -> Tensor:
    """Join tensors along the columns; vectors and numbers end to end.

    >>> tape.hstack((tape.tensor([1.0, 2.0]), tape.tensor([3.0])))
    tensor([1., 2., 3.])
    """
    parts = _ranked(tensors, 1, "hstack")
    return views.cat(parts, 0 if len(parts[0].spec.shape) == 1 else 1)


@public("row_stack", methods=False)
def vstack(tensors: Any) -> Tensor:
    """Join tensors along the rows; a vector is one row.

    >>> tape.vstack((tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return views.cat(_ranked(tensors, _MATRIX, "vstack"), 0)


@public(methods=False)
def dstack(tensors: Any) -> Tensor:
    """Join tensors along the third dim; a matrix has one place there, and a vector is one row of such.

    >>> tape.dstack((tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))).tolist()
    [[[1.0, 3.0], [2.0, 4.0]]]
    """
    return views.cat(_ranked(tensors, _BOX, "dstack"), 2)


@public(methods=False)
def column_stack(tensors: Any) -> Tensor:
    """Join tensors along the columns; a vector or a number is one column.

    >>> tape.column_stack((tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    columns = tensors_of(*tensors)
    return hstack([views.reshape(x, -1, 1) if len(x.spec.shape) < _MATRIX else x for x in columns])


@public(methods=False)
def block_diag(*tensors: Any) -> Tensor:
    """Return a matrix with matrices along its diagonal, and zeros elsewhere; a vector is one row.

    >>> tape.block_diag(tape.ones(1, 2), tape.tensor([[3.0]])).tolist()
    [[1.0, 1.0, 0.0], [0.0, 0.0, 3.0]]
    """
    matrices = alike(*tensors) if tensors else [creation.zeros(1, 0)]
    for k, x in enumerate(matrices):
        if len(x.spec.shape) > _MATRIX:
            raise RuntimeError(
                "block_diag: Input tensors must have 2 or fewer dimensions. "
                f"Input {k} has {len(x.spec.shape)} dimensions"
            )
    blocks = [of_rank(x, _MATRIX) for x in matrices]
    width, left, rows = sum(b.spec.shape[1] for b in blocks), 0, []
    for b in blocks:
        n, m = b.spec.shape
        before, after = (creation.zeros(n, k, dtype=b.spec.dtype) for k in (left, width - left - m))
        rows.append(views.cat([before, b, after], 1))
        left += m
    return views.cat(rows, 0)


implements(np.hstack)(lambda tup, *, dtype=None, casting="same_kind": _stacked(hstack, tup, dtype, casting))
implements(np.vstack)(lambda tup, *, dtype=None, casting="same_kind": _stacked(vstack, tup, dtype, casting))


def _stacked(join: Any, tup: Any, dtype: Any, casting: str) -> Tensor:
    parts = [cast_by_rule(array_like(x), dtype, casting) for x in tup]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    return join(parts)  # type: ignore[no-any-return]


implements(np.dstack)(lambda tup: _stacked(dstack, tup, None, ""))
implements(np.column_stack)(lambda tup: _stacked(column_stack, tup, None, ""))


@implements(np.append)
def _append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    x, more = array_like(arr), array_like(values)
    if axis is None:
        return views.cat([views.reshape(x, -1), views.reshape(more, -1)])
    return views.cat([x, more], axis)


@implements(np.delete)
def _delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    x, at = _along(arr, axis)
    kept = np.delete(np.arange(x.spec.shape[at]), _places(obj))
    return gather.picked_along(x, at, kept)


@implements(np.insert)
def _insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    x, at = _along(arr, axis)
    places, new = _places(obj), array_like(values)
    rank, n = len(x.spec.shape), x.spec.shape[at]
    count = np.insert(np.arange(n), places, -1).size - n
    single = not isinstance(places, slice) and np.ndim(places) == 0
    if single and new.spec.shape:  # NumPy: the first dim of the values is the one inserted along
        new = views.reshape(new, (*(1,) * (rank - len(new.spec.shape)), *new.spec.shape))
        new = new.movedim(0, at)
        count = new.spec.shape[at]
    shape = tuple(count if k == at else m for k, m in enumerate(x.spec.shape))
    whole = views.cat([x, views.expand(new, shape).to(x.spec.dtype)], at)
    order = np.insert(np.arange(n), np.full(count, places) if single else places, n + np.arange(count))
    return gather.picked_along(whole, at, order)


def _along(arr: Any, axis: int | None) -> tuple[Tensor, int]:
    x = array_like(arr)
    return (views.reshape(x, -1), 0) if axis is None else (x, dim_of(x, axis))


def _places(obj: Any) -> Any:
    """Return where to insert or delete: an int, a slice, or an array, also of bools."""
    if isinstance(obj, (slice, int, np.integer)):
        return obj
    if isinstance(obj, Tensor):  # as an array: NumPy's uint8 are integers
        record.note_escape(obj)
        obj = as_array(obj)
    return indexed_calls.array_key(obj)[0]


@implements(np.block)
def _block(arrays: Any) -> Tensor:
    depth = _depth(arrays)
    rank = max([depth, *(len(x.spec.shape) for x in _flat(arrays))])
    return _joined(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    return 1 + max(map(_depth, arrays), default=0) if isinstance(arrays, list) else 0


def _flat(arrays: Any) -> list[Tensor]:
    return [x for item in arrays for x in _flat(item)] if isinstance(arrays, list) else [tensor_of(arrays)]


def _joined(arrays: Any, depth: int, rank: int) -> Tensor:
    if not isinstance(arrays, list):
        x = tensor_of(arrays)
        return views.reshape(x, ((1,) * (rank - len(x.spec.shape)) + x.spec.shape))
    if not arrays:
        raise ValueError("List of blocks cannot be empty")
    return views.cat([_joined(item, depth - 1, rank) for item in arrays], rank - depth)


@implements(np.apply_along_axis)
def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Call a function of each vector along an axis; the dims of its results take the place of the axis."""
    x = array_like(arr)
    at = dim_of(x, axis)
    rows = x.movedim(at, -1)
    lead = rows.spec.shape[:-1]
    if not all(lead):
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    results = [array_like(func1d(rows[place], *args, **kwargs)) for place in np.ndindex(lead)]
    shape = results[0].spec.shape
    wide = views.reshape(views.stack(results), (*lead, *shape))
    order = (*range(at), *range(len(lead), len(lead) + len(shape)), *range(at, len(lead)))
    return views.permute(wide, order)


Widths = list[tuple[int, int]]
_COPYING = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""PyTorch's modes that copy elements, and what NumPy calls them."""


@public(methods=False)
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Return the tensor with places put before and behind, as ``torch.nn.functional.pad`` does.

    ``pad`` holds a pair of widths for the last dim, then for the one before, and so on; what is negative is cut off.
    ``mode`` fills with ``value`` ("constant"), or copies: "reflect" without the border, "replicate" the border,
    "circular" from the other end. RuntimeError where the widths do not fit the shape.

    >>> tape.pad(tape.tensor([1.0, 2.0, 3.0]), (1, 2))
    tensor([0., 1., 2., 3., 0., 0.])
    >>> tape.pad(tape.tensor([1.0, 2.0, 3.0]), (1, 1), "reflect")
    tensor([2., 1., 2., 3., 2.])
    """
    input, amounts = tensor_of(input), ints_of((pad,))
    shape = input.spec.shape
    if len(amounts) % 2:
        raise RuntimeError(f"pad: Padding length must be divisible by 2, got {len(amounts)}")
    if len(amounts) > 2 * len(shape):
        raise RuntimeError(
            "pad: Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(amounts)} and input of dimension {len(shape)}"
        )
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    widths = [(0, 0)] * (len(shape) - len(pairs)) + pairs
    if mode == "constant":
        x = source = _cropped(input, widths)
        for axis, pair in enumerate(_positive(widths)):
            x = _with_ends(x, axis, *(_pad_block(x, axis, width, 0 if value is None else value) for width in pair))
        return views.clone(x) if x is source else x
    if mode not in _COPYING:
        raise NotImplementedError(f"pad: Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'pad: Padding mode "{mode}" doesn\'t take in value argument')
    if mode == "circular":  # what is cut off does not come back at the other end
        input, widths = _cropped(input, widths), _positive(widths)
    _check_copied(mode, input.spec.shape, widths)
    return _cropped(_copied(input, _positive(widths), _COPYING[mode]), widths)


def _positive(widths: Widths) -> Widths:
    return [(max(a, 0), max(b, 0)) for a, b in widths]


def _cropped(x: Tensor, widths: Widths) -> Tensor:
    for axis, (a, b) in enumerate(widths):
        n = x.spec.shape[axis]
        if n + a + b < 0 or n + min(a, 0) + min(b, 0) < 0:
            raise RuntimeError(
                f"pad: The input size {n}, plus negative padding {a} and {b} resulted in a negative output size, which "
                f"is invalid. Check dimension {axis} of your input."
            )
        if min(a, b) < 0:
            x = part(x, axis, -min(a, 0), n + min(b, 0))
    return x


def _check_copied(mode: str, shape: tuple[int, ...], widths: Widths) -> None:
    for axis, (n, pair) in enumerate(zip(shape, widths, strict=True)):
        if mode == "reflect" and max(pair) >= max(n, 1):
            raise RuntimeError(
                "pad: Padding size should be less than the corresponding input dimension, but got: padding "
                f"{pair} at dimension {axis} of input {list(shape)}"
            )
        if mode == "circular" and max(pair) > n:
            raise RuntimeError(
                f"pad: Padding value causes wrapping around more than once: padding {pair} at dimension {axis} of "
                f"input {list(shape)}"
            )
        if mode == "replicate" and n == 0 and max(pair) > 0:
            raise RuntimeError(f"pad: Expected non-empty dimension {axis} for replication, got shape {list(shape)}")


def _copied(x: Tensor, widths: Widths, mode: str) -> Tensor:
    """Let NumPy pad the values; if they are recorded, also the indices of the elements, which say what was copied."""
    if not any(map(any, widths)):
        return views.clone(x)
    shape, size = x.spec.shape, x.spec.size

    def numbers() -> Array:
        return np.pad(np.arange(size).reshape(shape), widths, mode)  # type: ignore[call-overload,no-any-return]

    return indexing.pick(x, numbers, lambda array: np.pad(array, widths, mode))  # type: ignore[call-overload]


def _pad_block(x: Tensor, axis: int, width: int, value: Any) -> Tensor | None:
    if not width:
        return None
    shape = tuple(width if k == axis else n for k, n in enumerate(x.spec.shape))
    if isinstance(value, Tensor):
        return views.expand(value if value.spec.dtype == x.spec.dtype else value.to(x.spec.dtype), shape)
    return creation.full(shape, value, dtype=x.spec.dtype)


def _with_ends(x: Tensor, axis: int, before: Tensor | None, behind: Tensor | None) -> Tensor:
    parts = [p for p in (before, x, behind) if p is not None]
    return views.cat(parts, axis) if len(parts) > 1 else x


@implements(np.pad)
def _pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Tensor:
    x = tensor_of(array)
    widths = _widths(pad_width, len(x.spec.shape))
    if min((min(pair) for pair in widths), default=0) < 0:
        raise ValueError("index can't contain negative values")
    if mode in ("constant", "empty"):
        return _ends(
            x, widths, _pairs(kwargs.pop("constant_values", 0) if mode == "constant" else 0, x, kwargs), _constant
        )
    if mode in ("edge", "wrap") or (mode in ("reflect", "symmetric") and kwargs.pop("reflect_type", "even") == "even"):
        _nothing_left(mode, kwargs)
        return _copied(x, widths, mode)
    if mode == "linear_ramp":
        return _ends(x, widths, _pairs(kwargs.pop("end_values", 0), x, kwargs), _ramp)
    if mode in _STATISTICS:
        lengths = _pairs(kwargs.pop("stat_length", None), x, kwargs)
        return _ends(x, widths, lengths, functools.partial(_statistic, _STATISTICS[mode]))
    raise TypeError(f"np.pad of a tensor has no mode {mode!r} with these arguments; compose it of other modes")


def _nothing_left(mode: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {set(kwargs)}")


def _widths(widths: Any, rank: int) -> Widths:
    if isinstance(widths, dict):
        named = {axis % rank: pair for axis, pair in widths.items()}
        widths = [named.get(axis, (0, 0)) for axis in range(rank)]
        widths = [(pair, pair) if isinstance(pair, (int, np.integer)) else pair for pair in widths]
    wide = np.broadcast_to(np.asarray(widths), (rank, 2))
    if wide.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    return [(int(a), int(b)) for a, b in wide]


def _pairs(values: Any, x: Tensor, kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    _nothing_left("this", kwargs)
    if isinstance(values, Tensor):
        if values.spec.shape:
            raise TypeError("np.pad: a tensor for the ends is one number, of no dims")
        return [(values, values)] * len(x.spec.shape)
    wide = np.broadcast_to(np.asarray(values, object if values is None else None), (len(x.spec.shape), 2))
    return [(a, b) for a, b in wide.tolist()]


def _ends(x: Tensor, widths: Widths, values: list[tuple[Any, Any]], make: Any) -> Tensor:
    source = x
    for axis, (pair, limits) in enumerate(zip(widths, values, strict=True)):
        ends = [
            make(x, axis, w, limit, behind=bool(k)) if w else None
            for k, (w, limit) in enumerate(zip(pair, limits, strict=True))
        ]
        x = _with_ends(x, axis, *ends)
    return views.clone(x) if x is source else x


def _constant(x: Tensor, axis: int, width: int, value: Any, *, behind: bool) -> Tensor | None:
    del behind
    return _pad_block(x, axis, width, value)


def _ramp(x: Tensor, axis: int, width: int, end: Any, *, behind: bool) -> Tensor:
    """Return steps of one height from the border to a value, which is the last."""
    n = x.spec.shape[axis]
    edge = part(x, axis, n - 1, n) if behind else part(x, axis, 0, 1)
    steps = np.arange(1, width + 1) if behind else np.arange(width, 0, -1)
    slope = steps.reshape([-1 if k == axis else 1 for k in range(len(x.spec.shape))]) / width
    return edge + (end - edge) * slope.astype(x.spec.dtype, copy=False)  # type: ignore[no-any-return]


def _median(x: Tensor, axis: int, keepdims: bool) -> Any:
    return NUMPY[np.median](x, axis, keepdims=keepdims)


_STATISTICS = {"maximum": reductions.amax, "minimum": reductions.amin, "mean": reductions.mean, "median": _median}


def _statistic(reduce: Any, x: Tensor, axis: int, width: int, length: Any, *, behind: bool) -> Tensor:
    n = x.spec.shape[axis]
    count = n if length is None else min(int(length), n)
    if count < 1:
        raise ValueError(f"np.pad: stat_length of {length} yields no value for padding")
    source = part(x, axis, n - count, n) if behind else part(x, axis, 0, count)
    rounds = x.spec.dtype.kind in "iu" and reduce in (reductions.mean, _median)
    value = reduce(source.double() if rounds else source, axis, True)
    value = value.round().to(x.spec.dtype) if rounds else value
    return views.expand(value, tuple(width if k == axis else m for k, m in enumerate(x.spec.shape)))
