"""What repeats in a program, held against the definition, copy by copy, and against loops unrolled by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.programs.steps import Repeat, repeats

pytestmark = pytest.mark.quick

OUTSIDE = -7
Step = tuple[int, tuple[int, ...]]


def of(steps: list[Step]) -> list[Repeat]:
    width = max((len(sources) for _, sources in steps), default=1)
    rows = [[*sources, *[-1] * (width - len(sources))] for _, sources in steps]
    return repeats(
        np.array([9 * symbol + len(sources) for symbol, sources in steps], np.int64),
        np.array(rows, np.int64).reshape(-1, width),
    )


def euler(count: int, start: int = OUTSIDE, first: int = 0) -> list[Step]:
    """Four operations a step: x = x + h * sin(x * y)."""
    steps: list[Step] = []
    x = start
    for _ in range(count):
        at = first + len(steps)
        steps += [(0, (x, OUTSIDE - 1)), (1, (at,)), (0, (OUTSIDE, at + 1)), (2, (x, at + 2))]
        x = at + 3
    return steps


def test_a_loop() -> None:
    assert of(euler(5)) == [Repeat(0, 4, 5)]


def test_a_loop_between_other_steps() -> None:
    before: list[Step] = [(7, (OUTSIDE,)), (8, (0,))]
    assert of([*before, *euler(3, 1, 2), (9, (13,))]) == [Repeat(2, 4, 3)]


def test_a_loop_within_a_loop_is_within() -> None:
    steps: list[Step] = []
    x = OUTSIDE
    for _ in range(4):
        for _ in range(3):
            steps += [(0, (x,)), (1, (len(steps), OUTSIDE))]
            x = len(steps) - 1
        steps.append((2, (x,)))
        x = len(steps) - 1
    assert of(steps) == [Repeat(0, 7, 4, (Repeat(0, 2, 3),))]


def test_two_loops() -> None:
    first = euler(3)
    second: list[Step] = []
    for k in range(4):
        at = len(first) + 2 * k
        second += [(5, (at - 1,)), (6, (at,))]
    assert of(first + second) == [Repeat(0, 4, 3), Repeat(12, 2, 4)]


def test_operands_that_differ_from_copy_to_copy_may_come_from_before() -> None:
    """The layers of a network: each with arguments of its own."""
    steps: list[Step] = []
    for k in range(3):
        steps += [(0, (OUTSIDE - k, 2 * k - 1 if k else -1)), (1, (2 * k,))]
    assert of(steps) == [Repeat(0, 2, 3)]


def test_a_method_of_two_steps() -> None:
    """u_next = f(u, u_before): an operand comes from two copies ago."""
    u_before, u = -3, -4
    steps: list[Step] = []
    for _ in range(6):
        at = len(steps)
        steps += [(0, (u,)), (1, (at, u_before))]
        u_before, u = u, at + 1
    assert of(steps) == [Repeat(0, 2, 6)]


@pytest.mark.parametrize("changed", [0, 2, 3, 4, 5])
def test_the_same_steps_on_irregular_operands_do_not_repeat(changed: int) -> None:
    steps: list[Step] = [(k % 2, (k - 1,)) for k in range(6)]
    assert of(steps) == [Repeat(0, 2, 3)]
    steps[changed] = steps[changed][0] + 9, steps[changed][1]
    assert all(r.stop <= changed or r.start > changed for r in of(steps))
    uneven: list[Step] = [(k % 2, (k - 1 if k < 5 else 3,)) for k in range(6)]
    assert [(r.length, r.count) for r in of(uneven)] == [(2, 2)]


def test_nothing_repeats() -> None:
    assert of([]) == []
    assert of([(0, (OUTSIDE,))]) == []
    assert of([(k, (k - 1,)) for k in range(9)]) == []
    assert of([(0, (-1,)), (0, (0,))]) == []  # a frame around one operation, for two, is more to read


def test_a_thousand_steps_of_fifty_four_operations() -> None:
    generator = np.random.default_rng(0)
    pattern, ago = generator.integers(0, 6, 54), generator.integers(1, 54, (54, 3))
    sources = np.arange(54_000)[:, None] - np.tile(ago, (1000, 1))
    (repeat,) = repeats(np.tile(pattern, 1000), np.where(sources < 0, OUTSIDE, sources))
    assert (repeat.length, repeat.count) == (54, 1000)


def regular(steps: list[Step], repeat: Repeat) -> bool:
    """The definition, for each operand of each copy."""
    start, length, count, _ = repeat
    for j in range(length):
        copies = [steps[start + length * c + j] for c in range(count)]
        if len({(symbol, len(sources)) for symbol, sources in copies}) != 1:
            return False
        for k in range(len(copies[0][1])):
            origins = [sources[k] for _, sources in copies]
            if all(origin < start for origin in origins):
                continue
            inside = [(c, origin) for c, origin in enumerate(origins) if origin >= start]
            if len({start + length * c + j - origin for c, origin in inside}) != 1:
                return False
            if [c for c, _ in inside] != list(range(inside[0][0], count)):
                return False
            ago = start + length * inside[0][0] + j - inside[0][1]
            if inside[0][0] > max(0, -((j - ago) // length)):
                return False
    return True


def all_of(parts: Iterable[Repeat]) -> list[Repeat]:
    return [r for part in parts for r in (part, *all_of(part.inner))]


@st.composite
def programs(draw: Any) -> list[Step]:
    """Loops, one after another and within, of random operations on what random steps before them made."""
    steps: list[Step] = []

    def append(symbol: int, agos: list[int]) -> None:
        steps.append((symbol, tuple(len(steps) - ago if ago <= len(steps) else OUTSIDE for ago in agos)))

    def part(depth: int) -> None:
        operands = st.lists(st.integers(1, 6), min_size=1, max_size=2)
        body = draw(st.lists(st.tuples(st.integers(0, 2), operands), max_size=4))
        inner = depth > 0 and draw(st.booleans())
        count = draw(st.integers(1, 4))
        state = draw(st.randoms(use_true_random=False)).getrandbits(16)
        for _ in range(count):
            for symbol, agos in body:
                append(symbol, agos)
            if inner:
                for _ in range(state % 3 + 1):
                    for symbol, agos in body[:2]:
                        append(symbol + 3, agos)

    for _ in range(draw(st.integers(1, 4))):
        part(1)
    return steps


@settings(max_examples=150, deadline=None)
@given(programs())
def test_what_repeats_is_regular_and_apart(steps: list[Step]) -> None:
    top = of(steps)
    for repeat in all_of(top):
        assert repeat.count > 1
        assert repeat.stop <= len(steps)
        assert regular(steps, repeat), repeat
        for before, after in zip((repeat, *repeat.inner), repeat.inner, strict=False):
            assert before is repeat or before.stop <= after.start
            assert repeat.start <= after.start
            assert after.stop <= repeat.start + repeat.length
    assert all(a.stop <= b.start for a, b in itertools.pairwise(top))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(1, 30), min_size=2, max_size=2), min_size=1, max_size=9), st.integers(3, 9))
def test_a_loop_of_different_operations_is_a_repeat(agos: list[list[int]], count: int) -> None:
    """However far back its operands come from; the first copies that reach to before stand apart at most."""
    length = len(agos)
    steps: list[Step] = []
    for c in range(count + 30):
        for j, sources in enumerate(agos):
            at = length * c + j
            steps.append((j, tuple(max(at - ago, OUTSIDE) if at >= ago else OUTSIDE for ago in sources)))
    assert max((r.count * r.length for r in of(steps)), default=0) >= length * count - 1 or length == 1
