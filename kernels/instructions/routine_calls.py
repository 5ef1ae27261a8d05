"""Calls of routines: how the rules of a record run on arrays, in sweeps and in programs.

Several results stand end to end in one flat array, the instruction's result; each is a view of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides, dense
from kernels.arrays.sweep_interface import Array
from kernels.instructions.entries import Instruction
from kernels.instructions.forms import Form
from kernels.records.kinds import Op, Routine
from kernels.records.rule_text import asked


class RoutineCall:
    """What the forms of one routine with these parameters share: the first thing that its instructions save."""

    def __init__(self, op: Routine, params: dict[str, Any], shapes: tuple[Strides, ...]) -> None:
        self.op, self.params, self.shapes = op, params, shapes

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Return the gradients of the operands; of a batch of cotangents row by row."""
        del stash
        specs = instruction.form.specs
        if gradient is None:
            return [None] * len(specs)
        values = kept_values(instruction)
        if not batch:
            return self.gradients(gradient, values, specs)
        rows = [self.gradients(row, values, specs) for row in gradient]
        return [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]

    def gradients(self, g: Array, values: dict[str, Any], specs: Sequence[Spec | None]) -> list[Array | None]:
        """Run the vjp on arrays, which it does not change."""
        assert self.op.vjp is not None
        given = dict(zip(self.op.cotangents, self.apart(g), strict=True))
        needs = tuple(spec is not None for spec in specs)
        with np.errstate(all="ignore"):
            found = self.run(self.op.vjp, {**self.named(values), **given, "needs": needs})
        return [
            None if x is None or spec is None else self._fitting(np.asarray(x), spec)
            for x, spec in zip(found, specs, strict=True)
        ]

    def jvp(
        self, instruction: Instruction, tangents: list[Array | None], stash: dict[Any, Any], *, batch: int
    ) -> Array | None:
        """Return the tangent of the result; of a batch of tangents row by row."""
        del stash
        if self.op.jvp is None:
            raise NotImplementedError(f"{self.op.name}: no pushforward, so forward mode cannot pass through it")
        values = kept_values(instruction)
        if not batch:
            return self._pushed(tangents, values)
        return np.stack([self._pushed([None if t is None else t[k] for t in tangents], values) for k in range(batch)])

    def _pushed(self, tangents: list[Array | None], values: dict[str, Any]) -> Array:
        assert self.op.jvp is not None
        given = dict(zip(self.op.tangents, tangents, strict=True))
        with np.errstate(all="ignore"):
            found = self.run(self.op.jvp, {**self.named(values), **given})
        return packed([np.asarray(x) for x in found])

    def run(self, rule: Any, names: dict[str, Any]) -> tuple[Any, ...]:
        """Call a rule with what it asks for; return a tuple."""
        wanted = asked(rule)
        found = rule(**{name: value for name, value in {**self.params, **names}.items() if name in wanted})
        return found if isinstance(found, tuple) else (found,)

    def named(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return what was kept under the names of the rules: the results apart."""
        if "y" not in values or len(self.shapes) == 1:
            return values
        return {**values, **dict(zip(self.op.results, self.apart(values["y"]), strict=True))}

    def apart(self, flat: Any) -> list[Any]:
        """Return the results that stand end to end."""
        if len(self.shapes) == 1:
            return [flat]
        starts = starts_of(self.shapes)
        return [flat[s : s + math.prod(n)].reshape(n) for s, n in zip(starts, self.shapes, strict=True)]

    def _fitting(self, x: Array, spec: Spec) -> Array:
        if x.shape != spec.shape:
            raise RuntimeError(f"{self.op.name}: vjp returned shape {x.shape} for an operand of shape {spec.shape}")
        return x.astype(spec.dtype, copy=False)


def computed(op: Routine, arrays: Sequence[Array], params: dict[str, Any]) -> Any:
    """Run a routine on arrays: by a kernel that suits them, or its forward."""
    how = op.rows(arrays[0].shape, arrays[0].dtype, **params) if op.rows is not None else None
    if how is not None:
        return how.run(arrays[0])
    with np.errstate(all="ignore"):
        return op.forward(*arrays, **params)


def zero_of(op: Op) -> float:
    """Return what is added to a contribution that Python made: 0.0 turns a routine's -0.0 to a gradient of zero.

    -0.0 leaves it what it is: nothing, where a routine cuts, and in what other rules have made ready.
    """
    return 0.0 if isinstance(op, Routine) and not op.cuts else -0.0


def kept_values(instruction: Instruction) -> dict[str, Any]:
    """Return the values that an instruction keeps, by name; those packed away are unpacked."""
    names = instruction.form.saved[1:]
    return {
        name: value.value() if hasattr(value, "unpack") else value
        for name, value in zip(names, instruction.saved[1:], strict=True)
    }


def starts_of(shapes: Sequence[Strides]) -> list[int]:
    """Return where each result begins."""
    return [sum(map(math.prod, shapes[:k])) for k in range(len(shapes))]


def part_params(shapes: Sequence[Strides]) -> list[tuple[Strides, Strides, int]]:
    """Return shape, strides and offset, in elements, of each result's view."""
    return [(shape, dense(shape, 1), start) for shape, start in zip(shapes, starts_of(shapes), strict=True)]


def packed(results: Sequence[Array]) -> Array:
    """Return results end to end; a single one as it is."""
    return results[0] if len(results) == 1 else np.concatenate([np.ravel(x) for x in results])


def form(call: RoutineCall, specs: tuple[Spec | None, ...], spec: Spec, *, python: bool = False) -> Form:
    """Return the form of a call on operands of these specs, None where no gradient is wanted.

    ``python``: Python runs its rules, though there may be a pullback in native code: what is saved is as it wants it.
    """
    op = call.op
    wanted = tuple(source is not None for source in specs)
    native = None if python or specs[0] is None else op.native
    pull = native(specs[0], spec, **call.params) if native is not None else None
    if pull is not None:
        return Form(op, specs, spec, wanted, op.kept, (pull,), (call,))
    return Form(op, specs, spec, wanted, ("context", *op.kept), (None,) * len(specs), (call,), python=True)
