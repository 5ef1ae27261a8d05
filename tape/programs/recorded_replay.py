"""A replay among recorded operations: one instruction, whose pullback is a native replay forward and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.arrays.specs import SCALAR, Spec
from kernels.arrays.sweep_interface import Array
from kernels.instructions.entries import Instruction
from kernels.instructions.exposed_memory import kept_arguments, unexposed
from kernels.native.pool.pool_structs import LARGE
from tape.engine.rules.custom_calls import Call
from tape.engine.rules.custom_contexts import FunctionCtx
from tape.programs.pulling import SAVED, CallForm, Pulling
from tape.programs.replaying import Replay
from tape.recording import record
from tape.tensors import modes
from tape.tensors.hooks import Hooks
from tape.tensors.tensor import Tensor, constant_tensor, new


class ReplayCall(Call):
    """What the tape saves of a replay: the program and its arguments; results are computed anew."""

    cls = Replay
    hooks: Hooks | None = None
    _context: FunctionCtx | None = None

    def __init__(self, program: Any, arguments: list[Any], needs: list[bool]) -> None:
        self._program, self.arguments, self.needs = program.pinned(), arguments, needs

    @property
    def program(self) -> Any:
        """The program, with what it read from outside then."""
        return self._program()

    @property
    def positional(self) -> int:  # type: ignore[override]
        """The count of positional arguments, the program first."""
        return len(self.needs)

    @property
    def constant(self) -> frozenset[int]:  # type: ignore[override]
        """The numbers of outputs that have no gradient."""
        return self.program.pulling.constant  # type: ignore[no-any-return]

    @property
    def specs(self) -> list[Any]:  # type: ignore[override]
        """The specs of the outputs."""
        return self.program.pulling.specs  # type: ignore[no-any-return]

    @property
    def is_tensor(self) -> list[bool]:  # type: ignore[override]
        """Whether each argument is a tensor."""
        return [False, *[x is SAVED for x in self.arguments]]

    @property
    def _sources(self) -> list[tuple[str, Any]]:  # type: ignore[override]
        return [("input", k) for k in range(sum(self.is_tensor))]

    @property
    def ctx(self) -> Any:  # type: ignore[override]
        """The context that the program's rules on tensors use, made where they are asked for."""
        if self._context is None:
            self._context = ctx = FunctionCtx(tuple(self.needs))
            ctx.program = self.program  # type: ignore[attr-defined]
            ctx.arguments = self.arguments  # type: ignore[attr-defined]
            ctx.set_materialize_grads(False)
        return self._context

    def own_hooks(self, instruction: Instruction) -> Hooks:
        """Return the hooks of the call's node; from now on Python runs its pullback."""
        if len(instruction.saved) > 1 + sum(self.is_tensor):
            instruction.saved[-1][-1] = 1
        return super().own_hooks(instruction)

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Replay forward and back from the cotangents of the results; a batch of them row by row."""
        if self.hooks is not None:
            return super().pull(instruction, gradient, stash, batch=batch)
        cotangents = stash.pop(instruction.slot, {0: gradient} if len(self.specs) == 1 else {})
        saved = iter(instruction.saved[1:])
        values = [next(saved) if x is SAVED else x for x in self.arguments]
        if batch:
            rows = [
                self._pulled(values, {k: None if g is None else g[row] for k, g in cotangents.items()})
                for row in range(batch)
            ]
            return [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]
        return self._pulled(values, cotangents)

    def _pulled(self, values: list[Any], by_result: dict[int, Array | None]) -> list[Array | None]:
        """Return the gradient of each tensor among the arguments that needs one."""
        program = self.program
        cotangents = [by_result.get(k) for k in range(len(self.specs)) if k not in self.constant]
        pulling = program.pulling
        gradients = dict(zip(pulling.graded, pulling.pulled(values, cotangents), strict=True))
        reached = set().union(*[r for r, g in zip(pulling.reached, cotangents, strict=True) if g is not None])
        needed = [i for i, is_tensor in enumerate(self.is_tensor[1:]) if is_tensor]
        return [gradients.get(i) if self.needs[i + 1] and i in reached else None for i in needed]


def result_tensors(specs: Sequence[Spec], results: Sequence[Any]) -> list[Tensor]:
    """Return a replay's results as tensors; numbers come as floats, of float32 too."""
    return [
        constant_tensor(np.array(x, spec.dtype) if type(x) is float and spec is not SCALAR else x)
        for x, spec in zip(results, specs, strict=True)
    ]


def recorded(
    program: Any,
    arguments: Sequence[Any],
    results: Sequence[Any],
    values: Sequence[Any],
    memory: Array | None = None,
    known: CallForm | None = None,
) -> list[Tensor]:
    """Return the results of a replay as tensors, recorded as one instruction with these arguments.

    ``values`` are those of the arguments; ``memory`` is what the replay left, for the pullback; ``known`` the form of
    the call, if it has been looked up.
    """
    pulling: Pulling = program.pulling
    if not pulling.with_gradient:
        return result_tensors(pulling.specs, results)
    outputs = _outputs(pulling, results)
    form, table, needs, places, saved = known or pulling.call_form(arguments, kept=memory is not None)
    tensors, tape = arguments, modes.own_tape()
    if saved is None:
        tensors, values, saved = [arguments[i] for i in places], [values[i] for i in places], kept_arguments(arguments)
        for i in places:
            saved[i] = SAVED
    call = ReplayCall(program, saved, needs)
    kept: tuple[Any, ...] = () if table is None else (table, memory)
    anchor = outputs[0] if len(outputs) == 1 else new(Tensor)
    values = unexposed(form, tuple(values))[1]
    tape.record(anchor, form.code, tuple([x._slot for x in tensors]), (call, *values, *kept))
    if len(outputs) > 1:
        forms = pulling.kept_outputs if kept else pulling.outputs
        slots = (anchor._slot,)
        for k in pulling.with_gradient:
            form, source = forms[k]
            tape.record(outputs[k], form.code, slots, (source,))
        if kept and outputs[k]._slot != slots[0] + len(pulling.with_gradient):
            kept[1][-1] = 1  # a finalizer has recorded something between them: Python finds the results
    if memory is None or memory.nbytes >= LARGE:
        for k in pulling.with_gradient:
            record.watch(tape, outputs[k], tuple(arguments))
    call.outputs = tuple([y._slot for y in outputs])
    return outputs


def _outputs(pulling: Pulling, results: Sequence[Any]) -> list[Tensor]:
    """Return tensors for results; those that have a gradient get slot and form where they are recorded."""
    outputs = []
    if pulling.direct:
        for x in results:
            y = new(Tensor)
            y._value = x
            outputs.append(y)
        return outputs
    for x, spec, constant in zip(results, pulling.specs, pulling.without, strict=True):
        value = x if type(x) is not float or spec is SCALAR else np.array(x, spec.dtype)
        y = constant_tensor(value) if constant else new(Tensor)
        y._value = value
        outputs.append(y)
    return outputs
