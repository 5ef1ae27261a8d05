"""Whether the garbage collector is at work in this thread: what finalizers and callbacks do then is part of no call."""

from __future__ import annotations

import gc
from threading import get_ident
from typing import Any

_collecting: set[int] = set()
"""The threads in which the collector is at work."""


def _begun(phase: str, _: dict[str, Any]) -> None:
    if phase == "start":
        _collecting.add(get_ident())


def _ended(phase: str, _: dict[str, Any]) -> None:
    if phase == "stop":
        _collecting.discard(get_ident())


def observe() -> None:
    """Have the collector tell when it begins, before its other callbacks, and when it has ended, behind them.

    The two callbacks stay: taken away while another thread is watched, or while an interrupt comes, they would leave
    it with half of what it needs.
    """
    callbacks = gc.callbacks
    if not callbacks or callbacks[0] is not _begun or callbacks[-1] is not _ended:
        others = [callback for callback in callbacks if callback not in (_begun, _ended)]
        callbacks[:] = [_begun, *others, _ended]


def is_collecting() -> bool:
    """Whether the collector is at work in this thread."""
    return bool(_collecting) and get_ident() in _collecting
