"""A line on stderr when compiling takes longer than a second, written while it does."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from time import monotonic

DELAY = 1.0
"""Seconds of nearly uninterrupted compiling before the line is written."""
_PAUSE = 5.0
"""Seconds without compiling, after which the count begins anew."""
LINE = "tape: compiling native code, once on this machine (TAPE_QUIET=1 hides this line) ..."

on_compile: list[Callable[[str], None]] = []
"""Called with a kernel's name before it is compiled for the first time on this machine; no line is written then."""


class _Burst:
    """Compiling without a long pause: its seconds so far, and whether the line has been written."""

    begin: float | None = None
    spent = 0.0
    ended = -_PAUSE
    shown = False
    timer: threading.Timer | None = None
    quiet = bool(os.environ.get("TAPE_QUIET"))


def set_quiet(mode: bool = True) -> None:
    """Write no line on stderr while native code is compiled, as ``TAPE_QUIET=1`` in the environment does."""
    _Burst.quiet = bool(mode)


def began(name: str) -> None:
    """Start counting, until ``ended``; the caller holds one lock."""
    for hook in on_compile:
        hook(name)
    if _Burst.begin is not None:
        return
    _Burst.begin = monotonic()
    if _Burst.begin - _Burst.ended > _PAUSE:
        _Burst.spent, _Burst.shown = 0.0, False
    if not (_Burst.shown or _Burst.quiet or on_compile or "ipykernel" in sys.modules):
        _Burst.timer = threading.Timer(max(0.0, DELAY - _Burst.spent), _show)
        _Burst.timer.daemon = True
        _Burst.timer.start()


def ended() -> None:
    """Stop counting: nothing is being compiled any more."""
    if _Burst.begin is not None:
        if _Burst.timer is not None:
            _Burst.timer.cancel()
        _Burst.ended = monotonic()
        _Burst.spent += _Burst.ended - _Burst.begin
        _Burst.begin = _Burst.timer = None


def _show() -> None:
    _Burst.shown = True
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no stderr, or one that is closed
        sys.stderr.write(LINE + "\n")
        sys.stderr.flush()
