"""``autograd.graph``: nodes of tensors, hooks of leaves' nodes, what the graph saves."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any, Self
from weakref import WeakKeyDictionary

from tape.engine import nodes
from tape.engine.nodes import GradientEdge, Node, get_gradient_edge, node_of
from tape.engine.saved_tensors import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from tape.engine.sweep_run import register_multi_grad_hook
from tape.recording import record
from tape.tensors import view_families
from tape.tensors.hooks import Hook, RemovableHandle, of_leaf
from tape.tensors.tensor import AccumulateGrad, Tensor, attribute


@attribute
def grad_fn(x: Tensor) -> Any:
    """The node that computed this tensor; None for leaves."""
    return None if record.leaf_of(x) else nodes.of_tensor(x)[0]


@attribute
def output_nr(x: Tensor) -> int:
    """Which output of its node this is: of a Function with several results, else 0."""
    return 0 if record.leaf_of(x) else nodes.of_tensor(x)[1]


def _leaf_hook(node: AccumulateGrad, hook: Hook) -> RemovableHandle:
    """Call ``hook(grad_inputs, grad_outputs)`` after the gradient was added to the leaf; grad_inputs is empty."""
    return RemovableHandle(of_leaf(node).after, hook)


def _leaf_prehook(node: AccumulateGrad, hook: Hook) -> RemovableHandle:
    """Call ``hook(grad_outputs)`` before the gradient is added to the leaf."""
    return RemovableHandle(of_leaf(node).before, hook)


def increment_version(tensors: Any) -> None:
    """Count a write to the memory of a tensor, or of several, that was done outside of this library."""
    for x in (tensors,) if isinstance(tensors, Tensor) else tensors:
        view_families.counter_of(x)[0] += 1


class set_multithreading_enabled(ContextDecorator):  # noqa: N801 (PyTorch's name)
    """Nothing to do: a backward runs in the thread that calls it. Context manager and decorator."""

    def __init__(self, mode: bool) -> None:
        del mode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        del error


_METADATA: WeakKeyDictionary[AccumulateGrad, dict[str, Any]] = WeakKeyDictionary()


_NOTES, _LEAF = "A dict for notes on this node; it lasts as long as the leaf.", "The leaf; None if it is gone."
AccumulateGrad.metadata = property(lambda node: _METADATA.setdefault(node, {}), doc=_NOTES)  # type: ignore[attr-defined]
AccumulateGrad.variable = property(lambda node: node.owner(), doc=_LEAF)  # type: ignore[attr-defined]
AccumulateGrad.register_hook = _leaf_hook  # type: ignore[attr-defined]
AccumulateGrad.register_prehook = _leaf_prehook  # type: ignore[attr-defined]

__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "node_of", "register_multi_grad_hook", "save_on_cpu",
    "saved_tensors_hooks", "set_multithreading_enabled",
]  # fmt: skip
