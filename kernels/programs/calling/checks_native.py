"""Checks of what a program reads from outside: words, entries, items, bytes and containers are as they were.

All holders are kept alive by whoever made the checks, and so is what is expected: where addresses agree, so do objects.
Whole dictionaries are compared by identity, in order, without any Python code; what has failed is Python's to look at.
"""

from __future__ import annotations

from kernels.native.memory import HEADER, LIST_ITEMS, load_i1, load_i8, store_i8, word
from kernels.native.python_api import (
    Py_DecRef,
    PyDict_GetItemWithError,
    PyDict_Next,
    PyDict_Size,
    PyErr_Clear,
    PyErr_Occurred,
    PyObject_GenericGetDict,
    three_words,
)
from kernels.programs.calling.direct_call_structs import (
    CHECK_ATTRIBUTES,
    CHECK_DICT,
    CHECK_ENTRY,
    CHECK_ITEM,
    CHECK_LIST,
    CHECK_WORD,
    PlanCheck,
)

CONTROL = True


def same_bytes(a, b, size):
    """Whether bytes of two places are the same."""
    at, whole = 0, size & ~7
    while at < whole:
        if load_i8(a + at) != load_i8(b + at):
            return 0
        at += 8
    while at < size:
        if load_i1(a + at) != load_i1(b + at):
            return 0
        at += 1
    return 1


def is_entry(entry, expected):
    """Whether what was looked up, 0 for nothing, is what has to be there; no exception remains."""
    if entry == 0 and PyErr_Occurred() != 0:
        PyErr_Clear()
        return 0
    return 1 if entry == expected else 0


def same_entries(dictionary, entries, count):
    """Whether a dictionary has these keys and values, in this order, and no others."""
    if PyDict_Size(dictionary) != count:
        return 0
    out, k = three_words(), 0
    store_i8(out, 0)
    while k < count:
        if PyDict_Next(dictionary, out, out + 8, out + 16) == 0:
            return 0
        if load_i8(out + 8) != word(entries, 2 * k) or load_i8(out + 16) != word(entries, 2 * k + 1):
            return 0
        k += 1
    return 1


def has_attributes(holder, expected):
    """Whether an object has its attributes in this dictionary."""
    dictionary = PyObject_GenericGetDict(holder, 0)
    same = is_entry(dictionary, expected)
    if dictionary != 0:
        Py_DecRef(dictionary)
    return same


def same_parts(kind, holder, key, expected):
    """Whether all items, entries, attributes or bytes are as they were."""
    if kind == CHECK_LIST:
        return same_bytes(load_i8(holder + LIST_ITEMS), expected, 8 * key) if load_i8(holder + HEADER) == key else 0
    if kind == CHECK_DICT:
        return same_entries(holder, expected, key)
    if kind == CHECK_ATTRIBUTES:
        return has_attributes(holder, expected)
    return same_bytes(holder, expected, key)


def holds(check: PlanCheck):
    """Whether what a check looks at is as it was."""
    kind, holder, key, expected = (
        check.kind,
        check.holder,
        check.key,
        check.expected,
    )
    if kind == CHECK_WORD:
        return 1 if load_i8(holder + key) == expected else 0
    if kind == CHECK_ENTRY:
        return is_entry(PyDict_GetItemWithError(holder, key), expected)
    if kind == CHECK_ITEM:
        return 1 if word(load_i8(holder + LIST_ITEMS), key) == expected else 0
    return same_parts(kind, holder, key, expected)
