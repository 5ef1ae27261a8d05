"""The value of a repeated call: which loop or kernel, and its run."""

from __future__ import annotations

from kernels.language.llvm_values import Void, Word
from kernels.native import c_api, structs
from kernels.native.c_api import ArrayObject, TensorObject, array_copy, sixteen_words, thirty_words, three_words
from kernels.native.memory import (
    HEADER,
    call_kernel,
    call_loop,
    double_of,
    load_f4,
    load_f8,
    load_i4,
    load_i8,
    pointer_b1,
    store_f4,
    store_f8,
    store_i4,
    store_i8,
    word,
)
from kernels.native.objects_native import array_of, dropped, elements, is_array, kind_of, nest
from kernels.native.structs import (
    AxisLayout,
    CallEntry,
    CallOperand,
    CallRequest,
    FormBlock,
    GatherLayout,
    InputBlock,
    RegistryTable,
    TapeHeader,
)
from kernels.native.tape_native import commit, keep

# Inner loops for ``where`` and for counting ties, with the signature of NumPy's inner loops.


def chosen_place(pointers, strides, which, i):
    """Where an element of an operand stands."""
    return word(pointers, which) + i * word(strides, which)


def chosen(pointers, strides, i):
    """The address of the element that the mask chooses."""
    return chosen_place(pointers, strides, 1 if pointer_b1(chosen_place(pointers, strides, 0, i))[0] != 0 else 2, i)


def choose8(pointers: Word, extents: Word, strides: Word, data: Word) -> Void:
    for i in range(load_i8(extents)):
        store_i8(chosen_place(pointers, strides, 3, i), load_i8(chosen(pointers, strides, i)))


def choose4(pointers: Word, extents: Word, strides: Word, data: Word) -> Void:
    for i in range(load_i8(extents)):
        store_f4(chosen_place(pointers, strides, 3, i), load_f4(chosen(pointers, strides, i)))


def ties(pointers: Word, extents: Word, strides: Word, data: Word) -> Void:
    """Count the elements that are equal to the extremum; if that is nan, those that are nan."""
    for i in range(load_i8(extents)):
        x = load_f8(chosen_place(pointers, strides, 0, i))
        y = load_f8(chosen_place(pointers, strides, 1, i))
        if x == y or (x != x and y != y):
            at = chosen_place(pointers, strides, 2, i)
            store_f8(at, load_f8(at) + 1.0)


# Computes the value of a call in the table, and writes the words of its instruction.

CONTROL = True


def over_nest(entry: CallEntry, pointers):
    """Call NumPy's loop over the nest of a call."""
    nest(entry.layout, pointers, entry.count, entry.loop, entry.data)


def pointers_of(entry: CallEntry, operands, out, row):
    """Write the addresses of the operands' values, then that of the result."""
    count = entry.count - 1
    for i in range(count):
        store_i8(row + 8 * i, CallOperand(operands + CallOperand.SIZE * i).place)
    store_i8(row + 8 * count, out)


def once(entry: CallEntry, operands):
    """One element by NumPy's loop."""
    row = thirty_words()
    pointers_of(entry, operands, row + 128, row)
    extents, strides = row + 64, row + 72
    store_i8(extents, 1)
    for i in range(entry.count):
        store_i8(strides + 8 * i, 0)
    call_loop(entry.loop, row, extents, strides, entry.data)
    return load_f8(row + 128)


def scalar(entry: CallEntry, operands: CallOperand):
    """The result of an operation on doubles."""
    kind = entry.kind
    if kind == structs.ONCE:
        return once(entry, operands)
    x, y = load_f8(operands.place), load_f8(CallOperand(operands + CallOperand.SIZE).place)
    if kind == structs.ADD:
        return x + y
    if kind == structs.SUBTRACT:
        return x - y
    return x * y if kind == structs.MULTIPLY else x / y


def reduce(entry: CallEntry, x, out, count):
    """Reduce an operand to ``count`` doubles."""
    row = sixteen_words()
    for k in range(count):
        store_i8(out + 8 * k, entry.initial)
    store_i8(row, out)
    store_i8(row + 8, x)
    store_i8(row + 16, out)
    over_nest(entry, row)
    if entry.scale != 0:
        by = double_of(entry.scale)
        for k in range(count):
            store_f8(out + 8 * k, load_f8(out + 8 * k) / by)


def array_for(registry, entry: CallEntry):
    """A new array for the result, large ones from the pool; 0 with an exception."""
    large = entry.bytes != 0
    return array_of(registry, entry.ndim, entry.shape, entry.dtype, large)


def fill(entry: CallEntry, operands, out):
    """Compute an array's elements."""
    row, kind = thirty_words(), entry.kind
    if kind == structs.KERNEL:
        store_i8(row, out)
        at = row + 8
        if entry.extra != 0:
            store_i8(at, ArrayObject(load_i8(operands + structs.EXTRA_AT)).data)
            at += 8
        for i in range(entry.count - 1):
            store_i8(at + 8 * i, CallOperand(operands + CallOperand.SIZE * i).place)
        call_kernel(entry.loop, entry.layout, row, 0)
        return
    pointers_of(entry, operands, out, row)
    if kind == structs.PRODUCT:  # of four extents, then strides
        layout = entry.layout
        call_loop(entry.loop, row, layout, layout + 32, entry.data)
    else:
        over_nest(entry, row)


def elements_of(entry: CallEntry):
    """How many elements a result has."""
    return elements(entry.shape, entry.ndim)


def compute(entry: CallEntry, operands: CallOperand, out):
    """Compute the elements of a result; of a reduction as many as there are."""
    if entry.kind == structs.REDUCE:
        reduce(entry, operands.place, out, elements_of(entry))
    else:
        fill(entry, operands, out)


def value_of(registry, call: CallRequest, entry: CallEntry):
    """A new value: a float, or an array; 0 with an exception, or where Python has to compute it."""
    kind, operands = entry.kind, call.operands
    if kind <= structs.ONCE:
        return c_api.PyFloat_FromDouble(scalar(entry, operands))
    if entry.ndim == 0 and entry.dtype == c_api.DOUBLES:
        out = three_words()
        compute(entry, operands, out)
        return c_api.PyFloat_FromDouble(load_f8(out))
    if kind == structs.PICKED and pick(registry, call, entry) == 0:
        return 0
    made = ArrayObject(array_for(registry, entry))
    if made == 0:
        return 0
    if kind == structs.PICKED:
        copy_elements(entry, operands, made.data)
    elif kind == structs.JOINED:
        join(entry, operands, made.data)
    else:
        compute(entry, operands, made.data)
    return made


def values_of(registry, call: CallRequest, entry: CallEntry):
    """The same, writing a second value behind the operands."""
    extra = 0
    if entry.extra != 0:
        extra = array_of(registry, entry.ndim, entry.shape, c_api.LONGS, False)
        store_i8(call.operands + structs.EXTRA_AT, extra)
        if extra == 0:
            return 0
    value = value_of(registry, call, entry)
    return value if value != 0 else dropped(extra)


def count_ties(registry, entry: CallEntry, operands: CallOperand, value: ArrayObject):
    """Store the number of ties of a recorded extremum behind the operands; return the value, 0 with an exception."""
    if value == 0 or entry.block == 0:
        return value
    row, at, count = sixteen_words(), CallOperand(operands + 2 * CallOperand.SIZE), elements_of(entry)
    out = at + CallOperand.double
    if count > 1:
        made = ArrayObject(array_for(registry, entry))
        if made == 0:
            return dropped(value)
        at.object = made
        out = made.data
    for k in range(count):
        store_f8(out + 8 * k, 0.0)
    store_i8(row, operands.place)
    store_i8(row + 8, value + HEADER if entry.ndim == 0 else value.data)
    store_i8(row + 16, out)
    nest(entry.ties, row, 3, entry.counts, 0)
    return value


# Tensors that are joined: each is copied to its place in the result.


def join(entry: CallEntry, operands, out):
    """Copy each operand to its place in the result."""
    row, layout = sixteen_words(), entry.layout
    for i in range(entry.operands):
        store_i8(row, CallOperand(operands + CallOperand.SIZE * i).place)
        store_i8(row + 8, out + word(layout, 2 * i + 1))
        nest(word(layout, 2 * i), row, 2, entry.loop, entry.data)


# Elements picked by arrays: the entry's layout says which element of each array belongs to an element of the result.


def place(layout: GatherLayout, arrays, k):
    """The number of the element that is picked; -1 if an index is out of range."""
    at = word(layout.base, k)
    for j in range(layout.takes):
        array = AxisLayout(layout + 8 * (GatherLayout.SIZE + AxisLayout.SIZE * j))
        index, extent = word(word(arrays, 1 + 2 * j), word(array.where, k)), array.extent
        if index >= extent or index < array.least:
            return -1
        at += (index if index >= 0 else index + extent) * array.step
    return at


def places_held(layout: GatherLayout, arrays, out):
    """Write the numbers of the elements where a mask is true."""
    written, inner, base, mask = 0, layout.inner, layout.base, word(arrays, 1)
    for k in range(layout.count):
        if pointer_b1(mask + k)[0] != 0:
            for r in range(inner):
                store_i8(out + 8 * (written + r), word(base, k * inner + r))
            written += inner


def places(layout: GatherLayout, arrays, out):
    """Write the numbers of all picked elements; 0 if an index is out of range."""
    if layout.inner != 0:
        places_held(layout, arrays, out)
        return 1
    for k in range(layout.count):
        at = place(layout, arrays, k)
        if at < 0:
            return 0
        store_i8(out + 8 * k, at)
    return 1


def pick(registry: RegistryTable, call: CallRequest, entry: CallEntry):
    """Have a new array of the numbers of the picked elements as the second operand; 0 with an exception or for Python.

    The call holds it.
    """
    x, second = CallOperand(call.operands), CallOperand(call.operands + CallOperand.SIZE)
    if x.object == 0 or kind_of(x.object) != registry.array_type:
        return 0
    numbers = ArrayObject(array_of(registry, entry.ndim, entry.shape, c_api.LONGS, False))
    call.held = numbers
    if numbers == 0 or places(entry.layout, call + CallRequest.arrays, numbers.data) == 0:
        return 0
    second.object = numbers
    second.place = numbers.data
    return numbers


def copy_elements(entry: CallEntry, operands: CallOperand, out):
    """Copy the picked elements."""
    source, picked = operands.place, CallOperand(operands + CallOperand.SIZE).place
    count, item = elements_of(entry), entry.count
    if item == 8:
        for k in range(count):
            store_i8(out + 8 * k, load_i8(source + 8 * word(picked, k)))
    elif item == 4:
        for k in range(count):
            store_i4(out + 4 * k, load_i4(source + 4 * word(picked, k)))
    else:
        for k in range(count * item):
            pointer_b1(out + k)[0] = pointer_b1(source + item * word(picked, k // item) + k % item)[0]


# The instruction of a call.


def saved_word(entry: CallEntry, pick, kind, operands, value):
    """A saved word: an object, of which the tape owns a reference, or the bits of a double."""
    if pick == structs.PICK_CONTEXT:
        c_api.Py_IncRef(entry.context)
        return entry.context
    if pick == structs.PICK_EXTRA:
        c_api.Py_IncRef(load_i8(operands + structs.EXTRA_AT))
        return load_i8(operands + structs.EXTRA_AT)
    if pick == structs.PICK_SCALE:
        ties = operands + 2 * CallOperand.SIZE
        held = load_i8(ties + (CallOperand.object if kind == structs.ARRAY else CallOperand.double))
        return held if entry.ties != 0 else entry.scale
    at = CallOperand(operands + CallOperand.SIZE * pick)
    saved = value if pick == structs.PICK_RESULT else at.object
    if kind >= structs.ARRAY:
        c_api.Py_IncRef(saved)
        return saved
    if pick == structs.PICK_RESULT:  # a float, or an array of one element
        place = value + HEADER
        return load_i8(place if entry.ndim == 0 else load_i8(place))
    return at.double if saved == 0 else load_i8(at.place)


def append(t: TapeHeader, entry: CallEntry, operands, value):
    """Record the call; return its slot."""
    block = entry.block
    at, inputs = t.words + 8 * (t.size + 1), block.inputs
    for i in range(inputs):
        keep(t, at + 8 * i, CallOperand(operands + CallOperand.SIZE * i).slot)
    kinds, picks = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * inputs), entry.saved
    at += 8 * inputs
    for j in range(block.saved):
        pick = (picks >> (structs.PICK * j)) & ((1 << structs.PICK) - 1)
        store_i8(at, saved_word(entry, pick, word(kinds, j), operands, value))
        at += 8
    c_api.Py_IncRef(block.form)
    store_i8(at, entry.code)
    return commit(t, block.entries)


# What the tape is to save of memory that others may write, as NumPy does, is copied when a call is repeated.


def copy_of(registry: RegistryTable, array: ArrayObject):
    """A copy of an array, in the order of its elements in memory; 0 with an exception, or where there is no way."""
    if array.dtype != registry.double or array.flags & c_api.A_SIMPLE != c_api.A_SIMPLE:
        return array_copy(registry.copy_array, array, c_api.KEPT_ORDER) if registry.copy_array != 0 else 0
    ndim, shape = array.ndim, array.shape
    count = elements(shape, ndim)
    made = ArrayObject(array_of(registry, ndim, shape, c_api.DOUBLES, 8 * count >= structs.LARGE))
    if made != 0:
        source, target = array.data, made.data
        for k in range(count):
            store_i8(target + 8 * k, word(source, k))
    return made


def is_exposed(registry: RegistryTable, array: ArrayObject):
    """Whether others may write the memory of an array unseen (kernels/kinds/reference_tape.py), or perhaps."""
    base = ArrayObject(array.base)
    while base != 0 and is_array(registry, base):
        array, base = base, base.base
    counts, place = registry.exposed, (array >> 4 ^ array >> 18) & (structs.EXPOSED - 1)  # _place
    only = counts[structs.EXPOSED + 1 + place]
    return counts[place] != 0 and (only == array or only < 0)


def keep_copy(registry, operands, pick):
    """Let the tape save a copy of an operand; 0 where Python has to do it, as of strided ones, or has raised."""
    at = CallOperand(operands + CallOperand.SIZE * pick)
    array = ArrayObject(at.object)
    copy = copy_of(registry, array) if array.flags & c_api.A_DENSE != 0 else 0
    store_i8(operands + structs.COPIES_AT + 8 * pick, copy)
    at.object = copy if copy != 0 else array
    return copy


def is_others(registry: RegistryTable, x: TensorObject, operands, pick):
    """Whether others may write to the memory of an operand that is an array, not copied yet."""
    array = CallOperand(operands + CallOperand.SIZE * pick).object
    if array == 0 or word(operands + structs.COPIES_AT, pick) != 0 or kind_of(array) != registry.array_type:
        return False
    return x.shared == registry.none or is_exposed(registry, array)


def secure(registry, entry: CallEntry, args, operands):
    """Copy what the tape is to save of memory that others may write; 0 where Python has to do it, or has raised."""
    block, picks = entry.block, entry.saved
    for k in range(structs.MOST_OPERANDS):
        store_i8(operands + structs.COPIES_AT + 8 * k, 0)
    if block == 0:
        return 1
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs)
    for j in range(block.saved):
        pick = (picks >> (structs.PICK * j)) & ((1 << structs.PICK) - 1)
        saves = pick < structs.PICK_RESULT and word(kinds, j) >= structs.ARRAY
        others = saves and is_others(registry, word(args, pick), operands, pick)
        if others and keep_copy(registry, operands, pick) == 0:
            return 0
    return 1


def release_copies(operands):
    """Release the copies after the call: the tape has its own."""
    for k in range(structs.MOST_OPERANDS):
        c_api.Py_DecRef(word(operands + structs.COPIES_AT, k))
