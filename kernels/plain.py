"""The sweep in plain Python and NumPy: where the native one cannot read memory, and to test it against.

A shadow is a flat array of its family's size; rules run on arrays as they stand in the records.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.blas import Factor, Product
from kernels.entries import Instruction, instructions
from kernels.forms import FORMS, Form
from kernels.layouts import Spec
from kernels.observing import Array, FreedError, Observer, Outcome, Seed
from kernels.source import Loop, Operand
from kernels.sweep import pattern, plant
from kernels.words import B_ENTRIES, B_FREES, TAPE_BITS


def sweep(
    entries: list[Any],
    number: int,
    seeds: list[Seed],
    observers: Sequence[Observer],
    *,
    restrict: bool,
    free: bool,
    required: bool = False,
) -> Outcome:
    """Sweep a tape back from the seeds; see :func:`kernels.sweep.sweep`."""
    keyed = {_key(observer.key): observer for observer in observers}
    marked, found = _mark(entries, number, seeds)
    relevant = _relevant(marked, set(keyed)) if restrict else None
    shadows: dict[Any, Array] = {}
    homes = {i.slot: i for i in marked if i.form.is_view}
    for seed in seeds:
        shadows[seed.slot] = np.full(seed.spec.shadow, -0.0, seed.spec.dtype)
        plant(shadows[seed.slot], seed)
    kept = set(keyed) | set(shadows)

    def home(key: Any) -> tuple[Any, int]:
        """Return whose shadow a slot writes to, and where its pattern begins."""
        offset, top = homes[key].saved[0] if key in homes else 0, key
        while top in homes and top not in kept:
            top = _key(homes[top].operands[0])
        return top, offset

    for instruction in marked:
        if relevant is not None and instruction.slot not in relevant:
            continue
        _pull(instruction, shadows, home, relevant, kept)
    outcome = _outcome(found, shadows, keyed, restrict)
    _tell(keyed, shadows, {*found, *(i.slot for i in marked)})
    if free and not (required and any(o.gradient is None for o in observers)):
        _drop(entries, marked)
    return outcome


def _tell(keyed: dict[Any, Observer], shadows: dict[Any, Array], reached: set[Any]) -> None:
    """Give each observer its gradient: zeros where the sweep came by without a contribution."""
    for key, observer in keyed.items():
        shadow = shadows.get(key)
        if shadow is not None:
            observer.gradient = pattern(shadow, observer.spec, observer.offset) + observer.spec.dtype.type(0.0)
        elif key in reached:
            observer.gradient = np.zeros(observer.spec.shape, observer.spec.dtype)


def _key(operand: Any) -> Any:
    return operand if type(operand) is int else ("leaf", id(operand))


def _mark(entries: list[Any], number: int, seeds: list[Seed]) -> tuple[list[Instruction], dict[Any, Any]]:
    pending, found, marked = {seed.slot for seed in seeds}, {}, []
    for instruction in instructions(entries):
        if not pending:
            break
        if instruction.slot not in pending:
            continue
        pending.discard(instruction.slot)
        marked.append(instruction)
        for operand, spec in zip(instruction.operands, instruction.form.specs, strict=True):
            if operand is None:
                continue
            if type(operand) is int and operand >> TAPE_BITS == number:
                pending.add(operand)
            else:
                found[_key(operand)] = (operand, spec)
    if pending:
        raise FreedError
    return marked, found


def _relevant(marked: list[Instruction], keys: set[Any]) -> set[Any]:
    leading = set(keys)
    for instruction in reversed(marked):
        if any(o is not None and _key(o) in leading for o in instruction.operands):
            leading.add(instruction.slot)
    return leading


def _pull(instruction: Instruction, shadows: dict[Any, Array], home: Any, relevant: Any, kept: set[Any]) -> None:
    """Run the pullbacks of one instruction; an observed view folds into the shadow above it."""
    form, cotangent = instruction.form, shadows.get(instruction.slot)
    if cotangent is None:
        return
    if form.is_view:
        if instruction.slot in kept:
            above, _ = home(_key(instruction.operands[0]))
            _shadow(shadows, above, form.spec)[...] += cotangent
        return
    for i, (operand, spec, pull) in enumerate(zip(instruction.operands, form.specs, form.pulls, strict=True)):
        if operand is None or spec is None or pull is None or (relevant is not None and _key(operand) not in relevant):
            continue
        key, offset = home(_key(operand))
        contribute(form, i, _shadow(shadows, key, spec), offset, cotangent, instruction.saved)
    if instruction.slot not in kept:
        del shadows[instruction.slot]


def _shadow(shadows: dict[Any, Array], key: Any, spec: Spec) -> Array:
    if key not in shadows:
        shadows[key] = np.full(spec.shadow, -0.0, spec.dtype)
    return shadows[key]


def contribute(form: Form, i: int, shadow: Array, offset: int, cotangent: Array, saved: tuple[Any, ...]) -> None:
    """Add the contribution of one pullback to a shadow."""
    pull, spec = form.pulls[i], form.specs[i]
    assert spec is not None
    values = (None, cotangent, *saved)
    if isinstance(pull, Product):
        target = pattern(shadow, spec, offset)
        target += _product(pull, values).reshape(spec.shape)
        return
    assert isinstance(pull, Loop)
    reads = {operand.name: _read(operand, values, pull.shape) for operand in pull.operands[1:]}
    with np.errstate(all="ignore"):
        result = np.broadcast_to(_contribution(pull, reads), pull.shape).astype(spec.dtype)
    _add(pull, shadow, offset, result, reads.get("i"))


def _contribution(pull: Loop, reads: dict[str, Array]) -> Any:
    arguments = {name: value for name, value in reads.items() if name != "i"}
    result = pull.rule(**arguments, **dict(pull.static))
    if pull.expression.head != "cut":
        result = result + 0.0
    cut = (reads["g"] == 0) & np.signbit(reads["g"])
    return np.where(cut, -0.0, result)


def _read(operand: Operand, values: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
    value = np.asarray(values[operand.place])
    if operand.place == 1:  # the cotangent: a flat shadow
        value = value.reshape(-1).view(np.uint8)[operand.offset :].view(np.uint8)
        return np.ndarray(shape, operand.dtype, value, 0, operand.strides) if value.size else np.zeros(shape)
    return np.lib.stride_tricks.as_strided(value, shape, operand.strides, writeable=False)


def _add(pull: Loop, shadow: Array, offset: int, result: Array, places: Array | None) -> None:
    """Scatter a contribution: elements may meet, where an axis was broadcast."""
    item = shadow.itemsize
    flat = np.zeros(pull.shape, np.int64)
    for axis, stride in enumerate(pull.operands[0].strides):
        extent = np.arange(pull.shape[axis]) * (stride // item)
        flat += extent.reshape([-1 if a == axis else 1 for a in range(len(pull.shape))])
    if places is not None and pull.scatter is not None:
        flat = flat + places * (pull.scatter // item)
    np.add.at(shadow, flat.reshape(-1) + offset // item, result.reshape(-1))


def _product(pull: Product, values: tuple[Any, ...]) -> Array:
    m, n, k = pull.extents

    def matrix(factor: Factor, rows: int, columns: int) -> Array:
        value = np.asarray(values[factor.place])
        return np.lib.stride_tricks.as_strided(value, (rows, columns), factor.strides)

    return np.asarray(matrix(pull.left, m, k) @ matrix(pull.right, k, n) + 0.0)


def _outcome(found: dict[Any, Any], shadows: dict[Any, Array], keyed: dict[Any, Observer], restrict: bool) -> Outcome:
    leaves: list[Any] = []
    foreign: list[Any] = []
    for key, (operand, spec) in found.items():
        if key in keyed:
            continue
        shadow = shadows.get(key)
        if shadow is None:
            continue
        if type(operand) is int:
            foreign.append((operand, spec, pattern(shadow, spec, 0).copy()))
        elif not restrict:
            whole = operand.spec
            gradient = shadow.reshape(whole.shape) + whole.dtype.type(0.0)
            leaves.append((operand, float(gradient) if _is_scalar(whole) else np.asarray(gradient)))
    return leaves, foreign


def _is_scalar(spec: Spec) -> bool:
    return spec.shape == () and spec.dtype == np.float64


def _drop(entries: list[Any], marked: list[Instruction]) -> None:
    gone: set[int] = set()
    keep = bytearray(b"\x01" * len(entries))
    for instruction in reversed(marked):
        if instruction.form.block[B_FREES] or any(type(o) is int and o in gone for o in instruction.operands):
            gone.add(instruction.slot)
            keep[instruction.start : instruction.stop] = bytes(instruction.stop - instruction.start)
    entries[: len(keep)] = list(itertools.compress(entries[: len(keep)], keep))


def collect(entries: list[Any], dying: int) -> int:
    """Drop the instructions whose results nobody can reach; return how many entries they had."""
    lost: dict[int, int] = {dying: 1}
    size = len(entries)
    keep = bytearray(b"\x01" * size)
    stop = size
    while stop > 0:
        form = FORMS[entries[stop - 1]]
        start = stop - int(form.block[B_ENTRIES])
        # Besides the tape's own reference, getrefcount counts its argument.
        if sys.getrefcount(entries[start]) - lost.get(entries[start], 0) <= 2:  # noqa: PLR2004
            keep[start:stop] = bytes(stop - start)
            for operand in entries[start + 1 : start + 1 + len(form.specs)]:
                if type(operand) is int:
                    lost[operand] = lost.get(operand, 0) + 1
        stop = start
    gone = keep.count(0)
    if gone:
        entries[:size] = list(itertools.compress(entries[:size], keep))
    return gone
