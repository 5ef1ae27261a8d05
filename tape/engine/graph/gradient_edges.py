"""``graph.GradientEdge``: a place in the graph, without its tensor, as a root of a backward or one of its inputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernels.instructions.form import Descriptor
from kernels.native.tape_structs import VIEW
from tape import errors
from tape.engine.graph import nodes
from tape.engine.graph.nodes import FunctionNode, Node
from tape.recording import record
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
