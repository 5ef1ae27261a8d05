"""Threads of native code: atomic words, and the workers that share one."""

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
from kernels.native.memory import external, instructions, where
from kernels.native.structs import MOST_PARTS, W_EACH, W_FIRST, ThreadPoolWords, WorkerWords

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


# The workers are Python's threads, in native code. They work for one caller at a time; another caller, a process that
# was forked, and one that ends, do without.

_MODULE = "native.threads_native"
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
            return load_module(_MODULE) if self._agrees(load_module(_MODULE)) else None
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
