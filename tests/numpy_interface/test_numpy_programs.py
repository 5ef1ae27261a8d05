"""Programs written for NumPy run with ``import tape.numpy as np``: dynamic, differentiated and compiled."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import tape
import tape.numpy
from tape.tensors import modes
from tests.numpy_interface.numpy_programs import PROGRAMS

pytestmark = [
    pytest.mark.quick,
    pytest.mark.filterwarnings("ignore::tape.errors.DetachWarning"),  # float(error) decides when to stop
]


@pytest.fixture(autouse=True)
def _no_other_leaves() -> Any:
    """Leaves of other tests' modules live as long as the process."""
    others = modes.LEAVES[:]
    modes.LEAVES.clear()
    yield
    modes.LEAVES[:] = others


def _differences(program: Any, x: float) -> float:
    h = 1e-5
    up, down = (float(program(np, x + s * h)) for s in (1, -1))
    return (up - down) / (2 * h)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program: Any) -> None:
    """Values are NumPy's, gradients those of differences, in each mode; a replay at another point is not stale."""
    x, run = PROGRAMS[program], partial(program, tape.numpy)
    wanted, slope = float(program(np, x)), _differences(program, x)
    np.testing.assert_allclose(float(run(x)), wanted, rtol=1e-14)
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


def test_arrays_unless_something_differentiates() -> None:
    """Factories give arrays outside of transforms, of integers always; a script's meaning ends with its leaf."""
    names, seen = tape.numpy, []

    def script() -> None:
        seen.append(type(names.zeros(3)))
        leaf = tape.tensor(2.0, requires_grad=True)
        u = names.zeros(3)
        held = u[0]
        u[0] = leaf
        seen.extend([type(u), held.item(), type(names.zeros(3, dtype=int)), isinstance(u, names.ndarray)])
        with tape.no_grad():
            seen.extend([type(names.zeros(3)), type(names.array([leaf, 1.0]))])
        del leaf, u, held
        seen.append(type(names.ones(2)))
        x = tape.ones(2)
        element = x[0]
        x[0] = 5.0
        seen.append(element.item())  # PyTorch's meaning again: a view

    thread = threading.Thread(target=script)
    thread.start()
    thread.join()
    array, tensor = np.ndarray, tape.Tensor
    assert seen == [array, tensor, 0.0, array, True, array, tensor, array, 5.0]


def test_names_are_numpys() -> None:
    names = tape.numpy
    assert names.sin is np.sin
    assert names.linalg is np.linalg
    assert names.pi == np.pi
    assert type(np.zeros(2)) == names.ndarray  # noqa: E721 (as people write)
    assert not isinstance([1.0], names.ndarray)
    assert set(np.__all__) <= set(dir(names))
    assert type(names.ndarray((2, 3))) is np.ndarray


_MADE = """
np.array([k, 2.0]); np.asarray((k, k)); np.full((2, 2), k); np.full_like(a, k); np.r_[0.0, k, a]; np.c_[a, a * k]
np.arange(k, 5.0, 1.5); np.linspace(0, k, 4); np.geomspace(1.0, k, 3); np.fromiter((k * i for i in range(3)), float)
np.diag([k, 1.0]); np.concatenate(([k], a)); np.mean([k, 1.0]); np.vstack(([k, k], a)); np.array([[k, 0.0], [1, k]])
np.array(k); np.max([k, 1.0]); np.where(a > 1, k, 0.0); np.array([a * k, [1, 2]], dtype=float); np.tile([k], 3)
"""
CALLS = [call.strip() for line in _MADE.split("\n") for call in line.split(";") if call.strip()]
WRITES = [
    "u[...] = t", "u[0] = t[0]", "u[1:] = t[1:]", "u += t", "u.fill(t[0])", "np.copyto(u, t)",
    "np.add.at(u, [0], t[0])", "np.array([t, t])", "np.sum([t[0], t[1]])", "np.full(2, t[0])",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_what_is_made_of_tensors(call: str) -> None:
    """Values, shapes and gradients are those of differences of NumPy's own."""
    a = np.array([1.0, 2.0])

    def total(names: Any, k: Any) -> Any:
        made = eval(call, {"np": names, "k": k, "a": a})  # noqa: S307 (our own text)
        return (made * names.arange(1, made.size + 1).reshape(made.shape)).sum()

    value, slope = tape.value_and_grad(lambda k: total(tape.numpy, k))(2.2)
    up, down = (float(total(np, 2.2 + h)) for h in (1e-6, -1e-6))
    np.testing.assert_allclose([value, slope], [float(total(np, 2.2)), (up - down) / 2e-6], rtol=1e-8)


@pytest.mark.parametrize("write", WRITES)
def test_writes_into_arrays_name_the_import(write: str) -> None:
    t, u = tape.ones(3, requires_grad=True), np.zeros(3)
    with pytest.raises((TypeError, RuntimeError, ValueError)) as caught:
        exec(write, {"t": t, "u": u, "np": np})  # noqa: S102 (our own text)
    causes = f"{caught.value} {caught.value.__cause__}"  # in plain mode NumPy raises another error from ours
    assert "import tape.numpy as np" in causes
    assert not u.any()
