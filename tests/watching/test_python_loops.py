"""Which loops of Python functions are supported, what of them counts, and how long that goes on.

Reasons name the line. Bounds are compared with running the loop.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

import tape
from tape.watching.python_loops import Counter, CounterTest, HeadVisit, loops_of
from tests.support.loop_visits import equal_states, loops, only, visits_of

pytestmark = pytest.mark.quick

X = tape.tensor(100.0)


def function_of(text: str, **names: Any) -> Callable[..., Any]:
    """Return the function ``f`` of a text."""
    namespace: dict[str, Any] = {"tape": tape, "contextlib": contextlib, **names}
    exec(compile(text, "<written>", "exec"), namespace)  # noqa: S102 (written here)
    return namespace["f"]  # type: ignore[no-any-return]


def halve(err: Any, tol: Any) -> Any:
    """Run a while loop that a tensor ends."""
    k = 0
    while err > tol and k < 50:
        err = err * 0.5
        k += 1
    return err


def test_a_while_loop_with_a_counter_has_equal_states_and_an_exact_bound() -> None:
    visits = visits_of(halve, tape.tensor(1.0), 1e-3)
    assert only(halve).counters == (Counter("k", 1, (CounterTest(0, "<", 50),)),)
    assert only(halve).live == ("err", "k", "tol")
    assert [v.number for v in visits] == list(range(11))
    assert [v.remaining for v in visits] == list(range(50, 39, -1))
    assert {v.entry for v in visits} == {visits[0].entry}
    assert equal_states(visits)
    assert all(v.state.names == ["err"] for v in visits)


COUNTED = """
def f(x, n=40):
    k = 0
    while x > 1:
        x = x * 0.5
        LINE
    return RESULT
"""
LEGAL = {
    "counted": "k += 1",
    "down": "k -= 2",
    "spelled out": "k = k + 3",
    "twice": "k += 1; k += 1",
    "compared": "k += 1\n        if k > 30: break",
    "compared with a local": "k += 1\n        if n <= k: break",
    "compared between": "k += 1\n        if k == 31: break\n        k += 1",
    "compared in a chain": "k += 1\n        if k > 30 or k < -5: break",
    "counted in all branches": "if x > 3: k += 1\n        else: k += 1",
}
ILLEGAL = {
    "in arithmetic": "k += 1; x = x + k * 0",
    "passed on": "k += 1; abs(k)",
    "in a list": "k += 1; [k]",
    "compared with what changes": "k += 1; n -= 1\n        if k > n: break",
    "compared with a call": "k += 1\n        if k > len('a' * 30): break",
    "compared with a float": "k += 1\n        if k > 30.5: break",
    "tested": "k += 1\n        if not k: break",
    "a remainder": "k += 1\n        if k % 2: pass",
    "counted in a branch": "if x > 3: k += 1",
    "counted differently": "if x > 3: k += 1\n        else: k += 2",
    "counted by a local": "k += n",
    "counted by a float": "k += 1.0",
    "multiplied": "k *= 2; k += 1",
    "reset": "k += 1\n        if k > 30: k = 0",
    "deleted": "k += 1\n        if x > 1000: del k",
    "subtracted from a number": "k = 3 - k",
    "counted unless something is raised": "try: k += 1; abs(x); k += 1\n        except ValueError: pass",
    "in a closure": "k += 1; (lambda: k)",
    "in another function's text": "k += 1; locals()",
    "identity": "k += 1\n        if k is n: break",
    "membership": "k += 1\n        if k in (31, 32): break",
    "chained": "k += 1\n        if -5 < k > 30: break",
    "copied": "k += 1; n = k",
    "counted in an inner loop": "for _ in range(2): k += 1",
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_counter_is_known(name: str) -> None:
    f = function_of(COUNTED.replace("LINE", LEGAL[name]).replace("RESULT", "x"))
    assert [c.name for c in only(f).counters] == ["k"]
    assert equal_states(visits_of(f, X))


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_is_more_than_a_counter_is_compared(name: str) -> None:
    f = function_of(COUNTED.replace("LINE", ILLEGAL[name]).replace("RESULT", "x"))
    assert "k" not in [c.name for loop in loops(f) for c in loop.counters if not loop.is_for]
    visits = [v for v in visits_of(f, X) if not v.loop.is_for]
    same = [a for a, b in itertools.pairwise(visits) if not a.state.reason and a.state.template == b.state.template]
    assert len(visits) > 3
    assert len(same) < len(visits) - 1


def test_a_counter_that_is_read_later_is_compared() -> None:
    for result in ("k", "(x, [k])", "(lambda: k)()"):
        assert only(function_of(COUNTED.replace("LINE", "k += 1").replace("RESULT", result))).counters == ()


def way_of(k: int, step: int, threshold: int, operator: str, flipped: bool, length: int) -> list[bool]:
    """Return how a comparison comes out in each iteration, from Python."""
    sides = "{1} {0} {2}" if flipped else "{2} {0} {1}"
    ways = []
    for _ in range(length):
        k += step
        ways.append(bool(eval(sides.format(operator, threshold, k))))  # noqa: S307 (numbers)
    return ways


def test_how_many_iterations_are_alike_is_what_python_does() -> None:
    """Exactly for one comparison: up to the bound all come out alike, and at the bound otherwise."""
    rng = random.Random(7)  # noqa: S311
    for _ in range(400):
        k, step, threshold = rng.randint(-9, 9), rng.choice([1, -1, 2, -3, 5, -7]), rng.randint(-20, 20)
        operator, flipped, named = (
            rng.choice(["<", "<=", ">", ">=", "==", "!="]),
            rng.random() < 0.5,
            rng.random() < 0.5,
        )
        other = "n" if named else str(threshold)
        condition = f"{other} {operator} k" if flipped else f"k {operator} {other}"
        body = f"x = x * 0.8; k += {step}\n        if {condition}: pass\n"
        text = f"def f(x, k, n):\n    while x > 1:\n        {body}"
        visits = visits_of(function_of(text), X, k, threshold)
        ways = way_of(k, step, threshold, operator, flipped, 100)
        assert len(visits) > 10
        for visit in visits:
            coming = ways[visit.number :]
            alike = coming.index(not coming[0]) if (not coming[0]) in coming else None
            assert visit.remaining == alike, (text, k, threshold, visit.number)


FOR = """
def f(x, n=4, s=None):
    SETUP
    for LOOP:
        x = x * 0.5
        LINE
    return x
"""


class Holder:
    """Something with a number of iterations."""

    shared = 4

    def __init__(self) -> None:
        self.n, self.t, self.inner, self.four = 4, tape.tensor(4), self, tape.zeros(4)

    @property
    def seen(self) -> int:
        """A number that code is run for."""
        return 4


SUPPORTED = {
    "a number": "_ in range(4)",
    "a local": "_ in range(n)",
    "an attribute": "_ in range(s.n)",
    "attributes": "_ in range(s.inner.inner.n)",
    "int of a tensor": "_ in range(int(s.t))",
    "int of a local": "i in range(int(n))",
    "two arguments": "_ in range(0, 4)",
    "three arguments": "_ in range(7, n - 5, -2)",
    "a call": "_ in range(len('aaaa'))",
    "arithmetic": "_ in range(n + 0)",
    "a shape": "_ in range(s.four.shape[0])",
    "elements": "_ in s.four",
    "enumerate": "_ in enumerate(range(4))",
    "a range with a name": "_ in every",
}
PYTHON = {
    "a list that is written there": "_ in [1, x, 3, 4]",
    "a generator": "_ in (k for k in (1, 2, 3, 4))",
    "a method": "_ in {1: 2}.items()",
    "a named argument": "_ in zip(every, every, strict=True)",
    "an attribute": "s.m in range(4)",
}


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_loop_over_range_knows_how_often(name: str) -> None:
    text = FOR.replace("SETUP", "every = range(4)").replace("LOOP", SUPPORTED[name]).replace("LINE", "n = 4")
    visits = visits_of(function_of(text), X, 4, Holder())
    assert [v.remaining for v in visits] == ([None] * 5 if "tensor" in name else [4, 3, 2, 1, 0])
    assert [v.reason for v in visits] == [""] * 5
    assert all(v.state.template == visits[1].state.template for v in visits[1:])


@pytest.mark.parametrize("name", PYTHON)
def test_other_for_loops_stay_python(name: str) -> None:
    text = FOR.replace("SETUP", "every = range(4)").replace("LOOP", PYTHON[name]).replace("LINE", "pass")
    loop = only(function_of(text))
    assert loop.reason
    assert "<written>:4 in f" in loop.reason
    assert visits_of(function_of(text), X, 4, Holder()) == []


def plain(**changes: str) -> list[HeadVisit]:
    """Return the visits of a loop over a range."""
    text = FOR
    for key, value in ({"SETUP": "pass", "LOOP": "_ in range(n)", "LINE": "pass"} | changes).items():
        text = text.replace(key, value)
    return visits_of(function_of(text), X, 4, Holder())


def test_a_for_loop_whose_variable_is_read_has_a_reason() -> None:
    for line in ("x = x + _ * 0", "[_]"):
        visits = plain(LINE=line)
        assert [v.remaining for v in visits] == [None] * 5
        assert all("_ changes with each iteration" in v.reason for v in visits)
    for line in ("(lambda: _)", "locals()"):
        assert plain(LINE=line) == []
    text = FOR.replace("SETUP", "_ = 0").replace("LOOP", "_ in range(n)").replace("LINE", "pass")
    assert only(function_of(text)).reason == ""
    assert only(function_of(text.replace("return x", "return x, _"))).reason != ""


@pytest.mark.parametrize("line", ["for _ in range(3): x = x * 0.5", "for _ in 'abc': pass", "_ = 3", "_ = x"])
def test_the_variable_of_a_for_loop_may_be_stored_elsewhere(line: str) -> None:
    assert [v.remaining for v in plain(LINE=line) if v.loop.line == 4] == [4, 3, 2, 1, 0]
    assert all(v.reason for v in plain(LINE=f"{line}\n        [_]") if v.loop.line == 4)


def test_the_extent_is_what_it_was_at_the_entry() -> None:
    assert [v.remaining for v in plain(LINE="n = 2")] == [4, 3, 2, 1, 0]
    assert [v.remaining for v in plain(LOOP="_ in range(s.n)", LINE="s.n = 2")] == [4, 3, 2, 1, 0]


def test_what_is_not_plain_has_a_reason() -> None:
    for extent in ("s.seen", "s.shared"):
        visits = plain(LOOP=f"_ in range({extent})")
        assert len(visits) == 5
        assert all("runs over is not plain" in v.reason and ":4 in f" in v.reason for v in visits)


def test_names_that_are_not_the_builtins_are_not_taken_for_them() -> None:
    text = FOR.replace("SETUP", "pass").replace("LOOP", "_ in range(int(n))").replace("LINE", "pass")
    for name, value in (("range", lambda n: range(n - 1)), ("int", lambda n: n - 1)):
        assert all(v.reason for v in visits_of(function_of(text, **{name: value}), X))
        shadowed = text.replace("pass\n    for", f"{name} = given\n    for")
        assert all(v.reason for v in visits_of(function_of(shadowed, given=value), X))


def test_a_patched_builtin_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    function = function_of(FOR.replace("SETUP", "pass").replace("LOOP", "_ in range(n)").replace("LINE", "pass"))
    real = range
    monkeypatch.setattr(builtins, "range", lambda *args: real(*args))  # noqa: PLW0108 (not the builtin)
    visits = visits_of(function, X)
    monkeypatch.undo()
    assert all(v.reason for v in visits)


def test_a_tensor_in_range_is_the_count() -> None:
    holder = Holder()
    text = FOR.replace("SETUP", "pass").replace("LOOP", "_ in range(int(s.t))").replace("LINE", "pass")
    visits = visits_of(function_of(text), X, 4, holder)
    assert all(v.count is holder.t for v in visits)


def test_generators_comprehensions_and_globals_stay_python() -> None:
    def generator(x: Any) -> Any:
        while x > 1:
            x = x * 0.5
            yield x

    def filled(x: Any) -> Any:
        return [x for _ in range(3)]

    text = "def f(x):\n    global n\n    while x > 1:\n        x = x * 0.5\n        n = 1\n"
    assert "generator" in only(generator).reason
    (inner,) = [c for c in filled.__code__.co_consts if hasattr(c, "co_code")] or [filled.__code__]
    assert all("comprehension" in loop.reason for loop in loops_of(inner).values())
    assert "the global n is changed at line 5" in only(function_of(text)).reason
