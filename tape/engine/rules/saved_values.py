"""Saved values by PyTorch's names: a node's ``_saved_self``, ``_saved_other``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.instructions import python_pullbacks
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.engine.rules.custom_calls import owner_of
from tape.engine.rules.saved_tensors import SavedTensors
from tape.recording.packed_values import Packed
from tape.tensors.tensor import Tensor, constant_tensor

_FIRST = frozenset({"self", "mat1", "input"})
_SECOND = frozenset({"other", "exponent", "mat2", "vec", "vec2", "tensor", "weight"})
"""What PyTorch's nodes call their operation's second operand."""


def saved_value(form: Form, find: Callable[[], Instruction], name: str) -> Any:
    """Return a saved value by PyTorch's name; None for an operand that the pullbacks did not need."""
    if form.op in (python_pullbacks.FUNCTION, python_pullbacks.OUTPUT):
        raise AttributeError(f"{form.name} has no attribute '_saved_{name}'; see saved_tensors")
    names = form.op.inputs
    operand_names = {alias: name for aliases, name in zip((_FIRST, _SECOND), names, strict=False) for alias in aliases}
    called = operand_names.get(name, "y" if name == "result" else name)
    if not form.saved or (called not in form.saved and name not in operand_names and form.saved != ("packed",)):
        raise AttributeError(f"{form.name} has no attribute '_saved_{name}'")
    instruction = find()
    if isinstance(instruction.saved[0], Packed):
        instruction = instruction.saved[0].unpacked(instruction)
    if called not in instruction.form.saved:
        return None
    value = SavedTensors([]).of(instruction)[called]
    if not isinstance(value, Tensor):
        return constant_tensor(np.asarray(value))
    return owner_of(value)
