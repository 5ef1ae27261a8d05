"""Elements picked by arrays, lists and masks, which native code repeats for shapes that it has seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels.arrays.specs import Spec, dense
from kernels.call_cache import part_entries
from kernels.call_cache.part_entries import LARGEST, Picking, Taking
from kernels.instructions.form import Form
from kernels.kinds.gather import Gather
from kernels.native import registry
from kernels.native.call_structs import PICKS
from kernels.native.tape_structs import RegistryTable
from tape.recording import integer_indices
from tape.repeated_calls.call_table import number_of, provide, repeating
from tape.tensors import modes
from tape.tensors.tensor import Array, Tensor, as_array

Method = TypeVar("Method", bound=Callable[..., Any])
Plan = Callable[..., Picking | None]


def enter_picked(op: int, result: Any, args: tuple[Any, ...], plan: Plan) -> None:
    """Enter a call that has picked elements of a tensor, the first that was given, as ``plan(spec, *given)`` says."""
    x = args[0]
    if type(x) is not Tensor or type(result) is not Tensor or not 0 < result.spec.size <= LARGEST:
        return
    if modes.unobserved_tape() is None or not x.spec.shape or not x.spec.size or x.spec.strides != x.spec.gradient:
        return
    form, wanted = result._form, bool(modes.active()) and x._slot is not None
    recorded = type(form) is Form and isinstance(form.op, Gather) and type(result._slot) is int
    if recorded is not wanted or result.spec.strides != dense(result.spec.shape, result.spec.dtype.itemsize):
        return
    ready()
    how = plan(x.spec, *args[1:]) if part_entries.takes(op, args) else None
    if how is not None:
        part_entries.enter(op, x._form, args, form, wanted, how)


def ready() -> None:
    """Load the machine code and the dtypes that picking needs."""
    for at, dtype in ((RegistryTable.longs, np.dtype(np.int64)), (RegistryTable.bools, np.dtype(np.bool_))):
        registry.put(registry.REGISTRY.address, at, id(dtype))
    provide(RegistryTable.hit_picked, "native.indexing.index_arrays_native", "hit_picked")


def picking(name: str, plan: Plan) -> Callable[[Method], Method]:
    """Let native code repeat a function that picks elements, of tensors whose elements stand in C order."""
    number = number_of(name)

    def in_order(spec: Spec, *args: Any) -> Picking | None:
        return plan(spec, *args) if spec.strides == dense(spec.shape, spec.dtype.itemsize) else None

    def enter(result: Any, *args: Any, **named: Any) -> None:
        if args and not named:
            enter_picked(number, result, args, in_order)

    return repeating(number | PICKS, enter)


def by_index(spec: Spec, key: Any) -> Picking | None:
    """Plan ``x[key]``: the places with all arrays zero, and what each array adds to them."""
    keys = integer_indices.array_key(key)
    arrays = [k for k, item in enumerate(keys) if isinstance(item, np.ndarray)]
    masks = [k for k in arrays if keys[k].dtype == np.bool_]
    if any(not keys[k].ndim for k in arrays) or (masks and (len(arrays) > 1 or masks[0])):
        return None
    places = integer_indices.places(spec, spec.strides, keys)
    if masks:
        mask = keys[0]
        base = integer_indices.places(spec, spec.strides, (np.ones_like(mask), *keys[1:]))
        if len(base) != mask.size or not np.array_equal(base[mask.reshape(-1)], places):
            return None
        return Picking(base, inner=base.size // mask.size)
    return _by_arrays(spec, keys, arrays, places)


def by_items(spec: Spec, *items: Any) -> Picking | None:
    """Plan ``x[items]``."""
    return by_index(spec, items)


def _by_arrays(spec: Spec, keys: tuple[Any, ...], arrays: list[int], places: Array) -> Picking | None:
    none = tuple([np.zeros_like(item) if k in arrays else item for k, item in enumerate(keys)])
    base, takings = integer_indices.places(spec, spec.strides, none), []
    for k in arrays:
        axis = _axis(keys, k, len(spec.shape))
        numbers = np.arange(keys[k].size).reshape(keys[k].shape)
        extents = [keys[k].size if d == axis else n for d, n in enumerate(spec.shape)]
        apart = np.lib.stride_tricks.as_strided(
            np.arange(keys[k].size), extents, [8 if d == axis else 0 for d in range(len(extents))], writeable=False
        )
        which = apart[(*none[:k], numbers, *none[k + 1 :])]
        step, extent = spec.strides[axis] // spec.dtype.itemsize, spec.shape[axis]
        takings.append(Taking(which.reshape(-1), step, extent, -extent))
    picking = Picking(base, tuple(takings))
    return picking if np.array_equal(picking.places([keys[k] for k in arrays]), places) else None


def _axis(keys: tuple[Any, ...], at: int, rank: int) -> int:
    """Return the axis that an item of an index takes."""
    rest = sum(item is not None and item is not Ellipsis for item in keys)
    axis = 0
    for item in keys[:at]:
        axis += rank - rest if item is Ellipsis else item is not None
    return axis


def at_places(spec: Spec, index: Any) -> Picking | None:
    """Plan ``take(x, index)``."""
    count = np.size(index_of(index))
    return Picking(np.zeros(count), (Taking(np.arange(count), 1, spec.size, -spec.size),))


def along_dim(spec: Spec, dim: Any, index: Any) -> Picking | None:
    """Plan ``gather(x, dim, index)``."""
    at, axis = index_of(index), dim % len(spec.shape)
    base = integer_indices.along(spec.shape, axis, np.zeros_like(at))
    return Picking(base, (Taking(np.arange(at.size), _step(spec, axis), spec.shape[axis], 0),))


def across_dim(spec: Spec, dim: Any, index: Any) -> Picking | None:
    """Plan ``index_select(x, dim, index)``."""
    count, axis = np.size(index_of(index)), dim % len(spec.shape)
    base = integer_indices.across(spec.shape, axis, np.zeros(count, np.int64))
    which = np.arange(count).reshape([-1 if k == axis else 1 for k in range(len(spec.shape))])
    return Picking(base, (Taking(np.broadcast_to(which, base.shape), _step(spec, axis), spec.shape[axis], 0),))


def along_wide(spec: Spec, indices: Any, dim: Any = None) -> Picking | None:
    """Plan ``take_along_dim(x, indices, dim)`` of a tensor that is not broadcast."""
    at = index_of(indices)
    if dim is None or at.ndim != len(spec.shape):
        return None
    axis = dim % at.ndim
    shape = tuple(n if k == axis else m for k, (n, m) in enumerate(zip(at.shape, spec.shape, strict=True)))
    if any(k != axis and n not in (1, m) for k, (n, m) in enumerate(zip(at.shape, shape, strict=True))):
        return None
    base = integer_indices.along(spec.shape, axis, np.zeros(shape, np.int64))
    which = np.broadcast_to(np.arange(at.size).reshape(at.shape), shape)
    return Picking(base, (Taking(which, _step(spec, axis), spec.shape[axis], -spec.shape[axis]),))


def where_held(spec: Spec, mask: Any) -> Picking | None:
    """Plan ``masked_select(x, mask)`` with a mask of the same shape."""
    same = index_of(mask).shape == spec.shape
    return Picking(np.arange(spec.size), inner=1) if same else None


def index_of(index: Any) -> Array:
    """Return the index argument of a function as an array."""
    return as_array(index) if isinstance(index, Tensor) else np.asarray(index)


def _step(spec: Spec, axis: int) -> int:
    return spec.strides[axis] // spec.dtype.itemsize
