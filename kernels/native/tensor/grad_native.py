"""``.grad`` of leaves, read, set to None and first set natively."""

from __future__ import annotations

from kernels.compiler.signatures import Int32, Word
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.objects_native import kind_of, none, wrong
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    call_get,
    call_set,
    tape_registry,
)
from kernels.native.words import (
    G_FALSE,
    G_GETS,
    G_LEAF,
    G_NONE,
    G_SETS,
    G_TENSOR,
    G_TRUE,
    L_GRAD,
    O_SLOT,
    STALE,
)

CONTROL = True


def leaf_at(registry, x):
    """The slot of a tensor that is a leaf; 0 for anything else."""
    slot = load_i8(x + O_SLOT) if kind_of(x) == word(registry, G_TENSOR) else 0
    return -slot if slot < STALE and kind_of(-slot) == word(registry, G_LEAF) else 0


def get_grad(self: Word, x: Word, kind: Word) -> Word:
    registry = tape_registry()
    leaf = leaf_at(registry, x) if x != 0 else 0
    if leaf == 0:
        return call_get(word(registry, G_GETS), self, x, kind)
    gradient = load_i8(leaf + L_GRAD)
    if gradient == 0:
        return none(registry)
    Py_IncRef(gradient)
    return gradient


def set_grad(self: Word, x: Word, value: Word) -> Int32:
    registry = tape_registry()
    leaf = leaf_at(registry, x) if value == word(registry, G_NONE) else 0
    if leaf == 0:
        return call_set(word(registry, G_SETS), self, x, value)
    before = load_i8(leaf + L_GRAD)
    if before != value:
        Py_IncRef(value)
        store_i8(leaf + L_GRAD, value)
        if before != 0:
            Py_DecRef(before)
    return 0


def begun(self: Word, args: Word, count: Word) -> Word:
    """``begun(slot, gradient)``: give the slot of a leaf its first gradient; False where it has one."""
    registry = tape_registry()
    if count != 2 or kind_of(load_i8(args)) != word(registry, G_LEAF):
        return wrong(registry)
    leaf, result = load_i8(args), word(registry, G_FALSE)
    before = load_i8(leaf + L_GRAD)
    if before == 0 or before == word(registry, G_NONE):
        Py_IncRef(word(args, 1))
        store_i8(leaf + L_GRAD, word(args, 1))
        if before != 0:
            Py_DecRef(before)
        result = word(registry, G_TRUE)
    Py_IncRef(result)
    return result
