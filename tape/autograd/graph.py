"""The graph as PyTorch shows it: nodes made on demand from the tape's instructions."""

from __future__ import annotations

from typing import Any

from kernels.forms import Form
from kernels.words import ADDS, CLEARS, TAPE_BITS, VIEW
from tape import errors, recording, tapes
from tape.autograd.hooks import Hook, Hooks, RemovableHandle, of_leaf, of_slot
from tape.autograd.registration import register_multi_grad_hook
from tape.autograd.saving import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from tape.tensor import AccumulateGrad, Tensor, attribute


class Node:
    """The backward side of one instruction: ``name()`` and ``next_functions``.

    The name is known as long as the node; the operands only while the instruction is on the tape.
    """

    __slots__ = ("_form", "_slot")

    def __init__(self, slot: int, form: Form) -> None:
        self._slot = slot
        self._form = form

    def name(self) -> str:
        """Return the name of the backward function, such as MulBackward0."""
        return self._form.name

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes of the operands, each with the output it stands for; None where no gradient goes."""
        found = recording.locate(self._slot)
        if found is None:
            return tuple((None, 0) for _ in self._form.specs)
        return tuple((node_of(operand), 0) for operand in found.operands)

    @property
    def metadata(self) -> dict[str, Any]:
        """Empty: what PyTorch's anomaly mode keeps of a node."""
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other._slot == self._slot

    def __hash__(self) -> int:
        return hash(self._slot)

    def __repr__(self) -> str:
        return f"<{self._form.name} object at {id(self):#x}>"

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node; a tuple it returns replaces grad_inputs."""
        if self._form.kind in (CLEARS, ADDS):
            raise NotImplementedError(
                f"{self.name()}: a write in place passes its gradient on where it stands; hook the tensors around it"
            )
        return RemovableHandle(self._hooks().after, hook)

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node; a tuple it returns replaces grad_outputs."""
        return RemovableHandle(self._hooks().before, hook)

    def _hooks(self) -> Hooks:
        tape, found = tapes.living.get(self._slot >> TAPE_BITS), recording.locate(self._slot)
        if tape is None or found is None:
            raise errors.GradError(f"{self.name()}: this part of the graph has been released; register hooks before")
        return of_slot(tape, self._slot, found.form.spec, int(found.saved[0]) if found.form.kind == VIEW else 0)


def node_of(operand: Any) -> Any:
    """Return the node of an operand: an instruction's slot, a leaf, or None."""
    if type(operand) is not int:
        return operand
    found = recording.locate(operand)
    return None if found is None else Node(operand, found.form)


@attribute
def grad_fn(x: Tensor) -> Any:
    """The node that computed this tensor; None for leaves."""
    return None if recording.leaf_of(x) else Node(x._slot, x._form)  # type: ignore[arg-type]


@attribute
def output_nr(x: Tensor) -> int:
    """Which output of its node this is."""
    del x
    return 0


def _leaf_hook(node: AccumulateGrad, hook: Hook) -> RemovableHandle:
    """Call ``hook(grad_inputs, grad_outputs)`` after the gradient was added to the leaf; grad_inputs is empty."""
    return RemovableHandle(of_leaf(node).after, hook)


def _leaf_prehook(node: AccumulateGrad, hook: Hook) -> RemovableHandle:
    """Call ``hook(grad_outputs)`` before the gradient is added to the leaf."""
    return RemovableHandle(of_leaf(node).before, hook)


AccumulateGrad.register_hook = _leaf_hook  # type: ignore[attr-defined]
AccumulateGrad.register_prehook = _leaf_prehook  # type: ignore[attr-defined]

__all__ = [
    "AccumulateGrad",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "node_of",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
