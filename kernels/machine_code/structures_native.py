"""Structures of values: lists, tuples and dictionaries, opened and made natively, by steps made beforehand."""

from __future__ import annotations

from kernels.machine_code import call_structs
from kernels.machine_code.call_structs import StructureLevel, StructureStep
from kernels.native.c_api import (
    Py_DecRef,
    Py_IncRef,
    PyDict_New,
    PyDict_Next,
    PyDict_SetItem,
    PyDict_Size,
    PyList_New,
    PyList_SetItem,
    PyTuple_New,
    PyTuple_SetItem,
    thirty_words,
    three_words,
)
from kernels.native.memory import HEADER, LIST_ITEMS, load_i8, store_i8, word
from kernels.native.objects_native import owned

# Opening runs no Python code: keys are compared by identity. A structure that is being made is held by its outermost
# part, each part by the one around it.

CONTROL = True
TUPLE_ITEMS = tuple.__basicsize__  # where a tuple has its items


def begun(level: StructureLevel, parts, kind):
    """Begin a level."""
    level.parts = parts
    level.next = 0
    level.kind = kind


def next_part(level: StructureLevel, key):
    """The next part of a level; 0 where a dictionary has another key there."""
    parts, place = level.parts, level + 8 * StructureLevel.next
    if level.kind != call_structs.S_DICT:
        following = load_i8(place)
        store_i8(place, following + 1)
        return word(parts, following)
    out = three_words()
    if PyDict_Next(parts, place, out, out + 8) == 0 or load_i8(out) != key:
        return 0
    return load_i8(out + 8)


def parts_of(step: StructureStep, part):
    """Where the parts of a structure are, 0 if there are none; -1 where it is another one."""
    kind, count = step.kind, step.what
    if load_i8(part + 8) != step.type:
        return -1
    if kind == call_structs.S_DICT:
        return part if PyDict_Size(part) == count else -1
    if load_i8(part + HEADER) != count:
        return -1
    return part + TUPLE_ITEMS if kind == call_structs.S_TUPLE else load_i8(part + LIST_ITEMS)


def opened(steps, args, values):
    """Put the values in arguments behind one another, a new reference to each; how many, or -1 - count: other ones."""
    levels, depth, size, step = thirty_words(), 0, 0, StructureStep(steps)
    begun(levels, args, call_structs.S_TUPLE)
    while True:
        kind, level = step.kind, levels + 8 * StructureLevel.SIZE * depth
        if kind == call_structs.S_END:
            if depth == 0:
                return size
            depth -= 1
        else:
            part = next_part(level, step.key)
            if part == 0:
                return -1 - size
            if kind == call_structs.S_VALUE:
                Py_IncRef(part)
                store_i8(values + 8 * size, part)
                size += 1
            elif kind == call_structs.S_FIXED:
                if part != step.what:
                    return -1 - size
            else:
                parts = parts_of(step, part)
                if parts == -1:
                    return -1 - size
                depth += 1
                begun(levels + 8 * StructureLevel.SIZE * depth, parts, kind)
        step += 8 * StructureStep.SIZE
    return size


def released(values, size):
    """Release so many values."""
    for k in range(size):
        Py_DecRef(word(values, k))


def new_part(step: StructureStep):
    """A new structure without its parts; 0 with an exception."""
    kind = step.kind
    if kind == call_structs.S_DICT:
        return PyDict_New()
    return PyTuple_New(step.what) if kind == call_structs.S_TUPLE else PyList_New(step.what)


def put_part(level: StructureLevel, key, part):
    """Let a structure have its next part, whose reference is taken over; 0 with an exception."""
    whole, kind, following = level.parts, level.kind, level.next
    level.next = following + 1
    if kind == call_structs.S_DICT:
        failed = PyDict_SetItem(whole, key, part)
        Py_DecRef(part)
    elif kind == call_structs.S_TUPLE:
        failed = PyTuple_SetItem(whole, following, part)
    else:
        failed = PyList_SetItem(whole, following, part)
    return 1 if failed == 0 else 0


def built(steps, values, count):
    """Return values, so many, whose references it takes over, as a structure; 0 with an exception."""
    levels, depth, step, k = thirty_words(), 0, StructureStep(steps), 0
    whole = new_part(step)
    begun(levels, whole, step.kind)
    while whole != 0:
        step += 8 * StructureStep.SIZE
        kind, level = step.kind, levels + 8 * StructureLevel.SIZE * depth
        if kind == call_structs.S_END:
            if depth == 0:
                return whole
            depth -= 1
            continue
        if kind == call_structs.S_VALUE:
            part = word(values, k)
            k += 1
        else:
            part = owned(step.what) if kind == call_structs.S_FIXED else new_part(step)
        if part == 0 or put_part(level, step.key, part) == 0:
            Py_DecRef(whole)
            whole = 0
        elif kind != call_structs.S_VALUE and kind != call_structs.S_FIXED:
            depth += 1
            begun(levels + 8 * StructureLevel.SIZE * depth, part, kind)
    released(values + 8 * k, count - k)
    return 0
