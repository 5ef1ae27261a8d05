"""Structs of native memory: the tape, the pool of arrays, threads, exchanged arrays, pullbacks, repeated calls."""

from __future__ import annotations

from kernels.language.llvm_values import Array, Struct

TAPE_BITS = 44  # A slot is its tape's number shifted by this, plus a count: unique in the process, never used again
FIRST_ROOM = 1 << 12  # words that a tape begins with
KEPT_ROOM = 1 << 20
"""Words that a tape keeps though it needs fewer: memory that is fresh costs more than what is written there."""
LARGEST_GROWTH = 1 << 25  # bytes of new large values after which a tape of few words looks for those that are dead
LARGEST_LOSS = 1 << 20  # bytes of dead tensors after which a tape of 10,000 words looks for what they held


class TapeHeader(Struct):
    """The header of a tape, in the object itself."""

    words: Array[int]  # the instructions, each behind the one before
    size: int  # words that are used
    room: int  # words that may be used before the dead are looked for
    number: int  # of the tape
    next: int  # the count of the next slot
    directory: Array[Chunk]  # the chunks that count tensors, by number
    first_chunk: int  # the number of the first chunk
    chunks: int  # chunks that are used
    directory_room: int  # chunks for which there is room
    count: int  # instructions
    dead: int  # instructions whose result died since the last look
    lost: int  # bytes of tensors that died since the last look
    moves: int  # how often words have moved
    notify: int  # the function that is called when there is no room
    registry: RegistryTable
    writes: int  # whether anything was written in place
    grown: int  # bytes of new large values since the last look
    owned: int  # words that are allocated


CHUNK_BITS = 10
CHUNK = 1 << CHUNK_BITS  # slots whose tensors a chunk counts
NEEDED, GONE, HELD = 1 << 30, 1 << 29, (1 << 29) - 1
"""A count: below two marks how many tensors have the slot. NEEDED: an instruction that goes on needs it. GONE: the
instruction is gone."""


class Chunk(Struct, step=8):
    """The counts of the tensors that have each of some slots: integers of 32 bits, behind the fields."""

    start: int  # where the first instruction of these slots stands
    held: int  # the sum of the counts


class RegistryTable(Struct):
    """The words that all native code shares: tables by number, objects and types of Python, functions to call."""

    tapes: Array[TapeHeader]  # by their numbers
    forms: Array[FormBlock]  # by their numbers
    form_count: int
    none: int
    int_type: int
    float_type: int
    array_type: int
    tensor_type: int
    type_error: int
    attribute_error: int
    double: int  # the dtype of doubles
    false: int
    active: int  # the context variable of the tape in force
    tape_type: int
    entries: int  # where a tape has its entries
    calls: int  # the table of calls that have been seen
    missed: Array[int]  # of each operation whom to ask for what is not in the table, and for what is always Python's
    new_array: int  # NumPy's function that makes an array
    not_implemented: int
    spare: int  # a tensor that has died, whose memory is kept for a new one
    spares: int  # how many of them there are
    slice_type: int
    tuple_type: int
    ellipsis: int
    new_view: int  # NumPy's function that makes an array of given memory
    set_base: int  # NumPy's function that says whose memory it is
    recorder: int  # the context variable of the recorder that is notified of operations
    recorder_type: int  # what such a recorder is
    true: int
    pooled: int  # what makes an array in the pool
    leaf_type: int  # the type of leaves' slots
    getter: int  # what gets a property otherwise
    setter: int  # what sets one
    spec_of: int  # Python's function for a spec
    scalar_spec: int  # that of numbers
    copy_array: int  # NumPy's function that copies an array
    thread: int  # where a tape has its thread
    list_type: int
    extras_type: int  # the type of what few tensors have
    longs: int  # the dtype of int64
    bools: int  # the dtype of bool
    known_arrays: int  # what is known of arrays
    numpy_double: int  # the type of NumPy's doubles
    numpy_spec: int  # the spec of a tensor for one
    numpy_int: int  # the type of NumPy's int64
    single: int  # the dtype of singles
    exposed: Array[int]  # counts of exposed memory
    shown: int  # the dictionary of arrays whose memory native code has shown to the user
    shown_type: int  # the type of what lives as long as the user has it
    zero: int  # the int 0
    given_arrays: int  # where a tape says that a function runs that was given NumPy's arrays
    stale_type: int  # the type of stale views
    clone: int  # the number of the operation that copies a tensor
    recording: RecorderTables  # of the recorder that is told of tensors' ends
    hit: int  # what makes calls that are in the table


PULLS, VIEW, CLEARS, ADDS, PYTHON = range(5)
"""Kinds of instructions: pullbacks to run; a view; a write that clears the gradient buffer, or keeps it; one run by
Python."""
READY, SINGLE = 1, 2
"""A form pulls, and has all kernels that are wanted; all its gradient buffers have one element besides."""
NUMBER, DOUBLE, ARRAY, OBJECT = range(4)
"""A saved word: a number, the bits of a double, the address of an array, of any object; the tape holds the object."""


class FormBlock(Struct):
    """What native code knows of a form; behind the fields an :class:`InputBlock` each, and what each saved word is."""

    entries: int  # words of an instruction
    inputs: int
    saved: int  # saved values
    buffer: int  # elements of the gradient buffer
    item: int  # bytes of one
    kind: int  # PULLS to PYTHON
    frees: int
    work: int  # steps of its inner loops
    form: int  # the form
    ready: int  # 0, READY, READY | SINGLE: there is nothing to look at twice
    order: int  # whether the gradient buffer is laid out as a C array
    pushes: int  # an InputBlock for the pushforward of each input; 0 before a forward sweep comes to the form


NEVER, IF_INPUT_IS, ALWAYS = range(3)
"""When a pullback's result is a constant cotangent: never, where its own cotangent is constant, always."""
NONE, UNREQUESTED, REQUESTED, IDENTITY = range(4)
"""State of an optional kernel slot: not applicable; not yet requested; requested, compile on next mark; identity."""


class InputBlock(Struct):
    """What native code knows of an input of a form."""

    kernel: int  # what pulls a cotangent back to it
    layout: int
    buffer: int  # elements of its gradient buffer
    item: int  # bytes of one
    covers: int  # whether the kernel writes all elements; KEEPS_WHOLE if what it makes of a WHOLE cotangent is WHOLE
    constant: int  # NEVER, IF_INPUT_IS, ALWAYS
    one: int  # the kernel that computes the number of a constant cotangent
    one_layout: int
    spread: int  # the kernel that reads a constant cotangent
    spread_layout: int
    shape_words: int  # dims, dtype and shape of the operand; 0 where its gradient is not laid out as a C array
    reused: int  # the kernel that leaves the result in the cotangent's memory
    reused_layout: int
    run: int  # elements of the one run that the kernel covers


# How native code ends.
OK, GROW, FREED, MISSING, MEMORY, PAUSE, INTERRUPT_CHECK, NEEDS_SEED, USE_GENERAL_PATH = range(9)
FEW = 64  # buckets that are found by their keys, when a run begins; it clears them, and takes more as it needs them
DENSE = 8  # where one of so many slots is reached, or more, buckets by distance take less than buckets by key
FIRST_STAMP = 1 << 62  # stamps of runs begin here: no key is as large
WORK_BETWEEN_CHECKS = 1 << 22
"""Steps of inner loops after which native code returns, so that Python can take an interrupt: some ten milliseconds."""


class SweepHeader(Struct):
    """The header of a sweep."""

    tape: TapeHeader
    buckets: Bucket  # the gradient table
    mask: int  # of the buckets found by key, a power of two less 1
    order: Array[int]  # where marked instructions end, last first
    room: int  # for buckets by distance, a power of two; for a sixteenth of that by key
    leaves: FoundLeaf  # the leaves that were found
    top: int  # the slot from which distances count
    presets: SeedRow  # roots and observed slots
    preset: int  # how many these are
    restrict: int
    count: int  # marked instructions
    leaf: int  # leaves that were found
    at: int
    pointers: int  # what a kernel is called with
    low: int  # where the sweep ends
    position: int  # in that order, of the instruction that is run next
    resume: int  # of which input of that instruction to go on with
    batch: int  # cotangents that are swept at a time
    readers: int
    near: int  # buckets found by distance, a power of two
    stamp: int  # of the run
    keys: int  # keys in the table
    extent: int
    whole: int  # where the tape ended, if all from ``low`` on is marked and dropped by a backward that frees; else 0
    marks: int  # the functions that a backward calls
    restricts: int
    sweeps: int
    drops: int
    swept: int  # how many words of the tape it has looked at
    pulls: int  # whether pullbacks are run while instructions are marked


USED, TOUCHED, KEPT, ALIAS, RELEVANT, OWNED, FOREIGN, DROPPED, PAUSED = 1, 2, 4, 8, 16, 32, 64, 128, 256
CONSTANT, CONSTANT_WANTED, WHOLE = 512, 1024, 2048
"""CONSTANT: all elements of the gradient are one number, which the bucket holds. CONSTANT_WANTED: they would have been,
had the kernels been compiled. WHOLE: none of them is -0.0, nothing; sums of such elements are none either."""
KEEPS_WHOLE, PARENT = 2, 16  # an alias keeps the number of its parent's bucket above this many bits


class Bucket(Struct):
    """A bucket of the gradient table.

    Those found by key come first, then by distance from ``SweepHeader.top`` down; these have, in place of the key, the
    stamp of the last run that has used them.
    """

    key: int
    pointer: int  # the gradient buffer
    value: int  # the gradient buffer itself where 8 bytes hold it; a view's offset
    flags: int


class SeedRow(Struct):
    """A root or an observed slot, before the sweep."""

    slot: int
    pointer: int  # its gradient buffer, or an array's address turned negative
    value: int  # for a bucket that holds the gradient itself
    flags: int


class FoundLeaf(Struct):
    """A leaf that a sweep has found."""

    place: int  # where its operand stands
    last: int  # where its instruction ends
    bucket: int  # the number of its bucket


RUN_KERNEL, RUN_NEST, RUN_FILL8, RUN_FILL4, RUN_INLINE, RUN_GUARD, RUN_PYTHON = range(7)
RUN_LOOP, RUN_BODY, RUN_AGAIN, RUN_NEXT, RUN_BACK, RUN_CHOOSE, RUN_RESTORE, RUN_BEFORE = range(7, 15)
"""What steers a loop: kernels/programs/task_blocks.py."""
ROW = 8  # words of a row


class ProgramRow(Struct):
    """A row of a program."""

    kind: int  # RUN_KERNEL to RUN_BEFORE
    address: int  # what to call or fill
    layout: int
    pointers: int
    accumulate: int
    data: int
    operands: int


class LoopWords(Struct):
    """The words of a loop."""

    count: int
    left: int
    top: int
    limit: int


class LoopStack(Struct):
    """The words that the loops of a program share."""

    stack: int
    room: int
    top: int
    fuel: int
    needed: int


LARGE = 1 << 16  # bytes from which on a block is kept for reuse
HUGE = 1 << 22  # bytes from which on the system is asked for huge pages, as NumPy does


class ExchangeHead(Struct):
    """The head; behind it an :class:`ExchangedValue` for each argument, then for each result."""

    arguments: int  # how many
    results: int
    float_type: int
    double_type: int  # np.float64
    single_type: int  # np.float32
    int_type: int
    array_type: int
    new_copy: int  # NumPy's functions: what makes a copy
    copy_into: int
    new_array: int
    rows: int  # where the rows stand that run between
    row_count: int
    releases: int  # whether other threads may run Python meanwhile


class ExchangedValue(Struct):
    """An argument or a result."""

    kind: int  # XK_ARRAY to XK_INTEGER
    place: int  # where it stands
    view: int  # the array that shows it
    dtype: int  # of a result: its number
    ndim: int
    shape: Array[int]
    words: int  # of an array how many it has, -1 where NumPy is to copy it
    gradient: int  # of a gradient its elements, 0 of others
    item: int  # bytes of an element


XK_ARRAY, XK_DOUBLE, XK_SINGLE, XK_INTEGER = range(4)
"""Kinds: arrays alone; also a float or int for a double, a float or np.float32 for a single, an int for an int64."""


# What saves the words by which a sweep runs a program back is an instruction that Python runs otherwise. Its last two
# saved values are the array of these words, and the memory that the program had after its forward, with one word behind
# it: not 0 where Python has to act.


class PullbackRun(Struct):
    """The head; behind it a :class:`PulledResult` each that has a gradient, then a :class:`PulledOperand` each."""

    memory: int  # of the machine that runs back
    bytes: int  # of that
    rows: int
    row_count: int
    work: int  # the elements that the rows compute
    results: int  # how many have a gradient


class PullbackCode(Struct):
    """The head of another table, with the same behind it: of machine code on arguments and cotangents."""

    run: int  # the function; 0 where Python has to act
    table: int  # what it is given
    busy: int
    arguments: int
    work: int  # the elements that it computes
    results: int  # how many have a gradient


class PulledResult(Struct):
    """A result that has a gradient."""

    slot: int  # less that of the call
    place: int  # where its cotangent goes; of machine code, where one is that nothing has reached
    count: int  # elements
    item: int  # bytes of one


class PulledOperand(Struct):
    """An operand."""

    place: int  # where its gradient stands, 0 where it has none
    count: int  # elements
    reaches: int  # the results that depend on it, a bit each


REPLAYED, RESULT, GRADED, RERUN = 1, 2, 3, 4
"""In a form's block, in place of the first operand's kernel: a call of a program, one of its results; a call that
returns a number, and has saved, behind the values of its operands, what its gradients are at cotangent 1; a call of
which machine code runs the pullback, with its forward: it has saved, last, a :class:`PullbackCode`."""


class KeptCalls(Struct):
    """What is known of all such calls of a program; it is the last that each has saved."""

    count: int  # calls that have kept gradients since one was run back
    most: int  # how many may


MOST_RESULTS = 62  # results that have a gradient, a bit each


# What a call that has been seen is in memory, and what it is asked with, for Python and for native code.
#
# Marks added to the number of an operation: how the arguments of a call are read. Those below NUMBERED are part of the
# operation.
CONDITION = 1 << 30  # the first operand chooses among the others
NUMBERED = 1 << 31  # A second operand that is a number is part of the key
ARGUED = 1 << 32  # the leading tensors are operands; what is given behind them is part of the key
INDEXED = 1 << 33
"""Of an ARGUED operation: the first argument is the operand; of arrays and lists behind it the key has the shapes."""
PUTS = 1 << 34
"""Of an INDEXED operation: the last argument is an operand too, the value that is written to the first."""
JOINS = 1 << 35  # of an ARGUED operation: the first argument is a list, whose tensors are the operands
WRITES = 1 << 36  # the first operand is given the result
AUGMENTED = 1 << 37
"""Of ``x += y``: a NumPy scalar is not written, the result is another value."""
MOST_JOINED = 1 << 10
GATHERS = ARGUED | INDEXED
SCATTERS = GATHERS | PUTS  # marks of an operation that picks elements by arrays, and of one that writes to such

WAYS, SETS = 4, 1 << 12  # A call is in one of so many places of its set
PICK, PICK_RESULT, PICK_SCALE, PICK_EXTRA, PICK_CONTEXT = 3, 3, 4, 5, 6
"""Bits for each value that is saved; what they say but the number of an operand: the result, what an element counts,
the second result, what Python keeps."""
SLOWLY, ADD, SUBTRACT, MULTIPLY, DIVIDE, ONCE, NEST, NEST4, REDUCE, PRODUCT, KERNEL, CALLED = range(12)
NEST_INT, PICKED, JOINED = 12, 13, 14
"""What computes: Python, always; the number itself with +, -, *, /, or NumPy's loop; NumPy's loop over a nest, of
doubles or singles; one over the operand's nest, which leads to fewer results; one for products of matrices; a kernel of
ours; a function of Python's; NumPy's loop over a nest of integers; elements that arrays pick; a join."""
NEW, SHOWN, ALIASED, TO_PART, TO_PLACES, ADDED_TO_PLACES = range(6)
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
    params: int  # the parameters; 0 where only a recorder in native code, which needs none, is notified
    extent: int  # of the view by any ints how many there are, with AXIS words each in place of the index
    flags: int  # whether the view can be written
    ties: int  # of an extremum the nest in which its ties are counted
    counts: int  # what counts them
    takes: int  # whether the first operand can take the result in place
    context: int  # what an instruction of Python's keeps first
    extra: int  # the spec of a second result, int64 and of the same shape
    pair: int  # what makes one of a tuple of both


KEY = CallEntry.block  # words of a call's key


class RecordedCall(Struct):
    """A call that a recorder is notified of."""

    operation: int
    params: int
    count: int  # operands
    floats: int  # whether the result is of floats, for which ints among the operands become floats
    shows: int  # whether the result is of the memory of its first operand
    args: Array[int]
    operands: Array[int]  # a :class:`CallOperand` each, in bytes
    result: int


class CallOperand(Struct, step=8):
    """An operand of a call, in bytes."""

    form: int
    slot: int
    place: int  # the address of its value
    object: int  # that has the value, 0 of a number
    double: int  # room for a number as a double; at first, whether it is an int
    single: int  # room for a number as a single or an integer


MOST_OPERANDS = 3
COPIES_AT = MOST_OPERANDS * CallOperand.SIZE  # behind the operands: for each a copy of its value for the tape, or 0
EXTRA_AT = 2 * CallOperand.SIZE + CallOperand.object
"""Where the object of a second result stands behind two operands, and that of the counted ties."""
INT_ITEM, FLOAT_ITEM, SLICE_ITEM, SEQUENCE_ITEM, NAMES_ITEM, ARRAY_ITEM, OBJECT_ITEM = range(1, 8)
"""The words of arguments: how many words there are, then for each argument its tag, one of these, and what it is. Of an
int its value, of a float its bits, of a slice its bounds, of a sequence, or of the names of keyword arguments, how many
items follow, of an array how many elements a mask has (plus one, 0 of ints) and its shape, of any other object its
address."""
MOST_WORDS = 48
NO_BOUND = -(1 << 62) - 1  # what stands for None in a slice
OPERAND_BYTES = COPIES_AT + 8 * MOST_OPERANDS
MOST_ARRAYS = 6


class CallRequest(Struct, step=8):
    """A call that native code is asked to make, and how it has been read, in bytes."""

    marks: int  # the operation, with marks that say how the arguments are read
    args: int  # the arguments; of a join its tensors
    count: int  # how many arguments are given by place
    names: int  # the names of those given by name, which follow; 0 if there are none
    tape: int  # the tape in force, one more where a recorder is notified, three more where it is in native code
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
OPERATIONS = 9  # the number of the first operation that has none
MOST_OPERATIONS = 1 << 10
NUMBER_FORM = 1  # what stands for the form of a number among operands; of an operand that there is not, 0
NOT_NATIVE = -2  # what native code answers in place of a tensor where it knows that Python is to do it, each time


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
MOST_VIEWS = 32  # views of a base before the dead among them are to be forgotten
APART, SAME, OVERLAPPING = range(3)
"""How the elements of a part that is written, and those of the value, stand to each other in one memory."""


# The steps of a program that is recorded as words, and what its recorder knows.


class StepWords(Struct):
    """The steps of a program, end to end."""

    address: int  # where the words are
    used: int
    room: int  # how many there may be


class RecorderTables(Struct):
    """A recorder as native code knows it: addresses of objects, and of its tables."""

    record: int  # the function that records
    serial: int  # what stands above a node in a tensor that the recorder knows
    thread: int  # in which it records
    alive: int  # how many such tensors there are, as long as it is the one that is told of their ends
    tensor_type: int
    float_type: int
    int_type: int
    array_type: int
    node_type: int
    none: int
    true: int
    false: int
    known: int  # the nodes, by id, of tensors that another recording has known
    nodes: int
    forms: int
    results: int  # tensors that steps have made: None before the ``first`` that is held,
    room: int  # and for how many more bytes, and tensors times RESULT_BYTES, there is room
    first: int
    numbers: int
    kept: int  # a list of what rows refer to
    rows: int  # a table of :class:`KnownStep`
    mask: int  # of its rows
    constants: int  # as many rows of :class:`KnownConstant`; 0 where constants are not known by their memory
    owned: StepWords  # the memory of the program: where each part begins and ends
    steps: StepWords
    marks: StepWords  # two words each: where steps begin, and the instruction of the user's code; 0 without lines
    mark: int  # Python's function that marks
    marked: int  # the last mark
    repeats: RepeatSearch
    codes: StepWords  # two words each: code that is known, and its number, above that of an instruction; OWN_CODE


class RepeatSearch(Struct):
    """What repeats in a recording: iterations of it that do what the one before did are counted, and not kept."""

    look: int  # how many words there are to be before a period is looked for
    boundary: int  # how many there are when the iteration that is recorded will be whole; 0 where none is known
    alike: int  # iterations, one behind the other, that were alike
    words: int  # of an iteration,
    nodes: int
    numbers: int
    marks: int  # words of these
    counts: Array[int]  # of operands, by kinds of steps
    starts: Array[int]  # room for as many begins of steps as are looked at
    saved: StepWords  # numbers of iterations that were not kept, as the bits of doubles
    parts: int  # the :class:`RepeatWords` that follow
    open: int  # whether the last one goes on


class RepeatWords(Struct):
    """Iterations that are not kept."""

    node: int  # from this on nodes stand for later ones: their numbers in tensors are larger
    shift: int  # by this
    word: int  # where the last iteration that is kept ends,
    end: int  # the node behind it,
    number: int  # and the number behind it
    words: int
    nodes: int
    numbers: int
    marks: int
    skipped: int  # how many iterations are not kept
    saved: int  # where their numbers begin among those that are saved
    saves: int  # whether they are saved: some differ


class KnownStep(Struct):
    """What steps have in common: what they are known by, then what is recorded of them."""

    operation: int
    form: int  # of the result
    params: int
    first: int  # the forms of operands, odd where a gradient is wanted
    second: int
    third: int
    rest: int  # whether the result has a slot, mixed with the forms of further operands
    kind: int  # the number of the kind
    node: int  # of the result: of a view the last, which is taken again for the next where that is of the same place
    held: int  # where that is among what is kept
    shows: int  # whether the result is of the memory of its first operand
    is_graded: int  # of a write, whether its gradient is recorded


class KnownConstant(Struct):
    """An array that was used as a constant."""

    data: int  # where it begins
    spec: int
    node: int
    copy: int  # what it held
    bytes: int


class NodeObject(Struct, start=16, step=8):
    """A :class:`ProgramNode`."""

    argument: int
    base: int
    buffer_offset: int
    constant: int
    differentiable: int
    family: int
    offset: int
    spec: int


NODE_MASK = (1 << 32) - 1  # of a node in a tensor; above it stands the recorder's serial
MOST_REPEATS = 8
STARTS = 1 << 13  # steps among which a period is looked for
LEAST_ALIKE, LEAST_WORDS, WINDOW = 64, 1 << 12, 3
"""Iterations that are kept at least, and their words; of how many the nodes stand for the last iterations."""
OWN_CODE = -1  # what stands for code of this package: its caller counts
RESULT_BYTES = 1 << 12  # what holding a result counts, beside its own bytes
