"""Elements picked by index arrays: the record, its instruction form, its tasks in a program."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from kernels.arrays.specs import Spec, dense
from kernels.codegen.loop_printer import Loop, Operand
from kernels.codegen.tasks import Call, Place, node_of
from kernels.codegen.vectorized_forward import same
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.kinds.program_interface import Lowering, Step
from kernels.records.op import Op
from kernels.records.symbols import Rule, passed

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Op):
    """Elements picked by index arrays, copied; the same element may be picked more than once."""

    contribution: ClassVar[str] = "{}, added at the places picked"
    inputs: ClassVar[tuple[str, ...]] = ("x",)

    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...] = (True,), params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of a read by positions ``i``, in elements of the source's gradient.

        They are saved; a second operand, where there is one, is a tensor of them.
        """
        source = specs[0]
        operands = (
            Operand("target", source.dtype, 0, (0,) * len(spec.shape)),
            Operand("g", spec.dtype, 1, spec.gradient),
            Operand("i", _INT64, 2, dense(spec.shape, _INT64.itemsize)),
        )
        loop = Loop(passed, spec.shape, operands, scatter=source.dtype.itemsize)
        return Form(self, specs, spec, wanted, ("i",), (loop, None)[: len(specs)], params, name)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Copy the elements that places pick, in elements of memory, and of the gradient: see Lowering.places."""
        node = node_of(step.operands[0])
        source, result = lowering.spec(node), lowering.spec(step.result)
        places = lowering.places(step)
        operands = (
            Operand("target", result.dtype, 0, result.strides),
            Operand("x", source.dtype, 1, (0,) * len(result.shape)),
            Operand("i", _INT64, 2, lowering.spec(places).strides),
        )
        loop = Loop(same, result.shape, operands, pullback=False, gather=source.dtype.itemsize)
        lowering.tasks.append(Call(loop, (Place(step.result), Place(node), Place(places))))

    def recomputed(self, form: Form, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        source = form.specs[0]
        assert source is not None
        flat = np.zeros(source.buffer_size, source.dtype)
        np.ndarray(source.shape, source.dtype, flat, 0, source.gradient)[...] = values[0]
        return flat[saved[0]]
