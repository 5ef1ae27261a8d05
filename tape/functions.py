"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

import sys

from tape.conversions import to_python
from tape.numpy_interface import elementwise, linalg, methods, polynomials, ranges
from tape.numpy_interface import elementwise as numpy_elementary
from tape.operations import elementwise as elementary
from tape.operations import gather
from tape.operations.gather_scatter import replace, scatter
from tape.operations.matrices import contractions, decompositions, determinants, einsum, interpolation
from tape.operations.operators import FUNCTIONS
from tape.operations.reductions import differences, histograms, norms, quantiles, scans, sorting, variance
from tape.operations.shapes import copied_views, diagonals, grids, joining, padding, rearranging, splitting
from tape.operations.whole import composed, from_records, predicates, sampling
from tape.tensors import registration

globals().update(FUNCTIONS)
globals().update(registration.FUNCTIONS)
for _name, _function in registration.FUNCTIONS.items():
    if getattr(sys.modules[_function.__module__], _function.__qualname__, None) is not _function:
        _function.__module__, _function.__qualname__ = __name__, _name  # made by another function: pickle looks here
__all__ = list({**FUNCTIONS, **registration.FUNCTIONS})
