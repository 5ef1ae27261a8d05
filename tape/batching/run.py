"""One run of a plan: each step on the whole batch, the derivatives in it by one sweep for all examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.kinds.elementwise import Elementwise
from kernels.kinds.views import Copy, View
from kernels.operations.registry import OPS
from tape.batching.example_recorder import Example
from tape.batching.mapped_dims import Derivative, Operation, Step
from tape.engine import kinds
from tape.engine.double_backward import derived
from tape.engine.kind_rules import Operand, apart, whole
from tape.engine.kinds import run_batched
from tape.operations import indexing
from tape.recording import record, views
from tape.tensors import hooks, modes
from tape.tensors.tensor import AccumulateGrad, Tensor, root
from tape.tensors.view_families import alone, share
from tape.transforms.forward_mode import needs_graph, settle

_AS_STRIDED: Any = OPS["as_strided"]


class Batch:
    """One run of a plan: the tensor of each node, for all examples."""

    def __init__(self, example: Example, batched: set[int], arguments: Sequence[Tensor], size: int) -> None:
        self.example, self.batched, self.size = example, batched, size
        self.bases, self.specs = example.bases, example.specs
        self.values: dict[int, Tensor] = dict(zip(example.arguments, arguments, strict=True))
        self.copied = {node: self.values[node] for node in example.written}
        if example.writes():  # to parts that are told by where they stand in one example's memory
            self.values = {node: views.contiguous(x) for node, x in self.values.items()}
        self.sources = {node for step in example.derivatives for node in step.inputs}
        self.rooted: list[Tensor] = []

    def run(self) -> None:
        """Run the plan."""
        self._steps(self.example.plan, modes.is_grad_enabled())
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

    def _steps(self, steps: Sequence[Step], enabled: bool) -> None:
        """Run steps: elementwise ones on operands with as many dims behind the batch as one example's result has."""
        values, bases, batched, run = self.values, self.bases, self.batched, kinds.RUN
        for step in steps:
            if type(step) is not Operation or type(step[0]) is not Elementwise or (enabled and not step[5]):
                self._do(step, enabled)
                continue
            op, operands, params, result, spec, _, _ = step
            rank, aligned = 1 + len(spec.shape), []
            for o in operands:
                if type(o) is not int:
                    aligned.append(o[0])
                    continue
                x = values[o] if o in values else self.tensor(o)
                wide = len(x._form.spec.shape) == rank or bases[o] not in batched
                aligned.append(x if wide else apart(x, rank))
            y = run[op.name](*aligned, *params) if type(aligned[0]) is Tensor else kinds.run(op, aligned)
            if len(y._form.spec.shape) != rank or self.sources:
                self._keep(result, y)
            else:
                values[result] = y

    def _do(self, step: Step, enabled: bool) -> None:
        if enabled and not step.graded:
            with hooks.no_grad():
                self._steps([step], enabled=False)
        elif isinstance(step, Operation):
            if step.detached:
                self._keep(step.result, self.tensor(step.operands[0]).detach())
            elif isinstance(step.op, View) and step.op.indexes:
                self._index(step)
            else:
                self._by_rule(step)
        elif isinstance(step, Derivative):
            self._derive(step)
        else:
            operands = list(map(self._operand, step.operands))
            results = step.mapped(self.size, [g.value for g in operands], [g.batched for g in operands])
            for node, x in zip(step.results, results, strict=True):
                if node is not None:
                    self._keep(node, x)

    def differs(self, node: int) -> bool:
        """Whether the values of a node differ between examples."""
        return self.bases[node] in self.batched

    def _operand(self, operand: Any) -> Operand:
        if type(operand) is not int:
            return Operand(operand[0])
        x = self.values.get(operand)
        return Operand(
            self.tensor(operand) if x is None else x, self.bases[operand] in self.batched, self.specs[operand]
        )

    def _index(self, step: Operation) -> None:
        node, key = step.operands[0], step.params[0]
        key = key if type(key) is tuple else (key,)
        if self.bases[node] in self.batched:
            key = (slice(None), *key)
        self._keep(step.result, indexing.index(self.tensor(node), key))

    def _by_rule(self, step: Operation) -> None:
        if type(step.op) is Copy:
            x = self.tensor(step.operands[0])
            if x._form.spec.dtype is step.spec.dtype:
                self._keep(step.result, views.clone(x))
                return
        operands = list(map(self._operand, step.operands))
        try:
            result = run_batched(step, operands, step.spec)
        except ValueError:
            if not isinstance(step.op, View) or self.example.writes():
                raise
            operands[0].value = views.clone(operands[0].value)  # memory that this view is impossible of
            result = run_batched(step, operands, step.spec)
        if result is not None:
            self._keep(step.result, result)

    def tensor(self, node: int) -> Tensor:
        """Return the tensor of a node: one from before the recording at its first use."""
        tensor = self.values.get(node)
        if tensor is not None:
            return tensor
        base = self.bases[node]
        start = self.example.starts.get(base)
        if base == node or (start is None and base in self.example.tensors and base not in self.batched):
            x: Any = self.example.tensors[node] if start is None else views.clone(start.held)  # type: ignore[arg-type]
            # A leaf whose derivative is asked for was made for that: each example has its own.
            apart = node in self.sources and self.differs(node) and type(x._slot) is AccumulateGrad
            self._keep(node, x.detach() if apart else x)
        else:
            self.values[node] = self._part(node)
        return self.values[node]

    def _part(self, node: int) -> Tensor:
        """Return a view that no step made, as a part of its base, by its pattern in memory."""
        base, offset = self.example.parts[node]
        part, whole, x = self.specs[node], self.specs[base], self.tensor(base)
        item = whole.dtype.itemsize
        order = sorted(range(len(whole.shape)), key=lambda axis: (-whole.strides[axis], axis))
        strides = tuple(stride // item for stride in part.strides)
        if self.differs(node):
            x = views.permute(x, (0, *(axis + 1 for axis in order)))
            params = ((self.size, *part.shape), (whole.size, *strides), offset // item)
        else:
            x, params = views.permute(x, tuple(order)), (part.shape, strides, offset // item)
        try:
            return record.view(_AS_STRIDED, x, params)
        except ValueError:
            raise NotImplementedError(
                "vmap: a part of a tensor is written in place, whose memory has gaps or another order than one "
                "example's; copy it first with contiguous() or clone()"
            ) from None

    def _keep(self, node: int, x: Tensor) -> None:
        """Keep a node's tensor: batched if the node differs, requiring grad if derivatives are asked by it."""
        if len(x._form.spec.shape) == len(self.specs[node].shape) and self.bases[node] in self.batched:
            x = whole(x, self.size)
        if node in self.sources and x._slot is None:
            x = root(share(x)) if alone(x) else x.requires_grad_()
            self.rooted.append(x)
        self.values[node] = x

    def _apart(self, step: Derivative) -> bool:
        """Whether the function to differentiate differs between examples, and not only the cotangents."""
        return any(map(self.differs, (*step.outputs, *step.inputs)))

    def _derive(self, step: Derivative) -> None:
        """Compute derivatives for all examples by one sweep: each example depends on its own inputs alone."""
        rows, apart = step.rows, self._apart(step)
        if not apart and not any(map(self.differs, step.weights)):
            sides = (step.outputs, step.inputs, step.weights)
            outputs, inputs, weights = (list(map(self.tensor, group)) for group in sides)
            derivatives = derived(step.derivation, outputs, inputs, weights, rows)
        elif apart:
            outputs, inputs = ([self._each(x, 0) for x in group] for group in (step.outputs, step.inputs))
            derivatives = derived(step.derivation, outputs, inputs, [self._each(x, rows) for x in step.weights], rows)
            derivatives = [x if x is None or not rows else _exchanged(x) for x in derivatives]
        else:  # the same function for all: so many more rows
            outputs, inputs = (list(map(self.tensor, group)) for group in (step.outputs, step.inputs))
            weights = [_together(self._each(x, 0), rows) for x in step.weights]
            derivatives = derived(step.derivation, outputs, inputs, weights, self.size * max(rows, 1))
            derivatives = [x if x is None or not rows else _divided(x, rows) for x in derivatives]
        for node, x in zip(step.results, derivatives, strict=True):
            if node is not None and x is not None:
                self._keep(node, x)

    def _each(self, node: int, rows: int) -> Tensor:
        """Return a node's tensor with the batch in front, behind the rows if there are any."""
        x = self.tensor(node)
        if self.differs(node):
            return _exchanged(x) if rows else x
        return whole(x, self.size, behind=int(rows > 0))


def _together(x: Tensor, rows: int) -> Tensor:
    """Run two leading axes together, if the second one is of rows."""
    return views.reshape(x, (-1, *x.spec.shape[2:])) if rows else x


def _divided(x: Tensor, rows: int) -> Tensor:
    return views.reshape(x, (-1, rows, *x.spec.shape[1:]))


def _exchanged(x: Tensor) -> Tensor:
    return views.transpose(x, 0, 1)
