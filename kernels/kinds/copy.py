"""Copies, perhaps to another dtype: the record, its instruction form, its tasks in a program, its repeated call."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec
from kernels.arrays.warnings_off import silently
from kernels.codegen.loop_printer import Loop, Operand
from kernels.codegen.tasks import UfuncCall, nest_layout, node_of
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.kinds.program_interface import Lowering, Step
from kernels.native.call_structs import CALLED, NEST, ONCE
from kernels.native.calls.computation import Computation, is_fresh, strides_along
from kernels.records.op import Op
from kernels.records.symbols import Rule, passed

_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)
_BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy(Op):
    """The same values in new memory, of this or another dtype."""

    inputs: ClassVar[tuple[str, ...]] = ("x",)
    repeatable: ClassVar[bool] = True

    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...] = (True,), params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of a copy, to the result's dtype."""
        (source,) = specs
        target = Operand("target", source.dtype, 0, source.gradient)
        loop = Loop(passed, spec.shape, (target, Operand("g", spec.dtype, 1, spec.gradient)))
        return Form(self, specs, spec, wanted, (), (loop,), params, name)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Copy elements to another layout or dtype."""
        lowering.copy_between(node_of(step.operands[0]), step.result)

    def recomputed(self, form: Form, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        del saved
        return values[0].astype(form.spec.dtype)


def computation(source: Spec, spec: Spec) -> Computation | None:
    """Return how native code repeats the copy of a tensor; None where Python has to do it."""
    if not is_fresh(spec):
        return None
    if source.dtype != spec.dtype or spec.dtype == _BOOL:
        quiet = np.can_cast(source.dtype, spec.dtype) or (source.dtype.kind in "iub" and spec.dtype == _FLOAT32)
        function = partial(np.array, dtype=spec.dtype, order="C") if quiet else partial(cast, spec.dtype)
        return Computation(CALLED, function=function, count=2)
    if spec.dtype.kind == "f" and spec.dtype not in (_FLOAT64, _FLOAT32):
        return None
    loop = numpy_loops.find(np.positive, (spec.dtype, spec.dtype))
    if not spec.shape and spec.dtype == _FLOAT64:
        return Computation(ONCE, loop, count=2)
    layout = nest_layout(UfuncCall(loop, spec.shape, (strides_along(source, spec), spec.strides), ()))
    return Computation(NEST, loop, layout=layout, count=2)


def cast(dtype: np.dtype[Any], value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a dtype, in C order."""
    return silently(np.array, value, dtype=dtype, order="C")  # type: ignore[no-any-return]
