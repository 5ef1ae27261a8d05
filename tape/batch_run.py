"""One run of a plan made on one example: each step on the whole batch, the derivatives in it by one sweep for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.op import View
from kernels.program import NodeRef, Step
from kernels.tables import OPS
from tape import batching, modes, recording, shaping
from tape.autograd.forward import derived, settle
from tape.batching import Given
from tape.one_example import Called, Derivative, Example, Planned
from tape.tensor import AccumulateGrad, Tensor

_AS_STRIDED: Any = OPS["as_strided"]


class Batch:
    """One run of a plan: the tensor of each node, for all examples."""

    def __init__(self, example: Example, batched: set[int], arguments: Sequence[Tensor], size: int) -> None:
        self.example, self.recipe, self.batched, self.size = example, example.recipe, batched, size
        self.values: dict[int, Tensor] = dict(zip(self.recipe.arguments, arguments, strict=True))
        self.copied = {node: self.values[node] for node in self.recipe.written & self.values.keys()}
        self.values |= {node: shaping.contiguous(x) for node, x in self.copied.items()}
        self.sources = {
            x.node
            for p in example.plan
            if isinstance(p.step, Derivative) and self._apart(p.step)
            for x in p.step.inputs
        }

    def run(self) -> None:
        """Run the plan."""
        for planned in self.example.plan:
            if planned.graded or not modes.is_grad_enabled():
                self._do(planned)
            else:
                with modes.no_grad():
                    self._do(planned)
        for node, x in self.copied.items():
            if self.values[node] is not x:
                x.copy_(self.values[node])
        settle([self.values[node] for node in self.sources])

    def _do(self, planned: Planned) -> None:
        if isinstance(planned.step, Derivative):
            self._derive(planned.step)
        elif isinstance(planned.step, Called):
            given = [self._given(o) for o in planned.step.operands]
            found = planned.step.mapped(self.size, [g.value for g in given], [g.batched for g in given])
            for node, x in zip(planned.step.results, found, strict=True):
                if node is not None:
                    self._keep(node, x)
        elif planned.detached:
            self._keep(planned.step.result, self._given(planned.step.operands[0]).value.detach())
        else:
            self._step(planned.step)

    def differs(self, node: int) -> bool:
        """Whether a node holds something else for each example."""
        return self.recipe.base_of(node) in self.batched

    def _given(self, operand: Any) -> Given:
        if not isinstance(operand, NodeRef):
            return Given(operand)
        node = operand.node
        return Given(self.tensor(node), self.differs(node), self.recipe.nodes[node].spec)

    def _step(self, step: Step) -> None:
        given = [self._given(o) for o in step.operands]
        spec = self.recipe.nodes[step.result].spec
        try:
            result = batching.run(step, given, spec)
        except ValueError:
            if not isinstance(step.op, View) or self.example.written():
                raise
            given[0].value = shaping.clone(given[0].value)  # memory that this view is impossible of
            result = batching.run(step, given, spec)
        if result is not None:
            self._keep(step.result, result)

    def tensor(self, node: int) -> Tensor:
        """Return the tensor of a node: one from before the recording at its first use."""
        if node not in self.values:
            base = self.recipe.base_of(node)
            start = self.example.starts.get(base)
            if base == node or (start is None and base in self.example.tensors and base not in self.batched):
                x: Any = self.example.tensors[node] if start is None else shaping.clone(start.held)  # type: ignore[arg-type]
                # A leaf whose derivative is asked for was made for that: each example has its own.
                alone = node in self.sources and type(x._slot) is AccumulateGrad
                self._keep(node, x.detach() if alone else x)
            else:
                self.values[node] = self._part(node, base)
        return self.values[node]

    def _part(self, node: int, base: int) -> Tensor:
        """Return the part of a base that a view shows of which no step tells, by its pattern in memory."""
        part, whole = self.recipe.nodes[node], self.recipe.nodes[base].spec
        item, x = whole.dtype.itemsize, self.tensor(base)
        order = sorted(range(len(whole.shape)), key=lambda axis: (-whole.strides[axis], axis))
        strides = tuple(stride // item for stride in part.spec.strides)
        if base in self.batched:
            x = shaping.permute(x, (0, *(axis + 1 for axis in order)))
            params = ((self.size, *part.spec.shape), (whole.size, *strides), part.offset // item)
        else:
            x, params = shaping.permute(x, tuple(order)), (part.spec.shape, strides, part.offset // item)
        try:
            return recording.view(_AS_STRIDED, x, params)
        except ValueError:
            raise NotImplementedError(
                "vmap: a part of a tensor is written in place, whose memory has gaps or another order than one "
                "example's; copy it first with contiguous() or clone()"
            ) from None

    def _keep(self, node: int, x: Tensor) -> None:
        """Note a node's tensor, one for each example where it is to differ, a source of derivatives ready for that."""
        shape = self.recipe.nodes[node].spec.shape
        if self.differs(node) and len(x.spec.shape) == len(shape):
            x = batching.whole(x, self.size)
        if node in self.sources and x._slot is None:
            x = x.requires_grad_()
        self.values[node] = x

    def _apart(self, step: Derivative) -> bool:
        """Whether each example has derivatives of its own, not one function's for cotangents of its own."""
        return any(self.differs(x.node) for x in (*step.outputs, *step.inputs))

    def _derive(self, step: Derivative) -> None:
        """Find derivatives for all examples: each depends on its own inputs alone, so one sweep gives them."""
        rows, apart = step.rows, self._apart(step)
        if not apart and not any(self.differs(x.node) for x in step.weights):
            sides = (step.outputs, step.inputs, step.weights)
            outputs, inputs, weights = ([self.tensor(x.node) for x in group] for group in sides)
            found = derived(step.run, outputs, inputs, weights, rows)
        elif apart:
            outputs, inputs = ([self._each(x.node, 0) for x in group] for group in (step.outputs, step.inputs))
            found = derived(step.run, outputs, inputs, [self._each(x.node, rows) for x in step.weights], rows)
            found = [x if x is None or not rows else _exchanged(x) for x in found]
        else:  # the same function for all: so many more rows
            outputs, inputs = ([self.tensor(x.node) for x in group] for group in (step.outputs, step.inputs))
            weights = [_together(self._each(x.node, 0), rows) for x in step.weights]
            found = derived(step.run, outputs, inputs, weights, self.size * max(rows, 1))
            found = [x if x is None or not rows else _divided(x, rows) for x in found]
        for node, x in zip(step.results, found, strict=True):
            if node is not None and x is not None:
                self._keep(node, x)

    def _each(self, node: int, rows: int) -> Tensor:
        """Return a node's tensor with the batch in front, behind the rows if there are any."""
        x = self.tensor(node)
        if not self.differs(node):
            x = batching.whole(x, self.size)
        return _exchanged(x) if rows else x


def _together(x: Tensor, rows: int) -> Tensor:
    """Run two leading axes together, if the second one is of rows."""
    return shaping.reshape(x, (-1, *x.spec.shape[2:])) if rows else x


def _divided(x: Tensor, rows: int) -> Tensor:
    return shaping.reshape(x, (-1, rows, *x.spec.shape[1:]))


def _exchanged(x: Tensor) -> Tensor:
    return shaping.transpose(x, 0, 1)
