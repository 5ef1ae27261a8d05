"""Replay: a recipe lowered to rows of words, each machine with memory of its own; native from first row to last."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels import jit, words
from kernels.forms import Form
from kernels.lowering import Lowering
from kernels.memory import address_of
from kernels.program import NodeRef, Recipe, Step
from kernels.tasks import Call, Fill, Place, Task, nest_layout

Array = np.ndarray[Any, Any]
_ALIGN = 64


@dataclass(slots=True)
class Plan:
    """A recipe made ready: forward and reverse tasks, and which nodes have a shadow."""

    recipe: Recipe
    forward: list[Task]
    reverse: list[Task]
    shadows: dict[int, int]
    """Elements of the shadow of each base node that has one."""


def plan(recipe: Recipe) -> Plan:
    """Lower a recipe; its reverse starts from the first output, if that is one floating element."""
    lowering = Lowering(recipe)
    forward = lowering.run()
    reverse = _Reverse(recipe, lowering)
    output = recipe.outputs[0]
    if recipe.nodes[output].differentiable:
        reverse.run(output)
    return Plan(recipe, forward, reverse.tasks, reverse.shadows)


class _Reverse:
    """The pullbacks of a program, last step first; what is stored and what accumulated is known here."""

    def __init__(self, recipe: Recipe, lowering: Lowering) -> None:
        self.recipe = recipe
        self.lowering = lowering
        self.tasks: list[Task] = []
        self.shadows: dict[int, int] = {}
        self.touched: set[int] = set()

    def run(self, output: int) -> None:
        node = self.recipe.nodes[output]
        base = self._shadow(output)
        self._fill(base, node.spec.dtype, -0.0)
        self.tasks.append(Fill(Place(base, shadow=True, offset=node.shadow), 1, node.spec.dtype, 1.0))
        for step in reversed(self.recipe.steps):
            if step.form is not None and not step.form.is_view and step.result in self.touched:
                self._pull(step, step.form)

    def _shadow(self, node: int) -> int:
        """Make room for a node's gradient; return the base that it belongs to."""
        base = self.recipe.base_of(node) if self.recipe.nodes[node].differentiable else node
        self.shadows.setdefault(base, self.recipe.nodes[node].spec.shadow)
        return base

    def _fill(self, base: int, dtype: np.dtype[Any], value: float) -> None:
        self.tasks.append(Fill(Place(base, shadow=True), self.shadows[base], dtype, value))
        self.touched.add(base)

    def _pull(self, step: Step, form: Form) -> None:
        """Add the pullbacks of one step, for the operands whose gradient is wanted."""
        saved = [Place(self._saved(step, form, name)) for name in form.saved]
        for i, pull in enumerate(form.pulls):
            spec, given = form.specs[i], step.operands[i]
            if pull is None or spec is None or not isinstance(given, NodeRef):
                continue
            node = self.recipe.nodes[given.node]
            if not node.differentiable:
                continue
            base = self._shadow(given.node)
            first = base not in self.touched
            covers = form.covers[i]
            if first and not covers:
                self._fill(base, spec.dtype, -0.0)
            self.touched.add(base)
            target = Place(base, shadow=True, offset=node.shadow)
            cotangent = Place(step.result, shadow=True)
            accumulate = not (first and covers)
            self.tasks.append(Call(pull, f"{form.op.name}_d{i}", (target, cotangent, *saved), accumulate))

    def _saved(self, step: Step, form: Form, name: str) -> int:
        if name == "y":
            return step.result
        if name in ("n", "i"):
            assert step.extra is not None
            return step.extra
        inputs = getattr(form.op, "inputs", ("a", "b") if len(form.specs) > 1 else ("x",))
        given = step.operands[inputs.index(name)]
        return given.node if isinstance(given, NodeRef) else self.lowering.number(given)


class Machine:
    """A plan with memory and rows of its own: runs one call at a time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.recipe = plan.recipe
        self.native = jit.load_module("replay_native")
        self.kept: list[Any] = []
        self._place()
        self.forward = self._rows(plan.forward)
        self.reverse = self._rows(plan.reverse)

    def _place(self) -> None:
        """Give each node and shadow its address: one block of memory, constants that are arrays in their own."""
        offsets: dict[tuple[int, bool], int] = {}
        size = 0
        for i, node in enumerate(self.recipe.nodes):
            if node.base is None and (node.constant is None or node.constant.ndim == 0):
                offsets[i, False] = size
                size += _room(node.spec.size * node.spec.dtype.itemsize)
        for i, elements in self.plan.shadows.items():
            offsets[i, True] = size
            size += _room(elements * self.recipe.nodes[i].spec.dtype.itemsize)
        self.memory = np.zeros(size + _ALIGN, np.uint8)
        start = address_of(self.memory)
        start += -start % _ALIGN
        self.shadows = {i: start + offset for (i, shadow), offset in offsets.items() if shadow}
        self.values = [start + offsets.get((i, False), 0) for i in range(len(self.recipe.nodes))]
        for i, node in enumerate(self.recipe.nodes):
            if node.constant is not None and node.constant.ndim:
                self.values[i] = address_of(node.constant)
            elif node.base is not None:
                self.values[i] = self.values[node.base] + node.offset
        for i, node in enumerate(self.recipe.nodes):
            if node.constant is not None and not node.constant.ndim:
                self.view(i)[...] = node.constant
        self.inputs = [self.view(i) for i in self.recipe.arguments]
        self.outputs = [self.view(i) for i in self.recipe.outputs]
        self.gradients = [
            self.view(i, shadow=True) if i in self.plan.shadows else np.zeros_like(self.view(i))
            for i in self.recipe.arguments
            if self.recipe.nodes[i].differentiable
        ]

    def address(self, place: Place) -> int:
        """Return where a place begins in this machine's memory."""
        start = self.shadows[place.node] if place.shadow else self.values[place.node]
        return start + place.offset

    def view(self, i: int, *, shadow: bool = False) -> Array:
        """Return a node's value, or its gradient, as an array of this machine's memory."""
        node = self.recipe.nodes[i]
        base = self.recipe.base_of(i) if shadow and node.differentiable else i
        address = self.address(Place(base, shadow=True, offset=node.shadow) if shadow else Place(i))
        strides = node.spec.gradient if shadow else node.spec.strides
        if node.spec.size == 0:
            return np.zeros(node.spec.shape, node.spec.dtype)
        at = address - address_of(self.memory)
        if 0 <= at < len(self.memory):
            return np.ndarray(node.spec.shape, node.spec.dtype, self.memory, at, strides)
        constant = self.recipe.nodes[i if node.base is None else node.base].constant
        assert constant is not None
        return np.lib.stride_tricks.as_strided(
            constant.reshape(-1)[:1] if constant.size else constant, node.spec.shape, strides
        )

    def _rows(self, tasks: list[Task]) -> Array:
        """Lower tasks to rows; all their pointers stand in one table, in the order of use."""
        rows, table, starts = np.zeros((len(tasks), words.ROW), np.int64), [], []
        for k, task in enumerate(tasks):
            starts.append(len(table))
            rows[k, :-1] = self._row(task, table)
        pointers = np.array(table, np.int64)
        rows[:, words.R_POINTERS] = address_of(pointers) + 8 * np.array(starts, np.int64)
        self.kept += [pointers, rows]
        return rows

    def _row(self, task: Task, table: list[int]) -> tuple[int, ...]:
        """Return a row without its pointers, which go to the table."""
        if isinstance(task, Fill):
            kind = words.RUN_FILL8 if task.dtype.itemsize == _DOUBLE else words.RUN_FILL4
            return kind, self.address(task.place), 0, 0, 0, _bits(task.value, task.dtype), task.elements
        table += [self.address(place) for place in task.places]
        count = len(task.places)
        if isinstance(task, Call):
            address, layout = _compiled(task)
            return words.RUN_KERNEL, address, layout, 0, task.accumulate, 0, count
        layout = nest_layout(task)
        self.kept.append(layout)
        table += [0] * (2 * count + 1)  # room for the call's arguments
        return words.RUN_NEST, task.loop.address, address_of(layout), 0, 0, task.loop.data, count

    def run(self, rows: Array) -> None:
        """Run rows of the native program."""
        if len(rows):
            self.native.run(address_of(rows), len(rows))


_DOUBLE = 8
_kernels: dict[Any, tuple[int, Array]] = {}
_by_identity: dict[int, tuple[Any, int, int]] = {}


def _compiled(task: Call) -> tuple[int, int]:
    """Return the addresses of a task's kernel and layout, made once for equal tasks."""
    kernel = task.kernel
    found = _by_identity.get(id(kernel))
    if found is None:
        made = _kernels.get(kernel)
        if made is None:
            # setdefault: rows hold the address of a layout, so the one that another thread made first must stay.
            made = _kernels.setdefault(kernel, kernel.kernel(task.label))
        found = _by_identity[id(kernel)] = (kernel, made[0], address_of(made[1]))
    return found[1], found[2]


def _room(size: int) -> int:
    return max(-(-size // 8) * 8, 8)


def _bits(value: float, dtype: np.dtype[Any]) -> int:
    """Return the bits of a number in a dtype of 4 or 8 bytes as an int64."""
    raw = np.array(value, dtype).tobytes()
    return int(struct.unpack("q" if len(raw) == _DOUBLE else "i", raw)[0])
