"""Programs of structures: what they take, keep, give back, and how errors name a part."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape


class Pair(NamedTuple):
    """Two values."""

    w: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Model:
    """Values, and a name that stays."""

    layers: Any
    scale: float
    name: str = "tanh"


def loss(model: Any, x: Any, *, power: int = 2, kind: str = "sum") -> Any:
    """Return one number of a nested model."""
    for w, b in model.layers:
        x = getattr(tape, model.name)(x @ w + b)
    return getattr((x * model.scale) ** power, kind)()


def model_of(seed: int, *, tensors: bool = False, **more: Any) -> Model:
    rng = np.random.default_rng(seed)
    make = tape.tensor if tensors else (lambda a: a)
    return Model([Pair(make(rng.normal(size=(3, 3))), make(rng.normal(size=3))) for _ in range(2)], 0.5 + seed, **more)


def test_a_dataclass_of_named_tuples() -> None:
    program = tape.record(loss, model_of(0), np.ones(3))
    x = np.array([0.1, 0.2, 0.3])
    value, (by_model, by_x) = program.value_and_grad(model_of(1), x)
    expected, (model, by_other) = tape.value_and_grad(loss, argnums=(0, 1))(model_of(1), x)
    assert value == expected == program(model_of(1), x)
    assert type(by_model) is Model
    assert type(by_model.layers[1]) is Pair
    assert by_model.name == "tanh"
    assert by_model.scale == model.scale
    for one, other in zip(by_model.layers, model.layers, strict=True):
        np.testing.assert_array_equal(one.w, other.w)
        np.testing.assert_array_equal(one.b, other.b)
    np.testing.assert_array_equal(by_x, by_other)
    value, (by_model, _) = program.value_and_grad(model_of(1, tensors=True), x)
    assert isinstance(value, tape.Tensor)
    assert isinstance(by_model.layers[0].w, tape.Tensor)
    assert isinstance(by_model.scale, tape.Tensor)


def test_keywords_and_what_stays() -> None:
    def fun(p: Any, mode: str, *, x: Any, table: Any = None) -> Any:
        assert table is None
        return {"sin": tape.sin, "cos": tape.cos}[mode](p["a"] * x) + p["b"][0]

    p = {"a": 2.0, "b": [np.ones(2), None]}
    program = tape.record(fun, p, "sin", x=np.ones(2), table=None)
    found = program({"b": [np.zeros(2), None], "a": 3.0}, "sin", table=None, x=np.array([0.1, 0.2]))
    np.testing.assert_allclose(found, np.sin([0.3, 0.6]), rtol=1e-15)
    good: dict[str, Any] = {"x": np.ones(2), "table": None}
    for args, kwargs, message in (
        ((p, "cos"), good, r"argument 1: got 'cos', but the program was recorded with 'sin'"),
        ((p, "sin"), {"x": np.ones(2)}, "takes 2 arguments and by name x, table, got 2 and by name x"),
        ((p, "sin"), {**good, "x": np.ones(3)}, r"argument x: got float64\[3\]"),
        (({"a": 2.0}, "sin"), good, r"argument 0"),
        (({"a": 2.0, "b": [np.ones(3), None]}, "sin"), good, r"argument 0\['b'\]\[0\]: got float64\[3\]"),
        (({"a": "2", "b": [np.ones(2), None]}, "sin"), good, r"argument 0\['a'\]: got a str"),
        (({"a": 2.0, "b": (np.ones(2), None)}, "sin"), good, r"argument 0\['b'\]"),
        ((p,), good, "takes 2 arguments"),
    ):
        with pytest.raises(TypeError, match=message):
            program(*args, **kwargs)


def test_gradients_in_the_structure_of_the_arguments() -> None:
    def fun(p: Any, n: Any, q: Any) -> Any:
        return (p["x"] * p["i"]).sum() * n + q[0] * 2

    program = tape.record(fun, {"x": np.ones(2), "i": np.arange(2), "s": "a"}, 3, (1.0,))
    value, gradients = program.value_and_grad({"x": np.array([5.0, 7.0]), "i": np.array([1, 2]), "s": "a"}, 2, (4.0,))
    assert value == 46.0
    by_p, by_q = gradients
    assert by_p["x"].tolist() == [2.0, 4.0]
    assert (by_p["i"], by_p["s"], by_q) == (None, None, (2.0,))


def test_results_in_structures_with_what_is_no_tensor() -> None:
    def fun(x: Any) -> Any:
        return Model([Pair(x * 2, None)], (x * x).sum(), "result"), OrderedDict(b=x, a="text")

    program = tape.record(fun, np.ones(2))
    model, rest = program(np.array([1.0, 3.0]))
    assert model.layers[0].w.tolist() == [2.0, 6.0]
    assert (model.layers[0].b, model.scale, model.name) == (None, 10.0, "result")
    assert type(rest) is OrderedDict
    assert (rest["b"].tolist(), rest["a"]) == ([1.0, 3.0], "text")
    with pytest.raises(TypeError, match="returns tensors, not float"):
        tape.record(lambda x: (x, 1.0), np.ones(2))


def test_has_aux() -> None:
    def fun(p: Any) -> Any:
        y = p["a"] * 2
        return (y * y).sum(), {"y": y, "name": "aux"}

    program = tape.record(fun, {"a": np.ones(2)})
    (value, aux), (gradient,) = program.value_and_grad({"a": np.array([1.0, 2.0])}, has_aux=True)
    assert (value, aux["y"].tolist(), aux["name"], gradient["a"].tolist()) == (20.0, [2.0, 4.0], "aux", [8.0, 16.0])
    a = tape.tensor([1.0, 2.0], requires_grad=True)
    (value, aux), (gradient,) = program.value_and_grad({"a": a}, has_aux=True)
    (second,) = tape.autograd.grad(gradient["a"].sum() + aux["y"].sum() + value, a)
    assert second.tolist() == [8.0 + 2 + 8, 8.0 + 2 + 16]
    with pytest.raises(RuntimeError, match="one floating number"):
        program.value_and_grad({"a": np.ones(2)})
    with pytest.raises(RuntimeError, match="returns a pair"):
        tape.record(lambda x: x.sum(), np.ones(2)).value_and_grad(np.ones(2), has_aux=True)


def test_written_parts_of_structures() -> None:
    def fun(state: Any, dt: Any) -> Any:
        state["x"] += state["v"] * dt
        state["v"] *= 0.5
        return state["x"].sum()

    program = tape.record(fun, {"x": np.zeros(2), "v": np.ones(2)}, 0.1)
    state = {"x": np.zeros(2), "v": np.array([1.0, 2.0])}
    assert program(state, 0.5) == 1.5
    assert (state["x"].tolist(), state["v"].tolist()) == ([0.5, 1.0], [0.5, 1.0])
    one = np.ones(2)
    with pytest.raises(RuntimeError, match=r"argument 0\['x'\] is written .* argument 0\['v'\]"):
        program({"x": one, "v": one}, 0.5)


def test_structures_compose() -> None:
    program = tape.record(loss, model_of(0), np.ones(3))
    x = tape.tensor([0.1, 0.2, 0.3], requires_grad=True)
    model = model_of(1, tensors=True)

    def around(f: Any) -> list[Any]:
        value = f(model, x)
        (first,) = tape.autograd.grad(value, x, create_graph=True)
        return [value, first, *tape.autograd.grad((first * first).sum(), x)]

    for one, other in zip(around(program), around(loss), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-12)
