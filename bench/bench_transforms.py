"""The ways of asking for derivatives, on a small graph: how much they cost beside backward(), and PyTorch's."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.bars import (
    BEYOND_BACKWARD,
    MAPPED,
    PAIRS,
    TINY_BEYOND_BACKWARD,
    TINY_TRANSFORMS,
    TRANSFORMS,
    Scoreboard,
)
from bench.rows import pytorch, tape
from bench.workloads import rosenbrock
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

POINT, ROWS = np.linspace(-1.2, 1.3, 10), np.linspace(-1.2, 1.3, 50).reshape(5, 10)


def _ways(lib: Any) -> dict[str, Callable[[], Any]]:
    """Return each way, of a leaf that is kept, or of plain tensors."""
    x = lib.tensor(POINT, dtype=lib.float64, requires_grad=True)
    plain, rows = lib.tensor(POINT, dtype=lib.float64), lib.tensor(ROWS, dtype=lib.float64)
    grad = lib.autograd.grad

    def f(v: Any) -> Any:
        return rosenbrock(lib, v)

    def backward() -> Any:
        x.grad = None
        f(x).backward()
        return x.grad

    def arrays() -> Any:
        leaf = lib.tensor(POINT, dtype=lib.float64, requires_grad=True)
        value = f(leaf)
        return grad(value, leaf)[0].numpy(), value.item()

    def twice() -> Any:
        (first,) = grad(f(x), x, create_graph=True)
        return grad((first * x).sum(), x)[0]

    def anew() -> Any:
        leaf = lib.tensor(POINT, dtype=lib.float64, requires_grad=True)
        f(leaf).backward()
        return leaf.grad

    def vjp() -> Any:
        _, pull = lib.func.vjp(f, plain)
        return pull(one)[0]

    one = lib.tensor(1.0, dtype=lib.float64)
    of_func, mapped, each = lib.func.grad(f), lib.vmap(f), lib.vmap(lib.func.grad(f))
    with_value = lib.func.grad_and_value(f)
    if hasattr(lib, "value_and_grad"):
        both = lib.value_and_grad(f)
        arrays = lambda: both(POINT)[::-1]  # noqa: E731
    return {
        "backward()": backward,
        "autograd.grad": lambda: grad(f(x), x)[0],
        "value_and_grad of arrays": arrays,
        "func.grad": lambda: of_func(plain),
        "backward() of a new leaf": anew,
        "autograd.grad of lists, a gradient given": lambda: grad([f(x)], [x], [one])[0],
        "autograd.grad, graph retained": lambda: grad(f(x), x, retain_graph=True)[0],
        "func.grad_and_value": lambda: with_value(plain),
        "func.vjp": vjp,
        "grad of grad": twice,
        "vmap": lambda: mapped(rows),
        "vmap of func.grad": lambda: each(rows),
    }


def _tiny_ways(lib: Any) -> dict[str, Callable[[], Any]]:
    """Return each way for a graph of four scalars: by leaves that are kept, or by all four arguments."""
    numbers, four = (1.5, 2.5, 0.5, 0.7), (0, 1, 2, 3)
    leaves = [lib.tensor(v, dtype=lib.float64, requires_grad=True) for v in numbers]
    plain = [lib.tensor(v, dtype=lib.float64) for v in numbers]
    one = lib.tensor(1.0, dtype=lib.float64)
    grad, func = lib.autograd.grad, lib.func

    def f(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a * b + lib.log(d) * c

    def backward() -> Any:
        for leaf in leaves:
            leaf.grad = None
        f(*leaves).backward()
        return tuple(leaf.grad for leaf in leaves)

    def numbers_in() -> Any:
        own = [lib.tensor(v, dtype=lib.float64, requires_grad=True) for v in numbers]
        value = f(*own)
        return tuple(g.item() for g in grad(value, own))

    of_func, with_value = func.grad(f, argnums=four), func.grad_and_value(f, argnums=four)
    if hasattr(lib, "value_and_grad"):
        both = lib.value_and_grad(f, argnums=four)
        numbers_in = lambda: both(*numbers)[1]  # noqa: E731
    return {
        "backward()": backward,
        "autograd.grad": lambda: grad(f(*leaves), leaves),
        "autograd.grad, a gradient given": lambda: grad(f(*leaves), leaves, one),
        "value_and_grad of numbers": numbers_in,
        "func.grad": lambda: of_func(*plain),
        "func.grad_and_value": lambda: with_value(*plain)[0],
        "func.vjp": lambda: func.vjp(f, *plain)[1](one),
    }


def _mapped(lib: Any) -> dict[str, Callable[[], Any]]:
    """Return each way of mapping a small function."""
    func, vmap, rng = lib.func, lib.func.vmap, np.random.default_rng(0)

    def tensor(*shape: int) -> Any:
        return lib.tensor(rng.uniform(-1, 1, shape), dtype=lib.float64)

    def wave(x: Any, y: Any) -> Any:
        return x * y + lib.sin(x)

    def field(x: Any) -> Any:
        return lib.sin(x) * x.sum()

    def pulled(x: Any, cotangent: Any) -> Any:
        return func.vjp(field, x)[1](cotangent)[0]

    def loss(layers: Any, x: Any, y: Any) -> Any:
        (w, b), (v, c) = layers["first"], layers["second"]
        return ((v @ lib.tanh(w @ x + b) + c - y) ** 2).sum()

    a, b, x, y = tensor(6), tensor(6), tensor(8, 4), tensor(8, 4)
    w, bias, wanted, rows = tensor(3, 4), tensor(3), tensor(8), lib.tensor(ROWS, dtype=lib.float64)
    layers = {"first": (tensor(8, 4), tensor(8)), "second": (tensor(1, 8), tensor(1))}
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "of numbers": (vmap(wave), (a, b)),
        "of a linear layer": (vmap(lambda x, w, b: lib.tanh(w @ x + b), in_dims=(0, None, None)), (x, w, bias)),
        "in vmap": (vmap(vmap(wave, in_dims=(None, 0)), in_dims=(0, None)), (a, b)),
        "by chunks": (vmap(lambda v: rosenbrock(lib, v), chunk_size=2), (rows,)),
        "of func.grad of a number": (vmap(func.grad(lambda v: lib.sin(v) * v)), (a,)),
        "of func.vjp": (vmap(pulled), (x, y)),
        "of func.jacrev": (vmap(func.jacrev(field)), (x,)),
        "of func.hessian": (vmap(func.hessian(lambda v: rosenbrock(lib, v))), (rows,)),
        "of an MLP's gradients": (
            lambda *given: tuple(sum(vmap(func.grad(loss), in_dims=(None, 0, 0))(*given).values(), ())),
            (layers, x, wanted),
        ),
    }
    return {way: (lambda f=f, given=given: f(*given)) for way, (f, given) in calls.items()}


def _check(ours: Any, theirs: Any) -> None:
    """Assert that both give the same numbers."""
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (ours, theirs)), strict=True):
        arrays = [np.asarray(getattr(x, "detach", lambda x=x: x)()) for x in (a, b)]
        np.testing.assert_allclose(arrays[0], arrays[1], rtol=1e-10)


@pytest.mark.quick
@pytest.mark.parametrize("way", TRANSFORMS)
def test_beside_pytorch(way: str, scoreboard: Scoreboard) -> None:
    """The interleaved ratio of a way."""
    ours, theirs = _ways(tape())[way], _ways(pytorch())[way]
    _check(ours(), theirs())
    measured = ratio(theirs, ours, pairs=PAIRS)
    scoreboard.add(TRANSFORMS[way], measured.median, str(measured))


@pytest.mark.quick
@pytest.mark.parametrize("way", TINY_TRANSFORMS)
def test_tiny_beside_pytorch(way: str, scoreboard: Scoreboard) -> None:
    """The interleaved ratio of a way, of four scalars."""
    ours, theirs = _tiny_ways(tape())[way], _tiny_ways(pytorch())[way]
    _check(ours(), theirs())
    measured = ratio(theirs, ours, pairs=PAIRS)
    scoreboard.add(TINY_TRANSFORMS[way], measured.median, str(measured))


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch's own, in its forward mode
@pytest.mark.parametrize("way", MAPPED)
def test_mapped_beside_pytorch(way: str, scoreboard: Scoreboard) -> None:
    """The interleaved ratio of a way of mapping."""
    ours, theirs = _mapped(tape())[way], _mapped(pytorch())[way]
    _check(ours(), theirs())
    measured = ratio(theirs, ours, pairs=PAIRS)
    scoreboard.add(MAPPED[way], measured.median, str(measured))


@pytest.mark.quick
@pytest.mark.parametrize("way", BEYOND_BACKWARD)
def test_beside_backward(way: str, scoreboard: Scoreboard) -> None:
    """What a way costs more than backward()."""
    figure = _beyond(_ways(tape()), way)
    scoreboard.add(BEYOND_BACKWARD[way], figure, f"{figure:.1f} us")


@pytest.mark.quick
@pytest.mark.parametrize("way", TINY_BEYOND_BACKWARD)
def test_tiny_beside_backward(way: str, scoreboard: Scoreboard) -> None:
    """What a way costs more than backward(), of four scalars."""
    figure = _beyond(_tiny_ways(tape()), way)
    scoreboard.add(TINY_BEYOND_BACKWARD[way], figure, f"{figure:.1f} us")


def _beyond(ways: dict[str, Callable[[], Any]], way: str) -> float:
    """Return the median difference of interleaved rounds to backward(), of processor time, in microseconds."""
    rounds = [(_seconds(ways[way]) - _seconds(ways["backward()"])) * 1e6 for _ in range(4 * PAIRS)]
    return median(rounds[PAIRS:])


def _seconds(run: Callable[[], object], calls: int = 50) -> float:
    start = time.thread_time()
    for _ in range(calls):
        run()
    return (time.thread_time() - start) / calls
