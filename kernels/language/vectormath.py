"""Elementary functions for printed kernels, of doubles and floats: loops that call them vectorise.

Each is an intrinsic: Numba appends its instructions in place of the call, without a branch. Right to 2 units in the
last place (``power`` 4) over the full range, at zeros, subnormals, infinities and nan;
tests/language/test_vectormath.py has the table. ``sin``, ``cos`` and ``tan`` hold for angles that are not ``beyond``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from kernels.language import elementary
from kernels.language.jit import intrinsic, named_intrinsic, types
from kernels.language.lanes import CallingModule
from kernels.language.llvm_values import F4, F8, Format, LaneValue

_FORMS = {types.float64: F8, types.float32: F4}
Function = Callable[..., LaneValue]


def _called(function: Function, form: Format, builder: Any, args: Any, result: Any) -> Any:
    name = f"tape.{function.__name__}.{form.name}"
    module = builder.module
    callee = module.globals.get(name)
    if callee is None:
        callee = _defined(function, form, module, name, len(args), result)
        if isinstance(module, CallingModule) and result == form.real:
            module.add_forms(callee, lambda width, full: _defined(function, form.wide(width), module, full, len(args)))
        else:
            callee.attributes.add("alwaysinline")
    return builder.call(callee, args)


def _defined(
    function: Function, form: Format, module: ir.Module, name: str, count: int, result: ir.Type | None = None
) -> ir.Function:
    defined = ir.Function(module, ir.FunctionType(result or form.real, [form.real] * count), name)
    defined.linkage = "internal"
    inner = ir.IRBuilder(defined.append_basic_block("entry"))
    inner.ret(function(*[LaneValue(inner, form, a) for a in defined.args]).node)
    return defined


def _intrinsic(function: Function, result: Any = None) -> Any:
    count = function.__code__.co_argcount

    def typed(_: Any, *kinds: Any) -> Any:
        kind = kinds[0] if kinds[0] in _FORMS and all(other is kinds[0] for other in kinds) else types.float64
        form = _FORMS[kind]

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            returned = form.real if result is None else ir.IntType(1)
            return _called(function, form, builder, args, returned)

        return (result or kind)(*[kind] * count), codegen

    return named_intrinsic(function.__name__, count, typed)


exp, exp2, expm1 = _intrinsic(elementary.exp), _intrinsic(elementary.exp2), _intrinsic(elementary.expm1)
log, log1p = _intrinsic(elementary.log), _intrinsic(elementary.log1p)
log2, log10 = _intrinsic(elementary.log2), _intrinsic(elementary.log10)
sin, cos, tan = _intrinsic(elementary.sin), _intrinsic(elementary.cos), _intrinsic(elementary.tan)
sinh, cosh, tanh = _intrinsic(elementary.sinh), _intrinsic(elementary.cosh), _intrinsic(elementary.tanh)
erf, erfc = _intrinsic(elementary.erf), _intrinsic(elementary.erfc)
logistic, arctan, power = _intrinsic(elementary.logistic), _intrinsic(elementary.arctan), _intrinsic(elementary.power)
whole, rooted = _intrinsic(elementary.whole), _intrinsic(elementary.rooted)
beyond = _intrinsic(elementary.beyond, types.boolean)


@intrinsic
def farther(typingctx: Any, far: Any, x: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
    """Return a word of an angle's width, negative if ``far`` is or the angle is ``beyond``."""
    form = _FORMS[x]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return elementary.farther(*[LaneValue(builder, form, a) for a in args]).node

    return far(far, x), codegen
