"""The arguments of a call as words: part of its key in the table.

How many words there are, then for each argument a tag and what it is (kernels/native/structs.py).
"""

from __future__ import annotations

from kernels.native.c_api import (
    A_SIMPLE,
    ArrayObject,
    PyErr_Clear,
    PyErr_Occurred,
    PyFloat_AsDouble,
    PyList_GetItem,
    PyList_Size,
    PyLong_AsLongLong,
    PyMem_RawFree,
    PyMem_RawMalloc,
    PyTuple_GetItem,
    PyTuple_Size,
    TensorObject,
    sixteen_words,
    tape_registry,
)
from kernels.native.memory import HEADER, bits_of, load_i8, pointer_b1, store_i8, word
from kernels.native.objects_native import elements, kind_of
from kernels.native.structs import (
    ARRAY_ITEM,
    FLOAT_ITEM,
    INDEXED,
    INT_ITEM,
    MOST_ARRAYS,
    MOST_JOINED,
    MOST_WORDS,
    NAMES_ITEM,
    NO_BOUND,
    OBJECT_ITEM,
    SEQUENCE_ITEM,
    SLICE_ITEM,
    RegistryTable,
)

CONTROL = True

LARGEST_HASH = (1 << 62) - 1
MOST_DIMS = 4
LONGEST = 4 + MOST_DIMS
"""The most words of an argument that is no sequence, and one more."""


def put_int(x, out, used):
    """Write the value of an int; return how many words are used then, 0 if the int needs more than 64 bits."""
    number = PyLong_AsLongLong(x)
    if number == -1 and PyErr_Occurred() != 0:
        PyErr_Clear()
        return 0
    store_i8(out + 8 * used, number)
    return used + 1


def put_bound(registry: RegistryTable, x, out, used):
    """Write a bound of a slice: None or an int."""
    if used == 0:
        return 0
    if x == registry.none:
        store_i8(out + 8 * used, NO_BOUND)
        return used + 1
    kind = kind_of(x)
    if kind == registry.numpy_int:
        store_i8(out + 8 * used, load_i8(x + HEADER))
    elif kind != registry.int_type or put_int(x, out, used) == 0:
        return 0
    return used + 1 if word(out, used) != NO_BOUND else 0


def put_slice(registry, x, out, used):
    """Write the bounds of a slice."""
    used = put_bound(registry, word(x, 2), out, used)
    used = put_bound(registry, word(x, 3), out, used)
    return put_bound(registry, word(x, 4), out, used)


def trues(data, count):
    """How many elements of a mask are true."""
    true_count = 0
    for k in range(count):
        true_count += 1 if pointer_b1(data + k)[0] != 0 else 0
    return true_count


def add_array(arrays, data, copied):
    """Note the memory of an array, and whether it is a copy that is to be released."""
    count = load_i8(arrays)
    store_i8(arrays + 8 * (1 + 2 * count), data)
    store_i8(arrays + 8 * (2 + 2 * count), copied)
    store_i8(arrays, count + 1)


def put_array(registry: RegistryTable, x: ArrayObject, out, used, arrays):
    """Write the shape of an int64 array or of a mask."""
    ndim, is_mask, at = x.ndim, x.dtype == registry.bools, out + 8 * used
    if (x.dtype != registry.longs and not is_mask) or ndim < 1 or ndim > MOST_DIMS or x.flags & A_SIMPLE != A_SIMPLE:
        return 0
    store_i8(at, ARRAY_ITEM)
    store_i8(at + 8, 1 + trues(x.data, elements(x.shape, ndim)) if is_mask else 0)
    store_i8(at + 16, ndim)
    for k in range(ndim):
        store_i8(at + 24 + 8 * k, x.shape[k])
    add_array(arrays, x.data, 0)
    return used + 3 + ndim


def put_list(registry: RegistryTable, x, out, used, arrays):
    """Write the shape of a list of ints, which is copied."""
    count, at = PyList_Size(x), out + 8 * used
    copy = PyMem_RawMalloc(8 * count) if 0 < count <= MOST_JOINED else 0
    if copy == 0:
        return 0
    good = 1
    for k in range(count):
        element = PyList_GetItem(x, k)
        if kind_of(element) != registry.int_type or put_int(element, copy, k) == 0:
            good = 0
    if good == 0:
        PyMem_RawFree(copy)
        return 0
    store_i8(at, ARRAY_ITEM)
    store_i8(at + 8, 0)
    store_i8(at + 16, 1)
    store_i8(at + 24, count)
    add_array(arrays, copy, 1)
    return used + 4


def put_item(registry: RegistryTable, x, out, used, arrays):
    """Write the words of an argument that is no sequence behind those used; 0 if native code does not accept it.

    ``arrays`` is 0 where the elements of arrays would be part of the key. An object that is no number is known by its
    address: a call is entered only if it is immutable.
    """
    if used == 0 or used > MOST_WORDS - LONGEST:
        return 0
    kind, at = kind_of(x), out + 8 * used
    if kind == registry.int_type:
        store_i8(at, INT_ITEM)
        return put_int(x, out, used + 1)
    if arrays != 0:
        return put_indices(registry, x, out, used, arrays)
    store_i8(at, FLOAT_ITEM if kind == registry.float_type else OBJECT_ITEM)
    store_i8(at + 8, bits_of(PyFloat_AsDouble(x)) if kind == registry.float_type else x)
    return used + 2


def put_indices(registry: RegistryTable, x, out, used, arrays):
    """Write the words of an item of an index that is no int of Python's."""
    kind, at = kind_of(x), out + 8 * used
    if kind == registry.slice_type:
        store_i8(at, SLICE_ITEM)
        return put_slice(registry, x, out, used + 1)
    if kind == registry.list_type or kind == registry.tensor_type or kind == registry.array_type:
        return put_elements(registry, x, out, used, arrays)
    store_i8(at, INT_ITEM if kind == registry.numpy_int else OBJECT_ITEM)
    store_i8(at + 8, load_i8(x + HEADER) if kind == registry.numpy_int else x)
    return used + 2 if kind == registry.numpy_int or x == registry.none or x == registry.ellipsis else 0


def put_elements(registry: RegistryTable, x, out, used, arrays):
    """Write the words of a list, a tensor or an array."""
    if load_i8(arrays) == MOST_ARRAYS:
        return 0
    if kind_of(x) == registry.list_type:
        return put_list(registry, x, out, used, arrays)
    array = ArrayObject(x)
    if kind_of(x) == registry.tensor_type:
        array = TensorObject(x).value
    if array == 0 or kind_of(array) != registry.array_type:
        return 0
    return put_array(registry, array, out, used, arrays)


def put_call(registry: RegistryTable, args, count, names, out, arrays):
    """Write the words of a call's arguments; 0 if native code does not accept all of them.

    The first word is the count of all words, 0 if there are no arguments. The names of keyword arguments, which follow
    the others, come before these as a sequence. A list in an index picks elements, and is no sequence; the items of a
    sequence are none.
    """
    used, all_count = 1, count + 1 + PyTuple_Size(names) if names != 0 else count
    for k in range(all_count):
        x, size = names if k == count else word(args, k - (1 if k > count else 0)), 1
        kind = kind_of(x)
        is_list = kind == registry.list_type and arrays == 0
        if is_list or kind == registry.tuple_type:
            if used == 0 or used > MOST_WORDS - LONGEST:
                return 0
            size = PyList_Size(x) if is_list else PyTuple_Size(x)
            store_i8(out + 8 * used, NAMES_ITEM if k == count else SEQUENCE_ITEM)
            store_i8(out + 8 * used + 8, size)
            used += 2
        for i in range(size):
            item = x
            if is_list:
                item = PyList_GetItem(x, i)
            elif kind == registry.tuple_type:
                item = PyTuple_GetItem(x, i)
            used = put_item(registry, item, out, used, arrays)
    store_i8(out, used if used != 1 else 0)
    return used


def forget(arrays):
    """Release the copies of lists."""
    for k in range(load_i8(arrays)):
        if word(arrays, 2 + 2 * k) != 0:
            PyMem_RawFree(word(arrays, 1 + 2 * k))
    store_i8(arrays, 0)


def mixed(hashed, x):
    """A hash with one more word in it."""
    hashed = (hashed ^ x) * 5871781006564002453
    return hashed ^ (hashed >> 29)


def hash_of(words):
    """A hash of words that begin with their count."""
    hashed = 0
    for k in range(load_i8(words)):
        hashed = mixed(hashed, word(words, k))
    return hashed & LARGEST_HASH


def ints_in(words):
    """How many ints an index is made of, which are its last words; not positive where it has anything else."""
    count, first = (load_i8(words) - 1) // 2, 1 if word(words, 1) == SEQUENCE_ITEM else 0
    k = first
    while k < count and word(words, 1 + 2 * k) == INT_ITEM:
        k += 1
    return count - first if k == count else 0


def words_of(args: int, count: int, names: int, marks: int, out: int) -> int:
    """Write the words of arguments, for Python; return how many arrays there are, -1 where native code refuses them."""
    registry, arrays = tape_registry(), sixteen_words()
    store_i8(arrays, 0)
    used = put_call(registry, args, count, names, out, arrays if marks & INDEXED != 0 else 0)
    count_of_arrays = load_i8(arrays)
    forget(arrays)
    return count_of_arrays if used != 0 else -1


def hash_words(words: int) -> int:
    """The hash of words, for Python."""
    return hash_of(words)
