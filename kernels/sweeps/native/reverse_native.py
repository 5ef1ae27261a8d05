"""The sweep: run the pullbacks of the marked instructions, last first."""

from __future__ import annotations

from kernels.compiler.jit import load_module, njit
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.words import (
    ALIAS,
    B_ENTRIES,
    B_KIND,
    B_READY,
    B_WORK,
    BREATH,
    CELL,
    G_FORMS,
    H_BATCH,
    H_CELLS,
    H_COUNT,
    H_EXTENT,
    H_FROM,
    H_MASK,
    H_NEAR,
    H_ORDER,
    H_RESUME,
    H_STAMP,
    H_TAPE,
    H_TOP,
    KEPT,
    MEMORY,
    OK,
    OWNED,
    PATIENCE,
    PAUSE,
    PAUSED,
    PYTHON,
    SINGLE,
    T_REGISTRY,
    T_WORDS,
    TOUCHED,
    VIEW,
)

CONTROL = True

_cells = load_module("sweeps.native.gradient_table_native")
find, cell_of = _cells.find, _cells.cell_of
shadow, family, write_out = _cells.shadow, _cells.family, _cells.write_out
settle_view, own_copy, drop = _cells.settle_view, _cells.own_copy, _cells.drop
settle = load_module("sweeps.native.leaves_native").settle
_pulling = load_module("sweeps.native.pulling_native")
dense, pull, pull_single = _pulling.dense, _pulling.pull, _pulling.pull_single
RAN = 2
"""H_RESUME: Python has run the instruction at H_FROM."""


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
    return PAUSE if dense(block, cell) else MEMORY


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


@njit(cache=True, error_model="numpy")
def step(h, last, block, cell):
    """Hand on the cotangent of one instruction, of whatever kind; MEMORY or OK."""
    cells, flags, home = word(h, H_CELLS), load_i8(cell + 24), cell
    if word(block, B_KIND) == VIEW:
        settled = flags & (KEPT | TOUCHED) != KEPT | TOUCHED or settle_view(h, cell, block) != 0
        return OK if settled else MEMORY
    if flags & ALIAS:
        if flags & KEPT:
            return unwrite_apart(h, last, block, cell)
        home = family(cell, cells)
    if load_i8(home + 24) & TOUCHED == 0:
        return OK
    if pull(h, last, block, home) != OK:
        return MEMORY
    if home == cell and load_i8(cell + 24) & (OWNED | KEPT) == OWNED:
        drop(cell)
    return OK


@njit("int64(int64)", cache=True, error_model="numpy")
def sweep(h):
    """Run the pullbacks of the marked instructions, last first; BREATH from time to time.

    PAUSE, at H_FROM, before an instruction whose cell says so, and for one that only Python runs; H_RESUME tells of it.
    """
    items = word(word(h, H_TAPE), T_WORDS)
    forms = word(word(word(h, H_TAPE), T_REGISTRY), G_FORMS)
    cells, mask, top, near, order = word(h, H_CELLS), word(h, H_MASK), word(h, H_TOP), word(h, H_NEAR), word(h, H_ORDER)
    resume, batch, work = word(h, H_RESUME), word(h, H_BATCH), 0
    for k in range(word(h, H_FROM), word(h, H_COUNT)):
        last = word(order, k)
        block = word(forms, word(items, last))
        cell = cell_of(cells, mask, top, near, word(items, last - word(block, B_ENTRIES) + 1))
        flags = load_i8(cell + 24)
        if resume == 0 and (word(block, B_KIND) == PYTHON or flags & (PAUSED | TOUCHED) == PAUSED | TOUCHED):
            return paused(h, k, block, cell)
        if resume == RAN:
            resume = let_go(cell)
            continue
        resume = 0
        if batch == 1 and word(block, B_READY) == SINGLE:
            if flags & TOUCHED == 0:
                continue
            status = pull_single(h, items, last, block, cell)
        else:
            status = step(h, last, block, cell)
        if status != OK:
            return status
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
    cell = family(find(h, key), cells)
    first = load_i8(cell + 24) & TOUCHED == 0
    address = shadow(cell, cells, elements, item, covers)
    return -address if first and covers else address


@njit(cache=True, error_model="numpy")
def free(cell):
    """Free a shadow that a sweep left behind."""
    if load_i8(cell + 24) & OWNED:
        drop(cell)


@njit("void(int64)", cache=True, error_model="numpy")
def abandon(h):
    """Free every shadow that a sweep left behind (no memory, or base shadows that nothing consumed)."""
    cells = word(h, H_CELLS)
    for i in range(word(h, H_MASK) + 1 + word(h, H_EXTENT)):
        cell = cells + 8 * CELL * i
        if load_i8(cell) == word(h, H_STAMP) or (i <= word(h, H_MASK) and load_i8(cell) != 0):
            free(cell)
