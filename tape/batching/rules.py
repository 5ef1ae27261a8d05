"""One rule for each kind of record: how an operation on one example is run on all of them.

A batched tensor has the batch in front: extents (size, *those of the example). Rules run tensors' own operations, so
that what they do is recorded. Operands that are the same for all examples come as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from kernels.arrays.specs import Spec, dense
from kernels.foundation.data_classes import dataclass
from kernels.instructions.jitted_functions import Custom
from kernels.ops.registry import OPS
from kernels.records.kinds import (
    Contraction,
    Copy,
    Elementwise,
    Gather,
    Join,
    Part,
    Reduction,
    Routine,
    Select,
    View,
    Write,
)
from tape.operations import indexing, matmul, operators, sums_and_extrema
from tape.recording import integer_indices, jitted_functions, record, routine_calls, views
from tape.tensors import modes
from tape.tensors.tensor import Array, Tensor, plain

_VIEW: Any = OPS["view"]
_MOST = 1 << 22
"""Elements up to which a batch of matrix products is a product of elements, summed; above, a loop over the batch."""


class Planned(Protocol):
    """A step of a plan or program, as the rules see it."""

    @property
    def op(self) -> Any:
        """Its record."""

    @property
    def params(self) -> tuple[Any, ...]:
        """The static parameters."""


@dataclass(slots=True)
class Given:
    """An operand: a number, or a tensor whose example has this spec; ``batched`` if it is one for each example."""

    value: Any
    batched: bool = False
    spec: Spec | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of an example."""
        return () if self.spec is None else self.spec.shape

    @property
    def lead(self) -> tuple[int, ...]:
        """The extent of the batch, if there is one."""
        return (self.value.spec.shape[0],) if self.batched else ()


def run(step: Planned, given: Sequence[Given], spec: Spec) -> Any:
    """Run a step on these operands; ``spec`` is that of the result of one example. NotImplementedError by name."""
    rule = _BY_KIND.get(type(step.op))
    if rule is None:
        raise NotImplementedError(f"vmap: {step.op.name} has no batching rule; call it outside of the mapped function")
    return rule(step, given, spec)


def whole(x: Tensor, size: int, behind: int = 0) -> Tensor:
    """Return a copy of a tensor for each example; the batch stands ``behind`` so many dims."""
    shape = x._form.spec.shape
    wide = (*shape[:behind], size, *shape[behind:])
    if x._slot is None and modes.active() is not None:  # nobody is to hear of it
        value = np.empty(wide, x._form.spec.dtype)
        value[...] = np.expand_dims(x._value, behind) if behind else x._value
        return plain(value)
    return views.clone(views.expand(views.unsqueeze(x, behind) if behind else x, wide))


def apart(x: Tensor, rank: int) -> Tensor:
    """Return a batched tensor with so many dims: ones behind the batch."""
    shape = x._form.spec.shape
    return record.view(_VIEW, x, ((shape[0], *(1,) * (rank - len(shape)), *shape[1:]),))


def _aligned(given: Given, rank: int) -> Any:
    """Return an operand with as many dims behind the batch as the example's result has."""
    if not given.batched or len(given.shape) == rank:
        return given.value
    return apart(given.value, rank + 1)


_STATIC = {op.scalar: op.name for op in OPS.values() if isinstance(op, Elementwise) and op.scalar}
RUN = {**operators.RUN, **{number: operators.RUN[name] for number, name in _STATIC.items()}}
"""What runs each elementwise record; those that take a static number are another's."""


def elementwise(op: Elementwise, values: Sequence[Any]) -> Tensor:
    """Run an elementwise operation on operands that are aligned."""
    run = RUN if any(type(x) is Tensor for x in values) else operators.RUN
    return run[op.name](*values)  # type: ignore[no-any-return]


def _elementwise(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    assert isinstance(step.op, Elementwise)
    return elementwise(step.op, [*[_aligned(g, len(spec.shape)) for g in given], *step.params])


def _reduction(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    del spec
    assert isinstance(step.op, Reduction)
    axes, keepdims = step.params
    lead = len(given[0].lead)
    moved = tuple([axis + lead for axis in axes])
    if len(moved) == 1:
        return sums_and_extrema.along(step.op, given[0].value, moved[0], None, keepdims, None, None)
    return record.reduction(step.op, given[0].value, moved, keepdims, step.op.dims_grad_fn)


def _select(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    assert isinstance(step.op, Select)
    axis, keepdims, *what = step.params
    x = given[0]
    if not x.shape:
        return plain(np.zeros((*x.lead, *spec.shape), np.int64)) if what else views.clone(x.value)
    return record.select(step.op, x.value, axis + len(x.lead), keepdims)[len(what)]


def _contraction(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    """Multiply matrices: at once where one of them is the same for all examples."""
    assert isinstance(step.op, Contraction)
    a, b = given
    if not a.batched and not b.batched:
        return matmul.matmul(a.value, b.value)
    if not b.batched:
        return _by_one_matrix(a, b.value, spec)
    if not a.batched and len(b.shape) == 1:
        return matmul.matmul(b.value, a.value if len(a.shape) == 1 else views.t(a.value))
    (m, k), (size, *_) = (a.shape if len(a.shape) > 1 else (1, a.shape[0])), b.lead
    n = b.shape[1] if len(b.shape) > 1 else 1
    if not a.batched:
        right = views.reshape(views.permute(b.value, (1, 0, 2)), (k, size * n))
        found = views.reshape(matmul.matmul(views.reshape(a.value, (m, k)), right), (m, size, n))
        found = views.permute(found, (1, 0, 2))
    elif len(b.shape) == 1:
        return sums_and_extrema.sum(a.value * apart(b.value, len(a.shape) + 1), len(a.shape))
    elif min(m, k, n) == 1 or size * m * k * n <= _MOST:
        found = sums_and_extrema.sum(views.reshape(a.value, (size, m, k, 1)) * apart(b.value, 4), 2)
    else:
        left, right = views.reshape(a.value, (size, m, k)), b.value
        found = views.stack([matmul.matmul(left[e], right[e]) for e in range(size)])
    return found if found.spec.shape == (size, *spec.shape) else views.reshape(found, (size, *spec.shape))


def _by_one_matrix(a: Given, b: Tensor, spec: Spec) -> Tensor:
    """Multiply what differs by what is the same for all examples, in one product."""
    if len(a.shape) == 1:
        return matmul.matmul(a.value, b)
    size, (m, k) = a.lead[0], a.shape
    return views.reshape(matmul.matmul(views.reshape(a.value, (size * m, k)), b), (size, *spec.shape))


def _join(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    del spec
    axis, new = step.params
    size = next((g.lead[0] for g in given if g.batched), None)
    if size is None:
        return (views.stack if new else views.cat)([g.value for g in given], axis)
    parts = [g.value if g.batched else views.expand(g.value, (size, *g.shape)) for g in given]
    return (views.stack if new else views.cat)(parts, axis + 1)


def _copy(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    x: Tensor = given[0].value
    return views.clone(x) if x.spec.dtype == spec.dtype else record.to_dtype(x, spec.dtype, step.op)


_TURNED = {"transpose", "permute", "t"}
INDEXED: frozenset[Any] = frozenset(OPS[name] for name in ("slice", "select", "newaxis", "alias", "unbind"))
"""The views that basic indices give."""


def _view(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    """Take the same view of all examples. ValueError where the memory does not allow it."""
    del spec
    assert isinstance(step.op, View)
    x, name = given[0], step.op.name
    (first, *rest) = step.params
    first = first if isinstance(first, tuple) else (first,)
    if step.op in INDEXED:
        return indexing.index(x.value, (slice(None), *first) if x.batched else first)
    if not x.batched:
        return record.view(step.op, x.value, step.params)
    if name in _TURNED:
        params: Any = ((0, *[axis + 1 for axis in first]),)
    elif name == "as_strided" or isinstance(step.op, Part):
        params = ((*x.lead, *first), (math.prod(x.shape), *rest[0]), rest[1])
    else:
        params = ((*x.lead, *first),)
        x = Given(_aligned(x, max(len(first), len(x.shape))), batched=True) if name == "expand" else x
    return record.view(step.op, x.value, params)


def _gather(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    del spec
    x, key = _located(given[0], step.params[0])
    return indexing.index(x, key)


def _write(step: Planned, given: Sequence[Given], spec: Spec) -> None:
    part, value = given
    assert isinstance(step.op, Write)
    if not step.params:
        x, new = part.value, _aligned(value, len(spec.shape))
        x.add_(new) if step.op.adds else x.copy_(new)
        return
    memory = step.params[0]
    x, key = _located(part, memory)
    indexing.assign_at(x, key, _aligned(value, memory.ndim), step.op.name, adds=step.op.adds)


def _located(x: Given, numbers: Array) -> tuple[Tensor, tuple[Any, ...]]:
    """Return a tensor, and an index of the elements that have these numbers by the example's strides."""
    lead = (slice(None),) * len(x.lead)
    assert x.spec is not None
    if not x.shape:
        return views.view(x.value, (*x.lead, 1)), (*lead, np.zeros_like(numbers))
    return x.value, (*lead, *np.unravel_index(_in_order(x.spec, numbers), x.shape))


def _in_order(spec: Spec, numbers: Array) -> Array:
    """Turn numbers of elements by strides to those of a C-contiguous array."""
    if spec.strides == dense(spec.shape, spec.dtype.itemsize):
        return numbers
    table = integer_indices.places(spec, spec.strides, (Ellipsis,)).reshape(-1)
    order = np.argsort(table, kind="stable")
    return order[np.searchsorted(table[order], numbers)]


def _custom(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    """Call a jitted function for each example."""
    del spec
    (shapes,) = step.params
    x = given[0]
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()

    def called(flat: Tensor) -> Tensor:
        starts = [0, *ends[:-1]]
        parts = [views.reshape(flat[s:e], shape) for s, e, shape in zip(starts, ends, shapes, strict=True)]
        return jitted_functions._call(step.op, tuple(parts))

    return views.stack([called(x.value[e]) for e in range(x.lead[0])]) if x.batched else called(x.value)


def _routine(step: Planned, given: Sequence[Given], spec: Spec) -> Tensor:
    """Call a routine for each example; several results stand end to end."""
    del spec
    assert isinstance(step.op, Routine)
    (frozen, *extra), op = step.params, step.op
    size = next((g.lead[0] for g in given if g.batched), None)

    def called(e: int) -> Tensor:
        found = routine_calls.call(op, *[g.value[e] if g.batched else g.value for g in given], **dict(frozen))
        if not isinstance(found, tuple):
            return found  # type: ignore[no-any-return]
        if extra:
            return found[len(op.results) + extra[0]]  # type: ignore[no-any-return]
        parts = found[: len(op.results)]
        return parts[0] if len(parts) == 1 else views.cat([views.reshape(x, -1) for x in parts])

    return called(0) if size is None else views.stack([called(e) for e in range(size)])


_BY_KIND: dict[type, Callable[[Planned, Sequence[Given], Spec], Any]] = {
    Elementwise: _elementwise,
    Reduction: _reduction,
    Select: _select,
    Contraction: _contraction,
    Join: _join,
    Copy: _copy,
    View: _view,
    Gather: _gather,
    Write: _write,
    Custom: _custom,
    Routine: _routine,
    Part: _view,
}
