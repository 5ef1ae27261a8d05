"""The short backward, from one root to leaves without observers, up to its sweep; unusual cases are left to Python."""

from __future__ import annotations

from kernels.language.native_types import Word
from kernels.native.c_api import (
    A_SIMPLE,
    UNHELD,
    ArrayObject,
    LeafObject,
    Py_DecRef,
    PyErr_Occurred,
    PyList_Append,
    PyLong_FromLongLong,
    PyTuple_GetItem,
    PyTuple_Size,
    TensorObject,
    call_word,
    tape_registry,
)
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
from kernels.native.structs import (
    KEPT,
    LARGE,
    MEMORY,
    NEEDS_SCALAR_WALK,
    NEEDS_SEED,
    OK,
    PULLS,
    RELEVANT,
    SINGLE,
    TAPE_BITS,
    TOUCHED,
    USE_GENERAL_PATH,
    USED,
    Bucket,
    FoundLeaf,
    InputBlock,
    RegistryTable,
    SweepHeader,
    TapeHeader,
)
from kernels.native.tape_native import block_at, seek
from kernels.sweeps.gathering_native import bucket_of, input_of_leaf, is_number, least

CONTROL = True

LEAST_I8 = -(1 << 63)
"""The bits of -0.0."""


def has_whole(registry: RegistryTable, array: ArrayObject, wanted):
    """Whether an array can stand for a gradient buffer: so many doubles in order, and none of them -0.0."""
    if kind_of(array) != registry.array_type or array.flags & A_SIMPLE != A_SIMPLE:
        return False
    count = elements(array.shape, array.ndim)
    if array.dtype != registry.double or count != wanted or count == 0:
        return False
    return least(pointer_i8(array.data), count) != LEAST_I8


def preset(h: SweepHeader, slot):
    """Make a root the only preset; return the address of its row, for the cotangent."""
    row = h.presets
    store_i8(row, slot)
    store_i8(row + 8, 0)
    store_i8(row + 16, 0)
    store_i8(row + 24, USED | TOUCHED | KEPT)
    h.preset = 1
    return row


def plant(h, t: TapeHeader, slot, value: ArrayObject):
    """Give the root a cotangent, None for 1; return 0 where Python has to do it."""
    registry = tape_registry()
    last = seek(t, slot) - 1
    if last < 0:
        return 0
    block = block_at(t, last)
    if t.words[last - block.entries + 1] != slot or block.kind != PULLS:
        return 0
    count, item, row, number = block.buffer, block.item, preset(h, slot), 1.0
    if kind_of(value) == registry.float_type:
        number = load_f8(value + HEADER) + 0.0
    elif value != registry.none:
        if item != 8 or block.order == 0 or not has_whole(registry, value, count):
            return 0
        number = load_f8(value.data)
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


def can_deliver(h: SweepHeader):
    """Whether all leaves that were found have no hooks, and gradients that native code can allocate."""
    t, leaves, kind = h.tape, h.leaves, tape_registry().leaf_type
    for k in range(h.leaf):
        leaf_row = FoundLeaf(leaves + 8 * FoundLeaf.SIZE * k)
        leaf, input_block = LeafObject(-t.words[leaf_row.place]), InputBlock(input_of_leaf(t, leaf_row))
        if leaf < 0 or kind_of(leaf) != kind or leaf.hooks != 0:
            return False
        large = input_block.buffer * input_block.item >= LARGE
        if input_block.shape_words == 0 or (large and tape_registry().pooled == 0):
            return False
    return True


def narrow(h: SweepHeader, targets, alone):
    """Restrict the sweep to what leads to some leaves, each given once; False where one of them was not found."""
    count = PyTuple_Size(targets)
    for i in range(count):
        bucket = Bucket(bucket_of(h, PyTuple_GetItem(targets, i)))
        if bucket == 0 or bucket.flags & RELEVANT != 0:
            return False
        bucket.flags |= RELEVANT
    if count == 0 or (alone and count != h.leaf):
        return False
    if count != h.leaf:
        h.restrict = 1
        call_word(h.restricts, h)
    return True


def lay(h: SweepHeader, leaf_row: FoundLeaf, arrays, swept):
    """Give a leaf an array for its gradient, kept alive by a list; MEMORY or OK.

    If the graph has been ``swept`` already, the gradient is copied from the bucket.
    """
    registry, input_block = tape_registry(), InputBlock(input_of_leaf(h.tape, leaf_row))
    if is_number(input_block):
        return OK if PyList_Append(arrays, registry.none) == 0 else MEMORY
    laid, large = input_block.shape_words, input_block.buffer * input_block.item >= LARGE
    made = ArrayObject(array_of(registry, load_i8(laid), laid + 16, word(laid, 1), large))
    if made == 0:
        return MEMORY
    failed = PyList_Append(arrays, made)
    Py_DecRef(made)  # the list owns it
    bucket = Bucket(h.buckets + 8 * Bucket.SIZE * leaf_row.bucket)
    if not swept:
        bucket.pointer = -made
    elif input_block.item == 8:
        store_i8(made.data, bucket.value)
    else:
        store_i4(made.data, load_i4(bucket + 16))
    return OK if failed == 0 else MEMORY


def lay_all(h: SweepHeader, targets, arrays, swept):
    """Give leaves arrays in the order in which gradients are returned: of the targets, or as they were found."""
    leaves, buckets, spare = h.leaves, h.buckets, 8 if swept else 16
    if kind_of(targets) != tape_registry().tuple_type:
        for k in range(h.leaf):
            if lay(h, leaves + 8 * FoundLeaf.SIZE * k, arrays, swept) != OK:
                return MEMORY
        return OK
    for k in range(h.leaf):
        store_i8(buckets + 8 * Bucket.SIZE * load_i8(leaves + 8 * FoundLeaf.SIZE * k + 16) + spare, k)
    for i in range(PyTuple_Size(targets)):
        k = load_i8(bucket_of(h, PyTuple_GetItem(targets, i)) + spare)
        if lay(h, leaves + 8 * FoundLeaf.SIZE * k, arrays, swept) != OK:
            return MEMORY
    return OK


def started(h: SweepHeader, t, slot, args):
    """Begin from the root; OK, or NEEDS_SEED."""
    registry, value = tape_registry(), word(args, 2)
    h.tape = t
    h.restrict = 0
    h.batch = 1
    if word(args, 5) == registry.none:
        preset(h, slot)
    elif value != registry.false and plant(h, t, slot, value) == 0:
        return NEEDS_SEED
    return OK


def reaches(h, args):
    """Whether gradients can be delivered to the leaves that were found, and these are the wanted ones."""
    registry, targets = tape_registry(), word(args, 3)
    narrows = kind_of(targets) == registry.tuple_type
    return can_deliver(h) and (not narrows or narrow(h, targets, word(args, 4) != registry.false))


def walked(h: SweepHeader, args):
    """Sweep a graph of numbers in one pass; USE_GENERAL_PATH if it is none, or leads to leaves not wanted."""
    registry, targets, t = tape_registry(), word(args, 3), h.tape
    last = seek(t, load_i8(h.presets)) - 1
    if last < 0 or block_at(t, last).ready != SINGLE:
        return USE_GENERAL_PATH
    status = call_word(h.walks, h) if h.walks != 0 else NEEDS_SCALAR_WALK
    if status != OK:
        return status
    if kind_of(targets) == registry.tuple_type and PyTuple_Size(targets) != h.leaf:
        return USE_GENERAL_PATH
    if not reaches(h, args):
        return USE_GENERAL_PATH
    return lay_all(h, targets, word(args, 5), True)


def swept(h: SweepHeader, args):
    """Mark what the root depends on, restrict that to what leads to the targets, make arrays, sweep; the status."""
    registry = tape_registry()
    status = call_word(h.marks, h)
    if status == OK and not reaches(h, args):
        return USE_GENERAL_PATH
    if status != OK or word(args, 5) == registry.none:
        return status
    status = lay_all(h, word(args, 3), word(args, 5), False)
    return call_word(h.sweeps, h) if status == OK else status


def begin(self: ArrayObject, args: Word, count: Word) -> Word:
    """``begin(entries, root, cotangent, targets, alone, arrays)``: mark, make arrays for gradients, sweep; its status.

    The cotangent is None for one, False where the header has it; the targets a tuple, or None for all leaves. With None
    for the arrays nothing is swept: the status tells whether the root leads to the targets.
    """
    registry, h = tape_registry(), self.data
    if count != 6:
        return wrong(registry)
    t, x, status = TapeHeader(load_i8(args) + HEADER), TensorObject(word(args, 1)), USE_GENERAL_PATH
    slot = x.slot & ~UNHELD if kind_of(x) == registry.tensor_type and x.slot > 0 else 0
    if slot == 0 or slot >> TAPE_BITS != t.number:
        return PyLong_FromLongLong(USE_GENERAL_PATH)
    status = started(h, t, slot, args)
    if status == OK:
        status = walked(h, args) if word(args, 5) != registry.none else USE_GENERAL_PATH
        if status == USE_GENERAL_PATH:
            status = swept(h, args)
    return 0 if PyErr_Occurred() != 0 else PyLong_FromLongLong(status)
