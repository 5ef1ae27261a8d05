"""The pullback of a program: replayed forward and back, natively, from cotangents of its results."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.arrays.sweep_interface import Array
from kernels.codegen.tasks import NodeRef
from kernels.instructions import python_pullbacks
from kernels.programs.machine import Machine, pullback_plan
from kernels.programs.recording.program import Recipe
from tape.engine.rules.custom_calls import Output

NAME = "ReplayBackward"


class Pulling:
    """Machines of the pullback of a recipe, and what the tape has to know of its results.

    ``constant`` and ``with_gradient`` are the numbers of the results without and with a gradient, ``graded`` those of
    the arguments that have one.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        nodes = recipe.nodes
        self.specs = [nodes[o].spec for o in recipe.outputs]
        self.constant = frozenset(k for k, o in enumerate(recipe.outputs) if not recipe.wants(o))
        self.with_gradient = [k for k in range(len(self.specs)) if k not in self.constant]
        self.graded = [i for i, node in enumerate(recipe.arguments) if nodes[node].differentiable]
        self.outputs = [
            (python_pullbacks.output(NAME, s), Output(k, len(self.specs))) for k, s in enumerate(self.specs)
        ]
        """Of several results: the form of the instruction that each has, and what that saves."""
        specs = [s for k, s in enumerate(self.specs) if k not in self.constant]
        self._nothing = [np.full(s.shape, -0.0, s.dtype) for s in specs]
        self._machines: list[Machine] = []
        self._first: Machine | None = None
        self._lock = threading.Lock()

    @functools.cached_property
    def reached(self) -> list[frozenset[int]]:
        """For each result with a gradient, the numbers of the arguments that it depends on."""
        recipe = self.recipe
        masks = {recipe.family_of(recipe.arguments[i]): 1 << i for i in self.graded}
        for step in recipe.steps:
            if step.form is not None:
                operands = [recipe.family_of(o.node) for o in step.operands if isinstance(o, NodeRef)]
                result = recipe.family_of(step.result)
                masks[result] = functools.reduce(operator.or_, [masks.get(o, 0) for o in (result, *operands)])
        outputs = [masks.get(recipe.family_of(recipe.outputs[k]), 0) for k in self.with_gradient]
        return [frozenset(i for i in self.graded if mask >> i & 1) for mask in outputs]

    def pulled(self, values: Sequence[Any], cotangents: Sequence[Array | None]) -> list[Array]:
        """Return the gradients of the graded arguments; -0.0 marks elements that nothing reached.

        ``values`` are those of all arguments, ``cotangents`` those of the results that have a gradient.
        """
        filled = [n if g is None else g for g, n in zip(cotangents, self._nothing, strict=True)]
        machine = self._machine()
        try:
            gradients = machine.whole((*values, *filled))
            if gradients is None:
                for place, x in zip(machine.inputs, (*values, *filled), strict=True):
                    place[...] = x
                machine.run(machine.forward)
                machine.run(machine.reverse)
                gradients = tuple([g.copy() for g in machine.gradients])
            return [np.asarray(g) for g in gradients]
        finally:
            self._machines.append(machine)

    def _machine(self) -> Machine:
        try:
            return self._machines.pop()
        except IndexError:
            with self._lock:
                if self._first is None:
                    self._first = Machine(pullback_plan(self.recipe), exactly=True, marks=True)
                    return self._first
            return self._first.copy()
