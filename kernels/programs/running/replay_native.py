"""The interpreter of programs: one loop over rows of words, each a call by address."""

from __future__ import annotations

import numpy as np

from kernels.native.memory import call_kernel, load_f8, load_i1, load_i8, store_i4, store_i8, word
from kernels.native.nests_native import nest
from kernels.native.tape_structs import (
    ROW,
    RUN_AGAIN,
    RUN_BACK,
    RUN_BODY,
    RUN_CHOOSE,
    RUN_FILL4,
    RUN_FILL8,
    RUN_GUARD,
    RUN_INLINE,
    RUN_KERNEL,
    RUN_LOOP,
    RUN_NEXT,
    RUN_PYTHON,
    RUN_RESTORE,
    WORK_BETWEEN_CHECKS,
    LoopStack,
    LoopWords,
    ProgramRow,
)

# What steers loops in a running program: rows that count, save on a stack, restore, and say which row is next.

MOST = 4.0e18


def put(table, place, value):
    """Store a word."""
    store_i8(table + 8 * place, value)


def begin(row: ProgramRow, k, pointers):
    """Begin a loop: the row of its first body, or where it does not run at all the one behind it; -1 for no count."""
    loop, stack, limit = word(pointers, 0), LoopStack(word(pointers, 1)), row.data
    if row.accumulate != 0:
        put(stack, LoopStack.top, 0)
    if row.operands > 2:
        count = load_f8(word(pointers, 2))
        if not -MOST < count < MOST:
            return -1
        limit = max(int(count), 0)
    put(loop, LoopWords.count, 0)
    put(loop, LoopWords.limit, limit)
    put(loop, LoopWords.top, stack.top)
    return k + (row.address if limit == 0 else 1)


def save(row: ProgramRow, k, pointers):
    """Push what a body saves; the row to go on with, negative where the stack is full."""
    if row.accumulate == 0:
        return k + 1
    stack, sizes = LoopStack(word(pointers, 1)), row.layout
    top, size = stack.top, word(sizes, 0)
    if top + size > stack.room:
        put(stack, LoopStack.needed, size)
        return -2 - k
    target = stack.stack + 8 * top
    for i in range(row.operands):
        source = word(pointers, 2 + i)
        for j in range(word(sizes, 1 + i)):
            store_i8(target, load_i8(source + 8 * j))
            target += 8
    store_i8(target, row.data)
    put(stack, LoopStack.top, top + size)
    return k + 1


def restore(row: ProgramRow, k, pointers):
    """Pop what an iteration saved."""
    stack, sizes = LoopStack(word(pointers, 1)), row.layout
    top = stack.top - word(sizes, 0)
    source = stack.stack + 8 * top
    for i in range(row.operands):
        target = word(pointers, 2 + i)
        for j in range(word(sizes, 1 + i)):
            store_i8(target + 8 * j, load_i8(source))
            source += 8
    put(stack, LoopStack.top, top)
    return k + 1


def onward(stack: LoopStack, work, k):
    """The row to go on with; negative where Python looks for interrupts before."""
    fuel = stack.fuel - work
    put(stack, LoopStack.fuel, fuel)
    if fuel >= 0:
        return k
    put(stack, LoopStack.fuel, WORK_BETWEEN_CHECKS)
    return -2 - k


def advance(row: ProgramRow, k, pointers):
    """End an iteration: the row of the first body, or behind the loop where the most iterations are done."""
    loop, stack = LoopWords(word(pointers, 0)), LoopStack(word(pointers, 1))
    count = loop.count + 1
    put(loop, LoopWords.count, count)
    put(loop, LoopWords.top, stack.top)
    ahead = row.layout if count == loop.limit else row.address
    return onward(stack, row.data, k + ahead)


def choose(row: ProgramRow, k, pointers):
    """The row of the pullbacks of the last iteration that is left; behind them all if none is."""
    loop, stack = LoopWords(word(pointers, 0)), LoopStack(word(pointers, 1))
    left = loop.left
    if left == 0:
        return k + row.address
    put(loop, LoopWords.left, left - 1)
    body = load_i8(stack.stack + 8 * stack.top - 8)
    return k + word(row.layout, body)


def steered_back(row: ProgramRow, k, pointers):
    """Run a row that steers the way back; return the next."""
    kind = row.kind
    if kind == RUN_BACK:  # above is what loops within an iteration saved that was not ended
        loop = LoopWords(word(pointers, 0))
        put(loop, LoopWords.left, loop.count)
        put(word(pointers, 1), LoopStack.top, loop.top)
        return k + 1
    if kind == RUN_CHOOSE:
        return choose(row, k, pointers)
    if kind == RUN_RESTORE:
        return restore(row, k, pointers)
    return onward(word(pointers, 1), row.data, k + row.address)


def steered(row: ProgramRow, k: int) -> int:
    """Run a row that steers a loop; return the next, -1 to miss, ``-2 - next`` to look at Python's business before."""
    kind, pointers = row.kind, row.pointers
    if kind == RUN_NEXT:
        return advance(row, k, pointers)
    if kind == RUN_BODY:
        put(word(pointers, 1), LoopStack.top, LoopWords(word(pointers, 0)).top)
        return k + 1
    if kind == RUN_AGAIN:
        return save(row, k, pointers)
    if kind == RUN_LOOP:
        return begin(row, k, pointers)
    return steered_back(row, k, pointers)


def differ(a, b, size):
    """Whether bytes of two places differ."""
    count, different = size >> 3, 0
    for i in range(count):
        different |= load_i8(a + 8 * i) ^ load_i8(b + 8 * i)
    for i in range(8 * count, size):
        different |= np.int64(load_i1(a + i)) ^ np.int64(load_i1(b + i))
    return different != 0


def run(rows: int, first: int, stop: int) -> int:
    """Execute rows from ``first`` on to ``stop``; return the number of the row whose guard missed, -1 if none did.

    ``-2 - k`` where Python has to act before it goes on with row k: to give loops room, to look for interrupts, to run
    what row k stands for.
    """
    k = first
    while k < stop:
        row = ProgramRow(rows + 8 * ROW * k)
        kind = row.kind
        if kind == RUN_INLINE:
            call_kernel(row.layout, row.address, row.data, row.operands)
        elif kind == RUN_KERNEL:
            call_kernel(row.address, row.layout, row.pointers, row.accumulate)
        elif kind == RUN_FILL8:
            target = row.address
            for i in range(row.operands):
                store_i8(target + 8 * i, row.data)
        elif kind == RUN_FILL4:
            target = row.address
            for i in range(row.operands):
                store_i4(target + 4 * i, row.data)
        elif kind == RUN_GUARD:
            pointers = row.pointers
            if differ(word(pointers, 0), word(pointers, 1), row.operands):
                ahead = row.address
                if ahead == 0:
                    return k
                k += ahead - 1
        elif kind == RUN_PYTHON:
            return -2 - k
        elif kind >= RUN_LOOP:
            following = steered(row, k)
            if following < 0:
                return following if following != -1 else k
            k = following - 1
        else:
            pointers, operands = row.pointers, row.operands
            nest(row.layout, pointers, operands, row.address, row.data)
        k += 1
    return -1
