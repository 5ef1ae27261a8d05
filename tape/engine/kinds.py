"""The kinds of operations on tensors, and their registry."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernels.foundation.specs import Spec, dense
from kernels.kinds.elementwise import Contraction, Elementwise, Reduction, Select
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.routine import Callback, Custom, Guard, Routine
from kernels.kinds.views import Copy, Gather, Join, ResultPart, View, Write
from kernels.operations import OPS
from kernels.programs.program import ProgramError
from kernels.rules.op import Op
from tape.engine.kind_rules import (
    Contribution,
    Kind,
    Operand,
    Planned,
    Pullbacks,
    RulePullbacks,
    Values,
    aligned,
    apart,
    batch_size,
    full,
    negative_zeros,
    no_rule,
    onto,
)
from tape.operations import elementwise, indexing, matmul, reductions
from tape.recording import foreign_calls, indexed_calls, record, views
from tape.recording import promotion as recorded
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor
from tape.tensors.view_families import is_view

_FEW = 1 << 10  # the most places that are kept; those of larger tensors are computed again


def _gather(step: Planned, operands: Sequence[Operand], _: Spec) -> Tensor:
    """Pick from each example. Places count elements of the example's memory; in a batch they become indices."""
    if not step.params:
        source, places = operands  # numbers of the elements of an example, in C order
        flat = views.reshape(source.value, (*source.lead, -1))
        return _copied(indexing.index(flat, key_of(source, places)))
    x, key = located(operands[0], step.params[0])
    return _copied(indexing.index(x, key))


def _select(step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
    """Pick from each example, or return the places; the axis is counted behind that of the batch."""
    (axis, keepdims, *of_places), (x,) = step.params, operands
    if not x.shape:
        return constant_tensor(np.zeros((*x.lead, *spec.shape), np.int64)) if of_places else views.clone(x.value)
    return recorded.select(step.op, x.value, axis + len(x.lead), keepdims)[len(of_places)]


class PickingPullbacks(Pullbacks):
    """Elements that were picked by arrays of places, which are saved: a sweep adds to these places of a gradient."""

    def places(self, instruction: Instruction) -> Array:
        """Return the places in the gradient of the operand, in elements."""
        places: Array = instruction.saved[0]
        return places


class _Along(PickingPullbacks):
    def __init__(self, form: Form) -> None:
        super().__init__(form)
        (spec, *_), self.axis = form.specs, form.params[0]
        assert spec is not None
        self.source = spec
        self.starts = self._starts() if form.spec.size <= _FEW else None

    def _starts(self) -> Array:
        spec = self.source
        shape = [1 if k == self.axis else n for k, n in enumerate(spec.shape)]
        starts = np.zeros(shape, np.int64)
        for at, stride in zip(np.indices(shape), spec.gradient, strict=True):
            starts += at * (stride // spec.dtype.itemsize)
        return starts.reshape(self.form.spec.shape)

    def places(self, instruction: Instruction) -> Array:
        """Return the places in the gradient of the operand, in elements."""
        spec = self.source
        step = spec.gradient[self.axis] // spec.dtype.itemsize if spec.shape else 0
        starts = self._starts() if self.starts is None else self.starts
        return np.asarray(super().places(instruction) * step + starts, np.int64)


def _copied(picked: Tensor) -> Tensor:
    return views.clone(picked) if is_view(picked) else picked


def key_of(x: Operand, places: Operand) -> tuple[Any, ...]:
    """Return the index of places that are an operand in a tensor whose examples are vectors."""
    if not (x.batched and places.batched):
        return (*(slice(None) for _ in x.lead), places.value)
    rows = np.arange(x.lead[0]).reshape(-1, *(1 for _ in places.shape))
    return rows, places.value


def located(x: Operand, numbers: Array) -> tuple[Tensor, tuple[Any, ...]]:
    """Return a tensor, and the index of the elements at these places in the example's memory."""
    lead = (slice(None),) * len(x.lead)
    assert x.spec is not None
    if not x.shape:
        return views.view(x.value, (*x.lead, 1)), (*lead, np.zeros_like(numbers))
    return x.value, (*lead, *np.unravel_index(_in_order(x.spec, numbers), x.shape))


def _in_order(spec: Spec, numbers: Array) -> Array:
    if spec.strides == dense(spec.shape, spec.dtype.itemsize):
        return numbers
    table = indexed_calls.places(spec, spec.strides, (Ellipsis,)).reshape(-1)
    order = np.argsort(table, kind="stable")
    return order[np.searchsorted(table[order], numbers)]


def _view(step: Planned, operands: Sequence[Operand], spec: Spec) -> Any:
    """Take the same view of all examples, by parameters that the record says. ValueError where memory forbids that."""
    (x,), op = operands, step.op
    if op.indexes:
        (key,) = step.params
        items = key if isinstance(key, tuple) else (key,)
        return indexing.index(x.value, (slice(None), *items) if x.batched else items)
    if not x.batched:
        return record.view(op, x.value, step.params)
    if op.batch is None:
        return no_rule(step, operands, spec)
    value = aligned(x, max(len(step.params[0]), len(x.shape))) if op.broadcasts else x.value
    return record.view(op, value, op.batch(*x.lead, x.shape, *step.params))


def _copy(step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
    """Copy all examples."""
    x: Tensor = operands[0].value
    return views.clone(x) if x.spec.dtype == spec.dtype else record.to_dtype(x, spec.dtype, step.op)


class _RearrangementPullbacks(Pullbacks):
    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        spec = self.form.specs[0]
        assert spec is not None
        same = g.spec.dtype == spec.dtype
        g = full(g, self.form.spec.shape) if g.spec.shape else g
        value = g if same else record.to_dtype(g, spec.dtype)
        return [(i, value, clean) for i in wanted]


def _join(step: Planned, operands: Sequence[Operand], _: Spec) -> Tensor:
    """Join the operands of each example; the axis is counted behind that of the batch."""
    (axis, new), size = step.params, batch_size(operands)
    join = views.stack if new else views.cat
    if size is None:
        return join([x.value for x in operands], axis)
    return join([x.value if x.batched else views.expand(x.value, (size, *x.shape)) for x in operands], axis + 1)


def _join_pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    del values
    axis, new = instruction.form.params
    if new:
        return indexing.index(g, (slice(None),) * axis + (i,))
    extents = [spec.shape[axis] for spec in instruction.form.specs if spec is not None]
    start = sum(extents[:i])
    return indexing.index(g, (slice(None),) * axis + (slice(start, start + extents[i]),))


def _write(step: Planned, operands: Sequence[Operand], spec: Spec) -> None:
    """Write into the same part of each example."""
    part, value, *places = operands
    if places:
        new, key = aligned(value, len(places[0].shape)), key_of(part, places[0])
        indexing.assign_at(part.value, key, new, step.op.name, adds=step.op.adds)
        return
    if not step.params:
        x, new = part.value, aligned(value, len(spec.shape))
        x.add_(new) if step.op.adds else x.copy_(new)
        return
    memory = step.params[0]
    x, key = located(part, memory)
    indexing.assign_at(x, key, aligned(value, memory.ndim), step.op.name, adds=step.op.adds)


def _reduce(step: Planned, operands: Sequence[Operand], _: Spec) -> Tensor:
    """Reduce each example, whose axes stand behind that of the batch."""
    (x,), (axes, keepdims) = operands, step.params
    moved = tuple([axis + len(x.lead) for axis in axes])
    if len(moved) == 1:
        return reductions.along(step.op, x.value, moved[0], keepdims)
    return recorded.reduction(step.op, x.value, moved, keepdims, step.op.dims_grad_fn)


class _ReductionPullbacks(RulePullbacks):
    """The rules of reductions, run before the cotangent is broadcast where they read nothing of the operand's shape."""

    def __init__(self, form: Form) -> None:
        super().__init__(form, {})
        spec = form.specs[0]
        assert spec is not None
        self.axes, self.keepdims = form.params
        self.shape = spec.shape
        self.wide = tuple(1 if k in self.axes else n for k, n in enumerate(self.shape))
        self.narrow = form.saved in ((), ("n",)) and not form.op.selects  # type: ignore[attr-defined]

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        if self.narrow:
            g = g if not g._form.spec.shape else full(g, self.form.spec.shape)
            value, clean = self.ruled(0, g, None if clean else negative_zeros(g), (*instruction.saved, g))
            spread = views.expand(self._widened(value), self.shape) if value._form.spec.shape else value
            return [(0, spread, clean)] if wanted else []
        if not wanted:
            return []
        form = self.form
        g = self._widened(full(g, form.spec.shape))
        values = [
            self._value(name, value, instruction, saved)
            for name, value in zip(form.saved, instruction.saved, strict=True)
        ]
        result, clean = self.ruled(0, g, None if clean else negative_zeros(g), (*values, g))
        return [(0, result if result._form.spec.shape == self.shape else views.expand(result, self.shape), clean)]

    def _value(self, name: str, value: Any, instruction: Instruction, saved: Any) -> Any:
        if name == "x":
            return saved.read(instruction.operands[0], value, self.form.specs[0])
        if name == "y":
            return self._widened(saved.read(instruction.slot, value, self.form.spec))
        return self._widened(constant_tensor(value)) if isinstance(value, np.ndarray) else value

    def _widened(self, value: Tensor) -> Tensor:
        return value if self.keepdims or not value._form.spec.shape else views.reshape(value, self.wide)


def _each(operands: Sequence[Operand], call: Callable[..., Sequence[Tensor]]) -> Tensor:
    """Call a function of tensors for each example; several results stand end to end."""

    def called(e: int) -> Tensor:
        results = call(*[x.value[e] if x.batched else x.value for x in operands])
        return results[0] if len(results) == 1 else views.cat([views.reshape(x, -1) for x in results])

    size = batch_size(operands)
    return called(0) if size is None else views.stack([called(e) for e in range(size)])


def _call_back(step: Planned, operands: Sequence[Operand], _: Spec) -> Tensor:
    """Call what a program calls."""
    (function,) = step.params
    return _each(operands, lambda *values: function.on_tensors(values))


def _call_custom(step: Planned, operands: Sequence[Operand], _: Spec) -> Tensor:
    """Call a jitted function, whose arguments stand end to end."""
    (shapes,) = step.params
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()

    def call(flat: Tensor) -> tuple[Tensor]:
        pairs = zip([0, *ends[:-1]], ends, shapes, strict=True)
        parts = [views.reshape(flat[start:end], shape) for start, end, shape in pairs]
        return (foreign_calls.call_custom(step.op, tuple(parts)),)

    return _each(operands, call)


class GuardDiffersError(ProgramError):
    """Another value left for Python than when the program was recorded."""


def _guard(step: Planned, operands: Sequence[Operand], _: Spec) -> None:
    """End a program that is run operation by operation where a value is not what was expected: a guard misses."""
    value, expected = (as_array(o.value).tobytes() for o in operands)
    if value != expected:
        raise GuardDiffersError(f"at {step.params[0]} another value left for Python than when the program was recorded")


def _call_routine(step: Planned, operands: Sequence[Operand], _: Spec) -> Tensor:
    """Call a routine; of some its results, or one of those that only pullbacks read."""
    (frozen, *extra), op = step.params, step.op

    def call(*values: Tensor) -> Sequence[Tensor]:
        results = foreign_calls.call(op, *values, **dict(frozen))
        if not isinstance(results, tuple):
            return (results,)
        return (results[len(op.results) + extra[0]],) if extra else results[: len(op.results)]

    return _each(operands, call)


def _call_pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    call = instruction.form.params[0]
    gradient: Tensor = call.run(call.op.vjp, {**values, "g": g})[i]
    return gradient


_STATIC = {op.scalar: op.name for op in OPS.values() if isinstance(op, Elementwise) and op.scalar}
RUN = {**elementwise.RUN, **{number: elementwise.RUN[name] for number, name in _STATIC.items()}}
"""The function of each elementwise record; one with a static number is a variant of another record."""


def _elementwise(step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
    """Run an elementwise operation on operands with as many dims behind the batch as the result has."""
    return run(step.op, [*[aligned(x, len(spec.shape)) for x in operands], *step.params])


def run(op: Elementwise, values: Sequence[Any]) -> Tensor:
    """Run an elementwise operation on operands that are aligned."""
    table = RUN if any(type(x) is Tensor for x in values) else elementwise.RUN
    return table[op.name](*values)  # type: ignore[no-any-return]


class _ElementwisePullbacks(RulePullbacks):
    """The rules on tensors of the saved values, which elementwise operations alone read."""

    def __init__(self, form: Form) -> None:
        super().__init__(form, {"p": form.params[0]} if form.params else {})
        names, self.shape = form.op.inputs, form.spec.shape
        self.alike = all(spec is None or spec.shape == self.shape for spec in form.specs)
        self.sources = tuple(names.index(name) if name in names else -1 for name in form.saved)

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        form, operands = self.form, instruction.operands
        have = g._form.spec.shape
        if have != self.shape and (have or not self.alike):
            g = full(g, self.shape)
        cut = None if clean else negative_zeros(g)
        values = []
        for at, value in zip(self.sources, instruction.saved, strict=True):
            slot, spec = (instruction.slot, form.spec) if at < 0 else (operands[at], form.specs[at])
            values.append(value if spec is None else saved.read(slot, value, spec))
        values.append(g)
        contributions = []
        for i in wanted:
            rule, take, cuts = self.rules[i]  # type: ignore[misc]
            if cut is None and not cuts and type(value := rule(*take(values))) is Tensor:
                clean = True  # the usual case
            else:
                value, clean = self.ruled(i, g, cut, values)
            contributions.append((i, value if self.alike else onto(value, form.specs[i].shape), clean))  # type: ignore[union-attr]
        return contributions


_MATRIX = 2
_MOST = 1 << 22
"""Elements up to which a batch of matrix products is a product of elements, summed; above, a loop over the batch."""


def _contract(step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
    """Multiply the matrices of each example: in one product where all examples share an operand."""
    del step
    a, b = operands
    if not a.batched and not b.batched:
        return matmul.matmul(a.value, b.value)
    if not b.batched:
        # Multiply a batch of matrices by the matrix that all examples share, in one product.
        if len(a.shape) == 1:
            return matmul.matmul(a.value, b.value)
        size, (m, k) = a.lead[0], a.shape
        return views.reshape(matmul.matmul(views.reshape(a.value, (size * m, k)), b.value), (size, *spec.shape))
    if not a.batched and len(b.shape) == 1:
        return matmul.matmul(b.value, a.value if len(a.shape) == 1 else views.t(a.value))
    (m, k), (size, *_) = (a.shape if len(a.shape) > 1 else (1, a.shape[0])), b.lead
    n = b.shape[1] if len(b.shape) > 1 else 1
    if not a.batched:
        right = views.reshape(views.permute(b.value, (1, 0, 2)), (k, size * n))
        result = views.reshape(matmul.matmul(views.reshape(a.value, (m, k)), right), (m, size, n))
        result = views.permute(result, (1, 0, 2))
    elif len(b.shape) == 1:
        return reductions.sum(a.value * apart(b.value, len(a.shape) + 1), len(a.shape))
    elif min(m, k, n) == 1 or size * m * k * n <= _MOST:
        result = reductions.sum(views.reshape(a.value, (size, m, k, 1)) * apart(b.value, 4), 2)
    else:
        left, right = views.reshape(a.value, (size, m, k)), b.value
        result = views.stack([matmul.matmul(left[e], right[e]) for e in range(size)])
    return result if result.spec.shape == (size, *spec.shape) else views.reshape(result, (size, *spec.shape))


class _ContractionPullbacks(Pullbacks):
    """Matrix products. A transposed factor is not copied: it is a pattern of its memory and of its gradient."""

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        form, (left, right) = self.form, instruction.operands
        a, b = form.specs
        if len(a.shape) != _MATRIX or len(b.shape) != _MATRIX:  # type: ignore[union-attr]
            return super().run(instruction, wanted, g, clean, saved)
        g, kept, contributions = full(g, form.spec.shape), dict(zip(form.saved, instruction.saved, strict=True)), []
        for i in wanted:
            if i == 0:
                value = matmul.matmul(g, saved.read(right, kept["b"], b, turned=True))
            else:
                value = matmul.matmul(saved.read(left, kept["a"], a, turned=True), g)
            contributions.append((i, value, True))
        return contributions


def _contraction_pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    a, b = instruction.form.specs
    assert a is not None
    assert b is not None
    m, k = a.shape if len(a.shape) > 1 else (1, a.shape[0])
    n = b.shape[1] if len(b.shape) > 1 else 1
    wide = views.reshape(g, (m, n))
    if i == 0:
        right = views.reshape(values["b"], (k, n))
        return views.reshape(matmul.matmul(wide, views.t(right)), a.shape)
    left = views.reshape(values["a"], (m, k))
    return views.reshape(matmul.matmul(views.t(left), wide), b.shape)


KINDS: dict[type, Kind] = {
    Callback: Kind(_call_back),
    Contraction: Kind(_contract, partial(_ContractionPullbacks, pull=_contraction_pull), is_followed=True),
    Copy: Kind(_copy, _RearrangementPullbacks, is_followed=True),
    Custom: Kind(_call_custom),
    Elementwise: Kind(_elementwise, _ElementwisePullbacks, is_followed=True),
    Gather: Kind(_gather, PickingPullbacks),
    Guard: Kind(_guard),
    Join: Kind(_join, partial(Pullbacks, pull=_join_pull), is_followed=True),
    Reduction: Kind(_reduce, _ReductionPullbacks, is_followed=True),
    ResultPart: Kind(_view),
    Routine: Kind(_call_routine, partial(Pullbacks, pull=_call_pull), is_followed=True),
    Select: Kind(_select, _Along),
    View: Kind(_view),
    Write: Kind(_write),
}
_OTHER = Kind()


def kind_of(op: Op) -> Kind:
    """Return what the kind of a record has on tensors."""
    return KINDS.get(type(op), _OTHER)


def pullbacks_of(form: Form) -> Pullbacks:
    """Return what runs the pullbacks of instructions of a form, made at its first use."""
    pullbacks: Pullbacks | None = form.tensor_pullbacks
    if pullbacks is None:
        pullbacks = form.tensor_pullbacks = kind_of(form.op).pullbacks(form)
    return pullbacks


def run_batched(step: Planned, operands: Sequence[Operand], spec: Spec) -> Any:
    """Run a step on these operands; ``spec`` is that of the result of one example. NotImplementedError by name."""
    return kind_of(step.op).batched(step, operands, spec)
