"""Large arrays and buffers in memory that is used again: pages fresh from the system cost more than arithmetic.

NumPy allocates the memory of arrays through a handler. Ours is set only within ``call``, and frees memory when the
array that owns it is deallocated: views of any kind keep that array alive, so memory is reused only when nobody can see
it. Blocks of 64 KB and more are kept, the most recently used, up to a bound in bytes; gradient buffers of sweeps come
from here too.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding

from kernels.arrays.specs import Spec
from kernels.compiler import jit, native_units
from kernels.compiler.jit import bound
from kernels.native import heap_types, numpy_api
from kernels.native.pool import guards
from kernels.native.pool.pool_structs import LARGE, WORDS, PoolWords
from kernels.native.registry import REGISTRY, put
from kernels.native.tape_structs import RegistryTable

"""Bytes of a result from which on it is worth a ``call``."""
_MOST = 256 << 20
_PART_OF_MEMORY = 8
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
    return min(_MOST, memory // _PART_OF_MEMORY)


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )  # fmt: skip


@functools.cache
def linked() -> Any:
    """Return the native pool, made at the first call; None where sweeps use C's heap.

    From then on native code finds it under the names ``tape_take`` and ``tape_give``.
    """
    pool = jit.load_module("native.pool.pool_native") if heap_types.NATIVE else None
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
    return guards.around(pool) if guards.DEBUG else pool


def _words(pool: Any) -> Any:
    return (ctypes.c_int64 * WORDS).from_address(pool.words())


def _capsule(pool: Any) -> Any:
    """Return our handler as NumPy's capsule. It is never freed, since arrays may be deallocated last."""
    functions = [getattr(_functions(pool), f"numpy_{name}").address for name in ("malloc", "calloc", "realloc", "free")]
    handler, name = _Handler(b"tape_pool", 1, None, *functions), ctypes.c_char_p(b"mem_handler")
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ctypes.cast(ctypes.pythonapi.PyCapsule_New, ctypes.c_void_p).value or 0
    )
    capsule = make(ctypes.addressof(handler), name, None)
    for referent in (handler, name, capsule, pool, native_units.engine()):  # the module owns the machine code
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(referent))
    return capsule


@functools.cache
def _native_call() -> Any:
    """Return the native ``call``; without a pool, one that just calls the function."""
    pool = linked()
    if pool is None:
        return _plainly
    words, table = _words(pool), numpy_api.table()
    words[PoolWords.set_handler] = table[numpy_api.SET_HANDLER]
    words[PoolWords.get_handler] = table[numpy_api.GET_HANDLER]
    words[PoolWords.default_handler] = ctypes.c_int64.from_address(table[numpy_api.DEFAULT_HANDLER]).value
    words[PoolWords.new_array] = table[numpy_api.NEW]
    words[PoolWords.handler] = id(_capsule(pool))
    put(REGISTRY.address, RegistryTable.pooled, pool.array.address)
    return bound("native.pool.pool_native", "call", None, _KEYWORDS)


def _plainly(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _first(function: Any, *args: Any, **kwargs: Any) -> Any:
    global call  # noqa: PLW0603
    call = _native_call()
    return call(function, *args, **kwargs)


call: Callable[..., Any] = _first
"""Call a function with arguments; large arrays that NumPy makes meanwhile come from the pool."""


def empty(shape: Any, spec: Spec) -> np.ndarray[Any, Any]:
    """Return an array whose elements are not set, of the dtype and about the size of a spec."""
    return call(np.empty, shape, spec.dtype) if spec.bytes >= LARGE else np.empty(shape, spec.dtype)  # type: ignore[no-any-return]


def is_large(x: Any) -> bool:
    """Whether this is an array whose results are worth a ``call``."""
    return type(x) is np.ndarray and x.nbytes >= LARGE


def kept() -> int:
    """Return how many bytes are kept for reuse."""
    pool = linked()
    return int(_words(pool)[PoolWords.kept]) if pool else 0


def give_back() -> None:
    """Free what is kept for reuse."""
    if pool := linked():
        pool.keep_at_most(0)
