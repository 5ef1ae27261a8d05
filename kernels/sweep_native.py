"""The native reverse sweep: reads the Python list of the tape where it stands.

Loaded through ``jit.load_module``. A tape's entries are, for each instruction: result slot, operands, saved
values, and last the address of its form's block, so that the list is read from the end. Each function takes
the address of a header of int64 words; kernels/words.py names them.
"""

from __future__ import annotations

import numpy as np

from kernels.jit import njit
from kernels.memory import (
    SHIFT,
    allocate,
    call_kernel,
    integer,
    load_f4,
    load_f8,
    load_i4,
    load_i8,
    release,
    store_b1,
    store_f4,
    store_f8,
    store_i8,
    word,
)
from kernels.words import (
    ALIAS,
    B_ENTRIES,
    B_FIRST,
    B_FREES,
    B_INPUTS,
    B_ITEM,
    B_SAVED,
    B_SHADOW,
    B_VIEW,
    CELL,
    COUNTS,
    DROPPED,
    FOREIGN,
    FOUND,
    FREED,
    GROW,
    H_AT,
    H_CELLS,
    H_COUNT,
    H_FLOAT,
    H_INT,
    H_KEEP,
    H_LEAF,
    H_LEAFCAP,
    H_LEAVES,
    H_LIST,
    H_LOW,
    H_MASK,
    H_NONE,
    H_ORDER,
    H_ORDERS,
    H_PRESET,
    H_PRESETS,
    H_PTRS,
    H_RESTRICT,
    H_SIZE,
    H_TAPE,
    H_USED,
    H_WHOLE,
    I_COVERS,
    I_ITEM,
    I_KERNEL,
    I_LAYOUT,
    I_SHADOW,
    I_WORDS,
    KEPT,
    MEMORY,
    MISSING,
    NEAR,
    OK,
    OPCODE,
    OWNED,
    PARENT,
    RELEVANT,
    TAPE_BITS,
    TOUCHED,
    USED,
)



ZERO = np.float32(0.0)


@njit("int64(int64)", cache=True, error_model="numpy")
def opcode(obj):
    """The address of the block that an opcode stands for."""
    return integer(obj) - OPCODE


@njit("int64(int64)", cache=True, error_model="numpy")
def integer_any(obj):
    """The value of a Python integer of at most two digits."""
    count = load_i8(obj + 16) >> SHIFT
    if count == 0:
        return 0
    return load_i4(obj + 24) if count == 1 else integer(obj)


@njit("int64(int64, int64, int64)", cache=True, error_model="numpy")
def find(cells, mask, key):
    """The cell of a key, or the empty cell where it belongs. Slots count up, so the identity is a good hash."""
    at = (key if key > 0 else (-key) >> 4) & mask
    while True:
        cell = cells + 8 * CELL * at
        held = load_i8(cell)
        if held == key or held == 0:
            return cell
        at = (at + 1) & mask


@njit("void(int64, int64)", cache=True, error_model="numpy")
def clear(cells, mask):
    for i in range(mask + 1):
        cell = cells + 8 * CELL * i
        store_i8(cell, 0)
        store_i8(cell + 8, 0)
        store_i8(cell + 24, 0)


@njit("void(int64)", cache=True, error_model="numpy")
def preset(h):
    """Put roots and observed slots into the table: key, pointer, value, flags."""
    cells, mask = word(h, H_CELLS), word(h, H_MASK)
    for i in range(word(h, H_PRESET)):
        given = word(h, H_PRESETS) + 32 * i
        cell = find(cells, mask, load_i8(given))
        if load_i8(cell) == 0:
            pointer = load_i8(given + 8)
            if pointer < 0:
                pointer = load_i8(-pointer + 16)  # an array of the caller's: its data
            elif load_i8(given + 24) & TOUCHED:
                pointer = cell + 16
            store_i8(cell, load_i8(given))
            store_i8(cell + 8, pointer)
            store_i8(cell + 16, load_i8(given + 16))
        store_i8(cell + 24, load_i8(cell + 24) | load_i8(given + 24))


@njit("int64(int64, int64, int64)", cache=True, error_model="numpy")
def seek(h, items, integers):
    """The end of the last instruction that can matter: slots ascend along the tape, and opcodes tell themselves.

    With H_WHOLE the end of the tape (several threads may have appended out of order).
    """
    high = load_i8(word(h, H_LIST) + 16)
    if word(h, H_WHOLE) != 0:
        return high - 1
    root = 0
    for i in range(word(h, H_PRESET)):
        given = word(h, H_PRESETS) + 32 * i
        if load_i8(given + 24) & USED:
            root = max(root, load_i8(given))
    low = 0
    while high - low > NEAR:
        last = (low + high) // 2
        while load_i8(word(items, last) + 8) != integers or integer(word(items, last)) < OPCODE:
            last += 1
        start = last - word(opcode(word(items, last)), B_ENTRIES) + 1
        if integer(word(items, start)) > root:
            high = start
        else:
            low = last
    return high - 1


@njit("int64(int64)", cache=True, error_model="numpy")
def mark(h):
    """Find the instructions between the roots and the leaves, last first."""
    items = load_i8(word(h, H_LIST) + 24)
    none, integers, tape = word(h, H_NONE), word(h, H_INT), word(h, H_TAPE)
    position = seek(h, items, integers)
    cells, mask, order, orders = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER), word(h, H_ORDERS)
    leaves, limit = word(h, H_LEAVES), word(h, H_LEAFCAP)
    clear(cells, mask)
    preset(h)
    pending = used = 0
    for i in range(word(h, H_PRESET)):
        used += 1
        pending += load_i8(word(h, H_PRESETS) + 32 * i + 24) & USED
    count = leaf = 0
    room = mask - mask // 8
    while pending > 0 and position >= 0:
        last = position
        block = opcode(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        position = start - 1
        cell = find(cells, mask, integer(word(items, start)))
        if load_i8(cell + 24) & USED == 0:
            continue
        pending -= 1
        inputs, view = word(block, B_INPUTS), word(block, B_VIEW)
        if count >= orders or used + inputs > room or leaf + inputs > limit:
            return GROW
        store_i8(order + 8 * count, last)
        count += 1
        for i in range(inputs):
            obj = word(items, start + 1 + i)
            if obj == none:
                continue
            if view == 0 and word(block, B_FIRST + i * I_WORDS + I_KERNEL) == 0:
                store_i8(h + 8 * H_AT, last)
                return MISSING
            owned = load_i8(obj + 8) == integers
            key = integer(obj) if owned else -obj
            target = find(cells, mask, key)
            flags = load_i8(target + 24)
            if load_i8(target) == 0:
                store_i8(target, key)
                used += 1
            if flags & USED == 0:
                flags |= USED
                if owned and key >> TAPE_BITS == tape:
                    pending += 1
                else:
                    if owned:
                        flags |= FOREIGN | KEPT
                    else:
                        flags |= KEPT
                    found = leaves + 8 * FOUND * leaf
                    store_i8(found, start + 1 + i)
                    store_i8(found + 8, last)
                    store_i8(found + 16, (target - cells) // (8 * CELL))
                    leaf += 1
                store_i8(target + 24, flags)
            if view != 0:
                # The view's offset, and the cell that it shares its shadow with.
                store_i8(cell + 16, integer_any(word(items, start + 2)))
                parent = (target - cells) // (8 * CELL)
                store_i8(cell + 24, load_i8(cell + 24) | ALIAS | (parent << PARENT))
    store_i8(h + 8 * H_COUNT, count)
    store_i8(h + 8 * H_LEAF, leaf)
    store_i8(h + 8 * H_USED, used)
    return FREED if pending > 0 else OK


@njit("void(int64)", cache=True, error_model="numpy")
def relevant(h):
    """Keep only the instructions that lead to an observed slot or leaf, earliest first decided."""
    items = load_i8(word(h, H_LIST) + 24)
    none, integers = word(h, H_NONE), word(h, H_INT)
    cells, mask, order, count = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER), word(h, H_COUNT)
    kept = count
    for k in range(count - 1, -1, -1):
        last = word(order, k)
        block = opcode(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        cell = find(cells, mask, integer(word(items, start)))
        leads = False
        for i in range(word(block, B_INPUTS)):
            obj = word(items, start + 1 + i)
            if obj != none:
                key = integer(obj) if load_i8(obj + 8) == integers else -obj
                leads |= load_i8(find(cells, mask, key) + 24) & RELEVANT != 0
        if leads:
            store_i8(cell + 24, load_i8(cell + 24) | RELEVANT)
            kept -= 1
            store_i8(order + 8 * kept, last)
    for k in range(count - kept):
        store_i8(order + 8 * k, word(order, kept + k))
    store_i8(h + 8 * H_COUNT, count - kept)


@njit("void(int64, int64, int64)", cache=True, error_model="numpy")
def fill(pointer, elements, item):
    if item == 8:
        for i in range(elements):
            store_f8(pointer + 8 * i, -0.0)
    else:
        for i in range(elements):
            store_f4(pointer + 4 * i, -0.0)


@njit("void(int64, int64, int64, int64)", cache=True, error_model="numpy")
def fold(target, source, elements, item):
    """Add one whole shadow to another."""
    if item == 8:
        for i in range(elements):
            store_f8(target + 8 * i, load_f8(target + 8 * i) + load_f8(source + 8 * i))
    else:
        for i in range(elements):
            store_f4(target + 4 * i, load_f4(target + 4 * i) + load_f4(source + 4 * i))


@njit("int64(int64, int64, int64, int64, int64)", cache=True, error_model="numpy")
def shadow(cell, cells, elements, item, covers):
    """Resolve a cell to its shadow, allocated at the first contribution; 0 without memory.

    Sets TOUCHED; the caller reads the flag before. A first contribution that does not cover the shadow
    starts from -0.0, the identity of addition.
    """
    pointer = load_i8(cell + 8)
    flags = load_i8(cell + 24)
    if pointer < 0:
        pointer = load_i8(-pointer + 16)  # an array of the caller's: its data
        store_i8(cell + 8, pointer)
    if pointer == 0:
        pointer = cell + 16
        if elements * item > 8:
            pointer = allocate(elements * item)
            flags |= OWNED
        store_i8(cell + 8, pointer)
    if flags & TOUCHED == 0 and covers == 0 and pointer != 0:
        fill(pointer, elements, item)
    store_i8(cell + 24, flags | TOUCHED)
    return pointer


@njit("int64(int64, int64)", cache=True, error_model="numpy")
def family(cell, cells):
    """The cell whose shadow a view writes to: its base's, or that of the nearest observed view above it."""
    top = cell
    while load_i8(top + 24) & (ALIAS | KEPT) == ALIAS:
        top = cells + 8 * CELL * (load_i8(top + 24) >> PARENT)
    at = cell
    while at != top:  # compress the path: loops of views of views stay linear
        up = cells + 8 * CELL * (load_i8(at + 24) >> PARENT)
        flags = load_i8(at + 24) & ((1 << PARENT) - 1)
        store_i8(at + 24, flags | (((top - cells) // (8 * CELL)) << PARENT))
        at = up
    return top


@njit("void(int64)", cache=True, error_model="numpy")
def settle(h):
    """Add 0.0 to the gradients of leaves: where nothing contributed, -0.0 becomes 0.0."""
    items = load_i8(word(h, H_LIST) + 24)
    cells, leaves = word(h, H_CELLS), word(h, H_LEAVES)
    for k in range(word(h, H_LEAF)):
        found = leaves + 8 * FOUND * k
        last = load_i8(found + 8)
        block = opcode(word(items, last))
        i = load_i8(found) - (last - word(block, B_ENTRIES) + 2)
        about = block + 8 * (B_FIRST + i * I_WORDS)
        if word(block, B_VIEW) != 0:
            about = block + 8 * (B_SHADOW - I_SHADOW)
        cell = cells + 8 * CELL * load_i8(found + 16)
        elements, item = word(about, I_SHADOW), word(about, I_ITEM)
        if load_i8(cell + 24) & TOUCHED == 0:
            fill(shadow(cell, cells, elements, item, 1), elements, item)
        pointer = load_i8(cell + 8)
        if item == 8:
            for e in range(elements):
                store_f8(pointer + 8 * e, load_f8(pointer + 8 * e) + 0.0)
        else:
            for e in range(elements):
                store_f4(pointer + 4 * e, load_f4(pointer + 4 * e) + ZERO)


@njit("int64(int64)", cache=True, error_model="numpy")
def sweep(h):
    """Run the pullbacks of the marked instructions, last first."""
    items = load_i8(word(h, H_LIST) + 24)
    none, integers, floats = word(h, H_NONE), word(h, H_INT), word(h, H_FLOAT)
    cells, mask, order = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER)
    restrict, pointers = word(h, H_RESTRICT), word(h, H_PTRS)
    for k in range(word(h, H_COUNT)):
        last = word(order, k)
        block = opcode(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        cell = find(cells, mask, integer(word(items, start)))
        inputs = word(block, B_INPUTS)
        if word(block, B_VIEW) != 0:
            if load_i8(cell + 24) & (KEPT | TOUCHED) == KEPT | TOUCHED:
                above = family(cells + 8 * CELL * (load_i8(cell + 24) >> PARENT), cells)
                elements, item = word(block, B_SHADOW), word(block, B_ITEM)
                target = shadow(above, cells, elements, item, 0)
                if target == 0:
                    return MEMORY
                fold(target, load_i8(cell + 8), elements, item)
            continue
        cotangent = load_i8(cell + 8)
        if load_i8(cell + 24) & TOUCHED == 0:
            continue
        store_i8(pointers + 8, cotangent)
        for j in range(word(block, B_SAVED)):
            obj = word(items, start + 1 + inputs + j)
            data = obj + 16
            if load_i8(obj + 8) != floats:
                data = load_i8(data)
            store_i8(pointers + 16 + 8 * j, data)
        for i in range(inputs):
            obj = word(items, start + 1 + i)
            if obj == none:
                continue
            target = find(cells, mask, integer(obj) if load_i8(obj + 8) == integers else -obj)
            flags = load_i8(target + 24)
            if restrict != 0 and flags & RELEVANT == 0:
                continue
            about = block + 8 * (B_FIRST + i * I_WORDS)
            offset = 0
            if flags & ALIAS:
                offset = load_i8(target + 16)
                target = family(target, cells)
                flags = load_i8(target + 24)
            covers = word(about, I_COVERS)
            pointer = shadow(target, cells, word(about, I_SHADOW), word(about, I_ITEM), covers)
            if pointer == 0:
                return MEMORY
            store_i8(pointers, pointer + offset)
            accumulate = 0 if covers != 0 and flags & TOUCHED == 0 else 1
            call_kernel(word(about, I_KERNEL), word(about, I_LAYOUT), pointers, accumulate)
        if load_i8(cell + 24) & (OWNED | KEPT) == OWNED:
            release(cotangent)
            store_i8(cell + 8, 0)
            store_i8(cell + 24, load_i8(cell + 24) & ~OWNED)
    settle(h)
    return OK


@njit("void(int64)", cache=True, error_model="numpy")
def abandon(h):
    """Free every shadow that a sweep left behind (no memory, or base shadows that nothing consumed)."""
    cells = word(h, H_CELLS)
    for i in range(word(h, H_MASK) + 1):
        cell = cells + 8 * CELL * i
        if load_i8(cell) != 0 and load_i8(cell + 24) & OWNED:
            release(load_i8(cell + 8))
            store_i8(cell + 8, 0)
            store_i8(cell + 24, load_i8(cell + 24) & ~OWNED)


@njit("int64(int64)", cache=True, error_model="numpy")
def drop(h):
    """Mark with 0 the entries that backward releases: saved values, and what depends on them.

    Returns how many entries go; H_LOW is the first of them, and H_KEEP's bytes begin there. Instructions that saved nothing stay,
    so that a second backward through sums alone works, as PyTorch's does.
    """
    items = load_i8(word(h, H_LIST) + 24)
    none, integers, keep = word(h, H_NONE), word(h, H_INT), word(h, H_KEEP)
    cells, mask, order = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER)
    low, gone, size = -1, 0, load_i8(word(h, H_LIST) + 16)
    for k in range(word(h, H_COUNT) - 1, -1, -1):
        last = word(order, k)
        block = opcode(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        going = word(block, B_FREES) != 0
        for i in range(word(block, B_INPUTS)):
            obj = word(items, start + 1 + i)
            if not going and obj != none and load_i8(obj + 8) == integers:
                going = load_i8(find(cells, mask, integer(obj)) + 24) & DROPPED != 0
        if going:
            cell = find(cells, mask, integer(word(items, start)))
            store_i8(cell + 24, load_i8(cell + 24) | DROPPED)
            if low < 0:
                low = start
                for p in range(size - low):
                    store_b1(keep + p, 1)
            for p in range(start, last + 1):
                store_b1(keep + p - low, 0)
            gone += last + 1 - start
    store_i8(h + 8 * H_LOW, low)
    store_i8(h + 8 * H_SIZE, size)
    return gone


@njit("int64(int64)", cache=True, error_model="numpy")
def collect(h):
    """Mark with 0 the entries of instructions whose result nobody can reach any more.

    The result's slot number is held by the tape, by each later instruction that uses it, and by its tensor: a
    count of the references decides. Uses by instructions that go are counted in the cells.
    """
    items = load_i8(word(h, H_LIST) + 24)
    position = load_i8(word(h, H_LIST) + 16) - 1
    none, integers, tape, keep = word(h, H_NONE), word(h, H_INT), word(h, H_TAPE), word(h, H_KEEP)
    cells, mask = word(h, H_CELLS), word(h, H_MASK)
    clear(cells, mask)
    for p in range(position + 1):
        store_b1(keep + p, 1)
    store_i8(h + 8 * H_LOW, 0)
    store_i8(h + 8 * H_SIZE, position + 1)
    used = gone = 0
    room = mask - mask // 8
    while position >= 0:
        last = position
        block = opcode(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        position = start - 1
        slot = word(items, start)
        cell = find(cells, mask, integer(slot))
        lost = load_i8(cell + 8) if load_i8(cell) else 0
        if (load_i8(slot) & COUNTS) - lost > 1:
            continue
        inputs = word(block, B_INPUTS)
        if used + inputs > room:
            return -1
        for i in range(inputs):
            obj = word(items, start + 1 + i)
            if obj != none and load_i8(obj + 8) == integers and integer(obj) >> TAPE_BITS == tape:
                target = find(cells, mask, integer(obj))
                if load_i8(target) == 0:
                    store_i8(target, integer(obj))
                    used += 1
                store_i8(target + 8, load_i8(target + 8) + 1)
        for p in range(start, last + 1):
            store_b1(keep + p, 0)
        gone += last + 1 - start
    return gone
