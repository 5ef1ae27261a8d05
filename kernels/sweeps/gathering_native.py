"""Gradients out of a sweep to leaves."""

from __future__ import annotations

import numpy as np

from kernels.language.native_types import Word
from kernels.native.c_api import (
    A_SIMPLE,
    A_WRITEABLE,
    SMALL_GRADIENT,
    STALE,
    ArrayObject,
    LeafObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyFloat_FromDouble,
    PyList_Append,
    PyList_GetItem,
    PyList_New,
    PyTuple_GetItem,
    PyTuple_New,
    PyTuple_SetItem,
    PyTuple_Size,
    TensorObject,
    call_word,
    tape_registry,
)
from kernels.native.memory import load_f8, load_i8, pointer_f4, pointer_f8, pointer_i4, pointer_i8, word
from kernels.native.objects_native import elements, kind_of, new_tensor, put, wrong
from kernels.native.structs import (
    TOUCHED,
    USED,
    VIEW,
    Bucket,
    FormBlock,
    FoundLeaf,
    InputBlock,
    RegistryTable,
    SweepHeader,
)
from kernels.native.tape_native import block_at
from kernels.programs.replay_back_native import find, fold

# Finishes the gradients of leaves at the end of a sweep.

ZERO = np.float32(0.0)
LEAST_I8, LEAST_I4 = -(1 << 63), np.int32(-(1 << 31))
"""The bits of -0.0."""
BLOCK = 1024


def least(integers, count):
    """Return the least of some integers; the bits of -0.0 are the least there is."""
    smallest = integers[0]
    for e in range(count):
        smallest = min(smallest, integers[e])
    return smallest


def add_zero(pointer, count, item):
    """Turn elements that are -0.0 to 0.0. There are rarely any, and memory that is only read takes half the time."""
    if item == 8:
        wide = pointer_f8(pointer)
        if least(pointer_i8(pointer), count) == LEAST_I8:
            for e in range(count):
                wide[e] += 0.0
    else:
        single = pointer_f4(pointer)
        if least(pointer_i4(pointer), count) == LEAST_I4:
            for e in range(count):
                single[e] += ZERO


def settle(h: SweepHeader):
    """Add 0.0 to the gradients of leaves: elements without a contribution are -0.0. ``h.at`` counts others."""
    missing = 0
    t = h.tape
    buckets, leaves, batch = h.buckets, h.leaves, h.batch
    for k in range(h.leaf):
        leaf_row = FoundLeaf(leaves + 8 * FoundLeaf.SIZE * k)
        last = leaf_row.last
        block = block_at(t, last)
        i = leaf_row.place - (last - block.entries + 2)
        input_block = InputBlock(block + 8 * (FormBlock.SIZE + i * InputBlock.SIZE))
        if block.kind == VIEW:
            input_block = block + 8 * (FormBlock.buffer - InputBlock.buffer)
        bucket = Bucket(buckets + 8 * Bucket.SIZE * leaf_row.bucket)
        elements, item = input_block.buffer * batch, input_block.item
        if bucket.flags & TOUCHED == 0:
            missing += 1
            continue
        pointer, done = bucket.pointer, 0
        while done < elements:
            count = min(elements - done, BLOCK)
            add_zero(pointer + item * done, np.uint64(count), item)
            done += count
    h.at = missing


# Delivers the gradients of the leaves that a sweep has reached, as tensors or values, and drops used instructions.

CONTROL = True


def input_of_leaf(t, leaf_row: FoundLeaf):
    """The words of the input, in its form's block, where a leaf was found."""
    last = leaf_row.last
    block = block_at(t, last)
    return block + 8 * (FormBlock.SIZE + (leaf_row.place - (last - block.entries + 2)) * InputBlock.SIZE)


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
    put(tensor + TensorObject.form, leaf.spec)
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
    """Append a leaf and its gradient, taking over the reference, to a list, new if 0; return it, 0 on failure."""
    if pairs == 0:
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


def deliver(h: SweepHeader, arrays):
    """Give leaves their gradients; return a list of those that Python has to add, or None; 0 with an exception."""
    registry, t, buckets, leaves = tape_registry(), h.tape, h.buckets, h.leaves
    pairs = 0
    for k in range(h.leaf):
        leaf_row = FoundLeaf(leaves + 8 * FoundLeaf.SIZE * k)
        bucket, leaf, input_block = (
            Bucket(buckets + 8 * Bucket.SIZE * leaf_row.bucket),
            LeafObject(-t.words[leaf_row.place]),
            InputBlock(input_of_leaf(t, leaf_row)),
        )
        if bucket.flags & TOUCHED == 0:
            continue
        value, before = value_of(h, bucket, arrays, k), leaf.grad
        small = input_block.buffer * input_block.item < SMALL_GRADIENT
        if value != 0 and small and (before == 0 or before == registry.none):
            gradient = TensorObject(tensor_of(value, leaf))
            if gradient != 0 and first(leaf, gradient):
                continue
            value = 0
            if gradient != 0:  # code that ran during the allocation has given the leaf a gradient
                value = gradient.value
                Py_IncRef(value)
                Py_DecRef(gradient)
        more = put_aside(pairs, leaf, value) if value != 0 else 0
        if more == 0:
            if value == 0 and pairs != 0:
                Py_DecRef(pairs)
            return 0
        pairs = more
    if pairs == 0:
        pairs = registry.none
        Py_IncRef(pairs)
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
        if over and LeafObject(-slot).over == 0:
            Py_IncRef(registry.true)
            LeafObject(-slot).over = registry.true
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
