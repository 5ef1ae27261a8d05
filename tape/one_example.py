"""The recorder of a function of one example: its operations as a plan that can be run on all examples at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

from kernels.op import View, Write
from kernels.program import Node, NodeRef, Step
from tape import families, modes
from tape.families import base_of, is_view
from tape.nesting import leaves
from tape.recorder import Recorder
from tape.shaping import clone
from tape.tensor import Tensor, as_array, plain

Refs = tuple[NodeRef, ...]


@dataclass(slots=True)
class Derivative:
    """Derivatives of outputs by inputs, found by ``run``; with ``rows``, weights and results have an axis of rows."""

    run: Callable[..., Any]
    outputs: Refs
    inputs: Refs
    weights: Refs
    rows: int
    results: list[int | None]


@dataclass(slots=True)
class Called:
    """A call that knows how to be done for all: ``mapped(size, args, batched)`` returns its results."""

    mapped: Callable[..., Any]
    operands: tuple[Any, ...]
    results: list[int | None]


@dataclass(slots=True)
class Planned:
    """A step, whether gradients were recorded when it ran, and whether it left the graph behind."""

    step: Step | Derivative | Called
    graded: bool
    detached: bool = False


class Start:
    """What a tensor from before the recording held when it was first written, and how to put that back."""

    def __init__(self, x: Tensor, node: int) -> None:
        self.tensor, self.node = ref(x), node
        self.value, self.slot, self.form = as_array(x), x._slot, x._form
        self.held: Tensor | None = None

    def as_tensor(self) -> Tensor:
        """Return another tensor of what it held, where its memory has not been written."""
        x = plain(self.value)
        x._slot, x._form = self.slot, self.form
        return x

    def restore(self) -> None:
        """Put it back."""
        x = self.tensor()
        if x is not None:
            if self.held is not None:
                self.value[...] = as_array(self.held)
            families.outdate(x)
            x._value = self.value
            families.move(x, self.slot, self.form)


class Example(Recorder):
    """Notes what depends on the arguments; what does not is for the recorder around this one to hear."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = modes.current().recorder
        self.plan: list[Planned] = []
        self.differing: set[int] = set()
        self.tensors: dict[int, Tensor] = {}
        self.constants: dict[int, Start] = {}
        self.starts: dict[int, Start] = {}
        self.replaced: list[Start] = []

    def _add(self, x: Tensor, node: Node) -> int:
        index = super()._add(x, node)
        self.tensors[index] = x
        if node.constant is not None:
            self.constants[index] = Start(x, index)
        if node.argument:
            self.differing.add(index)
        return index

    def _planned(self, count: int, *, detached: bool = False) -> None:
        """Take over a step that has just been noted."""
        if len(self.recipe.steps) > count:
            step = self.recipe.steps[-1]
            self.plan.append(Planned(step, modes.is_grad_enabled(), detached))
            if self._among(self.differing, step.operands):
                self.differing.add(self.recipe.base_of(step.result))

    def note(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Plan an operation if an operand depends on the arguments."""
        count = len(self.recipe.steps)
        super().note(op, operands, result, params)
        self._planned(count, detached=isinstance(op, View) and not is_view(result))
        if len(self.recipe.steps) == count and self.outer is not None:
            self.outer.note(op, operands, result, params)

    def given(self, x: Tensor) -> bool:
        """Return whether a tensor is an argument, here or further out."""
        return super().given(x) or (self.outer is not None and self.outer.given(x))

    def overwrites(self, x: Tensor, value: Any) -> None:
        """Keep what a tensor from before the recording holds."""
        if not self._depends(x) and not self._depends(value):
            if self.outer is not None:
                self.outer.overwrites(x, value)
            return
        base = base_of(x)
        at = self.reference(base).node
        if self.recipe.nodes[at].constant is not None:
            with modes.under(modes.current()._replace(recorder=self.outer)):
                self.starts[at] = start = self.constants[at]
                start.held = clone(base)
        super().overwrites(x, value)

    def wrote(self, op: Any, x: Tensor, value: Any, params: tuple[Any, ...]) -> None:
        """Plan a write."""
        count = len(self.recipe.steps)
        super().wrote(op, x, value, params)
        self._planned(count)
        if len(self.recipe.steps) == count and self.outer is not None:
            self.outer.wrote(op, x, value, params)

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Hear that a tensor has become what another is."""
        before = self.constants.get(self.nodes.get(id(x), -1))
        super().taken(x, value)
        if id(value) not in self.nodes:
            if self.outer is not None:
                self.outer.taken(x, value)
        elif before is not None:
            self.tensors[before.node] = before.as_tensor()
            before.node = self.nodes[id(value)]
            self.replaced.append(before)

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Refuse that a tensor gets the memory of one that is planned."""
        super().replaces(x, other)
        if self.outer is not None:
            self.outer.replaces(x, other)

    def left(self, tensor: Tensor) -> None:
        """Note where a value that differs from example to example left for Python."""
        node = self.nodes.get(id(tensor))
        if node is not None and self.recipe.base_of(node) in self.differing:
            super().left(tensor)
        elif self.outer is not None:
            self.outer.left(tensor)

    def derived(
        self,
        run: Callable[..., Any],
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        weights: Sequence[Tensor],
        rows: int,
    ) -> Any:
        """Find derivatives for this example, and plan to find them for all."""
        mine = any(map(self._depends, (*outputs, *inputs, *weights)))
        with modes.under(modes.current()._replace(recorder=None if mine else self.outer)):
            hear = None if mine else getattr(self.outer, "derived", None)
            if hear is not None:
                return hear(run, outputs, inputs, weights, rows)
            found = run(outputs, inputs, weights, rows, again=True)
        if mine:
            to, by, along = [tuple(self.reference(x) for x in group) for group in (outputs, inputs, weights)]
            refs = to, by, along
            results = [None if x is None else self._add(x, Node(x.spec)) for x in found]
            if any(self._among(self.differing, group) for group in refs):
                self.differing.update(node for node in results if node is not None)
            self.plan.append(Planned(Derivative(run, to, by, along, rows, results), modes.is_grad_enabled()))
        return found

    def called(self, run: Callable[..., Any], mapped: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Make a call for this example, and plan to make it for all."""
        mine = any(map(self._depends, args))
        with modes.under(modes.current()._replace(recorder=None if mine else self.outer)):
            found = run(args, {})
        if mine:
            operands = tuple(self.reference(x) for x in args)
            results = [self._add(x, Node(x.spec)) if isinstance(x, Tensor) else None for x in leaves(found)]
            if self._among(self.differing, operands):
                self.differing.update(node for node in results if node is not None)
            self.plan.append(Planned(Called(mapped, operands, results), modes.is_grad_enabled()))
        return found

    def forget(self, keep: set[int]) -> None:
        """Let go of all tensors but those of these nodes."""
        self.held.clear()
        self.constants.clear()
        self.nodes.clear()
        self.tensors = {node: x for node, x in self.tensors.items() if node in keep}

    def written(self) -> bool:
        """Whether the function writes in place."""
        return any(isinstance(p.step, Step) and isinstance(p.step.op, Write) for p in self.plan)

    def batched(self) -> set[int]:
        """Return the bases that hold something else for each example."""
        found, size = set(self.differing), -1
        while len(found) > size:  # a write makes what was read before differ, too
            size = len(found)
            for planned in self.plan:
                step = planned.step
                if isinstance(step, Derivative):
                    if self._among(found, (*step.outputs, *step.inputs)):  # a derivative for each example
                        found |= {self.recipe.base_of(x.node) for x in step.inputs}
                    elif not self._among(found, step.weights):
                        continue
                    found |= {node for node in step.results if node is not None}
                elif not self._among(found, step.operands):
                    continue
                elif isinstance(step, Called):
                    found |= {node for node in step.results if node is not None}
                else:
                    found.add(self.recipe.base_of(step.result))
        return found

    def _among(self, found: set[int], operands: Sequence[Any]) -> bool:
        return any(isinstance(x, NodeRef) and self.recipe.base_of(x.node) in found for x in operands)
