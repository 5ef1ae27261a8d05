"""Python loops that run until a value lets them end: one program for every number of iterations, there and back."""

from __future__ import annotations

import _thread
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick

INPUTS = [2.0, 3.0, 50.0, 7.0, 1000.0, 1e6, 5.0, 1e-5, 0.3, 2.0, 123.0, 0.9]


def newton(a: Any) -> Any:
    x = a * 0.5
    while abs(x * x - a) > 1e-12 * a:
        x = 0.5 * (x + a / x)
    return x


def newton_with_break(a: Any) -> Any:
    x = tape.tensor(1.0)
    while True:
        f = x * x - a
        if abs(f) < 1e-12 * a:
            break
        x = x - f / (2.0 * x)
    return x


def newton_at_most(a: Any) -> Any:
    x, k = a * 1.0, 0
    while abs(x * x - a) > 1e-12 * a and k < 7:
        x = 0.5 * (x + a / x)
        k += 1
    return x


def newton_in_range(a: Any) -> Any:
    x = a * 1.0
    for _ in range(6):
        f = x * x - a
        if abs(f) < 1e-9 * a:
            break
        x = x - f / (2.0 * x)
    return x * 2.0


def secant(a: Any) -> Any:
    x0, x1 = a * 1.0, a * 0.5 + 0.1
    while abs(x1 - x0) > 1e-10 * a:
        f0, f1 = x0 * x0 - a, x1 * x1 - a
        x0, x1 = x1, x1 - f1 * (x1 - x0) / (f1 - f0)
    return x1


def bisection(a: Any) -> Any:
    low, high = a * 0.0, a + 1.0
    while high - low > 1e-9 * a:
        middle = 0.5 * (low + high)
        if middle * middle < a:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def adaptive(a: Any) -> Any:
    """Integrate ``y' = -a y`` to 1 by Heun's method with an embedded error."""
    t, y, h = 0.0, tape.tensor(1.0), tape.tensor(0.05)
    rate = 0.1 * a.log1p()
    while t < 1.0:
        k1 = -rate * y
        k2 = -rate * (y + h * k1)
        error = abs(0.5 * h * (k2 - k1))
        if error < 1e-5:
            t = t + h
            y = y + 0.5 * h * (k1 + k2)
        h = h * tape.clip((1e-5 / (error + 1e-30)) ** 0.5 * 0.9, 0.2, 2.0)
    return y


def vectors(a: Any) -> Any:
    v = tape.stack([a, a + 1.0, 2.0 * a])
    state = {"v": v / v.sum(), "n": tape.tensor(0.0)}
    matrix = tape.tensor([[2.0, 0.3, 0.1], [0.1, 1.5, 0.2], [0.0, 0.4, 1.2]])
    while True:
        w = matrix @ state["v"]
        w = w / w.sum()
        moved = abs(w - state["v"]).sum()
        state = {"v": w, "n": state["n"] + 1.0}
        if moved < 1e-6:
            return (state["v"] * tape.tensor([1.0, 2.0, 3.0])).sum() + 0.0 * state["n"]


def two_loops(a: Any) -> Any:
    x = a * 1.0
    while x > 2.0:
        x = x / 1.5
    y = x * x
    while y < 40.0:
        y = y * 1.7 + a / (1.0 + a)
    return x * y


def branches_behind(a: Any) -> Any:
    x, n = a * 1.0, tape.tensor(0.0)
    while x > 1.0:
        x = x * 0.5
        n = n + 1.0
    if n > 4.5:
        return x * n
    return x + n


def counted(a: Any) -> Any:
    n = int(a.detach() % 9.0)
    x = a * 0.01
    for _ in range(n):
        x = x * 1.1 + 0.3
    return x


def counted_plainly(a: Any) -> Any:
    n, x = a.detach() % 9.0, a * 0.01
    for _ in range(int(n)):
        x = x * 1.1 + 0.3
    return x


def nested(a: Any) -> Any:
    total = a * 0.0
    target = a * 1.0
    while target > 0.5:
        x = target * 1.0
        while abs(x * x - target) > 1e-8:
            x = 0.5 * (x + target / x)
        total = total + x
        target = target * 0.2
    return total


def steps_left(a: Any) -> Any:
    """``y`` reaches ``x`` only by the second iteration."""
    x, y, z = a * 0.0, a * 0.0, a * 1.0
    n = a.detach() * 1.0
    while n > 1.0:
        x, y = y, z
        n = n * 0.5
    return x + 2.0 * y


FUNCTIONS = [
    newton, newton_with_break, newton_at_most, newton_in_range, secant, bisection, adaptive, vectors, two_loops,
    branches_behind, counted_plainly, steps_left,
]  # fmt: skip


def _same(x: Any, y: Any) -> bool:
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("function", [*FUNCTIONS, nested, counted], ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
def test_values_and_gradients_are_those_of_dynamic_mode(function: Any) -> None:
    compiled = tape.compile(function)
    gradient = tape.compile(tape.value_and_grad(function))
    through = tape.value_and_grad(tape.compile(function))
    for a in INPUTS * 3:
        value, slope = tape.value_and_grad(function)(a)
        assert _same(compiled(a), value), a
        for way in (gradient, through):
            v, g = way(a)
            assert _same(v, value), a
            assert _same(g, slope), (a, g, slope)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_tensors_in_and_second_derivatives(function: Any) -> None:
    compiled = tape.compile(function)
    for a in INPUTS:
        results = []
        for f in (function, compiled):
            x = tape.tensor(a, requires_grad=True)
            y = f(x * 1.0)
            (slope,) = tape.autograd.grad(y, x, create_graph=True)
            curvature = 0.0
            if slope.requires_grad:
                (second,) = tape.autograd.grad(slope, x, allow_unused=True)
                curvature = 0.0 if second is None else second.item()
            results.append((y.item(), slope.item(), curvature))
        assert results[0][:2] == results[1][:2], a
        assert results[1][2] == pytest.approx(results[0][2], rel=1e-9), a


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_programs_with_loops_tell(function: Any, tmp_path: Path) -> None:
    compiled = tape.compile(function)
    for a in INPUTS * 3:
        compiled(a)
    (program, *_) = [p for p in compiled.programs if p.has_loops]
    assert "loop_begin" in str(program)
    assert "loop_begin" in str(program.graph())
    assert "loop_begin" in str(program.memory(reverse=True))
    assert "loop_begin" in str(compiled.profile(7.0, reverse=True)) or compiled.programs[0] is not program
    compiled.save(tmp_path / "f.tape")
    loaded = tape.load(tmp_path / "f.tape")
    for a in INPUTS:
        assert _same(loaded(a), function(tape.tensor(a)).item())


def test_what_stays_python_is_right_and_says_why() -> None:
    def grows(a: Any) -> Any:
        x, seen = a * 1.0, []
        while x > 1.0:
            x = x * 0.5
            seen.append(x)
        return sum(seen, a * 0.0)

    def second(a: Any) -> Any:
        """The first loop stays Python, the other does not."""
        return grows(a) + newton(a)

    for function in (grows, second):
        compiled = tape.compile(function)
        for a in (3.0, 5.0, 9.0, 17.0, 33.0, 3.5, 6.0, 11.0, 20.0, 40.0) * 3:
            assert compiled(a) == function(tape.tensor(a)).item()
        assert re.search(
            r"unrolled: the loop at .* in .*grows: seen.* changes? with each iteration", compiled.explain()
        )
        assert any(p.has_loops for p in compiled.programs) is (function is second)


def test_a_count_of_zero_at_the_end_of_a_function() -> None:
    @tape.compile
    def power(x: Any, n: Any) -> Any:
        for _ in range(int(n)):
            x = x * 1.5
        return x

    for n in (0.0, 0.5, 3.0, 0.0, 2.0, 5.0, 1.0, 0.2):
        assert power(2.0, n) == 2.0 * 1.5 ** int(n)


def test_iterations_within_steps_that_are_counted() -> None:
    """Implicit Euler, each step by Newton's iteration."""

    def implicit(y: Any, rate: Any) -> Any:
        for _ in range(8):
            x = y * 1.0
            while abs(x + 0.1 * rate * x * x - y) > 1e-12:
                x = x - (x + 0.1 * rate * x * x - y) / (1.0 + 0.2 * rate * x)
            y = x
        return y

    compiled = tape.compile(tape.value_and_grad(implicit, (0, 1)))
    for rate in np.geomspace(0.01, 20.0, 40):
        value, slopes = compiled(1.5, float(rate))
        expected, by_both = tape.value_and_grad(implicit, (0, 1))(1.5, float(rate))
        assert (value, slopes) == (expected, by_both)
    assert any(p.has_loops for p in compiled.programs)


def test_bodies_read_what_is_outside_as_it_is_now() -> None:
    weights, shift = np.array([0.9, 0.8, 0.5]), np.array([0.8, 0.9, 0.5])

    def shrinks(x: Any) -> Any:
        y = x * 1.0
        while y.sum() > 1.0:
            y = y * weights + 0.01 * shift
            if y[0] > 2.0:
                y = y * shift
        return (y * weights).sum()

    compiled = tape.compile(shrinks)
    chance = np.random.default_rng(0)
    for call in range(40):
        if call % 5 == 4:
            weights[:] = chance.uniform(0.1, 0.9, 3)
            shift[:] = weights[::-1]
        x = chance.uniform(0.5, 9.0, 3)
        assert compiled(x) == shrinks(tape.tensor(x)).item(), call
    assert any(p.has_loops for p in compiled.programs)


def test_a_count_may_be_zero() -> None:
    @tape.compile
    def power(x: Any, n: Any) -> Any:
        for _ in range(int(n)):
            x = x * 1.5
        return x

    for k in range(40):
        n = (k * 7 % 5) * 0.9
        assert power(2.0, n) == 2.0 * 1.5 ** int(n)
    assert power.calls["recorded"] <= 4
    with pytest.raises(ValueError, match="NaN"):
        power(2.0, float("nan"))
    assert power(2.0, 3.0) == 6.75


def test_long_loops_have_gradients_and_end_when_interrupted() -> None:
    def decay(x: Any, rate: Any, stop: Any) -> Any:
        while x > stop:
            x = x * rate
        return x

    compiled = tape.compile(tape.value_and_grad(decay, (0, 1)), check="never")
    for stop in (0.5, 0.4, 0.3):
        compiled(1.0, 0.9, stop)
    rate = 1.0 - 1e-5
    value, (by_x, by_rate) = compiled(1.0, rate, 0.2)
    count = round(math.log(value) / math.log(rate))
    assert count > 150_000
    assert by_x == pytest.approx(value, rel=1e-9)
    assert by_rate == pytest.approx(count * value / rate, rel=1e-9)
    threading.Timer(0.1, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        compiled(1.0, 1.0, 0.5)  # without an end
    assert compiled(1.0, 0.9, 0.5)[0] == decay(1.0, 0.9, 0.5)
    assert compiled.calls["recorded"] == 3


def test_a_loop_of_large_arrays_runs_as_often_as_it_has_to_and_ends_when_interrupted() -> None:
    """Its rows are more work than the interpreter does between two looks for interrupts."""

    def halved(x: Any, stop: Any) -> Any:
        while x[0] > stop:
            x = x * 0.5
            x = x + 0.0
        return x

    compiled, x = tape.compile(halved, mode="eager", check="never"), np.ones(5 << 20)
    for stop in (0.4, 0.2, 0.1, 1.0, 0.3):
        assert compiled(x, stop)[-1] == halved(1.0 * x[:1], stop)[0]
    threading.Timer(0.3, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        compiled(x, -1.0)  # without an end
    assert compiled(x, 0.4)[-1] == 0.25


def test_threads_have_stacks_of_their_own() -> None:
    compiled = tape.compile(tape.value_and_grad(newton), check="never")
    for a in INPUTS:
        compiled(a)
    with ThreadPoolExecutor(4) as pool:
        values = np.geomspace(1.0, 1e6, 200).tolist()
        assert list(pool.map(compiled, values)) == [compiled(a) for a in values]


def test_what_python_keeps_count_of_ends_native_loops_in_time() -> None:
    """A bound that no recorded call came to."""

    def limited(a: Any) -> Any:
        x, k = a * 1.0, 0
        while x > 1.0 and k < 12:
            x = x * 0.5
            k += 1
        return x

    compiled = tape.compile(limited)
    for a in (4.0, 8.0, 16.0, 32.0, 5.0):
        compiled(a)
    for power in range(1, 40):
        a = 2.0**power + 0.5
        assert compiled(a) == limited(tape.tensor(a)).item()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_one_program_serves_every_number_of_iterations(function: Any) -> None:
    compiled = tape.compile(function)
    for a in INPUTS:
        compiled(a)
    programs, recorded = len(compiled.programs), compiled.calls["recorded"]
    for a in np.geomspace(1.1, 9e5, 60):
        compiled(float(a))
    assert any(p.has_loops for p in compiled.programs)
    assert compiled.calls["recorded"] - recorded <= 6
    assert len(compiled.programs) - programs <= 3
