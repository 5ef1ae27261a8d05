"""Compiled programs as one file of C99 with its header, which needs C's library alone.

What a program prints is one function of loops, branches and assignments, and another that reads its pointers from a
table; C has the same statements, and its arithmetic converts numbers as NumPy's does.
"""

from __future__ import annotations

import ast
import ctypes
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.specs import Array
from kernels.language.cache_files import text_of
from kernels.language.expressions import UntranslatedError
from kernels.machine_code.native_entry import ALIGNED, NO_MEMORY, NUMBERS, SMALL, CallParameter, parameters_of
from kernels.rules import banded_native, dense_native

# Expressions and statements of native source as text of C, with C's types.

KINDS = "bool", "int64_t", "float", "double"  # types of numbers, the widest last
LIBM = {
    **{
        name: name
        for name in (
            "sqrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh",
            "tanh", "erf", "erfc", "floor", "ceil", "trunc", "rint", "copysign", "pow", "fmax", "fmin", "hypot", "fmod",
            "cbrt", "fabs",
        )
    },
    "abs": "fabs", "absolute": "fabs", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "power": "pow",
}  # fmt: skip
"""Functions of C's library, by NumPy's names."""
WRITTEN = {
    "maximum": "T F(T a, T b) { return a >= b || a != a ? a : b; }",
    "minimum": "T F(T a, T b) { return a <= b || a != a ? a : b; }",
    "greater": "T F(T top, T x) { return x > top ? x : top; }",
    "logistic": "T F(T x) { const T e = exp(-fabs(x)); return (x < 0 ? e : (T)1) / (1 + e); }",
    "remainder": "T F(T a, T b) { const T r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }",
    "logaddexp": "T F(T a, T b) {\n"
    "    return (a >= b || a != a ? a : b) + (a == b ? (T)LN2 : log1p(exp(-fabs(a - b))));\n}",
    "logaddexp2": "T F(T a, T b) {\n"
    "    return (a >= b || a != a ? a : b) + (a == b ? (T)1 : log1p(exp2(-fabs(a - b))) * (T)PER_LN2);\n}",
    "bits_of": "int64_t F(T x) { const double y = x; int64_t bits; memcpy(&bits, &y, sizeof bits); return bits; }",
}
"""Functions that C's library has not, or not as NumPy means them: T is their type, F their name."""
ANGLES = {"deg2rad": math.pi / 180, "radians": math.pi / 180, "rad2deg": 180 / math.pi, "degrees": 180 / math.pi}
CONSTANTS = {name: value for name, value in vars(dense_native).items() if name.isupper()}
TESTS = {"isinf": "(isinf({}) != 0)", "isfinite": "(isfinite({}) != 0)", "signbit": "(signbit({}) != 0)"}
CASTS = {"float64": "double", "float32": "float", "int64": "int64_t", "int": "int64_t"}
POINTERS = {"f8": "double *", "f4": "float *", "i8": "tape_int64 *", "i4": "int32_t *", "b1": "uint8_t *"}
_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%", ast.BitAnd: "&",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.And: " && ",
    ast.Or: " || ",
}  # fmt: skip


class CNumber(NamedTuple):
    """An expression of C, in parentheses where it needs them, and its type."""

    text: str
    kind: str


def integer_text(value: int) -> str:
    """Return an integer of 64 bits as C spells it."""
    if value == -(1 << 63):
        return "INT64_MIN"
    text = str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"
    return f"({text})" if value < 0 else text


def float_text(value: float) -> str:
    """Return a float as C spells it, to the last bit."""
    if math.isnan(value):
        return "NAN"
    text = repr(value).replace("inf", "INFINITY")
    return f"({text})" if text.startswith("-") else text


class CFunction:
    """One function of native source as text of C."""

    def __init__(self, module: CModule, tree: ast.FunctionDef, kinds: Sequence[str]) -> None:
        self.module, self.name = module, module.named(tree.name, kinds)
        parameters = [parameter.arg for parameter in tree.args.args]
        self.variables = dict(zip(parameters, kinds, strict=True))
        self.read: set[str] = set()
        self.arrays: dict[str, str] = {}  # how many elements those on the stack have
        self.lines: list[str] = []
        self._block(tree.body, 1)
        head = ", ".join(map(self._declared, parameters))
        plain = [name for name in self.variables if name not in parameters and name not in self.arrays]
        local = [f"    {self._declared(name)} = 0;" for name in plain]
        local += [f"    {self.variables[name][:-1]}{variable(name)}[{size}];" for name, size in self.arrays.items()]
        local += [f"    (void){variable(v)};" for v in self.variables if v not in self.read]  # no compiler warns then
        self.text = "\n".join([f"static int64_t {self.name}({head})", "{", *local, *self.lines, "}"])

    def _declared(self, name: str) -> str:
        kind = self.variables[name]
        return f"{kind} {variable(name)}" if kind in KINDS else f"{kind}restrict {variable(name)}"

    def _block(self, statements: list[ast.stmt], depth: int) -> None:
        for node in statements:
            self._statement(node, depth)

    def _statement(self, node: ast.stmt, depth: int) -> None:
        put = self._put
        match node:
            case ast.Assign() | ast.AugAssign():
                self._assigned(node, depth)
            case ast.Return(value=ast.expr() as value):
                put(depth, f"return {bare(self.value(value).text)};")
            case ast.If(test=test, body=body, orelse=others):
                self._inside(depth, f"if ({bare(self.value(test).text)}) {{", body)
                if others:
                    self._inside(depth, "else {", others)
            case ast.Expr(value=value):  # a call, or a docstring
                put(depth, *[f"{self.value(value).text};"] if isinstance(value, ast.Call) else [])
            case ast.While(test=test, body=body):
                self._inside(depth, f"while ({bare(self.value(test).text)}) {{", body)
            case ast.For(target=ast.Name(id=name) as index, iter=ast.Call(args=bounds), body=body):
                now = ast.Assign(
                    [index], ast.Name(f"next_{name}")
                )  # behind the loop the index is that of its last step
                self.variables |= {name: "int64_t", f"next_{name}": "int64_t"}
                self._inside(depth, self._head(f"next_{name}", [self.value(x).text for x in bounds]), [now, *body])
            case ast.Break():
                put(depth, "break;")
            case ast.Pass():
                pass
            case _:
                raise UntranslatedError(f"{ast.unparse(node)} has no counterpart in C")

    def _assigned(self, node: ast.stmt, depth: int) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                self._block([ast.Assign([name], x) for name, x in zip(names, values, strict=True)], depth)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(ast.Name("local_f8" | "local_i8" as f), [n])):
                self.variables[name], self.arrays[name] = POINTERS[f[-2:]], ast.unparse(n)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                x = self.value(value)
                self.variables.setdefault(name, x.kind)
                self._put(depth, f"{variable(name)} = {bare(x.text)};")
            case ast.Assign(targets=[target], value=value):
                self._put(depth, f"{self.value(target).text} = {bare(self.value(value).text)};")
            case ast.AugAssign(target=ast.expr() as target, op=op, value=value):
                self._put(depth, f"{self.value(target).text} {_SIGNS[type(op)]}= {bare(self.value(value).text)};")

    def _put(self, depth: int, *texts: str) -> None:
        self.lines += ["    " * depth + text for text in texts]

    def _inside(self, depth: int, head: str, body: list[ast.stmt]) -> None:
        self._put(depth, head)
        self._block(body, depth + 1)
        self._put(depth, "}")

    @staticmethod
    def _head(name: str, bounds: list[str]) -> str:
        """Return the head of a loop over a range, which goes by steps of 1 or, with three bounds, back."""
        first, stop, *back = ["0", *bounds] if len(bounds) == 1 else bounds
        sign, step = (">", "--") if back else ("<", "++")
        return f"for ({name} = {first}; {name} {sign} {stop}; {name}{step}) {{"

    def value(self, node: ast.expr) -> CNumber:
        """Return an expression of C; UntranslatedError for what it has no counterpart of."""
        kind = "int64_t"
        match node:
            case ast.Constant(value=int(value)):
                text = integer_text(value)
            case ast.Constant(value=float(value)):
                text, kind = float_text(value), "double"
            case ast.Name(id="MINUS_ZERO"):
                text = integer_text(-(1 << 63))
            case ast.Attribute(value=ast.Name(id="math"), attr="inf"):
                text, kind = "INFINITY", "double"
            case ast.Name(id=name) if name in self.variables:
                self.read.add(name)
                text, kind = variable(name), self.variables[name]
            case ast.Name(id=name) if name in CONSTANTS:
                text, kind = float_text(CONSTANTS[name]), "double"
            case ast.Subscript(value=ast.Name(id=name), slice=at) if name in self.variables:
                self.read.add(name)
                element = self.variables[name].removesuffix(" *")
                text, kind = f"{variable(name)}[{bare(self.value(at).text)}]", element if element in KINDS else kind
            case ast.Call(func=function, args=args):
                text, kind = self._call(function, args)
            case _:
                text, kind = self._operation(node)
        return CNumber(text, kind)

    def _operation(self, node: ast.expr) -> CNumber:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                x = self.value(operand)
                text, kind = f"(-{x.text})", x.kind
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                text, kind = f"(!{self.value(operand).text})", "bool"
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self.function("pow", self.value(left), self.value(right))
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self.value(left), self.value(right)
                text, kind = f"({a.text} {_SIGNS[type(op)]} {b.text})", widest(a, b)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                text, kind = f"({self.value(left).text} {_SIGNS[type(op)]} {self.value(right).text})", "bool"
            case ast.BoolOp(op=op, values=values):
                text, kind = f"({_SIGNS[type(op)].join([self.value(x).text for x in values])})", "bool"
            case ast.IfExp(test=ast.Call(func=ast.Attribute(attr="beyond")), orelse=other):
                return self.value(other)  # no angle is beyond C's sine
            case ast.IfExp(test=test, body=one, orelse=other):
                a, b = self.value(one), self.value(other)
                text, kind = f"({self.value(test).text} ? {a.text} : {b.text})", widest(a, b)
            case _:
                raise UntranslatedError(f"{ast.unparse(node)} has no counterpart in C")
        return CNumber(text, kind)

    def _call(self, function: ast.expr, args: list[ast.expr]) -> CNumber:
        name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
        if name == "float":
            return CNumber(float_text(float(ast.literal_eval(args[0]))), "double")
        operands = [self.value(arg) for arg in args]
        texts, kind = [x.text for x in operands], "int64_t"
        if name in self.module.trees:
            called = self.module.function(name, [x.kind for x in operands])
            text = f"{called}({', '.join(map(bare, texts))})"
        elif name == "load_i8":
            text = f"(*(tape_int64 *)(intptr_t){texts[0]})"
        elif name == "begin_of":
            text = f"((int64_t)(intptr_t){texts[0]})"
        elif name.startswith("pointer_"):
            kind = POINTERS[name.removeprefix("pointer_")]
            text = f"({kind})(intptr_t){texts[0]}"
        elif name in CASTS:
            text, kind = f"(({CASTS[name]}){texts[0]})", CASTS[name]
        elif name == "added":
            text, kind = f"({texts[0]} + {texts[1]})", operands[0].kind
        elif name in ("min", "max"):
            (a, b), sign = texts, "<" if name == "min" else ">"
            text, kind = f"({a} {sign} {b} ? {a} : {b})", widest(*operands)
        else:
            text, kind = self.function(name, *operands)
        return CNumber(text, kind)

    def function(self, name: str, *operands: CNumber) -> CNumber:
        """Return a function of floats, by NumPy's name."""
        kind = widest(*operands)
        texts = ", ".join([bare(x.text) for x in operands])
        if name == "bits_of" and kind in ("bool", "int64_t"):
            return CNumber(f"((int64_t){operands[0].text})", "int64_t")
        kind = kind if kind == "float" else "double"
        if name in ANGLES:
            return CNumber(f"({operands[0].text} * ({kind}){float_text(ANGLES[name])})", kind)
        if name in TESTS:
            return CNumber(TESTS[name].format(texts), "bool")
        if name in WRITTEN:
            return CNumber(f"{self.module.written(name, kind)}({texts})", "int64_t" if name == "bits_of" else kind)
        if name not in LIBM:
            raise UntranslatedError(f"{name} has no counterpart in C")
        return CNumber(f"{LIBM[name]}{_SUFFIXES[kind]}({texts})", kind)


def widest(*operands: CNumber) -> str:
    """Return the type that numbers meet in."""
    kinds = {x.kind for x in operands}
    return "double" if {"int64_t", "float"} <= kinds else max(kinds, key=KINDS.index)


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


def variable(name: str) -> str:
    """Return what a variable is called in C."""
    return f"{name}_" if name in _TAKEN else name


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
_SUFFIXES = {"double": "", "float": "f"}
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
#else
typedef int64_t tape_int64;
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


def _functions(source: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


class CModule:
    """The functions of one program in C, each behind those that it calls."""

    def __init__(self, prefix: str, source: str) -> None:
        self.prefix = prefix
        self.texts: dict[str, str] = {}
        self.printed = _functions(source)
        self.trees = self.printed.copy()
        for rules in (banded_native, dense_native):
            self.trees |= _functions(text_of(rules.__name__))

    def named(self, name: str, kinds: Sequence[str]) -> str:
        """Return what a function of native source is called in C."""
        suffix = "f" if name not in self.printed and "float *" in kinds else ""
        return f"{self.prefix}_{name}{suffix}"

    def function(self, name: str, kinds: Sequence[str]) -> str:
        """Return the name of a function of native source, which is written before its callers."""
        named = self.named(name, kinds)
        if named not in self.texts:
            self.texts[named] = CFunction(self, self.trees[name], kinds).text
        return named

    def written(self, name: str, kind: str) -> str:
        """Return the name of a function that C's library has not, likewise."""
        full = f"{self.prefix}_{name}{_SUFFIXES[kind]}"
        text = re.sub(r"\bT\b", kind, re.sub(r"\bF\b", full, WRITTEN[name]))
        self.texts[full] = "static " + _CALL.sub(rf"\1{_SUFFIXES[kind]}(", text)
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


def _parameter(parameter: CallParameter) -> str:
    """Return how a parameter is declared."""
    kind, name = parameter.number.c, variable(parameter.name)
    if parameter.by_value:
        return f"{kind} {name}"
    return f"const {kind} *{name}" if parameter.role == "argument" else f"{kind} *{name}"


def _prototype(name: str, parameters: Sequence[CallParameter], *first: str) -> str:
    head, indent = f"int64_t {name}(", " " * 4
    listed = [*first, *map(_parameter, parameters)] or ["void"]
    line = f"{head}{', '.join(listed)})"
    return line if len(line) <= 100 else f"{head}\n{indent}" + f",\n{indent}".join(listed) + ")"  # noqa: PLR2004


def _declarations(name: str, code: CompiledCode, parameters: Sequence[CallParameter]) -> str:
    lines = [f"/* {name}:"]
    for parameter in parameters:
        shape = "" if parameter.by_value else f", shape {parameter.spec.shape}"
        strides = "" if parameter.is_dense or parameter.by_value else f", strides {parameter.strides}"
        lines.append(f"     {_parameter(parameter)}: {parameter.role}{shape}{strides}")
    size = f"#define {name.upper()}_WORKSPACE {code.work}"
    inner = _prototype(f"{name}_in", parameters, "void *workspace")
    return "\n".join([*lines, "*/", size, f"{_prototype(name, parameters)};", f"{inner};"])


def _definitions(name: str, code: CompiledCode, parameters: Sequence[CallParameter]) -> str:
    module = CModule(name, code.source)
    run = module.function("run", ["int64_t"])
    constants = [_constant(f"{name}_constant{k}", array) for k, array in enumerate(code.constants)]
    words = [f"&{variable(p.name)}" if p.by_value else variable(p.name) for p in parameters]
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


def _outer(name: str, code: CompiledCode, parameters: Sequence[CallParameter]) -> str:
    """Return the function that has a workspace of its own."""
    size = code.work + ALIGNED
    values = ", ".join(["(void *)start", *(variable(p.name) for p in parameters)])
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
    kind = NUMBERS[array.dtype.name].c
    if array.size == 0:
        return f"static const {kind} {name}[1] = {{0}};", name
    low, high = np.lib.array_utils.byte_bounds(array)
    size, odd = divmod(high - low, array.itemsize)
    first, shifted = divmod(array.ctypes.data - low, array.itemsize)
    if odd or shifted:
        raise UntranslatedError(f"a constant of strides {array.strides} is no array of {array.dtype} in C")
    memory = np.frombuffer(ctypes.string_at(low, high - low), array.dtype)
    if array.dtype.kind == "f":
        texts = [float_text(float(x)) for x in memory]
    else:
        texts = [integer_text(int(x)) for x in memory]
    lines = textwrap.fill(
        ", ".join(texts), 116, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    return f"static const {kind} {name}[{size}] = {{\n{lines}\n}};", f"({name} + {first})" if first else name
