"""Kinds of records that sum over axes: reductions, contractions, and selections of an extremum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from kernels.foundation import numpy_arrays
from kernels.foundation.specs import FLOAT64, INT64, Array, Spec, Strides, dense
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form, Lowering, ProgramStep, Pull, rule_loop, saved_names, scattered
from kernels.native.call_structs import CALLED, KERNEL, PICK_EXTRA, PICK_RESULT, PICK_SCALE, PRODUCT, REDUCE
from kernels.native.calls.computation import Computation, InnerLoop, is_fresh, loop_of, of_arrays, to_array
from kernels.rules.loop_printer import KernelOperand, PrintedLoop, nest_layout
from kernels.rules.op import Flags, Op, Params
from kernels.rules.rows import Factor, Pick, Product, matrices, pick, product
from kernels.rules.scalar_loops import (
    ConstantFill,
    KernelCall,
    NodeRef,
    OperandPlace,
    PythonCall,
    UfuncCall,
    initial,
    node_of,
    spread,
    tie,
)
from kernels.rules.symbols import Rule, names_read


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

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of a reduction over (axes, keepdims)."""
        (source,), (axes, keepdims) = specs, params
        saved, rank = saved_names(self, wanted, ("x", "y", "n")), len(source.shape)
        onto = spec.dtype, spread(spec.strides, rank, axes, keepdims)
        patterns = {
            "x": (source.dtype, source.strides),
            "y": onto,
            "n": onto if self.selects else (FLOAT64, (0,) * rank),
        }
        reads = [KernelOperand(name, patterns[name][0], 2 + k, patterns[name][1]) for k, name in enumerate(saved)]
        target = KernelOperand("target", source.dtype, 0, source.gradient)
        cotangent = KernelOperand("g", spec.dtype, 1, spread(spec.gradient, rank, axes, keepdims))
        loop = rule_loop(self, 0, source.shape, (target, cotangent, *reads))
        return Form(self, specs, spec, wanted, saved, (loop,), params, name)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Fill with what NumPy starts from, then run its loop; count ties where the pullback needs them."""
        if not isinstance(self.ufunc, np.ufunc):
            self._reduce_in_python(step, lowering)
            return
        result, (axes, keepdims) = lowering.spec(step.result), step.params
        source = node_of(step.operands[0])
        spec = lowering.spec(source)
        if spec.dtype != result.dtype or spec.strides != dense(spec.shape, spec.dtype.itemsize):
            source = lowering.cast(source, result.dtype)
            spec = lowering.spec(source)
        onto = spread(result.strides, len(spec.shape), axes, keepdims)
        start = initial(self.ufunc, spec, result.dtype)
        lowering.tasks.append(ConstantFill(OperandPlace(step.result), result.size, result.dtype, start))
        loop = numpy_arrays.find(self.ufunc, (result.dtype,) * 3)
        places = (OperandPlace(step.result), OperandPlace(source), OperandPlace(step.result))
        lowering.tasks.append(UfuncCall(loop, spec.shape, (onto, spec.strides, onto), places))
        if self.scale:
            count = float(counted(spec.shape, axes))
            lowering.ufunc(np.divide, (NodeRef(step.result), count), step.result)
        if lowering.wants_pullback(step, "n"):
            count_of = _count_ties(step, source, onto, lowering) if self.selects else None
            lowering.extra[step.at] = lowering.number(counted(spec.shape, axes)) if count_of is None else count_of

    def _reduce_in_python(self, step: ProgramStep, lowering: Lowering) -> None:
        (axes, keepdims), reduce = step.params, self.ufunc.reduce

        def run(arrays: list[Array], _: dict[int, list[Any]]) -> None:
            arrays[0][...] = reduce(np.ascontiguousarray(arrays[1]), axis=axes, keepdims=keepdims)

        nodes = (step.result, node_of(step.operands[0]))
        lowering.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(OperandPlace, nodes))))

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
        if not form.spec.shape and form.spec.dtype != FLOAT64:
            function = to_array(function)
        picks, scale = tuple([_PICKS[name] for name in saved]), float(counted(source.shape, axes))
        return Computation(CALLED, function=function, count=2, picks=picks, scale=scale)

    def _by_loop(
        self, source: Spec, spec: Spec, axes: Strides, saved: tuple[str, ...], keepdims: bool
    ) -> Computation | None:
        """Return how C-contiguous doubles are reduced by a ufunc's loop; None for other arrays."""
        simple = spec.dtype == source.dtype == FLOAT64 and source.size > 0 and is_fresh(spec)
        dense_source = source.strides == dense(source.shape, source.dtype.itemsize)
        if not (isinstance(self.ufunc, np.ufunc) and simple and dense_source):
            return None
        onto = spread(spec.strides, len(source.shape), axes, keepdims)
        loop = numpy_arrays.find(self.ufunc, (spec.dtype,) * 3)
        layout = nest_layout(source.shape, onto, source.strides, onto)
        ties = nest_layout(source.shape, source.strides, onto, onto) if self.selects else None
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
    """Reduce over axes, normalised, a contiguous array: NumPy's order of summation depends on strides."""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    with np.errstate(all="ignore"):
        value = op.ufunc.reduce(array, axis=axes, keepdims=keepdims)
        if not op.scale:
            return value
        count = counted(array.shape, axes)
        return value / np.float64(count) if value.dtype == FLOAT64 else value / value.dtype.type(count)


def tied(op: Reduction, array: Array, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Return, for each result of an extremum, how many elements tie, in C order as the result; nan ties with nan."""
    array = np.ascontiguousarray(array)
    wide = op.ufunc.reduce(array, axis=axes, keepdims=True)
    ties = ((array == wide) | (np.isnan(array) & np.isnan(wide))).sum(axis=axes, keepdims=keepdims)
    return ties.astype(array.dtype)


def _count_ties(step: ProgramStep, source: int, onto: Strides, lowering: Lowering) -> int:
    result, spec = lowering.spec(step.result), lowering.spec(source)
    count = lowering.temporary(result.shape, result.dtype)
    lowering.tasks.append(ConstantFill(OperandPlace(count), result.size, result.dtype, -0.0))
    operands = (
        KernelOperand("target", result.dtype, 0, onto),
        KernelOperand("x", spec.dtype, 1, spec.strides),
        KernelOperand("y", result.dtype, 2, onto),
    )
    loop = PrintedLoop(tie, spec.shape, operands, skips=False)
    lowering.tasks.append(
        KernelCall(loop, (OperandPlace(count), OperandPlace(source), OperandPlace(step.result)), accumulate=True)
    )
    return count


@dataclass(frozen=True, eq=False, kw_only=True)
class Contraction(Op):
    """A matrix product of one- and two-dimensional operands; both pullbacks are matrix products."""

    inputs: ClassVar[tuple[str, ...]] = ("a", "b")
    repeatable: ClassVar[bool] = True

    ranks: tuple[tuple[int, int], ...]
    pullback: tuple[Rule | None, ...] = (lambda g, b: g @ b.T, lambda g, a: a.T @ g)

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form: ``da = g b^T`` and ``db = a^T g``, by strides, nothing copied."""
        a, b = specs
        saved = tuple(name for name, want in zip("ab", (wanted[1], wanted[0]), strict=True) if want)
        (m, k, n), left, right, result = matrices(a.shape, a.strides, b.shape, b.strides, spec.gradient)
        _, d_left, d_right, _ = matrices(a.shape, a.gradient, b.shape, b.gradient, spec.gradient)
        g = Factor(1, result)
        pulls: list[Pull | None] = [None, None]
        if wanted[0]:
            factor = Factor(2 + saved.index("b"), right)
            pulls[0] = product(spec.dtype, (m, k, n), Factor(0, d_left), g, factor.turned)
        if wanted[1]:
            factor = Factor(2 + saved.index("a"), left)
            pulls[1] = product(spec.dtype, (k, n, m), Factor(0, d_right), factor.turned, g)
        return Form(self, specs, spec, wanted, saved, tuple(pulls), params, name)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Multiply matrices or vectors by BLAS, as NumPy does."""
        nodes = [node_of(o) for o in step.operands]
        a, b = map(lowering.spec, nodes)
        result = lowering.spec(step.result)
        (m, k, n), left, right, target = matrices(a.shape, a.strides, b.shape, b.strides, result.strides)
        kernel = Product(result.dtype, (m, n, k), Factor(0, target), Factor(1, left), Factor(2, right))
        lowering.tasks.append(KernelCall(kernel, (OperandPlace(step.result), *map(OperandPlace, nodes))))

    def recomputed(self, form: Form, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        del form, saved
        return np.matmul(*values)


def computation(a: Spec, b: Spec, spec: Spec, saved: tuple[str, ...]) -> Computation | None:
    """Return how native code repeats a product of matrices and vectors; None where Python has to do it."""
    if not a.dtype == b.dtype == spec.dtype or not is_fresh(spec) or 0 in (a.size, b.size):
        return None
    loop = loop_of(np.matmul, (spec.dtype,) * 3)
    if loop is None or spec.dtype.kind != "f":
        return None
    extents, left, right, result = matrices(a.shape, a.strides, b.shape, b.strides, spec.strides)
    layout = np.array([1, *extents, 0, 0, 0, *left, *right, *result], np.int64)
    picks = tuple(["ab".index(name) for name in saved])
    return Computation(PRODUCT, loop, layout=layout, count=3, picks=picks)


_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Op):
    """One element along an axis, with its index: values and the int64 positions, first of equals."""

    contribution: ClassVar[str] = "{}, at the index"
    inputs: ClassVar[tuple[str, ...]] = ("x",)

    locate: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of an element picked along (axis, keepdims); its place ``i`` is saved, dense, as int64."""
        return Form(self, specs, spec, wanted, ("i",), (scattered(specs[0], spec, params[0], 2),), params, name)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Pick the extremum along an axis and its place; that is a step of its own if the program has a use for it."""
        axis, _, *of_places = step.params
        if of_places:
            return  # computed with the values
        source = node_of(step.operands[0])
        spec, result = lowering.spec(source), lowering.spec(step.result)
        pairs = [s for s in lowering.same_operands(step) if s.params[2:]]
        places = pairs[0].result if pairs else lowering.temporary(result.shape, INT64)
        lowering.extra[step.at] = places
        kernel = Pick(spec, axis, largest=self.locate is np.argmax)
        lowering.tasks.append(
            KernelCall(kernel, (OperandPlace(step.result), OperandPlace(places), OperandPlace(source)))
        )

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
