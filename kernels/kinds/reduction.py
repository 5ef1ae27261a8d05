"""Reductions over axes: the record, its instruction form, its tasks in a program, its repeated call."""

from __future__ import annotations

import math
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec, Strides, dense
from kernels.codegen.loop_printer import Loop, Operand
from kernels.codegen.tasks import Call, Fill, NodeRef, Place, PythonCall, UfuncCall, initial, nest_layout, node_of
from kernels.codegen.vectorized_forward import spread, tie
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form, rule_loop, saved_names
from kernels.kinds.program_interface import Lowering, Step
from kernels.native.call_structs import CALLED, PICK_RESULT, PICK_SCALE, REDUCE
from kernels.native.calls.computation import Computation, is_fresh, of_arrays, to_array
from kernels.records.op import Op
from kernels.records.symbols import names_read

Array = np.ndarray[Any, Any]
_FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduction(Op):
    """A reduction over axes: ``ufunc.reduce`` forward, an elementwise pullback over the input's space.

    ``ufunc`` may be anything that reduces as a ufunc does.

    ``dims_grad_fn`` is the node's name where dims were given. ``scale`` divides the reduced value by ``n``.
    ``parts``: see :class:`kernels.kinds.routine.Routine`.
    ``selects``: one element of many gives the result; the pullback then knows ``n`` as the number that tie.
    """

    contribution: ClassVar[str] = "{}, spread over the dims"
    inputs: ClassVar[tuple[str, ...]] = ("x",)
    repeatable: ClassVar[bool] = True

    ufunc: Any
    dims_grad_fn: str = ""
    scale: bool = False
    selects: bool = False
    parts: Any = None
    reads: tuple[frozenset[str], ...] = field(init=False)

    def check(self) -> None:
        """Find what the rule reads."""
        object.__setattr__(self, "reads", names_read(self.name, self.pullback, ("g", "y", "x", "n")))

    @property
    def counts_ties(self) -> bool:  # type: ignore[override]
        """Whether ``n`` is an array of counts, and not one number."""
        return self.selects

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of a reduction over (axes, keepdims)."""
        (source,), (axes, keepdims) = specs, params
        saved, rank = saved_names(self, wanted, ("x", "y", "n")), len(source.shape)
        onto = spec.dtype, spread(spec.strides, rank, axes, keepdims)
        patterns = {
            "x": (source.dtype, source.strides),
            "y": onto,
            "n": onto if self.selects else (_FLOAT64, (0,) * rank),
        }
        reads = [Operand(name, patterns[name][0], 2 + k, patterns[name][1]) for k, name in enumerate(saved)]
        target = Operand("target", source.dtype, 0, source.gradient)
        cotangent = Operand("g", spec.dtype, 1, spread(spec.gradient, rank, axes, keepdims))
        loop = rule_loop(self, 0, source.shape, (target, cotangent, *reads))
        return Form(self, specs, spec, wanted, saved, (loop,), params, name)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Fill with what NumPy starts from, then run its loop; count ties where the pullback needs them."""
        if not isinstance(self.ufunc, np.ufunc):
            self._reduce_in_python(step, lowering)
            return
        result, (axes, keepdims) = lowering.spec(step.result), step.params
        source = _dense(node_of(step.operands[0]), result.dtype, lowering)
        spec = lowering.spec(source)
        onto = spread(result.strides, len(spec.shape), axes, keepdims)
        start = initial(self.ufunc, spec, result.dtype)
        lowering.tasks.append(Fill(Place(step.result), result.size, result.dtype, start))
        loop = numpy_loops.find(self.ufunc, (result.dtype,) * 3)
        places = (Place(step.result), Place(source), Place(step.result))
        lowering.tasks.append(UfuncCall(loop, spec.shape, (onto, spec.strides, onto), places))
        if self.scale:
            count = float(counted(spec.shape, axes))
            lowering.ufunc(np.divide, (NodeRef(step.result), count), step.result)
        if lowering.wants_pullback(step, "n"):
            count_of = _count_ties(step, source, onto, lowering) if self.selects else None
            lowering.extra[step.at] = lowering.number(counted(spec.shape, axes)) if count_of is None else count_of

    def _reduce_in_python(self, step: Step, lowering: Lowering) -> None:
        """Reduce by what is no ufunc."""
        (axes, keepdims), reduce = step.params, self.ufunc.reduce

        def run(arrays: list[Array], _: dict[int, list[Any]]) -> None:
            arrays[0][...] = reduce(np.ascontiguousarray(arrays[1]), axis=axes, keepdims=keepdims)

        nodes = (step.result, node_of(step.operands[0]))
        lowering.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(Place, nodes))))

    def recomputed(self, form: Form, _: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        axes, keepdims = form.params
        return reduced(self, values[0], axes=axes, keepdims=keepdims)

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Any) -> Computation | None:
        """Return how native code repeats it: by NumPy's loop, or as Python does; None where ties are counted."""
        (source,), (axes, keepdims) = sources, params
        saved = form.saved if isinstance(form, Form) else ()
        computation = self._by_loop(source, form.spec, axes, saved, keepdims)
        if computation is not None or (self.selects and saved):
            return computation
        function: Any = partial(reduced, self, axes=axes, keepdims=keepdims)
        if not source.shape:
            function = of_arrays(function)
        if not form.spec.shape and form.spec.dtype != _FLOAT64:
            function = to_array(function)
        picks, scale = tuple([_PICKS[name] for name in saved]), float(counted(source.shape, axes))
        return Computation(CALLED, function=function, count=2, picks=picks, scale=scale)

    def _by_loop(
        self, source: Spec, spec: Spec, axes: Strides, saved: tuple[str, ...], keepdims: bool
    ) -> Computation | None:
        """Return how C-contiguous doubles are reduced by a ufunc's loop; None for other arrays."""
        simple = spec.dtype == source.dtype == _FLOAT64 and source.size > 0 and is_fresh(spec)
        dense_source = source.strides == dense(source.shape, source.dtype.itemsize)
        if not (isinstance(self.ufunc, np.ufunc) and simple and dense_source):
            return None
        onto = spread(spec.strides, len(source.shape), axes, keepdims)
        loop = numpy_loops.find(self.ufunc, (spec.dtype,) * 3)
        layout = nest_layout(UfuncCall(loop, source.shape, (onto, source.strides, onto), ()))
        ties = nest_layout(UfuncCall(loop, source.shape, (source.strides, onto, onto), ())) if self.selects else None
        return Computation(
            REDUCE,
            loop,
            layout=layout,
            count=3,
            picks=tuple([_PICKS[name] for name in saved]),
            initial=initial(self.ufunc, source, spec.dtype),
            scale=float(source.size // spec.size) if self.scale else 0.0,
            ties=ties,
        )


_PICKS = {"x": 0, "y": PICK_RESULT, "n": PICK_SCALE}


def counted(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Return how many elements meet in one result."""
    return math.prod([shape[axis] for axis in axes])


def reduced(op: Reduction, array: Array, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Reduce over axes, normalised.

    The array is made contiguous first: NumPy's order of summation, and so a sum's last bits, depends on strides.
    """
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    with np.errstate(all="ignore"):
        value = op.ufunc.reduce(array, axis=axes, keepdims=keepdims)
        if not op.scale:
            return value
        count = counted(array.shape, axes)
        return value / np.float64(count) if value.dtype == _FLOAT64 else value / value.dtype.type(count)


def tied(op: Reduction, array: Array, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Return, for each result of an extremum, how many elements tie, in C order as the result; nan ties with nan."""
    array = np.ascontiguousarray(array)
    wide = op.ufunc.reduce(array, axis=axes, keepdims=True)
    ties = ((array == wide) | (np.isnan(array) & np.isnan(wide))).sum(axis=axes, keepdims=keepdims)
    return ties.astype(array.dtype)


def _dense(node: int, dtype: np.dtype[Any], lowering: Lowering) -> int:
    """Return a node, or a C-contiguous copy of it, in the dtype of the reduction."""
    spec = lowering.spec(node)
    if spec.dtype == dtype and spec.strides == dense(spec.shape, dtype.itemsize):
        return node
    return lowering.cast(node, dtype)


def _count_ties(step: Step, source: int, onto: Strides, lowering: Lowering) -> int:
    """Count, for each result of an extremum, the elements that tie."""
    result, spec = lowering.spec(step.result), lowering.spec(source)
    count = lowering.temporary(result.shape, result.dtype)
    lowering.tasks.append(Fill(Place(count), result.size, result.dtype, -0.0))
    operands = (
        Operand("target", result.dtype, 0, onto),
        Operand("x", spec.dtype, 1, spec.strides),
        Operand("y", result.dtype, 2, onto),
    )
    loop = Loop(tie, spec.shape, operands, skips=False)
    lowering.tasks.append(Call(loop, (Place(count), Place(source), Place(step.result)), accumulate=True))
    return count
