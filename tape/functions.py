"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

from tape import (  # noqa: F401 (they say what is public)
    added_products,
    arranging,
    choosing,
    composed,
    contracting,
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
    membership,
    norms,
    numpy_elementary,
    numpy_linalg,
    padding,
    picking,
    polynomials,
    public,
    quantiles,
    ranges,
    repeating,
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
__all__ = list({**FUNCTIONS, **public.FUNCTIONS})
