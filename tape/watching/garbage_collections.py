"""The garbage collector: whether it is at work in this thread, and calls during which it works rarely.

What finalizers and callbacks do while it works is part of no call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

Result = TypeVar("Result")

_MANY = 1 << 17
"""New objects after which the collector looks at them, where most are known to be alive."""
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


def rarely_collected(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function whose objects stay alive, as what is recorded does: the collector looks at new ones rarely.

    No context manager: an interrupt as its end begins would leave the collector so.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _MANY:
        return function(*args)
    try:
        gc.set_threshold(_MANY, *before[1:])
        return function(*args)
    finally:
        try:
            _restore(before)
        except BaseException:  # an interrupt
            _restore(before)
            raise


def _restore(before: tuple[int, int, int]) -> None:
    if gc.get_threshold()[0] == _MANY:  # nobody else has changed it
        gc.set_threshold(*before)
