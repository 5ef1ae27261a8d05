"""Reading Python objects in native code: numbers, tuples, arrays and their nests."""

from __future__ import annotations

from kernels.native import c_api, structs
from kernels.native.c_api import ArrayObject, TensorObject, call_visit, new_array
from kernels.native.memory import HEADER, call_at, call_loop, load_f8, load_i8, store_f4, store_f8, store_i8, word
from kernels.native.structs import CallEntry, CallOperand, RegistryTable


def kind_of(x):
    return load_i8(x + 8)


def owned(x):
    """A new reference to an object."""
    c_api.Py_IncRef(x)
    return x


def dropped(value):
    """Release a value, if there is one; return 0."""
    if value != 0:  # which the compiler then takes for rare
        c_api.Py_DecRef(value)
    return 0


def none(registry: RegistryTable):
    return owned(registry.none)


def wrong(registry: RegistryTable):
    """Raise TypeError, unless something has been raised."""
    if c_api.PyErr_Occurred() == 0:
        c_api.PyErr_SetNone(registry.type_error)
    return 0


def integer_of(registry: RegistryTable, x):
    """The value of an integer; -1 for anything else."""
    return c_api.PyLong_AsLongLong(x) if kind_of(x) == registry.int_type else -1


def is_array(registry: RegistryTable, x):
    kind = kind_of(x)
    return kind == registry.array_type or c_api.PyType_IsSubtype(kind, registry.array_type) != 0


def elements(shape, count):
    """How many elements a shape of so many dims has."""
    product = 1
    for k in range(count):
        product *= word(shape, k)
    return product


def array_of(registry: RegistryTable, ndim, shape, dtype, large):
    """A new array of a shape and the number of a dtype, a large one from the pool; 0 with an exception."""
    kind = registry.array_type
    if large and registry.pooled != 0:
        return call_at(registry.pooled, kind, ndim, shape, dtype)
    return new_array(registry.new_array, kind, ndim, shape, dtype)


def new_tensor(registry: RegistryTable):
    """A new empty tensor, perhaps in a dead one's memory; 0 with an exception. May run any Python code."""
    tensor = TensorObject(registry.spare)
    if tensor == 0:
        return c_api.PyType_GenericAlloc(registry.tensor_type, 0)
    registry.spare = tensor.value
    registry.spares -= 1
    tensor.value = 0
    c_api.PyObject_Init(tensor, registry.tensor_type)
    c_api.PyObject_GC_Track(tensor)
    return tensor


def is_double(registry: RegistryTable, x: ArrayObject):
    """Whether an object is a double: a float, or an array of float64 of one element."""
    if kind_of(x) == registry.float_type:
        return True
    if not is_array(registry, x) or x.dtype.number != c_api.DOUBLES:
        return False
    axis = 0
    while axis < x.ndim and x.shape[axis] == 1:
        axis += 1
    return axis == x.ndim


def block_of(registry: RegistryTable, code):
    """The block of the form of a number; 0 if there is none."""
    return registry.forms[code] if code >= 0 and code < registry.form_count else 0


def visit_all(first, last, visit, argument):
    """Show the garbage collector the objects in a range of addresses; its answer, 0 to go on."""
    for at in range(first, last + 8, 8):
        held = load_i8(at)
        if held != 0:
            status = call_visit(visit, held, argument)
            if status != 0:
                return status
    return 0


def drop_all(first, last):
    """Release the objects in a range of addresses; all are taken out first, since releasing may run any Python code."""
    for at in range(first, last + 8, 8):
        held = load_i8(at)
        if held != 0:
            store_i8(at, 0)
            c_api.Py_DecRef(held)


LARGEST_INT = 9007199254740992.0
LARGEST_SINGLE = 3.4028235677973366e38
"""Doubles from here on overflow float32: half a step beyond its largest number."""
INFINITY = float("inf")


def read_number(x, is_int, out: CallOperand):
    """Read a Python number; 0 for other objects, and for an int beyond the range of doubles."""
    number = c_api.PyFloat_AsDouble(x)
    if number == -1.0 and c_api.PyErr_Occurred() != 0:
        c_api.PyErr_Clear()  # an int beyond all doubles
        return 0
    if is_int and not abs(number) < LARGEST_INT:  # a larger one may have been rounded
        return 0
    out.form = structs.NUMBER_FORM
    out.slot = 0
    out.place = out + CallOperand.double
    out.object = 0
    store_f8(out + CallOperand.double, number)
    out.single = is_int
    return 1


def read(registry: RegistryTable, x: TensorObject, out: CallOperand):
    """Read an operand: form, slot, the address of its value, and its object; 0 for anything else."""
    kind = kind_of(x)
    if kind == registry.float_type or kind == registry.int_type:
        return read_number(x, 1 if kind == registry.int_type else 0, out)
    value = ArrayObject(x.value if kind == registry.tensor_type else 0)
    if value == 0:
        return 0
    slot, place = x.slot, value + HEADER
    if kind_of(value) != registry.float_type:
        if kind_of(value) != registry.array_type:
            return 0
        place = value.data
    out.form = x.form
    out.slot = slot & ~c_api.UNHELD if slot > 0 else slot
    out.place = place
    out.object = value
    return 1


def read_all(registry, args, count, operands):
    """Read ``count`` operands, of which there are as many as MOST_OPERANDS at least; 0 where Python has to do it."""
    for i in range(max(count, structs.MOST_OPERANDS)):
        out = CallOperand(operands + CallOperand.SIZE * i)
        if i < count:
            if read(registry, word(args, i), out) == 0:
                return 0
        else:
            out.form = 0
            out.slot = 0
            out.place = 0
            out.object = 1
    return 1


def wanted(operands: CallOperand):
    """Which of the operands have slots, as bits."""
    bits = 1 if operands.slot != 0 else 0
    bits += 2 if CallOperand(operands + CallOperand.SIZE).slot != 0 else 0
    return bits + (4 if CallOperand(operands + 2 * CallOperand.SIZE).slot != 0 else 0)


def numbers_to_float32(operands):
    """Write numbers among the operands as float32 too; 0 if one overflows."""
    for i in range(structs.MOST_OPERANDS):
        at = CallOperand(operands + CallOperand.SIZE * i)
        if at.object == 0:
            number = load_f8(at + CallOperand.double)
            if abs(number) >= LARGEST_SINGLE and abs(number) != INFINITY:
                return 0
            store_f4(at + CallOperand.single, number)
            at.place = at + CallOperand.single
    return 1


def numbers_to_int(entry: CallEntry, operands):
    """Write ints among the operands as integers too; 0 for a float, and for an int out of the dtype's range."""
    for i in range(structs.MOST_OPERANDS):
        at = CallOperand(operands + CallOperand.SIZE * i)
        if at.object == 0:
            number = int(load_f8(at + CallOperand.double))
            if at.single != 1 or number < entry.initial or number > entry.scale:
                return 0
            at.single = number
            at.place = at + CallOperand.single
    return 1


def converted(entry: CallEntry, operands):
    """Write numbers among the operands as the loops of a call read them; 0 where one is out of range."""
    if entry.kind == structs.NEST4 or (entry.kind == structs.KERNEL and entry.dtype == c_api.SINGLES):
        return numbers_to_float32(operands)
    return numbers_to_int(entry, operands) if entry.kind == structs.NEST_INT else 1


def nest(layout, pointers, count, loop, data):
    """Call a loop for each row of a nest; behind the ``count`` pointers there is room for its arguments."""
    rows, axes = load_i8(layout), word(layout, 2)
    stride = axes + 1
    first = layout + 8 * (3 + axes)
    arguments = pointers + 8 * count
    strides = arguments + 8 * count
    extent = strides + 8 * count
    store_i8(extent, word(layout, 1))
    for k in range(count):
        store_i8(strides + 8 * k, word(first, k * stride))
    for at in range(rows):
        for k in range(count):
            store_i8(arguments + 8 * k, word(pointers, k))
        rest = at
        for axis in range(axes):
            size = word(layout, 3 + axis)
            place = rest % size
            rest //= size
            for k in range(count):
                operand = arguments + 8 * k
                store_i8(operand, load_i8(operand) + place * word(first, k * stride + 1 + axis))
        call_loop(loop, arguments, extent, strides, data)
