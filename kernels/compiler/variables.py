"""The parts of native source, and the variables that it reads and assigns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

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
