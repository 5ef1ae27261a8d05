"""Saved values as tensors with their slots again, so that a recorded backward can be differentiated.

Where a recorder follows the backward, saved values are the tensors themselves that it knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import SCALAR, Spec, intern_spec, spec_of
from kernels.instructions.entries import Instruction, instructions
from kernels.native.tape_structs import ADDS, CLEARS, TAPE_BITS, VIEW
from kernels.ops.registry import OPS
from tape.recording import record, views
from tape.tensors import modes
from tape.tensors.tapes import Tape, every
from tape.tensors.tensor import AccumulateGrad, Tensor, constant_tensor, new, scalar_or_array

_CLONE: Any = OPS["clone"]
_AS_STRIDED: Any = OPS["as_strided"]


def _turned(spec: Spec) -> Spec:
    """Return the spec of a transposed view."""
    turned = intern_spec(spec.shape[::-1], spec.strides[::-1], spec.dtype, spec.gradient[::-1], spec.buffer_size)
    turned.covers, turned.overlaps = spec.covers, spec.overlaps
    return turned


class SavedTensors:
    """The values that instructions saved, as tensors with the slot of the version that was saved."""

    def __init__(self, marked: list[Instruction]) -> None:
        self.by_slot = {instruction.slot: instruction for instruction in marked}
        self._made: dict[tuple[Any, int], tuple[Any, Tensor]] = {}
        self._written: set[Any] = set()
        self._scans: dict[int, tuple[int, int]] = {}
        """Of each tape the slot where it ended, and the one down to which it has been read."""

    def of(self, instruction: Instruction) -> dict[str, Any]:
        """Return the saved values by their names in the rules: tensors, numbers, and arrays of places."""
        form, values = instruction.form, dict[str, Any]()
        if not form.saved:
            return values
        names = form.op.inputs
        for name, value in zip(form.saved, instruction.saved, strict=True):
            if name == "y":
                values[name] = self.tensor(instruction.slot, value, form.spec)
            elif name in names:
                i = names.index(name)
                operand, spec = instruction.operands[i], form.specs[i]
                values[name] = value if spec is None else self.tensor(operand, value, spec)
            else:
                values[name] = value
        return values

    def read(self, slot: Any, value: Any, spec: Spec, *, turned: bool = False) -> Tensor:
        """Return a saved value for operations that neither write nor view it: its spec need not be its slot's.

        A view keeps its slot, with its pattern in the gradient buffer of its family. ``turned`` reverses the dims.
        """
        if type(value) is Tensor:
            return views.t(value) if turned else value
        if type(slot) is int:
            source = self.by_slot.get(slot)
            if source is None or (source.form.kind == VIEW and self._superseded(self._version(source)[0])):
                tensor = self.tensor(slot, value, spec)
                return views.t(tensor) if turned else tensor
        if turned:
            spec = _turned(spec)
            value = value.T
        if not spec.shape and type(value) is not float:  # a float has a pattern of its own, a view's is an array
            value = scalar_or_array(value) if spec is SCALAR else value
        elif type(value) is float and spec is not SCALAR:
            value = np.array(value)
        result = new(Tensor)
        result._value, result._slot, result._form = value, slot, spec
        return result

    def tensor(self, slot: Any, value: Any, spec: Spec) -> Tensor:
        """Return a saved value as a tensor with its slot; one tensor for each value and slot. A tensor is itself."""
        if type(value) is Tensor:
            return value
        if slot is None:
            return constant_tensor(value)
        key = slot, id(value)
        if key not in self._made:  # with the value: as long as it is kept, no other has its id
            self._made[key] = value, self._bound(slot, value, spec)
        return self._made[key][1]

    def _bound(self, slot: Any, value: Any, spec: Spec) -> Tensor:
        """Return a tensor of this value and slot."""
        result = new(Tensor)
        result._value = scalar_or_array(value)
        if type(slot) is AccumulateGrad and slot.spec is spec:
            result._slot, result._form = slot, slot.spec
            return result
        source = self.by_slot.get(slot) or record.locate(slot) if type(slot) is int else None
        if source is not None and source.form.kind != VIEW and source.form.spec is spec and type(slot) is int:
            result._slot, result._form = slot, source.form
            return result
        return self._copied(result, slot, source, spec)

    def _copied(self, result: Tensor, slot: Any, source: Instruction | None, spec: Spec) -> Tensor:
        """Give a value the slot of a copy that is recorded now.

        A view of a version that has been written since is recorded again: what comes later on the tape than the write
        must refer to that version itself, so that a sweep gives it a separate gradient buffer.
        """
        tape = modes.own_tape()
        if source is not None and source.form.kind == VIEW:
            above, base = self._version(source)
            if self._superseded(above):
                key = (_AS_STRIDED, base, spec)
                form = record.cached_form(key, lambda: _AS_STRIDED.form((base,), spec))
                viewed = new(Tensor)
                tape.record(viewed, form.code, (above,), (source.saved[0],))
                slot = viewed._slot
        copy_spec = spec_of(result._value)
        form = record.cached_form((_CLONE, spec, copy_spec, "saved"), lambda: _CLONE.form((spec,), copy_spec))
        tape.record(result, form.code, (slot,), ())
        return result

    def _superseded(self, slot: Any) -> bool:
        """Whether a write, later on a tape, has made another version of this one."""
        if type(slot) is not int:
            return False
        for tape in every():
            if tape.number == slot >> TAPE_BITS:
                self._read(tape, slot)
            elif tape.writes_elsewhere:
                self._read(tape, 0)
        return slot in self._written

    def _read(self, tape: Tape, down_to: int) -> None:
        """Collect the versions written on a tape, from where its end was at the first call down to a slot.

        A call reads at least twice as far down as the last one: all of them together are a few passes, and what lies
        below on a long tape is not looked at.
        """
        end, reached = self._scans.get(tape.number, (0, 0))
        if not tape.writes or (end and reached <= down_to):
            return
        down_to = min(down_to, 2 * reached - end) if end else down_to
        with tape.reading():
            for instruction in instructions(tape.entries, down_to):
                end = end or instruction.slot + 1
                fresh = not reached or instruction.slot < reached
                if fresh and instruction.form.kind in (CLEARS, ADDS):
                    self._written.add(instruction.operands[0])
        self._scans[tape.number] = end or 1, max(down_to, 0)

    def _version(self, view: Instruction) -> tuple[Any, Spec]:
        """Return the slot that a view is a view of, no view itself, and its spec."""
        above, spec = view.operands[0], view.form.specs[0]
        while type(above) is int:
            instruction = self.by_slot.get(above) or record.locate(above)
            if instruction is None or instruction.form.kind != VIEW:
                break
            above, spec = instruction.operands[0], instruction.form.specs[0]
        assert spec is not None
        return above, spec
