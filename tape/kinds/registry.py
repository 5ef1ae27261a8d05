"""The kinds by the classes of their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.arrays.specs import Spec
from kernels.instructions.form import Form
from kernels.kinds.contraction import Contraction
from kernels.kinds.copy import Copy
from kernels.kinds.custom import Callback, Custom
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.gather import Gather
from kernels.kinds.join import Join
from kernels.kinds.loop import Guard
from kernels.kinds.reduction import Reduction
from kernels.kinds.routine import Routine
from kernels.kinds.select import Select
from kernels.kinds.view import Part, View
from kernels.kinds.write import Write
from tape.kinds.calls import CallbackKind, CustomKind, GuardKind, RoutineKind
from tape.kinds.contraction import ContractionKind
from tape.kinds.elementwise import ElementwiseKind
from tape.kinds.kind import Kind, Operand, Planned, Pullbacks
from tape.kinds.picking import GatherKind, SelectKind
from tape.kinds.rearrangements import CopyKind, JoinKind, ViewKind, WriteKind
from tape.kinds.reduction import ReductionKind

KINDS: dict[type, Kind] = {
    Callback: CallbackKind(),
    Contraction: ContractionKind(),
    Copy: CopyKind(),
    Custom: CustomKind(),
    Elementwise: ElementwiseKind(),
    Gather: GatherKind(),
    Guard: GuardKind(),
    Join: JoinKind(),
    Part: ViewKind(),
    Reduction: ReductionKind(),
    Routine: RoutineKind(),
    Select: SelectKind(),
    View: ViewKind(),
    Write: WriteKind(),
}
_OTHER = Kind()


def pullbacks_of(form: Form) -> Pullbacks:
    """Return what runs the pullbacks of instructions of a form, made at its first use."""
    pullbacks: Pullbacks | None = form.tensor_pullbacks
    if pullbacks is None:
        pullbacks = form.tensor_pullbacks = KINDS.get(type(form.op), _OTHER).pullbacks(form)
    return pullbacks


def run_batched(step: Planned, operands: Sequence[Operand], spec: Spec) -> Any:
    """Run a step on these operands; ``spec`` is that of the result of one example. NotImplementedError by name."""
    return KINDS.get(type(step.op), _OTHER).batched(step, operands, spec)
