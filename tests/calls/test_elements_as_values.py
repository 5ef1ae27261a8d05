"""In functions that were given NumPy arrays an element is a value, as in NumPy; of tensors it is a view, as in PyTorch.

The programs are NumPy's own: run on plain arrays they are the truth, and differences of them the gradient.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

EXAMPLES = int(os.environ.get("TAPE_ELEMENT_EXAMPLES", "12"))
WEIGHTS = np.arange(1.0, 7.0)
POINTS = np.random.default_rng(0).normal(size=(4, 6))
Program = Callable[[Any], Any]


def old(u: Any) -> Any:
    before = u[0]
    u[0] = u[1] * 2
    return before * 10 + u[0]


def swaps(u: Any) -> Any:
    u[0], u[1] = u[1], u[0]
    u[-1], u[2] = u[2], u[-1]
    return (u * WEIGHTS).sum()


def rotation(u: Any) -> Any:
    first = u[0]
    for i in range(len(u) - 1):
        u[i] = u[i + 1]
    u[-1] = first
    return (u * WEIGHTS).sum()


def augmented(u: Any) -> Any:
    t = u[0]
    alias = t
    t += 1.0
    t *= u[2]
    u[1] += t
    u[3] -= u[1]
    u[1] /= 2.0
    return (u * WEIGHTS).sum() + 100 * alias + 7 * t


def recurrence(u: Any) -> Any:
    a, b = u[0], u[1]
    for k in range(2, len(u)):
        a, b = b, a + b * 0.5
        u[k] = a * b
        u[0] = b
    return (u * WEIGHTS).sum() + 3 * a + b


def iterated(u: Any) -> Any:
    kept = list(u)
    u[:] = u * 2
    total = kept[0] * kept[1]
    for i, e in enumerate(u):
        u[(i + 1) % len(u)] = e * 2.0
        total = total + e * kept[i]
    return total + (u * u).sum()


def work_array(u: Any) -> Any:
    w = np.zeros_like(u)
    a = w[0]
    w[0] = u[0]
    b = w[0]
    w[0] = u[1]
    w[1:3] = u[:2]
    c = w[1]
    w *= 2
    return 3 * a + 5 * b + 7 * c + (w * u).sum()


def network(u: Any) -> Any:
    for i in range(len(u)):
        for j in range(i % 2, len(u) - 1, 2):
            a, b = u[j], u[j + 1]
            u[j] = np.minimum(a, b)
            u[j + 1] = np.maximum(a, b)
    return (u * WEIGHTS).sum()


def prefix_sums(u: Any) -> Any:
    for i in range(1, len(u)):
        before = u[i]
        u[i] += u[i - 1]
        u[i - 1] = before * u[i - 1]
    return (u * WEIGHTS).sum()


def gauss_seidel(u: Any) -> Any:
    for _ in range(3):
        for i in range(1, len(u) - 1):
            before = u[i]
            u[i] = 0.5 * (u[i - 1] + u[i + 1])
            u[0] = u[0] + 0.1 * (u[i] - before)
    return (u * u).sum()


def ghost_cells(u: Any) -> Any:
    for _ in range(3):
        left, right = u[0], u[-1]
        u[0] = u[-2]
        u[-1] = u[1]
        u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[2] = u[2] + left * right
    return (u * WEIGHTS).sum()


def leapfrog(u: Any) -> Any:
    for _ in range(3):
        position = u[0]
        u[0] = u[0] + 0.1 * u[1]
        u[1] = u[1] - 0.1 * np.sin(position)
    return u[0] * 3 + u[1]


def matrix(u: Any) -> Any:
    m = u.reshape(2, 3)
    corner, row = m[0, 0], m[1]
    m[0, 0] = m[1, 2] * m[0, 1]
    m[1, 0], m[0, 2] = m[0, 2], m[1, 0]
    inner = row[1]
    row[1] = corner
    a, b = m  # rows are views
    m[1, 1] = m[1, 1] * 2
    return (m.reshape(6) * WEIGHTS).sum() + 10 * corner + 20 * inner + (row * row).sum() + (a * b).sum()


def views_stay(u: Any) -> Any:
    view, value, part = u[1, ...], u[1], u[1:2]
    u[1] = 5.0 * u[0]
    view[...] = view * 2
    return (u * WEIGHTS).sum() + 10 * view + 100 * value + part[0] * u[2]


PROGRAMS = [
    old, swaps, rotation, augmented, recurrence, iterated, work_array, network, prefix_sums, gauss_seidel, ghost_cells,
    leapfrog, matrix, views_stay,
]  # fmt: skip


def on_copy(program: Program) -> Program:
    """A program that may write: to a copy of its argument."""
    return lambda u: program(u * 1.0)


def differences(program: Program, x: Any) -> Any:
    steps = 1e-6 * np.eye(len(x))
    return np.array([(program(x + d) - program(x - d)) / 2e-6 for d in steps])


def recorded(program: Program) -> Callable[[Any], Any]:
    """Value and gradient of a program as it was recorded at one point."""
    made = tape.record(program, POINTS[0])
    return lambda x: (made(x), made.value_and_grad(x)[1][0])


def check(program: Program, run: Callable[[Any], Any], *, calls: int = 1) -> None:
    """Check that value and gradient are NumPy's at several points, each given ``calls`` times."""
    for x in POINTS:
        for _ in range(calls):
            value, gradient = run(x.copy())
            np.testing.assert_allclose(value, program(x), rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(gradient, differences(program, x), rtol=1e-5, atol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize("program", PROGRAMS)
def test_dynamic(program: Program) -> None:
    program = on_copy(program)
    check(program, tape.value_and_grad(program), calls=2)


@pytest.mark.parametrize("program", PROGRAMS)
def test_transforms(program: Program) -> None:
    program = on_copy(program)
    for transform in (tape.func.grad, tape.func.jacrev, tape.func.jacfwd):
        check(program, lambda x, t=transform: (program(x), t(program)(x)))
    check(program, lambda x: (tape.func.jvp(program, (x,), (np.ones(6),))[0], tape.func.grad(program)(x)))
    x = POINTS[0]
    gradient = tape.func.grad(program)
    np.testing.assert_allclose(tape.func.hessian(program)(x), differences(gradient, x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(tape.func.vmap(program)(POINTS), [program(x) for x in POINTS], rtol=1e-12)


def number_written(u: Any) -> Any:
    s = np.zeros_like(u[0]) if isinstance(u, np.ndarray) else tape.zeros(())
    s = np.array(s) if isinstance(u, np.ndarray) else s
    s[...] = u[0] * u[1]
    before = u[2]
    u[2] = 3.0 * s * before
    s[...] = s * u[2] + before
    return s * (u * WEIGHTS).sum()


@pytest.mark.parametrize("program", [*PROGRAMS, number_written])
def test_repeated_operations_keep_their_views(program: Program) -> None:
    """What was recorded is done again on tensors within functions that are given arrays."""
    program = on_copy(program)
    mapped, made = tape.compile(tape.vmap(program), mode="eager", check="never"), tape.record(program, POINTS[0])
    expected = [program(x) for x in POINTS]
    for _ in range(4):
        np.testing.assert_allclose(mapped(POINTS), expected, rtol=1e-12)
    np.testing.assert_allclose(tape.vmap(made)(POINTS), expected, rtol=1e-12)
    sums = tape.value_and_grad(lambda xs: tape.vmap(program)(xs).sum())(POINTS)
    np.testing.assert_allclose(sums[0], sum(expected), rtol=1e-12)
    np.testing.assert_allclose(sums[1], [differences(program, x) for x in POINTS], rtol=1e-5, atol=1e-5)
    gradient = tape.func.grad(program)
    np.testing.assert_allclose(
        tape.func.hessian(made)(POINTS[0]), differences(gradient, POINTS[0]), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: Program) -> None:
    program = on_copy(program)
    check(program, recorded(program))
    check(program, tape.compile(tape.value_and_grad(program), check="never"))
    plain = tape.compile(program, check="never")
    check(program, lambda x: (plain(x), tape.value_and_grad(program)(x)[1]))


@pytest.mark.parametrize("program", [old, rotation, gauss_seidel, ghost_cells, matrix])
def test_machine_code(program: Program) -> None:
    program = on_copy(program)
    check(program, tape.compile(tape.value_and_grad(program), check="never", mode="max"))


def test_tensors_keep_views() -> None:
    for run in (lambda f, x: f(x), lambda f, x: tape.value_and_grad(f)(x)[0], lambda f, x: tape.compile(f)(x)):
        value = run(on_copy(old), tape.tensor([1.0, 3.0]))
        assert float(value) == 66.0  # PyTorch's


def test_what_is_around_is_kept() -> None:
    f = tape.compile(on_copy(old), check="never")
    for _ in range(5):
        assert float(f(tape.tensor([1.0, 3.0]))) == 66.0
        assert float(f(np.array([1.0, 3.0]))) == 16.0
        assert tape.value_and_grad(lambda x: f(x) * 1.0)(np.array([1.0, 3.0]))[0] == 16.0
        assert tape.value_and_grad(lambda x: tape.func.vjp(on_copy(old), x)[0])(np.array([1.0, 3.0]))[0] == 16.0
    with pytest.raises(KeyError):
        tape.value_and_grad(lambda x: {}[x])(np.ones(2))
    assert float(on_copy(old)(tape.tensor([1.0, 3.0]))) == 66.0


def test_values_of_other_tensors() -> None:
    outside = tape.tensor([1.0, 2.0])

    def f(x: Any) -> Any:
        before = outside[0]
        with tape.no_grad():
            x = x * 1.0
            kept = x[1]
            x[1] = 7.0
            outside[0] = 5.0
        return (x * x).sum() + before * 100 + kept

    assert tape.value_and_grad(f)(np.ones(2))[0] == 1 + 49 + 100 + 1


def test_history_is_kept_where_gradients_are_off() -> None:
    def f(x: Any) -> Any:
        x = x * 1.0
        kept = x[1]
        with tape.no_grad():
            x[1] = 7.0
        return kept * kept

    assert tape.value_and_grad(f)(np.array([1.0, 3.0]))[1].tolist() == [0.0, 6.0]


def test_methods_of_pytorch_write_through() -> None:
    def f(x: Any) -> Any:
        x = x * 1.0
        x[0].add_(10.0)
        x[1].fill_(5.0)
        return x[0] * x[1]

    value, gradient = tape.value_and_grad(f)(np.array([1.0, 3.0]))
    assert (value, gradient.tolist()) == (55.0, [5.0, 0.0])


def alias(u: Any, *names: str) -> Any:
    """The memory of an array as another array, of a tensor without history."""
    for name in names or ("detach",):
        u = u.view() if isinstance(u, np.ndarray) else u.data if name == "data" else u.detach()
    return u


def through_detached(u: Any) -> Any:
    before = u[0]
    alias(u)[0] = 7.0
    alias(u, "detach", "data")[1] = 3.0 * before
    return before * 10 + u[0] * u[1]


def under_detached(u: Any) -> Any:
    d, other = alias(u), alias(u, "data")
    a, b = d[0], other[1]
    u[0], u[1] = u[1] * 2, 5.0
    u *= 2.0
    return a * 10 + b * 3 + (d * WEIGHTS).sum()


def through_views(u: Any) -> Any:
    m = u.reshape(2, 3)
    corner, row = m[1, 0], alias(m[1], "detach", "detach")
    inner, part = row[1], alias(u[2:5])
    row[0] = 4.0
    part[1:] = 9.0
    return corner * 10 + inner * 3 + (u * WEIGHTS).sum()


def in_place(u: Any) -> Any:
    d, before, same = alias(u), u[2], alias(u)
    d *= 2.0
    value = same[2]
    same += before
    return before * 10 + value + (u * WEIGHTS).sum()


SHARING = [through_detached, under_detached, through_views, in_place]


@pytest.mark.quick
@pytest.mark.parametrize("program", SHARING)
def test_writes_through_detached_tensors(program: Program) -> None:
    check_values(on_copy(program), points=2)


def check_values(program: Program, *, points: int = 4) -> None:
    """Check the values alone: what is written without history has no gradient of NumPy's."""
    compiled, made = tape.compile(program, check="never"), tape.record(program, POINTS[0])
    for run in (tape.value_and_grad(program), compiled, made):
        for x in [*POINTS[:points], *POINTS[:points]]:
            value = run(x.copy())
            np.testing.assert_allclose(value[0] if type(value) is tuple else value, program(x), rtol=1e-9)
    with contextlib.suppress(NotImplementedError):  # parts of detached tensors that are written
        np.testing.assert_allclose(tape.func.vmap(program)(POINTS), [program(x) for x in POINTS], rtol=1e-9)


def test_elements_of_detached_tensors_keep_their_gradients() -> None:
    def f(u: Any) -> Any:
        u = u * 2.0
        before = u[0]
        u.detach()[0] = 7.0
        return before * before * u[0]

    value, gradient = tape.value_and_grad(f)(np.array([1.5, 3.0]))
    assert (value, gradient.tolist()) == (63.0, [2 * (2 * 3.0 * 7.0 + 9.0), 0.0])


def test_elements_of_what_data_is_set_to() -> None:
    def f(u: Any) -> Any:
        u, w = u * 1.0, tape.zeros(2)
        w.data = u.detach()
        a, b = u[0], w[1]
        w[0], u[1] = 5.0, 6.0
        return a * 10 + b * 3 + (w * 2.0).sum()

    assert tape.value_and_grad(f)(np.array([1.0, 3.0]))[0] == 10.0 + 9.0 + 22.0


def test_views_of_what_shares_memory_stay_current() -> None:
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    u = x * 1.0
    d, view = u.detach(), u[1:]
    other = d[1:]
    for made in (u, d):
        made[1] = 5.0 * x[0]
    assert (u.tolist(), view.tolist(), other.tolist()) == ([1.0, 5.0, 3.0], [5.0, 3.0], [5.0, 3.0])
    (view * other).sum().backward()
    assert x.grad.tolist() == [50.0, 0.0, 3.0]  # of 25 * x[0] ** 2 + x[2] * 3


def at_random(rng: random.Random, shared: Program = np.zeros_like) -> Program:  # noqa: C901 (a statement of each kind)
    """A random program of NumPy's: elements, views, writes and work arrays in any order."""
    steps = [(rng.randrange(12), rng.randrange(6), rng.randrange(6), rng.randrange(3), rng.choice((0.5, 2.0, -1.0)))
             for _ in range(rng.randrange(4, 16))]  # fmt: skip
    loops = rng.choice((1, 1, 3))

    def program(u: Any) -> Any:  # noqa: C901, PLR0912
        u = u * 1.0
        arrays, values = [u, shared(u), u[::-1]], [u[0], u[1], u[2]]
        for _ in range(loops):
            for kind, i, j, k, c in steps:
                w = arrays[k]
                if kind <= 1:
                    values[k] = w[i]
                elif kind == 2:
                    w[i] = values[j % 3] * c
                elif kind == 3:
                    w[i] = w[j]
                elif kind == 4:
                    w[i], w[j] = w[j], w[i]
                elif kind == 5:
                    w[i] += values[j % 3] * c
                elif kind == 6:
                    values[k] += w[i] * c
                elif kind == 7:
                    w[1:4] = w[2:5] * c
                elif kind == 8:
                    w *= 0.5
                elif kind == 9:
                    values[k] = w.reshape(2, 3)[i % 2, j % 3]
                elif kind == 10:
                    row = w.reshape(2, 3)[i % 2]
                    values[k] = row[j % 3]
                    row[k] = values[j % 3] + c
                else:
                    values[k] = [e * 1.0 if e is None else e for e in w][i]
        total = (u * WEIGHTS).sum() + (arrays[1] * WEIGHTS[::-1]).sum()
        return total + values[0] * 3 + values[1] * values[2]

    return program


def test_random_programs() -> None:
    for seed in range(EXAMPLES):
        program = at_random(random.Random(seed))  # noqa: S311 (no secret)
        check(program, tape.value_and_grad(program))
        check(program, recorded(program))
        check(program, tape.compile(tape.value_and_grad(program), check="never"))
        np.testing.assert_allclose(tape.func.vmap(program)(POINTS), [program(x) for x in POINTS], rtol=1e-9)
        x = POINTS[0]
        np.testing.assert_allclose(tape.func.jacfwd(program)(x), differences(program, x), rtol=1e-5, atol=1e-5)


def test_random_programs_that_share_memory() -> None:
    for seed in range(EXAMPLES):
        rng = random.Random(seed)  # noqa: S311 (no secret)
        names = rng.choices(("detach", "data"), k=rng.randrange(1, 3))
        check_values(at_random(rng, lambda u, names=names: alias(u, *names)))
