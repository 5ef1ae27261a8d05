"""The solver's front: what it is asked, structures as vectors, and what it returns."""

from __future__ import annotations

import dataclasses
import math
import operator
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from tape.errors import shorten
from tape.ode import control, fixed_steps, implicit_stages, linearly_implicit, loops, tableaus
from tape.ode.events import AcceptedSteps
from tape.operations.diagonals import Inverse, raveled
from tape.recording import views
from tape.recording.creation import arange
from tape.recording.promotion import cast
from tape.tensors import modes, pytrees
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array

_ADAPTIVE = {
    "tsit5": tableaus.TSIT5,
    "dopri5": tableaus.DOPRI5,
    "dop853": tableaus.DOP853,
    "rosenbrock": linearly_implicit.RODAS5P,
    "esdirk": implicit_stages.KVAERNO5,
}
_FIXED = {
    "euler": (fixed_steps.euler, 1),
    "rk4": (fixed_steps.rk4, 4),
    "leapfrog": (fixed_steps.velocity_verlet, 3),
    "velocity_verlet": (fixed_steps.velocity_verlet, 3),
}
"""Methods of fixed steps, and how many slopes a step takes."""

_PAIR = 2


class StepError(ArithmeticError):
    """A solution ends before its last time: the steps vanish, a slope is no finite number, or there are too many."""


@dataclasses.dataclass
class Solution:
    r"""What :func:`solve` returns.

    ``t`` (m,) are the times that were asked for, ``y`` the states there, (m, \*shape) for each array of ``y0``.
    ``nfev`` counts slopes, but those for Jacobians and Newton's iterations, ``accepted`` and ``rejected`` steps; those
    are ints, or tensors while a compiled function is recorded. ``t_events`` and ``y_events`` have for each event its
    times and states.
    ``status`` is 1 if an event ended the solution, at the last of ``t``, else 0: what fails raises. With
    ``dense=True`` the solution can be called with times.
    """

    t: Any
    y: Any
    nfev: Any
    accepted: Any
    rejected: Any
    t_events: Any = None
    y_events: Any = None
    status: int = 0
    success: bool = True
    interpolant: Any = None

    def __call__(self, t: Any) -> Any:
        """Return the solution at a time, or at times (m,), as ``y`` has it; ValueError outside of the way."""
        if self.interpolant is None:
            raise ValueError("this solution holds no steps: call tape.ode.solve with dense=True")
        return self.interpolant(t)


def solve(
    f: Callable[..., Any], y0: Any, t: Any, *args: Any, method: str = "tsit5", rtol: Any = 1e-6, atol: Any = 1e-9,
    steps: int | None = None, first_step: Any = None, max_step: Any = None, max_steps: int = 1_000_000,
    events: Any = None, dense: bool = False,
) -> Solution:  # fmt: skip
    r"""Solve dy/dt = f(t, y, \*args) from y0 at the first time of ``t`` on, with gradients to all that is given.

    ``t`` is ``(t0, t1)``, or a vector of times that go up or down; ``y[i]`` of the result is the state at ``t[i]``.
    ``y0`` is a number, an array, a tensor or a structure of them, and ``f`` gets tensors, structured so, and returns
    the slopes in the same structure; for a vector a list of numbers will do. Arrays give arrays, a tensor among the
    arguments gives tensors.

    Adaptive steps, by ``rtol`` and ``atol`` (numbers, or arrays like ``y0``): ``"tsit5"`` and ``"dopri5"`` of order 5,
    ``"dop853"`` of order 8; for stiff problems, of order 5 and with Jacobians by tape, ``"rosenbrock"``, Rodas5P, and
    ``"esdirk"``, Kvaerno's implicit method (there is no ``"bdf"``). Between steps interpolants hold. ``first_step``
    and ``max_step`` are lengths; ``max_steps`` bounds how many are tried. Fixed steps, ``steps`` of them between each
    two times: ``"euler"``, ``"rk4"``, and ``"leapfrog"`` or ``"velocity_verlet"``, whose ``y0`` is a pair, or a vector,
    of positions and velocities.

    ``events``, one or several, are as in SciPy's solve_ivp: functions of (t, y, \*args), whose zeros are found between
    accepted steps and on the interpolant, and which may have the attributes ``terminal`` (True, or after how many) and
    ``direction``. Their times have gradients, by the implicit function theorem, to second order.

    Gradients, of any order (``"esdirk"``: up to the third), are those of the numbers that are computed; lengths of
    adaptive steps count as constants. StepError, naming the time, where the steps vanish or a slope is not finite;
    ValueError and TypeError for what cannot be solved. Sources: Hairer, Norsett, Wanner, Solving Ordinary Differential
    Equations I and II; Kvaerno, BIT 44 (2004).

    >>> solution = tape.ode.solve(lambda t, y, rate: -rate * y, 1.0, (0.0, 1.0), 2.0)
    >>> round(float(solution.y[-1]), 6)
    0.135335
    """
    problem = _Statement(f, y0, t, args)
    if method in _FIXED:
        return problem.solved_by_fixed_steps(method, steps, dense or events is not None)
    if method not in _ADAPTIVE:
        raise ValueError(f"ode.solve: method is {method!r}; it is one of {', '.join((*_ADAPTIVE, *_FIXED))}")
    if steps is not None:
        raise ValueError(f"ode.solve: steps is for methods of fixed steps; {method} takes rtol and atol")
    tolerances = problem.tolerance(rtol, "rtol"), problem.tolerance(atol, "atol")
    for name, length in (("first_step", first_step), ("max_step", max_step)):
        if length is not None and not bool(tensor_of(length) > 0):
            raise ValueError(f"ode.solve: {name} is {length}; it is a length above 0")
    limits = first_step, max_step, operator.index(max_steps)
    several = () if events is None else tuple(events) if isinstance(events, (list, tuple)) else (events,)
    try:
        return problem.solved(_ADAPTIVE[method], tolerances, limits, several, dense)
    except Exception as error:
        shorten(error)
        raise


class _Statement:
    """An initial value problem on a tensor."""

    def __init__(self, f: Callable[..., Any], y0: Any, t: Any, args: tuple[Any, ...]) -> None:
        leaves, structure = pytrees.flattened(y0)
        self.back: Inverse | None = None
        vector = y0
        if structure.kind is not None and not _is_vector(y0):
            vector, self.back = raveled(y0)
        elif _is_vector(y0):
            vector = _joined(y0)
        all_given = [*leaves, *pytrees.leaves(t), *pytrees.leaves(args)]
        self.tensors = any(isinstance(x, Tensor) for x in all_given)
        y = tensor_of(vector)
        if y.spec.dtype.kind not in "fiu":
            raise TypeError(f"ode.solve: y0 is of dtype {y.spec.dtype}; it takes real numbers")
        if not y.spec.size:
            raise ValueError("ode.solve: y0 has no elements")
        self.y = y if y.spec.dtype.kind == "f" else cast(y, np.dtype(np.float64))
        self.times = _times_of(t, self.y.spec.dtype)
        self.f, self.args, self.pair = f, args, len(structure) == _PAIR and structure.kind is not None

    def slope(self, t: Any, y: Any) -> Any:
        """Return the slope at a time, of a state, as a tensor like it."""
        version = y._version
        value = self.f(t, y if self.back is None else self.back(y), *self.args)
        if y._version != version:
            raise ValueError("ode.solve: f writes to its state in place; let it return slopes, and leave y as it is")
        if self.back is not None:
            value = raveled(value)[0]
        elif isinstance(value, (list, tuple)):
            value = _joined(value)
        value = tensor_of(value)
        if value.spec.shape != y.spec.shape:
            raise ValueError(f"ode.solve: f returns shape {list(value.spec.shape)}, where y has {list(y.spec.shape)}")
        return value if value.spec.dtype == y.spec.dtype else cast(value, y.spec.dtype)

    def tolerance(self, value: Any, name: str) -> Any:
        """Return a tolerance, a number or like the state; ValueError for one that is negative."""
        if isinstance(value, (int, float)):
            if not value >= 0:
                raise ValueError(f"ode.solve: {name} is {value}; it cannot be negative")
            return float(value)
        vector = raveled(value)[0] if self.back is not None and pytrees.is_structure(value) else value
        return tensor_of(vector).detach()

    def solved(self, method: Any, tolerances: Any, limits: Any, events: Any, dense: bool) -> Solution:
        """Return the solution by adaptive steps."""
        times, y, count = self.times, self.y, self.times.shape[0]
        first, longest, most = limits
        start, way = times[0], times[-1] - times[0]
        slope = self.slope(start, y)
        _check_shared(times, y, slope)
        sign = 1.0 if bool(way >= 0) else -1.0
        if not bool(abs(way) < math.inf):
            raise ValueError(f"ode.solve: t is {times.tolist()}; times are finite")
        if count > _PAIR and not bool((sign * (times[1:] - times[:-1]) > 0).all()):
            raise ValueError("ode.solve: the times do not all go up, or all down")
        method = method.prepared(self.slope, start, y, tolerances)
        if first is None:
            h = control.first_step(self.slope, start, y, slope, way, method.order, *tolerances)
        else:
            h = sign * abs(tensor_of(first).detach()) + 0.0 * way.detach()
        if longest is not None:
            h = sign * control.minimum(abs(h), longest)
        if not bool(abs(h) < math.inf):
            raise self.unbegun(start, slope, h, most)
        shape = (count, *y.spec.shape)
        rows = arange(count).reshape(count, *[1] * len(y.spec.shape))
        problem = loops.Problem(method, self.slope, times, rows, sign, tolerances, most, longest)
        out = y + 0.0 * y.detach().new_zeros(shape) if count > _PAIR else None
        kept = self.steps_of(method, events) if dense or events else None
        end, z, slope, out, h, error, tried, accepted = loops.adaptive(problem, y, slope, h, out, kept)
        slopes = 1 + (first is None) + tried * len(method.nodes)
        interpolant = _Interpolant(self, method, kept.steps, sign) if kept is not None and dense else None
        counts = slopes, accepted, tried - accepted
        if kept is not None and kept.end is not None:
            return self.ended(out, kept, sign, counts, interpolant)
        if bool(sign * (times[-1] - end) > 0):
            raise self.failure(end, slope, error, tried, most)
        if bool(way == 0):
            z = z + (times[-1] - start) * slope
        states = views.stack((y, z)) if out is None else out
        return self.result(times, states, counts, interpolant, kept)

    def steps_of(self, method: Any, events: Any) -> AcceptedSteps:
        """Return what keeps steps, and looks for events in them."""

        def of_tensors(event: Any) -> Any:
            return lambda t, y: event(t, y if self.back is None else self.back(y), *self.args)

        kept = AcceptedSteps([of_tensors(event) for event in events], events, method, self.slope)
        kept.start(self.times[0], self.y)
        return kept

    def ended(self, out: Any, kept: AcceptedSteps, sign: float, counts: Any, interpolant: Any) -> Solution:
        """Return the solution that an event ended: the times that it passed, and that of the event."""
        assert kept.end is not None
        t, z = kept.end
        passed = max(int((sign * (self.times.detach() - t.detach()) < 0).sum()), 1)
        before = views.stack((self.y,)) if out is None else out[:passed]
        times = views.cat((self.times[: before.shape[0]], t.reshape(1)))
        states = views.cat((before, views.stack((z,))))
        solution = self.result(times, states, counts, interpolant, kept)
        solution.status = 1
        return solution

    def unbegun(self, t: Any, slope: Any, h: Any, most: int) -> Exception:
        """Return the error of a problem whose first step has no length."""
        if bool((abs(slope.detach()) + abs(self.y.detach()) < math.inf).all()):
            return ValueError("ode.solve: rtol and atol allow no error where y0 is 0; give atol")
        return self.failure(t, slope, h, 0, most)

    def failure(self, t: Any, slope: Any, error: Any, tried: Any, most: int) -> StepError:
        """Return the error of a solution that ends at a time."""
        at = f"t = {float(t.detach()):.10g}"
        if not bool((abs(slope.detach()) < math.inf).all()) or not math.isfinite(float(error)):
            return StepError(f"ode.solve: f returns what is not finite at or behind {at}")
        if int(tried) >= most:
            return StepError(f"ode.solve: max_steps, {most}, steps lead to {at}; is it stiff (rosenbrock, esdirk)?")
        return StepError(f"ode.solve: the steps vanish at {at}, where the solution may end, or f jump")

    def solved_by_fixed_steps(self, name: str, steps: int | None, dense: bool) -> Solution:
        """Return the solution by steps of fixed lengths."""
        if dense:
            raise ValueError(f"ode.solve: {name} has no dense output, and no events; ask for the times")
        if steps is None or operator.index(steps) < 1:
            raise ValueError(f"ode.solve: {name} takes steps=, how many to make between each two times, not {steps}")
        step, slopes = _FIXED[name]
        y = self.y
        if step is fixed_steps.velocity_verlet:
            shape = y.spec.shape
            halves = self.pair and self.back is not None and self.back.places[0][1] * _PAIR == self.back.size
            if not halves and not (
                self.back is None and shape and (shape[0] == _PAIR or shape == (shape[0] // _PAIR * _PAIR,))
            ):
                raise ValueError(
                    f"ode.solve: {name} takes a pair, of positions and velocities of one shape, or both in one vector"
                )
        count = operator.index(steps)
        states = loops.fixed(step, self.slope, [self.times[i] for i in range(self.times.shape[0])], y, count)
        made = count * (len(states) - 1)
        return self.result(self.times, views.stack(states), (made * slopes, made, 0), None, None)

    def result(self, times: Any, states: Any, counts: Any, interpolant: Any, kept: AcceptedSteps | None) -> Solution:
        """Return the result, of arrays where arrays were given."""
        t_events = y_events = None
        if kept is not None and kept.events:
            t_events, y_events = [], []
            for hits in kept.hits:
                ends = [[x[k] for x in hits] for k in (0, 1)]
                empty = self.times.detach().new_zeros(0), self.y.detach().new_zeros((0, *self.y.spec.shape))
                t, y = (views.stack(end) if end else none for end, none in zip(ends, empty, strict=True))
                t_events.append(self.returned(t))
                y_events.append(self.structured(y))
        nfev, accepted, rejected = map(_count, counts)
        t, y = self.returned(times), self.structured(states)
        return Solution(t, y, nfev, accepted, rejected, t_events, y_events, interpolant=interpolant)

    def structured(self, states: Any) -> Any:
        """Return states at several times (m, n) as in the structure of one."""
        if self.back is None:
            return self.returned(states)
        parts = zip(self.back.places, self.back.shapes, self.back.dtypes, strict=True)
        m = states.shape[0]
        return self.back.structure.filled(
            [self.returned(cast(states[:, a:b].reshape(m, *shape), dtype)) for (a, b), shape, dtype in parts]
        )

    def returned(self, x: Any) -> Any:
        """Return a tensor as what was given: an array, unless a tensor was, or a gradient is to go through it."""
        return x if self.tensors or x.requires_grad or modes.current().recorder is not None else as_array(x)


class _Interpolant:
    """The solution between the steps that were made."""

    def __init__(self, statement: _Statement, method: Any, steps: list[Any], sign: float) -> None:
        self.statement, self.method, self.steps, self.sign = statement, method, steps, sign
        self.starts = [sign * float(t.detach()) for t, *_ in steps]

    def __call__(self, t: Any) -> Any:
        """Return the states at times."""
        times = tensor_of(t)
        if not times.spec.shape:
            rows = self.statement.structured(views.stack((self.at(times),)))
            return pytrees.mapped(lambda x: x[0], rows) if self.statement.back is not None else rows[0]
        return self.statement.structured(views.stack([self.at(times[i]) for i in range(times.shape[0])]))

    def at(self, t: Any) -> Any:
        """Return the state at a time."""
        first, last = float(self.statement.times[0].detach()), float(self.statement.times[-1].detach())
        if not min(first, last) <= float(t.detach()) <= max(first, last):
            raise ValueError(f"the solution is known from {first} to {last}, not at {float(t.detach())}")
        if not self.steps:
            return self.statement.y
        start, h, y, parts = self.steps[max(bisect_right(self.starts, self.sign * float(t.detach())) - 1, 0)]
        return self.method.at((t - start) / h, y, parts)


def _check_shared(*tensors: Any) -> None:
    """Raise RuntimeError where tensors differ between the examples of ``vmap``: each would take steps of its own."""
    recorder: Any = modes.current().recorder
    while recorder is not None:
        if hasattr(recorder, "batched") and not recorder.batched().isdisjoint(map(recorder.node_of, tensors)):
            raise RuntimeError(
                "ode.solve: under vmap each example would take adaptive steps of its own. Give initial values as one "
                "array (many, n), and an f of all rows: they share their steps; or solve one by one, by tape.ensemble. "
                'Methods of fixed steps, as "rk4", do work under vmap'
            )
        recorder = getattr(recorder, "outer", None)


def _count(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.detach() if modes.current().recorder is not None else int(x)


def _is_vector(y: Any) -> bool:
    return isinstance(y, (list, tuple)) and bool(y) and all(_is_number(x) for x in y) and type(y) in (list, tuple)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.number)) or (isinstance(x, Tensor) and not x.spec.shape)


def _joined(values: Any) -> Any:
    """Return numbers, or rows, as one tensor."""
    if not any(isinstance(x, Tensor) for x in values):
        return np.stack([np.asarray(x, np.float64) for x in values])
    dtype = np.result_type(*[x.spec.dtype for x in values if isinstance(x, Tensor)], np.float32)
    return views.stack([cast(tensor_of(x), dtype) for x in values])


def _times_of(t: Any, dtype: Any) -> Any:
    times = tensor_of(_joined(t) if isinstance(t, (list, tuple)) and t else t)
    if len(times.spec.shape) != 1 or times.spec.shape[0] < _PAIR:
        raise ValueError(f"ode.solve: t is (t0, t1), or a vector of two times or more; it has {list(times.spec.shape)}")
    return times if times.spec.dtype == dtype else cast(times, dtype)
