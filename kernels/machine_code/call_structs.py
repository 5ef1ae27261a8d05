"""How Python calls machine code directly: compiled_machine.py and native_calls.py lay this out."""

from __future__ import annotations

from kernels.language.llvm_values import Array, Struct
from kernels.native.structs import ExchangeHead, FormBlock, KeptCalls


class DirectCall(Struct):
    """The head; behind it a :class:`DirectArgument` for each argument, then a :class:`DirectResult` each."""

    busy: int  # whether the workspace is in use
    arguments: int  # how many
    results: int
    arrays: int  # among the arguments and results
    run: int  # the program's function
    table: int  # what that is given
    places: int  # where in that the addresses of results begin
    releases: int  # whether other threads may run Python meanwhile
    float_type: int
    double_type: int  # np.float64
    single_type: int  # np.float32
    int_type: int  # 0 where ints are left to Python
    array_type: int
    new_array: int  # NumPy's function that makes an array
    pooled: int  # the pool's
    large: int  # whether that is used
    form: int  # how results are returned: FLAT to GRAD_AND_VALUE
    alone: int  # whether the gradient is one alone
    count: int  # results in the gradient
    chosen: Array[int]  # their numbers among the results
    left_out: int  # whether some array is in none
    steps: int  # through the gradient's structure, 0 for a tuple


class DirectArgument(Struct):
    """An argument."""

    kind: int  # XK_ARRAY to XK_INTEGER, of native/structs.py
    dtype: int
    ndim: int
    shape: Array[int]
    strides: Array[int]
    scratch: int  # room for a number
    unused: int  # an argument takes as many words as a result


class DirectResult(Struct):
    """A result."""

    kind: int  # XK_ARRAY to XK_INTEGER, of native/structs.py
    ndim: int
    shape: int
    number: int  # of the dtype
    large: int  # whether it is large
    scratch: int  # room for a number
    made: int  # room for the array while the program runs


D_ENTRY = DirectResult.SIZE  # words of an argument or a result

FLAT, SINGLE, VALUE_AND_GRAD, GRAD, GRAD_AND_VALUE = range(5)
"""What is returned: a tuple of all results; the first alone; it and the gradient; that alone; it and the first."""

OTHERS, BUSY, MISSED = -1, -2, -3
"""What a call answers in place of an object, 0 with an exception: other arguments than it takes; the workspace is in
use; MISSED - k: guard k missed."""


class CallableObject(Struct, start=16, step=8):
    """An object that is called directly, in bytes."""

    call: int  # its entry
    slow: int  # the function that does what is no hit
    plans: int  # a tuple of pairs: the array of a plan's words, what it keeps alive


class CallPlan(Struct):
    """A plan of a call; behind the fields a :class:`PlanCheck` each."""

    machine: DirectCall
    left: int  # how many calls it may take
    taken: int  # how many it has taken
    stale: int  # whether one was left to Python since what is outside is another thing
    misses: Array[int]  # by guard, what missed before another plan took the call
    variable: int  # the context variable of modes
    mode: int
    defaults: int  # the dictionary of defaults
    name: int  # the name in it of the dtype
    dtype: int
    rest: int  # what looks, in Python, whether the rest is as it was; 0 if there is no rest
    true: int
    argument_count: int  # how many arguments are given where not all are values by position, else 0
    names: int  # the tuple of the names by which the last of them are given, 0 where all are by position
    steps: int  # through them
    count: int  # pairs that may not be one object
    pairs: int  # the numbers of two values, or of one and an object's address
    alike: int  # values that are in pairs
    places: Array[int]  # their numbers
    seen: Array[int]  # those of the last call
    checks: int  # how many follow
    tensors: CallOnTensors  # of a call on tensors; else 0
    rows: ExchangeHead  # of a program that the interpreter runs; the machine only says how results are returned


class CallOnTensors(Struct):
    """A call on tensors; behind the fields a :class:`TensorOperand` each.

    It is an instruction of the tape if a result has a gradient; of several results each that has one is another.
    """

    function: int  # what makes it
    busy: int  # whether it is being made
    kept: DirectCall  # machine code that computes gradients, too, 0 if there is none
    rows: ExchangeHead  # the interpreter's rows, which give what the tape keeps, too; 0 where there is machine code
    forward: DirectCall  # machine code that computes no gradients, 0 if there is none
    args: int  # how many arguments it takes
    operands: int
    block: FormBlock  # of the form of the instruction, 0 if there is none
    code: int  # the number of that
    context: int  # what the instruction saves first
    calls: KeptCalls  # what is known of calls that keep gradients; 0 of a program whose calls do not
    large: int  # bytes of the largest value or gradient, if large
    saved: int  # how many objects it saves behind all else
    objects: int  # these, and whether each cannot change
    results: int  # tensors that it gives
    several: int  # a :class:`TensorResult` each; 0 of one that has a gradient
    steps: int  # through the structure in which tensors are returned, 0 of one that is returned alone
    room: int  # the words of all instructions


class TensorResult(Struct):
    """One of several results, or one without a gradient."""

    block: FormBlock  # of the form of its instruction, 0 of one without a gradient
    code: int  # the number of that
    source: int  # what the instruction saves; the spec of one without a gradient


class TensorOperand(Struct):
    """A value that the program reads."""

    outside: int  # the tensor, 0 if it is given
    form: int  # 0 of an argument that is a float or an array
    other: int  # a form that it may have, too
    wanted: int  # whether it requires grad
    gradient: int  # the number of its gradient among the program's results, -1 if it has none


MOST_OPERANDS = 128  # of a call on tensors; values in a structure of results


S_VALUE, S_FIXED, S_TUPLE, S_LIST, S_DICT, S_END = range(6)
"""Steps through a structure: a value; an object that has to be this one; a tuple of so many parts, with its class; a
list or a dictionary of so many; the end of the parts."""


class StructureStep(Struct):
    """A step through a structure."""

    kind: int  # S_VALUE to S_END
    key: int  # that leads there in a dictionary
    what: int  # the object, or how many parts
    type: int  # the class of a tuple, a list or a dictionary


MOST_VALUES, DEEPEST = 30, 8  # values of a call whose arguments are structures, and how deep these are


class StructureLevel(Struct):
    """A level on the way through a structure."""

    parts: int  # the address of the parts, or the dictionary
    next: int  # the number of the next one
    kind: int


class PlanCheck(Struct):
    """A check of something outside."""

    kind: int  # CHECK_WORD to CHECK_ATTRIBUTES
    holder: int  # where it looks
    key: int  # what for
    expected: int  # what has to be there


CHECK_WORD, CHECK_NAMES, CHECK_ITEM, CHECK_BYTES, CHECK_LIST, CHECK_DICT, CHECK_ATTRIBUTES = range(7)
"""Kinds: a word of an object, the key its place in bytes; entries of a dictionary, the key an address of how many,
names and values, 0 where there is none, looked up unless the number of the dictionary's state is as expected; an item
of a list; bytes of memory, the key how many, against those at another address; all items of a list or all entries of a
dictionary, the key how many, against words at another address; the dictionary of an object's attributes."""
DICT_STATE = 24  # where dictionaries have the number of their state, in versions of Python in which they have one
