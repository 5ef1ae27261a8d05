"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

import sys

from tape.conversions import dlpack
from tape.numpy_interface import elementwise as numpy_elementary
from tape.numpy_interface import linalg, methods, polynomials, ranges, selection
from tape.operations import elementwise as elementary
from tape.operations import gather
from tape.operations.gather_scatter import replace, scatter
from tape.operations.matrices import addmm, contractions, determinants, einsum, interpolation, lu
from tape.operations.operators import FUNCTIONS
from tape.operations.reductions import (
    covariances,
    differences,
    histograms,
    norms,
    products_and_counts,
    quantiles,
    scans,
    sets,
    softmax,
    sorting,
    variance,
)
from tape.operations.shapes import (
    broadcasting,
    copied_views,
    diagonals,
    grids,
    joining,
    padding,
    raveling,
    rearranging,
    repeating,
    splitting,
)
from tape.operations.whole import composed, from_records, in_place_variants, predicates, sampling
from tape.tensors import registration

globals().update(FUNCTIONS)
globals().update(registration.FUNCTIONS)
for _name, _function in registration.FUNCTIONS.items():
    if getattr(sys.modules[_function.__module__], _function.__qualname__, None) is not _function:
        _function.__module__, _function.__qualname__ = __name__, _name  # made by another function: pickle looks here
__all__ = list({**FUNCTIONS, **registration.FUNCTIONS})
