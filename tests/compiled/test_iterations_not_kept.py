"""Loops whose iterations repeat each other are recorded without most of these; programs do what whole ones do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from kernels.compiler.roll import Unabsorbed
from kernels.programs import recording
from kernels.programs.program import Recipe
from kernels.programs.recording import whole

RNG = np.random.default_rng(3)
X, F = RNG.random(6), RNG.random(2000)
STEPS = 700


def numbers(x: Any, a: Any, n: int) -> Any:
    """Use another number in each iteration."""
    for t in range(n):
        x = x + 0.001 * a * tape.sin(x * t * 0.01)
    return (x * x).sum()


def of_data(x: Any, a: Any, f: Any, n: int) -> Any:
    """Read an element of an array in each iteration."""
    for t in range(n):
        x = x * a + f[t] * 0.01
    return (x * x).sum()


def parts_backwards(x: Any, a: Any, f: Any, n: int) -> Any:
    """Read parts of an array from its end on."""
    for t in reversed(range(n)):
        x = x * a + (f[t : t + 3] * 0.01).sum()
    return (x * x).sum()


def strides(x: Any, a: Any, f: Any, n: int) -> Any:
    """Read two elements in each iteration."""
    for t in range(0, 2 * n, 2):
        x = x * a + f[t] * 0.01 * f[t + 1]
    return (x * x).sum()


def two_loops(x: Any, a: Any, n: int) -> Any:
    """Two loops, one behind the other, whose results are both used."""
    for _ in range(n):
        x = x * a + 0.01 * x
    y = x
    for _ in range(n + 7):
        y = y - a * y * 0.001 * y
    return (x * y).sum()


def in_place(x: Any, a: Any, n: int) -> Any:
    """Add to the middle of an array, and write its end."""
    u = x * 1.0
    for _ in range(n):
        u[1:-1] += a * (u[2:] - 2 * u[1:-1] + u[:-2]) * 0.1
        u[0] = u[1] * 1.0
    return (u * u).sum()


def swapped(x: Any, a: Any, n: int) -> Any:
    """Two arrays that take turns."""
    p, q = x * 1.0, x * a
    for _ in range(n):
        q[1:-1] = p[1:-1] * 0.9 + 0.05 * (p[2:] + p[:-2]) * a
        p, q = q, p
    return (p * p).sum() + q.sum()


def every_third(x: Any, a: Any, n: int) -> Any:
    """Do something else in each third iteration."""
    for t in range(n):
        x = x * a + (0.01 * x if t % 3 else 0.02 * x * x)
    return (x * x).sum()


def sums(x: Any, a: Any, n: int) -> Any:
    """Carry a number, too."""
    total = 0.0
    for t in range(n):
        x = x * a + 0.001
        total = total + (x * x).sum() * (1.0 / (t + 1))
    return total


def nested(x: Any, a: Any, n: int) -> Any:
    """A loop in another one."""
    for _ in range(3):
        for _ in range(n):
            x = x * a + 0.001 * x
        x = x / a
    return (x * x).sum()


def trajectory(x: Any, a: Any, n: int) -> Any:
    """Use a value of each iteration behind the loop."""
    values = []
    for _ in range(n):
        x = x * a + 0.01 * x * x
        values.append(x)
    return (tape.stack(values) ** 2).sum()


def one_of_them(x: Any, a: Any, n: int) -> Any:
    """Use a value of an iteration in the middle behind the loop."""
    middle = x
    for t in range(n):
        x = x * a + 0.01 * x * x
        if t == n // 2:
            middle = x
    return (x * middle).sum()


def last_part(x: Any, a: Any, f: Any, n: int) -> Any:
    """Use the part that the last iteration read behind the loop."""
    part = f[0]
    for t in range(n):
        part = f[t]
        x = x * a + part * 0.01
    return (x * x).sum() * part


def lagged(x: Any, a: Any, n: int) -> Any:
    """Read what was computed four iterations before."""
    values = [x, x * a, x + a, x - a]
    for _ in range(n):
        values = [*values[1:], 0.3 * values[-1] + 0.2 * values[-2] * a + 0.1 * values[-4]]
    return (values[-1] * values[-2]).sum()


SHORTENED = [numbers, of_data, parts_backwards, strides, two_loops, in_place, every_third, sums]
KEPT = [swapped, nested, trajectory, one_of_them, last_part, lagged]


def arguments_of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return arguments for which no loop grows."""
    return (
        (X * 0.5, 0.97, F) if "f" in function.__code__.co_varnames[: function.__code__.co_argcount] else (X * 0.5, 0.97)
    )


def compiled_of(function: Callable[..., Any], mode: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return value and gradient of a function, compiled and not, and arguments."""
    arguments = arguments_of(function)

    def of(*values: Any) -> Any:
        return function(*values, STEPS)

    both = tape.value_and_grad(of, tuple(range(len(arguments))))
    return tape.compile(both, mode=mode, check="never"), both, arguments


def recipe_of(function: Callable[..., Any]) -> Recipe:
    """Return the recipe of a function's program."""
    compiled, _, arguments = compiled_of(function, "eager")
    for _ in range(3):
        compiled(*arguments)
    recipe: Recipe = compiled.programs[0]._recipe
    return recipe


@pytest.mark.quick
@pytest.mark.parametrize("mode", ["max", "eager"])
@pytest.mark.parametrize("function", [*SHORTENED, *KEPT], ids=lambda f: f.__name__)
def test_values_and_gradients_are_those_of_dynamic_mode(function: Callable[..., Any], mode: str) -> None:
    compiled, both, arguments = compiled_of(function, mode)
    for k in range(6):
        values = [x * (1.0 + 0.001 * k) for x in arguments]
        (found, gradients), (wanted, by_dynamic) = compiled(*values), both(*values)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
        for one, other in zip(gradients, by_dynamic, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9 * (1.0 + np.abs(other).max()))
    assert "replayed" in compiled.explain()


@pytest.mark.quick
@pytest.mark.parametrize("function", SHORTENED, ids=lambda f: f.__name__)
def test_a_short_recipe_stands_for_the_whole_one(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put together again it is what is recorded where all iterations are kept; both are compiled alike."""
    short = recipe_of(function)
    assert short.skipped
    assert len(short.steps) < short.length
    monkeypatch.setattr(recording.Tables, "connect", kept_all(recording.Tables.connect))
    kept, again = recipe_of(function), whole(short)
    assert not kept.skipped
    assert again.steps.words == kept.steps.words
    assert again.steps.numbers == kept.steps.numbers
    assert [again.arguments, again.outputs, again.written] == [kept.arguments, kept.outputs, kept.written]
    for one, other in zip(again.nodes, kept.nodes, strict=True):
        assert (one.spec, one.base, one.offset, one.buffer_offset) == (
            other.spec, other.base, other.offset, other.buffer_offset
        )  # fmt: skip
    listings = [Compilation(recipe, reverse=True).listing() for recipe in (short, again)]
    assert listings[0] == listings[1]


@pytest.mark.quick
def test_views_that_a_process_took_before_change_nothing() -> None:
    """Some views are known by their index, the first ones of a pattern: these are recorded as all others are."""
    x = tape.tensor(F[:1999], requires_grad=True)
    for k in range(300, 364):
        x[k : k + 3]

    def parts(x: Any, a: Any, f: Any) -> Any:
        return parts_backwards(x, a, f[:1999], STEPS)

    compiled = tape.compile(tape.value_and_grad(parts), mode="eager", check="never")
    for _ in range(3):
        compiled(X * 0.5, 0.97, F[:1999])
    assert compiled.programs[0]._recipe.skipped


@pytest.mark.quick
@pytest.mark.parametrize("before", range(5))
def test_what_is_not_kept_begins_where_no_part_is_needed(before: int) -> None:
    """Wherever a period is found, two recordings do: no part of data is read that an iteration not kept has made."""

    def given_early(x: Any, a: Any, f: Any, n: int) -> Any:
        for _ in range(before):
            x = x + 0.001 * a
        for t in range(n):
            part = f[t]
            x = x * a
            x = x - 0.01 * x
            x = x + part * 0.01
        return (x * x).sum()

    compiled, both, arguments = compiled_of(given_early, "eager")
    for _ in range(3):
        assert compiled(*arguments)[0] == pytest.approx(both(*arguments)[0])
    assert "2 recorded" in compiled.explain()
    assert compiled.programs[0]._recipe.skipped


def kept_all(connect: Callable[..., None]) -> Callable[..., None]:
    """Return what connects tables so that all iterations are kept."""

    def connected(tables: Any, tensor: type, *, repeats: bool) -> None:
        connect(tables, tensor, repeats=repeats)
        if tables.search is not None:
            tables.search.stop()

    return connected


def test_a_wrong_count_is_found() -> None:
    """The comparison above finds a recipe that stands for one iteration more."""
    short = recipe_of(two_loops)
    short.skipped[0] = short.skipped[0]._replace(count=short.skipped[0].count + 1)
    again = whole(short)
    assert len(again.steps) == short.length
    assert len(again.steps) != len(whole(recipe_of(two_loops)).steps)


def test_nested_loops_are_compiled_from_the_whole_recipe() -> None:
    short = recipe_of(nested)
    with pytest.raises(Unabsorbed):
        Compilation(short, reverse=True)


@pytest.mark.quick
def test_recordings_do_not_grow_with_iterations() -> None:
    """The steps that are kept are as many for any number of iterations."""

    def steps(count: int) -> int:
        both = tape.compile(tape.value_and_grad(lambda x, a: numbers(x, a, count), (0, 1)), mode="eager")
        for _ in range(2):
            both(X, 0.5)
        return len(both.programs[0]._recipe.steps)

    assert steps(2000) - steps(1000) < 20
