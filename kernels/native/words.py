"""The words that Python and native code share: the header of a sweep, its gradient table, the blocks of forms."""

from __future__ import annotations

# The header: what stands in each word of it.
H_TAPE, H_BUCKETS, H_MASK, H_ORDER, H_ROOM, H_LEAVES, H_TOP, H_PRESETS, H_PRESET, H_RESTRICT = range(10)
H_COUNT, H_LEAF, H_AT, H_PTRS, H_LOW, H_FROM, H_RESUME, H_BATCH, H_READERS = range(10, 19)
H_NEAR, H_STAMP, H_KEYS, H_EXTENT, H_WHOLE, HEADER = range(19, 25)
"""H_WHOLE: where the tape ended, if from H_LOW on there was nothing but what was marked, and a backward that frees it
drops all of that; else 0."""
# Behind the header, the addresses of what a backward calls, and how many words of the tape it has looked at.
H_MARKS, H_RESTRICTS, H_SWEEPS, H_WALKS, H_DROPS, H_SWEPT, WHOLE_HEADER = range(HEADER, HEADER + 7)
FEW = 64
"""Buckets that are found by their keys, when a run begins; it clears them, and takes more as it needs them."""
DENSE = 8
"""Where one of so many slots is reached, or more, buckets by distance take less than buckets by key."""
FIRST_STAMP = 1 << 62
"""Stamps of runs begin here: no key is as large."""

# The header of a tape, in the object itself: its words, how many are used, and may be before the dead are looked for;
# its number, the count of the next slot; the chunks of counts; instructions; those whose result died since the last
# look; bytes of tensors that died; how often words have moved; what is called when there is no room; the registry;
# whether anything was written; bytes of new large values; how many words are allocated.
T_WORDS, T_SIZE, T_ROOM, T_NUMBER, T_NEXT, T_DIR, T_FIRST, T_CHUNKS, T_DIRROOM, T_COUNT, T_DEAD = range(11)
T_LOST, T_MOVES, T_FULL, T_REGISTRY, T_WRITES, T_GROWN, T_OWNED, TAPE_WORDS = range(11, 19)
FIRST_ROOM = 1 << 12
"""Words that a tape begins with."""
KEPT_ROOM = 1 << 20
"""Words that a tape keeps though it needs fewer: memory that is fresh costs more than what is written there."""
LARGEST_GROWTH = 1 << 25
"""Bytes of new large values after which a tape of few words looks for those that are dead."""
LARGEST_LOSS = 1 << 20
"""Bytes of dead tensors after which a tape of 10,000 words looks for what they held."""

# A chunk counts the tensors that have each of some slots, below two marks: an instruction that goes on needs it; the
# instruction is gone. Before the counts: where the first instruction of these slots stands, and the sum of the counts.
CHUNK_BITS = 10
CHUNK = 1 << CHUNK_BITS
C_START, C_HELD, C_COUNTS = 0, 8, 16
NEEDED, GONE, HELD = 1 << 30, 1 << 29, (1 << 29) - 1

# The registry: the headers of tapes by their numbers, the blocks of forms by theirs, Python's objects and types; the
# context variable of the tape in force, the type of tapes, where one has its entries; the table of calls, whom to ask,
# by operation, for what is not in it, and for what is always Python's; NumPy's function that makes an array; the mode
# in force, and which recorder is notified of operations; what makes an array in the pool; names of arguments.
G_TAPES, G_FORMS, G_FORMCOUNT, G_NONE, G_INT, G_FLOAT, G_ARRAY, G_TENSOR, G_TYPEERROR, G_ATTRIBUTE = range(10)
G_DOUBLE, G_FALSE, G_ACTIVE, G_TAPE, G_ENTRIES, G_CALLS, G_MISSED, G_NEW, G_NOTIMPLEMENTED, G_SPARE = range(10, 20)
G_SPARES, G_SLICE, G_TUPLE, G_ELLIPSIS, G_VIEW, G_BASE, G_MODE, G_RECORDER, G_TRUE, G_POOLED = range(20, 30)
G_DIM, G_AXIS = range(30, 32)
# The type of leaves' slots; what gets and sets a property otherwise; Python's function for a spec, and that of numbers;
# NumPy's function that copies an array; where a tape has its thread; the type of lists; what repeats calls, views,
# operations in place, writes to parts, and who shares memory; the type of what few tensors have; what repeats picks;
# the dtypes of int64 and bool; what repeats writes to places, joins, and calls of arrays; what is known of those; the
# type of NumPy's doubles, and the spec of a tensor for one; that of NumPy's int64; the dtype of singles; counts of
# exposed memory, and what copies that; the int 0; where a tape says that a function runs that was given NumPy's arrays.
(
    G_LEAF,
    G_GETS,
    G_SETS,
    G_SPECOF,
    G_SCALAR,
    G_COPY,
    G_THREAD,
    G_LIST,
    G_HIT,
    G_HIT_VIEW,
    G_HIT_IN_PLACE,
    G_ASSIGN,
    G_HIT_SHARED,
    G_EXTRAS,
    G_HIT_PICKED,
    G_LONGS,
    G_BOOLS,
    G_ASSIGN_AT,
    G_HIT_JOINED,
    G_HIT_ADOPTED,
    G_ADOPTED,
    G_NUMPY_DOUBLE,
    G_NUMPY_SPEC,
    G_NUMPY_INT,
    G_SINGLE,
    G_HIT_PUT,
    G_EXPOSED,
    G_SECURE,
    G_ZERO,
    G_GIVEN_ARRAYS,
    REGISTRY,
) = range(32, 63)
MOST_SPARES = 32
"""Tensors that have died whose memory is kept for new ones, each with the address of the next for its value."""

# A bucket of the gradient table: key, pointer, the gradient buffer itself where 8 bytes hold it (a view's offset),
# flags. Those found by key come first, H_MASK and one; then, by distance, those of the H_NEAR slots (a power of two)
# from H_TOP down. In place of the key these have the stamp of the last run that has used them.
BUCKET = 4
USED, TOUCHED, KEPT, ALIAS, RELEVANT, OWNED, FOREIGN, DROPPED, PAUSED = 1, 2, 4, 8, 16, 32, 64, 128, 256
CONSTANT, CONSTANT_WANTED = 512, 1024
"""CONSTANT: all elements of the gradient are one number, which the bucket holds. CONSTANT_WANTED: they would have been,
had the kernels been compiled."""
PARENT = 16
"""An alias keeps the number of its parent's bucket above this many bits."""

# A found leaf: where its operand stands, where its instruction ends, its bucket.
LEAF_WORDS = 3

# A form's block: words, inputs, saved values, elements and item size of the gradient buffer, kind, what it frees,
# steps, the form, whether there is nothing to look at twice, whether the gradient buffer is in order; then the inputs,
# then what kind of word each saved value is.
B_ENTRIES, B_INPUTS, B_SAVED, B_BUFFER, B_ITEM, B_KIND, B_FREES, B_WORK, B_FORM, B_READY, B_ORDER, B_FIRST = range(12)
READY, SINGLE = 1, 2
"""A form pulls, and has all kernels that are wanted; all its gradient buffers have one element besides."""
# A saved word: a number, the bits of a double, the address of an array, of any object; the tape holds the object.
NUMBER, DOUBLE, ARRAY, OBJECT = range(4)
# Kinds of instructions: pullbacks to run; a view; a write, which clears the gradient buffer or keeps it; one run by
# Python.
PULLS, VIEW, CLEARS, ADDS, PYTHON = range(5)
# Each input in a block: kernel, layout, elements and item size of its gradient buffer, whether the kernel covers it;
# whether its result is a constant cotangent; kernel and layout that compute the number, kernel and layout that read
# one; where dims, dtype and shape of the operand stand, 0 where its gradient is not as in a C array; kernel and layout
# that leave the result in the cotangent's memory; elements of the one run that the kernel covers.
I_KERNEL, I_LAYOUT, I_BUFFER, I_ITEM, I_COVERS, I_CONSTANT, I_ONE, I_ONE_LAYOUT, I_SPREAD, I_SPREAD_LAYOUT = range(10)
I_LAID, I_REUSED, I_REUSED_LAYOUT, I_RUN, I_WORDS = range(10, 15)
NEVER, IF_INPUT_IS, ALWAYS = range(3)
"""When a pullback's result is a constant cotangent: never, where its own cotangent is constant, always."""
NO_KERNEL, UNWANTED, WANTED, ITSELF = range(4)
"""In place of a kernel that is rarely wanted: there is none; not asked for; to be compiled; the cotangent as it is."""

WORK_BETWEEN_CHECKS = 1 << 22
"""Steps of inner loops after which native code returns, so that Python can take an interrupt: some ten milliseconds."""

OK, GROW, FREED, MISSING, MEMORY, PAUSE, INTERRUPT_CHECK, BARE, ELSEWHERE, UNLOADED = range(10)
"""BARE: the root has no cotangent as yet. ELSEWHERE: a longer way does this. UNLOADED: what H_WALKS names is."""

TAPE_BITS = 44
"""A slot is its tape's number shifted by this, plus a count: unique in the process, never used again."""

# A row of a program: what to do, the address to call or fill, layout, pointers, and what the call takes.
R_KIND, R_ADDRESS, R_LAYOUT, R_POINTERS, R_ACCUMULATE, R_DATA, R_OPERANDS = range(7)
ROW = 8
RUN_KERNEL, RUN_NEST, RUN_FILL8, RUN_FILL4, RUN_INLINE, RUN_GUARD, RUN_PYTHON = range(7)
RUN_LOOP, RUN_BODY, RUN_AGAIN, RUN_NEXT, RUN_BACK, RUN_CHOOSE, RUN_RESTORE, RUN_BEFORE = range(7, 15)
"""What steers a loop: kernels/programs/lowering/loop_rows.py."""

# The words of a loop, and those that the loops of a program share.
L_COUNT, L_LEFT, L_TOP, L_LIMIT, LOOP_WORDS = range(5)
S_STACK, S_ROOM, S_TOP, S_FUEL, S_NEEDED, STACK_WORDS = range(6)

# A tensor as an object of Python, in bytes: after its header, references, then what is no reference.
O_TYPE, O_VALUE, O_FORM, O_BASE, O_VIEWS, O_SHARED, O_EXTRAS = range(8, 64, 8)
O_SLOT, O_OFFSET, O_BYTES, O_WEAK, O_SIZE = range(64, 104, 8)
O_FIRST, O_LAST = O_VALUE, O_EXTRAS
# What stands at O_SLOT: 0, a slot, a slot that the tensor does not hold (marked), a leaf's address turned negative.
UNHELD = 1 << 62
STALE = -1
"""No slot: the tensor is a view of a version that has been overwritten."""

# The slot of a leaf as an object of Python, in bytes: its gradient, hooks, whether it is over, its owner, its spec.
L_GRAD, L_HOOKS, L_OVER, L_OWNER, L_SPEC = range(16, 56, 8)
SMALL_GRADIENT = 1 << 12
"""Bytes from which a gradient of a leaf is dropped with the leaf, not with the last instruction that refers to it."""

# What few tensors have as an object of Python, in bytes.
R_COUNTER, R_GRAD, R_LEAF, R_RETAINS = range(16, 48, 8)

# A function of tensors as an object of Python, in bytes: its entry, its number, who does what is no hit, who
# does what is always Python's, its attributes.
F_CALL, F_NUMBER, F_SLOW, F_ALWAYS, F_DICT, F_SIZE = range(16, 64, 8)
ARGUED = 1 << 32
"""Added to the number of an operation: all that is given behind the tensors is part of the call."""
LARGEST_DIM = 1 << 10
ADDING = 1 << 29
"""Part of the number of an operation that adds to places of its first operand."""
CONDITION = 1 << 30
"""Part of the number of an operation whose first operand chooses among the others."""
NUMBERED = 1 << 31
"""Added to the number of an operation: a second operand that is a number is part of the form."""
SHOWS = 1 << 33
"""Added to the number of a view: all that is given beside the tensor is ints, and part of the form."""
WRITES = 1 << 34
"""Added to the number of an operation: the first operand is given the result."""
AUGMENTED = 1 << 33
"""Added to that of ``x += y``: a NumPy scalar is not written, the result is another value."""
SHARES = 1 << 35
"""Added to the number of an operation that gives a tensor of the same memory."""
PICKS = 1 << 36
"""Added to the number of an operation that picks elements: what is given beside the tensor is arrays and ints."""
JOINS = 1 << 37
"""Added to the number of an operation that joins the tensors of a list, along a dim."""
MOST_JOINED = 1 << 10
PUTS = 1 << 38
"""Added to the number of an operation that writes to places: behind the tensor arrays and ints, then the value."""

# An array as an object of Python, in bytes; kernels/native/memory.py and numpy_api.py check that it is so.
A_DATA, A_NDIM, A_SHAPE, A_STRIDES, A_BASE, A_DTYPE, A_FLAGS = 16, 24, 32, 40, 48, 56, 64
A_SIMPLE, A_ALIGNED, A_WRITEABLE, A_DENSE = 0x101, 0x100, 0x400, 0x3
"""Flags of arrays: C-contiguous and aligned; that may be written."""
D_NUMBER = 28
"""Where a dtype has its number, in bytes."""
LONGS, SINGLES, DOUBLES = 7, 11, 12
"""The numbers of the dtypes int64, float32 and float64 in NumPy."""

# A call that has been seen. Its key: the operation, the forms of its operands, whether each of them is wanted,
# the bits of a number that is part of the form. What it takes: the block of the form, 0 where nothing is recorded; the
# form or spec of the result; what computes it, with NumPy's data, the layout of a nest, how many operands come before
# the result; dtype, dims and shape of the result; which of the operands and the result are saved, three bits each;
# the number of the form; of a reduction what it starts from and what it is divided by (0: by nothing), as doubles; of
# a view its strides, where it begins in memory and in the gradient, the words of its index; bytes of the largest of
# all, if large, and of the result; what a recorder is notified of: the operation, how many operands, the parameters;
# of the view by any ints how many, with extents and strides in place of the index; whether it can be written; of an
# extremum the nest in which its ties are counted, and what counts them; whether the first operand can take the result
# in place; what an instruction of Python's keeps first; of a second result, int64 and of the same shape, the spec, and
# what makes one of a tuple of both.
K_OP, K_A, K_B, K_C, K_WANTS, K_NUMBER, KEY = range(7)
E_BLOCK, E_FORM, E_KIND, E_LOOP, E_DATA, E_LAYOUT, E_COUNT, E_DTYPE, E_NDIM, E_SHAPE, E_SAVED, E_CODE = range(6, 18)
E_STRIDES, E_START, E_OFFSET, E_KEY, E_INITIAL, E_SCALE, E_LARGE, E_BYTES = range(18, 26)
E_OPERATION, E_OPERANDS, E_PARAMS, E_EXTENT, E_FLAGS, E_TIES, E_COUNTS, E_TAKES = range(26, 34)
E_CONTEXT, E_EXTRA, E_PAIR, CALL = range(34, 38)
WAYS, SETS = 4, 1 << 10
"""A call is in one of so many places of its set."""
PICK, PICK_RESULT, PICK_SCALE, PICK_EXTRA, PICK_CONTEXT = 3, 3, 4, 5, 6
"""Bits for each value that is saved; what they say but the number of an operand: the result, what an element counts,
the second result, what Python keeps."""
# What computes: Python, always; the number itself with +, -, *, /, or NumPy's loop; NumPy's loop over a nest, of
# doubles, singles or integers; one over the operand's nest, which leads to fewer results; one for products of matrices;
# a kernel of ours; a function of Python's; elements that arrays pick; a join.
SLOWLY, ADD, SUBTRACT, MULTIPLY, DIVIDE, ONCE, NEST, NEST4, REDUCE, PRODUCT, KERNEL, CALLED = range(12)
NEST_INT, PICKED, JOINED = 12, 13, 14
E_LEAST, E_MOST = E_INITIAL, E_SCALE
"""Of a nest of integers: between which a number has to be."""
# An operand of a call, in bytes: form, slot, the address of its value, the object of that (0 of a number), room for
# a number as a double and, where at first stands whether it is an int, as a single or an integer.
V_FORM, V_SLOT, V_PLACE, V_OBJECT, V_DOUBLE, V_SINGLE, OPERAND = range(0, 56, 8)
MOST_OPERANDS = 3
COPIES_AT = MOST_OPERANDS * OPERAND
"""Behind the operands: for each a copy of its value for the tape, or 0."""
EXTRA_AT = 2 * OPERAND + V_OBJECT
"""Where the object of a second result stands behind two operands, and that of the counted ties."""
# The operations that have slots in the type of tensors.
OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE, OP_POWER, OP_NEGATIVE, OP_MATMUL, OP_PART, OP_ASSIGN = range(9)
OPERATIONS = 9
"""The number of the first operation that has none."""
MOST_OPERATIONS = 1 << 10
NUMBER_FORM = 1
"""What stands for the form of a number among operands; of an operand that there is not, 0."""
NOT_NATIVE = -2
"""What native code answers in place of a tensor where it knows that Python is to do it, each time."""

# What is known of arrays that are no tensors: dtype, dims, their extents, strides, the spec of a tensor of the memory.
N_DTYPE, N_NDIM, N_SHAPE, N_STRIDES, N_SPEC, ADOPTED = 0, 1, 2, 6, 10, 11
MOST_ADOPTED_DIMS, KNOWN_ARRAYS = 4, 1 << 8
COPIED = 1 << 9
"""Elements up to which an array among the operands is copied at once; of larger ones only what a pullback keeps is."""
EXPOSED = 1 << 12
"""Places in the table of exposed memory, which counts arrays by their addresses; behind them, how many there are."""

# How elements are picked: how many, or of a mask how many it has; how many arrays pick, 0 of a mask; of that how many
# elements go with each of its own; the address of what each element begins with; then of each array how far a place
# goes, how many places there are, the least that may be given, and the address of which of its elements counts.
P_COUNT, P_TAKES, P_INNER, P_BASE, P_FIRST = range(5)
P_STEP, P_EXTENT, P_LEAST, P_WHERE, P_ARRAY = range(5)

# The words of an index: how many there are, then of each item its tag and what it is.
INT_ITEM, SLICE_ITEM, NEW_ITEM, ELLIPSIS_ITEM, ARRAY_ITEM = range(1, 6)
BY_ARRAYS = 1
"""What stands for a second operand in the key of an entry about arrays or lists."""
# The words of other arguments likewise: of ints as above, of floats their bits, of tuples and lists of ints how many
# and these, of all others where the object stands.
FLOAT_ITEM, SEQUENCE_ITEM, OBJECT_ITEM = range(6, 9)
MOST_ARGUMENT_WORDS = 28
NO_BOUND, FARTHEST = -(1 << 62) - 1, 1 << 62
"""What stands for None in a slice; ints that native code takes are below this, whatever their sign."""
AXIS = 3
"""Words of an entry for any ints, whose key has their number, about each axis: extent, strides in memory and in the
gradient."""
MOST_ITEMS, MOST_WORDS, MOST_VIEWS = 4, 24, 32
"""Items of an index that native code takes; words that may stand before one of them, which has four at most; views of a
base before the dead among them are to be forgotten."""
