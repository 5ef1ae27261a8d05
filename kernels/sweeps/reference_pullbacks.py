"""Pullbacks run by NumPy, as they stand in the records: where native code cannot, and to test it against."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import Array, GradientObserver, add_to, changed, pattern, silently
from kernels.foundation.specs import Spec, meets_itself
from kernels.kinds.custom import CustomKernel
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.routine import RoutineCall
from kernels.native.structs import PYTHON, VIEW
from kernels.rules.loop_printer import KernelOperand, PrintedLoop
from kernels.rules.rows import Factor, Product, RowPull
from kernels.rules.symbols import Exponent


def run(
    instruction: Instruction,
    cotangent: Array | None,
    observer: GradientObserver | None,
    stash: dict[Any, Any],
    *,
    batch: int,
    start: int = 0,
) -> list[Array | None]:
    """Return what an instruction contributes to each of its operands, after the hook that stands behind it.

    ``cotangent`` is the gradient buffer of its result, None if nothing reached it; ``start`` where the operand of a
    view begins.
    """
    if cotangent is None:
        return list(instruction.saved[0].pull(instruction, None, stash, batch=batch))
    results = contributions(instruction, cotangent, stash, batch=batch, start=start)
    if observer is None or observer.after is None:
        return results
    shown = [None if result is None else result + result.dtype.type(0.0) for result in results]
    output = pattern(cotangent, observer.spec, observer.offset) + cotangent.dtype.type(0.0)
    pairs = zip(results, observer.after(shown, output), strict=True)
    return [None if new is None or old is None else changed(old, new) for old, new in pairs]


def contributions(
    instruction: Instruction, cotangent: Array, stash: dict[Any, Any], *, batch: int = 0, start: int = 0
) -> list[Array | None]:
    """Return what an instruction contributes to each of its operands, in the operand's shape.

    ``cotangent`` is the gradient buffer of its result; with ``batch`` both have a leading axis. That of a view is its
    family's, in which the operand begins at ``start``.
    """
    form = instruction.form
    if form.kind == PYTHON:
        gradient, context = pattern(cotangent, form.spec, 0), instruction.saved[0]
        kept = gradient if isinstance(context, RoutineCall) else gradient.copy()  # user code may keep it
        return list(context.pull(instruction, kept, stash, batch=batch))
    if batch:
        rows = [contributions(instruction, row, stash, start=start) for row in cotangent]
        return [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]
    results: list[Array | None] = []
    for i, (operand, spec) in enumerate(zip(instruction.operands, form.specs, strict=True)):
        if operand is None or spec is None:
            results.append(None)
            continue
        if form.kind == VIEW:
            results.append(_once(pattern(cotangent.copy(), spec, start)))
            continue
        buffer, first = np.full(spec.buffer_size, -0.0, spec.dtype), lowest(spec)
        contribute(form, i, buffer, first, cotangent, instruction.saved)
        results.append(_once(pattern(buffer, spec, first)))
    return results


def _once(place: Array) -> Array:
    """Return a part of a gradient buffer with each element once, which a tensor that was expanded meets many times."""
    if 0 not in place.strides and not meets_itself(place.shape, place.strides, place.itemsize):
        return place
    at = sum(np.ix_(*[np.arange(n) * stride for n, stride in zip(place.shape, place.strides, strict=True)]))
    _, first = np.unique(np.ravel(at), return_index=True)
    result = np.full(place.shape, -0.0, place.dtype)
    result.reshape(-1)[first] = place.reshape(-1)[first]
    return result


def lowest(spec: Spec) -> int:
    """Return the least offset at which a pattern, whose strides may be negative, fits into a gradient buffer."""
    return -sum([min((n - 1) * stride, 0) for n, stride in zip(spec.shape, spec.gradient, strict=True) if n])


def contribute(
    form: Form, i: int, buffer: Array, offset: int, cotangent: Array, saved: tuple[Any, ...], start: int = 0
) -> None:
    """Add the contribution of one pullback to a buffer; ``start`` is where the cotangent's pattern begins, in bytes."""
    pull, spec = form.pulls[i], form.specs[i]
    assert spec is not None
    values = (None, cotangent, *saved)
    if isinstance(pull, Product):
        add_to(pattern(buffer, spec, offset), silently(_product, pull, values).reshape(spec.shape))
        return
    if isinstance(pull, (CustomKernel, RowPull)):
        pull.contribute(buffer, offset, cotangent, saved)
        return
    assert isinstance(pull, PrintedLoop)
    reads = {operand.name: _read(operand, values, pull.shape, start) for operand in pull.operands[1:]}
    if pull.gather is not None:
        item = spec.dtype.itemsize
        reads["g"] = cotangent.reshape(-1).view(spec.dtype)[reads["i"] * (pull.gather // item) + start // item]
    with np.errstate(all="ignore"):
        result = np.broadcast_to(_contribution(pull, reads), pull.shape).astype(spec.dtype)
        _add(pull, buffer, offset, result, reads.get("i"))


def _contribution(pull: PrintedLoop, reads: dict[str, Array]) -> Any:
    arguments = {name: value for name, value in reads.items() if name != "i"}
    result = pull.rule(**arguments, **{name: Exponent(value) for name, value in pull.static})
    if pull.expression.head != "cut":
        result = result + 0.0
    cut = (reads["g"] == 0) & np.signbit(reads["g"])
    return np.where(cut, -0.0, result)


def _read(operand: KernelOperand, values: tuple[Any, ...], shape: tuple[int, ...], start: int) -> Array:
    value = np.asarray(values[operand.place])
    if operand.place == 1:  # the cotangent: a flat gradient buffer
        value = value.reshape(-1).view(np.uint8)
        if value.size == 0 or 0 in shape:
            return np.zeros(shape)
        return np.ndarray(shape, operand.dtype, value, start + (operand.offset or 0), operand.strides)
    return np.lib.stride_tricks.as_strided(value, shape, operand.strides, writeable=False)


def _add(pull: PrintedLoop, buffer: Array, offset: int, result: Array, places: Array | None) -> None:
    """Scatter a contribution: elements may meet, where an axis was broadcast."""
    elements = elements_of(pull, places if pull.scatter is not None else None, buffer.itemsize)
    np.add.at(buffer, elements.reshape(-1) + offset // buffer.itemsize, result.reshape(-1))


def elements_of(pull: PrintedLoop, places: Array | None, item: int) -> Array:
    """Return which element of its gradient buffer each place of a loop writes to."""
    flat = np.zeros(pull.shape, np.int64)
    for axis, stride in enumerate(pull.operands[0].strides):
        extent = np.arange(pull.shape[axis]) * (stride // item)
        flat += extent.reshape([-1 if a == axis else 1 for a in range(len(pull.shape))])
    return flat if places is None else flat + places * ((pull.scatter or 0) // item)


def _product(pull: Product, values: tuple[Any, ...]) -> Array:
    m, n, k = pull.extents

    def matrix(factor: Factor, rows: int, columns: int) -> Array:
        value = np.asarray(values[factor.place])
        return np.lib.stride_tricks.as_strided(value, (rows, columns), factor.strides)

    return np.asarray(matrix(pull.left, m, k) @ matrix(pull.right, k, n) + 0.0)
