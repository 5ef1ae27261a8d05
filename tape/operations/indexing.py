"""Indexing as NumPy has it, and views that operations in place write through."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernels.foundation.specs import dense
from kernels.kinds.views import View
from kernels.native.structs import OP_ASSIGN, OP_PART
from kernels.operations import OPS
from tape.operations import rearranging, writes
from tape.operations.elementwise import filled
from tape.recording import attributes, indexed_calls, record, views
from tape.recording.cached_calls import NATIVELY, Call, cached_call, enter_view, set_miss_handlers
from tape.recording.creation import by_type, sizes_of
from tape.recording.indexed_calls import assign_call, by_index, cache_gather
from tape.recording.parameters import as_method, printed_like, with_name
from tape.recording.views import VIEWS, clone
from tape.tensors import modes, view_families
from tape.tensors.dtypes import check_format
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array, constant_tensor, make_extras, method, new


def index(x: Tensor, key: Any) -> Tensor:
    """Return a view by ints, slices, None and Ellipsis, or a copy by arrays. IndexError where out of bounds."""
    key = several(key) if type(key) is list else key
    if not is_basic(key):
        return _gather(x, key)
    items = items_of(key)
    if indexed_calls.is_followed(*items, adds=False):  # by numbers that differ between examples
        followed = pick_followed(x, items)
        if followed is not None:
            return followed
    op, params, name = _checked_view(x, key)
    return record.view(op, x, params, name)


def items_of(key: Any) -> tuple[Any, ...]:
    """Return the parts of an index."""
    return key if isinstance(key, tuple) else (key,)


def _is_number(key: Any) -> bool:
    return type(key) is Tensor and not key.spec.shape


def _by_part(call: Call) -> Tensor:
    """Return ``x[key]``, and enter it: a view, or elements that are picked; native code knows it by numbers."""
    x, key = call.args
    items = items_of(key)
    if any(map(_is_number, items)) and is_basic(key) and not indexed_calls.is_followed(*items, adds=False):
        numbers = tuple([operator.index(k) if _is_number(k) else k for k in items])
        part: Tensor = x[numbers if type(key) is tuple else numbers[0]]
        return part
    result: Tensor = call.run()
    if not enter_view(call, result, indexed=True):
        cache_gather(call, result, by_index)
    return result


if NATIVELY:
    cached_call(_by_part, number=OP_PART, slot=True)(index)
else:
    method("__getitem__")(index)


def region(x: Tensor, key: Any) -> Tensor:
    """Return the part of a tensor that a basic index names, for writing: a view that is not recorded."""
    op, params, name = _checked_view(x, key)
    return record.region(x, op, params, name)


def several(key: list[Any]) -> Any:
    """Return a list as a tuple where PyTorch reads it as one index for each dim; a list of numbers as it is."""
    is_tuple = any(item is None or item is Ellipsis or isinstance(item, (list, tuple, slice, Tensor)) for item in key)
    return tuple(key) if is_tuple and len(key) < _MOST_ITEMS else key


_MOST_ITEMS = 32


def is_basic(key: Any) -> bool:
    """Whether an index gives a view."""
    if type(key) is slice or type(key) is int:
        return True
    return not any(map(_is_array, key if type(key) is tuple else (key,)))


def _is_array(key: Any) -> bool:
    if isinstance(key, Tensor):
        return key.spec.shape != () or key.spec.dtype == np.bool_ or indexed_calls.is_byte_mask(key)
    if isinstance(key, np.ndarray):
        return key.ndim > 0 or key.dtype.kind not in "iu"
    is_array_like = hasattr(type(key), "__array__") and not isinstance(key, np.generic)
    return is_array_like or isinstance(key, (bool, np.bool_, list, tuple))


def _gather(x: Tensor, key: Any) -> Tensor:
    items = items_of(key)
    indexed_calls.warn_of_bytes(items)
    if (followed := pick_followed(x, items)) is not None:
        return followed
    keys = indexed_calls.array_key(key)
    spec, value = x.spec, indexed_calls.picked(as_array(x), keys)

    def places() -> tuple[Array, Array]:
        picked = indexed_calls.places(spec, spec.gradient, keys)
        alike = spec.strides == spec.gradient
        return (picked if alike else indexed_calls.places(spec, spec.strides, keys)), picked

    return _picked(x, value, places)


def pick_followed(x: Tensor, items: tuple[Any, ...], *, wraps: bool = True) -> Tensor | None:
    """Copy the elements that index tensors pick, whose places operations compute, for a recorder that follows these.

    None where there is no such recorder, they cannot be computed, or are out of bounds.
    """
    if not indexed_calls.is_followed(*items):
        return None
    if any(isinstance(k, slice) and k != slice(None) for k in items):
        x = index(x, tuple(k if isinstance(k, slice) or k is Ellipsis else slice(None) for k in items))
        items = tuple(slice(None) if isinstance(k, slice) else k for k in items)
    x = in_order(x)
    places = indexed_calls.places_of(x.spec, items, wraps=wraps)
    if places is None:
        return None
    picked = as_array(x)[tuple([as_array(k) if isinstance(k, Tensor) else k for k in items])]
    value = np.asarray(picked, order="C")
    return record.finish(_GATHER, (x, places), value, further=lambda _: as_array(places))


def _picked(x: Tensor, value: Array, places: Callable[[], tuple[Array, Array]], name: str = "") -> Tensor:
    """Return picked elements; if they are recorded, with their places in the memory and in the gradient."""
    asked = x._slot is not None or modes.current().recorder is not None
    memory, picked = places() if asked else (value, value)
    return record.finish(_GATHER, (x,), value, name=name, further=lambda _: picked, notice=(memory, picked))


def pick(x: Tensor, numbers: Callable[[], Array], take: Callable[[Array], Array], name: str = "") -> Tensor:
    """Copy elements: ``numbers()`` returns their indices in C order, ``take(array)`` their values.

    ``name`` is that of the node, if it is not IndexBackward0.
    """
    x = in_order(x)

    def places() -> tuple[Array, Array]:
        numbered = np.asarray(numbers(), np.int64, order="C")
        return numbered, numbered

    return _picked(x, np.asarray(take(as_array(x)), order="C"), places, name)


def in_order(x: Tensor) -> Tensor:
    """Return a tensor whose elements, and those of its gradient, stand in C order: itself or a copy."""
    spec = x.spec
    return x if spec.strides == spec.gradient == dense(spec.shape, spec.dtype.itemsize) else clone(x)


def put(x: Tensor, numbers: Array, source: Any, name: str, *, adds: bool = False, apart: bool = False) -> Tensor:
    """Write to the elements with these indices, in C order; of several values for one the last stays, or they add up.

    ``apart``: no index is there twice.
    """
    writes.check(x, name, reads=adds)
    spec, numbers = x.spec, np.ascontiguousarray(numbers)  # with one dim at least
    value = writes.value_to_write(source, numbers.shape, spec.dtype, name)
    kept = None if adds or apart else indexed_calls.last_ones(numbers, spec.size)
    if kept is not None:
        if isinstance(value, Tensor) and value.spec.shape:
            value = _gather(views.reshape(views.expand(value, numbers.shape), -1), kept)
        numbers = numbers.reshape(-1)[kept]
    if spec.strides == spec.gradient == dense(spec.shape, spec.dtype.itemsize):
        part, key, places = record.region(x, VIEWS["view"], ((spec.size,),)), (numbers,), (numbers, numbers)
    else:
        part, key = x, np.unravel_index(numbers, spec.shape)  # type: ignore[assignment]
        places = (indexed_calls.places(spec, spec.strides, key), indexed_calls.places(spec, spec.gradient, key))
    writes.store_at(part, key, places, value, name, adds=adds, item=False)
    return x


def put_followed(
    x: Tensor, items: tuple[Any, ...], source: Any, name: str, *, adds: bool, wraps: bool, item: bool = False
) -> bool:
    """Write to the elements that a recorder's index tensors pick; False, with nothing done, where that cannot be."""
    spec = x.spec
    in_order = spec.strides == spec.gradient == dense(spec.shape, spec.dtype.itemsize)
    if not (indexed_calls.is_followed(*items, adds=adds) and in_order):
        return False
    places = indexed_calls.places_of(spec, items, wraps=wraps)
    if places is None or not (places.spec.shape or not adds):
        return False
    writes.check(x, name, reads=adds)
    part = record.region(x, VIEWS["view"], ((spec.size,),))
    writes.store_at(part, (as_array(places),), (places,), source, name, adds=adds, item=item)
    return True


def assign_at(x: Tensor, key: Any, source: Any, name: str, *, adds: bool = False, item: bool = True) -> None:
    """Write to the elements that arrays pick; the last of the values for one element stays, or they add up."""
    items = items_of(key)
    indexed_calls.warn_of_bytes(items)
    if put_followed(x, items, source, name, adds=adds, wraps=True, item=item):
        return
    writes.check(x, name, reads=adds)
    keys = indexed_calls.array_key(key)
    spec = x.spec
    picked = indexed_calls.places(spec, spec.gradient, keys)
    kept = None if adds else indexed_calls.last_ones(picked, spec.buffer_size)
    if kept is not None:
        value = writes.value_to_write(source, picked.shape, spec.dtype, name, item=item, casts=item)
        source = value.expand(picked.shape).reshape(-1)[kept] if isinstance(value, Tensor) else value
        picked = picked.reshape(-1)[kept]
        numbers = indexed_calls.places(spec, dense(spec.shape, spec.dtype.itemsize), keys).reshape(-1)[kept]
        keys = np.unravel_index(numbers, spec.shape)
    memory = picked if spec.strides == spec.gradient else indexed_calls.places(spec, spec.strides, keys)
    writes.store_at(x, keys, (memory, picked), source, name, adds=adds, item=item)


def _fill_followed(x: Tensor, mask: Any, value: Any, name: str) -> bool:
    """Write a number where a recorder's mask holds: elsewhere the old elements; False where that cannot be.

    The indices that a mask stands for would be numbers of Python, by which the recording holds.
    """
    if not (isinstance(mask, Tensor) and mask.spec.dtype == np.bool_ and modes.current().recorder is not None):
        return False
    shape, leading = x.spec.shape, mask.spec.shape
    number = not value.spec.shape if isinstance(value, Tensor) else type(value) in (bool, int, float)
    if not (number and leading and leading == shape[: len(leading)]):
        return False
    writes.check(x, name, reads=True)
    mask = views.reshape(mask, leading + (1,) * (len(shape) - len(leading)))
    writes.store(x, filled(x, mask, value), name, fresh=True)
    return True


def assign(x: Tensor, key: Any, value: Any) -> None:
    """Write to a part given by slices, ints, None, Ellipsis, and arrays of integers or booleans."""
    name = "x[...] = ..."
    if type(key) is list:
        key = several(key)
    if modes.given_arrays() and view_families.is_element(x):
        writes.release(x)  # what it is an element of stays as it is
    if not is_basic(key) or indexed_calls.is_followed(*items_of(key), adds=False):
        if not _fill_followed(x, key, value, name):
            assign_at(x, key, value, name)
        return
    part = region(x, key)
    ends = isinstance(value, Tensor) and view_families.is_view(value) and type(value._base._slot) is int
    if ends and writes.same(x, value, as_array(part)):  # x[key] += ... has written it
        writes.count_write(x)
    else:
        writes.check(part, name, through=x)
        writes.store(part, value, name, item=True, casts=True)


if NATIVELY:
    set_miss_handlers(OP_ASSIGN, assign_call(assign, writes.release_elements), writes.count_write)
else:
    method("__setitem__")(assign)


_GATHER: Any = OPS["index"]


def _checked_view(x: Tensor, key: Any) -> tuple[View, tuple[Any, ...], Any]:
    kind = type(key)
    if kind is slice:
        key = _item(key)
        items: tuple[Any, ...] = (key,)
        hashed: Any = ("slice", key.start, key.stop, key.step)
    else:
        items = tuple(map(_item, key if kind is tuple else (key,)))
        hashed = tuple(("slice", k.start, k.stop, k.step) if type(k) is slice else k for k in items)
    kinds = {*map(type, items)}
    if slice in kinds and any(type(k) is slice and k.step == 0 for k in items):
        raise ValueError("slice step cannot be zero")
    _check_index(x, items)
    if len(items) == len(x._form.spec.shape) and kinds <= {int}:
        name = "select_element" if items else "alias_element"
    else:
        name = "slice" if kind is slice else _last(items)
    return VIEWS[name], (items if Ellipsis in items else (*items, Ellipsis),), ("index", hashed)


def _last(items: tuple[Any, ...]) -> str:
    """Return the name of the last view that PyTorch makes for an index, which names its ``grad_fn``."""
    for k in reversed(items):
        if k is None:
            return "newaxis"
        if type(k) is int:
            return "select"
        if k is not Ellipsis and k != slice(None):
            return "slice"
    return "alias"


def _item(key: Any) -> Any:
    if key is None or key is Ellipsis or type(key) is int:
        return key
    if isinstance(key, slice):
        return slice(*(None if e is None else operator.index(e) for e in (key.start, key.stop, key.step)))
    try:
        return operator.index(key)
    except TypeError:
        raise IndexError(
            f"only integers, slices (`:`), ellipsis (`...`) and None are valid indices (got {type(key).__name__})"
        ) from None


def _check_index(x: Tensor, items: tuple[Any, ...]) -> None:
    shape = x._form.spec.shape
    used = sum(1 for k in items if k is not None and k is not Ellipsis)
    if used > len(shape):
        if not shape:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` to convert it to a number")
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    axis = 0
    for k in items:
        if k is Ellipsis:
            axis += len(shape) - used
        elif k is not None:
            if type(k) is int and not -shape[axis] <= k < shape[axis]:
                raise IndexError(f"index {k} is out of bounds for dimension {axis} with size {shape[axis]}")
            axis += 1


@method("__iter__")
def rows(x: Tensor) -> Iterator[Tensor]:
    """Iterate over the first dim."""
    if not x.spec.shape:
        raise TypeError("iteration over a 0-d tensor")
    return (record.view(VIEWS["unbind"], x, ((i, Ellipsis),)) for i in range(x.spec.shape[0]))


def _base_for(x: Tensor) -> Tensor:
    """Return a view's base; for a base itself a new tensor of its memory, which becomes the base of the family."""
    if view_families.is_view(x):
        return x._base
    counter, views = view_families.counter_of(x), view_families.views_of(x)
    base = new(Tensor)
    base._value, base._form, base._slot, base._views = as_array(x), x._form, x._slot, views
    make_extras(base).counter = counter
    if hasattr(x, "_shared"):
        base._shared = True
    for member in [view for view in (reference() for reference in views) if view is not None]:
        if view_families.is_view(member) and member._base is x:
            member._base = base
    del x._views
    return base


def _become(x: Tensor, name: str, view: Callable[[], Tensor]) -> Tensor:
    """Turn a tensor into a view of its former self; return it."""
    writes.check(x, name)
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.becomes_view(x, name)
    if type(x._slot) is AccumulateGrad:  # under no_grad
        attributes.set_data(x, view())
        return x
    made = view()
    if made is not x:
        base = _base_for(x)
        x._value, x._offset, x._base = made._value, made._offset, base
        view_families.move(x, made._slot, made._form)
        view_families.join(base, x)
        if recorder is not None:
            recorder.taken(x, made)
    view_families.counter_of(x)[0] += 1
    return x


def _install(name: str, function: Callable[..., Tensor], doc: str) -> None:
    body = f"return become({{first}}, {name!r}, lambda: function({{all}}))"
    turned = printed_like(name, function, body, become=_become)
    turned.__doc__ = f"{doc} RuntimeError for a leaf that requires grad."
    method(name)(as_method(turned))


for _exchange in (views.transpose, rearranging.swapaxes, rearranging.swapdims):  # their parameters' names differ
    _install(f"{_exchange.__name__}_", _exchange, "Exchange two dims of this tensor; return it.")
_install("t_", views.t, "Transpose this matrix; return it.")
_install("squeeze_", views.squeeze, "Take dims of length one from this tensor, or one of them; return it.")
_install("unsqueeze_", views.unsqueeze, "Insert a dim of length one into this tensor; return it.")
_install("as_strided_", views.as_strided, "Let this tensor show its memory by size and stride; return it.")


@method()
def detach_(x: Tensor) -> Tensor:
    """Cut this tensor off its history; return it. RuntimeError for a view: use ``detach()``.

    What has been computed from it keeps its gradients.
    """
    if view_families.is_view(x):
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    if (recorder := modes.current().recorder) is not None:
        recorder.note_unrecorded(x, "detach_")
    if record.leaf_of(x):
        attributes.requires_grad_(x, requires_grad=False)
        return x
    counter = view_families.counter_of(x)
    x._views = _base_for(x)._views
    view_families.move(x, None, x.spec)
    view_families.start_family(x)
    make_extras(x).counter = counter
    return x


@method()
def resize_(x: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Give this tensor another shape, new elements being zeros; return it. RuntimeError if it requires grad."""
    if memory_format is not None:
        check_format("resize_", memory_format)
    if x._slot is not None:
        raise RuntimeError("cannot resize variables that require grad")
    shape = sizes_of("resize_", sizes, size)
    if shape == x.spec.shape:
        return x
    flat, size = np.ascontiguousarray(as_array(x)).reshape(-1), int(np.prod(shape, dtype=np.int64))
    kept = flat[:size] if size <= flat.size else np.concatenate([flat, np.zeros(size - flat.size, flat.dtype)])
    attributes.set_data(x, constant_tensor(kept.reshape(shape)))
    return x


@method()
def resize_as_(x: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """Give this tensor the shape of another; see :meth:`resize_`."""
    return resize_(x, size=the_template.spec.shape, memory_format=memory_format)


@method("new")
@with_name("new")
def new_(x: Tensor, *args: Any) -> Tensor:
    """Return a tensor of this dtype: zeros of these sizes, or of a list's, an array's or a tensor's elements."""
    return by_type(x.spec.dtype, args)
