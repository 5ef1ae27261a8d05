"""The values that pullbacks mention as tensors again, so that the gradient of a gradient finds its way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.arrays.specs import SCALAR, Spec, intern_spec, spec_of
from kernels.instructions.entries import Instruction, instructions
from kernels.native.words import ADDS, CLEARS, TAPE_BITS, VIEW
from kernels.ops.registry import OPS
from tape.recording import record, views
from tape.tensors import modes
from tape.tensors.tapes import Tape, every
from tape.tensors.tensor import AccumulateGrad, Tensor, carried, new, plain

_CLONE: Any = OPS["clone"]
_AS_STRIDED: Any = OPS["as_strided"]


def _turned(spec: Spec) -> Spec:
    """Return the spec of a transposed view."""
    turned = intern_spec(spec.shape[::-1], spec.strides[::-1], spec.dtype, spec.gradient[::-1], spec.buffer_size)
    turned.covers, turned.overlaps = spec.covers, spec.overlaps
    return turned


def _snapshot(tape: Tape) -> list[Instruction]:
    """Return a tape's instructions, last first."""
    with tape.reading():
        return list(instructions(tape.entries))


class Primals:
    """Tensors of the values that instructions saved: with the slot of the version that was saved."""

    def __init__(self, marked: list[Instruction]) -> None:
        self.by_slot = {instruction.slot: instruction for instruction in marked}
        self._made: dict[tuple[Any, int], tuple[Any, Tensor]] = {}
        self._written: set[Any] = set()
        self._scans: dict[int, Iterator[Instruction]] = {}
        self._reached: dict[int, int] = {}

    def of(self, instruction: Instruction) -> dict[str, Any]:
        """Return the saved values by their names in the rules: tensors, numbers, and arrays of places."""
        form, found = instruction.form, dict[str, Any]()
        if not form.saved:
            return found
        names = form.op.inputs
        for name, value in zip(form.saved, instruction.saved, strict=True):
            if name == "y":
                found[name] = self.tensor(instruction.slot, value, form.spec)
            elif name in names:
                i = names.index(name)
                operand, spec = instruction.operands[i], form.specs[i]
                found[name] = value if spec is None else self.tensor(operand, value, spec)
            else:
                found[name] = value
        return found

    def read(self, slot: Any, value: Any, spec: Spec, *, turned: bool = False) -> Tensor:
        """Return a saved value for operations that only read it, nor take views: the spec need not be its slot's.

        A view stands for itself: a pattern of the shadow of its family. ``turned`` reverses its dims.
        """
        if type(slot) is int:
            source = self.by_slot.get(slot)
            if source is None or (source.form.kind == VIEW and self._superseded(self._version(source)[0])):
                found = self.tensor(slot, value, spec)
                return views.t(found) if turned else found
        if turned:
            spec = _turned(spec)
            value = value.T
        if not spec.shape and type(value) is not float:  # a float has a pattern of its own, a view's is an array
            value = carried(value) if spec is SCALAR else value
        elif type(value) is float and spec is not SCALAR:
            value = np.array(value)
        result = new(Tensor)
        result._value, result._slot, result._form = value, slot, spec
        return result

    def tensor(self, slot: Any, value: Any, spec: Spec) -> Tensor:
        """Return a saved value as a tensor of the slot it had; the same for the same."""
        if slot is None:
            return plain(value)
        key = slot, id(value)
        if key not in self._made:  # with the value: as long as it is kept, no other has its id
            self._made[key] = value, self._bound(slot, value, spec)
        return self._made[key][1]

    def _bound(self, slot: Any, value: Any, spec: Spec) -> Tensor:
        """Return a tensor of this value and slot."""
        result = new(Tensor)
        result._value = carried(value)
        if type(slot) is AccumulateGrad and slot.spec is spec:
            result._slot, result._form = slot, slot.spec
            return result
        source = self.by_slot.get(slot) or record.locate(slot) if type(slot) is int else None
        if source is not None and source.form.kind != VIEW and source.form.spec is spec and type(slot) is int:
            result._slot, result._form = slot, source.form
            return result
        return self._copied(result, slot, source, spec)

    def _copied(self, result: Tensor, slot: Any, source: Instruction | None, spec: Spec) -> Tensor:
        """Bind a value to a copy of the slot, made now.

        A view of a version that has been written since is made anew: what stands later on the tape than the write
        must refer to that version itself, so that a sweep gives it a shadow apart.
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
        own = spec_of(result._value)
        form = record.cached_form((_CLONE, spec, own, "mention"), lambda: _CLONE.form((spec,), own))
        tape.record(result, form.code, (slot,), ())
        return result

    def _superseded(self, slot: Any) -> bool:
        """Whether a write has made another version of this one: it stands later on a tape than the version."""
        if type(slot) is not int:
            return False
        for tape in every():
            if tape.number == slot >> TAPE_BITS:
                self._read(tape, slot)
            elif tape.writes:
                self._read(tape, 0)
        return slot in self._written

    def _read(self, tape: Tape, down_to: int) -> None:
        """Note the writes of a tape from its end down to a slot; go on where an earlier question stopped."""
        if not tape.writes:
            return
        rest = self._scans.setdefault(tape.number, iter(_snapshot(tape)))
        while self._reached.get(tape.number, down_to + 1) > down_to:
            one = next(rest, None)
            self._reached[tape.number] = 0 if one is None else one.slot
            if one is None:
                return
            if one.form.kind in (CLEARS, ADDS):
                self._written.add(one.operands[0])

    def _version(self, view: Instruction) -> tuple[Any, Spec]:
        """Return the slot that a view is a view of, no view itself, and its spec."""
        above, spec = view.operands[0], view.form.specs[0]
        while type(above) is int:
            found = self.by_slot.get(above) or record.locate(above)
            if found is None or found.form.kind != VIEW:
                break
            above, spec = found.operands[0], found.form.specs[0]
        assert spec is not None
        return above, spec
