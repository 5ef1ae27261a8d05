"""What a tape, its instructions and a sweep are in memory, for Python and for native code."""

from __future__ import annotations

from kernels.compiler.native_types import Array, Struct

TAPE_BITS = 44
"""A slot is its tape's number shifted by this, plus a count: unique in the process, never used again."""
FIRST_ROOM = 1 << 12
"""Words that a tape begins with."""
KEPT_ROOM = 1 << 20
"""Words that a tape keeps though it needs fewer: memory that is fresh costs more than what is written there."""
LARGEST_GROWTH = 1 << 25
"""Bytes of new large values after which a tape of few words looks for those that are dead."""
LARGEST_LOSS = 1 << 20
"""Bytes of dead tensors after which a tape of 10,000 words looks for what they held."""


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
CHUNK = 1 << CHUNK_BITS
"""Slots whose tensors a chunk counts."""
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
    mode: int  # the context variable of the mode in force
    recorder: int  # the context variable of the recorder that is notified of operations
    true: int
    pooled: int  # what makes an array in the pool
    dim: int  # the names of arguments that native code knows
    axis: int
    leaf_type: int  # the type of leaves' slots
    getter: int  # what gets a property otherwise
    setter: int  # what sets one
    spec_of: int  # Python's function for a spec
    scalar_spec: int  # that of numbers
    copy_array: int  # NumPy's function that copies an array
    thread: int  # where a tape has its thread
    list_type: int
    hit: int  # what repeats calls
    hit_view: int  # views
    hit_in_place: int  # operations in place
    assign: int  # writes to parts
    hit_shared: int  # what shares memory
    extras_type: int  # the type of what few tensors have
    hit_picked: int  # what repeats picks
    longs: int  # the dtype of int64
    bools: int  # the dtype of bool
    assign_at: int  # what repeats writes to places
    hit_joined: int  # joins
    hit_adopted: int  # calls of arrays
    known_arrays: int  # what is known of arrays
    numpy_double: int  # the type of NumPy's doubles
    numpy_spec: int  # the spec of a tensor for one
    numpy_int: int  # the type of NumPy's int64
    single: int  # the dtype of singles
    hit_put: int  # what repeats writes of elements
    exposed: Array[int]  # counts of exposed memory
    secure: int  # what copies exposed memory
    zero: int  # the int 0
    given_arrays: int  # where a tape says that a function runs that was given NumPy's arrays
    stale_type: int  # the type of stale views
    clone: int  # the number of the operation that copies a tensor


# Form blocks.

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


NEVER, IF_INPUT_IS, ALWAYS = range(3)
"""When a pullback's result is a constant cotangent: never, where its own cotangent is constant, always."""
NO_KERNEL, UNWANTED, WANTED, ITSELF = range(4)
"""In place of a kernel that is rarely wanted: there is none; not asked for; to be compiled; the cotangent as it is."""


class InputBlock(Struct):
    """What native code knows of an input of a form."""

    kernel: int  # what pulls a cotangent back to it
    layout: int
    buffer: int  # elements of its gradient buffer
    item: int  # bytes of one
    covers: int  # whether the kernel writes all elements
    constant: int  # NEVER, IF_INPUT_IS, ALWAYS
    one: int  # the kernel that computes the number of a constant cotangent
    one_layout: int
    spread: int  # the kernel that reads a constant cotangent
    spread_layout: int
    laid: int  # where dims, dtype and shape of the operand stand; 0 where its gradient is not laid out as a C array
    reused: int  # the kernel that leaves the result in the cotangent's memory
    reused_layout: int
    run: int  # elements of the one run that the kernel covers


# Sweeps.

OK, GROW, FREED, MISSING, MEMORY, PAUSE, INTERRUPT_CHECK, BARE, ELSEWHERE, UNLOADED = range(10)
"""How native code ends. BARE: the root has no cotangent as yet. ELSEWHERE: a longer way does this. UNLOADED: what
SweepHeader.walks names is."""
FEW = 64
"""Buckets that are found by their keys, when a run begins; it clears them, and takes more as it needs them."""
DENSE = 8
"""Where one of so many slots is reached, or more, buckets by distance take less than buckets by key."""
FIRST_STAMP = 1 << 62
"""Stamps of runs begin here: no key is as large."""
WORK_BETWEEN_CHECKS = 1 << 22
"""Steps of inner loops after which native code returns, so that Python can take an interrupt: some ten milliseconds."""


class SweepHeader(Struct):
    """The header of a sweep."""

    tape: TapeHeader
    buckets: Bucket  # the gradient table
    mask: int  # of the buckets found by key, a power of two less 1
    order: Array[int]  # where marked instructions end, last first
    room: int  # of the table and of that order
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
    walks: int
    drops: int
    swept: int  # how many words of the tape it has looked at


USED, TOUCHED, KEPT, ALIAS, RELEVANT, OWNED, FOREIGN, DROPPED, PAUSED = 1, 2, 4, 8, 16, 32, 64, 128, 256
CONSTANT, CONSTANT_WANTED = 512, 1024
"""CONSTANT: all elements of the gradient are one number, which the bucket holds. CONSTANT_WANTED: they would have been,
had the kernels been compiled."""
PARENT = 16
"""An alias keeps the number of its parent's bucket above this many bits."""


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


# Rows of programs.

RUN_KERNEL, RUN_NEST, RUN_FILL8, RUN_FILL4, RUN_INLINE, RUN_GUARD, RUN_PYTHON = range(7)
RUN_LOOP, RUN_BODY, RUN_AGAIN, RUN_NEXT, RUN_BACK, RUN_CHOOSE, RUN_RESTORE, RUN_BEFORE = range(7, 15)
"""What steers a loop: kernels/programs/lowering/task_blocks.py."""
ROW = 8
"""Words of a row."""


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
