"""Calls of compiled programs: arguments are read in place, results written in place, workspaces are not shared."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.specs import spec_of
from kernels.foundation.tables import dataclass
from kernels.machine_code.call_structs import FLAT, GRAD, GRAD_AND_VALUE, SINGLE, VALUE_AND_GRAD
from kernels.machine_code.compiled_machine import CompiledMachine, GuardPlace, ReturnForm
from kernels.programs.machine import GuardMissed
from tests.support.handwritten_programs import program, rosenbrock, tiny

pytestmark = pytest.mark.quick

ADD = """def program():
    for i in range({n}):
        r0[i] = a0[i] + a1[i]
    return -1
"""
GUARDED = """def program():
    w0[0] = a0[0]
    if a0[0] > 0.0:
        return 1
    r0[0] = 2.0 * a0[0]
    return -1
"""


@dataclass()
class Case:
    """Arguments that a program of one double takes, and whether it does so exactly."""

    argument: Any
    others: bool = True
    exactly: bool = True


def add(n: int, *examples: Any) -> CompiledCode:
    return program(ADD.format(n=n), list(examples), [np.zeros(n)])


def doubled(argument: Any) -> CompiledCode:
    return program("def program():\n    r0[0] = a0[0] + a0[0]\n    return -1\n", [argument], [argument])


def test_floats_and_their_gradient() -> None:
    value, *gradients = CompiledMachine(tiny()).whole((1.0, 2.0, 3.0, 4.0))
    assert (value, gradients) == (7.5625, [11.0, 5.5, 1.375, -1.03125])
    assert all(type(x) is float for x in (value, *gradients))


@pytest.mark.parametrize(
    "case",
    [
        Case(2.5), Case(np.float64(2.5)), Case(np.array(2.5)), Case(2, exactly=False),
        Case(1 << 1100, others=False, exactly=False), Case(True, others=False, exactly=False),
        Case("2.5", others=False, exactly=False), Case(np.float32(2.5), others=False, exactly=False),
        Case(np.array(2.5, np.float32), others=False, exactly=False), Case(np.ones(1), others=False, exactly=False),
        Case(None, others=False, exactly=False), Case([2.5], others=False, exactly=False),
    ],
)  # fmt: skip
def test_what_a_double_takes(case: Case) -> None:
    for exactly, taken in ((False, case.others), (True, case.exactly)):
        results = CompiledMachine(doubled(1.0), exactly=exactly).whole((case.argument,))
        assert results == ((2.0 * float(case.argument),) if taken else None)


def test_singles_and_integers() -> None:
    single, integer = np.array(1.0, np.float32), np.array(1, np.int64)
    assert CompiledMachine(doubled(single)).whole((1.5,)) == (3.0,)
    assert CompiledMachine(doubled(single)).whole((3,)) == (6.0,)
    assert CompiledMachine(doubled(single)).whole((1e300,)) is None
    assert CompiledMachine(doubled(single)).whole((float("inf"),)) == (float("inf"),)
    (result,) = CompiledMachine(doubled(integer)).whole((21,))
    assert type(result) is np.ndarray
    assert (result.dtype, result.shape, int(result)) == (np.int64, (), 42)
    assert CompiledMachine(doubled(integer)).whole((1.5,)) is None
    assert CompiledMachine(doubled(integer)).whole((1 << 70,)) is None


def test_a_wrong_count_is_not_taken() -> None:
    machine = CompiledMachine(tiny())
    assert machine.whole(()) is None
    assert machine.whole((1.0,) * 3) is None
    assert machine.whole((1.0,) * 5) is None


def test_arrays_are_taken_as_they_were_recorded() -> None:
    x, y = np.arange(6.0), np.ones(6)
    exact, any_strides = CompiledMachine(add(6, x, y), exactly=True), CompiledMachine(add(6, x, y))
    unaligned = np.frombuffer(b"\0" * 49, np.uint8)[1:].view(np.float64)
    for other in (np.arange(12.0)[::2], np.arange(6.0)[::-1], unaligned):
        assert exact.whole((other, y)) is None or other is unaligned
        np.testing.assert_array_equal(any_strides.whole((other, y))[0], other + y)
    np.testing.assert_array_equal(exact.whole((x, y))[0], x + y)
    refused = [np.arange(5.0), np.ones((6, 1)), np.arange(6), [1.0] * 6, np.ma.zeros(6), np.arange(6.0).astype(">f8")]
    for other in refused:
        assert any_strides.whole((other, y)) is None


def test_recorded_strides_are_followed() -> None:
    x = np.arange(12.0).reshape(3, 4).T
    code = program("def program():\n    r0[0] = a0[0] + a0[1] * 100.0\n    return -1\n", [x], [1.0])
    assert code.arguments[0] is spec_of(x)
    machine = CompiledMachine(code)
    assert machine.whole((x,)) == (100.0,)  # memory order: 0, 1, ...
    assert machine.whole((np.ascontiguousarray(x),)) == (100.0,)  # copied to the same layout
    assert CompiledMachine(code, exactly=True).whole((np.ascontiguousarray(x),)) is None


def test_strides_of_axes_of_one_element_do_not_matter() -> None:
    x = np.arange(6.0)
    machine = CompiledMachine(add(6, x.reshape(1, 6), x), exactly=True)
    odd = np.lib.stride_tricks.as_strided(x, (1, 6), (8, 8))
    np.testing.assert_array_equal(machine.whole((odd, x))[0], 2 * x)


def test_results_are_the_callers_own() -> None:
    machine = CompiledMachine(add(3, np.zeros(3), np.zeros(3)))
    first, second = machine.whole((np.ones(3), np.ones(3)))[0], machine.whole((np.zeros(3), np.ones(3)))[0]
    assert first.flags.owndata
    assert first.flags.writeable
    assert (first.tolist(), second.tolist()) == ([2.0] * 3, [1.0] * 3)


def test_large_results_are_reused_when_nobody_holds_them() -> None:
    n = 1 << 14
    x = np.ones(n)
    machine = CompiledMachine(add(n, x, x))
    held = machine.whole((x, x))[0]
    places = {machine.whole((x, x))[0].ctypes.data for _ in range(5)}
    assert held.ctypes.data not in places
    np.testing.assert_array_equal(held, 2 * x)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (ReturnForm(FLAT), (7.5625, 11.0, 5.5, 1.375, -1.03125)), (ReturnForm(SINGLE), 7.5625),
        (ReturnForm(VALUE_AND_GRAD, (1, 2, 3, 4)), (7.5625, (11.0, 5.5, 1.375, -1.03125))),
        (ReturnForm(VALUE_AND_GRAD, (2,), True), (7.5625, 5.5)),
        (ReturnForm(VALUE_AND_GRAD, (4, 1)), (7.5625, (-1.03125, 11.0))),
        (ReturnForm(GRAD, (1, 3)), (11.0, 1.375)), (ReturnForm(GRAD, (1,), True), 11.0), (ReturnForm(GRAD, ()), ()),
        (ReturnForm(GRAD_AND_VALUE, (3,), True), (1.375, 7.5625)),
    ],
)  # fmt: skip
def test_forms(form: ReturnForm, expected: Any) -> None:
    assert CompiledMachine(tiny(), form=form).whole((1.0, 2.0, 3.0, 4.0)) == expected


def test_no_reference_is_lost() -> None:
    x, y = np.arange(6.0), np.ones(6)
    for form in (
        ReturnForm(FLAT),
        ReturnForm(SINGLE),
        ReturnForm(VALUE_AND_GRAD, (1,)),
        ReturnForm(GRAD, (1,), True),
        ReturnForm(GRAD_AND_VALUE, ()),
    ):
        code = program(ADD.format(n=6).replace("return", "r1[0] = 5.0\n    return"), [x, y], [x, y])
        machine = CompiledMachine(code, form=form)
        changes = [_changes(machine, x, y) for _ in range(3)]  # threads of the test runner count references, too
        assert any(max(map(abs, change)) < 50 for change in changes), changes


def _changes(machine: CompiledMachine, x: Any, y: Any) -> list[int]:
    """Return how many more references there are after 200 calls that are answered, and as many that are not."""
    objects = (x, y, x.dtype, None)
    gc.collect()
    before = [sys.getrefcount(z) for z in objects]
    for _ in range(200):
        machine.whole((x, y))
        machine.whole((x, 1.0))
    gc.collect()
    return [sys.getrefcount(z) - count for z, count in zip(objects, before, strict=True)]


def test_memory_does_not_grow() -> None:
    x = np.zeros(1000)
    machine = CompiledMachine(add(1000, x, x), form=ReturnForm(SINGLE))
    gc.collect()
    machine.whole((x, x))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(1000):
            machine.whole((x, x))
            machine.whole((x, x[:5]))
        assert tracemalloc.get_traced_memory()[0] - before < 50_000
    finally:
        tracemalloc.stop()


def test_a_guard_that_misses() -> None:
    places = [GuardPlace("a.py:1"), GuardPlace("a.py:2", 0, 8)]
    machine = CompiledMachine(program(GUARDED, [1.0], [1.0], work=8), guards=places)
    assert machine.guards == ["a.py:1", "a.py:2"]
    assert machine.whole((-1.0,)) == (-2.0,)
    for attempt in (lambda: machine.whole((3.0,)), lambda: machine.run((3.0,))):
        with pytest.raises(GuardMissed, match=r"at a\.py:2") as caught:
            attempt()
        assert caught.value.number == 1
        assert caught.value.value == np.float64(3.0).tobytes()
    assert machine.whole((-1.0,)) == (-2.0,)


def test_a_guard_whose_value_is_not_kept() -> None:
    machine = CompiledMachine(program(GUARDED, [1.0], [1.0], work=8))
    with pytest.raises(GuardMissed) as caught:
        machine.whole((3.0,))
    assert caught.value.number == -1


def test_memory_of_its_own_as_other_machines_have() -> None:
    machine = CompiledMachine(rosenbrock(5))
    x = np.linspace(-1.0, 1.0, 5)
    value, gradient = machine.whole((x,))
    machine.run((x,))
    assert [float(y) for y in machine.outputs] == [value]
    np.testing.assert_array_equal(machine.gradients[0], gradient)
    assert machine.size > 4 * 8


def test_copies_run_at_the_same_time() -> None:
    n = 30_000  # other threads run meanwhile
    code = rosenbrock(n)
    machine = CompiledMachine(code, form=ReturnForm(VALUE_AND_GRAD, (1,), True))
    points = [np.linspace(-1.0, 1.0 + k, n) for k in range(4)]
    expected = [CompiledMachine(code).whole((x,)) for x in points]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(30):
            value, gradient = machine.whole((points[k],))  # in a copy where it is busy
            if value != expected[k][0] or not np.array_equal(gradient, expected[k][1]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_large_workspace_is_shared_by_forms() -> None:
    small, large = rosenbrock(5), rosenbrock(200_000)
    for code, shared in ((small, False), (large, True)):
        machine = CompiledMachine(code)
        other = machine.formed(ReturnForm(SINGLE))
        assert (other._work is machine._work) is shared
        x = np.zeros(code.arguments[0].shape)
        assert other.whole((x,)) == machine.whole((x,))[0] == x.size - 1
    if machine.words is not None:
        machine._busy[0] = 1
        assert other.whole((x,)) == x.size - 1  # with another workspace
        machine.run((x,))
        assert float(machine.outputs[0]) == x.size - 1
        assert machine._busy[0] == 1


def test_empty_arrays() -> None:
    x = np.zeros((0, 3))
    machine = CompiledMachine(program("def program():\n    r1[0] = 3.0\n    return -1\n", [x], [x, 1.0]))
    empty, number = machine.whole((x,))
    assert (empty.shape, number) == ((0, 3), 3.0)


def test_constants_are_read_where_they_stand() -> None:
    held = np.array([3.0, 4.0])
    body = "def program():\n    r0[0] = a0[0] * c0[1]\n    return -1\n"
    machine = CompiledMachine(program(body, [1.0], [1.0], constants=[held]))
    assert machine.whole((2.0,)) == (8.0,)
    held[1] = 5.0
    assert machine.whole((2.0,)) == (10.0,)
    assert machine.copy().whole((2.0,)) == (10.0,)
