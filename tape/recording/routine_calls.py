"""Calls of routines, and of jitted functions of the user's, on tensors: each is recorded as one instruction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from kernels.foundation.specs import spec_of
from kernels.foundation.tables import Recent, exact
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.routine import (
    Custom,
    Routine,
    RoutineCall,
    Unsettled,
    apart,
    computed,
    kept_values,
    packed,
    part_params,
)
from kernels.native.structs import PYTHON
from tape.recording import record, views
from tape.recording.promotion import alike
from tape.recording.record import PackedValue
from tape.tensors import hooks, modes
from tape.tensors.bytecode import log_operation
from tape.tensors.operands import operand
from tape.tensors.tapes import every
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, leaf, scalar_or_array

_calls: Recent[Any, TensorCall] = Recent()


Settled: TypeAlias = Mapping[int, Any]
SETTLED: ContextVar[Settled] = ContextVar("tape_settled", default=MappingProxyType({}))
"""Gradients that such instructions, by slot, have in the sweeps of this context; None: as far as cotangents tell."""


def hooked() -> bool:
    """Whether there are hooks, which would see sweeps that are run again."""
    return bool(hooks.LEAVES) or any(tape.hooks for tape in every())


class TensorCall(RoutineCall):
    """A call whose rules tensors can run too, recorded: gradients of gradients."""

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Return the gradients of the operands; raise Unsettled where cotangents do not tell them."""
        if self.op.unsettled is not None and gradient is not None:
            settled = SETTLED.get()
            if instruction.slot not in settled:
                self._check_settled(instruction, gradient.reshape(-1, gradient.shape[-1]))
            elif (known := settled[instruction.slot]) is not None:
                return [known]
        return super().pull(instruction, gradient, stash, batch=batch)

    def _check_settled(self, instruction: Instruction, rows: Array) -> None:
        values = kept_values(instruction)
        if any(self.is_unsettled(row, values) for row in rows) and not hooked():
            raise Unsettled(instruction)

    def pull_tensors(
        self, instruction: Instruction, gradient: Tensor | None, stash: dict[Any, Any], saved_tensors: Any
    ) -> list[Tensor | None]:
        """Run the vjp on tensors."""
        del stash
        form, op = instruction.form, self.op
        assert op.vjp is not None
        if gradient is None:
            return [None] * len(form.specs)
        if (known := SETTLED.get().get(instruction.slot)) is not None:
            return [constant_tensor(known)]
        values = {n: self._bound(n, v, instruction, saved_tensors) for n, v in kept_values(instruction).items()}
        cotangents = dict(zip(op.cotangents, self.apart(gradient), strict=True))
        needs = tuple(spec is not None for spec in form.specs)
        gradients = self.run(op.vjp, {**self.named(values), **cotangents, "needs": needs})
        return [x if spec is not None else None for x, spec in zip(gradients, form.specs, strict=True)]

    def _bound(self, name: str, value: Any, instruction: Instruction, saved_tensors: Any) -> Any:
        """Return a saved value as a tensor with its slot."""
        form = instruction.form
        if name in self.op.extras or type(value) is Tensor:
            return value
        slot, spec = instruction.slot, form.spec
        if name in self.op.inputs:
            at = self.op.inputs.index(name)
            slot, spec = instruction.operands[at], form.specs[at]  # type: ignore[assignment]
        return constant_tensor(value) if slot is None or spec is None else saved_tensors.tensor(slot, value, spec)

    def apart(self, flat: Any) -> list[Any]:
        """Split packed results, of a tensor as views."""
        if not isinstance(flat, Tensor) or len(self.shapes) == 1:
            return super().apart(flat)
        return [record.view(self.op.part, flat, params) for params in part_params(self.shapes)]


def call(op: Routine, *operands: Any, **params: Any) -> Any:
    """Run a routine: a tensor, or a tuple of its results and extras. Operands are promoted to one dtype."""
    tensors = alike(*operands)
    arrays = [as_array(x) for x in tensors]
    try:
        result = computed(op, arrays, params)
    except Exception as error:
        record.note_raised(op, tuple(tensors), params, error)
        raise
    parts = [_unshared(x, arrays) for x in (result if isinstance(result, tuple) else (result,))]
    frozen = tuple(sorted(params.items()))
    if op.vjp is None and len(parts) == 1:
        y = _extra(op, tensors, parts[0], (frozen,))
        log_operation(op, tuple(tensors), params, (y,))
        return y
    results, extras = parts[: len(op.results)], parts[len(op.results) :]
    shapes = tuple(x.shape for x in results)
    shared = _shared_call(op, params, frozen, shapes)
    y = _finished(op, shared, tensors, packed(results), dict(zip(op.extras, extras, strict=True)), frozen)
    tensors_of_extras = [_extra(op, tensors, x, (frozen, k)) for k, x in enumerate(extras)]
    log_operation(op, tuple(tensors), params, (y, *tensors_of_extras))
    if len(parts) == 1:
        return y
    return (*shared.apart(y), *tensors_of_extras)


def _shared_call(op: Routine, params: dict[str, Any], frozen: tuple[Any, ...], shapes: tuple[Any, ...]) -> TensorCall:
    """Return the object that calls with these parameters share, so that equal calls have one form."""
    key = (op, exact(frozen), shapes)
    shared = _calls.get(key)
    if shared is None:
        shared = _calls.setdefault(key, TensorCall(op, params, shapes))
    return shared


def _unshared(x: Any, operands: list[Array]) -> Array:
    """Return a result as a C-contiguous array of its own memory."""
    array = np.asarray(x)
    fresh = array.base is None and array.flags.c_contiguous and not any(array is o for o in operands)
    return array if fresh else np.array(x, order="C")


def _finished(
    op: Routine, shared: TensorCall, tensors: list[Tensor], y: Any, extras: dict[str, Any], frozen: tuple[Any, ...]
) -> Tensor:
    """Record the call, if there is a gradient to record."""
    if op.vjp is None:
        return _extra(op, tensors, y, (frozen,))
    value, pack = scalar_or_array(y), modes.current().pack
    available = {**{n: x._value for n, x in zip(op.inputs, tensors, strict=True)}, "y": value, **extras}
    kept = [available[name] for name in op.kept]

    def make() -> Any:
        specs = tuple(x.spec if x._slot is not None else None for x in tensors)
        wanted = tuple(spec is not None for spec in specs)
        return op.form(specs, spec_of(value), wanted, (shared,))

    def saved(form: Any) -> tuple[Any, ...]:
        if form.kind != PYTHON:
            return tuple(kept)
        if pack is not None:
            return (form.params[0], *(PackedValue(x, pack) for x in kept))
        return (form.params[0], *kept)

    return record.finish(op, tuple(tensors), value, make, saved, (shared,), params=(frozen,))


def _extra(op: Routine, tensors: list[Tensor], value: Any, params: tuple[Any, ...]) -> Tensor:
    """Return a result without a gradient."""
    result = leaf(scalar_or_array(value), requires_grad=False)
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.notify(op, tuple(tensors), result, params)
    return result


# ``tape.custom``: jitted functions of the user's as operations that stay native in sweeps and replays.


def custom(forward: Callable[..., Any], vjp: Callable[..., Any], *, name: str = "") -> Callable[..., Tensor]:
    """Make an operation of two ``@njit`` functions; no Python runs between kernels when it is swept or replayed.

    ``forward(*operands)`` returns the result, an array or a number; ``vjp(cotangent, *operands)`` the gradient of its
    only operand, or a tuple with that of each. Operands are floating tensors, arrays or numbers; they reach the
    functions in one dtype, C-contiguous, 0-d ones as numbers, and must not be changed. The result has that dtype.
    They are compiled once a process for operands of these ranks. The vjp cannot be differentiated again.

    Raises TypeError if a function is not jitted, RuntimeError naming the operation if one raises.
    """
    for role, function in (("forward", forward), ("vjp", vjp)):
        if not hasattr(function, "py_func"):
            raise TypeError(f"custom: {role} is a {type(function).__name__}; decorate it with numba.njit")
    title = name or forward.__name__
    op = Custom(
        name=title, doc=forward.__doc__ or "", pullback=(None,), grad_fn=f"{title}Backward", forward=forward, vjp=vjp
    )

    def operation(*operands: Any) -> Tensor:
        return call_custom(op, operands)

    operation.__name__ = operation.__qualname__ = title
    operation.__doc__ = forward.__doc__
    return operation


def call_custom(op: Custom, args: tuple[Any, ...]) -> Tensor:
    """Run a custom operation on operands as users give them."""
    if not args:
        raise TypeError(f"{op.name}: takes at least one operand")
    operands = alike(*[_floating(op, x) for x in args])
    dtype = operands[0].spec.dtype
    shapes = tuple(x.spec.shape for x in operands)
    flat = views.cat([views.reshape(x, -1) for x in operands])
    try:
        result = op.forward(*apart(as_array(flat), shapes))
    except Exception as error:
        record.note_raised(op, (flat,), {}, error)
        raise
    value = np.asarray(result, dtype if type(result) is float else None)  # Numba boxes float32 as a Python float
    if value.dtype != dtype:
        raise TypeError(f"{op.name}: forward returned {value.dtype} for operands of {dtype}")
    value = np.array(value, order="C")
    return record.finish(
        op,
        (flat,),
        value,
        lambda: op.form((flat.spec,), spec_of(scalar_or_array(value)), (True,), (shapes,)),
        lambda _form: (flat._value,),
        (shapes,),
    )


def _floating(op: Custom, value: Any) -> Any:
    """Return an operand as it is, a Python number as a float; raise unless it is floating."""
    x = operand(value)
    if not isinstance(x, Tensor):
        return float(x)
    if x.spec.dtype.kind != "f":
        raise TypeError(f"{op.name}: an operand has dtype {x.spec.dtype.name}; operands are floating")
    if math.prod(x.spec.shape) == 0:
        raise ValueError(f"{op.name}: an operand of shape {list(x.spec.shape)} has no elements")
    return value
