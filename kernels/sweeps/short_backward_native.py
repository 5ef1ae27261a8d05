"""The short backward, from one root to leaves without observers, and gradients out of a sweep to leaves."""

from __future__ import annotations

import numpy as np

from kernels.language.llvm_values import Word
from kernels.native.c_api import (
    A_SIMPLE,
    A_WRITEABLE,
    COUNTED,
    SMALL_GRADIENT,
    STALE,
    UNHELD,
    ArrayObject,
    LeafObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyErr_Occurred,
    PyFloat_FromDouble,
    PyList_Append,
    PyList_GetItem,
    PyList_New,
    PyList_Size,
    PyLong_FromLongLong,
    PyTuple_GetItem,
    PyTuple_New,
    PyTuple_SetItem,
    PyTuple_Size,
    TensorObject,
    call_word,
    on_stack,
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
from kernels.native.objects_native import array_of, dropped, elements, kind_of, new_tensor, owned, wrong
from kernels.native.structs import (
    GRADED,
    KEPT,
    LARGE,
    MEMORY,
    NEEDS_SEED,
    OK,
    PULLS,
    PYTHON,
    RELEVANT,
    SINGLE,
    TAPE_BITS,
    TOUCHED,
    USE_GENERAL_PATH,
    USED,
    VIEW,
    WHOLE,
    Bucket,
    FormBlock,
    FoundLeaf,
    InputBlock,
    KeptCalls,
    RegistryTable,
    SweepHeader,
    TapeHeader,
)
from kernels.native.tape_native import block_at, seek, take_out
from kernels.programs.replay_back_native import can_hand_back, find, fold, role
from kernels.programs.replay_native import LEAST_I8, add_zero, least

# Gradients out of a sweep to leaves.

# Finishes the gradients of leaves at the end of a sweep.

BLOCK = 1024
MOST_HANDED = 128  # operands of a call whose gradients are handed over


def input_of_leaf(t, leaf_row: FoundLeaf):
    """The words of the input, in its form's block, where a leaf was found."""
    last = leaf_row.last
    block = block_at(t, last)
    return block + 8 * (FormBlock.SIZE + (leaf_row.place - (last - block.entries + 2)) * InputBlock.SIZE)


def settle(h: SweepHeader):
    """Add 0.0 to the gradients of leaves: elements without a contribution are -0.0. ``h.at`` counts others."""
    missing = 0
    t = h.tape
    buckets, leaves, batch = h.buckets, h.leaves, h.batch
    for k in range(h.leaf):
        leaf_row = FoundLeaf(leaves + 8 * FoundLeaf.SIZE * k)
        block, input_block = block_at(t, leaf_row.last), InputBlock(input_of_leaf(t, leaf_row))
        if block.kind == VIEW:
            input_block = block + 8 * (FormBlock.buffer - InputBlock.buffer)
        bucket = Bucket(buckets + 8 * Bucket.SIZE * leaf_row.bucket)
        elements, item = input_block.buffer * batch, input_block.item
        if bucket.flags & TOUCHED == 0:
            missing += 1
            continue
        pointer, done = bucket.pointer, elements if bucket.flags & WHOLE else 0
        while done < elements:
            count = min(elements - done, BLOCK)
            add_zero(pointer + item * done, np.uint64(count), item)
            done += count
    h.at = missing


# Delivers the gradients of the leaves that a sweep has reached, as tensors or values, and drops used instructions.

CONTROL = True


def is_number(input_block: InputBlock):
    """Whether a gradient is a single double, kept in its bucket."""
    return load_i8(input_block.shape_words) == 0 and input_block.item == 8 and input_block.buffer == 1


def bucket_of(h, x: TensorObject):
    """The bucket of a tensor that is a leaf of what was marked; 0 for anything else."""
    registry = tape_registry()
    slot = x.slot if kind_of(x) == registry.tensor_type else 0
    if slot >= STALE or kind_of(-slot) != registry.leaf_type:
        return 0
    bucket = Bucket(find(h, slot))
    return bucket if bucket.key == slot and bucket.flags & USED != 0 else 0


def value_of(h, bucket, arrays, k):
    """A new reference to the gradient that stands in a bucket, or in a list of arrays; 0 with an exception."""
    held = PyList_GetItem(arrays, k)
    if held != 0 and held == tape_registry().none:
        return PyFloat_FromDouble(load_f8(bucket + 16))
    if held != 0:
        Py_IncRef(held)
    return held


def tensor_of(value, leaf: LeafObject):
    """A tensor with a gradient, whose reference it takes over; 0 with an exception."""
    tensor = TensorObject(new_tensor(tape_registry()))
    if tensor == 0:
        Py_DecRef(value)
        return 0
    tensor.value = value
    tensor.form = owned(leaf.spec)
    return tensor


def first(leaf: LeafObject, gradient):
    """Give a leaf its first gradient, taking over the reference; False where it has one."""
    before = leaf.grad
    if before != 0 and before != tape_registry().none:
        return False
    leaf.grad = gradient
    if before != 0:
        Py_DecRef(before)
    return True


def put_aside(pairs, leaf, value):
    """Append a leaf and its gradient, taking over the reference, to a list, new for None; return it, 0 on failure."""
    none = tape_registry().none
    if pairs == none:
        Py_DecRef(none)
        pairs = PyList_New(0)
    pair = PyTuple_New(2) if pairs != 0 else 0
    if pair == 0:
        Py_DecRef(value)
    else:
        Py_IncRef(leaf)
        PyTuple_SetItem(pair, 0, leaf)
        PyTuple_SetItem(pair, 1, value)
        if PyList_Append(pairs, pair) == 0:
            Py_DecRef(pair)
            return pairs
        Py_DecRef(pair)
    if pairs != 0:
        Py_DecRef(pairs)
    return 0


def give_first(leaf: LeafObject, value, size, pairs):
    """Give a leaf its gradient of so many bytes, if that is its first one and small; else put both aside.

    The reference to the value is taken over. Return the list of what is aside, None where nothing is; 0 on failure.
    """
    none, before = tape_registry().none, leaf.grad
    if value != 0 and size < SMALL_GRADIENT and (before == 0 or before == none):
        gradient = TensorObject(tensor_of(value, leaf))
        if gradient != 0 and first(leaf, gradient):
            return pairs
        value = 0
        if gradient != 0:  # code that ran during the allocation has given the leaf a gradient
            value = owned(gradient.value)
            Py_DecRef(gradient)
    if value != 0:
        return put_aside(pairs, leaf, value)
    Py_DecRef(pairs)
    return 0


def deliver(h: SweepHeader, arrays):
    """Give leaves their gradients; return a list of those that Python has to add, or None; 0 with an exception."""
    t, buckets, leaves, pairs = h.tape, h.buckets, h.leaves, owned(tape_registry().none)
    for k in range(h.leaf):
        leaf_row = FoundLeaf(leaves + 8 * FoundLeaf.SIZE * k)
        bucket, leaf, input_block = (
            Bucket(buckets + 8 * Bucket.SIZE * leaf_row.bucket),
            LeafObject(-t.words[leaf_row.place]),
            InputBlock(input_of_leaf(t, leaf_row)),
        )
        if bucket.flags & TOUCHED == 0:
            continue
        value = value_of(h, bucket, arrays, k)
        pairs = give_first(leaf, value, input_block.buffer * input_block.item, pairs)
        if pairs == 0:
            return 0
    return pairs


def collected(h, targets, arrays, tensors, over):
    """A tuple of the gradients of leaves, ended if ``over``; NotImplemented where one has none, 0 in error."""
    registry, count = tape_registry(), PyTuple_Size(targets)
    for i in range(count):
        bucket = Bucket(bucket_of(h, PyTuple_GetItem(targets, i)))
        if bucket == 0 or bucket.flags & TOUCHED == 0:
            gradients = registry.not_implemented
            Py_IncRef(gradients)
            return gradients
    gradients = PyTuple_New(count)
    for i in range(count if gradients != 0 else 0):
        slot = TensorObject(PyTuple_GetItem(targets, i)).slot
        value = value_of(h, find(h, slot), arrays, i)
        if value != 0 and tensors:
            value = tensor_of(value, -slot)
        if value == 0:
            Py_DecRef(gradients)
            return 0
        PyTuple_SetItem(gradients, i, value)
        if over and LeafObject(-slot).is_transform_input_done == 0:
            Py_IncRef(registry.true)
            LeafObject(-slot).is_transform_input_done = registry.true
    return gradients


def end(self: ArrayObject, args: Word, count: Word) -> Word:
    """``end(targets, arrays, tensors, over, readers)``: gradients; unless readers is None, what was used is dropped.

    Of the targets, a tuple of tensors or bare values; NotImplemented, with nothing dropped, where one has none. With
    None for the targets leaves have got theirs, but for those listed.
    """
    registry, h = tape_registry(), SweepHeader(self.data)
    if count != 5:
        return wrong(registry)
    targets, arrays, readers = load_i8(args), word(args, 1), word(args, 4)
    tensors, over = word(args, 2) != registry.false, word(args, 3) != registry.false
    if kind_of(targets) == registry.tuple_type:
        result = collected(h, targets, arrays, tensors, over)
    else:
        result = deliver(h, arrays)
    h.swept = h.tape.size - h.low
    if result == 0 or result == registry.not_implemented or readers == registry.none:
        return result
    h.readers = readers
    if call_word(h.drops, h) < 0:
        Py_DecRef(result)
        return PyErr_NoMemory()
    return result


def is_in_order(registry: RegistryTable, x: ArrayObject, flags):
    """Whether an object is an array of doubles or singles in C order, with these flags."""
    if kind_of(x) != registry.array_type or x.flags & flags != flags:
        return False
    dtype = x.dtype
    return dtype == registry.double or dtype == registry.single


def added(self: Word, args: Word, count: Word) -> Word:
    """``added(array, value)``: add an array to one of the same dtype and shape; False where NumPy has to do it."""
    registry, done = tape_registry(), False
    if count != 2:
        return wrong(registry)
    into, value = ArrayObject(load_i8(args)), ArrayObject(word(args, 1))
    if is_in_order(registry, into, A_SIMPLE | A_WRITEABLE) and is_in_order(registry, value, A_SIMPLE):
        ndim = into.ndim
        done = value.ndim == ndim and value.dtype == into.dtype
        for k in range(ndim if done else 0):
            done = done and value.shape[k] == into.shape[k]
        if done:
            item = 8 if into.dtype == registry.double else 4
            fold(into.data, value.data, elements(into.shape, ndim), item)
    result = word(registry, RegistryTable.true if done else RegistryTable.false)
    Py_IncRef(result)
    return result


# A root that is a call with kept gradients (replay_back_native.py), of leaves alone: they get these as they are.

handed = on_stack(3 * MOST_HANDED)


def is_alone(registry: RegistryTable, key, gradient):
    """Whether an operand is a leaf without hooks, and its gradient an object of the tape's alone, a float or none."""
    leaf, kind = LeafObject(-key), kind_of(gradient)
    if leaf < 0 or kind_of(leaf) != registry.leaf_type or leaf.hooks != 0:
        return False
    return kind != registry.array_type or load_i8(gradient) & COUNTED == 1


def can_hand_over(t: TapeHeader, block: FormBlock, operands):
    """Whether all operands are leaves whose gradients were kept."""
    i, inputs, kept = 0, block.inputs, operands + 8 * (2 * block.inputs + 1)
    if inputs > MOST_HANDED or not can_hand_back(t, block, operands, kept, 1.0):
        return False
    while i < inputs:
        laid = load_i8(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i + InputBlock.shape_words))
        if word(operands, i) != 0 and (laid == 0 or not is_alone(t.registry, word(operands, i), word(kept, i))):
            return False
        i += 1
    return True


def taken(registry: RegistryTable, place, size, item):
    """The gradient at a place on the tape, which has None from now on; of its elements -0.0 is nothing, made 0.0."""
    gradient = ArrayObject(load_i8(place))
    store_i8(place, owned(registry.none))
    if kind_of(gradient) == registry.array_type:
        add_zero(gradient.data, np.uint64(size // item), item)
    elif load_i8(gradient + HEADER) == LEAST_I8:
        Py_DecRef(gradient)
        return PyFloat_FromDouble(0.0)
    return gradient


def take(t: TapeHeader, block: FormBlock, operands, out):
    """Write leaves, their gradients and their bytes, owned; how many."""
    count, registry, i = 0, t.registry, 0
    while i < block.inputs:
        input_block = InputBlock(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i))
        size, place = input_block.buffer * input_block.item, operands + 8 * (2 * block.inputs + 1 + i)
        if word(operands, i) != 0 and load_i8(place) != registry.false:
            store_i8(out + 24 * count, owned(-word(operands, i)))
            store_i8(out + 24 * count + 8, taken(registry, place, size, input_block.item))
            store_i8(out + 24 * count + 16, size)
            count += 1
        i += 1
    return count


def hand_over(self: Word, args: Word, count: Word) -> Word:
    """``hand_over(entries, root, readers)``: what :func:`end` returns; NotImplemented where all has to be swept."""
    registry = tape_registry()
    if count != 3:
        return wrong(registry)
    t, x = TapeHeader(load_i8(args) + HEADER), TensorObject(word(args, 1))
    slot = x.slot & ~UNHELD if kind_of(x) == registry.tensor_type and x.slot > 0 else 0
    last = seek(t, slot) - 1 if slot >> TAPE_BITS == t.number and PyList_Size(word(args, 2)) == 0 else -1
    block = FormBlock(block_at(t, last) if last >= 0 else 0)
    start = last + 1 - block.entries if block != 0 else 0
    is_kept = block != 0 and t.words[start] == slot and block.kind == PYTHON and role(block) == GRADED
    if not is_kept or not can_hand_over(t, block, t.words + 8 * (start + 1)):
        return owned(registry.not_implemented)
    KeptCalls(ArrayObject(t.words[last - 1]).data).count = 0
    out, pairs = handed(), owned(registry.none)
    number = take(t, block, t.words + 8 * (start + 1), out)
    t.words[last] = ~t.words[last]  # no Python code has run since the first look at the tape
    if take_out(t, start) < 0:
        t.words[last] = ~t.words[last]
    for k in range(number):
        leaf, gradient = word(out, 3 * k), word(out, 3 * k + 1)
        pairs = give_first(leaf, gradient, word(out, 3 * k + 2), pairs) if pairs != 0 else dropped(gradient)
        Py_DecRef(leaf)
    return pairs


# The short backward, from one root to leaves without observers, up to its sweep; unusual cases are left to Python.


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
    if t.words[last - block.entries + 1] != slot or not (block.kind == PULLS or role(block) == GRADED):
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
            store_i8(row + 24, USED | TOUCHED | KEPT | WHOLE)
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
    """Mark and sweep a graph of numbers in one pass; USE_GENERAL_PATH if it is none, or leads to leaves not wanted."""
    registry, targets, t = tape_registry(), word(args, 3), h.tape
    last = seek(t, load_i8(h.presets)) - 1
    if last < 0 or block_at(t, last).ready != SINGLE:
        return USE_GENERAL_PATH
    h.pulls = 1
    status = call_word(h.marks, h)
    h.pulls = 0
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
