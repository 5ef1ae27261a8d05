"""Gradients that arrive at leaves: their tensors, and how they are added to `.grad`."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from kernels.calls.object_types import begun_in_python, grad_property, native_or
from kernels.foundation.specs import Spec, dense, intern_spec, meets_itself, spec_of
from kernels.foundation.tables import Lock
from kernels.kinds.reference_tape import instructions
from kernels.native.c_api import SMALL_GRADIENT
from kernels.native.structs import LARGE, TAPE_BITS
from kernels.operations import OPS
from kernels.sweeps.reverse import adder
from tape import errors
from tape.engine.kind_rules import added, full, negative_zeros
from tape.operations import indexing, reductions, writes
from tape.operations.writes import add_again
from tape.recording import record, views
from tape.tensors import grad_modes, hooks, modes, tapes, view_families
from tape.tensors.tapes import Tape
from tape.tensors.tensor import (
    AccumulateGrad,
    Array,
    Tensor,
    as_array,
    attribute,
    constant_tensor,
    make_extras,
    method,
    new,
    read_extras,
    scalar_or_array,
)

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

    def undivided(self) -> Tensor | None:
        """Return all of it, if that is one tensor, to which nothing else is to be added."""
        return None if self.parts or self.picked else self.whole

    def read(self, spec: Spec, *, ends: bool = False) -> tuple[Tensor, bool]:
        """Return all of it, and whether it is clean: without the mark -0.0, which means nothing at the ``ends``."""
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
                form = _write(whole, (region, None), value._form.spec, total._slot is not None)
                tape.record(total, form.code, (total._slot, source), (offset,))
        for places, value in self.picked:
            np.add.at(memory.reshape(-1), places, value._value)
            if (source := value._slot) is not None:
                form = _write(whole, (None, places.shape), value._form.spec, total._slot is not None)
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
    return narrow, reductions.sum(value, axes if len(axes) > 1 else axes[0])


def _order(spec: Spec) -> tuple[int, ...] | None:
    """Return the order of dims in which a pattern covers a buffer in C order; None if there is none."""
    if not spec.covers or not spec.size:
        return None
    order = tuple(sorted(range(len(spec.shape)), key=lambda k: -spec.gradient[k]))
    strides = tuple(spec.gradient[k] for k in order)
    return order if strides == dense(tuple(spec.shape[k] for k in order), spec.dtype.itemsize) else None


def _write(whole: Spec, to: tuple[Spec | None, tuple[int, ...] | None], source: Spec, again: bool) -> Any:
    """Return the form that adds to a region, or to places of a shape."""
    wants = (again, True)
    return record.cached_form((_ADD, whole, *to, source, wants), lambda: _ADD.form((whole, source), whole, wants, to))


ADDING = Lock(waited_for=True)
"""The lock of additions to ``.grad``, since threads may share a leaf; not held while hooks run."""


def deliver(leaves: list[tuple[AccumulateGrad, Array | float]]) -> None:
    """Add gradients to ``.grad`` of leaves."""
    if hooks.LEAVES:
        leaves = [pair for pair in leaves if id(pair[0]) not in hooks.LEAVES or not _delivered_by_hooks(*pair)]
    with ADDING:
        for slot, value in leaves:
            if slot.grad is None and slot.spec.bytes >= SMALL_GRADIENT and not _seen(slot):
                continue  # nobody can read the gradient
            if slot.grad is None and begun(slot, tensor_of(slot, value)):
                continue
            if slot.grad is None or slot.grad._slot is not None:
                accumulate(slot, constant_tensor(value))
            else:
                _add_to(slot.grad, value)


begun = native_or("begun", begun_in_python)
"""Give the slot of a leaf its first gradient, at once; False where it has one, as native sweeps do in other threads."""


def tensor_of(slot: AccumulateGrad, value: Array | float) -> Tensor:
    """Return a new gradient of a leaf as a tensor."""
    gradient, spec = new(Tensor), slot.spec
    gradient._value, gradient._slot = value, None
    gradient._form = spec if spec.alike else spec_of(value)
    return gradient


def _delivered_by_hooks(leaf: AccumulateGrad, value: Array | float) -> bool:
    leaf_hooks = hooks.existing(leaf)
    if leaf_hooks is not None:
        take_in(leaf, leaf_hooks, leaf_hooks.on_tensor(constant_tensor(value)))
    return leaf_hooks is not None


def take_in(leaf: AccumulateGrad, leaf_hooks: hooks.LeafHooks, gradient: Tensor, *, create: bool = False) -> None:
    """Run the hooks of a leaf's node on a gradient that its tensor's hooks have seen; add it to the leaf."""
    (passed_on,) = leaf_hooks.before_node([gradient])
    if passed_on is not None:
        unshared = (
            passed_on if passed_on._slot is not None else constant_tensor(scalar_or_array(np.array(passed_on._value)))
        )  # a hook may have kept it
        accumulate(leaf, unshared, create=create)


def tape_of(slot: int) -> Tape:
    """Return the tape that a slot is on; GradError if it is gone."""
    tape = tapes.living.get(slot >> TAPE_BITS)
    if tape is not None:
        return tape
    raise errors.GradError(
        f"{errors.SECOND_TIME} (or the thread that recorded this graph has ended, and its tape with it)"
    )


def accumulate(x: Tensor | AccumulateGrad, gradient: Tensor, *, create: bool = False) -> None:
    """Add a gradient, which nobody else holds, to ``.grad`` of a leaf or of a computed tensor.

    Of a computed tensor, and of a backward that ``create``s a graph, ``.grad`` is a new tensor then: a gradient that
    somebody holds stays as it is.
    """
    slot = x._slot if isinstance(x, Tensor) else x
    leaf = type(slot) is AccumulateGrad
    with ADDING:
        begins = leaf and slot.grad is None and _seen(slot) and begun(slot, gradient)
        old = None if begins else slot.grad if leaf else read_extras(x).grad  # type: ignore[arg-type]
        if old is not None and (create or not leaf or old._slot is not None or gradient._slot is not None):
            with grad_modes.enable_grad():
                gradient = old + gradient
        elif old is not None:
            _add_to(old, gradient._value)
            gradient = old
        if not leaf:
            make_extras(x).grad = gradient  # type: ignore[arg-type]
        elif not begins:
            _set(slot, gradient)
    if hooks.LEAVES and (leaf_hooks := hooks.existing(slot)) is not None:
        leaf_hooks.ended(slot.owner(), gradient)


def _set(leaf: AccumulateGrad, gradient: Tensor | None) -> None:
    """Set the gradient of a leaf, unless the leaf is gone: a gradient with a graph would keep itself alive."""
    leaf.grad = gradient if gradient is None or _seen(leaf) else None


def _seen(leaf: AccumulateGrad) -> bool:
    """Whether a leaf is still there; from now on its gradient is dropped when the leaf is.

    Instructions that saved nothing stay on the tape after a backward, dead, and hold the leaves that they use.
    """
    owner = leaf.owner()
    if owner is not None and leaf.owner.__callback__ is None:
        leaf.owner = ref(owner, partial(_forget, ref(leaf)))
    return owner is not None


def _forget(reference: ReferenceType[AccumulateGrad], _: object) -> None:
    """Drop a leaf's gradient. It reads no global, which may be gone at the end of a process."""
    leaf = reference()
    if leaf is not None:
        leaf.grad = None


def _add_to(old: Tensor, value: Array | float) -> None:
    """Add in place, as PyTorch does; what pullbacks still need of the gradient is copied first."""
    if type(old._value) is float:
        old._value += float(value)
    else:
        writes.protect(old)
        array = as_array(old)
        if array.shape != np.shape(value):
            raise RuntimeError(
                f"The size of .grad, {list(array.shape)}, must match that of a new gradient, {list(np.shape(value))}: "
                "the tensor has got other data; set .grad to None"
            )
        _add(array, value)


_add = adder()


def _get_grad(x: Tensor) -> Tensor | None:
    """The gradient that backward accumulated; None where there is none."""
    slot = x._slot
    if type(slot) is AccumulateGrad:
        return slot.grad
    extras = read_extras(x)
    if slot is not None and extras.grad is None and not extras.retains:
        warnings.warn(errors.NON_LEAF_GRAD, UserWarning, stacklevel=2)
    return extras.grad


def _set_grad(x: Tensor, value: Tensor | None) -> None:
    if value is x:
        raise RuntimeError("can't assign Variable as its own grad")
    if value is not None:
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {kind}")
        if value.spec.shape != x.spec.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value.spec.shape)}' to a tensor of size "
                f"'{list(x.spec.shape)}'. Please ensure that the gradient and the tensor are the same size"
            )
        if value.spec.dtype != x.spec.dtype:
            raise RuntimeError(
                f"attempting to assign a gradient of dtype {value.spec.dtype} to a tensor of dtype {x.spec.dtype}"
            )
    if type(x._slot) is AccumulateGrad:
        _set(x._slot, value)
    else:
        make_extras(x).grad = value


def _no_grad(x: Tensor) -> None:
    _set_grad(x, None)


method("grad")(grad_property(_get_grad, _set_grad, _no_grad))


@method()
def retain_grad(x: Tensor) -> None:
    """Let backward keep this computed tensor's gradient in ``.grad``."""
    if x._slot is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if type(x._slot) is int and not read_extras(x).retains:
        separate_gradient(x, "retain_grad")
        tape_of(x._slot).retain(x)
        make_extras(x).retains = True


_CLONE: Any = OPS["clone"]


def separate_gradient(x: Tensor, name: str) -> None:
    """Give an expanded view a gradient of its own shape, by recording a copy: before, its elements share one."""
    spec = x.spec
    if not shares(spec):
        return
    if _is_used(x._slot):
        raise NotImplementedError(
            f"{name} on an expanded tensor that has been used is not supported; call it right after expand"
        )
    form = record.cached_form((_CLONE, spec, "gradient"), lambda: _CLONE.form((spec,), spec_of(as_array(x))))
    form.name = x._form.name  # type: ignore[union-attr]
    view_families.record(tape_of(x._slot), x, form, (x._slot,))


def _is_used(slot: int) -> bool:
    for tape in tapes.every():
        with tape.reading():
            down_to = slot if slot >> TAPE_BITS == tape.number else 0
            if any(slot in instruction.operands for instruction in instructions(tape.entries, down_to)):
                return True
    return False


def shares(spec: Spec) -> bool:
    """Whether elements of a tensor share an element of its gradient, which an expanded view's do."""
    return not spec.covers and meets_itself(spec.shape, spec.gradient, spec.dtype.itemsize)


@attribute
def retains_grad(x: Tensor) -> bool:
    """Whether a computed tensor keeps its gradient."""
    return read_extras(x).retains
