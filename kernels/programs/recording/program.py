"""A recorded program as data: nodes for values, steps for operations; and its listing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.codegen.tasks import NodeRef
from kernels.kinds.write import Write
from kernels.programs.recording.program_words import Lines, Steps

Array = np.ndarray[Any, Any]


class ProgramError(RuntimeError):
    """The recorded program cannot be replayed on these arguments; the message says why."""


@dataclass(slots=True)
class Node:
    """A value of the program.

    An argument, a constant (with its array), a result, or a view of node ``base`` at ``offset`` bytes of its memory.
    Results that are alike share one. A view's gradient stands at ``buffer_offset`` bytes of that of node ``family``, if
    that has one (``differentiable``): the node of its base tensor, which for a view of a detached tensor is the
    detached one.
    """

    spec: Spec
    base: int | None = None
    offset: int = 0
    buffer_offset: int = 0
    differentiable: bool = False
    family: int | None = None
    constant: Array | None = None
    argument: bool = False


@dataclass(slots=True)
class Recipe:
    """The whole program: nodes in the order they were made, steps, arguments and outputs by node.

    ``written`` are the arguments that it writes to. ``lines`` are the user's lines, where they are kept.
    """

    nodes: list[Node] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)
    arguments: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    lines: Lines | None = None

    def copy(self) -> Recipe:
        """Return another, of the same nodes and steps, for lowering to add nodes to."""
        return Recipe([*self.nodes], self.steps, self.arguments, self.outputs, self.written, self.lines)

    def base_of(self, node: int) -> int:
        """Return the node whose memory a node shares: itself if it is no view."""
        base = self.nodes[node].base
        return node if base is None else base

    def family_of(self, node: int) -> int:
        """Return the node whose gradient a node's is part of: itself if it is no view."""
        family = self.nodes[node].family
        return node if family is None else family

    def wants(self, node: int) -> bool:
        """Return whether a node has a gradient: its own, or part of its family's."""
        return self.nodes[node].differentiable or self.nodes[self.family_of(node)].differentiable


def listing(recipe: Recipe) -> str:
    """Return the program as text: one line an instruction, below the user's lines, where they are kept."""
    heads = [f"{_name(i)}: {describe(recipe.nodes[i].spec)}" for i in recipe.arguments]
    lines = [f"program({', '.join(heads)})"]
    for i, node in enumerate(recipe.nodes):
        if node.constant is not None:
            lines.append(line(_name(i), "constant", [_short(node.constant)], "", node.spec))
    numbers, before = (recipe.lines.of_steps(recipe.steps).tolist() if recipe.lines is not None else []), -1
    for step in recipe.steps:
        if recipe.lines is not None and numbers[step.at] != before:
            before = numbers[step.at]
            lines.append(f"  # {recipe.lines.text(before)}")
        operands = [_name(o.node) if isinstance(o, NodeRef) else repr(o) for o in step.operands]
        operands = operands[isinstance(step.op, Write) :]
        lines.append(
            line(_name(step.result), step.op.name, operands, parameters(step.params), recipe.nodes[step.result].spec)
        )
    return "\n".join([*lines, f"  return {', '.join(map(_name, recipe.outputs))}"])


def line(result: str, name: str, operands: Iterable[str], params: str, spec: Spec) -> str:
    """Return one instruction as text."""
    left = f"  {result} = {name} {' '.join(operands)}{params}"
    return f"{left:<44} {describe(spec)}".rstrip()


def describe(spec: Spec) -> str:
    """Return dtype and shape as text: ``float64[3, 2]``."""
    return f"{spec.dtype.name}[{', '.join(map(str, spec.shape))}]"


def parameters(params: tuple[Any, ...]) -> str:
    """Return the static parameters of an instruction as text."""
    return "".join(f" {_parameter(p)}" for p in params if p is not None)


def _parameter(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"[{value.size} places]"
    if isinstance(value, Spec):
        return f"to {list(value.shape)}"
    return _index(value) if isinstance(value, tuple) and _has_slice(value) else str(value)


def _has_slice(params: tuple[Any, ...]) -> bool:
    return any(isinstance(p, slice) or p is Ellipsis or p is None for p in params)


def _index(key: tuple[Any, ...]) -> str:
    """Print an index as it is written."""

    def part(k: Any) -> str:
        if not isinstance(k, slice):
            return "..." if k is Ellipsis else str(k)
        ends = ["" if e is None else str(e) for e in (k.start, k.stop, k.step)]
        return ":".join(ends if ends[2] else ends[:2])

    shown = key[:-1] if key and key[-1] is Ellipsis and len(key) > 1 else key
    return f"[{', '.join(map(part, shown))}]"


def _name(node: int) -> str:
    return f"%{node}"


def _short(value: Array) -> str:
    return repr(value.item()) if value.size == 1 else "..."
