"""Gradient buffers as tensors: the gradient of a family while a backward is recorded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, dense, intern_spec, meets_itself, spec_of
from kernels.native.pool.pool_structs import LARGE
from kernels.ops.registry import OPS
from tape.kinds.rules_on_tensors import added, full, negative_zeros
from tape.operations import indexing, sums_and_extrema
from tape.operations.in_place.accumulating import add_again
from tape.recording import record, views
from tape.tensors import modes
from tape.tensors.tensor import Array, Tensor, constant_tensor, new

_ADD: Any = OPS["index_put_"]


class GradientBuffer:
    """The gradient of a family: contributions to all of it and to parts of it, added up when it is read.

    A contribution without dims stands for one number everywhere. Where parts must be written, it becomes flat memory.
    Where it is not ``clean``, -0.0 marks the elements to which nothing has been contributed.
    """

    __slots__ = ("clean", "dtype", "flat", "parts", "picked", "size", "whole")

    def __init__(self, spec: Spec, whole: Tensor | None = None) -> None:
        self.size, self.dtype = spec.buffer_size, spec.dtype
        self.whole = whole
        self.clean = True
        self.parts: dict[tuple[Spec, int], Tensor] = {}
        self.picked: list[tuple[Array, Tensor]] = []
        self.flat: Tensor | None = None

    def __bool__(self) -> bool:
        return self.whole is not None or self.flat is not None or bool(self.parts) or bool(self.picked)

    def add(self, value: Tensor, clean: bool = False) -> None:
        """Add to all of it; in a value that is not ``clean``, -0.0 means that nothing was contributed there."""
        value = added(value) if clean else value
        if self.flat is None:
            self.whole = value if self.whole is None else together(self.whole, value)
            self.clean &= clean
        else:
            self.flat += views.reshape(full(value, (self.size,)), -1)

    def add_part(self, spec: Spec, offset: int, value: Tensor, clean: bool = False) -> None:
        """Add to the part that belongs to a tensor of this spec."""
        if 0 in spec.gradient:
            spec, value = _summed(spec, value)
            if offset == 0 and owned(spec):
                self.add(value, clean)
                return
        if self.flat is not None or spec.size == 0 or meets_itself(spec.shape, spec.gradient, spec.dtype.itemsize):
            self._add_flat(spec, offset, added(value) if clean else value)
            return
        value = added(value) if clean else value
        before = self.parts.get((spec, offset))
        self.parts[spec, offset] = value if before is None else together(before, value)
        self.clean &= clean

    def add_at(self, places: Array, value: Tensor, clean: bool = False) -> None:
        """Add to elements by their indices; several values for one element add up."""
        value = full(added(value) if clean else value, places.shape)
        if self.flat is not None:
            indexing.assign_at(self.flat, (places,), value, "gradient", adds=True)
        else:
            self.picked.append((places, value))

    def read(self, spec: Spec, *, ends: bool = False) -> tuple[Tensor, bool]:
        """Return all of it, for a tensor of this spec, and whether it is clean: without the mark -0.0.

        At the ``ends``, of leaves, -0.0 has no meaning any more.
        """
        if self.flat is None and not self.parts and not self.picked:
            assert self.whole is not None
            gradient = in_pattern(self.whole, spec)
            if gradient is not None:
                return gradient, self.clean
        if self.flat is None and self.whole is None and len(self.parts) == 1 and not self.picked:
            ((part, offset), value), *_ = self.parts.items()
            if part is spec and offset == 0:
                return value, self.clean
            order = _order(part) if owned(spec) else None
            if order is not None:
                turned = views.permute(full(value, part.shape), order)
                return views.reshape(turned, spec.shape), self.clean
        tape = modes.active()
        if self.flat is not None or not tape or not owned(spec) or spec.bytes >= LARGE:
            return views.clone(self.part(spec, 0)), False
        gradient = self._joined(spec, tape, 0.0 if ends else -0.0)
        return gradient, ends or negative_zeros(gradient) is None

    def _joined(self, spec: Spec, tape: Any, start: float) -> Tensor:
        """Return the sum of all contributions: fresh memory, to which one after the other is added."""
        memory = np.full(spec.shape, start, self.dtype)
        whole = spec_of(memory)
        contributions = list(self.parts.items())
        if self.whole is not None:
            contributions.insert(0, ((whole, 0), full(self.whole, spec.shape)))
        total = new(Tensor)
        total._form = whole
        for (region, offset), value in contributions:
            place = np.ndarray(region.shape, self.dtype, memory, offset, region.gradient)
            np.add(place, value._value, place)
            if (source := value._slot) is not None:
                form = _write(whole, region, value._form.spec, total._slot is not None)
                tape.record(total, form.code, (total._slot, source), (offset,))
        for places, value in self.picked:
            np.add.at(memory.reshape(-1), places, value._value)
            if (source := value._slot) is not None:
                form = _write_at(whole, places.shape, value._form.spec, total._slot is not None)
                tape.record(total, form.code, (total._slot, source), (0, places))
        total._value = memory
        return total

    def part(self, spec: Spec, offset: int) -> Tensor:
        """Return the part that belongs to a tensor of this spec: a view, to be read or written."""
        return part_of(self.flattened(), spec, offset)

    def _add_flat(self, spec: Spec, offset: int, value: Tensor) -> None:
        value = full(value, spec.shape)
        apart = (len(spec.shape) == 1 and spec.gradient[0]) or not meets_itself(
            spec.shape, spec.gradient, spec.dtype.itemsize
        )
        if apart:
            part = self.part(spec, offset)
            if not add_again(part, value):
                part += value
            return
        item = spec.dtype.itemsize
        places = np.zeros(spec.shape, np.int64)
        for axis, (n, stride) in enumerate(zip(spec.shape, spec.gradient, strict=True)):
            extents = [n if k == axis else 1 for k in range(len(spec.shape))]
            places += (np.arange(n) * (stride // item)).reshape(extents)
        indexing.assign_at(self.flattened(), (places + offset // item,), value, "gradient", adds=True)

    def add_flat(self, value: Tensor) -> None:
        """Add flat memory to all of it."""
        flat = self.flattened()
        flat += value

    def flattened(self) -> Tensor:
        """Return all of it as flat memory."""
        if self.flat is None:
            self.flat = constant_tensor(np.full(self.size, -0.0, self.dtype))
            if self.whole is not None:
                self.flat += views.reshape(full(self.whole, (self.size,)), -1)
            parts, self.whole, self.parts = self.parts, None, {}
            for (spec, offset), value in parts.items():
                self._add_flat(spec, offset, value)
            picked, self.picked = self.picked, []
            for places, value in picked:
                self.add_at(places, value)
        return self.flat


def cotangent(buffer: GradientBuffer | Tensor, spec: Spec, *, ends: bool = False) -> tuple[Tensor, bool]:
    """Return the gradient of a base with this spec, and whether it is clean; see ``read``."""
    if isinstance(buffer, GradientBuffer):
        return buffer.read(spec, ends=ends)
    gradient = in_pattern(buffer, spec)
    return (gradient, True) if gradient is not None else GradientBuffer(spec, added(buffer)).read(spec, ends=ends)


def in_pattern(whole: Tensor, spec: Spec) -> Tensor | None:
    """Return a whole buffer as the gradient of a tensor of this spec; None if that covers a part, or in no order.

    A base whose dims are permuted in memory, such as a result of a transposed view, has a permuted buffer too.
    """
    if (spec.in_order and spec.covers) or not whole._form.spec.shape:
        return whole
    order = _order(spec)
    if order is None:
        return None
    turned = views.reshape(whole, tuple([spec.shape[k] for k in order]))
    return views.permute(turned, tuple([order.index(k) for k in range(len(order))]))


def together(a: Tensor, b: Tensor) -> Tensor:
    """Add two contributions to all of a buffer."""
    left, right = a._form.spec.shape, b._form.spec.shape
    return a + (b if left == right or not left or not right else views.reshape(b, left))


def part_of(whole: Tensor, spec: Spec, offset: int) -> Tensor:
    """Return the part of a tensor, in order, that belongs to one of this spec in its family: a view."""
    item = spec.dtype.itemsize
    return views.strided(whole, spec.shape, tuple([s // item for s in spec.gradient]), offset // item)


def owned(spec: Spec) -> bool:
    """Whether a spec is that of a base whose gradient buffer is in C order."""
    return spec.in_order and spec.covers


def _summed(spec: Spec, value: Tensor) -> tuple[Spec, Tensor]:
    """Sum over the dims along which a tensor was expanded: return the pattern that they leave, and the sums."""
    axes = tuple(k for k, stride in enumerate(spec.gradient) if stride == 0)
    count = math.prod(spec.shape[k] for k in axes)
    if count == 0:
        return spec, value
    shape, strides, gradient = (
        tuple(x for k, x in enumerate(words) if k not in axes) for words in (spec.shape, spec.strides, spec.gradient)
    )
    narrow = intern_spec(shape, strides, spec.dtype, gradient, spec.buffer_size)
    if not value._form.spec.shape:
        return narrow, value * float(count) if count > 1 else value
    if count == 1:
        return narrow, views.reshape(value, shape)
    return narrow, sums_and_extrema.sum(value, axes if len(axes) > 1 else axes[0])


def _order(spec: Spec) -> tuple[int, ...] | None:
    """Return the order of dims in which a pattern covers a buffer in C order; None if there is none."""
    if not spec.covers or not spec.size:
        return None
    order = tuple(sorted(range(len(spec.shape)), key=lambda k: -spec.gradient[k]))
    strides = tuple(spec.gradient[k] for k in order)
    return order if strides == dense(tuple(spec.shape[k] for k in order), spec.dtype.itemsize) else None


def _write(whole: Spec, region: Spec, source: Spec, again: bool) -> Any:
    wants = (again, True)
    key = (_ADD, whole, region, source, wants)
    return record.cached_form(key, lambda: _ADD.form((whole, source), whole, wants, (region, None)))


def _write_at(whole: Spec, shape: tuple[int, ...], source: Spec, again: bool) -> Any:
    wants = (again, True)
    key = (_ADD, whole, shape, source, wants, "at")
    return record.cached_form(key, lambda: _ADD.form((whole, source), whole, wants, (None, shape)))
