"""The graph as PyTorch shows it: nodes made on demand from the tape's instructions."""

from __future__ import annotations

from typing import Any

from kernels.forms import Form
from tape import errors, recording
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

    def register_hook(self, hook: Any) -> Any:
        """Refuse: hooks of nodes are not in this version."""
        raise NotImplementedError(errors.LATER.format("Node.register_hook", "use retain_grad to see a gradient"))

    register_prehook = register_hook


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


__all__ = ["AccumulateGrad", "Node", "node_of"]
