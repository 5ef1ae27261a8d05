"""The arguments of a call behind its tensors as words: part of the call's key in the table."""

from __future__ import annotations

from kernels.native.c_api import (
    PyErr_Clear,
    PyErr_Occurred,
    PyFloat_AsDouble,
    PyList_GetItem,
    PyList_Size,
    PyLong_AsLongLong,
    PyTuple_GetItem,
    PyTuple_Size,
    bits_of,
    tape_registry,
)
from kernels.native.call_structs import (
    FLOAT_ITEM,
    INT_ITEM,
    MOST_ARGUMENT_WORDS,
    MOST_OPERANDS,
    OBJECT_ITEM,
    SEQUENCE_ITEM,
)
from kernels.native.calls.keys_native import hash_of
from kernels.native.memory import store_i8, word
from kernels.native.objects_native import kind_of
from kernels.native.structs import RegistryTable

CONTROL = True


def put_int(x, out, used):
    """Write the word of an int; return how many words are used then, 0 if the int needs more than 64 bits."""
    number = PyLong_AsLongLong(x)
    if number == -1 and PyErr_Occurred() != 0:
        PyErr_Clear()
        return 0
    store_i8(out + 8 * used, number)
    return used + 1


def put_sequence(registry: RegistryTable, x, out, used):
    """Write the words of a tuple or list of ints, after their count; 0 for any other."""
    is_list = kind_of(x) == registry.list_type
    count = PyList_Size(x) if is_list else PyTuple_Size(x)
    if used + 1 + count > MOST_ARGUMENT_WORDS:
        return 0
    store_i8(out + 8 * used, count)
    used += 1
    for k in range(count):
        item = PyList_GetItem(x, k) if is_list else PyTuple_GetItem(x, k)
        used = put_int(item, out, used) if used != 0 and kind_of(item) == registry.int_type else 0
    return used


def put_argument(registry: RegistryTable, x, out, used):
    """Write the words of an argument behind those used; 0 if native code does not accept it.

    An object that is no number and no sequence is known by its address: such calls are entered only if it is immutable.
    """
    if used == 0 or used + 2 > MOST_ARGUMENT_WORDS:
        return 0
    kind, at = kind_of(x), out + 8 * used
    if kind == registry.int_type:
        store_i8(at, INT_ITEM)
        return put_int(x, out, used + 1)
    if kind == registry.tuple_type or kind == registry.list_type:
        store_i8(at, SEQUENCE_ITEM)
        return put_sequence(registry, x, out, used + 1)
    store_i8(at, FLOAT_ITEM if kind == registry.float_type else OBJECT_ITEM)
    store_i8(at + 8, bits_of(PyFloat_AsDouble(x)) if kind == registry.float_type else x)
    return used + 2


def call_words(registry, args, first, count, names, out):
    """Write the words of the arguments behind a call's tensors; 0 if native code does not accept all of them.

    The first word is the count of all words. Keyword arguments come last, each behind its name.
    """
    used = 1
    for k in range(first, count):
        used = put_argument(registry, word(args, k), out, used)
    for k in range(PyTuple_Size(names) if names != 0 else 0):
        used = put_argument(registry, PyTuple_GetItem(names, k), out, used)
        used = put_argument(registry, word(args, count + k), out, used)
    store_i8(out, used)
    return used


def tensors_in(registry: RegistryTable, args, count):
    """How many leading arguments are tensors, at most as many as an operation has operands."""
    tensors = 0
    while tensors < min(count, MOST_OPERANDS) and kind_of(word(args, tensors)) == registry.tensor_type:
        tensors += 1
    return tensors


def words_of(args: int, count: int, names: int, out: int) -> int:
    """Write the words of arguments, for Python; return their hash, -1 if native code does not accept all of them."""
    return hash_of(out) if call_words(tape_registry(), args, 0, count, names, out) != 0 else -1
