"""What operations saved for their pullbacks, by PyTorch's names: a node's ``_saved_self``, ``_saved_other``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.instructions import python_pullbacks
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.engine.rules.custom_calls import owner_of
from tape.engine.rules.saved_tensors import Primals
from tape.recording.packed_values import Packed
from tape.tensors.tensor import Tensor, plain

_FIRST = frozenset({"self", "mat1", "input"})
_SECOND = frozenset({"other", "exponent", "mat2", "vec", "vec2", "tensor", "weight"})
"""What PyTorch's nodes call their operation's second operand."""


def saved_value(form: Form, find: Callable[[], Instruction], name: str) -> Any:
    """Return what an operation saved, by PyTorch's name of it; None for an operand that this one did not need."""
    if form.op in (python_pullbacks.FUNCTION, python_pullbacks.OUTPUT):
        raise AttributeError(f"{form.name} has no attribute '_saved_{name}'; see saved_tensors")
    names = form.op.inputs
    own = {alias: name for aliases, name in zip((_FIRST, _SECOND), names, strict=False) for alias in aliases}
    called = own.get(name, "y" if name == "result" else name)
    if not form.saved or (called not in form.saved and name not in own and form.saved != ("packed",)):
        raise AttributeError(f"{form.name} has no attribute '_saved_{name}'")
    found = find()
    if isinstance(found.saved[0], Packed):
        found = found.saved[0].unpacked(found)
    if called not in found.form.saved:
        return None
    value = Primals([]).of(found)[called]
    if not isinstance(value, Tensor):
        return plain(np.asarray(value))
    return owner_of(value)
