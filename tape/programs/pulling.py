"""The pullback of a program: replayed forward and back, natively, from cotangents of its results."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.locks import Lock, cached_property
from kernels.foundation.specs import SCALAR, Array
from kernels.foundation.tables import Recent
from kernels.kinds import reference_tape
from kernels.kinds.custom import LoopAgain, LoopBegin, LoopEnd
from kernels.kinds.form import Form
from kernels.kinds.routine import Unsettled
from kernels.native.structs import REPLAYED, RESULT, FormBlock, InputBlock
from kernels.programs.machine import KeptReplay, Machine, kept_replay, pullback_plan
from kernels.programs.program import Recipe
from kernels.rules.scalar_loops import NodeRef
from tape.engine.backward import grad
from tape.engine.custom_calls import Output
from tape.programs.interpreting import interpreted
from tape.recording import record
from tape.tensors import modes
from tape.tensors.tensor import Tensor, as_array, constant_tensor, leaf, scalar_or_array

NAME = "ReplayBackward"
SAVED = object()
"""Stands among the arguments of a replay for a tensor that the tape has saved."""
_NO_TENSOR = "no tensor"


class CallForm(NamedTuple):
    """What calls on arguments of the same patterns have in common.

    ``table`` is what a sweep runs them back by, None where Python does; ``needs`` says of the program and of each
    argument whether it requires grad, ``tensors`` which arguments are tensors, ``saved`` stands for these if all are.
    """

    form: Form
    table: Array | None
    needs: list[bool]
    tensors: list[int]
    saved: list[Any] | None


class Pulling:
    """Machines of the pullback of a recipe, and what the tape has to know of its results.

    ``keeps``: whether a replay may keep its memory for the pullback, which reads the program's constants, too.
    ``constant`` and ``with_gradient`` are the numbers of the results without and with a gradient, ``graded`` those of
    the arguments that have one.
    """

    def __init__(self, recipe: Recipe, *, keeps: bool = True) -> None:
        self.recipe, self._keeps = recipe, keeps
        nodes = recipe.nodes
        self.specs = [record.dense_spec(nodes[o].spec) for o in recipe.outputs]  # as results are copied
        self.constant = frozenset(k for k, o in enumerate(recipe.outputs) if not recipe.wants(o))
        self.without = [k in self.constant for k in range(len(self.specs))]
        self.direct = not any(self.without) and all(s.shape or s is SCALAR for s in self.specs)
        """Whether all results have a gradient, and are values of tensors as they come from a replay."""
        self.with_gradient = [k for k in range(len(self.specs)) if k not in self.constant]
        self.graded = [i for i, node in enumerate(recipe.arguments) if nodes[node].differentiable]
        self.outputs = [(reference_tape.output(NAME, s), Output(k, len(self.specs))) for k, s in enumerate(self.specs)]
        """Of several results: the form of the instruction that each has, and what that saves."""
        specs = [s for k, s in enumerate(self.specs) if k not in self.constant]
        self._nothing = [np.full(s.shape, -0.0, s.dtype) for s in specs]
        self._calls: Recent[tuple[Any, ...], CallForm] = Recent()
        self._machines: list[Machine] = []
        self._first: Machine | None = None
        self._lock = Lock()

    @cached_property
    def kept(self) -> KeptReplay | None:
        """What replays forward and keeps the memory for the pullback; None of programs that are not fit for that."""
        return kept_replay(self.recipe, self.graded) if self._keeps else None

    @cached_property
    def kept_outputs(self) -> list[tuple[Form, Output]]:
        """The ``outputs`` of a call whose memory is kept: their cotangents stay where sweeps have them."""
        forms = [reference_tape.output(NAME, spec) for spec in self.specs]
        for form in forms:
            form.block[FormBlock.SIZE + InputBlock.kernel] = RESULT
        return [(form, output) for form, (_, output) in zip(forms, self.outputs, strict=True)]

    def call_form(self, arguments: Sequence[Any], *, kept: bool) -> CallForm:
        """Return the form of a call, and what a sweep runs it back by if its memory is ``kept``."""
        specs = [
            (None if x._slot is None else x._form.spec) if isinstance(x, Tensor) else _NO_TENSOR for x in arguments
        ]
        key = (kept, *specs)
        known = self._calls.get(key)
        return known if known is not None else self._calls.setdefault(key, self._call_form(specs, kept=kept))

    def _call_form(self, specs: list[Any], *, kept: bool) -> CallForm:
        tensors = [i for i, spec in enumerate(specs) if spec is not _NO_TENSOR]
        operands = tuple([specs[i] for i in tensors])
        spec = self.specs[0] if len(self.specs) == 1 else None
        fits = all(
            s is None or (s.in_order and s.dtype == self.recipe.nodes[self.recipe.arguments[i]].spec.dtype)
            for i, s in zip(tensors, operands, strict=True)
        )
        count, table = len(tensors), None
        if kept and fits and self.kept is not None:
            slots = [0] if spec is not None else range(1, 1 + len(self.with_gradient))
            count, table = count + 2, self.kept.table(tensors, slots, self.reached)
        form = reference_tape.function(NAME, operands, spec, count)
        if table is not None:
            form.block[FormBlock.SIZE + InputBlock.kernel] = REPLAYED
        saved = [SAVED] * len(specs) if len(tensors) == len(specs) else None
        return CallForm(form, table, [False, *[s is not None and s is not _NO_TENSOR for s in specs]], tensors, saved)

    @cached_property
    def reached(self) -> list[frozenset[int]]:
        """For each result with a gradient, the numbers of the arguments that it depends on."""
        recipe, before = self.recipe, None
        masks = {recipe.family_of(recipe.arguments[i]): 1 << i for i in self.graded}
        self._reach(masks)
        loops = any(isinstance(kind.op, LoopBegin) for kind in recipe.steps.kinds)
        while loops and masks != before:  # they give what they reach to what stands before
            before = dict(masks)
            self._reach(masks)
        outputs = [masks.get(recipe.family_of(recipe.outputs[k]), 0) for k in self.with_gradient]
        return [frozenset(i for i in self.graded if mask >> i & 1) for mask in outputs]

    def _reach(self, masks: dict[int, int]) -> None:
        """Take in, step by step, what arguments each value depends on, a bit for each."""
        recipe, phis = self.recipe, list[list[int]]()
        for step in recipe.steps:
            operands = [recipe.family_of(o.node) for o in step.operands if isinstance(o, NodeRef)]
            if isinstance(step.op, LoopBegin):
                phis.append(operands)
            elif isinstance(step.op, LoopEnd):
                phis.pop()
            elif isinstance(step.op, LoopAgain):
                for phi, update in zip(phis[-1], operands, strict=False):
                    masks[phi] = masks.get(phi, 0) | masks.get(update, 0)
            elif step.form is not None:
                result = recipe.family_of(step.result)
                masks[result] = functools.reduce(operator.or_, [masks.get(o, 0) for o in (result, *operands)])

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
        except Unsettled:
            return self._pulled_by_operations(values, cotangents)
        finally:
            self._machines.append(machine)

    def _pulled_by_operations(self, values: Sequence[Any], cotangents: Sequence[Array | None]) -> list[Array]:
        """Return what a replay does, by operations on tensors: where cotangents do not tell the gradient."""
        with modes.under(modes.current()._replace(grad=True, recorder=None)):
            inputs = [leaf(scalar_or_array(np.array(x)), requires_grad=i in self.graded) for i, x in enumerate(values)]
            outputs, wanted = interpreted(self.recipe, inputs), [inputs[i] for i in self.graded]
            numbers = zip(self.with_gradient, cotangents, strict=True)
            pairs = [(outputs[k], constant_tensor(scalar_or_array(g))) for k, g in numbers if g is not None]
            ys, gs = zip(*pairs, strict=True)
            gradients = grad(ys, wanted, gs, allow_unused=True)
        nothing = [np.full(x.spec.shape, -0.0, x.spec.dtype) for x in wanted]
        return [n if g is None else as_array(g) for g, n in zip(gradients, nothing, strict=True)]

    def _machine(self) -> Machine:
        try:
            return self._machines.pop()
        except IndexError:
            with self._lock:
                if self._first is None:
                    self._first = Machine(pullback_plan(self.recipe), exactly=True, marks=True)
                    return self._first
            return self._first.copy()
