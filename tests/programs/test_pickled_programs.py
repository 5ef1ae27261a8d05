"""Programs as data: pickled, copied, and sent to other processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
from numba import njit

pytest.register_assert_rewrite("record_cases")
import tape  # noqa: E402
from kernels.operations import OPS  # noqa: E402
from kernels.rules.op import Op  # noqa: E402
from tests.support.record_cases import bits, replayed_case, tensors  # noqa: E402 (their asserts are to be rewritten)


def again(program: Any) -> Any:
    """Return a program that was pickled."""
    return pickle.loads(pickle.dumps(program))  # noqa: S301 (our own)


def simulation(p: dict[str, Any], u: Any, table: Any = None, *, mode: str = "sin") -> Any:
    """Views, writes by slices and places, constants, reductions, a routine and a region without gradients."""
    del table
    u = getattr(tape, mode)(u) * p["a"] + np.arange(6.0)
    u[1:-1] += p["b"] * (u[2:] - u[:-2])
    u[np.array([0, 3])] = u[np.array([5, 5])] ** 2
    u.index_put_((np.array([1, 1]),), u[:2], accumulate=True)
    with tape.no_grad():
        u[4] *= 2.0
    top, _ = u.max(0)
    return (tape.cumsum(u, 0) @ tape.stack([u, u * 2], 1)).sum() + top + tape.where(u > 1, u, -u).mean()


def test_a_pickled_program_is_the_same_program() -> None:
    args = ({"a": 1.0, "b": 0.5}, np.linspace(0, 1, 6), None)
    new = ({"a": 1.5, "b": 0.25}, np.linspace(1, 2, 6), None)
    program = tape.record(simulation, *args, mode="cos")
    value, gradients = program.value_and_grad(*new, mode="cos")
    for other in (again(program), again(again(program)), copy.copy(program), copy.deepcopy(program)):
        assert str(other) == str(program)
        assert other(*new, mode="cos") == value
        found, (by_p, by_u) = other.value_and_grad(*new, mode="cos")
        assert found == value
        assert by_p == gradients[0]
        np.testing.assert_array_equal(by_u, gradients[1])
        x = tape.tensor(new[1], requires_grad=True)
        other(new[0], x, None, mode="cos").backward()
        np.testing.assert_allclose(x.grad, by_u, rtol=1e-12)
        with pytest.raises(TypeError, match="argument mode"):
            other(*new, mode="sin")
    used = pickle.dumps(program)
    assert len(used) < 30_000
    assert b"njit" not in used


@pytest.mark.exhaustive
@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_record_is_pickled(op: Op) -> None:
    case = replayed_case(op)
    if case is None:
        pytest.skip("not replayed")
    leaves = case.leaves(np.float64, seed=1)
    program = tape.record(case.run, *case.leaves(np.float64))
    assert bits(again(program)(*leaves)) == bits(program(*leaves))
    if case.differentiable:
        program = tape.record(lambda *xs: (case.run(*xs) * 1.5).sum(), *case.leaves(np.float64))
        with tape.no_grad():
            (value, gradients), (other, found) = (p.value_and_grad(*tensors(leaves)) for p in (program, again(program)))
        assert bits(value) == bits(other)
        assert list(map(bits, gradients)) == list(map(bits, found))


@njit
def twice(x: Any) -> Any:
    """Return the double."""
    return x * 2.0


@njit
def twice_vjp(g: Any, x: Any) -> Any:
    """Return the gradient of it."""
    return g * 2.0 + 0.0 * x


def test_custom_operations_by_name() -> None:
    op = tape.custom(twice, twice_vjp)
    program = tape.record(lambda x: (op(x) * x).sum(), np.ones(3))
    value, (gradient,) = again(program).value_and_grad(np.array([1.0, 2.0, 3.0]))
    assert (value, gradient.tolist()) == (28.0, [4.0, 8.0, 12.0])

    @njit
    def inner(x: Any) -> Any:
        return x * 3.0

    local = tape.record(tape.custom(inner, twice_vjp), np.ones(3))
    with pytest.raises(pickle.PicklingError, match=r"custom operation 'inner'.*top of a module"):
        pickle.dumps(local)
    assert copy.deepcopy(local)(np.ones(3)).tolist() == [3.0] * 3


def test_what_stays_must_be_picklable() -> None:
    program = tape.record(lambda f, x: f(x), lambda x: x * 2, np.ones(2))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(program)
    assert program(program._signature.static[0], np.ones(2)).tolist() == [2.0, 2.0]


def test_an_operation_that_this_version_lacks() -> None:
    data = pickle.dumps(tape.record(tape.sinh, np.ones(2))).replace(b"sinh", b"sihn")
    with pytest.raises(RuntimeError, match="the operation 'sihn', which this version"):
        pickle.loads(data)  # noqa: S301


def test_another_process() -> None:
    program = tape.record(lambda x, k: (tape.exp(-k * x) ** 2).sum(), np.ones(4), 0.5)
    x = np.linspace(0, 1, 4)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        value, (by_x, by_k) = pool.apply(program.value_and_grad, (x, 1.5))
    expected, (x_here, k_here) = program.value_and_grad(x, 1.5)
    assert (value, by_k) == (expected, k_here)
    np.testing.assert_array_equal(by_x, x_here)


WINDOWS = """
import pickle, sys
import numpy as np
import tape

def windows(x):
    return ((x * 1.0).as_strided((2, 2), (1, 1), 0) * np.array([[1.0, 2.0], [3.0, 4.0]])).sum()

program = pickle.load(open(sys.argv[1], "rb")) if sys.argv[1:] else tape.record(windows, np.arange(4.0))
if not sys.argv[1:]:
    pickle.dump(program, open("program", "wb"))
    sys.argv.append("program")
print(program.value_and_grad(np.arange(4.0))[1][0].tolist())
"""


def test_windows_overlap_in_a_process_that_never_made_one(fresh: Any) -> None:
    """That elements are met twice was known to the process that had made the view alone."""
    for code in (WINDOWS, "import sys; sys.argv[1:] = ['program']\n" + WINDOWS):
        out, error = fresh(code).communicate(timeout=120)
        assert out.strip() == "[1.0, 5.0, 4.0, 0.0]", error
