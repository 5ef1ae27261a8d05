"""Loops whose calls of elementary functions vectorise: calls by lanes, and the loop in a function of its own."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir

# LLVM takes the vector form of a function, of operands and maybe a mask, from an attribute of the scalar one (its
# vector function ABI). A function for few elements is called where a condition holds: its form looks whether the mask
# has any element at all, and calls the scalar function for those that it has.

I1, I32, F8, F4 = ir.IntType(1), ir.IntType(32), ir.DoubleType(), ir.FloatType()
_WIDTHS = {F8: (2, 4, 8), F4: (2, 4, 8, 16)}  # elements of vectors, by their type
_PREFIX = "lanes_"
_COMPUTES = "noinline", "nounwind", "readnone", "willreturn"
"""What LLVM is told of a function that does nothing but compute, and is called."""
_USUALLY = 1_000_000  # how much likelier it is that a mask has no element


def by_lanes(module: ir.Module, name: str, kind: ir.Type) -> ir.Function:
    """Return the function of a module that is one of libm's of a float of a type, and has forms for vectors."""
    name = name if kind == F8 else f"{name}f"
    full = f"{_PREFIX}{name}"
    known = module.globals.get(full)
    if known is not None:
        return known
    shape = ir.FunctionType(kind, [kind])
    called = module.globals.get(name) or ir.Function(module, shape, name)
    function = ir.Function(module, shape, full)
    function.linkage = "internal"
    forms = [_form(module, function, width) for width in _WIDTHS[kind]]
    _tell_forms(function, forms, "M")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.call(called, function.args))
    return function


class CallingModule(ir.Module):
    """A module that calls vector functions: copies of very many, though faster, would take long to compile."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.forms: list[ir.Function] = []  # functions of vectors that LLVM calls instead of scalar ones

    def add_forms(self, function: ir.Function, form: Callable[[int, str], ir.Function]) -> None:
        """Give a function of floats, which does nothing but compute, forms that ``form`` makes, of width and name."""
        forms = [form(width, f"{function.name}.{width}") for width in _WIDTHS[function.return_value.type]]
        _tell_forms(function, forms, "N")
        for each in forms:
            _mark(each, *_COMPUTES)
        self.forms += forms


def keep_forms(module: ir.Module) -> bool:
    """Have the forms for vectors stay until loops are vectorised, though nothing calls them; whether there are any."""
    forms = [f for f in module.functions if f.name.startswith(_PREFIX) and "alwaysinline" in f.attributes]
    forms += module.forms if isinstance(module, CallingModule) else []
    if forms:
        pointer = ir.IntType(8).as_pointer()
        used = ir.GlobalVariable(module, ir.ArrayType(pointer, len(forms)), "llvm.compiler.used")
        used.linkage, used.section = "appending", "llvm.metadata"
        used.initializer = ir.Constant(used.value_type, [form.bitcast(pointer) for form in forms])
    return bool(forms)


def _tell_forms(function: ir.Function, forms: Iterable[ir.Function], mask: str) -> None:
    """Tell LLVM the forms of a function that computes, one a width: M if they have a mask besides, N if not."""
    widths = _WIDTHS[function.return_value.type]
    kinds = [f"{mask}{width}{'v' * len(function.args)}" for width in widths]
    names = [f"_ZGV_LLVM_{kind}_{function.name}({form.name})" for kind, form in zip(kinds, forms, strict=True)]
    _mark(function, *_COMPUTES, f'"vector-function-abi-variant"="{",".join(names)}"')


def _mark(function: ir.Function, *attributes: str) -> None:
    for attribute in attributes:
        set.add(function.attributes, attribute)  # llvmlite knows few


def _form(module: ir.Module, scalar: ir.Function, width: int) -> ir.Function:
    vector, mask = ir.VectorType(scalar.return_value.type, width), ir.VectorType(I1, width)
    shape = ir.FunctionType(vector, [vector, mask])
    some = _of_some(module, scalar, shape, width)
    function = ir.Function(module, shape, f"{scalar.name}_{width}")
    function.linkage = "internal"
    _mark(function, "alwaysinline", "nounwind")
    entry, some_lanes, done = (function.append_basic_block(name) for name in ("entry", "lanes", "done"))
    x, which = function.args
    builder = ir.IRBuilder(entry)
    word = ir.IntType(width)
    branch = builder.cbranch(builder.icmp_unsigned("!=", builder.bitcast(which, word), word(0)), some_lanes, done)
    branch.set_weights([1, _USUALLY])
    builder.position_at_end(some_lanes)
    changed = builder.call(some, [x, which])
    builder.branch(done)
    builder.position_at_end(done)
    result = builder.phi(vector)
    result.add_incoming(x, entry)
    result.add_incoming(changed, some_lanes)
    builder.ret(result)
    return function


def _of_some(module: ir.Module, scalar: ir.Function, shape: ir.FunctionType, width: int) -> ir.Function:
    """Add the function that computes those elements that a mask has."""
    function = ir.Function(module, shape, f"{scalar.name}_of_{width}")
    function.linkage = "internal"
    _mark(function, "noinline", "nounwind", "cold")
    entry, loop, lane, following, done = (
        function.append_basic_block(name) for name in ("entry", "loop", "lane", "following", "done")
    )
    x, which = function.args
    builder = ir.IRBuilder(entry)
    builder.branch(loop)
    builder.position_at_end(loop)
    at, vector = builder.phi(I32), builder.phi(x.type)
    builder.cbranch(builder.extract_element(which, at), lane, following)
    builder.position_at_end(lane)
    changed = builder.insert_element(vector, builder.call(scalar, [builder.extract_element(x, at)]), at)
    builder.branch(following)
    builder.position_at_end(following)
    after = builder.phi(x.type)
    after.add_incoming(vector, loop)
    after.add_incoming(changed, lane)
    up = builder.add(at, I32(1))
    builder.cbranch(builder.icmp_unsigned("<", up, I32(width)), loop, done)
    for phi, first, later in ((at, I32(0), up), (vector, x, after)):
        phi.add_incoming(first, entry)
        phi.add_incoming(later, following)
    builder.position_at_end(done)
    builder.ret(after)
    return function


# LLVM's vectorizer looks at the whole function for each of its loops: some thousand lines with hundreds of loops would
# take it a minute. So loops of a long function become functions of their own.

_LEAVES = {ast.Name, ast.Constant}


def nodes_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those in it, in no order: all but contexts and operators, in a third of ast.walk's time."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if type(node) in _LEAVES:
            continue
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                stack += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and name not in ("op", "ctx"):
                stack.append(value)


def statements_in(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those in them, in no order."""
    stack = [*statements]
    while stack:
        node = stack.pop()
        yield node
        for name in ("body", "orelse"):
            stack += getattr(node, name, ())


def reads_in(tree: ast.AST) -> Iterator[ast.Name]:
    """Yield where variables are read, by ``+=`` and its like, too."""
    for node in nodes_in(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target


def names_written(tree: ast.AST) -> set[str]:
    """Return the variables that a statement assigns, and those in it."""
    return {node.id for node in nodes_in(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


LONG = 1_000  # lines, one a statement, from which on a function is long
MOST = 40  # lines of a loop up to which it is taken out as a whole


class LoopUses(NamedTuple):
    """The variables of a loop, those that it assigns, and which of these are read elsewhere, too."""

    names: list[str]
    assigned: list[str]
    read_elsewhere: set[str]


def loops_apart(tree: ast.FunctionDef) -> dict[ast.For, LoopUses]:
    """Return the loops of a function that become functions; none if it is short."""
    if _size(tree) < LONG:
        return {}
    loops: list[ast.For] = []
    _collect(tree.body, loops)
    if not loops:
        return {}
    everywhere, uses = Counter(name.id for name in reads_in(tree)), {}
    for loop in loops:
        within, assigned = Counter(name.id for name in reads_in(loop)), names_written(loop)
        elsewhere = {name for name in assigned if everywhere[name] > within[name]}
        uses[loop] = LoopUses(sorted(within.keys() | assigned), sorted(assigned), elsewhere)
    return uses


def _size(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _collect(statements: list[ast.stmt], loops: list[ast.For]) -> None:
    for node in statements:
        returns = any(isinstance(part, ast.Return) for part in statements_in([node]))
        if isinstance(node, ast.For) and _size(node) <= MOST and not returns:
            loops.append(node)
        elif isinstance(node, ast.For | ast.While | ast.If):
            _collect([*node.body, *node.orelse], loops)


# What LLVM is told of innermost loops, in modules that say ``INTERLEAVE = True``. A loop ``masked`` runs in vectors
# with masks for its tail. A long body is a chain of operations that wait for one another, longer than what a processor
# looks ahead: several vectors are run side by side, four where vector functions, each of some twenty operations in a
# row, are called. LLVM does so for short bodies alone; chains of ``exp`` and ``tanh`` take less than half of the time
# so.

Hint = tuple[str, list[Any]]  # the name of a loop's attribute, and its value, if it has one
LONG_ENOUGH = 8  # statements from which on a body is long
_FEW, _MANY = 2, 4
_MOST = 16  # vector functions of which many vectors are run side by side: of more, compiling takes long
_MASKED: list[Hint] = [("llvm.loop.vectorize.predicate.enable", [ir.IntType(1)(1)]), ("llvm.loop.unroll.disable", [])]


def loop_hints(loop: ast.For) -> list[Hint]:
    """Return what LLVM is told of a loop."""
    assert isinstance(loop.iter, ast.Call)
    masked = isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "masked"
    hints = list(_MASKED) if masked else []
    if any(isinstance(part, ast.For | ast.While) for part in statements_in(loop.body)):
        return hints
    names = [part.value for node in loop.body for part in nodes_in(node) if isinstance(part, ast.Attribute)]
    calls = sum(isinstance(name, ast.Name) and name.id == "vectormath" for name in names)
    if calls:
        hints.append(_interleaved(_MANY if calls <= _MOST else _FEW))
    elif len(loop.body) >= LONG_ENOUGH and not masked:
        hints.append(_interleaved(_FEW))
    return hints


def _interleaved(count: int) -> Hint:
    return "llvm.loop.interleave.count", [ir.IntType(32)(count)]
