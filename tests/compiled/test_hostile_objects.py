"""Objects with special methods that answer everything, raise, or lie: to look at one runs no code of theirs."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick

RAN: list[str] = []
"""What ran of the objects' code."""


def noted(name: str) -> Callable[..., Any]:
    def method(*_: Any) -> Any:
        RAN.append(name)
        raise RuntimeError(name)

    return method


class Everything:
    """A null object: whatever is asked for, it is there."""

    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        return Everything()


class Lacking:
    """One that raises another error than AttributeError."""

    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        raise KeyError(name)


class Guarded:
    """One whose every attribute runs code."""

    __getattribute__ = noted("getattribute")


class Proxy:
    """One that passes for another."""

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "target", target)

    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        return getattr(object.__getattribute__(self, "target"), name)

    @property
    def __class__(self) -> Any:
        RAN.append("class")
        return type(object.__getattribute__(self, "target"))


def lying() -> Any:
    names = ["__eq__", "__hash__", "__bool__", "__len__", "__iter__", "__repr__", "__contains__", "__getitem__"]
    return type("Lying", (), {name: noted(name) for name in names})()


def computed() -> Any:
    names = ["__class__", "__dict__", "__module__", "__wrapped__", "rate"]
    return type("Computed", (), {name: property(noted(name)) for name in names})()


class Meta(type):
    """The class of a class, which answers for it."""

    __eq__, __len__, __bool__, __iter__ = noted("eq"), noted("len"), noted("bool"), noted("iter")
    __instancecheck__, __subclasscheck__, __getattr__ = noted("instance"), noted("subclass"), noted("getattr")

    def __hash__(cls) -> int:
        RAN.append("hash")
        return 1

    def __getattribute__(cls, name: str) -> Any:
        RAN.append(name)
        return type.__getattribute__(cls, name)


class Made(metaclass=Meta):
    """A class of such a class."""

    rate = 2.0


def derived(kind: type, *args: Any) -> Any:
    names = ["__eq__", "__iter__", "__len__", "__getitem__", "__repr__", "__missing__", "items", "__contains__"]
    return type("Derived", (kind,), {**{name: noted(name) for name in names}, "__hash__": object.__hash__})(*args)


OBJECTS: dict[str, Callable[[], Any]] = {
    "everything": Everything,
    "lacking": Lacking,
    "guarded": Guarded,
    "proxy": lambda: Proxy([1.0]),
    "proxy of a tensor": lambda: Proxy(tape.ones(2)),
    "lying": lying,
    "computed": computed,
    "metaclass": Made,
    "class": lambda: Made,
    "int": lambda: derived(int, 2),
    "str": lambda: derived(str, "a"),
    "dict": lambda: derived(dict, {"a": 1.0}),
    "list": lambda: derived(list, [1.0]),
    "tuple": lambda: derived(tuple, (1.0,)),
    "array": lambda: np.ones(2).view(type("Array", (np.ndarray,), {"__len__": noted("len")})),
    "mock": mock.Mock,
    "magic mock": mock.MagicMock,
    "partial": lambda: functools.partial(len, lying()),
    "set of them": lambda: {object(): lying()},
}
TEXTS = (
    "def f(x):\n    return x * use(held)",
    "def f(x, given=held):\n    return x * use(given)",
    "def f(x):\n    if x is None: held.rate.deep, held['a'], held.__wrapped__, held.f(1)\n    return x * use(held)",
    "def f(x):\n    if x is None: box.held.rate\n    return x * use(box)",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", OBJECTS)
def test_no_code_of_an_object_runs_to_look_at_it(name: str, text: str) -> None:
    held = OBJECTS[name]()
    variables = {"held": held, "box": types.SimpleNamespace(held=held), "use": lambda _: 2.0, "__name__": "user"}
    exec(text, variables)  # noqa: S102 (written here)
    for function in (variables["f"], types.MethodType(lambda _, x: variables["f"](x), held)):
        compiled: Any = tape.compile(function, check="never")
        RAN.clear()
        assert [float(compiled(float(k))) for k in range(5)] == [2.0 * k for k in range(5)]
        assert not RAN
        assert sum(program.hits for program in compiled.programs) == 3


def test_what_wraps_a_hostile_object_is_compiled() -> None:
    for make in OBJECTS.values():

        def function(x: Any) -> Any:
            return x * 2.0

        function.__wrapped__ = make()  # type: ignore[attr-defined]
        RAN.clear()
        compiled = tape.compile(function, check="never")
        assert [float(compiled(float(k))) for k in range(4)] == [0.0, 2.0, 4.0, 6.0]
        assert not RAN


def test_the_cells_of_a_decorator_are_watched() -> None:
    factor = 2.0

    def scaled(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(x: Any) -> Any:
            return function(x) * factor

        return wrapper

    compiled = tape.compile(scaled(lambda x: x + 1.0), check="never")
    assert [compiled(1.0) for _ in range(4)] == [4.0] * 4
    factor = 3.0
    assert [compiled(1.0) for _ in range(4)] == [6.0] * 4
