"""Expressions of native source as text of C, typed as kernels/language/expressions.py types them."""

from __future__ import annotations

import ast
import builtins
import math
from types import FunctionType
from typing import Any

import numpy as np

from kernels.foundation.tables import dataclass
from kernels.language import vectormath
from kernels.language.expressions import UntranslatedError, widest
from kernels.language.jit import types
from kernels.native import memory
from kernels.rules import accumulators

# Numbers as text of C: their types, literals, conversions, and the functions that C has or is given.

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


_SIGNS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "BitAnd": "&", "BitOr": "|", "BitXor": "^", "LShift": "<<",
    "RShift": ">>",
}  # fmt: skip
_OF_BITS = ("BitAnd", "BitOr", "BitXor")
_COMPARED = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}


class CExpressions:
    """A function under construction: its variables, and what expressions of them are in C."""

    def __init__(self, module: Any, names: dict[str, Any]) -> None:
        self.module, self.names = module, names
        self.variables: dict[str, Any] = {}
        self.tuples: dict[str, tuple[CNumber, ...]] = {}

    def number(self, node: ast.expr) -> CNumber:
        """Return an expression's value, a number."""
        value = self.value(node)
        return value if isinstance(value, CNumber) else literal(value)

    def value(self, node: ast.expr) -> Any:
        """Return an expression's value: a number of C, or a thing of the source's module."""
        return getattr(self, f"of_{type(node).__name__}")(node)

    def of_Constant(self, node: ast.Constant) -> Any:  # noqa: N802 (named as Python's syntax tree does)
        """Return a literal."""
        return node.value

    def of_Name(self, node: ast.Name) -> Any:  # noqa: N802
        """Return a variable, or what a name of the module means."""
        if node.id in self.variables:
            return CNumber(self.module.variable(node.id), self.variables[node.id])
        if node.id in self.tuples:
            return self.tuples[node.id]
        return self.names[node.id] if node.id in self.names else getattr(builtins, node.id)

    def of_Attribute(self, node: ast.Attribute) -> Any:  # noqa: N802
        """Return what an attribute of a module means."""
        return getattr(self.value(node.value), node.attr)

    def of_BinOp(self, node: ast.BinOp) -> Any:  # noqa: N802
        """Return the result of an operator."""
        a, b = self.value(node.left), self.value(node.right)
        if not isinstance(a, CNumber) and not isinstance(b, CNumber):
            return eval(compile(ast.Expression(node), "<native source>", "eval"), self.names)  # noqa: S307 (our own)
        return self.binary(type(node.op).__name__, *(x if isinstance(x, CNumber) else literal(x) for x in (a, b)))

    def binary(self, sign: str, a: CNumber, b: CNumber) -> CNumber:
        """Return the result of an operator, named as Python's syntax tree names it."""
        a, b = alike(a, b)
        if a.kind == types.boolean and sign not in _OF_BITS:
            a, b = cast(a, types.int64), cast(b, types.int64)
        if sign == "Div" and not a.real:
            a, b = cast(a, types.float64), cast(b, types.float64)
        if a.real and sign == "Pow":
            return self.function("pow", a, b)
        if not a.real and sign in ("FloorDiv", "Mod"):
            return self.called(sign.lower(), a, b)
        if sign not in _SIGNS or (a.real and sign not in ("Add", "Sub", "Mult", "Div")):
            raise UntranslatedError(f"{sign} of {a.kind}")
        left = f"({type_text(a.kind)}){a.text}" if sign == "LShift" else a.text  # C's literals are short
        return CNumber(f"({left} {_SIGNS[sign]} {b.text})", a.kind)

    def of_UnaryOp(self, node: ast.UnaryOp) -> Any:  # noqa: N802
        """Return a number turned: -, ~, not."""
        value = self.value(node.operand)
        if not isinstance(value, CNumber):
            return {ast.USub: lambda x: -x, ast.Invert: lambda x: ~x, ast.Not: lambda x: not x}[type(node.op)](value)
        if isinstance(node.op, ast.Not) or (isinstance(node.op, ast.Invert) and value.kind == types.boolean):
            return CNumber(f"(!{truth(value).text})", types.boolean)
        value = cast(value, types.int64) if value.kind == types.boolean else value
        return CNumber(f"({'-' if isinstance(node.op, ast.USub) else '~'}{value.text})", value.kind)

    def of_Compare(self, node: ast.Compare) -> CNumber:  # noqa: N802
        """Return whether numbers compare so, each with the next; or whether one is among some."""
        left, tests = self.number(node.left), []
        for sign, part in zip(node.ops, node.comparators, strict=True):
            if isinstance(sign, (ast.In, ast.NotIn)):
                assert isinstance(part, ast.Tuple)
                pairs = [alike(left, self.number(element)) for element in part.elts]
                within = " || ".join(f"{a.text} == {b.text}" for a, b in pairs)
                return CNumber(f"(!({within}))" if isinstance(sign, ast.NotIn) else f"({within})", types.boolean)
            right = self.number(part)
            a, b = alike(left, right)
            tests.append(f"({a.text} {_COMPARED[type(sign).__name__]} {b.text})")
            left = right
        return CNumber(tests[0] if len(tests) == 1 else f"({' && '.join(tests)})", types.boolean)

    def of_BoolOp(self, node: ast.BoolOp) -> CNumber:  # noqa: N802
        """Return a condition of several."""
        join = " && " if isinstance(node.op, ast.And) else " || "
        return CNumber(f"({join.join(truth(self.number(part)).text for part in node.values)})", types.boolean)

    def of_IfExp(self, node: ast.IfExp) -> CNumber:  # noqa: N802
        """Return one of two values."""
        test = truth(self.number(node.test))
        if test.text == "0":  # no angle is beyond C's sine
            return self.number(node.orelse)
        a, b = alike(self.number(node.body), self.number(node.orelse))
        left = f"({type_text(a.kind)}){a.text}" if a.kind == types.int64 else a.text  # C's literals are short
        return CNumber(f"({test.text} ? {left} : {b.text})", a.kind)

    def of_Subscript(self, node: ast.Subscript) -> Any:  # noqa: N802
        """Return an element of memory, or of a tuple."""
        if isinstance(node.value, ast.Name) and node.value.id in self.tuples:
            assert isinstance(node.slice, ast.Constant)
            return self.tuples[node.value.id][node.slice.value]  # type: ignore[index]
        element = self.element(node)
        return cast(element, types.int64) if element.kind == types.uint8 else element

    def element(self, node: ast.expr) -> CNumber:
        """Return an element of memory, which can be given a value."""
        assert isinstance(node, ast.Subscript)
        pointer = self.number(node.value)
        at = cast(self.number(node.slice), types.int64)
        return CNumber(f"{pointer.text}[{bare(at.text)}]", pointer.kind.dtype)

    def of_Call(self, node: ast.Call) -> Any:  # noqa: N802
        """Return the result of a call: of native code, an intrinsic, a type, or a function of numbers."""
        callee = self.value(node.func)
        if callee is float and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            return float(node.args[0].value)
        arguments = [self.number(part) for part in node.args]
        if isinstance(callee, FunctionType):
            name, kind = self.module.function(callee, tuple(x.kind for x in arguments))
            return CNumber(f"{name}({', '.join(bare(x.text) for x in arguments)})", kind)
        if hasattr(callee, "_defn"):
            return self.intrinsic(callee, arguments)
        if callee in CASTS:
            return self._converted(node.args[0], arguments[0], CASTS[callee])
        return self.function({"absolute": "abs"}.get(callee.__name__, callee.__name__), *arguments)

    def _converted(self, node: ast.expr, value: CNumber, kind: Any) -> CNumber:
        """Return a number as a type that the source names; a literal is spelled as that type."""
        plain = None if isinstance(self.value(node), CNumber) else self.value(node)
        if kind in (types.float64, types.float32) and isinstance(plain, (int, float)):
            rounded = (
                float(plain) if kind == types.float64 else float(next(t for t in CASTS if CASTS[t] == kind)(plain))
            )
            return CNumber(float_text(rounded, kind), kind)
        return cast(value, kind)

    def intrinsic(self, callee: Any, arguments: list[CNumber]) -> CNumber:
        """Return the result of one of the intrinsics that C has an answer to; UntranslatedError for others."""
        if callee in VECTORMATH:
            single = all(x.kind == types.float32 for x in arguments)
            kind = types.float32 if single else types.float64
            return self.function(VECTORMATH[callee], *(cast(x, kind) for x in arguments))
        if callee is vectormath.beyond:
            return CNumber("0", types.boolean)
        if callee is vectormath.farther:
            return arguments[0]
        if callee in (ADDED, GREATER):
            pair = arguments[0], cast(arguments[1], arguments[0].kind)
            return self.binary("Add", *pair) if callee is ADDED else self.called("greater", *pair)
        return self.of_memory(callee, *arguments)

    def of_memory(self, callee: Any, address: CNumber, *more: CNumber) -> CNumber:
        """Return what an intrinsic of kernels/native/memory.py does at an address."""
        if callee in BITS:
            bits = (
                cast(address, types.int64) if address.kind == types.boolean else self.called(callee.__name__, address)
            )
            return CNumber(bits.text, BITS[callee])
        if callee in POINTERS:
            pointed = types.CPointer(POINTERS[callee])
            return CNumber(f"(({type_text(pointed)})(intptr_t){address.text})", pointed)
        kind: Any = types.int64 if callee is memory.word else LOADS.get(callee, STORES.get(callee))
        if kind is None:
            raise UntranslatedError(f"{callee.__name__} has no counterpart in C")
        pointer = f"(({type_text(types.CPointer(kind))})(intptr_t){address.text})"
        if callee is memory.word:
            return CNumber(f"{pointer}[{more[0].text}]", kind)
        if callee in LOADS:
            return CNumber(f"(*{pointer})", kind)
        return CNumber(f"*{pointer} = {cast(more[0], kind).text}", types.void)

    def function(self, name: str, *operands: CNumber) -> CNumber:
        """Return a function of floats, by NumPy's name; ``min``, ``max`` and ``abs`` of integers too."""
        operands = alike(*operands)
        kind = operands[0].kind
        if not operands[0].real:
            return self._of_integers(name, *operands)
        if name in ANGLES:
            return self.binary("Mult", operands[0], CNumber(float_text(ANGLES[name], kind), kind))
        if name in TESTS:
            return CNumber(TESTS[name].format(operands[0].text), types.boolean)
        if name in WRITTEN:
            return self.called(name, *operands)
        if name not in LIBM:
            raise UntranslatedError(f"no function {name}")
        suffix = "f" if kind == types.float32 else ""
        return CNumber(f"{LIBM[name]}{suffix}({', '.join(x.text for x in operands)})", kind)

    def _of_integers(self, name: str, *operands: CNumber) -> CNumber:
        if name in ("min", "max"):
            return self.called(name, *operands)
        if name == "abs":
            return self.called("max", operands[0], CNumber(f"(-{operands[0].text})", operands[0].kind))
        return self.function(name, *(cast(x, types.float64) for x in operands))

    def called(self, name: str, *operands: CNumber) -> CNumber:
        """Return the result of a function that is written into the file."""
        kind = operands[0].kind
        return CNumber(f"{self.module.written(name, kind)}({', '.join(x.text for x in operands)})", kind)


def bare(text: str) -> str:
    """Return an expression without the parentheses around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for k, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[1:-1] if k == len(text) - 1 else text
    return text
