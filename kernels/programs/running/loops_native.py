"""What steers loops in a running program: rows that count, save on a stack, restore, and say which row is next."""

from __future__ import annotations

from kernels.native.memory import load_f8, load_i8, store_i8, word
from kernels.native.words import (
    L_COUNT,
    L_LEFT,
    L_LIMIT,
    L_TOP,
    R_ACCUMULATE,
    R_ADDRESS,
    R_DATA,
    R_KIND,
    R_LAYOUT,
    R_OPERANDS,
    R_POINTERS,
    RUN_AGAIN,
    RUN_BACK,
    RUN_BODY,
    RUN_CHOOSE,
    RUN_LOOP,
    RUN_NEXT,
    RUN_RESTORE,
    S_FUEL,
    S_NEEDED,
    S_ROOM,
    S_STACK,
    S_TOP,
    WORK_BETWEEN_CHECKS,
)

MOST = 4.0e18


def put(table, place, value):
    """Store a word."""
    store_i8(table + 8 * place, value)


def begin(row, k, pointers):
    """Begin a loop: the row of its first body, or where it does not run at all the one behind it; -1 for no count."""
    loop, stack, limit = word(pointers, 0), word(pointers, 1), word(row, R_DATA)
    if word(row, R_ACCUMULATE) != 0:
        put(stack, S_TOP, 0)
    if word(row, R_OPERANDS) > 2:
        count = load_f8(word(pointers, 2))
        if not -MOST < count < MOST:
            return -1
        limit = max(int(count), 0)
    put(loop, L_COUNT, 0)
    put(loop, L_LIMIT, limit)
    put(loop, L_TOP, word(stack, S_TOP))
    return k + (word(row, R_ADDRESS) if limit == 0 else 1)


def save(row, k, pointers):
    """Push what a body saves; the row to go on with, negative where the stack is full."""
    if word(row, R_ACCUMULATE) == 0:
        return k + 1
    stack, sizes = word(pointers, 1), word(row, R_LAYOUT)
    top, size = word(stack, S_TOP), word(sizes, 0)
    if top + size > word(stack, S_ROOM):
        put(stack, S_NEEDED, size)
        return -2 - k
    target = word(stack, S_STACK) + 8 * top
    for i in range(word(row, R_OPERANDS)):
        source = word(pointers, 2 + i)
        for j in range(word(sizes, 1 + i)):
            store_i8(target, load_i8(source + 8 * j))
            target += 8
    store_i8(target, word(row, R_DATA))
    put(stack, S_TOP, top + size)
    return k + 1


def restore(row, k, pointers):
    """Pop what an iteration saved."""
    stack, sizes = word(pointers, 1), word(row, R_LAYOUT)
    top = word(stack, S_TOP) - word(sizes, 0)
    source = word(stack, S_STACK) + 8 * top
    for i in range(word(row, R_OPERANDS)):
        target = word(pointers, 2 + i)
        for j in range(word(sizes, 1 + i)):
            store_i8(target + 8 * j, load_i8(source))
            source += 8
    put(stack, S_TOP, top)
    return k + 1


def onward(stack, work, k):
    """The row to go on with; negative where Python looks for interrupts before."""
    fuel = word(stack, S_FUEL) - work
    put(stack, S_FUEL, fuel)
    if fuel >= 0:
        return k
    put(stack, S_FUEL, WORK_BETWEEN_CHECKS)
    return -2 - k


def advance(row, k, pointers):
    """End an iteration: the row of the first body, or behind the loop where the most iterations are done."""
    loop, stack = word(pointers, 0), word(pointers, 1)
    count = word(loop, L_COUNT) + 1
    put(loop, L_COUNT, count)
    put(loop, L_TOP, word(stack, S_TOP))
    ahead = word(row, R_LAYOUT) if count == word(loop, L_LIMIT) else word(row, R_ADDRESS)
    return onward(stack, word(row, R_DATA), k + ahead)


def choose(row, k, pointers):
    """The row of the pullbacks of the last iteration that is left; behind them all if none is."""
    loop, stack = word(pointers, 0), word(pointers, 1)
    left = word(loop, L_LEFT)
    if left == 0:
        return k + word(row, R_ADDRESS)
    put(loop, L_LEFT, left - 1)
    body = load_i8(word(stack, S_STACK) + 8 * word(stack, S_TOP) - 8)
    return k + word(word(row, R_LAYOUT), body)


def steered_back(row, k, pointers):
    """Run a row that steers the way back; return the next."""
    kind = word(row, R_KIND)
    if kind == RUN_BACK:  # above is what loops within an iteration saved that was not ended
        loop = word(pointers, 0)
        put(loop, L_LEFT, word(loop, L_COUNT))
        put(word(pointers, 1), S_TOP, word(loop, L_TOP))
        return k + 1
    if kind == RUN_CHOOSE:
        return choose(row, k, pointers)
    if kind == RUN_RESTORE:
        return restore(row, k, pointers)
    return onward(word(pointers, 1), word(row, R_DATA), k + word(row, R_ADDRESS))


def steered(row: int, k: int) -> int:
    """Run a row that steers a loop; return the next, -1 to miss, ``-2 - next`` to look at Python's business before."""
    kind, pointers = word(row, R_KIND), word(row, R_POINTERS)
    if kind == RUN_NEXT:
        return advance(row, k, pointers)
    if kind == RUN_BODY:
        put(word(pointers, 1), S_TOP, word(word(pointers, 0), L_TOP))
        return k + 1
    if kind == RUN_AGAIN:
        return save(row, k, pointers)
    if kind == RUN_LOOP:
        return begin(row, k, pointers)
    return steered_back(row, k, pointers)
