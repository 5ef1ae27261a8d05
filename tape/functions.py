"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

from tape import (  # noqa: F401 (they say what is public)
    added_products,
    arranging,
    choosing,
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
    interchange,
    interpolating,
    norms,
    numpy_elementary,
    numpy_linalg,
    padding,
    picking,
    public,
    quantiles,
    repeating,
    scanning,
    scattering,
    softmaxes,
    sorting,
    splitting,
    spreads,
    stacking,
    totals,
)
from tape.arithmetic import FUNCTIONS

globals().update(FUNCTIONS)
globals().update(public.FUNCTIONS)
__all__ = list({**FUNCTIONS, **public.FUNCTIONS})
