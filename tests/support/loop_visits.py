"""Loops of Python functions and the visits of their heads, for tests."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

from tape.watching.frame_events import monitoring
from tape.watching.python_loops import HeadVisit, HeadWatch, PythonLoop, loops_of


def loops(function: Callable[..., Any]) -> list[PythonLoop]:
    """Return the loops of a function in the order of their lines."""
    return sorted(loops_of(function.__code__).values(), key=lambda loop: (loop.line, loop.head))


def only(function: Callable[..., Any]) -> PythonLoop:
    """Return the one loop of a function."""
    (loop,) = loops(function)
    return loop


def visits_of(function: Callable[..., Any], *args: Any) -> list[HeadVisit]:
    """Return the visits of a call, watched to its end."""
    visits: list[HeadVisit] = []
    watch = HeadWatch(visits.append)
    with contextlib.suppress(ValueError):
        watch.call(function, *args)
    assert watch.reason == ""
    assert is_unwatched()
    return visits


def is_unwatched() -> bool:
    """Whether nobody is told what runs in this thread; in Python 3.12 and later other threads may be watched."""
    own = {number for number in range(6) if monitoring.get_tool(number) == "tape"} if monitoring else ()
    is_told = any(monitoring.get_events(number) for number in own)
    return sys.gettrace() is None and (not is_told or threading.active_count() > 1)


def equal_states(visits: list[HeadVisit]) -> bool:
    """Whether all visits have one state."""
    return all(not v.state.reason and v.state.template == visits[0].state.template for v in visits)


def unlike(visits: list[HeadVisit]) -> bool:
    """Whether no two visits one after the other are known to have one state."""
    pairs = list(itertools.pairwise(visits))
    return bool(pairs) and all(
        a.state.reason or b.state.reason or a.state.template != b.state.template for a, b in pairs
    )
