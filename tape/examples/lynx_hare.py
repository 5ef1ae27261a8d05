"""Lynx and hare: fit differential equations solved by a plain Python loop of scalars.

The Hudson Bay record (Hewitt 1921, as tabulated by Howard; thousands of pelts a year) against the
Lotka-Volterra equations. The loop is recorded once; SciPy's optimiser then replays it natively.
"""

from importlib.resources import files

import numpy as np

import tape
from tape.examples import check_gradient, for_scipy

NAMES = ("alpha", "beta", "gamma", "delta", "hare in 1900", "lynx in 1900")
START = np.log([0.5, 0.025, 0.8, 0.025, 30.0, 4.0])
STEPS = 20  # Runge-Kutta steps a year
TABLE = files(__package__).joinpath("lynx_hare.csv").read_text(encoding="ascii")
YEAR, HARE, LYNX = np.loadtxt(TABLE.splitlines(), delimiter=",", skiprows=1, unpack=True)


def simulate(logarithms: tape.Tensor) -> list[tuple[tape.Tensor, tape.Tensor]]:
    """Return hare and lynx in 1900 and after each step to 1920, from the six log-parameters."""
    alpha, beta, gamma, delta, hare, lynx = tape.exp(logarithms)

    def rates(hare: tape.Tensor, lynx: tape.Tensor) -> tuple[tape.Tensor, tape.Tensor]:
        meetings = hare * lynx
        return alpha * hare - beta * meetings, delta * meetings - gamma * lynx

    dt, states = 1 / STEPS, [(hare, lynx)]
    for _ in range(STEPS * (len(YEAR) - 1)):
        h1, l1 = rates(hare, lynx)
        h2, l2 = rates(hare + dt / 2 * h1, lynx + dt / 2 * l1)
        h3, l3 = rates(hare + dt / 2 * h2, lynx + dt / 2 * l2)
        h4, l4 = rates(hare + dt * h3, lynx + dt * l3)
        hare = hare + dt / 6 * (h1 + 2 * (h2 + h3) + h4)
        lynx = lynx + dt / 6 * (l1 + 2 * (l2 + l3) + l4)
        states.append((hare, lynx))
    return states


def loss(logarithms: tape.Tensor) -> tape.Tensor:
    """Return the sum of the squared differences between the logarithms of model and data."""
    total = tape.tensor(0.0)
    for model, hare, lynx in zip(simulate(logarithms)[::STEPS], HARE, LYNX, strict=True):
        total = total + (tape.log(model[0]) - np.log(hare)) ** 2
        total = total + (tape.log(model[1]) - np.log(lynx)) ** 2
    return total


def main() -> None:
    """Fit, print the parameters, check the gradient."""
    from scipy.optimize import minimize

    value_and_grad = for_scipy(tape.record(loss, START))
    fit = minimize(value_and_grad, START, jac=True, method="L-BFGS-B")
    print(f"loss {value_and_grad(START)[0]:.4f} -> {fit.fun:.4f} in {fit.nfev} evaluations")
    for name, value in zip(NAMES, np.exp(fit.x), strict=True):
        print(f"  {name:12}  {value:.5f}")
    check_gradient(lambda x: value_and_grad(x)[0], START, value_and_grad(START)[1])
