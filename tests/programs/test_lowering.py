"""From the steps of a program to tasks: alike steps at once, copies before overwrites, gradients that are whole.

The tasks are looked at as they stand, without running one; tests of programs compare what they compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs import lowering, task_blocks
from kernels.programs.assembly import ProgramPlan
from kernels.programs.machine import plan
from kernels.rules.loop_printer import PrintedLoop
from kernels.rules.scalar_loops import ConstantFill, PythonCall, Tasks, UfuncCall

Function = Callable[..., Any]
X = np.linspace(0.25, 2.0, 4)


@dataclass(frozen=True)
class Row:
    """One task: what it calls, and the memory that it writes and reads, as (node, whether its gradient is meant)."""

    call: Any
    adds: bool
    writes: tuple[tuple[int, bool], ...]
    reads: tuple[tuple[int, bool], ...]

    @property
    def fills(self) -> bool:
        return isinstance(self.call, ConstantFill)


def rows_of(tasks: Tasks) -> list[Row]:
    """Return the tasks one by one."""
    found, at = [], 0
    for number, adds in zip(tasks.call_numbers, tasks.adds, strict=True):
        call, count = tasks.calls[number], tasks.counts[number]
        places = [(~p, True) if p < 0 else (p, False) for p in tasks.places[at : at + count]]
        at += count
        found.append(Row(call, bool(adds), *written_and_read(call, places)))
    return found


def written_and_read(call: Any, places: list[tuple[int, bool]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what a task writes, and what it reads."""
    if isinstance(call, UfuncCall):
        return (places[-1],), tuple(places[:-1])
    if isinstance(call, PythonCall) and places[0][1]:  # a pullback: the cotangent, what is kept, gradients of operands
        return tuple(p for p in places[1:] if p[1]), tuple(p for k, p in enumerate(places) if not (k and p[1]))
    return (places[0],), tuple(places[1:])


def lowered(f: Function, *given: Any, reverse: bool = True) -> tuple[ProgramPlan, list[Row], list[Row]]:
    """Record a function and lower it; return the plan, the forward tasks and the reverse ones."""
    made = plan(tape.record(f, *given)._recipe, reverse=reverse)
    rows = rows_of(made.tasks)
    return made, rows[: made.forward], rows[made.forward :]


def columns(made: ProgramPlan) -> tuple[Any, ...]:
    """Return all that rows are made of."""
    tasks = made.tasks
    return tasks.call_numbers.tolist(), tasks.adds.tolist(), tasks.places.tolist(), tasks.offsets, tasks.counts


def long(x: Any) -> Any:
    """A hundred steps of four kinds, and one of each of two others."""
    y = x + 0.5
    for k in range(25):
        y = (y * x + 1.5).sin() / (k + 2.0)
    return (y - x).sum()


# Alike steps


def test_alike_steps_call_the_same() -> None:
    made, forward, reverse = lowered(long, X)
    assert len(forward) > 100
    assert len({id(row.call) for row in forward}) <= 9
    assert len(reverse) > 100
    assert len({id(row.call) for row in reverse}) <= 12
    counts = {id(call): count for call, count in zip(made.tasks.calls, made.tasks.counts, strict=True)}
    assert all(counts[id(row.call)] == len(row.writes) + len(row.reads) for row in forward + reverse)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "with reverse"])
def test_a_step_that_is_repeated_is_lowered_as_one_by_one(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tape.record(long, X)._recipe
    repeated = plan(recipe, reverse=reverse)
    lowered_steps: list[int] = []

    def refuse(self: Any, at: int, start: int) -> bool:  # noqa: ARG001
        lowered_steps.append(at)
        return False

    monkeypatch.setattr(lowering.Repeating, "repeat", refuse)
    monkeypatch.setattr(lowering.Repeating, "remember", lambda *_: None)
    apart = plan(recipe, reverse=reverse)
    assert len(lowered_steps) == len(recipe.steps)
    assert columns(repeated)[:2] == columns(apart)[:2]
    same_memory(repeated, apart)


def same_memory(one: ProgramPlan, other: ProgramPlan) -> None:
    """Compare places by what stands there: nodes of numbers and temporaries are numbered as they are made."""
    told = [[place_told(p, made) for p in made.tasks.places] for made in (one, other)]
    assert told[0] == told[1]


def place_told(place: int, made: ProgramPlan) -> Any:
    node = made.recipe.nodes[~place if place < 0 else place]
    constant = None if node.constant is None else node.constant.tolist()
    return (place < 0, constant) if constant is not None else place


def test_many_and_few_alike_steps_are_appended_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """By arrays, and one by one."""
    recipe = tape.record(long, X)._recipe
    monkeypatch.setattr(task_blocks, "FEW", 1)
    by_arrays = plan(recipe, reverse=True)
    monkeypatch.setattr(task_blocks, "FEW", 1 << 30)
    assert columns(plan(recipe, reverse=True)) == columns(by_arrays)


def test_views_are_no_tasks() -> None:
    _, forward, _ = lowered(lambda x: (x.reshape(2, 2).T[0] * 2.0).sum(), X)
    calls = [row for row in forward if not row.fills]
    assert len(calls) == 2  # a product and a sum


# Copies before overwrites


def overwritten(x: Any) -> Any:
    y = x * 1.5
    z = y.exp() * y  # the pullbacks read y, and exp's result
    y[1:3] = 0.0
    return (z + y).sum()


def copies(rows: list[Row]) -> list[int]:
    """Return which tasks copy one node to another."""
    return [k for k, row in enumerate(rows) if isinstance(row.call, PrintedLoop) and row.call.rule.__name__ == "same"]


def test_what_a_pullback_reads_is_copied_before_it_is_overwritten() -> None:
    made, forward, reverse = lowered(overwritten, X)
    kept, write = copies(forward)
    saved, memory = forward[kept].writes[0][0], forward[kept].reads[0][0]
    assert made.recipe.base_of(forward[write].writes[0][0]) == made.recipe.base_of(memory)
    assert kept < write
    read_back = {node for row in reverse for node, gradient in row.reads if not gradient}
    assert saved in read_back
    assert memory not in read_back


def test_what_no_pullback_reads_is_not_copied() -> None:
    _, forward, reverse = lowered(overwritten, X, reverse=False)
    assert (len(copies(forward)), reverse) == (1, [])  # the write itself

    def unread(x: Any) -> Any:
        y = x * 1.5
        z = y + 1.0  # whose pullback reads nothing
        y[1:3] = 0.0
        return (z + y).sum()

    assert len(copies(lowered(unread, X)[1])) == 1


def test_a_value_is_copied_once_for_all_that_wait_for_it() -> None:
    def several(x: Any) -> Any:
        y = x * 1.5
        z = y.sin() + y.cos() + y * y
        y[0] = 2.0
        y[1] = 3.0
        return (z + y).sum()

    _, forward, _ = lowered(several, X)
    assert len(copies(forward)) == 3  # y, and the two writes


# The order of reverse tasks


def gradients(made: ProgramPlan, memory: tuple[tuple[int, bool], ...]) -> set[int]:
    """Return the families of values whose gradients stand there."""
    return {made.recipe.family_of(node) for node, gradient in memory if gradient}


def early(made: ProgramPlan, rows: list[Row]) -> list[int]:
    """Return which tasks read a gradient that a later one still changes, or that none has begun."""
    last = {family: k for k, row in enumerate(rows) for family in gradients(made, row.writes)}
    begun: set[int] = set()
    found = []
    for k, row in enumerate(rows):
        if any(family not in begun or last[family] > k for family in gradients(made, row.reads)):
            found.append(k)
        begun |= gradients(made, row.writes)
    return found


def begun_twice(made: ProgramPlan, rows: list[Row]) -> list[int]:
    """Return which tasks store a gradient that has been begun, or add to one that has not."""
    begun: set[int] = set()
    found = []
    for k, row in enumerate(rows):
        written = gradients(made, row.writes)
        if written and not row.fills and row.adds != written.issubset(begun):
            found.append(k)
        begun |= written
    return found


PROGRAMS: dict[str, Function] = {
    "one after the other": lambda x: x.exp().sin().sum(),
    "a value used three times": lambda x: (x.exp() * x + x.sin() * x).sum(),
    "parts of one value": lambda x: (x[:2] * x[2:] + x[::2].exp()).sum(),
    "broadcasting": lambda x: (x.reshape(4, 1) * x.reshape(1, 4).exp()).sum(),
    "a product of matrices": lambda x: (x.reshape(2, 2) @ x.reshape(2, 2).T).sum(),
    "a long one": long,
    "a routine in Python's hands": lambda x: (x.cumsum(0) * tape.linalg.det(x.reshape(2, 2) + 2.0)).sum(),
    "an extremum and a mean": lambda x: x.max() * x.mean() + x.amax(),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_is_whole_before_it_goes_on(name: str) -> None:
    made, _, reverse = lowered(PROGRAMS[name], X)
    assert reverse[0].fills
    assert early(made, reverse) == []
    if not any(isinstance(row.call, PythonCall) for row in reverse):  # Python stores and adds by itself
        assert begun_twice(made, reverse) == []


def test_planted_faults_in_the_order_are_noticed() -> None:
    """Two pullbacks exchanged, one that stores instead of adding, one that is missing."""
    made, _, reverse = lowered(PROGRAMS["a value used three times"], X)
    calls = [k for k, row in enumerate(reverse) if not row.fills]
    turned = [*reverse[: calls[0]], *reverse[calls[0] :][::-1]]
    assert early(made, turned)
    adding = next(k for k in calls if reverse[k].adds)
    stored = Row(reverse[adding].call, False, reverse[adding].writes, reverse[adding].reads)
    assert begun_twice(made, [*reverse[:adding], stored, *reverse[adding + 1 :]]) == [adding]
    assert early(made, reverse[:1] + reverse[calls[1] :])


def test_only_what_leads_to_the_result_has_a_pullback() -> None:
    def beside(x: Any, y: Any) -> Any:
        return (x * 2.0).sum(), (y.exp() * 3.0).sum()

    made, forward, reverse = lowered(beside, X, X)
    assert len(forward) > len(reverse)
    touched = set().union(*(gradients(made, row.writes) for row in reverse))
    x, y = made.recipe.arguments
    assert x in touched
    assert y not in touched


# Constants


def test_a_number_has_one_place() -> None:
    made, _, _ = lowered(lambda x: ((x * 2.5 + 2.5) * 2.5 - 7.25).sum(), X)
    numbers = [
        node.constant.item() for node in made.recipe.nodes if node.constant is not None and not node.constant.ndim
    ]
    assert sorted(set(numbers)) == sorted(numbers)
    assert {2.5, 7.25} <= set(numbers)


def test_numbers_of_several_dtypes_are_apart() -> None:
    made, _, _ = lowered(lambda x, y: (x * 2.0).sum() + (y * 2.0).sum(), X, X.astype(np.float32), reverse=False)
    dtypes = [
        node.constant.dtype for node in made.recipe.nodes
        if node.constant is not None and not node.constant.ndim and node.constant == 2.0
    ]  # fmt: skip
    assert sorted(d.name for d in dtypes) == ["float32", "float64"]


def test_an_array_is_read_where_it_stands_and_is_no_argument() -> None:
    table = np.arange(4.0)
    made, forward, reverse = lowered(lambda x: (x * tape.from_numpy(table)).sum(), X)
    (node,) = [i for i, one in enumerate(made.recipe.nodes) if one.constant is not None and one.constant.ndim]
    assert any((node, False) in row.reads for row in forward)
    assert any((node, False) in row.reads for row in reverse)  # the pullback of x reads it
    assert not any(node in gradients(made, row.writes) for row in reverse)
    assert node not in made.recipe.arguments
