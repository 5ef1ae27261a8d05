"""Gradients that a compiled function takes inside: of what it has recorded so far, replayed as a program of its own."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.arrays.sweep_interface import Array
from kernels.codegen.tasks import NodeRef
from kernels.instructions.form import Form
from kernels.kinds.callback import Callback
from kernels.kinds.view import Part, View
from kernels.kinds.write import Write
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import Step, StepKind
from tape.compiled.recording.sameness import same_kind
from tape.engine.backward import grad
from tape.programs.interpreting import interpreted
from tape.programs.pulling import Pulling
from tape.tensors import grad_modes
from tape.tensors.tensor import Tensor, scalar_or_array


class Differentiated:
    """The steps of a recording that lead from some nodes to others, as a recipe of their own.

    ``forms`` are the instruction forms of the results by node, ``superseded`` nodes of which they are not known, since
    their tensors have become others. What those steps use, and did not make, are its arguments: ``operands`` are their
    nodes in the recording. NotImplementedError where memory of these was written to.
    """

    def __init__(
        self,
        recipe: Recipe,
        forms: Mapping[int, Form],
        superseded: Collection[int],
        outputs: Sequence[int],
        inputs: Sequence[int],
    ) -> None:
        self._old, self._forms, self.recipe = recipe, forms, Recipe()
        self._superseded = superseded
        self.operands: list[int] = []
        self._inputs = set(inputs)
        self._places: dict[int, int] = {}
        self._kinds: dict[Any, int] = {}
        if any(recipe.family_of(node) != node for node in inputs):
            raise NotImplementedError("a gradient by a view")
        steps = self._leading(outputs)
        self._check_written([*outputs, *inputs], steps)
        self._made = {recipe.steps[at].result for at in steps}
        for node in inputs:
            self._place(node)
        for at in steps:
            self._add(at)
        self.recipe.outputs = [self._place(node) for node in outputs]
        self.recipe.steps.fit()

    def _leading(self, outputs: Sequence[int]) -> list[int]:
        """Return the steps through which gradients go, in order."""
        family, reached, through = self._old.family_of, set(self._inputs), []
        for step in self._old.steps:
            form = self._forms.get(step.result)
            if isinstance(step.op, (View, Part, Write)) or step.result in self._inputs:
                continue
            called = isinstance(step.op, Callback)
            written = step.result in self._superseded or (form is not None and form.op is not step.op)
            if (called or written) and any(family(o.node) in reached for o in nodes_of(step)):
                reason = f"through {step.params[0].name}" if called else "after writes"
                raise NotImplementedError(f"a gradient {reason}")
            if form is None or called or written:
                continue
            if any(
                want and isinstance(o, NodeRef) and family(o.node) in reached
                for o, want in zip(step.operands, form.wanted, strict=True)
            ):
                reached.add(step.result)
                through.append(step)
        needed, steps = {family(node) for node in outputs}, []
        for step in reversed(through):
            if step.result in needed:
                steps.append(step.at)
                needed.update(family(o.node) for o in nodes_of(step))
        return steps[::-1]

    def _check_written(self, ends: Sequence[int], steps: Sequence[int]) -> None:
        """Raise where memory that is used was written to, earlier or later."""
        old, kinds = self._old, self._old.steps.kinds
        if not any(isinstance(kind.op, Write) for kind in kinds):
            return
        written = {old.base_of(step.result) for step in old.steps if isinstance(step.op, Write)}
        used = [*ends, *[o.node for at in steps for o in nodes_of(old.steps[at])]]
        if any(old.base_of(node) in written for node in used):
            raise NotImplementedError("a gradient after writes")

    def _add(self, at: int) -> None:
        step, steps = self._old.steps[at], self.recipe.steps
        form = self._forms[step.result]
        operands = [self._place(o.node) if isinstance(o, NodeRef) else steps.number(o) for o in step.operands]
        key = id(step.op), id(form), id(step.params), len(operands)
        number = self._kinds.setdefault(key, len(steps.kinds))
        if number == len(steps.kinds):
            steps.kinds.append(StepKind(step.op, form, step.params, len(operands)))
        steps.add(number, self._place(step.result), operands)

    def _place(self, node: int) -> int:
        """Return the node that stands for one of the recording."""
        known = self._places.get(node)
        if known is not None:
            return known
        old, entry = self._old.nodes, self._old.nodes[node]
        if node in self._inputs:
            made = self._argument(node, Node(entry.spec, argument=True, differentiable=True))
        elif entry.family is not None and entry.family in self._inputs:
            top = self._place(entry.family)
            made = replace(entry, base=top, family=top, offset=entry.offset - old[entry.family].offset)
        elif entry.base is not None:
            base, family = self._place(entry.base), None if entry.family is None else self._place(entry.family)
            made = replace(entry, base=base, family=family, differentiable=False)
        elif node in self._made:
            made = Node(entry.spec, differentiable=True)
        else:
            made = self._argument(node, Node(entry.spec, argument=True))
        self.recipe.nodes.append(made)
        self._places[node] = len(self.recipe.nodes) - 1
        return self._places[node]

    def _argument(self, node: int, made: Node) -> Node:
        self.recipe.arguments.append(len(self.recipe.nodes))
        self.operands.append(node)
        return made


def nodes_of(step: Step) -> list[NodeRef]:
    """Return the operands of a step that are nodes."""
    return [o for o in step.operands if isinstance(o, NodeRef)]


class GradientCall:
    """A gradient as it was taken: the recipe, by its first ``count`` arguments, from cotangents of its results.

    ``kept`` says of each gradient whether it is asked for, ``rows`` how many cotangents come at once, 0 for one.
    """

    def __init__(self, recipe: Recipe, count: int, kept: Sequence[bool], rows: int) -> None:
        self.recipe, self.count, self.kept, self.rows = recipe, count, tuple(kept), rows

    name = "a gradient"

    def _identity(self) -> tuple[Any, ...]:
        r = self.recipe
        return r.steps.words, r.arguments, r.outputs, self.count, self.kept, self.rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GradientCall) or self._identity() != other._identity():
            return False
        a, b = self.recipe, other.recipe
        pairs = zip(a.steps.kinds, b.steps.kinds, strict=False)
        alike = len(a.steps.kinds) == len(b.steps.kinds) and a.steps.numbers == b.steps.numbers and a.nodes == b.nodes
        return alike and all(same_kind(x, y) for x, y in pairs)

    def __hash__(self) -> int:
        return hash((bytes(self.recipe.steps.words), self.kept, self.rows))

    def __str__(self) -> str:
        return f"through {len(self.recipe.steps)} operations"

    @functools.cached_property
    def _pulling(self) -> Pulling:
        return Pulling(self.recipe)

    def run(self, values: list[Array]) -> tuple[list[Array], None]:
        """Return the gradients, zeros where nothing was reached."""
        pulling, inputs = self._pulling, len(self.recipe.arguments)
        arguments = [scalar_or_array(x) for x in values[:inputs]]
        cotangents = [values[inputs + k] for k in pulling.with_gradient]
        if not self.rows:
            gradients = self._pulled(arguments, cotangents)
        else:
            rows = [self._pulled(arguments, [w[row] for w in cotangents]) for row in range(self.rows)]
            gradients = [np.stack(column) for column in zip(*rows, strict=True)]
        return [g for g, kept in zip(gradients, self.kept, strict=True) if kept], None

    def _pulled(self, arguments: list[Any], cotangents: list[Array]) -> list[Array]:
        gradients = self._pulling.pulled(arguments, [np.ascontiguousarray(w) for w in cotangents])
        return [g + g.dtype.type(0.0) for g in gradients]

    def gradients(self, g: Array, saved: dict[str, Any], specs: tuple[Spec | None, ...]) -> list[Array | None]:
        """Return nothing: such a gradient is not differentiated."""
        del g, saved
        return [None] * len(specs)

    def on_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Take the gradient as in dynamic mode."""
        inputs, count = len(self.recipe.arguments), self.count
        with grad_modes.enable_grad():
            leaves = [x.detach().requires_grad_() if k < count else x.detach() for k, x in enumerate(tensors[:inputs])]
            results = interpreted(self.recipe, leaves)
            graded = [(y, w) for y, w in zip(results, tensors[inputs:], strict=True) if y._slot is not None]
            outputs, cotangents = [y for y, _ in graded], [w for _, w in graded]
            gradients = grad(outputs, leaves[:count], cotangents, allow_unused=True, is_grads_batched=self.rows > 0)
        return [g for g, kept in zip(gradients, self.kept, strict=True) if kept and g is not None]
