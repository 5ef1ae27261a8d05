"""What native code sees of what a function reads from outside: all that has changed, in containers and objects, too."""

from __future__ import annotations

import dataclasses
import functools
import gc
import types
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

import tape
from kernels.programs.program import native
from tape.compiled import native_checks
from tape.compiled.compiled_function import CompiledFunction
from tape.compiled.native_checks import Draft
from tests.support.handwritten_programs import program
from tests.support.native_plans import installed, settled

pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(not native(), reason="calls go through Python here"),
]
Case = tuple[Callable[..., Any], Callable[[], Any]]
"""A function, and what changes what it reads."""
Named = namedtuple("Named", "a b")  # noqa: PYI024


class Above:
    """A class with a number."""

    above = 2.0


class Model(Above):
    """An object with numbers, in it and in its class."""

    common = 3.0
    inner: ClassVar[Any] = {"k": [1.0, 2.0]}

    def __init__(self) -> None:
        self.rate, self.parts = 2.0, {"k": [1.0, 2.0]}

    def __call__(self, x: Any) -> Any:
        return x * self.rate * self.common * self.above

    def scaled(self, x: Any) -> Any:
        return x * self.parts["k"][1]

    def through(self, x: Any) -> Any:
        return -self.scaled(x)

    @functools.cached_property
    def cached(self) -> float:
        return self.rate


class Other(Model):
    """Another class of the same layout."""

    common = 5.0


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("rate", "unset")

    def __init__(self) -> None:
        self.rate = 2.0


@dataclasses.dataclass
class Data:
    """Two numbers."""

    rate: float = 2.0
    shift: float = 3.0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """Two numbers in slots."""

    rate: float = 2.0
    shift: float = 3.0


def first_of(d: dict[str, Any]) -> Any:
    return next(iter(d.values()))


def in_dict(change: Callable[[dict[str, Any]], Any], f: Callable[[Any, dict[str, Any]], Any] | None = None) -> Case:
    d: dict[str, Any] = {"a": 2.0, "b": 3.0, "c": {"l": [4.0]}, "t": (5.0, [6.0])}
    sums = f or (lambda x, d: x * first_of(d) * d["b"] * d["c"]["l"][0] * d["t"][1][0] + len(d))
    return lambda x: sums(x, d), lambda: change(d)


def reordered(d: dict[str, Any]) -> None:
    d["a"] = d.pop("a")


def in_partial(change: Callable[[Any], Any]) -> Case:
    def f(x: Any, k: float, n: float = 1.0, *, held: Any) -> Any:
        return x * k * n * held[0]

    made = functools.partial(f, k=2.0, held=[3.0])
    return made, lambda: change(made)


def tripled(x: Any, k: float, *, held: Any) -> Any:
    return 3.0 * x * k * held[0]


def in_inner_partial(change: Callable[[Any], Any]) -> Case:
    def f(k: float, x: Any, n: float = 1.0) -> Any:
        return x * k * n

    made = functools.partial(f, 2.0)
    return lambda x: -made(x), lambda: change(made)


def in_defaults(change: Callable[[Any], Any]) -> Case:
    def f(x: Any, k: float = 2.0, *, n: float = 3.0) -> Any:
        return x * k * n

    return f, lambda: change(f)


def in_list(change: Callable[[list[Any]], Any]) -> Case:
    held: list[Any] = [float(k + 1) for k in range(100)]
    return lambda x: x * held[2] * held[-1] + len(held), lambda: change(held)


def in_large(change: Callable[[dict[str, float]], Any]) -> Case:
    held = {f"k{k}": float(k + 1) for k in range(1000)}
    return lambda x: x * held["k3"], lambda: change(held)


def in_object(change: Callable[[Any], Any], name: str = "rate", kind: Any = Model) -> Case:
    thing = kind()
    getattr(thing, name)
    f = {
        "rate": lambda x: x * thing.rate, "scaled": lambda x: -thing.scaled(x), "cached": lambda x: x * thing.cached,
        "above": lambda x: x * thing.above, "through": lambda x: -thing.through(x),
        "inner": lambda x: x * thing.inner["k"][0],
    }[name]  # fmt: skip
    return f, lambda: change(thing)


def called(change: Callable[[Any], Any]) -> Case:
    thing = Model()
    return thing, lambda: change(thing)


def a_class(change: Callable[[], Any]) -> Case:
    return lambda x: x * Model.common * Model.above, change


def a_bound_method() -> Case:
    thing = Model()
    method = thing.scaled

    def change() -> None:
        nonlocal method
        method = Model().through

    return lambda x: -method(x), change


def what_a_bound_method_reads() -> Case:
    thing = Model()
    return thing.scaled, lambda: thing.parts["k"].__setitem__(1, 7.0)


def a_named_tuple() -> Case:
    pair = Named(2.0, 3.0)

    def change() -> None:
        nonlocal pair
        pair = Named(5.0, 3.0)

    return lambda x: x * pair.a, change


CASES: dict[str, Callable[[], Case]] = {
    "value": lambda: in_dict(lambda d: d.update(b=7.0)),
    "added": lambda: in_dict(lambda d: d.update(e=7.0)),
    "removed": lambda: in_dict(lambda d: d.pop("a")),
    "renamed": lambda: in_dict(lambda d: d.update(e=d.pop("a"))),
    "reordered": lambda: in_dict(reordered),
    "inner dict": lambda: in_dict(lambda d: d["c"].update(l=[7.0])),
    "list in a dict": lambda: in_dict(lambda d: d["c"]["l"].__setitem__(0, 7.0)),
    "list in a tuple": lambda: in_dict(lambda d: d["t"][1].__setitem__(0, 7.0)),
    "partial": lambda: in_partial(lambda p: p.keywords.update(k=5.0)),
    "partial, more": lambda: in_partial(lambda p: p.keywords.update(n=5.0)),
    "partial, in a keyword": lambda: in_partial(lambda p: p.keywords["held"].__setitem__(0, 5.0)),
    "partial, other": lambda: in_partial(lambda p: p.__setstate__((p.func, (), {"k": 5.0, "held": [3.0]}, {}))),
    "partial, of another": lambda: in_partial(lambda p: p.__setstate__((tripled, p.args, p.keywords, {}))),
    "inner partial": lambda: in_inner_partial(lambda p: p.keywords.update(n=5.0)),
    "inner partial, other": lambda: in_inner_partial(lambda p: p.__setstate__((p.func, (5.0,), {}, {}))),
    "keyword default": lambda: in_defaults(lambda f: f.__kwdefaults__.update(n=5.0)),
    "keyword defaults": lambda: in_defaults(lambda f: setattr(f, "__kwdefaults__", {"n": 5.0})),
    "defaults": lambda: in_defaults(lambda f: setattr(f, "__defaults__", (5.0,))),
    "item": lambda: in_list(lambda held: held.__setitem__(2, 7.0)),
    "last item": lambda: in_list(lambda held: held.__setitem__(-1, 7.0)),
    "length": lambda: in_list(lambda held: held.insert(50, 7.0)),
    "no items": lambda: in_list(lambda held: held.__delitem__(slice(3, 90))),
    "large": lambda: in_large(lambda held: held.update(k3=9.0)),
    "attribute": lambda: in_object(lambda o: setattr(o, "rate", 7.0)),
    "own above a class's": lambda: in_object(lambda o: setattr(o, "above", 7.0), "above"),
    "attributes": lambda: in_object(lambda o: setattr(o, "__dict__", {**o.__dict__, "rate": 7.0})),
    "no attributes": lambda: in_object(lambda o: (delattr(o, "__dict__"), setattr(o, "rate", 7.0))),
    "class of it": lambda: called(lambda o: setattr(o, "__class__", Other)),
    "called": lambda: called(lambda o: setattr(o, "rate", 7.0)),
    "called, class": lambda: called(lambda _: setattr(Model, "common", 7.0)),
    "called, above": lambda: called(lambda _: setattr(Above, "above", 7.0)),
    "look-up": lambda: called(lambda _: setattr(Model, "__getattribute__", lambda *_: 7.0)),
    "property": lambda: called(lambda _: setattr(Model, "rate", property(lambda _: 7.0))),
    "method": lambda: in_object(lambda _: setattr(Model, "scaled", lambda _, x: x * 9.0), "scaled"),
    "own method": lambda: in_object(lambda o: setattr(o, "scaled", lambda x: x * 9.0), "scaled"),
    "method in a method": lambda: in_object(lambda _: setattr(Model, "scaled", lambda _, x: x * 9.0), "through"),
    "in a class": lambda: in_object(lambda o: o.inner.update(k=[9.0]), "inner"),
    "cached": lambda: in_object(lambda o: o.__dict__.update(cached=9.0), "cached"),
    "slot": lambda: in_object(lambda o: setattr(o, "rate", 7.0), kind=Slotted),
    "data": lambda: in_object(lambda o: setattr(o, "rate", 7.0), kind=Data),
    "frozen": lambda: in_object(lambda o: object.__setattr__(o, "rate", 7.0), kind=Frozen),
    "namespace": lambda: in_object(lambda o: setattr(o, "rate", 7.0), kind=lambda: types.SimpleNamespace(rate=2.0)),
    "class's": lambda: a_class(lambda: setattr(Model, "common", 7.0)),
    "above class's": lambda: a_class(lambda: setattr(Above, "above", 7.0)),
    "bases": lambda: a_class(lambda: setattr(Model, "__bases__", (type("Higher", (Above,), {"above": 7.0}),))),
    "bound method": a_bound_method, "read by it": what_a_bound_method_reads, "named tuple": a_named_tuple,
}  # fmt: skip


@pytest.fixture(autouse=True)
def restored_classes() -> Iterator[None]:
    """Leave the classes as they were."""
    before = [(kind, dict(vars(kind))) for kind in (Above, Model)]
    yield
    Model.__bases__ = (Above,)
    for kind, variables in before:
        for name in set(vars(kind)) - set(variables):
            delattr(kind, name)
        for name, x in variables.items():
            if vars(kind)[name] is not x:
                setattr(kind, name, x)


def natively(plain: Callable[..., Any]) -> Any:
    """Return a compiled function that native code calls; its program answers what the function does now, at 2."""
    f = tape.compile(plain, check="never")
    for _ in range(4):
        f(2.0)
    body = f"def program():\n    r0[0] = {float(plain(2.0))!r} + 0.0 * a0[0]\n    return -1\n"
    return settled(installed(f, program(body, [1.0], [1.0])), 2.0)


def answers(case: Case, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float, float, float]:
    """Return what is computed before a change and after it, and what is right; all without Python before."""
    plain, change = case
    f, before = natively(plain), float(plain(2.0))
    assert f._direct[0].rest is None, f._direct[0].rest
    with monkeypatch.context() as patched:
        patched.delattr(CompiledFunction, "_answer")
        held = f(2.0)
    change()
    return held, before, f(2.0), float(plain(2.0))


@pytest.mark.parametrize("name", CASES)
def test_what_has_changed_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, before, changed, after = answers(CASES[name](), monkeypatch)
    assert held == before
    assert after != before
    assert changed == after


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("contents", "value"), ("contents", "partial"), ("contents", "item"), ("member", "slot"), ("state", "class's"),
        ("partial", "partial, other"), ("entry", "called"), ("parts", "list in a dict"), ("attribute", "called"),
    ],
)  # fmt: skip
def test_a_check_that_is_left_out_is_noticed(method: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draft, method, lambda *_: True)
    _, before, changed, after = answers(CASES[name](), monkeypatch)
    assert before == changed != after


@pytest.mark.parametrize(
    "name", ["value", "partial, other", "called, class", "slot", "above class's", "keyword default"]
)
def test_what_native_code_cannot_find_python_looks_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, unknown in (("place_of_version", lambda: 0), ("place_of_member", lambda *_: 0)):
        monkeypatch.setattr(native_checks, place, unknown)
    monkeypatch.setattr(native_checks, "places_in_functions", lambda: (0, 0, 0))
    plain, change = CASES[name]()
    f = natively(plain)
    assert f._direct[0].rest is not None
    change()
    assert f(2.0) == float(plain(2.0))


def test_equal_containers_of_other_objects_are_no_change() -> None:
    d = {"a": [1000.5, 2.0]}
    f = natively(lambda x: x * d["a"][0])
    for k in range(20):
        d["a"] = [float(f"{1000 + k * 0}.5"), 2.0]
        assert f(2.0) == 2001.0
    assert len(f.programs) == 1


def test_no_python_runs_in_native_checks() -> None:
    asked = [0]

    class Key:
        def __hash__(self) -> int:
            asked[0] += 1
            return 1

        def __eq__(self, other: object) -> bool:
            asked[0] += 1
            return self is other

    d = {Key(): 2.0, Key(): 3.0}
    f = natively(lambda x: x * first_of(d))
    asked[0] = 0
    for _ in range(10):
        assert f(2.0) == 4.0
    assert asked[0] == 0
    d[next(iter(d))] = 5.0
    assert f(2.0) == 10.0


def test_a_comparison_that_raises_is_left_to_python() -> None:
    raising = [False]

    class Evil:
        def __hash__(self) -> int:
            return hash("n")

        def __eq__(self, other: object) -> bool:
            if raising.pop():
                raising.append(False)
                raise ValueError
            raising.append(False)
            return self is other

    space: dict[Any, Any] = {Evil(): 1.0, "n": 2.0}
    exec("def f(x):\n    return x * n\n", space)  # noqa: S102 (its globals have an odd key)
    f = natively(space["f"])
    raising[0] = True
    assert f(2.0) == 4.0
    assert raising == [False]
    space["n"] = 5.0
    assert f(2.0) == 10.0


def test_what_is_looked_at_may_die() -> None:
    d: dict[str, Any] = {"a": [2.0, {"b": 3.0}]}
    thing = Model()
    f = natively(lambda x: x * d["a"][1]["b"] * thing.parts["k"][0])
    for k in range(30):
        d.clear()
        gc.collect()
        d["a"] = [2.0, {"b": float(k)}]
        thing.__dict__ = {"rate": 1.0, "parts": {"k": [2.0]}}
        assert f(2.0) == 4.0 * k
