"""The same array or tensor for two arguments of a compiled function, or for one and read from outside, too."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

ORDERS = ("ssssdddsds", "ddddssssds", "dsdsdsdsds")
"""Calls with the same object, and with distinct ones."""
MAKERS = {"tensor": lambda: tape.tensor([1.0, 2.0, 3.0]), "array": lambda: np.array([1.0, 2.0, 3.0])}


def told_apart(x: Any, y: Any) -> Any:
    return x * 2 if x is y else x * y * 5


def written(x: Any, y: Any) -> Any:
    x[0] = 10.0
    return (y * y).sum() + x[1]


def added_to(x: Any, y: Any) -> Any:
    x += 1.0
    return (x * y).sum()


def either(x: Any, y: Any) -> Any:
    (x if x is y else y)[1] = 7.0
    return (x * y).sum() + (x is y)


def of_a_dict(parts: Any) -> Any:
    parts["a"][0] = 5.0
    return (parts["b"] * 2).sum() + (parts["a"] is parts["b"])


def of_a_list(parts: Any, y: Any) -> Any:
    return parts[0] * 3 if parts[0] is y else parts[0] * y


@dataclasses.dataclass
class Pair:
    """Two arrays."""

    a: Any
    b: Any


def of_a_pair(pair: Pair) -> Any:
    pair.a[0] = 9.0
    return (pair.b * 2).sum() + (pair.a is pair.b)


def by_name(x: Any, *, y: Any) -> Any:
    return told_apart(x, y)


FORMS = {
    told_apart: lambda x, y: ((x, y), {}),
    written: lambda x, y: ((x, y), {}),
    added_to: lambda x, y: ((x, y), {}),
    either: lambda x, y: ((x, y), {}),
    of_a_dict: lambda x, y: (({"a": x, "b": y},), {}),
    of_a_list: lambda x, y: (([x, y], y), {}),
    of_a_pair: lambda x, y: ((Pair(x, y),), {}),
    by_name: lambda x, y: ((x,), {"y": y}),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("function", FORMS)
def test_one_object_given_twice_is_one_inside(function: Any, make: Callable[[], Any], order: str) -> None:
    compiled, form = tape.compile(function, mode="max", check="never"), FORMS[function]
    for kind in order:
        x, u = make(), make()
        y, v = (x, u) if kind == "s" else (make(), make())
        args, kwargs = form(x, y)
        others, named = form(u, v)
        result, expected = compiled(*args, **kwargs), function(*others, **named)
        np.testing.assert_allclose(np.asarray(result), np.asarray(expected))
        np.testing.assert_array_equal(np.asarray(x), np.asarray(u))
        np.testing.assert_array_equal(np.asarray(y), np.asarray(v))
    assert len(compiled.programs) == 2


@pytest.mark.quick
@pytest.mark.parametrize("order", ORDERS)
def test_native_calls_see_one_object_given_twice(order: str) -> None:
    compiled = tape.compile(told_apart, mode="max", check="never")
    for kind in order * 2:
        x = np.array([1.0, 2.0, 3.0])
        np.testing.assert_array_equal(compiled(x, x if kind == "s" else x.copy()), x * 2 if kind == "s" else x * x * 5)


@pytest.mark.parametrize("argnums", [0, (0, 1)])
@pytest.mark.parametrize("order", ORDERS)
def test_gradients_by_what_is_given_twice(order: str, argnums: Any) -> None:
    plain = tape.value_and_grad(lambda x, y: (told_apart(x, y) * y).sum(), argnums)
    compiled = tape.compile(plain)
    for kind in order:
        x = np.array([1.0, 2.0, 3.0])
        args = (x, x if kind == "s" else x.copy())
        for got, wanted in zip(compiled(*args), plain(*args), strict=True):
            np.testing.assert_allclose(got, wanted)


@pytest.mark.parametrize("order", ORDERS)
def test_backward_through_what_is_given_twice(order: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return (told_apart(x, y) * y).sum()

    compiled = tape.compile(f)
    for kind in order:
        found = []
        for function in (f, compiled):
            x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
            y = x if kind == "s" else x.detach().clone().requires_grad_()
            function(x, y).backward()
            found.append((x.grad.numpy(), y.grad.numpy()))
        np.testing.assert_allclose(found[0], found[1])


class Model:
    """Reads an attribute that may be an argument, too."""

    def __init__(self) -> None:
        self.w = tape.tensor([1.0, 2.0, 3.0])

    def step(self, x: Any) -> Any:
        return x * 2 if x is self.w else x * self.w * 5

    def change(self, x: Any) -> Any:
        x[0] = x[0] + 1.0
        return (self.w * self.w).sum() + x.sum()

    compiled_step = tape.compile(step)
    compiled_change = tape.compile(change)


@pytest.mark.parametrize("order", ORDERS)
def test_an_argument_that_is_read_from_outside_too(order: str) -> None:
    one, other = Model(), Model()
    for kind in order:
        x, y = (one.w, other.w) if kind == "s" else (tape.ones(3), tape.ones(3))
        np.testing.assert_allclose(one.compiled_step(x).numpy(), other.step(y).numpy())
        np.testing.assert_allclose(one.compiled_change(x).numpy(), other.change(y).numpy())
        np.testing.assert_array_equal(one.w.numpy(), other.w.numpy())


def test_files_hold_calls_on_distinct_objects() -> None:
    compiled, x = tape.compile(told_apart), np.array([1.0, 2.0])
    for _ in range(3):
        compiled(x, x)
        compiled(x, x.copy())
    file = io.BytesIO()
    compiled.save(file)
    file.seek(0)
    np.testing.assert_array_equal(tape.load(file)(x, x.copy()), 5 * x * x)
