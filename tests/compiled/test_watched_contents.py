"""What a compiled function reads from outside holds: containers of all kinds, arrays of derived classes, randomness."""

from __future__ import annotations

import array
import ctypes
import enum
import functools
import io
import itertools
import random
import re
import types
import uuid
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning

pytestmark = pytest.mark.quick

KEY, OTHER = tape.ones(2), tape.ones(2)
Named = namedtuple("Named", "a b")  # noqa: PYI024 (as users write it)


class Table(dict[Any, Any]):
    """A dictionary of a derived class."""


class Row(list[Any]):
    """A list of a derived class, with items of its own."""

    def __getitem__(self, key: Any) -> Any:
        return list.__getitem__(self, key) * 1.0


def increase(key: Any) -> Callable[[Any], Any]:
    def change(held: Any) -> None:
        held[key] = held[key] + 1

    return change


def grow(held: Any) -> None:
    (held.add if isinstance(held, set) else held.append)(len(held) + 7)


def rotate(held: Any) -> None:
    held.move_to_end(next(iter(held)))


def item(key: Any) -> Callable[[Any], Any]:
    return lambda held: held[key]


def total(held: Any) -> float:
    return float(sum(held))


def weighted(held: Any) -> float:
    return float(sum(k * x for k, x in enumerate(held.values(), 1)))


def one_more(held: Any) -> None:
    held.default_factory = constantly(held.default_factory() + 1)


def constantly(value: Any) -> Callable[[], Any]:
    return lambda: value


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "set": (lambda: {1.0, 2.0}, total, grow),
    "size of a set": (lambda: {1.0, 2.0}, lambda held: 3.0 if len(held) > 2 else 4.0, grow),
    "frozenset": (
        lambda: frozenset([Holder([1.0], total)]),
        lambda held: next(iter(held)).held[0],
        lambda held: increase(0)(next(iter(held)).held),
    ),
    "deque": (lambda: deque([1.0, 2.0]), total, grow),
    "bounded deque": (lambda: deque([1.0, 2.0], maxlen=2), total, grow),
    "OrderedDict": (lambda: OrderedDict(a=1.0, b=2.0), item("a"), increase("a")),
    "order": (lambda: OrderedDict(a=1.0, b=2.0), weighted, rotate),
    "defaultdict": (lambda: defaultdict(float, a=1.0), item("a"), increase("a")),
    "factory": (lambda: defaultdict(constantly(1.0)), lambda held: held.default_factory(), one_more),
    "Counter": (lambda: Counter("aab"), item("a"), lambda held: held.update("a")),
    "derived dict": (lambda: Table(a=1.0), item("a"), increase("a")),
    "derived list": (lambda: Row([1.0, 2.0]), item(0), increase(0)),
    "namedtuple": (lambda: Named([1.0], 2.0), lambda held: held.a[0], lambda held: increase(0)(held.a)),
    "UserDict": (lambda: UserDict(a=1.0), item("a"), increase("a")),
    "mappingproxy": (lambda: types.MappingProxyType({"a": [1.0]}), lambda m: m["a"][0], lambda m: increase(0)(m["a"])),
    "array": (lambda: array.array("d", [1.0, 2.0]), total, increase(0)),
    "longer array": (lambda: array.array("d", [1.0, 2.0]), total, grow),
    "bytearray": (lambda: bytearray(b"ab"), total, increase(0)),
    "memoryview": (lambda: memoryview(bytearray(b"ab")), total, increase(0)),
    "ctypes": (lambda: (ctypes.c_double * 2)(1.0, 2.0), item(0), increase(0)),
    "matrix": (lambda: np.matrix([1.0, 2.0]), lambda held: float(held.sum()), increase((0, 0))),
    "recarray": (
        lambda: np.rec.array([(1.0, 2.0)], dtype=[("a", float), ("b", float)]),
        lambda held: float(held.a[0]),
        lambda held: increase(0)(held.a),
    ),
    "masked": (lambda: np.ma.array([1.0, 2.0], mask=[False, True]), lambda held: float(held.sum()), increase(0)),
    "objects": (lambda: np.array([1.0, "x"], object), item(0), increase(0)),
    "keyed by tensors": (lambda: {KEY: 1.0, OTHER: 2.0}, item(KEY), increase(KEY)),
    "keyed by tuples": (lambda: {(0, 1): 1.0}, item((0, 1)), increase((0, 1))),
}


class Holder:
    """An object that holds something."""

    def __init__(self, held: Any, use: Callable[[Any], Any]) -> None:
        self.held, self.use = held, use

    def scaled(self, x: Any) -> Any:
        return x * self.use(self.held)


def as_cell(held: Any, use: Callable[[Any], Any]) -> Any:
    return lambda x: x * use(held)


def as_attribute(held: Any, use: Callable[[Any], Any]) -> Any:
    return Holder(held, use).scaled


def as_default(held: Any, use: Callable[[Any], Any]) -> Any:
    def scaled(x: Any, given: Any = held) -> Any:
        return x * use(given)

    return scaled


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of np.matrix
@pytest.mark.parametrize("place", [as_cell, as_attribute, as_default])
@pytest.mark.parametrize("name", CASES)
def test_other_contents_are_seen(name: str, place: Callable[..., Any]) -> None:
    make, use, change = CASES[name]
    held = make()
    compiled = tape.compile(place(held, use), check="never")
    for _ in range(3):
        assert [float(compiled(2.0)) for _ in range(4)] == [2.0 * use(held)] * 4
        change(held)
    assert sum(program.hits for program in compiled.programs) > 0


def test_a_mapped_file_is_seen(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "data", np.float64, "w+", shape=(3,))
    compiled = tape.compile(lambda x: x * float(mapped.sum() + 1.0), check="never")
    for k in range(3):
        assert [float(compiled(2.0)) for _ in range(4)] == [2.0 * (k + 1.0)] * 4
        mapped[k] = 1.0


class Drawing:
    """An object with randomness and iterators of its own."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)
        self.steps = iter(range(1000))
        self.made = (k for k in range(1000))

    def drawn(self, x: Any) -> Any:
        return x * (2.0 if self.generator.random() < 2.0 else 1.0)

    def stepped(self, x: Any) -> Any:
        return x * (2.0 if next(self.steps) >= 0 else 1.0)

    def generated(self, x: Any) -> Any:
        return x * (2.0 if next(self.made) >= 0 else 1.0)


GENERATOR, TWISTER, OWN, COUNT = np.random.default_rng(0), np.random.RandomState(0), random.Random(0), itertools.count()  # noqa: S311
TEXT = io.StringIO("1\n" * 100)
CHANCES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "random": (lambda x: x if random.random() < 2 else -x, "draws random numbers from Python's random"),  # noqa: S311
    "sample": (lambda x: x if random.sample([1], 1) else -x, "draws random numbers from Python's random"),
    "np.random": (lambda x: x if np.random.rand() < 2 else -x, "draws random numbers from np.random"),  # noqa: NPY002
    "Generator": (lambda x: x if GENERATOR.random() < 2 else -x, "draws random numbers from GENERATOR"),
    "RandomState": (lambda x: x if TWISTER.rand() < 2 else -x, "draws random numbers from TWISTER"),
    "Random": (lambda x: x if OWN.random() < 2 else -x, "draws random numbers from OWN"),
    "attribute": (Drawing().drawn, "draws random numbers from self.generator"),
    "iterator": (Drawing().stepped, "reads self.steps of Drawing.stepped, a range_iterator"),
    "generator": (Drawing().generated, "reads self.made of Drawing.generated, a generator"),
    "count": (lambda x: x if next(COUNT) >= 0 else -x, "reads COUNT of .*, a count"),
    "file": (lambda x: x * float(TEXT.readline()), "reads TEXT of .*, a StringIO"),
}


@pytest.mark.parametrize("name", CHANCES)
def test_a_call_that_draws_or_advances_is_not_replayed(name: str) -> None:
    function, reason = CHANCES[name]
    compiled = tape.compile(function, check="never")
    with pytest.warns(CompileWarning, match=reason):
        assert len([compiled(1.0) for _ in range(4)]) == 4
    assert not compiled.programs


def test_a_gradient_that_draws_is_not_replayed() -> None:
    compiled = tape.compile(tape.value_and_grad(lambda x: x if random.random() < 2 else -x), check="never")  # noqa: S311
    with pytest.warns(CompileWarning, match="draws random numbers"):
        assert [compiled(1.0) for _ in range(4)] == [(1.0, 1.0)] * 4


UNSEEDED = {
    "default_rng": (lambda x: x * (np.random.default_rng().random() < 0.5), "_urandom"),
    "RandomState": (lambda x: x * (np.random.RandomState().rand() < 0.5), "_urandom"),
    "Random": (lambda x: x * (random.Random().random() < 0.5), "a generator random.Random that is given no seed"),  # noqa: S311
    "SystemRandom": (lambda x: x * (random.SystemRandom().random() < 0.5), "_urandom"),
    "uuid": (lambda x: x * (uuid.uuid4().int % 2), "urandom"),
}


@pytest.mark.parametrize("name", UNSEEDED)
@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
def test_a_generator_without_a_seed_is_another_one_at_each_call(name: str) -> None:
    function, said = UNSEEDED[name]
    compiled = tape.compile(function, check="never")
    assert {compiled(1.0) for _ in range(64)} == {0.0, 1.0}
    assert re.search(f"dynamic: .*{said}", compiled.explain()), compiled.explain()


def test_what_is_read_and_not_advanced_is_replayed(tmp_path: Path) -> None:
    log = (tmp_path / "log").open("w")

    def function(x: Any, generator: Any = GENERATOR) -> Any:
        log.write("side effect\n")
        return x * float(np.random.default_rng(3).random() < 2) if generator is not None else x

    compiled = tape.compile(function, check="never")
    assert [compiled(2.0) for _ in range(5)] == [2.0] * 5
    log.close()
    assert (tmp_path / "log").read_text() == "side effect\n" * 2
    assert compiled.programs


class Method(enum.IntEnum):
    """Ways to go, as users number them."""

    EULER = 1
    HEUN = 2


def test_a_member_of_an_enumeration_is_part_of_the_signature() -> None:
    compiled = tape.compile(lambda x, method: x * 2.0 if method == Method.EULER else x * 3.0)
    for _ in range(4):
        assert compiled(1.0, Method.EULER) == 2.0
        assert compiled(1.0, Method.HEUN) == 3.0
    assert len(compiled.programs) == 2


class Part:
    """A part of a model, which computes what it is asked for."""

    def __init__(self, rate: float) -> None:
        self.rate, self.table = rate, {"deep": rate}

    @property
    def doubled(self) -> float:
        return self.rate * 2.0

    def __getattr__(self, name: str) -> float:
        if name == "deep":
            return self.table[name]
        raise AttributeError(name)

    def scaled(self, x: Any) -> Any:
        return x * self.rate


class Whole:
    """An object with two parts of one class."""

    def __init__(self) -> None:
        self.one, self.other = Part(2.0), Part(3.0)

    @property
    def rate(self) -> float:
        return self.one.rate * self.other.rate

    def by_methods(self, x: Any) -> Any:
        return self.other.scaled(self.one.scaled(x))

    def by_properties(self, x: Any) -> Any:
        return x * self.one.doubled * self.other.doubled

    def by_answers(self, x: Any) -> Any:
        return x * self.one.deep * self.other.deep

    def by_property(self, x: Any) -> Any:
        return x * self.rate


@pytest.mark.parametrize("name", ["by_methods", "by_properties", "by_answers", "by_property"])
def test_what_code_of_parts_reads_of_each_is_seen(name: str) -> None:
    whole = Whole()
    compiled = tape.compile(getattr(whole, name), check="never")
    for k in range(4):
        expected = getattr(whole, name)(2.0)
        assert [compiled(2.0) for _ in range(4)] == [expected] * 4
        changed = (whole.one, whole.other)[k % 2]
        changed.rate += 1.0
        changed.table["deep"] += 1.0
    assert compiled.programs


def test_a_cache_that_others_add_to_stays_as_it_was() -> None:
    @functools.lru_cache
    def table(n: int) -> Any:
        return np.linspace(0.0, 1.0, n)

    compiled = tape.compile(lambda x: (x * table(3)).sum(), check="never")
    for n in range(6):
        assert compiled(2.0) == 3.0
        table(5 + n)
    assert compiled.calls["recorded"] == 2


def test_a_call_that_changes_what_a_cache_holds_stays_dynamic() -> None:
    @functools.lru_cache
    def counts() -> list[float]:
        return [0.0]

    def counted(x: Any) -> Any:
        counts()[0] += 1.0
        return x * counts()[0]

    compiled = tape.compile(counted, check="never")
    with pytest.warns(CompileWarning, match="the call itself changed cache of .*counts"):
        assert [compiled(2.0) for _ in range(5)] == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_an_array_that_the_call_advances_is_named() -> None:
    state = np.zeros(3)

    def f(p: Any) -> Any:
        total = (p * state).sum()
        state[:] = state + 1.0
        return total

    compiled = tape.compile(tape.value_and_grad(f))
    with pytest.warns(CompileWarning, match="the call itself changed state of .*f, which NumPy wrote to"):
        results = [compiled(2.0) for _ in range(6)]
    assert results == [(6.0 * k, 3.0 * k) for k in range(6)]
