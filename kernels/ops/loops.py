"""The marks of loops: in programs only, where a Python loop went on as long as values that left for Python let it."""

from __future__ import annotations

from kernels.kinds.loop import Guard, LoopAgain, LoopBegin, LoopEnd

LOOP_BEGIN = LoopBegin(name="loop_begin", doc="The begin of what is repeated while guards hold.", grad_fn="")
LOOP_AGAIN = LoopAgain(name="loop_again", doc="The end of a body: what the next iteration starts from.", grad_fn="")
LOOP_END = LoopEnd(name="loop_end", doc="The end of a loop.", grad_fn="")


# The guard: in programs only, where a value left for Python.

GUARD = Guard(name="guard", doc="A value that must be what it was when the program was recorded.", grad_fn="Guard")
