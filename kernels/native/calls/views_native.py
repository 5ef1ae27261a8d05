"""Tensors of the first operand's memory as one native call: views such as ``x[1:]`` and ``x.T``, and ``x.detach()``."""

from __future__ import annotations

from kernels.language.native_types import kept_apart
from kernels.native.c_api import (
    DOUBLES,
    ArrayObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyList_Append,
    PyList_Size,
    PyWeakref_NewRef,
    TensorObject,
    new_view,
    set_base,
    three_words,
)
from kernels.native.call_structs import ALIAS, MOST_VIEWS, SHOWN, CallEntry, CallOperand, CallRequest
from kernels.native.calls.calls_native import dropped, entry_of, is_same, part_of, record_and_notify
from kernels.native.calls.in_place_native import counter_of, is_counted, is_listing, new_extras
from kernels.native.memory import HEADER, load_f8, load_i8, store_f8, store_i8
from kernels.native.objects_native import array_of, kind_of, new_tensor, put
from kernels.native.structs import RegistryTable, TapeHeader
from kernels.native.tape_native import reserve

CONTROL = True


def base_of(x: TensorObject, entry: CallEntry):
    """The base of a view, borrowed."""
    return x.base if entry.count != 0 else x


def can_show(registry: RegistryTable, call: CallRequest, entry: CallEntry):
    """Whether native code can make the view now: not where dead views are to be forgotten, or the tape is full."""
    x, t, block = TensorObject(load_i8(call.args)), TapeHeader(call.tape & ~1), entry.block
    views, value = TensorObject(base_of(x, entry)).views, CallOperand(call.operands).object
    count = PyList_Size(views) if views != 0 else 0
    if count < 0:
        PyErr_Clear()
    if value == 0 or kind_of(value) != registry.array_type:
        return False
    if count < 0 or (count >= MOST_VIEWS and (count + 1) & count == 0):
        return False
    return block == 0 or (t.size + block.entries <= t.room and reserve(t, block.entries) != 0)


def shown(registry: RegistryTable, entry: CallEntry, value: ArrayObject, start):
    """A view of an array that begins at ``start``, as the entry says; 0 with an exception."""
    dtype, data, flags = value.dtype, value.data + start, value.flags & entry.flags
    Py_IncRef(dtype)
    made = new_view(registry.new_view, registry.array_type, dtype, entry.ndim, entry.shape, entry.strides, data, flags)
    if made == 0:
        return 0
    Py_IncRef(value)
    if set_base(registry.set_base, made, value) != 0:
        Py_DecRef(made)
        return 0
    return made


def give_view(registry, call: CallRequest, entry: CallEntry, result: TensorObject, reference):
    """Make a new tensor the view, and enter it into its base's list of views; 0 with an exception."""
    x, operands, words, results = TensorObject(load_i8(call.args)), call.operands, call.words, three_words()
    base, offset = TensorObject(base_of(x, entry)), CallOperand(operands + CallOperand.SIZE)
    made = shown(registry, entry, x.value, part_of(entry, words, CallEntry.start))
    if made == 0 or PyList_Append(base.views, reference) != 0:
        dropped(made)
        return dropped(result)
    offset.object = 0
    offset.double = part_of(entry, words, CallEntry.offset)
    if base != x:
        offset.double += x.offset
    put(result + TensorObject.base, base)
    result.offset = offset.double
    store_i8(results, result)
    store_i8(results + 8, 0)
    return record_and_notify(registry, call, entry, results, made)


@kept_apart
def new_view_of(registry, call: CallRequest, entry: CallEntry):
    """Return a view like one that was made before; 0, without an exception where Python has to do it.

    A list for the views of a base that has none yet, the tensor and a weak reference are made first: allocating may
    start a garbage collection, and so run any Python code.
    """
    x, constant = TensorObject(load_i8(call.args)), entry.constant
    if not can_show(registry, call, entry) or not is_listing(base_of(x, entry)):
        return 0
    result = new_tensor(registry)
    reference = PyWeakref_NewRef(result, 0) if result != 0 else 0
    same = reference != 0 and entry.constant == constant and is_same(registry, call, entry) and entry.target == SHOWN
    if same and can_show(registry, call, entry) and TensorObject(base_of(x, entry)).views != 0:
        result = give_view(registry, call, entry, result, reference)
    else:
        result = dropped(result)
    dropped(reference)
    return result


# ``x.detach()``.


def array_in(registry: RegistryTable, x: TensorObject):
    """The array of a tensor, borrowed; a tensor that holds a float is given an array first; 0 with an exception."""
    value = x.value
    if value == 0 or kind_of(value) != registry.float_type:
        return value if value != 0 and kind_of(value) == registry.array_type else 0
    array = ArrayObject(array_of(registry, 0, three_words(), DOUBLES, False))
    if array != 0:
        store_f8(array.data, load_f8(value + HEADER))
        x.value = array
        Py_DecRef(value)
    return array


@kept_apart
def new_alias(registry: RegistryTable, call: CallRequest):
    """Return a tensor that shares memory and version counter with another; 0 where Python has to or has raised."""
    x = TensorObject(load_i8(call.args))
    if x.base != 0 or not is_counted(registry, x) or not is_listing(x):
        return 0
    counter = counter_of(registry, x)
    Py_IncRef(counter)
    extras = new_extras(registry, counter)
    result = TensorObject(new_tensor(registry) if extras != 0 else 0)
    if result == 0:
        return dropped(extras)
    result.extras = extras
    # Allocating may have run any Python code: read everything that matters now.
    entry = CallEntry(entry_of(registry, call))
    same = entry != 0 and entry.target == ALIAS and x.base == 0 and counter_of(registry, x) == counter and x.views != 0
    value = array_in(registry, x) if same else 0
    if value == 0:
        return dropped(result)
    if x.shared == 0:
        put(x + TensorObject.shared, registry.true)
    put(result + TensorObject.shared, registry.true)
    put(result + TensorObject.views, x.views)
    put(result + TensorObject.value, value)
    put(result + TensorObject.form, entry.form)
    return result
