"""Where small values stand that share memory: each takes the place of one of its size that is needed no more."""

from __future__ import annotations

from kernels.native.memory import store_i8, word


def share(
    count: int, born: int, dying: int, first: int, last: int, rooms: int, starts: int, behind: int, heads: int
) -> int:
    """Give each of ``count`` values a place; return the size of all.

    ``born`` and ``dying`` have the values in the order of their first and of their last task. What is free of one size
    is a list: ``heads`` has its beginning, by words, and ``behind`` what comes after each; -1 ends it.
    """
    size, gone = 0, 0
    for k in range(count):
        value = word(born, k)
        while gone < count and word(last, word(dying, gone)) < word(first, value):
            free = word(dying, gone)
            head = heads + word(rooms, free)
            store_i8(behind + 8 * free, word(head, 0))
            store_i8(head, free)
            gone += 1
        head = heads + word(rooms, value)
        free = word(head, 0)
        if free < 0:
            store_i8(starts + 8 * value, size)
            size += word(rooms, value)
        else:
            store_i8(starts + 8 * value, word(starts, free))
            store_i8(head, word(behind, free))
    return size
