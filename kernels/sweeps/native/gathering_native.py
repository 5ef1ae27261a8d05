"""Delivers the gradients of the leaves that a sweep has reached, as tensors or values, and drops used instructions."""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.memory import load_f8, load_i4, load_i8, store_i8, word
from kernels.native.objects_native import elements, kind_of, new_tensor, put, wrong
from kernels.native.python_api import (
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
    call_word,
    tape_registry,
)
from kernels.native.tape.tape_native import block_at
from kernels.native.words import (
    A_DATA,
    A_DTYPE,
    A_FLAGS,
    A_NDIM,
    A_SHAPE,
    A_SIMPLE,
    A_WRITEABLE,
    B_ENTRIES,
    B_FIRST,
    BUCKET,
    G_ARRAY,
    G_DOUBLE,
    G_FALSE,
    G_LEAF,
    G_NONE,
    G_NOTIMPLEMENTED,
    G_SINGLE,
    G_TENSOR,
    G_TRUE,
    G_TUPLE,
    H_BUCKETS,
    H_DROPS,
    H_LEAF,
    H_LEAVES,
    H_LOW,
    H_READERS,
    H_SWEPT,
    H_TAPE,
    I_BUFFER,
    I_ITEM,
    I_LAID,
    I_WORDS,
    L_GRAD,
    L_OVER,
    L_SPEC,
    LEAF_WORDS,
    O_FORM,
    O_SLOT,
    O_VALUE,
    SMALL_GRADIENT,
    STALE,
    T_SIZE,
    T_WORDS,
    TOUCHED,
    USED,
)
from kernels.sweeps.native.gradient_table_native import find, fold

CONTROL = True


def input_of_leaf(t, leaf_row):
    """The words of the input, in its form's block, where a leaf was found."""
    last = load_i8(leaf_row + 8)
    block = block_at(t, last)
    return block + 8 * (B_FIRST + (load_i8(leaf_row) - (last - word(block, B_ENTRIES) + 2)) * I_WORDS)


def is_number(input_block):
    """Whether a gradient is a single double, kept in its bucket."""
    return (
        load_i8(word(input_block, I_LAID)) == 0 and word(input_block, I_ITEM) == 8 and word(input_block, I_BUFFER) == 1
    )


def bucket_of(h, x):
    """The bucket of a tensor that is a leaf of what was marked; 0 for anything else."""
    registry = tape_registry()
    slot = load_i8(x + O_SLOT) if kind_of(x) == word(registry, G_TENSOR) else 0
    if slot >= STALE or kind_of(-slot) != word(registry, G_LEAF):
        return 0
    bucket = find(h, slot)
    return bucket if load_i8(bucket) == slot and load_i8(bucket + 24) & USED != 0 else 0


def value_of(h, bucket, arrays, k):
    """A new reference to the gradient that stands in a bucket, or in a list of arrays; 0 with an exception."""
    held = PyList_GetItem(arrays, k)
    if held != 0 and held == word(tape_registry(), G_NONE):
        return PyFloat_FromDouble(load_f8(bucket + 16))
    if held != 0:
        Py_IncRef(held)
    return held


def tensor_of(value, leaf):
    """A tensor with a gradient, whose reference it takes over; 0 with an exception."""
    tensor = new_tensor(tape_registry())
    if tensor == 0:
        Py_DecRef(value)
        return 0
    store_i8(tensor + O_VALUE, value)
    put(tensor + O_FORM, load_i8(leaf + L_SPEC))
    return tensor


def first(leaf, gradient):
    """Give a leaf its first gradient, taking over the reference; False where it has one."""
    before = load_i8(leaf + L_GRAD)
    if before != 0 and before != word(tape_registry(), G_NONE):
        return False
    store_i8(leaf + L_GRAD, gradient)
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


def deliver(h, arrays):
    """Give leaves their gradients; return a list of those that Python has to add, or None; 0 with an exception."""
    registry, t, buckets, leaves = tape_registry(), word(h, H_TAPE), word(h, H_BUCKETS), word(h, H_LEAVES)
    pairs = 0
    for k in range(word(h, H_LEAF)):
        leaf_row = leaves + 8 * LEAF_WORDS * k
        bucket, leaf, input_block = (
            buckets + 8 * BUCKET * load_i8(leaf_row + 16),
            -word(word(t, T_WORDS), load_i8(leaf_row)),
            input_of_leaf(t, leaf_row),
        )
        if load_i8(bucket + 24) & TOUCHED == 0:
            continue
        value, before = value_of(h, bucket, arrays, k), load_i8(leaf + L_GRAD)
        small = word(input_block, I_BUFFER) * word(input_block, I_ITEM) < SMALL_GRADIENT
        if value != 0 and small and (before == 0 or before == word(registry, G_NONE)):
            gradient = tensor_of(value, leaf)
            if gradient != 0 and first(leaf, gradient):
                continue
            value = 0
            if gradient != 0:  # code that ran during the allocation has given the leaf a gradient
                value = load_i8(gradient + O_VALUE)
                Py_IncRef(value)
                Py_DecRef(gradient)
        more = put_aside(pairs, leaf, value) if value != 0 else 0
        if more == 0:
            if value == 0 and pairs != 0:
                Py_DecRef(pairs)
            return 0
        pairs = more
    if pairs == 0:
        pairs = word(registry, G_NONE)
        Py_IncRef(pairs)
    return pairs


def collected(h, targets, arrays, tensors, over):
    """A tuple of the gradients of leaves, ended if ``over``; NotImplemented where one has none, 0 in error."""
    registry, count = tape_registry(), PyTuple_Size(targets)
    for i in range(count):
        bucket = bucket_of(h, PyTuple_GetItem(targets, i))
        if bucket == 0 or load_i8(bucket + 24) & TOUCHED == 0:
            gradients = word(registry, G_NOTIMPLEMENTED)
            Py_IncRef(gradients)
            return gradients
    gradients = PyTuple_New(count)
    for i in range(count if gradients != 0 else 0):
        slot = load_i8(PyTuple_GetItem(targets, i) + O_SLOT)
        value = value_of(h, find(h, slot), arrays, i)
        if value != 0 and tensors:
            value = tensor_of(value, -slot)
        if value == 0:
            Py_DecRef(gradients)
            return 0
        PyTuple_SetItem(gradients, i, value)
        if over and load_i8(-slot + L_OVER) == 0:
            Py_IncRef(word(registry, G_TRUE))
            store_i8(-slot + L_OVER, word(registry, G_TRUE))
    return gradients


def end(self: Word, args: Word, count: Word) -> Word:
    """``end(targets, arrays, tensors, over, readers)``: gradients; unless readers is None, what was used is dropped.

    Of the targets, a tuple of tensors or bare values; NotImplemented, with nothing dropped, where one has none. With
    None for the targets leaves have got theirs, but for those listed.
    """
    registry, h = tape_registry(), load_i8(self + A_DATA)
    if count != 5:
        return wrong(registry)
    targets, arrays, readers = load_i8(args), word(args, 1), word(args, 4)
    tensors, over = word(args, 2) != word(registry, G_FALSE), word(args, 3) != word(registry, G_FALSE)
    if kind_of(targets) == word(registry, G_TUPLE):
        result = collected(h, targets, arrays, tensors, over)
    else:
        result = deliver(h, arrays)
    store_i8(h + 8 * H_SWEPT, word(word(h, H_TAPE), T_SIZE) - word(h, H_LOW))
    if result == 0 or result == word(registry, G_NOTIMPLEMENTED) or readers == word(registry, G_NONE):
        return result
    store_i8(h + 8 * H_READERS, readers)
    if call_word(word(h, H_DROPS), h) < 0:
        Py_DecRef(result)
        return PyErr_NoMemory()
    return result


def is_in_order(registry, x, flags):
    """Whether an object is an array of doubles or singles in C order, with these flags."""
    if kind_of(x) != word(registry, G_ARRAY) or load_i4(x + A_FLAGS) & flags != flags:
        return False
    dtype = load_i8(x + A_DTYPE)
    return dtype == word(registry, G_DOUBLE) or dtype == word(registry, G_SINGLE)


def added(self: Word, args: Word, count: Word) -> Word:
    """``added(array, value)``: add an array to one of the same dtype and shape; False where NumPy has to do it."""
    registry, done = tape_registry(), False
    if count != 2:
        return wrong(registry)
    into, value = load_i8(args), word(args, 1)
    if is_in_order(registry, into, A_SIMPLE | A_WRITEABLE) and is_in_order(registry, value, A_SIMPLE):
        ndim = load_i4(into + A_NDIM)
        done = load_i4(value + A_NDIM) == ndim and load_i8(value + A_DTYPE) == load_i8(into + A_DTYPE)
        for k in range(ndim if done else 0):
            done = done and word(load_i8(value + A_SHAPE), k) == word(load_i8(into + A_SHAPE), k)
        if done:
            item = 8 if load_i8(into + A_DTYPE) == word(registry, G_DOUBLE) else 4
            fold(load_i8(into + A_DATA), load_i8(value + A_DATA), elements(load_i8(into + A_SHAPE), ndim), item)
    result = word(registry, G_TRUE if done else G_FALSE)
    Py_IncRef(result)
    return result
