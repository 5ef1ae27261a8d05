"""Saved values that the user's hooks pack (to disk, compressed) and unpack for backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import pattern
from kernels.foundation.specs import Array
from kernels.kinds import reference_tape
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction
from kernels.sweeps.reference_pullbacks import contributions
from tape.tensors import modes
from tape.tensors.tensor import Tensor, constant_tensor, scalar_or_array

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


class PackedValue:
    """One packed value, with the hook that unpacks it."""

    __slots__ = ("dtype", "packed", "shape", "strides", "unpack")

    def __init__(self, value: Any, hooks: Hooks) -> None:
        array = np.asarray(value)
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.packed = hooks[0](constant_tensor(scalar_or_array(np.array(value))))  # a copy, which nobody else writes to
        self.unpack = hooks[1]

    def value(self) -> Any:
        """Return the unpacked value. TypeError or RuntimeError if the hook returns something else."""
        value = modes.call_user(self.unpack, self.packed)
        if not isinstance(value, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(value).__name__}"
            )
        if value.spec.shape != self.shape:
            raise RuntimeError(
                f"saved tensor unpack_hook returned shape {list(value.spec.shape)} for a tensor of shape "
                f"{list(self.shape)}"
            )
        return self._laid_out(value._value)

    def _laid_out(self, value: Any) -> Any:
        """Return a value with the strides and the dtype from before packing, which the pullbacks expect."""
        if type(value) is float or (value.strides == self.strides and value.dtype == self.dtype) or 0 in self.shape:
            return value
        ends = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        first, last = -sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        memory = np.empty(first + last + self.dtype.itemsize, np.uint8)
        array: Array = np.ndarray(self.shape, self.dtype, memory, first, self.strides)
        array[...] = value
        return array


class Packed:
    """The saved values of one instruction, packed; its pullbacks run in Python."""

    __slots__ = ("form", "values")

    def __init__(self, form: Form, values: tuple[Any, ...], hooks: Hooks) -> None:
        self.form = form
        self.values = [
            PackedValue(v, hooks) if _is_value(form, n) else v for n, v in zip(form.saved, values, strict=True)
        ]

    def unpacked(self, instruction: Instruction) -> Instruction:
        """Return the instruction as it was before its values were packed."""
        saved = tuple(v.value() if isinstance(v, PackedValue) else v for v in self.values)
        return Instruction(
            instruction.start, instruction.stop, instruction.slot, instruction.operands, saved, self.form
        )

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> list[Array | None]:
        """Run the pullbacks on the values unpacked."""
        if gradient is None:
            return [None] * len(instruction.operands)
        spec = self.form.spec
        buffer = np.full((batch, spec.buffer_size) if batch else spec.buffer_size, -0.0, spec.dtype)
        pattern(buffer, spec, 0)[...] = gradient
        return contributions(self.unpacked(instruction), buffer, stash, batch=batch)


def _is_value(form: Form, name: str) -> bool:
    """Whether a saved value is a tensor's, not a number or an index of the operation's own."""
    names = form.op.inputs
    return name == "y" or (name in names and form.specs[names.index(name)] is not None)


def packed(form: Form, values: tuple[Any, ...], hooks: Hooks) -> tuple[Form, tuple[Any, ...]]:
    """Return the form and the saved values of an instruction whose values are packed."""
    if not any(_is_value(form, name) for name in form.saved):
        return form, values
    if form.packed is None:
        form.packed = reference_tape.packed(form)
    return form.packed, (Packed(form, values, hooks),)
