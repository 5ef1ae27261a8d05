"""In-place operations as one native call: a tensor takes over the result of a hit, or is overwritten with it.

A tensor whose memory nobody shares takes over the new array, so that saved references to the old one stay valid. Where
that is not possible, as for a leaf, the array is overwritten if nothing is recorded and nobody else refers to it.
"""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.call_table_native import hit
from kernels.native.calls.calls_native import COUNTED, can_do, entry_of
from kernels.native.calls.computing_native import fill, scalar
from kernels.native.calls.notifying_native import given_arrays, tape_in_force
from kernels.native.memory import load_i4, load_i8, store_f8, store_i8, word
from kernels.native.objects_native import kind_of, put
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyList_Append,
    PyList_GetItem,
    PyList_New,
    PyList_SetItem,
    PyList_Size,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyType_GenericAlloc,
    tape_registry,
    thirty_words,
)
from kernels.native.words import (
    A_BASE,
    A_DATA,
    A_FLAGS,
    A_NDIM,
    A_WRITEABLE,
    AUGMENTED,
    E_BLOCK,
    E_KIND,
    E_TAKES,
    G_ARRAY,
    G_EXTRAS,
    G_FALSE,
    G_FLOAT,
    G_INT,
    G_LIST,
    G_NONE,
    G_TENSOR,
    NEST,
    NEST4,
    NEST_INT,
    NOT_NATIVE,
    NUMBERED,
    O_BASE,
    O_BYTES,
    O_EXTRAS,
    O_FORM,
    O_SHARED,
    O_SLOT,
    O_VALUE,
    O_VIEWS,
    ONCE,
    R_COUNTER,
    R_GRAD,
    R_LEAF,
    R_RETAINS,
    STALE,
)

CONTROL = True


def new_counter():
    """A new version counter; 0 with an exception."""
    counter = PyList_New(0)
    number = PyLong_FromLongLong(0) if counter != 0 else 0
    failed = PyList_Append(counter, number) if number != 0 else -1
    if number != 0:
        Py_DecRef(number)
    if failed != 0 and counter != 0:
        Py_DecRef(counter)
    return counter if failed == 0 else 0


def new_extras(registry, counter):
    """A new object for a tensor's rare attributes, which owns the version counter; 0 with an exception."""
    extras = PyType_GenericAlloc(word(registry, G_EXTRAS), 0) if counter != 0 else 0
    if extras == 0:
        if counter != 0:
            Py_DecRef(counter)
        return 0
    store_i8(extras + R_COUNTER, counter)
    put(extras + R_GRAD, word(registry, G_NONE))
    put(extras + R_LEAF, word(registry, G_NONE))
    put(extras + R_RETAINS, word(registry, G_FALSE))
    return extras


def counter_of(registry, x):
    """A tensor's version counter (a list of one int), borrowed; 0 if it has none."""
    extras = load_i8(x + O_EXTRAS)
    counter = load_i8(extras + R_COUNTER) if extras != 0 and kind_of(extras) == word(registry, G_EXTRAS) else 0
    is_list = counter != 0 and kind_of(counter) == word(registry, G_LIST) and PyList_Size(counter) == 1
    return counter if is_list and kind_of(PyList_GetItem(counter, 0)) == word(registry, G_INT) else 0


def is_counted(registry, x):
    """Make sure that a tensor has a version counter; whether it has. Allocating may run any Python code."""
    if word(registry, G_EXTRAS) != 0 and load_i8(x + O_EXTRAS) == 0:
        extras = new_extras(registry, new_counter())
        if extras != 0 and load_i8(x + O_EXTRAS) == 0:
            store_i8(x + O_EXTRAS, extras)
        elif extras != 0:
            Py_DecRef(extras)
    return PyErr_Occurred() == 0 and counter_of(registry, x) != 0


def count(registry, x):
    """Count a write; return the tensor as a new reference, 0 with an exception."""
    counter = counter_of(registry, x)
    if counter != 0:
        number = PyLong_FromLongLong(PyLong_AsLongLong(PyList_GetItem(counter, 0)) + 1)
        if number == 0 or PyList_SetItem(counter, 0, number) != 0:
            return 0
    Py_IncRef(x)
    return x


def is_only(registry, value):
    """Whether an array owns its memory, is writeable, and is referred to by one tensor only."""
    if value == 0 or kind_of(value) != word(registry, G_ARRAY) or load_i4(value + A_FLAGS) & A_WRITEABLE == 0:
        return False
    return load_i8(value) & COUNTED == 1 and load_i8(value + A_BASE) == 0


def is_written(registry, entry, operands, x):
    """Compute into the array of a tensor if nobody else refers to it; whether that was done."""
    value, kind = load_i8(x + O_VALUE), word(entry, E_KIND)
    nests = kind in (NEST, NEST4, NEST_INT)
    if not is_only(registry, value) or (kind > ONCE and not nests) or can_do(0, entry, operands) == 0:
        return False
    if nests:
        fill(entry, operands, load_i8(value + A_DATA))
    else:
        store_f8(load_i8(value + A_DATA), scalar(entry, operands))
    return True


def is_scalar(registry, value):
    """Whether a value has no dims."""
    kind = kind_of(value) if value != 0 else 0
    return kind == word(registry, G_FLOAT) or (kind == word(registry, G_ARRAY) and load_i4(value + A_NDIM) == 0)


def can_take(registry, t, x):
    """Whether a tensor may take over a new array: nobody shares its memory, and it is not a leaf being recorded."""
    value, slot, extras = load_i8(x + O_VALUE), load_i8(x + O_SLOT), load_i8(x + O_EXTRAS)
    if value == 0 or slot == STALE or kind_of(x) != word(registry, G_TENSOR):
        return False
    if load_i8(x + O_BASE) != 0 or load_i8(x + O_VIEWS) != 0 or load_i8(x + O_SHARED) != 0:
        return False
    if kind_of(value) != word(registry, G_FLOAT):
        array = kind_of(value) == word(registry, G_ARRAY)
        if slot < 0 or not array or load_i4(value + A_FLAGS) & A_WRITEABLE == 0:
            return False
    elif slot < 0 and t != 0:
        return False
    return counter_of(registry, x) != 0 and load_i8(extras + R_RETAINS) == word(registry, G_FALSE)


def exchange(x, y, at):
    held = load_i8(x + at)
    store_i8(x + at, load_i8(y + at))
    store_i8(y + at, held)


def take(registry, x, result):
    """Swap value and, if recorded, history of a tensor with those of a new one, which is then released."""
    if load_i8(x + O_SLOT) == 0 or load_i8(result + O_SLOT) != 0:
        exchange(x, result, O_FORM)
        exchange(x, result, O_SLOT)
        exchange(x, result, O_BYTES)
    exchange(x, result, O_VALUE)
    counted = count(registry, x)
    Py_DecRef(result)
    return counted


def written_again(registry, called_as, args, counts, x):
    """Repeat an in-place operation; return the tensor, or 0 where Python has to do it or has raised."""
    operands = thirty_words()
    if not is_counted(registry, x):
        return 0
    tagged_tape = tape_in_force(registry)
    entry = entry_of(registry, called_as & (NUMBERED - 1), args, counts, operands, tagged_tape, called_as & NUMBERED, 0)
    if entry == 0 or tagged_tape & 1 != 0 or word(entry, E_TAKES) == 0:
        return 0
    if not can_take(registry, tagged_tape, x):
        written = word(entry, E_BLOCK) == 0 and is_written(registry, entry, operands, x)
        return count(registry, x) if written else 0
    form, result = load_i8(x + O_FORM), hit(called_as, args, counts, 0)
    if result == 0 or result == NOT_NATIVE:
        return 0
    # Making the result may have run any Python code.
    if not can_take(registry, tagged_tape, x) or load_i8(x + O_FORM) != form:
        Py_DecRef(result)
        return 0
    return take(registry, x, result)


def hit_in_place(called_as: Word, args: Word, counts: Word, ignored: Word) -> Word:
    """The same for any operand. The operation is named as the one that is not in place: of NumPy's scalars that is."""
    registry, x, as_value = tape_registry(), load_i8(args), 0
    if kind_of(x) != word(registry, G_TENSOR) or load_i8(x + O_BASE) != 0:
        return 0
    if called_as & AUGMENTED != 0 and is_scalar(registry, load_i8(x + O_VALUE)):
        as_value = given_arrays(registry)
    if as_value != 0:  # Python knows which leaves are written
        return hit(called_as, args, counts, 0) if as_value > 0 and load_i8(x + O_SLOT) >= 0 else 0
    return written_again(registry, called_as, args, counts, x)
