"""``.grad``: what backward adds to leaves, and to computed tensors that retain theirs."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from kernels.arrays.specs import Spec, meets_itself, spec_of
from kernels.arrays.sweep_interface import Array
from kernels.foundation.locks import Lock
from kernels.instructions.entries import instructions
from kernels.native.object_structs import SMALL_GRADIENT
from kernels.native.tape_structs import TAPE_BITS
from kernels.native.tensor.leaf_type import beginner, grad_property
from kernels.ops.registry import OPS
from kernels.sweeps.leaves import adder
from tape import errors
from tape.operations import writes
from tape.recording import record
from tape.tensors import grad_modes, hooks, tapes, view_families
from tape.tensors.tapes import Tape
from tape.tensors.tensor import (
    AccumulateGrad,
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

ADDING = Lock(waited_for=True)
"""The lock of additions to ``.grad``, since threads may share a leaf; not held while hooks run."""


def deliver(leaves: list[tuple[AccumulateGrad, Array | float]]) -> None:
    """Add gradients to ``.grad`` of leaves."""
    if hooks.LEAVES:
        leaves = [pair for pair in leaves if id(pair[0]) not in hooks.LEAVES or not _delivered_by_hooks(*pair)]
    with ADDING:
        for slot, value in leaves:
            if slot.grad is None and (_is_lost(slot) or begun(slot, tensor_of(slot, value))):
                continue
            if slot.grad is None or slot.grad._slot is not None:
                accumulate(slot, constant_tensor(value))
            else:
                _add_to(slot.grad, value)


begun = beginner()
"""Give the slot of a leaf its first gradient, at once; False where it has one, as native sweeps do in other threads."""


def _is_lost(slot: AccumulateGrad) -> bool:
    """Whether a leaf with a large gradient is gone, so that nobody can read the gradient."""
    return slot.spec.bytes >= SMALL_GRADIENT and not _seen(slot)


def tensor_of(slot: AccumulateGrad, value: Array | float) -> Tensor:
    """Return a new gradient of a leaf as a tensor."""
    gradient, spec = new(Tensor), slot.spec
    gradient._value, gradient._slot = value, None
    gradient._form = spec if spec.alike else spec_of(value)
    return gradient


def _delivered_by_hooks(leaf: AccumulateGrad, value: Array | float) -> bool:
    """Add a gradient, after the leaf's hooks, if it has some."""
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
    """Whether an instruction of any tape has this slot for an operand."""
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
