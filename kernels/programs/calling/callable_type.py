"""The native type of objects whose calls programs answer without Python, as long as a plan takes them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.language import jit
from kernels.native import allocation
from kernels.native.allocation import put
from kernels.native.c_api import (
    BASETYPE,
    CALL,
    CLEAR,
    COLLECTED,
    DEALLOC,
    MEMBERS,
    OBJECT,
    READONLY,
    SIZE,
    TRAVERSE,
    VECTORCALL,
    made,
    members,
)
from kernels.programs.calling.direct_call_structs import CallableObject
from kernels.programs.program import native

Class = TypeVar("Class", bound=type)

_FLAGS = 168
"""Where a type has its flags, in bytes."""


class _PlainCallable:
    """What stands for the type where objects cannot be read natively."""

    _slow: Callable[..., Any]
    _plans: tuple[Any, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._slow(self, *args, **kwargs)


def _made() -> Any:
    allocation.announce()
    code = jit.load_module("programs.calling.planned_calls_native")
    rows = {
        "_slow": (OBJECT, CallableObject.slow, 0),
        "_plans": (OBJECT, CallableObject.plans, 0),
        "__vectorcalloffset__": (SIZE, CallableObject.call, READONLY),
    }
    slots = {
        MEMBERS: members(rows),
        CALL: ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value or 0,
        TRAVERSE: code.traverse,
        CLEAR: code.clear,
        DEALLOC: code.dealloc,
    }
    flags = BASETYPE | COLLECTED | VECTORCALL
    return made(f"{__name__}.DirectlyCalled", object, slots, CallableObject.SIZE, flags)


if TYPE_CHECKING:
    DirectlyCalled = _PlainCallable
else:
    DirectlyCalled = _made() if native() else _PlainCallable


def called_at_once(kind: Class) -> Class:
    """Let calls of a class's objects come without a tuple of their arguments; its decorator, beside DirectlyCalled.

    From Python 3.12 on classes inherit that; before, they only do if nobody can change their ``__call__``.
    """
    flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS) if native() and sys.version_info < (3, 12) else None
    if flags is not None and flags.value == kind.__flags__ and "__call__" not in vars(kind):
        flags.value |= VECTORCALL
    return kind


def begin(thing: DirectlyCalled, slow: Callable[..., Any]) -> None:
    """Set an object up: ``slow(thing, ...)`` makes the calls that no plan takes."""
    thing._slow, thing._plans = slow, ()  # noqa: SLF001 (this is its constructor)
    if DirectlyCalled is not _PlainCallable:
        entry = jit.load_module("programs.calling.planned_calls_native").vectorcall.address
        put(id(thing), CallableObject.call // 8, entry)
