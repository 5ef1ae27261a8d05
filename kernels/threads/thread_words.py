"""The words that threads share: who works at what, and who sleeps."""

from __future__ import annotations

W_THREADS, W_RUN, W_FUNCTION, W_TABLE, W_PARTS, W_ACTIVE, W_STOP = range(7)
"""How many threads work; the address of ``run``; what is run: a function, its table, how many parts, by how many
threads; whether workers end."""
W_SHARED, W_BY_WORKERS = 7, 8
"""How many loops several threads have run, and how many parts of them workers, not callers."""
W_BUSY, W_NUMBER, W_DONE, W_WAITS, W_LOCK = 16, 24, 32, 40, 48
"""Whether a loop is run; its number; how many parts are done; whether the caller sleeps, and where. A line each."""
W_FIRST, W_EACH = 64, 16
"""Where the words of threads begin, and how many each has."""
E_CLAIM, E_SLEEPS, E_LOCK = 0, 8, 9
"""Of a thread: which of its parts is next, whether it sleeps, and where."""
PARTS_BITS, NUMBERS = 16, 1 << 31
"""A claim is the number of the loop, where the parts of the thread end, and which is next, in so many bits each."""
MOST_PARTS = 128
"""Parts of a loop, at most, and with them threads."""
SPINS = 2_000
"""How often a thread looks for work, or for the end of it, before it sleeps: some fifty microseconds."""
