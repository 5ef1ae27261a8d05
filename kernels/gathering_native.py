"""The gradients of the leaves that a sweep comes to: arrays for them before it, a list of them after it."""

from __future__ import annotations

from kernels.jit import load_module, njit
from kernels.memory import load_f8, load_i8, store_i8, word
from kernels.numpy_api import new_array
from kernels.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyFloat_FromDouble,
    PyList_Append,
    PyTuple_New,
    PyTuple_SetItem,
    tape_registry,
)
from kernels.words import (
    B_ENTRIES,
    B_FIRST,
    CELL,
    FOUND,
    G_ARRAY,
    G_NEW,
    H_CELLS,
    H_LEAF,
    H_LEAVES,
    H_TAPE,
    I_ITEM,
    I_LAID,
    I_SHADOW,
    I_WORDS,
    MEMORY,
    OK,
    PAUSE,
    T_WORDS,
    TOUCHED,
)

block_at = load_module("tape_native").block_at


@njit(cache=True, error_model="numpy")
def about_leaf(t, found):
    """What a form's block says of a leaf that was found."""
    last = load_i8(found + 8)
    block = block_at(t, last)
    return block + 8 * (B_FIRST + (load_i8(found) - (last - word(block, B_ENTRIES) + 2)) * I_WORDS)


@njit(cache=True, error_model="numpy")
def is_number(about):
    """Whether a gradient is a double in its cell."""
    return load_i8(word(about, I_LAID)) == 0 and word(about, I_ITEM) == 8 and word(about, I_SHADOW) == 1


@njit("int64(int64, int64)", cache=True, error_model="numpy")
def place(h, arrays):
    """Give each leaf found an array, kept in a list; PAUSE, with nothing done, where that is Python's, or MEMORY."""
    t, registry = word(h, H_TAPE), tape_registry()
    leaves, cells = word(h, H_LEAVES), word(h, H_CELLS)
    for k in range(word(h, H_LEAF)):
        found = leaves + 8 * FOUND * k
        if word(word(t, T_WORDS), load_i8(found)) > 0 or word(about_leaf(t, found), I_LAID) == 0:
            return PAUSE
    for k in range(word(h, H_LEAF)):
        found = leaves + 8 * FOUND * k
        about = about_leaf(t, found)
        if is_number(about):
            continue
        laid = word(about, I_LAID)
        made = new_array(word(registry, G_NEW), word(registry, G_ARRAY), load_i8(laid), laid + 16, word(laid, 1))
        failed = made == 0 or PyList_Append(arrays, made) != 0
        if made != 0:
            Py_DecRef(made)  # the list has it
        if failed:
            PyErr_Clear()
            return MEMORY
        store_i8(cells + 8 * CELL * load_i8(found + 16) + 8, -made)
    return OK


@njit("int64(int64, int64, int64)", cache=True, error_model="numpy")
def gather(h, arrays, pairs):
    """Put each leaf to which something was contributed, with its gradient, in a list; MEMORY or OK."""
    t, leaves, cells, count = word(h, H_TAPE), word(h, H_LEAVES), word(h, H_CELLS), 0
    items = load_i8(arrays + 24)
    for k in range(word(h, H_LEAF)):
        found = leaves + 8 * FOUND * k
        cell, leaf = cells + 8 * CELL * load_i8(found + 16), -word(word(t, T_WORDS), load_i8(found))
        if is_number(about_leaf(t, found)):
            value = PyFloat_FromDouble(load_f8(cell + 16))
        else:
            value = word(items, count)
            Py_IncRef(value)
            count += 1
        if load_i8(cell + 24) & TOUCHED == 0:
            Py_DecRef(value)
            continue
        pair = PyTuple_New(2) if value != 0 else 0
        if pair == 0:
            PyErr_Clear()
            return MEMORY
        Py_IncRef(leaf)
        PyTuple_SetItem(pair, 0, leaf)
        PyTuple_SetItem(pair, 1, value)
        failed = PyList_Append(pairs, pair)
        Py_DecRef(pair)
        if failed != 0:
            PyErr_Clear()
            return MEMORY
    return OK
