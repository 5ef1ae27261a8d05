"""Rosenbrock: SciPy's minimize on a NumPy-style function, its gradient by `value_and_grad`.

The function is written with slices, as one would for NumPy; a slice of a tensor is a view and so
is its gradient. NumPy arrays go in; a float and a NumPy array come out.
"""

import numpy as np

import tape
from tape.examples import check_gradient

START = np.linspace(-1.2, 1.0, 10)


def rosenbrock(x: tape.Tensor) -> tape.Tensor:
    """Return the sum of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2; its minimum is 0 at ones."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def main() -> None:
    """Minimise from START, print the minimum, check the gradient."""
    from scipy.optimize import minimize

    value_and_grad = tape.value_and_grad(rosenbrock)
    result = minimize(value_and_grad, START, jac=True, method="BFGS")
    print(f"minimum {result.fun:.1e} after {result.nfev} evaluations at")
    print(" ", *(f"{component:.5f}" for component in result.x))
    check_gradient(lambda x: value_and_grad(x)[0], START, value_and_grad(START)[1])
