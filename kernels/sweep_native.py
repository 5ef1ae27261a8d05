"""The sweep: run the pullbacks of the marked instructions, last first."""

from __future__ import annotations

from kernels.heirs import LEAST
from kernels.jit import load_module, njit
from kernels.memory import (
    call_kernel,
    load_i8,
    store_i8,
    word,
)
from kernels.pool_calls import give
from kernels.words import (
    ALIAS,
    ALWAYS,
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    B_ITEM,
    B_KIND,
    B_SHADOW,
    B_WORK,
    BREATH,
    CELL,
    CLEARS,
    H_BATCH,
    H_CELLS,
    H_COUNT,
    H_FROM,
    H_MASK,
    H_ORDER,
    H_PTRS,
    H_RESTRICT,
    H_RESUME,
    H_TAPE,
    I_COVERS,
    I_GIVES,
    I_ITEM,
    I_KERNEL,
    I_LAYOUT,
    I_ONE,
    I_RUN,
    I_SHADOW,
    I_SPREAD,
    I_WORDS,
    KEPT,
    MEMORY,
    OK,
    OTHERWISE,
    OWNED,
    PATIENCE,
    PAUSE,
    PAUSED,
    PULLS,
    PYTHON,
    RELEVANT,
    T_WORDS,
    TOUCHED,
    UNIFORM,
    UNWANTED,
    VIEW,
    WANTED,
    WISHED,
)

_cells = load_module("cells_native")
find = _cells.find
_tape = load_module("tape_native")
block_at, point_at = _tape.block_at, _tape.point_at
shadow, family, write_out = _cells.shadow, _cells.family, _cells.write_out
settle_view, own_copy, drop, fill = _cells.settle_view, _cells.own_copy, _cells.drop, _cells.fill
settle = load_module("leaves_native").settle
_heirs = load_module("heirs_native")
is_fresh, heir_of, inherit = _heirs.is_fresh, _heirs.heir_of, _heirs.inherit
RAN = 2
"""H_RESUME: Python has run the instruction at H_FROM."""


@njit(cache=True, error_model="numpy")
def call(h, about, target, cotangent, source_bytes, result_bytes, accumulate):
    """Run one kernel for each of a batch of cotangents."""
    pointers = word(h, H_PTRS)
    for k in range(word(h, H_BATCH)):
        store_i8(pointers, target + k * source_bytes)
        store_i8(pointers + 8, cotangent + k * result_bytes)
        call_kernel(word(about, I_KERNEL), word(about, I_LAYOUT), pointers, accumulate)


@njit(cache=True, error_model="numpy")
def spreads(about):
    """Whether there is a kernel that takes one number for a cotangent; if not as yet, it is wanted from now on."""
    if word(about, I_SPREAD) == UNWANTED:
        store_i8(about + 8 * I_SPREAD, WANTED)
    return word(about, I_SPREAD) > WANTED


@njit(cache=True, error_model="numpy")
def pull(h, last, block, cell):
    """Run the pullbacks of one instruction on the cotangent that ``cell`` holds; MEMORY or OK."""
    items = word(word(h, H_TAPE), T_WORDS)
    cells, mask, pointers = word(h, H_CELLS), word(h, H_MASK), word(h, H_PTRS)
    restrict, batch, kind = word(h, H_RESTRICT), word(h, H_BATCH), word(block, B_KIND)
    start = last - word(block, B_ENTRIES) + 1
    inputs = word(block, B_INPUTS)
    uniform, wished = load_i8(cell + 24) & UNIFORM != 0, load_i8(cell + 24) & (UNIFORM | WISHED) != 0
    if uniform and kind != PULLS:
        uniform = False
        if write_out(cell, word(block, B_SHADOW), word(block, B_ITEM)) == 0:
            return MEMORY
    cotangent = load_i8(cell + 8)
    first = 0 if kind == PULLS else 1
    point_at(items + 8 * (start + 1 + inputs), block, pointers + 16)
    if kind != PULLS:
        cotangent += word(items, start + 1 + inputs)
    large = kind == PULLS and batch == 1 and word(block, B_SHADOW) >= LEAST
    heir = heir_of(h, items + 8 * (start + 1), block, cell) if large else -1
    for k in range(first, inputs + 1 if heir >= 0 else inputs):
        i = heir if k == inputs else k  # the heir comes last
        key = word(items, start + 1 + i)
        if key == 0 or (i == heir and k < inputs):
            continue
        target = find(cells, mask, key)
        flags = load_i8(target + 24)
        if restrict != 0 and flags & RELEVANT == 0:
            continue
        about = block + 8 * (B_FIRST + i * I_WORDS)
        if wished and not spreads(about) and uniform:
            uniform = False
            cotangent = write_out(cell, word(block, B_SHADOW), word(block, B_ITEM))
            if cotangent == 0:
                return MEMORY
        if k == inputs and is_fresh(target):
            inherit(target, about, cell, pointers)
            break
        gives = word(about, I_GIVES)
        one = gives != OTHERWISE and (gives == ALWAYS or wished) and batch == 1 and is_fresh(target)
        if one and (gives == ALWAYS or uniform):
            store_i8(target + 8, target + 16)
            store_i8(target + 24, flags | TOUCHED | UNIFORM)
            store_i8(pointers, target + 16)
            store_i8(pointers + 8, cotangent)
            call_kernel(word(about, I_ONE), word(about, I_ONE + 1), pointers, 0)
            continue
        offset = 0
        if flags & ALIAS:
            offset = load_i8(target + 16)
            target = family(target, cells)
            flags = load_i8(target + 24)
        covers = word(about, I_COVERS)
        elements, item = word(about, I_SHADOW), word(about, I_ITEM)
        run = word(about, I_RUN) if batch == 1 and flags & TOUCHED == 0 else 0
        pointer = shadow(target, cells, elements * batch, item, covers + run)
        if pointer == 0:
            return MEMORY
        if run != 0:
            fill(pointer, offset // item, item, -0.0)
            fill(pointer + offset + run * item, elements - run - offset // item, item, -0.0)
        store_i8(target + 24, (load_i8(target + 24) & ~WISHED) | (WISHED if one else 0))
        accumulate = 0 if covers + run != 0 and flags & TOUCHED == 0 else 1
        if batch == 1:
            store_i8(pointers, pointer + offset)
            store_i8(pointers + 8, cotangent)
            kernel = I_SPREAD if uniform else I_KERNEL
            call_kernel(word(about, kernel), word(about, kernel + 1), pointers, accumulate)
        else:
            result_bytes = word(block, B_SHADOW) * word(block, B_ITEM)
            call(h, about, pointer + offset, cotangent, elements * item, result_bytes, accumulate)
    if kind == CLEARS and word(items, start + 1) != 0:
        whole = word(block, B_SHADOW) * word(block, B_ITEM)
        call(h, block + 8 * B_FIRST, cotangent, cotangent, whole, whole, 0)
    return OK


@njit(cache=True, error_model="numpy")
def unwrite_apart(h, last, block, cell):
    """Undo a write whose version has a shadow apart, then add what is left to that of the version before."""
    if load_i8(cell + 24) & TOUCHED == 0:
        return OK
    if load_i8(cell + 24) & OWNED == 0 and own_copy(h, cell, block) == 0:
        return MEMORY
    status = pull(h, last, block, cell)
    if status != OK:
        return status
    if settle_view(h, cell, block) == 0:
        return MEMORY
    drop(cell)
    return OK


@njit(cache=True, error_model="numpy")
def paused(h, k, block, cell):
    """Let Python act on an instruction, whose cotangent is written out for it."""
    store_i8(h + 8 * H_FROM, k)
    dense = load_i8(cell + 24) & UNIFORM == 0 or write_out(cell, word(block, B_SHADOW), word(block, B_ITEM)) != 0
    return PAUSE if dense else MEMORY


@njit(cache=True, error_model="numpy")
def breathing(h, k):
    """Let Python take an interrupt, and go on with an instruction."""
    store_i8(h + 8 * H_FROM, k)
    store_i8(h + 8 * H_RESUME, 0)
    return BREATH


@njit(cache=True, error_model="numpy")
def let_go(cell):
    """Free the shadow of an instruction that Python has run."""
    if load_i8(cell + 24) & (OWNED | KEPT | ALIAS) == OWNED:
        drop(cell)
    return 0


@njit("int64(int64)", cache=True, error_model="numpy")
def sweep(h):
    """Run the pullbacks of the marked instructions, last first; BREATH from time to time.

    PAUSE, at H_FROM, before an instruction whose cell says so, and for one that only Python runs; H_RESUME tells of it.
    """
    t = word(h, H_TAPE)
    cells, mask, order = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER)
    resume, batch, work = word(h, H_RESUME), word(h, H_BATCH), 0
    for k in range(word(h, H_FROM), word(h, H_COUNT)):
        last = word(order, k)
        block = block_at(t, last)
        cell = find(cells, mask, word(word(t, T_WORDS), last - word(block, B_ENTRIES) + 1))
        kind, flags = word(block, B_KIND), load_i8(cell + 24)
        if resume == 0 and (kind == PYTHON or flags & (PAUSED | TOUCHED) == PAUSED | TOUCHED):
            return paused(h, k, block, cell)
        if resume == RAN:
            resume = let_go(cell)
            continue
        resume = 0
        if kind == VIEW:
            if flags & (KEPT | TOUCHED) == KEPT | TOUCHED and settle_view(h, cell, block) == 0:
                return MEMORY
            continue
        home = cell
        if flags & ALIAS:
            if flags & KEPT:
                status = unwrite_apart(h, last, block, cell)
                if status != OK:
                    return status
                continue
            home = family(cell, cells)
        if load_i8(home + 24) & TOUCHED == 0:
            continue
        status = pull(h, last, block, home)
        if status != OK:
            return status
        if home == cell and load_i8(cell + 24) & (OWNED | KEPT) == OWNED:
            drop(cell)
        work += word(block, B_WORK) * batch
        if work > PATIENCE:
            return breathing(h, k + 1)
    settle(h)
    return OK


@njit("int64(int64, int64, int64, int64, int64)", cache=True, error_model="numpy")
def place(h, key, elements, item, covers):
    """The address of the shadow that the slot or leaf of this key writes to, ready to be added to.

    Of a first contribution that ``covers`` the shadow it is negative: that is to be stored.
    """
    cells = word(h, H_CELLS)
    cell = family(find(cells, word(h, H_MASK), key), cells)
    first = load_i8(cell + 24) & TOUCHED == 0
    address = shadow(cell, cells, elements, item, covers)
    return -address if first and covers else address


@njit("void(int64)", cache=True, error_model="numpy")
def abandon(h):
    """Free every shadow that a sweep left behind (no memory, or base shadows that nothing consumed)."""
    cells = word(h, H_CELLS)
    for i in range(word(h, H_MASK) + 1):
        cell = cells + 8 * CELL * i
        if load_i8(cell) != 0 and load_i8(cell + 24) & OWNED:
            give(load_i8(cell + 8))
            store_i8(cell + 8, 0)
            store_i8(cell + 24, load_i8(cell + 24) & ~OWNED)
