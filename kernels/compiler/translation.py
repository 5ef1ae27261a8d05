"""Native source to LLVM: functions of numbers and pointers, in the part of Python that Numba compiles too.

Numba's inference takes seconds for the handwritten modules; here a type is what an expression has, and a variable has
that of its first value. Intrinsics written for Numba serve as they are. Integers are words of 64 bits, signed: an
``np.uint64`` only tells Numba that an index is not negative, which it never is here. A module says ``CONTRACT = True``
if a product and a sum may become one instruction, ``NOALIAS = True`` if its functions' pointers do not overlap, and
``INTERLEAVE = True`` if several vectors of elements may be run side by side.
"""

from __future__ import annotations

import ast
from collections import Counter
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import types

from kernels.compiler.lane_calls import CallingModule
from kernels.compiler.loops_apart import statements_in
from kernels.compiler.module_texts import text_of
from kernels.compiler.native_types import is_address, kind_named
from kernels.compiler.numbers_ir import I64, Arithmetic, Number, type_of
from kernels.compiler.statements_ir import Body

SHORT = 40
"""Instructions, before any optimization, up to which a function is copied into each of its callers."""


SOURCE = "__native_source__"
"""The name, among a module's globals, of its source."""


class Source:
    """The text of a native module, whose functions others may call, and what its names mean."""

    def __init__(self, name: str, text: str, names: dict[str, Any]) -> None:
        self.name, self.text, self.names = name, text, names
        self.trees: dict[str, ast.FunctionDef] = {}
        names[SOURCE] = self

    def has(self, thing: Any) -> bool:
        """Whether a thing is a function of this module."""
        return isinstance(thing, FunctionType) and thing.__globals__ is self.names

    def tree(self, name: str) -> ast.FunctionDef:
        """Return a function of the source, which is parsed when one is wanted."""
        if not self.trees:
            functions = [node for node in ast.parse(self.text).body if isinstance(node, ast.FunctionDef)]
            self.trees = {function.name: function for function in functions}
        return self.trees[name]


def source_of(function: Any) -> Source:
    """Return the source of the module of a native function."""
    names = function.__globals__
    if SOURCE not in names:
        name = names["__name__"]
        Source(name.rpartition(".")[2], text_of(name), names)
    source: Source = names[SOURCE]
    return source


class Module:
    """One LLVM module; functions of native source are added to it, each once for its types.

    Of ``control`` code, which few passes optimise, those that loop over elements and call nothing stand apart, in
    ``loops``: they run four times as fast after all passes, which loops over words do not. With ``calls`` vector
    functions are called.
    """

    def __init__(self, name: str, *, control: bool = False, calls: bool = False) -> None:
        self.control = control
        self.ir = CallingModule(name) if calls else ir.Module(name)
        self.loops = ir.Module(f"{name}.loops")
        self._made: dict[Any, tuple[ir.Function, Any]] = {}
        self._calls: Counter[Any] = Counter()

    def function(self, native: Any, kinds: tuple[Any, ...]) -> tuple[ir.Function, Any]:
        """Return the function for arguments of these types, and what it returns."""
        kinds = _declared(native, kinds)
        key = (native, kinds)
        self._calls[key] += 1
        function = self._made.get(key)
        if function is None:
            function = self._made[key] = self._translated(native, kinds)
        return function

    def _translated(self, native: Any, kinds: tuple[Any, ...]) -> tuple[ir.Function, Any]:
        source, parameter_types = source_of(native), [type_of(kind) for kind in kinds]
        name = f"{source.name}.{native.__name__}.{len(self._made)}.{len(self.ir.globals)}"
        function = ir.Function(self.ir, ir.FunctionType(ir.VoidType(), parameter_types), name)
        function.linkage = "internal"
        if source.names.get("NOALIAS"):
            for argument in function.args:
                if argument.type.is_pointer:
                    argument.add_attribute("noalias")
        tree = source.tree(native.__name__)
        loops = any(isinstance(node, ast.For) for node in statements_in(tree.body))
        if loops:
            function.attributes.add("noinline")  # in the loops of a caller its constants would not stay in registers
        result = Body(self, function, source.names).run(tree, kinds)
        kind = ir.FunctionType(type_of(result), parameter_types)
        if loops and self.control and _is_of_elements(function):
            del self.ir.globals[name]
            apart = ir.Function(self.loops, kind, f"{self.ir.name}.{name}")
            Body(self, apart, source.names).run(tree, kinds)
            return ir.Function(self.ir, kind, apart.name), result
        function.ftype, function.type = kind, kind.as_pointer()
        function.return_value = ir.values.ReturnValue(function, kind.return_type)
        return function, result

    def mark_inline(self) -> None:
        """Have functions that are short, or called once, become part of their callers."""
        for key, (function, _) in self._made.items():
            length = sum(len(block.instructions) for block in function.blocks)
            if "noinline" not in function.attributes and (self._calls[key] == 1 or length <= SHORT):
                function.attributes.add("alwaysinline")

    def export(self, native: Any) -> None:
        """Add the entry of a function with a signature under its symbol; if Python calls it, one for that behind it."""
        kinds, result = native.signature.arguments, native.signature.result
        inner, number = self.function(native.function, kinds)
        kind = ir.FunctionType(type_of(result), [type_of(k) for k in kinds])
        outer = ir.Function(self.ir, kind, native.symbol)
        builder = ir.IRBuilder(outer.append_basic_block("entry"))
        value = builder.call(inner, outer.args)
        if result == types.void:
            builder.ret_void()
        else:
            builder.ret(Arithmetic(builder).cast(Number(value, number), result).node)
        if native.signature.from_python:
            _export_to_python(self.ir, native.symbol, outer, len(kinds), result)


def _declared(native: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return types of arguments where structs are those that the parameters' annotations name, integers elsewhere."""
    if not native.__annotations__ and not any(map(is_address, kinds)):
        return kinds
    declared = [
        kind_named(native.__annotations__.get(name, ""), native.__globals__)
        for name in native.__code__.co_varnames[: len(kinds)]
    ]
    plain = [types.int64 if is_address(kind) else kind for kind in kinds]
    return tuple(kind if is_address(kind) else other for kind, other in zip(declared, plain, strict=True))


def _is_of_elements(function: ir.Function) -> bool:
    """Whether a function has elements of arrays, subscripted or as numbers that are no integers, and calls nothing."""
    within = [instruction for block in function.blocks for instruction in block.instructions]
    if any(isinstance(instruction, ir.instructions.CallInstr) for instruction in within):
        return False
    subscripts = (isinstance(instruction, ir.instructions.GEPInstr) and instruction.inbounds for instruction in within)
    return any(subscripts) or any(x.type in _REALS for instruction in within for x in instruction.operands)


_REALS = {ir.DoubleType(), ir.FloatType()}


def _export_to_python(module: ir.Module, symbol: str, outer: ir.Function, count: int, result: Any) -> None:
    """Add a function that takes and returns Python's integers, as METH_FASTCALL has it."""
    wrapper = ir.Function(module, ir.FunctionType(I64, [I64] * 3), f"{symbol}.py")
    builder = ir.IRBuilder(wrapper.append_basic_block("entry"))

    def api(name: str, kind: ir.FunctionType, *arguments: Any) -> Any:
        return builder.call(module.globals.get(name) or ir.Function(module, kind, name), arguments)

    with builder.if_then(builder.icmp_signed("!=", wrapper.args[2], I64(count)), likely=False):
        api("PyErr_BadArgument", ir.FunctionType(ir.IntType(32), []))
        builder.ret(I64(0))
    objects = builder.inttoptr(wrapper.args[1], I64.as_pointer())
    as_word = ir.FunctionType(I64, [I64])
    arguments = [builder.load(builder.gep(objects, [I64(i)])) for i in range(count)]
    words = [api("PyLong_AsLongLong", as_word, argument) for argument in arguments]
    for word in words:
        with builder.if_then(builder.icmp_signed("==", word, I64(-1)), likely=False):
            failed = api("PyErr_Occurred", ir.FunctionType(I64, []))
            with builder.if_then(builder.icmp_unsigned("!=", failed, I64(0)), likely=False):
                builder.ret(I64(0))
    value = builder.call(outer, words)
    number = I64(0) if result == types.void else value
    builder.ret(api("PyLong_FromLongLong", as_word, number))
