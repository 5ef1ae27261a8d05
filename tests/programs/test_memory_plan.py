"""The plan of a program's memory: values that are needed at one time stand apart, and room is used again."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.programs.assembly import SMALL, offsets

WORD, LINE = 8, 64


@dataclass(frozen=True)
class Value:
    """A value of so many bytes that tasks name, the first to the last; one that is fixed has its memory for itself."""

    tasks: tuple[int, ...]
    room: int
    fixed: bool = False

    def meets(self, other: Value) -> bool:
        """Whether both are needed at one time: a task reads what ends with it while it writes what begins."""
        if self.fixed or other.fixed:
            return True
        return self.tasks[0] <= other.tasks[-1] and other.tasks[0] <= self.tasks[-1]

    @property
    def has_place(self) -> bool:
        return bool(self.room and (self.tasks or self.fixed))


def planned(values: list[Value]) -> tuple[list[int], int]:
    """Ask the planner; tasks name their values in the order of these."""
    named = sorted((task, k) for k, value in enumerate(values) for task in value.tasks)
    times, used = (np.array([pair[i] for pair in named], np.int64) for i in (0, 1))
    rooms, fixed = np.array([v.room for v in values], np.int64), np.array([v.fixed for v in values], np.bool_)
    found, size = offsets(used, times, rooms, fixed)
    return found.tolist(), size


def faults(values: list[Value], places: list[int], size: int) -> list[str]:
    """Say what is wrong with a plan, by looking at each pair of values."""
    found = []
    for k, (value, start) in enumerate(zip(values, places, strict=True)):
        if value.has_place != (start >= 0):
            found.append(f"{k} has place {start}")
        if value.has_place and (start + value.room > size or start % WORD):
            found.append(f"{k} at {start} is not within {size}, or not at a word")
    placed = [k for k, value in enumerate(values) if value.has_place]
    for i, j in itertools.combinations(placed, 2):
        apart = places[i] + values[i].room <= places[j] or places[j] + values[j].room <= places[i]
        if values[i].meets(values[j]) and not apart:
            found.append(f"{i} and {j} are needed at one time and share memory")
    return found


def peak(values: list[Value]) -> int:
    """Return the bytes that are needed at the worst time: no plan has less."""
    kept = sum(value.room for value in values if value.fixed)
    times = {task for value in values for task in value.tasks}
    shared = [value for value in values if value.has_place and not value.fixed]
    return kept + max((sum(v.room for v in shared if v.tasks[0] <= t <= v.tasks[-1]) for t in times), default=0)


def in_lines(size: int) -> int:
    """Return a size filled up to whole lines: larger values begin behind the small ones at such."""
    return size + -size % LINE


def chain(count: int, room: int) -> list[Value]:
    """Return values each of which only the next is computed from."""
    return [Value((k, k + 1), room) for k in range(count)]


HAND_MADE = {
    "a chain: two at a time": (chain(9, 16), 32),
    "a chain of large ones": (chain(9, 1024), 2048),
    "one that lives throughout, beside a chain": ([Value((0, 3, 9), 512), *chain(8, 512)], 3 * 512),
    "forward, and back in the reverse order": ([Value((k, 9 - k), 8) for k in range(5)], 40),
    "one after the other, of any size": (
        [Value((2 * k, 2 * k + 1), room) for k, room in enumerate((640, 128, 704, 576))], 704,
    ),
    "two smaller ones in the place of a larger": (
        [Value((0, 1), 1024), Value((2, 4), 512), Value((3, 4), 512)], 1024,
    ),
    "a larger one where two neighbours were": (
        [Value((0, 1), 512), Value((0, 1), 512), Value((2, 3), 1024)], 1024,
    ),
    "arguments have their own": ([Value((0,), 64, fixed=True), Value((1,), 64, fixed=True)], 128),
    "an argument that no task names": ([Value((), 512, fixed=True)], 512),
    "what nobody names, and what is empty, has none": ([Value((), 64), Value((0, 1), 0)], 0),
    "nothing": ([], 0),
}  # fmt: skip


@pytest.mark.parametrize("case", HAND_MADE)
def test_hand_made_lifetimes_need_no_more_than_their_peak(case: str) -> None:
    values, least = HAND_MADE[case]
    places, size = planned(values)
    assert faults(values, places, size) == []
    assert least == peak(values)
    assert size == in_lines(least)


def test_a_place_is_used_again() -> None:
    values = chain(6, 24)
    places, _ = planned(values)
    assert places[::2] == [places[0]] * 3
    assert places[1::2] == [places[1]] * 3


def test_what_ends_with_a_task_is_not_overwritten_by_its_result() -> None:
    places, _ = planned([Value((0, 1), 64), Value((1, 2), 64)])
    assert places[0] != places[1]


def test_larger_values_begin_at_lines_of_the_cache() -> None:
    values = [Value((0, 2), 8), *chain(4, 1024), Value((1, 3), 640), Value((0, 4), 8, fixed=True)]
    places, size = planned(values)
    assert faults(values, places, size) == []
    assert all(start % LINE == 0 for value, start in zip(values, places, strict=True) if value.room > SMALL)


ROOMS = st.sampled_from([0, 8, 8, 8, 16, 24, 64, 72, 504, 512, 576, 1024, 4096])


@st.composite
def lifetimes(draw: st.DrawFn, rooms: st.SearchStrategy[int] = ROOMS) -> list[Value]:
    tasks = st.sets(st.integers(0, 12), max_size=4).map(lambda found: tuple(sorted(found)))
    return draw(st.lists(st.builds(Value, tasks, rooms, st.sampled_from([False, False, False, True])), max_size=24))


@given(lifetimes())
@settings(max_examples=150, deadline=None)
def test_random_lifetimes(values: list[Value]) -> None:
    places, size = planned(values)
    assert faults(values, places, size) == []
    assert peak(values) <= size < sum(v.room for v in values if v.has_place) + LINE


@given(st.sampled_from([8, 64, 512, 4096]).flatmap(lambda room: lifetimes(st.just(room))))
@settings(max_examples=100, deadline=None)
def test_values_of_one_size_need_no_more_than_their_peak(values: list[Value]) -> None:
    """Intervals of one size can always share without a gap, and do."""
    values = [replace(value, fixed=False) for value in values]
    assert planned(values)[1] == in_lines(peak(values))


@given(lifetimes())
@settings(max_examples=50, deadline=None)
def test_the_order_of_values_of_a_task_changes_no_promise(values: list[Value]) -> None:
    turned = values[::-1]
    places, size = planned(turned)
    assert faults(turned, places, size) == []


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_planted_faults_are_noticed(moved: int) -> None:
    """A value that stands where another is needed, one beyond the end, one between words, one without a place."""
    values = [Value((0, 3), 512), Value((1, 2), 512), Value((0, 3), 64, fixed=True)]
    places, size = planned(values)
    assert faults(values, places, size) == []
    for wrong in (places[moved - 1], size - 8, places[moved] + 4, -1):
        assert faults(values, [*places[:moved], wrong, *places[moved + 1 :]], size), wrong
    assert faults(values, places, size - WORD)
