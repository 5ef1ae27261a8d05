"""Elementwise operations on tensors and numbers, run by Python: broadcast, computed, recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import silently
from kernels.foundation.specs import spec_of
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.form import Form
from kernels.kinds.reduction import Reduction, Select, counted, reduced, tied
from kernels.native import pool
from kernels.native.structs import LARGE
from kernels.operations.registry import OPS
from kernels.rules import scalar_loops
from kernels.rules.rows import pick
from tape.recording import record
from tape.recording.record import finish, note_raised, to_dtype, value_is_float
from tape.tensors import modes
from tape.tensors.bytecode import log_operation
from tape.tensors.operands import LARGEST, Number, as_saved, beside, check_broadcast, is_mask, operand, values_of
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, leaf, scalar_or_array

_FLOAT64 = np.dtype(np.float64)
_FLOAT32 = np.dtype(np.float32)
_BOOL = np.dtype(np.bool_)


def elementwise(op: Elementwise, *args: Any) -> Tensor:
    """Run an elementwise operation on tensors of one dtype and Python numbers, by NumPy's broadcasting."""
    if op.scalar and len(args) == 2 and isinstance(args[1], Number) and not isinstance(args[1], bool):  # noqa: PLR2004
        return _with_number(OPS[op.scalar], args[0], args[1])  # type: ignore[arg-type]
    dtype = next((o.dtype for o in args if isinstance(o, (Tensor, np.ndarray)) and o.dtype.kind == "f"), _BOOL)
    operands = tuple([operand(beside(o, dtype)) for o in args])
    if op.condition and not is_mask(operands[0]):
        raise RuntimeError(f"{op.name}: the condition must be a bool tensor; write {op.name}(x != 0, ...)")
    if op.condition and type(operands[0]) is bool:  # its rules choose by a mask
        operands = (constant_tensor(np.asarray(operands[0])), *operands[1:])
    check_broadcast(op.name, operands)
    values = values_of(operands)
    try:
        value = _computed(op, values)
    except Exception as error:
        note_raised(op, operands, {}, error)
        raise
    if any(isinstance(o, Tensor) and o._slot is not None for o in operands) or modes.current().recorder:
        operands = _of_one_dtype(op, operands, scalar_or_array(value))
        values = values_of(operands)

    def make() -> Form:
        specs = tuple(o.spec if isinstance(o, Tensor) else None for o in operands)
        wants = tuple(isinstance(o, Tensor) and o._slot is not None for o in operands)
        return op.form(specs, spec_of(scalar_or_array(value)), wants)

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = dict(zip(op.inputs, map(as_saved, values), strict=True), y=scalar_or_array(value))
        return tuple(by_name[name] for name in form.saved)

    return finish(op, operands, value, make, saved, ())


def _computed(op: Elementwise, values: list[Any]) -> Any:
    """Return the value: by the ufunc, or for large results of some operations by our own kernel."""
    value = scalar_loops.run(op, *values) if op.vector else None
    if value is not None:
        return value
    return _silently(partial(pool.call, op.ufunc) if any(map(pool.is_large, values)) else op.ufunc, values)


def _silently(compute: Callable[..., Any], values: list[Any]) -> Any:
    """Compute without NumPy's floating-point warnings; integers keep the user's error state.

    Beside float32 arrays a float that overflows float32 warns, as any conversion does.
    """
    dtypes = [value.dtype for value in values if type(value) is np.ndarray]
    numbers = [value for value in values if type(value) is float]
    if numbers and _FLOAT32 in dtypes:
        np.array(numbers).astype(np.float32)
    floats = numbers or any(dtype.kind == "f" for dtype in dtypes)
    return silently(compute, *values) if floats else compute(*values)


def _with_number(op: Elementwise, x: Any, number: float) -> Tensor:
    """Run an operation whose second operand is a static Python number."""
    x = operand(x)
    if not isinstance(x, Tensor):
        x = constant_tensor(x)
    if x.spec.dtype.kind != "f":
        try:
            value = scalar_or_array(op.ufunc(x._value, number))  # NumPy's dtype depends on the number's type
        except Exception as error:
            note_raised(op, (x,), {}, error)
            raise
        return finish(op, (x,), value, lambda: spec_of(value), lambda _form: (), (), params=(number,))  # type: ignore[arg-type, return-value]
    p = float(number)
    compute = op.variants[p] if p in op.variants else lambda value: op.ufunc(value, p)
    large = x.spec.bytes >= LARGE
    value = _silently(lambda array, _: pool.call(compute, array) if large else compute(array), [x._value, p])

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = {"x": x._value, "y": scalar_or_array(value)}
        return tuple(by_name[name] for name in form.saved)

    def make() -> Form:
        return op.form((x.spec,), spec_of(scalar_or_array(value)), (True,), (p,))

    return finish(op, (x,), value, make, saved, (p,))


def _of_one_dtype(op: Elementwise, operands: tuple[Any, ...], value: Array | float) -> tuple[Any, ...]:
    """Cast operands, recorded, to the dtype that NumPy computed in; conditions stay boolean."""
    if not op.differentiable or not value_is_float(value):
        return operands
    dtype = _FLOAT64 if type(value) is float else value.dtype  # type: ignore[union-attr]
    cast = [
        float(o) if type(o) is bool or (type(o) is int and abs(o) <= LARGEST)
        else o if not isinstance(o, Tensor) or rule is None or o.spec.dtype == dtype
        else to_dtype(o, dtype)
        for o, rule in zip(operands, op.pullback, strict=True)
    ]  # fmt: skip
    return tuple(cast)


# Selections of one element along an axis: run and record.


def select(op: Select, x: Tensor, axis: int, keepdims: bool) -> tuple[Tensor, Tensor]:
    """Return the extremum along an axis and its first place."""
    picked, indices = pick(op.locate, as_array(x), axis=axis, keepdims=keepdims)

    def make() -> Form:
        return op.form((x.spec,), spec_of(scalar_or_array(picked)), (True,), (axis, keepdims))

    values = record.finish(op, (x,), picked, make, lambda _form: (indices,), (axis, keepdims))
    places = leaf(indices, requires_grad=False)
    recorder = modes.current().recorder
    if recorder is not None:
        recorder.notify(op, (x,), places, (axis, keepdims, "indices"))
    log_operation(op, (x,), (axis, keepdims), (values, places))
    return values, places


# Reductions: run and record.


def reduction(op: Reduction, x: Tensor, axes: tuple[int, ...], keepdims: bool, name: str = "") -> Tensor:
    """Reduce over axes, normalised; ``name`` is the node's."""
    array = as_array(x)
    value = reduced(op, array, axes=axes, keepdims=keepdims)

    def saved(form: Form) -> tuple[Any, ...]:
        by_name = {"x": x._value, "y": scalar_or_array(value), "n": float(counted(array.shape, axes))}
        if op.selects:
            by_name["n"] = scalar_or_array(tied(op, array, axes=axes, keepdims=keepdims))
        return tuple(by_name[name] for name in form.saved)

    def make() -> Form:
        return op.form((x.spec,), spec_of(scalar_or_array(value)), (True,), (axes, keepdims), name)

    result = record.finish(op, (x,), value, make, saved, (axes, keepdims), name)
    log_operation(op, (x,), (axes, keepdims), (result,))
    return result
