"""What a snapshot at a loop's head sees: each function here changes something that decides how its iterations go on.

Where that is the case, no two visits one after the other may have equal states; each such function has a neighbour
that changes nothing, whose visits have one state.
"""

from __future__ import annotations

import collections
import contextlib  # noqa: F401 (here and below: read by the functions made of text)
import dataclasses
import enum
import functools
import itertools
import math  # noqa: F401
import random
import re
import time  # noqa: F401
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tests.support.loop_visits import equal_states, unlike, visits_of

pytestmark = pytest.mark.quick

X = tape.tensor(100.0)
counts = 0
numbers: list[int] = []
table = {"n": 0}
waiting: collections.deque[int] = collections.deque()
ticks = itertools.count()
drawn = random.Random(1)  # noqa: S311
numpy_drawn = np.random.default_rng(1)
settings = types.ModuleType("settings")
settings.n = 0  # type: ignore[attr-defined]


class Box:
    """Something with attributes, of its own and of its class."""

    shared = 0

    def __init__(self) -> None:
        self.n, self.items = 0, [0]

    def grow(self) -> None:
        """Change an attribute."""
        self.n += 1

    def grow_all(self) -> None:
        """Change an attribute of the class."""
        type(self).shared += 1

    def half(self, x: Any) -> Any:
        """Change nothing."""
        return x * 0.5

    @property
    def next(self) -> int:
        """Change an attribute when another is read."""
        self.n += 1
        return self.n

    def __call__(self, x: Any) -> Any:
        """Change an item."""
        self.items[0] += 1
        return x * 0.5


box = Box()


def count_global() -> int:
    """Change a global."""
    global counts  # noqa: PLW0603 (that is the point)
    counts += 1
    return counts


def remembering() -> Callable[[], int]:
    """Return a function that changes a cell."""
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    return count


def with_default(items: list[int] = []) -> int:  # noqa: B006 (that is the point)
    """Change a default."""
    items.append(1)
    return len(items)


def with_attribute() -> int:
    """Change an attribute of a function."""
    with_attribute.n = getattr(with_attribute, "n", 0) + 1  # type: ignore[attr-defined]
    return with_attribute.n  # type: ignore[attr-defined]


def deep() -> int:
    """Change a global in a function of a function."""
    return len([count_in_list() for _ in range(1)])


def count_in_list() -> int:
    """Change a list that is a global."""
    numbers.append(1)
    return len(numbers)


def generated() -> Iterator[int]:
    """Yield numbers."""
    yield from range(1000)


CHANGING: dict[str, str] = {
    "a list that grows": "xs.append(1)",
    "an item of a list": "xs[0] += 1",
    "a dict's item": "d['n'] = d.get('n', 0) + 1",
    "a dict's key": "d[len(d)] = 1",
    "the order of a dict": "k = next(iter(d)); d[k] = d.pop(k)",
    "a set": "s.add(len(s))",
    "a deque": "q.append(1)",
    "an iterator": "next(it)",
    "a generator": "next(g)",
    "an attribute": "b.n += 1",
    "an attribute, by a method": "b.grow()",
    "an attribute, by another name": "c.n += 1",
    "an attribute, by setattr": "setattr(b, 'n', b.n + 1)",
    "an attribute of a class": "Box.shared += 1",
    "an attribute of a class, by a method": "b.grow_all()",
    "an attribute of a class, by its name": "setattr(Box, 'shared', getattr(Box, 'shared') + 1)",
    "a property": "b.next",
    "a callable object": "b(x)",
    "a bound method": "grow()",
    "a partial": "part()",
    "a closure": "count()",
    "a default": "with_default()",
    "a function's attribute": "with_attribute()",
    "a global, in a function": "count_global()",
    "a global object": "box.n += 1",
    "a global object's method": "box.grow()",
    "a global list": "numbers.append(1)",
    "a global dict": "table['n'] += 1",
    "a global deque": "waiting.append(1)",
    "a global iterator": "next(ticks)",
    "a global list, in a function of a function": "deep()",
    "a module's attribute": "settings.n += 1",
    "a module's attribute, by a local": "m.n += 1",
    "a random number": "drawn.random()",
    "a random number of the module": "random.random()",
    "a normal number of the module": "random.gauss(0, 1)",
    "a random number of NumPy": "numpy_drawn.random()",
    "a random number of NumPy's module": "np.random.rand()",
    "a local generator of NumPy": "rng.normal()",
    "a clock": "time.time()",
    "another clock": "time.perf_counter()",
    "an array in place": "a += 1",
    "an element of an array": "a[0] += 1",
    "a view of an array": "v[0] += 1",
    "an array that is replaced": "a = a.copy()",
    "a float": "f += 0.5",
    "a zero's sign": "z = -z",
    "a string": "t += 'a'",
    "a kind of number": "f = int(f) if type(f) is float else float(f)",
    "a truth for one": "o = True if type(o) is int else 1",
    "a range": "r = range(0, r.stop + 1 if r.stop < 4 else 3, 2)",
    "a slice": "sl = slice(sl.start + 1, None)",
    "a tuple": "p = (*p, 1)",
    "a named tuple": "nt = nt._replace(n=nt.n + 1)",
    "a dataclass": "dc.n += 1",
    "aliases": "y = big * 1 if y is big else big",
    "aliased lists": "ys = xs if ys is not xs else list(xs)",
    "a dtype": "y = (y + 1).to(np.float32 if y.dtype == np.float64 else np.float64)",
    "a shape": "big = big[1:]",
    "a view's place": "w = base[1:3] if w._base is base and float(w[0]) == 0 else base[0:2]",
    "the version of a tensor": "x._version",
    "builtins that see all": "globals()['counts'] += 1",
    "identity": "id(x)",
    "an import": "import tests.support.loop_visits as seen",
    "a module's attribute, by its dictionary": "vars(settings)['n'] += 1",
    "an attribute, by its dictionary": "b.__dict__['n'] += 1",
    "attributes by names that are read": "setattr(Box, d_name, getattr(Box, d_name) + 1)",
}


class Pair(NamedTuple):
    """A named tuple."""

    n: int
    m: int


@dataclasses.dataclass
class Data:
    """A dataclass."""

    n: int = 0


class Colour(enum.Enum):
    """Some names."""

    RED = 1
    BLUE = 2


SETUP = """
def f(x):
    xs, ys, d, s, q = [1], [1], {"a": 1, "b": 2}, {1}, collections.deque()
    it, g, b, m, rng = iter(range(1000)), generated(), Box(), settings, np.random.default_rng(2)
    c, grow, part, count = b, b.grow, functools.partial(b.grow), remembering()
    a, f, z, t, r, sl, p, o = np.zeros(4), 0.5, 0.0, "", range(0, 3, 2), slice(0, None), (1,), 1
    v, nt, dc, y, base = a[:], Pair(0, 0), Data(), x, tape.tensor(np.arange(9.0))
    d_name, w, big = "shared", base[0:2], base
    kept = (xs, ys, d, b, a, nt)
    while x > 1:
        LINE
        x = x * 0.5
    return xs, ys, d, s, q, it, g, b, c, m, rng, grow, part, count, a, v, f, z, t, r, sl, p, nt, dc, y, w, big, o, kept
"""
HIDERS = {"s", "q", "it", "g", "rng"}
"""What is in no snapshot: left out where it is not what is changed, so that the rest is seen."""


def function_of(line: str, shown: str) -> Any:
    """Return a function whose loop runs this line, and that returns all locals."""
    text, _, names = SETUP.replace("LINE", line).partition("    return ")
    used = set(re.findall(r"\w+", line))
    wanted = ", ".join(name for name in names.strip().split(", ") if name not in HIDERS - used)
    made: dict[str, Any] = {}
    exec(compile(f"{text}    return {wanted}", f"<{shown}>", "exec"), globals(), made)  # noqa: S102 (written here)
    return made["f"]


@pytest.mark.parametrize("shown", CHANGING)
def test_what_changes_in_an_iteration_is_seen(shown: str) -> None:
    visits = visits_of(function_of(CHANGING[shown], shown), X)
    assert len(visits) > 4, "the function raised"
    assert unlike(visits)
    reasons = {visit.reason for visit in visits} - {""}
    assert bool(reasons) == (shown in REFUSED), reasons


REFUSED = {
    *("a set", "a deque", "an iterator", "a generator", "a global deque", "a global iterator", "a random number"),
    *("a random number of the module", "a normal number of the module", "a random number of NumPy", "a clock"),
    *("a random number of NumPy's module", "a local generator of NumPy", "another clock", "identity", "an import"),
    *("the version of a tensor", "builtins that see all", "a global, in a function"),
    "a module's attribute, by its dictionary",
}
"""What is in no snapshot: the reason says so."""


SAME: dict[str, str] = {
    "nothing": "pass",
    "a method": "x = b.half(x) * 2",
    "an item replaced by an equal one": "d['a'] = 1",
    "an equal list": "xs = [e for e in xs]",
    "a local that is dead at the head": "k = len(xs); k += 1",
    "a NumPy function": "np.sin(1.0) + np.sum(a) + math.sqrt(2.0)",
    "a tensor's function": "x = tape.exp(tape.log(x))",
    "a tensor in a list": "xs[0] = 1",
    "a lambda": "x = (lambda e: e * 2)(x) * 0.5",
    "a tensor from the outside": "x = x + X * 0",
    "a context manager": "\n        with contextlib.suppress(KeyError):\n            d['none']",
    "an enum": "e = Colour.RED if Colour.BLUE is not Colour.RED else None",
    "a cached function": "cached(3)",
    "isinstance": "isinstance(x, tape.Tensor) and len(xs) and max(1, 2)",
    "printing": "print(end='')",
}


@functools.cache
def cached(n: int) -> int:
    """Return the same."""
    return n + 1


@pytest.mark.parametrize("shown", SAME)
def test_what_stays_is_equal(shown: str) -> None:
    visits = visits_of(function_of(SAME[shown], shown), X)
    assert len(visits) > 4
    assert [v.reason for v in visits if v.reason] == []
    assert equal_states(visits[1:])
