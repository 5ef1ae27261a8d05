"""`taylor_test` and `dot_product_test`: right derivatives pass, planted faults show in the order or the difference."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tape
from tape.checks.taylor import DotProducts, TaylorTest, dot_product_test, taylor_test

POINT = np.array([0.3, -1.2, 2.0, 0.7])
DIRECTION = np.array([1.0, 0.5, -0.25, 2.0])

Function = Callable[..., Any]


def curved(x: Any) -> Any:
    """Has derivatives of every order."""
    return (tape.sin(x) * x * x).sum()


def with_gradient_times(factor: float, f: Function) -> Function:
    """Return a function with f's value and so many times its gradient."""
    return lambda x: f(x).detach() + factor * (f(x) - f(x).detach())


def with_hessian_times(factor: float, f: Function, gradient: Function) -> Function:
    """Return a function with f's value and gradient, and so many times its Hessian."""

    class Wrong(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return f(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            right = gradient(x)
            return g * (right.detach() + factor * (right - right.detach()))

    return Wrong.apply


def quiet(*arguments: Any, **more: Any) -> TaylorTest:
    return taylor_test(*arguments, verbose=False, **more)


@pytest.mark.quick
def test_orders_of_a_right_gradient() -> None:
    result = quiet(curved, POINT, DIRECTION)
    assert result.orders.keys() == {1, 2}
    assert min(result.orders[1]) > 0.95
    assert 1.95 < result.order < 2.05


def test_remainders_are_those_of_the_formulas() -> None:
    result = quiet(curved, POINT, DIRECTION, h=0.5, steps=3)
    gradient = np.cos(POINT) * POINT**2 + 2 * POINT * np.sin(POINT)

    def value(x: np.ndarray) -> float:
        return float((np.sin(x) * x * x).sum())

    assert result.steps == (0.5, 0.25, 0.125)
    for n, h in enumerate(result.steps):
        change = value(POINT + h * DIRECTION) - value(POINT)
        assert result.remainders[1][n] == pytest.approx(abs(change), rel=1e-12)
        assert result.remainders[2][n] == pytest.approx(abs(change - h * gradient @ DIRECTION), rel=1e-12)
    assert result.orders[2][0] == pytest.approx(math.log2(result.remainders[2][0] / result.remainders[2][1]))


@pytest.mark.quick
@pytest.mark.parametrize("factor", [1.001, 0.999, -1.0, 0.0])
def test_a_wrong_gradient_lowers_the_order(factor: float) -> None:
    assert quiet(with_gradient_times(1.0, curved), POINT).order > 1.9
    assert quiet(with_gradient_times(factor, curved), POINT).order < 1.5


def test_a_gradient_wrong_in_one_element_lowers_the_order() -> None:
    right, wrong = np.ones(4), np.array([1.0, 1.0, 1.01, 1.0])
    for factors, passes in ((right, True), (wrong, False)):
        weighted = tape.tensor(factors)

        def f(x: Any, w: Any = weighted) -> Any:
            return curved(x.detach() + w * (x - x.detach()))

        assert (quiet(f, POINT).order > 1.9) == passes


@pytest.mark.quick
def test_orders_of_a_right_hessian() -> None:
    result = quiet(curved, POINT, DIRECTION, hessian=True)
    assert result.orders.keys() == {1, 2, 3}
    assert 2.9 < result.order < 3.1


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.001, False), (0.0, False)])
def test_a_wrong_hessian_lowers_the_order(factor: float, passes: bool) -> None:
    def gradient(x: Any) -> Any:
        return tape.cos(x) * x * x + 2 * x * tape.sin(x)

    result = quiet(with_hessian_times(factor, curved, gradient), POINT, hessian=True)
    assert min(result.orders[2]) > 1.9  # the gradient is right
    assert (result.order > 2.9) == passes


def test_a_linear_function_has_no_remainder() -> None:
    for point in (POINT, np.zeros(4), 1e-12 * POINT, 1e12 * POINT):
        result = quiet(lambda x: (x * 3.0).sum(), point)
        assert result.order == math.inf
        assert min(result.orders[1]) == pytest.approx(1.0)


def test_a_quadratic_function_has_no_third_remainder() -> None:
    result = quiet(lambda x: (x * x).sum() + 1e3, POINT, hessian=True)
    assert result.order == math.inf
    assert min(result.orders[2]) == pytest.approx(2.0, abs=0.05)


def test_a_linear_function_with_a_wrong_gradient_is_found() -> None:
    assert quiet(with_gradient_times(1.001, lambda x: (x * 3.0).sum()), POINT).order == pytest.approx(1.0)


def test_rounding_within_the_function_is_measured() -> None:
    noisy = quiet(lambda x: ((x + 1e6) - 1e6).sum(), POINT)  # linear, with errors of 1e-10
    assert max(noisy.remainders[2]) > 1e-12
    assert noisy.order == math.inf


def test_a_constant_has_no_gradient() -> None:
    result = quiet(lambda x, y: (x * 0.0).sum() + y, (POINT, 2.0), (DIRECTION, 0.0), hessian=True)
    assert result.order == math.inf
    assert max(result.remainders[1]) == 0


def test_several_inputs_of_several_kinds() -> None:
    def f(x: Any, y: Any) -> Any:
        return (tape.exp(x) * y).sum()

    for point in ((POINT, 2.0), (tape.tensor(POINT), tape.tensor(2.0, requires_grad=True)), [POINT, np.int64(2)]):
        result = quiet(f, point)
        assert 1.9 < result.order < 2.1
    assert quiet(f, (POINT, 2.0), (tape.tensor(DIRECTION), np.array(1.0))).order > 1.9


def test_the_point_and_the_generators_are_left_alone() -> None:
    x = tape.tensor(POINT, requires_grad=True)
    before = np.random.get_state()[1].copy()  # noqa: NPY002 (the state that must not change)
    first, second = quiet(curved, x), quiet(curved, x)
    assert first == second
    assert x.grad is None
    np.testing.assert_array_equal(x.detach().numpy(), POINT)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_printed_table(capsys: pytest.CaptureFixture[str]) -> None:
    result = taylor_test(lambda x: x * x, 3.0, 1.0, h=1.0, steps=2)
    assert capsys.readouterr().out == f"{result}\n"
    assert str(result).splitlines() == [
        "        h  |f(x+h dx) - f(x)|  order  |... - h <g, dx>|  order",
        "1.000e+00           7.000e+00                 1.000e+00",
        "5.000e-01           3.250e+00   1.11          2.500e-01   2.00",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 1}, "two steps at least"),
        ({"h": 0.0}, "the first one positive"),
        ({"h": float("nan")}, "the first one positive"),
        ({"dx": np.ones(3)}, r"the direction has shapes \[\(3,\)\], the point \[\(4,\)\]"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quiet(curved, POINT, **arguments)


def test_functions_that_have_no_gradient() -> None:
    with pytest.raises(RuntimeError, match="f returned 4 elements; it must return one"):
        quiet(lambda x: x * 2, POINT)
    with pytest.raises(RuntimeError, match="does not require grad"):
        quiet(lambda x: x.detach().sum(), POINT)
    with pytest.raises(TypeError, match="func is to return a Tensor"):
        quiet(lambda x: x.sum().item(), POINT)


MATRIX = np.array([[1.0, 2.0, 0.0, -1.0], [0.5, 0.0, 3.0, 1.0]])


@pytest.mark.quick
@pytest.mark.parametrize("differences", [False, True])
def test_dot_products_are_those_of_the_matrix(differences: bool) -> None:
    weights = np.array([2.0, -3.0])
    result = dot_product_test(
        lambda x: tape.tensor(MATRIX) @ x, POINT, DIRECTION, weights, differences=differences, verbose=False
    )
    assert result.reverse == pytest.approx(DIRECTION @ MATRIX.T @ weights, rel=1e-14)
    assert result.forward == pytest.approx(weights @ MATRIX @ DIRECTION, rel=1e-9)
    assert result.difference < 1e-12 + result.error < 1e-6
    assert (result.error > 0) or not differences


@pytest.mark.quick
@pytest.mark.parametrize("factor", [1.001, 1.00001])
def test_a_wrong_transpose_is_found(factor: float) -> None:
    def cube(times: float) -> Function:
        class Cube(tape.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return times * 3.0 * x * x * g

        return Cube.apply

    right = dot_product_test(cube(1.0), POINT, verbose=False)
    wrong = dot_product_test(cube(factor), POINT, verbose=False)
    assert right.difference < 1e-12 + right.error < 1e-6
    assert wrong.difference == pytest.approx(1 - 1 / factor, rel=0.01)


def test_differences_share_no_rule_with_backward() -> None:
    f = with_gradient_times(1.001, lambda x: tape.exp(x) * x)
    assert dot_product_test(f, POINT, differences=True, verbose=False).difference == pytest.approx(1e-3, rel=0.01)


def test_dot_products_over_several_inputs_and_outputs() -> None:
    def f(x: Any, y: Any) -> Any:
        return tape.exp(x) * y, x.sum() * y, (x > 0), x.detach()

    by_x = np.stack([np.exp(POINT) * 2.0])[0]
    v, w = (DIRECTION, 0.5), (np.arange(4.0), 2.0, np.zeros(4))
    expected = (np.arange(4.0) * (by_x * DIRECTION + np.exp(POINT) * 0.5)).sum() + 2.0 * (
        DIRECTION.sum() * 2.0 + POINT.sum() * 0.5
    )
    result = dot_product_test(f, (POINT, 2.0), v, w, verbose=False)
    assert result.reverse == pytest.approx(expected, rel=1e-13)
    assert result.forward == pytest.approx(expected, rel=1e-8)


def test_forward_mode_serves_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def jvp(f: Function, primals: Any, tangents: Any) -> Any:
        assert len(primals) == len(tangents) == 1
        return f(*primals), (tape.tensor(MATRIX) @ tangents[0],)

    monkeypatch.setitem(sys.modules, "tape.func", SimpleNamespace(jvp=jvp))
    result = dot_product_test(lambda x: tape.tensor(MATRIX) @ x, POINT, verbose=False)
    assert result.error == 0
    assert result.difference < 1e-14


def test_printed_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = dot_product_test(lambda x: x * 3.0, POINT)
    assert capsys.readouterr().out == f"{result}\n"
    text = str(DotProducts(forward=1.5, reverse=1.25, difference=1 / 6, error=1e-9))
    assert text == "<J v, w> = 1.5, <v, J^T w> = 1.25, relative difference 0.2 (error about 1e-09)"


def test_bad_arguments_of_dot_products() -> None:
    with pytest.raises(ValueError, match=r"weights of shapes \[\(3,\)\] for \[\(4,\)\]"):
        dot_product_test(lambda x: x * 3.0, POINT, w=np.ones(3))
    with pytest.raises(ValueError, match="the direction has shapes"):
        dot_product_test(lambda x: x * 3.0, POINT, v=np.ones(3))
    with pytest.raises(RuntimeError, match="nothing that f returns requires grad"):
        dot_product_test(lambda x: x.detach() * 3.0, POINT)
