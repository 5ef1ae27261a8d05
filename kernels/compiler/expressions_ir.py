"""Expressions of native source as LLVM values; see kernels/compiler/translation.py."""

from __future__ import annotations

import ast
import builtins
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from kernels.compiler import lane_calls
from kernels.compiler.loops_apart import nodes_in
from kernels.compiler.native_types import ArrayKind, StructType
from kernels.compiler.numbers_ir import I64, Arithmetic, Number, UntranslatedError, bare, constant, type_of, widest

_CASTS = {
    np.int64: types.int64, np.uint64: types.int64, np.int32: types.int32, np.float64: types.float64,
    np.float32: types.float32, np.bool_: types.boolean, int: types.int64, float: types.float64, bool: types.boolean,
}  # fmt: skip


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
        """Return a pointer to a field of a struct, or to an element of memory, and its type."""
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
        return self.numbers.binary(type(node.op).__name__, *(self._typed(x) for x in (a, b)))

    @staticmethod
    def _typed(value: Any) -> Number:
        return value if isinstance(value, Number) else constant(value)

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
        lanes = bool(self.names.get("INTERLEAVE")) and _is_beyond(node.test)
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
        function = lane_calls.by_lanes(self.builder.module, self.value(call.func).__name__, x.node.type)
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
        return any(isinstance(part, ast.Subscript) or self._is_read(part) or _is_long(part) for part in nodes_in(node))

    def _is_read(self, node: ast.AST) -> bool:
        """Whether this is a field of a struct, and no name of a module or a class."""
        return isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in self.names
        )

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


def _is_beyond(test: ast.expr) -> bool:
    """Whether a condition is that an angle is beyond those of vector functions."""
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr == "beyond"


def _is_long(node: ast.AST) -> bool:
    """Whether this is a call, but of what vectorises: it is then best computed for all elements, chosen or not."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Attribute(value=ast.Name(id="vectormath")) | ast.Attribute(attr="sqrt" | "float32" | "float64"):
            return False
        case ast.Name(id="abs"):
            return False
    return True
