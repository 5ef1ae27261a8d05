"""Which loops of a long function become functions of their own.

LLVM's vectorizer looks at the whole function for each of its loops: some thousand lines with hundreds of loops would
take it a minute.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import NamedTuple

from kernels.compiler.variables import names_written, reads_in, statements_in

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
