"""``TAPE_DEBUG=1``: canaries around the blocks of memory that tapes, sweeps and the pool allocate.

They are looked at when a block is given back, when it grows and before each sweep; what is written into a kept block
is found when it is used again. A block that is being given back cannot raise: the process ends with a message. Without
``TAPE_DEBUG`` nothing of this is loaded: native code finds other functions under the same names.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import traceback
from typing import Any, NoReturn

import numpy as np
from llvmlite import binding

from kernels.compiler import jit, native_units
from kernels.native import python_api
from kernels.native.heap_types import NATIVE
from kernels.native.pool.pool_structs import (
    CANARY,
    GIVEN_TWICE,
    GUARD,
    WRITTEN_AFTER,
    WRITTEN_BEFORE,
    WRITTEN_BEHIND,
    GuardedBlock,
    GuardWords,
    PoolWords,
)
from kernels.native.registry import put

DEBUG = NATIVE and bool(os.environ.get("TAPE_DEBUG"))
"""Whether memory is guarded, and tapes are checked before they are swept (kernels/debug/checks.py)."""
_WRONG = {
    WRITTEN_BEFORE: "has been written before its beginning",
    WRITTEN_BEHIND: "has been written behind its end",
    GIVEN_TWICE: "has been given back already",
    WRITTEN_AFTER: "of the pool has been written after it was given back",
}
_BEYOND = 8
_RAW = {
    "raw_malloc": python_api.PyMem_RawMalloc.__name__,
    "raw_calloc": python_api.PyMem_RawCalloc.__name__,
    "raw_realloc": python_api.PyMem_RawRealloc.__name__,
    "raw_free": python_api.PyMem_RawFree.__name__,
}


class DamagedError(RuntimeError):
    """What ``TAPE_DEBUG=1`` found wrong with the words of a tape, or with a block of memory: a fault of ours."""


def install() -> None:
    """Let native code that is loaded from now on find guarded blocks under the names of Python's raw allocator."""
    guards = _guards()
    for name, symbol in _RAW.items():
        address = getattr(guards, name).address
        native_units.API.discard(symbol)
        binding.add_symbol(symbol, address)


@functools.cache
def _guards() -> Any:
    guards = jit.load_module("native.pool.guards_native")
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
    size = ctypes.c_int64.from_address(block - GUARD + GuardedBlock.size).value
    noun = "memory" if wrong == WRITTEN_AFTER else f"a block of {size} bytes"
    return f"{noun} at {block:#x} {_WRONG[wrong]}"


def check_blocks() -> None:
    """Raise DamagedError if the canaries of a living block have been written over."""
    if block := _guards().broken():
        raise DamagedError(_sentence(block, _guards().wrong_with(block)))


class Rows:
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
