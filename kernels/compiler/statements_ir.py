"""Statements of native source as LLVM instructions; see kernels/compiler/translation.py."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from kernels.compiler.expressions_ir import Expressions
from kernels.compiler.loops_apart import Hint, LoopUses, loop_hints, loops_apart
from kernels.compiler.numbers_ir import I64, Number, UntranslatedError, type_of


class Body(Expressions):
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
        sign = type(node.op).__name__
        if isinstance(node.target, ast.Name):
            self.store(node.target.id, self.numbers.binary(sign, self.number(node.target), change))
            return
        place, kind = self.place(node.target)
        value = self.numbers.binary(sign, Number(self.builder.load(place), kind), change)
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

    def on_Break(self, node: ast.Break) -> None:  # noqa: ARG002, N802
        """Leave the loop."""
        self.builder.branch(self.loops[-1][1])

    def on_Continue(self, node: ast.Continue) -> None:  # noqa: ARG002, N802
        """Go on with the loop."""
        self.builder.branch(self.loops[-1][0])

    def on_For(self, node: ast.For) -> None:  # noqa: N802
        """Loop, here or in a function of its own."""
        if node in self.apart:
            self._call(node, self.apart[node])
        else:
            self.loop(node)

    def _call(self, node: ast.For, uses: LoopUses) -> None:
        """Call a function that is a loop: it is passed what there is, and stores what may be read behind it.

        That is, read elsewhere, or by the loop itself, when a loop around it calls the function again.
        """
        passed = [name for name in uses.names if name in self.places]
        stored = [name for name in uses.assigned if name in self.places or name in uses.read_elsewhere]
        values = [self.builder.load(self.places[name][0]) for name in passed]
        kind = ir.FunctionType(ir.VoidType(), [*[value.type for value in values], I64.as_pointer()])
        function = ir.Function(self.builder.module, kind, f"{self.function.name}.{node.lineno}")
        function.linkage = "internal"
        function.attributes.add("noinline")
        if self.names.get("NOALIAS"):
            for argument in function.args:
                if argument.type.is_pointer:
                    argument.add_attribute("noalias")
        body = Body(self.module, function, self.names)
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
            latch.set_metadata("llvm.loop", _marked(self.builder.module, hints))
        self.builder.position_at_end(body)
        self.store(node.target.id, Number(self.builder.load(counter), types.int64))
        self.inside(self.builder.block, node.body, again, done)


def _marked(module: ir.Module, hints: list[Hint]) -> Any:
    """Return what tells LLVM how to run a loop."""
    nodes = [module.add_metadata([ir.MetaDataString(module, name), *value]) for name, value in hints]
    loop = module.add_metadata([ir.MetaDataString(module, f"loop {len(module.metadata)}")])
    loop.operands = (loop, *nodes)  # LLVM knows loops apart by nodes that refer to themselves
    return loop
