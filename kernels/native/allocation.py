"""Memory of native code: the functions that give and take it, and the registry of addresses of a process."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
from llvmlite import binding, ir

from kernels.foundation.locks import Lock
from kernels.language.jit import types
from kernels.native.call_structs import MOST_OPERATIONS, SETS, WAYS, CallEntry
from kernels.native.memory import c_function, calling, instructions
from kernels.native.structs import RegistryTable

_I64 = ir.IntType(64)


take, give = c_function("tape_take", types.int64, types.int64), c_function("tape_give", types.void, types.int64)
"""A block of so many bytes or more: its address, 0 when memory is short; and to give one back, of 0 nothing."""
set_bytes = c_function("memset", types.int64, types.int64, types.int32, types.int64)
"""C's memset: address, byte, size."""
copy_bytes = c_function("memcpy", *[types.int64] * 4)
"""C's memcpy: target, origin, size."""


@instructions(types.int64, types.int64, types.int64)
def swap(builder: Any, address: Any, value: Any) -> Any:
    """Store a word and return what stood there, in one step that no thread sees half done."""
    return builder.atomic_rmw("xchg", builder.inttoptr(address, _I64.as_pointer()), value, "seq_cst")


def module_words(count: int) -> Any:
    """Return the intrinsic for the address of so many words, zeros at first, that belong to the native module."""

    @instructions(types.int64)
    def words(builder: Any) -> Any:
        place = builder.module.globals.get("tape_own_words")
        if place is None:
            kind = ir.ArrayType(_I64, count)
            place = ir.GlobalVariable(builder.module, kind, "tape_own_words")
            place.linkage, place.initializer = "internal", ir.Constant(kind, None)
        return builder.ptrtoint(place, _I64)

    return words


get_handler, set_handler = calling(types.int64), calling(types.int64, types.int64)
"""PyDataMem_GetHandler: a new reference; PyDataMem_SetHandler: one to the handler that was set, 0 with an exception."""
madvise = calling(*[types.int64] * 4)
"""Linux's madvise: memory, size, advice."""
call_one, call_two = calling(*[types.int64] * 2), calling(*[types.int64] * 3)
"""Call a function of one word, or of two."""

MOST_TAPES = 1 << 18
"""Slots have 62 bits: so many tapes can live at a time."""
_lock = Lock(waited_for=True)


def zeros(count: int) -> int:
    """Return the address of so many words of memory that nobody frees."""
    allocate = ctypes.pythonapi.PyMem_RawCalloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
    address = allocate(count, 8)
    if not address:
        raise MemoryError("no memory for the registry of tapes and forms")
    return int(address)


def put(address: int, at: int, value: int) -> None:
    """Store a word."""
    ctypes.c_int64.from_address(address + 8 * at).value = value


class Registry:
    """The table of forms, by numbers that are reused when a form is deallocated."""

    def __init__(self) -> None:
        self.address = zeros(RegistryTable.SIZE)
        self.room, self.count = 0, 0
        self.free: list[int] = []
        self.objects: list[Any] = []
        self.living: dict[int, ref[Any]] = {}
        for at, value in (
            (RegistryTable.none, None),
            (RegistryTable.int_type, int),
            (RegistryTable.numpy_int, np.int64),
            (RegistryTable.float_type, float),
            (RegistryTable.array_type, np.ndarray),
            (RegistryTable.type_error, TypeError),
            (RegistryTable.attribute_error, AttributeError),
            (RegistryTable.double, np.dtype(np.float64)),
            (RegistryTable.single, np.dtype(np.float32)),
            (RegistryTable.longs, np.dtype(np.int64)),
            (RegistryTable.bools, np.dtype(np.bool_)),
            (RegistryTable.false, False),
            (RegistryTable.not_implemented, NotImplemented),
            (RegistryTable.slice_type, slice),
            (RegistryTable.tuple_type, tuple),
            (RegistryTable.ellipsis, Ellipsis),
            (RegistryTable.true, True),
            (RegistryTable.list_type, list),
            (RegistryTable.zero, 0),
        ):
            put(self.address, at, id(value))
            self.objects.append(value)
        self.calls = zeros(CallEntry.SIZE * WAYS * SETS)
        put(self.address, RegistryTable.calls, self.calls)
        self.missed = zeros(2 * MOST_OPERATIONS)
        put(self.address, RegistryTable.missed, self.missed)
        self.tapes = zeros(MOST_TAPES)
        put(self.address, RegistryTable.tapes, self.tapes)

    def enter(self, form: Any, block: int) -> int:
        """Return the number of a form with this block; it is given back when the form is gone."""
        with _lock:
            try:
                number = self.free.pop()
            except IndexError:
                number = self.count
                self.count = number + 1  # in one step: signal handlers on this thread may enter forms too
                if number >= self.room:
                    room = max(2 * self.room, 1 << 12)
                    forms = zeros(room)  # the old table is not freed, since another thread may be reading it
                    if self.room:
                        ctypes.memmove(forms, self.forms, 8 * self.room)
                    self.forms, self.room = forms, room
                    put(self.address, RegistryTable.forms, forms)
                put(self.address, RegistryTable.form_count, self.count)
            put(self.forms, number, block)
        self.living[number] = ref(form, partial(self._leave, number))
        return number

    def form(self, number: int) -> Any:
        """Return the form of a number; KeyError if it is gone."""
        return self.living[number]()

    def _leave(self, number: int, _: Any) -> None:
        """Remove a form from the table: no tape refers to it any more. Takes no lock, so it may run at any point."""
        put(self.forms, number, 0)
        self.living.pop(number, None)
        self.free.append(number)


REGISTRY = Registry()


def announce() -> None:
    """Give native code the registry's address."""
    binding.add_symbol("tape_registry", REGISTRY.address)
