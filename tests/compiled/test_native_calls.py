"""Native calls of compiled functions: once a program is machine code, calls need no Python, and nothing differs."""

from __future__ import annotations

import contextvars
import copy
import functools
import gc
import inspect
import pickle
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from kernels.compiler.compiled_code import CompiledCode
from kernels.machine_code.compiled_machine import GuardPlace
from kernels.machine_code.tiers import DirectlyCalled
from kernels.programs.program import native
from tape.compiled import native_checks
from tape.compiled.compiled_function import CompiledFunction
from tape.compiled.native_checks import Checks
from tape.errors import CompileWarning
from tape.tensors.pytrees import flattened
from tape.watching.snapshots import contents_of
from tape.watching.watched import watches_of
from tests.support.handwritten_programs import program
from tests.support.native_plans import installed, settled

pytestmark = [
    pytest.mark.quick,
    pytest.mark.skipif(not native(), reason="calls go through Python here"),
]


class Listed(list[Any]):
    """A list of another class."""


BRANCH = """def program():
    w0[0] = {found}
    if {sign}:
        return 0
    r0[0] = {result}
    return -1
"""


def times(x: Any, y: Any) -> Any:
    """Multiply."""
    return x * y


def times_all(x: Any, y: Any) -> Any:
    return (x * y).sum()


@tape.compile
def product(x: Any, y: Any) -> Any:
    return x * y


def linear(graded: tuple[int, ...] = (0, 1)) -> CompiledCode:
    """Return the product of two floats, with the gradient by some of them."""
    lines = [f"    g{k}[0] = a{1 - i}[0]" for k, i in enumerate(graded)]
    body = "\n".join(["def program():", "    r0[0] = a0[0] * a1[0]", *lines, "    return -1", ""])
    return program(body, [1.0, 1.0], [1.0], list(graded))


@pytest.fixture(name="f")
def compiled_gradient() -> Any:
    """Return a compiled gradient whose calls on floats are native."""
    f = tape.compile(tape.value_and_grad(times, argnums=(0, 1)))
    for _ in range(5):
        f(2.0, 3.0)
    return installed(f, linear(), reverse=True)


@pytest.fixture(name="slow")
def counted_answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the calls that Python answers, of functions that are made from now on."""
    calls = [0]
    answer = CompiledFunction._answer

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return answer(self, *args, **kwargs)

    monkeypatch.setattr(CompiledFunction, "_answer", counting)
    return calls


def test_calls_become_native(slow: list[int]) -> None:
    f = tape.compile(tape.value_and_grad(times, argnums=(0, 1)), check="never")
    for _ in range(5):
        f(2.0, 3.0)
    settled(installed(f, linear(), reverse=True), 2.0, 3.0)
    before = slow[0]
    assert [f(2.0, y) for y in (3.0, np.float64(4.0), np.array(5.0))] == [(2.0 * y, (y, 2.0)) for y in (3.0, 4.0, 5.0)]
    assert slow[0] == before
    g = tape.compile(times)
    assert (g(2.0, y=3.0), slow[0]) == (6.0, before + 1)


def test_forms_of_gradients() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (tape.value_and_grad, (0, 1), (6.0, (3.0, 2.0))), (tape.value_and_grad, 0, (6.0, 3.0)),
        (tape.value_and_grad, 1, (6.0, 2.0)), (tape.value_and_grad, (1,), (6.0, (2.0,))),
        (tape.value_and_grad, (1, 0), (6.0, (2.0, 3.0))), (tape.func.grad, 1, 2.0),
        (tape.func.grad, (0, 1), (3.0, 2.0)), (tape.func.grad_and_value, 0, (3.0, 6.0)),
    ]  # fmt: skip
    for transform, argnums, expected in cases:
        f = tape.compile(transform(times, argnums), check="never")
        for _ in range(4):
            assert f(2.0, 3.0) == expected
        graded = tuple(sorted(argnums if isinstance(argnums, tuple) else (argnums,)))
        settled(installed(f, linear(graded), reverse=True), 2.0, 3.0)
        assert f(2.0, 3.0) == expected


def test_functions_and_their_results() -> None:
    double = "def program():\n    r0[0] = a0[0] + a0[0]\n    {more}\n    return -1\n"
    cases: list[tuple[Callable[..., Any], str, int]] = [
        (lambda x: x + x, "pass", 1), (lambda x: (x + x, 3.0 * x), "r1[0] = 3.0 * a0[0]", 2),
        (lambda x: (x + x,), "pass", 1),
    ]  # fmt: skip
    for function, more, count in cases:
        f = tape.compile(function, check="never")
        for _ in range(4):
            f(2.0)
        settled(installed(f, program(double.format(more=more), [1.0], [1.0] * count)), 2.0)
        assert f(5.0) == function(5.0)
        assert type(f(5.0)) is type(function(5.0))


def test_arrays(slow: list[int]) -> None:
    body = """def program():
    r0[0] = 0.0
    for i in range(3):
        r0[0] += a0[i] * a1[i]
        g0[i] = a1[i]
        g1[i] = a0[i]
    return -1
"""
    x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    f = tape.compile(tape.value_and_grad(times_all, argnums=(0, 1)), check="never")
    for _ in range(4):
        f(x, y)
    settled(installed(f, program(body, [x, y], [1.0], [0, 1]), reverse=True), x, y)
    before = slow[0]
    value, (one, other) = f(x, y)
    assert (value, one.tolist(), other.tolist()) == (32.0, y.tolist(), x.tolist())
    one[0] = 100.0
    assert f(x, y)[1][0].tolist() == y.tolist()
    assert slow[0] == before
    assert f(x[::-1].copy()[::-1], y)[0] == 32.0  # other strides
    assert f(np.ones(4), np.ones(4))[0] == 4.0
    assert f(x, y)[0] == 32.0


def test_calls_are_counted_and_checked(f: Any) -> None:
    g = tape.compile(tape.value_and_grad(times, argnums=(0, 1)))
    for k in range(1, 301):
        assert g(2.0, float(k)) == (2.0 * k, (float(k), 2.0))
        if k == 5:
            installed(g, linear(), reverse=True)
    assert g.calls == {"recorded": 2, "dynamic": 0, "checked": 7}  # 4, 8, 16, ... 256
    assert sum(p.hits for p in g.programs) == 298
    assert "298 replayed" in g.explain()
    assert f is not g


def test_a_wrong_program_is_found_out() -> None:
    f = tape.compile(tape.value_and_grad(times, argnums=(0, 1)))
    for _ in range(5):
        f(2.0, 3.0)
    wrong = "def program():\n    r0[0] = 7.0\n    g0[0] = a1[0]\n    g1[0] = a0[0]\n    return -1\n"
    installed(f, program(wrong, [1.0] * 2, [1.0], [0, 1]), reverse=True)
    assert f(2.0, 3.0)[0] == 7.0
    with pytest.warns(CompileWarning, match="stays interpreted"):
        values = [f(2.0, 3.0)[0] for _ in range(20)]
    assert values == [7.0] + [6.0] * 19  # the eighth call is checked


def test_always_and_never() -> None:
    always = tape.compile(tape.value_and_grad(times, argnums=(0, 1)), check="always")
    never = tape.compile(tape.value_and_grad(times, argnums=(0, 1)), check="never")
    for g in (always, never):
        for _ in range(5):
            g(2.0, 3.0)
        installed(g, linear(), reverse=True)
        for _ in range(10):
            assert g(2.0, 3.0) == (6.0, (3.0, 2.0))
    assert not always._plans
    assert always.calls["checked"] >= 12
    assert never._plans
    assert never.calls["checked"] == 0


def test_what_is_outside_is_watched(slow: list[int]) -> None:
    space: dict[str, Any] = {"scale": 2.0, "held": np.array([1.0, 2.0]), "rest": {"a": 1.0}, "tape": tape}
    text = "def f(x):\n    return x * scale * helper(x) + held.sum() * rest['a'] * pair[0] * listed[1]\n"
    space["pair"], space["listed"] = (1.0, 2), [5, 1.0]
    exec(text + "def helper(x, k=1.0):\n    return k\n", space)  # noqa: S102 (its globals can be changed)
    plain = space["f"]
    changes: list[Callable[[], Any]] = [
        lambda: space.update(scale=3.0), lambda: space["held"].__setitem__(0, 5.0),
        lambda: space["rest"].update(a=4.0), lambda: space.update(helper=lambda _: 2.0),
        lambda: space.update(pair=(3.0, 2)), lambda: space["listed"].__setitem__(1, 9.0),
        lambda: space.update(held=np.array([7.0, 7.0, 7.0])), lambda: setattr(space["f"], "__defaults__", None),
    ]  # fmt: skip
    for change in changes:
        f = tape.compile(plain, check="never")
        for _ in range(4):
            f(2.0)
        expected = float(plain(2.0))
        installed(f, program(f"def program():\n    r0[0] = {expected!r} + 0.0 * a0[0]\n    return -1\n", [1.0], [1.0]))
        settled(f, 2.0)
        before = slow[0]
        assert f(2.0) == expected
        assert slow[0] == before
        change()
        assert f(2.0) == float(plain(2.0)), change


def test_arguments_that_are_no_values(slow: list[int]) -> None:
    def function(x: Any, n: Any, name: Any, y: Any) -> Any:
        return x * n + y if name == "plus" else x * n - y

    f = tape.compile(function, check="never")
    for _ in range(4):
        f(2.0, 3, "plus", 1.0)
    body = "def program():\n    r0[0] = a0[0] * 3.0 + a1[0]\n    return -1\n"
    settled(installed(f, program(body, [1.0] * 2, [1.0])), 2.0, 3, "plus", 1.0)
    before = slow[0]
    assert f(5.0, 3, "plus", 4.0) == 19.0
    assert slow[0] == before
    assert f(5.0, 3, "minus", 4.0) == 11.0
    assert f(5.0, 4, "plus", 4.0) == 24.0
    assert f(5.0, 3, "pl" + "us"[0:2], 4.0) == 19.0
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        f(5.0, 3, "plus")


class Point(NamedTuple):
    """Two numbers."""

    x: Any
    y: Any


STRUCTURES: list[tuple[Any, list[Any]]] = [
    ({"w": 2.0, "b": 3.0}, [{"b": 3.0, "w": 2.0}, {"w": 2.0}, {"w": 2.0, "c": 3.0}, {"w": 2.0, "b": 3.0, "c": 1.0}]),
    ([2.0, 3.0], [(2.0, 3.0), [2.0], [2.0, 3.0, 4.0], Listed([2.0, 3.0])]),
    ((2.0, 3.0), [[2.0, 3.0], (2.0,), (2.0, 3.0, 4.0), Point(2.0, 3.0)]),
    ([{"a": (2.0,)}, [[], 3.0], {}], [[{"a": [2.0]}, [[], 3.0], {}], [{"a": (2.0,)}, [[1], 3.0], {}]]),
    ({"deep": [[[[[(2.0, [3.0])]]]]]}, [{"deep": [[[[[(2.0, 3.0)]]]]]}]),
]
"""Structures of two numbers, and others."""


def of_two(p: Any, y: Any) -> Any:
    """Return the product of the first two numbers of a structure, and another."""
    one, other = [x for x in flattened(p)[0] if not isinstance(x, int)][:2]
    return one * other * y


@pytest.mark.parametrize(("given", "others"), STRUCTURES, ids=str)
@pytest.mark.parametrize("transform", [tape.value_and_grad, tape.func.grad, tape.func.grad_and_value])
def test_structures(given: Any, others: list[Any], transform: Any, slow: list[int]) -> None:
    plain = transform(of_two)
    f = tape.compile(transform(of_two), check="never")
    expected = plain(given, 5.0)
    for _ in range(4):
        assert f(given, 5.0) == expected
    body = """def program():
    r0[0] = a0[0] * a1[0] * a2[0]
    g0[0] = a1[0] * a2[0]
    g1[0] = a0[0] * a2[0]
    return -1
"""
    settled(installed(f, program(body, [1.0] * 3, [1.0], [0, 1]), reverse=True), given, 5.0)
    before = slow[0]
    counts = [sys.getrefcount(x) for x in flattened(given)[0]]
    for _ in range(100):
        result = f(copy.copy(given), 5.0)
        assert result == expected
        assert str(result) == str(expected)  # of the same classes, in the same order
    assert slow[0] == before
    assert [sys.getrefcount(x) for x in flattened(given)[0]] == counts
    for other in others:
        try:
            wanted = plain(other, 5.0)
        except ValueError:
            continue
        assert f(other, 5.0) == wanted, other
        assert f(given, 5.0) == expected


def test_structures_that_python_opens() -> None:
    for given in (Point(2.0, 3.0), {1: 2.0, 2: 3.0}, {"a": [2.0, 3.0, *range(40)]}, Listed([2.0, 3.0])):
        f = tape.compile(tape.value_and_grad(of_two, argnums=1), check="never")
        for _ in range(6):
            assert f(given, 5.0) == (30.0, 6.0)


def test_numbers_in_structures_that_are_no_values(slow: list[int]) -> None:
    f = tape.compile(lambda p, n: p["x"] * p["n"] * n[0], check="never")
    for _ in range(4):
        f({"x": 2.0, "n": 3}, (4, None))
    code = program("def program():\n    r0[0] = a0[0] * 12.0\n    return -1\n", [1.0], [1.0])
    settled(installed(f, code), {"x": 2.0, "n": 3}, (4, None))
    before = slow[0]
    assert f({"x": 5.0, "n": 3}, (4, None)) == 60.0
    assert slow[0] == before
    assert f({"x": 5.0, "n": 2}, (4, None)) == 40.0
    assert f({"x": 5.0, "n": 3}, (4, 1)) == 60.0
    assert f({"x": 5.0, "n": True}, (4, None)) == 20.0


def test_tensors_that_are_read_by_reference(slow: list[int]) -> None:
    held = tape.tensor([2.0, 3.0])
    x = np.array([5.0, 7.0])
    f = tape.compile(lambda x: (x * held).sum(), check="never")
    for _ in range(4):
        f(x)
    body = "def program():\n    r0[0] = a0[0] * c0[0] + a0[1] * c0[1]\n    return -1\n"
    assert len(f.programs[0]._readers) == 1
    settled(installed(f, program(body, [x], [1.0], constants=[held._value])), x)
    before = slow[0]
    assert f(x) == 31.0
    held.copy_(tape.tensor([4.0, 6.0]))
    assert f(x) == 62.0
    assert slow[0] == before
    held.data = tape.tensor([1.0, 1.0])
    assert f(x) == 12.0


def test_equal_values_of_another_identity_are_no_change(slow: list[int]) -> None:
    space: dict[str, Any] = {"n": 1000.5}
    exec("def f(x):\n    return x * n\n", space)  # noqa: S102 (its globals can be changed)
    f = tape.compile(space["f"], check="never")
    for _ in range(4):
        f(2.0)
    settled(installed(f, program("def program():\n    r0[0] = a0[0] * 1000.5\n    return -1\n", [1.0], [1.0])), 2.0)
    for k in range(20):
        space["n"] = float(f"100{0}.5")
        assert f(2.0) == 2001.0
        if k < 5:
            before = slow[0]
            assert f(2.0) == 2001.0  # with a new plan
            assert slow[0] == before
    assert len(f.programs) == 1


def test_checks_see_cells_defaults_and_code() -> None:
    cell = 2.0

    def one(x: Any, k: float = 3.0) -> Any:
        return x * cell * k

    def other(x: Any, k: float = 3.0) -> Any:
        return x + cell * k

    def checks() -> Checks:
        watches = list(watches_of(one).watches.values())
        return Checks(watches, contents_of([watch.expected for watch in watches]))

    found = checks()
    assert found.holds
    assert found.rest is None
    assert len(found.checks) == 4  # code, defaults of both kinds, the cell
    one.__kwdefaults__ = {"k": 2.0}
    found = checks()
    assert found.rest is None
    assert len(found.checks) == 5  # what the keyword defaults are, too
    assert other(1.0) == 7.0


def test_modes_and_the_default_dtype(f: Any) -> None:
    settled(f, 2.0, 3.0)
    with tape.no_grad():
        assert f(2.0, 3.0) == (6.0, (3.0, 2.0))
    program_of_it = tape.record(lambda x: f(x, 3.0)[0] if isinstance(x, float) else x, 2.0)
    assert program_of_it(2.0) == 2.0
    tape.set_default_dtype(np.float32)
    try:
        assert f(2.0, 3.0) == (6.0, (3.0, 2.0))
    finally:
        tape.set_default_dtype(np.float64)
    assert contextvars.Context().run(f, 2.0, 3.0) == (6.0, (3.0, 2.0))


def test_branches_have_a_plan_each(slow: list[int]) -> None:
    def function(x: Any) -> Any:
        return x * 2.0 if x > 0 else x * 3.0

    f = tape.compile(function, check="never")
    for x in (1.0, -1.0) * 4:
        f(x)
    for which, p in enumerate(f.programs):
        positive = p.path == (b"\1",)
        sign, found = ("a0[0] <= 0.0", "0.0") if positive else ("a0[0] > 0.0", "5e-324")  # its lowest byte is 1
        body = BRANCH.format(sign=sign, found=found, result=f"a0[0] * {2 + (not positive)}.0")
        installed(f, program(body, [1.0], [1.0], work=8), which=which, guards=[GuardPlace("here", 0, 1)])
    for x in (1.0, -1.0) * 4:
        f(x)
    assert len(f._plans) == 4
    before, missed = slow[0], sum(sum(p.misses) for p in f.programs)
    assert [f(x) for x in (1.0, -1.0, 5.0, -5.0)] == [2.0, -3.0, 10.0, -15.0]
    assert slow[0] == before
    assert sum(sum(p.misses) for p in f.programs) == missed + 2


def test_threads(f: Any) -> None:
    settled(f, 2.0, 3.0)
    wrong: list[Any] = []

    def work(k: int) -> None:
        for i in range(3000):
            x, y = float(k), float(i)
            if f(x, y) != (x * y, (y, x)):
                wrong.append((k, i))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_a_call_within_a_call(f: Any) -> None:
    """A collection may start where results are made, and call anything."""
    settled(f, 2.0, 3.0)
    seen: list[Any] = []

    class Late:
        def __del__(self) -> None:
            seen.append(f(4.0, 5.0))

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            late = Late()
            late.itself = late  # type: ignore[attr-defined]
            del late
            assert f(2.0, 3.0) == (6.0, (3.0, 2.0))
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(seen) == 200
    assert all(x == (20.0, (5.0, 4.0)) for x in seen)


def test_replaced_in_the_middle_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, are_current, rates = [0], native_checks._are_current, deque([2.0])

    def forget(watches: Any) -> bool:
        looked[0] += 1
        if looked[0] > 100:
            f._forget()
            gc.collect()
        return are_current(watches)

    monkeypatch.setattr(native_checks, "_are_current", forget)
    f = tape.compile(lambda x: x * rates[0], check="never")
    for _ in range(4):
        f(2.0)
    settled(installed(f, program("def program():\n    r0[0] = 2.0 * a0[0]\n    return -1\n", [1.0], [1.0])), 2.0)
    assert f._direct[0].rest is not None  # Python looks at what a deque holds
    looked[0] = 100
    assert f(3.0) == 6.0
    assert looked[0] == 101
    assert not f._plans
    assert f(3.0) == 6.0


def test_it_is_still_a_function() -> None:
    f = tape.compile(times)
    assert (f.__name__, f.__doc__, f.__wrapped__, f.__module__) == ("times", "Multiply.", times, __name__)
    assert inspect.signature(f) == inspect.signature(times)
    assert callable(f)
    assert isinstance(f, DirectlyCalled)
    assert functools.partial(f, 2.0)(3.0) == 6.0
    assert list(map(f, [1.0, 2.0], [3.0, 4.0])) == [3.0, 8.0]
    named = {"y": 3.0}
    assert f(*(2.0,), **named) == 6.0
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        f(1.0)


def test_pickles_and_copies(f: Any) -> None:
    settled(f, 2.0, 3.0)
    for other in (pickle.loads(pickle.dumps(product)), copy.copy(product), copy.deepcopy(product)):  # noqa: S301
        assert other is product
    for other in (copy.copy(f), copy.deepcopy(f)):
        assert other is not f
        assert other(2.0, 3.0) == (6.0, (3.0, 2.0))
        assert not other._plans


def test_methods() -> None:
    class Model:
        w = 2.0

        @tape.compile
        def __call__(self, x: Any) -> Any:
            return x * self.w

        @tape.compile
        def scaled(self, x: Any) -> Any:
            return x * self.w

    model = Model()
    for _ in range(6):
        assert model.scaled(3.0) == 6.0
        assert model(3.0) == 6.0
    method = Model.__dict__["scaled"].__get__(model)
    installed(method, program("def program():\n    r0[0] = a0[0] * 2.0\n    return -1\n", [1.0], [1.0]))
    for _ in range(10):
        assert model.scaled(3.0) == 6.0
    model.w = 5.0
    assert model.scaled(3.0) == 15.0


def test_subclasses() -> None:
    class Named(CompiledFunction):
        """With more."""

        def __init__(self, function: Any) -> None:
            super().__init__(function, (), (), "never")
            self.more = "more"

    class Overridden(Named):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return "own", super().__call__(*args, **kwargs)

    named, overridden = Named(times), Overridden(times)
    for _ in range(6):
        assert named(2.0, 3.0) == 6.0
        assert overridden(2.0, 3.0) == ("own", 6.0)
    settled(installed(named, linear(())), 2.0, 3.0)
    assert named(2.0, 3.0) == 6.0
    assert named.more == "more"


def test_one_that_was_never_set_up_raises() -> None:
    with pytest.raises(TypeError):
        CompiledFunction.__new__(CompiledFunction)(1.0)


def test_it_dies_with_its_plans() -> None:
    f = tape.compile(tape.value_and_grad(times, argnums=(0, 1)))
    for _ in range(5):
        f(2.0, 3.0)
    settled(installed(f, linear(), reverse=True), 2.0, 3.0)
    f.itself = f
    alive, plan = weakref.ref(f), weakref.ref(f._direct[0])
    assert f in gc.get_referrers(f._plans)
    assert alive() is f
    del f
    gc.collect()
    assert alive() is None
    assert plan() is None


def test_one_without_calls_dies_at_once() -> None:
    f = tape.compile(lambda x: x)
    alive = weakref.ref(f)
    del f
    assert alive() is None
