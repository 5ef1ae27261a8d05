"""The values of a recorded graph: those that instructions saved, and those that can be computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.arrays.sweep_interface import Array
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from kernels.native.tape_structs import ADDS, CLEARS, PYTHON, VIEW
from kernels.sweeps.gradient_views import pattern
from kernels.sweeps.graph import key_of
from tape.tensors import grad_modes


class Values:
    """Values by the keys of slots and leaves; ``order`` are the instructions, those that were recorded first first."""

    def __init__(self, order: list[Instruction]) -> None:
        self.order = order
        self.by_slot = {instruction.slot: instruction for instruction in order}
        self.known: dict[Any, Array] = {}
        self.flat: dict[Any, Array] = {}
        for instruction in order:
            self._read(instruction)

    def _read(self, instruction: Instruction) -> None:
        """Collect the values of operands and of the result that an instruction saved."""
        if instruction.form.kind == PYTHON:
            return
        kept = dict(zip(instruction.form.saved, instruction.saved, strict=True))
        for (name, _), operand in zip(grad_modes.named(instruction.form), instruction.operands, strict=False):
            if operand is not None and name in kept:
                self.known.setdefault(key_of(operand), np.asarray(kept[name]))
        if "y" in kept:
            self.known.setdefault(instruction.slot, np.asarray(kept["y"]))

    def of(self, instruction: Instruction) -> Array | None:
        """Return the value of a result, computed if need be; None if it is not known."""
        slot = instruction.slot
        if slot not in self.known and instruction.form.kind != PYTHON:
            value = self._computed(instruction)
            if value is not None:
                self.known[slot] = value
        return self.known.get(slot)

    def operand(self, instruction: Instruction, i: int) -> Array | None:
        """Return the value of an operand: of a tensor on the tape, of a leaf, or a constant that is kept."""
        operand, form = instruction.operands[i], instruction.form
        if operand is not None:
            return self.known.get(key_of(operand))
        names = grad_modes.named(form)
        if i < len(names) and names[i][0] in form.saved:
            return np.asarray(instruction.saved[form.saved.index(names[i][0])])
        return None

    def base_of(self, view: Instruction) -> tuple[Any, Spec]:
        """Return the key and the spec of a view's base, which is no view itself."""
        above, spec = view.operands[0], view.form.specs[0]
        while (instruction := self.by_slot.get(above)) is not None and instruction.form.kind == VIEW:
            above, spec = instruction.operands[0], instruction.form.specs[0]
        assert spec is not None
        return key_of(above), spec

    def _computed(self, instruction: Instruction) -> Array | None:
        if instruction.form.kind == VIEW:
            base, spec = self.base_of(instruction)
            flat = self._flat(base, spec)
            return None if flat is None else pattern(flat, instruction.form.spec, instruction.saved[0])
        if instruction.form.kind in (CLEARS, ADDS):
            return self._written(instruction)
        values = [self.operand(instruction, i) for i in range(len(instruction.operands))]
        if any(value is None for value in values):
            return None
        result = instruction.form.op.recomputed(instruction.form, instruction.saved, *values)
        return None if result is None else np.asarray(result)

    def _flat(self, key: Any, spec: Spec) -> Array | None:
        """Return a value in the layout of its gradient buffer."""
        if key not in self.flat and key in self.known:
            flat = self.flat[key] = np.zeros(spec.buffer_size, spec.dtype)
            pattern(flat, spec, 0)[...] = self.known[key]
        return self.flat.get(key)

    def _written(self, instruction: Instruction) -> Array | None:
        """Return the version of a tensor that a write made."""
        form, (before, source), (start, *places) = instruction.form, instruction.operands, instruction.saved
        flat = None if before is None else self._flat(key_of(before), form.spec)
        value = None if source is None else self.known.get(key_of(source))
        if flat is None or value is None:
            return None
        flat = self.flat[instruction.slot] = flat.copy()
        if not places:
            pattern(flat, form.params[0], start)[...] = value
        elif form.kind == ADDS:
            np.add.at(flat, places[0] + start // flat.itemsize, value)
        else:
            flat[places[0] + start // flat.itemsize] = value
        return pattern(flat, form.spec, 0)


def place_in(base: Spec, form: Form, start: int, index: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index in a base of an element of a view."""
    rest = start + sum(k * stride for k, stride in zip(index, form.spec.gradient, strict=True))
    place = [0] * len(base.shape)
    for axis in sorted(range(len(base.shape)), key=lambda k: -base.gradient[k]):
        if base.shape[axis] > 1:
            place[axis], rest = divmod(rest, base.gradient[axis])
    return tuple(place)
