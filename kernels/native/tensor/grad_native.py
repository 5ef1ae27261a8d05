"""``.grad`` of leaves, read, set to None and first set natively."""

from __future__ import annotations

from kernels.compiler.native_types import Int32, Word
from kernels.native.memory import load_i8, word
from kernels.native.object_structs import STALE, LeafObject, TensorObject
from kernels.native.objects_native import kind_of, none, wrong
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    call_get,
    call_set,
    tape_registry,
)
from kernels.native.tape_structs import RegistryTable

CONTROL = True


def leaf_at(registry: RegistryTable, x: TensorObject):
    """The slot of a tensor that is a leaf; 0 for anything else."""
    slot = x.slot if kind_of(x) == registry.tensor_type else 0
    return -slot if slot < STALE and kind_of(-slot) == registry.leaf_type else 0


def get_grad(self: Word, x: Word, kind: Word) -> Word:
    registry = tape_registry()
    leaf = LeafObject(leaf_at(registry, x) if x != 0 else 0)
    if leaf == 0:
        return call_get(registry.getter, self, x, kind)
    gradient = leaf.grad
    if gradient == 0:
        return none(registry)
    Py_IncRef(gradient)
    return gradient


def set_grad(self: Word, x: Word, value: Word) -> Int32:
    registry = tape_registry()
    leaf = LeafObject(leaf_at(registry, x) if value == registry.none else 0)
    if leaf == 0:
        return call_set(registry.setter, self, x, value)
    before = leaf.grad
    if before != value:
        Py_IncRef(value)
        leaf.grad = value
        if before != 0:
            Py_DecRef(before)
    return 0


def begun(self: Word, args: Word, count: Word) -> Word:
    """``begun(slot, gradient)``: give the slot of a leaf its first gradient; False where it has one."""
    registry = tape_registry()
    if count != 2 or kind_of(load_i8(args)) != registry.leaf_type:
        return wrong(registry)
    leaf, result = LeafObject(load_i8(args)), registry.false
    before = leaf.grad
    if before == 0 or before == registry.none:
        Py_IncRef(word(args, 1))
        leaf.grad = word(args, 1)
        if before != 0:
            Py_DecRef(before)
        result = registry.true
    Py_IncRef(result)
    return result
