"""Holds back interrupts (Ctrl-C) while something runs that would stay broken, and keeps trace functions away."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MOST_WAITING = 2
"""So many interrupts are held back; the next Ctrl-C is delivered at once, and Python may have to be restarted."""
_thread = threading.local()


@contextmanager
def held() -> Iterator[None]:
    """Hold back interrupts of the main thread; one that came is delivered at the end.

    Numba fills its registries when the first function is compiled or loaded: half filled, they fail ever after.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[int] = []

    def hold(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > _MOST_WAITING:
            before(number, frame)

    try:
        signal.signal(signal.SIGINT, hold)
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and len(came) <= _MOST_WAITING:
            before(came[0], sys._getframe())  # noqa: SLF001 (what a handler is called with)


@contextmanager
def untraced() -> Iterator[None]:
    """Call no trace function of this thread: the compiler's thousands of frames are none that one looks for."""
    tracer, before = sys.gettrace(), is_untraced()
    sys.settrace(None)
    _thread.is_untraced = True
    try:
        yield
    finally:
        _thread.is_untraced = before
        sys.settrace(tracer)


def is_untraced() -> bool:
    """Whether what runs in this thread is not looked for, by whatever other means than a trace function."""
    return getattr(_thread, "is_untraced", False)
