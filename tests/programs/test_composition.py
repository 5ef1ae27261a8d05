"""Programs as operations of other functions: differentiated, mapped, pushed forward, and inside other programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.operations import OPS
from kernels.rules.op import Op
from tape.autograd import grad, gradcheck, gradgradcheck
from tape.func import grad_and_value, hessian, jacfwd, jacrev, jvp, vmap
from tests.support.record_cases import bits, replayed_case

Array = np.ndarray[Any, Any]
X = np.array([0.3, 0.7, 1.1])


def cubes(x: Any) -> Any:
    """Return one number."""
    return (x**3).sum()


def field(x: Any) -> Any:
    """Views, writes, a region without gradients, a selection and a matrix product."""
    u = x * 2
    u[1:] += tape.sin(x[:-1])
    with tape.no_grad():
        scale = (x * x).sum()
        u[0] *= scale
    top = u.max(0)[0]
    picked = u[np.array([0, 2, 2])]
    w = tape.stack([u, x]) @ x.reshape(3, 1)
    return tape.where(x > 0.5, u * picked, x.detach() * u) + top + w.sum() * tape.cat([x[1:], u[:1]])


def several(x: Any, k: Any) -> Any:
    """Return several results, an integer one too."""
    y = x * k
    return {"y": y, "part": y[1:], "sum": (y * y).sum(), "where": (x > 0.5).sum(), "x": x}


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cubes": (cubes, (X,)),
    "field": (field, (X,)),
    "several": (lambda x, k: tuple(several(x, k).values()), (X, 1.5)),
    "first of several": (lambda x, k: several(x, k)["part"].prod(), (X, 1.5)),
}


def program_of(name: str) -> tuple[Callable[..., Any], Any, tuple[Any, ...]]:
    """Return a function, its program recorded elsewhere, and a point."""
    fun, at = FUNCTIONS[name]
    return fun, tape.record(fun, *(np.ones(3) * 0.6 if isinstance(a, np.ndarray) else 0.8 for a in at)), at


def leaves_at(at: tuple[Any, ...]) -> list[Any]:
    return [tape.tensor(a, requires_grad=True) for a in at]


def weighted(found: Any) -> Any:
    """Return one number of all floating results."""
    parts = found if isinstance(found, tuple) else (found,)
    return sum((tape.sin(p) * (i + 2)).sum() for i, p in enumerate(parts) if p.dtype == np.float64)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_through_a_program(name: str) -> None:
    fun, program, at = program_of(name)

    def first_and_second(f: Callable[..., Any]) -> list[Any]:
        inputs = leaves_at(at)
        loss = weighted(f(*[x * 1.0 for x in inputs]))
        loss.backward(retain_graph=True)
        first = grad(loss, inputs, create_graph=True)
        second = grad(sum((g * g).sum() for g in first), inputs, create_graph=True)
        third = grad(sum(tape.sin(g).sum() for g in second), inputs)
        return [loss, *(x.grad for x in inputs), *first, *second, *third]

    for found, expected in zip(first_and_second(program), first_and_second(fun), strict=True):
        np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["cubes", "field"])
def test_transforms_of_a_program(name: str) -> None:
    fun, program, (x,) = program_of(name)
    x, v = tape.tensor(x), tape.tensor([0.2, -1.0, 0.5])
    rows = tape.stack([x, x * 2 - 0.5, x + v])

    def scalar(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: weighted(f(x))

    for transform in (
        lambda f: jvp(f, (x,), (v,)),
        lambda f: jvp(tape.func.grad(scalar(f)), (x,), (v,)),
        lambda f: jacrev(f)(x),
        lambda f: jacfwd(f)(x),
        lambda f: hessian(scalar(f))(x),
        lambda f: vmap(f)(rows),
        lambda f: vmap(tape.func.grad(scalar(f)))(rows),
        lambda f: tape.func.grad(lambda rows: vmap(scalar(f))(rows).sum())(rows),
        lambda f: tape.autograd.functional.hvp(scalar(f), x, v)[1],
        lambda f: grad_and_value(scalar(f))(x),
    ):
        found, expected = transform(program), transform(fun)
        for one, other in zip(
            found if isinstance(found, tuple) else (found,),
            expected if isinstance(expected, tuple) else (expected,),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_checks_by_differences() -> None:
    _, program, at = program_of("several")
    assert gradcheck(lambda *a: program(*a)[:3], leaves_at(at))
    assert gradgradcheck(lambda *a: program(*a)[:3], leaves_at(at))


# --- value_and_grad inside differentiated code --------------------------------------------------------------------


def test_gradients_of_a_program_are_differentiable() -> None:
    program = tape.record(cubes, np.ones(3))
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    value, (gradient,) = program.value_and_grad(x)
    assert (value.item(), gradient.tolist()) == (36.0, [3.0, 12.0, 27.0])
    (x * gradient).sum().backward()
    assert x.grad.tolist() == [9.0, 36.0, 81.0]
    value, (gradient,) = program.value_and_grad(x)
    (hvp,) = grad(gradient, x, tape.tensor([1.0, 0.0, 2.0]), create_graph=True)
    assert hvp.tolist() == [6.0, 0.0, 36.0]
    (third,) = grad(hvp.sum() + value, x)
    assert third.tolist() == [9.0, 12.0, 39.0]
    with tape.no_grad():
        assert not program.value_and_grad(x)[1][0].requires_grad
    plain = program.value_and_grad(tape.tensor([1.0, 2.0, 3.0]))
    assert not plain[0].requires_grad
    assert not plain[1][0].requires_grad


def test_gradients_of_a_program_in_transforms() -> None:
    program = tape.record(lambda x, k: (tape.sin(x) * k).sum(), np.ones(3), 2.0)
    x, v, k = tape.tensor(X), tape.tensor([0.2, -1.0, 0.5]), tape.tensor(1.5)

    def by_program(x: Any) -> Any:
        value, (by_x, by_k) = program.value_and_grad(x, k)
        return by_x * value + by_k

    def by_hand(x: Any) -> Any:
        return tape.cos(x) * k * (tape.sin(x) * k).sum() + tape.sin(x).sum()

    for transform in (
        lambda f: f(x),
        lambda f: jacrev(f)(x),
        lambda f: jacfwd(f)(x),
        lambda f: jvp(f, (x,), (v,))[1],
        lambda f: vmap(f)(tape.stack([x, v])),
        lambda f: jacrev(jacrev(f))(x),
        lambda f: vmap(jacrev(f))(tape.stack([x, v])),
    ):
        np.testing.assert_allclose(transform(by_program).detach(), transform(by_hand).detach(), rtol=1e-12, atol=1e-14)
    with pytest.raises(RuntimeError, match="left for Python"):  # a program cannot repeat a sweep inside it
        tape.record(by_program, np.ones(3))(x)


def test_programs_inside_programs() -> None:
    inner = tape.record(field, np.ones(3))
    outer = tape.record(lambda x: (inner(x) * x + inner(inner(x) * 0.1)).sum(), np.ones(3))
    assert "autograd" not in str(outer)
    assert len(outer) > 3 * len(inner)

    def by_hand(x: Any) -> Any:
        return (field(x) * x + field(field(x) * 0.1)).sum()

    value, (gradient,) = outer.value_and_grad(X)
    expected, by_dynamic = tape.value_and_grad(by_hand)(X)
    assert value == expected
    np.testing.assert_allclose(gradient, by_dynamic, rtol=1e-13)


def test_programs_that_write_to_arguments_compose() -> None:
    def fun(x: Any, k: Any) -> Any:
        x *= k
        x[1:] += x[:-1]
        return (x * x).sum()

    program = tape.record(fun, np.ones(3), 2.0)

    def around(f: Callable[..., Any]) -> list[Any]:
        x, k = leaves_at((X, 1.5))
        y = x * 2
        loss = f(y, k) + (y * tape.tensor([1.0, 2.0, 3.0])).sum()
        first = grad(loss, (x, k), create_graph=True)
        return [loss, y, *first, *grad(first[0].sum() + first[1], (x, k))]

    for found, expected in zip(around(program), around(fun), strict=True):
        np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-13)
    leaf = tape.tensor(X, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        program(leaf, 1.5)
    assert leaf.tolist() == X.tolist()
    outer = tape.record(lambda x, k: (program(x, k), x * 1)[1], np.ones(3), 2.0)
    given = X.copy()
    np.testing.assert_allclose(outer(given, 1.5), [0.45, 1.5, 2.7])
    np.testing.assert_allclose(given, [0.45, 1.5, 2.7])


def test_arrays_and_numbers_among_tensors_that_require_grad() -> None:
    program = tape.record(lambda x, a, n: (x * a * n).sum(), np.ones(3), np.ones(3), 2)
    x = tape.tensor(X, requires_grad=True)
    loss = program(x, np.array([1.0, 2.0, 3.0]), 4)
    loss.backward()
    assert x.grad.tolist() == [4.0, 8.0, 12.0]
    value, (by_x, by_a) = program.value_and_grad(x, np.array([1.0, 2.0, 3.0]), 4)
    assert value.item() == loss.item()
    (second,) = grad(by_a.sum() + (by_x * 0).sum(), x)
    assert second.tolist() == [4.0] * 3
    assert program(X, np.ones(3), 1) == X.sum()


def test_results_that_are_arguments_views_or_constants() -> None:
    fixed = tape.tensor([5.0, 6.0, 7.0])
    program = tape.record(lambda x: (x, x[1:], x * 2, fixed, (x * 2)[:1]), np.ones(3))
    x = tape.tensor(X, requires_grad=True)
    found = program(x)
    again = tape.record(program, np.ones(3))(X)
    for one, other in zip(found, again, strict=True):
        assert one.tolist() == other.tolist()
    assert [r.requires_grad for r in found] == [True, True, True, False, True] or found[3].tolist() == [5.0, 6.0, 7.0]
    sum(r.sum() for r in found).backward()
    assert x.grad.tolist() == [5.0, 4.0, 4.0]


def test_a_custom_operation_and_routines_inside_a_program() -> None:
    from numba import njit

    @njit
    def double(x: Any) -> Any:
        return x * 2.0

    @njit
    def double_vjp(g: Any, x: Any) -> Any:
        return g * 2.0 + 0.0 * x

    twice = tape.custom(double, double_vjp)

    def fun(x: Any) -> Any:
        return (tape.cumsum(twice(x), 0) * tape.sort(x)[0]).sum() + tape.linalg.norm(x)

    program = tape.record(fun, np.array([0.5, 0.25, 1.0]))
    x, y = leaves_at((X, X))
    program(x).backward()
    fun(y).backward()
    np.testing.assert_allclose(x.grad, y.grad, rtol=1e-13)
    outer = tape.record(lambda x: program(x) * 2, np.ones(3))
    np.testing.assert_allclose(outer.value_and_grad(X)[1][0], 2 * y.grad, rtol=1e-13)
    z = tape.tensor(X, requires_grad=True)
    with pytest.raises(RuntimeError, match="double"):
        grad(grad(program(z), z, create_graph=True)[0].sum(), z)


def test_values_that_left_for_python_still_raise() -> None:
    program = tape.record(lambda x: x * float(x.detach()[0]), np.ones(3))
    x = tape.tensor(X, requires_grad=True)
    for call in (program, tape.func.vmap(program), lambda x: tape.record(program, x)):
        with pytest.raises(RuntimeError, match="left for Python"):
            call(x if call is program else tape.stack([x, x]) if call is not program else x)


def test_leaves_are_optimised_by_replays() -> None:
    """PyTorch's loop, with a program for the loss: first derivatives are replayed, nothing grows."""
    program = tape.record(lambda w, x: ((w * x - 1) ** 2).sum(), np.ones(3), np.ones(3))
    w = tape.zeros(3, requires_grad=True)
    for _ in range(50):
        loss = program(w, X)
        loss.backward()
        with tape.no_grad():
            w -= 0.3 * w.grad
        w.grad = None
    for _ in range(150):
        _, (by_w, _) = program.value_and_grad(w, X)
        with tape.no_grad():
            w -= 0.3 * by_w
    np.testing.assert_allclose(w.detach(), 1 / X, rtol=1e-3)
    del loss, by_w, _
    assert tape.recording.record.recorded() < 100


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_record_is_inlined(op: Op) -> None:
    """A program inside a program gives what it gives alone, bit for bit."""
    case = replayed_case(op)
    if case is None:
        pytest.skip("not replayed")
    old, new = case.leaves(np.float64), case.leaves(np.float64, seed=1)
    program = tape.record(case.run, *old)
    outer = tape.record(lambda *leaves: program(*leaves), *old)  # noqa: PLW0108 (keywords are not meant)
    assert bits(outer(*new)) == bits(program(*new))
