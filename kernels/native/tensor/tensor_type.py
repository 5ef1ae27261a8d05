"""The native type of tensors: the methods of a class, on objects that native code lays out."""

from __future__ import annotations

from typing import Any, TypeVar

from kernels.compiler import jit
from kernels.native import registry
from kernels.native.heap_types import (
    BASETYPE,
    CLEAR,
    COLLECTED,
    DEALLOC,
    GETSET,
    MEMBERS,
    METHODS,
    MP_ASS_SUBSCRIPT,
    MP_SUBSCRIPT,
    NATIVE,
    NB_ADD,
    NB_MATRIX_MULTIPLY,
    NB_MULTIPLY,
    NB_NEGATIVE,
    NB_POWER,
    NB_SUBTRACT,
    NB_TRUE_DIVIDE,
    OBJECT,
    READONLY,
    SIZE,
    TRAVERSE,
    made,
    members,
    methods,
    properties,
)
from kernels.native.object_structs import TensorObject
from kernels.native.pool import guards
from kernels.native.tape_structs import RegistryTable

Class = TypeVar("Class", bound=type)

_MEMBERS = {
    "_value": (OBJECT, TensorObject.value, 0),
    "_form": (OBJECT, TensorObject.form, 0),
    "_base": (OBJECT, TensorObject.base, 0),
    "_views": (OBJECT, TensorObject.views, 0),
    "_shared": (OBJECT, TensorObject.shared, 0),
    "_extras": (OBJECT, TensorObject.extras, 0),
    "_offset": (SIZE, TensorObject.offset, 0),
    "_bytes": (SIZE, TensorObject.bytes, 0),
    "__weaklistoffset__": (SIZE, TensorObject.weak, READONLY),
}
_REPLACED = frozenset({"__dict__", "__weakref__", "__slots__", "__module__", "__del__", "_slot", "_unheld", *_MEMBERS})
"""Attributes of the class that the native type replaces, or lacks."""


def tensor_type(cls: Class) -> Class:
    """Return the native type with the methods of a class, for use as its decorator; the class, without native code."""
    if not NATIVE:
        return cls
    registry.announce()
    if guards.DEBUG:
        guards.install()
    native = jit.load_module("native.tensor.lifetime_native")
    calls, parts = jit.load_module("native.calls.functions_native"), jit.load_module("native.indexing.parts_native")
    slots = {
        MP_SUBSCRIPT: parts.mp_subscript,
        MP_ASS_SUBSCRIPT: parts.mp_ass_subscript,
        NB_ADD: calls.nb_add,
        NB_SUBTRACT: calls.nb_subtract,
        NB_MULTIPLY: calls.nb_multiply,
        NB_TRUE_DIVIDE: calls.nb_true_divide,
        NB_POWER: calls.nb_power,
        NB_NEGATIVE: calls.nb_negative,
        NB_MATRIX_MULTIPLY: calls.nb_matrix_multiply,
        MEMBERS: members(_MEMBERS),
        GETSET: properties({"_slot": (native.get_slot, native.set_slot)}),
        METHODS: methods({"_unheld": native.unheld}, without=True),
        **_memory(native),
    }
    native_class = _with_methods(made(_name(cls), object, slots, TensorObject.SIZE, BASETYPE | COLLECTED), cls)
    registry.put(registry.REGISTRY.address, RegistryTable.tensor_type, id(native_class))
    return native_class


def same_layout(cls: Class) -> Class:
    """Return the native type of a class that derives from one: their instances may change from one to the other."""
    if not NATIVE:
        return cls
    slots = _memory(jit.load_module("native.tensor.lifetime_native"))
    return _with_methods(made(_name(cls), cls.__base__, slots, 0, BASETYPE | COLLECTED), cls)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _memory(native: Any) -> dict[int, Any]:
    return {TRAVERSE: native.traverse, CLEAR: native.clear, DEALLOC: native.dealloc}


def _with_methods(native: Any, cls: type) -> Any:
    for name, value in vars(cls).items():
        if name not in _REPLACED:
            setattr(native, name, value)
    native.__name__ = cls.__name__  # errors name a type by this
    return native
