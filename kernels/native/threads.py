"""Threads of native code: atomic words, loops in parts, and the workers that share one."""

# ruff: noqa: ANN001, ANN201, ARG001 (of native functions, whose types are what callers pass)

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import threading
import warnings
from typing import Any

import numpy as np
from llvmlite import ir

from kernels.foundation.tables import Lock, cached_property
from kernels.language.jit import load_module, types
from kernels.language.llvm_values import Struct, Word
from kernels.native import c_api
from kernels.native.memory import call_at, external, instructions, load_i8, store_i8, where


class ThreadPoolWords(Struct):
    """What all threads share; behind it a :class:`WorkerWords` each. What several write has a cache line of its own."""

    threads: int  # how many work
    run: int  # the address of ``run``
    function: int  # what is run: a function,
    table: int  # its table,
    parts: int  # how many parts,
    active: int  # by how many threads
    stop: int  # whether workers end
    shared: int  # how many loops several threads have run
    by_workers: int  # how many parts of them workers, not callers
    busy: int = 16  # whether a loop is run
    number: int = 24  # of the loop
    done: int = 32  # how many parts are done
    waits: int = 40  # whether the caller sleeps,
    lock: int = 48  # and where


class WorkerWords(Struct):
    """What one thread has."""

    claim: int  # which of its parts is next
    sleeps: int = 8  # whether it sleeps,
    lock: int = 9  # and where


W_FIRST, W_EACH = 64, 16  # where the words of threads begin, and how many each has
PARTS_BITS, NUMBERS = 16, 1 << 31
"""A claim is the number of the loop, where the parts of the thread end, and which is next, in so many bits each."""
MOST_PARTS = 128  # parts of a loop, at most, and with them threads
SPINS = 2_000  # how often a thread looks for work, or for the end of it, before it sleeps: some fifty microseconds


_I64 = ir.IntType(64)
_ORDER = "seq_cst"
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")


@instructions(types.int64, types.int64)
def seen(builder: Any, address: Any) -> Any:
    """The word at an address, as other threads have left it."""
    return builder.load_atomic(_pointer(builder, address), _ORDER, 8)


@instructions(types.void, types.int64, types.int64)
def shown(builder: Any, address: Any, value: Any) -> Any:
    """Store a word, and all that was stored before, for other threads to see."""
    builder.store_atomic(value, _pointer(builder, address), _ORDER, 8)


@instructions(types.int64, types.int64, types.int64, types.int64)
def exchanged(builder: Any, address: Any, before: Any, after: Any) -> Any:
    """Store a word where ``before`` still stands; return 1 if it did, else 0."""
    pair = builder.cmpxchg(_pointer(builder, address), before, after, _ORDER, _ORDER)
    return builder.zext(builder.extract_value(pair, 1), _I64)


@instructions(types.int64, types.int64, types.int64)
def counted(builder: Any, address: Any, more: Any) -> Any:
    """Add to a word; return the sum."""
    return builder.add(builder.atomic_rmw("add", _pointer(builder, address), more, _ORDER), more)


@instructions(types.void)
def relax(builder: Any) -> Any:
    """Tell the processor that this loop only waits."""
    if _IS_X86:
        builder.call(external(builder, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I64.as_pointer())


# Loops in parts: a caller and sleeping workers each take the next part of theirs, then what is left of others'.
#
# A part is taken by exchanging a word that says of which loop it is, so that a worker who comes late takes none of the
# next one; what the words say of a loop holds until all parts that were taken are done. No thread waits for one that
# has taken nothing.

CONTROL = True
MASK = (1 << PARTS_BITS) - 1


def of_thread(words, place):
    """Where the words of a thread begin."""
    return words + 8 * (W_FIRST + W_EACH * place)


def taken(words, number, place):
    """Take the next part of a thread's; return -1 where none is left."""
    at = of_thread(words, place) + 8 * WorkerWords.claim
    while True:
        claim = seen(at)
        part = claim & MASK
        if claim >> (2 * PARTS_BITS) != number or part >= (claim >> PARTS_BITS) & MASK:
            return -1
        if exchanged(at, claim, claim + 1) != 0:
            return part
    return -1


def woken(sleeps, lock):
    """Wake who sleeps there, or is about to."""
    if exchanged(sleeps, 1, 0) != 0:
        c_api.PyThread_release_lock(load_i8(lock))
    return 0


def worked(words: ThreadPoolWords, number, mine):
    """Run parts, first of one's own."""
    threads, k, place = words.active, 0, mine
    while k < threads:
        part = taken(words, number, place)
        while part >= 0:
            parts = words.parts
            call_at(words.function, words.table, part, 0, 0)
            if mine != 0:
                counted(words + 8 * ThreadPoolWords.by_workers, 1)
            if counted(words + 8 * ThreadPoolWords.done, 1) == parts:
                woken(words + 8 * ThreadPoolWords.waits, words + 8 * ThreadPoolWords.lock)
            part = taken(words, number, place)
        place = place + 1 if place + 1 < threads else 0
        k += 1
    return 0


def finished(words: ThreadPoolWords, parts):
    """Wait until all parts are done."""
    spins, waits = 0, words + 8 * ThreadPoolWords.waits
    while seen(words + 8 * ThreadPoolWords.done) != parts:
        spins += 1
        if spins < SPINS:
            relax()
            continue
        shown(waits, 1)
        if seen(words + 8 * ThreadPoolWords.done) == parts and exchanged(waits, 1, 0) != 0:
            return 0
        c_api.PyThread_acquire_lock(words.lock, 1)
    return 0


def shared_out(words, number, parts, threads):
    """Give each thread its parts, and wake those that sleep."""
    k = 0
    while k < threads:
        first, end = parts * k // threads, parts * (k + 1) // threads
        claim = ((number << PARTS_BITS) | end) << PARTS_BITS | first
        shown(of_thread(words, k) + 8 * WorkerWords.claim, claim)
        k += 1
    shown(words + 8 * ThreadPoolWords.number, number)
    k = 1
    while k < threads:
        at = of_thread(words, k)
        woken(at + 8 * WorkerWords.sleeps, at + 8 * WorkerWords.lock)
        k += 1
    return 0


def run(words: ThreadPoolWords, function: Word, table: Word, parts: Word) -> Word:
    """Call ``function(table, part, 0, 0)`` for each part; on this thread alone if others have the workers."""
    threads = seen(words + 8 * ThreadPoolWords.threads)
    threads = min(parts, threads)
    if threads <= 1 or exchanged(words + 8 * ThreadPoolWords.busy, 0, 1) == 0:
        part = 0
        while part < parts:
            call_at(function, table, part, 0, 0)
            part += 1
        return 0
    words.function = function
    words.table = table
    words.parts = parts
    words.active = threads
    words.shared += 1
    shown(words + 8 * ThreadPoolWords.done, 0)
    number = (words.number + 1) % NUMBERS
    shared_out(words, number, parts, threads)
    worked(words, number, 0)
    finished(words, parts)
    shown(words + 8 * ThreadPoolWords.busy, 0)
    return 0


def awaited(words, mine, last):
    """Wait for another loop than the last; return its number, -1 at the end of all."""
    at, spins = WorkerWords(of_thread(words, mine)), 0
    while True:
        if seen(words + 8 * ThreadPoolWords.stop) != 0:
            return -1
        number = seen(words + 8 * ThreadPoolWords.number)
        if number != last:
            return number
        spins += 1
        if spins < SPINS:
            relax()
            continue
        spins = 0
        shown(at + 8 * WorkerWords.sleeps, 1)
        changed = seen(words + 8 * ThreadPoolWords.number) != last or seen(words + 8 * ThreadPoolWords.stop) != 0
        if not (changed and exchanged(at + 8 * WorkerWords.sleeps, 1, 0) != 0):
            c_api.PyThread_acquire_lock(at.lock, 1)
    return -1


def work(words: ThreadPoolWords, mine: Word) -> Word:
    """Be a worker, until all end."""
    last = 0
    while True:
        last = awaited(words, mine, last)
        if last < 0:
            return 0
        if mine < words.active:
            worked(words, last, mine)
    return 0


def end(words: Word) -> Word:
    """Have all workers end."""
    shown(words + 8 * ThreadPoolWords.threads, 1)
    shown(words + 8 * ThreadPoolWords.stop, 1)
    k = 1
    while WorkerWords(of_thread(words, k)).lock != 0:
        at = of_thread(words, k)
        woken(at + 8 * WorkerWords.sleeps, at + 8 * WorkerWords.lock)
        k += 1
    return 0


def probe(table: Word, part: Word, unused: Word, unused_too: Word) -> Word:
    """Count a part (the self-check)."""
    store_i8(table + 8 * part, load_i8(table + 8 * part) + part + 1)
    return 0


# The workers are Python's threads, in native code. They work for one caller at a time; another caller, a process that
# was forked, and one that ends, do without.

_SECONDS = 5.0  # how long the end of the process waits for workers


class Workers:
    """The words that threads share, and the threads."""

    def __init__(self) -> None:
        self.words = np.zeros(W_FIRST + W_EACH * (MOST_PARTS + 1), np.int64)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.words))  # threads may look at them when all else is gone
        self.lock = Lock(waited_for=True)
        self.threads: list[threading.Thread] = []
        self.wanted = 1  # how many threads were asked for
        self.words[ThreadPoolWords.threads] = 1
        self.ended = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    @property
    def address(self) -> int:
        """Where the words are."""
        return where(self.words)

    @cached_property
    def native(self) -> Any:
        """The native code; None where it does not work here."""
        try:
            module = load_module("native.threads")
            return module if self._agrees(module) else None
        except (ImportError, OSError, AttributeError) as error:
            warnings.warn(f"loops run on one thread: {error}", RuntimeWarning, stacklevel=2)
            return None

    def _agrees(self, module: Any) -> bool:
        self.words[ThreadPoolWords.run] = module.run.address
        table = np.zeros(MOST_PARTS, np.int64)
        called(module.run, self.address, module.probe.address, where(table), MOST_PARTS)
        return bool((table == np.arange(1, MOST_PARTS + 1)).all())

    def use(self, count: int) -> None:
        """Have so many threads run loops."""
        with self.lock:
            self.wanted = count
            active = min(count, MOST_PARTS)
            if active == 1 or self.ended or self.native is None:
                self.words[ThreadPoolWords.threads] = 1
                return
            if not self.threads:
                self.words[ThreadPoolWords.lock] = _new_lock()
                atexit.register(self.end)
            new = active - 1 - len(self.threads)
            for _ in range(new):
                place = len(self.threads) + 1
                self.words[W_FIRST + W_EACH * place + WorkerWords.lock] = _new_lock()
                name = f"tape.set_num_threads {place}"
                thread = threading.Thread(
                    target=called, args=(self.native.work, self.address, place), name=name, daemon=True
                )
                thread.start()
                self.threads.append(thread)
            self.words[ThreadPoolWords.threads] = active
            if new > 0 and not self._agrees(self.native):
                self.words[ThreadPoolWords.threads] = 1

    def end(self) -> None:
        """Have the workers end, before the interpreter does."""
        with self.lock:
            self.ended = True
            called(self.native.end, self.address)
            for thread in self.threads:
                thread.join(_SECONDS)

    def _forked(self) -> None:
        run = int(self.words[ThreadPoolWords.run])
        self.words[:] = 0
        self.words[ThreadPoolWords.run], self.words[ThreadPoolWords.threads] = run, 1
        self.threads, self.wanted = [], 1
        atexit.unregister(self.end)

    def shared(self) -> tuple[int, int]:
        """Return how many loops several threads have run, and how many of their parts workers did."""
        return int(self.words[ThreadPoolWords.shared]), int(self.words[ThreadPoolWords.by_workers])


def called(function: Any, *words: int) -> int:
    """Call a native function of words; other threads run Python meanwhile."""
    return int(_prototype(len(words))(function.address)(*words))


@functools.cache
def _prototype(count: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)


def _new_lock() -> int:
    """Return one of the interpreter's locks, held: who takes it next sleeps until it is released."""
    api = ctypes.pythonapi
    allocate, acquire = api.PyThread_allocate_lock, api.PyThread_acquire_lock
    allocate.restype, acquire.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)
    lock = int(allocate())
    acquire(lock, 1)
    return lock


WORKERS = Workers()  # those of this process
