"""Statements of native source as lines of C; see c_source.py."""

from __future__ import annotations

import ast
import itertools
import re
from typing import Any

from kernels.compiler.jit import types
from kernels.compiler.numbers_ir import UntranslatedError
from kernels.programs.native_use.c_expressions import CExpressions, bare
from kernels.programs.native_use.c_numbers import CNumber, cast, truth, type_text

_READ = re.compile(r"\b([A-Za-z]\w*)\b(?! [-+*/]?= )")
"""Names that are not just assigned to."""
_LEAVES = (ast.Return, ast.Break, ast.Continue)


class CBody(CExpressions):
    """Translates the body of one function."""

    def __init__(self, module: Any, names: dict[str, Any]) -> None:
        super().__init__(module, names)
        self.lines: list[str] = []
        self.depth = 1
        self.result: Any = None
        self.numbers = itertools.count()

    def run(self, name: str, tree: ast.FunctionDef, kinds: tuple[Any, ...]) -> tuple[str, Any]:
        """Translate; return the text, and the type of what is returned."""
        parameters = [parameter.arg for parameter in tree.args.args]
        self.variables |= dict(zip(parameters, kinds, strict=True))
        self.block(tree.body)
        if self.result is not None and not isinstance(tree.body[-1], ast.Return):
            self.put_line("return 0;")
        result = self.result or types.void
        apart = bool(self.names.get("NOALIAS"))
        head = ", ".join(self._declared(parameter, apart=apart) for parameter in parameters) or "void"
        local = [f"    {self._declared(v)} = 0;" for v in self.variables if v not in parameters]
        read = set(_READ.findall("\n".join(self.lines)))
        unread = [v for v in map(self.module.variable, self.variables) if v not in read]
        local += [f"    (void){v};" for v in unread]  # so that compilers do not warn
        return "\n".join([f"static {type_text(result)} {name}({head})", "{", *local, *self.lines, "}"]), result

    def _declared(self, name: str, *, apart: bool = False) -> str:
        kind = type_text(self.variables[name])
        return f"{kind}{'restrict ' if apart and '*' in kind else ' ' * ('*' not in kind)}{self.module.variable(name)}"

    def put_line(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * self.depth + text)

    def block(self, statements: list[ast.stmt]) -> None:
        """Translate statements, up to one that leaves."""
        for statement in statements:
            try:
                getattr(self, f"on_{type(statement).__name__}")(statement)
            except (AttributeError, KeyError, UntranslatedError) as error:
                error.add_note(f"in: {ast.unparse(statement)}")
                raise
            if isinstance(statement, _LEAVES):
                return

    def inside(self, statements: list[ast.stmt]) -> None:
        """Translate a block in braces; the line before opens it."""
        self.depth += 1
        self.block(statements)
        self.depth -= 1
        self.put_line("}")

    def on_Pass(self, node: ast.Pass) -> None:  # noqa: N802 (named as Python's syntax tree does, as those below)
        """Do nothing."""

    def on_Expr(self, node: ast.Expr) -> None:  # noqa: N802
        """Call, or a docstring."""
        if not isinstance(node.value, ast.Constant):
            self.put_line(f"{self.number(node.value).text};")

    def on_Assign(self, node: ast.Assign) -> None:  # noqa: N802
        """Give values to variables and elements."""
        if isinstance(node.value, ast.Tuple):
            values = [self._kept(self.number(part)) for part in node.value.elts]
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.tuples[target.id] = tuple(values)
                else:
                    assert isinstance(target, ast.Tuple)
                    for part, value in zip(target.elts, values, strict=True):
                        self.put(part, value)
            return
        value = self.number(node.value)
        if len(node.targets) > 1:
            value = self._kept(value)
        for target in node.targets:
            self.put(target, value)

    def _kept(self, value: CNumber) -> CNumber:
        """Return the value that a number has now, whatever is written after."""
        name = f"kept{next(self.numbers)}"
        while name in self.variables:
            name = f"kept{next(self.numbers)}"
        self.variables[name] = value.kind
        self.put_line(f"{self.module.variable(name)} = {value.text};")
        return CNumber(self.module.variable(name), value.kind)

    def put(self, target: ast.expr, value: CNumber) -> None:
        """Give a value to a variable or an element."""
        if isinstance(target, ast.Name):
            kind = self.variables.setdefault(target.id, value.kind)
            text = bare(cast(value, kind).text)
            if text != self.module.variable(target.id):
                self.put_line(f"{self.module.variable(target.id)} = {text};")
            return
        element = self.element(target)
        self.put_line(f"{element.text} = {bare(cast(value, element.kind).text)};")

    def on_AugAssign(self, node: ast.AugAssign) -> None:  # noqa: N802
        """Change a variable or an element."""
        change = self.number(node.value)
        at = self.number(node.target) if isinstance(node.target, ast.Name) else self.element(node.target)
        value = self.binary(type(node.op).__name__, at, change)
        self.put_line(f"{at.text} = {bare(cast(value, at.kind).text)};")

    def on_Return(self, node: ast.Return) -> None:  # noqa: N802
        """Leave the function."""
        if node.value is None:
            self.put_line("return;")
            return
        value = self.number(node.value)
        self.result = self.result or value.kind
        self.put_line(f"return {bare(cast(value, self.result).text)};")

    def on_If(self, node: ast.If) -> None:  # noqa: N802
        """Branch."""
        self.put_line(f"if ({bare(truth(self.number(node.test)).text)}) {{")
        self.inside(node.body)
        if node.orelse:
            self.put_line("else {")
            self.inside(node.orelse)

    def on_While(self, node: ast.While) -> None:  # noqa: N802
        """Loop as long as something holds."""
        self.put_line(f"while ({bare(truth(self.number(node.test)).text)}) {{")
        self.inside(node.body)

    def on_Break(self, node: ast.Break) -> None:  # noqa: ARG002, N802
        """Leave the loop."""
        self.put_line("break;")

    def on_Continue(self, node: ast.Continue) -> None:  # noqa: ARG002, N802
        """Go on with the loop."""
        self.put_line("continue;")

    def on_For(self, node: ast.For) -> None:  # noqa: N802
        """Loop over a range, whose step is a number of the source; to change the variable changes no step."""
        assert isinstance(node.iter, ast.Call)
        assert isinstance(node.target, ast.Name)
        values = [self.value(part) for part in node.iter.args]
        step = values[2] if len(values) > 2 else 1  # noqa: PLR2004 (range's own)
        backward = not isinstance(step, CNumber) and step < 0
        bounds = [self._bound(value) for value in ([0, *values] if len(values) == 1 else values)]
        counter = self.module.variable(f"counter{next(self.numbers)}")
        more = f"{counter} {'>' if backward else '<'} {bounds[1]}"
        change = f"{counter} += {bounds[2]}" if len(values) > 2 else f"{counter}++"  # noqa: PLR2004
        self.put_line(f"for (int64_t {counter} = {bounds[0]}; {more}; {change}) {{")
        self.depth += 1
        self.put(node.target, CNumber(counter, types.int64))
        self.depth -= 1
        self.inside(node.body)

    def _bound(self, value: Any) -> str:
        """Return a number of a range, as it is before the loop."""
        if isinstance(value, CNumber):
            return self._kept(cast(value, types.int64)).text
        return f"{int(value)}"
