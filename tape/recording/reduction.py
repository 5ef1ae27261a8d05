"""Reductions: run and record."""

from __future__ import annotations

from typing import Any

from kernels.arrays.specs import spec_of
from kernels.instructions.form import Form
from kernels.kinds.reduction import Reduction, counted, reduced, tied
from tape.foundation.run_log import log_operation
from tape.recording import record
from tape.tensors.tensor import Tensor, as_array, scalar_or_array


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
