"""The words that Python and native code share: the header of a sweep, its cells, the blocks of forms."""

from __future__ import annotations

from typing import Any


class Opcode(int):
    """The address of the block of a form, which it keeps. Its type tells it from a tape's other integers."""

    form: Any


# The header: what stands in each word of it.
H_LIST, H_NONE, H_INT, H_FLOAT, H_TAPE, H_CELLS, H_MASK, H_ORDER, H_ORDERS, H_LEAVES, H_LEAFCAP = range(11)
H_PRESETS, H_PRESET, H_RESTRICT, H_COUNT, H_LEAF, H_AT, H_PTRS, H_KEEP = range(11, 19)
H_LOW, H_SIZE, H_WHOLE, H_DYING, H_FROM, H_RESUME, H_BATCH, H_CODE, H_ARRAY, H_KEEPS = range(19, 29)
FEW = 64
"""Cells that a run begins with; it clears those that it uses, and takes more as it needs them."""
NEAR = 256
"""Entries that are searched one by one; longer stretches by halves."""

HEADER = 29

# A cell of the table of shadows: key, pointer, the shadow itself where 8 bytes hold it (a view's offset), flags.
CELL = 4
USED, TOUCHED, KEPT, ALIAS, RELEVANT, OWNED, FOREIGN, DROPPED, PAUSED = 1, 2, 4, 8, 16, 32, 64, 128, 256
UNIFORM, WISHED = 512, 1024
"""Every element of the shadow is the number that the cell holds; would be, had the kernels been there."""
PARENT = 16
"""An alias keeps the number of its parent's cell above this many bits."""

# A found leaf: where its operand stands, where its instruction ends, its cell.
FOUND = 3

# A form's block: entries, inputs, saved values, elements and item size of the shadow, kind, what it frees, steps.
B_ENTRIES, B_INPUTS, B_SAVED, B_SHADOW, B_ITEM, B_KIND, B_FREES, B_WORK, B_FIRST = range(9)
# Kinds of instructions: pullbacks to run; a view; a write, which clears the shadow or keeps it; one run by Python.
PULLS, VIEW, CLEARS, ADDS, PYTHON = range(5)
# Each input in a block: kernel, layout, elements and item size of its shadow, whether the kernel covers it;
# whether it gives one number for all elements; kernel and layout that compute it, kernel and layout that take one.
I_KERNEL, I_LAYOUT, I_SHADOW, I_ITEM, I_COVERS, I_GIVES, I_ONE, I_ONE_LAYOUT, I_SPREAD, I_SPREAD_LAYOUT = range(10)
I_WORDS = 10
OTHERWISE, LIKEWISE, ALWAYS = range(3)
"""A pullback gives one number for all elements: never, where its cotangent is one number, always."""
NEVER, UNWANTED, WANTED = range(3)
"""In place of a kernel that takes one number: there is none, it has not been asked for, it is to be compiled."""

PATIENCE = 1 << 22
"""Steps of inner loops after which native code returns, so that Python can take an interrupt: some ten milliseconds."""

OK, GROW, FREED, MISSING, MEMORY, PAUSE, BREATH, STRANGE = range(8)

TAPE_BITS = 44
"""A slot is its tape's number shifted by this, plus a count: unique in the process, never used again."""

COUNTS = (1 << 32) - 1
"""Reference counts have 32 bits since Python 3.12; immortal objects' counts are above any real one."""

# A row of a program: what to do, the address to call or fill, layout, pointers, and what the call takes.
R_KIND, R_ADDRESS, R_LAYOUT, R_POINTERS, R_ACCUMULATE, R_DATA, R_OPERANDS = range(7)
ROW = 8
RUN_KERNEL, RUN_NEST, RUN_FILL8, RUN_FILL4 = range(4)

# A tensor as an object of Python, in bytes: after its header, references, then what is no reference.
O_TYPE, O_VALUE, O_FORM, O_SLOT, O_BASE, O_VIEWS, O_SHARED, O_RARE, O_OFFSET, O_WEAK, O_SIZE = range(8, 96, 8)
O_FIRST, O_LAST = O_VALUE, O_RARE
