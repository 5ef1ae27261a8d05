"""Kinds of records that compute by loops: elementwise operations, reductions, contractions, selections."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import field
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from kernels.calls.object_types import Computation, InnerLoop, of_arrays, to_array
from kernels.foundation.specs import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT64,
    Array,
    Spec,
    Strides,
    broadcast,
    dense,
    dividing,
    inner_loop,
    intern_spec,
    silently,
)
from kernels.foundation.tables import dataclass
from kernels.kinds.form import (
    Form,
    Lowering,
    ProgramStep,
    Pull,
    is_fresh,
    loop_of,
    pulls_of,
    rule_loop,
    saved_names,
    scattered,
    strides_along,
)
from kernels.language import jit
from kernels.native import pool, structs
from kernels.rules import scalar_loops
from kernels.rules.loop_printer import (
    Factor,
    KernelOperand,
    Pick,
    PrintedLoop,
    Product,
    matrices,
    nest_layout,
    pick,
    product,
)
from kernels.rules.op import (
    OPS,
    DeclarationError,
    Flags,
    Op,
    Params,
    Rule,
    Shapes,
    Symbol,
    Unprinted,
    names_read,
    parameters_of,
    resolved,
    traced,
    ufunc_of,
)
from kernels.rules.scalar_loops import (
    ConstantFill,
    KernelCall,
    NodeRef,
    OperandPlace,
    PythonCall,
    UfuncCall,
    forward,
    initial,
    node_of,
    reduced_shape,
    spread,
    tie,
)

# Elementwise operations: the record, its instruction form, its tasks in a program, its repeated call.

Specs = tuple[Spec | None, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Op):
    """An operation on each element, with broadcasting; NumPy's ufunc of that name is the forward, if none is given.

    ``exact`` says that IEEE 754 rounds the forward expression correctly, so that a printed kernel agrees with
    NumPy in every bit; the others replay through NumPy's own loops. ``operator`` is Python's symbol.
    ``reversed_grad_fn`` is the node's name where a Python number comes first, and ``reversed_within`` that of the node
    behind it, if PyTorch has two; ``number_grad_fn`` where one comes last.
    ``condition``: the first input is a boolean mask. ``identity``: the result is the operand itself. ``scaled``:
    PyTorch's ``alpha`` multiplies the second. ``arguments``: what the operands are called where it is not PyTorch's
    usual ``input`` and ``other``. ``domain``: what the inputs are made of, for the tests, any real number if not told.
    ``scalar`` names the record that serves a Python number as the second operand; there the number is the
    static parameter ``p`` of forward and rules, and ``variants`` has what computes some p: a ufunc, or a
    function made of ufuncs.
    ``ufunc`` is given where it is not NumPy's of that name: another, or one of ``scipy.special``; ``composed`` says
    that there is none, and the forward expression runs as it stands, ufunc by ufunc. ``vector``: large results are
    computed by our own kernel, to 2 ulp (kernels/language/vectormath.py).
    """

    is_called: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    forward: Rule = None  # type: ignore[assignment]
    domain: tuple[str, ...] = ()
    operator: str = ""
    reversed_grad_fn: str = ""
    reversed_within: str = ""
    number_grad_fn: str = ""
    condition: bool = False
    identity: bool = False
    scaled: bool = False
    arguments: tuple[str, ...] = ()
    exact: bool = False
    scalar: str = ""
    composed: bool = False
    vector: bool = False
    variants: dict[float, Callable[[Any], Any]] = field(default_factory=dict)
    ufunc: Any = None
    inputs: tuple[str, ...] = field(init=False)  # type: ignore[misc]
    reads: tuple[frozenset[str], ...] = field(init=False)

    def check(self) -> None:
        """Read the rules: their inputs, their ufunc and what they read."""
        if self.ufunc is None:
            ufunc = self.forward if self.composed else getattr(np, self.name, None)
            object.__setattr__(self, "ufunc", ufunc)
        if self.ufunc is None:
            msg = f"{self.name}: NumPy has no function of this name; use NumPy's name, or say composed=True"
            raise DeclarationError(msg)
        if self.forward is None:
            object.__setattr__(self, "forward", _call_of(self.ufunc, len(self.pullback)))
        inputs = tuple(n for n in parameters_of(self.forward) if n != "p")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "domain", self.domain or ("real",) * len(inputs))
        for attribute in ("pullback", "domain"):
            count = len(getattr(self, attribute))
            if count != len(inputs):
                msg = f"{self.name}: {count} entries in {attribute} for {len(inputs)} inputs; give one per input"
                raise DeclarationError(msg)
        object.__setattr__(self, "reads", names_read(self.name, self.pullback, ("g", "y", "p", *inputs)))

    @property
    def calls_scipy(self) -> bool:
        """Whether it calls one of SciPy's on several operands: to those a Python number is a double."""
        return len(self.inputs) > 1 and not isinstance(self.ufunc, np.ufunc) and _calls_scipy(self)

    def form(self, specs: Specs, spec: Spec, wanted: Flags, params: Params = (), _: str = "") -> Form:
        """Return the form; the spec of a Python number is None, and the node's name follows from where it stands."""
        saved = saved_names(self, wanted, (*self.inputs, "y"))
        patterns = {name: _pattern(source, spec.shape) for name, source in zip(self.inputs, specs, strict=True)}
        patterns["y"] = (spec.dtype, spec.strides)
        reads = [KernelOperand(name, patterns[name][0], 2 + k, patterns[name][1]) for k, name in enumerate(saved)]
        cotangent = KernelOperand("g", spec.dtype, 1, spec.gradient)
        static = (("p", params[0]),) if params else ()

        def pull(i: int, source: Spec) -> PrintedLoop:
            target = KernelOperand("target", source.dtype, 0, broadcast(source.shape, source.gradient, spec.shape))
            return rule_loop(self, i, spec.shape, (target, cotangent, *reads), static)

        name = self.reversed_grad_fn if specs[0] is None else self.number_grad_fn if specs[-1] is None else ""
        return Form(self, specs, spec, wanted, saved, pulls_of(specs, wanted, pull), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether operands spread over the result."""
        return len(shapes) == len(self.inputs) and np.broadcast_shapes(*shapes, spec.shape) == spec.shape

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Print the expression where that rounds as NumPy does; else run the ufunc."""
        dtype = lowering.spec(step.result).dtype
        if self.condition:
            _printed(self, step.operands, [BOOL, dtype, dtype], step.result, lowering)
        elif self._is_printed(step, lowering):
            _printed(self, step.operands, [dtype] * len(step.operands), step.result, lowering)
        else:
            self._by_ufuncs(step, lowering)

    def _is_printed(self, step: ProgramStep, lowering: Lowering) -> bool:
        """Whether a kernel gives what dynamic mode gives: an exact operation, or one that our own kernel computes."""
        result = lowering.spec(step.result)
        specs = tuple([lowering.spec(o.node) for o in step.operands if isinstance(o, NodeRef)])
        numbers = (intern_spec((), (), result.dtype, (), 1),) * (len(step.operands) - len(specs))
        if not step.params and scalar_loops.suits(self, result, specs + numbers):
            return True
        return self.exact and result.dtype.kind == "f" and all(spec.dtype == result.dtype for spec in specs)

    def _by_ufuncs(self, step: ProgramStep, lowering: Lowering) -> None:
        ufunc = self.variants.get(step.params[0], self.ufunc) if step.params else self.ufunc
        if self.composed or isinstance(ufunc, FunctionType):
            static = {"p": step.params[0]} if step.params else {}
            names = dict(zip(self.inputs, step.operands, strict=True))
            expression = traced(self.forward if self.composed else ufunc, Unprinted, static)
            _composed(expression, names, lowering, step.result)
        else:
            number = step.params[:1] if step.params and ufunc is self.ufunc else ()
            operands = *step.operands, *number
            positive = not isinstance(operands[-1], NodeRef) and operands[-1] > 0
            if ufunc in _RAISING and lowering.spec(step.result).dtype.kind in "iu" and not positive:
                self._in_python(operands, step.result, lowering)
            else:
                lowering.ufunc(resolved(ufunc), operands, step.result)

    def _in_python(self, operands: tuple[Any, ...], result: int, lowering: Lowering) -> None:
        """Have Python run the ufunc on integers, by whose values it raises."""
        nodes = (result, *[o.node for o in operands if isinstance(o, NodeRef)])

        def run(arrays: list[Any], _: dict[int, list[Any]]) -> None:
            values = iter(arrays[1:])
            args = [next(values) if isinstance(o, NodeRef) else int(o) for o in operands]
            arrays[0][...] = dividing(self.name, self.ufunc, *args)

        lowering.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(OperandPlace, nodes))))

    def recomputed(self, form: Form, _: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        if form.params and form.params[0] in self.variants:
            return self.variants[form.params[0]](*values)
        return self.ufunc(*values, *form.params)

    def computation(self, sources: Specs, form: Any, params: Params) -> Computation | None:
        """Return how native code repeats it: by NumPy's loop, inline or by a kernel of ours, or as Python does."""
        if self.calls_scipy:
            return None
        spec, ufunc, specs = form.spec, self.ufunc, sources
        if params:
            ufunc = self.variants.get(params[0], ufunc)
            specs = sources if params[0] in self.variants else (*sources, None)
        divides = ufunc in _QUOTIENTS and specs[1:] == (None,)
        dtype = _dtype_of((*sources, spec), np.add if divides else ufunc)
        if dtype is None or not is_fresh(spec) or not any(s is not None and s.dtype == dtype for s in sources):
            return None  # of masks and numbers alone the default dtype decides
        names = (*self.inputs, "y")
        saved = form.saved if isinstance(form, Form) else ()
        picks = tuple([structs.PICK_RESULT if name == "y" else names.index(name) for name in saved])
        operands = tuple([intern_spec((), (), dtype, (), 1) if s is None else s for s in sources])
        if not params and scalar_loops.suits(self, spec, operands):
            address, layout = forward(self, spec, operands).kernel()
            loop = InnerLoop(address, 0)
            return Computation(structs.KERNEL, loop, layout=layout, count=len(sources) + 1, picks=picks)
        ufunc = ufunc if isinstance(ufunc, np.ufunc) else resolved(ufunc)
        count, loop = len(specs) + 1, _loop(ufunc, (*[dtype if s is None else s.dtype for s in specs], spec.dtype))
        if loop is None:
            known = isinstance(ufunc, np.ufunc) or (not spec.shape and spec.dtype != FLOAT64)
            large = spec.bytes >= structs.LARGE
            function = partial(silently, partial(pool.call, ufunc) if large else ufunc)
            return None if known else Computation(structs.CALLED, function=function, count=count, picks=picks)
        if not spec.shape and spec.dtype == FLOAT64:
            kind = _INLINE.get((self.operator, len(self.inputs)), structs.ONCE)
            return Computation(kind, loop, count=count, picks=picks)
        layout = nest_layout(spec.shape, *[strides_along(s, spec) for s in (*specs, spec)])
        kind, bounds = structs.NEST4 if dtype == FLOAT32 else structs.NEST, None
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            kind, bounds = structs.NEST_INT, (1 if divides else int(limits.min), min(int(limits.max), _INT64.max))
        return Computation(kind, loop, layout=layout, count=count, picks=picks, bounds=bounds)


def _call_of(ufunc: Any, count: int) -> Rule:
    """Return the expression that is a call of a ufunc."""
    return (lambda x: ufunc(x), lambda a, b: ufunc(a, b), lambda a, b, c: ufunc(a, b, c))[count - 1]


@functools.cache
def _calls_scipy(op: Elementwise) -> bool:
    return bool(traced(op.forward, Unprinted, {}).specials)


def _pattern(spec: Spec | None, shape: Strides) -> tuple[np.dtype[Any], Strides]:
    """Return dtype and strides of an operand over a space; a Python number is a double, read everywhere."""
    if spec is None:
        return FLOAT64, (0,) * len(shape)
    return spec.dtype, broadcast(spec.shape, spec.strides, shape)


def _printed(op: Any, operands: tuple[Any, ...], dtypes: list[np.dtype[Any]], into: int, lowering: Lowering) -> None:
    result = lowering.spec(into)
    nodes = [lowering.operand(o, dtype) for o, dtype in zip(operands, dtypes, strict=True)]
    key = op, result, tuple([lowering.spec(node) for node in nodes])
    loop = lowering.kernel(key, lambda: forward(*key))
    lowering.tasks.append(KernelCall(loop, (OperandPlace(into), *map(OperandPlace, nodes))))


def _composed(expression: Any, names: dict[str, Any], lowering: Lowering, result: int | None = None) -> Any:
    """Run an expression ufunc by ufunc, as NumPy does; into ``result``, or return the node or number it is."""
    if not isinstance(expression, Symbol):
        return expression
    if not expression.parts:
        return names[expression.head]
    operands = tuple([_composed(part, names, lowering) for part in expression.parts])
    specs = [lowering.spec(o.node) for o in operands if isinstance(o, NodeRef)]
    shape = np.broadcast_shapes(*(spec.shape for spec in specs))
    kinds = [lowering.spec(o.node).dtype if isinstance(o, NodeRef) else type(o) for o in operands]
    if expression.head == "where":
        dtype = np.result_type(*[np.zeros((), k) if isinstance(k, np.dtype) else k() for k in kinds[1:]])
        into = lowering.temporary(shape, dtype) if result is None else result
        _printed(OPS["where"], operands, [BOOL, dtype, dtype], into, lowering)
        return NodeRef(into)
    ufunc = ufunc_of(expression.head)
    into = lowering.temporary(shape, ufunc.resolve_dtypes((*kinds, None))[-1]) if result is None else result
    lowering.ufunc(ufunc, operands, into)
    return NodeRef(into)


_INLINE = {("+", 2): structs.ADD, ("-", 2): structs.SUBTRACT, ("*", 2): structs.MULTIPLY, ("/", 2): structs.DIVIDE}
"""Operations on doubles that native code computes inline, by sign and number of operands."""
_INT64 = np.iinfo(np.int64)
_EXACT: set[Any] = {
    np.add, np.subtract, np.multiply, np.negative, np.positive, np.absolute, np.sign, np.square, np.minimum, np.maximum,
    np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.logical_and, np.logical_or,
    np.logical_xor, np.logical_not, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift,
    np.right_shift, np.where,
}  # fmt: skip
"""Operations on integers that cannot raise; the loops of powers and quotients can."""
_QUOTIENTS = (np.floor_divide, np.remainder, np.fmod)
"""Operations that cannot raise if the second operand is a number from 1 on."""
_RAISING = (*_QUOTIENTS, np.power)


def _dtype_of(specs: Specs, ufunc: Any) -> np.dtype[Any] | None:
    """Return the one numeric dtype among specs, or bool if there is no other; None if there are several."""
    dtypes = {s.dtype for s in specs if s is not None}
    numbers = dtypes - {BOOL}
    if not numbers:
        return None if None in specs else BOOL
    dtype = next(iter(numbers))
    known = ufunc in _EXACT if dtype.kind in "iu" else dtype in (FLOAT64, FLOAT32)
    return dtype if len(numbers) == 1 and known else None


def _loop(ufunc: Any, dtypes: tuple[np.dtype[Any], ...]) -> InnerLoop | None:
    if ufunc is not np.where:
        return loop_of(ufunc, dtypes)
    native = jit.load_module("calls.computing_native")
    same = dtypes[0] == BOOL and len(set(dtypes[1:])) == 1 and dtypes[1] != BOOL
    choose = {8: native.choose8, 4: native.choose4}.get(dtypes[1].itemsize)
    return InnerLoop(choose.address, 0) if same and choose is not None else None


# Kinds of records that sum over axes: reductions, contractions, and selections of an extremum.


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduction(Op):
    """A reduction over axes: ``ufunc.reduce`` forward, an elementwise pullback over the input's space.

    ``ufunc`` may be anything that reduces as a ufunc does.

    ``dims_grad_fn`` is the node's name where dims were given. ``scale`` divides the reduced value by ``n``.
    ``parts``: see :class:`kernels.kinds.routine.Routine`.
    ``selects``: one element of many gives the result; the pullback then knows ``n`` as the number that tie.
    """

    is_called: ClassVar[bool] = True
    shaped_by_params: ClassVar[bool] = True
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

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether the result has what the axes leave."""
        return [reduced_shape(shape, *params) for shape in shapes] == [spec.shape]

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
        loop = inner_loop(self.ufunc, (result.dtype,) * 3)
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

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Params) -> Computation | None:
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
        return Computation(structs.CALLED, function=function, count=2, picks=picks, scale=scale)

    def _by_loop(
        self, source: Spec, spec: Spec, axes: Strides, saved: tuple[str, ...], keepdims: bool
    ) -> Computation | None:
        """Return how C-contiguous doubles are reduced by a ufunc's loop; None for other arrays."""
        simple = spec.dtype == source.dtype == FLOAT64 and source.size > 0 and is_fresh(spec)
        dense_source = source.strides == dense(source.shape, source.dtype.itemsize)
        if not (isinstance(self.ufunc, np.ufunc) and simple and dense_source):
            return None
        onto = spread(spec.strides, len(source.shape), axes, keepdims)
        loop = inner_loop(self.ufunc, (spec.dtype,) * 3)
        layout = nest_layout(source.shape, onto, source.strides, onto)
        ties = nest_layout(source.shape, source.strides, onto, onto) if self.selects else None
        return Computation(
            structs.REDUCE,
            loop,
            layout=layout,
            count=3,
            picks=tuple([_PICKS[name] for name in saved]),
            initial=initial(self.ufunc, source, spec.dtype),
            scale=float(source.size // spec.size) if self.scale else 0.0,
            ties=ties,
        )


_PICKS = {"x": 0, "y": structs.PICK_RESULT, "n": structs.PICK_SCALE}


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

    is_called: ClassVar[bool] = True
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

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether the matrices meet in their inner extent."""
        a, b = shapes
        return (len(a), len(b)) in self.ranks and a[-1] == b[0] and (*a[:-1], *b[1:]) == spec.shape

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
        return np.matmul(*values)

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Params) -> Computation | None:
        """Return how native code repeats it: by NumPy's loop of a matrix product; None for other layouts."""
        (a, b), spec = sources, form.spec
        if not a.dtype == b.dtype == spec.dtype or not is_fresh(spec) or 0 in (a.size, b.size):
            return None
        loop = loop_of(np.matmul, (spec.dtype,) * 3)
        if loop is None or spec.dtype.kind != "f":
            return None
        extents, left, right, result = matrices(a.shape, a.strides, b.shape, b.strides, spec.strides)
        layout = np.array([1, *extents, 0, 0, 0, *left, *right, *result], np.int64)
        picks = tuple(["ab".index(name) for name in (form.saved if isinstance(form, Form) else ())])
        return Computation(structs.PRODUCT, loop, layout=layout, count=3, picks=picks)


_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(Op):
    """One element along an axis, with its index: values and the int64 positions, first of equals."""

    is_called: ClassVar[bool] = True
    shaped_by_params: ClassVar[bool] = True
    contribution: ClassVar[str] = "{}, at the index"
    inputs: ClassVar[tuple[str, ...]] = ("x",)

    locate: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of an element picked along (axis, keepdims); its place ``i`` is saved, dense, as int64."""
        return Form(self, specs, spec, wanted, ("i",), (scattered(specs[0], spec, params[0], 2),), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether the result has what the axis leaves."""
        (shape,), (axis, keepdims, *_of_places) = shapes, params
        return (not shape and not spec.shape) or reduced_shape(shape, (axis,), keepdims) == spec.shape

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

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Params) -> Computation:
        """Return how native code repeats it: by our kernel, or as Python does."""
        (source,), (axis, keepdims) = sources, params
        picks = (structs.PICK_EXTRA,) if isinstance(form, Form) else ()
        in_order = form.spec.strides == dense(form.spec.shape, source.dtype.itemsize)
        if source.dtype in _FLOATS and source.size and in_order:
            address, layout = Pick(source, axis, largest=self.locate is np.argmax).kernel()
            return Computation(structs.KERNEL, InnerLoop(address, 0), layout=layout, count=2, picks=picks)
        function = partial(pick, self.locate, axis=axis, keepdims=keepdims)
        return Computation(structs.CALLED, function=of_arrays(function), count=2, picks=picks)
