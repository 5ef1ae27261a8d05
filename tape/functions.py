"""The elementwise functions, each under all of its names; functions.pyi lists them for editors and type checkers."""

from __future__ import annotations

from tape.arithmetic import FUNCTIONS

globals().update(FUNCTIONS)
__all__ = list(FUNCTIONS)
