"""Tensors converted to Python and NumPy: numbers, lists, arrays, copies and pickles."""

from __future__ import annotations

import copy
import sys
import warnings
from typing import Any

import numpy as np

from tape import errors
from tape.conversions import scipy_calls
from tape.conversions.attributes import detach
from tape.foundation.call_sites import stack_level
from tape.recording import record
from tape.recording.views import clone, view
from tape.tensors import modes, view_families
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array, leaf, method


@method()
def item(x: Tensor) -> Any:
    """Return the only element as a Python number."""
    if x.spec.size != 1:
        raise RuntimeError(f"a Tensor with {x.spec.size} elements cannot be converted to Scalar")
    record.note_number(x)
    value = x._value
    return value if type(value) is float else value.item()  # type: ignore[union-attr]


@method()
def tolist(x: Tensor) -> Any:
    """Return the elements as nested lists of Python numbers."""
    record.note_escape(x)
    return as_array(x).tolist()


@method()
def numpy(x: Tensor, *, force: bool = False) -> Array:
    """Return the value as an array of the same memory; raises if the tensor requires grad.

    Unless ``force``, or where gradients are off.
    """
    if x._slot is not None and not force and modes.is_grad_enabled():
        raise RuntimeError(errors.NUMPY_EXIT)
    record.note_escape(x)
    # The memory is shared, not the array object, whose shape the caller may set.
    return view_families.handed_out(x)


def _warn(x: Tensor, conversion: str) -> None:
    """Warn that a gradient ends here; Python shows it once for each of the caller's lines.

    A function of numbers that the tensor was given to is refused: there a warning would pass unseen.
    """
    if x._slot is not None:
        refused = scipy_calls.refusal_of_number(sys._getframe(2), x) if modes.is_grad_enabled() else None
        if refused is not None:
            raise refused
        warnings.warn(
            f"{conversion}() of a tensor that requires grad leaves the graph: what follows has no gradient. "
            "Write .item() or .detach() where that is meant",
            errors.DetachWarning,
            stacklevel=3,
        )


def _number(x: Tensor) -> Any:
    if x.spec.size != 1:
        raise ValueError(f"only one element tensors can be converted to Python scalars; this one has {x.spec.size}")
    return item(x)


@method()
def equal(input: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have one shape and equal elements; ``input == other`` compares element by element."""
    return input.spec.shape == other.spec.shape and bool((input.detach() == other.detach()).all())


@method("__float__")
def to_float(x: Tensor) -> float:
    """Return the only element as a float, with a warning if it requires grad."""
    value = _number(x)
    _warn(x, "float")
    return float(value)


@method("__int__")
def to_int(x: Tensor) -> int:
    """Return the only element as an int, with a warning if it requires grad."""
    value = _number(x)
    _warn(x, "int")
    return int(value)


@method("__index__")
def to_index(x: Tensor) -> int:
    """Return an integer tensor of one element as an index."""
    if x.spec.dtype.kind not in "iub" or x.spec.size != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(x))


@method("__bool__")
def to_bool(x: Tensor) -> bool:
    """Return the truth of the only element."""
    if x.spec.size != 1:
        amount = "no values" if x.spec.size == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {amount} is ambiguous")
    return bool(item(x))


@method("__format__")
def formatted(x: Tensor, text: str) -> str:
    """Format the only element of a 0-d tensor, other tensors as str does."""
    return object.__format__(x, text) if x.spec.shape else format(item(x), text)


@method("__deepcopy__")
def deepcopy(x: Tensor, memo: dict[int, Any]) -> Tensor:
    """Copy a leaf with its gradient; a computed tensor raises, as in PyTorch."""
    if not record.leaf_of(x):
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment"
        )
    record.note_escape(x)
    result = leaf(copy.copy(x._value), requires_grad=x._slot is not None)
    if type(x._slot) is AccumulateGrad and x._slot.grad is not None:
        result._slot.grad = clone(x._slot.grad)
    memo[id(x)] = result
    return result


@method("__copy__")
def shallow_copy(x: Tensor) -> Tensor:
    """Return another tensor of the same memory: of a leaf a leaf, of a computed tensor one of the same graph."""
    if not record.leaf_of(x):
        return view(x, x.spec.shape)
    return detach(x).requires_grad_(x._slot is not None)


@method("__reduce__")
def reduce(x: Tensor) -> Any:
    """Pickle the value; what is read is a leaf, as in PyTorch, since a graph stays in its process."""
    record.note_escape(x)
    return _rebuild_tensor, (x._value, x._slot is not None)


def _rebuild_tensor(value: Any, requires_grad: bool) -> Tensor:
    return leaf(value, requires_grad=requires_grad)


_rebuild_tensor.__module__ = "tape"  # what pickles name stays, wherever this stands


def numbers_of(x: Tensor) -> Any:
    """Return a tensor's value as an array, or of one number in float64 as a float."""
    record.note_escape(x)
    if type(x._value) is float:
        return x._value
    array = as_array(x)
    return float(array) if array.ndim == 0 and array.dtype == np.float64 else array


def warn_of_detaching(api: str) -> None:
    """Warn that numbers leave the graph: what follows has no gradient."""
    warnings.warn(
        f"{api}: the function uses a tensor that requires grad, but was given NumPy's arrays and numbers, and so "
        "returns such: what follows has no gradient by that tensor. Pass the arguments as tensors, or .detach() it",
        errors.DetachWarning,
        stacklevel=stack_level(),
    )
