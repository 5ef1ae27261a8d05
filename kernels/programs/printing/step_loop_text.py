"""Loops of the program as native source: over all steps, in blocks of steps, or as far as their guards let them go.

Of loop 3 ``k3`` is the step, ``b3`` the block, ``j3`` the step in it, ``e3`` and ``o3`` which of two rows are this
step's and the next's. Behind a loop that was recorded ``m3`` is how many steps it took, ``full3`` how many blocks that
is, ``h3`` the block that was begun last, and ``row3`` and ``y3`` the rows of what it carries.
"""

from __future__ import annotations

from collections.abc import Callable

from kernels.programs.differentiating.regions import Region
from kernels.programs.differentiating.storage import Storage
from kernels.programs.expanding.scalar_program import LEAVE_ALL, Address, Check, StepLoop, walk
from kernels.programs.fusing.scalar_rules import BOOL
from kernels.programs.parts.source_lines import INDENT
from kernels.programs.printing.source_text import Text

Step = Callable[[StepLoop], None]
"""What prints one step."""
LEFT = "left_all"
"""The variable that says whether a loop is left from within another."""
_MOST = "4.0e18"
"""Iterations beyond which there is no number of them."""


class StepLoopText:
    """Prints loops around their steps."""

    def __init__(self, text: Text, storage: Storage) -> None:
        self.text, self.storage = text, storage

    def forward(self, item: StepLoop, step: Step) -> None:
        """Print a loop."""
        depth = self.text.depth
        is_left = _is_left(item)
        if is_left:
            self.text.put(f"{LEFT} = 0")
        if item.loop.ends is not None:
            self._recorded(item, step)
        elif item.loop.number in self.storage.blocks:
            self._in_blocks(item)
            step(item)
        else:
            self._put_first_rows(item)
            self.text.opened(f"for {item.index} in range({self.storage.steps_of(item.loop)}):")
            step(item)
        self.text.depth = depth
        if is_left:
            self.text.put(f"if {LEFT} != 0:", f"{INDENT}break")

    def backward(self, item: StepLoop, less: int, again: Step, back: Step) -> None:
        """Print a loop from the last step, or so many before, down: ``again`` prints steps that run anew."""
        depth, n = self.text.depth, item.loop.number
        block = self.storage.blocks.get(n)
        if n in self.storage.within:
            self.text.opened(f"for {item.index} in range(m{n} - {1 + less}, -1, -1):")
            self.text.put(f"row{n} -= 1")
        elif block is None:
            self.text.opened(f"for {item.index} in range({self.storage.steps_of(item.loop, 1 + less)}, -1, -1):")
        elif item.loop.ends is not None:
            self.text.opened(f"for b{n} in range(full{n} - 1, -1, -1):")
            self._run_anew(item, f"b{n} != h{n}", again)
            self._steps_of_block(item, f"{block} if b{n} < full{n} - 1 else m{n} - {block} * b{n}")
        else:
            last = -(-item.loop.count // block) - 1
            self.text.opened(f"for b{n} in range({last}, -1, -1):")
            self._run_anew(item, f"b{n} < {last}", again)
            self._steps_of_block(item, f"{block} if b{n} < {last} else {item.loop.count - less - block * last}")
        back(item)
        self.text.depth = depth

    def at_last(self, item: StepLoop) -> None:
        """Print what makes the last step the present one; of a recorded loop in others, if there is any."""
        n = item.loop.number
        if n in self.storage.within:
            self.text.opened(f"if m{n} > 0:")
            self.text.put(f"{item.index} = m{n} - 1", f"row{n} -= 1")
            return
        block = self.storage.blocks.get(n)
        self.text.put(f"{item.index} = {self.storage.steps_of(item.loop, 1)}")
        self.text.put(*[] if block is None else [f"j{n} = {(item.loop.count - 1) % block}"])

    def _in_blocks(self, item: StepLoop) -> None:
        """Print the heads of a loop over blocks, and of that over a block's steps."""
        n, count = item.loop.number, item.loop.count
        block = self.storage.blocks[n]
        blocks = -(-count // block)
        self.text.opened(f"for b{n} in range({blocks}):")
        self._begin_block(item)
        self.text.opened(f"for j{n} in range({block} if b{n} < {blocks - 1} else {count - block * (blocks - 1)}):")
        self.text.put(f"{item.index} = {block} * b{n} + j{n}")

    def _recorded(self, item: StepLoop, step: Step) -> None:
        """Print a loop that goes on until a guard misses, or its number of steps is reached."""
        text, n = self.text, item.loop.number
        block, is_within = self.storage.blocks.get(n), n in self.storage.within
        full = [f"if row{n} >= {self.storage.within.get(n)}:", f"    return {giving_up(self.storage)}"]
        self._put_limit(item)
        text.put(f"m{n} = 0", *[f"row{n} += 1", *full] if is_within else [f"row{n} = 0"])
        if block is not None:
            text.put(f"b{n} = -1", f"j{n} = {block}", f"full{n} = 0")
        text.opened(f"while m{n} < l{n}:")
        text.put(f"{item.index} = m{n}", *full if is_within else [])
        if block is not None:
            text.opened(f"if j{n} == {block}:")
            text.put(f"b{n} += 1")
            text.put(f"if b{n} == {item.loop.count // block}:", f"    return {giving_up(self.storage)}")
            self._begin_block(item)
            text.depth -= 1
        step(item)
        text.put(f"m{n} = {item.index} + 1", *[f"row{n} += 1"] if is_within else [])
        if block is not None:
            text.put(f"j{n} += 1", f"row{n} = j{n}", f"full{n} = b{n} + 1")
        text.depth -= 1
        text.put(which_row(item))
        if block is not None:
            text.put(f"h{n} = b{n}")

    def _put_limit(self, item: StepLoop) -> None:
        """Print the most steps of a recorded loop; the program gives up where they are no number."""
        n, limit = item.loop.number, item.limit
        if limit.isdecimal():
            self.text.put(f"l{n} = {limit}")
            return
        self.text.put(f"if not ({limit} > -{_MOST} and {limit} < {_MOST}):", f"    return {giving_up(self.storage)}")
        self.text.put(f"l{n} = int({limit})")

    def _run_anew(self, item: StepLoop, where: str, again: Step) -> None:
        """Print what runs the steps of a block again, where that is needed."""
        n = item.loop.number
        block = self.storage.blocks[n]
        self.text.opened(f"if {where}:")
        self._resume_block(item)
        self.text.opened(f"for j{n} in range({block}):")
        self.text.put(f"{item.index} = {block} * b{n} + j{n}")
        again(item)
        self.text.depth -= 2

    def _steps_of_block(self, item: StepLoop, count: str) -> None:
        """Print the head of a loop over a block's steps, the last first."""
        n = item.loop.number
        self.text.put(f"left{n} = {count}")
        self.text.opened(f"for j{n} in range(left{n} - 1, -1, -1):")
        self.text.put(f"{item.index} = {self.storage.blocks[n]} * b{n} + j{n}")

    def _begin_block(self, item: StepLoop) -> None:
        """Print what keeps the state of a loop at the begin of a block, in the first row of histories, too."""
        n = item.loop.number
        self._at_begin(item)
        for key, region in self.storage.checkpoints[n].items():
            if isinstance(key, str):
                self.text.put(f"{region.name}[b{n}] = {key}")
                continue
            elements, now = self._row(key, region)
            if n in self.storage.homes[self.storage.adjoint.home(key)].blocked:
                before = f"{now.removesuffix(']')} + {self.storage.blocks[n] * elements}]"
                self.text.opened(f"if b{n} > 0:")
                self.text.each(elements, f"{now} = {before}")
                self.text.depth -= 1
            self.text.each(elements, f"{region.name}[{elements} * b{n} + i] = {now}")

    def _resume_block(self, item: StepLoop) -> None:
        """Print what brings back the state at the begin of a block."""
        n = item.loop.number
        self._at_begin(item)
        for key, region in self.storage.checkpoints[n].items():
            if isinstance(key, str):
                kept = f"{region.name}[b{n}]"
                self.text.put(f"{key} = {f'({kept} != 0)' if region.dtype == BOOL else kept}")
                continue
            elements, now = self._row(key, region)
            self.text.each(elements, f"{now} = {region.name}[{elements} * b{n} + i]")

    def _at_begin(self, item: StepLoop) -> None:
        n = item.loop.number
        self.text.put(f"{item.index} = {self.storage.blocks[n]} * b{n}", *parities(item), f"j{n} = 0")
        self._put_first_rows(item)  # counted anew in each block

    def _put_first_rows(self, item: StepLoop) -> None:
        """Print where the rows of recorded loops begin that are within an outermost one."""
        inner = [part.loop.number for _, part in walk(item.body) if isinstance(part, StepLoop)]
        self.text.put(*[f"row{n} = -1" for n in inner if n in self.storage.within and item.loop.parent < 0])

    def _row(self, value: int, region: Region) -> tuple[int, str]:
        """Return the elements of a value in memory, and the i-th of the present step as text."""
        element = self.storage.element(self.storage.ith(Address(value, 0)))
        return self.storage.bytes_of(value) // region.dtype.itemsize, element


def _is_left(item: StepLoop) -> bool:
    """Whether a guard in a loop ends that around it, too."""
    if item.loop.ends is not None and not item.loop.ends.counted:
        return False
    checks = [part for part in item.body.items if isinstance(part, Check)]
    inner = [part for part in item.body.items if isinstance(part, StepLoop)]
    return any(check.number == LEAVE_ALL for check in checks) or any(_is_left(loop) for loop in inner)


def parities(item: StepLoop) -> list[str]:
    """Return the lines that say which of two rows a step has, and which the next."""
    n = item.loop.number
    return [f"e{n} = {item.index} & 1", f"o{n} = 1 - e{n}"]


def which_row(item: StepLoop) -> str:
    """Return the line that says which of two rows the end of a recorded loop has."""
    return f"y{item.loop.number} = m{item.loop.number} & 1"


def giving_up(storage: Storage) -> str:
    """Return what a program returns that gives up, as text: the number of its guards."""
    counted = [loop for loop in storage.counted if loop.guards]
    others = len(storage.program.guards) - sum(loop.count * loop.guards for loop in counted)
    return " + ".join([str(others), *[f"{loop.guards} * count{loop.number}" for loop in counted]])
