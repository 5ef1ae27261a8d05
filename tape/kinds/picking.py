"""Elements picked, by arrays of places or one along an axis, on tensors: gathers and selections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, dense
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.kinds.kind import Kind, Operand, Planned, Pullbacks
from tape.operations import indexing
from tape.recording import elementwise, pick_calls, views
from tape.tensors.tensor import Array, Tensor, constant_tensor
from tape.tensors.view_families import is_view

_FEW = 1 << 10
"""The most places that are kept; those of larger tensors are computed again."""


class GatherKind(Kind):
    """Places count elements of the example's memory; in a batch they become indices."""

    def pullbacks(self, form: Form) -> Picking:
        """Return where instructions of a form picked: a sweep adds to these places of a gradient."""
        return Picking(form)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Pick from each example."""
        del spec
        if not step.params:
            return _by_places(*operands)
        x, key = located(operands[0], step.params[0])
        return _copied(indexing.index(x, key))


class SelectKind(Kind):
    """The axis is counted behind that of the batch."""

    def pullbacks(self, form: Form) -> Picking:
        """Return where instructions of a form picked: a sweep adds to these places of a gradient."""
        return _Along(form)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Pick from each example, or return the places."""
        (axis, keepdims, *of_places), (x,) = step.params, operands
        if not x.shape:
            return constant_tensor(np.zeros((*x.lead, *spec.shape), np.int64)) if of_places else views.clone(x.value)
        return elementwise.select(step.op, x.value, axis + len(x.lead), keepdims)[len(of_places)]


class Picking(Pullbacks):
    """Elements that were picked by arrays of places, which are saved."""

    def places(self, instruction: Instruction) -> Array:
        """Return the places in the gradient of the operand, in elements."""
        places: Array = instruction.saved[0]
        return places


class _Along(Picking):
    """Elements that were picked one along an axis."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        (spec, *_), self.axis = form.specs, form.params[0]
        assert spec is not None
        self.source = spec
        self.starts = self._starts() if form.spec.size <= _FEW else None

    def _starts(self) -> Array:
        """Return the first places along the axis, in the gradient of the operand."""
        spec = self.source
        shape = [1 if k == self.axis else n for k, n in enumerate(spec.shape)]
        starts = np.zeros(shape, np.int64)
        for at, stride in zip(np.indices(shape), spec.gradient, strict=True):
            starts += at * (stride // spec.dtype.itemsize)
        return starts.reshape(self.form.spec.shape)

    def places(self, instruction: Instruction) -> Array:
        """Return the places in the gradient of the operand, in elements."""
        spec = self.source
        step = spec.gradient[self.axis] // spec.dtype.itemsize if spec.shape else 0
        starts = self._starts() if self.starts is None else self.starts
        return np.asarray(super().places(instruction) * step + starts, np.int64)


def _by_places(x: Operand, places: Operand) -> Tensor:
    """Pick by places that are an operand: numbers of the elements of an example, in C order."""
    return _copied(indexing.index(views.reshape(x.value, (*x.lead, -1)), key_of(x, places)))


def _copied(picked: Tensor) -> Tensor:
    """Return what was picked by a single number, which is a view, as the copy that it is for each example."""
    return views.clone(picked) if is_view(picked) else picked


def key_of(x: Operand, places: Operand) -> tuple[Any, ...]:
    """Return the index of places that are an operand in a tensor whose examples are vectors."""
    if not (x.batched and places.batched):
        return (*(slice(None) for _ in x.lead), places.value)
    rows = np.arange(x.lead[0]).reshape(-1, *(1 for _ in places.shape))
    return rows, places.value


def located(x: Operand, numbers: Array) -> tuple[Tensor, tuple[Any, ...]]:
    """Return a tensor, and the index of the elements at these places in the example's memory."""
    lead = (slice(None),) * len(x.lead)
    assert x.spec is not None
    if not x.shape:
        return views.view(x.value, (*x.lead, 1)), (*lead, np.zeros_like(numbers))
    return x.value, (*lead, *np.unravel_index(_in_order(x.spec, numbers), x.shape))


def _in_order(spec: Spec, numbers: Array) -> Array:
    """Convert places in memory with these strides to numbers in C order."""
    if spec.strides == dense(spec.shape, spec.dtype.itemsize):
        return numbers
    table = pick_calls.places(spec, spec.strides, (Ellipsis,)).reshape(-1)
    order = np.argsort(table, kind="stable")
    return order[np.searchsorted(table[order], numbers)]
