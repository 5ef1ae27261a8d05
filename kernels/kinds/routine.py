"""Kinds of records that functions stand behind: routines, custom operations, loops."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar
from weakref import WeakSet, WeakValueDictionary

import numba
import numpy as np

from kernels.calls.object_types import Computation, InnerLoop, of_arrays, to_array
from kernels.foundation.specs import FLOAT64, Array, Spec, Strides, dense, spec_of, tried
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form, Lowering, ProgramStep
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.views import ResultPart, View, strided, strided_batch
from kernels.language.jit import SIGNATURE, NumbaError, carray, compiling
from kernels.native.memory import load_i8, pointer_f4, pointer_f8, store_i8, where
from kernels.native.structs import CALLED, KERNEL, PICK_CONTEXT, PICK_EXTRA, PICK_RESULT, PYTHON, LoopWords
from kernels.rules.loop_printer import RowValue
from kernels.rules.op import DeclarationError, Flags, Op, Params, Rule, Shapes, asked
from kernels.rules.scalar_loops import ByteComparison, KernelCall, OperandPlace, PythonCall, node_of

# Routines, operations of NumPy's or SciPy's on whole arrays: the record, its form, its tasks, its repeated call.
#
# A call of a routine runs the rules of its record on arrays, in sweeps and in programs. Several results stand end to
# end in one flat array, the instruction's result; each is a view of it.


@dataclass(frozen=True, eq=False, kw_only=True)
class Routine(Op):
    """An operation of NumPy's or SciPy's on whole arrays: a scan, a sort, a decomposition, a solve.

    ``forward(a, b, *, param)`` takes arrays of one floating dtype, then static parameters by keyword. It returns an
    array for each name of ``results``, in that dtype, and of ``extras``, integers or bools without a gradient.
    ``vjp`` returns the gradient of each input, a tuple if there are several, None for nothing. By its parameters it
    asks for what it needs: the cotangent ``g`` (``g_q, g_r`` of several results), inputs, results, extras, static
    parameters, and ``needs``, whether each input's gradient is wanted. ``jvp`` returns the tangents of the results,
    from ``t`` (``t_a, t_b`` of several inputs) and the rest likewise. Both are made of operators and NumPy's
    functions, so that arrays and tensors can run them. ``samples`` are pairs of the inputs' shapes and the parameters,
    for the tests; ``domain`` says what the inputs are made of. With ``cuts`` an element that the vjp leaves at -0.0
    gets nothing; elsewhere zeros become +0.0, as those of every other record. ``native(source, spec, **params)``
    returns a pullback in native code for operands that suit one (kernels/rules/loop_printer.py), else None;
    ``rows(shape, dtype, **params)`` what computes the results of one operand in the place of ``forward``
    (kernels/rules/loop_printer.py). ``parts`` says the same as ``forward`` in elementwise operations, sums and
    maxima that keep their dims, and basic indices: the compiler of programs fuses them with their neighbours. It may
    return lists of what is side by side along the last axes, or NotImplemented; then ``direct(*shapes, **params)``
    names the function of kernels.rules that the program calls, "dense_native.solve" say, or "", and the numbers that it
    takes, by their names; ``solve_to_a`` beside it adds to the gradient of ``a``, ``solve_to_a_and_b``, where there is
    one, to both. ``spreads(sets, a, b, **params)`` says which elements of operands those of the result depend on,
    with the methods of kernels.programs.patterns.Sets; without it, or where it is None, on all along ``dim`` or
    ``dims``, and where there are none on all operands. ``unsettled`` returns whether the
    cotangents that there are leave the gradient open: vjp, run on tensors, then asks for derivatives of these.
    """

    is_called: ClassVar[bool] = True

    forward: Rule
    vjp: Rule | None = None
    jvp: Rule | None = None
    results: tuple[str, ...] = ("y",)
    extras: tuple[str, ...] = ()  # type: ignore[misc]
    cuts: bool = False
    native: Callable[..., Any] | None = None
    rows: Callable[..., Any] | None = None
    parts: Rule | None = None
    direct: Callable[..., tuple[str, dict[str, int]]] | None = None
    spreads: Callable[..., Any] | None = None
    samples: tuple[tuple[tuple[tuple[int, ...], ...], dict[str, Any]], ...]
    domain: tuple[str, ...] = ("real",)
    unsettled: Rule | None = None
    pullback: tuple[Rule | None, ...] = ()
    function: bool = False
    inputs: tuple[str, ...] = field(init=False)  # type: ignore[misc]
    params: tuple[str, ...] = field(init=False)
    part: View = field(init=False)
    kept: tuple[str, ...] = field(init=False)  # what the tape keeps for the rules: inputs, the results as ``y``, extras

    def check(self) -> None:
        """Read the names of inputs and static parameters, and check what the rules ask for."""
        parameters = inspect.signature(self.forward).parameters.values()
        inputs = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "params", tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY))
        part = ResultPart(
            name=self.name, doc=self.doc, grad_fn=self.grad_fn, apply=strided, batch=strided_batch, function=False
        )
        object.__setattr__(self, "part", part)
        wanted = frozenset[str]().union(*(asked(rule) for rule in (self.vjp, self.jvp) if rule is not None))
        kept = *(n for n in inputs if n in wanted), *("y",) * (not wanted.isdisjoint(self.results))
        object.__setattr__(self, "kept", (*kept, *(n for n in self.extras if n in wanted)))
        known = {*inputs, *self.params, *self.results, *self.extras, "needs"}
        for rule, tangents in ((self.vjp, self.cotangents), (self.jvp, self.tangents)):
            unknown = set() if rule is None else asked(rule) - known - set(tangents)
            if unknown:
                names = ", ".join(sorted({*known, *tangents}))
                msg = f"{self.name}: a rule asks for {sorted(unknown)}; known are {names}"
                raise DeclarationError(msg)

    @property
    def differentiable(self) -> bool:
        """Whether there is a rule for gradients."""
        return self.vjp is not None

    @property
    def cotangents(self) -> tuple[str, ...]:
        """What the rule calls the cotangent of each result."""
        return ("g",) if len(self.results) == 1 else tuple(f"g_{name}" for name in self.results)

    @property
    def tangents(self) -> tuple[str, ...]:
        """What the rule calls the tangent of each input."""
        return ("t",) if len(self.inputs) == 1 else tuple(f"t_{name}" for name in self.inputs)

    @property
    def nothing(self) -> float:  # type: ignore[override]
        """What is added to a contribution that Python computed."""
        return -0.0 if self.cuts else 0.0

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = "", *,
        python: bool = False,
    ) -> Form:  # fmt: skip
        """Return the form of a call, the one parameter; ``python``: Python runs its rules, though native code could."""
        (call,) = params
        specs = tuple([spec if want else None for spec, want in zip(specs, wanted, strict=True)])
        native = None if python or specs[0] is None else self.native
        pull = native(specs[0], spec, **call.params) if native is not None else None
        if pull is not None:
            return Form(self, specs, spec, wanted, self.kept, (pull,), params, name)
        saved, pulls = ("context", *self.kept), (None,) * len(specs)
        return Form(self, specs, spec, wanted, saved, pulls, params, name, python=True)

    def reformed(self, form: Any, specs: Any, spec: Any) -> Any:
        """Return the form of the same instruction with other specs; Python runs its rules if it did."""
        return self.form(specs, spec, form.wanted, form.params, form.name, python=form.kind == PYTHON)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether it gives that many numbers, where it has kernels; others run in Python, where NumPy looks."""
        if (self.native is None and self.rows is None) or params[1:]:
            return len(shapes) == len(self.inputs)
        ones = [np.ones(shape, operand.dtype) for shape, operand in zip(shapes, specs, strict=True)]
        value = computed(self, ones, dict(params[0]))
        results = value[: len(self.results)] if isinstance(value, tuple) else (value,)
        return packed(results).shape == spec.shape

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Call NumPy or SciPy; the extras, steps of their own, are computed with the results if these are there."""
        frozen, *of_extra = step.params
        if of_extra and any(step.result in extras for extras in lowering.extras.values()):
            return
        outputs, params, count = (step.result, *lowering.extras.get(step.at, ())), dict(frozen), len(self.results)
        rows = self._kernel_of(step, outputs, params, lowering) if not of_extra else None
        if rows is not None:
            lowering.tasks.append(KernelCall(rows, tuple(map(OperandPlace, (*outputs, node_of(step.operands[0]))))))
            return

        def run(arrays: list[Array], _: dict[int, list[Any]]) -> None:
            values = computed(self, arrays[len(outputs) :], params)
            parts = values if isinstance(values, tuple) else (values,)
            arrays[0][...] = parts[count + of_extra[0]] if of_extra else packed(parts[:count])
            for place, value in zip(arrays[1:], parts[count:], strict=False):
                place[...] = value

        nodes = (*outputs, *map(node_of, step.operands))
        lowering.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(OperandPlace, nodes))))

    def _kernel_of(
        self, step: ProgramStep, outputs: tuple[int, ...], params: dict[str, Any], lowering: Lowering
    ) -> RowValue | None:
        """Return the kernel that computes all outputs from one dense operand; None where NumPy does."""
        if self.rows is None or len(step.operands) != 1:
            return None
        source, *targets = [lowering.spec(node) for node in (node_of(step.operands[0]), *outputs)]
        rows = self.rows(source.shape, source.dtype, **params)
        if rows is None or source.strides != dense(source.shape, source.dtype.itemsize):
            return None
        dtypes = (rows.dtype, np.dtype(np.int64)) if rows.places else (rows.dtype,)
        fits = [(t.shape, t.dtype, t.strides) for t in targets] == [
            (rows.shape, dtype, dense(rows.shape, dtype.itemsize)) for dtype in dtypes
        ]
        return rows if fits else None

    def computation(self, sources: tuple[Spec, ...], form: Any, params: Any) -> Computation | None:
        """Return how native code repeats it: by its forward, on arrays; None for a number, as rules expect arrays."""
        params = dict(params[0])
        rows = self.rows(sources[0].shape, sources[0].dtype, **params) if self.rows is not None else None
        function: Any = rows.run if rows is not None else partial(tried, partial(self.forward, **params))
        if not all(source.shape for source in sources):
            if isinstance(form, Form) and form.kind == PYTHON:
                return None
            function = of_arrays(function)
        if not form.spec.shape and form.spec.dtype != FLOAT64 and not self.extras:
            function = to_array(function)
        picks, context = (), None
        if isinstance(form, Form):
            places = {**{name: k for k, name in enumerate(self.inputs)}, "y": PICK_RESULT, "context": PICK_CONTEXT}
            picks = tuple([places.get(name, PICK_EXTRA) for name in form.saved])
            context = form.params[0]
        if rows is not None and sources[0].strides == dense(sources[0].shape, sources[0].dtype.itemsize):
            address, layout = rows.kernel()
            loop = InnerLoop(address, 0)
            return Computation(KERNEL, loop, layout=layout, count=2, picks=picks, context=context)
        return Computation(CALLED, function=function, count=len(sources) + 1, picks=picks, context=context)


class Unsettled(Exception):  # noqa: N818 (no error: who sweeps takes it)
    """The gradient at an instruction, or a step, depends on more than its cotangents; see ``Routine.unsettled``."""

    def __init__(self, instruction: Any = None) -> None:
        self.instruction = instruction


class RoutineCall:
    """What the forms of one routine with the same parameters share; its instructions save it first."""

    def __init__(self, op: Routine, params: dict[str, Any], shapes: tuple[Strides, ...]) -> None:
        self.op, self.params, self.shapes = op, params, shapes

    def __reduce__(self) -> Any:
        return RoutineCall, (self.op, self.params, self.shapes)

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Return the gradients of the operands; of a batch of cotangents row by row."""
        specs = instruction.form.specs
        if gradient is None:
            return [None] * len(specs)
        values = kept_values(instruction)
        if not batch:
            return self.gradients(gradient, values, specs)
        rows = [self.gradients(row, values, specs) for row in gradient]
        return [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]

    def gradients(self, g: Array, values: dict[str, Any], specs: Sequence[Spec | None]) -> list[Array | None]:
        """Run the vjp on arrays, which it does not change."""
        assert self.op.vjp is not None
        cotangents = dict(zip(self.op.cotangents, self.apart(g), strict=True))
        needs = tuple(spec is not None for spec in specs)
        with np.errstate(all="ignore"):
            gradients = self.run(self.op.vjp, {**self.named(values), **cotangents, "needs": needs})
        return [
            None if x is None or spec is None else self._fitting(np.asarray(x), spec)
            for x, spec in zip(gradients, specs, strict=True)
        ]

    def replayed(self, g: Array, values: dict[str, Any], specs: Sequence[Spec | None]) -> list[Array | None]:
        """Return the gradients in a replay; raise Unsettled where cotangents do not tell them."""
        if self.is_unsettled(g, values):
            raise Unsettled
        return self.gradients(g, values, specs)

    def is_unsettled(self, g: Array, values: dict[str, Any]) -> bool:
        """Whether cotangents leave the gradient open."""
        if self.op.unsettled is None:
            return False
        cotangents = dict(zip(self.op.cotangents, self.apart(g), strict=True))
        return bool(self.run(self.op.unsettled, {**self.named(values), **cotangents})[0])

    def jvp(
        self, instruction: Instruction, tangents: list[Array | None], stash: dict[Any, Any], *, batch: int
    ) -> Array | None:
        """Return the tangent of the result; of a batch of tangents row by row."""
        if self.op.jvp is None:
            raise NotImplementedError(f"{self.op.name}: no pushforward, so forward mode cannot pass through it")
        values = kept_values(instruction)
        if not batch:
            return self._pushed(tangents, values)
        return np.stack([self._pushed([None if t is None else t[k] for t in tangents], values) for k in range(batch)])

    def _pushed(self, tangents: list[Array | None], values: dict[str, Any]) -> Array:
        assert self.op.jvp is not None
        named_tangents = dict(zip(self.op.tangents, tangents, strict=True))
        with np.errstate(all="ignore"):
            results = self.run(self.op.jvp, {**self.named(values), **named_tangents})
        return packed([np.asarray(x) for x in results])

    def run(self, rule: Any, names: dict[str, Any]) -> tuple[Any, ...]:
        """Call a rule with what it asks for; return a tuple."""
        wanted = asked(rule)
        result = rule(**{name: value for name, value in {**self.params, **names}.items() if name in wanted})
        return result if isinstance(result, tuple) else (result,)

    def named(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return what was kept under the names of the rules: the results apart."""
        if "y" not in values or len(self.shapes) == 1:
            return values
        return {**values, **dict(zip(self.op.results, self.apart(values["y"]), strict=True))}

    def apart(self, flat: Any) -> list[Any]:
        """Return the results that stand end to end."""
        if len(self.shapes) == 1:
            return [flat]
        starts = starts_of(self.shapes)
        return [flat[s : s + math.prod(n)].reshape(n) for s, n in zip(starts, self.shapes, strict=True)]

    def _fitting(self, x: Array, spec: Spec) -> Array:
        if x.shape != spec.shape:
            raise RuntimeError(f"{self.op.name}: vjp returned shape {x.shape} for an operand of shape {spec.shape}")
        return x.astype(spec.dtype, copy=False)


def computed(op: Routine, arrays: Sequence[Array], params: dict[str, Any]) -> Any:
    """Run a routine on arrays: by a kernel that suits them, or its forward."""
    how = op.rows(arrays[0].shape, arrays[0].dtype, **params) if op.rows is not None else None
    if how is not None:
        return how.run(arrays[0])
    with np.errstate(all="ignore"):
        return op.forward(*arrays, **params)


def kept_values(instruction: Instruction) -> dict[str, Any]:
    """Return the values that an instruction keeps, by name; those packed away are unpacked."""
    names = instruction.form.saved[1:]
    return {
        name: value.value() if hasattr(value, "unpack") else value
        for name, value in zip(names, instruction.saved[1:], strict=True)
    }


def starts_of(shapes: Sequence[Strides]) -> list[int]:
    """Return where each result begins."""
    return [sum(map(math.prod, shapes[:k])) for k in range(len(shapes))]


def part_params(shapes: Sequence[Strides]) -> list[tuple[Strides, Strides, int]]:
    """Return shape, strides and offset, in elements, of each result's view."""
    return [(shape, dense(shape, 1), start) for shape, start in zip(shapes, starts_of(shapes), strict=True)]


def packed(results: Sequence[Array]) -> Array:
    """Return results end to end; a single one as it is."""
    return results[0] if len(results) == 1 else np.concatenate([np.ravel(x) for x in results])


# The operands of a custom operation stand end to end in one flat array, so that the pullback runs once for all of them.

RUNNING: list[Array] = []
"""Once there is a kernel, a word that counts those that are running: it stays above 0 after one has raised, since no
exception leaves native code. Each operation counts its own in ``running``."""
_made: WeakSet[Custom] = WeakSet()  # the operations that have kernels


@dataclass(frozen=True, eq=False, kw_only=True)
class Custom(Op):
    """A pair of jitted functions: ``forward(*operands)`` and ``vjp(cotangent, *operands)``. Not in the tables."""

    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    kernels: dict[Any, Any] = field(default_factory=dict)
    running: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    is_called: ClassVar[bool] = True
    shaped_by_params: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("x",)

    def __post_init__(self) -> None:
        """Register nothing."""

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of a call on a flat operand, in which operands of the shapes, the one parameter, stand."""
        pull: Any = CustomKernel(self, params[0], spec.shape, spec.dtype, pulls=True)
        return Form(self, specs, spec, wanted, ("x",), (pull,), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether the operands of the shapes stand in the flat one."""
        return shapes == [(sum(map(math.prod, params[0])),)]

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Call the user's own function."""
        result = lowering.spec(step.result)
        kernel = CustomKernel(self, step.params[0], result.shape, result.dtype, pulls=False)
        lowering.tasks.append(KernelCall(kernel, (OperandPlace(step.result), OperandPlace(node_of(step.operands[0])))))

    def recomputed(self, form: Form, _: Params, *values: Any) -> Any:
        """Return the value of a result."""
        return self.forward(*apart(values[0], form.params[0]))


_customs: WeakValueDictionary[Any, Custom] = WeakValueDictionary()


def custom_of(name: str, grad_fn: str, forward: Any, vjp: Any) -> Custom:
    """Return the operation of two jitted functions, one for the same two."""
    key = name, grad_fn, forward, vjp
    known = _customs.get(key)
    if known is None:
        if not hasattr(forward, "py_func") or not hasattr(vjp, "py_func"):
            raise TypeError(f"the custom operation {name!r} needs jitted functions; decorate them with numba.njit")
        doc = forward.__doc__ or ""
        made = Custom(name=name, doc=doc, pullback=(None,), grad_fn=grad_fn, forward=forward, vjp=vjp)
        known = _customs.setdefault(key, made)
    return known


_PULL = """
def kernel(layout, pointers, accumulate):
{begun}
    target = carray({pointer}(pointers[0]), layout[0])
    g = carray({pointer}(pointers[1]), {result})
{reads}
    returned = vjp(g{item}, {names})
{writes}
{ended}
"""
_FORWARD = """
def kernel(layout, pointers, accumulate):
{begun}
    target = carray({pointer}(pointers[0]), layout[1])
{reads}
    returned = forward({names})
{writes}
{ended}
"""


@dataclass(frozen=True)
class CustomKernel:
    """A call of one of the two functions on operands of these shapes; one kernel serves all shapes of these ranks."""

    op: Custom
    shapes: tuple[Strides, ...]
    result: Strides
    dtype: np.dtype[Any]
    pulls: bool
    covers: bool = True

    @property
    def steps(self) -> int:
        """The elements of operands and result, as an estimate: the user's function is not known."""
        return sum(map(math.prod, self.shapes)) + math.prod(self.result)

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        key = (tuple(map(len, self.shapes)), len(self.result), self.dtype, self.pulls)
        made = self.op.kernels.get(key)
        if made is None:
            made = self.op.kernels.setdefault(key, self._compiled())
        return int(made.address), self.layout()

    def layout(self, *, tells: bool = False) -> Array:
        """Return the elements of operands and result, the result's extents, each operand's start, elements, extents.

        Then whether it ``tells`` by a word behind the pointers that it has raised, and not by counters of all calls.
        """
        sizes = [math.prod(shape) for shape in self.shapes]
        words = [sum(sizes), math.prod(self.result), *self.result]
        for k, shape in enumerate(self.shapes):
            words += [sum(sizes[:k]), sizes[k], *shape]
        return np.array([*words, tells], np.int64)

    def _compiled(self) -> Any:
        _made.add(self.op)
        if not RUNNING:
            RUNNING.append(np.zeros(1, np.int64))
        names: dict[str, Any] = {
            "carray": carray, "forward": self.op.forward, "load_i8": load_i8, "np": np, "pointer_f4": pointer_f4,
            "pointer_f8": pointer_f8, "store_i8": store_i8, "vjp": self.op.vjp, "check": _check(),
        }  # fmt: skip
        exec(compile(self._text(), f"<tape.custom: {self.op.name}>", "exec"), names)  # noqa: S102
        try:
            with compiling(self.op.name):
                return numba.cfunc(SIGNATURE, error_model="numpy")(names["kernel"])
        except NumbaError as error:
            function_name = "vjp" if self.pulls else "forward"
            raise TypeError(
                f"{self.op.name}: {function_name} does not compile for shapes {list(map(list, self.shapes))}: {error}"
            ) from error

    def _text(self) -> str:
        pointer = "pointer_f8" if self.dtype == np.float64 else "pointer_f4"
        operands, at = [], 2 + len(self.result)
        for k, shape in enumerate(self.shapes):
            operands.append(f"    i{k}, n{k}, s{k} = layout[{at}], layout[{at + 1}], {_words(at + 2, shape)}")
            operands.append(f"    a{k} = flat[i{k}:i{k} + n{k}].reshape(s{k})" if shape else f"    a{k} = flat[i{k}]")
            at += 2 + len(shape)
        reads = [f"    flat = carray({pointer}(pointers[{2 if self.pulls else 1}]), layout[0])", *operands]
        counted, pointers = [where(self.op.running), where(RUNNING[0])], 2 + self.pulls

        def marked(running: int, change: str) -> str:
            lines = [f"    if layout[{at}]:", f"        pointers[{pointers}] = {running}", "    else:"]
            return "\n".join([*lines, *[f"        store_i8({word}, load_i8({word}) {change})" for word in counted]])

        return (_PULL if self.pulls else _FORWARD).format(
            begun=marked(1, "+ 1"),
            ended=marked(0, "- 1"),
            pointer=pointer,
            result=_words(2, self.result) if self.result else 1,
            item="" if self.result else "[0]",
            reads="\n".join(reads),
            names=", ".join(f"a{k}" for k in range(len(self.shapes))),
            writes="\n".join(self._writes()),
        )

    def _writes(self) -> list[str]:
        if not self.pulls:
            if not self.result:
                return ["    target[0] = returned"]
            return [
                f"    check(returned.shape, {_words(2, self.result)})",
                "    j = 0",
                "    for value in returned.flat:",
                "        target[j] = value",
                "        j += 1",
            ]
        lines = []
        for k, shape in enumerate(self.shapes):
            gradient = "returned" if len(self.shapes) == 1 else f"returned[{k}]"
            if not shape:
                lines += [f"    target[i{k}] = {gradient} + (target[i{k}] if accumulate else 0.0)"]
                continue
            lines += [
                f"    check({gradient}.shape, s{k})",
                f"    j = i{k}",
                f"    for value in {gradient}.flat:",
                "        target[j] = (value + 0.0) + (target[j] if accumulate else 0.0)",
                "        j += 1",
            ]
        return lines

    def contribute(self, buffer: Array, offset: int, cotangent: Array, saved: tuple[Any, ...]) -> None:
        """Run the pullback on arrays and add what it finds."""
        g = cotangent.reshape(self.result) if self.result else cotangent.reshape(())[()]
        gradients = self.op.vjp(g, *apart(np.asarray(saved[0]).reshape(-1), self.shapes))
        parts = gradients if len(self.shapes) > 1 else (gradients,)
        flat = np.concatenate(
            [_fitting(self.op.name, p, s).reshape(-1) for p, s in zip(parts, self.shapes, strict=True)]
        )
        start = offset // buffer.itemsize
        buffer[start : start + flat.size] += flat + 0.0


def _words(start: int, shape: Strides) -> str:
    return f"({''.join(f'layout[{start + k}], ' for k in range(len(shape)))})"


@functools.cache
def _check() -> Any:
    """Return the jitted check of a shape; made late, since decorating is slow."""

    @numba.njit
    def check(shape, wanted):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        if shape != wanted:
            raise ValueError("a result of another shape")

    return check


def apart(flat: Array, shapes: Sequence[Strides]) -> list[Any]:
    """Return the operands that stand in a flat array; 0-d ones as numbers."""
    parts, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        parts.append(flat[at : at + size].reshape(shape) if shape else flat[at])
        at += size
    return parts


def _fitting(name: str, part: Any, shape: Strides) -> Array:
    array = np.asarray(part)
    if array.shape != shape:
        raise ValueError(f"{name}: vjp returned shape {list(array.shape)} for an operand of shape {list(shape)}")
    return array


def check_failed() -> None:
    """Raise RuntimeError if a kernel has raised since the last check."""
    if not RUNNING or not RUNNING[0][0]:
        return
    RUNNING[0][0] = 0
    failed = [op for op in _made if op.running[0]]
    for op in failed:
        op.running[0] = 0
    if failed:
        raise RuntimeError(
            f"{failed[0].name}: a jitted function of this operation raised, or returned another shape than it should; "
            "its message stands above. Call the function itself to see where"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Callback(Op):
    """A call of Python on the values of operands; several results, of one dtype, stand end to end in one flat array."""

    inputs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Register nothing."""

    def form(self, specs: Any, spec: Spec, wanted: Flags, params: Params = (), name: str = "") -> Form:
        """Return the form of a call; the one parameter has ``run(values)`` and ``gradients(g, saved, specs)``."""
        return Form(self, specs, spec, wanted, ("context",), (None,) * len(specs), params, name, python=True)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Call it; what its gradients need is kept, last call last."""
        (called,), at, keeps = step.params, step.at, lowering.wants_pullback(step, "context")

        def run(arrays: list[Array], kept: dict[int, list[Any]]) -> None:
            results, context = called.run([np.array(x, order="K") for x in arrays[1:]])
            arrays[0][...] = packed(results)
            if keeps:
                kept.setdefault(at, []).append(context)

        nodes = (step.result, *map(node_of, step.operands))
        lowering.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(OperandPlace, nodes))))


FUNCTION = Callback(name="autograd.Function", doc="A call of a custom function.", pullback=(), grad_fn="")


# Loops and guards: parts of a program that are run again, natively, as long as the guards of one of them hold.
#
# ``loop_begin p1 p2 ..`` begins one; the ``p`` are its phis, nodes that carry values from one iteration to the next.
# Bodies follow, each ended by ``loop_again u1 u2 ..``: the values that the next iteration starts from; then comes
# ``loop_end``. An iteration is that of the first body whose guards hold; if none does, the loop is over, and nothing
# of what was tried has changed a phi.

LOOP_STATE = spec_of(np.zeros(LoopWords.SIZE, np.int64))
"""The pattern of a loop's own node: how many iterations there were, and what else it has to know."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopMark(Op):
    """A step that marks where a loop or a body of it begins or ends; its result is the loop's own node."""

    pullback: tuple[Rule | None, ...] = ()
    function: bool = False

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether it has the parameters of a begin, or none."""
        return len(params) in (0, 4)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopBegin(LoopMark):
    """The begin of a loop: parameters are the most iterations, or None, and whether the last operand is their number.

    Then whether they are exactly so many, though no guard ends the last one, and the line.
    """

    inputs: ClassVar[tuple[str, ...]] = ("phis",)

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Begin a loop."""
        lowering.loops.begin(step, lowering)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopAgain(LoopMark):
    """The end of a body."""

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Carry on."""
        lowering.loops.again(step, lowering)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopEnd(LoopMark):
    """The end of a loop."""

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """End the loop."""
        lowering.loops.end(step)


@dataclass(frozen=True, eq=False, kw_only=True)
class Guard(Op):
    """Its result is its operand, which must be, bit for bit, what it was when recorded; the parameter is the line."""

    inputs: ClassVar[tuple[str, ...]] = ("x", "expected")
    repeatable: ClassVar[bool] = True

    pullback: tuple[Rule | None, ...] = (None, None)
    function: bool = False

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        """Whether value and expected are alike."""
        return shapes == [spec.shape] * 2 and specs[0].dtype == specs[1].dtype

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        """Compare the bytes of the value, in C order, with those expected."""
        x, expected = map(node_of, step.operands)
        spec = lowering.spec(x)
        if spec.strides != dense(spec.shape, spec.dtype.itemsize):
            x = lowering.cast(x, spec.dtype)
        lowering.tasks.append(
            ByteComparison(spec.size * spec.dtype.itemsize, (OperandPlace(x), OperandPlace(expected)))
        )
