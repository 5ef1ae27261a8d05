"""Which loops of a long function become functions of their own.

LLVM's vectorizer looks at the whole function for each of its loops: some thousand lines with hundreds of loops would
take it a minute.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir

# The parts of native source, and the variables that it reads and assigns.

_LEAVES = {ast.Name, ast.Constant}
_BLOCKS = "body", "orelse"


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
        for name in _BLOCKS:
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


LONG = 1_000
"""Lines, one a statement, from which on a function is long."""
MOST = 40
"""Lines of a loop up to which it is taken out as a whole."""


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
    everywhere = Counter(name.id for name in reads_in(tree))
    return {loop: _uses(loop, everywhere) for loop in loops}


def _size(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _collect(statements: list[ast.stmt], loops: list[ast.For]) -> None:
    """Add the outermost loops that are small enough, and that nothing returns from."""
    for node in statements:
        if isinstance(node, ast.For) and _size(node) <= MOST and not _returns(node):
            loops.append(node)
        elif isinstance(node, ast.For | ast.While | ast.If):
            _collect([*node.body, *node.orelse], loops)


def _returns(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Return) for node in statements_in(loop.body))


def _uses(loop: ast.For, everywhere: Counter[str]) -> LoopUses:
    within, assigned = Counter(name.id for name in reads_in(loop)), names_written(loop)
    elsewhere = {name for name in assigned if everywhere[name] > within[name]}
    return LoopUses(sorted(within.keys() | assigned), sorted(assigned), elsewhere)


# What LLVM is told of innermost loops over elements, in modules that say ``INTERLEAVE = True``.
#
# A loop ``masked`` runs in vectors with masks for its tail: no element is done by itself. A long body is a chain of
# operations that wait for one another, longer than what a processor looks ahead: several vectors are run side by side,
# four where vector functions, each of some twenty operations in a row, are called. LLVM does so for short bodies
# alone; chains of ``exp`` and ``tanh`` take less than half of the time so.

Hint = tuple[str, list[Any]]
"""The name of a loop's attribute, and its value, if it has one."""
LONG_ENOUGH = 8
"""Statements from which on a body is long."""
_FEW, _MANY = 2, 4
_MOST = 16
"""Vector functions of which many vectors are run side by side: of more, compiling takes long."""
_MASKED: list[Hint] = [("llvm.loop.vectorize.predicate.enable", [ir.IntType(1)(1)]), ("llvm.loop.unroll.disable", [])]


def loop_hints(loop: ast.For) -> list[Hint]:
    """Return what LLVM is told of a loop."""
    assert isinstance(loop.iter, ast.Call)
    masked = isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "masked"
    hints = list(_MASKED) if masked else []
    if any(isinstance(part, ast.For | ast.While) for part in statements_in(loop.body)):
        return hints
    calls = sum(_is_vector_function(part) for node in loop.body for part in nodes_in(node))
    if calls:
        hints.append(_interleaved(_MANY if calls <= _MOST else _FEW))
    elif len(loop.body) >= LONG_ENOUGH and not masked:
        hints.append(_interleaved(_FEW))
    return hints


def _is_vector_function(node: ast.AST) -> bool:
    """Whether a node is a function of vectormath."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "vectormath"


def _interleaved(count: int) -> Hint:
    return "llvm.loop.interleave.count", [ir.IntType(32)(count)]
