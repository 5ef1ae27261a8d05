"""Repeats of a recording: iterations that do what the one before did are counted, and not kept.

What a tensor has for its node is the number that it would have if all were kept.
"""

from __future__ import annotations

from kernels.language.llvm_values import kept_apart
from kernels.native import c_api, structs
from kernels.native.c_api import ListObject
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.objects_native import kind_of, owned
from kernels.native.structs import NODE_MASK, NodeObject, RecorderTables, RepeatSearch, RepeatWords, StepWords
from kernels.programs.program import HEAD

CONTROL = True


def length(things: ListObject):
    return things.size


def item(things: ListObject, at):
    return things.items[at]


def node_at(tables: RecorderTables, at):
    return NodeObject(item(tables.nodes, at))


def repeat_at(repeats: RepeatSearch, k):
    return RepeatWords(repeats + 8 * (RepeatSearch.SIZE + RepeatWords.SIZE * k))


def kept(tables: RecorderTables, number):
    """The node that stands for a number that a tensor has; -1 where it is of an iteration that is not kept."""
    repeats, above = tables.repeats, NODE_MASK
    for k in range(repeats.parts - 1, -1, -1):
        repeat = repeat_at(repeats, k)
        at = number - repeat.shift
        if at >= repeat.node:
            return at if at < above else -1
        above = repeat.node
    return number if number < above else -1


def shift_of(repeats: RepeatSearch):
    return repeat_at(repeats, repeats.parts - 1).shift if repeats.parts != 0 else 0


def moves(before, here, now, step):
    """Whether a word stays as it is, or moves by a step in each of two iterations."""
    return here - before == now - here and (now == here or now - here == step)


def same_words(tables: RecorderTables, repeats: RepeatSearch, begin):
    """Whether the last iteration, whose words begin there, does what the two before did."""
    words, at = tables.steps.address, begin
    while at < begin + repeats.words:
        size = HEAD + repeats.counts[word(words, at)]
        for k in range(size):
            now, here = word(words, at + k), word(words, at + k - repeats.words)
            before = word(words, at + k - 2 * repeats.words)
            step = 0 if k == 0 else (repeats.nodes if now >= 0 else -repeats.numbers)
            if moves(before, here, now, step) == 0 or (now < 0 and now == here):
                return False
        at += size
    return at == begin + repeats.words


def number_in(x, none):
    return -1 if x == none else c_api.PyLong_AsLongLong(x)


def moved(tables: RecorderTables, before: NodeObject, here: NodeObject, now: NodeObject, skipped):
    """Whether a node is of the memory, and the place in it, that goes with the two before."""
    none, step = tables.none, tables.repeats.nodes
    if moves(number_in(before.base, none), number_in(here.base, none), number_in(now.base, none), step) == 0:
        return False
    if moves(number_in(before.family, none), number_in(here.family, none), number_in(now.family, none), step) == 0:
        return False
    by = number_in(here.offset, none) - number_in(before.offset, none)
    buffers = number_in(here.buffer_offset, none) - number_in(before.buffer_offset, none)
    same = number_in(now.offset, none) - number_in(here.offset, none) == by * (skipped + 1)
    return same and number_in(now.buffer_offset, none) - number_in(here.buffer_offset, none) == buffers * (skipped + 1)


def same_nodes(tables: RecorderTables, repeats: RepeatSearch, skipped):
    nodes, step, none = tables.nodes, repeats.nodes, tables.none
    count = length(nodes)
    for k in range(count - step, count):
        now, here = NodeObject(item(nodes, k)), NodeObject(item(nodes, k - step))
        before = NodeObject(item(nodes, k - 2 * step))
        if now != here or here != before or now.constant != none or now.argument == tables.true:
            alike = now.spec == here.spec and now.differentiable == here.differentiable and before.spec == here.spec
            alike = alike and now.constant == none and here.constant == none and now.argument != tables.true
            if not alike or here.argument == tables.true or moved(tables, before, here, now, skipped) == 0:
                return False
    return True


def same_numbers(tables: RecorderTables, repeats: RepeatSearch):
    """Whether the numbers of the last iteration are those of the one before; -1 where some are no floats."""
    numbers, step, same = tables.numbers, repeats.numbers, 1
    count = length(numbers)
    for k in range(count - step, count):
        now, here = item(numbers, k), item(numbers, k - step)
        if kind_of(now) != tables.float_type or kind_of(here) != tables.float_type:
            return -1
        same = same if load_i8(now + HEADER) == load_i8(here + HEADER) else 0
    return same


def same_marks(tables: RecorderTables, repeats: RepeatSearch):
    marks, step = tables.marks, repeats.marks
    if marks == 0:
        return True
    begin, at = marks.used - step, tables.steps.used - repeats.words
    if begin < 2 * step or (begin > 0 and word(marks.address, begin - 2) >= at):
        return False
    for k in range(begin, marks.used, 2):
        alike = word(marks.address, k) - word(marks.address, k - step) == repeats.words
        if not alike or word(marks.address, k) < at or word(marks.address, k + 1) != word(marks.address, k + 1 - step):
            return False
    return True


def is_alike(tables: RecorderTables, repeats: RepeatSearch, skipped):
    """Whether the last iteration did what the two before it did."""
    begin = tables.steps.used - repeats.words
    rooms = begin >= 2 * repeats.words and length(tables.nodes) >= 3 * repeats.nodes
    rooms = rooms and length(tables.numbers) >= 3 * repeats.numbers
    rooms = rooms and length(tables.nodes) == length(tables.forms)
    return rooms and same_words(tables, repeats, begin) and same_nodes(tables, repeats, skipped)


def steps_before(tables: RecorderTables, repeats: RepeatSearch):
    """Find where the last steps begin; how many of them there are."""
    count, at, end = 0, 0, tables.steps.used
    if repeats.parts != 0:
        at = repeat_at(repeats, repeats.parts - 1).word
    while at < end:
        repeats.starts[count & (structs.STARTS - 1)] = at
        count += 1
        at += HEAD + repeats.counts[word(tables.steps.address, at)]
    return count


def start_of(repeats: RepeatSearch, count, back):
    return repeats.starts[(count - back) & (structs.STARTS - 1)]


def numbers_between(tables: RecorderTables, repeats: RepeatSearch, begin, end):
    total, at = 0, begin
    while at < end:
        size = HEAD + repeats.counts[word(tables.steps.address, at)]
        for k in range(HEAD, size):
            total += 1 if word(tables.steps.address, at + k) < 0 else 0
        at += size
    return total


def marks_from(tables: RecorderTables, begin):
    marks, count = tables.marks, 0
    if marks == 0:
        return 0
    while count < marks.used and word(marks.address, marks.used - count - 2) >= begin:
        count += 2
    return count


def behind_moved(tables: RecorderTables, repeats: RepeatSearch, begin, end, first):
    """Behind the last step that reads a view, made before a node, of another place in each iteration; 0: none does."""
    words, at, none, last = tables.steps.address, begin, tables.none, 0
    while at < end:
        behind = at + HEAD + repeats.counts[word(words, at)]
        for k in range(at + HEAD, behind):
            now = word(words, k)
            if 0 <= now < first and now != word(words, k - repeats.words):
                here, before = node_at(tables, now), node_at(tables, now - repeats.nodes)
                if here.base != none and number_in(here.offset, none) != number_in(before.offset, none):
                    last = behind
        at = behind
    return last


@kept_apart
def words_to_begin(tables: RecorderTables, repeats: RepeatSearch, begin):
    """Behind how many words of an iteration no view is needed that was made before and moves; -1 if there are none.

    What is not kept ends there: such a view would be one of an iteration that is not kept.
    """
    at, end, first = begin, begin + repeats.words, length(tables.nodes) - repeats.nodes
    while at < end and behind_moved(tables, repeats, begin, at, first - repeats.nodes) == 0:
        last = behind_moved(tables, repeats, at, end, first)
        if last == 0:
            return at - begin
        while at < last:
            first = max(first, word(tables.steps.address, at + 1) + 1)
            at += HEAD + repeats.counts[word(tables.steps.address, at)]
    return -1


@kept_apart
def find_period(tables: RecorderTables, repeats: RepeatSearch):
    """Look for the shortest period in which the last steps have been repeated three times."""
    words, end = tables.steps.address, tables.steps.used
    count = steps_before(tables, repeats)
    known = min(count, structs.STARTS)
    last = start_of(repeats, count, 1)
    for period in range(1, known // 3 + 1):
        other = start_of(repeats, count, period + 1) if period + 1 <= known else last
        repeats.nodes = word(words, last + 1) - word(words, other + 1)
        if word(words, other) == word(words, last) and repeats.nodes > 0:
            begin = start_of(repeats, count, period)
            repeats.words = end - begin
            repeats.numbers = numbers_between(tables, repeats, begin, end)
            more = words_to_begin(tables, repeats, begin) if is_alike(tables, repeats, 0) else -1
            if more >= 0:
                repeats.marks = marks_from(tables, begin)
                repeats.alike = 3
                repeats.boundary = end + repeats.words + more
                return
    repeats.boundary = 0
    repeats.look = end + max(end // 2, structs.STARTS // 8)


def truncated(things, count):
    """Take the last entries from a list; return how much failed."""
    size = length(things)
    return 1 if count > 0 and c_api.PyList_SetSlice(things, size - count, size, 0) != 0 else 0


def has_room(saved: StepWords, more):
    """Make room for more numbers, if there is memory."""
    need = saved.used + more
    if need > saved.room:
        address = c_api.PyMem_RawRealloc(saved.address, 16 * need)
        if address == 0:
            return 0
        saved.address = address
        saved.room = 2 * need
    return 1


def save(saved: StepWords, numbers, begin, count):
    for k in range(begin, begin + count):
        store_i8(saved.address + 8 * saved.used, load_i8(item(numbers, k) + HEADER))
        saved.used += 1


@kept_apart
def opened(tables: RecorderTables, repeats: RepeatSearch):
    """Begin to keep no further iterations; the last that is kept is the one before the last."""
    repeat = repeat_at(repeats, repeats.parts)
    repeat.word = tables.steps.used - repeats.words
    repeat.end = length(tables.nodes) - repeats.nodes
    repeat.number = length(tables.numbers) - repeats.numbers
    repeat.node = repeat.end - structs.WINDOW * repeats.nodes
    repeat.shift = shift_of(repeats)
    repeat.words = repeats.words
    repeat.nodes = repeats.nodes
    repeat.numbers = repeats.numbers
    repeat.marks = repeats.marks
    repeat.skipped = 0
    repeat.saves = 0
    repeat.saved = repeats.saved.used
    for k in range(repeat.node, repeat.end):  # views that move are of other places than those that are kept
        here, before = node_at(tables, k), node_at(tables, k - repeats.nodes)
        if number_in(here.offset, tables.none) != number_in(before.offset, tables.none):
            c_api.PyList_SetItem(tables.forms, k, owned(tables.none))
    repeats.parts += 1
    repeats.open = 1


def skip(tables: RecorderTables, repeats: RepeatSearch):
    """Keep the last iteration no longer, whose numbers are saved if some have differed; whether that was done."""
    same = same_numbers(tables, repeats)
    if repeats.open == 0:
        opened(tables, repeats)
    repeat, saved = repeat_at(repeats, repeats.parts - 1), repeats.saved
    saves = same == 0 or repeat.saves != 0
    if saves and has_room(saved, repeats.numbers * (repeat.skipped * (1 - repeat.saves) + 1)) == 0:
        return False
    count = length(tables.numbers)
    if saves:
        for _ in range(repeat.skipped * (1 - repeat.saves)):  # they had the numbers of the last that is kept
            save(saved, tables.numbers, count - 2 * repeats.numbers, repeats.numbers)
        save(saved, tables.numbers, count - repeats.numbers, repeats.numbers)
        repeat.saves = 1
    tables.steps.used -= repeats.words
    if tables.marks != 0:
        tables.marks.used -= repeats.marks
    repeat.skipped += 1
    repeat.shift += repeats.nodes
    failed = truncated(tables.nodes, repeats.nodes) + truncated(tables.forms, repeats.nodes)
    return failed + truncated(tables.numbers, repeats.numbers) == 0


def end_repeat(tables: RecorderTables, repeats: RepeatSearch):
    repeats.boundary = 0
    repeats.open = 0
    repeats.look = tables.steps.used + (structs.STARTS // 8)


@kept_apart
def at_boundary(tables: RecorderTables, repeats: RepeatSearch):
    """Take in that an iteration is whole, if it is like the one before."""
    used, skipped = tables.steps.used, 0
    if repeats.open != 0:
        skipped = repeat_at(repeats, repeats.parts - 1).skipped
    alike = used == repeats.boundary and is_alike(tables, repeats, skipped) and same_marks(tables, repeats)
    if not alike or same_numbers(tables, repeats) < 0:
        end_repeat(tables, repeats)
        return
    repeats.alike += 1
    enough = repeats.alike >= structs.LEAST_ALIKE and repeats.alike * repeats.words >= structs.LEAST_WORDS
    if repeats.open == 0 and not enough:
        repeats.boundary = used + repeats.words
    elif repeats.open == 0 and repeats.parts == structs.MOST_REPEATS:
        end_repeat(tables, repeats)
        repeats.look = NODE_MASK
    elif not skip(tables, repeats):
        end_repeat(tables, repeats)


def step_added(tables: int) -> None:
    """Take in a step that Python has added."""
    look_for_repeats(RecorderTables(tables))


def look_for_repeats(tables: RecorderTables):
    repeats = tables.repeats
    if repeats.boundary != 0:
        if tables.steps.used >= repeats.boundary:
            at_boundary(tables, repeats)
    elif tables.steps.used >= repeats.look:
        find_period(tables, repeats)
