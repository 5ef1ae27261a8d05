"""Compiled programs as one file of C99 with its header, which needs C's library alone."""

from __future__ import annotations

import ast
import ctypes
import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernels.language import jit
from kernels.language.expressions import UntranslatedError
from kernels.language.jit import types
from kernels.language.statements import source_of
from kernels.programs.compiler.compiled_code import Array, CompiledCode
from kernels.programs.native_use.c_expressions import (
    C_TYPES,
    LIBM,
    TESTS,
    WRITTEN,
    CExpressions,
    CNumber,
    bare,
    cast,
    float_text,
    integer_text,
    truth,
    type_text,
)
from kernels.programs.native_use.native_entry import ALIGNED, NO_MEMORY, SMALL, Parameter, parameters_of

# Statements of native source as lines of C; see c_source.py.

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


_KEYWORDS = {
    "auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "false", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "true", "typedef", "union", "unsigned", "void", "volatile", "while", "NAN",
    "INFINITY", "NULL", "LN2", "PER_LN2", "workspace", "block", "table", "status", "malloc", "free", "memcpy",
    "class", "new", "delete", "this", "template", "private", "public", "operator", "namespace",
    "int8_t", "int32_t", "int64_t", "uint8_t", "intptr_t", "size_t",
}  # fmt: skip
"""What no variable is called in C or, where the header is read, in C++."""
_TAKEN = _KEYWORDS | set(TESTS) | set(LIBM.values()) | {f"{name}f" for name in LIBM.values()}
_SUFFIXES = {types.float64: "", types.float32: "f", types.int64: "_int64", types.int32: "_int32"}
_DTYPES = {"float64": "double", "float32": "float", "int64": "int64_t", "int32": "int32_t", "bool": "uint8_t"}
_CALL = re.compile(rf"\b({'|'.join(sorted(set(LIBM.values())))})\(")
_HEAD = """/* {title} Written by tape-autograd. C99; link with -lm.

Not for -ffast-math: the sign of a zero, infinities and nan have a meaning here. */

#include "{header}"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Integers in memory that may have been written as floats. */
#if defined(__GNUC__)
typedef int64_t __attribute__((may_alias)) tape_int64;
typedef int32_t __attribute__((may_alias)) tape_int32;
#else
typedef int64_t tape_int64;
typedef int32_t tape_int32;
#endif

#define LN2 0.6931471805599453
#define PER_LN2 1.4426950408889634

"""
_HEADER = """/* {title} Written by tape-autograd.

Each function returns 0; k > 0 if guard k - 1 of the program missed: the program was recorded where a condition went
another way, and the results are undefined; {no_memory} if there is no memory for the workspace.
Arrays have the shapes named below, in C order unless strides, in bytes, stand beside them. Results must not overlap
with arguments or each other. A function whose name ends in _in takes the workspace as its first argument: as many bytes
as the macro of its name says, at a multiple of {aligned}. The other one has it on the stack, or from malloc, and
nothing is kept between calls: any number of threads may call. */

#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{functions}

#ifdef __cplusplus
}}
#endif

#endif
"""


class CModule:
    """The functions of one program in C, each written once for its types, behind those that it calls."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.texts: dict[str, str] = {}
        self._made: dict[Any, tuple[str, Any]] = {}

    def function(self, native: Any, kinds: tuple[Any, ...]) -> tuple[str, Any]:
        """Return the name of a function of native source for arguments of these types, and what it returns."""
        key = native, kinds
        if key not in self._made:
            same = sum(made.__name__ == native.__name__ for made, _ in self._made)
            name = f"{self.prefix}_{native.__name__}" + (f"_{same + 1}" if same else "")
            source = source_of(native)
            text, result = CBody(self, source.names).run(name, source.tree(native.__name__), kinds)
            self._made[key] = name, result
            self.texts[name] = text
        return self._made[key]

    @staticmethod
    def variable(name: str) -> str:
        """Return what a variable is called in C."""
        return f"{name}_" if name in _TAKEN else name

    def written(self, name: str, kind: Any) -> str:
        """Return the name of a function that C's library has not, which is written before its callers."""
        full = f"{self.prefix}_{name}{_SUFFIXES[kind]}"
        text = re.sub(r"\bT\b", C_TYPES[kind], re.sub(r"\bF\b", full, WRITTEN[name]))
        if kind == types.float32:
            text = _CALL.sub(r"\1f(", text)
        self.texts[full] = f"static {text}"
        return full


def c_files(functions: Mapping[str, tuple[CompiledCode, Sequence[str]]], header: str, title: str) -> tuple[str, str]:
    """Return the text of a header and of a C file with one function for each program.

    ``functions`` are programs by the names of the functions, with the names of their arguments; ``header`` is the name
    of the header's file, ``title`` a sentence. ValueError for a name that C does not have; UntranslatedError for a
    program that calls what C has no counterpart of, such as SciPy's functions.
    """
    for name in functions:
        if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or name in _TAKEN:
            raise ValueError(f"{name!r} cannot be the name of a function of C; give another: name='my_function'")
    for code, _ in functions.values():
        for call in code.account.calls if code.account is not None else ():
            raise UntranslatedError(f"{call.name}, which is run by {call.by}, has no counterpart in C")
    declared, defined = [], []
    for name, (code, names) in functions.items():
        parameters = parameters_of(code, names)
        declared.append(_declarations(name, code, parameters))
        defined.append(_definitions(name, code, parameters))
    guard = "TAPE_" + re.sub(r"\W", "_", header, flags=re.ASCII).upper()
    title = title.replace("*/", "* /")
    head = _HEADER.format(
        title=title, guard=guard, functions="\n\n".join(declared), no_memory=NO_MEMORY, aligned=ALIGNED
    )
    return head, _HEAD.format(title=title, header=header) + "\n\n".join(defined) + "\n"


def _parameter(parameter: Parameter) -> str:
    """Return how a parameter is declared."""
    kind, name = _DTYPES[parameter.spec.dtype.name], CModule.variable(parameter.name)
    if parameter.by_value:
        return f"{kind} {name}"
    return f"const {kind} *{name}" if parameter.role == "argument" else f"{kind} *{name}"


def _prototype(name: str, parameters: Sequence[Parameter], *first: str) -> str:
    head, indent = f"int64_t {name}(", " " * 4
    listed = [*first, *map(_parameter, parameters)] or ["void"]
    line = f"{head}{', '.join(listed)})"
    return line if len(line) <= 100 else f"{head}\n{indent}" + f",\n{indent}".join(listed) + ")"  # noqa: PLR2004


def _declarations(name: str, code: CompiledCode, parameters: Sequence[Parameter]) -> str:
    lines = [f"/* {name}:"]
    for parameter in parameters:
        shape = "" if parameter.by_value else f", shape {parameter.spec.shape}"
        strides = "" if parameter.is_dense or parameter.by_value else f", strides {parameter.strides}"
        lines.append(f"     {_parameter(parameter)}: {parameter.role}{shape}{strides}")
    size = f"#define {name.upper()}_WORKSPACE {code.work}"
    inner = _prototype(f"{name}_in", parameters, "void *workspace")
    return "\n".join([*lines, "*/", size, f"{_prototype(name, parameters)};", f"{inner};"])


def _definitions(name: str, code: CompiledCode, parameters: Sequence[Parameter]) -> str:
    module = CModule(name)
    run, _ = module.function(jit.load_source("program", code.source).run.function, (types.int64,))
    constants = [_constant(f"{name}_constant{k}", array) for k, array in enumerate(code.constants)]
    words = [f"&{CModule.variable(p.name)}" if p.by_value else CModule.variable(p.name) for p in parameters]
    count = len(code.arguments)
    words = [*words[:count], *[place for _, place in constants], *words[count:], "workspace"]
    table = ",\n        ".join(f"(int64_t)(intptr_t){word}" for word in words)
    inner = (
        f"{_prototype(f'{name}_in', parameters, 'void *workspace')}\n{{\n    const int64_t table[] = {{\n"
        f"        {table}\n    }};\n    return {run}((int64_t)(intptr_t)table) + 1;\n}}"
    )
    return "\n\n".join(
        [*[text for text, _ in constants], *module.texts.values(), inner, _outer(name, code, parameters)]
    )


def _outer(name: str, code: CompiledCode, parameters: Sequence[Parameter]) -> str:
    """Return the function that has a workspace of its own."""
    size = code.work + ALIGNED
    values = ", ".join(["(void *)start", *(CModule.variable(p.name) for p in parameters)])
    begin = f"const intptr_t start = ((intptr_t)block + {ALIGNED - 1}) & ~(intptr_t){ALIGNED - 1};"
    if code.work <= SMALL:
        body = f"    double block[{-(-size // 8)}];\n    {begin}\n    return {name}_in({values});\n"
    else:
        body = (
            f"    void *block = malloc({size});\n    {begin}\n    int64_t status;\n"
            f"    if (block == NULL) {{\n        return {NO_MEMORY};\n    }}\n"
            f"    status = {name}_in({values});\n    free(block);\n    return status;\n"
        )
    return f"{_prototype(name, parameters)}\n{{\n{body}}}"


def _constant(name: str, array: Array) -> tuple[str, str]:
    """Return the memory of a constant as a C array, and the address of its first element."""
    kind = _DTYPES[array.dtype.name]
    if array.size == 0:
        return f"static const {kind} {name}[1] = {{0}};", name
    low, high = np.lib.array_utils.byte_bounds(array)
    size, odd = divmod(high - low, array.itemsize)
    first, shifted = divmod(array.ctypes.data - low, array.itemsize)
    if odd or shifted:
        raise UntranslatedError(f"a constant of strides {array.strides} is no array of {array.dtype} in C")
    memory = np.frombuffer(ctypes.string_at(low, high - low), array.dtype)
    if array.dtype.kind == "f":
        texts = [float_text(float(x), types.float64 if array.itemsize == 8 else types.float32) for x in memory]  # noqa: PLR2004
    else:
        texts = [integer_text(int(x)) for x in memory]
    lines = textwrap.fill(
        ", ".join(texts), 116, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    return f"static const {kind} {name}[{size}] = {{\n{lines}\n}};", f"({name} + {first})" if first else name
