"""How much memory a program has: what its pullbacks read, and no more than dynamic mode keeps for them."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.assembly import Free
from kernels.programs.machine import Machine

N = 100
FIELD = 8 * N * N


def wave(c: Any, u: Any, steps: int) -> Any:
    """The wave equation by slices, a new field each step."""
    p = u
    for _ in range(steps):
        new = tape.zeros(N, N)
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        new[1:-1, 1:-1] = 2 * u[1:-1, 1:-1] - p[1:-1, 1:-1] + c[1:-1, 1:-1] * around
        p, u = u, new
    return (u * u).sum()


def in_place(c: Any, u: Any, steps: int) -> Any:
    """Two fields that are written in turn."""
    u, v = u * 1, u * 0
    for _ in range(steps):
        v[1:-1, 1:-1] += c[1:-1, 1:-1] * (u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1])
        u += v
    return (u * u).sum()


def buffer(c: Any, u: Any, steps: int) -> Any:
    """All fields in one array."""
    all_steps = tape.zeros(steps + 1, N, N)
    all_steps[0] = u
    for k in range(steps):
        all_steps[k + 1] = all_steps[k] * c
        all_steps[k + 1, 1:] -= all_steps[k, :-1]
    return (all_steps**2).mean()


def elementwise(c: Any, u: Any, steps: int) -> Any:
    """What each pullback reads."""
    for _ in range(steps):
        u = tape.sin(u) * c + tape.exp(-u * u)
    return u.sum()


def linear(c: Any, u: Any, steps: int) -> Any:
    """Nothing is read."""
    for k in range(steps):
        u = u - (u + c).T * 0.1 + u[:: -1 if k < 0 else 1] * 0.5
    return u.sum()


def layers(c: Any, u: Any, steps: int) -> Any:
    """Matrix products of a narrowing network."""
    for k in range(steps):
        u = tape.tanh(u[:, : N - k] @ c[: N - k, : N - k - 1])
    return (u * u).sum()


def growing(c: Any, u: Any, steps: int) -> Any:
    """Parts of another extent each step, that nothing keeps."""
    total = u[0] * 0
    for k in range(steps):
        part = u[: N - k] + c[: N - k]
        total = total + (part - c[: N - k]).sum(0)
    return total.sum()


WORKLOADS = [wave, in_place, buffer, elementwise, linear, layers, growing]
Workload = Callable[[Any, Any, int], Any]


def kept_by_the_tape(fun: Workload, steps: int) -> int:
    """Return the bytes that dynamic mode keeps for a backward."""
    c, u = (tape.tensor(x, requires_grad=True) for x in point())
    fun(c, u, steps).backward()
    gc.collect()
    tracemalloc.start()
    y = fun(c, u, steps)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del y
    return kept


def point() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random((N, N)) * 0.1, rng.random((N, N))


def of_the_program(fun: Workload, steps: int) -> tuple[int, int]:
    """Return the bytes of a machine that replays forward, and of one that replays both ways."""
    program = tape.record(lambda c, u: fun(c, u, steps), *point())
    program(*point())
    value, _ = program.value_and_grad(*point())
    assert value == fun(*map(tape.tensor, point()), steps).item()
    constants = sum(node.constant.nbytes for node in program._recipe.nodes if node.constant is not None)
    machines = (program._machines[reverse][0] for reverse in (False, True))
    forward, both = (len(m.memory) + words_of(m) + constants for m in machines)
    return forward, both


def words_of(machine: Machine) -> int:
    """Return the bytes of a machine's rows and pointers."""
    return machine.rows.words.nbytes + machine.rows.pointers.nbytes


@pytest.mark.parametrize("fun", WORKLOADS)
def test_a_step_keeps_no_more_than_dynamic_mode_does(fun: Workload) -> None:
    few, many = 10, 40
    by_tape = [kept_by_the_tape(fun, n) for n in (few, many)]
    (forward_few, both_few), (forward_many, both_many) = (of_the_program(fun, n) for n in (few, many))
    rows = 30 * 20_000  # each instruction's words, which do not grow with the fields
    at_work = 2 * (many - few) * FIELD if fun is buffer else 0  # one tensor: its gradient is as large, its square too
    assert both_many - both_few <= by_tape[1] - by_tape[0] + at_work + rows
    assert both_many <= by_tape[1] + at_work + 25 * FIELD + rows  # arguments, gradients, and what is at work
    if fun is not buffer:
        assert forward_many - forward_few <= rows
        assert forward_many <= 10 * FIELD + rows


def test_the_gaps_in_a_block() -> None:
    """What is asked for never meets what is taken, and the block is little larger than what was taken at once."""
    draw = random.Random(1)  # noqa: S311 (no secret)
    free, taken, most = Free(64), dict[int, int](), 0
    for _ in range(5000):
        if taken and draw.random() < 0.5:
            start = draw.choice(list(taken))
            free.give(start, taken.pop(start))
        else:
            room = draw.choice([8, 64, 320, 8000])
            start = free.take(room)
            assert start >= 64
            assert all(start + room <= other or other + size <= start for other, size in taken.items())
            taken[start] = room
        most = max(most, sum(taken.values()))
        assert free.size >= max((start + room for start, room in taken.items()), default=64)
    assert free.size < 1.5 * most
    for start, room in taken.items():
        free.give(start, room)
    assert free.take(free.size - 64) == 64


def test_a_loop_of_numbers_keeps_rows_and_no_tasks() -> None:
    count = 4000

    def loop(x: Any, b: Any) -> Any:
        y = x
        for _ in range(count // 2):
            y = y * b + x
        return y

    tape.record(loop, 1.0, 0.5).value_and_grad(1.0, 0.5)  # compiles
    program = tape.record(loop, 1.0, 0.5)
    gc.collect()
    tracemalloc.start()
    try:
        program(1.0, 0.5)
        gc.collect()
        forward = tracemalloc.get_traced_memory()[0]
        program.value_and_grad(1.0, 0.5)
        gc.collect()
        both = tracemalloc.get_traced_memory()[0] - forward
    finally:
        tracemalloc.stop()
    assert forward / count < 150  # a row of 8 words, 3 pointers
    assert both / count < 450  # another of these, and three for the way back


def test_calls_within_calls_have_machines_of_their_own() -> None:
    def summed(x: Any, y: Any) -> Any:
        total = (x * 3.0 + y * tape.sin(x)).sum() + tape.cumsum(y, 0).sum() + tape.sort(x)[0][0]
        return total + tape.tensor([1.0, 2.0, 3.0]) @ x

    x, y = np.array([0.3, 0.1, 0.2]), np.array([1.0, 2.0, 4.0])
    program = tape.record(summed, x, y)
    first, gradients = program.value_and_grad(x, y)
    taken = program._machines[True].pop()  # as where a call is under way
    for scale in (1.0, 2.0):
        value, found = program.value_and_grad(x * scale, y)
        again, expected = tape.value_and_grad(summed, argnums=(0, 1))(x * scale, y)
        assert value == pytest.approx(again, rel=1e-14)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13)
    assert program._machines[True][0].memory is not taken.memory
    program._machines[True][:] = [taken]
    value, found = program.value_and_grad(x, y)
    assert value == first
    for one, other in zip(found, gradients, strict=True):
        assert one.tolist() == other.tolist()
