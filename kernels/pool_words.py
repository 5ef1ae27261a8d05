"""What the words of the pool and of its blocks mean; both sides, native code and Python, read them by these names."""

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
