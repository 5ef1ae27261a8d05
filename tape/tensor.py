"""The tensor: state only. The rooms above install its methods with :func:`method`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels.forms import Form
from kernels.layouts import Spec, spec_of

Array = np.ndarray[Any, Any]
Installed = TypeVar("Installed", bound=Callable[..., Any] | property)


class AccumulateGrad:
    """The slot of a leaf that requires grad: where sweeps deliver its gradient, and the leaf's node in the graph."""

    __slots__ = ("__weakref__", "grad", "spec")

    spec: Spec
    grad: Tensor | None

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.grad = None

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """Nothing: the graph ends here."""
        return ()

    def name(self) -> str:
        """Return PyTorch's name of this kind of node."""
        return "torch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


class Tensor:
    """An array that knows how it was computed. Make one with ``tape.tensor`` or an operation.

    ``_value`` is a Python float for a fresh 0-d float64 result, else an ndarray. ``_slot`` is None where no
    gradient is wanted, the leaf's AccumulateGrad, or the result's number on the tape. ``_form`` is the form of the
    instruction that made it, or a bare spec. A view has ``_offset``, its place in the shadow of its family, in
    bytes. ``_grad``, ``_base`` and ``_retains`` are set only where they are needed.
    """

    __slots__ = ("__weakref__", "_base", "_form", "_grad", "_offset", "_retains", "_slot", "_value")

    _value: Array | float
    _slot: Any
    _form: Form | Spec
    _offset: int
    _base: Tensor
    _grad: Tensor
    _retains: bool

    __hash__ = object.__hash__

    @property
    def spec(self) -> Spec:
        """Shape, strides and dtype."""
        return self._form.spec


new = object.__new__


def plain(value: Array | float) -> Tensor:
    """Return a tensor without history; the value is shared, not copied."""
    self = new(Tensor)
    self._value = value
    self._slot = None
    self._form = spec_of(value)
    return self


def fresh(value: Array | float, like: Spec) -> Tensor:
    """Return a tensor without history of a new, contiguous value, whose spec is most likely ``like``."""
    self = new(Tensor)
    self._value = value
    self._slot = None
    self._form = like if like.strides == like.gradient else spec_of(value)
    return self


def leaf(value: Array | float, *, requires_grad: bool) -> Tensor:
    """Return a tensor without history that may require grad."""
    self = new(Tensor)
    self._value = value
    self._form = spec = spec_of(value)
    self._slot = AccumulateGrad(spec) if requires_grad else None
    return self


def is_tensor(x: object) -> bool:
    """Return whether an object is a tensor."""
    return isinstance(x, Tensor)


def carried(value: Any) -> Array | float:
    """Return a result as tensors carry it: 0-d float64 as a Python float, everything else as an array."""
    if type(value) is np.float64:
        return float(value)
    array = np.asarray(value)
    return float(array) if array.ndim == 0 and array.dtype == np.float64 else array


def as_array(tensor: Tensor) -> Array:
    """Return the value as an array that the tensor keeps from now on, so that views of it share memory."""
    value = tensor._value
    if type(value) is float:
        value = tensor._value = np.array(value)
    return value  # type: ignore[return-value]


def method(name: str = "") -> Callable[[Installed], Installed]:
    """Install a function as a method, or a property as an attribute, of Tensor."""

    def install(function: Installed) -> Installed:
        called = name or getattr(function, "__name__", "")
        if called in vars(Tensor):
            raise TypeError(f"Tensor.{called} is installed twice")
        setattr(Tensor, called, function)
        return function

    return install


def attribute(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Install a function of a tensor as a read-only attribute."""
    method(function.__name__)(property(function))
    return function
