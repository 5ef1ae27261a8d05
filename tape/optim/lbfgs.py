"""L-BFGS as PyTorch has it: several evaluations of a closure in each step, with a line search or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape.optim.optimizers import Optimizer
from tape.tensors.grad_modes import enable_grad, no_grad
from tape.tensors.tensor import Array

Point = tuple[float, float, Array, float]
"""A step's length, and there the value, the gradient and the slope along the direction."""


class LBFGS(Optimizer):
    """L-BFGS on one group of parameters: ``step(closure)`` iterates ``max_iter`` times at most, and returns a loss.

    ``line_search_fn`` is None, for steps of length ``lr``, or "strong_wolfe". Nocedal and Wright, Numerical
    Optimization, algorithms 3.5, 3.6 and 7.4.
    """

    def __init__(
        self, params: Any, lr: float = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        options = {"lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval}
        options |= {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        super().__init__(params, options | {"history_size": history_size, "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Go on from the parameters as they are; ``closure`` computes the loss and its gradients."""
        group, state = self.param_groups[0], self.state[self.parameters()[0]]
        change, evaluations = group["tolerance_change"], [0]

        def at(x: Array) -> tuple[float, Array]:
            self._put(x)
            evaluations[0] += 1
            with enable_grad():
                value = closure().item()
            return value, self._flat(lambda p: p.grad)

        with enable_grad():
            first = closure()
        value, g = first.item(), self._flat(lambda p: p.grad)
        evaluations[0] = 1
        for iteration in range(1, group["max_iter"] + 1):
            if np.abs(g).max(initial=0.0) <= group["tolerance_grad"]:
                break
            d = self._direction(state, g, group["history_size"])
            slope = float(g @ d)
            t = min(1.0, 1.0 / np.abs(g).sum()) * group["lr"] if state["n_iter"] == 1 else group["lr"]
            x, before, state["t"] = self._flat(lambda p: p.detach()), value, t  # the closure may have changed them
            if slope > -change:
                break
            if group["line_search_fn"] is not None:
                begin = t, value, g, slope
                t, value, g = _strong_wolfe(lambda s: at(x + s * d), d, begin, change)  # noqa: B023 (called at once)
                self._put(x + t * d)
            else:
                self._put(x + t * d)
                if iteration != group["max_iter"]:
                    value, g = at(x + t * d)
            state["t"] = t
            small = np.abs(d * t).max() <= change or abs(value - before) < change
            if evaluations[0] >= group["max_eval"] or small:
                break
        return first

    def _direction(self, state: dict[str, Any], g: Array, most: int) -> Array:
        """Return the direction, by what is known of the curvature."""
        state["n_iter"] = state.get("n_iter", 0) + 1
        if state["n_iter"] == 1:
            state |= {"pairs": [], "scale": 1.0, "d": -g, "g": g}
            return state["d"]  # type: ignore[no-any-return]
        y, s = g - state["g"], state["d"] * state["t"]
        curvature = float(y @ s)
        if curvature > 1e-10:  # noqa: PLR2004 (PyTorch's)
            state["pairs"] = [*state["pairs"], (s, y, 1.0 / curvature)][-most:]
            state["scale"] = curvature / float(y @ y)
        q, factors = -g, []
        for s, y, rho in reversed(state["pairs"]):
            factors.append(float(s @ q) * rho)
            q = q - factors[-1] * y
        q = q * state["scale"]
        for s, y, rho in state["pairs"]:
            q = q + s * (factors.pop() - float(y @ q) * rho)
        state |= {"d": q, "g": g}
        return q  # type: ignore[no-any-return]

    def _flat(self, part: Callable[[Any], Any]) -> Array:
        values = [np.zeros(p.shape) if part(p) is None else np.asarray(part(p)) for p in self.parameters()]
        return np.concatenate([value.reshape(-1) for value in values])

    def _put(self, x: Array) -> None:
        begin = 0
        with no_grad():
            for p in self.parameters():
                p.copy_(x[begin : begin + p.numel()].reshape(p.shape))
                begin += p.numel()


def _cubic(a: Point, b: Point, low: float, high: float) -> float:
    """Return where the cubic through two points has its least value, between two bounds."""
    (x1, f1, _, g1), (x2, f2, _, g2) = (a, b) if a[0] <= b[0] else (b, a)
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = square**0.5
    return float(min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)), low), high))


def _strong_wolfe(
    at: Callable[[float], tuple[float, Array]], d: Array, begin: Point, change: float
) -> tuple[float, float, Array]:
    """Return the length of a step that meets the strong Wolfe conditions, with value and gradient; 25 tries."""
    t, value, g, slope = begin
    largest, decrease, curvature, most = np.abs(d).max(), 1e-4, 0.9, 25

    def point(t: float) -> Point:
        f, gradient = at(t)
        return t, f, gradient, float(gradient @ d)

    def fails(p: Point) -> bool:
        return p[1] > value + decrease * p[0] * slope

    last, new, tries = (0.0, value, g, slope), point(t), 0
    while tries < most:
        if fails(new) or (tries > 1 and new[1] >= last[1]):
            bracket = [last, new]
            break
        if abs(new[3]) <= -curvature * slope:
            return new[0], new[1], new[2]
        if new[3] >= 0:
            bracket = [last, new]
            break
        low, high = new[0] + 0.01 * (new[0] - last[0]), new[0] * 10
        last, new, tries = new, point(_cubic(last, new, low, high)), tries + 1
    else:
        bracket = [(0.0, value, g, slope), new]
    return _zoomed(bracket, point, fails, (tries, most, largest, change, -curvature * slope))


def _zoomed(bracket: list[Point], point: Any, fails: Any, limits: Any) -> tuple[float, float, Array]:
    """Return the best length within a bracket, which is made smaller until a step suits."""
    tries, most, largest, change, flat = limits
    stuck = False
    low, high = sorted((0, 1), key=lambda k: bracket[k][1])
    while tries < most and abs(bracket[1][0] - bracket[0][0]) * largest >= change:
        ends = sorted((bracket[0][0], bracket[1][0]))
        t, margin = _cubic(bracket[0], bracket[1], *ends), 0.1 * (ends[1] - ends[0])
        if min(ends[1] - t, t - ends[0]) < margin:
            if stuck or t >= ends[1] or t <= ends[0]:
                t, stuck = (ends[1] - margin if abs(t - ends[1]) < abs(t - ends[0]) else ends[0] + margin), False
            else:
                stuck = True
        else:
            stuck = False
        new, tries = point(t), tries + 1
        if fails(new) or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = sorted((0, 1), key=lambda k: bracket[k][1])
        else:
            if abs(new[3]) <= flat:
                return new[0], new[1], new[2]
            if new[3] * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
    t, value, gradient, _ = bracket[low]
    return t, value, gradient
