"""Loops of a program as tasks: what begins and ends them and their bodies, forward, and what is kept for the way back.

An iteration tries the bodies in order. What it saves for its pullbacks is pushed on a stack; the reverse pops it, and
runs the pullbacks of the body that made it. What is phis stands in nodes of its own, and so do its gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kernels.arrays.specs import Spec
from kernels.codegen.tasks import Place, Steering, Tasks, node_of
from kernels.kinds.loop import LoopEnd
from kernels.kinds.program_interface import Step
from kernels.native.tape_structs import RUN_AGAIN, RUN_BODY, RUN_LOOP, RUN_NEXT, LoopStack
from kernels.programs.recording.program import Recipe

Array = np.ndarray[Any, Any]
_FLOAT64 = np.dtype(np.float64)


@dataclass(slots=True)
class Body:
    """One body: the steps from ``first`` on, before ``last``, the values that it carries on, and where its tasks are.

    ``begin`` is its first task, ``again`` the one that saves, ``next`` the last; ``restore`` and ``before`` are the
    first and the last of its pullbacks.
    """

    first: int
    last: int = 0
    updates: list[int] = field(default_factory=list)
    begin: int = 0
    again: int = 0
    next: int = 0
    restore: int = -1
    before: int = -1


@dataclass(slots=True)
class LoopTasks:
    """One loop: its first step, its nodes, its bodies, and where its tasks are, forward and back: -1 if there are none.

    ``start`` is the first, ``end`` the one behind the last; ``back``, ``choose`` and ``back_end`` likewise.
    """

    step: int
    state: int
    phis: list[int]
    counted: bool
    start: int
    bodies: list[Body] = field(default_factory=list)
    end: int = 0
    back: int = -1
    choose: int = -1
    back_end: int = -1


class _Lowering(Protocol):
    def spec(self, node: int) -> Spec:
        """Return the spec of a node."""

    def temporary(self, shape: Any, dtype: Any) -> int:
        """Return a new node."""

    def operand(self, operand: Any, dtype: Any) -> int:
        """Return an operand in a dtype."""

    def copy_between(self, source: int, target: int) -> None:
        """Copy a node."""


class Loops:
    """The loops of a program that is being lowered, in the order of their ends."""

    def __init__(self, recipe: Recipe, tasks: Tasks) -> None:
        self.recipe, self.tasks, self.all = recipe, tasks, list[LoopTasks]()
        self.stack = -1
        """The node of what all loops share: where values are kept for the way back."""
        self._open: list[LoopTasks] = []

    def begin(self, step: Step, lowering: _Lowering) -> None:
        """Begin a loop, and its first body."""
        limit, has_count, counted, _ = step.params
        phis = [node_of(o) for o in step.operands[: len(step.operands) - has_count]]
        if self.stack < 0:
            self.stack = lowering.temporary((LoopStack.SIZE,), np.dtype(np.int64))
        places = [Place(step.result), Place(self.stack)]
        if has_count:
            places.append(Place(lowering.operand(step.operands[-1], _FLOAT64)))
        self._open.append(LoopTasks(step.at, step.result, phis, counted, len(self.tasks)))
        self.tasks.append(Steering(RUN_LOOP, tuple(places), -1 if limit is None else limit))
        self._begin_body(step.at + 1)

    def _begin_body(self, first: int) -> None:
        loop = self._open[-1]
        loop.bodies.append(Body(first, begin=len(self.tasks)))
        self.steer(loop, RUN_BODY)

    def steer(self, loop: LoopTasks, kind: int, number: int = 0) -> None:
        """Append a row that steers a loop."""
        self.tasks.append(Steering(kind, (Place(loop.state), Place(self.stack)), number))

    def again(self, step: Step, lowering: _Lowering) -> None:
        """End a body: save, carry values on, and go back to the first body."""
        loop = self._open[-1]
        body = loop.bodies[-1]
        body.last, body.updates = step.at, [node_of(o) for o in step.operands]
        body.again = len(self.tasks)
        self.steer(loop, RUN_AGAIN, len(loop.bodies) - 1)
        pairs = [(o, c) for o, c in zip(body.updates, loop.phis, strict=True) if o != c]
        if crosses(self.recipe, loop, body):
            pairs = [(_copied(lowering, o), c) for o, c in pairs]
        for o, c in pairs:
            lowering.copy_between(o, c)
        body.next = len(self.tasks)
        self.steer(loop, RUN_NEXT, body.next - body.begin)
        if not isinstance(self.recipe.steps[step.at + 1].op, LoopEnd):
            self._begin_body(step.at + 1)

    def end(self, step: Step) -> None:
        """End a loop."""
        del step
        loop = self._open.pop()
        loop.end = len(self.tasks)
        self.all.append(loop)

    def ending_with(self, at: int) -> LoopTasks:
        """Return the loop whose last step this is."""
        return next(loop for loop in self.all if loop.bodies[-1].last == at - 1)

    def finish(self) -> None:
        """Note which values each iteration saves: what its pullbacks read and the next iteration computes anew."""
        tasks, recipe = self.tasks, self.recipe
        if not self.all:
            return
        numbers = np.array(tasks.call_numbers, np.int64)
        ends = np.concatenate([[0], np.array(tasks.counts, np.int64)[numbers].cumsum()])
        places = np.array(tasks.places, np.int64)

        def named(first: int, last: int) -> set[int]:
            used = places[ends[first] : ends[last]]
            return {recipe.base_of(node) for node in used[used >= 0].tolist()}

        for loop in self.all:
            if loop.back < 0:
                continue
            before = named(0, loop.start + 1) - set(loop.phis)
            for body in loop.bodies:
                made = named(body.begin + 1, body.next) - before
                read = named(body.restore + 1, body.before) & made
                saved = sorted(n for n in read if recipe.nodes[n].constant is None and not recipe.nodes[n].argument)
                for task in (body.again, body.restore):
                    tasks.calls[tasks.call_numbers[task]].saved[:] = saved


def _copied(lowering: _Lowering, node: int) -> int:
    spec = lowering.spec(node)
    copied = lowering.temporary(spec.shape, spec.dtype)
    lowering.copy_between(node, copied)
    return copied


def crosses(recipe: Recipe, loop: LoopTasks, body: Body) -> bool:
    """Whether an update is a phi, or a part of one, but not its own."""
    pairs = zip(body.updates, loop.phis, strict=True)
    return any(o != c and recipe.base_of(o) in loop.phis for o, c in pairs)
