"""The pullbacks on tensors: the rules of the records, run by operations that are recorded themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.entries import Instruction
from kernels.op import Contraction, Copy, Elementwise, Join, Reduction, Routine, Select
from tape import arithmetic, creation, indexing, products, recording, reducing, shaping
from tape.tensor import Tensor, plain

Values = dict[str, Any]
_WHERE = arithmetic.FUNCTIONS["where"]


def pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    """Return what an instruction contributes to its operand ``i``, in the operand's shape; ``g`` is its cotangent."""
    op = instruction.form.op
    rule = _BY_KIND.get(type(op))
    if rule is None:
        raise NotImplementedError(
            f"{op.name}: its vjp is compiled and cannot be differentiated again; write it as an autograd.Function"
        )
    return rule(instruction, i, g, values)


def onto(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum over what was broadcast."""
    have = value.spec.shape
    if have == shape:
        return value
    lead = len(have) - len(shape)
    dims = tuple(range(lead)) + tuple(lead + k for k, n in enumerate(shape) if n == 1 and have[lead + k] != 1)
    return shaping.reshape(reducing.sum(value, dims, keepdim=True), shape)


def added(value: Tensor) -> Tensor:
    """Turn -0.0, which says that there is no contribution, to 0.0."""
    return value if _negative_zeros(value) is None else value + 0.0


def _negative_zeros(value: Tensor) -> Any:
    """Return where a tensor has -0.0; None if nowhere."""
    array = value._value
    if np.count_nonzero(array) == value._form.spec.size:
        return None
    found = np.signbit(array) & np.equal(array, 0)
    return np.asarray(found) if found.any() else None


def _ruled(rule: Callable[..., Any], g: Tensor, values: Values) -> Tensor:
    """Run a rule; where the cotangent is -0.0 there is no contribution, and not 0 times what may be infinite."""
    names, cuts = _about(rule)
    cut = _negative_zeros(g)
    result = rule(*[g if name == "g" else values[name] for name in names])
    if not isinstance(result, Tensor):
        result = creation.full(g.spec.shape, float(result), dtype=g.spec.dtype)
    if not cuts:
        result = added(result)
    return result if cut is None else _WHERE(plain(cut), -0.0, result)


@functools.cache
def _about(rule: Callable[..., Any]) -> tuple[tuple[str, ...], bool]:
    """Return the names of a rule's parameters, and whether it cuts."""
    return tuple(inspect.signature(rule).parameters), rule_cuts(rule)


def rule_cuts(rule: Callable[..., Any]) -> bool:
    """Whether a rule leaves elements without a contribution itself."""
    return "cut" in rule.__code__.co_names


def _elementwise(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    op, form = instruction.form.op, instruction.form
    assert isinstance(op, Elementwise)
    rule, spec = op.pullback[i], form.specs[i]
    assert rule is not None
    assert spec is not None
    static = {"p": form.params[0]} if form.params else {}
    result = _ruled(rule, g, {**values, **static})
    return onto(result, spec.shape)


def _reduction(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    op, spec = instruction.form.op, instruction.form.specs[i]
    assert isinstance(op, Reduction)
    assert spec is not None
    axes, keepdims = instruction.form.params
    wide = tuple(1 if k in axes else n for k, n in enumerate(spec.shape))

    def spread(value: Any) -> Any:
        value = plain(value) if isinstance(value, np.ndarray) else value
        if not isinstance(value, Tensor):
            return value
        return shaping.expand(value if keepdims else shaping.reshape(value, wide), spec.shape)

    read = {name: value if name == "x" else spread(value) for name, value in values.items()}
    rule = op.pullback[0]
    assert rule is not None
    return _ruled(rule, spread(g), read)


def _select(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    spec = instruction.form.specs[i]
    assert spec is not None
    axis, _ = instruction.form.params
    target = _nothing(spec.shape, spec.dtype)
    if not spec.shape:
        return g
    along = values["i"].reshape(tuple(1 if k == axis else n for k, n in enumerate(spec.shape)))
    key = list(np.ogrid[tuple(slice(n) for n in along.shape)])
    key[axis] = along
    target[tuple(key)] = shaping.reshape(g, along.shape)
    return target


def _contraction(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    a, b = instruction.form.specs
    assert a is not None
    assert b is not None
    m, k = a.shape if len(a.shape) > 1 else (1, a.shape[0])
    n = b.shape[1] if len(b.shape) > 1 else 1
    wide = shaping.reshape(g, (m, n))
    if i == 0:
        right = shaping.reshape(values["b"], (k, n))
        return shaping.reshape(products.matmul(wide, shaping.t(right)), a.shape)
    left = shaping.reshape(values["a"], (m, k))
    return shaping.reshape(products.matmul(shaping.t(left), wide), b.shape)


def _join(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    del values
    axis, new = instruction.form.params
    if new:
        return indexing.index(g, (slice(None),) * axis + (i,))
    extents = [spec.shape[axis] for spec in instruction.form.specs if spec is not None]
    start = sum(extents[:i])
    return indexing.index(g, (slice(None),) * axis + (slice(start, start + extents[i]),))


def _copy(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    del values
    spec = instruction.form.specs[i]
    assert spec is not None
    return g if g.spec.dtype == spec.dtype else recording.to_dtype(g, spec.dtype)


def _routine(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    """Run the vjp of a routine whose pullback is a kernel."""
    call = instruction.form.params[0]
    found: Tensor = call.run(call.op.vjp, {**values, "g": g})[i]
    return found


def _nothing(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Return a tensor to which nothing has been contributed."""
    return plain(np.full(shape, -0.0, dtype))


_BY_KIND: dict[type, Callable[[Instruction, int, Tensor, Values], Tensor]] = {
    Elementwise: _elementwise,
    Reduction: _reduction,
    Select: _select,
    Contraction: _contraction,
    Join: _join,
    Copy: _copy,
    Routine: _routine,
}
