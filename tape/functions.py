"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

import sys

from tape import (  # noqa: F401 (they say what is public)
    added_products,
    arranging,
    choosing,
    composed,
    contracting,
    copied_views,
    covariances,
    determining,
    diagonals,
    differences,
    einsums,
    elementary,
    filling,
    fitting,
    grids,
    histograms,
    inquiries,
    interchange,
    interpolating,
    lu_factoring,
    membership,
    norms,
    numpy_elementary,
    numpy_linalg,
    numpy_methods,
    padding,
    picking,
    polynomials,
    public,
    quantiles,
    ranges,
    raveling,
    repeating,
    sampling,
    scanning,
    scattering,
    softmaxes,
    sorting,
    splitting,
    spreads,
    stacking,
    totals,
    updating,
)
from tape.arithmetic import FUNCTIONS

globals().update(FUNCTIONS)
globals().update(public.FUNCTIONS)
for _name, _function in public.FUNCTIONS.items():
    if getattr(sys.modules[_function.__module__], _function.__qualname__, None) is not _function:
        _function.__module__, _function.__qualname__ = __name__, _name  # made by another function: pickle looks here
__all__ = list({**FUNCTIONS, **public.FUNCTIONS})
