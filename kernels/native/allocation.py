"""Memory of native code: the functions that give and take it, and the registry of addresses of a process."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
from llvmlite import binding, ir

from kernels.foundation.locks import Lock
from kernels.language.jit import intrinsic, types
from kernels.native.call_structs import MOST_OPERATIONS, SETS, WAYS, CallEntry
from kernels.native.memory import external
from kernels.native.structs import RegistryTable

# What native code needs to keep blocks of memory for reuse, and to take and give them; see pool.py.

_I64, _I32 = ir.IntType(64), ir.IntType(32)


@intrinsic
def take(typingctx: Any, size: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
    """A block of so many bytes or more: its address, 0 when memory is short."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.call(external(builder, ir.FunctionType(_I64, [_I64]), "tape_take"), args)

    return types.int64(types.int64), codegen


@intrinsic
def give(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
    """Give back a block that was taken; of 0 nothing."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        builder.call(external(builder, ir.FunctionType(ir.VoidType(), [_I64]), "tape_give"), args)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def set_bytes(typingctx: Any, address: Any, byte: Any, size: Any) -> Any:  # noqa: ARG001
    """C's memset."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(_I64, [_I64, _I32, _I64])
        builder.call(external(builder, kind, "memset"), [args[0], builder.trunc(args[1], _I32), args[2]])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@intrinsic
def copy_bytes(typingctx: Any, target: Any, origin: Any, size: Any) -> Any:  # noqa: ARG001
    """C's memcpy."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        builder.call(external(builder, ir.FunctionType(_I64, [_I64] * 3), "memcpy"), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@intrinsic
def swap(typingctx: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Store a word and return what stood there, in one step that no thread sees half done."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.atomic_rmw("xchg", builder.inttoptr(args[0], _I64.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


def module_words(count: int) -> Any:
    """Return the intrinsic for the address of so many words, zeros at first, that belong to the native module."""

    def words(typingctx: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            place = builder.module.globals.get("tape_own_words")
            if place is None:
                kind = ir.ArrayType(_I64, count)
                place = ir.GlobalVariable(builder.module, kind, "tape_own_words")
                place.linkage, place.initializer = "internal", ir.Constant(kind, None)
            return builder.ptrtoint(place, _I64)

        return types.int64(), codegen

    return intrinsic(words)


def _call_at(address: Any, *arguments: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(_I64, [_I64] * len(arguments))
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(address, *arguments), codegen


@intrinsic
def get_handler(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
    """PyDataMem_GetHandler: a new reference."""
    return _call_at(address)


@intrinsic
def set_handler(typingctx: Any, address: Any, handler: Any) -> Any:  # noqa: ARG001
    """PyDataMem_SetHandler: a new reference to the one that was set; 0 with an exception."""
    return _call_at(address, handler)


@intrinsic
def madvise(typingctx: Any, address: Any, memory: Any, size: Any, advice: Any) -> Any:  # noqa: ARG001
    """Linux's madvise."""
    return _call_at(address, memory, size, advice)


@intrinsic
def call_one(typingctx: Any, address: Any, argument: Any) -> Any:  # noqa: ARG001
    """Call a function of one word."""
    return _call_at(address, argument)


@intrinsic
def call_two(typingctx: Any, address: Any, first: Any, second: Any) -> Any:  # noqa: ARG001
    """Call a function of two words."""
    return _call_at(address, first, second)


# Tables that native code reads by number: headers of tapes, blocks of forms. They are never freed.

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
                    self._grow()
                put(self.address, RegistryTable.form_count, self.count)
            put(self.forms, number, block)
        self.living[number] = ref(form, partial(self._leave, number))
        return number

    def form(self, number: int) -> Any:
        """Return the form of a number; KeyError if it is gone."""
        return self.living[number]()

    def _grow(self) -> None:
        """Allocate a table of twice the size; the old one is not freed, since another thread may be reading it."""
        room = max(2 * self.room, 1 << 12)
        forms = zeros(room)
        if self.room:
            ctypes.memmove(forms, self.forms, 8 * self.room)
        self.forms, self.room = forms, room
        put(self.address, RegistryTable.forms, forms)

    def _leave(self, number: int, _: Any) -> None:
        """Remove a form from the table: no tape refers to it any more. Takes no lock, so it may run at any point."""
        put(self.forms, number, 0)
        self.living.pop(number, None)
        self.free.append(number)


REGISTRY = Registry()


def announce() -> None:
    """Give native code the registry's address."""
    binding.add_symbol("tape_registry", REGISTRY.address)
