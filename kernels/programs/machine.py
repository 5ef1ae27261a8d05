"""Replay: a recipe lowered to rows of words, each machine with memory of its own; native from first row to last."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kernels.compiler import jit
from kernels.kinds import custom
from kernels.native import words
from kernels.native.memory import where
from kernels.programs.lowering.assembly import Placing, Plan, Rows, block
from kernels.programs.lowering.lower_forward import Lowering
from kernels.programs.lowering.lower_reverse import Reverse
from kernels.programs.recording.program import Recipe
from kernels.programs.running.exchange import Exchange

Array = np.ndarray[Any, Any]
_WIDTH = 8 * words.ROW
"""Bytes of a row."""


def plan(recipe: Recipe, *, reverse: bool) -> Plan:
    """Lower a recipe; its reverse starts from the first output, if that is one floating element."""
    own = recipe.copy()
    lowering = Lowering(own, reverse=reverse)
    tasks = lowering.run()
    forward, back = len(tasks), Reverse(own, lowering)
    if reverse and own.wants(own.outputs[0]):
        back.run(own.outputs[0])
    return Plan(own, tasks, forward, back.buffers, reverse)


class Machine:
    """A plan with memory and rows of its own: runs one call at a time. The plan is not kept."""

    def __init__(self, plan: Plan) -> None:
        self.native = jit.entry(jit.load_module("programs.running.replay_native").run)
        placing = Placing(plan)
        self.memory, self.start, self.size = placing.memory, placing.start, placing.size
        self.forward, self.reverse = placing.rows(plan.forward)
        nodes = plan.recipe.nodes
        self.inputs = [placing.view(i) for i in plan.recipe.arguments]
        self.outputs = [placing.view(i) for i in plan.recipe.outputs]
        self.gradients = [
            placing.view(i, gradient=True) if i in plan.buffers else np.zeros_like(placing.view(i))
            for i in plan.recipe.arguments
            if nodes[i].differentiable and plan.differentiates
        ]
        self._open()
        constants = [node.constant for node in nodes if node.constant is not None and node.constant.ndim]
        self.kept = [plan.compiled, placing.layouts, constants]

    def copy(self) -> Machine:
        """Return another with memory of its own, for a call while this one runs: it needs no plan."""
        other: Machine = object.__new__(Machine)
        other.native, other.kept, other.size = self.native, self.kept, self.size
        other.memory, other.start = block(self.size)
        first, start = self.start - where(self.memory), other.start - where(other.memory)
        other.memory[start : start + self.size] = self.memory[first : first + self.size]  # numbers stand in it
        other.inputs, other.outputs, other.gradients = (
            [self._moved(x, other) for x in group] for group in (self.inputs, self.outputs, self.gradients)
        )
        other.forward, other.reverse = self._moved_rows(self.forward, other), self._moved_rows(self.reverse, other)
        other._open()
        return other

    def _open(self) -> None:
        """Let arguments in and results out; where nothing else is to be done between, by one call."""
        rows = [self.forward, self.reverse]
        joined = np.concatenate([own.words for own in rows])
        begin = 0
        for own in rows:
            own.words = joined[begin : begin + len(own.words)]
            own.start = where(own.words)
            begin += len(own.words)
        simple = [len(own.stretches) <= 1 and all(call is None for *_, call in own.stretches) for own in rows]
        whole = (where(joined), len(joined)) if all(simple) and not custom.RAN else None
        self.exchange = Exchange(self.inputs, self.outputs, self.gradients, whole)

    def _moved(self, array: Array, other: Machine) -> Array:
        """Return, of an array in this machine's memory, the one at that place in another's; others as they are."""
        if not array.size or not self.start <= where(array) < self.start + self.size:
            return array
        at = where(array) - self.start + other.start - where(other.memory)
        return np.ndarray(array.shape, array.dtype, other.memory, at, array.strides)

    def _moved_rows(self, rows: Rows, other: Machine) -> Rows:
        own, pointers = rows.words.copy(), rows.pointers.copy()
        for addresses in (own[:, words.R_ADDRESS], pointers):  # of kernels, too: they are elsewhere
            addresses[(addresses >= self.start) & (addresses <= self.start + self.size)] += other.start - self.start
        own[:, words.R_POINTERS] += where(pointers) - where(rows.pointers)
        own[own[:, words.R_KIND] == words.RUN_INLINE, words.R_DATA] = other.start
        stretches = [
            (first, stop, call and partial(call.func, [self._moved(x, other) for x in call.args[0]]))
            for first, stop, call in rows.stretches
        ]
        return Rows(own, pointers, stretches)

    def run(self, rows: Rows) -> None:
        """Run rows of the native program."""
        for first, stop, call in rows.stretches:  # between them Python can take an interrupt
            self.native(rows.start + first * _WIDTH, stop - first)
            if call is not None:
                call()
        if custom.RAN:
            custom.check_failed()

    def whole(self, given: Sequence[Any]) -> tuple[Any, ...] | None:
        """Run on floats and arrays as they were recorded; return results and gradients. None for what else is given."""
        if self.exchange.whole is not None:
            return self.exchange.whole(*given) or None
        if not self.exchange.enter(*given):
            return None
        self.run(self.forward)
        self.run(self.reverse)
        return self.exchange.leave()
