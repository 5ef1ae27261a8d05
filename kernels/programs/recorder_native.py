"""Records operations that native code repeats as steps of a program: all but their first calls, and constants."""

from __future__ import annotations

from kernels.language.llvm_values import Word, kept_apart
from kernels.native import c_api
from kernels.native.c_api import ArrayObject, TensorObject, sixteen_words
from kernels.native.memory import HEADER, compare_bytes, copy_bytes, load_f8, load_i8, store_i8, word
from kernels.native.objects_native import dropped, elements, kind_of, owned
from kernels.native.structs import (
    NODE_MASK,
    OWN_CODE,
    RESULT_BYTES,
    CallOperand,
    KnownConstant,
    KnownStep,
    NodeObject,
    RecordedCall,
    RecorderTables,
)
from kernels.programs.program import HEAD
from kernels.programs.repeats_native import item, kept, length, look_for_repeats, node_at, number_in, shift_of

CONTROL = True

UNKNOWN = -2
NONE_MADE = -3  # a node that is to be made first, which may run any Python code
FLOAT, INTEGER, WRITTEN = 1, 3, 5  # what stands for a number among the forms of operands; for none of a write
ODD, PLACE = 5871781006564002453, 40
"""Spreads words over a table; above which bit of the product a place begins."""

NAMED = 3  # operands whose forms are words of a key; those of others are mixed


def mixed(hashed, x):
    hashed = (hashed ^ x) * ODD
    return hashed ^ ((hashed >> 32) & NODE_MASK)


@kept_apart
def foreign_node(tables: RecorderTables, x):
    """The node of a tensor that the recording has not made; -1 where it has none, or with an exception."""
    key = c_api.PyLong_FromLongLong(x)
    index = c_api.PyDict_GetItemWithError(tables.known, key) if key != 0 else 0
    dropped(key)
    return c_api.PyLong_AsLongLong(index) if index != 0 else -1


@kept_apart
def constant_node(tables: RecorderTables, x: TensorObject):
    """The node of a constant array that was used before, and holds the same as then; -1 for any other tensor."""
    value = ArrayObject(x.value)
    if kind_of(value) != tables.array_type:
        return -1
    begin, constant = value.data, KnownConstant(tables.constants)
    at = mixed(mixed(0, begin), x.form)
    constant = KnownConstant(tables.constants + 8 * KnownConstant.SIZE * (at & tables.mask))
    if constant.data != begin or constant.spec != x.form or compare_bytes(constant.copy, begin, constant.bytes) != 0:
        return -1
    owned_memory = tables.owned
    for k in range(owned_memory.used // 2):
        low, high = word(owned_memory.address, 2 * k), word(owned_memory.address, 2 * k + 1)
        if low < begin + constant.bytes and begin < high:
            return -1
    return constant.node


def node_of(tables: RecorderTables, x: TensorObject):
    """The node that a tensor is known by, if it has not been changed since; else -1."""
    at, forms = x.node & NODE_MASK, tables.forms
    same_recorder = x.node - at == tables.serial
    if same_recorder:
        at = kept(tables, at)
    else:
        if x.slot == 0 and x.base == 0 and tables.constants != 0:
            at = constant_node(tables, x)
            if at >= 0:
                return at
        at = foreign_node(tables, x)
    same = at >= 0 and at < length(forms) and item(forms, at) == x.form
    return at if same else -1


def wants(tables: RecorderTables, at):
    """Whether a node has a gradient: its own, or part of its family's."""
    node = node_at(tables, at)
    if node.differentiable != tables.true and node.family != tables.none:
        node = node_at(tables, c_api.PyLong_AsLongLong(node.family))
    return 1 if node.differentiable == tables.true else 0


def read(tables: RecorderTables, call: RecordedCall, key: KnownStep, words):
    """Write the operands' nodes, -1 for numbers, and what the step is known by; 0 where Python has to record it."""
    result = TensorObject(call.result)
    tensors, rest = 0, 1 if result.slot > 0 else 0
    key.operation = call.operation
    key.form = result.form
    key.params = call.params
    key.first = 0
    key.second = 0
    key.third = 0
    for i in range(call.count):
        x = TensorObject(call.args[i])
        kind, node, form = kind_of(x), -1, FLOAT
        if kind == tables.tensor_type:
            node = node_of(tables, x)
            if node < 0:
                return 0
            tensors += 1
            form = x.form + wants(tables, node)
        elif kind == tables.int_type:
            form = FLOAT if call.floats != 0 else INTEGER
        elif kind != tables.float_type:
            return 0
        store_i8(words + 8 * i, node)
        if i < NAMED:
            store_i8(key + 8 * (KnownStep.first + i), form)
        else:
            rest = mixed(rest, form)
    key.rest = rest
    return tensors


def row_of(tables: RecorderTables, key: KnownStep):
    """The row of steps that are alike, or the empty row where it is to be entered."""
    of_operands = key.first * 2654435761 + key.second * 4052930377 + key.third * 1609587929392839161 + key.rest * 40503
    at = key.operation * 7919 + key.form * ODD + key.params * 97 + of_operands
    at = (at * ODD) >> PLACE
    row, same = KnownStep(0), False
    while not same:
        row = KnownStep(tables.rows + 8 * KnownStep.SIZE * (at & tables.mask))
        same = row.form == key.form and row.first == key.first and row.second == key.second and row.third == key.third
        same = same and row.operation == key.operation and row.params == key.params and row.rest == key.rest
        same = same or row.operation == 0
        at += 1
    return row


def enter_constant(tables: int, constant: int) -> None:
    """Enter a constant array, perhaps in the place of another."""
    row = KnownConstant(constant)
    at, recorder = mixed(mixed(0, row.data), row.spec), RecorderTables(tables)
    copy_bytes(recorder.constants + 8 * KnownConstant.SIZE * (at & recorder.mask), constant, 8 * KnownConstant.SIZE)


def differing(ones: int, others: int, none: int, out: int) -> int:
    """Write the first nodes of each pair in two lists of equal lengths that differ, or are constants; how many."""
    one, other, count = NodeObject(0), NodeObject(0), 0
    for k in range(length(ones)):
        if item(ones, k) != one or item(others, k) != other:
            one, other = NodeObject(item(ones, k)), NodeObject(item(others, k))
            if one.constant != none or other.constant != none or are_alike(one, other, none) == 0:
                store_i8(out + 8 * count, k)
                count += 1
    return count


def are_alike(one: NodeObject, other: NodeObject, none):
    same = one.spec == other.spec and one.differentiable == other.differentiable and one.argument == other.argument
    same = same and same_number(one.base, other.base, none) and same_number(one.offset, other.offset, none)
    same = same and same_number(one.family, other.family, none)
    return 1 if same and same_number(one.buffer_offset, other.buffer_offset, none) else 0


def same_number(one, other, none):
    if one == other:
        return True
    both = one != none and other != none
    return both and c_api.PyLong_AsLongLong(one) == c_api.PyLong_AsLongLong(other)


def enter(tables: int, key: int, forms: int, count: int) -> None:
    """Enter what steps like one have in common, given as a row, and the forms of all operands; there is room."""
    row = KnownStep(key)
    for i in range(count):
        if i < NAMED:
            store_i8(key + 8 * (KnownStep.first + i), word(forms, i))
        else:
            row.rest = mixed(row.rest, word(forms, i))
    copy_bytes(row_of(tables, key), key, 8 * KnownStep.SIZE)


@kept_apart
def placed(tables: RecorderTables, row: KnownStep, call: RecordedCall, made: NodeObject):
    """The node that says of which memory a view is a part: the last of its kind if that does, or else ``made``.

    0 where Python has to say it, NONE_MADE if there is none.
    """
    result = TensorObject(call.result)
    base, family = TensorObject(result.base), -1
    source = base if base != 0 else TensorObject(call.args[0])
    at = node_of(tables, source)
    if at < 0 or kind_of(source.value) != tables.array_type or kind_of(result.value) != tables.array_type:
        return 0
    array, above, last, none = result.value, node_at(tables, at), NodeObject(row.node), tables.none
    root = at if above.base == none else c_api.PyLong_AsLongLong(above.base)
    if node_at(tables, root).constant != none or elements(array.shape, array.ndim) == 0:
        return 0
    offset, buffer = c_api.PyLong_AsLongLong(above.offset) + array.data - source.value.data, 0
    if base != 0:
        buffer = result.offset
        family = at
    same = number_in(last.base, none) == root and number_in(last.offset, none) == offset
    if same and number_in(last.family, none) == family and number_in(last.buffer_offset, none) == buffer:
        return last
    if made == 0:
        return NONE_MADE
    made.spec = owned(last.spec)
    made.differentiable = owned(last.differentiable)
    made.base = c_api.PyLong_FromLongLong(root)
    made.offset = c_api.PyLong_FromLongLong(offset)
    made.buffer_offset = c_api.PyLong_FromLongLong(buffer)
    made.family = c_api.PyLong_FromLongLong(at) if base != 0 else owned(none)
    made.constant = owned(none)
    made.argument = owned(tables.false)
    if made.base == 0 or made.offset == 0 or made.buffer_offset == 0 or made.family == 0:
        return 0
    row.node = made
    c_api.PyList_SetItem(tables.kept, row.held, owned(made))
    return made


def numbered(tables: RecorderTables, call: RecordedCall, words):
    """Give numbers among operands their words; return how much failed."""
    numbers, failed = tables.numbers, 0
    for i in range(call.count):
        if load_i8(words + 8 * i) < 0:
            x = call.args[i]
            if kind_of(x) == tables.int_type and call.floats != 0:
                x = c_api.PyFloat_FromDouble(load_f8(call.operands + CallOperand.SIZE * i + CallOperand.double))
            else:
                c_api.Py_IncRef(x)
            failed += 1 if x == 0 or c_api.PyList_Append(numbers, x) != 0 else 0
            dropped(x)
            store_i8(words + 8 * i, -length(numbers))
    return failed


def bits_of_code(tables: RecorderTables, code):
    """The number of the user's code, above that of an instruction; OWN_CODE, and UNKNOWN for code not seen before."""
    codes = tables.codes
    for k in range(0, codes.used, 2):
        if word(codes.address, k) == code:
            return word(codes.address, k + 1)
    return UNKNOWN


def place_in_code(tables: RecorderTables):
    """The instruction that the user's code is at, above the code's number; UNKNOWN where Python has to look."""
    frame, at = owned(c_api.PyEval_GetFrame()), OWN_CODE
    while frame != 0 and at == OWN_CODE:
        code = c_api.PyFrame_GetCode(frame)
        dropped(code)
        at = bits_of_code(tables, code)
        if at >= 0:
            at += c_api.PyFrame_GetLasti(frame)
        above = c_api.PyFrame_GetBack(frame) if at == OWN_CODE else 0
        c_api.Py_DecRef(frame)
        frame = above
    c_api.Py_DecRef(frame)
    return at if at >= 0 else UNKNOWN


def marked(tables: RecorderTables):
    """Mark the step that follows as of the instruction that the user's code is at; 0 with an exception."""
    marks, at = tables.marks, place_in_code(tables)
    if at == UNKNOWN or marks.used + 2 > marks.room:
        return dropped_result(c_api.PyObject_CallNoArgs(tables.mark))
    if at != tables.marked:
        tables.marked = at
        place = marks.address + 8 * marks.used
        store_i8(place, tables.steps.used)
        store_i8(place + 8, at)
        marks.used += 2
    return 1


def dropped_result(x):
    """Release what a call returned; 0 if that was an exception, else 1."""
    c_api.Py_DecRef(x)
    return 1 if x != 0 else 0


def bytes_held(tables: RecorderTables, result: TensorObject):
    """How much a tensor that is held counts for."""
    array = result.value
    return RESULT_BYTES + (8 * elements(array.shape, array.ndim) if kind_of(array) == tables.array_type else 0)


def hold(tables: RecorderTables, result: TensorObject):
    """Hold what a step has made; where there is no room, let the oldest results go; return how much failed."""
    results = tables.results
    tables.room -= bytes_held(tables, result)
    failed = c_api.PyList_Append(results, result)
    while tables.room <= 0 and tables.first < length(results):
        at = tables.first
        old = TensorObject(c_api.PyList_GetItem(results, at))
        tables.first = at + 1
        if kind_of(old) == tables.tensor_type:
            tables.room += bytes_held(tables, old)
            failed += c_api.PyList_SetItem(results, at, owned(tables.none))  # which may run Python
    return 0 if failed == 0 else 1


def append(tables: RecorderTables, row: KnownStep, call: RecordedCall, node, at):
    """Append a step and its result; return how much failed."""
    index, steps, result = length(tables.nodes), tables.steps, TensorObject(call.result)
    failed = numbered(tables, call, at + 8 * HEAD)
    failed += 1 if c_api.PyList_Append(tables.nodes, node) != 0 else 0
    failed += 1 if c_api.PyList_Append(tables.forms, result.form) != 0 else 0
    result.node = tables.serial + index + shift_of(tables.repeats)
    tables.alive += 1
    store_i8(at, row.kind)
    store_i8(at + 8, index)
    steps.used += HEAD + call.count
    return failed


def recorded_at(tables: RecorderTables, call: RecordedCall, made):
    """Record an operation, a view as the node made; NONE_MADE if there is to be one. No Python code runs."""
    steps, row, key, done = tables.steps, KnownStep(0), KnownStep(sixteen_words()), 0
    at, count = steps.address + 8 * steps.used, length(tables.nodes)
    room = count == length(tables.forms) and steps.used + HEAD + call.count <= steps.room
    if room and read(tables, call, key, at + 8 * HEAD) != 0:
        row = KnownStep(row_of(tables, key))
    if row == 0 or row.operation == 0 or row.shows != call.shows:
        return 0
    node = placed(tables, row, call, made) if call.shows != 0 else row.node
    if node == 0 or node == NONE_MADE:
        return node
    done = 1 if append(tables, row, call, node, at) == 0 else -1
    if done == 1 and hold(tables, call.result) != 0:
        done = -1
    if done == 1:
        look_for_repeats(tables)
    return done


def recorded(tables: RecorderTables, call: RecordedCall):
    if tables.marks != 0 and marked(tables) == 0:
        return -1
    done = recorded_at(tables, call, 0)
    if done == NONE_MADE:
        made = c_api.PyType_GenericAlloc(tables.node_type, 0)
        if made == 0:
            return -1
        c_api.PyObject_GC_UnTrack(made)  # nothing in it leads back to it
        done = recorded_at(tables, call, made)
        dropped(made)
    return -1 if c_api.PyErr_Occurred() != 0 else done


def record(tables: Word, call: Word) -> Word:
    """Record an operation: 1; 0 where Python has to do it, -1 with an exception."""
    return recorded(tables, call)


# Writes, which Python makes: ``bound`` is a tuple of the words of the recorder, Python's function, and None.


def answered(bound, arguments, count, done):
    """None where native code has done it, else what Python's function returns; 0 with an exception."""
    if c_api.PyErr_Occurred() != 0:
        return 0
    if done == 1:
        return owned(c_api.PyTuple_GetItem(bound, 2))
    return c_api.PyObject_Vectorcall(c_api.PyTuple_GetItem(bound, 1), arguments, count, 0)


def is_known(tables: RecorderTables, value):
    return kind_of(value) == tables.float_type or (kind_of(value) == tables.tensor_type and node_of(tables, value) >= 0)


def overwrites(bound: Word, arguments: Word, count: Word) -> Word:
    """Prepare for a write of a value to a tensor: nothing is to be done in memory of the program, but an argument's."""
    tables, done = RecorderTables(load_i8(c_api.PyTuple_GetItem(bound, 0) + HEADER)), 0
    if count == 2 and kind_of(load_i8(arguments)) == tables.tensor_type and is_known(tables, word(arguments, 1)):
        at = node_of(tables, load_i8(arguments))
        node = node_at(tables, max(at, 0))
        if at >= 0 and node.base != tables.none:
            node = node_at(tables, c_api.PyLong_AsLongLong(node.base))
        done = 1 if at >= 0 and node.constant == tables.none and node.argument != tables.true else 0
    return answered(bound, arguments, count, done)


def recorded_write(tables: RecorderTables, op, x: TensorObject, value: TensorObject, params):
    """Record a write as one before; 0 where Python has to."""
    at, of_value, steps = node_of(tables, x), -1, tables.steps
    if at < 0 or is_known(tables, value) == 0 or steps.used + HEAD + 2 > steps.room:
        return 0
    base, key, form = TensorObject(x.base if x.base != 0 else x), KnownStep(sixteen_words()), FLOAT
    if kind_of(value) == tables.tensor_type:
        of_value = node_of(tables, value)
        form = value.form + wants(tables, of_value)
    key.operation = op
    key.form = base.form
    key.params = params
    key.first = x.form + wants(tables, at)
    key.second = form
    key.third = WRITTEN
    key.rest = 1 if base.slot > 0 else 0
    row, family = KnownStep(row_of(tables, key)), node_at(tables, at)
    if family.family != tables.none:
        family = node_at(tables, c_api.PyLong_AsLongLong(family.family))
    if row.operation == 0 or (row.is_graded != 0 and family.differentiable != tables.true):
        return 0
    place = steps.address + 8 * steps.used
    if of_value < 0:
        c_api.PyList_Append(tables.numbers, value)
        of_value = -length(tables.numbers)
    store_i8(place, row.kind)
    store_i8(place + 8, at)
    store_i8(place + 16, at)
    store_i8(place + 24, of_value)
    steps.used += HEAD + 2
    number = base.node & NODE_MASK
    if base.node - number == tables.serial and kept(tables, number) >= 0:
        c_api.PyList_SetItem(tables.forms, kept(tables, number), owned(base.form))
    return 1


def wrote(bound: Word, arguments: Word, count: Word) -> Word:
    """Record a write, given its operation, the tensor, the value and parameters."""
    tables, done = RecorderTables(load_i8(c_api.PyTuple_GetItem(bound, 0) + HEADER)), 0
    kind = kind_of(word(arguments, 1)) if count == 4 else 0
    if kind == tables.tensor_type or kind == c_api.tape_registry().stale_type:  # a view whose base has been written
        if tables.marks != 0 and marked(tables) == 0:
            return 0
        x, value = TensorObject(word(arguments, 1)), TensorObject(word(arguments, 2))
        done = recorded_write(tables, load_i8(arguments), x, value, word(arguments, 3))
        if done == 1:
            look_for_repeats(tables)
    return answered(bound, arguments, count, done)


# A trace function: Python hears of the frames that begin, but for those of code that it has named.


def place_of_code(table, code):
    """Where code stands in a table, or is to: an odd mask, that many words and one of code, as many of globals."""
    at = mixed(0, code >> 4) & load_i8(table)
    while word(table, 1 + at) != 0 and word(table, 1 + at) != code:
        at = (at + 1) & load_i8(table)
    return table + 8 * (1 + at)


def pass_over(table: int, code: int, variables: int) -> None:
    """Enter code of whose frames Python does not hear if they have these globals, or with 0 any; there is room."""
    place = place_of_code(table, code)
    store_i8(place, code)
    store_i8(place + 8 * (load_i8(table) + 1), variables)


def is_passed_over(table, frame):
    """Whether Python does not hear of a frame."""
    code, variables = c_api.PyFrame_GetCode(frame), c_api.PyFrame_GetGlobals(frame)
    dropped(code)
    dropped(variables)
    place = place_of_code(table, code)
    known = load_i8(place + 8 * (load_i8(table) + 1))
    return (load_i8(place) == code) & ((known == 0) | (known == variables))


def began(bound: Word, arguments: Word, count: Word) -> Word:
    """Hear that a frame begins: None, or what Python's function returns; ``bound``: two tables, that function, None."""
    frame, notify = load_i8(arguments), c_api.PyTuple_GetItem(bound, 2)
    passed, known = load_i8(c_api.PyTuple_GetItem(bound, 0) + HEADER), load_i8(c_api.PyTuple_GetItem(bound, 1) + HEADER)
    if count == 3 and (is_passed_over(passed, frame) or is_passed_over(known, frame)):
        return owned(c_api.PyTuple_GetItem(bound, 3))
    return c_api.PyObject_Vectorcall(notify, arguments, count, 0)
