"""Routines: a record whose rules are NumPy's functions, in every way that a record is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.routine import Routine
from kernels.rules.op import OPS, DeclarationError
from tape.autograd import grad, gradcheck, gradgradcheck
from tape.recording import foreign_calls
from tests.engine.test_hooks import sweep  # noqa: F401 (a fixture)

SQUARE = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, -1.0], [1.0, 0.0, 4.0]])


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Take the planted records out of the registry again."""
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)


def planted(**changes: Any) -> Routine:
    """Declare a routine: the inverse of a matrix, unless told otherwise."""
    given: dict[str, Any] = {
        "name": "planted",
        "doc": "Inverse.",
        "grad_fn": "PlantedBackward0",
        "forward": np.linalg.inv,
        "vjp": lambda g, y: -(y.T @ g @ y.T),
        "jvp": lambda t, y: -(y @ t @ y),
        "samples": (),
    }
    if "forward" not in changes:
        given["forward"] = lambda x: np.linalg.inv(x)  # noqa: PLW0108 (it names its input)
    return Routine(**{**given, **changes})


def split_of(x: Any, *, scale: float) -> Any:
    """Return halves, scaled and squared, and which elements are positive."""
    return scale * x[:2], x[1:] ** 2, x > 0


def two() -> Routine:
    return planted(
        name="pair",
        forward=split_of,
        results=("a", "b"),
        extras=("positive",),
        vjp=lambda g_a, g_b, x, scale: (
            np.concatenate([scale * g_a, np.zeros(1)]) + np.concatenate([np.zeros(1), 2 * x[1:] * g_b])
        ),
        jvp=lambda t, x, scale: (scale * t[:2], 2 * x[1:] * t[1:]),
    )


def inverse(op: Routine, x: Any) -> Any:
    return foreign_calls.call(op, x)


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
def test_gradients_of_any_order() -> None:
    op, x = planted(), tape.tensor(SQUARE, requires_grad=True)
    assert gradcheck(lambda x: inverse(op, x), x)
    assert gradgradcheck(lambda x: inverse(op, x), x)
    (first,) = grad(inverse(op, x).sum(), x, create_graph=True)
    (second,) = grad((first**2).sum(), x, create_graph=True)
    third = grad(second.sum(), x)[0].numpy()
    step = 1e-6 * np.ones((3, 3))

    def slope(at: Any) -> Any:
        t = tape.tensor(at, requires_grad=True)
        (g,) = grad(inverse(op, t).sum(), t, create_graph=True)
        return grad((g**2).sum(), t)[0].numpy()

    along = (slope(SQUARE + step) - slope(SQUARE - step)) / 2e-6
    np.testing.assert_allclose(third, along, rtol=1e-6)


@pytest.mark.usefixtures("sweep")
def test_several_results_and_extras() -> None:
    op, x = two(), tape.tensor([1.0, -2.0, 3.0], requires_grad=True)
    a, b, positive = foreign_calls.call(op, x, scale=3.0)
    assert (a.tolist(), b.tolist(), positive.tolist()) == ([3.0, -6.0], [4.0, 9.0], [True, False, True])
    assert (positive.dtype, positive.requires_grad, a.grad_fn.name()) == (tape.bool, False, "PlantedBackward0")
    for run in (lambda x: foreign_calls.call(op, x, scale=3.0)[:2], lambda x: foreign_calls.call(op, x, scale=3.0)[1]):
        assert gradcheck(run, x)
        assert gradgradcheck(run, x)
    b.sum().backward()  # the first result has no gradient
    assert x.grad.tolist() == [0.0, -4.0, 6.0]


@pytest.mark.usefixtures("sweep")
def test_writes_leave_what_the_rule_needs() -> None:
    op, x = planted(), tape.tensor(SQUARE, requires_grad=True)
    work = x * 1.0
    y = inverse(op, work)
    z = y.sum()
    work[0] = 0.0
    y *= 2.0
    (found,) = grad(z, x)
    (expected,) = grad(inverse(op, x).sum(), x)
    assert found.tolist() == expected.tolist()


@pytest.mark.usefixtures("sweep")
def test_saved_values_may_be_packed() -> None:
    op, x, seen = two(), tape.tensor([1.0, -2.0, 3.0], requires_grad=True), []

    def pack(t: Any) -> Any:
        seen.append(t.shape)
        return t.numpy().tolist()

    with tape.autograd.graph.saved_tensors_hooks(pack, tape.tensor):
        _, b, _ = foreign_calls.call(op, x, scale=1.0)
    b.sum().backward()
    assert (seen, x.grad.tolist()) == ([(3,)], [0.0, -4.0, 6.0])


def test_programs_call_it_forward_and_back() -> None:
    op, pair = planted(), two()

    def run(x: Any) -> Any:
        y = inverse(op, x)
        a, b, _ = foreign_calls.call(pair, y[0], scale=2.0)
        y[1] *= 3.0  # after the inverse, whose rule reads it
        return (a * b).sum() + (y * y).sum()

    program = tape.record(run, SQUARE)
    for at in (SQUARE, SQUARE.T + np.eye(3)):
        value, (gradient,) = program.value_and_grad(at)
        x = tape.tensor(at, requires_grad=True)
        expected = run(x)
        expected.backward()
        assert value == expected.item()
        np.testing.assert_array_equal(gradient, x.grad.numpy())
        assert program(at) == value


def test_extras_that_leave_a_program_are_noticed() -> None:
    pair = two()
    program = tape.record(lambda x: x * foreign_calls.call(pair, x, scale=1.0)[2].tolist()[0], np.ones(3))
    with pytest.raises(RuntimeError, match="left for Python"):
        program(np.ones(3))


@pytest.mark.usefixtures("sweep")
def test_forward_mode_and_batches() -> None:
    op, pair = planted(), two()
    x, t = tape.tensor(SQUARE), tape.tensor(np.arange(9.0).reshape(3, 3))
    y, tangent = tape.func.jvp(lambda x: inverse(op, x), (x,), (t,))
    np.testing.assert_allclose(tangent.numpy(), -y.numpy() @ t.numpy() @ y.numpy())
    jacobian = tape.func.jacfwd(lambda x: foreign_calls.call(pair, x, scale=2.0)[1])(tape.tensor([1.0, 2.0, 3.0]))
    assert jacobian.tolist() == [[0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    again = tape.func.jacrev(lambda x: foreign_calls.call(pair, x, scale=2.0)[1])(tape.tensor([1.0, 2.0, 3.0]))
    assert again.tolist() == jacobian.tolist()
    mapped = tape.func.vmap(lambda x: inverse(op, x).sum())(tape.stack([x, 2 * x]))
    np.testing.assert_allclose(mapped.numpy(), [y.numpy().sum(), y.numpy().sum() / 2])
    without = planted(name="without", jvp=None)
    with pytest.raises(NotImplementedError, match="without: no pushforward"):
        tape.func.jvp(lambda x: foreign_calls.call(without, x), (x,), (t,))


def test_what_is_not_wanted_leaves_no_trace() -> None:
    op, x = planted(), tape.tensor(SQUARE, requires_grad=True)
    with tape.no_grad():
        assert not inverse(op, x).requires_grad
    assert not inverse(op, x.detach()).requires_grad
    constant = planted(name="constant", vjp=None)
    assert not foreign_calls.call(constant, x).requires_grad
    one, two_ = tape.tensor(SQUARE, requires_grad=True), tape.tensor(SQUARE)
    needed: list[Any] = []

    def product(g: Any, a: Any, b: Any, needs: Any) -> Any:
        needed.append(needs)
        return g @ b.T, a.T @ g

    times = planted(name="times", forward=lambda a, b: a @ b, vjp=product, jvp=None)
    foreign_calls.call(times, one, two_).sum().backward()
    assert needed == [(True, False)]
    assert one.grad.tolist() == (np.ones((3, 3)) @ SQUARE.T).tolist()


def test_dtypes_are_promoted() -> None:
    times = planted(name="times", forward=lambda a, b: a * b, vjp=lambda g, a, b: (g * b, g * a), jvp=None)
    a = tape.tensor([1.0, 2.0], dtype=tape.float32, requires_grad=True)
    y = foreign_calls.call(times, a, np.array([3.0, 4.0]))
    y.sum().backward()
    assert (y.dtype, a.grad.dtype, a.grad.tolist()) == (tape.float64, tape.float32, [3.0, 4.0])


def test_a_rule_that_is_wrong_is_named() -> None:
    with pytest.raises(DeclarationError, match=r"planted: a rule asks for \['h'\]"):
        planted(vjp=lambda g, h: g * h)
    wrong = planted(name="wrong", vjp=lambda g: g.sum())
    with pytest.raises(RuntimeError, match="wrong: vjp returned shape"):
        inverse(wrong, tape.tensor(SQUARE, requires_grad=True)).sum().backward()


@pytest.mark.usefixtures("sweep")
def test_windows_that_overlap() -> None:
    """An operand, a root, or a tensor that retains its gradient may meet the same element many times."""
    x, weights = tape.tensor(np.arange(6.0), requires_grad=True), np.arange(12.0).reshape(4, 3)
    w = x.unfold(0, 3, 1)
    w.backward(tape.tensor(weights))
    assert x.grad.tolist() == [0.0, 4.0, 12.0, 21.0, 18.0, 11.0]
    assert gradcheck(lambda x: tape.cumsum(x.unfold(0, 3, 1), 1), x)
    assert gradgradcheck(lambda x: tape.cumsum(x.unfold(0, 3, 1), 1) ** 2, x)
    w = x.unfold(0, 3, 1)
    w.retain_grad()
    (w * w).sum().backward()
    assert w.grad.tolist() == (2 * w).tolist()
