"""Events: times at which a function of time and state passes zero, on the interpolant of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tape import func
from tape.tensors.grad_modes import no_grad
from tape.tensors.operands import tensor_of

_NEWTON = 2  # recorded steps at the root: by each one more order of derivatives is right


class AcceptedSteps:
    """The steps that were accepted, of a solution that can be called, or in which events are looked for.

    ``hits`` has for each event its times and states; ``end`` the time and state of one that ends the solution.
    """

    def __init__(self, events: Sequence[Callable[[Any, Any], Any]], marks: Sequence[Any], method: Any, f: Any) -> None:
        self.events, self.method, self.f = events, method, f
        self.terminal = [int(getattr(mark, "terminal", 0) or 0) for mark in marks]
        self.direction = [float(getattr(mark, "direction", 0) or 0) for mark in marks]
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.hits: list[list[tuple[Any, Any]]] = [[] for _ in events]
        self.end: tuple[Any, Any] | None = None
        self.before: list[float] = []

    def start(self, t: Any, y: Any) -> None:
        """Take in where the solution begins."""
        self.before = [self.number(event, t, y) for event in self.events]

    def number(self, event: Callable[[Any, Any], Any], t: Any, y: Any) -> float:
        """Return the value of an event, without a gradient."""
        with no_grad():
            value = tensor_of(event(t.detach(), y.detach()))
        if value.spec.size != 1:
            raise ValueError(f"ode.solve: an event returns shape {list(value.spec.shape)}; it is one number")
        return float(value)

    def add(self, t: Any, h: Any, y: Any, z: Any, later: Any, slopes: Any) -> bool:
        """Take in a step from ``y`` to ``z``; return whether an event ends the solution in it."""
        step = t, h, y, self.method.between(self.f, t, y, z, h, slopes)
        self.steps.append(step)
        passed: list[tuple[float, int]] = []
        for i, event in enumerate(self.events):
            before, now = self.before[i], self.number(event, later, z)
            self.before[i] = now
            up, down = before <= 0.0 <= now, before >= 0.0 >= now
            if (up and self.direction[i] >= 0) or (down and self.direction[i] <= 0):
                passed.append((self.root(event, step, before, now), i))
        for theta, i in sorted(passed):
            hit = self.differentiated(self.events[i], step, theta)
            self.hits[i].append(hit)
            if self.terminal[i] and len(self.hits[i]) >= self.terminal[i]:
                self.end = hit
                return True
        return False

    def root(self, event: Callable[[Any, Any], Any], step: Any, before: float, now: float) -> float:
        """Return at which fraction of a step an event is, a number."""
        from scipy.optimize import brentq

        if before == 0.0 or now == 0.0:
            return 0.0 if before == 0.0 else 1.0
        t, h, y = (x.detach() for x in step[:3])
        parts = [part.detach() for part in step[3]]

        def value(theta: float) -> float:
            return self.number(event, t + theta * h, self.method.at(tensor_of(theta), y, parts))

        if value(0.0) * value(1.0) >= 0.0:  # by rounding
            return 0.0 if abs(before) < abs(now) else 1.0
        return float(brentq(value, 0.0, 1.0, xtol=1e-15, rtol=1e-15))

    def differentiated(self, event: Callable[[Any, Any], Any], step: Any, theta: float) -> tuple[Any, Any]:
        """Return the time and state of an event with gradients, by steps of Newton's from the root."""
        start, h, y, parts = step

        def state(t: Any) -> Any:
            return self.method.at((t - start) / h, y, parts)

        def value(t: Any) -> Any:
            return tensor_of(event(t, state(t))).reshape(())

        t = start.detach() + theta * h.detach()
        for _ in range(_NEWTON):
            t = t - value(t) / func.grad(value)(t)
        return t, state(t)
