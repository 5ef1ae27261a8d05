"""The short backward, from one root to leaves without observers, up to its sweep; unusual cases are left to Python."""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.memory import (
    HEADER,
    load_f8,
    load_i4,
    load_i8,
    pointer_i8,
    store_f4,
    store_f8,
    store_i4,
    store_i8,
    word,
)
from kernels.native.objects_native import array_of, elements, kind_of, wrong
from kernels.native.pool.pool_words import LARGE
from kernels.native.python_api import (
    Py_DecRef,
    PyErr_Occurred,
    PyList_Append,
    PyLong_FromLongLong,
    PyTuple_GetItem,
    PyTuple_Size,
    call_word,
    tape_registry,
)
from kernels.native.tape.tape_native import block_at, seek
from kernels.native.words import (
    A_DATA,
    A_DTYPE,
    A_FLAGS,
    A_NDIM,
    A_SHAPE,
    A_SIMPLE,
    B_BUFFER,
    B_ENTRIES,
    B_ITEM,
    B_KIND,
    B_ORDER,
    B_READY,
    BARE,
    BUCKET,
    ELSEWHERE,
    G_ARRAY,
    G_DOUBLE,
    G_FALSE,
    G_FLOAT,
    G_LEAF,
    G_NONE,
    G_POOLED,
    G_TENSOR,
    G_TUPLE,
    H_BATCH,
    H_BUCKETS,
    H_LEAF,
    H_LEAVES,
    H_MARKS,
    H_PRESET,
    H_PRESETS,
    H_RESTRICT,
    H_RESTRICTS,
    H_SWEEPS,
    H_TAPE,
    H_WALKS,
    I_BUFFER,
    I_ITEM,
    I_LAID,
    KEPT,
    L_HOOKS,
    LEAF_WORDS,
    MEMORY,
    O_SLOT,
    OK,
    PULLS,
    RELEVANT,
    SINGLE,
    T_NUMBER,
    T_WORDS,
    TAPE_BITS,
    TOUCHED,
    UNHELD,
    UNLOADED,
    USED,
)
from kernels.sweeps.native.gathering_native import bucket_of, input_of_leaf, is_number
from kernels.sweeps.native.leaves_native import least

CONTROL = True

LEAST_I8 = -(1 << 63)
"""The bits of -0.0."""


def has_whole(registry, array, wanted):
    """Whether an array can stand for a gradient buffer: so many doubles in order, and none of them -0.0."""
    if kind_of(array) != word(registry, G_ARRAY) or load_i4(array + A_FLAGS) & A_SIMPLE != A_SIMPLE:
        return False
    count = elements(load_i8(array + A_SHAPE), load_i4(array + A_NDIM))
    if load_i8(array + A_DTYPE) != word(registry, G_DOUBLE) or count != wanted or count == 0:
        return False
    return least(pointer_i8(load_i8(array + A_DATA)), count) != LEAST_I8


def preset(h, slot):
    """Make a root the only preset; return the address of its row, for the cotangent."""
    row = word(h, H_PRESETS)
    store_i8(row, slot)
    store_i8(row + 8, 0)
    store_i8(row + 16, 0)
    store_i8(row + 24, USED | TOUCHED | KEPT)
    store_i8(h + 8 * H_PRESET, 1)
    return row


def plant(h, t, slot, value):
    """Give the root a cotangent, None for 1; return 0 where Python has to do it."""
    registry = tape_registry()
    last = seek(t, slot) - 1
    if last < 0:
        return 0
    block = block_at(t, last)
    if word(word(t, T_WORDS), last - word(block, B_ENTRIES) + 1) != slot or word(block, B_KIND) != PULLS:
        return 0
    count, item, row, number = word(block, B_BUFFER), word(block, B_ITEM), preset(h, slot), 1.0
    if kind_of(value) == word(registry, G_FLOAT):
        number = load_f8(value + HEADER) + 0.0
    elif value != word(registry, G_NONE):
        if item != 8 or word(block, B_ORDER) == 0 or not has_whole(registry, value, count):
            return 0
        number = load_f8(load_i8(value + A_DATA))
        if count != 1:
            store_i8(row + 8, -value)
            return 1
    if count != 1:
        return 0
    if item == 8:
        store_f8(row + 16, number)
    else:
        store_f4(row + 16, number)
    return 1


def can_deliver(h):
    """Whether all leaves that were found have no hooks, and gradients that native code can allocate."""
    t, leaves, kind = word(h, H_TAPE), word(h, H_LEAVES), word(tape_registry(), G_LEAF)
    for k in range(word(h, H_LEAF)):
        leaf_row = leaves + 8 * LEAF_WORDS * k
        leaf, input_block = -word(word(t, T_WORDS), load_i8(leaf_row)), input_of_leaf(t, leaf_row)
        if leaf < 0 or kind_of(leaf) != kind or load_i8(leaf + L_HOOKS) != 0:
            return False
        large = word(input_block, I_BUFFER) * word(input_block, I_ITEM) >= LARGE
        if word(input_block, I_LAID) == 0 or (large and word(tape_registry(), G_POOLED) == 0):
            return False
    return True


def narrow(h, targets, alone):
    """Restrict the sweep to what leads to some leaves, each given once; False where one of them was not found."""
    count = PyTuple_Size(targets)
    for i in range(count):
        bucket = bucket_of(h, PyTuple_GetItem(targets, i))
        if bucket == 0 or load_i8(bucket + 24) & RELEVANT != 0:
            return False
        store_i8(bucket + 24, load_i8(bucket + 24) | RELEVANT)
    if count == 0 or (alone and count != word(h, H_LEAF)):
        return False
    if count != word(h, H_LEAF):
        store_i8(h + 8 * H_RESTRICT, 1)
        call_word(word(h, H_RESTRICTS), h)
    return True


def lay(h, leaf_row, arrays, swept):
    """Give a leaf an array for its gradient, kept alive by a list; MEMORY or OK.

    If the graph has been ``swept`` already, the gradient is copied from the bucket.
    """
    registry, input_block = tape_registry(), input_of_leaf(word(h, H_TAPE), leaf_row)
    if is_number(input_block):
        return OK if PyList_Append(arrays, word(registry, G_NONE)) == 0 else MEMORY
    laid, large = word(input_block, I_LAID), word(input_block, I_BUFFER) * word(input_block, I_ITEM) >= LARGE
    made = array_of(registry, load_i8(laid), laid + 16, word(laid, 1), large)
    if made == 0:
        return MEMORY
    failed = PyList_Append(arrays, made)
    Py_DecRef(made)  # the list owns it
    bucket = word(h, H_BUCKETS) + 8 * BUCKET * load_i8(leaf_row + 16)
    if not swept:
        store_i8(bucket + 8, -made)
    elif word(input_block, I_ITEM) == 8:
        store_i8(load_i8(made + A_DATA), load_i8(bucket + 16))
    else:
        store_i4(load_i8(made + A_DATA), load_i4(bucket + 16))
    return OK if failed == 0 else MEMORY


def lay_all(h, targets, arrays, swept):
    """Give leaves arrays in the order in which gradients are returned: of the targets, or as they were found."""
    leaves, buckets, spare = word(h, H_LEAVES), word(h, H_BUCKETS), 8 if swept else 16
    if kind_of(targets) != word(tape_registry(), G_TUPLE):
        for k in range(word(h, H_LEAF)):
            if lay(h, leaves + 8 * LEAF_WORDS * k, arrays, swept) != OK:
                return MEMORY
        return OK
    for k in range(word(h, H_LEAF)):
        store_i8(buckets + 8 * BUCKET * load_i8(leaves + 8 * LEAF_WORDS * k + 16) + spare, k)
    for i in range(PyTuple_Size(targets)):
        k = load_i8(bucket_of(h, PyTuple_GetItem(targets, i)) + spare)
        if lay(h, leaves + 8 * LEAF_WORDS * k, arrays, swept) != OK:
            return MEMORY
    return OK


def started(h, t, slot, args):
    """Begin from the root; OK, or BARE."""
    registry, value = tape_registry(), word(args, 2)
    store_i8(h + 8 * H_TAPE, t)
    store_i8(h + 8 * H_RESTRICT, 0)
    store_i8(h + 8 * H_BATCH, 1)
    if word(args, 5) == word(registry, G_NONE):
        preset(h, slot)
    elif value != word(registry, G_FALSE) and plant(h, t, slot, value) == 0:
        return BARE
    return OK


def reaches(h, args):
    """Whether gradients can be delivered to the leaves that were found, and these are the wanted ones."""
    registry, targets = tape_registry(), word(args, 3)
    narrows = kind_of(targets) == word(registry, G_TUPLE)
    return can_deliver(h) and (not narrows or narrow(h, targets, word(args, 4) != word(registry, G_FALSE)))


def walked(h, args):
    """Sweep a graph of numbers in one pass; ELSEWHERE if it is not one, or leads to leaves that are not wanted."""
    registry, targets, t = tape_registry(), word(args, 3), word(h, H_TAPE)
    last = seek(t, load_i8(word(h, H_PRESETS))) - 1
    if last < 0 or word(block_at(t, last), B_READY) != SINGLE:
        return ELSEWHERE
    status = call_word(word(h, H_WALKS), h) if word(h, H_WALKS) != 0 else UNLOADED
    if status != OK:
        return status
    if kind_of(targets) == word(registry, G_TUPLE) and PyTuple_Size(targets) != word(h, H_LEAF):
        return ELSEWHERE
    if not reaches(h, args):
        return ELSEWHERE
    return lay_all(h, targets, word(args, 5), True)


def swept(h, args):
    """Mark what the root depends on, restrict that to what leads to the targets, make arrays, sweep; the status."""
    registry = tape_registry()
    status = call_word(word(h, H_MARKS), h)
    if status == OK and not reaches(h, args):
        return ELSEWHERE
    if status != OK or word(args, 5) == word(registry, G_NONE):
        return status
    status = lay_all(h, word(args, 3), word(args, 5), False)
    return call_word(word(h, H_SWEEPS), h) if status == OK else status


def begin(self: Word, args: Word, count: Word) -> Word:
    """``begin(entries, root, cotangent, targets, alone, arrays)``: mark, make arrays for gradients, sweep; its status.

    The cotangent is None for one, False where the header has it; the targets a tuple, or None for all leaves. With None
    for the arrays nothing is swept: the status tells whether the root leads to the targets.
    """
    registry, h = tape_registry(), load_i8(self + A_DATA)
    if count != 6:
        return wrong(registry)
    t, x, status = load_i8(args) + HEADER, word(args, 1), ELSEWHERE
    slot = load_i8(x + O_SLOT) & ~UNHELD if kind_of(x) == word(registry, G_TENSOR) and load_i8(x + O_SLOT) > 0 else 0
    if slot == 0 or slot >> TAPE_BITS != word(t, T_NUMBER):
        return PyLong_FromLongLong(ELSEWHERE)
    status = started(h, t, slot, args)
    if status == OK:
        status = walked(h, args) if word(args, 5) != word(registry, G_NONE) else ELSEWHERE
        if status == ELSEWHERE:
            status = swept(h, args)
    return 0 if PyErr_Occurred() != 0 else PyLong_FromLongLong(status)
