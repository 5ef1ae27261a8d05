"""Calls of Python in the middle of a program: the record, its form, its tasks."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from kernels.arrays.specs import Spec
from kernels.arrays.sweep_interface import Array
from kernels.codegen.tasks import Place, PythonCall, node_of
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.kinds.program_interface import Lowering, Step
from kernels.kinds.routine import packed
from kernels.records.op import Op


class PythonFunction(Protocol):
    """What a step of this kind calls, its one parameter; equal ones do the same."""

    def run(self, values: list[Array]) -> tuple[list[Array], Any]:
        """Return the results for these operands, arrays of its own, and what its gradients need."""

    def gradients(self, g: Array, saved: dict[str, Any], specs: tuple[Spec | None, ...]) -> list[Array | None]:
        """Return the gradients of the operands that have a spec; ``saved["context"]`` is what :meth:`run` returned."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Callback(Op):
    """A call of Python on the values of operands. Not in the tables.

    Several results, of one dtype, stand end to end in one flat array.
    """

    inputs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Register nothing."""

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of a call, the one parameter."""
        return Form(self, specs, spec, wanted, ("context",), (None,) * len(specs), params, name, python=True)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Call it; what its gradients need is kept, last call last."""
        (called,), at, keeps = step.params, step.at, lowering.wants_pullback(step, "context")

        def run(arrays: list[Array], kept: dict[int, list[Any]]) -> None:
            results, context = called.run([np.array(x, order="K") for x in arrays[1:]])
            arrays[0][...] = packed(results)
            if keeps:
                kept.setdefault(at, []).append(context)

        nodes = (step.result, *map(node_of, step.operands))
        lowering.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(Place, nodes))))


FUNCTION = Callback(name="autograd.Function", doc="A call of a custom function.", pullback=(), grad_fn="")
