"""Large loops of a printed program whose steps are independent, cut into parts that several threads may run.

The parts are those of the text: how many there are, and what each adds up to, does not depend on the threads. Where
steps add to elements that others add to, not far away, each second part is run first, then those between.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from kernels.compiler.variables import statements_in
from kernels.programs.parts.affine_indices import apart
from kernels.programs.parts.part_text import STARTS, Cut, Memory, PartText
from kernels.programs.parts.printed_loops import HEAD, DependentError, Element, Known, PrintedLoop
from kernels.programs.parts.variable_uses import VariableUses, lines_of
from kernels.threads.thread_structs import MOST_PARTS
from kernels.threads.workers import WORKERS

LARGE, GRAIN = 1 << 20, 1 << 17
"""What a loop costs, in additions of vectors' elements, from which on it is cut, and a part: some tens of microseconds,
or of loops that are all in registers and caches some ten."""
_VECTORS = 64
"""Elements that a part of an innermost loop has a multiple of: no vector is cut."""
_PAIRS = 4_000
"""Pairs of elements that are compared, at most."""
_LOCAL = 1 << 12
"""Elements of workspace that a part may have on the stack."""
_SUMMED = 64
"""What a part costs, at least, for each element of the memory that it has for sums."""
_FEW = 1 << 12
_AS_WORDS = {
    "f8": ("bits_of({})", "double_of({})"),
    "f4": ("bits_of(np.float64({}))", "np.float32(double_of({}))"),
    "b1": ("bits_of({})", "({} != 0)"),
    "i8": ("{}", "{}"),
}
"""How a variable is passed as a word, and what it is of the word."""


class LoopsInParts:
    """The lines of a program in which large loops are calls of ``functions``, by addresses in ``parts``.

    ``memory`` is what the program's pointers point at; ``add`` adds some, of a kind, to the workspace, and returns its
    name. ``kind_of`` says what a variable is, ``f8``, ``f4``, ``b1`` or ``i8``; ``sizes`` is a pointer that the
    functions begin with.
    """

    def __init__(
        self,
        lines: list[str],
        memory: Iterable[Memory],
        kind_of: Callable[[str], str],
        add: Callable[[str, int], str],
        sizes: str = "",
    ) -> None:
        self.lines, self.add, self.kind_of, self.sizes = lines, add, kind_of, sizes
        self.memory = {each.name: each for each in memory}
        self.functions: list[str] = []
        self._replaced: list[tuple[int, int, list[str]]] = []
        if _has_large(lines) and WORKERS.native is not None:
            tree = ast.parse("def program():\n" + "\n".join(lines)).body[0]
            assert isinstance(tree, ast.FunctionDef)
            self._uses = VariableUses(tree.body)
            self._block(tree.body, Known(), [])
        for first, last, instead in reversed(self._replaced):
            self.lines = [*self.lines[:first], *instead, *self.lines[last:]]

    @property
    def words(self) -> int:
        """How many words the lines call functions by."""
        return 2 + len(self.functions) if self.functions else 0

    def addresses(self, module: Any) -> list[int]:
        """Return these words: what runs the functions, and those of a module."""
        if not self.functions:
            return []
        functions = [getattr(module, f"part{k}").address for k in range(len(self.functions))]
        return [WORKERS.address, WORKERS.native.run.address, *functions]

    def _block(self, statements: list[ast.stmt], known: Known, around: list[ast.For]) -> None:
        for node in statements:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    known.assign(name, value)
                case ast.For():
                    if not self._cut(node, known, around):
                        self._inside(node, known, around)
                    known.forget(node)
                case _:
                    known.forget(node)

    def _inside(self, node: ast.For, known: Known, around: list[ast.For]) -> None:
        """Look for loops in the body of one that is not cut."""
        assert isinstance(node.target, ast.Name)
        known.forget(node)
        try:
            known.begin(node)
        except DependentError:
            known.variable(node.target.id, None)  # a step of the program, of as many as a constant says
        self._block(node.body, known, [*around, node])

    def _cut(self, node: ast.For, known: Known, around: list[ast.For]) -> bool:
        """Cut a loop into parts, if that may be and is worth it; return whether it was."""
        assert isinstance(node.target, ast.Name)
        if node.target.id[0] != "i":
            return False
        try:
            loop = PrintedLoop(node, known.copy())
            cut = self._parts_of(loop, around)
        except DependentError:
            return False
        if cut is not None:
            self._print(loop, cut, known)
        return cut is not None

    def _parts_of(self, loop: PrintedLoop, around: list[ast.For]) -> Cut | None:
        total = loop.work * loop.count
        if total < LARGE or any(self._uses.outlives(name, loop.loop, around) for name in loop.plain & loop.written):
            return None
        by_name: dict[str, list[Element]] = {}
        for element in loop.elements:
            by_name.setdefault(element.name, []).append(element)
        fixed = {
            name: {element.how for element in elements}
            for name, elements in by_name.items()
            if all(e.index is not None and e.index.step(loop.index) == 0 for e in elements)
        }
        local = self._local(loop, fixed)
        summed = {
            name: min(hows) for name, hows in fixed.items() if len(hows) == 1 and hows < {*STARTS} and name not in local
        }
        distance = self._distance(loop, {*local, *summed})
        elements = sum(self.memory[name].count for name in summed)
        most = min(MOST_PARTS, total // GRAIN, total // (_SUMMED * elements) if elements else MOST_PARTS)
        size = -(-loop.count // max(1, most))
        if not any(isinstance(part, ast.For) for part in statements_in(loop.loop.body)):
            size += -size % _VECTORS
        size = max(size, distance)
        parts = -(-loop.count // size)
        return Cut(parts, size, distance > 0, local, summed) if parts > 1 + (distance > 0) else None

    def _local(self, loop: PrintedLoop, fixed: dict[str, set[str]]) -> list[str]:
        """Return the workspace whose elements each step writes before it reads them: other steps do without."""
        local = [name for name in fixed if self.memory[name].is_work and self._uses.is_within(name, loop.loop)]
        return local if sum(self.memory[name].count for name in local) <= _LOCAL else []

    def _distance(self, loop: PrintedLoop, but: set[str]) -> int:
        """Return how many steps are at most between two that add to one element; DependentError for other elements."""
        written = [element for element in loop.elements if element.how != "read" and element.name not in but]
        pairs = [(a, b) for a in written for b in loop.elements if a.name == b.name]
        if len(pairs) > _PAIRS:
            raise DependentError("many elements")
        largest = 0
        for a, b in pairs:
            if a.index is None or b.index is None:
                raise DependentError("an index")
            distance = apart(a.index, b.index, loop.index, loop.private, loop.known.ranges)
            if distance is None or (distance > 0 and (a.how != b.how or a.how not in STARTS)):
                raise DependentError("elements of other steps")
            largest = max(largest, distance)
        return largest

    def _print(self, loop: PrintedLoop, cut: Cut, known: Known) -> None:
        """Replace a loop by a call, and print the functions that it calls."""
        text = PartText(len(self.functions), loop, cut, self.sizes)
        for name in dict.fromkeys([element.name for element in loop.elements]):
            memory = self.memory[name]
            if name in cut.local:
                text.local(memory)
            elif name in cut.summed:
                text.summed(memory, self.add("f8", cut.parts * memory.count), cut.summed[name])
            else:
                text.pointer(memory)
        for name in loop.outer:
            if self._literal(name):
                text.body.append(f"{name} = {self._literal(name)}")
            elif known.is_integer(name):
                text.integer(name)
            else:
                text.value(name, *_AS_WORDS[self.kind_of(name)])
        if loop.sums:
            text.totals(self.add("f8", cut.parts * len(loop.sums)))
        first, last = lines_of(loop.loop)
        indent = loop.loop.col_offset
        body = [line[indent:] for line in self.lines[first - 1 : last - 1]]
        self.functions.append(text.functions(body))
        table = self.add("i8", len(text.words))
        self._replaced.append((first - 2, last - 1, [" " * indent + line for line in text.call(table)]))

    def _literal(self, name: str) -> str:
        """Return the number that a variable is throughout the program; "" of others."""
        places = self._uses.assignments[name]
        if len(places) != 1:
            return ""
        text = self.lines[places[0].line - 2].strip()
        match = re.fullmatch(rf"{name} = (\(?-?\d+\.\d+(?:e[-+]?\d+)?\)?)", text)
        return match[1] if match else ""


def _has_large(lines: list[str]) -> bool:
    """Whether some loops around each other have many steps."""
    open_: list[tuple[int, int]] = []
    for line in lines:
        match = HEAD.match(line)
        if match is None:
            continue
        depth, steps = len(match[1]), int(match[4]) - int(match[3] or 0)
        while open_ and open_[-1][0] >= depth:
            open_.pop()
        open_.append((depth, steps * (open_[-1][1] if open_ else 1)))
        if open_[-1][1] >= _FEW:
            return True
    return False
