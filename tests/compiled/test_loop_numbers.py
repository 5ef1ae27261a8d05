"""Loops whose Python numbers change, and loops over data with branches: one native loop for all counts and ways.

What is computed is compared with dynamic mode, and numbers that are tensors with Python's own.
"""

from __future__ import annotations

import itertools
import operator
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning
from tape.tensors.bytecode import ControlFlow
from tape.watching.loop_numbers import LoopNumber, loop_number, plain_number, values_in, values_of

XS, YS = (np.random.default_rng(seed).normal(size=30) * 0.5 + 0.3 for seed in (0, 1))
LISTED = XS.tolist()


def by_index(p: Any, x: Any, y: Any) -> Any:
    v, loss = p[0] * 1.0, p[0] * 0.0
    for t in range(30):
        v = v + p[1] * (x[t] - v)
        if v > 0.5:
            v = v * 0.7
            continue
        loss = loss + (v - y[t]) ** 2 + 0.01 * t
    return loss


def by_length(p: Any, x: Any, y: Any) -> Any:
    v, loss = p[0] * 1.0, p[0] * 0.0
    for t in range(1, len(x) - 1, 2):
        if v > 0.3:
            v = v * 0.5 + x[t - 1]
        v = v + p[1] * x[t] * y[-t]
        loss = loss + v * v
    return loss + v


def zipped(p: Any, x: Any, y: Any) -> Any:
    v, loss = p[0] * 1.0, p[0] * 0.0
    for xt, yt in zip(x, y):  # noqa: B905 (as such loops are written)
        v = v + p[1] * (xt - v)
        if v > 0.5:
            v = v * 0.7
        loss = loss + (v - yt) ** 2
    return loss


def enumerated(p: Any, x: Any, y: Any) -> Any:
    v, loss = p[0] * 1.0, p[0] * 0.0
    for t, xt in enumerate(x):
        v = v + p[1] * (xt - v)
        if v > 0.5:
            v = v * 0.7
        if v < -0.3:
            break
        loss = loss + (v - y[t]) ** 2
    return loss


def of_numpy(p: Any, x: Any, y: Any) -> Any:
    v = p[0] + (x + y).sum() * 0.0
    for a, (b, c) in zip(XS, enumerate(LISTED)):  # noqa: B905
        v = v + p[1] * (a - v) * c + 0.001 * b
        if v > 0.5:
            v = v * 0.7
    return v


def rows(p: Any, x: Any, y: Any) -> Any:
    m, w = x.reshape(15, 2), p * 1.0
    for t in range(15):
        if (m[t] * w).sum() < 0.2:
            w = w + 0.1 * m[t]
        w = w + 0.01 * m[14 - t] * m[t, 0] + m[t, :].sum() * 0.01 + 0.001 * y[t]
    return (w * w).sum()


def stepped(f: Callable[..., Any], t: Any, y: Any, h: Any) -> Any:
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h, y - h * k1 + 2 * h * k2)
    return y + h / 6 * (k1 + 4 * k2 + k3), abs(h * (k1 - 2 * k2 + k3)).max()


def adaptive(p: Any, x: Any, y: Any) -> Any:
    def f(t: Any, z: Any) -> Any:
        return p[1] * z * (1.0 - z) + 3.0 * tape.sin(9.0 * t)

    z, t, h, accepted, rejected = p[0] + x[0] * y[0], 0.0, 0.1, 0, 0
    while t < 2.0 and accepted + rejected < 1000:
        h = min(h, 2.0 - t)
        new, error = stepped(f, t, z, h)
        if error < 0.003:
            z, t, h = new, t + h, h * 1.4
            accepted += 1
        else:
            h /= 2
            rejected += 1
    return z * z + 0.01 * t


def bisected(p: Any, x: Any, y: Any) -> Any:
    low, high, middle = 0.0, 4.0, 0.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        if middle**2 * p[1] > p[0] + 0.1 * x[0]:
            high = middle
        else:
            low = middle
    return p[0] * middle + p[1] * middle * y[1]


def remainders(p: Any, x: Any, y: Any) -> Any:
    v, count = p[0] * 1.0, 0
    for t in range(20):
        if t % 5 == 0:
            v = v + p[1] * x[t // 2]
        if v > 0.6:
            v = v * 0.5
            count += 1
        v = v + 0.1 * y[t]
    return v * (1.0 + count)


class Model:
    """Loops in methods, one within the other."""

    def step(self, v: Any, x: Any, n: int) -> Any:
        """Run the inner one."""
        for k in range(n):
            v = v * 0.9 if v > 1.0 else v + x[k] / (k + 1)
        return v

    def run(self, p: Any, x: Any, y: Any) -> Any:
        """Run the outer one."""
        v = p[0] * 1.0
        for i in range(6):
            v = self.step(v, x, 4) + p[1] * y[i]
        return v


NATIVE = [
    by_index, by_length, zipped, enumerated, of_numpy, rows, adaptive, bisected, remainders, Model().run,
]  # fmt: skip


def arguments(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return np.abs(rng.normal(size=2)) * 0.3 + 0.2, rng.normal(size=30) * 0.5 + 0.4, rng.normal(size=30)


def compiled_of(function: Callable[..., Any], mode: str, calls: int = 24) -> Any:
    """Return a compiled gradient that agreed with dynamic mode in so many calls."""
    plain = tape.value_and_grad(function)
    compiled = tape.compile(plain, mode=mode)
    for seed in range(calls):
        p, x, y = arguments(seed)
        value, gradient = compiled(p, tape.tensor(x), tape.tensor(y))
        expected, expected_gradient = plain(tape.tensor(p), tape.tensor(x), tape.tensor(y))
        assert float(value) == pytest.approx(float(expected), rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(np.asarray(gradient), np.asarray(expected_gradient), rtol=1e-8, atol=1e-11)
    return compiled


@pytest.mark.parametrize("mode", ["default", "max"])
@pytest.mark.parametrize("function", NATIVE, ids=lambda f: f.__name__)
def test_such_a_loop_is_native(function: Any, mode: str) -> None:
    compiled = compiled_of(function, mode)
    assert any(program.has_loops for program in compiled.programs), compiled.explain()


def test_calls_of_microseconds_do_not_wait_for_it() -> None:
    """Recordings before the one with numbers as tensors are no reason to wait for the time that they may take."""

    def halved(x: Any) -> Any:
        y, k = x[0], 0
        while abs(y - 0.25) > 1e-3:
            y, k = y - 0.5 * (y - 0.25) * x[1], k + 1
        return y * k

    plain = tape.value_and_grad(halved)
    compiled = tape.compile(plain, mode="max", check="never")
    for k in range(6):
        x = np.array([1.0 + 0.2 * k, 1.0])
        value, gradient = compiled(x)
        assert value == pytest.approx(plain(x)[0], rel=1e-12)
        np.testing.assert_allclose(gradient, plain(x)[1], rtol=1e-10)
    assert compiled.programs[0].has_loops
    assert compiled.calls["recorded"] == 4
    assert compiled.calls["recorded"] <= 8, compiled.explain()
    assert "unrolled" not in compiled.explain()


def asks_for_types(p: Any, x: Any, y: Any) -> Any:
    v, t = p[0] * 1.0, 0.0
    while t < 1.0:
        if isinstance(t, float):
            v = v * 1.1 + 0.01 * x[0] * y[0]
        if v > 1.0:
            t += 0.1
            v = v * 0.5
        else:
            t += 0.05
    return v


def asks_elsewhere(p: Any, x: Any, y: Any) -> Any:
    def inner(t: Any) -> float:
        return 0.1 if type(t) is float else 1e9

    v, t = p[0] + 0.01 * x[0] * y[0], 0.0
    while t < 1.0:
        t += inner(t)
        v = v * 0.5 if v > 0.3 else v + p[1]
    return v


def looks_up(p: Any, x: Any, y: Any) -> Any:
    v, k, table = p[0] + 0.01 * x[0] * y[0], 0, {0: 1.0, 1: 0.5, 2: 0.25}
    while v < 2.0:
        v = v + table.get(k, 0.1) + p[1] * 0.05
        if v > 0.7:
            k += 1
    return v


TABLE = np.linspace(0.1, 1.0, 30)


def looks_up_outside(p: Any, x: Any, y: Any) -> Any:
    v = p[0] * 1.0
    for t in range(len(TABLE)):
        v = v * 0.5 if v > 0.3 else v + p[1] * TABLE[t] * x[t] * y[t]
    return v


def collects(p: Any, x: Any, y: Any) -> Any:
    v, seen = p[0] * 1.0, []
    for t in range(10):
        v = v * 0.5 if v > 0.3 else v + p[1] * x[t] * y[t]
        seen.append(t)
    return v * len(seen)


def writes_a_view(p: Any, x: Any, y: Any) -> Any:
    m, v = (x * y).reshape(15, 2), p[0] * 1.0
    for t in range(15):
        row = m[t]
        row.mul_(2.0)
        v = v * 0.5 if v > 0.3 else v + row.sum()
    return v + m.sum()


def reads_behind_a_write(p: Any, x: Any, y: Any) -> Any:
    m, v = (x * y).reshape(15, 2), p[0] * 1.0
    for t in range(15):
        row = m[t]
        m[t] = 2.0 * v
        v = v * 0.5 if v > 0.3 else v + row.sum()
    return v + m.sum()


def raises(p: Any, x: Any, y: Any) -> Any:
    v, t = p[0] * 1.0 + x[0] * y[0] * 0.01, 0.0
    while t < 1.0:
        t += 0.25 if t.is_integer() else 0.125
        v = v * 0.5 if v > 0.3 else v + p[1]
    return v


def slices(p: Any, x: Any, y: Any) -> Any:
    v = p[0] * 1.0
    for t in range(2, 18):
        m = x[t - 2 : t + 2].mean()
        v = v * 0.9 if v > m else v + 0.1 * m * y[t]
    return v


def of_objects(p: Any, x: Any, y: Any) -> Any:
    v = p[0] * 1.0
    for name in ("a", "b", "c", "d"):
        v = v * 0.9 if v > 0.4 else v + 0.1 * x[ord(name) - 97] * y[0]
    return v


class Clock:
    """Something with a time."""

    t = 0.0


def in_an_attribute(p: Any, x: Any, y: Any) -> Any:
    v, clock = p[0] * 1.0, Clock()
    clock.t = 0.0
    while clock.t < 1.0:
        if v > 0.5:
            v = v * 0.9
            clock.t += 0.1
        else:
            v = v + p[1] * abs(x[0] * y[0]) + 0.01
            clock.t += 0.05
    return v


PYTHON = {
    asks_for_types: "t .* changes with each iteration",
    asks_elsewhere: "calls type, which tells tensors from numbers",
    looks_up: r"k .* changes with each iteration .*leaves for Python at .*test_loop_numbers.py:\d+",
    looks_up_outside: r"leaves for Python at .* \(NumPy's arrays .* are to be arguments",
    collects: r"t changes with each iteration \(seen changes",
    writes_a_view: "t changes with each iteration .*picks is written",
    reads_behind_a_write: "t changes with each iteration .*behind a write",
    raises: "t .*AttributeError",
    slices: "t changes with each iteration .*leaves for Python at",
    of_objects: r"name changes with each iteration \(they are of a tuple",
    in_an_attribute: r"clock\.t \(line \d+\) changes with each iteration",
}


@pytest.mark.parametrize("function", PYTHON, ids=lambda f: f.__name__)
def test_other_loops_stay_python_and_say_why(function: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        compiled = compiled_of(function, "default")
    (line,) = [line for line in compiled.explain().splitlines() if "unrolled: the loop at" in line]
    assert re.search(PYTHON[function], line), line


def of_pairs(x: Any) -> Any:
    for i in range(len(x)):
        for j in range(i):
            x = x + 0.1 * abs(x[i] - x[j])
    return x


def of_first(x: Any) -> Any:
    for i in range(len(x)):
        if i == 2:
            return x * 1.5
        x = x + 0.1 * abs(x[i])
    return x


@pytest.mark.quick
@pytest.mark.parametrize("within", [of_pairs, of_first, operator.pos])
@pytest.mark.parametrize("before", [of_pairs, of_first])
def test_numbers_of_loops_that_end_before_values_leave_stay_numbers(before: Any, within: Any) -> None:
    def repeated(x: Any, limit: Any) -> Any:
        x = before(x)
        while x.sum() < limit:
            x = within(x) * 1.1
        return x.sum()

    compiled = tape.compile(repeated, mode="max")
    for limit in (20.0, 30.0, 50.0, 90.0, 150.0, 500.0):
        x = np.array([0.5, 1.0, -0.3, 0.2])
        assert compiled(x, limit) == pytest.approx(repeated(x, limit), rel=1e-12)
    explained = compiled.explain()
    assert "machine code" in explained
    lines = {f"{__file__}:{line}" for *_, line in before.__code__.co_lines()}
    assert not [line for line in explained.splitlines() if "guard at" in line and lines.intersection(line.split())]
    assert compiled.calls["recorded"] <= 3


BINARY = [
    getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "eq", "ne")
]
BINARY += [operator.gt, operator.ge, operator.iadd, operator.imul, divmod, min, max]
UNARY = [operator.neg, abs, operator.pos, bool, float, int, hash, str, round, "{:.3g}".format]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        result = function(*args)
    except (ArithmeticError, TypeError, ValueError) as error:
        return type(error)
    parts = result if isinstance(result, tuple) else (result,)
    return [(type(plain_number(x)), plain_number(x)) for x in parts]


@pytest.mark.quick
def test_numbers_of_loops_compute_as_python_numbers_do() -> None:
    numbers = [0, 1, -1, 2, 7, -3, 0.0, 0.5, -2.5, 3.0, 1e300, 1 << 40]
    for f, (a, b) in itertools.product(BINARY, itertools.product(numbers, repeat=2)):
        expected = outcome(f, a, b)
        for x, y in ((loop_number(a), b), (a, loop_number(b)), (loop_number(a), loop_number(b))):
            got = outcome(f, x, y)
            too_large = got is OverflowError and type(a) is type(b) is int
            assert got == expected or too_large, (f, a, b, got, expected)
    for a, b in itertools.product(numbers[:-2], repeat=2):
        assert outcome(operator.pow, loop_number(a), b) == outcome(operator.pow, a, b), (a, b)
        assert outcome(operator.pow, a, loop_number(b)) == outcome(operator.pow, a, b), (a, b)
    for f, a in itertools.product(UNARY, numbers):
        assert outcome(f, loop_number(a)) == outcome(f, a), (f, a)
    assert {0.5: "half"}[loop_number(0.5)] == "half"
    assert [5, 6, 7][loop_number(2)] == 7
    assert type(np.float64(2.0) * loop_number(0.5)) is LoopNumber
    assert type(np.arange(3) * loop_number(2)) is np.ndarray


def test_a_number_keeps_the_precision_of_what_it_meets() -> None:
    x, h = tape.tensor([1.0, 2.0], dtype=tape.float32), loop_number(0.1)
    for result, expected in ((x * h, x * 0.1), (h * x, 0.1 * x), (x[0] / h, x[0] / 0.1), (h - x.sum(), 0.1 - x.sum())):
        assert result.dtype == expected.dtype == tape.float32
        np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-6)


@pytest.mark.quick
def test_what_a_loop_runs_over_is_what_python_iterates() -> None:
    table = tape.tensor(np.arange(8.0).reshape(4, 2))
    texts = [
        "range(n)", "range(2, n)", "range(n, -3, -2)", "range(len(table))", "range(table.shape[0] - 1)", "numbers",
        "zip(numbers, range(9))", "enumerate(numbers)", "enumerate(zip(numbers, array))", "table", "zip(table, array)",
    ]  # fmt: skip
    for text in texts:
        source = f"def f(n, numbers, array, table):\n    for v in {text}:\n        yield v, frame()\n"
        names: dict[str, Any] = {"frame": sys._getframe}
        exec(source, names)  # noqa: S102 (written here)
        flow = ControlFlow(names["f"].__code__)
        head = next(i for i, step in enumerate(flow.steps) if step.name == "FOR_ITER")
        tree = values_of(flow, head)[1]
        for k, (value, *_) in enumerate(names["f"](7, [0.5, 1.5, 2.5], np.arange(4), table)):
            frame = names["f"](7, [0.5, 1.5, 2.5], np.arange(4), table)
            next(frame)
            values = values_in(tree, frame.gi_frame)
            assert values is not None
            got = values.at(loop_number(k))
            flat = lambda v: [np.asarray(plain_number(x)).tolist() for x in (v if isinstance(v, tuple) else (v,))]  # noqa: E731
            nested = isinstance(value, tuple) and isinstance(value[1], tuple)
            pairs = [((got[0], *got[1]), (value[0], *value[1]))] if nested else [(got, value)]
            assert all(flat(one) == flat(other) for one, other in pairs), text
            assert values.count >= k + 1


def views_written(u: Any, stop: float) -> Any:
    for k in range(6):
        y = u[k]
        y += 1.0
        u[k] *= 0.9
        if u[k] > stop:
            u[5] = u[5] * 0.5
    return u.sum()


def raises_between(u: Any, stop: float) -> Any:
    for k in range(6):
        u[k] += 1.0
        if u[k] > stop:
            raise ValueError(f"{k} is too large")
    return u.sum()


@pytest.mark.parametrize("function", [views_written, raises_between])
def test_what_is_written_to_an_argument_is_written_once_where_a_call_is_made_again(function: Any) -> None:
    compiled = tape.compile(function, mode="max", static=("stop",))
    ours, theirs = tape.arange(6.0), tape.arange(6.0)
    for _ in range(12):
        outcomes = []
        for call, u in ((compiled, ours), (function, theirs)):
            try:
                outcomes.append(call(u, 4.0).item())
            except ValueError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        assert ours.tolist() == theirs.tolist()
