"""The words that notifying.py lays out and notifying_native.py reads: addresses of a recorder's objects."""

from __future__ import annotations

# Types; the recorder's tables, its numbers and steps; the Python function for everything else; and the types of
# operations that are left to it.
N_FLOAT, N_TENSOR, N_FORM, N_TUPLE, N_NONE, N_KNOWN, N_NODES, N_FORMS, N_ALIKE, N_HELD = range(10)
N_NUMBERS, N_SLOWLY = 10, 11
N_APART = 12
N_APARTS = 3
N_STEPS = N_APART + N_APARTS

# Of the steps: where the words are, how many there are, for how many there is room; and in front of the operands of
# each the number of its kind and its result.
H_ADDRESS, H_USED, H_ROOM = range(3)
HEAD = 2

# What stands for results that are alike, as a tuple: the node, the kind of their steps, its parameters.
ALIKE_NODE, ALIKE_KIND, ALIKE_PARAMS = range(3)
