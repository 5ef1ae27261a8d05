"""In functions that were given NumPy arrays, what NumPy gives as a scalar is a value: ``s += y`` gives another one.

The programs are NumPy's own: run on plain arrays they are the truth. On tensors all of them keep PyTorch's meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

X, OTHER = np.array([0.9, 0.4, 1.7, 0.6]), np.array([1.9, 0.3, 0.7, 2.6])
Program = Callable[[Any], Any]


def running_sums(x: Any) -> Any:
    total, kept = 0.0, []
    for e in x:
        total += e
        kept.append(total)
    return kept[0] * 100 + kept[1] * 10 + kept[3]


def product(x: Any) -> Any:
    s = x[0] * 1.0
    before = s
    s *= x[1]
    s -= x[2]
    s /= x[3]
    s **= 2
    return before * 10 + s


def reduced(x: Any) -> Any:
    s, n, d = x.sum(), np.linalg.norm(x), np.dot(x, x)
    before = s, n, d
    s += 1.0
    n *= s
    d -= n
    return before[0] + before[1] * 10 + before[2] * 100 + s * n * d


def floor_and_rest(x: Any) -> Any:
    a, b = x[2], x[0] * 1.0
    before = a, b
    a //= 0.3
    b %= 0.4
    return before[0] + before[1] * 10 + a * 100 + b * 1000


def of_an_array(x: Any) -> Any:
    s = x.sum()
    before = s
    s += x  # an array, in NumPy
    return (s * s).sum() + before


def reshaped(x: Any) -> Any:
    s, e = x.sum(), x[0]
    parts = [s.reshape(1), np.atleast_1d(s), e.reshape(1), np.atleast_1d(e), np.expand_dims(e, 0), e[None]]
    for k, part in enumerate(parts):
        part[0] *= k + 2.0
    return sum(part[0] * (k + 1) for k, part in enumerate(parts)) + 100 * s + 1000 * x[0]


def copies(x: Any) -> Any:
    flat, plus, matrix = x.flatten(), +x, x.reshape(2, 2).flatten()
    flat[0] = plus[1] = matrix[2] = 7.0
    return (x * np.arange(4.0)).sum() + flat[0] * plus[1] * matrix[2]


def picked(x: Any) -> Any:
    a, b = x.take(0), np.take(x, 1)
    x[:2] = 7.0
    return a * 10 + b + x[0]


def views_stay(x: Any) -> Any:
    s = x[0, ...]
    s += 5.0
    row = x.reshape(2, 2)[1]
    row += 1.0
    return (x * np.arange(1.0, 5.0)).sum() + s


def arrays_stay(x: Any) -> Any:
    y, z = x, x[1:]
    y *= 2.0
    z //= 0.5
    return (x * np.arange(1.0, 5.0)).sum()


PROGRAMS = [
    running_sums, product, reduced, floor_and_rest, of_an_array, reshaped, copies, picked, views_stay, arrays_stay,
]  # fmt: skip


def compiled(f: Program, **given: Any) -> Program:
    def run(x: Any) -> Any:
        made = tape.compile(f, **given)
        return [made(point) for point in (OTHER, OTHER, x, x)][-1]

    return run


def without_gradients(f: Program) -> Program:
    def run(x: Any) -> Any:
        with tape.no_grad():
            return compiled(f)(x), tape.vmap(f)(x[None])[0]

    return run


WAYS: dict[str, Callable[[Program], Program]] = {
    "dynamic": lambda f: lambda x: tape.value_and_grad(f)(x)[0],
    "record": lambda f: tape.record(f, OTHER),
    "compile": compiled,
    "vmap": lambda f: lambda x: tape.vmap(f)(np.stack([x, OTHER]))[0],
    "jvp": lambda f: lambda x: tape.func.jvp(f, (x,), (OTHER,))[0],
    "no_grad": without_gradients,
}


@pytest.mark.quick
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_numpy(program: Program, way: str) -> None:
    def f(x: Any) -> Any:
        return program(x * 1.0)

    for _ in range(2):  # native code repeats the second
        np.testing.assert_allclose(WAYS[way](f)(X), program(X.copy()), rtol=1e-12)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients(program: Program) -> None:
    steps = 1e-6 * np.eye(4)
    slopes = [(program(X + d) - program(X - d)) / 2e-6 for d in steps]
    for gradient in (
        tape.func.grad(lambda x: program(x * 1.0)),
        lambda x: tape.compile(tape.value_and_grad(lambda x: program(x * 1.0)))(x)[1],
    ):
        np.testing.assert_allclose(gradient(X), slopes, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_dtypes(dtype: Any) -> None:
    x = np.array([9, 4, 17, 6], dtype)
    for program in (running_sums, product, floor_and_rest, arrays_stay):
        if dtype is np.int64 and program is arrays_stay:
            continue  # NumPy, too, keeps floats from integers in place
        for way in ("compile", "record", "vmap"):
            if way == "compile":
                got = [f(x) for f in [tape.compile(lambda x, p=program: p(x * 1))] for _ in range(3)][-1]
            elif way == "record":
                got = tape.record(lambda x, p=program: p(x * 1), x)(x)
            else:
                got = tape.vmap(lambda x, p=program: p(x * 1))(x[None])[0]
            np.testing.assert_allclose(got, program(x.copy()), rtol=1e-5)


def test_numbers_as_arguments() -> None:
    def f(x: Any, t: Any) -> Any:
        u = t
        u += x[0]
        return t * 10 + u

    assert tape.value_and_grad(f, argnums=(0, 1))(np.ones(2), 2.0)[0] == 23.0
    assert tape.compile(f)(np.ones(2), 2.0) == 23.0


def test_tensors_are_written() -> None:
    s = tape.tensor(1.0)
    same = s
    s += 1.0
    s //= 0.5
    assert same is s
    assert float(same) == 4.0
    for f in (lambda x: tape.value_and_grad(product)(x)[0], compiled(product), product):
        before = X[0] * X[1] - X[2]
        assert float(f(tape.tensor(X))) == pytest.approx(11 * (before / X[3]) ** 2)
    x = tape.tensor(X)
    assert (+x) is x
    assert x.flatten() is x
    flat = x.reshape(2, 2).flatten()
    flat[0] = 5.0
    assert float(x[0]) == 5.0


def test_leaves_are_stepped() -> None:
    """A parameter made inside is written by the optimizer's ``w -= rate * w.grad``."""

    def f(x: Any) -> Any:
        w = tape.tensor(0.0, requires_grad=True)
        held = w
        for _ in range(3):
            w.grad = None
            ((w - x.detach().sum()) ** 2).backward()
            with tape.no_grad():
                w -= 0.5 * w.grad
        return held.detach() * x.sum()

    assert tape.value_and_grad(f)(np.ones(2))[0] == 4.0


def test_arrays_of_elements_share_no_memory() -> None:
    def f(x: Any) -> Any:
        x = x * 1.0
        kept = np.asarray(x[0])
        x[0] = 7.0
        return kept * 10 + x[0]

    assert float(tape.compile(f)(X)) == pytest.approx(16.0)


class Rotated(tape.autograd.Function):
    """A Function that reads and writes elements as NumPy's programs do."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        y = x * 1.0
        first, total = y[0], y[1] * 1.0
        before = total
        total += y[2]
        y[0] = y[1] * before
        y[1] = first * total
        return y

    @staticmethod
    def backward(_ctx: Any, g: Any) -> Any:
        return g


def test_functions_with_rules_of_their_own() -> None:
    def f(x: Any) -> Any:
        return (Rotated.apply(x) * np.arange(1.0, 5.0)).sum()

    wanted = X[1] ** 2 + 2 * X[0] * (X[1] + X[2]) + 3 * X[2] + 4 * X[3]
    for run in (lambda x: tape.value_and_grad(f)(x)[0], compiled(f), compiled(f, check="never")):
        assert run(X) == pytest.approx(wanted)
