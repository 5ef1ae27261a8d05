"""A loop of a printed program as native functions that run a part of it, and the lines that call them."""

from __future__ import annotations

import ast
from typing import NamedTuple

from kernels.programs.parts.printed_loops import PrintedLoop

IMPORTS = "\nfrom kernels.native.memory import call_at, double_of, local_b1, local_f4, local_f8, local_i8"
"""What a program with loops in parts imports besides."""
STARTS = {"added": "-0.0", "greater": "(-math.inf)"}
"""What sums and maxima start from."""
_FUNCTIONS = """

def {loop}({parameters}):
{body}


def {part}(table: Word, part: Word, unused: Word, unused_too: Word) -> Word:
{begin}    low = {first} + {size} * {number}
    high = min(low + {size}, {stop})
    {loop}({arguments})
    return 0
"""


class Memory(NamedTuple):
    """Memory of a pointer: how many elements of ``f8``, ``f4``, ``b1`` or ``i8``, and whether it is workspace."""

    name: str
    kind: str
    count: int
    is_work: bool


class Cut(NamedTuple):
    """How a loop is cut: how many parts of how many steps, and whether each second one is run first."""

    parts: int
    size: int
    alternate: bool
    local: list[str]
    """Memory that each step has for itself."""
    summed: dict[str, str]
    """Memory that steps add to wherever they are, and how: each part has its own."""


class PartText:
    """Parameters, arguments and lines of the functions of one loop; ``words`` are those of the table they read.

    ``sizes``: a pointer to integers, "" if there is none, that both functions have before all else.
    """

    def __init__(self, number: int, loop: PrintedLoop, cut: Cut, sizes: str = "") -> None:
        self.number, self.loop, self.cut = number, loop, cut
        self.names: list[str] = []
        self.arguments: list[str] = []
        self.words = ["0"]
        """The first says, of each second part, which ones are run."""
        self.body: list[str] = []
        """Lines before the loop."""
        self.ends: list[str] = []
        """Lines behind it."""
        self.after: list[str] = []
        """Lines of the program behind the call."""
        self._begin = ""
        if sizes:
            self._begin = f"    {sizes} = pointer_i8(load_i8(table + {8 * len(self.words)}))\n"
            self._pass(sizes, f"begin_of({sizes})", sizes)
        self._part = "(2 * part + load_i8(table))" if cut.alternate else "part"

    def value(self, name: str, packed: str, unpacked: str) -> None:
        """Pass a variable as a word."""
        self._pass(name, packed.format(name), unpacked)

    def _pass(self, name: str, word: str, argument: str) -> None:
        self.names.append(name)
        self.arguments.append(argument.format(f"load_i8(table + {8 * len(self.words)})"))
        self.words.append(word)

    def integer(self, name: str) -> None:
        """Pass an integer."""
        self._pass(name, name, "{}")

    def pointer(self, memory: Memory) -> None:
        """Pass memory."""
        self._pass(memory.name, f"begin_of({memory.name})", f"pointer_{memory.kind}({{}})")

    def local(self, memory: Memory) -> None:
        """Let each part have memory of its own, instead of some."""
        self.names.append(memory.name)
        self.arguments.append(f"local_{memory.kind}({1 << (memory.count - 1).bit_length()})")  # for all sizes near it

    def summed(self, memory: Memory, parts: str, how: str) -> None:
        """Let each part have sums of its own, in ``parts``, which are then added to memory."""
        count = memory.count
        self._pass(memory.name, f"begin_of({parts})", f"pointer_f8({{}} + {8 * count} * {self._part})")
        self.body += [f"for i in range({count}):", f"    {memory.name}[i] = {STARTS[how]}"]
        element = f"{parts}[{count} * part + i]"
        both = f"{{0}} = accumulators.greater({{0}}, {element})" if how == "greater" else f"{{0}} += {element}"
        self.after += [
            f"for part in range({self.cut.parts}):",
            f"    for i in range({count}):",
            "        " + both.format(f"{memory.name}[i]"),
        ]

    def totals(self, parts: str) -> None:
        """Let each part have totals of its own, in ``parts``, which are then added."""
        sums = self.loop.sums
        self._pass(parts, f"begin_of({parts})", f"pointer_f8({{}} + {8 * len(sums)} * {self._part})")
        self.body += [f"{name} = {STARTS[how]}" for name, how in sums.items()]
        self.ends += [f"{parts}[{k}] = {name}" for k, name in enumerate(sums)]
        self.after.append(f"for part in range({self.cut.parts}):")
        for k, (name, how) in enumerate(sums.items()):
            self.after.append(f"    {name} = accumulators.{how}({name}, {parts}[{len(sums)} * part + {k}])")

    def functions(self, body: list[str]) -> str:
        """Return the functions as text; ``body`` are the lines in the loop, as deep as that."""
        assert isinstance(self.loop.loop.target, ast.Name)
        head = f"for {self.loop.loop.target.id} in range(low, high):"
        return _FUNCTIONS.format(
            loop=f"loop{self.number}",
            part=f"part{self.number}",
            begin=self._begin,
            parameters=", ".join([*self.names, "low", "high"]),
            body="\n".join(f"    {line}" for line in [*self.body, head, *body, *self.ends]),
            first=self.loop.range[0],
            stop=self.loop.range[1] + 1,
            size=self.cut.size,
            number=self._part,
            arguments=", ".join([*self.arguments, "low", "high"]),
        )

    def call(self, table: str) -> list[str]:
        """Return the lines of the program that run all parts."""
        run = f"call_at(parts[1], parts[0], parts[{2 + self.number}], begin_of({table}), "
        parts = self.cut.parts
        calls = [f"{run}{parts})"]
        if self.cut.alternate:
            calls = [f"{run}{-(-parts // 2)})", f"{table}[0] = 1", f"{run}{parts // 2})"]
        return [*[f"{table}[{k}] = {word}" for k, word in enumerate(self.words)], *calls, *self.after]
