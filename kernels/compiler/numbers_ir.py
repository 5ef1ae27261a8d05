"""Arithmetic of native code under construction: LLVM values with types of Numba's, as NumPy computes with them."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types

from kernels.compiler.native_types import is_address
from kernels.foundation.data_classes import dataclass

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_TYPES = {
    types.int64: I64, types.int32: I32, types.uint8: I8, types.boolean: I1,
    types.float64: ir.DoubleType(), types.float32: ir.FloatType(),
}  # fmt: skip
_RANK = [types.boolean, types.int32, types.int64, types.float32, types.float64]
_COMPARED = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}
_WHOLE = {"Add": "add", "Sub": "sub", "Mult": "mul", "BitAnd": "and_", "BitOr": "or_", "BitXor": "xor"}
_REAL = {"Add": "fadd", "Sub": "fsub", "Mult": "fmul", "Div": "fdiv"}
_LLVM = {
    "sqrt": "sqrt", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10", "sin": "sin",
    "cos": "cos", "abs": "fabs", "fabs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint",
    "copysign": "copysign", "pow": "pow", "fmax": "maxnum", "fmin": "minnum",
}  # fmt: skip
_LIBM = {
    "expm1": "expm1", "log1p": "log1p", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arctan2": "atan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "hypot": "hypot", "fmod": "fmod", "cbrt": "cbrt", "erf": "erf", "erfc": "erfc",
}  # fmt: skip
_ANGLES = {"deg2rad": math.pi / 180, "radians": math.pi / 180, "rad2deg": 180 / math.pi, "degrees": 180 / math.pi}


class UntranslatedError(TypeError):
    """Native source uses something that the translator does not support."""


@dataclass(frozen=True)
class Number:
    """An LLVM value with Numba's name of its type; pointers too."""

    node: Any
    kind: Any

    @property
    def real(self) -> bool:
        """Whether it is a float."""
        return self.kind in (types.float64, types.float32)


def type_of(kind: Any) -> ir.Type:
    """Return LLVM's type of a type of Numba's."""
    if is_address(kind):
        return I64
    if isinstance(kind, types.CPointer):
        return type_of(kind.dtype).as_pointer()
    return ir.VoidType() if kind == types.void else _TYPES[kind]


def constant(value: Any) -> Number:
    """Return a number that the source names or spells out."""
    if isinstance(value, bool):
        return Number(I1(int(value)), types.boolean)
    if isinstance(value, int):
        return Number(I64(value), types.int64)
    if type(value).__name__ == "float32":
        return Number(_TYPES[types.float32](float(value)), types.float32)
    if type(value).__name__ in ("int32", "int64", "uint64"):
        kind = types.int32 if type(value).__name__ == "int32" else types.int64
        return Number(_TYPES[kind](int(value)), kind)
    if isinstance(value, float):
        return Number(_TYPES[types.float64](float(value)), types.float64)
    raise UntranslatedError(f"no number: {value!r}")


def bare(x: Number) -> Number:
    """Return a number without what is known of the memory whose address it is."""
    return Number(x.node, types.int64) if is_address(x.kind) else x


def widest(*kinds: Any) -> Any:
    """Return the type that numbers of these types meet in."""
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    kinds = tuple(types.int64 if is_address(kind) else kind for kind in kinds)
    kind = max(kinds, key=_RANK.index)
    return types.float64 if kind == types.float32 and types.int64 in kinds else kind


class Arithmetic:
    """Appends instructions to a block under construction; ``flags`` are those of sums, differences and products."""

    def __init__(self, builder: ir.IRBuilder, flags: tuple[str, ...] = ()) -> None:
        self.builder, self.flags = builder, flags

    def cast(self, x: Number, kind: Any) -> Number:
        """Return a number as another type: NumPy's conversion, cut to the width."""
        if x.kind == kind:
            return x
        if is_address(kind) or is_address(x.kind):
            return Number(self.cast(bare(x), types.int64).node, kind) if is_address(kind) else self.cast(bare(x), kind)
        b, to, real = self.builder, type_of(kind), kind in (types.float64, types.float32)
        if kind == types.boolean:
            return self.truth(x)
        if isinstance(kind, types.CPointer) or isinstance(x.kind, types.CPointer):
            raise UntranslatedError(f"a {x.kind} for a {kind}")
        if x.real:
            turn = (b.fpext if kind == types.float64 else b.fptrunc) if real else b.fptosi
        elif real:
            turn = b.uitofp if x.kind in (types.boolean, types.uint8) else b.sitofp
        elif to.width < x.node.type.width:
            turn = b.trunc
        else:
            turn = b.zext if x.kind in (types.boolean, types.uint8) else b.sext
        return Number(turn(x.node, to), kind)

    def truth(self, x: Number) -> Number:
        """Return whether a number is not 0."""
        x = bare(x)
        if x.kind == types.boolean:
            return x
        compare = self.builder.fcmp_unordered if x.real else self.builder.icmp_signed
        return Number(compare("!=", x.node, x.node.type(0)), types.boolean)

    def alike(self, *operands: Number) -> tuple[Number, ...]:
        """Return numbers as the widest of their types."""
        kind = widest(*(x.kind for x in operands))
        return tuple(self.cast(x, kind) for x in operands)

    def compare(self, sign: str, a: Number, b: Number) -> Number:
        """Return whether two numbers compare so."""
        a, b = self.alike(bare(a), bare(b))
        if a.real:
            compare = self.builder.fcmp_unordered if sign == "NotEq" else self.builder.fcmp_ordered
        else:
            compare = self.builder.icmp_unsigned if a.kind == types.boolean else self.builder.icmp_signed
        return Number(compare(_COMPARED[sign], a.node, b.node), types.boolean)

    def binary(self, sign: str, a: Number, b: Number) -> Number:
        """Return the result of an operator, named as Python's syntax tree names it."""
        a, b = self.alike(bare(a), bare(b))
        if a.kind == types.boolean and sign not in ("BitAnd", "BitOr", "BitXor"):
            a, b = self.cast(a, types.int64), self.cast(b, types.int64)
        if sign == "Div" and not a.real:
            a, b = self.cast(a, types.float64), self.cast(b, types.float64)
        if a.real and sign in _REAL:
            return Number(getattr(self.builder, _REAL[sign])(a.node, b.node, flags=self.flags), a.kind)
        if a.real and sign == "Pow":
            return self.function("pow", a, b)
        if a.real or sign not in (*_WHOLE, "LShift", "RShift", "FloorDiv", "Mod"):
            raise UntranslatedError(f"{sign} of {a.kind}")
        return Number(self._whole(sign, a.node, b.node), a.kind)

    def _whole(self, sign: str, a: Any, b: Any) -> Any:
        builder = self.builder
        if sign in _WHOLE:
            return getattr(builder, _WHOLE[sign])(a, b)
        if sign in ("LShift", "RShift"):
            return (builder.shl if sign == "LShift" else builder.ashr)(a, b)
        rest = builder.srem(a, b)
        zero = rest.type(0)
        turned = builder.icmp_signed("<", builder.xor(rest, b), zero)
        down = builder.and_(builder.icmp_signed("!=", rest, zero), turned)
        if sign == "Mod":
            return builder.add(rest, builder.select(down, b, zero))
        return builder.sub(builder.sdiv(a, b), builder.zext(down, rest.type))

    def negative(self, x: Number) -> Number:
        """Return a number with its sign turned."""
        x = bare(x)
        if x.real:
            return Number(self.builder.fneg(x.node), x.kind)
        x = self.cast(x, types.int64) if x.kind == types.boolean else x
        return Number(self.builder.neg(x.node), x.kind)

    def select(self, test: Number, a: Number, b: Number) -> Number:
        """Return one of two numbers."""
        a, b = self.alike(a, b)
        return Number(self.builder.select(self.truth(test).node, a.node, b.node), a.kind)

    def function(self, name: str, *operands: Number) -> Number:
        """Return a function of floats, by NumPy's name; ``min``, ``max`` and ``abs`` of integers too."""
        operands = self.alike(*map(bare, operands))
        if not operands[0].real:
            return self._of_integers(name, *operands)
        if name in _ANGLES:
            return self.binary("Mult", operands[0], self.cast(constant(_ANGLES[name]), operands[0].kind))
        written = getattr(self, f"_{name}", None)
        if written is not None:
            return written(*operands)  # type: ignore[no-any-return]
        return self._called(name, *operands)

    def _of_integers(self, name: str, *operands: Number) -> Number:
        if name in ("min", "max"):
            return self.select(self.compare("Lt" if name == "min" else "Gt", *operands), *operands)
        if name == "abs":
            return self.select(self.compare("Lt", operands[0], constant(0)), self.negative(operands[0]), operands[0])
        return self.function(name, *(self.cast(x, types.float64) for x in operands))

    def _called(self, name: str, *operands: Number) -> Number:
        kind = operands[0].kind
        node = type_of(kind)
        shape = ir.FunctionType(node, [node] * len(operands))
        if name in _LLVM:
            callee = self.builder.module.declare_intrinsic(f"llvm.{_LLVM[name]}", [node], shape)
        elif name in _LIBM:
            full = _LIBM[name] + ("f" if kind == types.float32 else "")
            callee = self.builder.module.globals.get(full)
            if callee is None:
                callee = ir.Function(self.builder.module, shape, full)
                callee.attributes.add("nounwind")
                callee.attributes.add("readnone")
        else:
            raise UntranslatedError(f"no function {name}")
        return Number(self.builder.call(callee, [x.node for x in operands]), kind)

    def _maximum(self, a: Number, b: Number, sign: str = "GtE") -> Number:
        larger = self.builder.or_(self.compare(sign, a, b).node, self.compare("NotEq", a, a).node)
        return self.select(Number(larger, types.boolean), a, b)

    def _minimum(self, a: Number, b: Number) -> Number:
        return self._maximum(a, b, "LtE")

    def _max(self, a: Number, b: Number) -> Number:
        return self.select(self.compare("Gt", b, a), b, a)

    def _min(self, a: Number, b: Number) -> Number:
        return self.select(self.compare("Lt", b, a), b, a)

    def _remainder(self, a: Number, b: Number) -> Number:
        rest = self._called("fmod", a, b)
        zero = self.cast(constant(0.0), a.kind)
        turned = self.builder.xor(self.compare("Lt", rest, zero).node, self.compare("Lt", b, zero).node)
        down = self.builder.and_(turned, self.compare("NotEq", rest, zero).node)
        return self.select(Number(down, types.boolean), self.binary("Add", rest, b), rest)

    def _isinf(self, x: Number) -> Number:
        return self.compare("Eq", self._called("abs", x), self.cast(constant(math.inf), x.kind))

    def _isfinite(self, x: Number) -> Number:
        return self.compare("Lt", self._called("abs", x), self.cast(constant(math.inf), x.kind))

    def _signbit(self, x: Number) -> Number:
        word = I64 if x.kind == types.float64 else I32
        return Number(self.builder.icmp_signed("<", self.builder.bitcast(x.node, word), word(0)), types.boolean)

    def _logaddexp(self, a: Number, b: Number, exp: str = "exp", log: str = "log1p", unit: float = 1.0) -> Number:
        top, apart = self._maximum(a, b), self.binary("Sub", a, b)
        less = self.function(log, self.function(exp, self.negative(self._called("abs", apart))))
        more = self.binary("Mult", less, self.cast(constant(unit), a.kind))
        equal = self.cast(constant(math.log(2.0) * unit), a.kind)
        return self.binary("Add", top, self.select(self.compare("Eq", a, b), equal, more))

    def _logaddexp2(self, a: Number, b: Number) -> Number:
        return self._logaddexp(a, b, "exp2", "log1p", 1 / math.log(2.0))
