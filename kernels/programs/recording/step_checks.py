"""Whether the steps of a program that was read agree with the patterns of its nodes.

Native code takes extents from results, and trusts that operands reach as far: what was recorded does so, what somebody
wrote need not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides
from kernels.codegen.tasks import NodeRef
from kernels.instructions.form import Form
from kernels.kinds.contraction import Contraction
from kernels.kinds.copy import Copy
from kernels.kinds.custom import Custom
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.gather import Gather
from kernels.kinds.join import Join
from kernels.kinds.loop import LOOP_STATE, Guard, LoopAgain, LoopBegin, LoopMark
from kernels.kinds.reduction import Reduction
from kernels.kinds.routine import Routine, computed, packed
from kernels.kinds.select import Select
from kernels.kinds.view import View
from kernels.kinds.write import Write
from kernels.programs.recording.program import Recipe
from kernels.programs.recording.program_words import HEAD, Step

Array = np.ndarray[Any, Any]
Shapes = list[Strides]
_LOOP_PARAMS = 4


def check(recipe: Recipe) -> None:
    """Raise ValueError for a step whose result, operands, parameters and form do not agree."""
    nodes, steps, checked = recipe.nodes, recipe.steps, set()
    specs = [id(node.spec) for node in nodes]
    constant = [nodes[recipe.base_of(i)].constant is not None for i in range(len(nodes))]
    placed = [any(isinstance(p, np.ndarray) for p in kind.params) for kind in steps.kinds]
    words, loops = steps.words.tolist(), list[Step]()
    for at, start in enumerate(steps.starts):
        number, result = words[start : start + HEAD]
        kind = steps.kinds[number]
        first = start + HEAD
        key = (number, specs[result], *[specs[o] if o >= 0 else 0 for o in words[first : first + kind.count]])
        if constant[result] and not isinstance(kind.op, (Guard, View)):
            raise ValueError(f"{kind.op.name} writes to a constant")
        if placed[number]:
            _check_places(recipe, steps[at])
        if isinstance(kind.op, LoopMark):
            loops = _check_loop(recipe, steps[at], loops)
        if key not in checked or isinstance(kind.op, Write):
            _check_specs(recipe, steps[at])
            checked.add(key)
    if loops:
        raise ValueError("a loop does not end")


def _check_loop(recipe: Recipe, step: Step, loops: list[Step]) -> list[Step]:
    """Check a mark of a loop; return the loops that are open behind it."""
    nodes, state = recipe.nodes, recipe.nodes[step.result]
    operands = [nodes[o.node] if isinstance(o, NodeRef) else None for o in step.operands]
    if None in operands or state.argument or state.base is not None or state.spec is not LOOP_STATE:
        raise ValueError(f"{step.op.name} has no loop")
    if isinstance(step.op, LoopBegin):
        limit, has_count, counted, line = step.params
        is_limit = limit is None or (type(limit) is int and limit >= 0)
        phis = operands[: len(operands) - (has_count is True)]
        fits = is_limit and type(has_count) is type(counted) is bool and type(line) is str and operands
        if not fits or any(phi is None or phi.base is not None or phi.constant is not None for phi in phis):
            raise ValueError("a loop has no phis")
        return [*loops, step]
    if not loops or loops[-1].result != step.result:
        raise ValueError(f"{step.op.name} is outside of its loop")
    is_begun = isinstance(step.op, LoopAgain) or isinstance(recipe.steps[step.at - 1].op, LoopAgain)
    if not is_begun:
        raise ValueError("a loop has no body")
    if not isinstance(step.op, LoopAgain):
        return loops[:-1]
    begin = loops[-1]
    phis = [nodes[o.node] for o in begin.operands[: len(begin.operands) - begin.params[1]] if isinstance(o, NodeRef)]
    kinds = [[(node.spec.shape, node.spec.dtype) for node in group if node is not None] for group in (phis, operands)]
    if kinds[0] != kinds[1] or step.at + 1 == len(recipe.steps):
        raise ValueError("an iteration does not go on with what the next one starts from")
    return loops


def _check_specs(recipe: Recipe, step: Step) -> None:
    specs = [recipe.nodes[o.node].spec if isinstance(o, NodeRef) else None for o in step.operands]
    op, form, result = step.op, step.form, recipe.nodes[step.result].spec
    shapes = [() if spec is None else spec.shape for spec in specs]
    _check_shape(op, shapes, result.shape, step.params, specs)
    if form is None:
        return
    base = recipe.nodes[recipe.family_of(step.result)].spec if isinstance(op, Write) else result
    alike = form.op is op and form.spec is base and len(form.specs) == len(specs)
    first = 1 if isinstance(op, Write) else 0  # whose form has the spec of the base
    if not alike or any(s is not None and s is not x for s, x in zip(form.specs[first:], specs[first:], strict=True)):
        raise ValueError(f"{op.name} has a form of other operands")
    if isinstance(op, Write):
        _check_written(step, form, result)
    elif isinstance(op, (Reduction, Select, Join, Custom)):
        _check_shape(op, shapes, result.shape, form.params, specs)


def _check_written(step: Step, form: Form, part: Spec) -> None:
    region, shape = form.params
    places = step.params[1].shape if step.params else None
    if shape != places or (shape is None and (region.shape, region.gradient) != (part.shape, part.gradient)):
        raise ValueError(f"{step.op.name} has a form of another part")


def _check_shape(op: Any, shapes: Shapes, result: Strides, params: tuple[Any, ...], specs: list[Any]) -> None:
    for kind, rule in _RULES.items():
        if isinstance(op, kind):
            if rule(op, shapes, params, result, specs):
                return
            raise ValueError(f"{op.name} of shapes {shapes} with {params} does not have shape {result}")
    raise ValueError(f"{op.name} is of a kind that is not checked")


def _spreads(shapes: Shapes, onto: Strides) -> bool:
    """Whether operands broadcast to a shape."""
    return np.broadcast_shapes(*shapes, onto) == onto


def _reduced(shape: Strides, axes: Any, keepdims: Any) -> Strides | None:
    """Return a shape without axes; None if it does not have them."""
    if len(set(axes)) != len(axes) or not all(type(axis) is int and 0 <= axis < len(shape) for axis in axes):
        return None
    kept = [1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes]
    return tuple(kept)


def _joined(shapes: Shapes, params: tuple[Any, ...]) -> Strides | None:
    """Return the shape of operands side by side; None if they do not fit."""
    axis, new = params
    (first, *_), ranks = shapes, {len(shape) for shape in shapes}
    if len(ranks) != 1 or type(axis) is not int or not 0 <= axis < len(first) + bool(new):
        return None
    around = {(*shape[:axis], *shape[axis + (not new) :]) for shape in shapes}
    length = len(shapes) if new else sum(shape[axis] for shape in shapes)
    return (*first[:axis], length, *first[axis + (not new) :]) if len(around) == 1 else None


def _product(op: Contraction, shapes: Shapes) -> Strides | None:
    a, b = shapes
    return (*a[:-1], *b[1:]) if (len(a), len(b)) in op.ranks and a[-1] == b[0] else None


def _select(_: Any, shapes: Shapes, params: tuple[Any, ...], result: Strides, __: Any) -> bool:
    (shape,), (axis, keepdims, *_of_places) = shapes, params
    return (not shape and not result) or _reduced(shape, (axis,), keepdims) == result


def _routine(op: Routine, shapes: Shapes, params: tuple[Any, ...], result: Strides, specs: list[Any]) -> bool:
    """Whether a routine that has kernels gives that many numbers; others run in Python, where NumPy looks."""
    if (op.native is None and op.rows is None) or params[1:]:
        return len(shapes) == len(op.inputs)
    ones = [np.ones(shape, spec.dtype) for shape, spec in zip(shapes, specs, strict=True)]
    value = computed(op, ones, dict(params[0]))
    results = value[: len(op.results)] if isinstance(value, tuple) else (value,)
    return packed(results).shape == result


def _custom(_: Any, shapes: Shapes, params: tuple[Any, ...], __: Any, ___: Any) -> bool:
    (shape,), (apart,) = shapes, params
    return shape == (sum(map(math.prod, apart)),)


_RULES: dict[type, Callable[[Any, Shapes, tuple[Any, ...], Strides, list[Any]], bool]] = {
    Elementwise: lambda op, shapes, _, result, __: len(shapes) == len(op.inputs) and _spreads(shapes, result),
    Copy: lambda _, shapes, __, result, ___: shapes == [result],
    Reduction: lambda _, shapes, params, result, __: [_reduced(shape, *params) for shape in shapes] == [result],
    Select: _select,
    Contraction: lambda op, shapes, _, result, __: _product(op, shapes) == result,
    Join: lambda _, shapes, params, result, __: _joined(shapes, params) == result,
    Gather: lambda _, shapes, params, result, __: len(shapes) == 1 and all(p.shape == result for p in params),
    Write: lambda _, shapes, params, result, __: _spreads(shapes[1:], params[0].shape if params else result),
    Routine: _routine,
    View: lambda _, shapes, __, ___, ____: len(shapes) == 1,
    Custom: _custom,
    LoopMark: lambda _, __, params, ___, ____: len(params) in (0, _LOOP_PARAMS),
    Guard: lambda _, shapes, __, result, specs: shapes == [result] * 2 and specs[0].dtype == specs[1].dtype,
}


def _check_places(recipe: Recipe, step: Step) -> None:
    """Check that places of a gather or write are within the memory, and within the gradient buffer."""
    operand = step.operands[0]
    at = step.result if isinstance(step.op, Write) or not isinstance(operand, NodeRef) else operand.node
    node = recipe.nodes[at]
    base, family = recipe.nodes[recipe.base_of(at)].spec, recipe.nodes[recipe.family_of(at)].spec
    memory, gradient = step.params
    rooms = ((memory, node.offset, base.size), (gradient, node.buffer_offset, family.buffer_size))
    for places, offset, room in rooms:
        if places.dtype != np.int64 or not places.flags.c_contiguous or offset % node.spec.dtype.itemsize:
            raise ValueError(f"{step.op.name} has no places")
        start = offset // node.spec.dtype.itemsize
        if places.size and not (places.min() + start >= 0 and places.max() + start < room):
            raise ValueError(f"{step.op.name} has places outside of {node.spec}")
