"""Saved values as tensors: checked, packed by hooks, shown by graph nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from kernels.foundation.specs import SCALAR, Array, Spec, intern_spec, pattern, spec_of
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction, instructions
from kernels.native.structs import ADDS, CLEARS, PYTHON, TAPE_BITS, VIEW
from kernels.operations import OPS
from tape.recording import record, views
from tape.recording.views import clone
from tape.tensors import grad_modes, modes
from tape.tensors.grad_modes import Switch
from tape.tensors.modes import Mode
from tape.tensors.tapes import Tape, every
from tape.tensors.tensor import AccumulateGrad, Tensor, constant_tensor, new, scalar_or_array


class saved_tensors_hooks(Switch):  # noqa: N801 (PyTorch's name)
    """Within it each tensor that an operation saves goes through ``pack_hook``, and back through ``unpack_hook``.

    ``pack_hook(tensor)`` may return anything; ``unpack_hook`` gets that and returns a tensor of the same shape. What
    is packed is a copy. Backward through such operations runs in Python.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.hooks = pack_hook, unpack_hook

    def __enter__(self) -> Self:
        if modes.current().unpackable:
            raise RuntimeError(modes.current().unpackable)
        return super().__enter__()

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return mode._replace(pack=self.hooks)

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode with the hooks of before."""
        return mode._replace(pack=before.pack)

    def clone(self) -> Switch:
        """Return another with the same hooks."""
        return saved_tensors_hooks(*self.hooks)


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """Within it what operations save is copied to memory of its own; on the CPU that is all there is to it."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(clone, lambda packed: packed)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within it entering ``saved_tensors_hooks`` raises RuntimeError with this message."""
    before = modes.current()
    try:
        modes.set_mode(before._replace(unpackable=error_message))
        yield
    finally:
        modes.restore(modes.current()._replace(unpackable=before.unpackable))


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Nothing to do: what is saved is always kept from writes in place."""
    yield


# Saved values as tensors with their slots again, so that a recorded backward can be differentiated.
#
# Where a recorder follows the backward, saved values are the tensors themselves that it knows.

_CLONE: Any = OPS["clone"]
_AS_STRIDED: Any = OPS["as_strided"]


def _turned(spec: Spec) -> Spec:
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
            if source is None or (source.form.kind == VIEW and self._superseded(base_of(source, self._find)[0])):
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

    def is_gone(self, slot: Any) -> bool:
        """Whether the instruction of a slot has been dropped."""
        return self._find(slot) is None

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
        result = new(Tensor)
        result._value = scalar_or_array(value)
        if type(slot) is AccumulateGrad and slot.spec is spec:
            result._slot, result._form = slot, slot.spec
            return result
        source = self._find(slot)
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
            above, base = base_of(source, self._find)
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

    def _find(self, slot: Any) -> Instruction | None:
        return self.by_slot.get(slot) or record.locate(slot) if type(slot) is int else None


def base_of(view: Instruction, find: Callable[[Any], Instruction | None]) -> tuple[Any, Spec]:
    """Return the key and the spec of a view's base, which is no view itself."""
    above, spec = view.operands[0], view.form.specs[0]
    while (instruction := find(above)) is not None and instruction.form.kind == VIEW:
        above, spec = instruction.operands[0], instruction.form.specs[0]
    assert spec is not None
    return above, spec


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
                self.known.setdefault(operand, np.asarray(kept[name]))
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
            return self.known.get(operand)
        names = grad_modes.named(form)
        if i < len(names) and names[i][0] in form.saved:
            return np.asarray(instruction.saved[form.saved.index(names[i][0])])
        return None

    def _computed(self, instruction: Instruction) -> Array | None:
        if instruction.form.kind == VIEW:
            base, spec = base_of(instruction, self.by_slot.get)
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
        if key not in self.flat and key in self.known:
            flat = self.flat[key] = np.zeros(spec.buffer_size, spec.dtype)
            pattern(flat, spec, 0)[...] = self.known[key]
        return self.flat.get(key)

    def _written(self, instruction: Instruction) -> Array | None:
        form, (before, source), (start, *places) = instruction.form, instruction.operands, instruction.saved
        flat = None if before is None else self._flat(before, form.spec)
        value = None if source is None else self.known.get(source)
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
