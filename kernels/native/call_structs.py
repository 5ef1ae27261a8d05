"""What a call that has been seen is in memory, and what it is asked with, for Python and for native code."""

from __future__ import annotations

from kernels.language.native_types import Array, Struct
from kernels.native.structs import FormBlock

# Marks added to the number of an operation: how the arguments of a call are read. Those below NUMBERED are part of the
# operation.
CONDITION = 1 << 30
"""The first operand chooses among the others."""
NUMBERED = 1 << 31
"""A second operand that is a number is part of the key."""
ARGUED = 1 << 32
"""The leading tensors are operands; what is given behind them is part of the key."""
INDEXED = 1 << 33
"""Of an ARGUED operation: the first argument is the operand; of arrays and lists behind it the key has the shapes."""
PUTS = 1 << 34
"""Of an INDEXED operation: the last argument is an operand too, the value that is written to the first."""
JOINS = 1 << 35
"""Of an ARGUED operation: the first argument is a list, whose tensors are the operands."""
WRITES = 1 << 36
"""The first operand is given the result."""
AUGMENTED = 1 << 37
"""Of ``x += y``: a NumPy scalar is not written, the result is another value."""
MOST_JOINED = 1 << 10
GATHERS = ARGUED | INDEXED
SCATTERS = GATHERS | PUTS
"""Marks of an operation that picks elements by arrays, and of one that writes to such."""

WAYS, SETS = 4, 1 << 12
"""A call is in one of so many places of its set."""
PICK, PICK_RESULT, PICK_SCALE, PICK_EXTRA, PICK_CONTEXT = 3, 3, 4, 5, 6
"""Bits for each value that is saved; what they say but the number of an operand: the result, what an element counts,
the second result, what Python keeps."""
SLOWLY, ADD, SUBTRACT, MULTIPLY, DIVIDE, ONCE, NEST, NEST4, REDUCE, PRODUCT, KERNEL, CALLED = range(12)
NEST_INT, PICKED, JOINED = 12, 13, 14
"""What computes: Python, always; the number itself with +, -, *, /, or NumPy's loop; NumPy's loop over a nest, of
doubles or singles; one over the operand's nest, which leads to fewer results; one for products of matrices; a kernel of
ours; a function of Python's; NumPy's loop over a nest of integers; elements that arrays pick; a join."""
NEW, SHOWN, ALIAS, TO_PART, TO_PLACES, ADDED_TO_PLACES = range(6)
"""Where a result goes: new memory; a view of the first operand; a tensor of the same memory; a part of the first
operand, given by ints and slices; places in it, given by arrays, where it is written or added."""


class CallEntry(Struct):
    """A call that has been seen: its key, then what it takes."""

    op: int  # the operation
    first: int  # the forms of the operands
    second: int
    third: int
    wants: int  # whether each of them is wanted
    constant: int  # the bits of a number, or a hash of the words of its arguments; of any ints how many there are
    block: FormBlock  # of the form, 0 where nothing is recorded
    form: int  # of the result, or its spec
    kind: int  # what computes: SLOWLY to JOINED
    target: int  # where the result goes: NEW to ADDED_TO_PLACES
    loop: int  # its function
    data: int  # its data, as NumPy has them
    layout: int  # of the nest
    count: int  # the operands before the result
    dtype: int  # of the result
    ndim: int
    shape: Array[int]
    saved: int  # which of the operands and the result are saved, PICK bits each
    code: int  # the number of the form
    strides: Array[int]  # of a view
    start: int  # where it begins in memory
    offset: int  # where it begins in the gradient
    key: int  # the words of its arguments
    initial: int  # of a reduction what it starts from, a double; of a nest of integers the least number
    scale: int  # what it is divided by, a double (0: by nothing); of a nest of integers the largest number
    large: int  # bytes of the largest of all values, if large
    bytes: int  # of the result
    operation: int  # what a recorder is notified of: the operation,
    operands: int  # how many operands,
    params: int  # the parameters
    extent: int  # of the view by any ints how many there are, with AXIS words each in place of the index
    flags: int  # whether the view can be written
    ties: int  # of an extremum the nest in which its ties are counted
    counts: int  # what counts them
    takes: int  # whether the first operand can take the result in place
    context: int  # what an instruction of Python's keeps first
    extra: int  # the spec of a second result, int64 and of the same shape
    pair: int  # what makes one of a tuple of both


KEY = CallEntry.block
"""Words of a call's key."""


class CallOperand(Struct, step=8):
    """An operand of a call, in bytes."""

    form: int
    slot: int
    place: int  # the address of its value
    object: int  # that has the value, 0 of a number
    double: int  # room for a number as a double; at first, whether it is an int
    single: int  # room for a number as a single or an integer


MOST_OPERANDS = 3
COPIES_AT = MOST_OPERANDS * CallOperand.SIZE
"""Behind the operands: for each a copy of its value for the tape, or 0."""
EXTRA_AT = 2 * CallOperand.SIZE + CallOperand.object
"""Where the object of a second result stands behind two operands, and that of the counted ties."""
INT_ITEM, FLOAT_ITEM, SLICE_ITEM, SEQUENCE_ITEM, NAMES_ITEM, ARRAY_ITEM, OBJECT_ITEM = range(1, 8)
"""The words of arguments: how many words there are, then for each argument its tag, one of these, and what it is. Of an
int its value, of a float its bits, of a slice its bounds, of a sequence, or of the names of keyword arguments, how many
items follow, of an array how many elements a mask has (plus one, 0 of ints) and its shape, of any other object its
address."""
MOST_WORDS = 48
NO_BOUND = -(1 << 62) - 1
"""What stands for None in a slice."""
OPERAND_BYTES = COPIES_AT + 8 * MOST_OPERANDS
MOST_ARRAYS = 6


class CallRequest(Struct, step=8):
    """A call that native code is asked to make, and how it has been read, in bytes."""

    marks: int  # the operation, with marks that say how the arguments are read
    args: int  # the arguments; of a join its tensors
    count: int  # how many arguments are given by place
    names: int  # the names of those given by name, which follow; 0 if there are none
    tape: int  # the tape in force, one more where a recorder is notified
    number: int  # that is part of the key: the bits of an operand, or a hash of the words
    value: int  # that a PUTS operation writes; of a join, whether any tensor is wanted
    joined: int  # of a join the list,
    rest: int  # the arguments behind it,
    most: int  # and for how many tensors there is room
    operands: int  # an address: of the operands here, or elsewhere
    words: int  # an address: of the words here, or elsewhere
    used: int  # how many words the arguments take, once they have been written; 0 again where arrays may change
    held: int  # an object to be released at the end
    arrays: int  # how many arrays there are; behind it of each its memory, and whether that is a copy
    room: int = 14 * 8 + 8 * (1 + 2 * MOST_ARRAYS)  # the operands
    here: int = 14 * 8 + 8 * (1 + 2 * MOST_ARRAYS) + OPERAND_BYTES  # the words


CALL_WORDS = CallRequest.here // 8 + MOST_WORDS + MOST_OPERANDS

OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE, OP_POWER, OP_NEGATIVE, OP_MATMUL, OP_PART, OP_ASSIGN = range(9)
"""The operations that have slots in the type of tensors."""
OPERATIONS = 9
"""The number of the first operation that has none."""
MOST_OPERATIONS = 1 << 10
NUMBER_FORM = 1
"""What stands for the form of a number among operands; of an operand that there is not, 0."""
NOT_NATIVE = -2
"""What native code answers in place of a tensor where it knows that Python is to do it, each time."""


class KnownArray(Struct):
    """What is known of arrays that are no tensors, of at most MOST_KNOWN_DIMS dims."""

    dtype: int
    ndim: int
    shape: int = 2
    strides: int = 6
    spec: int = 10  # of a tensor of the memory


MOST_KNOWN_DIMS, KNOWN_ARRAYS = 4, 1 << 8
COPIED = 1 << 9
"""Elements up to which an array among the operands is copied at once; of larger ones only what a pullback keeps is."""
EXPOSED = 1 << 14
"""Places in the table of exposed memory, which counts arrays by their addresses; behind them, how many there are."""


class GatherLayout(Struct):
    """How elements are picked; behind the fields an :class:`AxisLayout` for each array."""

    count: int  # elements, or of a mask how many it has
    takes: int  # arrays that pick, 0 of a mask
    inner: int  # how many elements go with each of that
    base: int  # the address of what each element begins with


class AxisLayout(Struct):
    """An array that picks."""

    step: int  # how far a place goes
    extent: int  # how many places there are
    least: int  # the least place that may be given
    where: int  # which of the array's elements counts: their places, by address


AXIS = 3
"""Words of an entry for any ints, whose key has their number, about each axis: extent, strides in memory and in the
gradient."""
MOST_VIEWS = 32
"""Views of a base before the dead among them are to be forgotten."""
APART, SAME, OVERLAPPING = range(3)
"""How the elements of a part that is written, and those of the value, stand to each other in one memory."""
