"""``create_graph=True``: a backward that runs on tensors, and so is recorded itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.numpy_arrays import Seed
from kernels.foundation.specs import SCALAR, Spec
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.saved_values import is_exposed
from kernels.native.structs import PULLS, PYTHON, TAPE_BITS
from kernels.sweeps.graph import Graph, mark
from tape.engine import graph_observers, kind_rules
from tape.engine.accumulate_grad import tape_of
from tape.engine.double_backward_sweep import RecordedSweep
from tape.engine.graph_observers import family_offset
from tape.engine.nodes import Gathered
from tape.engine.sweep_run import REACH, reached
from tape.recording.routine_calls import TensorCall
from tape.recording.views import clone
from tape.tensors import hooks, modes
from tape.tensors.tapes import Tape
from tape.tensors.tensor import AccumulateGrad, Tensor, constant_tensor


def gradients(roots: Sequence[Any], targets: Sequence[Tensor], weights: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return recorded gradients of one root on this thread's tape by leaves; None where only the general way serves."""
    modes.settle()
    tape, root, weight = modes.active(), roots[0], weights[0]
    if not tape or len(roots) > 1 or type(root) is not Tensor or hooks.LEAVES or tape.hooks:
        return None
    slot, form = root._slot, root._form
    spec: Spec = form.spec
    if type(slot) is not int or slot >> TAPE_BITS != tape.number or form.kind != PULLS:  # type: ignore[union-attr]
        return None
    if weight is None:
        weight = constant_tensor(1.0) if spec is SCALAR else None
    if type(weight) is not Tensor or weight._form.spec.shape != spec.shape or weight._form.spec.dtype is not spec.dtype:
        return None
    asked = {x._slot: x for x in targets}
    if len(asked) < len(targets) or not all(type(key) is AccumulateGrad and key.spec.in_order for key in asked):
        return None
    with tape.reading():
        graph = mark(tape.entries, tape.number, [Seed(slot, spec, 1.0)])
        if not graph.ends.keys() >= asked.keys() or graph.foreign() or any(map(_runs_user_code, graph.marked)):
            return None
        run = RecordedRun(restrict=True)
        run.asked = asked
        sweep = RecordedSweep(run, graph, [], {slot})
        sweep.contribute(slot, 0, spec, _unshared(weight), clean=True)
        by_leaf = dict(sweep.run())
    return tuple([by_leaf[key] for key in asked]) if len(by_leaf) == len(asked) else None


def _unshared(weight: Tensor) -> Tensor:
    """Return a cotangent, which may become a gradient as it is, as a tensor whose memory nobody else writes."""
    value = weight._value
    shared = weight._slot is None and type(value) is np.ndarray and is_exposed(value)
    return clone(weight) if shared else weight


def _runs_user_code(instruction: Instruction) -> bool:
    """Whether the user's code runs in the pullback of an instruction."""
    return instruction.form.kind == PYTHON and type(instruction.saved[0]) is not TensorCall


class RecordedRun(Gathered):
    """One backward whose operations are recorded; it frees no part of the graph."""

    def sweep(self, seeds: list[tuple[Tensor, Tensor]]) -> None:
        """Sweep from roots with their cotangents."""
        computed = []
        for root, weight in seeds:
            value = _unshared(weight)
            if type(root._slot) is int:
                computed.append((Seed(root._slot, root.spec, 1.0, family_offset(root) or 0), value))
            else:
                self.leaf(root._slot, kind_rules.added(value))
        if not computed:
            return
        starts = [seed for seed, _ in computed]
        if len(starts) == 1 or len({seed.slot >> TAPE_BITS for seed in starts}) == 1:
            tape = tape_of(starts[0].slot)
            with tape.reading():
                graph = mark(tape.entries, tape.number, starts)
                if not graph.foreign():
                    self._sweep(graph, [tape], computed)
                    return
        with graph_observers.reading(starts) as (graph, tapes):
            self._sweep(graph, list(tapes.values()), computed)

    def _sweep(self, graph: Graph, tapes: list[Tape], starts: list[tuple[Seed, Tensor]]) -> None:
        sweep = RecordedSweep(self, graph, tapes, {seed.slot for seed, _ in starts})
        for seed, value in starts:
            sweep.contribute(seed.slot, seed.offset or 0, seed.spec, value, clean=True)
        token = REACH.set(partial(reached, graph, self.asked if self.restrict else None))
        try:
            leaf_gradients = sweep.run()
        finally:
            REACH.reset(token)
        for leaf, value in leaf_gradients:
            self.leaf(leaf, value)


# Derivatives between tensors in which a recorder takes part: vmap's maps them, that of a compiled call notes them.

Derivatives = list[Tensor | None]
"""A gradient for each input, or a tangent for each output; None where one does not depend on the other."""


class Derivation(NamedTuple):
    """How derivatives are computed, by ``run(outputs, inputs, weights, rows, again=False)``.

    With ``rows``, weights and results have a leading axis of that length. With ``again`` the graph is kept, since the
    derivatives will be asked for once more. ``pulls``: they are gradients, not tangents. ``create``: they can be
    differentiated; None: if outputs depend on anything but the inputs that requires grad.
    """

    run: Callable[..., Derivatives]
    pulls: bool
    create: bool | None


def takes_part(recorder: Any) -> bool:
    """Whether a recorder computes derivatives itself."""
    return hasattr(recorder, "derived")


def derived(
    derivation: Derivation, outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor], rows: int
) -> Derivatives:
    """Compute derivatives, or let the recorder do it, if it has a ``derived`` of its own."""
    recorder: Any = modes.current().recorder
    if takes_part(recorder):
        return recorder.derived(derivation, outputs, inputs, weights, rows)  # type: ignore[no-any-return]
    return derivation.run(outputs, inputs, weights, rows)
