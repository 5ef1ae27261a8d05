"""``x[key]`` by ints, slices, None and Ellipsis as one native call, where the same has been asked of a form before."""

from __future__ import annotations

from kernels.jit import cfunc, load_module, njit
from kernels.memory import load_i4, load_i8, store_i8, word
from kernels.numpy_api import new_view, set_base
from kernels.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyErr_Occurred,
    PyList_Append,
    PyList_New,
    PyList_Size,
    PyLong_AsLongLong,
    PyTuple_GetItem,
    PyTuple_Size,
    PyType_GenericAlloc,
    PyWeakref_NewRef,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.words import (
    A_DATA,
    A_DTYPE,
    A_FLAGS,
    A_WRITEABLE,
    B_ENTRIES,
    B_FORM,
    E_BLOCK,
    E_CODE,
    E_COUNT,
    E_FORM,
    E_KEY,
    E_KIND,
    E_LARGE,
    E_NDIM,
    E_OFFSET,
    E_SHAPE,
    E_START,
    E_STRIDES,
    ELLIPSIS_ITEM,
    FARTHEST,
    G_ARRAY,
    G_BASE,
    G_ELLIPSIS,
    G_INT,
    G_NONE,
    G_SLICE,
    G_TENSOR,
    G_TUPLE,
    G_VIEW,
    INT_ITEM,
    MOST_ITEMS,
    MOST_VIEWS,
    NEW_ITEM,
    NO_BOUND,
    O_BASE,
    O_BYTES,
    O_FORM,
    O_OFFSET,
    O_SLOT,
    O_VALUE,
    O_VIEWS,
    OP_PART,
    SLICE_ITEM,
    SLOWLY,
    T_ROOM,
    T_SIZE,
    T_WORDS,
    UNHELD,
)

kind_of = load_module("objects_native").kind_of
_tape = load_module("tape_native")
commit, reserve = _tape.commit, _tape.reserve
keep = load_module("computing_native").keep
_calls = load_module("calls_native")
find, reused, missed = _calls.find, _calls.reused, _calls.missed
_telling = load_module("telling_native")
tape_in_force, tell = _telling.tape_in_force, _telling.tell


@njit(cache=True, error_model="numpy")
def bound(registry, x):
    """The word of a bound of a slice, or of an int; FARTHEST for anything else."""
    if x == word(registry, G_NONE):
        return NO_BOUND
    if kind_of(x) != word(registry, G_INT):
        return FARTHEST
    found = PyLong_AsLongLong(x)
    if found == -1 and PyErr_Occurred() != 0:
        PyErr_Clear()
        return FARTHEST
    return found if found > -FARTHEST and found < FARTHEST else FARTHEST


@njit(cache=True, error_model="numpy")
def item(registry, x, out):
    """Write the words of an item of an index; return how many, 0 for one that native code does not take."""
    kind = kind_of(x)
    if kind == word(registry, G_INT):
        store_i8(out, INT_ITEM)
        store_i8(out + 8, bound(registry, x))
        return 2 if load_i8(out + 8) != FARTHEST else 0
    if kind == word(registry, G_SLICE):
        store_i8(out, SLICE_ITEM)
        known = 4
        for k in range(3):
            found = bound(registry, load_i8(x + 16 + 8 * k))
            store_i8(out + 8 + 8 * k, found)
            if found == FARTHEST:
                known = 0
        return known
    if x == word(registry, G_NONE) or x == word(registry, G_ELLIPSIS):
        store_i8(out, NEW_ITEM if x == word(registry, G_NONE) else ELLIPSIS_ITEM)
        return 1
    return 0


@njit(cache=True, error_model="numpy")
def key_words(registry, key, out):
    """Write the words of an index behind their count; 0 for one that native code does not take."""
    count = 1
    if kind_of(key) == word(registry, G_TUPLE):
        items = PyTuple_Size(key)
        if items > MOST_ITEMS:
            return 0
        for k in range(items):
            more = item(registry, PyTuple_GetItem(key, k), out + 8 * count)
            if more == 0:
                return 0
            count += more
        store_i8(out + 8 * count, 0)
        count += 1  # (3,) and 3 are alike, but () and ... need not be
    else:
        more = item(registry, key, out + 8)
        if more == 0:
            return 0
        count += more
    store_i8(out, count)
    return count


@njit(cache=True, error_model="numpy")
def hash_of(words):
    found = 0
    for k in range(load_i8(words)):
        found = (found ^ word(words, k)) * 5871781006564002453
        found ^= found >> 29
    return found & (FARTHEST - 1)


@njit(cache=True, error_model="numpy")
def look_up(registry, x, t, words, hashed):
    """The entry of this index of tensors of a form; 0 if there is none, or native code cannot do it now."""
    value, slot = load_i8(x + O_VALUE), load_i8(x + O_SLOT)
    if value == 0 or kind_of(value) != word(registry, G_ARRAY):
        return 0
    entry = find(registry, OP_PART, load_i8(x + O_FORM), hashed, 0, 1 if t != 0 and slot != 0 else 0, 0)
    if entry == 0 or word(entry, E_KIND) == SLOWLY:
        return 0
    for k in range(load_i8(words)):
        if word(word(entry, E_KEY), k) != word(words, k):
            return 0
    views = load_i8((load_i8(x + O_BASE) if word(entry, E_COUNT) != 0 else x) + O_VIEWS)
    count = PyList_Size(views) if views != 0 else 0
    block = word(entry, E_BLOCK)
    if count < 0 or (count >= MOST_VIEWS and (count + 1) & count == 0):
        PyErr_Clear()
        return 0
    if block != 0 and (word(t, T_SIZE) + word(block, B_ENTRIES) > word(t, T_ROOM) or reserve(t, 4) == 0):
        return 0
    return entry


@njit(cache=True, error_model="numpy")
def shown(registry, entry, value):
    """An array that shows a part of another; 0 with an exception."""
    dtype = load_i8(value + A_DTYPE)
    Py_IncRef(dtype)
    data, flags = load_i8(value + A_DATA) + word(entry, E_START), load_i4(value + A_FLAGS) & A_WRITEABLE
    shape, strides = word(entry, E_SHAPE), word(entry, E_STRIDES)
    made = new_view(
        word(registry, G_VIEW), word(registry, G_ARRAY), dtype, word(entry, E_NDIM), shape, strides, data, flags
    )
    if made == 0:
        return 0
    Py_IncRef(value)
    if set_base(word(registry, G_BASE), made, value) != 0:
        Py_DecRef(made)
        return 0
    return made


@njit(cache=True, error_model="numpy")
def base_of(x, entry):
    """The base of the part, borrowed."""
    return load_i8(x + O_BASE) if word(entry, E_COUNT) != 0 else x


@njit(cache=True, error_model="numpy")
def finish(registry, t, x, entry, result, reference):
    """Make a new tensor the part, which its base's list of views refers to; 0 with an exception."""
    made, base = shown(registry, entry, load_i8(x + O_VALUE)), base_of(x, entry)
    if made == 0 or PyList_Append(load_i8(base + O_VIEWS), reference) != 0:
        if made != 0:
            Py_DecRef(made)
        return 0
    form, offset = word(entry, E_FORM), word(entry, E_OFFSET)
    if base != x:
        offset += load_i8(x + O_OFFSET)
    Py_IncRef(form)
    Py_IncRef(base)
    store_i8(result + O_VALUE, made)
    store_i8(result + O_FORM, form)
    store_i8(result + O_BASE, base)
    store_i8(result + O_OFFSET, offset)
    block, slot = word(entry, E_BLOCK), load_i8(x + O_SLOT)
    if block != 0:
        at = word(t, T_WORDS) + 8 * (word(t, T_SIZE) + 1)
        keep(t, at, slot & ~UNHELD if slot > 0 else slot)
        store_i8(at + 8, offset)
        store_i8(at + 16, word(entry, E_CODE))
        Py_IncRef(word(block, B_FORM))
        store_i8(result + O_SLOT, commit(t, 4))
        store_i8(result + O_BYTES, word(entry, E_LARGE))
    return 1


@njit(cache=True, error_model="numpy")
def prepared(registry, x, entry):
    """A list for the views of a base that has none yet, and a new tensor; 0 with an exception.

    All that is made here may collect garbage, and so run anything: what has been read is then read again.
    """
    base = base_of(x, entry)
    if load_i8(base + O_VIEWS) == 0:
        views = PyList_New(0)
        if views == 0:
            return 0
        if load_i8(base + O_VIEWS) == 0:
            store_i8(base + O_VIEWS, views)
        else:
            Py_DecRef(views)
    result = reused(registry)
    return PyType_GenericAlloc(word(registry, G_TENSOR), 0) if result == 0 else result


@njit(cache=True, error_model="numpy")
def hit(registry, x, key):
    """Return the part that has been asked for before; 0, without an exception where Python is to do it."""
    found, words = tape_in_force(registry), thirty_words()
    if found == -1 or kind_of(x) != word(registry, G_TENSOR) or key_words(registry, key, words) == 0:
        return 0
    hashed = hash_of(words)
    entry = look_up(registry, x, found & ~1, words, hashed)
    if entry == 0:
        return 0
    result = prepared(registry, x, entry)
    if result == 0:
        return 0
    reference, done = PyWeakref_NewRef(result, 0), 0
    found = tape_in_force(registry)
    t = found & ~1
    entry = look_up(registry, x, t, words, hashed) if found != -1 and reference != 0 else 0
    if entry != 0 and load_i8(base_of(x, entry) + O_VIEWS) != 0:
        done = finish(registry, t, x, entry, result, reference)
    if done != 0 and found != t:
        store_i8(words, x)
        done = tell(registry, entry, words, 0, result)
    if reference != 0:
        Py_DecRef(reference)
    if done == 0:
        Py_DecRef(result)
        return 0
    return result


@cfunc("int64(int64, int64)", cache=True)
def mp_subscript(x, key):
    found = hit(tape_registry(), x, key)
    if found == 0 and PyErr_Occurred() == 0:
        given = three_words()
        store_i8(given, x)
        store_i8(given + 8, key)
        return missed(OP_PART, given, 2, 0)
    return found


@njit("int64(int64, int64)", cache=True, error_model="numpy")
def words_of(key, out):
    """Write the words of an index, for Python; return its hash, -1 for one that native code does not take."""
    return hash_of(out) if key_words(tape_registry(), key, out) != 0 else -1
