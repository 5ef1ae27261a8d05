"""Values written into part of a tensor: the record, its instruction forms, its tasks, its repeated call.

The memory of a family has one gradient, so a write needs none of its own: its result is the base tensor's next
version, which shares the gradient of the version before.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec, Strides, broadcast, dense
from kernels.codegen.loop_printer import Loop, Operand
from kernels.codegen.tasks import Call, Place, UfuncCall, nest_layout
from kernels.codegen.vectorized_forward import same
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.kinds.program_interface import Lowering, Step
from kernels.native.call_structs import NEST, NEST4
from kernels.native.calls.computation import Computation
from kernels.native.tape_structs import ADDS, CLEARS
from kernels.records.op import Op
from kernels.records.symbols import Rule, passed

_INT64 = np.dtype(np.int64)
_PARTS = 2
"""Operands of a write: the part, and the value; a third is a tensor of places in the part."""
_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)


@dataclass(frozen=True, eq=False, kw_only=True)
class Write(Op):
    """Values written into part of a tensor's memory: the base tensor's next version.

    The gradient of that part goes to the values and is cleared; with ``adds`` the values were added to the part, and
    its gradient stays.
    """

    contribution: ClassVar[str] = "the part of {} that was written"
    adds: bool = False
    pullback: tuple[Rule | None, ...] = (lambda g: g, lambda g: g)

    @property
    def tape_kind(self) -> int:  # type: ignore[override]
        """How a sweep treats its instructions."""
        return ADDS if self.adds else CLEARS

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of a write to (region, None), a pattern in the gradient of the base, or to (None, shape).

        The latter are positions ``i`` of this shape, in elements of the base's gradient. ``spec`` is the base's; the
        second of ``specs`` is the value's, None of a number or where its gradient is not wanted.
        """
        (_, source), (region, shape) = specs, params
        saved, pulls = _to_region(spec, region, source) if shape is None else _to_places(spec, shape, source)
        clear, pull = pulls
        pulls = (clear if wanted[0] and not self.adds else None, pull if wanted[1] else None)
        return Form(self, (spec if wanted[0] else None, source), spec, wanted, saved, pulls, params, name)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Copy a value into part of a base; what pullbacks need of that part is saved before."""
        lowering.keep_overwritten(step)
        part = lowering.spec(step.result)
        value = lowering.operand(step.operands[1], part.dtype)
        if len(step.operands) == _PARTS and not step.params:
            lowering.copy_between(value, step.result, adds=self.adds)
            return
        places, source = lowering.places(step), lowering.spec(value)
        shape = lowering.spec(places).shape
        operands = (
            Operand("target", part.dtype, 0, (0,) * len(shape)),
            Operand("x", source.dtype, 1, broadcast(source.shape, source.strides, shape)),
            Operand("i", _INT64, 2, lowering.spec(places).strides),
        )
        loop = Loop(same, shape, operands, pullback=False, scatter=part.dtype.itemsize, adds=self.adds)
        lowering.tasks.append(Call(loop, (Place(step.result), Place(value), Place(places))))


def _to_region(base: Spec, region: Spec, source: Spec | None) -> tuple[tuple[str, ...], tuple[Loop, Loop | None]]:
    """Return what a write to a pattern saves, and what clears it and pulls its gradient to the value."""
    place = Operand("g", base.dtype, 1, region.gradient)
    target = Operand("target", base.dtype, 0, region.gradient)
    pull = None if source is None else Loop(passed, region.shape, (_target(source, region.shape), place))
    return ("offset",), (Loop(_nothing, region.shape, (target,), pullback=False), pull)


def _to_places(base: Spec, shape: Strides, source: Spec | None) -> tuple[tuple[str, ...], tuple[Loop, Loop | None]]:
    """Return the same of a write to places."""
    item, apart = base.dtype.itemsize, (0,) * len(shape)
    places = Operand("i", _INT64, 3, dense(shape, _INT64.itemsize))
    place, target = Operand("g", base.dtype, 1, apart), Operand("target", base.dtype, 0, apart)
    pull = None if source is None else Loop(passed, shape, (_target(source, shape), place, places), gather=item)
    return ("offset", "i"), (Loop(_nothing, shape, (target, places), pullback=False, scatter=item), pull)


def _target(source: Spec, shape: Strides) -> Operand:
    return Operand("target", source.dtype, 0, broadcast(source.shape, source.gradient, shape))


def _nothing() -> float:
    return -0.0


def computation(source: Spec | None, spec: Spec, shown: np.ndarray[Any, Any]) -> Computation | None:
    """Return how native code repeats a write of a value (None: a number) to a part of an array of this spec.

    None where Python has to do it.
    """
    dtype = spec.dtype
    if dtype not in (_FLOAT64, _FLOAT32) or not shown.size or spec.overlaps or spec.strides != spec.gradient:
        return None
    if source is not None and (source.dtype != dtype or len(source.shape) > shown.ndim):
        return None
    along = (0,) * shown.ndim if source is None else broadcast(source.shape, source.strides, shown.shape)
    loop = numpy_loops.find(np.positive, (dtype, dtype))
    layout = nest_layout(UfuncCall(loop, shown.shape, (along, shown.strides), ()))
    return Computation(NEST4 if dtype == _FLOAT32 else NEST, loop, layout=layout, count=2)
