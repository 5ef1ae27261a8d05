"""What a loop of a printed program reads and writes: elements of memory by their indices, and variables."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from kernels.compiler.variables import names_written
from kernels.programs.parts.affine_indices import Affine, Range, affine_of, hull

HEAD = re.compile(r"( *)for (i\w*) in \w+\((?:(\d+), )?(\d+)\):")
"""The head of a loop over elements: its depth, its index, where it begins, if not at 0, and where it ends."""
_PLAIN = {"abs", "bits_of", "float", "max", "min"}
_COSTS, _DIVISION, _ELEMENT = {"accumulators": 1, "math": 8, "np": 4, "vectormath": 32}, 8, 4
"""What calls of functions of a module cost, a division, and an element of memory, in additions."""


class DependentError(Exception):
    """The steps of a loop cannot be told apart."""


class Element(NamedTuple):
    """An element of memory that is ``read``, ``written``, ``added`` to, or the ``greater`` of itself and another.

    ``index`` is None where it is looked up.
    """

    name: str
    index: Affine | None
    how: str


class Known:
    """What is known of integers at a place of the program: what they are, and between which bounds."""

    def __init__(self) -> None:
        self.values: dict[str, Affine | None] = {}
        self.ranges: dict[str, Range] = {}
        self.variables: set[str] = set()

    def variable(self, name: str, range_: Range | None) -> None:
        """Let a name be an integer between bounds, which other integers are multiples of."""
        fresh = f"{name}.{len(self.variables)}"
        self.variables.add(fresh)
        self.values[name] = Affine(0, ((fresh, 1),))
        if range_ is not None:
            self.ranges[fresh] = range_

    def copy(self) -> Known:
        """Return another that knows the same."""
        other = Known()
        other.values, other.ranges, other.variables = {**self.values}, {**self.ranges}, {*self.variables}
        return other

    def forget(self, node: ast.stmt) -> None:
        """Know nothing of what is assigned in a loop or a branch."""
        for name in names_written(node):
            self.values.pop(name, None)

    def is_integer(self, name: str) -> bool:
        """Whether a name is an integer."""
        return self.values.get(name) is not None

    def assign(self, name: str, value: ast.expr) -> None:
        """Let a name be what an expression is."""
        index = affine_of(value, self.values)
        if index is None and isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd):
            self.variable(name, (0, 1))  # which of two rows
        elif index is None and isinstance(value, ast.IfExp):
            parts = [affine_of(part, self.values) for part in (value.body, value.orelse)]
            hulls = [None if part is None else hull(part, self.ranges) for part in parts]
            if None in parts:
                self.values[name] = None
            else:
                ends = [end for ends in hulls if ends is not None for end in ends]
                self.variable(name, (min(ends), max(ends)) if None not in hulls else None)
        elif index is None and (name[0] == "n" or name.startswith("count")):  # looked up
            self.variable(name, None)
        else:
            self.values[name] = index

    def begin(self, loop: ast.For) -> Range:
        """Let the index of a loop be one of its range; DependentError where that is not known."""
        assert isinstance(loop.iter, ast.Call)
        assert isinstance(loop.target, ast.Name)
        parts = [affine_of(part, self.values) for part in loop.iter.args]
        hulls = [None if part is None else hull(part, self.ranges) for part in parts]
        if None in hulls:
            raise DependentError("a range")
        bounds = [ends for ends in hulls if ends is not None]
        if len(bounds) > 2:  # noqa: PLR2004 (backward)
            range_ = bounds[1][0] + 1, bounds[0][1]
        else:
            range_ = (0 if len(bounds) == 1 else bounds[0][0]), bounds[-1][1] - 1
        self.variable(loop.target.id, range_)
        return range_


class PrintedLoop:
    """One loop: its elements and variables, in the order of a step. DependentError where it does what no part may.

    ``read`` are variables that are read, ``outer`` those of them that come from outside; ``carried`` are variables that
    a step reads from the one before, in the sums ``sums``.
    """

    def __init__(self, loop: ast.For, known: Known) -> None:
        self.loop, self.known = loop, known
        self.range = known.begin(loop)
        assert isinstance(loop.target, ast.Name)
        value = known.values[loop.target.id]
        assert value is not None
        self.index = value.terms[0][0]
        before = known.variables - {self.index}
        self.elements: dict[Element, None] = {}
        self.written = names_written(loop)
        self.assigned = {loop.target.id}
        self.read: dict[str, None] = {}
        self.sums: dict[str, str] = {}
        self.plain: set[str] = set()
        """Variables that are more than sums."""
        self.work = self._body(loop.body)
        self.private = known.variables - before
        if self.sums.keys() & self.plain:
            raise DependentError("a sum that is read")

    @property
    def count(self) -> int:
        """How many steps it has."""
        return self.range[1] + 1 - self.range[0]

    @property
    def outer(self) -> list[str]:
        """Variables that are read, and come from outside."""
        return [name for name in self.read if name not in self.written]

    def _body(self, statements: list[ast.stmt]) -> int:
        """Go through statements; return what they cost."""
        return sum(self._statement(statement) for statement in statements)

    def _statement(self, node: ast.stmt) -> int:
        match node:
            case ast.Assign(targets=[target], value=value):
                cost = self._assignment(target, value)
            case ast.AugAssign(target=target, op=ast.Add(), value=value):
                cost = self._addition(target, value)
            case ast.For():
                cost = self._loop(node)
            case ast.If():
                cost = self._branches(node)
            case ast.Pass():
                cost = 0
            case _:
                raise DependentError(ast.unparse(node))
        return cost

    def _assignment(self, target: ast.expr, value: ast.expr) -> int:
        if isinstance(target, ast.Subscript):
            match value:
                case ast.Call(func=ast.Attribute(attr="greater"), args=[ast.Subscript() as same, term]):
                    if ast.dump(same.slice) == ast.dump(target.slice) and ast.dump(same.value) == ast.dump(
                        target.value
                    ):
                        return 1 + self._expression(term) + self._element(target, "greater")
            return self._expression(value) + self._element(target, "written")
        assert isinstance(target, ast.Name)
        if self._is_sum(target.id, value):
            assert isinstance(value, ast.Call)
            return 1 + self._expression(value.args[1])
        cost = self._expression(value)
        self.known.assign(target.id, value)
        self.assigned.add(target.id)
        self.plain.add(target.id)
        return cost

    def _is_sum(self, name: str, value: ast.expr) -> bool:
        """Whether a value is that of the step before, and one more term."""
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="accumulators"), attr=how), args=[ast.Name(id=same), _]):
                if same != name or name in self.assigned:
                    return False
                if self.sums.setdefault(name, how) != how:
                    raise DependentError("a sum of two kinds")
                return True
        return False

    def _addition(self, target: ast.expr, value: ast.expr) -> int:
        if isinstance(target, ast.Subscript):
            return 1 + self._expression(value) + self._element(target, "added")
        assert isinstance(target, ast.Name)
        self._name(target.id)
        self.known.values.pop(target.id, None)
        return 1 + self._expression(value)

    def _loop(self, node: ast.For) -> int:
        assert isinstance(node.target, ast.Name)
        assert isinstance(node.iter, ast.Call)
        for part in node.iter.args:
            self._expression(part)
        self.known.forget(node)
        low, high = self.known.begin(node)
        before = {*self.assigned}
        self.assigned.add(node.target.id)
        cost = self._body(node.body)
        if not (all(isinstance(part, ast.Constant) for part in node.iter.args) and high >= low):
            self.assigned = before
        self.known.forget(node)
        return cost * max(0, high + 1 - low)

    def _branches(self, node: ast.If) -> int:
        cost = self._expression(node.test)
        before, after = {*self.assigned}, []
        for branch in (node.body, node.orelse):
            self.assigned = {*before}
            cost += self._body(branch)
            after.append(self.assigned)
        self.assigned = after[0] & after[1]
        self.known.forget(node)
        return cost

    def _name(self, name: str) -> None:
        """Look at a variable that is read."""
        if name in self.written and name not in self.assigned:
            raise DependentError(f"{name} of the step before")
        self.read[name] = None
        self.plain.add(name)

    def _element(self, node: ast.Subscript, how: str) -> int:
        assert isinstance(node.value, ast.Name)
        self._expression(node.slice)
        self.elements[Element(node.value.id, affine_of(node.slice, self.known.values), how)] = None
        return _ELEMENT

    def _expression(self, node: ast.expr) -> int:
        """Look at what an expression reads; return what it costs."""
        match node:
            case ast.Constant() | ast.Name(id="MINUS_ZERO") | ast.Attribute(value=ast.Name(id="math" | "np")):
                cost = 0
            case ast.Name(id=name):
                self._name(name)
                cost = 0
            case ast.Subscript():
                cost = self._element(node, "read")
            case ast.Call(func=function, args=args):
                cost = _cost(function) + sum(map(self._expression, args))
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
                parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
                divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Pow)
                cost = (_DIVISION if divides else 1) + sum(map(self._expression, parts))
            case _:
                raise DependentError(ast.unparse(node))
        return cost


def _cost(function: ast.expr) -> int:
    """Return what calling a function costs; DependentError for one that does more than compute."""
    match function:
        case ast.Attribute(value=ast.Name(id=module)) if module in _COSTS:
            return _COSTS[module]
        case ast.Name(id=name) if name in _PLAIN:
            return 1
    raise DependentError(ast.unparse(function))
