"""What a compiled function reads from outside: with another value there, it computes what Python would."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning
from tape.tensors.pytrees import leaves

pytestmark = pytest.mark.quick

RATE = 2.0


class Constants:
    """Numbers as attributes of a class, and functions that read them."""

    rate = 2.0

    @staticmethod
    def scaled(x: Any) -> Any:
        return x * Constants.rate

    @classmethod
    def scaled_too(cls, x: Any) -> Any:
        return x * cls.rate


class Layer:
    """An object with a number, called by whoever has it."""

    inherited = 2.0

    def __init__(self) -> None:
        self.rate = 2.0
        self.activation: Callable[[Any], Any] = tape.sin
        self.parts = {"k": [1.0, 2.0]}

    def __call__(self, x: Any) -> Any:
        return x * self.rate * RATE

    def scaled(self, x: Any) -> Any:
        return x * self.parts["k"][1]

    def activated(self, x: Any) -> Any:
        return self.activation(x)

    @property
    def doubled(self) -> float:
        return self.rate * 2


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 2.0


class Heir(Slotted):
    """One whose slots are a base's."""

    __slots__ = ()


def factory(rate: float) -> tuple[Callable[[Any], Any], Callable[[float], None]]:
    def scaled(x: Any) -> Any:
        return x * rate

    def change(to: float) -> None:
        nonlocal rate
        rate = to

    return scaled, change


def module(rate: float) -> Any:
    made = types.ModuleType("made")
    exec("def scaled(x):\n    return x * RATE\n", made.__dict__)  # noqa: S102 (a module of its own)
    made.RATE = rate
    return made


def _aliased(thing: Any, name: str) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        alias = thing
        return x * getattr(alias, name)

    return f


def _set(thing: Any, name: str) -> Callable[[], None]:
    return lambda: setattr(thing, name, 5.0)


def a_class_attribute() -> Any:
    return lambda x: x * Constants.rate, _set(Constants, "rate")


def a_static_method() -> Any:
    return lambda x: -Constants.scaled(x), _set(Constants, "rate")


def a_class_method() -> Any:
    return lambda x: -Constants.scaled_too(x), _set(Constants, "rate")


def a_method() -> Any:
    layer = Layer()
    return lambda x: -layer.scaled(x), lambda: layer.parts["k"].__setitem__(1, 5.0)


def a_property() -> Any:
    layer = Layer()
    return lambda x: x * layer.doubled, _set(layer, "rate")


def a_function_as_attribute() -> Any:
    layer = Layer()
    return layer.activated, lambda: setattr(layer, "activation", tape.cos)


def a_function_as_cell() -> Any:
    activation = tape.sin

    def change() -> None:
        nonlocal activation
        activation = tape.cos

    return lambda x: -activation(x), change


def objects_in_a_list() -> Any:
    layers = [Layer(), Layer()]

    def network(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return network, _set(layers[1], "rate")


def what_objects_in_a_list_read() -> Any:
    network, _ = objects_in_a_list()
    return network, lambda: globals().__setitem__("RATE", 5.0)


def an_object_under_another_name() -> Any:
    layer = Layer()
    return _aliased(layer, "rate"), _set(layer, "rate")


def what_a_class_gives_an_object() -> Any:
    return _aliased(Layer(), "inherited"), _set(Layer, "inherited")


def a_method_of_a_class() -> Any:
    layers = [Layer()]

    def f(x: Any) -> Any:
        layer = layers[0]
        return layer.scaled(x)

    return f, lambda: setattr(Layer, "scaled", lambda _, x: x * 5)


def slots() -> Any:
    slotted = Slotted()
    return lambda x: x * slotted.rate, _set(slotted, "rate")


def slots_under_another_name() -> Any:
    slotted = Heir()
    return _aliased(slotted, "rate"), _set(slotted, "rate")


def closures_of_one_factory() -> Any:
    (first, _), (second, change) = factory(2.0), factory(3.0)
    return lambda x: first(x) + second(x), lambda: change(5.0)


def modules_with_like_functions() -> Any:
    one, other = module(2.0), module(3.0)
    return lambda x: one.scaled(x) + other.scaled(x), _set(other, "RATE")


def a_function_by_another_name() -> Any:
    made = {"f": module(2.0)}

    def f(x: Any) -> Any:
        found = next(iter(made.values()))
        return found.scaled(x)

    return f, _set(made["f"], "RATE")


def one_of_many_names() -> Any:
    """A function with more names than one byte can number, so that instructions have prefixes."""
    variables: dict[str, Any] = {"made": module(2.0)}
    unused = "\n        ".join(f"x.a{i}" for i in range(300))
    text = f"def f(x):\n    if x is None:\n        {unused}\n    return x * made.RATE"
    exec(text, variables)  # noqa: S102 (written here)
    return variables["f"], _set(variables["made"], "RATE")


def the_object_of_a_partial() -> Any:
    layer = Layer()
    return functools.partial(Layer.__call__, layer), _set(layer, "rate")


CASES = [
    a_class_attribute, a_static_method, a_class_method, a_method, a_property, a_function_as_attribute,
    a_function_as_cell, objects_in_a_list, what_objects_in_a_list_read, an_object_under_another_name,
    what_a_class_gives_an_object, a_method_of_a_class, slots, slots_under_another_name, closures_of_one_factory,
    modules_with_like_functions, a_function_by_another_name, the_object_of_a_partial,
    one_of_many_names,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("guarded", [False, True])
def test_another_value_outside_is_seen(case: Callable[[], Any], guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Constants, "rate", 2.0)
    monkeypatch.setattr(Layer, "inherited", 2.0)
    monkeypatch.setattr(Layer, "scaled", Layer.scaled)
    monkeypatch.setitem(globals(), "RATE", 2.0)
    f, change = case()
    compiled = tape.compile((lambda x: f(x) if x > 0 else -x) if guarded else f, check="never")
    expected = f(tape.tensor(1.5)).item()
    assert [compiled(1.5) for _ in range(4)] == [expected] * 4
    assert sum(program.hits for program in compiled.programs) == 2, compiled.explain()
    change()
    changed = f(tape.tensor(1.5)).item()
    assert changed != expected
    assert [compiled(1.5) for _ in range(4)] == [changed] * 4
    assert sum(program.hits for program in compiled.programs) == 4, compiled.explain()


def test_a_large_array_that_numpy_and_operations_read_is_compared() -> None:
    data = np.ones(300_000)
    compiled = tape.compile(lambda x: (x * data).sum() / data.max(), check="never")
    for _ in range(4):
        assert compiled(2.0) == 600_000.0
    data[0] = 10.0
    assert compiled(2.0) == 2.0 * (300_009.0 / 10.0)


def test_a_function_with_an_assert_is_replayed() -> None:
    def f(x: Any) -> Any:
        assert x.ndim == 0
        return x * 2

    compiled = tape.compile(f)
    assert [compiled(1.5) for _ in range(4)] == [3.0] * 4
    assert compiled.programs


def test_what_code_reads_that_was_found_while_it_ran_is_watched_for_changes_by_the_call() -> None:
    made = [module(2.0)]
    exec("def scaled(x):\n    global RATE\n    RATE += 1\n    return x * 2.0\n", made[0].__dict__)  # noqa: S102

    def f(x: Any) -> Any:
        return made[-1].scaled(x)

    compiled = tape.compile(f)
    with pytest.warns(tape.errors.CompileWarning, match="the call itself changed RATE of scaled"):
        assert [compiled(1.5) for _ in range(4)] == [3.0] * 4
    assert made[0].RATE == 6.0


GRID, PLACES = np.arange(12.0).reshape(3, 4), np.arange(8).reshape(2, 4) % 4
CONSTANT = tape.arange(12.0).reshape(3, 4)
MADE_OF_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "a row": lambda x: (x * GRID[0]).sum(),
    "two rows": lambda x: (x * GRID[0] * GRID[1] + GRID[0]).sum(),
    "turned": lambda x: (x * GRID.T[:, 1]).sum() + (x[0] * GRID.T[0]).sum(),
    "a place": lambda x: (x * GRID[0, 1]).sum() * GRID[2][3],
    "indices": lambda x: (x[PLACES[0]] * x[PLACES[1]]).sum(),
    "what NumPy makes of it": lambda x: x.sum() * float(np.linalg.norm(GRID[1])) * np.sum(GRID.T[2]),
    "of a tensor": lambda x: (x * CONSTANT[0] + CONSTANT.T[1][0] * CONSTANT[2]).sum(),
    "a shape": lambda x: x.sum() * GRID.shape[0] + GRID[1].shape[0],
}  # fmt: skip


@pytest.mark.parametrize("name", MADE_OF_ARRAYS)
def test_what_is_made_of_a_global_array_each_time(name: str) -> None:
    function, x = MADE_OF_ARRAYS[name], np.array([0.3, -0.7, 1.1, 2.0])
    compiled = tape.compile(tape.value_and_grad(function))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        for k in range(8):
            value, gradient = compiled(x)
            expected, slope = tape.value_and_grad(function)(x)
            assert value == pytest.approx(expected, rel=1e-13)
            np.testing.assert_allclose(gradient, slope, rtol=1e-13)
            if k % 3 == 2:
                GRID[k % 2] += 1.0
                GRID[2, 3] -= 0.5
                PLACES[0] = (PLACES[0] + 1) % 4
                CONSTANT.add_(1.0)
    assert compiled.programs
    assert " dynamic" not in compiled.explain()


WITHOUT_NAME = """
class Scaled:
    rate = 2.0
    def __init__(self):
        self.power = 2
    def __call__(self, x):
        y = x * self.rate
        while y.sum() > 5.0:
            y = y * 0.5
        return (y ** self.power).sum() + factor(x) * scale.by
class Scale:
    by = 1.0
def factor(x):
    return (x * K).sum()
K = 1.0
scaled, scale = Scaled(), Scale()
"""


@pytest.mark.parametrize("transform", [lambda f: f, tape.value_and_grad])
def test_what_exec_makes_in_a_module_without_a_name(transform: Callable[[Any], Any]) -> None:
    """Its classes say that they are of builtins, and its functions have no source."""
    variables: dict[str, Any] = {}
    exec(WITHOUT_NAME, variables)  # noqa: S102 (written here)
    dynamic = transform(variables["scaled"])
    compiled = tape.compile(dynamic, mode="eager", check="never")
    changes: list[Callable[[], Any]] = [
        lambda: setattr(variables["scaled"], "power", 3), lambda: setattr(variables["Scaled"], "rate", 3.0),
        lambda: variables.update(K=4.0), lambda: setattr(variables["scale"], "by", 5.0),
        lambda: setattr(variables["Scale"], "by", 6.0),
    ]  # fmt: skip
    for change in (lambda: None, *changes):
        change()
        for k in range(4):
            x = tape.tensor([0.3 + 0.1 * k, -0.7, 1.1])
            for got, right in zip(*(leaves(f(x)) for f in (compiled, dynamic)), strict=True):
                np.testing.assert_allclose(got, right, rtol=1e-12)
