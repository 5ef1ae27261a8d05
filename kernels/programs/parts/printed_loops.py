"""What a loop of a printed program reads and writes: elements of memory by their indices, and variables."""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from kernels.language.lanes import names_written, nodes_in, reads_in

# The lines of a printed program: how deep they stand, and which of them are a statement outside of all others.

INDENT = "    "
_GOES_ON = f"{INDENT} ", f"{INDENT}else:", f"{INDENT}elif "


def outermost(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each outermost statement."""
    statement: list[str] = []
    for line in lines:
        if statement and not line.startswith(_GOES_ON):
            yield statement
            statement = []
        statement.append(line)
    if statement:
        yield statement


# Where a printed program reads and assigns variables: whether one is read behind a loop that assigns it.


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


# Indices that are sums of multiples of bounded integers, and in which steps of a loop two of them can be equal.

Range: TypeAlias = tuple[int, int]
"""The least and the largest value."""
Variable: TypeAlias = tuple[int, Range]
"""A multiple, and what of."""
_MOST = 4_000
"""How many values are tried to find where two indices are equal."""


class Affine(NamedTuple):
    """A number, and multiples of variables by their names, sorted."""

    constant: int
    terms: tuple[tuple[str, int], ...] = ()

    def plus(self, other: Affine, times: int = 1) -> Affine:
        """Return the sum of this and a multiple of another."""
        terms = dict(self.terms)
        for name, step in other.terms:
            terms[name] = terms.get(name, 0) + times * step
        return Affine(
            self.constant + times * other.constant, tuple(sorted((n, step) for n, step in terms.items() if step))
        )

    def step(self, name: str) -> int:
        """Return the multiple of a variable."""
        return dict(self.terms).get(name, 0)


def affine_of(node: ast.expr, known: dict[str, Affine | None]) -> Affine | None:
    """Return what an expression is, where it is affine in what is known of names."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            index: Affine | None = Affine(value)
        case ast.Name(id=name):
            index = known.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            index = _multiple(affine_of(operand, known), -1)
        case ast.BinOp(left=ast.Constant(value=int(times)), op=ast.Mult(), right=right):
            index = _multiple(affine_of(right, known), times)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
            first, second = affine_of(left, known), affine_of(right, known)
            times = 1 if isinstance(sign, ast.Add) else -1
            index = None if first is None or second is None else first.plus(second, times)
        case _:
            index = None
    return index


def _multiple(index: Affine | None, times: int) -> Affine | None:
    return None if index is None else Affine(0).plus(index, times)


def hull(index: Affine, ranges: dict[str, Range]) -> Range | None:
    """Return what values an index has; None where a variable has no bounds."""
    low = high = index.constant
    for name, step in index.terms:
        if name not in ranges:
            return None
        ends = [step * end for end in ranges[name]]
        low, high = low + min(ends), high + max(ends)
    return low, high


def apart(first: Affine, second: Affine, loop: str, private: set[str], ranges: dict[str, Range]) -> int | None:
    """Return how many steps of a loop are at most between two in which the indices are equal; 0 where it is one step.

    ``private`` are variables that each step has of its own. None where that is not known.
    """
    step = first.step(loop)
    if second.step(loop) != step or loop not in ranges:
        return None
    variables: list[Variable] = []
    constant = second.constant - first.constant
    names = {name for name, _ in (*first.terms, *second.terms)} - {loop}
    for name in sorted(names):
        a, b = first.step(name), second.step(name)
        if name not in ranges:
            if name in private or a != b:
                return None
            continue
        low, high = ranges[name]
        if name not in private:
            variables.append((b - a, (low, high)))
        elif a == b:
            variables.append((a, (low - high, high - low)))
        else:
            variables += [(-a, (low, high)), (b, (low, high))]
    variables = [variable for variable in variables if variable[0]]
    count = ranges[loop][1] - ranges[loop][0]
    try:
        if step == 0:
            return count if _distances(constant, variables, None) else 0
        return max(_distances(constant, variables, (step, (-count, count))), default=0)
    except OverflowError:
        return None


def _distances(constant: int, variables: list[Variable], distance: Variable | None) -> set[int]:
    """Return at which distances a sum of multiples is 0, {0} of one without it; OverflowError if that takes long."""
    distances = set[int]()
    sized = sorted([(v, False) for v in variables] + ([(distance, True)] if distance else []), key=_size)
    spreads = [sum(-_size(pair) * max(map(abs, pair[0][1])) for pair in sized[k + 1 :]) for k in range(len(sized))]
    left = _MOST

    def descend(k: int, rest: int, steps: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OverflowError
        if k == len(sized):
            if rest == 0:
                distances.add(steps)
            return
        (times, (low, high)), is_distance = sized[k]
        ends = (-rest - spreads[k]) / times, (-rest + spreads[k]) / times
        for value in range(max(low, math.ceil(min(ends))), min(high, math.floor(max(ends))) + 1):
            descend(k + 1, rest + times * value, abs(value) if is_distance else steps)

    descend(0, constant, 0)
    return distances


def _size(variable: tuple[Variable, bool]) -> int:
    """Return what sorts large multiples first."""
    return -abs(variable[0][0])


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
