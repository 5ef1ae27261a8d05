"""Kinds on tensors whose instructions call something: Python, kernels of the user's, routines, guards."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from kernels.programs.recording.program import ProgramError
from tape.kinds.kind import Kind, Operand, Planned, Pullbacks, Values, batch_size
from tape.recording import jitted_functions, routine_calls, views
from tape.tensors.tensor import Tensor, as_array

# Calls of Python in programs, on tensors.


class CallbackKind(Kind):
    """What a program calls is called for each example; several results stand end to end."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Call it."""
        del spec
        (function,), size = step.params, batch_size(operands)

        def called(e: int) -> Tensor:
            results = function.on_tensors([x.value[e] if x.batched else x.value for x in operands])
            return results[0] if len(results) == 1 else views.cat([views.reshape(x, -1) for x in results])

        return called(0) if size is None else views.stack([called(e) for e in range(size)])


# Jitted functions of the user's on tensors.


class CustomKind(Kind):
    """A jitted function is called for each example. Its vjp is compiled, and not differentiated again."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Call the function."""
        del spec
        (shapes,), (x,) = step.params, operands
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()

        def called(flat: Tensor) -> Tensor:
            starts = [0, *ends[:-1]]
            parts = [views.reshape(flat[s:e], shape) for s, e, shape in zip(starts, ends, shapes, strict=True)]
            return jitted_functions.call(step.op, tuple(parts))

        return views.stack([called(x.value[e]) for e in range(x.lead[0])]) if x.batched else called(x.value)


# Guards of programs.


class GuardDiffersError(ProgramError):
    """Another value left for Python than when the program was recorded."""


class GuardKind(Kind):
    """A program that is run operation by operation ends where a guard misses."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> None:
        """Compare with what was expected; ProgramError where it differs."""
        del spec
        value, expected = (as_array(o.value).tobytes() for o in operands)
        if value != expected:
            raise GuardDiffersError(
                f"at {step.params[0]} another value left for Python than when the program was recorded"
            )


# Routines on tensors.


class RoutineKind(Kind):
    """A routine is called for each example; several results stand end to end."""

    def pullbacks(self, form: Form) -> Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return Pullbacks(form, _pull)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Call the routine."""
        del spec
        (frozen, *extra), op, size = step.params, step.op, batch_size(operands)

        def called(e: int) -> Tensor:
            results = routine_calls.call(op, *[x.value[e] if x.batched else x.value for x in operands], **dict(frozen))
            if not isinstance(results, tuple):
                return results  # type: ignore[no-any-return]
            if extra:
                return results[len(op.results) + extra[0]]  # type: ignore[no-any-return]
            parts = results[: len(op.results)]
            return parts[0] if len(parts) == 1 else views.cat([views.reshape(x, -1) for x in parts])

        return called(0) if size is None else views.stack([called(e) for e in range(size)])


def _pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    """Run the vjp of a routine whose pullback is a kernel."""
    call = instruction.form.params[0]
    gradient: Tensor = call.run(call.op.vjp, {**values, "g": g})[i]
    return gradient
