"""What a call in the table gives: its value, and the words of its instruction."""

from __future__ import annotations

from kernels.jit import load_module, njit
from kernels.memory import HEADER, call_loop, double_of, load_f8, load_i8, store_f4, store_f8, store_i8, word
from kernels.numpy_api import new_array
from kernels.python_api import Py_IncRef, PyFloat_FromDouble, sixteen_words
from kernels.words import (
    A_DATA,
    ADD,
    ARRAY,
    B_ENTRIES,
    B_FIRST,
    B_FORM,
    B_INPUTS,
    B_SAVED,
    DIVIDE,
    E_BLOCK,
    E_CODE,
    E_COUNT,
    E_DATA,
    E_DTYPE,
    E_INITIAL,
    E_KIND,
    E_LAYOUT,
    E_LOOP,
    E_NDIM,
    E_SAVED,
    E_SCALE,
    E_SHAPE,
    G_ARRAY,
    G_NEW,
    I_WORDS,
    K_WANTS,
    MULTIPLY,
    NEST,
    REDUCE,
    SUBTRACT,
    T_NUMBER,
    T_REGISTRY,
    T_SIZE,
    T_WORDS,
    TAPE_BITS,
)

_tape = load_module("tape_native")
hold, commit = _tape.hold, _tape.commit
nest = load_module("nests_native").nest


@njit(cache=True, error_model="numpy")
def over_nest(entry, pointers):
    """Call NumPy's loop over the nest of a call."""
    nest(word(entry, E_LAYOUT), pointers, word(entry, E_COUNT), word(entry, E_LOOP), word(entry, E_DATA))


@njit(cache=True, error_model="numpy")
def once(entry, x, y):
    """One element by NumPy's loop."""
    row = sixteen_words()
    count = word(entry, E_COUNT)
    store_i8(row, x)
    store_i8(row + 8, y)
    store_i8(row + 8 * (count - 1), row + 64)
    store_i8(row + 24, 1)
    store_i8(row + 32, 0)
    store_i8(row + 40, 0)
    store_i8(row + 48, 0)
    call_loop(word(entry, E_LOOP), row, row + 24, row + 32, word(entry, E_DATA))
    return load_f8(row + 64)


@njit(cache=True, error_model="numpy")
def scalar(entry, x, y):
    """The double that an operation gives of doubles at these addresses."""
    kind = word(entry, E_KIND)
    if kind == ADD:
        return load_f8(x) + load_f8(y)
    if kind == SUBTRACT:
        return load_f8(x) - load_f8(y)
    if kind == MULTIPLY:
        return load_f8(x) * load_f8(y)
    if kind == DIVIDE:
        return load_f8(x) / load_f8(y)
    return once(entry, x, y)


@njit(cache=True, error_model="numpy")
def reduce(entry, x, out, count):
    """Reduce an operand onto so many doubles."""
    row = sixteen_words()
    for k in range(count):
        store_i8(out + 8 * k, word(entry, E_INITIAL))
    store_i8(row, out)
    store_i8(row + 8, x)
    store_i8(row + 16, out)
    over_nest(entry, row)
    if word(entry, E_SCALE) != 0:
        by = double_of(word(entry, E_SCALE))
        for k in range(count):
            store_f8(out + 8 * k, load_f8(out + 8 * k) / by)


@njit(cache=True, error_model="numpy")
def reduced(registry, entry, x):
    """A new float or array that an operand is reduced to; 0 with an exception."""
    if word(entry, E_NDIM) == 0:
        out = sixteen_words()
        reduce(entry, x, out, 1)
        return PyFloat_FromDouble(load_f8(out))
    shape, count = word(entry, E_SHAPE), 1
    made = new_array(word(registry, G_NEW), word(registry, G_ARRAY), word(entry, E_NDIM), shape, word(entry, E_DTYPE))
    for k in range(word(entry, E_NDIM)):
        count *= word(shape, k)
    if made != 0:
        reduce(entry, x, load_i8(made + A_DATA), count)
    return made


@njit(cache=True, error_model="numpy")
def value_of(registry, entry, x, y):
    """A new value: a float, or an array; 0 with an exception."""
    kind = word(entry, E_KIND)
    if kind == REDUCE:
        return reduced(registry, entry, x)
    if kind < NEST:
        return PyFloat_FromDouble(scalar(entry, x, y))
    made = new_array(
        word(registry, G_NEW), word(registry, G_ARRAY), word(entry, E_NDIM), word(entry, E_SHAPE), word(entry, E_DTYPE)
    )
    if made != 0:
        row = sixteen_words()
        store_i8(row, x)
        store_i8(row + 8, y)
        store_i8(row + 8 * (word(entry, E_COUNT) - 1), load_i8(made + A_DATA))
        over_nest(entry, row)
    return made


@njit(cache=True, error_model="numpy")
def keep(t, at, slot):
    """Write an operand's word: a leaf is owned, a slot of another tape held."""
    store_i8(at, slot)
    if slot < 0:
        Py_IncRef(-slot)
    elif slot > 0 and slot >> TAPE_BITS != word(t, T_NUMBER):
        hold(word(t, T_REGISTRY), slot)


@njit(cache=True, error_model="numpy")
def append(t, entry, operands, value):
    """Record the call; return its slot."""
    block, wants = word(entry, E_BLOCK), word(entry, K_WANTS)
    at, inputs = word(t, T_WORDS) + 8 * (word(t, T_SIZE) + 1), word(block, B_INPUTS)
    for i in range(inputs):
        keep(t, at + 8 * i, load_i8(operands + 8 + 48 * i) if wants & (1 << i) else 0)
    kinds, picks = block + 8 * (B_FIRST + I_WORDS * inputs), word(entry, E_SAVED)
    at += 8 * inputs
    for j in range(word(block, B_SAVED)):
        pick = (picks >> (2 * j)) & 3
        saved = value if pick >= 2 else load_i8(operands + 24 + 48 * pick)
        if pick == 3:
            store_i8(at, word(entry, E_SCALE))
        elif word(kinds, j) == ARRAY:
            Py_IncRef(saved)
            store_i8(at, saved)
        elif pick == 2:
            store_i8(at, load_i8(value + HEADER))
        elif saved == 0:
            store_i8(at, load_i8(operands + 32 + 48 * pick))
        else:
            store_i8(at, load_i8(load_i8(operands + 16 + 48 * pick)))
        at += 8
    Py_IncRef(word(block, B_FORM))
    store_i8(at, word(entry, E_CODE))
    return commit(t, word(block, B_ENTRIES))


@njit(cache=True, error_model="numpy")
def narrow(operands):
    """Turn numbers among the operands to singles, behind them."""
    for i in range(2):
        at = operands + 48 * i
        if load_i8(at + 16) == at + 32:
            store_f4(at + 40, load_f8(at + 32))
            store_i8(at + 16, at + 40)
