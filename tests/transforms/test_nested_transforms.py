"""Transforms within transforms by other arguments: on numbers and arrays as on tensors."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape import func

Function = Callable[..., Any]


def mixed(x: Any, y: Any) -> Any:
    return (tape.sin(x) * y * y).sum() + (x * x * y).sum() * 0.5


def summed(result: Any) -> Any:
    return sum(map(summed, result)) if isinstance(result, tuple) else (result * 1.0).sum()


def constant(x: Any) -> Any:
    return tape.full_like(x.detach(), 0.7) if isinstance(x, tape.Tensor) else np.full_like(x, 0.7)


def alone(g: Function, i: int, a: tuple[Any, ...]) -> Function:
    return lambda v: summed(g(*[v if k == i else w for k, w in enumerate(a)]))


def pulled(g: Function, i: int) -> Function:
    def run(*a: Any) -> Any:
        y, pull = func.vjp(alone(g, i, a), a[i])
        return y, pull(1.5)[0], func.vjp(lambda v: v * v, a[i])[1](a[1 - i] * constant(a[i]))[0]

    return run


def pushed(g: Function, i: int) -> Function:
    def run(*a: Any) -> Any:
        one = func.jvp(alone(g, i, a), (a[i],), (constant(a[i]),))
        return one, func.jvp(lambda v: v * v * v, (a[i],), (a[1 - i] * constant(a[i]),))

    return run


def linear(g: Function, i: int) -> Function:
    def run(*a: Any) -> Any:
        y, push = func.linearize(alone(g, i, a), a[i])
        return y, push(constant(a[i]))

    return run


def mapped(g: Function, i: int) -> Function:
    del i
    return lambda *a: func.vmap(lambda s: s * summed(g(*a)))(constant(a[0]) * np.ones(2))


TRANSFORMS: dict[str, Callable[[Function, int], Function]] = {
    "grad": lambda g, i: func.grad(lambda *a: summed(g(*a)), i),
    "value_and_grad": lambda g, i: tape.value_and_grad(lambda *a: summed(g(*a)), i),
    "has_aux": lambda g, i: func.grad_and_value(lambda *a: (summed(g(*a)), a[0] * a[1]), i, has_aux=True),
    "jacrev": func.jacrev,
    "jacfwd": func.jacfwd,
    "hessian": func.hessian,
    "vjp": pulled,
    "jvp": pushed,
    "linearize": linear,
    "compile": lambda g, i: tape.compile(tape.value_and_grad(lambda *a: summed(g(*a)), i)),
}
INNER = TRANSFORMS | {"vmap": mapped}
POINTS: tuple[Any, ...] = ((2.0, 3.0), (np.array([1.0, 2.0]), np.array([0.5, -1.0])))


def flat(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return [part for x in result for part in flat(x)]
    return [np.asarray(result.detach() if isinstance(result, tape.Tensor) else result)]


@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
@pytest.mark.parametrize("outer", TRANSFORMS)
def test_numbers_and_arrays_give_what_tensors_give(outer: str) -> None:
    for (name, inner), i, j, point in itertools.product(INNER.items(), (0, 1), (0, 1), POINTS):
        expected = flat(TRANSFORMS[outer](inner(mixed, i), j)(*[tape.tensor(x) for x in point]))
        found = TRANSFORMS[outer](inner(mixed, i), j)(*point)
        for a, b in zip(flat(found), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=f"{outer} by {j} of {name} by {i}")


@pytest.mark.quick
def test_a_mixed_derivative_of_numbers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i, j in ((0, 1), (1, 0)):
            found = func.grad(func.grad(lambda x, y: x * x * y * y * y, i), j)(2.0, 3.0)
            assert type(found) is float
            assert found == pytest.approx(6 * 2.0 * 3.0**2)
        structure = func.grad(lambda p: func.grad(lambda x: p["a"] * x * x)(3.0) * p["b"])({"a": 2.0, "b": 5.0})
        assert structure == {"a": 30.0, "b": 12.0}
        outer = func.grad(lambda y: func.vmap(lambda r: r * y)(np.array([1.0, 2.0])).sum())
        assert outer(4.0) == 3.0


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
def test_an_inner_gradient_at_a_number_within_a_compiled_function() -> None:
    def outer(y: Any) -> Any:
        return tape.value_and_grad(lambda x: tape.sin(x) * y * y)(2.0)[1] * 1.0

    compiled = tape.compile(tape.value_and_grad(outer))
    for k in range(6):
        value, gradient = compiled(float(k))
        assert (value, gradient) == pytest.approx((np.cos(2.0) * k * k, 2 * k * np.cos(2.0)))


@pytest.mark.quick
def test_a_compiled_gradient_is_differentiated_by_what_it_closes_over() -> None:
    def outer(y: Any) -> Any:
        compiled = tape.compile(tape.value_and_grad(lambda x: (x * x * y).sum()))
        value, gradient = [compiled(np.ones(2)) for _ in range(4)][-1]
        return value + (gradient * 1.0).sum()

    assert [func.grad(outer)(float(k)) for k in range(3)] == [6.0] * 3
