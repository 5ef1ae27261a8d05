"""Tensors and leaves in native code: creation, slots, the end of an object."""

from __future__ import annotations

from kernels.calls.functions_native import laid_over
from kernels.calls.keys_native import look_at, tape_in_force
from kernels.calls.writes_native import is_only
from kernels.language.llvm_values import Int32, Void, Word
from kernels.native import c_api
from kernels.native.c_api import (
    ArrayObject,
    LeafObject,
    ShownObject,
    TensorObject,
    array_copy,
    call_get,
    call_set,
    call_visit,
    new_array,
    new_view,
    set_base,
    tape_registry,
    three_words,
)
from kernels.native.memory import HEADER, load_f8, load_i8, module_words, store_f8, store_i8, word
from kernels.native.objects_native import drop_all, dropped, elements, kind_of, new_tensor, owned, visit_all, wrong
from kernels.native.record_native import exchange
from kernels.native.structs import EXPOSED, LARGE, LARGEST_LOSS, NODE_MASK, RegistryTable
from kernels.native.tape_native import hold, let_go, tape_of

CONTROL = True

MOST_FLOATS, MOST_DIMS, SPECS, SPEC = 64, 3, 64, 5
"""Limits: floats in a list; dims of shapes whose specs are cached; entries of the cache; words of an entry."""
SEVERAL = -1  # stands for the only array that the table of exposed memory counts at a place
specs = module_words(SPECS * SPEC)


def spec_of(array: ArrayObject):
    """A new reference to the spec of a C-contiguous array of doubles, which its shape determines."""
    count, shape = array.ndim, array.shape
    if count > MOST_DIMS:
        return c_api.PyObject_CallOneArg(tape_registry().spec_of, array)
    mixed = count
    for k in range(count):
        mixed = mixed * 31 + shape[k]
    entry = specs() + 8 * SPEC * (mixed & (SPECS - 1))
    spec = load_i8(entry)
    same = spec != 0 and word(entry, 1) == count
    for k in range(count):
        same = same and word(entry, 2 + k) == shape[k]
    if not same:
        spec = c_api.PyObject_CallOneArg(tape_registry().spec_of, array)
        if spec == 0:
            return 0
        c_api.Py_IncRef(spec)
        before = load_i8(entry)
        store_i8(entry, spec)
        store_i8(entry + 8, count)
        for k in range(count):
            store_i8(entry + 16 + 8 * k, shape[k])
        c_api.Py_DecRef(before)
        return spec
    return owned(spec)


def listed(registry: RegistryTable, data):
    """A new array from a list of floats; 0 without an exception if it is none."""
    count = c_api.PyList_Size(data)
    if count == 0 or count > MOST_FLOATS:
        return 0
    for k in range(count):
        if kind_of(c_api.PyList_GetItem(data, k)) != registry.float_type:
            return 0
    shape = three_words()
    store_i8(shape, count)
    array = ArrayObject(new_array(registry.new_array, registry.array_type, 1, shape, c_api.DOUBLES))
    if array != 0:
        for k in range(count):
            store_f8(array.data + 8 * k, load_f8(c_api.PyList_GetItem(data, k) + HEADER))
    return array


def is_usual(registry: RegistryTable, data: ArrayObject):
    """Whether an array is a small one of doubles with at least one dim."""
    count = data.ndim
    if count == 0 or data.dtype != registry.double:
        return False
    return 8 * elements(data.shape, count) < LARGE


def value_of(registry: RegistryTable, data):
    """A new reference to a tensor's value made of data; 0 where Python has to do it or has raised."""
    kind = kind_of(data)
    if kind == registry.float_type:
        return owned(data)
    if kind == registry.array_type:
        return array_copy(registry.copy_array, data, c_api.C_ORDER) if is_usual(registry, data) else 0
    return listed(registry, data) if kind == registry.list_type else 0


def is_in_order(array: ArrayObject):
    """Whether an array of doubles is C-contiguous, so that its shape determines its spec."""
    count, size = array.ndim, 8
    for k in range(count - 1, -1, -1):
        if array.strides[k] != size:
            return False
        size *= array.shape[k]
    return size != 0


def shared(registry: RegistryTable, x: TensorObject):
    """A new reference to the value of a tensor without history; 0 where Python has to do it."""
    value = ArrayObject(x.value if x.slot == 0 else 0)
    if value == 0:
        return 0
    if kind_of(value) != registry.float_type:
        if kind_of(value) != registry.array_type or value.dtype != registry.double:
            return 0
        if value.ndim == 0 or value.flags & c_api.A_SIMPLE != c_api.A_SIMPLE or not is_in_order(value):
            return 0
    return owned(value)


def is_own(registry: RegistryTable):
    """Whether the current tape belongs to this thread: a copied context may have another thread's."""
    tape = look_at(registry.active)
    if tape == 0:
        c_api.PyErr_Clear()
        return False
    same = kind_of(tape) != registry.tape_type
    if not same:
        thread = load_i8(tape + registry.thread)
        same = thread != 0 and c_api.PyLong_AsLongLong(thread) == c_api.PyThread_get_thread_ident()
    c_api.Py_DecRef(tape)
    return same


def slot_of(registry: RegistryTable, x, spec):
    """A new slot of a leaf; 0 with an exception."""
    leaf = LeafObject(c_api.PyType_GenericAlloc(registry.leaf_type, 0))
    owner = c_api.PyWeakref_NewRef(x, 0) if leaf != 0 else 0
    if owner == 0:
        return dropped(leaf)
    leaf.owner = owner
    leaf.spec = owned(spec)
    leaf.grad = owned(registry.none)
    return leaf


def leaf_of(registry: RegistryTable, value, wanted):
    """A leaf with a value, whose reference it takes over; 0 with an exception."""
    x, spec = TensorObject(new_tensor(registry)), registry.scalar_spec
    if x == 0:
        return dropped(value)
    x.value = value
    spec = owned(spec) if kind_of(value) == registry.float_type else spec_of(value)
    x.form = spec
    slot = slot_of(registry, x, spec) if spec != 0 and wanted else 0
    if spec == 0 or (wanted and slot == 0):
        return dropped(x)
    x.slot = -slot
    return x


def made(self: Word, args: Word, count: Word) -> Word:
    """``made(data, requires_grad)``: a new leaf that holds a copy; None for unusual data, which Python handles."""
    registry = tape_registry()
    if count != 2:
        return wrong(registry)
    wanted = word(args, 1) != registry.false
    value = value_of(registry, load_i8(args)) if not wanted or is_own(registry) else 0
    if value == 0:
        return owned(registry.none) if c_api.PyErr_Occurred() == 0 else 0
    return leaf_of(registry, value, wanted)


def taken(self: Word, args: Word, count: Word) -> Word:
    """``taken(argument)``: a new leaf of a float or an array, or sharing a tensor's value; None for other arguments."""
    registry, value = tape_registry(), 0
    if count != 1:
        return wrong(registry)
    if is_own(registry):
        kind = kind_of(load_i8(args))
        if kind == registry.tensor_type:
            value = shared(registry, load_i8(args))
        elif kind != registry.list_type:
            value = value_of(registry, load_i8(args))
    if value == 0:
        return owned(registry.none) if c_api.PyErr_Occurred() == 0 else 0
    return leaf_of(registry, value, True)


def lent(self: Word, args: Word, count: Word) -> Word:
    """``lent(array)``: a new tensor of the array's memory, which others may write; None for unusual arrays."""
    registry = tape_registry()
    if count != 1:
        return wrong(registry)
    x = ArrayObject(load_i8(args))
    usual = kind_of(x) == registry.array_type and x.ndim != 0 and x.dtype == registry.double
    if not usual or x.flags & c_api.A_SIMPLE != c_api.A_SIMPLE or not is_in_order(x):
        return owned(registry.none)
    c_api.Py_IncRef(x.dtype)
    flags = x.flags & c_api.A_WRITEABLE
    view = new_view(registry.new_view, registry.array_type, x.dtype, x.ndim, x.shape, x.strides, x.data, flags)
    if view == 0 or set_base(registry.set_base, view, owned(x)) != 0:
        return dropped(view)
    tensor = TensorObject(leaf_of(registry, view, False))
    if tensor != 0:
        tensor.shared = owned(registry.true)
    return tensor


def traverse(x: TensorObject, visit: Word, argument: Word) -> Int32:
    leaf, status = -x.slot, visit_all(x + TensorObject.value, x + TensorObject.extras, visit, argument)
    if status == 0 and leaf > 1:
        status = call_visit(visit, leaf, argument)
    return status if status != 0 else call_visit(visit, x.type, argument)


def empty(x):
    """Release what a tensor refers to."""
    exchange(tape_registry(), x, 0)
    drop_all(x + TensorObject.value, x + TensorObject.extras)


def clear(x: Word) -> Int32:
    empty(x)
    return 0


def lose(slot, size):
    """Count the bytes of a large tensor that has died; collect where they are many for the length of its tape."""
    t = tape_of(tape_registry(), slot & ~c_api.UNHELD)
    if t == 0:
        return
    lost = t.lost + size
    t.lost = lost
    call = t.notify
    if lost * 10_000 <= LARGEST_LOSS * t.size or call == 0:
        return
    t.lost = 0
    error = three_words()
    c_api.PyErr_Fetch(error, error + 8, error + 16)
    c_api.Py_IncRef(call)
    result = c_api.PyObject_CallNoArgs(call)
    if result == 0:
        c_api.PyErr_WriteUnraisable(call)
    c_api.Py_DecRef(result)
    c_api.Py_DecRef(call)
    c_api.PyErr_Restore(word(error, 0), word(error, 1), word(error, 2))


def spare(x: TensorObject, kind):
    """Keep a tensor's memory for a new tensor, or free it."""
    registry = tape_registry()
    count = registry.spares
    if (kind == registry.tensor_type or kind == registry.stale_type) and count < c_api.MOST_SPARES:
        x.offset = 0
        x.bytes = 0
        x.node = 0
        x.value = registry.spare
        registry.spare = x
        registry.spares = count + 1
    else:
        c_api.PyObject_GC_Del(x)


def end_recorded(node):
    """Tell the recorder that wants to know that a tensor which it knows is gone."""
    recorder = tape_registry().recording
    if recorder != 0 and node - (node & NODE_MASK) == recorder.serial:
        recorder.alive -= 1


def dealloc(x: TensorObject) -> Void:
    kind = x.type
    c_api.PyObject_GC_UnTrack(x)
    if x.weak != 0:
        c_api.PyObject_ClearWeakRefs(x)
    slot, size = x.slot, x.bytes
    if x.node != 0:
        end_recorded(x.node)
    empty(x)
    spare(x, kind)
    c_api.Py_DecRef(kind)
    if size > 0 and slot > 0:
        lose(slot, size)


def get_slot(x: TensorObject, closure: Word) -> Word:
    slot = x.slot
    registry = tape_registry()
    if slot > 0:
        return c_api.PyLong_FromLongLong(slot & ~c_api.UNHELD)
    if slot == c_api.STALE:
        c_api.PyErr_SetNone(registry.attribute_error)
        return 0
    return owned(registry.none if slot == 0 else -slot)


def set_slot(x: Word, value: TensorObject, closure: Word) -> Int32:
    registry = tape_registry()
    slot = c_api.STALE
    if value == registry.none:
        slot = 0
    elif value != 0 and value.type == registry.int_type:
        slot = c_api.PyLong_AsLongLong(value)
        if slot <= 0 or slot >= c_api.UNHELD:
            if c_api.PyErr_Occurred() == 0:
                c_api.PyErr_SetNone(registry.type_error)
            return -1
        hold(registry, slot)
    elif value != 0:
        slot = -owned(value)
    exchange(registry, x, slot)
    return 0


def unheld(x: TensorObject, ignored: Word) -> Word:
    """``x._unheld()``: let a computed tensor refer to its slot without counting as its owner."""
    slot = x.slot
    registry = tape_registry()
    if slot > 0 and slot & c_api.UNHELD == 0:
        x.slot = slot | c_api.UNHELD
        let_go(registry, slot)
    return owned(registry.none)


def leaf_at(registry: RegistryTable, x: TensorObject):
    """The slot of a tensor that is a leaf; 0 for anything else."""
    slot = x.slot if kind_of(x) == registry.tensor_type else 0
    return -slot if slot < c_api.STALE and kind_of(-slot) == registry.leaf_type else 0


def get_grad(self: Word, x: Word, kind: Word) -> Word:
    registry = tape_registry()
    leaf = LeafObject(leaf_at(registry, x) if x != 0 else 0)
    if leaf == 0:
        return call_get(registry.getter, self, x, kind)
    gradient = leaf.grad
    return owned(gradient if gradient != 0 else registry.none)


def set_grad(self: Word, x: Word, value: Word) -> Int32:
    registry = tape_registry()
    leaf = LeafObject(leaf_at(registry, x) if value == registry.none else 0)
    if leaf == 0:
        return call_set(registry.setter, self, x, value)
    before = leaf.grad
    leaf.grad = owned(value)
    c_api.Py_DecRef(before)
    return 0


# Arrays of a tensor's memory for the user, who may write there unseen as long as one of them lives.


def place_of(array):
    """Where the table of exposed memory counts an array (kernels/kinds/reference_tape.py)."""
    return (array >> 4 ^ array >> 18) & (EXPOSED - 1)


def expose(registry: RegistryTable, array, holder):
    """Mark the memory of an array as exposed as long as a holder lives; whether that could be done."""
    key = c_api.PyLong_FromLongLong(holder)
    entered = key != 0 and c_api.PyDict_SetItem(registry.shown, key, array) == 0
    c_api.Py_DecRef(key)
    if entered:
        counts, place = registry.exposed, place_of(array)
        only = EXPOSED + 1 + place
        counts[only] = array if counts[place] == 0 or counts[only] == array else SEVERAL
        counts[place] += 1
        counts[EXPOSED] += 1
        ShownObject(holder).array = array
    return entered


def end_shown(holder: ShownObject) -> Void:
    registry, error, kind = tape_registry(), three_words(), kind_of(holder)
    if holder.array != 0:
        counts = registry.exposed
        counts[place_of(holder.array)] -= 1
        counts[EXPOSED] -= 1
        c_api.PyErr_Fetch(error, error + 8, error + 16)
        key = c_api.PyLong_FromLongLong(holder)
        if key == 0 or c_api.PyDict_DelItem(registry.shown, key) != 0:
            c_api.PyErr_Clear()
        c_api.Py_DecRef(key)
        c_api.PyErr_Restore(word(error, 0), word(error, 1), word(error, 2))
    c_api.PyObject_Free(holder)
    c_api.Py_DecRef(kind)


def own_array(registry: RegistryTable, x: TensorObject):
    """The array of a tensor that nobody else refers to, borrowed; of a float a new one. 0 where there is none."""
    if kind_of(x.value) == registry.float_type:
        array = ArrayObject(new_array(registry.new_array, registry.array_type, 0, 0, c_api.DOUBLES))
        if array != 0:
            store_f8(array.data, load_f8(x.value + HEADER))
            c_api.Py_DecRef(x.value)
            x.value = array
        return array
    return x.value if is_only(registry, x.value) else 0


def shown(bound: Word, arguments: Word, count: Word) -> Word:
    """``shown(x)``: the memory of a tensor as an array for the user; None where Python makes it.

    That is so of memory that others share, of tensors that require grad, and while somebody records.
    """
    registry, x = tape_registry(), TensorObject(load_i8(arguments))
    if count != 1 or kind_of(x) != registry.tensor_type or x.slot != 0 or tape_in_force(registry) & 1 != 0:
        return owned(registry.none)
    array = ArrayObject(own_array(registry, x))
    if array == 0:
        return 0 if c_api.PyErr_Occurred() != 0 else owned(registry.none)
    holder = c_api.PyType_GenericAlloc(registry.shown_type, 0)
    if holder == 0 or not expose(registry, array, holder):
        c_api.Py_DecRef(holder)
        return 0
    if x.shared == 0:
        x.shared = owned(registry.true)
    return laid_over(registry, array, array.data, array.flags & c_api.A_WRITEABLE, holder)


def begun(self: Word, args: Word, count: Word) -> Word:
    """``begun(slot, gradient)``: give the slot of a leaf its first gradient; False where it has one."""
    registry = tape_registry()
    if count != 2 or kind_of(load_i8(args)) != registry.leaf_type:
        return wrong(registry)
    leaf, result = LeafObject(load_i8(args)), registry.false
    before = leaf.grad
    if before == 0 or before == registry.none:
        leaf.grad = owned(word(args, 1))
        c_api.Py_DecRef(before)
        result = registry.true
    return owned(result)
