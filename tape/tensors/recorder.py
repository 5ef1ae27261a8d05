"""What recorders have in common: which tensor is which node of the program that they record."""

from __future__ import annotations

import sys
from typing import Any

from kernels import PACKAGES
from kernels.native.memory import where
from kernels.programs.program import ProgramNode, Recipe
from tape.tensors.modes import Observer
from tape.tensors.tensor import Tensor, as_array

_PACKAGES = (*PACKAGES, "copy", "copyreg")


class Recorder(Observer):
    """What recorders of programs and of vmap's examples have in common: the program, and which tensor is which node."""

    def __init__(self, recipe: Recipe, nodes: dict[int, int], held: list[Any]) -> None:
        self.recipe, self.nodes, self.held = recipe, nodes, held
        """The node of each tensor by its id, which stays its own as long as the tensor is held."""
        self.escapes: list[str] = []
        self.open = False

    def _add(self, x: Tensor, node: ProgramNode) -> int:
        number = len(self.recipe.nodes)
        self.recipe.nodes.append(node)
        self.held.append(x)
        self.nodes[id(x)] = number
        return number

    def _place_view(self, node: ProgramNode, above: int, source: Tensor, result: Tensor) -> None:
        """Say of which memory a node is a part that shares it with a tensor, whose node is ``above``."""
        parent = self.recipe.nodes[above]
        node.base = above if parent.base is None else parent.base
        same = result._value is source._value or not result.spec.size
        node.offset = parent.offset + (0 if same else where(as_array(result)) - where(as_array(source)))

    def is_argument(self, x: Tensor) -> bool:
        """Return whether a tensor is an argument, which the program may write to."""
        node = self.nodes.get(id(x))
        return not self.open and node is not None and self.recipe.nodes[node].argument

    def becomes_view(self, x: Tensor, name: str) -> None:
        """Refuse to follow an argument that becomes a view of its former self."""
        if self.is_argument(x):
            raise NotImplementedError(
                f"{name} of an argument of a program is not supported: use the result of {name.rstrip('_')}"
            )

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Take in that a tensor has become what another is."""
        if id(value) in self.nodes:
            self.nodes[id(x)] = self.nodes[id(value)]
            self.held.append(x)

    def released(self, x: Tensor, value: Tensor) -> None:
        """Identify what was a view with the copy that it is now."""
        self.nodes.pop(id(x), None)
        Recorder.taken(self, x, value)

    def note_number(self, tensor: Tensor) -> None:
        """Note that a tensor's only element became a Python number, which the caller's code may just compare."""
        self.note_escape(tensor)


def caller() -> str:
    """Return the line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
