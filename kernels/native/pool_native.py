"""Blocks of memory kept for reuse: freed large ones go to lists by size; the oldest is freed when there are too many.

The word before a block is its size, 0 for small blocks, which go straight to C's heap. If another thread holds the lock
of the lists, malloc and free are used instead. NumPy allocates through its data handler; sweeps call ``take`` and
``give``. Large blocks are aligned to pages, the largest to huge pages: loops whose output lies a little ahead of their
input, modulo the page size, take half as long again.
"""

from __future__ import annotations

from kernels.language.llvm_values import Void, Word
from kernels.native.c_api import (
    Py_DecRef,
    PyErr_BadArgument,
    PyErr_Fetch,
    PyErr_Restore,
    PyObject_Vectorcall,
    new_array,
)
from kernels.native.memory import (
    allocate,
    copy_bytes,
    get_handler,
    load_i8,
    madvise,
    module_words,
    release,
    set_bytes,
    set_handler,
    store_i8,
    swap,
)
from kernels.native.structs import HUGE, LARGE, STEPS, WORDS, PoolBlock, PoolWords

CONTROL = True

SMALL, HEADER = 16, 64  # bytes before a small block, and at least so many before a large one
PAGE, HUGE_PAGE, ADVICE = 1 << 12, 1 << 21, 14  # Linux's MADV_HUGEPAGE
_words = module_words(WORDS)


def words() -> int:
    """Where the pool's own words are."""
    return _words()


def head_of(capacity):
    """Where the list of the blocks of a size begins."""
    step, octave = LARGE // STEPS, 0
    while step * STEPS * 2 <= capacity:
        step *= 2
        octave += 1
    return words() + 8 * (PoolWords.SIZE + octave * STEPS + capacity // step - STEPS)


def unlink(block: PoolBlock):
    """Take a block out of its lists."""
    pool = PoolWords(words())
    before, after = block.previous, PoolBlock(block.next)
    store_i8(before + PoolBlock.next if before else head_of(block.size), after)
    if after != 0:
        after.previous = before
    older, newer = block.older, block.newer
    store_i8(older + PoolBlock.newer if older else pool + 8 * PoolWords.oldest, newer)
    store_i8(newer + PoolBlock.older if newer else pool + 8 * PoolWords.newest, older)
    pool.kept -= block.size


def link(block: PoolBlock):
    """Put a block at the front of its lists."""
    pool, head = PoolWords(words()), head_of(block.size)
    after, older = PoolBlock(load_i8(head)), pool.newest
    block.previous = 0
    block.next = after
    if after != 0:
        after.previous = block
    store_i8(head, block)
    block.older = older
    block.newer = 0
    store_i8(older + PoolBlock.newer if older else pool + 8 * PoolWords.oldest, block)
    pool.newest = block
    pool.kept += block.size


def keep_at_most(most: int) -> int:
    """Free the oldest blocks until at most this many bytes are kept; 0 if another thread holds the lock."""
    pool = PoolWords(words())
    if swap(pool + 8 * PoolWords.lock, 1) != 0:
        return 0
    while pool.kept > most:
        block = PoolBlock(pool.oldest)
        unlink(block)
        release(block.raw)
    swap(pool + 8 * PoolWords.lock, 0)
    return 1


def fresh(capacity):
    """A new large block; 0 without memory."""
    pool = PoolWords(words())
    advise = pool.madvise
    alignment = HUGE_PAGE if capacity >= HUGE and advise != 0 else PAGE
    raw = allocate(capacity + alignment + HEADER)
    if raw == 0:
        keep_at_most(0)
        raw = allocate(capacity + alignment + HEADER)
        if raw == 0:
            return 0
    block = PoolBlock((raw + HEADER + alignment - 1) // alignment * alignment)
    block.raw = raw
    block.size = capacity
    if alignment == HUGE_PAGE:
        madvise(advise, block, capacity // PAGE * PAGE, ADVICE)
    pool.fresh += 1
    return block


def take(size: Word) -> Word:
    """The address of a block of so many bytes or more; 0 without memory."""
    if size < LARGE:
        raw = allocate(size + SMALL)
        if raw == 0:
            return 0
        store_i8(raw, size)
        store_i8(raw + 8, 0)
        return raw + SMALL
    step = LARGE // STEPS
    while step * STEPS * 2 <= size:
        step *= 2
    capacity = (size + step - 1) // step * step
    pool = PoolWords(words())
    if swap(pool + 8 * PoolWords.lock, 1) == 0:
        block = load_i8(head_of(capacity)) if capacity <= pool.bound else 0
        if block != 0:
            unlink(block)
            pool.reused += 1
        swap(pool + 8 * PoolWords.lock, 0)
        if block != 0:
            return block
    return fresh(capacity)


def give(block: PoolBlock) -> Void:
    """Free a block, or keep it for reuse; 0 is ignored."""
    if block == 0:
        return
    capacity = block.size
    if capacity == 0:
        release(block - SMALL)
        return
    pool = PoolWords(words())
    bound = pool.bound
    if capacity > bound or swap(pool + 8 * PoolWords.lock, 1) != 0:
        release(block.raw)
        return
    if pool.poison != 0:
        set_bytes(block, 255, capacity)  # NaN
    link(block)
    swap(pool + 8 * PoolWords.lock, 0)
    if pool.kept > bound:
        keep_at_most(bound)


def numpy_malloc(context: Word, size: Word) -> Word:
    """Memory for an array of NumPy's."""
    return take(size)


def numpy_calloc(context: Word, count: Word, item: Word) -> Word:
    """Memory full of zeros."""
    size = count * item
    if item != 0 and size // item != count:
        return 0
    block = take(size)
    if block != 0:
        set_bytes(block, 0, size)
    return block


def numpy_realloc(context: Word, block: PoolBlock, size: Word) -> Word:
    """Another size for an array's memory; 0 without memory, and then the old block stays."""
    if block == 0:
        return take(size)
    capacity = block.size
    room = capacity if capacity != 0 else load_i8(block - SMALL)
    if size <= room and (capacity == 0 or 2 * size > capacity):
        return block
    moved = take(size)
    if moved != 0:
        copy_bytes(moved, block, min(size, room))
        give(block)
    return moved


def numpy_free(context: Word, block: Word, size: Word) -> Void:
    """Free an array's memory: NumPy calls this when the array that owns it is deallocated."""
    give(block)


def set_again(handler):
    """Set NumPy's data handler, keeping an exception that may be set; 0 if that fails."""
    pool = PoolWords(words())
    errors = allocate(24)
    PyErr_Fetch(errors, errors + 8, errors + 16)
    replaced = set_handler(pool.set_handler, handler)
    if replaced != 0:
        Py_DecRef(replaced)
        PyErr_Restore(load_i8(errors), load_i8(errors + 8), load_i8(errors + 16))
    release(errors)
    return replaced


def begin():
    """Set the pool's handler; return NumPy's own, to be set again; -1 where another is set; 0 with an exception."""
    pool = PoolWords(words())
    before = get_handler(pool.get_handler)
    if before == 0:
        return 0
    if before != pool.default_handler:
        Py_DecRef(before)
        return -1
    replaced = set_handler(pool.set_handler, pool.handler)
    if replaced == 0:
        Py_DecRef(before)
        return 0
    Py_DecRef(replaced)
    return before


def end(before, result):
    """Set NumPy's own handler again, whatever happened; return the result, 0 with an exception."""
    if before > 0:
        if set_again(before) == 0 and result != 0:
            Py_DecRef(result)
            result = 0
        Py_DecRef(before)
    return result


def call(module: Word, args: Word, count: Word, names: Word) -> Word:
    """Python's ``call(function, ...)``: call a function while NumPy allocates arrays in the pool."""
    if count == 0:
        PyErr_BadArgument()
        return 0
    before = begin()
    return end(before, PyObject_Vectorcall(load_i8(args), args + 8, count - 1, names)) if before != 0 else 0


def array(kind: Word, ndim: Word, shape: Word, dtype: Word) -> Word:
    """A new array in a block of the pool, as NumPy's PyArray_New makes it."""
    before = begin()
    return end(before, new_array(PoolWords(words()).new_array, kind, ndim, shape, dtype)) if before != 0 else 0
