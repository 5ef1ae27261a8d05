"""The loops over steps, of adaptive and of fixed lengths.

In compiled functions they are native loops: they keep what changes in locals, in tensors of their own memory.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from tape.ode import control
from tape.ode.control import minimum, where
from tape.recording import views

_EPSILON = 2.0**-49  # steps that are shorter, beside the time, get nowhere


class Problem(NamedTuple):
    """What is solved, and how."""

    method: Any
    f: Any
    times: Any
    """The times that are asked for, a tensor."""
    rows: Any
    """Their numbers, as a column beside states."""
    sign: float
    """1 if time goes up, else -1."""
    tolerances: tuple[Any, Any]
    most: int
    """Steps that may be tried."""
    longest: Any
    """The length of the longest step that is allowed; None if there is none."""


def adaptive(p: Problem, y: Any, slope: Any, h: Any, out: Any, steps: Any) -> Any:
    """Go from the first time to the last.

    Return time, state, slope, the states at the times that are asked for, next length, error, how many steps were tried
    and accepted.
    """
    sign, end, method = p.sign, p.times[-1], p.method
    t, y, slope = p.times[0].clone(), y.clone(), slope.clone()
    last_error, top, error = 0.0 * h + 1e-4, 0.0 * h + control.MOST, 0.0 * h
    row, tried, accepted = 0.0 * h + 1.0, 0.0 * h, 0.0 * h
    due_times = None if out is None else views.cat((p.times.detach(), p.times.new_full((1,), sign * float("inf"))))
    row = row.long()
    going = sign * (end - t) > 0
    while going:
        last = sign * (t + 1.01 * h - end) >= 0
        step = where(last, end - t, h)
        z, slopes = method.step(p.f, t, y, step, slope)
        error = control.judged(method.errors(step, slopes), y, z, *p.tolerances)
        good = error <= 1.0
        later = where(last, end, t + step)
        if out is not None:
            out, row = fill(p, out, row, due_times, good, t, later, step, y, z, slopes)
        if steps is not None and good and steps.add(t, step, y, z, later, slopes):
            break
        h, last_error, top = control.next_step(error, good, step, last_error, top, method.order, 0.04)
        if p.longest is not None:
            h = sign * minimum(abs(h), p.longest)
        tried, accepted = tried + 1.0, where(good, accepted + 1.0, accepted)
        t, y, slope = where(good, later, t), where(good, z, y), where(good, slopes[-1], slope)
        going = (sign * (end - t) > 0) & (tried < p.most) & (abs(h) > _EPSILON * abs(t))
    return t, y, slope, out, h, error, tried, accepted


def fill(
    p: Problem, out: Any, row: Any, due: Any, good: Any, t: Any, later: Any, h: Any, y: Any, z: Any, slopes: Any
) -> Any:
    """Write the states at the times that a step has passed; return these rows, and the row that is next."""
    waits = good & (p.sign * (due[row] - later) <= 0)
    while waits:
        parts = p.method.between(p.f, t, y, z, h, slopes)
        state = p.method.at((p.times[row] - t) / h, y, parts)
        state = p.method.nearer(state, p.f, t, y, p.times[row] - t, slopes)
        out = where(p.rows == row, state, out)
        row = row + 1
        waits = p.sign * (due[row] - later) <= 0
    return out, row


def fixed(method: Any, f: Any, times: Any, y: Any, count: int) -> list[Any]:
    """Return the states at all times, with so many steps of equal lengths between each two."""
    states = [y]
    for start, end in itertools.pairwise(times):
        y = advanced(method, f, start, (end - start) / count, y.clone(), count)
        states.append(y)
    return states


def advanced(method: Any, f: Any, t: Any, h: Any, y: Any, count: int) -> Any:
    """Return the state after so many steps of a length."""
    t = t.clone()
    for _ in range(count):
        y = method(f, t, y, h)
        t = t + h
    return y
