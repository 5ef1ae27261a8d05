"""The recorder: notes the operations of a function that depend on its arguments, as a recipe."""

from __future__ import annotations

import sys
from typing import Any

from kernels.forms import Form
from kernels.memory import address_of
from kernels.op import Select, View
from kernels.program import Node, NodeRef, Recipe, Step
from tape.tensor import AccumulateGrad, Tensor, as_array

_PACKAGES = ("tape", "kernels", "copy", "copyreg")


class Recorder:
    """Notes each operation that depends on the arguments, in the order they run."""

    def __init__(self) -> None:
        self.recipe = Recipe()
        self.nodes: dict[int, int] = {}
        self.held: list[Any] = []
        self.escapes: list[str] = []
        self.open = False

    def argument(self, x: Tensor) -> int:
        """Make a tensor an argument; return its node."""
        self.recipe.arguments.append(len(self.recipe.nodes))
        return self._add(x, Node(x.spec, argument=True, differentiable=x._slot is not None))

    def _add(self, x: Tensor, node: Node) -> int:
        self.recipe.nodes.append(node)
        self.held.append(x)  # its id stays its own
        self.nodes[id(x)] = len(self.recipe.nodes) - 1
        return len(self.recipe.nodes) - 1

    def note(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Record an operation if an operand depends on the arguments."""
        if self.open:
            self._find_arguments(operands)
        if not any(id(o) in self.nodes for o in operands if isinstance(o, Tensor)):
            return
        refs = tuple(self.reference(o) for o in operands)
        form = result._form if isinstance(result._form, Form) and type(result._slot) is int else None
        wanted = form is not None and any(
            isinstance(r, NodeRef) and self.recipe.nodes[r.node].differentiable and want
            for r, want in zip(refs, form.wanted, strict=True)
        )
        node = Node(result.spec, differentiable=wanted)
        if isinstance(op, View):
            self._place_view(node, operands[0], result)
        if isinstance(op, Select) and operands[0].spec.dtype.kind != "f":
            self.left(result)
        index = self._add(result, node)
        self.recipe.steps.append(Step(op, refs, index, params, form if wanted else None))

    def _find_arguments(self, operands: tuple[Any, ...]) -> None:
        """With no arguments given, the leaves that require grad are the arguments, in the order of their use."""
        for o in operands:
            if isinstance(o, Tensor) and type(o._slot) is AccumulateGrad and id(o) not in self.nodes:
                self.argument(o)

    def reference(self, operand: Any) -> Any:
        """Return the node of a tensor, a constant if it is new; other operands as they are."""
        if not isinstance(operand, Tensor):
            return operand
        node = self.nodes.get(id(operand))
        if node is None:
            value = as_array(operand)
            node = self._add(operand, Node(operand.spec, constant=value))
        return NodeRef(node)

    def _place_view(self, node: Node, source: Tensor, result: Tensor) -> None:
        above = self.nodes[id(source)] if id(source) in self.nodes else self.reference(source).node
        parent = self.recipe.nodes[above]
        node.base = above if parent.base is None else parent.base
        offset = address_of(as_array(result)) - address_of(as_array(source)) if result.spec.size else 0
        node.offset = parent.offset + offset
        node.shadow = result._offset if node.differentiable else 0

    def left(self, tensor: Tensor) -> None:
        """Note that a value which depends on the arguments left for Python, and where."""
        if id(tensor) in self.nodes:
            self.escapes.append(_caller())


def _caller() -> str:
    """Return the line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
