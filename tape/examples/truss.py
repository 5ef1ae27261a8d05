"""Truss: the lightest use of material in a cantilever of bars, by the stiffness of the whole.

Shows topology optimisation: areas of 112 bars between 24 nodes share a volume so that a load sinks least. The gradient
goes through a linear solve; bars that carry nothing vanish.
"""

import itertools
from typing import Any

import numpy as np

import tape
from tape.examples import check_gradient, for_scipy, picture

COLUMNS, ROWS, VOLUME, LONGEST = 6, 4, 1.0, 2.9
NODES = np.array([(x, y) for x in range(COLUMNS) for y in range(ROWS)], float)
PAIRS = np.array(list(itertools.combinations(range(len(NODES)), 2)))
ACROSS = (NODES[PAIRS[:, 1]] - NODES[PAIRS[:, 0]]).astype(int).T
BARS = PAIRS[(np.hypot(*ACROSS) < LONGEST) & (np.gcd(*ACROSS) == 1)]  # none over another
ALONG = NODES[BARS[:, 1]] - NODES[BARS[:, 0]]
LENGTHS = np.hypot(*ALONG.T)
FREE = np.arange(2 * ROWS, 2 * len(NODES))  # the first column is a wall
STRETCH = np.zeros((len(BARS), 2 * len(NODES)))  # of each bar by the displacements of all nodes
for bar, ((i, j), direction) in enumerate(zip(BARS, ALONG / LENGTHS[:, None], strict=True)):
    STRETCH[bar, 2 * i : 2 * i + 2], STRETCH[bar, 2 * j : 2 * j + 2] = -direction, direction
LOAD = np.zeros(len(FREE))
LOAD[-2 * ROWS + 3] = -1.0  # down, on the second node of the last column


def areas(x: Any) -> Any:
    """Return areas that use up VOLUME, from any numbers."""
    shares = tape.exp(x - x.max().detach())
    return VOLUME * (shares / shares.sum() + 1e-6) / LENGTHS


def compliance(x: Any) -> Any:
    """Return how far the load sinks."""
    stretch = STRETCH[:, FREE]
    stiffness = stretch.T @ ((areas(x) / LENGTHS)[:, None] * stretch)
    return (LOAD * tape.linalg.solve(stiffness, LOAD)).sum()


def main() -> None:
    """Optimise, print the bars that are left, thickest first, and check the gradient."""
    from scipy.optimize import minimize

    start = np.zeros(len(BARS))
    value_and_grad = for_scipy(tape.record(compliance, start))
    result = minimize(value_and_grad, start, jac=True, method="L-BFGS-B", options={"maxiter": 400})
    optimal = areas(tape.tensor(result.x)).numpy()
    left = [k for k in np.argsort(-optimal) if optimal[k] > 0.02 * optimal.max()]
    print(f"compliance {value_and_grad(start)[0]:.1f} -> {result.fun:.1f}, {len(left)} of {len(BARS)} bars are left")
    for k in left:
        (a, b), (c, d) = NODES[BARS[k]].astype(int)
        print(f"({a}, {b}) - ({c}, {d})  " + "#" * int(1 + 30 * optimal[k] / optimal.max()))
    widths = 9 * optimal / optimal.max()
    picture("truss", lambda figure: [figure.gca().plot(*NODES[BARS[k]].T, "k", lw=widths[k]) for k in left])
    check_gradient(lambda x: value_and_grad(x)[0], start, value_and_grad(start)[1])
