"""The pool of arrays that are used again, guards around its memory, and what Python sees of it."""

# ruff: noqa: ANN001, ANN201, ARG001, D103 (native functions: types are what callers pass, some share a comment)

from __future__ import annotations

import ctypes
import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from llvmlite import binding

from kernels.foundation.specs import Spec, word_at
from kernels.language import jit
from kernels.language.llvm_values import Struct, Void, Word
from kernels.native import c_api, structs
from kernels.native.c_api import new_array
from kernels.native.memory import (
    REGISTRY,
    allocate,
    call_two,
    copy_bytes,
    fill,
    get_handler,
    load_i8,
    madvise,
    module_words,
    pointer_b1,
    release,
    set_bytes,
    set_handler,
    store_i8,
    swap,
)
from kernels.native.threads import called

# Blocks of memory kept for reuse: freed large ones go to lists by size; the oldest is freed when there are too many.
#
# The word before a block is its size, 0 for small blocks, which go straight to C's heap. If another thread holds the
# lock of the lists, malloc and free are used instead. NumPy allocates through its data handler; sweeps call ``take``
# and ``give``. Large blocks are aligned to pages, the largest to huge pages: loops whose output lies a little ahead of
# their input, modulo the page size, take half as long again.

CONTROL = True

STEPS = 8  # sizes of blocks to a power of two
CLASSES = 8 * (48 - 16)  # sizes of blocks there are


class PoolWords(Struct):
    """The pool; behind the fields the CLASSES lists of blocks by size."""

    lock: int
    kept: int  # bytes that are kept
    bound: int  # how many may be
    newest: int
    oldest: int
    guards: int  # whether blocks stand between canaries, and are filled with what nobody wrote
    fresh: int  # how many blocks C gave
    reused: int  # how many were used again
    madvise: int  # the function of C, 0 where there is none
    handler: int
    default_handler: int
    get_handler: int
    set_handler: int
    new_array: int
    living: int  # of the guarded blocks the first
    living_lock: int
    report: int  # what reports a damaged one


WORDS = PoolWords.SIZE + CLASSES


class PoolBlock(Struct, step=8):
    """What stands before a block's data, in bytes."""

    size: int = -8
    raw: int = -16  # the address that C gave
    previous: int = -24  # among those of its size
    next: int = -32
    older: int = -40  # among all
    newer: int = -48


class GuardedBlock(Struct, step=8):
    """What stands around a guarded block, in bytes from where it begins."""

    size: int
    next: int  # among the living
    previous: int
    kind: int  # RAW_BLOCK, POOLED
    canaries: int


GUARD = 64  # bytes before a guarded block's data
BEHIND = 16
CANARY, BEHIND_BYTE, FREED_BYTE = 0x5AFEC0DE5AFEC0DE, 0xFD, 0xDD
RAW_BLOCK, POOLED = 1, 2  # kinds of guarded blocks: of Python's raw memory, as a tape has them; of the pool
WRITTEN_BEFORE, WRITTEN_BEHIND, GIVEN_TWICE, WRITTEN_AFTER = 1, 2, 3, 4
"""What is wrong with one: written before its data, or behind it; given back twice; written after it was given back."""


SMALL, HEADER = 16, 64  # bytes before a small block, and at least so many before a large one
PAGE, HUGE_PAGE, ADVICE = 1 << 12, 1 << 21, 14  # Linux's MADV_HUGEPAGE
own_words = module_words(WORDS)


def words() -> Word:
    """Where the pool's own words are."""
    return own_words()


def head_of(capacity):
    """Where the list of the blocks of a size begins."""
    step, octave = structs.LARGE // STEPS, 0
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


def keep_at_most(most: Word) -> Word:
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
    alignment = HUGE_PAGE if capacity >= structs.HUGE and advise != 0 else PAGE
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


def block_of(size):
    """The address of a block of so many bytes or more; 0 without memory."""
    if size < structs.LARGE:
        raw = allocate(size + SMALL)
        if raw == 0:
            return 0
        store_i8(raw, size)
        store_i8(raw + 8, 0)
        return raw + SMALL
    step = structs.LARGE // STEPS
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


def guarded_block(size):
    """The same between canaries. If it is reused, it must still be as it was overwritten when it was freed."""
    pool = PoolWords(words())
    reused = pool.reused
    base = PoolBlock(block_of(size + GUARD + BEHIND))
    if base != 0 and pool.reused != reused:
        for at in range(0, base.size, 8):
            if load_i8(base + at) != -1:
                call_two(pool.report, base + at, WRITTEN_AFTER)
    return guarded(base, size, POOLED)


def take(size: Word) -> Word:
    """The address of a block of so many bytes or more; 0 without memory."""
    return guarded_block(size) if PoolWords(words()).guards != 0 else block_of(size)


def give(block: PoolBlock) -> Void:
    """Free a block, or keep it for reuse; 0 is ignored."""
    if block == 0:
        return
    pool = PoolWords(words())
    if pool.guards != 0:
        block = bared(block, POOLED)
    capacity = block.size
    if capacity == 0:
        release(block - SMALL)
        return
    bound = pool.bound
    if capacity > bound or swap(pool + 8 * PoolWords.lock, 1) != 0:
        release(block.raw)
        return
    if pool.guards != 0:
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
    if PoolWords(words()).guards != 0:  # it always moves
        room = GuardedBlock(looked_at(block, POOLED)).size
    else:
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


# NumPy allocates in the pool while a function is called.


def set_again(handler):
    """Set NumPy's data handler, keeping an exception that may be set; 0 if that fails."""
    pool = PoolWords(words())
    errors = allocate(24)
    c_api.PyErr_Fetch(errors, errors + 8, errors + 16)
    replaced = set_handler(pool.set_handler, handler)
    if replaced != 0:
        c_api.Py_DecRef(replaced)
        c_api.PyErr_Restore(load_i8(errors), load_i8(errors + 8), load_i8(errors + 16))
    release(errors)
    return replaced


def begin():
    """Set the pool's handler; return NumPy's own, to be set again; -1 where another is set; 0 with an exception."""
    pool = PoolWords(words())
    before = get_handler(pool.get_handler)
    if before == 0:
        return 0
    if before != pool.default_handler:
        c_api.Py_DecRef(before)
        return -1
    replaced = set_handler(pool.set_handler, pool.handler)
    if replaced == 0:
        c_api.Py_DecRef(before)
        return 0
    c_api.Py_DecRef(replaced)
    return before


def end(before, result):
    """Set NumPy's own handler again, whatever happened; return the result, 0 with an exception."""
    if before > 0:
        if set_again(before) == 0:
            c_api.Py_DecRef(result)
            result = 0
        c_api.Py_DecRef(before)
    return result


def call_pooled(module: Word, args: Word, count: Word, names: Word) -> Word:
    """Python's ``call(function, ...)``: call a function while NumPy allocates arrays in the pool."""
    if count == 0:
        c_api.PyErr_BadArgument()
        return 0
    before = begin()
    return end(before, c_api.PyObject_Vectorcall(load_i8(args), args + 8, count - 1, names)) if before != 0 else 0


def array(kind: Word, ndim: Word, shape: Word, dtype: Word) -> Word:
    """A new array in a block of the pool, as NumPy's PyArray_New makes it."""
    before = begin()
    return end(before, new_array(PoolWords(words()).new_array, kind, ndim, shape, dtype)) if before != 0 else 0


# Guards: blocks of memory between canaries, of C's heap in place of Python's, and of the pool.
#
# Before a block stand its size, its neighbours in the list of live blocks, its kind, and canaries; behind it more
# canaries. They are checked when the block is freed, when it grows, and on request. A block that grows always moves,
# and a freed block is overwritten, so that the use of an old address is detected.


def enter():
    while swap(words() + 8 * PoolWords.living_lock, 1) != 0:
        pass


def leave():
    swap(words() + 8 * PoolWords.living_lock, 0)


def fault(base: GuardedBlock, kind):
    """What is wrong with a block; 0: nothing."""
    for at in range(GuardedBlock.canaries, GUARD, 8):
        if load_i8(base + at) != CANARY ^ (base + at):
            freed = base.kind == 0
            return GIVEN_TWICE if freed else WRITTEN_BEFORE
    if base.kind != kind:
        return WRITTEN_BEFORE
    end = pointer_b1(base + GUARD + base.size)
    for k in range(BEHIND):
        if end[k] != BEHIND_BYTE:
            return WRITTEN_BEHIND
    return 0


def guarded(base: GuardedBlock, size, kind):
    """Put canaries around a new block, and link it into the list of live blocks; return where its data begins."""
    if base == 0:
        return 0
    base.size = size
    base.kind = kind
    for at in range(GuardedBlock.canaries, GUARD, 8):
        store_i8(base + at, CANARY ^ (base + at))
    set_bytes(base + GUARD, 255, size)  # NaN
    set_bytes(base + GUARD + size, BEHIND_BYTE, BEHIND)
    enter()
    after = GuardedBlock(PoolWords(words()).living)
    base.next = after
    base.previous = 0
    if after != 0:
        after.previous = base
    PoolWords(words()).living = base
    leave()
    return base + GUARD


def looked_at(block, kind):
    """Where a guarded block begins; a fault is reported, which ends the process."""
    base = block - GUARD
    wrong = fault(base, kind)
    if wrong != 0:
        call_two(PoolWords(words()).report, block, wrong)
    return base


def bared(block, kind):
    """Unlink a block from the list of live blocks and overwrite it; return where it begins."""
    base = GuardedBlock(looked_at(block, kind))
    enter()
    after, before = GuardedBlock(base.next), base.previous
    store_i8(before + GuardedBlock.next if before != 0 else words() + 8 * PoolWords.living, after)
    if after != 0:
        after.previous = before
    leave()
    base.kind = 0
    set_bytes(base + GuardedBlock.canaries, FREED_BYTE, GUARD - GuardedBlock.canaries + base.size)
    return base


def broken() -> Word:
    """The first live block whose canaries have been overwritten; 0: none."""
    enter()
    base, guard = GuardedBlock(PoolWords(words()).living), 0
    while base != 0 and guard == 0:
        if fault(base, base.kind) != 0:
            guard = base + GUARD
        else:
            base = base.next
    leave()
    return guard


def wrong_with(block: Word) -> Word:
    """What is wrong with a live block."""
    return fault(block - GUARD, GuardedBlock(block - GUARD).kind)


def raw_malloc(size: Word) -> Word:
    return guarded(allocate(size + GUARD + BEHIND), size, RAW_BLOCK)


def raw_calloc(count: Word, item: Word) -> Word:
    block = guarded(allocate(count * item + GUARD + BEHIND), count * item, RAW_BLOCK)
    if block != 0:
        set_bytes(block, 0, count * item)
    return block


def raw_free(block: Word) -> Void:
    if block != 0:
        release(bared(block, RAW_BLOCK))


def raw_realloc(block: Word, size: Word) -> Word:
    moved = guarded(allocate(size + GUARD + BEHIND), size, RAW_BLOCK)
    if block != 0 and moved != 0:
        copy_bytes(moved, block, min(size, GuardedBlock(looked_at(block, RAW_BLOCK)).size))
        release(bared(block, RAW_BLOCK))
    return moved


# What Python has of it.
#
# ``TAPE_DEBUG=1`` puts canaries around the blocks of memory that tapes, sweeps and the pool allocate. They are looked
# at when a block is given back, when it grows and before each sweep; what is written into a kept block is found when it
# is used again. A block that is being given back cannot raise: the process ends with a message.

DEBUG = c_api.NATIVE and bool(os.environ.get("TAPE_DEBUG"))
"""Whether memory is guarded, and tapes are checked before they are swept (kernels/sweeps/debug_checks.py)."""
_WRONG = {
    WRITTEN_BEFORE: "has been written before its beginning",
    WRITTEN_BEHIND: "has been written behind its end",
    GIVEN_TWICE: "has been given back already",
    WRITTEN_AFTER: "of the pool has been written after it was given back",
}
_BEYOND = 8


class DamagedError(RuntimeError):
    """What ``TAPE_DEBUG=1`` found wrong with the words of a tape, or with a block of memory: a fault of ours."""


def install() -> None:
    """Let native code that is loaded from now on find guarded blocks under the names of Python's raw allocator."""
    for name in ("malloc", "calloc", "realloc", "free"):
        symbol = f"PyMem_Raw{name.capitalize()}"
        jit.API.discard(symbol)
        binding.add_symbol(symbol, getattr(linked(), f"raw_{name}").address)


def _end(block: int, wrong: int) -> NoReturn:
    """End the process, which cannot go on: said on stderr, with the lines of Python that led here."""
    lines = ["TAPE_DEBUG: ", _sentence(block, wrong), "\n", *traceback.format_stack(sys._getframe(1))]  # noqa: SLF001
    os.write(2, "".join(lines).encode())
    os.abort()


def _sentence(block: int, wrong: int) -> str:
    size = word_at(block - GUARD + GuardedBlock.size)
    noun = "memory" if wrong == WRITTEN_AFTER else f"a block of {size} bytes"
    return f"{noun} at {block:#x} {_WRONG[wrong]}"


def check_blocks() -> None:
    """Raise DamagedError if the canaries of a living block have been written over."""
    if block := called(linked().broken):
        raise DamagedError(_sentence(block, called(linked().wrong_with, block)))


class GuardedArrays:
    """Makes arrays that native code writes to by address, each with canaries around it."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, np.ndarray[Any, Any]]] = {}

    def zeros(self, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return an array of words; it takes the place of the one of this name."""
        count = int(np.prod(shape))
        whole = np.zeros(count + 2 * _BEYOND, np.int64)
        whole[:_BEYOND] = whole[-_BEYOND:] = CANARY
        self.check(name)
        self._made[name] = (f"{name} {shape}", whole)
        return whole[_BEYOND:-_BEYOND].reshape(shape)

    def check(self, *names: str) -> None:
        """Raise DamagedError if what is around an array, of these or of all, has been written over."""
        for part, whole in [self._made[name] for name in names or self._made if name in self._made]:
            for ends, where in ((whole[:_BEYOND], "before its beginning"), (whole[-_BEYOND:], "behind its end")):
                if (ends != CANARY).any():
                    raise DamagedError(f"the sweep's {part} have been written {where}")


# Pages fresh from the system cost more than arithmetic. NumPy allocates the memory of arrays through a handler. Ours is
# set only within ``call``, and frees memory when the array that owns it is deallocated: views of any kind keep that
# array alive. Blocks of 64 KB and more are kept, the most recently used, up to a bound in bytes; gradient buffers of
# sweeps come from here too.

_MOST = 256 << 20
_KEYWORDS = 0x02  # METH_KEYWORDS


def _most() -> int:
    """Return how many bytes may be kept: ``TAPE_POOL_BYTES``; else 256 MB, and an eighth of the memory at most."""
    chosen = os.environ.get("TAPE_POOL_BYTES", "")
    if chosen.isdecimal():
        return int(chosen)
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _MOST
    return min(_MOST, memory // 8)


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )  # fmt: skip


@functools.cache
def linked() -> Any:
    """Return the native pool, made and known to native code from the first call on; None where sweeps use C's heap."""
    pool = jit.load_module("native.pool") if c_api.NATIVE else None
    for name, function, fallback in (("tape_take", "take", "malloc"), ("tape_give", "give", "free")):
        address = binding.address_of_symbol(fallback) if pool is None else getattr(pool, function).address
        binding.add_symbol(name, address)
    if pool is None:
        return None
    words = _words(pool)
    words[PoolWords.bound], words[PoolWords.guards] = _most(), DEBUG
    if DEBUG:
        report = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_end)
        words[PoolWords.report] = ctypes.cast(report, ctypes.c_void_p).value or 0
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(report))  # arrays may be deallocated last
    if sys.platform == "linux":
        words[PoolWords.madvise] = binding.address_of_symbol("madvise") or 0
    return pool


def _words(pool: Any) -> Any:
    return (ctypes.c_int64 * WORDS).from_address(called(pool.words))


def _capsule(pool: Any) -> Any:
    """Return our handler as NumPy's capsule. It is never freed, since arrays may be deallocated last."""
    functions = [getattr(pool, f"numpy_{name}").address for name in ("malloc", "calloc", "realloc", "free")]
    handler, name = _Handler(b"tape_pool", 1, None, *functions), ctypes.c_char_p(b"mem_handler")
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ctypes.cast(ctypes.pythonapi.PyCapsule_New, ctypes.c_void_p).value or 0
    )
    capsule = make(ctypes.addressof(handler), name, None)
    for referent in (handler, name, capsule, pool, jit.engine()):  # the module owns the machine code
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(referent))
    return capsule


@functools.cache
def _native_call() -> Any:
    """Return the native ``call``; without a pool, one that just calls the function."""
    pool = linked()
    if pool is None:
        return lambda function, *args, **kwargs: function(*args, **kwargs)
    table = c_api.table()
    fill(
        PoolWords, called(pool.words), handler=id(_capsule(pool)), new_array=table[c_api.NEW],
        set_handler=table[c_api.SET_HANDLER], get_handler=table[c_api.GET_HANDLER],
        default_handler=word_at(table[c_api.DEFAULT_HANDLER]),
    )  # fmt: skip
    REGISTRY.set(pooled=pool.array.address)
    return jit.bound("native.pool", "call_pooled", None, _KEYWORDS)


def _first(function: Any, *args: Any, **kwargs: Any) -> Any:
    global call  # noqa: PLW0603
    call = _native_call()
    return call(function, *args, **kwargs)


call: Callable[..., Any] = _first
"""Call a function with arguments; large arrays that NumPy makes meanwhile come from the pool."""


def empty(shape: Any, spec: Spec) -> np.ndarray[Any, Any]:
    """Return an array whose elements are not set, of the dtype and about the size of a spec."""
    return call(np.empty, shape, spec.dtype) if spec.bytes >= structs.LARGE else np.empty(shape, spec.dtype)  # type: ignore[no-any-return]


def kept() -> int:
    """Return how many bytes are kept for reuse."""
    pool = linked()
    return int(_words(pool)[PoolWords.kept]) if pool else 0


def give_back(size: int | None = None) -> None:
    """Free what is kept for reuse, or so many bytes of it, for what is allocated elsewhere."""
    if pool := linked():
        called(pool.keep_at_most, 0 if size is None else max(kept() - size, 0))
