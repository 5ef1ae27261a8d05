"""Selections, one element along an axis with its place: the record, its form, its tasks, its repeated call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from kernels.arrays.specs import Spec, dense
from kernels.codegen.rows.row_values import Pick, pick
from kernels.codegen.tasks import Call, Place, node_of
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.instructions.scatter_pullback import scattered
from kernels.kinds.program_interface import Lowering, Step
from kernels.native.call_structs import CALLED, KERNEL, PICK_EXTRA
from kernels.native.calls.computation import Computation, InnerLoop, of_arrays
from kernels.records.op import Op
from kernels.records.symbols import Rule

_INT64 = np.dtype(np.int64)
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Op):
    """One element along an axis, with its index: values and the int64 positions, first of equals."""

    contribution: ClassVar[str] = "{}, at the index"
    inputs: ClassVar[tuple[str, ...]] = ("x",)

    locate: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of an element picked along (axis, keepdims); its place ``i`` is saved, dense, as int64."""
        return Form(self, specs, spec, wanted, ("i",), (scattered(specs[0], spec, params[0], 2),), params, name)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Pick the extremum along an axis and its place; that is a step of its own if the program has a use for it."""
        axis, _, *of_places = step.params
        if of_places:
            return  # computed with the values
        source = node_of(step.operands[0])
        spec, result = lowering.spec(source), lowering.spec(step.result)
        pairs = [s for s in lowering.same_operands(step) if s.params[2:]]
        places = pairs[0].result if pairs else lowering.temporary(result.shape, _INT64)
        lowering.extra[step.at] = places
        kernel = Pick(spec, axis, largest=self.locate is np.argmax)
        lowering.tasks.append(Call(kernel, (Place(step.result), Place(places), Place(source))))

    def recomputed(self, form: Form, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        (axis, keepdims), (value,) = form.params, values
        if value.ndim == 0:
            return value
        result = np.take_along_axis(value, saved[0] if keepdims else np.expand_dims(saved[0], axis), axis)
        return result if keepdims else result.squeeze(axis)

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Any) -> Computation:
        """Return how native code repeats it: by our kernel, or as Python does."""
        (source,), (axis, keepdims) = sources, params
        picks = (PICK_EXTRA,) if isinstance(form, Form) else ()
        in_order = form.spec.strides == dense(form.spec.shape, source.dtype.itemsize)
        if source.dtype in _FLOATS and source.size and in_order:
            address, layout = Pick(source, axis, largest=self.locate is np.argmax).kernel()
            return Computation(KERNEL, InnerLoop(address, 0), layout=layout, count=2, picks=picks)
        function = partial(pick, self.locate, axis=axis, keepdims=keepdims)
        return Computation(CALLED, function=of_arrays(function), count=2, picks=picks)
