"""The place that pickles of programs name for their parts: the files that define these may move, this one stays."""

from __future__ import annotations

from typing import Any

from kernels.kinds.routine import RoutineCall
from kernels.programs.program import ProgramNode as Node
from kernels.programs.program import Recipe, StepKind, custom_from, form_from, op_named, part_of, spec_from, steps_from
from tape.tensors.pytrees import LEAF, NONE, Signature, Structure, dataclass_of, dict_of, mapping_of

__all__ = [
    "LEAF", "NONE", "Node", "Recipe", "RoutineCall", "Signature", "StepKind", "Structure", "custom_from",
    "dataclass_of", "dict_of", "form_from", "mapping_of", "op_named", "part_of", "spec_from", "steps_from",
]  # fmt: skip

for _name in __all__:
    if _name not in ("LEAF", "NONE"):  # these are Structures
        _thing: Any = globals()[_name]
        _thing.__module__, _thing.__qualname__ = __name__, _name
