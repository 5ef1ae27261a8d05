"""``x.detach()`` as one native call, if it was called on a tensor of this form before."""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.call_structs import CallEntry
from kernels.native.calls.calls_native import find
from kernels.native.calls.in_place_native import counter_of, is_counted, new_extras
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.memory import HEADER, load_f8, load_i8, store_f8
from kernels.native.object_structs import DOUBLES, ArrayObject, TensorObject
from kernels.native.objects_native import array_of, kind_of, new_tensor, put
from kernels.native.python_api import Py_DecRef, Py_IncRef, tape_registry, three_words
from kernels.native.tape_structs import RegistryTable

CONTROL = True


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


def hit_shared(op: Word, args: Word, count: Word, ignored: Word) -> Word:
    """Return a tensor that shares memory and version counter with another; 0 where Python has to or has raised."""
    registry, x = tape_registry(), TensorObject(load_i8(args))
    if kind_of(x) != registry.tensor_type or x.base != 0 or not is_counted(registry, x):
        return 0
    counter = counter_of(registry, x)
    Py_IncRef(counter)
    extras = new_extras(registry, counter)
    result = TensorObject(new_tensor(registry) if extras != 0 else 0)
    if result == 0:
        if extras != 0:
            Py_DecRef(extras)
        return 0
    result.extras = extras
    # Allocating may have run any Python code: read everything that matters now.
    tagged_tape = tape_in_force(registry)
    same = tagged_tape != -1 and tagged_tape & 1 == 0 and x.base == 0 and counter_of(registry, x) == counter
    entry = CallEntry(find(registry, op, x.form, 0, 0, 0, 0) if same else 0)
    value = array_in(registry, x) if entry != 0 else 0
    if value == 0:
        Py_DecRef(result)
        return 0
    if x.shared == 0:
        put(x + TensorObject.shared, registry.true)
    put(result + TensorObject.shared, registry.true)
    put(result + TensorObject.value, value)
    put(result + TensorObject.form, entry.form)
    return result
