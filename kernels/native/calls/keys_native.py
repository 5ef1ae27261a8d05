"""An index of ints, slices, None and Ellipsis as words: part of a call's key in the table."""

from __future__ import annotations

from kernels.native.c_api import (
    PyErr_Clear,
    PyErr_Occurred,
    PyLong_AsLongLong,
    PyTuple_GetItem,
    PyTuple_Size,
    tape_registry,
)
from kernels.native.call_structs import (
    ELLIPSIS_ITEM,
    FARTHEST,
    INT_ITEM,
    MOST_ITEMS,
    MOST_WORDS,
    NEW_ITEM,
    NO_BOUND,
    SLICE_ITEM,
)
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.objects_native import kind_of
from kernels.native.structs import RegistryTable

CONTROL = True


def bound(registry: RegistryTable, x):
    """The word of a bound of a slice, or of an int; FARTHEST for anything else."""
    if x == registry.none:
        return NO_BOUND
    kind = kind_of(x)
    if kind != registry.int_type and kind != registry.numpy_int:
        return FARTHEST
    number = PyLong_AsLongLong(x) if kind == registry.int_type else load_i8(x + HEADER)
    if number == -1 and PyErr_Occurred() != 0:
        PyErr_Clear()
        return FARTHEST
    return number if number > -FARTHEST and number < FARTHEST else FARTHEST


def item(registry: RegistryTable, x, out):
    """Write the words of an item of an index; return how many, 0 if native code does not accept it."""
    kind = kind_of(x)
    if kind == registry.int_type or kind == registry.numpy_int:
        store_i8(out, INT_ITEM)
        store_i8(out + 8, bound(registry, x))
        return 2 if load_i8(out + 8) != FARTHEST else 0
    if kind == registry.slice_type:
        store_i8(out, SLICE_ITEM)
        known = 4
        for k in range(3):
            number = bound(registry, load_i8(x + 16 + 8 * k))
            store_i8(out + 8 + 8 * k, number)
            if number == FARTHEST:
                known = 0
        return known
    if x == registry.none or x == registry.ellipsis:
        store_i8(out, NEW_ITEM if x == registry.none else ELLIPSIS_ITEM)
        return 1
    return 0


def more(registry, x, out, count):
    """Write the words of an item behind ``count`` others; return the new count, 0 if native code does not accept it."""
    words = item(registry, x, out + 8 * count) if 0 < count <= MOST_WORDS else 0
    return count + words if words != 0 else 0


def tuple_words(registry, items, out, count):
    """The same for a tuple, followed by a 0: (3,) and 3 mean the same, but () and ... need not."""
    if count > MOST_WORDS or PyTuple_Size(items) > MOST_ITEMS:
        return 0
    for k in range(PyTuple_Size(items)):
        count = more(registry, PyTuple_GetItem(items, k), out, count)
    if count == 0:
        return 0
    store_i8(out + 8 * count, 0)
    return count + 1


def key_words(registry: RegistryTable, key, out):
    """Write the words of an index behind their count; 0 if native code does not accept it."""
    is_tuple = kind_of(key) == registry.tuple_type
    count = tuple_words(registry, key, out, 1) if is_tuple else more(registry, key, out, 1)
    store_i8(out, count)
    return count


def argument_words(registry: RegistryTable, args, count, out):
    """Write the words of ints and of tuples behind their count; 0 if native code does not accept them."""
    used = 1
    for k in range(count):
        x = word(args, k)
        if kind_of(x) == registry.tuple_type:
            used = tuple_words(registry, x, out, used)
        else:
            used = more(registry, x, out, used) if kind_of(x) == registry.int_type else 0
        if used == 0:
            return 0
    store_i8(out, used)
    return used


def hash_of(words):
    hashed = 0
    for k in range(load_i8(words)):
        hashed = (hashed ^ word(words, k)) * 5871781006564002453
        hashed ^= hashed >> 29
    return hashed & (FARTHEST - 1)


def words_of(key: int, out: int) -> int:
    """Write the words of an index, for Python; return its hash, -1 for one that native code does not take."""
    return hash_of(out) if key_words(tape_registry(), key, out) != 0 else -1


def words_of_arguments(args: int, count: int, out: int) -> int:
    """Write the words of a view's arguments, for Python; return their hash, -1 if native code does not accept them."""
    return hash_of(out) if argument_words(tape_registry(), args, count, out) != 0 else -1
