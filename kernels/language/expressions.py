"""Expressions of the native language as LLVM: numbers, comparisons, calls, reads of memory."""

from __future__ import annotations

import ast
import builtins
import math
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from kernels.foundation.tables import dataclass
from kernels.language import lanes
from kernels.language.lanes import nodes_in
from kernels.language.llvm_values import ArrayKind, StructType, is_address

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_TYPES = {
    types.int64: I64, types.int32: I32, types.uint8: I8, types.boolean: I1,
    types.float64: ir.DoubleType(), types.float32: ir.FloatType(),
}  # fmt: skip
_CASTS = {
    np.int64: types.int64, np.uint64: types.int64, np.int32: types.int32, np.float64: types.float64,
    np.float32: types.float32, np.bool_: types.boolean, int: types.int64, float: types.float64, bool: types.boolean,
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
    kind = _CASTS.get(type(value))
    if kind is None:
        raise UntranslatedError(f"no number: {value!r}")
    return Number(_TYPES[kind]((float if kind in (types.float64, types.float32) else int)(value)), kind)


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


class _Context:
    """What Numba's intrinsics ask of a context."""

    def get_dummy_value(self) -> None:
        """Return what stands for nothing."""


class Expressions:
    """A function under construction: its variables, and what expressions of them are."""

    def __init__(self, module: Any, function: ir.Function, names: dict[str, Any]) -> None:
        self.module, self.function, self.names = module, function, names
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.start = self.function.append_basic_block("start")
        self.places: dict[str, tuple[Any, Any]] = {}
        self.tuples: dict[str, tuple[Number, ...]] = {}
        self.numbers = Arithmetic(self.builder, ("contract",) if names.get("CONTRACT") else ())

    def branch(self, test: ast.expr, then: Any, otherwise: Any) -> None:
        """Branch by a condition; of several, the later ones are looked at only if need be."""
        if isinstance(test, ast.BoolOp):
            for part in test.values[:-1]:
                following = self.function.append_basic_block("and")
                self.branch(part, *((following, otherwise) if isinstance(test.op, ast.And) else (then, following)))
                self.builder.position_at_end(following)
            self.branch(test.values[-1], then, otherwise)
        else:
            self.builder.cbranch(self.numbers.truth(self.number(test)).node, then, otherwise)

    def number(self, node: ast.expr) -> Number:
        """Return an expression's value, a number."""
        value = self.value(node)
        return value if isinstance(value, Number) else constant(value)

    def value(self, node: ast.expr) -> Any:
        """Return an expression's value: a number, or a thing of the source's module."""
        return getattr(self, f"of_{type(node).__name__}")(node)

    def of_Constant(self, node: ast.Constant) -> Any:  # noqa: N802
        """Return a literal."""
        return node.value

    def of_Name(self, node: ast.Name) -> Any:  # noqa: N802
        """Return a variable's value, or what a name of the module means."""
        if node.id in self.places:
            place, kind = self.places[node.id]
            return Number(self.builder.load(place), kind)
        if node.id in self.tuples:
            return self.tuples[node.id]
        return self.names[node.id] if node.id in self.names else getattr(builtins, node.id)

    def of_Attribute(self, node: ast.Attribute) -> Any:  # noqa: N802
        """Return a field of a struct, or what an attribute of a module means."""
        value = self.value(node.value)
        if not isinstance(value, Number):
            return getattr(value, node.attr)
        place, kind = self.field(value, node.attr)
        return Number(self.builder.load(place), kind)

    def field(self, value: Number, name: str) -> tuple[Any, Any]:
        """Return a pointer to a field of the struct at an address, and its type."""
        struct = value.kind
        if not isinstance(struct, StructType) or name not in struct.FIELDS:
            raise UntranslatedError(f"{getattr(struct, '__name__', struct)} has no field {name!r}")
        kind = struct.kind_of(name)
        place = self.builder.add(value.node, I64(struct.byte_of(name)))
        return self.builder.inttoptr(place, type_of(kind).as_pointer()), kind

    def place(self, node: ast.expr) -> tuple[Any, Any]:
        """Return a pointer to a variable, to a field of a struct, or to an element of memory, and its type."""
        if isinstance(node, ast.Name):
            return self.places[node.id]
        if isinstance(node, ast.Attribute):
            return self.field(self.number(node.value), node.attr)
        assert isinstance(node, ast.Subscript)
        pointer, at = self.number(node.value), self.numbers.cast(self.number(node.slice), types.int64)
        if isinstance(pointer.kind, ArrayKind):
            words = self.builder.inttoptr(pointer.node, I64.as_pointer())
            return self.builder.gep(words, [at.node]), pointer.kind.element
        return self.builder.gep(pointer.node, [at.node], inbounds=True), pointer.kind.dtype

    def of_BinOp(self, node: ast.BinOp) -> Any:  # noqa: N802
        """Return the result of an operator."""
        a, b = self.value(node.left), self.value(node.right)
        if not isinstance(a, Number) and not isinstance(b, Number):
            return eval(compile(ast.Expression(node), "<native source>", "eval"), self.names)  # noqa: S307 (our own)
        return self.numbers.binary(
            type(node.op).__name__, *((x if isinstance(x, Number) else constant(x)) for x in (a, b))
        )

    def of_UnaryOp(self, node: ast.UnaryOp) -> Any:  # noqa: N802
        """Return a number turned: -, ~, not."""
        value = self.value(node.operand)
        if not isinstance(value, Number):
            return {ast.USub: lambda x: -x, ast.Invert: lambda x: ~x, ast.Not: lambda x: not x}[type(node.op)](value)
        if isinstance(node.op, ast.USub):
            return self.numbers.negative(value)
        if isinstance(node.op, ast.Not):
            return Number(self.builder.not_(self.numbers.truth(value).node), types.boolean)
        return Number(self.builder.not_(value.node), bare(value).kind)

    def of_Compare(self, node: ast.Compare) -> Number:  # noqa: N802
        """Return whether numbers compare so, each with the next; or whether one is among some."""
        left, chain = self.number(node.left), None
        for sign, part in zip(node.ops, node.comparators, strict=True):
            if isinstance(sign, (ast.In, ast.NotIn)):
                assert isinstance(part, ast.Tuple)
                within = [self.numbers.compare("Eq", left, self.number(element)).node for element in part.elts]
                equal = within[0]
                for more in within[1:]:
                    equal = self.builder.or_(equal, more)
                return Number(self.builder.not_(equal) if isinstance(sign, ast.NotIn) else equal, types.boolean)
            right = self.number(part)
            holds = self.numbers.compare(type(sign).__name__, left, right).node
            chain, left = holds if chain is None else self.builder.and_(chain, holds), right
        return Number(chain, types.boolean)

    def of_BoolOp(self, node: ast.BoolOp) -> Number:  # noqa: N802
        """Return a condition of several; looked at one after the other where they read memory or call."""
        if not any(self._acts(part) for part in node.values[1:]):
            join = self.builder.and_ if isinstance(node.op, ast.And) else self.builder.or_
            joined = self.numbers.truth(self.number(node.values[0])).node
            for part in node.values[1:]:
                joined = join(joined, self.numbers.truth(self.number(part)).node)
            return Number(joined, types.boolean)
        return self._chosen(node, ast.Constant(True), ast.Constant(False))

    def of_IfExp(self, node: ast.IfExp) -> Number:  # noqa: N802
        """Return one of two values; only the one that is chosen is computed, if that reads memory or calls."""
        if not (self._acts(node.body) or self._acts(node.orelse)):
            return self.numbers.select(self.number(node.test), self.number(node.body), self.number(node.orelse))
        match node.test:
            case ast.Call(func=ast.Attribute(attr="beyond")):  # an angle beyond those of vector functions
                lanes = bool(self.names.get("INTERLEAVE"))
            case _:
                lanes = False
        return self._chosen(node.test, node.body, node.orelse, lanes=lanes)

    def _chosen(self, test: ast.expr, body: ast.expr, orelse: ast.expr, *, lanes: bool = False) -> Number:
        """Return one of two values, of which one is computed; the first by ``lanes``, where loops are vectorised."""
        then, otherwise, done = (self.function.append_basic_block(name) for name in ("then", "other", "done"))
        self.branch(test, then, otherwise)
        ends = []
        for begin, part in ((then, body), (otherwise, orelse)):
            self.builder.position_at_end(begin)
            value = self._by_lanes(part) if lanes and part is body else self.number(part)
            ends.append((value, self.builder.block))
        kind = widest(*(value.kind for value, _ in ends))
        arrived = []
        for value, block in ends:
            self.builder.position_at_end(block)
            arrived.append((self.numbers.cast(value, kind).node, block))
            self.builder.branch(done)
        self.builder.position_at_end(done)
        phi = self.builder.phi(type_of(kind))
        for node, block in arrived:
            phi.add_incoming(node, block)
        return Number(phi, kind)

    def _by_lanes(self, call: ast.expr) -> Number:
        """Return a function of libm that few elements of a vector need, if any."""
        assert isinstance(call, ast.Call)
        x = self.number(call.args[0])
        function = lanes.by_lanes(self.builder.module, self.value(call.func).__name__, x.node.type)
        return Number(self.builder.call(function, [x.node]), x.kind)

    def of_Subscript(self, node: ast.Subscript) -> Any:  # noqa: N802
        """Return an element of memory, or of a tuple."""
        if isinstance(node.value, ast.Name) and node.value.id in self.tuples:
            assert isinstance(node.slice, ast.Constant)
            return self.tuples[node.value.id][node.slice.value]  # type: ignore[index]
        place, kind = self.place(node)
        value = Number(self.builder.load(place), kind)
        return self.numbers.cast(value, types.int64) if kind == types.uint8 else value

    def _acts(self, node: ast.expr) -> bool:
        """Whether an expression reads memory, or calls what takes long or does something."""
        for part in nodes_in(node):
            match part:
                case ast.Attribute(value=ast.Name(id=name)) if name in self.names:  # of a module or a class
                    continue
                case ast.Subscript() | ast.Attribute():
                    return True
                case ast.Call() if _is_long(part):
                    return True
        return False

    def of_Call(self, node: ast.Call) -> Any:  # noqa: N802
        """Return the result of a call: of native code, an intrinsic, a type, or a function of numbers."""
        callee = self.value(node.func)
        if callee is float and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            return float(node.args[0].value)
        arguments = [self.number(part) for part in node.args]
        if isinstance(callee, StructType):
            return self.numbers.cast(arguments[0], callee)
        if isinstance(callee, FunctionType):
            function, kind = self.module.function(callee, tuple(x.kind for x in arguments))
            return Number(self.builder.call(function, [x.node for x in arguments]), kind)
        if hasattr(callee, "_defn"):
            signature, codegen = callee._defn(None, *[x.kind for x in arguments])  # noqa: SLF001 (Numba's intrinsic)
            wanted = [self.numbers.cast(x, kind).node for x, kind in zip(arguments, signature.args, strict=True)]
            return Number(codegen(_Context(), self.builder, signature, wanted), signature.return_type)
        if callee in _CASTS:
            return self.numbers.cast(arguments[0], _CASTS[callee])
        if isinstance(callee, ModuleType):
            raise UntranslatedError(f"{callee} is no function")
        return self.numbers.function({"absolute": "abs"}.get(callee.__name__, callee.__name__), *arguments)


def _is_long(node: ast.Call) -> bool:
    """Whether this call is of nothing that vectorises, and so is best computed for all elements, chosen or not."""
    match node.func:
        case ast.Attribute(value=ast.Name(id="vectormath")) | ast.Attribute(attr="sqrt" | "float32" | "float64"):
            return False
        case ast.Name(id="abs"):
            return False
    return True
