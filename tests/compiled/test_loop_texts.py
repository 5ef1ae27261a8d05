"""The loop programs of a dozen small functions, letter by letter: what changes in one of them is to be meant.

`python -m tests.compiled.test_loop_texts` writes the file anew; its difference is then read as a change of source is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation

FILE = Path(__file__).resolve().parents[1] / "support" / "loop_texts.txt"
HEAD = "==== "


def tiny(a: Any, b: Any, c: Any, d: Any) -> Any:
    return a * b + tape.log(d) * c


def rosenbrock(x: Any) -> Any:
    """Gather the gradient of what is read at two places."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def driven(x: Any, u: Any) -> Any:
    """Read an array step by step, and numbers that change."""
    for k in range(50):
        x = x + 0.1 * tape.sin(x * u[k] + k * 0.01)
    return x


def fading(x: Any, rates: Any) -> Any:
    """Carry an array in memory."""
    for k in range(20):
        x = x * tape.exp(-rates[k] * x)
    return (x * x).sum()


def nested(x: Any) -> Any:
    for _ in range(20):
        for _ in range(30):
            x = x + 0.01 * tape.sin(x) * x
        x = x * 0.9
    return x


def in_place(u: Any) -> Any:
    v = u * 2.0
    v[1:-1] += 0.5 * (v[2:] - v[:-2])
    return (v * v).sum()


def weighed(x: Any, w: Any) -> Any:
    """Sum rows, and go on with what they sum to."""
    return (tape.softmax(x, 1) * w).sum()


def columns(x: Any) -> Any:
    """Sum along the axis in front, and along one in the middle."""
    return (x.sum(0) ** 2).sum() + (x.sum(1) ** 2).sum()


def largest(x: Any) -> Any:
    return (tape.amax(x, 1) ** 2).sum()


def multiplied(a: Any, b: Any) -> Any:
    """Call BLAS between loops."""
    return (tape.tanh(a @ b) ** 2).sum()


def root(x: Any) -> Any:
    """Go on until a guard misses."""
    y = x
    while abs(y * y - x) > 1e-12 * x:
        y = y - (y * y - x) / (2.0 * y)
    return y


def inverse(a: Any) -> Any:
    """Give up where a matrix is singular."""
    return (tape.linalg.inv(a) ** 2).sum()


GRID = np.linspace(0.1, 1.0, 200).reshape(10, 20)
CASES: dict[Callable[..., Any], tuple[tuple[Any, ...], int | None]] = {
    tiny: ((1.0, 2.0, 3.0, 4.0), None),
    rosenbrock: ((np.ones(40),), None),
    driven: ((1.0, np.ones(50)), None),
    fading: ((np.ones(100), np.ones(20)), 4000),
    nested: ((0.5,), None),
    in_place: ((np.ones(50),), None),
    weighed: ((GRID, GRID), None),
    columns: ((np.ones((10, 11, 12)),), None),
    largest: ((GRID,), None),
    multiplied: ((np.ones((20, 30)), np.ones((30, 25))), None),
    root: ((2.0,), None),
    inverse: ((np.eye(2) * 2.0 + 0.1,), None),
}
"""Arguments, and the bytes of workspace that are allowed."""


def text_of(function: Callable[..., Any]) -> str:
    """Return the loop program of a function's value and gradient."""
    arguments, memory = CASES[function]
    program = _looped(function, *arguments) if function is root else tape.record(function, *arguments)
    return Compilation(program._recipe, reverse=True, memory=memory).listing()


def _looped(function: Callable[..., Any], x: float) -> Any:
    """Return the program of a compiled function whose loop was recorded as one."""
    compiled = tape.compile(tape.value_and_grad(function))
    for factor in (1.0, 2.0, 5.0, 30.0) * 3:
        compiled(x * factor)
    return next(program for program in compiled.programs if program.has_loops)


def texts() -> dict[str, str]:
    """Return what the file says, by name."""
    parts = FILE.read_text().split(HEAD)[1:]
    return {name: text.rstrip() for name, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.quick
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_the_text_is_the_one_that_was_read(function: Callable[..., Any]) -> None:
    assert text_of(function) == texts()[function.__name__]


def test_there_are_no_other_texts() -> None:
    assert list(texts()) == [function.__name__ for function in CASES]


if __name__ == "__main__":
    FILE.write_text("\n\n".join(f"{HEAD}{function.__name__}\n{text_of(function)}" for function in CASES) + "\n")
