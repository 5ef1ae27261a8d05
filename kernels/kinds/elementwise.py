"""Elementwise operations: the record, its instruction form, its tasks in a program, its repeated call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from kernels.foundation.numpy_arrays import dividing, silently
from kernels.foundation.specs import BOOL, FLOAT32, FLOAT64, Spec, Strides, broadcast
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form, Lowering, ProgramStep, pulls_of, rule_loop, saved_names
from kernels.language import jit
from kernels.native import pool
from kernels.native.call_structs import (
    ADD,
    CALLED,
    DIVIDE,
    KERNEL,
    MULTIPLY,
    NEST,
    NEST4,
    NEST_INT,
    ONCE,
    PICK_RESULT,
    SUBTRACT,
)
from kernels.native.calls.computation import Computation, InnerLoop, is_fresh, loop_of, strides_along
from kernels.native.structs import LARGE
from kernels.rules import scalar_loops
from kernels.rules.loop_printer import KernelOperand, PrintedLoop, nest_layout
from kernels.rules.op import OPS, Flags, Op, Params, resolved, ufunc_of
from kernels.rules.scalar_loops import KernelCall, NodeRef, OperandPlace, PythonCall, forward
from kernels.rules.symbols import DeclarationError, Rule, Symbol, Unprinted, names_read, parameters_of, traced

Specs = tuple[Spec | None, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Op):
    """An operation on each element, with broadcasting; NumPy's ufunc of that name is the forward.

    ``exact`` says that IEEE 754 rounds the forward expression correctly, so that a printed kernel agrees with
    NumPy in every bit; the others replay through NumPy's own loops. ``operator`` is Python's symbol.
    ``reversed_grad_fn`` is the node's name where a Python number comes first, ``number_grad_fn`` where one comes last.
    ``condition``: the first input is a boolean mask. ``identity``: the result is the operand itself. ``scaled``:
    PyTorch's ``alpha`` multiplies the second. ``arguments``: what the operands are called where it is not PyTorch's
    usual ``input`` and ``other``.
    ``scalar`` names the record that serves a Python number as the second operand; there the number is the
    static parameter ``p`` of forward and rules, and ``variants`` has what computes some p: a ufunc, or a
    function made of ufuncs.
    ``ufunc`` is given where it is not NumPy's of that name: another, or one of ``scipy.special``; ``composed`` says
    that there is none, and the forward expression runs as it stands, ufunc by ufunc. ``vector``: large results are
    computed by our own kernel, to 2 ulp (kernels/language/vectormath.py).
    """

    repeatable: ClassVar[bool] = True

    forward: Rule
    domain: tuple[str, ...]
    operator: str = ""
    reversed_grad_fn: str = ""
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
        inputs = tuple(n for n in parameters_of(self.forward) if n != "p")
        object.__setattr__(self, "inputs", inputs)
        if self.ufunc is None:
            ufunc = self.forward if self.composed else getattr(np, self.name, None)
            object.__setattr__(self, "ufunc", ufunc)
        if self.ufunc is None:
            msg = f"{self.name}: NumPy has no function of this name; use NumPy's name, or say composed=True"
            raise DeclarationError(msg)
        for attribute in ("pullback", "domain"):
            count = len(getattr(self, attribute))
            if count != len(inputs):
                msg = f"{self.name}: {count} entries in {attribute} for {len(inputs)} inputs; give one per input"
                raise DeclarationError(msg)
        object.__setattr__(self, "reads", names_read(self.name, self.pullback, ("g", "y", "p", *inputs)))

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
        if len(specs) == len(step.operands) and scalar_loops.suits(self, result, specs):
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
            if ufunc in _RAISING and lowering.spec(step.result).dtype.kind in "iu" and not _is_positive(operands[1]):
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

    def computation(self, specs: Specs, spec: Spec, saved: tuple[str, ...], number: float | None) -> Computation | None:
        """Return how native code repeats it on these operands (None: a number); None where Python has to do it."""
        record, sources = self, specs
        ufunc: Any = self.ufunc
        if number is not None:
            record = OPS[self.scalar]  # type: ignore[assignment]
            ufunc = record.variants.get(number, record.ufunc)
            sources = specs[:1] if number in record.variants else specs
        names = (*record.inputs, "y")
        picks = tuple([PICK_RESULT if name == "y" else names.index(name) for name in saved])
        divides = ufunc in _QUOTIENTS and specs[1:] == (None,)
        dtype = _dtype_of((*specs, spec), np.add if divides else ufunc)
        if dtype is None or not is_fresh(spec) or not any(s is not None and s.dtype == dtype for s in specs):
            return None  # of masks and numbers alone the default dtype decides
        if all(s is not None and scalar_loops.suits(self, spec, (s,)) for s in specs) and number is None:
            return self._by_kernel(specs, spec, picks)  # type: ignore[arg-type]
        ufunc = resolved(ufunc)
        count, loop = len(sources) + 1, _loop(ufunc, (*[dtype if s is None else s.dtype for s in sources], spec.dtype))
        if loop is None:
            known = isinstance(ufunc, np.ufunc) or (not spec.shape and spec.dtype != FLOAT64)
            large = spec.bytes >= LARGE
            function = partial(silently, partial(pool.call, ufunc) if large else ufunc)
            return None if known else Computation(CALLED, function=function, count=count, picks=picks)
        if not spec.shape and spec.dtype == FLOAT64:
            kind = ONCE if number is not None else _INLINE.get((self.operator, len(self.inputs)), ONCE)
            return Computation(kind, loop, count=count, picks=picks)
        layout = nest_layout(spec.shape, *[strides_along(s, spec) for s in (*sources, spec)])
        kind, bounds = NEST4 if dtype == FLOAT32 else NEST, None
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            kind, bounds = NEST_INT, (1 if divides else int(limits.min), min(int(limits.max), _INT64.max))
        return Computation(kind, loop, layout=layout, count=count, picks=picks, bounds=bounds)

    def _by_kernel(self, specs: tuple[Spec, ...], spec: Spec, picks: tuple[int, ...]) -> Computation | None:
        """Return how a kernel of ours computes it; None if that does not suit these specs."""
        if not scalar_loops.suits(self, spec, specs):
            return None
        address, layout = forward(self, spec, specs).kernel()
        return Computation(KERNEL, InnerLoop(address, 0), layout=layout, count=len(specs) + 1, picks=picks)


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


_INLINE = {("+", 2): ADD, ("-", 2): SUBTRACT, ("*", 2): MULTIPLY, ("/", 2): DIVIDE}
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


def _is_positive(operand: Any) -> bool:
    return not isinstance(operand, NodeRef) and operand > 0


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
    native = jit.load_module("native.calls.choosing_native")
    same = dtypes[0] == BOOL and len(set(dtypes[1:])) == 1 and dtypes[1] != BOOL
    choose = {8: native.choose8, 4: native.choose4}.get(dtypes[1].itemsize)
    return InnerLoop(choose.address, 0) if same and choose is not None else None
