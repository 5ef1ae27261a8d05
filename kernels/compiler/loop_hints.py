"""What LLVM is told of innermost loops over elements, in modules that say ``INTERLEAVE = True``.

A loop ``masked`` runs in vectors with masks for its tail: no element is done by itself. A long body is a chain of
operations that wait for one another, longer than what a processor looks ahead: several vectors are run side by side,
four where vector functions, each of some twenty operations in a row, are called. LLVM does so for short bodies alone;
chains of ``exp`` and ``tanh`` take less than half of the time so.
"""

from __future__ import annotations

import ast
from typing import Any

from llvmlite import ir

from kernels.compiler.variables import nodes_in, statements_in

Hint = tuple[str, list[Any]]
"""The name of a loop's attribute, and its value, if it has one."""
LONG = 8
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
    elif len(loop.body) >= LONG and not masked:
        hints.append(_interleaved(_FEW))
    return hints


def _is_vector_function(node: ast.AST) -> bool:
    """Whether a node is a function of vectormath."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "vectormath"


def _interleaved(count: int) -> Hint:
    return "llvm.loop.interleave.count", [ir.IntType(32)(count)]
