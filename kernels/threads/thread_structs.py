"""What threads share: who works at what, and who sleeps."""

from __future__ import annotations

from kernels.compiler.native_types import Struct


class ThreadPoolWords(Struct):
    """What all threads share; behind it a :class:`WorkerWords` each. What several write has a cache line of its own."""

    threads: int  # how many work
    run: int  # the address of ``run``
    function: int  # what is run: a function,
    table: int  # its table,
    parts: int  # how many parts,
    active: int  # by how many threads
    stop: int  # whether workers end
    shared: int  # how many loops several threads have run
    by_workers: int  # how many parts of them workers, not callers
    busy: int = 16  # whether a loop is run
    number: int = 24  # of the loop
    done: int = 32  # how many parts are done
    waits: int = 40  # whether the caller sleeps,
    lock: int = 48  # and where


class WorkerWords(Struct):
    """What one thread has."""

    claim: int  # which of its parts is next
    sleeps: int = 8  # whether it sleeps,
    lock: int = 9  # and where


W_FIRST, W_EACH = 64, 16
"""Where the words of threads begin, and how many each has."""
PARTS_BITS, NUMBERS = 16, 1 << 31
"""A claim is the number of the loop, where the parts of the thread end, and which is next, in so many bits each."""
MOST_PARTS = 128
"""Parts of a loop, at most, and with them threads."""
SPINS = 2_000
"""How often a thread looks for work, or for the end of it, before it sleeps: some fifty microseconds."""
