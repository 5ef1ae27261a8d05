"""The words that compiled_machine.py lays out and direct_calls_native.py reads."""

from __future__ import annotations

# The head: where it says whether the workspace is in use; how many arguments, results, and arrays among these; the
# program's function and its table; where in that the addresses of results begin; whether other threads may run Python
# meanwhile; types by their address (that of ints 0 where these are left to Python); NumPy's function that makes an
# array, and the pool's; whether that is used; how results are returned: the form, whether the gradient is one alone,
# how many there are in it, the numbers of these among the results, whether some array is in none, the steps through
# its structure, 0 for a tuple.
(
    D_BUSY, D_ARGUMENTS, D_RESULTS, D_ARRAYS, D_RUN, D_TABLE, D_PLACES, D_RELEASES,
    D_FLOAT, D_DOUBLE, D_FLOAT32, D_INT, D_ARRAY, D_NEW, D_POOLED, D_LARGE, D_FORM, D_ALONE, D_COUNT, D_CHOSEN,
    D_LEFT_OUT, D_STEPS,
) = range(22)  # fmt: skip
D_FIRST = 22

# An entry of each argument: its kind, dtype, dimensions, where shape and strides stand; room for a number.
DI_KIND, DI_DTYPE, DI_NDIM, DI_SHAPE, DI_STRIDES, DI_SCRATCH = range(6)
# An entry of each result: its kind, dimensions, where the shape stands, the number of the dtype, whether it is large;
# room for a number, and for the array while the program runs.
DR_KIND, DR_NDIM, DR_SHAPE, DR_NUMBER, DR_LARGE, DR_SCRATCH, DR_MADE = range(7)
D_ENTRY = 7

# Kinds: arrays alone; also a float or int for a double, a float or np.float32 for a single, an int for an int64.
DK_ARRAY, DK_DOUBLE, DK_SINGLE, DK_INTEGER = range(4)

# Forms of what is returned: a tuple of all results; the first alone; it and the gradient; that alone; it and the first.
FLAT, SINGLE, VALUE_AND_GRAD, GRAD, GRAD_AND_VALUE = range(5)

# What a call answers in place of an object, 0 with an exception: other arguments than it takes; the workspace is in
# use; MISSED - k: guard k missed.
OTHERS, BUSY, MISSED = -1, -2, -3

# An object that is called directly, in bytes: its entry, the function that does what is no hit, its plans: a tuple of
# pairs, the array of a plan's words first.
O_CALL, O_SLOW, O_PLANS, O_END = range(16, 48, 8)

# A plan: the words of the program's machine; how many calls it may take, how many it has taken, and whether one was
# left to Python since what is outside is another thing; where it counts, by guard, what missed before another plan took
# the call; the context variable of modes and the mode; the dictionary of defaults, the name in it of the dtype, and the
# dtype; what looks, in Python, whether the rest is as it was, 0 if there is no rest; True; how many arguments are given
# where not all are values, else 0, and the steps through them; how many pairs there are that may not be one object,
# and where these stand: the numbers of two values, or of one and an object's address; how many values
# are in pairs, where their numbers stand, and those of the last call; how many checks follow.
(
    P_MACHINE, P_LEFT, P_TAKEN, P_STALE, P_MISSES, P_VARIABLE, P_MODE, P_DEFAULTS, P_NAME, P_DTYPE, P_REST, P_TRUE,
    P_GIVEN, P_STEPS, P_COUNT, P_PAIRS, P_ALIKE, P_PLACES, P_SEEN, P_CHECKS,
) = range(20)  # fmt: skip
P_FIRST = 20

# A step through a structure: what comes next, the key that leads there in a dictionary, and what is known of it. A
# value; an object that has to be this one; a tuple of so many parts, with its class; a list or a dictionary of so many;
# the end of the parts.
S_VALUE, S_FIXED, S_TUPLE, S_LIST, S_DICT, S_END = range(6)
S_KIND, S_KEY, S_WHAT, S_CLASS, STEP = range(5)
MOST_VALUES, DEEPEST = 30, 8
"""Values of a call whose arguments are structures, and how deep these are."""
# A level on the way: the address of the parts, or the dictionary; the number of the next one; whether that it is.
V_PARTS, V_NEXT, V_KIND, LEVEL = range(4)

# A check: its kind, where it looks, what for, and what has to be there.
PC_KIND, PC_HOLDER, PC_KEY, PC_EXPECTED, P_CHECK = range(5)
# Kinds: a word of an object, the key its place in bytes; an entry of a dictionary, by name, 0 where there is none; an
# item of a list; bytes of memory, the key how many, against those at another address; all items of a list or all
# entries of a dictionary, the key how many, against words at another address; the dictionary of an object's attributes.
CHECK_WORD, CHECK_ENTRY, CHECK_ITEM, CHECK_BYTES, CHECK_LIST, CHECK_DICT, CHECK_ATTRIBUTES = range(7)
