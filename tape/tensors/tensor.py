"""The tensor: state only. The rooms above install its methods with :func:`method`."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeAlias, TypeVar
from weakref import ReferenceType, ref

import numpy as np

from kernels.calls.object_types import extras_type, leaf_type, native_or, tensor_type
from kernels.foundation.specs import Spec, spec_of
from kernels.kinds.form import Descriptor
from kernels.kinds.reference_tape import SlotHolder
from tape.tensors.modes import ON_MADE, active, settle

Array = np.ndarray[Any, Any]
Installed = TypeVar("Installed", bound=Callable[..., Any] | property)


@leaf_type
class AccumulateGrad:
    """The slot of a leaf that requires grad: where sweeps deliver its gradient, and the leaf's node in the graph."""

    __slots__ = ("__weakref__", "grad", "hooks", "is_transform_input_done", "owner", "spec")

    spec: Spec
    grad: Tensor | None
    hooks: Any  # the leaf's hooks; the attribute is not set where there are none
    owner: ReferenceType[Tensor]  # the leaf: when it is gone, nobody can see the gradient
    is_transform_input_done: bool
    """Set, to True, where the leaf was an input of a finished transform: nobody can differentiate by it any more."""

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """Nothing: the graph ends here."""
        return ()

    def name(self) -> str:
        """Return PyTorch's name of this kind of node."""
        return "torch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


Slot: TypeAlias = int | AccumulateGrad | None
"""Where the gradient of a tensor goes.

- ``int``: the tensor was computed, and recorded: the number of its instruction, which names the tape too;
- ``AccumulateGrad``: the tensor is a leaf that requires grad: the object that its gradient is delivered to;
- ``None``: the tensor does not require grad.

``type(slot) is int`` and ``type(slot) is AccumulateGrad`` tell them apart, here and in native code. ``Tensor._slot``
itself is annotated as Any: most readers know which of the three they have.
"""
Value: TypeAlias = np.ndarray[Any, Any] | float
"""A tensor's numbers: a Python float for a fresh 0-d float64 result, else an array; :func:`as_array` makes it one."""


@extras_type
class Extras:
    """Attributes that few tensors have, kept apart so that all others stay small.

    ``counter`` counts the writes to the memory. ``grad`` is the ``.grad`` of a computed tensor that ``retains`` its
    gradient, or of a former leaf, whose slot is in ``leaf`` until it requires grad again.
    """

    __slots__ = ("counter", "grad", "leaf", "retains")

    counter: list[int] | None
    grad: Tensor | None
    leaf: AccumulateGrad | None
    retains: bool

    def __init__(self) -> None:
        self.counter = self.grad = self.leaf = None
        self.retains = False


@tensor_type
class Tensor(SlotHolder):
    """An array that knows how it was computed. Make one with ``tape.tensor`` or an operation.

    Every tensor has a ``_value``, a ``_slot`` and a ``_form``; see ``Value``, ``Slot`` and ``Descriptor``. A view has
    an ``_offset``, where it begins in the gradient buffer of its family, in bytes. The others are set only where they
    are needed: a view's ``_base``, the ``_views`` of a base, ``_shared`` if memory is seen outside of the family, and
    ``_extras``.
    """

    __slots__ = (
        "__weakref__", "_base", "_bytes", "_extras", "_form", "_node", "_offset", "_shared", "_value", "_views",
    )  # fmt: skip

    _value: Value
    _form: Descriptor
    _offset: int
    _base: Tensor
    _views: list[ReferenceType[Tensor]]
    _shared: bool
    _extras: Extras
    _bytes: int  # of a large tensor: how many bytes may be freed when it dies
    _node: int  # of a program that is being recorded: its recorder's serial, and below that the node

    __hash__ = object.__hash__

    @property
    def spec(self) -> Spec:
        """Shape, strides and dtype."""
        return self._form.spec


new = object.__new__
_NOTHING = Extras()


def holder(slot: Slot, form: Descriptor) -> Tensor:
    """Return a tensor without a value, which keeps the instruction of a slot alive."""
    self = new(Tensor)
    self._slot, self._form = slot, form
    return self


def read_extras(x: Tensor) -> Extras:
    """Return a tensor's extra attributes for reading: shared defaults where it has none."""
    return getattr(x, "_extras", _NOTHING)


def make_extras(x: Tensor) -> Extras:
    """Return a tensor's extra attributes for changing; they are made where it has none."""
    extras: Extras | None = getattr(x, "_extras", None)
    if extras is None:
        extras = x._extras = Extras()
    return extras


def constant_tensor(value: Array | float) -> Tensor:
    """Return a tensor without history; the value is shared, not copied. NumPy's scalars become 0-d arrays."""
    if isinstance(value, np.generic):
        value = scalar_or_array(value)
    self = new(Tensor)
    self._value = value
    self._slot = None
    self._form = spec_of(value)
    return self


made = native_or("made", lambda *_: None)
"""Return a new leaf with a copy of a float, a list of floats or a small array of doubles; None for anything else."""
lent = native_or("lent", lambda _: None)
"""Return a new tensor of an array's memory, which others may write; None for an unusual array, or anything else."""
taken = native_or("taken", lambda _: None)
"""Return a new leaf with a copy of a float or a small array of doubles, or with a tensor's value; None otherwise."""


def leaf(value: Array | float, *, requires_grad: bool) -> Tensor:
    """Return a tensor without history that may require grad."""
    self = new(Tensor)
    self._value = value
    self._form = spec = spec_of(value)
    if requires_grad:
        self._slot = slot = new(AccumulateGrad)
        slot.spec, slot.grad, slot.owner = spec, None, ref(self)
        tape = active()
        if tape and tape.thread != get_ident():
            settle()
    else:
        self._slot = None
    if ON_MADE:
        ON_MADE[-1](self)
    return self


def root(x: Tensor) -> Tensor:
    """Turn a tensor without history or views into a leaf that requires grad; return it."""
    x._slot = slot = new(AccumulateGrad)
    slot.spec, slot.grad, slot.owner = x._form.spec, None, ref(x)
    settle()
    return x


def is_tensor(input: object) -> bool:
    """Return whether an object is a tensor."""
    return isinstance(input, Tensor)


def scalar_or_array(value: Any) -> Value:
    """Return a result as the value of a tensor: 0-d float64 as a Python float, everything else as an array."""
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
