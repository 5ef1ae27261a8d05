"""The loops of Python functions: what is live at their heads, their counters, and their visits, against running them.

The truth is a trace of every instruction: from equal states, with equal outcomes of what tensors decide, iterations
must run through the same instructions.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tape
from tape.watching.head_visits import HeadVisit, HeadWatch
from tape.watching.python_loops import Comparison, Counter, PythonLoop, loops_of

pytestmark = pytest.mark.quick


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
    assert sys.gettrace() is None
    return visits


def equal_states(visits: list[HeadVisit]) -> bool:
    """Whether all visits have one state."""
    return all(v.state.fits and v.state.template == visits[0].state.template for v in visits)


def halve(err: Any, tol: Any) -> Any:
    """Run a while loop that a tensor ends."""
    k = 0
    while err > tol and k < 50:
        err = err * 0.5
        k += 1
    return err


def test_a_while_loop_with_a_counter_has_equal_states_and_an_exact_bound() -> None:
    visits = visits_of(halve, tape.tensor(1.0), 1e-3)
    assert only(halve).counters == (Counter("k", 1, (Comparison(1, "<", 50),)),)
    assert only(halve).live == ("err", "k", "tol")
    assert [v.number for v in visits] == list(range(10))
    assert [v.remaining for v in visits] == list(range(49, 39, -1))
    assert {v.entry for v in visits} == {visits[0].entry}
    assert equal_states(visits)
    assert all(v.state.names == ["err"] for v in visits)
