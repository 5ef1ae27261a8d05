"""Names for the words of the pool and of its blocks, for native code and Python."""

from __future__ import annotations

LARGE = 1 << 16
"""Bytes from which on a block is kept for reuse."""
HUGE = 1 << 22
"""Bytes from which on the system is asked for huge pages, as NumPy does."""
STEPS = 8
"""Sizes of blocks to a power of two."""
CLASSES = 8 * (48 - 16)
"""Sizes of blocks there are."""

# The pool's own words.
(
    LOCK, KEPT, BOUND, NEWEST, OLDEST, POISON, FRESH, REUSED, MADVISE, HANDLER, DEFAULT_HANDLER, GET_HANDLER,
    SET_HANDLER, NEW_ARRAY, HEADS,
) = range(15)  # fmt: skip
WORDS = HEADS + CLASSES

# Before a block's data: bytes, the address C gave, neighbours among those of its size and among all.
SIZE, RAW, PREVIOUS, NEXT, OLDER, NEWER = -8, -16, -24, -32, -40, -48

# Around a guarded block (guards_native.py), in bytes from where it begins: its size, its neighbours among the
# living, its kind, canaries; behind its data more of them.
GUARD_SIZE, GUARD_NEXT, GUARD_PREVIOUS, GUARD_KIND, CANARIES, GUARD = 0, 8, 16, 24, 32, 64
BEHIND = 16
CANARY, BEHIND_BYTE, FREED_BYTE = 0x5AFEC0DE5AFEC0DE, 0xFD, 0xDD
RAW_BLOCK, POOLED = 1, 2
"""Kinds of guarded blocks: of Python's raw memory, as a tape has them; of the pool."""
WRITTEN_BEFORE, WRITTEN_BEHIND, GIVEN_TWICE, WRITTEN_AFTER = 1, 2, 3, 4
"""What is wrong with one: written before its data, or behind it; given back twice; written after it was given back."""
# The words of the guards: the first of the living, their lock, what reports a fault; the pool's functions,
# and where it counts the blocks that are used again.
G_LIVING, G_LOCK, G_REPORT, G_TAKE, G_GIVE, G_REUSED, G_WORDS = range(7)
