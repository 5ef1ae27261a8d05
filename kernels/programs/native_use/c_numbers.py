"""Numbers as text of C: their types, literals, conversions, and the functions that C has or is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels import vectormath
from kernels.codegen import accumulators
from kernels.compiler.jit import types
from kernels.compiler.numbers_ir import UntranslatedError, widest
from kernels.foundation.data_classes import dataclass
from kernels.native import memory

C_TYPES = {
    types.int64: "int64_t", types.int32: "int32_t", types.uint8: "uint8_t", types.boolean: "bool",
    types.float64: "double", types.float32: "float", types.void: "void",
}  # fmt: skip
WORDS = {types.int64: "tape_int64", types.int32: "tape_int32"}
"""Integers in memory: what is read there may have been written as floats."""
CASTS = {
    np.int64: types.int64, np.uint64: types.int64, np.int32: types.int32, np.float64: types.float64,
    np.float32: types.float32, np.bool_: types.boolean, int: types.int64, float: types.float64, bool: types.boolean,
}  # fmt: skip
MOST = {types.int32: 1 << 31, types.int64: 1 << 63}

LIBM = {
    **{
        name: name
        for name in (
            "sqrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh",
            "tanh", "erf", "erfc", "floor", "ceil", "trunc", "rint", "copysign", "pow", "fmax", "fmin", "hypot", "fmod",
            "cbrt", "fabs",
        )
    },
    "abs": "fabs", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "power": "pow",
}  # fmt: skip
"""Functions of C's library, by NumPy's names."""
WRITTEN = {
    "maximum": "T F(T a, T b) { return a >= b || a != a ? a : b; }",
    "minimum": "T F(T a, T b) { return a <= b || a != a ? a : b; }",
    "max": "T F(T a, T b) { return b > a ? b : a; }",
    "min": "T F(T a, T b) { return b < a ? b : a; }",
    "greater": "T F(T top, T x) { return x > top ? x : top; }",
    "logistic": "T F(T x) { const T e = exp(-fabs(x)); return (x < 0 ? e : (T)1) / (1 + e); }",
    "remainder": "T F(T a, T b) { const T r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }",
    "logaddexp": "T F(T a, T b) {\n"
    "    return (a >= b || a != a ? a : b) + (a == b ? (T)LN2 : log1p(exp(-fabs(a - b))));\n}",
    "logaddexp2": "T F(T a, T b) {\n"
    "    return (a >= b || a != a ? a : b) + (a == b ? (T)1 : log1p(exp2(-fabs(a - b))) * (T)PER_LN2);\n}",
    "whole": "T F(T x, T n) {\n    const T square = x * x, odd = n == 1 || n == 3 ? x : (T)1;\n"
    "    return n == 4 ? square * square : odd * (n == 2 || n == 3 ? square : (T)1);\n}",
    "rooted": "T F(T x, T p) {\n    const T size = fabs(p), n = trunc(size), square = x * x;\n"
    "    const T odd = n == 1 || n == 3 ? x : (T)1, even = n == 2 || n == 3 ? square : (T)1;\n"
    "    const T product = (n == size ? (T)1 : sqrt(x)) * (n == 4 ? square * square : odd * even);\n"
    "    return p < 0 ? 1 / product : product;\n}",
    "floordiv": "T F(T a, T b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }",
    "mod": "T F(T a, T b) { const T r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }",
    "double_of": "double F(int64_t bits) { double x; memcpy(&x, &bits, sizeof x); return x; }",
    "bits_of": "int64_t F(double x) { int64_t bits; memcpy(&bits, &x, sizeof bits); return bits; }",
}  # fmt: skip
"""Functions that C's library has not, or not as NumPy means them: T is their type, F their name."""
ANGLES = {"deg2rad": math.pi / 180, "radians": math.pi / 180, "rad2deg": 180 / math.pi, "degrees": 180 / math.pi}
TESTS = {"isinf": "(isinf({0}) != 0)", "isfinite": "(isfinite({0}) != 0)", "signbit": "(signbit({0}) != 0)"}

VECTORMATH: dict[Any, str] = {
    getattr(vectormath, name): name
    for name in (
        "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf",
        "erfc", "logistic", "arctan", "power", "whole", "rooted",
    )
}  # fmt: skip
"""Intrinsics that are functions of floats: C's do instead, for angles of any size."""
BITS: dict[Any, Any] = {memory.double_of: types.float64, memory.bits_of: types.int64}
"""Intrinsics that take the bits of one type for another, with what they return."""
ADDED, GREATER = accumulators.added, accumulators.greater
_AT = {"i8": types.int64, "i4": types.int32, "i1": types.uint8, "f8": types.float64, "f4": types.float32}
LOADS: dict[Any, Any] = {getattr(memory, f"load_{name}"): kind for name, kind in _AT.items()}
STORES: dict[Any, Any] = {getattr(memory, f"store_{name}"): _AT[name] for name in ("i8", "i4", "f8", "f4")}
POINTERS: dict[Any, Any] = {
    getattr(memory, f"pointer_{name}"): _AT[name.replace("b1", "i1")] for name in ("i8", "i4", "b1", "f8", "f4")
}


@dataclass(frozen=True)
class CNumber:
    """An expression of C, in parentheses where it needs them, with Numba's name of its type."""

    text: str
    kind: Any

    @property
    def real(self) -> bool:
        """Whether it is a float."""
        return self.kind in (types.float64, types.float32)


def type_text(kind: Any) -> str:
    """Return C's type of a type of Numba's."""
    if isinstance(kind, types.CPointer):
        return f"{WORDS.get(kind.dtype, C_TYPES.get(kind.dtype))} *"
    return C_TYPES[kind]


def literal(value: Any) -> CNumber:
    """Return a number that the source names or spells out."""
    name = type(value).__name__
    if isinstance(value, (bool, np.bool_)):
        return CNumber(str(int(value)), types.boolean)
    if name in ("int", "int64", "uint64", "int32"):
        return CNumber(integer_text(int(value)), types.int32 if name == "int32" else types.int64)
    if isinstance(value, (float, np.float32)):
        kind = types.float32 if name == "float32" else types.float64
        return CNumber(float_text(float(value), kind), kind)
    raise UntranslatedError(f"no number: {value!r}")


def integer_text(value: int) -> str:
    """Return an integer of 64 bits as C spells it."""
    if value == -MOST[types.int64]:
        return "INT64_MIN"
    text = str(value) if abs(value) < MOST[types.int32] else f"INT64_C({value})"
    return f"({text})" if value < 0 else text


def float_text(value: float, kind: Any = types.float64) -> str:
    """Return a float as C spells it, to the last bit."""
    if math.isnan(value):
        return "NAN" if kind == types.float64 else "(float)NAN"
    if math.isinf(value):
        text = "INFINITY" if value > 0 else "(-INFINITY)"
        return text if kind == types.float64 else f"(float){text}"
    text = repr(value) + ("f" if kind == types.float32 else "")
    return f"({text})" if text.startswith("-") else text


def cast(x: CNumber, kind: Any) -> CNumber:
    """Return a number as another type: NumPy's conversion, cut to the width."""
    if x.kind == kind:
        return x
    if kind == types.boolean:
        return truth(x)
    if isinstance(kind, types.CPointer) or isinstance(x.kind, types.CPointer):
        raise UntranslatedError(f"a {x.kind} for a {kind}")
    return CNumber(f"({C_TYPES[kind]}){x.text}", kind)


def truth(x: CNumber) -> CNumber:
    """Return whether a number is not 0."""
    return x if x.kind == types.boolean else CNumber(f"({x.text} != 0)", types.boolean)


def alike(*operands: CNumber) -> tuple[CNumber, ...]:
    """Return numbers as the widest of their types."""
    kind = widest(*(x.kind for x in operands))
    return tuple(cast(x, kind) for x in operands)
