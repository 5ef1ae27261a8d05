"""The words by which a sweep runs a program back: kernels/programs/interpreter/kept_replay.py lays them out.

What saves them is an instruction that Python runs otherwise. Its last two saved values are the array of these words,
and the memory that the program had after its forward, with one word behind it: not 0 where Python has to act.
"""

from __future__ import annotations

# The head: the memory of the machine that runs back, and its bytes; the rows, how many, and the elements that they
# compute; how many results have a gradient.
PB_MEMORY, PB_BYTES, PB_ROWS, PB_ROW_COUNT, PB_WORK, PB_RESULTS = range(6)
PB_FIRST = 6

# An entry of each result that has a gradient: its slot less that of the call, where its cotangent goes, elements, bytes
# of an element.
PR_SLOT, PR_PLACE, PR_COUNT, PR_ITEM, PR_ENTRY = range(5)

# Then of each operand: where its gradient stands, 0 where it has none, elements, and the results that depend on it, a
# bit each.
PA_PLACE, PA_COUNT, PA_REACHES, PA_ENTRY = range(4)

REPLAYED, RESULT = 1, 2
"""In a form's block, in place of the first operand's kernel: a call of a program, one of its results."""
MOST_RESULTS = 62
"""Results that have a gradient, a bit each."""
