"""Heat, inverse: find where a rod conducts badly from temperatures measured over time.

Shows an inverse problem of 30 unknowns on the time loop of the heat example: the misfit to the
measurements is recorded once, and each evaluation of SciPy's optimiser replays it.
"""

import numpy as np
from numpy.typing import NDArray

import tape
from tape.examples import check_gradient, for_scipy
from tape.examples.heat import POINTS, X, initial, march

MIDDLES = (X[1:] + X[:-1]) / 2
TRUE = 1 - 0.6 * np.exp(-(((MIDDLES - 0.6) / 0.12) ** 2))  # the flaw to be found, at 0.6
TIMES, STEPS = 4, 100  # measurements of all points, and the time steps between them
NOISE, ROUGHNESS = 1e-3, 1e-4


def measurements() -> list[NDArray[np.float64]]:
    """Return TIMES arrays (POINTS,) of temperatures of the true rod, with noise."""
    noise = np.random.default_rng(1).normal(scale=NOISE, size=(TIMES, POINTS))
    return [march(initial(), TRUE, STEPS * (i + 1)) + noise[i] for i in range(TIMES)]


def misfit(logarithms: tape.Tensor, measured: list[NDArray[np.float64]]) -> tape.Tensor:
    """Return the squared differences to `measured`, plus a penalty on a jagged conductivity."""
    conductivity = tape.exp(logarithms)
    total = ROUGHNESS * ((logarithms[1:] - logarithms[:-1]) ** 2).sum()
    u = initial()
    for temperatures in measured:
        u = march(u, conductivity, STEPS)
        total = total + ((u - temperatures) ** 2).sum()
    return total


def main() -> None:
    """Start from a rod without flaw, print the conductivity found, check the gradient."""
    from scipy.optimize import minimize

    measured, start = measurements(), np.zeros(POINTS - 1)
    value_and_grad = for_scipy(tape.record(lambda x: misfit(x, measured), start))
    result = minimize(value_and_grad, start, jac=True, method="L-BFGS-B")
    diffusivity = np.exp(result.x)
    print(f"misfit {value_and_grad(start)[0]:.5f} -> {result.fun:.5f} in {result.nfev} evaluations")
    print("   x    true   found")
    for x, true, value in list(zip(MIDDLES, TRUE, diffusivity, strict=True))[2::4]:
        print(f"{x:.3f}   {true:.3f}   {value:.3f}")
    print(f"largest error {abs(diffusivity - TRUE).max():.3f}, from noise of {NOISE}")
    check_gradient(lambda x: value_and_grad(x)[0], start, value_and_grad(start)[1])
