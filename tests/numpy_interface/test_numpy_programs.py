"""Programs written for NumPy run with ``import tape.numpy as np``: dynamic, differentiated and compiled."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import tape
import tape.numpy
from tests.numpy_interface.numpy_programs import PROGRAMS

pytestmark = [
    pytest.mark.quick,
    pytest.mark.filterwarnings("ignore::tape.errors.DetachWarning"),  # float(error) decides when to stop
]


def _differences(program: Any, x: float) -> float:
    h = 1e-5
    up, down = (float(program(np, x + s * h)) for s in (1, -1))
    return (up - down) / (2 * h)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program: Any) -> None:
    """Values are NumPy's, gradients those of differences, in each mode; a replay at another point is not stale."""
    x, run = PROGRAMS[program], partial(program, tape.numpy)
    wanted, slope = float(program(np, x)), _differences(program, x)
    assert float(run(x)) == wanted
    both = tape.value_and_grad(run)
    for found in (both(x), [float(v) for v in both(tape.tensor(x))]):
        np.testing.assert_allclose(found[0], wanted, rtol=1e-12)
        np.testing.assert_allclose(found[1], slope, rtol=1e-6, atol=1e-8)
    compiled = tape.compile(both, check="never")
    for at in (x, x, x, x * 1.001, x):
        np.testing.assert_allclose(compiled(at), both(at), rtol=1e-10)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_with_a_leaf(program: Any) -> None:
    """A script that makes a leaf and calls backward gets the same, with elements that are values as NumPy's are."""
    x, found = PROGRAMS[program], []

    def script() -> None:  # in a thread of its own, which keeps NumPy's meaning
        leaf = tape.tensor(x, requires_grad=True)
        y = program(tape.numpy, leaf)
        y.backward()
        found.extend([y.item(), leaf.grad.item()])

    thread = threading.Thread(target=script)
    thread.start()
    thread.join()
    np.testing.assert_allclose(found, [float(program(np, x)), _differences(program, x)], rtol=1e-6, atol=1e-8)
