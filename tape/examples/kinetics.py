"""Kinetics: rates of a reaction A -> B -> C from measurements of B, with intervals.

Shows a fit of an ordinary differential equation, the covariance of its parameters by Gauss and Newton, and what that
means for a result: when there is most of B, and how much.
"""

from typing import Any

import numpy as np

import tape
from tape.examples import check_gradient, picture

TIMES = np.linspace(0.5, 8.0, 16)  # of measurements
TRUE, NOISE, START = np.array([0.8, 0.3]), 0.01, np.array([0.0, -1.0])  # rates; START is of their logarithms


def slope(y: Any, k: Any) -> Any:
    """Return the change of A and B in time."""
    return np.stack([-k[0] * y[0], k[0] * y[0] - k[1] * y[1]])


def solution(logarithms: Any) -> Any:
    """Return B at TIMES."""
    k, times = tape.exp(logarithms), np.concatenate([[0.0], TIMES])
    return tape.ode.solve(lambda _, y, k: slope(y, k), tape.tensor([1.0, 0.0]), times, k, rtol=1e-8).y[1:, 1]


def peak(logarithms: Any) -> dict[str, Any]:
    """Return when there is most of B, and how much, in closed form."""
    first, second = tape.exp(logarithms[0]), tape.exp(logarithms[1])
    time = tape.log(first / second) / (first - second)
    return {"time": time, "amount": first / (first - second) * (tape.exp(-second * time) - tape.exp(-first * time))}


def main() -> None:
    """Fit, print the rates with intervals of 95 %, and the peak with its deviations; check the gradient."""
    measured = solution(tape.tensor(np.log(TRUE))).numpy()
    measured = measured + np.random.default_rng(1).normal(scale=NOISE, size=len(TIMES))
    fit = tape.optimize.least_squares(lambda p: solution(p) - measured, START)
    rates = tape.uncertainty.laplace(lambda p: solution(p) - measured, fit.x, residuals=True)
    for name, true, low, high in zip("AB", TRUE, *np.exp(rates.interval()), strict=True):
        print(f"rate of {name} between {low:.3f} and {high:.3f} (true {true})")
    most, true_peak = rates.propagate(peak), peak(tape.tensor(np.log(TRUE)))
    for name, deviation in most.std.items():
        print(f"{name} of the peak of B: {most.mean[name]:.3f} +- {deviation:.3f} (true {true_peak[name].item():.3f})")
    value_and_grad = tape.compile(tape.value_and_grad(lambda p: ((solution(p) - measured) ** 2).sum()))
    fitted = solution(tape.tensor(fit.x)).numpy()
    picture("kinetics", lambda figure: figure.subplots().plot(TIMES, measured, "o", TIMES, fitted))
    check_gradient(lambda p: value_and_grad(p)[0], START, value_and_grad(START)[1])
