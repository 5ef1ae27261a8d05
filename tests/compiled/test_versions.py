"""Writes in place in machine code: memory of which much is written becomes versions; all of it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from kernels.compiler.roll import rolled
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.programs.rolled_program import Box, remainder
from tests.support.representatives import in_turns

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("few_passes")]

STEPS = 14


def _inner(u: Any) -> Any:
    return u[1:-1] + 0.2 * u[1:-1] * (u[2:] - 2.0 * u[1:-1] + u[:-2])


def inner(u: Any) -> Any:
    u = 1.0 * u
    for _ in range(STEPS):
        u[1:-1] = _inner(u)
    return (u * u).sum()


def ends_as_beside(u: Any) -> Any:
    """Read what has just been written, before the version is whole."""
    u = 1.0 * u
    for _ in range(STEPS):
        u[1:-1] = _inner(u)
        u[0] = u[1]
        u[-1] = 0.5 * u[-2]
    return (u * u).sum()


def ends_given(u: Any) -> Any:
    """Read all of it when one end has been written, the other one not."""
    u = 1.0 * u
    for k in range(STEPS):
        u[1:-1] = _inner(u)
        u[0] = 0.1 * k
        u[-1] = u[0] * u[3]
    return (u * u).sum()


def ends_first(u: Any) -> Any:
    """Write less than half before it is read: this memory stays as it is."""
    u = 1.0 * u
    for k in range(STEPS):
        u[0] = 0.1 * k
        u[1:-1] = _inner(u)
    return (u * u).sum()


def loops_in_loops(u: Any) -> Any:
    u = 1.0 * u
    for _ in range(10):
        for _ in range(40):
            u[1:-1] = _inner(u)
        u *= 0.9
    return (u * u).sum()


def two_in_turn(u: Any) -> Any:
    u, v = 1.0 * u, 2.0 * u
    for _ in range(STEPS):
        u[1:-1] += 0.1 * (v[2:] - v[:-2])
        v[1:-1] -= 0.1 * (u[2:] - u[:-2])
    return (u * v).sum()


def without_gradients(u: Any) -> Any:
    """Clip where gradients are off: they pass what was written, as if it were not there."""
    u = 1.0 * u
    for _ in range(STEPS):
        u[1:-1] = _inner(u)
        with tape.no_grad():
            u[:-1] = tape.clip(u[:-1], 0.7, 1.2)
    return (u * u).sum()


def some_without_gradients(u: Any) -> Any:
    """Do the same to a small part, which no version is made for."""
    u = 1.0 * u
    for _ in range(STEPS):
        u = u * 1.01
        with tape.no_grad():
            u[0] = 0.8
            u[3] = u[2]
    return (u * u).sum()


def made_in_the_loop(u: Any) -> Any:
    s = u
    for _ in range(STEPS):
        w = 2.0 * s - 0.1
        w[1:-1] += 0.1 * s[1:-1] * (s[2:] + s[:-2])
        s = w * 0.4
    return (s * s).sum()


def read_in_each_step(u: Any) -> Any:
    u, sums = 1.0 * u, []
    for _ in range(STEPS):
        u[1:-1] = _inner(u)
        sums.append((u * u).sum())
    return tape.stack(sums).mean() + u[3]


def one_loop_after_the_other(u: Any) -> Any:
    u = 1.0 * u
    for _ in range(STEPS):
        u[1:-1] = _inner(u)
    v = 1.0 * u
    for _ in range(STEPS):
        u[:-1] *= 0.95
        v[1:] += 0.01 * u[:-1]
    return (u * v).sum()


def kept(u: Any) -> Any:
    u, t = 1.0 * u, 0.0
    for _ in range(STEPS):
        old = u.clone()
        u[1:-1] = _inner(u)
        t = t + ((u - old) ** 2).sum()
    return t


def through_views(u: Any) -> Any:
    u = 1.0 * u
    middle, left = u[1:-1], u[:-2]
    for _ in range(STEPS):
        middle += 0.1 * (left - middle)
        left *= 0.99
    return (u * u).sum()


def single_elements(u: Any) -> Any:
    y = 1.0 * u[:4]
    for _ in range(STEPS):
        y[0] = y[0] + 0.1 * y[1]
        y[1] = y[1] - 0.1 * y[0] * y[2]
        y[3] += y[0]
    return (y * y).sum()


def from_constants(u: Any) -> Any:
    """Write what has a gradient over what has none."""
    v = tape.as_tensor(np.linspace(0.0, 1.0, len(u))) * 2.0
    v[1:] = u[1:] * u[:-1]
    return (v * v).sum()


def filled(u: Any) -> Any:
    """Fill memory that nothing computed, element by element, from those before."""
    v = tape.zeros(len(u))
    v[0] = u[0]
    for k in range(1, len(u)):
        v[k] = 0.5 * v[k - 1] + tape.sin(u[k])
    return (v * v).sum()


def filled_in_each_step(u: Any) -> Any:
    total = 0.0
    for k in range(STEPS):
        v = tape.zeros(len(u))
        v[1:] = u[1:] * u[:-1]
        v[2] += 0.1 * k
        u = u + 0.1 * v
        total = total + (v * v).sum()
    return total


def counted(u: Any) -> Any:
    """Write what has no gradient, then what has one, over ones that are read in between."""
    v = tape.ones(len(u))
    v[:3] = 2.0
    first = (v * u).sum()
    v[2:] = u[2:]
    return first * (v * v).sum()


def every_second(u: Any) -> Any:
    """Write slices with steps, which no version is made for."""
    u = 1.0 * u
    for _ in range(STEPS):
        u[1:-1:2] = 0.5 * (u[:-2:2] + u[2::2])
        u[2:-1:2] = 0.5 * (u[1:-2:2] + u[3::2])
    return (u * u).sum()


def until_small(u: Any) -> Any:
    """Write in a loop that a value ends."""
    u, k = 1.0 * u, 0
    while (u * u).sum() > 1.0 and k < 50:
        u[1:] = 0.7 * u[1:] + 0.1 * u[:-1]
        u *= 0.9
        k += 1
    return (u * u).sum()


FUNCTIONS = [
    inner,
    ends_as_beside,
    ends_given,
    ends_first,
    loops_in_loops,
    two_in_turn,
    without_gradients,
    some_without_gradients,
    made_in_the_loop,
    read_in_each_step,
    one_loop_after_the_other,
    kept,
    through_views,
    single_elements,
    from_constants,
    filled,
    filled_in_each_step,
    counted,
    every_second,
    until_small,
]


def agrees(function: Callable[..., Any], *args: Any) -> Compilation:
    """Check machine code against dynamic mode, in loops and without."""
    expected = tape.value_and_grad(function, argnums=tuple(range(len(args))))(*args)
    recipe = tape.record(function, *args)._recipe
    for roll in (False, True):
        compilation = Compilation(recipe, reverse=True, roll=roll)
        if len(compilation._lines) > 6000:
            continue
        value, *gradients = CompiledMachine(compilation.code()).whole(list(args))
        np.testing.assert_allclose(value, float(expected[0]), rtol=1e-12)
        for gradient, wanted in zip(gradients, expected[1], strict=True):
            np.testing.assert_allclose(gradient, np.asarray(wanted), rtol=1e-11, atol=1e-12 * np.abs(wanted).max())
    return compilation


@pytest.mark.parametrize(("function", "size"), in_turns(FUNCTIONS, [7, 31, 12], pytest.mark.quick))
def test_in_place_agrees_with_dynamic_mode(function: Callable[..., Any], size: int) -> None:
    agrees(function, np.random.default_rng(size).uniform(0.5, 1.5, size))


@pytest.mark.parametrize("shape", [pytest.param((12, 15), marks=pytest.mark.quick), (3, 4), (3, 30)])
def test_a_grid_whose_inside_is_written(shape: tuple[int, int]) -> None:
    def wave(u: Any, c: Any) -> Any:
        before = now = u
        for _ in range(STEPS):
            after = 2.0 * now - before
            after[1:-1, 1:-1] += c * (now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] - 3.0 * now[1:-1, 1:-1])
            after[:, 0] = after[:, 1]
            before, now = now, after
        return (now * now).sum()

    agrees(wave, np.random.default_rng(1).uniform(0.5, 1.5, shape), 0.05)


@pytest.mark.quick
def test_where_much_is_written_nothing_is() -> None:
    """Versions are made where half of the memory is written, or little there is: no others."""

    def left(function: Callable[..., Any], size: int) -> int:
        compilation = Compilation(tape.record(function, np.linspace(0.5, 1.5, size))._recipe, reverse=True)
        return sum(value.written for value in compilation.program.values)

    for function in (inner, ends_as_beside, ends_given, two_in_turn, through_views, kept, loops_in_loops):
        assert left(function, 30) == 0, function.__name__
    assert left(single_elements, 30) == 0
    assert left(ends_first, 8) == 0
    assert left(ends_first, 30) == 1
    assert left(every_second, 31) == 1


@pytest.mark.quick
def test_a_loop_that_writes_inside_is_as_one_that_joins() -> None:
    """What is carried by writes in place is carried as arrays are: no copies beside the ends."""

    def joined(u: Any) -> Any:
        u = 1.0 * u
        for _ in range(STEPS):
            u = tape.cat([u[:1], _inner(u), u[-1:]])
        return (u * u).sum()

    lines = []
    for function in (inner, joined):
        recipe = tape.record(function, np.linspace(0.5, 1.5, 40))._recipe
        lines.append(Compilation(recipe, reverse=True).listing().count("\n"))
    assert lines[0] == lines[1]


@pytest.mark.quick
def test_what_remains_of_an_array() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 4)))
        counts, parts = np.zeros(shape, int), list[Box]()
        for _ in range(rng.integers(0, 4)):
            box = tuple((int(low), int(rng.integers(low, n) + 1)) for n in shape for low in [rng.integers(0, n)])
            place = tuple(slice(*ends) for ends in box)
            if not counts[place].any():
                counts[place] += 1
                parts.append(box)
        for box in remainder(shape, parts):
            counts[tuple(slice(*ends) for ends in box)] += 1
        assert (counts == 1).all(), (shape, parts)


@pytest.mark.quick
def test_versions_are_not_what_the_recipe_has() -> None:
    """Making versions changes the compiler's own program: the interpreter's stays."""
    args = (np.linspace(0.5, 1.5, 20),)
    program = tape.record(ends_as_beside, *args)
    before = [value.written for value in rolled(program._recipe).values]
    Compilation(program._recipe, reverse=True).code()
    assert [value.written for value in rolled(program._recipe).values] == before
    np.testing.assert_allclose(program(*args), float(ends_as_beside(tape.tensor(args[0]))), rtol=1e-14)
