"""Selections of one element along an axis: run and record."""

from __future__ import annotations

from kernels.arrays.specs import spec_of
from kernels.codegen.rows.row_values import pick
from kernels.instructions.form import Form
from kernels.kinds.select import Select
from tape.foundation.run_log import log_operation
from tape.recording import record
from tape.tensors import modes
from tape.tensors.tensor import Tensor, as_array, leaf, scalar_or_array


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
