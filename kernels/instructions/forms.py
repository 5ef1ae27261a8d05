"""The forms of instructions, by kinds of records: which pullbacks there are, on which patterns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides, broadcast
from kernels.codegen.loop_printer import Loop
from kernels.codegen.matmul import Factor, matrices, product
from kernels.codegen.operand_spaces import Operand
from kernels.instructions.form import Form, Pull, inputs_of
from kernels.instructions.scatter_pullback import scattered
from kernels.records.kinds import Contraction, Copy, Elementwise, Join, Reduction, Select, View
from kernels.records.rule_text import passed

__all__ = ["Form", "Pull", "inputs_of"]

_FLOAT64 = np.dtype(np.float64)


def saved_names(op: Elementwise | Reduction, wanted: tuple[bool, ...], order: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the wanted pullbacks mention, besides the cotangent and static numbers, in the order given."""
    reads = [names for names, want in zip(op.reads, wanted, strict=True) if want]
    union = frozenset[str]().union(*reads)
    return tuple(name for name in order if name in union)


def elementwise(
    op: Elementwise, specs: tuple[Spec | None, ...], spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = ()
) -> Form:
    """Return the form of an elementwise operation; the spec of a Python number is None."""
    saved = saved_names(op, wanted, (*op.inputs, "y"))
    patterns = {name: _saved_operand(source, spec.shape) for name, source in zip(op.inputs, specs, strict=True)}
    patterns["y"] = (spec.dtype, spec.strides)
    reads = [Operand(name, patterns[name][0], 2 + k, patterns[name][1]) for k, name in enumerate(saved)]
    cotangent = Operand("g", spec.dtype, 1, spec.gradient)
    static = (("p", params[0]),) if params else ()

    def pull(i: int, source: Spec) -> Loop:
        target = Operand("target", source.dtype, 0, broadcast(source.shape, source.gradient, spec.shape))
        return _loop(op, i, spec.shape, (target, cotangent, *reads), static)

    name = op.reversed_grad_fn if specs[0] is None else op.number_grad_fn if specs[-1] is None else ""
    return Form(op, specs, spec, wanted, saved, _pulls(specs, wanted, pull), params, name)


def reduction(op: Reduction, source: Spec, spec: Spec, axes: Strides, keepdims: bool, name: str = "") -> Form:
    """Return the form of a reduction over ``axes``; ``n`` is a Python number, or counts ties like the result."""
    saved = saved_names(op, (True,), ("x", "y", "n"))

    def spread(strides: Strides) -> Strides:
        own = iter(strides)
        kept = [next(own) if keepdims or i not in axes else 0 for i in range(len(source.shape))]
        return tuple(0 if i in axes else stride for i, stride in enumerate(kept))

    patterns = {
        "x": (source.dtype, source.strides),
        "y": (spec.dtype, spread(spec.strides)),
        "n": (spec.dtype, spread(spec.strides)) if op.selects else (_FLOAT64, (0,) * len(source.shape)),
    }
    reads = [Operand(name, patterns[name][0], 2 + k, patterns[name][1]) for k, name in enumerate(saved)]
    target = Operand("target", source.dtype, 0, source.gradient)
    cotangent = Operand("g", spec.dtype, 1, spread(spec.gradient))
    loop = _loop(op, 0, source.shape, (target, cotangent, *reads), ())
    return Form(op, (source,), spec, (True,), saved, (loop,), (axes, keepdims), name)


def select(op: Select, source: Spec, spec: Spec, axis: int, keepdims: bool) -> Form:
    """Return the form of an element picked along ``axis``; its place ``i`` is saved, dense, as int64."""
    loop = scattered(source, spec, axis, 2)
    return Form(op, (source,), spec, (True,), ("i",), (loop,), (axis, keepdims))


def join(op: Join, specs: tuple[Spec, ...], spec: Spec, wanted: tuple[bool, ...], axis: int, new: bool) -> Form:
    """Return the form of operands side by side along ``axis``; with ``new`` the axis is one they do not have."""
    starts = np.cumsum([0] + [1 if new else source.shape[axis] for source in specs[:-1]])
    gradient = list(spec.gradient)
    step = gradient[axis]
    if new:
        gradient.pop(axis)

    def pull(i: int, source: Spec) -> Loop:
        target = Operand("target", source.dtype, 0, source.gradient)
        cotangent = Operand("g", spec.dtype, 1, tuple(gradient), offset=int(starts[i]) * step)
        return Loop(passed, source.shape, (target, cotangent))

    return Form(op, specs, spec, wanted, (), _pulls(specs, wanted, pull), (axis, new))


def copy(op: Copy, source: Spec, spec: Spec) -> Form:
    """Return the form of a copy, to the result's dtype."""
    target = Operand("target", source.dtype, 0, source.gradient)
    loop = Loop(passed, spec.shape, (target, Operand("g", spec.dtype, 1, spec.gradient)))
    return Form(op, (source,), spec, (True,), (), (loop,))


def view(op: View, source: Spec, spec: Spec, params: tuple[Any, ...]) -> Form:
    """Return the form of a view: no kernel, its consumers write to the gradient buffer of the base."""
    return Form(op, (source,), spec, (True,), ("offset",), (None,), params)


def contraction(op: Contraction, a: Spec, b: Spec, spec: Spec, wanted: tuple[bool, ...]) -> Form:
    """Return the form of a matrix product: ``da = g b^T`` and ``db = a^T g``, by strides, nothing copied."""
    saved = tuple(name for name, want in zip("ab", (wanted[1], wanted[0]), strict=True) if want)
    (m, k, n), left, right, result = matrices(a.shape, a.strides, b.shape, b.strides, spec.gradient)
    _, d_left, d_right, _ = matrices(a.shape, a.gradient, b.shape, b.gradient, spec.gradient)
    g = Factor(1, result)
    pulls: list[Pull | None] = [None, None]
    if wanted[0]:
        other = Factor(2 + saved.index("b"), right)
        pulls[0] = product(spec.dtype, (m, k, n), Factor(0, d_left), g, other.turned)
    if wanted[1]:
        other = Factor(2 + saved.index("a"), left)
        pulls[1] = product(spec.dtype, (k, n, m), Factor(0, d_right), other.turned, g)
    return Form(op, (a, b), spec, wanted, saved, tuple(pulls))


def _loop(
    op: Elementwise | Reduction, i: int, shape: Strides, operands: tuple[Operand, ...], static: tuple[Any, ...]
) -> Loop:
    """Keep, of the operands, those that this rule mentions."""
    rule = op.pullback[i]
    assert rule is not None
    used = tuple(operand for k, operand in enumerate(operands) if k <= 1 or operand.name in op.reads[i])
    names = inspect.signature(rule).parameters
    return Loop(rule, shape, used, static=tuple(pair for pair in static if pair[0] in names))


def _pulls(
    specs: tuple[Spec | None, ...], wanted: tuple[bool, ...], pull: Callable[[int, Spec], Loop]
) -> tuple[Pull | None, ...]:
    return tuple(
        pull(i, source) if want and source is not None else None
        for i, (source, want) in enumerate(zip(specs, wanted, strict=True))
    )


def _saved_operand(spec: Spec | None, shape: Strides) -> tuple[np.dtype[Any], Strides]:
    """Return dtype and strides of an operand over a space; a Python number is a double, read everywhere."""
    if spec is None:
        return _FLOAT64, (0,) * len(shape)
    return spec.dtype, broadcast(spec.shape, spec.strides, shape)
