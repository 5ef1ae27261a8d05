"""Transforms and decorators around each other, compiled: each pair does what the plain composition does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.representatives import few

Function = Callable[..., Any]


def loss(x: Any, k: float = 1.0) -> Any:
    return (tape.sin(x) * x * x * k).sum()


def times(result: Any, factor: float) -> Any:
    return tuple(times(x, factor) for x in result) if isinstance(result, tuple) else result * factor


def tripled(function: Function) -> Function:
    """A decorator as users write them; it does something that is seen."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return times(function(*args, **kwargs), 3.0)

    return wrapper


class Negated:
    """A decorator that is an object."""

    def __init__(self, function: Function) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return times(self.function(*args, **kwargs), -1.0)


class Halving:
    """An object with a method."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def halved(self, *args: Any, **kwargs: Any) -> Any:
        return times(self.function(*args, **kwargs), 0.5)


def scalar(function: Function) -> Function:
    """Return a function whose result can be differentiated, with the attributes of that function."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        while isinstance(result, tuple):
            result = result[0]
        return (result * 1.0).sum()

    return wrapper


def pulled(function: Function) -> Function:
    return lambda x, **kwargs: tape.func.vjp(lambda y: scalar(function)(y, **kwargs), x)[1](1.0)


def pushed(function: Function) -> Function:
    return lambda x, **kwargs: tape.func.jvp(lambda y: scalar(function)(y, **kwargs), (x,), (np.array([1.5, 0.5]),))


def mapped(function: Function) -> Function:
    return lambda x, **kwargs: tape.vmap(functools.partial(function, **kwargs))(x * np.ones((2, 1)))


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "value_and_grad": lambda f: tape.value_and_grad(scalar(f)),
    "grad": lambda f: tape.func.grad(scalar(f)),
    "grad_and_value": lambda f: tape.func.grad_and_value(scalar(f)),
    "vjp": pulled,
    "jvp": pushed,
    "jacrev": tape.func.jacrev,
    "jacfwd": tape.func.jacfwd,
    "hessian": tape.func.hessian,
    "vmap": mapped,
    "wraps": tripled,
    "object": Negated,
    "method": lambda f: Halving(f).halved,
    "partial": lambda f: functools.partial(f, k=1.25),
    "staticmethod": lambda f: staticmethod(tripled(f)),
    "compile": tape.compile,
}


def flat(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return [part for x in result for part in flat(x)]
    return [np.asarray(result, np.float64)]


@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")  # some pairs stay dynamic, as in forward mode
@pytest.mark.parametrize("step", few([4, 1]))
@pytest.mark.parametrize("outer", TRANSFORMS)
def test_a_compiled_pair_does_what_the_plain_pair_does(outer: str, step: int) -> None:
    """Around each one of four: each is outside and inside in every run, all pairs are exhaustive."""
    points = np.random.default_rng(1).normal(size=(4, 2))
    calls = [(x, kwargs) for kwargs in ({}, {"k": 2.0}) for x in points]
    for inner, transform in [*TRANSFORMS.items()][[*TRANSFORMS].index(outer) % step :: step]:
        plain = TRANSFORMS[outer](transform(loss))
        compiled = tape.compile(TRANSFORMS[outer](transform(loss)), check="never")
        for x, kwargs in calls:
            one, other = flat(plain(x, **kwargs)), flat(compiled(x, **kwargs))
            assert [a.shape for a in one] == [a.shape for a in other], (inner, outer)
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-9, err_msg=f"{outer} of {inner}")


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")  # in forward mode
def test_what_is_around_a_gradient_is_compiled_with_it() -> None:
    gradient = tape.func.grad(loss)
    for around in (tape.func.jacrev, tape.func.jacfwd, tripled, scalar, Negated):
        plain, compiled = around(gradient), tape.compile(around(gradient), check="never")
        for x in np.random.default_rng(2).normal(size=(4, 2)):
            np.testing.assert_allclose(compiled(x), plain(x), rtol=1e-12)
    rows = np.random.default_rng(3).normal(size=(5, 3, 2))
    compiled = tape.compile(tape.vmap(gradient), check="never")
    for x in rows:
        np.testing.assert_allclose(compiled(x), tape.vmap(gradient)(x), rtol=1e-12)


@pytest.mark.quick
def test_a_gradient_as_a_method_is_bound_before_it_is_compiled() -> None:
    class Model:
        @functools.partial(tape.value_and_grad, argnums=1)
        def fit(self, x: Any) -> Any:
            return (x * x * self.k).sum()

        def __init__(self, k: float) -> None:
            self.k = k

    compiled = tape.compile(Model(3.0).fit, check="never")
    for x in np.random.default_rng(2).normal(size=(4, 2)):
        value, gradient = compiled(x)
        assert value == pytest.approx((3 * x * x).sum())
        np.testing.assert_allclose(gradient, 6 * x)


PICKS: dict[str, Function] = {
    "elements": lambda x: x[0, 1] * x[2, 3] ** 2,
    "rows": lambda x: (x[1] * x[2] * x[-1]).sum(),
    "columns": lambda x: (x[:, 1] * x[..., 2] ** 2).sum(),
    "turned": lambda x: (x.mT[1] * x.mT[1, 2] * (x * 2.0)[2, 0]).sum(),
    "reversed": lambda x: (x.flip(0)[0] * x[:, ::2][0, 1]).sum(),
    "one of one": lambda x: x[:, None][1, 0, 2] * x[None][0, 1, 3],
    "written": lambda x: (y := x.clone(), y[1].mul_(x[0]), (y * y[1, 1]).sum())[-1],
    "in a loop": lambda x: sum(x[k % 3, k % 4] * x[(k + 1) % 3, 0] for k in range(12)),
    "many slices": lambda x: sum((x.repeat(9, 9)[k % 5 : 9 + k // 5, k % 7 : 25] ** 2).mean() for k in range(80)),
    "backwards": lambda x: sum((x.flip(1).T[k % 4, None, k % 3 :, None] ** 2).sum() for k in range(80)),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", PICKS)
def test_views_by_indices_are_differentiated_twice(name: str) -> None:
    """Programs know them by where they begin."""
    function = PICKS[name]
    compiled = tape.compile(function, mode="eager")
    for k in range(6):
        value, found = np.random.default_rng(k).normal(size=(3, 4)), []
        for f in (function, compiled):
            x = tape.tensor(value, requires_grad=True)
            (slope,) = tape.autograd.grad(f(x), x, create_graph=True)
            (slope * slope).sum().backward()
            plain = x.detach()
            hessian, pushed = tape.func.hessian(f)(plain), tape.func.jvp(f, (plain,), (plain,))[1]
            found.append([np.asarray(a.detach()) for a in (slope, x.grad, hessian, pushed, tape.vmap(f)(x[None]))])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)
