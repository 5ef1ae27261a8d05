"""What native code needs to keep blocks of memory for reuse, and to take and give them; see reused_arrays.py."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from kernels.compiler.jit import intrinsic, types
from kernels.native.memory import external

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
