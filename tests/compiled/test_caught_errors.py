"""Errors that a compiled function catches: a replay that raises goes back to Python, and other ways are kept."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import scipy.linalg
from numpy.linalg import LinAlgError

import tape
from kernels.programs.program import ProgramError
from tests.support.representatives import in_turns

EYE = np.eye(3)
MATRICES = {
    "good": np.array([[4.0, 1, 0], [1, 3, 0.5], [0, 0.5, 2]]),
    "indefinite": np.array([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]),
    "singular": np.ones((3, 3)),
    "nan": np.full((3, 3), np.nan),
}
ORDERS = {
    "eager": ("good", "good", "indefinite", "good", "singular", "nan", "indefinite", "singular", "good", "good"),
    "max": ("singular", "singular", "good", "singular", "good", "good", "indefinite", "indefinite", "nan", "good"),
}
LEAST = 6.5
"""What the functions below raise at: sums of matrices that are smaller."""


def solved(k: Any) -> Any:
    try:
        return tape.linalg.solve(k, k[0] * 2).sum()
    except LinAlgError:
        return (k * k).sum()


def jittered(k: Any) -> Any:
    jitter = 1e-3
    for _ in range(8):
        try:
            factor = tape.linalg.cholesky(k + jitter * EYE)
            break
        except LinAlgError:
            jitter = jitter * 10
    else:
        return k[0, 0] * 0
    return (factor * factor).sum() * jitter


def nested(k: Any) -> Any:
    try:
        try:
            return tape.linalg.cholesky(k).sum()
        except LinAlgError:
            return tape.linalg.inv(k).sum()
    except LinAlgError:
        return k.sum() * 9


def ended(k: Any) -> Any:
    total = k.sum()
    try:
        total = total + np.linalg.inv(k).sum()
    except LinAlgError:
        total = total * 3
    finally:
        total = total + k[1, 1]
    return total


def suppressed(k: Any) -> Any:
    total = k.sum()
    with contextlib.suppress(LinAlgError):
        total = total * 2
        total = total + tape.linalg.inv(k).sum()
        total = total * 5
    return total


def constant(k: Any) -> Any:
    try:
        return tape.linalg.cholesky(k).sum()
    except LinAlgError:
        return 0.0 * k[0, 0] + 2.5


def by_text(k: Any) -> Any:
    try:
        return tape.linalg.cholesky(k).sum()
    except LinAlgError as error:
        return k.sum() * len(str(error))


def written(k: Any) -> Any:
    k = k * 1.0
    k[0, 0] = k[0, 0] * 2
    try:
        k[1, 1] += 1.0
        return tape.linalg.cholesky(k).sum()
    except LinAlgError:
        k[2, 2] = 7.0 * k[2, 2]
        return (k * k).sum()


def in_a_loop(k: Any) -> Any:
    total = k[0, 0] * 0
    for _ in range(20):
        try:
            total = total + tape.linalg.cholesky(k).sum()
        except LinAlgError:
            total = total * 0.5 + k.sum()
    return total


def until_it_raises(k: Any) -> Any:
    total = k[0, 0] * 0
    for _ in range(20):
        try:
            total = total + tape.linalg.cholesky(k).sum()
        except LinAlgError:
            break
        k = k - 0.2 * EYE
    return total


def inner_gradient(k: Any) -> Any:
    try:
        return tape.func.grad(lambda x: tape.linalg.inv(x).sum())(k).sum()
    except LinAlgError:
        return k.sum() * 4


class Picky(tape.autograd.Function):
    """Raises by values, forward and back."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        if float(np.asarray(x.detach()).sum()) < LEAST:
            raise ValueError("small")
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        if float(np.asarray(x.detach()).sum()) > 8 * LEAST / 6:
            raise ValueError("large")
        return 2 * x * g


def of_a_function(k: Any) -> Any:
    try:
        return Picky.apply(k).sum()
    except ValueError:
        return k.sum() * 4


@numba.njit
def _picky(x: Any) -> Any:
    if x.sum() < LEAST:
        raise ValueError("small")
    return x * 2


@numba.njit
def _picky_vjp(g: Any, x: Any) -> Any:
    return g * 2 + x * 0


picky = tape.custom(_picky, _picky_vjp)


def of_a_jitted_one(k: Any) -> Any:
    try:
        return (picky(k) * k).sum()
    except (ValueError, RuntimeError):
        return k.sum() * 4


def powers(k: Any) -> Any:
    n = (k * 2 - 1).long()
    try:
        return (n**n).sum() * 1.0 + k.sum()
    except ValueError:
        return k.sum() * 5


def quotients(k: Any) -> Any:
    n = (k * 2).long()
    try:
        return (7 // n).sum() * 1.0 + (7 % n).sum() + k.sum()
    except RuntimeError:
        return k.sum() * 5


def checked(k: Any) -> Any:
    try:
        assert k[0, 0] > 2, "small"
    except AssertionError:
        return k.sum() * 5
    return k.sum()


def drawn(k: Any) -> Any:
    random = tape.rand(3, 3)
    try:
        return (tape.linalg.cholesky(k) * random).sum()
    except LinAlgError:
        return (k * tape.rand(3, 3)).sum()


def uncaught(k: Any) -> Any:
    return tape.linalg.inv(k).sum()


FUNCTIONS = (
    solved, jittered, nested, ended, suppressed, constant, by_text, written, in_a_loop, until_it_raises, inner_gradient,
    of_a_function, of_a_jitted_one, powers, quotients, checked, drawn, uncaught,
)  # fmt: skip


def outcome(function: Callable[..., Any], k: Any) -> Any:
    tape.manual_seed(5)
    try:
        return [np.asarray(x) for x in np.atleast_1d(np.array(function(k), object))]
    except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
        return type(error), str(error)


def backwards(function: Callable[..., Any], k: Any) -> tuple[Any, Any]:
    x = tape.tensor(k, requires_grad=True)
    y = function(x)
    y.backward()
    return y.item(), x.grad.numpy()


def assert_alike(function: Callable[..., Any], expected: Callable[..., Any], order: tuple[str, ...]) -> None:
    for i, name in enumerate(order):
        k = MATRICES[name] * (1 + 0.01 * i)
        before = k.copy()
        one, other = outcome(function, k), outcome(expected, k)
        assert isinstance(one, tuple) == isinstance(other, tuple), (i, name, one, other)
        if isinstance(one, tuple):
            assert one == other
        else:
            for x, y in zip(one, other, strict=True):
                np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=1e-8, atol=1e-9, err_msg=name)
        np.testing.assert_array_equal(k, before)


@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
@pytest.mark.parametrize(("function", "mode"), in_turns(FUNCTIONS, ORDERS))
def test_a_compiled_function_catches_what_it_catches_in_dynamic_mode(function: Any, mode: str) -> None:
    order = ORDERS[mode]
    of_numbers = tape.compile(function, mode=mode, check="never")
    assert_alike(lambda k: float(of_numbers(k)), lambda k: float(function(tape.tensor(k))), order)
    gradient = tape.compile(tape.value_and_grad(function), mode=mode, check="never")
    assert_alike(gradient, tape.value_and_grad(function), order)
    of_tensors = tape.compile(function)
    assert_alike(lambda k: backwards(of_tensors, k), lambda k: backwards(function, k), order[::-1])


@pytest.mark.quick
def test_both_ways_are_programs() -> None:
    f = tape.compile(jittered)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ["good", "indefinite"] * 6:
            f(MATRICES[name])
    assert f.calls["recorded"] == 4
    assert len(f.programs) == 2


def test_an_error_that_is_no_guard_makes_calls_dynamic_again_and_again() -> None:
    f = tape.compile(of_a_function)
    for _ in range(3):
        f(MATRICES["good"])
    for _ in range(6):
        assert f(MATRICES["indefinite"] * 0.5) == pytest.approx(4 * 3.5)
        assert f(MATRICES["good"]) == pytest.approx((MATRICES["good"] ** 2).sum())
    assert len(f.programs) == 1


def test_an_argument_is_written_once_where_a_replay_raises() -> None:
    def f(x: Any, k: Any) -> Any:
        x += 1.0
        try:
            return tape.linalg.inv(k).sum() + x.sum()
        except LinAlgError:
            x *= 2.0
            return x.sum()

    compiled = tape.compile(f)
    one, other = np.zeros(3), tape.zeros(3)
    for name in ("good", "good", "good", "singular", "good", "singular", "singular", "good", "singular"):
        assert float(compiled(one, MATRICES[name])) == pytest.approx(float(f(other, tape.tensor(MATRICES[name]))))
        np.testing.assert_allclose(one, other.numpy())


def test_random_numbers_are_drawn_once_where_a_replay_raises() -> None:
    compiled = tape.compile(drawn)
    for name in ("good", "good", "good", "singular", "good", "indefinite", "good"):
        tape.manual_seed(3)
        expected = [float(drawn(tape.tensor(MATRICES[name]))), float(tape.rand(1)[0])]
        tape.manual_seed(3)
        assert [float(compiled(MATRICES[name])), float(tape.rand(1)[0])] == pytest.approx(expected)


def test_integers_that_cannot_be_divided_raise_in_programs() -> None:
    program = tape.record(lambda n: (7 // n).sum() + (n**n).sum() + (n % 5).sum(), np.array([1, 2]))
    np.testing.assert_array_equal(program(np.array([2, 3])), 5 + 31 + 5)
    with pytest.raises(RuntimeError, match="divisor has a zero"):
        program(np.array([0, 1]))
    with pytest.raises(ValueError, match="negative integer powers"):
        program(np.array([-1, 1]))


def test_rows_exchanged_by_lu_are_results_of_machine_code() -> None:
    f = tape.compile(lambda a: tape.linalg.lu_factor(a)[1], mode="max", check="never")
    matrices = [np.roll(MATRICES["good"], k, axis=0) for k in (0, 0, 1, 2)]
    for a in matrices:
        np.testing.assert_array_equal(f(a), scipy.linalg.lu_factor(a)[1] + 1)


def test_native_callers_see_that_an_operation_raised() -> None:
    f = tape.compile(uncaught)
    for _ in range(3):
        f(MATRICES["good"])
    assert f.native(MATRICES["good"])[0] == 0
    assert f.native(MATRICES["singular"])[0] == 1


@pytest.mark.quick
def test_a_recorded_program_that_caught_an_error_is_not_replayed() -> None:
    program = tape.record(solved, MATRICES["singular"])
    with pytest.raises(ProgramError, match="left for Python"):
        program(MATRICES["good"])
    program = tape.record(uncaught, MATRICES["good"])
    with pytest.raises(LinAlgError, match="singular"):
        program(MATRICES["singular"])
