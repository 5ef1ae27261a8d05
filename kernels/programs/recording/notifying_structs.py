"""What native code knows of a recorder of programs: notifying.py lays this out."""

from __future__ import annotations

from kernels.compiler.native_types import Struct

N_APARTS = 3
"""Types of operations that are left to Python."""


class RecorderTables(Struct):
    """Addresses of objects: types, the recorder's tables, its numbers and steps."""

    float_type: int
    tensor_type: int
    form_type: int
    tuple_type: int
    none: int
    known: int
    nodes: int
    forms: int
    alike: int
    held: int
    numbers: int
    slowly: int  # the Python function for everything else
    apart: int  # the first of the N_APARTS types
    steps: StepWords = 12 + N_APARTS


class StepWords(Struct):
    """The steps of a program, end to end."""

    address: int  # where the words are
    used: int
    room: int  # how many there may be


HEAD = 2
"""In front of the operands of each step: the number of its kind, and its result."""

ALIKE_NODE, ALIKE_KIND, ALIKE_PARAMS = range(3)
"""What stands for results that are alike, as a tuple: the node, the kind of their steps, its parameters."""
