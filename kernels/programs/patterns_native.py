"""Sets of unknowns, kept once each, and colourings of graphs.

A set is a number. Its members stand in order in a pool, from ``starts[k]`` to ``starts[k + 1]``; set 0 is empty, and
set ``1 + i`` has the one member i. A hash of its members leads to a set that has several.
"""

from __future__ import annotations

from kernels.language.llvm_values import Array, Struct

MIX = 0x9E3779B97F4A7C1  # an odd number by which hashes are spread over words
SHIFT = 29  # by which the upper bits of a product reach the lower ones


class SetTable(Struct):
    """What is known of sets, and where."""

    count: int  # of sets
    sets: int  # for which there is room
    used: int  # members in the pool
    room: int  # for members
    mask: int  # of places in the table, whose number is a power of two
    memo_mask: int  # of unions that are remembered
    starts: Array[int]  # where the members of each set begin in the pool
    pool: Array[int]
    hashes: Array[int]  # of sets of several members
    table: Array[int]  # these sets by their hashes; 0 where there is none
    memo: Array[int]  # two sets, and their union


def mixed(code, value):
    code = (code ^ value) * MIX
    return code ^ (code >> SHIFT)


def merge(s: SetTable, a, b):
    """Put the members of two sets, in order, behind the pool; return how many there are."""
    pool, starts = s.pool, s.starts
    i, j, at = starts[a], starts[b], s.used
    end, last = starts[a + 1], starts[b + 1]
    while i < end and j < last:
        x, y = pool[i], pool[j]
        pool[at] = min(x, y)
        i += 1 if x <= y else 0
        j += 1 if y <= x else 0
        at += 1
    while i < end:
        pool[at] = pool[i]
        i += 1
        at += 1
    while j < last:
        pool[at] = pool[j]
        j += 1
        at += 1
    return at - s.used


def is_set(s: SetTable, number, length):
    """Whether a set has the members that stand behind the pool."""
    begin, k = s.starts[number], 0
    if s.starts[number + 1] - begin == length:
        while k < length and s.pool[begin + k] == s.pool[s.used + k]:
            k += 1
    return k == length


def kept_once(s: SetTable, length):
    """Return the set whose members stand behind the pool, a new one if there was none."""
    code = length
    for k in range(length):
        code = mixed(code, s.pool[s.used + k])
    at = code & s.mask
    while s.table[at] != 0:
        if s.hashes[s.table[at]] == code and is_set(s, s.table[at], length):
            return s.table[at]
        at = (at + 1) & s.mask
    number = s.count
    s.count = number + 1
    s.used += length
    s.starts[number + 1] = s.used
    s.hashes[number] = code
    s.table[at] = number
    return number


def both(s: SetTable, a, b):
    """Return the union of two different sets that are not empty."""
    low, high = min(a, b), max(a, b)
    at = 3 * (mixed(low, high) & s.memo_mask)
    if s.memo[at] == low and s.memo[at + 1] == high:
        return s.memo[at + 2]
    length, result = merge(s, a, b), 0
    if length == s.starts[a + 1] - s.starts[a]:
        result = a
    elif length == s.starts[b + 1] - s.starts[b]:
        result = b
    else:
        result = kept_once(s, length)
    s.memo[at] = low
    s.memo[at + 1] = high
    s.memo[at + 2] = result
    return result


def has_room(s: SetTable, a, b):
    """Whether one more set, as large as two together, fits into all tables."""
    members = s.starts[a + 1] - s.starts[a] + s.starts[b + 1] - s.starts[b]
    return s.used + members <= s.room and s.count + 2 < s.sets and 2 * s.count < s.mask


def unite(s: SetTable, out: Array[int], a: Array[int], b: Array[int], begin: int, end: int) -> int:
    """Write the union of sets, element by element; return where room ran out, ``end`` if nowhere."""
    for k in range(begin, end):
        x, y = a[k], b[k]
        if x == y or y == 0:
            out[k] = x
        elif x == 0:
            out[k] = y
        else:
            if has_room(s, x, y) == 0:
                return k
            out[k] = both(s, x, y)
    return end


def place_again(s: SetTable, first: int) -> int:
    """Fill an empty table with the sets from a number on; return how many there are."""
    for number in range(first, s.count):
        at = s.hashes[number] & s.mask
        while s.table[at] != 0:
            at = (at + 1) & s.mask
        s.table[at] = number
    return s.count


def added_at(s: SetTable, target: Array[int], at: Array[int], b: Array[int], begin: int, end: int) -> int:
    """Add sets to those at places, which may come several times; return where room ran out, ``end`` if nowhere."""
    for k in range(begin, end):
        x, y = target[at[k]], b[k]
        if x == 0:
            target[at[k]] = y
        elif x != y and y != 0:
            if has_room(s, x, y) == 0:
                return k
            target[at[k]] = both(s, x, y)
    return end


# Graphs are rows of neighbours, as SciPy's CSR has them. Colours count from 0; -1 is none yet.


def first_free(colours: Array[int], seen: Array[int], v):
    """Give a vertex the first colour that is not forbidden for it; return how many there are up to that."""
    colour = 0
    while seen[colour] == v:
        colour += 1
    colours[v] = colour
    return colour + 1


def coloured_apart(
    starts: Array[int], near: Array[int], order: Array[int], colours: Array[int], seen: Array[int], count: int
) -> int:
    """Colour vertices in an order, neighbours differently; return the number of colours. ``seen`` has -1s."""
    most = 0
    for k in range(count):
        v = order[k]
        for e in range(starts[v], starts[v + 1]):
            if near[e] != v and colours[near[e]] >= 0:
                seen[colours[near[e]]] = v
        most = max(most, first_free(colours, seen, v))
    return most


def coloured_by_rows(
    starts: Array[int], columns: Array[int], column_starts: Array[int], rows: Array[int], colours: Array[int],
    seen: Array[int], count: int,
) -> int:  # fmt: skip
    """Colour the columns of a matrix so that those of a row have several colours; return the number of colours.

    It is given by rows and by columns; the graph of columns that meet need not be there.
    """
    most = 0
    for v in range(count):
        for e in range(column_starts[v], column_starts[v + 1]):
            for f in range(starts[rows[e]], starts[rows[e] + 1]):
                w = columns[f]
                if w < v:
                    seen[colours[w]] = v
        most = max(most, first_free(colours, seen, v))
    return most


def coloured_in_stars(
    starts: Array[int], near: Array[int], order: Array[int], colours: Array[int], seen: Array[int], count: int
) -> int:
    """Colour as :func:`coloured_apart`, and so that a path of four vertices has three colours at least.

    Behind the first ``count + 1`` of ``seen`` stands for each vertex whether a neighbour of it has another one of its
    colour: paths through such a vertex are looked at.
    """
    most = 0
    for k in range(count):
        v = order[k]
        for e in range(starts[v], starts[v + 1]):
            w = near[e]
            if w != v:
                if colours[w] >= 0:
                    seen[colours[w]] = v
                if colours[w] < 0 or seen[count + 1 + w] >= 0:
                    forbid(starts, near, colours, seen, v, w)
        most = max(most, first_free(colours, seen, v))
        for e in range(starts[v], starts[v + 1]):
            if near[e] != v and colours[near[e]] >= 0:
                note_twice(starts, near, colours, seen, v, near[e], count)
    return most


def forbid(starts: Array[int], near: Array[int], colours: Array[int], seen: Array[int], v, w):
    """Forbid the colours at the ends of paths v, w, x for v."""
    for f in range(starts[w], starts[w + 1]):
        x = near[f]
        if x != v and x != w and colours[x] >= 0 and seen[colours[x]] != v:
            taken = 1 if colours[w] < 0 else is_twice_near(starts, near, colours, x, w)
            seen[colours[x]] = v if taken != 0 else seen[colours[x]]
    return 0


def note_twice(starts: Array[int], near: Array[int], colours: Array[int], seen: Array[int], v, x, count):
    """Note the neighbours of x that have the colour of v, if there are others than v."""
    for f in range(starts[x], starts[x + 1]):
        w = near[f]
        if w != v and w != x and colours[w] == colours[v]:
            seen[count + 1 + w] = 1
            seen[count + 1 + v] = 1
    return 0


def is_twice_near(starts: Array[int], near: Array[int], colours: Array[int], x, w):
    """Whether a vertex has another neighbour of the colour of its neighbour w."""
    for e in range(starts[x], starts[x + 1]):
        y = near[e]
        if y != w and y != x and colours[y] == colours[w]:
            return True
    return False


def smallest_last(
    starts: Array[int], near: Array[int], degrees: Array[int], heads: Array[int], links: Array[int], order: Array[int],
    count: int,
) -> int:  # fmt: skip
    """Order vertices so that each has fewest neighbours among those up to it; return the number of vertices.

    ``heads`` has a -1 for each degree; ``links`` are the next and the previous vertex of the same degree.
    """
    for v in range(count):
        enter(heads, links, degrees[v], v)
    least = 0
    for left in range(count - 1, -1, -1):
        while heads[least] < 0:
            least += 1
        v = heads[least]
        leave(heads, links, least, v)
        degrees[v] = -1
        order[left] = v
        for e in range(starts[v], starts[v + 1]):
            w = near[e]
            if degrees[w] > 0:
                leave(heads, links, degrees[w], w)
                degrees[w] -= 1
                enter(heads, links, degrees[w], w)
                least = min(least, degrees[w])
    return count


def enter(heads: Array[int], links: Array[int], degree, v):
    head = heads[degree]
    links[2 * v] = head
    links[2 * v + 1] = -1
    if head >= 0:
        links[2 * head + 1] = v
    heads[degree] = v
    return 0


def leave(heads: Array[int], links: Array[int], degree, v):
    after, before = links[2 * v], links[2 * v + 1]
    if after >= 0:
        links[2 * after + 1] = before
    if before >= 0:
        links[2 * before] = after
    else:
        heads[degree] = after
    return 0
