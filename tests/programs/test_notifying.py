"""What is recorded of a program natively is what Python would have recorded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.tensors import recorder as recorders

OUTSIDE = np.array([0.5, 1.5])


def chain(x: Any) -> Any:
    """Numbers of all kinds, from either side."""
    for k in range(3):
        x = 2.0 * x - x * 3 + (x + True) / 2 - k / x
    return x


def branches(x: Any) -> Any:
    """Results that nobody wants, and constants that require grad themselves."""
    w = tape.tensor(2.0, requires_grad=True)
    with tape.no_grad():
        y = x * w
    return x * y + w * w * x + x.detach() * x


def in_place(x: Any) -> Any:
    """Writes between uses, of results and of memory from outside."""
    a = x * tape.tensor(OUTSIDE)
    a += x
    b = a * x
    a[0] = b[1] * x
    a.mul_(b)
    return (a * b).sum() * x


def shapes(x: Any) -> Any:
    """Views, casts, reductions, joins, masks."""
    a = tape.stack([x, x * x, x - 1])
    b = a[1:] * a[:-1]
    b = tape.where(b > 0.1, b, b * b) + b.float().double()
    return b.sum() + a.max() * x + a.argmax() * x


def turned(x: Any) -> Any:
    """A result that gets another order in place after its last use."""
    a = tape.stack([tape.stack([x, x * 2.0]), tape.stack([x * 3.0, x])])
    b = a * a
    a.t_()
    return (b * b).sum()


def many(x: Any) -> Any:
    """More operands than are looked at natively, and ops of one and of three."""
    return tape.cat([x.reshape(1) * float(k) for k in range(12)]).sum() + tape.addcmul(x, x, x) - x.abs().sqrt()


FUNCTIONS = (chain, branches, in_place, shapes, turned, many)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_notes_are_those_of_python(function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(program: Any) -> list[Any]:
        recipe = program._recipe
        nodes = [
            (n.spec, n.base, n.offset, n.buffer_offset, n.differentiable, n.family, n.argument) for n in recipe.nodes
        ]
        steps = recipe.steps
        kinds = [item for k in steps.kinds for item in (k.op, k.form, k.count)]
        return [str(program), nodes, list(steps.words), *steps.numbers, *kinds]

    for _ in range(2):  # forms are known the second time
        native = tape.record(function, 0.75)
    with monkeypatch.context() as context:
        context.setattr(recorders.Tables, "connect", lambda *_, **__: None)
        plain = tape.record(function, 0.75)
    for one, other in zip(parts(native), parts(plain), strict=True):
        assert one is other or one == other
        assert type(one) is type(other)
    for point in (0.75, -0.5):
        assert native.value_and_grad(point) == plain.value_and_grad(point)
    x = tape.tensor(-0.5, requires_grad=True)
    y = function(x)
    y.backward()
    value, (gradient,) = native.value_and_grad(-0.5)
    assert value == y.item()
    assert gradient == pytest.approx(x.grad.item(), rel=1e-13)


def test_the_recording_is_let_go() -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        y = x
        for _ in range(10):
            y = y * 1.5 + x
        seen.append(weakref.ref(y))
        return y

    gc.disable()
    try:
        program = tape.record(function, 1.0)
        assert seen[0]() is None  # at once: nothing waits for the collector
    finally:
        gc.enable()
    assert program.value_and_grad(1.0)[0] == pytest.approx(1.5**10 + sum(1.5**k for k in range(10)))


def test_recordings_within_recordings() -> None:
    inner = tape.record(chain, 0.75)
    outer = tape.record(lambda x: inner(x) * x, 0.75)
    value, (gradient,) = outer.value_and_grad(0.5)
    expected, slope = tape.value_and_grad(lambda x: chain(x) * x)(0.5)
    assert value == expected
    assert gradient == pytest.approx(slope, rel=1e-13)


REPEATED: dict[str, Callable[[Any], Any]] = {
    "numbers of three kinds": lambda x: (x * 2 + 0.25) / 3.0 - x * np.float64(0.5),
    "a number twice": lambda x: x * 0.5 + 0.5,
    "an operand twice": lambda x: (x * x).sin(),
    "casts": lambda x: (x.float() * 0.5).double() + x,
    "a dtype's own number": lambda x: x.float() * 0.1 + 1,
    "temporaries": lambda x: tape.logaddexp(x, x * 0.5) - 0.1,
    "ties, ever others": lambda x: x * 0.9 - 0.1 * (x - x.detach() + (x.detach() > 0.2)).amax(0, keepdim=True),
    "counts": lambda x: x - x.mean(0, keepdim=True) * 0.5,
    "joins": lambda x: tape.cat([x[1:], x[:1] * 0.5]),
    "parts": lambda x: x[:, ::2].sum(1, keepdim=True) * 0.1 + x,
    "products": lambda x: tape.tanh(x @ x) + x,
    "writes": lambda x: x.clone().mul_(0.5).add_(x),
    "choices": lambda x: tape.where(x > 0.5, x * 0.5, x + 0.1),
}


CLOSE = {"float64": 1e-12, "float32": 1e-6}
"""How alike gradients are that replay and a sweep round in other orders, by the dtype that is swept."""


@pytest.mark.parametrize("times", [3, 80])  # few steps of a kind are planned one by one, many at once
@pytest.mark.parametrize("name", REPEATED)
def test_what_is_repeated_is_planned_at_once(name: str, times: int) -> None:
    dtypes = []

    def function(x: Any) -> Any:
        y = x
        for _ in range(times):
            y = REPEATED[name](y)
        dtypes.append(np.dtype(y.dtype).name)
        return (y.double() * np.arange(1.0, 10.0).reshape(3, 3)).sum()

    rng = np.random.default_rng(7)
    program = tape.record(function, rng.standard_normal((3, 3)))
    given = 0.5 * rng.standard_normal((3, 3))
    x = tape.tensor(given, requires_grad=True)
    y = function(x)
    y.backward()
    value, (gradient,) = program.value_and_grad(given)
    assert value == y.item()
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=CLOSE[dtypes[-1]], atol=1e-13)
