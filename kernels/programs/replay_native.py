"""A replay in native code: arrays in, rows run, results out."""

from __future__ import annotations

import math

import numpy as np

from kernels.language.llvm_values import Word
from kernels.native import c_api, structs
from kernels.native.c_api import A_SIMPLE, C_ORDER, ArrayObject, array_copy, array_copy_into, new_array
from kernels.native.memory import (
    HEADER,
    call_kernel,
    compare_bytes,
    copy_bytes,
    load_f4,
    load_f8,
    load_i8,
    pointer_f4,
    pointer_f8,
    pointer_i4,
    pointer_i8,
    store_f4,
    store_f8,
    store_i4,
    store_i8,
    word,
)
from kernels.native.objects_native import nest
from kernels.native.structs import ExchangedValue, ExchangeHead, LoopStack, LoopWords, ProgramRow

MOST_COUNT = 4.0e18


def begin(row: ProgramRow, k, pointers):
    """Begin a loop: the row of its first body, or where it does not run at all the one behind it; -1 for no count."""
    loop, stack, limit = LoopWords(word(pointers, 0)), LoopStack(word(pointers, 1)), row.data
    if row.accumulate != 0:
        stack.top = 0
    if row.operands > 2:
        count = load_f8(word(pointers, 2))
        if not -MOST_COUNT < count < MOST_COUNT:
            return -1
        limit = max(int(count), 0)
    loop.count = 0
    loop.limit = limit
    loop.top = stack.top
    return k + (row.address if limit == 0 else 1)


def save(row: ProgramRow, k, pointers):
    """Push what a body saves; the row to go on with, negative where the stack is full."""
    if row.accumulate == 0:
        return k + 1
    stack, sizes = LoopStack(word(pointers, 1)), row.layout
    top, size = stack.top, word(sizes, 0)
    if top + size > stack.room:
        stack.needed = size
        return -2 - k
    target = stack.stack + 8 * top
    for i in range(row.operands):
        count = 8 * word(sizes, 1 + i)
        copy_bytes(target, word(pointers, 2 + i), count)
        target += count
    store_i8(target, row.data)
    stack.top = top + size
    return k + 1


def restore(row: ProgramRow, k, pointers):
    """Pop what an iteration saved."""
    stack, sizes = LoopStack(word(pointers, 1)), row.layout
    top = stack.top - word(sizes, 0)
    source = stack.stack + 8 * top
    for i in range(row.operands):
        count = 8 * word(sizes, 1 + i)
        copy_bytes(word(pointers, 2 + i), source, count)
        source += count
    stack.top = top
    return k + 1


def onward(stack: LoopStack, work, k):
    """The row to go on with; negative where Python looks for interrupts before."""
    fuel = stack.fuel - work
    stack.fuel = fuel
    if fuel >= 0:
        return k
    stack.fuel = structs.WORK_BETWEEN_CHECKS
    return -2 - k


def advance(row: ProgramRow, k, pointers):
    """End an iteration: the row of the first body, or behind the loop where the most iterations are done."""
    loop, stack = LoopWords(word(pointers, 0)), LoopStack(word(pointers, 1))
    count = loop.count + 1
    loop.count = count
    loop.top = stack.top
    ahead = row.layout if count == loop.limit else row.address
    return onward(stack, row.data, k + ahead)


def choose(row: ProgramRow, k, pointers):
    """The row of the pullbacks of the last iteration that is left; behind them all if none is."""
    loop, stack = LoopWords(word(pointers, 0)), LoopStack(word(pointers, 1))
    left = loop.left
    if left == 0:
        return k + row.address
    loop.left = left - 1
    body = load_i8(stack.stack + 8 * stack.top - 8)
    return k + word(row.layout, body)


def steered_back(row: ProgramRow, k, pointers):
    """Run a row that steers the way back; return the next."""
    kind = row.kind
    if kind == structs.RUN_BACK:  # above is what loops within an iteration saved that was not ended
        loop, stack = LoopWords(word(pointers, 0)), LoopStack(word(pointers, 1))
        loop.left = loop.count
        stack.top = loop.top
        return k + 1
    if kind == structs.RUN_CHOOSE:
        return choose(row, k, pointers)
    if kind == structs.RUN_RESTORE:
        return restore(row, k, pointers)
    return onward(word(pointers, 1), row.data, k + row.address)


def steered(row: ProgramRow, k: int) -> int:
    """Run a row that steers a loop; return the next, -1 to miss, ``-2 - next`` to look at Python's business before."""
    kind, pointers = row.kind, row.pointers
    if kind == structs.RUN_NEXT:
        return advance(row, k, pointers)
    if kind == structs.RUN_BODY:
        LoopStack(word(pointers, 1)).top = LoopWords(word(pointers, 0)).top
        return k + 1
    if kind == structs.RUN_AGAIN:
        return save(row, k, pointers)
    if kind == structs.RUN_LOOP:
        return begin(row, k, pointers)
    return steered_back(row, k, pointers)


def run(rows: int, first: int, stop: int) -> int:
    """Execute rows from ``first`` on to ``stop``; return the number of the row whose guard missed, -1 if none did.

    ``-2 - k`` where Python has to act before it goes on with row k: to give loops room, to look for interrupts, to run
    what row k stands for.
    """
    k = first
    while k < stop:
        row = ProgramRow(rows + 8 * structs.ROW * k)
        kind = row.kind
        if kind == structs.RUN_INLINE:
            call_kernel(row.layout, row.address, row.data, row.operands)
        elif kind == structs.RUN_KERNEL:
            call_kernel(row.address, row.layout, row.pointers, row.accumulate)
        elif kind == structs.RUN_FILL8:
            target = row.address
            for i in range(row.operands):
                store_i8(target + 8 * i, row.data)
        elif kind == structs.RUN_FILL4:
            target = row.address
            for i in range(row.operands):
                store_i4(target + 4 * i, row.data)
        elif kind == structs.RUN_GUARD:
            pointers = row.pointers
            if compare_bytes(word(pointers, 0), word(pointers, 1), row.operands) != 0:
                ahead = row.address
                if ahead == 0:
                    return k
                k += ahead - 1
        elif kind == structs.RUN_PYTHON:
            return -2 - k
        elif kind >= structs.RUN_LOOP:
            following = steered(row, k)
            if following < 0:
                return following if following != -1 else k
            k = following - 1
        else:
            pointers, operands = row.pointers, row.operands
            nest(row.layout, pointers, operands, row.address, row.data)
        k += 1
    return -1


# Python calls the last three by METH_FASTCALL; ``self`` is an array of the words that program.py lays out. An argument
# of an unexpected type is left to Python, by returning 0.

ZERO = np.float32(0.0)
LEAST_I8, LEAST_I4 = -(1 << 63), np.int32(-(1 << 31))  # the bits of -0.0


def least(integers, count):
    """Return the least of some integers; the bits of -0.0 are the least there is."""
    smallest = integers[0]
    for e in range(count):
        smallest = min(smallest, integers[e])
    return smallest


def add_zero(pointer, count, item):
    """Turn elements that are -0.0 to 0.0. There are rarely any, and memory that is only read takes half the time."""
    if item == 8:
        if least(pointer_i8(pointer), count) == LEAST_I8:
            raised(pointer_f8(pointer), count, 0.0)
    elif least(pointer_i4(pointer), count) == LEAST_I4:
        raised(pointer_f4(pointer), count, ZERO)


def raised(numbers, count, by):
    for e in range(count):
        numbers[e] += by


def put_double(place, kind, value):
    """Store a number; whether it fits."""
    if kind == structs.XK_DOUBLE:
        store_f8(place, value)
        return True
    single = np.float32(value)
    if math.fabs(np.float64(single)) == math.inf and math.fabs(value) != math.inf:
        return False  # Python warns
    store_f4(place, single)
    return True


def put_integer(place, kind, argument):
    """Store a Python integer; whether it fits."""
    if kind == structs.XK_INTEGER:
        integer = c_api.PyLong_AsLongLong(argument)
        if integer != -1 or c_api.PyErr_Occurred() == 0:
            store_i8(place, integer)
            return True
    else:
        value = c_api.PyLong_AsDouble(argument)
        if value != -1.0 or c_api.PyErr_Occurred() == 0:
            return put_double(place, kind, value)
    c_api.PyErr_Clear()
    return False


def put_number(table: ExchangeHead, entry: ExchangedValue, argument, kind):
    """Store a Python number in a place of no dimensions; whether that was one, and fitted."""
    wanted = entry.kind
    if wanted == structs.XK_ARRAY:
        return False
    if kind == table.int_type:
        return put_integer(entry.place, wanted, argument)
    if wanted != structs.XK_INTEGER and (kind == table.float_type or kind == table.double_type):
        return put_double(entry.place, wanted, load_f8(argument + HEADER))
    if wanted == structs.XK_SINGLE and kind == table.single_type:
        return put_double(entry.place, wanted, np.float64(load_f4(argument + HEADER)))
    return False


def fits(entry: ExchangedValue, array: ArrayObject):
    """Whether an array has the dtype and the shape that an argument has."""
    if array.dtype != entry.dtype:
        return False
    count = entry.ndim
    if np.int64(array.ndim) != count:
        return False
    extents, shape, same = array.shape, entry.shape, 0
    for axis in range(count):
        same += extents[axis] == shape[axis]
    return same == count


def entered(table: ExchangeHead, arguments, count):
    """Copy arguments into their places; 1, or 0 where one is not as recorded, or of another type, -1 for an error."""
    if count != table.arguments:
        return 0
    for k in range(count):
        entry = ExchangedValue(table + 8 * (ExchangeHead.SIZE + ExchangedValue.SIZE * k))
        argument = ArrayObject(word(arguments, k))
        kind = load_i8(argument + 8)
        if kind == table.array_type:
            if not fits(entry, argument):
                return 0
            words, simple = entry.words, np.int64(argument.flags) & A_SIMPLE == A_SIMPLE
            if not simple and table.int_type == 0:
                return 0  # exactly as recorded
            if words >= 0 and simple:
                copy_bytes(entry.place, load_i8(argument + HEADER), 8 * words)
            elif array_copy_into(table.copy_into, entry.view, argument) < 0:
                return -1
        elif not put_number(table, entry, argument, kind):
            return 0
    return 1


def copied(table: ExchangeHead, entry: ExchangedValue):
    """Return a new array of a result; 0 with Python's exception where there is no memory."""
    words = entry.words
    if words < 0:
        return array_copy(table.new_copy, entry.view, C_ORDER)
    kind, shape, number = table.array_type, entry.shape, entry.dtype
    made = new_array(table.new_array, kind, entry.ndim, shape, number)
    if made != 0:
        copy_bytes(load_i8(made + HEADER), entry.place, 8 * words)
    return made


def result(table, entry: ExchangedValue):
    """Return a new float or array; 0 with Python's exception where there is no memory."""
    kind, place, gradient = entry.kind, entry.place, entry.gradient
    if kind != structs.XK_ARRAY:
        value = load_f8(place) if kind == structs.XK_DOUBLE else np.float64(load_f4(place))
        if gradient > 0:
            value += 0.0
        return c_api.PyFloat_FromDouble(value)
    made = copied(table, entry)
    if made != 0 and gradient > 0:
        add_zero(load_i8(made + HEADER), np.uint64(gradient), entry.item)
    return made


def results_of(table: ExchangeHead):
    """Return a tuple of the results; 0 with Python's exception where there is no memory."""
    size = table.results
    results = c_api.PyTuple_New(size)
    if results == 0:
        return 0
    for k in range(size):
        value = result(table, table + 8 * (ExchangeHead.SIZE + ExchangedValue.SIZE * (table.arguments + k)))
        if value == 0:
            c_api.Py_DecRef(results)
            return 0
        c_api.PyTuple_SetItem(results, k, value)
    return results


def enter(bound: Word, arguments: Word, count: Word) -> Word:
    """Copy arguments into their places; 1, or 0 where one is not as recorded, or of another type."""
    table = load_i8(bound + HEADER)
    done = entered(table, arguments, count)
    if done < 0:
        return 0
    return c_api.PyLong_FromLongLong(done)


def leave(bound: Word, arguments: Word, count: Word) -> Word:
    """Return a tuple of the results: floats, and arrays of their own memory."""
    return results_of(load_i8(bound + HEADER))


def pass_through(bound: Word, arguments: Word, count: Word) -> Word:
    """Run a call; 0 where an argument is not as recorded, else a missed guard's row plus 1, or :func:`run`'s pause."""
    table = ExchangeHead(load_i8(bound + HEADER))
    done = entered(table, arguments, count)
    if done < 0:
        return 0
    if done == 0:
        return c_api.PyLong_FromLongLong(0)
    if table.releases != 0:
        thread = c_api.PyEval_SaveThread()
        came_to = run(table.rows, 0, table.row_count)
        c_api.PyEval_RestoreThread(thread)
    else:
        came_to = run(table.rows, 0, table.row_count)
    if came_to == -1:
        return results_of(table)
    return c_api.PyLong_FromLongLong(came_to + 1 if came_to >= 0 else came_to)


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
