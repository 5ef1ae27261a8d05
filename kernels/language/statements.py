"""Statements of the native language as LLVM: assignments, branches, loops; a whole function's translation."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from kernels.language.cache_files import text_of
from kernels.language.expressions import I64, Arithmetic, Expressions, Number, UntranslatedError, type_of
from kernels.language.lanes import CallingModule, LoopUses, loop_hints, loops_apart, statements_in
from kernels.language.llvm_values import SOURCE, Source, is_address, kind_named


class FunctionBody(Expressions):
    """Translates the body of one function."""

    def __init__(self, module: Any, function: ir.Function, names: dict[str, Any]) -> None:
        super().__init__(module, function, names)
        self.loops: list[tuple[Any, Any]] = []
        self.result: Any = None
        self.apart: dict[ast.For, LoopUses] = {}

    def run(self, tree: ast.FunctionDef, kinds: tuple[Any, ...]) -> Any:
        """Translate; return the type of what is returned."""
        self.apart = loops_apart(tree)
        self.begin([name.arg for name in tree.args.args], kinds)
        self.block(tree.body)
        if not self.builder.block.is_terminated:
            if self.result is None:
                self.builder.ret_void()
            else:
                self.builder.unreachable()
        self.end()
        return self.result or types.void

    def begin(self, names: list[str], kinds: Sequence[Any]) -> None:
        """Have the first parameters as variables of these names."""
        self.builder.position_at_end(self.start)
        for name, value, kind in zip(names, self.function.args, kinds, strict=False):
            self.store(name, Number(value, kind))

    def end(self) -> None:
        """Connect what stands at the begin, which has all variables by now."""
        self.builder.position_at_end(self.function.entry_basic_block)
        self.builder.branch(self.start)

    def store(self, name: str, value: Number) -> None:
        """Give a variable a value."""
        if name not in self.places:
            with self.builder.goto_entry_block():
                self.places[name] = self.builder.alloca(type_of(value.kind)), value.kind
        place, kind = self.places[name]
        self.builder.store(self.numbers.cast(value, kind).node, place)

    def block(self, statements: list[ast.stmt]) -> None:
        """Translate statements, up to one that leaves."""
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            try:
                getattr(self, f"on_{type(statement).__name__}")(statement)
            except (AttributeError, KeyError, UntranslatedError) as error:
                error.add_note(f"in: {ast.unparse(statement)}")
                raise

    def on_Pass(self, node: ast.Pass) -> None:  # noqa: N802 (named as Python's syntax tree does, as those below)
        """Do nothing."""

    def on_Expr(self, node: ast.Expr) -> None:  # noqa: N802
        """Call, or a docstring."""
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def on_Assign(self, node: ast.Assign) -> None:  # noqa: N802
        """Give values to variables and elements."""
        if isinstance(node.value, ast.Tuple):
            values = tuple(self.number(part) for part in node.value.elts)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.tuples[target.id] = values
                else:
                    assert isinstance(target, ast.Tuple)
                    for part, value in zip(target.elts, values, strict=True):
                        self.put(part, value)
            return
        value = self.number(node.value)
        for target in node.targets:
            self.put(target, value)

    def put(self, target: ast.expr, value: Number) -> None:
        """Give a value to a variable, an element or a field."""
        if isinstance(target, ast.Name):
            self.store(target.id, value)
            return
        place, kind = self.place(target)
        self.builder.store(self.numbers.cast(value, kind).node, place)

    def on_AugAssign(self, node: ast.AugAssign) -> None:  # noqa: N802
        """Change a variable, an element or a field."""
        change = self.number(node.value)
        place, kind = self.place(node.target)
        value = self.numbers.binary(type(node.op).__name__, Number(self.builder.load(place), kind), change)
        self.builder.store(self.numbers.cast(value, kind).node, place)

    def on_Return(self, node: ast.Return) -> None:  # noqa: N802
        """Leave the function."""
        if node.value is None:
            self.builder.ret_void()
            return
        value = self.number(node.value)
        self.result = self.result or value.kind
        self.builder.ret(self.numbers.cast(value, self.result).node)

    def on_If(self, node: ast.If) -> None:  # noqa: N802
        """Branch."""
        then, done = self.function.append_basic_block("then"), self.function.append_basic_block("done")
        otherwise = self.function.append_basic_block("other") if node.orelse else done
        self.branch(node.test, then, otherwise)
        for begin, body in ((then, node.body), (otherwise, node.orelse)):
            if body:
                self.builder.position_at_end(begin)
                self.block(body)
                self.go(done)
        self.builder.position_at_end(done)

    def go(self, to: Any) -> None:
        """Go on at a block, unless the one before has left."""
        if not self.builder.block.is_terminated:
            self.builder.branch(to)

    def on_While(self, node: ast.While) -> None:  # noqa: N802
        """Loop as long as something holds."""
        test, body, done = (self.function.append_basic_block(name) for name in ("test", "body", "after"))
        self.builder.branch(test)
        self.builder.position_at_end(test)
        self.branch(node.test, body, done)
        self.inside(body, node.body, test, done)

    def inside(self, body: Any, statements: list[ast.stmt], again: Any, done: Any) -> None:
        """Translate the body of a loop."""
        self.builder.position_at_end(body)
        self.loops.append((again, done))
        self.block(statements)
        self.loops.pop()
        self.go(again)
        self.builder.position_at_end(done)

    def on_Break(self, node: ast.Break) -> None:  # noqa: N802
        """Leave the loop."""
        self.builder.branch(self.loops[-1][1])

    def on_Continue(self, node: ast.Continue) -> None:  # noqa: N802
        """Go on with the loop."""
        self.builder.branch(self.loops[-1][0])

    def on_For(self, node: ast.For) -> None:  # noqa: N802
        """Loop, here or in a function of its own."""
        if node in self.apart:
            self._call(node, self.apart[node])
        else:
            self.loop(node)

    def _call(self, node: ast.For, uses: LoopUses) -> None:
        """Call a function that is a loop: pass what is there, store what it or others may read later."""
        passed = [name for name in uses.names if name in self.places]
        stored = [name for name in uses.assigned if name in self.places or name in uses.read_elsewhere]
        values = [self.builder.load(self.places[name][0]) for name in passed]
        kind = ir.FunctionType(ir.VoidType(), [*[value.type for value in values], I64.as_pointer()])
        function = ir.Function(self.builder.module, kind, f"{self.function.name}.{node.lineno}")
        function.linkage = "internal"
        function.attributes.add("noinline")
        _mark_noalias(function, self.names)
        body = FunctionBody(self.module, function, self.names)
        body.begin(passed, [self.places[name][1] for name in passed])
        body.loop(node)
        for k, name in enumerate(stored):
            value, _ = body.places[name]
            place = body.builder.gep(function.args[-1], [I64(k)])
            body.builder.store(body.builder.load(value), body.builder.bitcast(place, value.type))
        body.builder.ret_void()
        body.end()
        with self.builder.goto_entry_block():
            results = self.builder.alloca(I64, max(1, len(stored)))
        self.builder.call(function, [*values, results])
        for k, name in enumerate(stored):
            value, number = body.places[name]
            place = self.builder.bitcast(self.builder.gep(results, [I64(k)]), value.type)
            self.store(name, Number(self.builder.load(place), number))

    def loop(self, node: ast.For) -> None:
        """Loop over a range, or with vectors filled in part: ``masked``; its step is a number of the source."""
        assert isinstance(node.iter, ast.Call)
        assert isinstance(node.target, ast.Name)
        bounds = [self.numbers.cast(self.number(part), types.int64).node for part in node.iter.args]
        first, stop = (I64(0), bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) > 2 else I64(1)  # noqa: PLR2004 (range's own)
        with self.builder.goto_entry_block():
            counter = self.builder.alloca(I64)
        self.builder.store(first, counter)
        test, body, again, done = (
            self.function.append_basic_block(name) for name in ("test", "body", "again", "after")
        )
        self.builder.branch(test)
        self.builder.position_at_end(test)
        backward = isinstance(step, ir.Constant) and step.constant < 0
        more = self.builder.icmp_signed(">" if backward else "<", self.builder.load(counter), stop)
        self.builder.cbranch(more, body, done)
        self.builder.position_at_end(again)
        self.builder.store(self.builder.add(self.builder.load(counter), step, flags=("nsw",)), counter)
        latch = self.builder.branch(test)
        hints = loop_hints(node) if self.names.get("INTERLEAVE") else []
        if hints:
            module = self.builder.module
            nodes = [module.add_metadata([ir.MetaDataString(module, name), *value]) for name, value in hints]
            mark = module.add_metadata([ir.MetaDataString(module, f"loop {len(module.metadata)}")])
            mark.operands = (mark, *nodes)  # LLVM knows loops apart by nodes that refer to themselves
            latch.set_metadata("llvm.loop", mark)
        self.builder.position_at_end(body)
        self.store(node.target.id, Number(self.builder.load(counter), types.int64))
        self.inside(self.builder.block, node.body, again, done)


# Native source is in the part of Python that Numba compiles too. Numba's inference takes seconds for the handwritten
# modules; here a type is what an expression has, and a variable has that of its first value. Intrinsics written for
# Numba serve as they are. Integers are words of 64 bits, signed: an ``np.uint64`` only tells Numba that an index is not
# negative. A module says ``CONTRACT = True`` if a product and a sum may become one instruction, ``NOALIAS = True`` if
# its functions' pointers do not overlap, and ``INTERLEAVE = True`` if several vectors of elements may be run side by
# side.

SHORT = 40  # instructions, before any optimization, up to which a function is copied into each of its callers


def source_of(function: Any) -> Source:
    """Return the source of the module of a native function."""
    names = function.__globals__
    if SOURCE not in names:
        name = names["__name__"]
        Source(name.rpartition(".")[2], text_of(name), names)
    source: Source = names[SOURCE]
    return source


class NativeModule:
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
        _mark_noalias(function, source.names)
        tree = source.tree(native.__name__)
        loops = any(isinstance(node, ast.For) for node in statements_in(tree.body))
        if loops or hasattr(native, "kept_apart"):
            function.attributes.add("noinline")  # in the loops of a caller its constants would not stay in registers
        result = FunctionBody(self, function, source.names).run(tree, kinds)
        kind = ir.FunctionType(type_of(result), parameter_types)
        if loops and self.control and _is_of_elements(function):
            del self.ir.globals[name]
            apart = ir.Function(self.loops, kind, f"{self.ir.name}.{name}")
            FunctionBody(self, apart, source.names).run(tree, kinds)
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


def _mark_noalias(function: ir.Function, names: dict[str, Any]) -> None:
    """Tell LLVM that what a function's pointers lead to does not overlap, where the source says so."""
    for argument in function.args if names.get("NOALIAS") else ():
        if argument.type.is_pointer:
            argument.add_attribute("noalias")


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
