"""``graph.GradientEdge``: a place in the graph, without its tensor, as a root of a backward or one of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.instructions.form import Descriptor
from kernels.native.tape_structs import VIEW
from tape import errors
from tape.engine.graph import nodes
from tape.engine.graph.nodes import FunctionNode, Node
from tape.engine.graph.observers import check_apart
from tape.engine.rules.accumulate_grad import accumulate, take_in
from tape.kinds import rules_on_tensors
from tape.recording import record, views
from tape.tensors import hooks
from tape.tensors.tensor import AccumulateGrad, Slot, Tensor, new


class GradientEdge(NamedTuple):
    """One output of a node: it keeps the graph, but not the tensor's value. See :func:`get_gradient_edge`."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(x: Tensor) -> GradientEdge:
    """Return the edge of a tensor, which a backward takes as a root or in ``inputs=``.

    RuntimeError if the tensor does not require grad.
    """
    if x._slot is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    if type(x._slot) is AccumulateGrad:
        return GradientEdge(x._slot, 0)
    return GradientEdge(*nodes.of_tensor(x))


def tensors_of(places: Any) -> Any:
    """Return the tensors of edges, of a single one or within a sequence; everything else as it is."""
    kind = type(places)
    if kind is Tensor:
        return places
    if kind is not list and isinstance(places, (GradientEdge, Node)):
        return _tensor_of(places)
    if isinstance(places, (list, tuple)):
        for place in places:
            if type(place) is not Tensor and isinstance(place, GradientEdge):
                return tuple(_tensor_of(place) if isinstance(place, GradientEdge) else place for place in places)
    return places


def _tensor_of(edge: Any) -> Tensor:
    """Return a tensor without a value that stands for an edge."""
    node, place = (edge.node, edge.output_nr) if isinstance(edge, GradientEdge) else (edge, 0)
    if type(node) is AccumulateGrad:
        owner = node.owner()
        return owner if owner is not None else _standing(node, node.spec)
    slot = node._slot
    if isinstance(node, FunctionNode) and (call := node._called()) is not None and len(call.specs) > 1:
        slot = call.outputs[place]
    instruction = None if slot is None else record.locate(slot)
    if instruction is None:
        raise errors.GradError(errors.SECOND_TIME)
    result = _standing(instruction.slot, instruction.form)
    if instruction.form.kind == VIEW:
        result._offset = int(instruction.saved[0])
    return result


def _standing(slot: Slot, form: Descriptor) -> Tensor:
    result = new(Tensor)
    result._slot, result._form, result._value = slot, form, np.empty(0)
    return result


# The results of a recorded backward: gradients of leaves, of tensors that retain theirs, and of ``inputs=``.


class Gathered:
    """The gradients of a recorded backward, delivered in PyTorch's order."""

    def __init__(self, *, restrict: bool, required: bool = False, accumulates: bool = False) -> None:
        self.restrict, self.required, self.accumulates = restrict, required, accumulates
        self.gradients: dict[Any, Tensor] = {}
        self.asked: dict[Any, Tensor] = {}
        self.leaves: dict[AccumulateGrad, Tensor] = {}
        self.retained: dict[Any, list[Tensor]] = {}
        self.served: set[Any] = set()  # leaves whose hooks have seen their gradient
        self.stash: dict[Any, Any] = {}

    def observe(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Ask for the gradients of leaves or computed tensors."""
        for x in tensors:
            check_apart(x)
            self.asked[x._slot] = x
        return [x._slot for x in tensors]

    def leaf(self, leaf: Any, value: Tensor) -> None:
        """Add to the gradient of a leaf; the value is free of -0.0."""
        if leaf in self.asked:
            self.keep(leaf, value)
        elif not self.restrict:
            self.leaves[leaf] = self.leaves[leaf] + value if leaf in self.leaves else value

    def keep(self, key: Any, value: Tensor) -> None:
        """Add to a gradient that was asked for; the value is free of -0.0."""
        self.gradients[key] = self.gradients[key] + value if key in self.gradients else value

    def check_used(self, keys: list[Any]) -> None:
        """Raise for an input that no output depends on."""
        for i, key in enumerate(keys):
            if self.required and key not in self.gradients:
                raise errors.GradError(errors.UNUSED.format(i))

    def result(self, key: Any) -> Tensor | None:
        """Return a gradient asked for, after the hooks of a leaf; None if nothing reached it, or it has been added."""
        value, leaf_hooks = self.gradients.get(key), hooks.existing(key)
        if key in self.served:
            return None if self.accumulates else value
        return leaf_hooks.on_tensor(value) if leaf_hooks and value is not None else value

    def serve(self, leaf: AccumulateGrad, value: Tensor) -> None:
        """Run the hooks of a leaf whose gradient is complete, and add it to ``.grad`` if this backward does."""
        self.served.add(leaf)
        gradient = (leaf_hooks := hooks.of_leaf(leaf)).on_tensor(
            views.clone(rules_on_tensors.added(value))
        )  # of its own: what follows may be written in place
        if leaf in self.asked:
            self.gradients[leaf] = gradient
        if self.accumulates:
            take_in(leaf, leaf_hooks, gradient, create=True)

    def arrived(self, key: Any) -> None:
        """Give a gradient to the tensors that retain it."""
        for tensor in self.retained.pop(key, ()) if key in self.gradients else ():
            accumulate(tensor, self.gradients[key], create=True)

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves, and of tensors that retain theirs."""
        for key in list(self.retained):
            self.arrived(key)
        for leaf, value in self.leaves.items():
            if hooks.existing(leaf) is None:
                accumulate(leaf, views.clone(value), create=True)
            else:
                self.serve(leaf, value)
