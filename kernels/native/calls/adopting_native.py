"""NumPy's arrays and scalars among the operands of a call: wrapped in tensors for the call.

A hash table maps dtype, shape and strides of arrays to specs (adopted_arrays.py enters them). Of scalars and of arrays
without dims, doubles are accepted, and integers too if another operand is a tensor of doubles.
"""

from __future__ import annotations

import numpy as np

from kernels.compiler.signatures import Word
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.calls.securing_native import copy_of
from kernels.native.memory import HEADER, call_at, load_f8, load_i4, load_i8, store_i8, word
from kernels.native.numpy_api import new_view, set_base
from kernels.native.objects_native import elements, kind_of, new_tensor, put
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyBytes_FromStringAndSize,
    PyErr_Occurred,
    PyFloat_FromDouble,
    tape_registry,
    three_words,
)
from kernels.native.words import (
    A_ALIGNED,
    A_DATA,
    A_DENSE,
    A_DTYPE,
    A_FLAGS,
    A_NDIM,
    A_SHAPE,
    A_STRIDES,
    A_WRITEABLE,
    ADOPTED,
    CONDITION,
    COPIED,
    EXPOSED,
    G_ADOPTED,
    G_ARRAY,
    G_BASE,
    G_DOUBLE,
    G_EXPOSED,
    G_FLOAT,
    G_HIT_IN_PLACE,
    G_NONE,
    G_NUMPY_DOUBLE,
    G_NUMPY_INT,
    G_NUMPY_SPEC,
    G_TENSOR,
    G_VIEW,
    KNOWN_ARRAYS,
    MOST_ADOPTED_DIMS,
    MOST_OPERANDS,
    N_DTYPE,
    N_NDIM,
    N_SHAPE,
    N_SPEC,
    N_STRIDES,
    NOT_NATIVE,
    NUMBERED,
    O_FORM,
    O_SHARED,
    O_SLOT,
    O_VALUE,
    OP_ADD,
    OP_SUBTRACT,
)

CONTROL = True

COUNTED = (1 << 32) - 1
BYTES = bytes.__basicsize__ - 1
"""Where the memory of bytes begins in the object."""
MIX = -7046029254386353131
"""The golden ratio, times 2**64 (Knuth)."""


def row_of(registry, array):
    """The row of the table for an array's spec; 0 for an array that the table cannot hold."""
    ndim = load_i4(array + A_NDIM)
    if ndim < 1 or ndim > MOST_ADOPTED_DIMS or load_i4(array + A_FLAGS) & A_ALIGNED == 0:
        return 0
    shape, strides, hashed = load_i8(array + A_SHAPE), load_i8(array + A_STRIDES), load_i8(array + A_DTYPE)
    for k in range(ndim):
        hashed = (hashed ^ word(shape, k)) * MIX + word(strides, k)
    return word(registry, G_ADOPTED) + 8 * ADOPTED * ((hashed >> 32) & (KNOWN_ARRAYS - 1))


def is_entered(row, array):
    """Whether a row has the array's dtype, shape and strides."""
    ndim = load_i4(array + A_NDIM)
    if word(row, N_SPEC) == 0 or word(row, N_DTYPE) != load_i8(array + A_DTYPE) or word(row, N_NDIM) != ndim:
        return False
    shape, strides, alike = load_i8(array + A_SHAPE), load_i8(array + A_STRIDES), True
    for k in range(ndim):
        alike = alike and word(row, N_SHAPE + k) == word(shape, k) and word(row, N_STRIDES + k) == word(strides, k)
    return alike


def enter(array: int, spec: int) -> int:
    """Enter an array's spec, owning a reference to it; return the number of the row, -1 if that cannot be done."""
    registry = tape_registry()
    row = row_of(registry, array)
    if row == 0:
        return -1
    ndim, shape, strides = load_i4(array + A_NDIM), load_i8(array + A_SHAPE), load_i8(array + A_STRIDES)
    store_i8(row + 8 * N_DTYPE, load_i8(array + A_DTYPE))
    store_i8(row + 8 * N_NDIM, ndim)
    for k in range(ndim):
        store_i8(row + 8 * (N_SHAPE + k), word(shape, k))
        store_i8(row + 8 * (N_STRIDES + k), word(strides, k))
    store_i8(row + 8 * N_SPEC, spec)
    return (row - word(registry, G_ADOPTED)) // (8 * ADOPTED)


def laid_over(registry, array, data, flags, base):
    """An array like another of memory that ``base``, whose reference it takes over, owns; 0 with an exception."""
    dtype, ndim = load_i8(array + A_DTYPE), load_i4(array + A_NDIM)
    Py_IncRef(dtype)
    shape, strides = load_i8(array + A_SHAPE), load_i8(array + A_STRIDES)
    made = new_view(word(registry, G_VIEW), word(registry, G_ARRAY), dtype, ndim, shape, strides, data, flags)
    if made == 0:
        Py_DecRef(base)
    elif set_base(word(registry, G_BASE), made, base) != 0:
        Py_DecRef(made)
        return 0
    return made


def view_of(registry, array):
    """A view of an array, whose shape nobody else can set; 0 with an exception."""
    Py_IncRef(array)
    flags = load_i4(array + A_FLAGS) & A_WRITEABLE
    return laid_over(registry, array, load_i8(array + A_DATA), flags, array)


def small_copy(registry, array, count):
    """A copy of a dense array of few doubles, which costs hardly more than a view; 0 with an exception."""
    held = PyBytes_FromStringAndSize(load_i8(array + A_DATA), 8 * count)
    return laid_over(registry, array, held + BYTES, 0, held) if held != 0 else 0


def is_double(registry, array):
    """Whether an array is a single double."""
    aligned = load_i4(array + A_FLAGS) & A_ALIGNED != 0
    return load_i4(array + A_NDIM) == 0 and load_i8(array + A_DTYPE) == word(registry, G_DOUBLE) and aligned


def spec_for(registry, op, x):
    """The spec of the tensor that wraps an operand; 0 for anything but arrays and NumPy's scalars.

    Where an operation has a condition, a scalar counts as a Python number; elsewhere it is a tensor.
    """
    kind = kind_of(x)
    if kind == word(registry, G_NUMPY_DOUBLE) or kind == word(registry, G_NUMPY_INT):
        return word(registry, G_NUMPY_SPEC) if op & CONDITION == 0 else 0
    if kind != word(registry, G_ARRAY):
        return 0
    if is_double(registry, x):
        return word(registry, G_NUMPY_SPEC)
    row = row_of(registry, x)
    return word(row, N_SPEC) if row != 0 and is_entered(row, x) else 0


def is_spread(array):
    """Whether an array has the same element at several places."""
    spread = False
    for k in range(load_i4(array + A_NDIM)):
        spread = spread or (word(load_i8(array + A_STRIDES), k) == 0 and word(load_i8(array + A_SHAPE), k) > 1)
    return spread


def value_of_array(registry, array, keeps):
    """The value of the tensor that wraps an array, a copy or a view: a new reference; 0 where Python has to do it.

    Recorders see the memory itself: what they read from outside is read again at replays.
    """
    flags, count = load_i4(array + A_FLAGS), elements(load_i8(array + A_SHAPE), load_i4(array + A_NDIM))
    if flags & A_DENSE == 0:
        spread = count > COPIED and is_spread(array)
        return 0 if spread or tape_in_force(registry) & 1 != 0 else copy_of(registry, array)
    few = keeps and count <= COPIED and load_i8(array + A_DTYPE) == word(registry, G_DOUBLE)
    if few and tape_in_force(registry) & 1 == 0:
        return small_copy(registry, array, count)
    return view_of(registry, array) if flags & A_WRITEABLE != 0 or count <= COPIED else 0


def value_for(registry, x, keeps):
    """The value of the tensor that wraps an operand: a new reference; 0 with an exception, or for Python."""
    if kind_of(x) == word(registry, G_NUMPY_INT):
        return PyFloat_FromDouble(np.float64(load_i8(x + HEADER)))
    if kind_of(x) != word(registry, G_ARRAY):
        return PyFloat_FromDouble(load_f8(x + HEADER))
    if is_double(registry, x):
        return PyFloat_FromDouble(load_f8(load_i8(x + A_DATA)))
    return value_of_array(registry, x, keeps)


def is_lent(registry, value, x):
    """Whether a value is a view of the caller's memory."""
    same = kind_of(value) == word(registry, G_ARRAY) and kind_of(x) == word(registry, G_ARRAY)
    return same and load_i8(value + A_DATA) == load_i8(x + A_DATA)


def adopt(registry, op, x, keeps):
    """A new tensor that wraps an operand; 0 without an exception if the operand cannot be wrapped.

    ``keeps``: a pullback may keep the value. What it keeps of memory that the caller lends is copied: the tensor has
    None in place of what says that memory is shared.
    """
    spec = spec_for(registry, op, x)
    made = new_tensor(registry) if spec != 0 else 0
    if made == 0:
        return 0
    # Making a tensor may run a garbage collection, and so any Python code.
    value = value_for(registry, x, keeps) if spec_for(registry, op, x) == spec else 0
    if value == 0:
        Py_DecRef(made)
        return 0
    if is_lent(registry, value, x):
        put(made + O_SHARED, word(registry, G_NONE))
    store_i8(made + O_VALUE, value)
    put(made + O_FORM, spec)
    return made


def suits(registry, args, count, x):
    """Whether an operand may be wrapped as a double: an integer only if another operand is a tensor of doubles."""
    if kind_of(x) != word(registry, G_NUMPY_INT):
        return True
    doubles = True
    for k in range(count):
        if kind_of(word(args, k)) == word(registry, G_TENSOR):
            value = load_i8(word(args, k) + O_VALUE)
            kind = kind_of(value) if value != 0 else 0
            of_doubles = kind == word(registry, G_ARRAY) and load_i8(value + A_DTYPE) == word(registry, G_DOUBLE)
            doubles = doubles and (of_doubles or kind == word(registry, G_FLOAT))
    return doubles


def give_own(registry, x):
    """Give a tensor that somebody keeps, as recorders do, memory of its own in place of what was lent."""
    value = load_i8(x + O_VALUE)
    copy = copy_of(registry, value)
    if copy != 0:
        store_i8(x + O_VALUE, copy)
        store_i8(x + O_SHARED, 0)
        Py_DecRef(value)
        Py_DecRef(word(registry, G_NONE))
    return copy


def let_go(registry, adopted):
    """Release the tensors that have been made; 0 with an exception."""
    done = 1
    for k in range(MOST_OPERANDS):
        x = word(adopted, k)
        if x != 0:
            if (
                load_i8(x) & COUNTED != 1
                and load_i8(x + O_SHARED) == word(registry, G_NONE)
                and give_own(registry, x) == 0
            ):
                done = 0
            Py_DecRef(x)
    return done


def hit_adopted(op: Word, args: Word, count: Word, asked: Word) -> Word:
    """Make a call by the function at ``asked`` in the registry, with arrays wrapped, if an operand is a tensor.

    0 where Python has to make the call; with an exception if one was raised.
    """
    registry, operands, adopted, tensors, made = tape_registry(), three_words(), three_words(), 0, 0
    keeps, risk = False, 0
    adds = op & (NUMBERED - 1) in (OP_ADD, OP_SUBTRACT)
    for k in range(MOST_OPERANDS):
        store_i8(adopted + 8 * k, 0)
        if k < count:
            store_i8(operands + 8 * k, word(args, k))
            if kind_of(word(args, k)) == word(registry, G_TENSOR):
                tensors += 1
                keeps = keeps or (load_i8(word(args, k) + O_SLOT) != 0 and not adds)
    writes = asked == G_HIT_IN_PLACE
    if (
        word(registry, asked) == 0
        or tensors == 0
        or tensors == count
        or (writes and kind_of(word(args, 0)) != word(registry, G_TENSOR))
    ):
        return 0
    for k in range(count):
        x = word(args, k)
        if kind_of(x) != word(registry, G_TENSOR) and suits(registry, args, count, x):
            tensor = adopt(registry, op & (NUMBERED - 1), x, keeps)
            if tensor != 0:
                made += 1
                risk = 1 if keeps and load_i8(tensor + O_SHARED) != 0 else risk
                store_i8(operands + 8 * k, tensor)
                store_i8(adopted + 8 * k, tensor)
    result, counts = 0, word(registry, G_EXPOSED)
    if made != 0 and PyErr_Occurred() == 0 and counts != 0:
        store_i8(counts + 8 * EXPOSED, word(counts, EXPOSED) + risk)  # is_risky
        result = call_at(word(registry, asked), op, operands, count, 0)
        store_i8(counts + 8 * EXPOSED, word(counts, EXPOSED) - risk)
    if let_go(registry, adopted) == 0 and result != 0 and result != NOT_NATIVE:
        Py_DecRef(result)
        return 0
    return result
