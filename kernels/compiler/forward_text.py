"""The forward pass of a scalar program as native source."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.compiler import scalar_program as scalar
from kernels.compiler.adjoint import KeptValues
from kernels.compiler.compiled_code import LEAST, ProgramText
from kernels.compiler.scalar_program import walk
from kernels.compiler.statements import BOOL, FLOAT32, INT32, LARGER_INTEGER, LARGEST_INTEGER, CalledKernel, PrintedCall
from kernels.compiler.storage import Element, Region, Storage

# Loops of the program as native source: over all steps, in blocks of steps, or as far as their guards let them go.
#
# Of loop 3 ``k3`` is the step, ``b3`` the block, ``j3`` the step in it, ``e3`` and ``o3`` which of two rows are this
# step's and the next's. Behind a loop that was recorded ``m3`` is how many steps it took, ``full3`` how many blocks
# that is, ``h3`` the block that was begun last, and ``row3`` and ``y3`` the rows of what it carries.

Step = Callable[[scalar.StepLoop], None]  # what prints one step
LEFT = "left_all"  # the variable that says whether a loop is left from within another
_MOST = "4.0e18"  # iterations beyond which there is no number of them


class StepLoopText:
    """Prints loops around their steps."""

    def __init__(self, text: ProgramText, storage: Storage) -> None:
        self.text, self.storage = text, storage

    def forward(self, item: scalar.StepLoop, step: Step) -> None:
        """Print a loop."""
        depth = self.text.depth
        is_left = _is_left(item)
        if is_left:
            self.text.put(f"{LEFT} = 0")
        if item.loop.ends is not None:
            self._recorded(item, step)
        elif item.loop.number in self.storage.blocks:
            n, count = item.loop.number, item.loop.count
            block = self.storage.blocks[n]
            blocks = -(-count // block)
            self.text.opened(f"for b{n} in range({blocks}):")
            self._begin_block(item)
            self._open_steps(item, f"{block} if b{n} < {blocks - 1} else {count - block * (blocks - 1)}")
            step(item)
        else:
            self._put_first_rows(item)
            self.text.opened(f"for {item.index} in range({self.storage.steps_of(item.loop)}):")
            step(item)
        self.text.depth = depth
        if is_left:
            self.text.when(f"{LEFT} != 0", "break")

    def backward(self, item: scalar.StepLoop, less: int, again: Step, back: Step) -> None:
        """Print a loop from the last step, or so many before, down: ``again`` prints steps that run anew."""
        depth, n = self.text.depth, item.loop.number
        block = self.storage.blocks.get(n)
        if n in self.storage.nested_history:
            self.text.opened(f"for {item.index} in range(m{n} - {1 + less}, -1, -1):")
            self.text.put(f"row{n} -= 1")
        elif block is None:
            self.text.opened(f"for {item.index} in range({self.storage.steps_of(item.loop, 1 + less)}, -1, -1):")
        elif item.loop.ends is not None:
            self.text.opened(f"for b{n} in range(full{n} - 1, -1, -1):")
            self._run_anew(item, f"b{n} != h{n}", again)
            left = f"{block} if b{n} < full{n} - 1 else m{n} - {block} * b{n}"
        else:
            last = -(-item.loop.count // block) - 1
            self.text.opened(f"for b{n} in range({last}, -1, -1):")
            self._run_anew(item, f"b{n} < {last}", again)
            left = f"{block} if b{n} < {last} else {item.loop.count - less - block * last}"
        if block is not None:
            self.text.put(f"left{n} = {left}")
            self._open_steps(item, f"left{n} - 1, -1, -1")
        back(item)
        self.text.depth = depth

    def at_last(self, item: scalar.StepLoop) -> None:
        """Print what makes the last step the present one; of a recorded loop in others, if there is any."""
        n = item.loop.number
        if n in self.storage.nested_history:
            self.text.opened(f"if m{n} > 0:")
            self.text.put(f"{item.index} = m{n} - 1", f"row{n} -= 1")
            return
        block = self.storage.blocks.get(n)
        self.text.put(f"{item.index} = {self.storage.steps_of(item.loop, 1)}")
        self.text.put(*[] if block is None else [f"j{n} = {(item.loop.count - 1) % block}"])

    def _recorded(self, item: scalar.StepLoop, step: Step) -> None:
        """Print a loop that goes on until a guard misses, or its number of steps is reached."""
        text, n = self.text, item.loop.number
        block, is_within = self.storage.blocks.get(n), n in self.storage.nested_history
        full, give_up = f"row{n} >= {self.storage.nested_history.get(n)}", f"return {giving_up(self.storage)}"
        self._put_limit(item)
        text.put(f"m{n} = 0", f"row{n} += 1" if is_within else f"row{n} = 0")
        if is_within:
            text.when(full, give_up)
        if block is not None:
            text.put(f"b{n} = -1", f"j{n} = {block}", f"full{n} = 0")
        text.opened(f"while m{n} < l{n}:")
        text.put(f"{item.index} = m{n}")
        if is_within:
            text.when(full, give_up)
        if block is not None:
            text.opened(f"if j{n} == {block}:")
            text.put(f"b{n} += 1")
            text.when(f"b{n} == {item.loop.count // block}", give_up)
            self._begin_block(item)
            text.depth -= 1
        step(item)
        text.put(f"m{n} = {item.index} + 1", *[f"row{n} += 1"] if is_within else [])
        if block is not None:
            text.put(f"j{n} += 1", f"row{n} = j{n}", f"full{n} = b{n} + 1")
        text.depth -= 1
        self.text.double_buffer(f"y{n}", f"m{n}")
        if block is not None:
            text.put(f"h{n} = b{n}")

    def _put_limit(self, item: scalar.StepLoop) -> None:
        """Print the most steps of a recorded loop; the program gives up where they are no number."""
        n, limit = item.loop.number, item.limit
        if limit.isdecimal():
            self.text.put(f"l{n} = {limit}")
            return
        self.text.when(f"not ({limit} > -{_MOST} and {limit} < {_MOST})", f"return {giving_up(self.storage)}")
        self.text.put(f"l{n} = int({limit})")

    def _run_anew(self, item: scalar.StepLoop, where: str, again: Step) -> None:
        """Print what runs the steps of a block again, where that is needed."""
        self.text.opened(f"if {where}:")
        self._resume_block(item)
        self._open_steps(item, f"{self.storage.blocks[item.loop.number]}")
        again(item)
        self.text.depth -= 2

    def _open_steps(self, item: scalar.StepLoop, span: str) -> None:
        """Print the head of a loop over so many of a block's steps, or over this range of them."""
        n = item.loop.number
        self.text.opened(f"for j{n} in range({span}):")
        self.text.put(f"{item.index} = {self.storage.blocks[n]} * b{n} + j{n}")

    def _begin_block(self, item: scalar.StepLoop) -> None:
        """Print what keeps the state of a loop at the begin of a block, in the first row of histories, too."""
        n = item.loop.number
        self._at_begin(item)
        for key, region in self.storage.checkpoints[n].items():
            kept = self._kept(n, key, region)
            if isinstance(key, str):
                self.text.store(kept, "=", key)
                continue
            elements, now = self._row(key, region)
            if n in self.storage.placements[self.storage.adjoint.home(key)].blocked:
                last = self.storage.blocks[n] * self.storage.bytes_of(key)
                before = now._replace(constant=now.constant + last)
                self.text.opened(f"if b{n} > 0:")
                self.text.each(elements, now, "=", f"{before}", before)
                self.text.depth -= 1
            self.text.each(elements, kept, "=", f"{now}", now)

    def _resume_block(self, item: scalar.StepLoop) -> None:
        """Print what brings back the state at the begin of a block."""
        n = item.loop.number
        self._at_begin(item)
        for key, region in self.storage.checkpoints[n].items():
            kept = self._kept(n, key, region)
            if isinstance(key, str):
                self.text.let(key, value_of(kept), kept)
                continue
            elements, now = self._row(key, region)
            self.text.each(elements, now, "=", f"{kept}", kept)

    def _kept(self, n: int, key: str | int, region: Region) -> Element:
        """Return where a block keeps what a loop carries: of a value in memory the i-th element."""
        item = region.dtype.itemsize
        if isinstance(key, str):
            return Element(region, 0, ((f"b{n}", item),))
        return Element(region, 0, ((f"b{n}", self.storage.bytes_of(key)), ("i", item)))

    def _at_begin(self, item: scalar.StepLoop) -> None:
        n = item.loop.number
        self.text.put(f"{item.index} = {self.storage.blocks[n]} * b{n}")
        self.put_double_buffer_indices(item)
        self.text.put(f"j{n} = 0")
        self._put_first_rows(item)  # counted anew in each block

    def put_double_buffer_indices(self, item: scalar.StepLoop) -> None:
        """Print which of two rows a step has, and which the next."""
        self.text.double_buffer(f"e{item.loop.number}", item.index, f"o{item.loop.number}")
        if item.loop.ends is None and item.loop not in self.storage.counted:
            self.text.ranges[item.index] = 0, item.loop.count - 1

    def _put_first_rows(self, item: scalar.StepLoop) -> None:
        """Print where the rows of recorded loops begin that are within an outermost one."""
        inner = [part.loop.number for _, part in walk(item.body) if isinstance(part, scalar.StepLoop)]
        self.text.put(*[f"row{n} = -1" for n in inner if n in self.storage.nested_history and item.loop.parent < 0])

    def _row(self, value: int, region: Region) -> tuple[int, Element]:
        """Return how many elements a value in memory has, and the i-th of the present step."""
        element = self.storage.element(self.storage.ith(scalar.Address(value, 0)))
        return self.storage.bytes_of(value) // region.dtype.itemsize, element


def _is_left(item: scalar.StepLoop) -> bool:
    """Whether a guard in a loop ends that around it, too."""
    if item.loop.ends is not None and not item.loop.ends.counted:
        return False
    checks = [part for part in item.body.items if isinstance(part, scalar.GuardCheck | scalar.CallKernel)]
    inner = [part for part in item.body.items if isinstance(part, scalar.StepLoop)]
    return any(check.number == scalar.LEAVE_ALL for check in checks) or any(_is_left(loop) for loop in inner)


def giving_up(storage: Storage) -> str:
    """Return what a program returns that gives up, as text: the number of its guards."""
    counted = [loop for loop in storage.counted if loop.guards]
    others = len(storage.program.guards) - sum(loop.count * loop.guards for loop in counted)
    return " + ".join([str(others), *[f"{loop.guards} * count{loop.number}" for loop in counted]])


class ForwardText:
    """Prints items in order; what is kept for the reverse is saved where it is given."""

    def __init__(self, text: ProgramText, storage: Storage, kept: KeptValues) -> None:
        self.text, self.storage, self.kept = text, storage, kept
        self.loops = StepLoopText(text, storage)

    def block(self, block: scalar.ScalarBlock) -> None:
        """Print a block."""
        for item in block.items:
            self.item(item)

    def item(self, item: scalar.ScalarItem) -> None:
        """Print an item."""
        getattr(self, f"on_{type(item).__name__}")(item)

    def save(self, *names: str) -> None:
        """Save what is kept of names that have just been given."""
        for name in names:
            if name in self.kept.saved:
                self.text.store(self.storage.saved(name), "=", name)

    def on_Compute(self, item: scalar.Compute) -> None:  # noqa: N802 (named as the items are)
        """Print an operation."""
        self.operated(item)
        self.save(item.name)

    def on_Load(self, item: scalar.Load) -> None:  # noqa: N802
        """Print a load."""
        self.loaded(item.name, self.storage.element(item.address))
        self.save(item.name)

    def on_Store(self, item: scalar.Store) -> None:  # noqa: N802
        """Print a store, if the memory is there."""
        if self.storage.adjoint.home(item.address.value) in self.storage.placements:
            element = self.storage.element(item.address)
            if item.reduces is np.add or item.reduces is None:
                self.text.store(element, "=" if item.reduces is None else "+=", item.operand)
            else:
                stored = _STEPS[item.reduces].format(element, item.operand)
                read, how = ((), "greater") if item.reduces is np.maximum else ((element,), "written")
                self.text.store(element, "=", stored, *read, how=how)

    def on_FillMemory(self, item: scalar.FillMemory) -> None:  # noqa: N802
        """Print a loop that fills memory."""
        element = self.storage.element(self.storage.ith(item.address))
        self.text.each(item.elements, element, "=", _FIRST[item.reduces])

    def on_Accumulate(self, item: scalar.Accumulate) -> None:  # noqa: N802
        """Print one more term of a total."""
        how = {np.add: "added", np.maximum: "greater"}.get(item.reduces, "other")
        self.text.let(item.total, _STEPS[item.reduces].format(item.total, item.operand), sums=how)

    def on_GuardCheck(self, item: scalar.GuardCheck) -> None:  # noqa: N802
        """Print a guard."""
        first, second = item.names
        if item.number >= 0:
            self.text.store(Element(self.storage.checked[item.number], 0), "=", first)
        self.text.when(f"bits_of({first}) != bits_of({second})", *self._stopping(item))

    def _stopping(self, item: scalar.GuardCheck | scalar.CallKernel) -> list[str]:
        """Return what is done where a guard misses, or a call fails."""
        if item.number == scalar.GIVE_UP:
            return [f"return {giving_up(self.storage)}"]
        if item.number in (scalar.LEAVE, scalar.LEAVE_ALL):
            return ["break"] if item.number == scalar.LEAVE else [f"{LEFT} = 1", "break"]
        return [f"return {' + '.join([str(item.number), *(f'{step} * {name}' for name, step in item.terms)])}"]

    def on_CallKernel(self, item: scalar.CallKernel) -> None:  # noqa: N802
        """Print a call."""
        self.called(item, item.call.forward)

    def called(self, item: scalar.CallKernel, kernel: CalledKernel | PrintedCall) -> None:
        """Print a call of a kernel; its address and layout are constants of the program."""
        begins = [self.storage.begin(item.addresses[p.operand], gradient=p.gradient) for p in kernel.places]
        if isinstance(kernel, PrintedCall):
            kind = self.storage.element(item.target).region.kind
            texts = [*[f"pointer_{kind}({begin})" for begin in begins], *map(repr, kernel.numbers)]
            failed = f"{kernel.function}({', '.join(texts)}) != 0"
            self.text.when(failed, *self._stopping(item))
            return
        where, how = self.storage.constant(np.array([kernel.address])), self.storage.constant(kernel.layout)
        if kernel.owner is not None:
            self.storage.owners.append(kernel.owner)
        table, count = self.storage.scratch("i8", len(kernel.places) + kernel.fails), len(kernel.places)
        self.text.put(*[f"{table.name}[{k}] = {begin}" for k, begin in enumerate(begins)])
        if kernel.fails:
            self.text.put(f"{table.name}[{count}] = 0")
        call = f"call_kernel({where.name}[0], begin_of({how.name}), begin_of({table.name}), {int(kernel.adds)})"
        self.text.put(call)
        if kernel.fails:
            self.text.when(f"{table.name}[{count}] != 0", f"return {giving_up(self.storage)}")

    def on_NestLoop(self, item: scalar.NestLoop) -> None:  # noqa: N802
        """Print a nest."""
        self.begin_totals(item)
        self.open_nest(item)
        self.block(item.body)
        self.text.depth -= 1
        self.save(*item.totals)

    def begin_totals(self, item: scalar.NestLoop) -> None:
        """Print what the totals of a nest start from."""
        for total, reduces in item.totals.items():
            first = _FIRST[reduces]
            self.text.let(total, first if self.storage.dtype(total) != FLOAT32 else f"np.float32({first})")

    def open_nest(self, item: scalar.NestLoop) -> None:
        """Print the head of a nest: a short loop runs with masks for what is no whole vector."""
        innermost = not any(isinstance(part, scalar.NestLoop) for part in item.body.items)
        is_whole = item.extent % _LANES == 0 and item.extent < LEAST  # longer ones share code with those that are not
        masked = innermost and _LANES < item.extent < _MASKED and not is_whole
        self.text.loop(item.index, item.extent, kind="masked" if masked else "range")

    def operated(self, item: scalar.Compute) -> None:
        """Print an operation."""
        operands = dict(zip(item.operation.inputs, item.operands, strict=True))
        once = not isinstance(self.storage.expansion.defined[item.name][0].loop, scalar.NestLoop)
        self.text.let(item.name, item.operation.forward.filled(operands, once=once))

    def loaded(self, name: str, element: Element) -> None:
        """Print a load."""
        self.text.let(name, value_of(element), element)

    def on_StepLoop(self, item: scalar.StepLoop) -> None:  # noqa: N802
        """Print a loop of the program."""
        self.text.put(*[f"{number.name} = {number.initial}" for number in item.numbers])
        self.loops.forward(item, self.step)
        names = {number.name for number in item.numbers}
        self.text.put(*[f"{after} = {inner}" for after, inner in item.exits if inner not in names])
        self.text.put(*[f"{after} = {name}" for after, name in item.ends])
        self.save(*[after for after, _ in (*item.exits, *item.ends)], *item.behind)

    def step(self, item: scalar.StepLoop) -> None:
        """Print one step of a loop."""
        self.loops.put_double_buffer_indices(item)
        self.save(*[number.name for number in item.numbers])
        self.block(item.body)
        names = {number.name for number in item.numbers}
        self.text.put(*[f"{after} = {inner}" for after, inner in item.exits if inner in names])  # before it moves on
        taken = [c for c in item.numbers if c.update in names and c.update != c.name]
        self.text.put(*[f"q_{number.name} = {number.update}" for number in taken])
        for number in item.numbers:
            if number.update != number.name:
                self.text.put(f"{number.name} = {f'q_{number.name}' if number in taken else number.update}")


_STEPS = {np.add: "accumulators.added({0}, {1})", np.maximum: "accumulators.greater({0}, {1})"}
_STEPS |= {np.positive: "{1}", LARGEST_INTEGER: LARGER_INTEGER.forward.text.format(a="{0}", b="{1}")}
"""What a total and one more term become."""
_FIRST = {np.add: "-0.0", np.maximum: "(-math.inf)", np.positive: "-0.0", LARGEST_INTEGER: "MINUS_ZERO"}
"""What reductions start from."""
_LANES, _MASKED = 8, 64  # elements of a vector, and the extent from which on the tail of a loop costs little


def value_of(element: Element) -> str:
    """Return an element as a number, as text."""
    if element.region.dtype == INT32:
        return f"np.int64({element})"
    return f"({element} != 0)" if element.region.dtype == BOOL else f"{element}"
