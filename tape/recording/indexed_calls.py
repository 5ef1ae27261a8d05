"""Repeated gathers, scatters and writes to parts."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.foundation.specs import Spec, Strides, dense
from kernels.kinds import call_entries as calls
from kernels.kinds.call_entries import LARGEST, GatherPlan, IndexAxis, Key, arguments, cache_call, gather_computation
from kernels.kinds.form import Form
from kernels.kinds.views import Gather, Write, write_computation
from kernels.language import jit
from kernels.native import memory, structs
from kernels.native.memory import where
from kernels.native.structs import RegistryTable
from tape.errors import shorten
from tape.recording import record, views
from tape.recording.cached_calls import NATIVE_OPERANDS, NATIVELY, Call, Miss, number_of
from tape.recording.promotion import with_tensor
from tape.recording.views import CLONE, clone
from tape.tensors import modes
from tape.tensors.bytecode import stack_level
from tape.tensors.modes import Observer
from tape.tensors.operands import as_ndarray
from tape.tensors.tensor import Array, Tensor, as_array
from tape.tensors.view_families import Stale, base_of, has_views, is_view

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
    if adjacent is None:
        return _by_numpy(spec.shape, steps, key)
    lead, arrays = adjacent
    indices = [wrapped(a.astype(np.int64, copy=False), spec.shape[k], k) for k, a in enumerate(arrays, lead)]
    return np.asarray(_summed(spec.shape, steps, lead, indices, np.reshape), np.int64, order="C")


def _adjacent(shape: Strides, key: tuple[Any, ...]) -> tuple[int, list[Any]] | None:
    """Return the first axis that is indexed, and what indexes it and its neighbours, if all others are taken whole.

    These are arrays of integers, for a mask the indices that it stands for, or index tensors. IndexError if their
    shapes do not fit.
    """
    items: list[Any] = []
    for item in key:
        one = np.asarray(item) if isinstance(item, (list, int, np.integer)) else item
        if isinstance(one, np.ndarray) and one.dtype == np.bool_ and one.ndim:
            if any(known is Ellipsis for known in items) or one.shape != shape[len(items) : len(items) + one.ndim]:
                return None
            items += np.nonzero(one)
        else:
            items.append(one)
    rest = len(shape) - sum(item is not Ellipsis for item in items)
    at = next((k for k, item in enumerate(items) if item is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * rest
    lead = next((k for k, item in enumerate(items) if not _whole(item)), len(items))
    indices = items[lead:]
    while indices and _whole(indices[-1]):
        indices.pop()
    arrays = [
        i for i in indices if isinstance(i, (Tensor, np.ndarray)) and i.dtype.kind in "iu" and not is_byte_mask(i)
    ]
    if rest < 0 or not arrays or len(arrays) < len(indices) or lead < at < lead + len(indices):
        return None
    try:
        np.broadcast_shapes(*[i.shape for i in indices])
    except ValueError:
        shapes = ", ".join(str(list(i.shape)) for i in indices)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None
    return lead, indices


def _whole(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _summed(shape: Strides, steps: Sequence[int], lead: int, indices: list[Any], reshape: Callable[..., Any]) -> Any:
    """Add up what each index, of an array or a tensor, and each axis that is taken whole contributes."""
    total = functools.reduce(operator.add, [index * steps[axis] for axis, index in enumerate(indices, lead)])
    behind = lead + len(indices)
    before, after = shape[:lead], shape[behind:]
    if not before and not after:
        return total
    rank, ones = len(total.shape), ((1,) * len(before), (1,) * len(after))
    rest = _spread(np.zeros((*before, *(1,) * rank, *after), np.int64), [*steps[:lead], *(0,) * rank, *steps[behind:]])
    return reshape(total, (*ones[0], *total.shape, *ones[1])) + rest


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

    def miss(call: Call) -> Any:
        result = call.run()
        if call.args and not call.named:
            cache_gather(call, result, in_order)
        return result

    return miss


def cache_gather(call: Call, result: Any, plan: Plan) -> None:
    """Enter a call that has picked elements of a tensor, the first argument, as ``plan(spec, *others)`` says."""
    x, *others = call.args
    if type(x) is not Tensor or type(result) is not Tensor or not 0 < result.spec.size <= LARGEST:
        return
    if modes.unobserved_tape() is None or not x.spec.shape or not x.spec.size or x.spec.strides != x.spec.gradient:
        return
    form, wanted = result._form, bool(modes.active()) and x._slot is not None
    recorded = type(form) is Form and isinstance(form.op, Gather) and type(result._slot) is int
    if recorded is not wanted or result.spec.strides != dense(result.spec.shape, result.spec.dtype.itemsize):
        return
    asked = arguments(tuple(others), {}, indexed=True)
    picks = plan(x.spec, *others) if asked is not None and asked.arrays else None
    how = None if picks is None else gather_computation(picks, form.spec)
    if how is not None:
        cache_call(Key(call.number, (x._form,), (wanted,)), form, how, asked=asked)


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
    adjacent = _adjacent(spec.shape, key)
    if adjacent is None:
        return None
    lead, items = adjacent
    indices = [_within(index, spec.shape[axis], wraps=wraps) for axis, index in enumerate(items, lead)]
    if any(index is None for index in indices):
        return None
    total = _summed(spec.shape, dense(spec.shape, 1), lead, indices, views.reshape)
    return views.contiguous(total) if total.spec.dtype == np.int64 else None


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
    within = usual = bool(_least(index) >= 0)
    if wraps and not within:
        index = index + (index < 0) * n
        within = bool(_least(index) >= 0)
    within = within and bool((index.amax() if index.spec.shape else index) < n)
    if within and usual and (recorder := modes.current().recorder) is not None:
        recorder.bounds += 2
    return index if within else None


def _least(index: Tensor) -> Tensor:
    return index.amin() if index.spec.shape else index


def are_within(index: Tensor, low: int, high: int) -> bool:
    """Whether ``low <= index < high`` everywhere: a guard, or what the recorder checks of all examples."""
    mapping = _mapping_recorder()
    if mapping is not None:
        return mapping.checks_indices(index, low, high)
    return bool(index.amin() >= low) and bool(index.amax() < high)


# Writes that native code repeats, to a part of a tensor or to places in it; see cached_calls.py.

_ITEMS = (int, np.int64, slice, type(None), type(...))
if NATIVELY:
    memory.put(memory.REGISTRY.address, RegistryTable.clone, number_of(CLONE.name))
    memory.put(memory.REGISTRY.address, RegistryTable.stale_type, id(Stale))


def assign_call(
    assign: Callable[[Tensor, Any, Any], None], release: Callable[[Tensor, Tensor], bool]
) -> Callable[..., None]:
    """Return what makes and enters ``x[key] = value``.

    ``release(x, x)`` gives elements of x memory of their own, and returns whether there were any.
    """

    def once(x: Tensor, key: Any, *value: Any) -> None:
        try:
            if not value:
                raise TypeError("Tensor does not support deleting items")  # noqa: TRY301 (it is shortened as all are)
            if type(value[0]) is np.ndarray and type(x) is Tensor and value[0].dtype is x._form.spec.dtype:
                x[key] = with_tensor(value[0])  # native code repeats that
                return
            is_base = type(x) is Tensor and base_of(x) is x
            if is_base and modes.given_arrays() and has_views(x) and release(x, x):
                x[key] = value[0]  # native code can do it now
                return
            if not is_base or type(value[0]) not in NATIVE_OPERANDS or modes.unobserved_tape() is None:
                assign(x, key, *value)
                return
            relation = _relation(x, key, value[0])
            source = clone(value[0]) if relation == structs.OVERLAPPING else value[0]
            seen = _key(structs.OP_ASSIGN, x, source, value[0])
            assign(x, key, source)
            if seen is not None and _is_native(seen, x) and not (relation == structs.SAME and any(seen.wanted)):
                _enter_write(seen, x, key, source)
        except Exception as error:
            shorten(error)
            raise

    return once


def _shown(x: Tensor, key: Any) -> Any:
    """Return the part of a tensor's array that ints, slices, None and Ellipsis name; None of any other key."""
    keys, array = key if type(key) is tuple else (key,), x._value
    if type(array) is not np.ndarray or any(type(item) not in _ITEMS for item in keys):
        return None
    return array[keys if ... in keys else (*keys, ...)]


def _relation(x: Tensor, key: Any, value: Any) -> int:
    """Return how a value stands to the part that it is written to; where native code writes, it goes by the same."""
    if not _is_view_of(x, value):
        return structs.APART
    try:
        part = _shown(x, key)
    except (IndexError, TypeError, ValueError):
        return structs.APART  # the write raises it
    if part is None:
        return structs.OVERLAPPING  # so picked elements may
    how = write_computation(value.spec, x.spec, part) if _fits(value.spec.shape, part.shape) else None
    if how is None or how.layout is None:
        return structs.APART  # not written by native code
    relation: Callable[..., int] = jit.load_module("calls.writes_native").relation
    return relation(where(how.layout), where(value._value), where(part), part.itemsize)


def _is_view_of(x: Tensor, value: Any) -> bool:
    return type(value) is Tensor and is_view(value) and value._base is x


def _enter_write(seen: Key, x: Tensor, key: Any, value: Any) -> None:
    """Enter a finished ``x[key] = value``."""
    shown, spec = _shown(x, key), x.spec
    if shown is None:
        cache_scatter(seen, (x, key), value, by_index)
        return
    source = None if seen.forms[1] is None else seen.forms[1].spec
    how, asked = write_computation(source, spec, shown), arguments((key,), {}, indexed=True)
    if how is not None and asked is not None:
        start = where(shown) - where(as_array(x))
        how = replace(how, target=structs.TO_PART, picks=(2,), start=start, offset=start)
        cache_call(seen, x._form, how, largest=spec.bytes, asked=asked, axes=calls.axes_of(spec, key))


def _key(op: int, x: Tensor, value: Any, operand: Any) -> Key | None:
    """Return the key in the table of a write that is about to happen; None beside living views but the operand.

    ``value`` is the operand, or a copy of it. Afterwards a view has another slot.
    """
    if has_views(x, but=operand):
        return None
    source = value if type(value) is Tensor else None
    wants = x._slot is not None, source is not None and source._slot is not None
    forms = x._form, None if source is None else source._form
    return Key(op, forms, wants if modes.active() else (False, False))


def _is_native(seen: Key, x: Tensor) -> bool:
    """Whether native code can repeat a write that has happened."""
    form, (before, source) = x._form, seen.forms
    recorded = type(form) is Form and isinstance(form.op, Write) and type(x._slot) is int
    if type(x._value) is not np.ndarray or not (recorded if any(seen.wanted) else form is before):
        return False
    return not seen.wanted[1] or form.specs[1] is source.spec  # type: ignore[union-attr]  # else a part of it was written


def scatter_call(plan: Plan, *, adds: bool = False) -> Miss:
    """Return what makes and enters calls that write their last argument to places, or add it to them.

    The places are of arguments before that: ``plan(spec, *arguments)`` says which.
    """

    def miss(call: Call) -> Any:
        args = call.args
        x: Any = args[0] if args else None
        is_base = type(x) is Tensor and base_of(x) is x
        if not is_base or len(args) == 1 or call.named or type(args[-1]) not in NATIVE_OPERANDS:
            return call.run()
        if modes.unobserved_tape() is None:
            return call.run()
        operand = args[-1]
        if _is_view_of(x, operand):
            args = *args[:-1], clone(operand)
        seen, spec = _key(call.number, x, args[-1], operand), x.spec
        result = call.function(*args)
        in_order = spec.strides == dense(spec.shape, spec.dtype.itemsize)
        if seen is not None and in_order and _is_native(seen, x) and not (adds and spec.dtype not in _ADDED):
            cache_scatter(seen, args[:-1], args[-1], plan, adds=adds)
        return result

    return miss


def cache_scatter(seen: Key, args: tuple[Any, ...], value: Any, plan: Plan, *, adds: bool = False) -> None:
    """Enter a write to places that the arrays among the arguments name."""
    x, spec = args[0], seen.forms[0].spec  # type: ignore[union-attr]
    source = value.spec if type(value) is Tensor else None
    if spec.overlaps or spec.strides != spec.gradient or not 0 < spec.size <= _LARGEST or not spec.shape:
        return
    if source is None and (spec.dtype.kind == "b" or spec.dtype == np.float16):
        return
    asked = arguments(args[1:], {}, indexed=True)
    picks = plan(spec, *args[1:]) if asked is not None and asked.arrays else None
    if picks is None:
        return
    items = args[1] if seen.op == structs.OP_ASSIGN else args[1:]
    places = picks.places([item for item in array_key(items) if isinstance(item, np.ndarray)])
    if not places.size:
        return
    if any(seen.wanted) and not adds and last_ones(places, spec.size) is not None:
        return  # what was recorded is fewer places
    if source is not None and (source.dtype != spec.dtype or not _fits(source.shape, places.shape)):
        return
    once = source is not None and any(seen.wanted) and not picks.inner and not adds
    how = calls.scatter_computation(picks, spec, source, places.shape, adds=adds, once=once)
    if how is not None:
        cache_call(seen, x._form, how, largest=spec.bytes, asked=asked)


def _fits(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a value of a shape is broadcast to another, and no part of it is written."""
    lead = len(to) - len(shape)
    return lead >= 0 and all(n in (1, m) for n, m in zip(shape, to[lead:], strict=True))


_ADDED = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.int64))  # dtypes in which native code adds
_LARGEST = 1 << 16  # elements of the largest tensor that is written to at places
