"""Elements picked by arrays, lists and masks: which these are, and what of it native code repeats."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kernels.call_cache.entries import LARGEST, GatherPlan, IndexAxis, Key, arguments, cache_call, gather_computation
from kernels.foundation.specs import Spec, Strides, dense
from kernels.kinds.form import Form
from kernels.kinds.views import Gather
from tape.recording import record, views
from tape.recording.cached_calls import Miss
from tape.tensors import modes
from tape.tensors.bytecode import stack_level
from tape.tensors.modes import Observer
from tape.tensors.operands import as_ndarray
from tape.tensors.tensor import Array, Tensor, as_array

# Indices with arrays of integers or booleans: NumPy's meaning, and the places that they pick as numbers.


def array_key(key: Any) -> tuple[Any, ...]:
    """Return an index as NumPy takes it: arrays for tensors and lists. IndexError for other dtypes."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple(map(_item, items))


def _item(key: Any) -> Any:
    if key is None or key is Ellipsis or isinstance(key, (slice, int, np.integer)):
        return key
    if isinstance(key, Tensor):
        record.note_escape(key)
        key = as_array(key) != 0 if is_byte_mask(key) else as_array(key)
    array = as_ndarray(key)
    if array.size == 0 and array.dtype.kind == "f" and not isinstance(key, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iub":
        raise IndexError(f"tensors used as indices must be integer or bool tensors, not {array.dtype.name}")
    return array


def is_byte_mask(index: Any) -> bool:
    """Whether an index is a uint8 tensor, which is a mask as in PyTorch.

    In functions that were given NumPy arrays it is integers, as in NumPy.
    """
    return isinstance(index, Tensor) and index._form.spec.dtype == np.uint8 and not modes.given_arrays()


def warn_of_bytes(items: Iterable[Any]) -> None:
    """Warn of uint8 tensors as indices, whose meaning differs between PyTorch and NumPy."""
    if any(isinstance(item, Tensor) and item._form.spec.dtype == np.uint8 for item in items):
        meaning, other = "integers, as in NumPy", "of another integer dtype for integers, or bool for a mask"
        if not modes.given_arrays():
            meaning, other = "a mask, as in PyTorch", "bool for a mask, or of another integer dtype for integers"
        warnings.warn(f"a uint8 tensor as an index is {meaning}; make it {other}", stacklevel=stack_level())


def integers(index: Any, name: str, error: type[Exception] = RuntimeError) -> Array:
    """Return an index, a tensor, an array or a list of integers, as int64. ``error`` where it holds something else.

    Recorders note an escape: they cannot follow the values.
    """
    if isinstance(index, Tensor):
        record.note_escape(index)
    array = as_array(index) if isinstance(index, Tensor) else as_ndarray(index)
    if array.dtype.kind not in "iu" and array.size:
        raise error(f"{name}(): Expected dtype int32/int64 for index, but got {array.dtype.name}")
    return array.astype(np.int64, copy=False)


def check_bounds(index: Array, n: int, axis: int, error: type[Exception] = IndexError, *, below: int = 0) -> None:
    """Raise unless ``below <= index < n`` everywhere."""
    if index.size and not (below <= index.min() and index.max() < n):
        wrong = index[(index < below) | (index >= n)].reshape(-1)[0]
        raise error(f"index {wrong} is out of bounds for dimension {axis} with size {n}")


def wrapped(index: Array, n: int, axis: int, error: type[Exception] = IndexError) -> Array:
    """Return an index with negative ones counted from the end; raise where it is out of bounds."""
    if not index.size or (index.min() >= 0 and index.max() < n):
        return index
    check_bounds(index, n, axis, error, below=-n)
    return np.where(index < 0, index + n, index)


def along(shape: Strides, axis: int, index: Array) -> Array:
    """Return the numbers, in C order, of the elements that an index of as many axes takes along one of them."""
    if not index.size:
        return np.zeros(index.shape, np.int64)
    steps = dense(shape, 1)
    return _spread(index * steps[axis] if shape else index, [0 if k == axis else s for k, s in enumerate(steps)])


def across(shape: Strides, axis: int, index: Array) -> Array:
    """Return the numbers, in C order, of all elements at the places along an axis that a vector gives."""
    extents = [len(index) if k == axis else n for k, n in enumerate(shape)]
    wide = index.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return along(shape, axis, np.broadcast_to(wide, extents)) if shape else index[0] if len(index) else index


def _spread(numbers: Array, steps: Sequence[int]) -> Array:
    """Add the contribution of each axis, its places times its step, to numbers of elements."""
    for k, step in enumerate(steps):
        if step and numbers.shape[k] > 1:
            numbers = numbers + _numbers(numbers.shape[k], step).reshape(
                [-1 if d == k else 1 for d in range(numbers.ndim)]
            )
    return np.asarray(numbers, np.int64, order="C")


def places(spec: Spec, strides: Strides, key: tuple[Any, ...]) -> Array:
    """Return which elements an index picks, as numbers of elements by these strides; C-contiguous int64."""
    steps = [stride // spec.dtype.itemsize for stride in strides]
    adjacent = _adjacent(spec.shape, key)
    return _by_numpy(spec.shape, steps, key) if adjacent is None else _summed(spec.shape, steps, *adjacent)


def _adjacent(shape: Strides, key: tuple[Any, ...]) -> tuple[int, tuple[Array, ...]] | None:
    """Return the first axis indexed by arrays, and the arrays, if all other axes are taken whole; else None."""
    lead = next((k for k, item in enumerate(key) if not _whole(item)), len(key))
    arrays = key[lead:]
    while arrays and (arrays[-1] is Ellipsis or _whole(arrays[-1])):
        arrays = arrays[:-1]
    if not arrays or not all(isinstance(a, np.ndarray) for a in arrays):
        return None
    if arrays[0].dtype == np.bool_:
        mask = arrays[0]
        if len(arrays) > 1 or not mask.ndim or mask.shape != shape[lead : lead + mask.ndim]:
            return None
        arrays = np.nonzero(mask)
    if lead + len(arrays) > len(shape) or any(a.dtype.kind == "b" for a in arrays):
        return None
    return lead, arrays


def _whole(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _summed(shape: Strides, steps: Sequence[int], lead: int, arrays: tuple[Array, ...]) -> Array:
    """Add up what each array and each whole axis contributes."""
    total: Any = 0
    for axis, array in enumerate(arrays, lead):
        index = wrapped(array.astype(np.int64, copy=False), shape[axis], axis)
        try:
            total = total + index * steps[axis]
        except ValueError:
            shapes = ", ".join(str(list(a.shape)) for a in arrays)
            raise IndexError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
            ) from None
    rest = lead + len(arrays)
    before, after = shape[:lead], shape[rest:]
    total = np.asarray(total)
    if not before and not after:
        return np.asarray(total, np.int64, order="C")
    wide = np.broadcast_to(
        total.reshape(*(1,) * lead, *total.shape, *(1,) * len(after)), (*before, *total.shape, *after)
    )
    return _spread(wide, [*steps[:lead], *(0,) * total.ndim, *steps[rest:]])


def _by_numpy(shape: Strides, steps: Sequence[int], key: tuple[Any, ...]) -> Array:
    """Let NumPy index the number of each element.

    Each axis numbers its places in an array that takes no memory but along that axis.
    """
    total: Array | None = None
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        numbers = _numbers(n, step)
        apart = [0] * len(shape)
        apart[axis] = numbers.strides[0]
        part = picked(np.lib.stride_tricks.as_strided(numbers, shape, apart, writeable=False), key)
        total = part if total is None else total + part
    return np.asarray(picked(np.zeros((), np.int64), key) if total is None else total, np.int64, order="C")


@functools.lru_cache(64)
def _numbers(n: int, step: int) -> Array:
    return np.arange(n) * step


def picked(array: Array, key: tuple[Any, ...]) -> Array:
    """Return the elements that an index picks, copied, in C order."""
    try:
        return np.asarray(array[key], order="C")
    except IndexError as error:
        text = str(error).replace("axis", "dimension").replace("array", "tensor")
        raise IndexError(f"index: {text}; the tensor has shape {list(array.shape)}") from None


def last_ones(numbers: Array, size: int) -> Array | None:
    """Return the last occurrence of each of some numbers below ``size``; None if none is repeated."""
    numbers = numbers.reshape(-1)
    count = len(numbers)
    if count < _TWO:
        return None
    if size > _SPARSE * count:
        distinct, first = np.unique(numbers[::-1], return_index=True)
        return None if len(distinct) == count else np.sort(count - 1 - first)
    order = np.arange(count)
    last = np.empty(size, np.int64)
    last[numbers] = order  # NumPy writes in order, so the last one stays
    kept = last[numbers] == order
    return None if kept.all() else np.flatnonzero(kept)


_TWO = 2
_SPARSE = 64
"""From this ratio of possible to actual numbers on they are sorted, rather than entered in a table of all."""


Plan = Callable[..., GatherPlan | None]


def gather_call(plan: Plan) -> Miss:
    """Return what makes and enters calls that pick elements, of tensors whose elements stand in C order."""

    def in_order(spec: Spec, *args: Any) -> GatherPlan | None:
        return plan(spec, *args) if spec.strides == dense(spec.shape, spec.dtype.itemsize) else None

    def miss(function: Callable[..., Any], number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = function(*args, **named)
        if args and not named:
            cache_gather(number, result, args, in_order)
        return result

    return miss


def cache_gather(number: int, result: Any, args: tuple[Any, ...], plan: Plan) -> None:
    """Enter a call that has picked elements of a tensor, the first argument, as ``plan(spec, *others)`` says."""
    x = args[0]
    if type(x) is not Tensor or type(result) is not Tensor or not 0 < result.spec.size <= LARGEST:
        return
    if modes.unobserved_tape() is None or not x.spec.shape or not x.spec.size or x.spec.strides != x.spec.gradient:
        return
    form, wanted = result._form, bool(modes.active()) and x._slot is not None
    recorded = type(form) is Form and isinstance(form.op, Gather) and type(result._slot) is int
    if recorded is not wanted or result.spec.strides != dense(result.spec.shape, result.spec.dtype.itemsize):
        return
    asked = arguments(args[1:], {}, indexed=True)
    picks = plan(x.spec, *args[1:]) if asked is not None and asked.arrays else None
    how = None if picks is None else gather_computation(picks, form.spec)
    if how is not None:
        cache_call(Key(number, (x._form,), (wanted,)), form, how, asked=asked)


def by_index(spec: Spec, key: Any) -> GatherPlan | None:
    """Plan ``x[key]``: the places with all arrays zero, and what each array adds to them."""
    keys = array_key(key)
    arrays = [k for k, item in enumerate(keys) if isinstance(item, np.ndarray)]
    masks = [k for k in arrays if keys[k].dtype == np.bool_]
    if any(not keys[k].ndim for k in arrays) or (masks and (len(arrays) > 1 or masks[0])):
        return None
    picked = places(spec, spec.strides, keys)
    if masks:
        mask = keys[0]
        base = places(spec, spec.strides, (np.ones_like(mask), *keys[1:]))
        if len(base) != mask.size or not np.array_equal(base[mask.reshape(-1)], picked):
            return None
        return GatherPlan(base, inner=base.size // mask.size)
    return _by_arrays(spec, keys, arrays, picked)


def by_items(spec: Spec, *items: Any) -> GatherPlan | None:
    """Plan ``x[items]``."""
    return by_index(spec, items)


def _by_arrays(spec: Spec, keys: tuple[Any, ...], arrays: list[int], picked: Array) -> GatherPlan | None:
    none = tuple([np.zeros_like(item) if k in arrays else item for k, item in enumerate(keys)])
    base, axes = places(spec, spec.strides, none), []
    for k in arrays:
        axis = _axis(keys, k, len(spec.shape))
        numbers = np.arange(keys[k].size).reshape(keys[k].shape)
        extents = [keys[k].size if d == axis else n for d, n in enumerate(spec.shape)]
        apart = np.lib.stride_tricks.as_strided(
            np.arange(keys[k].size), extents, [8 if d == axis else 0 for d in range(len(extents))], writeable=False
        )
        which = apart[(*none[:k], numbers, *none[k + 1 :])]
        step, extent = spec.strides[axis] // spec.dtype.itemsize, spec.shape[axis]
        axes.append(IndexAxis(which.reshape(-1), step, extent, -extent))
    picking = GatherPlan(base, tuple(axes))
    return picking if np.array_equal(picking.places([keys[k] for k in arrays]), picked) else None


def _axis(keys: tuple[Any, ...], at: int, rank: int) -> int:
    """Return the axis that an item of an index takes."""
    rest = sum(item is not None and item is not Ellipsis for item in keys)
    axis = 0
    for item in keys[:at]:
        axis += rank - rest if item is Ellipsis else item is not None
    return axis


def at_places(spec: Spec, index: Any) -> GatherPlan | None:
    """Plan ``take(x, index)``."""
    count = np.size(index_of(index))
    return GatherPlan(np.zeros(count), (IndexAxis(np.arange(count), 1, spec.size, -spec.size),))


def along_dim(spec: Spec, dim: Any, index: Any) -> GatherPlan | None:
    """Plan ``gather(x, dim, index)``."""
    at, axis = index_of(index), dim % len(spec.shape)
    base = along(spec.shape, axis, np.zeros_like(at))
    return GatherPlan(base, (IndexAxis(np.arange(at.size), _step(spec, axis), spec.shape[axis], 0),))


def across_dim(spec: Spec, dim: Any, index: Any) -> GatherPlan | None:
    """Plan ``index_select(x, dim, index)``."""
    count, axis = np.size(index_of(index)), dim % len(spec.shape)
    base = across(spec.shape, axis, np.zeros(count, np.int64))
    which = np.arange(count).reshape([-1 if k == axis else 1 for k in range(len(spec.shape))])
    return GatherPlan(base, (IndexAxis(np.broadcast_to(which, base.shape), _step(spec, axis), spec.shape[axis], 0),))


def along_wide(spec: Spec, indices: Any, dim: Any = None) -> GatherPlan | None:
    """Plan ``take_along_dim(x, indices, dim)`` of a tensor that is not broadcast."""
    at = index_of(indices)
    if dim is None or at.ndim != len(spec.shape):
        return None
    axis = dim % at.ndim
    shape = tuple(n if k == axis else m for k, (n, m) in enumerate(zip(at.shape, spec.shape, strict=True)))
    if any(k != axis and n not in (1, m) for k, (n, m) in enumerate(zip(at.shape, shape, strict=True))):
        return None
    base = along(spec.shape, axis, np.zeros(shape, np.int64))
    which = np.broadcast_to(np.arange(at.size).reshape(at.shape), shape)
    return GatherPlan(base, (IndexAxis(which, _step(spec, axis), spec.shape[axis], -spec.shape[axis]),))


def where_held(spec: Spec, mask: Any) -> GatherPlan | None:
    """Plan ``masked_select(x, mask)`` with a mask of the same shape."""
    same = index_of(mask).shape == spec.shape
    return GatherPlan(np.arange(spec.size), inner=1) if same else None


def index_of(index: Any) -> Array:
    """Return the index argument of a function as an array."""
    return as_array(index) if isinstance(index, Tensor) else np.asarray(index)


def _step(spec: Spec, axis: int) -> int:
    return spec.strides[axis] // spec.dtype.itemsize


# Places computed by operations on index tensors: programs that hold these pick by other indices, too.


def is_followed(*items: Any, adds: bool = True) -> bool:
    """Whether a recorder follows the values of index tensors, and one of these is such a one.

    Without ``adds``: to write there, where of several values for one place the last stays.
    """
    if modes.active() is not None:
        return False
    indices = [k for k in items if isinstance(k, Tensor) and k.spec.dtype.kind in "iu"]
    recorder = modes.current().recorder if indices else None
    return recorder is not None and recorder.follows_indices(indices, adds=adds)


def differ(*items: Any, adds: bool = True) -> bool:
    """Whether one of these is an index tensor that differs between examples: no value of it may leave for Python."""
    return is_followed(*items, adds=adds) and _mapping_recorder() is not None


def _mapping_recorder() -> Observer | None:
    """Return the recorder if it maps, of whose values none may leave for Python."""
    recorder = modes.current().recorder
    return recorder if recorder is not None and recorder.maps else None


def places_of(spec: Spec, key: tuple[Any, ...], *, wraps: bool) -> Tensor | None:
    """Return the places that integers pick, as numbers of elements in C order, a tensor of its own.

    ``wraps``: negative indices count from the end.

    None where that is not possible, or where they are out of bounds: whoever asks then takes another way. That they
    are within bounds, and whether one is negative, is a guard.
    """
    taken = _axes_taken(spec, key)
    if taken is None:
        return None
    lead, indices = taken
    steps = dense(spec.shape, 1)
    total: Any = None
    for axis, index in enumerate(indices, lead):
        wrapped = _within(index, spec.shape[axis], wraps=wraps)
        if wrapped is None:
            return None
        total = wrapped * steps[axis] if total is None else total + wrapped * steps[axis]
    behind = lead + len(indices)
    before, after = spec.shape[:lead], spec.shape[behind:]
    if before or after:
        wide = (*(1 for _ in before), *total.shape, *(1 for _ in after))
        total = views.reshape(total, wide) + _whole_axes(before, after, len(total.shape), steps)
    return views.contiguous(total) if total.spec.dtype == np.int64 else None


def _axes_taken(spec: Spec, key: tuple[Any, ...]) -> tuple[int, list[Any]] | None:
    """Return the first axis that is indexed, and the indices side by side, if all other axes are taken whole."""
    rest = len(spec.shape) - sum(item is not Ellipsis for item in key)
    items: list[Any] = []
    for item in key:
        items += [slice(None)] * rest if item is Ellipsis else [item]
    lead = next((k for k, item in enumerate(items) if not _whole(item)), len(items))
    indices = items[lead:]
    while indices and _whole(indices[-1]):
        indices.pop()
    indices = [np.asarray(i) if isinstance(i, (list, int, np.integer)) else i for i in indices]
    if rest < 0 or lead + len(indices) > len(spec.shape) or not all(map(_is_integer, indices)):
        return None
    try:
        np.broadcast_shapes(*[i.shape for i in indices])
    except ValueError:
        return None
    return lead, indices


def _is_integer(index: Any) -> bool:
    return isinstance(index, (Tensor, np.ndarray)) and index.dtype.kind in "iu" and not is_byte_mask(index)


def _within(index: Any, n: int, *, wraps: bool) -> Any:
    """Return an index with negative ones counted from the end; None where it is out of bounds."""
    if not isinstance(index, Tensor):
        wrapped = np.where(index < 0, index + wraps * n, index).astype(np.int64)
        return wrapped if ((wrapped >= 0) & (wrapped < n)).all() else None
    index = index if index.spec.dtype == np.int64 else record.to_dtype(index, np.dtype(np.int64))
    if not index.spec.size:
        return index
    if _mapping_recorder() is not None:
        wrapped = index + (index < 0) * n if wraps else index
        return wrapped if are_within(index, -n * wraps, n) else None
    within = bool(index.amin() >= 0)
    if wraps and not within:
        index = index + (index < 0) * n
        within = bool(index.amin() >= 0)
    return index if within and bool(index.amax() < n) else None


def are_within(index: Tensor, low: int, high: int) -> bool:
    """Whether ``low <= index < high`` everywhere: a guard, or what the recorder checks of all examples."""
    mapping = _mapping_recorder()
    if mapping is not None:
        return mapping.checks_indices(index, low, high)
    return bool(index.amin() >= low) and bool(index.amax() < high)


def _whole_axes(before: Sequence[int], after: Sequence[int], rank: int, steps: Sequence[int]) -> Array:
    """Return what the axes that are taken whole add to places, of so many dims between them."""
    total = np.zeros((*before, *(1,) * rank, *after), np.int64)
    for k, n in enumerate((*before, *after)):
        axis = k if k < len(before) else k + rank
        step = steps[k if k < len(before) else len(steps) - len(before) - len(after) + k]
        total += (np.arange(n) * step).reshape([-1 if d == axis else 1 for d in range(total.ndim)])
    return total
