"""The functions of ``tape`` under all of their names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

from tape import arranging, elementary, interchange, numpy_elementary, public, scanning  # noqa: F401 (they say what is public)
from tape.arithmetic import FUNCTIONS

globals().update(FUNCTIONS)
globals().update(public.FUNCTIONS)
__all__ = list({**FUNCTIONS, **public.FUNCTIONS})
