"""The variables that native source reads and assigns."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def reads_in(tree: ast.AST) -> Iterator[ast.Name]:
    """Yield where variables are read, by ``+=`` and its like, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target


def names_written(tree: ast.AST) -> set[str]:
    """Return the variables that a statement assigns, and those in it."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
