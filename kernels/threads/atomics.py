"""Words that several threads read and write at a time, from native code."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir

from kernels.compiler.jit import intrinsic, types
from kernels.native.memory import external

_I64 = ir.IntType(64)
_ORDER = "seq_cst"
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I64.as_pointer())


@intrinsic
def seen(typingctx: Any, address: Any) -> Any:  # noqa: ARG001 (Numba fixes the names, here and below)
    """The word at an address, as other threads have left it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.load_atomic(_pointer(builder, args[0]), _ORDER, 8)

    return types.int64(types.int64), codegen


@intrinsic
def shown(typingctx: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Store a word, and all that was stored before, for other threads to see."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        builder.store_atomic(args[1], _pointer(builder, args[0]), _ORDER, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def exchanged(typingctx: Any, address: Any, before: Any, after: Any) -> Any:  # noqa: ARG001
    """Store a word where ``before`` still stands; return 1 if it did, else 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], _ORDER, _ORDER)
        return builder.zext(builder.extract_value(pair, 1), _I64)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def counted(typingctx: Any, address: Any, more: Any) -> Any:  # noqa: ARG001
    """Add to a word; return the sum."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        before = builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], _ORDER)
        return builder.add(before, args[1])

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def relax(typingctx: Any) -> Any:  # noqa: ARG001
    """Tell the processor that this loop only waits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        if _IS_X86:
            builder.call(external(builder, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), codegen
