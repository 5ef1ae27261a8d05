"""The pool of arrays that are used again: guards around its memory, and what Python sees of it."""

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

from kernels.foundation.specs import Spec
from kernels.language import jit
from kernels.language.jit import bound
from kernels.native import c_api, structs
from kernels.native.c_api import NATIVE
from kernels.native.memory import REGISTRY, put
from kernels.native.structs import GuardedBlock, GuardWords, PoolWords, RegistryTable

# ``TAPE_DEBUG=1`` puts canaries around the blocks of memory that tapes, sweeps and the pool allocate. They are looked
# at when a block is given back, when it grows and before each sweep; what is written into a kept block is found when it
# is used again. A block that is being given back cannot raise: the process ends with a message. Without ``TAPE_DEBUG``
# native code finds other functions under the same names.

DEBUG = NATIVE and bool(os.environ.get("TAPE_DEBUG"))
"""Whether memory is guarded, and tapes are checked before they are swept (kernels/sweeps/debug_checks.py)."""
_WRONG = {
    structs.WRITTEN_BEFORE: "has been written before its beginning",
    structs.WRITTEN_BEHIND: "has been written behind its end",
    structs.GIVEN_TWICE: "has been given back already",
    structs.WRITTEN_AFTER: "of the pool has been written after it was given back",
}
_BEYOND = 8


class DamagedError(RuntimeError):
    """What ``TAPE_DEBUG=1`` found wrong with the words of a tape, or with a block of memory: a fault of ours."""


def install() -> None:
    """Let native code that is loaded from now on find guarded blocks under the names of Python's raw allocator."""
    guards = _guards()
    for name in ("malloc", "calloc", "realloc", "free"):
        symbol, address = f"PyMem_Raw{name.capitalize()}", getattr(guards, f"raw_{name}").address
        jit.API.discard(symbol)
        binding.add_symbol(symbol, address)


@functools.cache
def _guards() -> Any:
    guards = jit.load_module("native.guards_native")
    report = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_end)
    put(guards.words(), GuardWords.report, ctypes.cast(report, ctypes.c_void_p).value or 0)
    for referent in (guards, report):  # kept until the process ends: arrays may be deallocated last
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(referent))
    return guards


def around(pool: Any) -> Any:
    """Return the functions of a pool with guards around its blocks."""
    guards = _guards()
    words = guards.words()
    put(words, GuardWords.take, pool.take.address)
    put(words, GuardWords.give, pool.give.address)
    put(words, GuardWords.reused, pool.words() + 8 * PoolWords.reused)
    return guards


def _end(block: int, wrong: int) -> NoReturn:
    """End the process, which cannot go on: said on stderr, with the lines of Python that led here."""
    lines = ["TAPE_DEBUG: ", _sentence(block, wrong), "\n", *traceback.format_stack(sys._getframe(1))]  # noqa: SLF001
    os.write(2, "".join(lines).encode())
    os.abort()


def _sentence(block: int, wrong: int) -> str:
    size = ctypes.c_int64.from_address(block - structs.GUARD + GuardedBlock.size).value
    noun = "memory" if wrong == structs.WRITTEN_AFTER else f"a block of {size} bytes"
    return f"{noun} at {block:#x} {_WRONG[wrong]}"


def check_blocks() -> None:
    """Raise DamagedError if the canaries of a living block have been written over."""
    if block := _guards().broken():
        raise DamagedError(_sentence(block, _guards().wrong_with(block)))


class GuardedArrays:
    """Makes arrays that native code writes to by address, each with canaries around it."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, np.ndarray[Any, Any]]] = {}

    def zeros(self, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return an array of words; it takes the place of the one of this name."""
        count = int(np.prod(shape))
        whole = np.zeros(count + 2 * _BEYOND, np.int64)
        whole[:_BEYOND] = whole[-_BEYOND:] = structs.CANARY
        self.check(name)
        self._made[name] = (f"{name} {shape}", whole)
        return whole[_BEYOND:-_BEYOND].reshape(shape)

    def check(self, *names: str) -> None:
        """Raise DamagedError if what is around an array, of these or of all, has been written over."""
        for part, whole in [self._made[name] for name in names or self._made if name in self._made]:
            for ends, where in ((whole[:_BEYOND], "before its beginning"), (whole[-_BEYOND:], "behind its end")):
                if (ends != structs.CANARY).any():
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
    pool = jit.load_module("native.pool_native") if c_api.NATIVE else None
    for name, function, fallback in (("tape_take", "take", "malloc"), ("tape_give", "give", "free")):
        address = binding.address_of_symbol(fallback) if pool is None else getattr(_functions(pool), function).address
        binding.add_symbol(name, address)
    if pool is None:
        return None
    words = _words(pool)
    words[PoolWords.bound], words[PoolWords.poison] = _most(), bool(os.environ.get("TAPE_DEBUG"))
    if sys.platform == "linux":
        words[PoolWords.madvise] = binding.address_of_symbol("madvise") or 0
    return pool


def _functions(pool: Any) -> Any:
    return around(pool) if DEBUG else pool


def _words(pool: Any) -> Any:
    return (ctypes.c_int64 * structs.WORDS).from_address(pool.words())


def _capsule(pool: Any) -> Any:
    """Return our handler as NumPy's capsule. It is never freed, since arrays may be deallocated last."""
    functions = [getattr(_functions(pool), f"numpy_{name}").address for name in ("malloc", "calloc", "realloc", "free")]
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
    words, table = _words(pool), c_api.table()
    words[PoolWords.set_handler] = table[c_api.SET_HANDLER]
    words[PoolWords.get_handler] = table[c_api.GET_HANDLER]
    words[PoolWords.default_handler] = ctypes.c_int64.from_address(table[c_api.DEFAULT_HANDLER]).value
    words[PoolWords.new_array] = table[c_api.NEW]
    words[PoolWords.handler] = id(_capsule(pool))
    put(REGISTRY.address, RegistryTable.pooled, pool.array.address)
    return bound("native.pool_native", "call", None, _KEYWORDS)


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


def give_back() -> None:
    """Free what is kept for reuse."""
    if pool := linked():
        pool.keep_at_most(0)
