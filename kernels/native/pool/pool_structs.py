"""The pool and its blocks in memory, for native code and Python."""

from __future__ import annotations

from kernels.compiler.native_types import Struct

LARGE = 1 << 16
"""Bytes from which on a block is kept for reuse."""
HUGE = 1 << 22
"""Bytes from which on the system is asked for huge pages, as NumPy does."""
STEPS = 8
"""Sizes of blocks to a power of two."""
CLASSES = 8 * (48 - 16)
"""Sizes of blocks there are."""


class PoolWords(Struct):
    """The pool; behind the fields the CLASSES lists of blocks by size."""

    lock: int
    kept: int  # bytes that are kept
    bound: int  # how many may be
    newest: int
    oldest: int
    poison: int  # whether blocks are filled with what nobody wrote
    fresh: int  # how many blocks C gave
    reused: int  # how many were used again
    madvise: int  # the function of C, 0 where there is none
    handler: int
    default_handler: int
    get_handler: int
    set_handler: int
    new_array: int


WORDS = PoolWords.SIZE + CLASSES


class PoolBlock(Struct, step=8):
    """What stands before a block's data, in bytes."""

    size: int = -8
    raw: int = -16  # the address that C gave
    previous: int = -24  # among those of its size
    next: int = -32
    older: int = -40  # among all
    newer: int = -48


class GuardedBlock(Struct, step=8):
    """What stands around a guarded block, in bytes from where it begins (guards_native.py)."""

    size: int
    next: int  # among the living
    previous: int
    kind: int  # RAW_BLOCK, POOLED
    canaries: int


GUARD = 64
"""Bytes before a guarded block's data."""
BEHIND = 16
CANARY, BEHIND_BYTE, FREED_BYTE = 0x5AFEC0DE5AFEC0DE, 0xFD, 0xDD
RAW_BLOCK, POOLED = 1, 2
"""Kinds of guarded blocks: of Python's raw memory, as a tape has them; of the pool."""
WRITTEN_BEFORE, WRITTEN_BEHIND, GIVEN_TWICE, WRITTEN_AFTER = 1, 2, 3, 4
"""What is wrong with one: written before its data, or behind it; given back twice; written after it was given back."""


class GuardWords(Struct):
    """The words of the guards."""

    living: int  # the first of the living
    lock: int
    report: int  # what reports a fault
    take: int  # the pool's functions
    give: int
    reused: int  # where the pool counts the blocks that are used again
