"""Where a printed program reads and assigns variables: whether one is read behind a loop that assigns it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kernels.compiler.variables import nodes_in, reads_in


class Assignment(NamedTuple):
    """The line of an assignment, and the first and last of the block that it stands in."""

    line: int
    first: int
    last: int


def lines_of(node: ast.stmt) -> tuple[int, int]:
    """Return the first and the last line of a statement."""
    return node.lineno, node.end_lineno or node.lineno


class VariableUses:
    """All reads and assignments of a program, by name."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.reads: dict[str, list[int]] = defaultdict(list)
        self.assignments: dict[str, list[Assignment]] = defaultdict(list)
        self._block(body)

    def _block(self, statements: list[ast.stmt]) -> None:
        if not statements:
            return
        first, last = lines_of(statements[0])[0], lines_of(statements[-1])[1]
        for node in statements:
            match node:
                case ast.For():
                    self._look([node.iter, node.target], node.lineno, lines_of(node)[1])
                    self._block(node.body)
                case ast.If():
                    self._look([node.test], node.lineno, node.lineno)
                    self._block(node.body)
                    self._block(node.orelse)
                case _:
                    self._look([node], first, last)

    def _look(self, nodes: Iterable[ast.AST], first: int, last: int) -> None:
        for node in nodes:
            for name in reads_in(node):
                self.reads[name.id].append(name.lineno)
            for part in nodes_in(node):
                if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                    self.assignments[part.id].append(Assignment(part.lineno, first, last))

    def outlives(self, name: str, loop: ast.For, around: list[ast.For]) -> bool:
        """Whether what a loop assigns to a variable may be read outside of it; ``around`` are loops around that."""
        first, last = lines_of(loop)
        return any(not self._is_other(name, at, loop, around) for at in self.reads[name] if not first <= at <= last)

    def _is_other(self, name: str, at: int, loop: ast.For, around: list[ast.For]) -> bool:
        """Whether a read is of what was assigned elsewhere, since the loop."""
        here = loop.lineno
        both = [lines_of(outer) for outer in around]
        both = [(first, last) for first, last in both if first < at <= last]
        return any(
            first <= at <= last
            and line < at
            and not line < here < at
            and all(begin < line <= end for begin, end in both)
            for line, first, last in self.assignments[name]
            if not here <= line <= lines_of(loop)[1]
        )

    def is_within(self, name: str, loop: ast.For) -> bool:
        """Whether memory is named in a loop alone."""
        first, last = lines_of(loop)
        return all(first <= at <= last for at in self.reads[name])
