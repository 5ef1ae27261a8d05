"""``tape.compile``: calls of compiled functions beside JAX's jit and PyTorch, what a guard and a first call cost."""

from __future__ import annotations

import importlib
import threading
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.bars import (
    COMPILED_CALL,
    COMPILED_FIRST,
    COMPILED_GUARD,
    COMPILED_NEWTON,
    COMPILED_RECORDINGS,
    COMPILED_ROSENBROCK,
    COMPILED_STEPS,
    COMPILED_THREADS,
    PAIRS,
    Scoreboard,
)
from bench.rows import tape
from bench.workloads import lotka_volterra_of
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 2000
STEPS = 500


def _found(name: str) -> Any:
    """Return a library, or skip the row."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")


def _ready(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """Call a compiled function until it replays; return a call of it."""
    for _ in range(8):
        function(*args)
    return lambda: function(*args)


def _microseconds(run: Callable[[], object], calls: int = CALLS) -> float:
    rounds = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        rounds.append((time.perf_counter() - start) / calls * 1e6)
    return median(rounds)


def rosenbrock(x: Any) -> Any:
    """Return Rosenbrock's function of slices."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.quick
def test_a_call(scoreboard: Scoreboard) -> None:
    """Value and gradient of a tiny graph of four floats."""
    lib = tape()

    def tiny(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a * b + lib.log(d) * c

    both = lib.compile(lib.value_and_grad(tiny, argnums=(0, 1, 2, 3)))
    call = _ready(both, 1.5, 2.5, 3.5, 4.5)
    assert np.allclose(call()[1], (2.5, 1.5, np.log(4.5), 3.5 / 4.5))
    figure = _microseconds(call)
    scoreboard.add(COMPILED_CALL, figure, f"{figure:.2f} us")


@pytest.mark.quick
def test_rosenbrock_beside_jax(scoreboard: Scoreboard) -> None:
    """Value and gradient at ten numbers; JAX's results are ready, but not read."""
    jax, lib, x = _found("jax"), tape(), np.linspace(0, 1, 10)
    jax.config.update("jax_enable_x64", True)
    theirs = jax.jit(jax.value_and_grad(rosenbrock))
    ours = _ready(lib.compile(lib.value_and_grad(rosenbrock)), x)
    np.testing.assert_allclose(ours()[1], theirs(x)[1])
    measured = ratio(lambda: jax.block_until_ready(theirs(x)), ours, pairs=PAIRS)
    scoreboard.add(COMPILED_ROSENBROCK, measured.median, str(measured))


def step(position: Any, velocity: Any, masses: Any) -> tuple[Any, Any]:
    """Return positions and velocities of bodies one step later."""
    apart = position.reshape(1, 5, 3) - position.reshape(5, 1, 3)
    squares = (apart * apart).sum(-1) + 0.01
    force = (apart * (masses * squares**-1.5).reshape(5, 5, 1)).sum(1)
    velocity = velocity + 0.001 * force
    return position + 0.001 * velocity, velocity


def test_a_compiled_step_in_a_loop(scoreboard: Scoreboard) -> None:
    """Gradient through 500 steps of five bodies, the loop in Python, beside PyTorch eager."""
    torch, lib = _found("torch"), tape()
    torch.set_num_threads(1)
    start, masses = np.random.default_rng(0).normal(size=(5, 3)), np.ones(5)

    def through(library: Any, function: Any) -> Any:
        x = library.tensor(start, requires_grad=True)
        held, position, velocity = library.tensor(masses), x, x * 0
        for _ in range(STEPS):
            position, velocity = function(position, velocity, held)
        (position * position).sum().backward()
        return x.grad

    compiled = lib.compile(step, check="never")
    through(lib, compiled)
    np.testing.assert_allclose(through(lib, compiled).numpy(), through(torch, step).numpy(), rtol=1e-9)
    measured = ratio(lambda: through(torch, step), lambda: through(lib, compiled), pairs=PAIRS // 5)
    scoreboard.add(COMPILED_STEPS, measured.median, str(measured))


@pytest.mark.quick
def test_first_calls(scoreboard: Scoreboard) -> None:
    """Of 1000 steps of the Lotka-Volterra equations: two recordings, and the plan; machine code is there."""
    lib, function = tape(), lotka_volterra_of(1000)
    leaves = function.leaves
    seconds = []
    for _ in range(2):  # the first fills the cache of machine code
        both = lib.compile(
            lib.value_and_grad(lambda *xs: function.function(lib, *xs).sum(), tuple(range(len(leaves)))), check="never"
        )
        starts = [time.perf_counter()]
        for _ in range(3):
            both(*leaves)
            starts.append(time.perf_counter())
        seconds = np.diff(starts).tolist()
    scoreboard.add(COMPILED_RECORDINGS, seconds[0] + seconds[1], f"{seconds[0] + seconds[1]:.2f} s")
    scoreboard.add(COMPILED_FIRST, sum(seconds), f"{sum(seconds):.2f} s")


@pytest.mark.quick
def test_a_guard(scoreboard: Scoreboard) -> None:
    """What a guard costs, of a hundred in a replay."""
    lib, x = tape(), np.linspace(0.5, 1, 4)

    def chain(guarded: bool) -> Callable[..., Any]:
        def run(x: Any, y: Any) -> Any:
            positive = y > 0
            for _ in range(100):
                if guarded and not positive:
                    return x
                x = x * 1.01
            return x

        return run

    calls = [_ready(lib.compile(chain(guarded), check="never"), x, 1.0) for guarded in (True, False)]
    rounds = [(_microseconds(calls[0], 300) - _microseconds(calls[1], 300)) * 10 for _ in range(5)]
    figure = median(rounds)
    scoreboard.add(COMPILED_GUARD, figure, f"{figure:.1f} ns")


def test_iterations_that_change(scoreboard: Scoreboard) -> None:
    """Newton's iteration for a root, 3 to 30 steps, another count at each call, beside one count."""
    lib = tape()

    def root(x: Any, tolerance: Any) -> Any:
        y = x * 1.0
        while abs(y * y - x) > tolerance:
            y = y - 0.5 * (y - x / y) * 0.7
        return y

    compiled = lib.compile(root, check="never")
    points = [(2.0 + k, 10.0 ** -(k % 7)) for k in range(14)]
    for _ in range(4):
        for point in points:
            compiled(*point)
    fixed = [points[3]] * len(points)
    measured = ratio(
        lambda: [compiled(*point) for point in points], lambda: [compiled(*point) for point in fixed], pairs=PAIRS
    )
    scoreboard.add(COMPILED_NEWTON, measured.median, str(measured))


def test_two_threads(scoreboard: Scoreboard) -> None:
    """Calls a second of 1000 steps of the Lotka-Volterra equations in two threads, over those in one."""
    lib, function = tape(), lotka_volterra_of(1000)
    leaves = function.leaves
    both = lib.compile(
        lib.value_and_grad(lambda *xs: function.function(lib, *xs).sum(), tuple(range(len(leaves)))), check="never"
    )
    _ready(both, *leaves)

    def work() -> None:
        for _ in range(100):
            both(*leaves)

    def seconds(count: int) -> float:
        threads = [threading.Thread(target=work) for _ in range(count)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - start) / count

    seconds(2)
    rounds = [seconds(1) / seconds(2) for _ in range(7)]
    scoreboard.add(COMPILED_THREADS, median(rounds), f"{median(rounds):.2f}")
