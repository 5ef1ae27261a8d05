"""Functions and methods of tensors as native callables, arrays and views in them: a hit in the table, else Python."""

from __future__ import annotations

import numpy as np

from kernels.calls.calls_native import (
    begin,
    begin_join,
    call_words,
    end,
    entry_at,
    entry_of,
    hit_call,
    is_same,
    new_value,
    part_of,
    record_and_notify,
)
from kernels.calls.computing_native import copy_of
from kernels.calls.keys_native import forget, put_call, tape_in_force
from kernels.calls.writes_native import counter_of, is_counted, is_listing, new_extras, update, write_again
from kernels.language.llvm_values import Int32, Void, Word, kept_apart
from kernels.native import c_api, structs
from kernels.native.c_api import (
    ArrayObject,
    FunctionObject,
    TensorObject,
    call_visit,
    new_view,
    set_base,
    tape_registry,
    three_words,
)
from kernels.native.memory import HEADER, load_f8, load_i8, store_f8, store_i8, word
from kernels.native.objects_native import array_of, drop_all, dropped, elements, kind_of, new_tensor, owned, visit_all
from kernels.native.structs import CallEntry, CallOperand, CallRequest, KnownArray, RegistryTable, TapeHeader
from kernels.native.tape_native import reserve

# NumPy's arrays and scalars among the operands of a call: wrapped in tensors for the call.
#
# A hash table maps dtype, shape and strides of arrays to specs (kernels/kinds/call_entries.py adds them). Of scalars
# and of arrays without dims, doubles are accepted, and integers too if another operand is a tensor of doubles.

CONTROL = True

BYTES = bytes.__basicsize__ - 1  # where the memory of bytes begins in the object
MIX = -7046029254386353131  # the golden ratio, times 2**64 (Knuth)


def row_of(registry: RegistryTable, array: ArrayObject):
    """The row of the table for an array's spec; 0 for an array that the table cannot hold."""
    ndim = array.ndim
    if ndim < 1 or ndim > structs.MOST_KNOWN_DIMS or array.flags & c_api.A_ALIGNED == 0:
        return 0
    shape, strides, hashed = array.shape, array.strides, array.dtype
    for k in range(ndim):
        hashed = (hashed ^ shape[k]) * MIX + strides[k]
    return registry.known_arrays + 8 * KnownArray.SIZE * ((hashed >> 32) & (structs.KNOWN_ARRAYS - 1))


def is_entered(row: KnownArray, array: ArrayObject):
    """Whether a row has the array's dtype, shape and strides."""
    ndim = array.ndim
    if row.spec == 0 or row.dtype != array.dtype or row.ndim != ndim:
        return False
    shape, strides, alike = array.shape, array.strides, True
    for k in range(ndim):
        alike = (
            alike and word(row, KnownArray.shape + k) == shape[k] and word(row, KnownArray.strides + k) == strides[k]
        )
    return alike


def add_layout(array: ArrayObject, spec: int) -> int:
    """Enter an array's spec, owning a reference to it; return the number of the row, -1 if that cannot be done."""
    registry = tape_registry()
    row = KnownArray(row_of(registry, array))
    if row == 0:
        return -1
    ndim, shape, strides = array.ndim, array.shape, array.strides
    row.dtype = array.dtype
    row.ndim = ndim
    for k in range(ndim):
        store_i8(row + 8 * (KnownArray.shape + k), shape[k])
        store_i8(row + 8 * (KnownArray.strides + k), strides[k])
    row.spec = spec
    return (row - registry.known_arrays) // (8 * KnownArray.SIZE)


def laid_over(registry: RegistryTable, array: ArrayObject, data, flags, base):
    """An array like another of memory that ``base``, whose reference it takes over, owns; 0 with an exception."""
    return laid_out(registry, array.dtype, array.ndim, array.shape, array.strides, data, flags, base)


def laid_out(registry: RegistryTable, dtype, ndim, shape, strides, data, flags, base):
    """The same, of these dims."""
    c_api.Py_IncRef(dtype)
    made = new_view(registry.new_view, registry.array_type, dtype, ndim, shape, strides, data, flags)
    if made == 0:
        c_api.Py_DecRef(base)
    elif set_base(registry.set_base, made, base) != 0:
        return dropped(made)
    return made


def is_double(registry: RegistryTable, array: ArrayObject):
    """Whether an array is a single double."""
    aligned = array.flags & c_api.A_ALIGNED != 0
    return array.ndim == 0 and array.dtype == registry.double and aligned


def spec_for(registry: RegistryTable, op, x):
    """The spec of the tensor that wraps an operand; 0 for anything but arrays and NumPy's scalars.

    Where an operation has a condition, a scalar counts as a Python number; elsewhere it is a tensor.
    """
    kind = kind_of(x)
    if kind == registry.numpy_double or kind == registry.numpy_int:
        return registry.numpy_spec if op & structs.CONDITION == 0 else 0
    if kind != registry.array_type:
        return 0
    if is_double(registry, x):
        return registry.numpy_spec
    row = KnownArray(row_of(registry, x))
    return row.spec if row != 0 and is_entered(row, x) else 0


def is_spread(array: ArrayObject):
    """Whether an array has the same element at several places."""
    spread = False
    for k in range(array.ndim):
        spread = spread or (array.strides[k] == 0 and array.shape[k] > 1)
    return spread


def value_of(registry: RegistryTable, array: ArrayObject, keeps):
    """The value of the tensor that wraps an operand: a new reference; 0 with an exception, or for Python.

    Of an array it is a copy or a view. Recorders see the memory itself: what they read from outside is read again at
    replays.
    """
    if kind_of(array) == registry.numpy_int:
        return c_api.PyFloat_FromDouble(np.float64(load_i8(array + HEADER)))
    is_scalar = kind_of(array) != registry.array_type
    if is_scalar or is_double(registry, array):
        return c_api.PyFloat_FromDouble(load_f8(array + HEADER if is_scalar else array.data))
    flags, count = array.flags, elements(array.shape, array.ndim)
    if flags & c_api.A_DENSE == 0:
        spread = count > structs.COPIED and is_spread(array)
        return 0 if spread or tape_in_force(registry) & 1 != 0 else copy_of(registry, array)
    few = keeps and count <= structs.COPIED and array.dtype == registry.double
    if few and tape_in_force(registry) & 1 == 0:
        held = c_api.PyBytes_FromStringAndSize(array.data, 8 * count)  # few doubles: hardly more than a view
        return laid_over(registry, array, held + BYTES, 0, held) if held != 0 else 0
    if flags & c_api.A_WRITEABLE == 0 and count > structs.COPIED:
        return 0
    c_api.Py_IncRef(array)  # a view, whose shape nobody else can set
    return laid_over(registry, array, array.data, flags & c_api.A_WRITEABLE, array)


def wrap(registry: RegistryTable, op, x: ArrayObject, keeps):
    """A new tensor that wraps an operand; 0 without an exception if the operand cannot be wrapped.

    ``keeps``: a pullback may keep the value. What it keeps of memory that the caller lends is copied: the tensor has
    None in place of what says that memory is shared.
    """
    spec = spec_for(registry, op, x)
    made = TensorObject(new_tensor(registry) if spec != 0 else 0)
    if made == 0:
        return 0
    # Making a tensor may run a garbage collection, and so any Python code.
    value = ArrayObject(value_of(registry, x, keeps) if spec_for(registry, op, x) == spec else 0)
    if value == 0:
        return dropped(made)
    arrays = kind_of(value) == registry.array_type and kind_of(x) == registry.array_type
    if arrays and value.data == x.data:  # a view of the caller's memory
        made.shared = owned(registry.none)
    made.value = value
    made.form = owned(spec)
    return made


def suits(registry: RegistryTable, args, count, x):
    """Whether an operand may be wrapped as a double: an integer only if another operand is a tensor of doubles."""
    return True if kind_of(x) != registry.numpy_int else all_doubles(registry, args, count)


def all_doubles(registry: RegistryTable, args, count):
    """Whether all tensors among operands are of doubles."""
    doubles = True
    for k in range(count):
        if kind_of(word(args, k)) == registry.tensor_type:
            value = TensorObject(word(args, k)).value
            kind = kind_of(value) if value != 0 else 0
            of_doubles = kind == registry.array_type and value.dtype == registry.double
            doubles = doubles and (of_doubles or kind == registry.float_type)
    return doubles


def give_own(registry: RegistryTable, x: TensorObject):
    """Give a tensor that somebody keeps, as recorders do, memory of its own in place of what was lent."""
    value = x.value
    copy = copy_of(registry, value)
    if copy != 0:
        x.value = copy
        x.shared = 0
        c_api.Py_DecRef(value)
        c_api.Py_DecRef(registry.none)
    return copy


def let_go(registry: RegistryTable, wrapped):
    """Release the tensors that have been made; 0 with an exception."""
    done = 1
    for k in range(structs.MOST_OPERANDS):
        x = TensorObject(word(wrapped, k))
        if x != 0:
            if load_i8(x) & c_api.COUNTED != 1 and x.shared == registry.none and give_own(registry, x) == 0:
                done = 0
            c_api.Py_DecRef(x)
    return done


@kept_apart
def hit_with_floats(registry: RegistryTable, called_as, args, count):
    """Make a call with NumPy's doubles as Python's floats; 0 where Python has to or has raised."""
    operands, result = three_words(), 0
    for k in range(count):
        x = word(args, k)
        is_double = kind_of(x) == registry.numpy_double
        store_i8(operands + 8 * k, c_api.PyFloat_FromDouble(load_f8(x + HEADER)) if is_double else owned(x))
    if c_api.PyErr_Occurred() == 0:
        result = hit_call(called_as, operands, count)
    for k in range(count):
        dropped(word(operands, k))
    return result


@kept_apart
def hit_wrapped(registry: RegistryTable, called_as, args, count):
    """Make a call with arrays wrapped, if an operand is a tensor; 0 where Python has to or has raised."""
    operands, wrapped, tensors, doubles, made = three_words(), three_words(), 0, 0, 0
    keeps, risk, op = False, 0, called_as & (structs.NUMBERED - 1)
    for k in range(structs.MOST_OPERANDS):
        store_i8(wrapped + 8 * k, 0)
        if k < count:
            store_i8(operands + 8 * k, word(args, k))
            doubles += kind_of(word(args, k)) == registry.numpy_double
            if kind_of(word(args, k)) == registry.tensor_type:
                tensors += 1
                keeps = keeps or (
                    TensorObject(word(args, k)).slot != 0 and op not in (structs.OP_ADD, structs.OP_SUBTRACT)
                )
    no_tensor_to_write = called_as & structs.WRITES != 0 and kind_of(word(args, 0)) != registry.tensor_type
    if tensors == 0 or tensors == count or no_tensor_to_write:
        return 0
    weak = doubles != 0 and called_as & structs.WRITES == 0 and op & structs.CONDITION == 0
    if weak and all_doubles(registry, args, count):
        return hit_with_floats(registry, called_as, args, count)
    if registry.known_arrays == 0:
        return 0
    for k in range(count):
        x = word(args, k)
        if kind_of(x) != registry.tensor_type and suits(registry, args, count, x):
            tensor = TensorObject(wrap(registry, op, x, keeps))
            if tensor != 0:
                made += 1
                risk = 1 if keeps and tensor.shared != 0 else risk
                store_i8(operands + 8 * k, tensor)
                store_i8(wrapped + 8 * k, tensor)
    result, counts = 0, registry.exposed
    if made != 0 and c_api.PyErr_Occurred() == 0 and counts != 0:
        counts[structs.EXPOSED] += risk  # is_risky
        result = hit_call(called_as, operands, count)
        counts[structs.EXPOSED] -= risk
    if let_go(registry, wrapped) == 0 and result != structs.NOT_NATIVE:
        return dropped(result)
    return result


# Tensors of the first operand's memory as one native call: views such as ``x[1:]`` and ``x.T``, and ``x.detach()``.


def base_of(x: TensorObject, entry: CallEntry):
    """The base of a view, borrowed."""
    return x.base if entry.count != 0 else x


def can_show(registry: RegistryTable, call: CallRequest, entry: CallEntry):
    """Whether native code can make the view now: not where the tape is full."""
    x, t, block = TensorObject(load_i8(call.args)), TapeHeader(call.tape & ~3), entry.block
    views, value = TensorObject(base_of(x, entry)).views, CallOperand(call.operands).object
    count = c_api.PyList_Size(views) if views != 0 else 0
    if count < 0:
        c_api.PyErr_Clear()
    if value == 0 or kind_of(value) != registry.array_type:
        return False
    if count < 0:
        return False
    return block == 0 or (t.size + block.entries <= t.room and reserve(t, block.entries) != 0)


@kept_apart
def forget_dead(registry: RegistryTable, views):
    """Take the weak references of dead views from a list of them; no Python code runs."""
    count, alive = c_api.PyList_Size(views), 0
    for k in range(count):
        reference = c_api.PyList_GetItem(views, k)
        view = c_api.PyObject_CallNoArgs(reference)
        if view != registry.none:
            if alive != k:
                c_api.PyList_SetItem(views, alive, owned(reference))
            alive += 1
        c_api.Py_DecRef(view)
    c_api.PyList_SetSlice(views, alive, count, 0)


def give_view(registry, call: CallRequest, entry: CallEntry, result: TensorObject, reference):
    """Make a new tensor the view, and enter it into its base's list of views; 0 with an exception."""
    x, operands, words, results = TensorObject(load_i8(call.args)), call.operands, call.words, three_words()
    base, offset = TensorObject(base_of(x, entry)), CallOperand(operands + CallOperand.SIZE)
    value, count = ArrayObject(x.value), c_api.PyList_Size(base.views)
    if count >= structs.MOST_VIEWS and (count + 1) & count == 0:
        forget_dead(registry, base.views)
    data, flags = value.data + part_of(entry, words, CallEntry.start), value.flags & entry.flags
    c_api.Py_IncRef(value)
    made = laid_out(registry, value.dtype, entry.ndim, entry.shape, entry.strides, data, flags, value)
    if made == 0 or c_api.PyList_Append(base.views, reference) != 0:
        dropped(made)
        return dropped(result)
    offset.object = 0
    offset.double = part_of(entry, words, CallEntry.offset)
    if base != x:
        offset.double += x.offset
    result.base = owned(base)
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
    reference = c_api.PyWeakref_NewRef(result, 0) if result != 0 else 0
    same = (
        reference != 0
        and entry.constant == constant
        and is_same(registry, call, entry)
        and entry.target == structs.SHOWN
    )
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
    array = ArrayObject(array_of(registry, 0, three_words(), c_api.DOUBLES, False))
    if array != 0:
        store_f8(array.data, load_f8(value + HEADER))
        x.value = array
        c_api.Py_DecRef(value)
    return array


@kept_apart
def new_alias(registry: RegistryTable, call: CallRequest):
    """Return a tensor that shares memory and version counter with another; 0 where Python has to or has raised."""
    x = TensorObject(load_i8(call.args))
    if x.base != 0 or not is_counted(registry, x) or not is_listing(x):
        return 0
    counter = counter_of(registry, x)
    c_api.Py_IncRef(counter)
    extras = new_extras(registry, counter)
    result = TensorObject(new_tensor(registry) if extras != 0 else 0)
    if result == 0:
        return dropped(extras)
    result.extras = extras
    # Allocating may have run any Python code: read everything that matters now.
    entry = CallEntry(entry_of(registry, call))
    same = (
        entry != 0
        and entry.target == structs.ALIASED
        and x.base == 0
        and counter_of(registry, x) == counter
        and x.views != 0
    )
    value = array_in(registry, x) if same else 0
    if value == 0:
        return dropped(result)
    if x.shared == 0:
        x.shared = owned(registry.true)
    result.shared = owned(registry.true)
    result.views = owned(x.views)
    result.value = owned(value)
    result.form = owned(entry.form)
    return result


# The slots of the type of tensors for operators and indices.


def missed(op, args, count, always):
    """Let Python make a call of an operator."""
    return c_api.PyObject_Vectorcall(tape_registry().missed[2 * op + always], args, count, 0)


def operate(called_as, a, b):
    args, count = three_words(), 2 if b != 0 else 1
    store_i8(args, a)
    store_i8(args + 8, b)
    result = hit(called_as, args, count, 0)
    if result == structs.NOT_NATIVE:
        return missed(called_as & (structs.NUMBERED - 1), args, count, 1)
    if result == 0 and c_api.PyErr_Occurred() == 0:
        return missed(called_as & (structs.NUMBERED - 1), args, count, 0)
    return result


def nb_add(a: Word, b: Word) -> Word:
    return operate(structs.OP_ADD, a, b)


def nb_subtract(a: Word, b: Word) -> Word:
    return operate(structs.OP_SUBTRACT, a, b)


def nb_multiply(a: Word, b: Word) -> Word:
    return operate(structs.OP_MULTIPLY, a, b)


def nb_true_divide(a: Word, b: Word) -> Word:
    return operate(structs.OP_DIVIDE, a, b)


def nb_power(a: Word, b: Word, modulus: Word) -> Word:
    registry = tape_registry()
    if modulus != registry.none:
        return owned(registry.not_implemented)
    return operate(structs.OP_POWER | structs.NUMBERED, a, b)


def nb_negative(a: Word) -> Word:
    return operate(structs.OP_NEGATIVE, a, 0)


def nb_matrix_multiply(a: Word, b: Word) -> Word:
    return operate(structs.OP_MATMUL, a, b)


def mp_subscript(x: Word, key: Word) -> Word:
    return operate(structs.OP_PART | structs.GATHERS, x, key)


def is_written(registry: RegistryTable, args, x: Word, value: TensorObject):
    """Whether a value is the view ``x[key]`` itself, as at the end of ``x[key] += v``."""
    part = ArrayObject(0)
    if c_api.PyType_IsSubtype(kind_of(value), registry.tensor_type) != 0 and value.base != 0:
        part = value.value
    if part == 0 or kind_of(part) != registry.array_type or TensorObject(value.base).slot <= 0:
        return False
    call = CallRequest(call_words())
    words, arrays = call + CallRequest.here, call + CallRequest.arrays
    store_i8(arrays, 0)
    known = put_call(registry, args + 8, 1, 0, words, arrays) != 0
    forget(arrays)
    entry = CallEntry(entry_at(registry, structs.OP_PART, TensorObject(x).form, 0, 1, words) if known else 0)
    return entry != 0 and entry.target == structs.SHOWN and is_part(registry, entry, words, x, value)


def is_part(registry: RegistryTable, entry: CallEntry, words, x: TensorObject, value: TensorObject):
    """Whether a view is the part of a tensor that an entry shows."""
    part, array, same = ArrayObject(value.value), ArrayObject(x.value), True
    if kind_of(array) != registry.array_type or base_of(x, entry) != value.base or part.ndim != entry.ndim:
        return False
    for k in range(entry.ndim):
        same = same and part.shape[k] == entry.shape[k] and part.strides[k] == entry.strides[k]
    return same and part.data == array.data + part_of(entry, words, CallEntry.start)


def mp_ass_subscript(x: Word, key: Word, value: Word) -> Int32:
    registry, args, count, result = tape_registry(), three_words(), 2 if value == 0 else 3, 0
    store_i8(args, x)
    store_i8(args + 8, key)
    store_i8(args + 16, value)
    if value != 0 and kind_of(x) == registry.tensor_type:
        if kind_of(value) != registry.float_type and is_written(registry, args, x, value):
            result = missed(structs.OP_ASSIGN, args, 1, 1)
            count = 0
        else:
            result = hit(structs.OP_ASSIGN | structs.SCATTERS, args, 3, 0)
    if result == 0 and count != 0 and c_api.PyErr_Occurred() == 0:
        result = missed(structs.OP_ASSIGN, args, count, 0)
    c_api.Py_DecRef(result)
    return 0 if result != 0 else -1


# Functions and methods.


def vectorcall(self: FunctionObject, args: Word, count: Word, names: Word) -> Word:
    called_as, arguments, result = self.number, count & c_api.ARGUMENTS, 0
    if arguments >= 1 and (called_as & structs.ARGUED != 0 or (names == 0 and arguments <= structs.MOST_OPERANDS)):
        result = hit(called_as, args, arguments, names)
    if result == structs.NOT_NATIVE:
        return c_api.PyObject_Vectorcall(self.always, args, count, names)
    if result != 0 or c_api.PyErr_Occurred() != 0:
        return result
    return c_api.PyObject_Vectorcall(self.slow, args, count, names)


def vectorcall_where_empty(self: FunctionObject, args: Word, count: Word, names: Word) -> Word:
    lists = self.number
    busy = c_api.PyList_Size(c_api.PyTuple_GetItem(lists, 0)) + c_api.PyList_Size(c_api.PyTuple_GetItem(lists, 1))
    return c_api.PyObject_Vectorcall(self.always if busy == 0 else self.slow, args, count, names)


def descr_get(self: Word, x: Word, kind: Word) -> Word:
    return owned(self) if x == 0 else c_api.PyMethod_New(self, x)


def traverse(self: TensorObject, visit: Word, argument: Word) -> Int32:
    status = visit_all(self + FunctionObject.slow, self + FunctionObject.attributes, visit, argument)
    return status if status != 0 else call_visit(visit, self.type, argument)


def clear(self: Word) -> Int32:
    drop_all(self + FunctionObject.attributes, self + FunctionObject.attributes)
    return 0


def dealloc(self: TensorObject) -> Void:
    kind = self.type
    c_api.PyObject_GC_UnTrack(self)
    drop_all(self + FunctionObject.slow, self + FunctionObject.attributes)
    c_api.PyObject_GC_Del(self)
    c_api.Py_DecRef(kind)


# The entry for calls that are in the table.


def made(registry, call: CallRequest, entry: CallEntry):
    """Make a call whose entry has been found, by where its result goes."""
    target = entry.target
    if target == structs.NEW:
        return new_value(registry, call, entry)
    if target == structs.SHOWN:
        return new_view_of(registry, call, entry)
    return new_alias(registry, call) if target == structs.ALIASED else 0


def hit(called_as: Word, args: Word, count: Word, names: Word) -> Word:
    """Make a call that is in the table: its result, a new reference.

    NOT_NATIVE, or 0 without an exception, where Python has to make it.
    """
    registry, call = tape_registry(), CallRequest(call_words())
    begin(call, called_as, args, count, names)
    if called_as & (structs.WRITES | structs.PUTS) == 0:
        ready = called_as & structs.JOINS == 0 or begin_join(registry, call) != 0
        entry = CallEntry(entry_of(registry, call) if ready else 0)
        result = made(registry, call, entry) if entry != 0 else 0
    elif called_as & structs.PUTS != 0:
        result = write_again(registry, call)
    else:
        result = update(registry, call)
    if called_as & structs.ARGUED == 0:
        return hit_wrapped(registry, called_as, args, count) if result == 0 and c_api.PyErr_Occurred() == 0 else result
    if called_as & structs.INDEXED != 0:
        end(call)
    elif called_as & structs.JOINS != 0 and call.most > structs.MOST_OPERANDS:
        c_api.PyMem_RawFree(call.args)
    return result
