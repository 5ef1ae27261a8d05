"""The forward pass of a scalar program as native source."""

from __future__ import annotations

import numpy as np

from kernels.programs.differentiating.kept_values import KeptValues
from kernels.programs.differentiating.storage import Storage
from kernels.programs.expanding.scalar_program import (
    GIVE_UP,
    LEAVE,
    LEAVE_ALL,
    Call,
    Check,
    Fill,
    Load,
    NestLoop,
    Operation,
    ScalarBlock,
    ScalarItem,
    StepLoop,
    Store,
    Term,
)
from kernels.programs.fusing.native_call import KernelCall
from kernels.programs.fusing.scalar_rules import BOOL, FLOAT32, LARGER_INTEGER, LARGEST_INTEGER
from kernels.programs.parts.source_lines import INDENT
from kernels.programs.printing.shared_sizes import LEAST
from kernels.programs.printing.source_text import Text
from kernels.programs.printing.step_loop_text import LEFT, StepLoopText, giving_up, parities


class ForwardText:
    """Prints items in order; what is kept for the reverse is saved where it is given."""

    def __init__(self, text: Text, storage: Storage, kept: KeptValues) -> None:
        self.text, self.storage, self.kept = text, storage, kept
        self.loops = StepLoopText(text, storage)

    def block(self, block: ScalarBlock) -> None:
        """Print a block."""
        for item in block.items:
            self.item(item)

    def item(self, item: ScalarItem) -> None:
        """Print an item."""
        getattr(self, f"on_{type(item).__name__}")(item)

    def save(self, *names: str) -> None:
        """Save what is kept of names that have just been given."""
        for name in names:
            if name in self.kept.saved:
                self.text.put(f"{self.storage.saved(name)} = {name}")

    def on_Operation(self, item: Operation) -> None:  # noqa: N802 (named as the items are)
        """Print an operation."""
        self.text.put(operated(item, self.storage))
        self.save(item.name)

    def on_Load(self, item: Load) -> None:  # noqa: N802
        """Print a load."""
        self.text.put(loaded(item, self.storage))
        self.save(item.name)

    def on_Store(self, item: Store) -> None:  # noqa: N802
        """Print a store, if the memory is there."""
        if self.storage.adjoint.home(item.address.value) in self.storage.homes:
            element = self.storage.element(item.address)
            if item.reduces is np.add:
                self.text.put(f"{element} += {item.operand}")
            else:
                stored = item.operand if item.reduces is None else _STEPS[item.reduces].format(element, item.operand)
                self.text.put(f"{element} = {stored}")

    def on_Fill(self, item: Fill) -> None:  # noqa: N802
        """Print a loop that fills memory."""
        element = self.storage.element(self.storage.ith(item.address))
        self.text.each(item.elements, f"{element} = {_FIRST[item.reduces]}")

    def on_Term(self, item: Term) -> None:  # noqa: N802
        """Print one more term of a total."""
        self.text.put(f"{item.total} = {_STEPS[item.reduces].format(item.total, item.operand)}")

    def on_Check(self, item: Check) -> None:  # noqa: N802
        """Print a guard."""
        first, second = item.names
        if item.number == GIVE_UP:
            then = [f"return {giving_up(self.storage)}"]
        elif item.number == LEAVE:
            then = ["break"]
        elif item.number == LEAVE_ALL:
            then = [f"{LEFT} = 1", "break"]
        else:
            self.text.put(f"{self.storage.checked[item.number].name}[0] = {first}")
            then = [f"return {' + '.join([str(item.number), *(f'{step} * {name}' for name, step in item.terms)])}"]
        self.text.put(f"if bits_of({first}) != bits_of({second}):", *[INDENT + line for line in then])

    def on_Call(self, item: Call) -> None:  # noqa: N802
        """Print a call."""
        self.called(item, item.call.forward)

    def called(self, item: Call, kernel: KernelCall) -> None:
        """Print a call of a kernel; its address and layout are constants of the program."""
        where, how = self.storage.constant(np.array([kernel.address])), self.storage.constant(kernel.layout)
        if kernel.owner is not None:
            self.storage.owners.append(kernel.owner)
        table, count = self.storage.table(len(kernel.places) + kernel.fails), len(kernel.places)
        begins = [self.storage.begin(item.addresses[p.operand], gradient=p.gradient) for p in kernel.places]
        self.text.put(*[f"{table.name}[{k}] = {begin}" for k, begin in enumerate(begins)])
        if kernel.fails:
            self.text.put(f"{table.name}[{count}] = 0")
        call = f"call_kernel({where.name}[0], begin_of({how.name}), begin_of({table.name}), {int(kernel.adds)})"
        self.text.put(call)
        if kernel.fails:
            self.text.put(f"if {table.name}[{count}] != 0:", f"{INDENT}return {giving_up(self.storage)}")

    def on_NestLoop(self, item: NestLoop) -> None:  # noqa: N802
        """Print a nest."""
        self.text.put(*begun(item, self.storage))
        self.text.put(head_of(item))
        self.inside(item.body)
        self.save(*item.totals)

    def inside(self, body: ScalarBlock) -> None:
        """Print the body of a loop."""
        self.text.depth += 1
        before = len(self.text.lines)
        self.block(body)
        if len(self.text.lines) == before:
            self.text.put("pass")
        self.text.depth -= 1

    def on_StepLoop(self, item: StepLoop) -> None:  # noqa: N802
        """Print a loop of the program."""
        self.text.put(*[f"{number.name} = {number.initial}" for number in item.numbers])
        self.loops.forward(item, self.step)
        names = {number.name for number in item.numbers}
        self.text.put(*[f"{after} = {inner}" for after, inner in item.exits if inner not in names])
        self.text.put(*[f"{after} = {name}" for after, name in item.ends])
        self.save(*[after for after, _ in (*item.exits, *item.ends)], *item.behind)

    def step(self, item: StepLoop) -> None:
        """Print one step of a loop."""
        self.text.put(*parities(item))
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
_LANES, _MASKED = 8, 64
"""Elements of a vector, and the extent from which on the tail of a loop costs little."""


def head_of(item: NestLoop) -> str:
    """Return the head of a nest: a short loop runs with masks for what is no whole vector."""
    innermost = not any(isinstance(part, NestLoop) for part in item.body.items)
    is_whole = item.extent % _LANES == 0 and item.extent < LEAST  # longer ones share code with those that are not
    masked = innermost and _LANES < item.extent < _MASKED and not is_whole
    return f"for {item.index} in {'masked' if masked else 'range'}({item.extent}):"


def begun(item: NestLoop, storage: Storage) -> list[str]:
    """Return the lines that start the totals of a nest."""
    firsts = [(total, _FIRST[reduces], storage.dtype(total)) for total, reduces in item.totals.items()]
    return [f"{total} = {first if dtype != FLOAT32 else f'np.float32({first})'}" for total, first, dtype in firsts]


def operated(item: Operation, storage: Storage) -> str:
    """Return an operation as text."""
    operands = dict(zip(item.operation.inputs, item.operands, strict=True))
    once = not isinstance(storage.expansion.defined[item.name][0].loop, NestLoop)
    return f"{item.name} = {item.operation.forward.filled(operands, once=once)}"


def loaded(item: Load, storage: Storage) -> str:
    """Return a load as text."""
    element = storage.element(item.address)
    return f"{item.name} = {f'({element} != 0)' if storage.dtype(item.name) == BOOL else element}"
