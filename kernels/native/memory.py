"""Reading and writing memory by address from native code, and what CPython's objects look like there."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from kernels.language.jit import intrinsic, types

HEADER = object.__basicsize__
"""Bytes before an object's own fields: the value of a float, the data pointer of an array start here."""

_I64 = ir.IntType(64)
_WIDTH = {"i4": ir.IntType(32), "f4": ir.FloatType(), "f8": ir.DoubleType(), "i8": _I64, "i1": ir.IntType(8)}


def _loader(name: str, result: Any) -> Any:
    def load(typingctx: Any, address: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.load(builder.inttoptr(args[0], _WIDTH[name].as_pointer()))

        return result(types.int64), codegen

    load.__name__ = load.__qualname__ = f"load_{name}"
    return intrinsic(load)


def _storer(name: str, kind: Any) -> Any:
    def store(typingctx: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            builder.store(args[1], builder.inttoptr(args[0], _WIDTH[name].as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, kind), codegen

    store.__name__ = store.__qualname__ = f"store_{name}"
    return intrinsic(store)


load_i8 = _loader("i8", types.int64)
load_i4 = _loader("i4", types.int32)
load_i1 = _loader("i1", types.uint8)
load_f8 = _loader("f8", types.float64)
load_f4 = _loader("f4", types.float32)
store_i8 = _storer("i8", types.int64)
store_f8 = _storer("f8", types.float64)
store_f4 = _storer("f4", types.float32)


@intrinsic
def store_i4(typingctx: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Store the low half of an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        half = builder.trunc(args[1], _WIDTH["i4"])
        builder.store(half, builder.inttoptr(args[0], _WIDTH["i4"].as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def word(typingctx: Any, base: Any, index: Any) -> Any:  # noqa: ARG001
    """The int64 at ``base[index]``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.load(builder.gep(builder.inttoptr(args[0], _I64.as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def double_of(typingctx: Any, bits: Any) -> Any:  # noqa: ARG001
    """The double that has these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(args[0], _WIDTH["f8"])

    return types.float64(types.int64), codegen


@intrinsic
def begin_of(typingctx: Any, pointer: Any) -> Any:  # noqa: ARG001
    """The address that a pointer is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.ptrtoint(args[0], _I64)

    return types.int64(pointer), codegen


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:  # noqa: ARG001
    """The bits of a double; those of a single in the upper half; of a boolean, the integer.

    So -0.0 has the same in both.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if signature.args[0] == types.float64:
            return builder.bitcast(args[0], _I64)
        if signature.args[0] == types.float32:
            return builder.shl(builder.zext(builder.bitcast(args[0], _WIDTH["i4"]), _I64), _I64(32))
        return builder.zext(args[0], _I64)

    return types.int64(value), codegen


def _pointer(name: str, kind: Any) -> Any:
    def pointer(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.inttoptr(args[0], _WIDTH[name].as_pointer())

        return types.CPointer(kind)(types.int64), codegen

    pointer.__name__ = pointer.__qualname__ = f"pointer_{name}"
    return intrinsic(pointer)


pointer_f8 = _pointer("f8", types.float64)
pointer_f4 = _pointer("f4", types.float32)
pointer_i8 = _pointer("i8", types.int64)
pointer_i4 = _pointer("i4", types.int32)
pointer_b1 = _pointer("i1", types.uint8)


def _local(name: str, kind: Any) -> Any:
    """Return the intrinsic that gives a function so many elements on its stack, where vectors cross no cache line."""

    def local(typingctx: Any, count: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            block = builder.alloca(_WIDTH[name], size=args[0])
            block.align = 64
            return block

        return types.CPointer(kind)(types.int64), codegen

    local.__name__ = local.__qualname__ = f"local_{name}"
    return intrinsic(local)


local_f8 = _local("f8", types.float64)
local_f4 = _local("f4", types.float32)
local_i8 = _local("i8", types.int64)
local_b1 = _local("i1", types.uint8)


@intrinsic
def call_kernel(typingctx: Any, address: Any, layout: Any, pointers: Any, accumulate: Any) -> Any:  # noqa: ARG001
    """Call a kernel of jit.SIGNATURE; all four arguments are int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        pointer = _I64.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, _I64])
        target = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(target, [builder.inttoptr(args[1], pointer), builder.inttoptr(args[2], pointer), args[3]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def call_loop(typingctx: Any, address: Any, pointers: Any, extents: Any, strides: Any, data: Any) -> Any:  # noqa: ARG001
    """Call an inner loop of a NumPy ufunc: ``void loop(char **, npy_intp *, npy_intp *, void *)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        pointer = _I64.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer] * 4)
        target = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(target, [builder.inttoptr(a, pointer) for a in args[1:]])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def call_at(typingctx: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:  # noqa: ARG001
    """Call a native function of four words, which returns one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(_I64, [_I64] * 4)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(*[types.int64] * 5), codegen


def _applier(count: int, name: str, kind: Any) -> Any:
    """Return the intrinsic that applies an inner loop of a ufunc to one element."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        pointer = _I64.as_pointer()
        operands = [cgutils.alloca_once_value(builder, value) for value in args[2:]]
        result = cgutils.alloca_once(builder, _WIDTH[name])
        table = cgutils.alloca_once(builder, _I64, size=count + 1)
        steps = cgutils.alloca_once(builder, _I64, size=count + 1)
        for k, place in enumerate((*operands, result)):
            at = ir.Constant(_I64, k)
            builder.store(builder.ptrtoint(place, _I64), builder.gep(table, [at]))
            builder.store(ir.Constant(_I64, 0), builder.gep(steps, [at]))
        single = cgutils.alloca_once_value(builder, ir.Constant(_I64, 1))
        loop = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [pointer] * 4).as_pointer())
        builder.call(loop, [table, single, steps, builder.inttoptr(args[1], pointer)])
        return builder.load(result)

    if count == 1:

        def apply(typingctx: Any, loop: Any, data: Any, x: Any) -> Any:  # noqa: ARG001
            return kind(types.int64, types.int64, kind), codegen
    else:

        def apply(typingctx: Any, loop: Any, data: Any, a: Any, b: Any) -> Any:  # type: ignore[misc]  # noqa: ARG001
            return kind(types.int64, types.int64, kind, kind), codegen

    apply.__name__ = apply.__qualname__ = f"apply{count}_{name}"
    return intrinsic(apply)


apply1_f8, apply2_f8 = _applier(1, "f8", types.float64), _applier(2, "f8", types.float64)
apply1_f4, apply2_f4 = _applier(1, "f4", types.float32), _applier(2, "f4", types.float32)


@intrinsic
def allocate(typingctx: Any, size: Any) -> Any:  # noqa: ARG001
    """C's malloc: an address, 0 when memory is short."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(_I64, [_I64])
        return builder.call(external(builder, kind, "malloc"), args)

    return types.int64(types.int64), codegen


@intrinsic
def release(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
    """C's free."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(ir.VoidType(), [_I64])
        builder.call(external(builder, kind, "free"), args)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def external(builder: Any, kind: Any, name: str) -> Any:
    """Return a function of C, declared in the module under construction."""
    module = builder.module
    return module.globals.get(name) or ir.Function(module, kind, name)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's first element.

    Not by ``__array_interface__``: its keys are interned at each call, and the table of all strings is made anew.
    """
    return array.ctypes.data


def data_of(array: np.ndarray[Any, Any]) -> int:
    """Return the same as :func:`address_of` in a third of the time; only where memory is :func:`readable`."""
    return ctypes.c_int64.from_address(id(array) + HEADER).value


LIST_ITEMS = HEADER + 8
"""Where a list keeps the address of its items: after its length."""


def readable() -> bool:
    """Check, on known objects, that this interpreter lays them out as the native sweep reads them."""
    if sys.implementation.name != "cpython" or HEADER != 16 or ctypes.sizeof(ctypes.c_void_p) != 8:  # noqa: PLR2004
        return False
    if sys.byteorder != "little" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    return _list_agrees() and _slices_agree() and _values_agree()


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _list_agrees() -> bool:
    probe: list[Any] = [None, 2.5]
    items = _word(id(probe) + LIST_ITEMS)
    return _word(id(probe) + HEADER) == len(probe) and [_word(items + 8 * i) for i in (0, 1)] == [id(p) for p in probe]


def _slices_agree() -> bool:
    probe = slice(3, None, -2)
    fields = probe.start, probe.stop, probe.step
    return [_word(id(probe) + HEADER + 8 * k) for k in range(3)] == [id(field) for field in fields]


def _values_agree() -> bool:
    array = np.arange(3.0)
    count, held = _word(id(array)), [array, array]
    return (
        _word(id(array)) - count == len(held)
        and _word(id(array) + HEADER) == address_of(array)
        and ctypes.c_double.from_address(id(number := 2.5) + HEADER).value == number
        and ctypes.c_float.from_address(id(single := np.float32(1.25)) + HEADER).value == single
        and _word(id(array) + 8) == id(np.ndarray)
        and ctypes.c_int32.from_address(id(array) + 24).value == array.ndim
        and _word(_word(id(array) + 32)) == array.size
        and _word(id(array) + 56) == id(array.dtype)
        and ctypes.c_int32.from_address(id(array.dtype) + 28).value == array.dtype.num
    )


where = data_of if readable() else address_of
"""The address of an array's first element, as fast as this interpreter allows."""
