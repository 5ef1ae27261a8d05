"""A recorded program run on tensors, each step by the operation that it is; and vmap's, on all examples at once."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from kernels.kinds.elementwise import Elementwise
from kernels.kinds.views import Copy, View
from kernels.operations.registry import OPS
from kernels.programs.program import Recipe
from tape.engine import kinds
from tape.engine.double_backward import derived
from tape.engine.kind_rules import Operand, Planned, apart, whole
from tape.engine.kinds import run_batched
from tape.operations import indexing
from tape.recording import record, views
from tape.tensors import grad_modes, modes
from tape.tensors.tensor import AccumulateGrad, Tensor, root
from tape.tensors.view_families import mark_aliased, owns_memory_alone
from tape.transforms.example_recorder import Derivative, Example, ExampleStep, MappedOperation
from tape.transforms.points import Tensors, needs_graph, settle

_AS_STRIDED: Any = OPS["as_strided"]


class ProgramRun:
    """One run of a program: the tensor of each node, with the batch in front if the node is ``batched``.

    ``size`` is how many examples the batch has. Operands of steps are words: a node, or ``~k`` for ``numbers[k]``.
    """

    unreachable = ""  # what an error says of a part of memory that cannot be told by its pattern

    def __init__(
        self,
        recipe: Recipe,
        numbers: Sequence[Any],
        values: dict[int, Tensor],
        batched: AbstractSet[int] = frozenset(),
        size: int = 0,
    ) -> None:
        self.recipe, self.nodes, self.numbers = recipe, recipe.nodes, numbers
        self.values, self.batched, self.size = values, batched, size

    def operand(self, word: int) -> Operand:
        """Return an operand of a step."""
        if word < 0:
            return Operand(self.numbers[~word])
        x = self.values.get(word)
        return Operand(self.tensor(word) if x is None else x, word in self.batched, self.nodes[word].spec)

    def step(self, step: Planned, operands: Sequence[int], result: int, *, graded: bool) -> None:
        """Run a step; its gradient is recorded if that was ``graded`` when the program was recorded."""
        if not graded and modes.is_grad_enabled():
            with grad_modes.no_grad():
                self.step(step, operands, result, graded=True)
        elif isinstance(step.op, View) and self.nodes[result].family is None:
            self.keep(result, self.tensor(operands[0]).detach())
        else:
            value = self.compute(step, operands, result)
            if value is not None:
                self.keep(result, value)

    def compute(self, step: Planned, operands: Sequence[int], result: int) -> Any:
        """Return the result of a step; None for a write or a guard."""
        return run_batched(step, list(map(self.operand, operands)), self.nodes[result].spec)

    def keep(self, node: int, x: Tensor) -> None:
        """Keep the tensor of a node."""
        self.values[node] = x

    def tensor(self, node: int) -> Tensor:
        """Return the tensor of a node; one that no step made is found at its first use."""
        x = self.values.get(node)
        if x is None:
            self.first(node)
            x = self.values[node]
        return x

    def first(self, node: int) -> None:
        """Keep the tensor of a node that no step made: a view of another, by its pattern in memory."""
        self.values[node] = self.part(node)

    def part(self, node: int) -> Tensor:
        """Return a view that no step made, as a part of its family or of constant memory."""
        entry = self.nodes[node]
        above = entry.base if entry.family is None else entry.family
        assert above is not None
        part, whole, x = entry.spec, self.nodes[above].spec, self.tensor(above)
        if entry.family is None:
            x = x.detach()
        item = whole.dtype.itemsize if part.dtype == whole.dtype else 0
        order = sorted(range(len(whole.shape)), key=lambda axis: (-whole.strides[axis], axis))
        try:
            strides = tuple(stride // item for stride in part.strides)
            offset = (entry.offset - self.nodes[above].offset) // item
            if node not in self.batched:
                return record.view(_AS_STRIDED, views.permute(x, tuple(order)), (part.shape, strides, offset))
            x = views.permute(x, (0, *(axis + 1 for axis in order)))
            return record.view(_AS_STRIDED, x, ((self.size, *part.shape), (whole.size, *strides), offset))
        except (ValueError, ZeroDivisionError):
            raise NotImplementedError(self.unreachable) from None


class Batch(ProgramRun):
    """One run of an example's program for all examples."""

    unreachable = (
        "vmap: a part of a tensor is written in place, whose memory has gaps or another order than one example's; "
        "copy it first with contiguous() or clone()"
    )

    def __init__(self, example: Example, batched: set[int], arguments: Tensors, size: int) -> None:
        values = dict(zip(example.recipe.arguments, arguments, strict=True))
        super().__init__(example.recipe, example.numbers, values, batched, size)
        self.example = example
        self.copied = {node: self.values[node] for node in self.recipe.written}
        if example.writes:  # to parts that are told by where they stand in one example's memory
            self.values = {node: views.contiguous(x) for node, x in self.values.items()}
        self.sources = {node for step in example.derivatives for node in step.inputs}
        self.rooted: list[Tensor] = []

    def run(self) -> None:
        """Run the program."""
        self._steps(self.example.steps, modes.is_grad_enabled())
        for node, x in self.copied.items():
            if self.values[node] is not x:
                x.copy_(self.values[node])
        settle(self.rooted)

    def result(self, node: int) -> Tensor:
        """Return a result for the caller: without history if that leads to inputs of transforms within alone."""
        x = self.tensor(node)
        if not self.rooted or x._slot is None or not modes.is_grad_enabled():
            return x
        return x if needs_graph([x], self.rooted) else x.detach()

    def _steps(self, steps: Sequence[ExampleStep], enabled: bool) -> None:
        """Run steps: elementwise ones on operands with as many dims behind the batch as one example's result has."""
        values, numbers, batched, run, plain = (self.values, self.numbers, self.batched, kinds.RUN, not self.sources)
        for step in steps:
            if type(step) is not MappedOperation or type(step[0]) is not Elementwise or (enabled and not step[5]):
                self._do(step, enabled)
                continue
            op, operands, params, result, spec, _ = step
            rank, aligned = 1 + len(spec.shape), []
            for o in operands:
                if o < 0:
                    aligned.append(numbers[~o])
                    continue
                x = values[o] if o in values else self.tensor(o)
                wide = len(x._form.spec.shape) == rank or o not in batched
                aligned.append(x if wide else apart(x, rank))
            y = run[op.name](*aligned, *params) if type(aligned[0]) is Tensor else kinds.run(op, aligned)
            if plain and len(y._form.spec.shape) == rank:
                values[result] = y
            else:
                self.keep(result, y)

    def _do(self, step: ExampleStep, enabled: bool) -> None:
        if isinstance(step, MappedOperation):
            self.step(step, step.operands, step.result, graded=step.graded)
        elif enabled and not step.graded:
            with grad_modes.no_grad():
                self._do(step, enabled=False)
        elif isinstance(step, Derivative):
            self._derive(step)
        else:
            operands = list(map(self.operand, step.operands))
            results = step.mapped(self.size, [g.value for g in operands], [g.batched for g in operands])
            for node, x in zip(step.results, results, strict=True):
                if node is not None:
                    self.keep(node, x)

    def compute(self, step: Planned, operands: Sequence[int], result: int) -> Any:
        """Run an operation on the batch: an index as Python calls it, a copy as clone, others by their kind."""
        op, spec = step.op, self.nodes[result].spec
        if isinstance(op, View) and op.indexes:
            node, key = operands[0], step.params[0]
            key = key if type(key) is tuple else (key,)
            return indexing.index(self.tensor(node), (slice(None), *key) if node in self.batched else key)
        values = [self.operand(word) for word in operands]
        if type(op) is Copy and values[0].value._form.spec.dtype is spec.dtype:
            return views.clone(values[0].value)
        try:
            return run_batched(step, values, spec)
        except ValueError:
            if not isinstance(op, View) or self.example.writes:
                raise
            values[0].value = views.clone(values[0].value)  # memory that this view is impossible of
            return run_batched(step, values, spec)

    def first(self, node: int) -> None:
        """Take a tensor from before the recording, or a part of it; a copy, if the function writes to it."""
        base = self.recipe.base_of(node)
        start = self.example.starts.get(base)
        if base == node or (start is None and base in self.example.tensors and base not in self.batched):
            x: Any = self.example.tensors[node] if start is None else views.clone(start.held)  # type: ignore[arg-type]
            # A leaf whose derivative is asked for was made for that: each example has its own.
            separate = node in self.sources and node in self.batched and type(x._slot) is AccumulateGrad
            self.keep(node, x.detach() if separate else x)
        else:
            super().first(node)

    def keep(self, node: int, x: Tensor) -> None:
        """Keep a node's tensor: batched if the node differs, requiring grad if derivatives are asked by it."""
        if node in self.batched and len(x._form.spec.shape) == len(self.nodes[node].spec.shape):
            x = whole(x, self.size)
        if node in self.sources and x._slot is None:
            x = root(mark_aliased(x)) if owns_memory_alone(x) else x.requires_grad_()
            self.rooted.append(x)
        self.values[node] = x

    def _derive(self, step: Derivative) -> None:
        """Compute derivatives for all examples by one sweep: each example depends on its own inputs alone."""
        rows, apart = step.rows, not self.batched.isdisjoint((*step.outputs, *step.inputs))
        if not apart and self.batched.isdisjoint(step.weights):
            sides = (step.outputs, step.inputs, step.weights)
            outputs, inputs, weights = (list(map(self.tensor, group)) for group in sides)
            derivatives = derived(step.derivation, outputs, inputs, weights, rows)
        elif apart:
            outputs, inputs = ([self._each(x, 0) for x in group] for group in (step.outputs, step.inputs))
            derivatives = derived(step.derivation, outputs, inputs, [self._each(x, rows) for x in step.weights], rows)
            derivatives = [x if x is None or not rows else _exchanged(x) for x in derivatives]
        else:  # the same function for all: so many more rows
            outputs, inputs = (list(map(self.tensor, group)) for group in (step.outputs, step.inputs))
            weights = [self._each(x, 0) for x in step.weights]
            if rows:  # of each example's run together
                weights = [views.reshape(x, (-1, *x.spec.shape[2:])) for x in weights]
            derivatives = derived(step.derivation, outputs, inputs, weights, self.size * max(rows, 1))
            if rows:
                shapes = [(-1, rows) if x is None else (-1, rows, *x.spec.shape[1:]) for x in derivatives]
                pairs = zip(derivatives, shapes, strict=True)
                derivatives = [None if x is None else views.reshape(x, shape) for x, shape in pairs]
        for node, x in zip(step.results, derivatives, strict=True):
            if node is not None and x is not None:
                self.keep(node, x)

    def _each(self, node: int, rows: int) -> Tensor:
        """Return a node's tensor with the batch in front, behind the rows if there are any."""
        x = self.tensor(node)
        if node in self.batched:
            return _exchanged(x) if rows else x
        return whole(x, self.size, behind=int(rows > 0))


def _exchanged(x: Tensor) -> Tensor:
    return views.transpose(x, 0, 1)
