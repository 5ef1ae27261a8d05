"""Waveform: find a slow body under a surface from the waves that come back to it.

Shows full-waveform inversion in two dimensions: a time loop compiled within a budget of memory, and a gradient that is
a picture of where the model is wrong.
"""

from typing import Any

import numpy as np

import tape
from tape.examples import check_gradient, in_characters, picture

ROWS, COLUMNS, STEPS, SHOTS, SURFACE = 30, 40, 250, (5, 20, 34), 2  # cells, time steps, columns of sources, their row
DEPTH, ACROSS = np.mgrid[0:ROWS, 0:COLUMNS]
BACKGROUND, SCALE = np.full((ROWS, COLUMNS), 0.16), 0.05  # squared velocity, in cells per step; of its changes
TRUE = BACKGROUND * (1 - 0.3 * np.exp(-((DEPTH - 14.0) ** 2 + (ACROSS - 22.0) ** 2) / 12))
EDGE = np.minimum.reduce([ROWS - 1 - DEPTH, ACROSS, COLUMNS - 1 - ACROSS])  # how far it is
DAMPING = 1 - 0.1 * np.clip(1.0 - EDGE / 6, 0, 1) ** 2
WAVELET = [(1 - 2 * a) * np.exp(-a) for a in (0.15 * (np.arange(STEPS) - 20)) ** 2 / 2]


def traces(model: Any, shot: int) -> Any:
    """Return what receivers in the row of the sources record of one shot: (STEPS, COLUMNS)."""
    source, recorded = (DEPTH == SURFACE) & (shot == ACROSS), []
    before = now = np.zeros((ROWS, COLUMNS))
    for pulse in WAVELET:
        padded = np.pad(now, 1)
        around = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * now
        before, now = now, DAMPING * (2 * now - DAMPING * before + model * around + pulse * source)
        recorded.append(now[SURFACE])
    return np.stack(recorded)


MEASURED = [traces(TRUE, shot) for shot in SHOTS]


def misfit(x: Any) -> Any:
    """Return half the squared differences between computed and measured traces, of all shots."""
    model = BACKGROUND + SCALE * x.reshape(ROWS, COLUMNS)
    return sum(((traces(model, shot) - data) ** 2).sum() for shot, data in zip(SHOTS, MEASURED, strict=True)) * 0.5


def main() -> None:
    """Print the first gradient and the model found as pictures of characters; check the gradient."""
    from scipy.optimize import minimize

    value_and_grad = tape.compile(tape.value_and_grad(misfit), mode="max", memory="100 MB", check="never")
    start, first = value_and_grad(np.zeros(TRUE.size))
    result = minimize(value_and_grad, np.zeros(TRUE.size), jac=True, method="L-BFGS-B", options={"maxiter": 30})
    fields = {"minus gradient at the start": -first, "model found": result.x, "true model": (TRUE - BACKGROUND) / SCALE}
    for name, field in fields.items():
        print(f"{name}:\n{in_characters(field.reshape(TRUE.shape)[4:])}")
    print(f"misfit {start:.4f} -> {result.fun:.4f} in {result.nfev} evaluations")
    shown = [field.reshape(TRUE.shape) for field in fields.values()]
    picture("waveform", lambda figure: [a.imshow(f) for a, f in zip(figure.subplots(1, 3), shown, strict=True)])
    direction = np.cos(np.arange(TRUE.size))
    check_gradient(lambda s: value_and_grad(s[0] * direction)[0], np.zeros(1), np.array([first @ direction]))
