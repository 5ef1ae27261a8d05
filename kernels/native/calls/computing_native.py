"""Computes the value of a call in the table, and writes the words of its instruction."""

from __future__ import annotations

from kernels.native.memory import (
    HEADER,
    call_kernel,
    call_loop,
    double_of,
    load_f8,
    load_i8,
    store_f8,
    store_i8,
    word,
)
from kernels.native.nests_native import nest
from kernels.native.objects_native import array_of, elements
from kernels.native.python_api import Py_DecRef, Py_IncRef, PyFloat_FromDouble, sixteen_words, thirty_words, three_words
from kernels.native.tape.tape_native import commit, hold
from kernels.native.words import (
    A_DATA,
    ADD,
    ARRAY,
    B_ENTRIES,
    B_FIRST,
    B_FORM,
    B_INPUTS,
    B_SAVED,
    DOUBLES,
    E_BLOCK,
    E_BYTES,
    E_CODE,
    E_CONTEXT,
    E_COUNT,
    E_COUNTS,
    E_DATA,
    E_DTYPE,
    E_EXTRA,
    E_INITIAL,
    E_KIND,
    E_LAYOUT,
    E_LOOP,
    E_NDIM,
    E_SAVED,
    E_SCALE,
    E_SHAPE,
    E_TIES,
    EXTRA_AT,
    I_WORDS,
    K_WANTS,
    KERNEL,
    LONGS,
    MULTIPLY,
    ONCE,
    OPERAND,
    PICK,
    PICK_CONTEXT,
    PICK_EXTRA,
    PICK_RESULT,
    PICK_SCALE,
    PRODUCT,
    REDUCE,
    SUBTRACT,
    T_NUMBER,
    T_REGISTRY,
    T_SIZE,
    T_WORDS,
    TAPE_BITS,
    V_DOUBLE,
    V_OBJECT,
    V_PLACE,
    V_SLOT,
)


def over_nest(entry, pointers):
    """Call NumPy's loop over the nest of a call."""
    nest(word(entry, E_LAYOUT), pointers, word(entry, E_COUNT), word(entry, E_LOOP), word(entry, E_DATA))


def pointers_of(entry, operands, out, row):
    """Write the addresses of the operands' values, then that of the result."""
    count = word(entry, E_COUNT) - 1
    for i in range(count):
        store_i8(row + 8 * i, load_i8(operands + OPERAND * i + V_PLACE))
    store_i8(row + 8 * count, out)


def once(entry, operands):
    """One element by NumPy's loop."""
    row = thirty_words()
    pointers_of(entry, operands, row + 128, row)
    extents, strides = row + 64, row + 72
    store_i8(extents, 1)
    for i in range(word(entry, E_COUNT)):
        store_i8(strides + 8 * i, 0)
    call_loop(word(entry, E_LOOP), row, extents, strides, word(entry, E_DATA))
    return load_f8(row + 128)


def scalar(entry, operands):
    """The result of an operation on doubles."""
    kind = word(entry, E_KIND)
    if kind == ONCE:
        return once(entry, operands)
    x, y = load_f8(load_i8(operands + V_PLACE)), load_f8(load_i8(operands + OPERAND + V_PLACE))
    if kind == ADD:
        return x + y
    if kind == SUBTRACT:
        return x - y
    return x * y if kind == MULTIPLY else x / y


def reduce(entry, x, out, count):
    """Reduce an operand to ``count`` doubles."""
    row = sixteen_words()
    for k in range(count):
        store_i8(out + 8 * k, word(entry, E_INITIAL))
    store_i8(row, out)
    store_i8(row + 8, x)
    store_i8(row + 16, out)
    over_nest(entry, row)
    if word(entry, E_SCALE) != 0:
        by = double_of(word(entry, E_SCALE))
        for k in range(count):
            store_f8(out + 8 * k, load_f8(out + 8 * k) / by)


def array_for(registry, entry):
    """A new array for the result, large ones from the pool; 0 with an exception."""
    large = word(entry, E_BYTES) != 0
    return array_of(registry, word(entry, E_NDIM), word(entry, E_SHAPE), word(entry, E_DTYPE), large)


def fill(entry, operands, out):
    """Compute an array's elements."""
    row, kind = thirty_words(), word(entry, E_KIND)
    if kind == KERNEL:
        store_i8(row, out)
        at = row + 8
        if word(entry, E_EXTRA) != 0:
            store_i8(at, load_i8(load_i8(operands + EXTRA_AT) + A_DATA))
            at += 8
        for i in range(word(entry, E_COUNT) - 1):
            store_i8(at + 8 * i, load_i8(operands + OPERAND * i + V_PLACE))
        call_kernel(word(entry, E_LOOP), word(entry, E_LAYOUT), row, 0)
        return
    pointers_of(entry, operands, out, row)
    if kind == PRODUCT:  # of four extents, then strides
        layout = word(entry, E_LAYOUT)
        call_loop(word(entry, E_LOOP), row, layout, layout + 32, word(entry, E_DATA))
    else:
        over_nest(entry, row)


def elements_of(entry):
    """How many elements a result has."""
    return elements(word(entry, E_SHAPE), word(entry, E_NDIM))


def compute(entry, operands, out):
    """Compute the elements of a result; of a reduction as many as there are."""
    if word(entry, E_KIND) == REDUCE:
        reduce(entry, load_i8(operands + V_PLACE), out, elements_of(entry))
    else:
        fill(entry, operands, out)


def value_of(registry, entry, operands):
    """A new value: a float, or an array; 0 with an exception."""
    kind = word(entry, E_KIND)
    if kind <= ONCE:
        return PyFloat_FromDouble(scalar(entry, operands))
    if word(entry, E_NDIM) == 0 and word(entry, E_DTYPE) == DOUBLES:
        out = three_words()
        compute(entry, operands, out)
        return PyFloat_FromDouble(load_f8(out))
    made = array_for(registry, entry)
    if made != 0:
        compute(entry, operands, load_i8(made + A_DATA))
    return made


def values_of(registry, entry, operands):
    """The same, writing a second value behind the operands."""
    if word(entry, E_EXTRA) == 0:
        return value_of(registry, entry, operands)
    extra = array_of(registry, word(entry, E_NDIM), word(entry, E_SHAPE), LONGS, False)
    if extra == 0:
        return 0
    store_i8(operands + EXTRA_AT, extra)
    value = value_of(registry, entry, operands)
    if value == 0:
        Py_DecRef(extra)
    return value


def counted(registry, entry, operands, value):
    """Store the number of ties of a recorded extremum behind the operands; return the value, 0 with an exception."""
    if value == 0 or word(entry, E_TIES) == 0 or word(entry, E_BLOCK) == 0:
        return value
    row, at, count = sixteen_words(), operands + 2 * OPERAND, elements_of(entry)
    out = at + V_DOUBLE
    if count > 1:
        made = array_for(registry, entry)
        if made == 0:
            Py_DecRef(value)
            return 0
        store_i8(at + V_OBJECT, made)
        out = load_i8(made + A_DATA)
    for k in range(count):
        store_f8(out + 8 * k, 0.0)
    store_i8(row, load_i8(operands + V_PLACE))
    store_i8(row + 8, value + HEADER if word(entry, E_NDIM) == 0 else load_i8(value + A_DATA))
    store_i8(row + 16, out)
    nest(word(entry, E_TIES), row, 3, word(entry, E_COUNTS), 0)
    return value


def keep(t, at, slot):
    """Write an operand's word: own a reference to a leaf, count a slot of another tape."""
    store_i8(at, slot)
    if slot < 0:
        Py_IncRef(-slot)
    elif slot > 0 and slot >> TAPE_BITS != word(t, T_NUMBER):
        hold(word(t, T_REGISTRY), slot)


def saved_word(entry, pick, kind, operands, value):
    """A saved word: an object, of which the tape owns a reference, or the bits of a double."""
    if pick == PICK_CONTEXT:
        Py_IncRef(word(entry, E_CONTEXT))
        return word(entry, E_CONTEXT)
    if pick == PICK_EXTRA:
        Py_IncRef(load_i8(operands + EXTRA_AT))
        return load_i8(operands + EXTRA_AT)
    if pick == PICK_SCALE:
        ties = operands + 2 * OPERAND
        held = load_i8(ties + (V_OBJECT if kind == ARRAY else V_DOUBLE))
        return held if word(entry, E_TIES) != 0 else word(entry, E_SCALE)
    at = operands + OPERAND * pick
    saved = value if pick == PICK_RESULT else load_i8(at + V_OBJECT)
    if kind >= ARRAY:
        Py_IncRef(saved)
        return saved
    if pick == PICK_RESULT:  # a float, or an array of one element
        place = value + HEADER
        return load_i8(place if word(entry, E_NDIM) == 0 else load_i8(place))
    return load_i8(at + V_DOUBLE) if saved == 0 else load_i8(load_i8(at + V_PLACE))


def append(t, entry, operands, value):
    """Record the call; return its slot."""
    block, wants = word(entry, E_BLOCK), word(entry, K_WANTS)
    at, inputs = word(t, T_WORDS) + 8 * (word(t, T_SIZE) + 1), word(block, B_INPUTS)
    for i in range(inputs):
        keep(t, at + 8 * i, load_i8(operands + OPERAND * i + V_SLOT) if wants & (1 << i) else 0)
    kinds, picks = block + 8 * (B_FIRST + I_WORDS * inputs), word(entry, E_SAVED)
    at += 8 * inputs
    for j in range(word(block, B_SAVED)):
        pick = (picks >> (PICK * j)) & ((1 << PICK) - 1)
        store_i8(at, saved_word(entry, pick, word(kinds, j), operands, value))
        at += 8
    Py_IncRef(word(block, B_FORM))
    store_i8(at, word(entry, E_CODE))
    return commit(t, word(block, B_ENTRIES))
