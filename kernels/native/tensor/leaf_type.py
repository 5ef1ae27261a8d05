"""The slots of leaves, and the attribute ``.grad``, as native code knows them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from kernels.arrays.specs import SCALAR, spec_of
from kernels.compiler import jit
from kernels.native import numpy_api
from kernels.native.heap_types import DESCR_GET, DESCR_SET, MEMBERS, NATIVE, OBJECT, made, members
from kernels.native.object_structs import LeafObject, TensorExtras
from kernels.native.registry import REGISTRY, put
from kernels.native.tape_structs import RegistryTable

Class = TypeVar("Class", bound=type)
_SLOTS = {
    "grad": LeafObject.grad,
    "hooks": LeafObject.hooks,
    "over": LeafObject.over,
    "owner": LeafObject.owner,
    "spec": LeafObject.spec,
}
_EXTRAS = {
    "counter": TensorExtras.counter,
    "grad": TensorExtras.grad,
    "leaf": TensorExtras.leaf,
    "retains": TensorExtras.retains,
}
_DOC = 40


def _register(at: int, value: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    put(REGISTRY.address, at, id(value))


def leaf_type(cls: Class) -> Class:
    """Let native code make and read the slots of leaves, if this class lays out its attributes as expected."""
    if NATIVE and place_of(cls, *_SLOTS) == [*_SLOTS.values()]:
        _register(RegistryTable.leaf_type, cls)
        _register(RegistryTable.spec_of, spec_of)
        _register(RegistryTable.scalar_spec, SCALAR)
        put(REGISTRY.address, RegistryTable.copy_array, numpy_api.table()[numpy_api.NEW_COPY])
    return cls


def extras_type(cls: Class) -> Class:
    """Let native code make and read tensors' rare attributes, if this class lays them out as expected."""
    if NATIVE and place_of(cls, *_EXTRAS) == [*_EXTRAS.values()]:
        _register(RegistryTable.extras_type, cls)
    return cls


def place_of(cls: type, *names: str) -> list[int]:
    """Return the offsets of a class's ``__slots__``, in bytes."""
    probe = cls.__new__(cls)
    held = [object() for _ in names]
    for name, probe_value in zip(names, held, strict=True):
        setattr(probe, name, probe_value)
    row = (ctypes.c_size_t * (cls.__basicsize__ // 8)).from_address(id(probe))[:]
    places = [8 * row.index(id(probe_value)) for probe_value in held]
    for name in names:
        delattr(probe, name)
    return places


@functools.cache
def _property() -> Any:
    native, find = jit.load_module("native.tensor.lifetime_native"), ctypes.pythonapi.PyType_GetSlot
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    put(REGISTRY.address, RegistryTable.getter, find(property, DESCR_GET))
    put(REGISTRY.address, RegistryTable.setter, find(property, DESCR_SET))
    rows = {"__doc__": (OBJECT, _DOC, 0)}
    slots = {MEMBERS: members(rows), DESCR_GET: native.get_grad, DESCR_SET: native.set_grad}
    return made(f"{__name__}.Grad", property, slots, 0, 0)


def grad_property(get: Callable[..., Any], put_in: Callable[..., Any], forget: Callable[..., Any]) -> property:
    """Return the property ``grad``: native for leaves, and these functions for other tensors."""
    kind = _property() if NATIVE else property
    attribute: property = kind(get, put_in, forget, get.__doc__)
    return attribute


def maker() -> Callable[[Any, bool], Any]:
    """Return a function that makes a leaf of usual data, and returns None for other data."""
    return jit.bound("native.tensor.leaf_native", "made", None) if NATIVE else _nothing


def taker() -> Callable[[Any], Any]:
    """Return a function that makes a leaf of a transform's usual argument, and returns None for others."""
    return jit.bound("native.tensor.leaf_native", "taken", None) if NATIVE else lambda _: None


def _nothing(data: Any, requires_grad: bool) -> None:
    """Accept nothing: Python makes the leaf."""


def beginner() -> Callable[[Any, Any], bool]:
    """Return a function that gives a leaf its first gradient atomically; it returns False where there is one."""
    return jit.bound("native.tensor.lifetime_native", "begun", None) if NATIVE else _begun


def _begun(slot: Any, gradient: Any) -> bool:
    if slot.grad is not None:
        return False
    slot.grad = gradient
    return True
