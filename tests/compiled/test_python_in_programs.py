"""Calls of an ``autograd.Function``, and gradients taken inside, in compiled functions: as in dynamic mode."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.autograd import Function
from tape.compiled.function_calls import Inside
from tape.compiled.recordings import CallRecorder
from tape.errors import CompileWarning
from tape.tensors.modes import Observer
from tape.tensors.pytrees import flattened
from tape.tensors.recorder import ProgramRecorder
from tape.transforms.batched_run import Example
from tests.support.rounding import assert_same

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("few_passes")]

CALLS = 8


class Square(Function):
    """NumPy computes the value."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return tape.tensor(np.square(x.numpy()))

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * g * x


class ScaledAndSummed(Function):
    """Two results of two shapes, a number among the arguments, a keyword."""

    @staticmethod
    def forward(ctx: Any, x: Any, k: int, y: Any = None) -> Any:
        ctx.save_for_backward(y)
        ctx.k = k
        return x * k, (y * y).sum()

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * ctx.k, None, 2 * h * y


class Product(Function):
    """The form with ``setup_context``."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del output
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return (g * y if ctx.needs_input_grad[0] else None), (g * x if ctx.needs_input_grad[1] else None)


class Sorted(Function):
    """A second result without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        order = np.argsort(x.numpy())
        ctx.order = order
        ranks = tape.tensor(np.argsort(order).astype(float))
        ctx.mark_non_differentiable(ranks)
        return tape.tensor(x.numpy()[order]), ranks

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        out = np.empty(len(ctx.order))
        out[ctx.order] = g.numpy()
        return tape.tensor(out)


def repeated(x: Any, y: Any) -> Any:
    for _ in range(3):
        x = Square.apply(x) * 0.1 + y
    return x


def until(x: Any, y: Any) -> Any:
    while x.sum() > 1:
        x = Square.apply(x) * 0.01
    return x * y


def branched(x: Any, y: Any) -> Any:
    z = Square.apply(x)
    return z * y if z.sum() > 20 else z - y


def two_results(x: Any, y: Any) -> Any:
    scaled, total = ScaledAndSummed.apply(x * 2, 3, y * 1)
    return scaled * y + total


def sorted_and_ranked(x: Any, y: Any) -> Any:
    values, ranks = Sorted.apply(tape.sin(x))
    return values * y + ranks


def force(q: Any) -> Any:
    return tape.func.grad(lambda z: (tape.cos(z) * z).sum())(q)


def leapfrog(x: Any, y: Any) -> Any:
    for _ in range(3):
        y = y - 0.1 * force(x.detach())
        x = x + 0.1 * y
    return x, y


def by_a_leaf(x: Any, y: Any) -> Any:
    q = x.detach().requires_grad_()
    (g,) = tape.autograd.grad((q**3 * y.detach()).sum(), q)
    return g * 2 + x * y


def by_two(x: Any, y: Any) -> Any:
    q, p = x.detach().requires_grad_(), y.detach().requires_grad_()
    a, b = tape.autograd.grad([(q * p).sum(), (q * q).sum()], [q, p])
    return a + b * x


def rows(x: Any, y: Any) -> Any:
    return tape.func.jacrev(lambda z: z[1:] * z[:-1])(x.detach()).sum(0) * y


def mapped(x: Any, y: Any) -> Any:
    return tape.func.vmap(tape.func.grad(lambda z: tape.sin(z) * z))(x.detach()) * y


def unused(x: Any, y: Any) -> Any:
    q, p = x.detach().requires_grad_(), y.detach().requires_grad_()
    a, b = tape.autograd.grad((q * q).sum(), [q, p], allow_unused=True)
    assert b is None
    return a * y


WEIGHTS = tape.tensor(np.random.default_rng(0).normal(size=(3, 3)))
EXPONENT = tape.tensor(1.7)
of = tape.func.grad


def moved_in_place(x: Any, y: Any) -> Any:
    q, p = x * 1, y * 1
    for _ in range(3):
        p -= 0.1 * of(lambda z: tape.cos(z).sum())(q)
        q += 0.1 * p
    return q, p


def moved_in_parts(x: Any, y: Any) -> Any:
    q, p = x * 1, y * 1
    for _ in range(3):
        p[1:] -= 0.1 * of(lambda z: tape.cos(z).sum())(q)[1:]
        q[:] += 0.1 * p
    return q, p


def of_a_gradient(x: Any, y: Any) -> Any:
    q = x.detach().requires_grad_()
    (g,) = tape.autograd.grad((q**3 * y).sum(), q, create_graph=True)
    return tape.autograd.grad((g * g).sum(), q)[0] * x


def branched_by_a_gradient(x: Any, y: Any) -> Any:
    g = of(lambda q: (q**3).sum())(x)
    return g * y if g.sum() > 20 else g - y


def by_both(x: Any, y: Any) -> Any:
    g, value = tape.func.grad_and_value(lambda q: (q**3).sum())(x)
    return value * g * y


def after_a_write(x: Any, y: Any) -> Any:
    q = (x * 1).detach().requires_grad_()
    z = q * q
    z[0] = 0.0
    return tape.autograd.grad(z.sum(), q)[0] * y


def newton(x: Any, y: Any) -> Any:
    slope = of(lambda q: ((q * q - 2 - y * y) ** 2).sum())
    while tape.abs(slope(x)).max() > 1e-3:
        x = x - 0.01 * slope(x)
    return x


DIFFERENTIATED: list[Callable[..., Any]] = [
    lambda x, y: of(lambda q: (tape.tanh(q @ WEIGHTS) ** 2).sum())(x) * y,
    lambda x, y: of(lambda q: tape.tanh(WEIGHTS @ q + y).mean())(x) * x,
    lambda x, y: of(lambda q: tape.exp((q @ q.T) * 0.01).sum())(tape.outer(x, y) * 0.1) @ y,
    lambda x, y: of(lambda q: (q / y.sum() * EXPONENT).sum() * (q**EXPONENT).sum())(tape.abs(x) + 1) * y,
    lambda x, y: of(lambda q: ((q * q + 1) ** 1.5).sum() + (q**3).sum())(x) + y,
    lambda x, y: of(lambda q: ((q * q + 1) ** (y * 0.1)).sum())(x) * x,
    lambda x, y: of(lambda q: (tape.sin(q[2:] - 2 * q[1:-1] + q[:-2]) ** 2).sum() + (q**4 * y).sum())(x),
    lambda x, y: of(lambda q: q[0] * q[1] * q[2] * y[0])(x),
    lambda x, y: of(lambda q: tape.logsumexp(q * y, 0))(x),
    lambda x, y: of(lambda q: ((q - q.mean()) ** 2).mean() * q.sum())(x) * y,
    lambda x, y: of(lambda q: (tape.cat([q, q * y]) ** 2).sum() + (tape.stack([q, y]) ** 3).sum())(x),
    lambda x, y: of(lambda q: tape.sin(q + y[:, None]).sum(0).sum())(x) * y,
    lambda x, y: of(of(lambda q: tape.sin(q) * q**4))(x.sum()) * y,
    lambda x, y: of(of(of(lambda q: tape.sin(q) * q**4)))(x.mean()) * y,
    lambda x, y: of(of(lambda t: (tape.tanh(t * x) * y).sum()))(y.mean()) + x,
    lambda x, y: tape.func.hessian(lambda q: (q**3 * y).sum())(x).diagonal() * x,
    lambda x, y: tape.func.vjp(lambda q: tape.sin(q) * q.sum(), x)[1](y)[0] * x,
    lambda x, y: tape.func.jacrev(lambda q: tape.sin(q) * q.sum())(x) @ y,
    lambda x, y: tape.func.vmap(of(lambda q: tape.sin(q) * q))(x) * y,
    lambda x, y: of(lambda q: (q.detach() * q * q * y).sum())(x),
    lambda x, y: sum(of(lambda q, k=k: (q**3 * k).sum())(x) for k in (1, 2, 3)) * y,
    by_both,
    moved_in_place,
    moved_in_parts,
    of_a_gradient,
    branched_by_a_gradient,
    newton,
    after_a_write,
    lambda x, y: of(lambda p: of(lambda q: (q.relu() * p).sum())(p * 1).sum())(x - 1) * y,
]

FUNCTIONS: list[Callable[..., Any]] = [
    *DIFFERENTIATED,
    lambda x, y: Square.apply(tape.sin(x)) * y,
    lambda x, y: Square.apply(x) + y,
    lambda x, y: Square.apply(x.detach()) + x * y,
    lambda x, y: tape.exp(-Product.apply(x, y)),
    lambda x, y: Product.apply(x, x) * y,
    lambda x, y: Product.apply(Square.apply(x), Square.apply(y))[1:].sum() * x,
    two_results,
    sorted_and_ranked,
    repeated,
    until,
    branched,
    leapfrog,
    by_a_leaf,
    by_two,
    rows,
    mapped,
    unused,
]


TAKE_GRADIENTS = {*DIFFERENTIATED, leapfrog, by_a_leaf, by_two, rows, mapped}


def arrays(k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(k)
    return rng.normal(size=3) * (k + 1), rng.normal(size=3) + 1


def plain(x: Any) -> list[Any]:
    return [np.asarray(leaf.detach().numpy() if isinstance(leaf, tape.Tensor) else leaf) for leaf in flattened(x)[0]]


def same(one: Any, other: Any, f: Any = None) -> None:
    """Compare bit for bit; gradients taken inside but for rounding: a program may sum them in another order."""
    for a, b in zip(plain(one), plain(other), strict=True):
        if f in TAKE_GRADIENTS:
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
        else:
            assert_same(a, b)


def replays(compiled: Any) -> int:
    return sum(program.hits for program in compiled.programs)


@pytest.mark.parametrize("check", ["always", "never"])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_calls_of_python_are_replayed_with_the_values_of_dynamic_mode(f: Callable[..., Any], check: str) -> None:
    for make in (np.copy, tape.tensor):
        compiled = tape.compile(f, check=check)
        for k in range(CALLS):
            same(compiled(*map(make, arrays(k))), f(*map(tape.tensor, arrays(k))), f)
        assert replays(compiled) >= 3, compiled.explain()


@pytest.mark.parametrize("f", FUNCTIONS)
def test_their_gradients_are_those_of_dynamic_mode(f: Callable[..., Any]) -> None:
    def loss(x: Any, y: Any) -> Any:
        return sum((part * part).sum() for part in flattened(f(x, y))[0])

    compiled = tape.compile(tape.value_and_grad(loss, (0, 1)))
    for k in range(CALLS):
        value, gradients = compiled(*arrays(k))
        expected, expected_gradients = tape.value_and_grad(loss, (0, 1))(*arrays(k))
        same(value, expected, f)
        for g, e in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-13, atol=1e-13)
    assert replays(compiled) >= 3, compiled.explain()


@pytest.mark.parametrize("f", FUNCTIONS)
def test_on_tensors_that_require_grad_they_are_part_of_the_graph(f: Callable[..., Any]) -> None:
    compiled = tape.compile(f)
    for k in range(CALLS):
        pairs = [[tape.tensor(a, requires_grad=True) for a in arrays(k)] for _ in range(2)]
        for function, leaves in zip((compiled, f), pairs, strict=True):
            sum((part * part).sum() for part in flattened(function(*leaves))[0]).backward()
        for one, other in zip(*pairs, strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-13, atol=1e-13)
    assert replays(compiled) >= 3, compiled.explain()


def test_a_function_is_called_once_a_replay() -> None:
    calls: list[str] = []

    class Counted(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            del ctx
            calls.append("forward")
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            del ctx
            calls.append("backward")
            return g * 2

    compiled = tape.compile(tape.value_and_grad(lambda x: Counted.apply(x).sum()), check="never")
    for _ in range(CALLS):
        calls.clear()
        compiled(np.ones(3))
        assert calls == ["forward", "backward"]
    assert replays(compiled)


def test_an_error_in_a_function_is_the_callers_and_the_next_call_works() -> None:
    class Picky(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            del ctx
            if x.numpy()[0] < 0:
                raise ArithmeticError("negative")
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            del ctx
            return g * 2

    compiled = tape.compile(lambda x: Picky.apply(x + 1) * 3)
    for k in range(CALLS):
        same(compiled(np.arange(3.0) + k), (np.arange(3.0) + k + 1) * 6)
        with pytest.raises(ArithmeticError, match="negative"):
            compiled(np.full(3, -2.0))
    assert replays(compiled)


def test_a_function_that_returns_another_shape_goes_another_way() -> None:
    class Trimmed(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            del ctx
            return tape.tensor(x.numpy()[x.numpy() > 0])

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            del ctx
            return g

    compiled = tape.compile(lambda x: Trimmed.apply(x) * 2, check="never")
    for _ in range(4):
        same(compiled(np.array([1.0, -1.0])), np.array([2.0]))
    same(compiled(np.array([1.0, 1.0])), np.array([2.0, 2.0]))


def test_functions_in_threads() -> None:
    compiled = tape.compile(tape.value_and_grad(lambda x: Square.apply(tape.sin(x)).sum()))
    for k in range(3):
        compiled(np.arange(3.0) + k)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for k in range(200):
            x = np.arange(3.0) + seed + 0.01 * k
            value, gradient = compiled(x)
            if abs(value - (np.sin(x) ** 2).sum()) > 1e-12 or np.abs(gradient - np.sin(2 * x)).max() > 1e-12:
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _uses_another(x: Any) -> Any:
    y = x * 2

    class Reaches(Function):
        @staticmethod
        def forward(ctx: Any, z: Any) -> Any:
            del ctx
            return z + y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            del ctx
            return g

    return Reaches.apply(x)


class Halved(Function):
    """Changes its argument."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x *= 0.5
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        del ctx
        return g * 0.5


def _after_a_write(x: Any) -> Any:
    def written(q: Any) -> Any:
        u = q * 1.0
        y = u * u
        u[1] = q[0]
        return (y * u).sum()

    return of(written)(x)


DYNAMIC: dict[str, Callable[[Any], Any]] = {
    "a Function that uses more of the call than its arguments": _uses_another,
    "a Function that changes its arguments": lambda x: Halved.apply(x * 1) + 1,
    "the gradient of MulBackward0": _after_a_write,
    "the gradient of SquareBackward": lambda x: of(lambda q: (Square.apply(q) * q).sum())(x * 1),
    "the gradient of SortBackward0": lambda x: of(lambda p: of(lambda q: (q.sort()[0] * p * q).sum())(p * 1).sum())(
        x * 1
    ),
}


@pytest.mark.parametrize("reason", DYNAMIC)
def test_what_no_program_holds_stays_dynamic_and_says_so(reason: str) -> None:
    compiled = tape.compile(DYNAMIC[reason])
    with pytest.warns(CompileWarning, match=rf"{reason}.* at .*test_python_in_programs.py:\d+"):
        results = [compiled(np.arange(3.0) + k) for k in range(4)]
    for k, result in enumerate(results):
        same(result, DYNAMIC[reason](tape.tensor(np.arange(3.0) + k)))
    assert not compiled.programs


def test_a_saved_function_says_that_python_is_needed() -> None:
    compiled = tape.compile(lambda x: Square.apply(x) * 2)
    for k in range(3):
        compiled(np.arange(3.0) + k)
    with pytest.raises(
        NotImplementedError,
        match=r"Python runs Square, an autograd.Function, at .*programs.py:\d+.*; files hold no code: make it of tape",
    ):
        compiled.save("never_written.tape")


OBSERVERS = (ProgramRecorder, CallRecorder, Example, Inside)


@pytest.mark.quick
@pytest.mark.parametrize("observer", OBSERVERS, ids=lambda observer: observer.__name__)
def test_every_recorder_hears_of_everything(observer: type) -> None:
    told = [name for name, member in vars(Observer).items() if callable(member) and not name.startswith("_")]
    assert "note_number" in told
    assert [name for name in told if not callable(getattr(observer, name, None))] == []


def asks(x: Any) -> float:
    """Ask for the values of a tensor in each way that leaves for Python."""
    first = x.detach().reshape(-1)[0]
    shown = first.item() + float(first) + sum(x.tolist()) + x.numpy().sum() + len(x)
    return shown if bool(first > 0) else shown + int(first * 0)


class Asking(Function):
    """Looks at values, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return Square.apply(x) * asks(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x.detach() * asks(x.detach()) * g * g.mean().item()


@pytest.mark.quick
@pytest.mark.parametrize("mode", ["eager", "max"])
def test_functions_look_at_the_values_of_each_call(mode: str) -> None:
    def loss(x: Any) -> Any:
        return (Asking.apply(x) * x).sum() + tape.func.vmap(lambda z: z * z)(x).sum()

    value, both = (tape.compile(f, check="never", mode=mode) for f in (loss, tape.value_and_grad(loss)))
    for k in range(CALLS):
        x = np.random.default_rng(k).normal(size=3)
        np.testing.assert_allclose(value(x), loss(tape.tensor(x)).item(), rtol=1e-13)
        np.testing.assert_allclose(both(x)[1], tape.value_and_grad(loss)(x)[1], rtol=1e-13)
