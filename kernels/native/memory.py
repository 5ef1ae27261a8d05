"""Memory by address: reads and writes, the functions that give and take it, the registry of addresses."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils

from kernels.foundation.specs import word_at
from kernels.foundation.tables import Lock
from kernels.language.expressions import type_of
from kernels.language.jit import intrinsic, named_intrinsic, types
from kernels.language.llvm_values import StructType
from kernels.native.structs import MOST_OPERATIONS, SETS, WAYS, CallEntry, RegistryTable

# Reading and writing memory by address from native code, and what CPython's objects look like there.

HEADER = object.__basicsize__
"""Bytes before an object's own fields: the value of a float, the data pointer of an array start here."""

_I64 = ir.IntType(64)
_WIDTH = {"i4": ir.IntType(32), "f4": ir.FloatType(), "f8": ir.DoubleType(), "i8": _I64, "i1": ir.IntType(8)}


def instructions(result: Any, *parameters: Any, name: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Declare an intrinsic of these types, whose instructions a function appends: ``emit(builder, *values)``."""

    def declare(emit: Callable[..., Any]) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
            value = emit(builder, *args)
            return context.get_dummy_value() if result == types.void else value

        return named_intrinsic(name or emit.__name__, len(parameters), lambda *_: (result(*parameters), codegen))

    return declare


def c_function(name: str, result: Any, *parameters: Any) -> Any:
    """Return the intrinsic that calls a function of C by its name."""

    def emit(builder: Any, *args: Any) -> Any:
        return builder.call(external(builder, _function_type(result, parameters), name), args)

    return instructions(result, *parameters, name=name)(emit)


def calling(result: Any, *parameters: Any) -> Any:
    """Return the intrinsic that calls a function at an address."""

    def emit(builder: Any, address: Any, *args: Any) -> Any:
        return builder.call(builder.inttoptr(address, _function_type(result, parameters).as_pointer()), args)

    return instructions(result, types.int64, *parameters)(emit)


def _function_type(result: Any, parameters: tuple[Any, ...]) -> ir.FunctionType:
    return ir.FunctionType(type_of(result), [type_of(kind) for kind in parameters])


def external(builder: Any, kind: Any, name: str) -> Any:
    """Return a function of C, declared in the module under construction."""
    module = builder.module
    return module.globals.get(name) or ir.Function(module, kind, name)


def _at(builder: Any, address: Any, name: str) -> Any:
    return builder.inttoptr(address, _WIDTH[name].as_pointer())


def _loader(name: str, kind: Any) -> Any:
    declare = instructions(kind, types.int64, name=f"load_{name}")
    return declare(lambda builder, address: builder.load(_at(builder, address, name)))


def _storer(name: str, kind: Any) -> Any:
    declare = instructions(types.void, types.int64, kind, name=f"store_{name}")
    return declare(lambda builder, address, value: builder.store(value, _at(builder, address, name)))


def _pointer(name: str, kind: Any) -> Any:
    declare = instructions(types.CPointer(kind), types.int64, name=f"pointer_{name}")
    return declare(lambda builder, address: _at(builder, address, name))


def _local(name: str, kind: Any) -> Any:
    """Return the intrinsic that gives a function so many elements on its stack, where vectors cross no cache line."""

    def emit(builder: Any, count: Any) -> Any:
        block = builder.alloca(_WIDTH[name], size=count)
        block.align = 64
        return block

    return instructions(types.CPointer(kind), types.int64, name=f"local_{name}")(emit)


load_i8, load_i4 = _loader("i8", types.int64), _loader("i4", types.int32)
load_i1 = _loader("i1", types.uint8)
load_f8, load_f4 = _loader("f8", types.float64), _loader("f4", types.float32)
store_i8, store_i4 = _storer("i8", types.int64), _storer("i4", types.int32)
store_f8, store_f4 = _storer("f8", types.float64), _storer("f4", types.float32)
pointer_f8, pointer_f4 = _pointer("f8", types.float64), _pointer("f4", types.float32)
pointer_i8, pointer_i4 = _pointer("i8", types.int64), _pointer("i4", types.int32)
pointer_b1 = _pointer("i1", types.uint8)
local_f8, local_f4 = _local("f8", types.float64), _local("f4", types.float32)
local_i8, local_b1 = _local("i8", types.int64), _local("i1", types.uint8)


@instructions(types.int64, types.int64, types.int64)
def word(builder: Any, base: Any, index: Any) -> Any:
    """The int64 at ``base[index]``."""
    return builder.load(builder.gep(_at(builder, base, "i8"), [index]))


@instructions(types.float64, types.int64)
def double_of(builder: Any, bits: Any) -> Any:
    """The double that has these bits."""
    return builder.bitcast(bits, _WIDTH["f8"])


@intrinsic
def begin_of(typingctx: Any, pointer: Any) -> Any:  # noqa: ARG001
    """The address that a pointer is."""
    return types.int64(pointer), lambda context, builder, signature, args: builder.ptrtoint(args[0], _I64)  # noqa: ARG005


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:  # noqa: ARG001
    """The bits of a double; of a single, in the upper half, so that -0.0 is alike; of a boolean or integer that."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if signature.args[0] == types.float64:
            return builder.bitcast(args[0], _I64)
        if signature.args[0] == types.float32:
            return builder.shl(builder.zext(builder.bitcast(args[0], _WIDTH["i4"]), _I64), _I64(32))
        return args[0] if args[0].type == _I64 else builder.zext(args[0], _I64)

    return types.int64(value), codegen


@instructions(types.void, *[types.int64] * 4)
def call_kernel(builder: Any, address: Any, layout: Any, pointers: Any, accumulate: Any) -> Any:
    """Call a kernel of jit.SIGNATURE; all four arguments are int64."""
    pointer = _I64.as_pointer()
    target = builder.inttoptr(address, ir.FunctionType(ir.VoidType(), [pointer, pointer, _I64]).as_pointer())
    builder.call(target, [builder.inttoptr(layout, pointer), builder.inttoptr(pointers, pointer), accumulate])


@instructions(types.void, *[types.int64] * 5)
def call_loop(builder: Any, address: Any, *arguments: Any) -> Any:
    """Call an inner loop of a NumPy ufunc: ``void loop(char **, npy_intp *, npy_intp *, void *)``."""
    pointer = _I64.as_pointer()
    target = builder.inttoptr(address, ir.FunctionType(ir.VoidType(), [pointer] * 4).as_pointer())
    builder.call(target, [builder.inttoptr(argument, pointer) for argument in arguments])


call_at = calling(*[types.int64] * 5)  # call a native function of four words, which returns one


def _applier(count: int, name: str, kind: Any) -> Any:
    def emit(builder: Any, loop: Any, data: Any, *values: Any) -> Any:
        pointer = _I64.as_pointer()
        operands = [cgutils.alloca_once_value(builder, value) for value in values]
        result = cgutils.alloca_once(builder, _WIDTH[name])
        table = cgutils.alloca_once(builder, _I64, size=count + 1)
        steps = cgutils.alloca_once(builder, _I64, size=count + 1)
        for k, place in enumerate((*operands, result)):
            at = ir.Constant(_I64, k)
            builder.store(builder.ptrtoint(place, _I64), builder.gep(table, [at]))
            builder.store(ir.Constant(_I64, 0), builder.gep(steps, [at]))
        single = cgutils.alloca_once_value(builder, ir.Constant(_I64, 1))
        target = builder.inttoptr(loop, ir.FunctionType(ir.VoidType(), [pointer] * 4).as_pointer())
        builder.call(target, [table, single, steps, builder.inttoptr(data, pointer)])
        return builder.load(result)

    return instructions(kind, types.int64, types.int64, *[kind] * count, name=f"apply{count}_{name}")(emit)


apply1_f8, apply2_f8 = _applier(1, "f8", types.float64), _applier(2, "f8", types.float64)
apply1_f4, apply2_f4 = _applier(1, "f4", types.float32), _applier(2, "f4", types.float32)
allocate, release = c_function("malloc", types.int64, types.int64), c_function("free", types.void, types.int64)
"""C's malloc, which gives 0 when memory is short, and free."""


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's first element; ``__array_interface__`` would intern its keys at each call."""
    return array.ctypes.data


def data_of(array: np.ndarray[Any, Any]) -> int:
    """Return the same as :func:`address_of` in a third of the time; only where memory is :func:`readable`."""
    return ctypes.c_int64.from_address(id(array) + HEADER).value


LIST_ITEMS = HEADER + 8  # where a list keeps the address of its items: after its length


def readable() -> bool:
    """Check, on known objects, that this interpreter lays them out as the native sweep reads them."""
    if sys.implementation.name != "cpython" or HEADER != 16 or ctypes.sizeof(ctypes.c_void_p) != 8:  # noqa: PLR2004
        return False
    return sys.byteorder == "little" and _objects_agree()


def _objects_agree() -> bool:
    items: list[Any] = [None, 2.5]
    start, part, array = word_at(id(items) + LIST_ITEMS), slice(3, None, -2), np.arange(3.0)
    fields = part.start, part.stop, part.step
    count, held, pair = word_at(id(array)), [array, array], (1.5, 2.5)
    sizes = word_at(id(items) + HEADER), word_at(id(pair) + HEADER)
    return (
        sizes == (len(items), len(pair))
        and [word_at(start + 8 * i) for i in (0, 1)] == [id(item) for item in items]
        and [word_at(id(pair) + tuple.__basicsize__ + 8 * i) for i in (0, 1)] == [id(item) for item in pair]
        and [word_at(id(part) + HEADER + 8 * k) for k in range(3)] == [id(field) for field in fields]
        and word_at(id(array)) - count == len(held)
        and word_at(id(array) + HEADER) == address_of(array)
        and ctypes.c_double.from_address(id(number := 2.5) + HEADER).value == number
        and ctypes.c_float.from_address(id(single := np.float32(1.25)) + HEADER).value == single
        and word_at(id(array) + 8) == id(np.ndarray)
        and ctypes.c_int32.from_address(id(array) + 24).value == array.ndim
        and word_at(word_at(id(array) + 32)) == array.size
        and word_at(id(array) + 56) == id(array.dtype)
        and ctypes.c_int32.from_address(id(array.dtype) + 28).value == array.dtype.num
    )


where = data_of if readable() else address_of
"""The address of an array's first element, as fast as this interpreter allows."""


# Memory of native code: the functions that give and take it, and the registry of addresses of a process.

take, give = c_function("tape_take", types.int64, types.int64), c_function("tape_give", types.void, types.int64)
"""A block of so many bytes or more: its address, 0 when memory is short; and to give one back, of 0 nothing."""
set_bytes = c_function("memset", types.int64, types.int64, types.int32, types.int64)
"""C's memset: address, byte, size."""
copy_bytes = c_function("memcpy", *[types.int64] * 4)  # C's memcpy: target, origin, size
compare_bytes = c_function("memcmp", types.int32, *[types.int64] * 3)  # C's memcmp, 0 where bytes are alike


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
madvise = calling(*[types.int64] * 4)  # linux's madvise: memory, size, advice
call_one, call_two = calling(*[types.int64] * 2), calling(*[types.int64] * 3)
"""Call a function of one word, or of two."""

MOST_TAPES = 1 << 18  # slots have 62 bits: so many tapes can live at a time
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


def fill(struct: StructType, address: int, /, **fields: int) -> None:
    """Set fields of the struct at an address."""
    for field, value in fields.items():
        ctypes.c_int64.from_address(address + struct.byte_of(field)).value = value


def row(struct: StructType, /, **fields: int) -> list[int]:
    """Return the words of a struct whose other fields are 0."""
    words = [0] * struct.SIZE
    for field, value in fields.items():
        words[struct.FIELDS[field][0]] = value
    return words


class Registry:
    """The table of forms, by numbers that are reused when a form is deallocated."""

    def __init__(self) -> None:
        self.address = zeros(RegistryTable.SIZE)
        self.room, self.count = 0, 0
        self.free: list[int] = []
        self.living: dict[int, ref[Any]] = {}
        self.calls, self.missed = zeros(CallEntry.SIZE * WAYS * SETS), zeros(2 * MOST_OPERATIONS)
        self.tapes = zeros(MOST_TAPES)
        self.set(calls=self.calls, missed=self.missed, tapes=self.tapes)
        self.set_objects(
            none=None, int_type=int, numpy_int=np.int64, numpy_double=np.float64, float_type=float, zero=0,
            array_type=np.ndarray, type_error=TypeError, attribute_error=AttributeError, false=False, true=True,
            double=np.dtype(np.float64), single=np.dtype(np.float32), longs=np.dtype(np.int64),
            bools=np.dtype(np.bool_), list_type=list, not_implemented=NotImplemented, slice_type=slice,
            tuple_type=tuple, ellipsis=Ellipsis,
        )  # fmt: skip

    def set(self, **words: int) -> None:
        """Set words that all native code shares, by their names in RegistryTable."""
        fill(RegistryTable, self.address, **words)

    def set_objects(self, **objects: Any) -> None:
        """The same of objects, which live as long as the process."""
        for value in objects.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        self.set(**{name: id(value) for name, value in objects.items()})

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
                    self.set(forms=forms)
                put(self.address, RegistryTable.form_count, self.count)
            put(self.forms, number, block)
        self.living[number] = ref(form, partial(self._leave, number))
        return number

    def form(self, number: int) -> Any:
        """Return the form of a number; KeyError if it is gone."""
        return self.living[number]()

    def _leave(self, number: int, _: Any, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        """Remove a form from the table: no tape refers to it any more. Takes no lock, so it may run at any point."""
        if is_over():  # this module's names may be gone
            return
        put(self.forms, number, 0)
        self.living.pop(number, None)
        self.free.append(number)


REGISTRY = Registry()
binding.add_symbol("tape_registry", REGISTRY.address)  # for all native code that is loaded from here on
