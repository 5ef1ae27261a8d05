"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

import sys

from tape.numpy_interface import functions, op_table, predicates, protocols, sampling, statistics, variance
from tape.operations import (
    contractions,
    copied_views,
    decompositions,
    diagonals,
    gather,
    joining,
    rearranging,
    reductions,
    scatter,
    solves,
    sorting,
)
from tape.operations import elementwise as elementary
from tape.operations.elementwise import FUNCTIONS
from tape.recording import to_python
from tape.tensors import hooks

globals().update(FUNCTIONS)
globals().update(hooks.FUNCTIONS)
for _name, _function in hooks.FUNCTIONS.items():
    if getattr(sys.modules[_function.__module__], _function.__qualname__, None) is not _function:
        _function.__module__, _function.__qualname__ = __name__, _name  # made by another function: pickle looks here
__all__ = list({**FUNCTIONS, **hooks.FUNCTIONS})
