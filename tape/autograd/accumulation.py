"""``.grad``: what backward adds to leaves, and to computed tensors that retain theirs."""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import Any

import numpy as np

from kernels import forms
from kernels.layouts import Spec, spec_of
from kernels.observing import Array
from kernels.tables import OPS
from kernels.words import TAPE_BITS
from tape import errors, modes, recording
from tape.modes import Tape
from tape.tensor import AccumulateGrad, Tensor, as_array, attribute, carried, fresh, method, plain


def deliver(leaves: list[tuple[AccumulateGrad, Array | float]]) -> None:
    """Add gradients to ``.grad`` of leaves."""
    for slot, value in leaves:
        if slot.grad is None:
            slot.grad = fresh(value, slot.spec)
        else:
            _add_to(slot.grad, value)


def tape_of(slot: int) -> Tape:
    """Return the tape that a slot is on; GradError if it is gone."""
    tape = modes.tapes.get(slot >> TAPE_BITS)
    if tape is not None:
        return tape
    raise errors.GradError(
        f"{errors.SECOND_TIME} (or the thread that recorded this graph has ended, and its tape with it)"
    )


def accumulate(x: Tensor, gradient: Array) -> None:
    """Add a gradient to ``.grad`` of a leaf or of a computed tensor."""
    value = carried(gradient)
    slot = x._slot
    old = slot.grad if type(slot) is AccumulateGrad else getattr(x, "_grad", None)
    if old is not None:
        _add_to(old, value)
    elif type(slot) is AccumulateGrad:
        slot.grad = plain(value)
    else:
        x._grad = plain(value)


def _add_to(old: Tensor, value: Array | float) -> None:
    """Add in place: whoever holds the gradient sees it grow, as in PyTorch."""
    if type(old._value) is float:
        old._value += float(value)
    else:
        np.add(old._value, value, out=as_array(old))


def _get_grad(x: Tensor) -> Tensor | None:
    """The gradient that backward accumulated; None where there is none."""
    slot = x._slot
    if type(slot) is AccumulateGrad:
        return slot.grad
    if slot is not None and not hasattr(x, "_grad") and not hasattr(x, "_retains"):
        warnings.warn(errors.NON_LEAF_GRAD, UserWarning, stacklevel=2)
    return getattr(x, "_grad", None)


def _set_grad(x: Tensor, value: Tensor | None) -> None:
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
        x._slot.grad = value
    elif value is None:
        if hasattr(x, "_grad"):
            del x._grad
    else:
        x._grad = value


method("grad")(property(_get_grad, _set_grad))


@method()
def retain_grad(x: Tensor) -> None:
    """Let backward keep this computed tensor's gradient in ``.grad``."""
    if x._slot is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if type(x._slot) is int and not hasattr(x, "_retains"):
        _give_shadow(x)
        retained, key = tape_of(x._slot).retained, id(x)
        retained[key] = weakref.ref(x, lambda _: retained.pop(key, None))
        x._retains = True


_CLONE: Any = OPS["clone"]


def _give_shadow(x: Tensor) -> None:
    """Let an expanded view have a gradient of its own shape: until then its elements share one."""
    spec = x.spec
    if not shares(spec):
        return
    if sys.getrefcount(x._slot) > _UNUSED:
        raise NotImplementedError(
            "retain_grad on an expanded tensor that has been used is not supported; call it right after expand"
        )
    form = recording.cached_form((_CLONE, spec, "shadow"), lambda: forms.copy(_CLONE, spec, spec_of(as_array(x))))
    tape, viewed = tape_of(x._slot), x._slot
    form.name = x._form.name  # type: ignore[union-attr]
    x._form, x._slot = form, tape.fresh()
    tape.extend((x._slot, viewed, form.code))


_UNUSED = 3
"""References to a slot that nothing uses yet: the tape's, the tensor's, and the argument of getrefcount."""


def shares(spec: Spec) -> bool:
    """Whether elements of a tensor share an element of its gradient, which an expanded view's do."""
    return any(stride == 0 and n > 1 for stride, n in zip(spec.gradient, spec.shape, strict=True))


@attribute
def retains_grad(x: Tensor) -> bool:
    """Whether a computed tensor keeps its gradient."""
    return hasattr(x, "_retains")
