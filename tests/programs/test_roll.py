"""Programs with their repeats as loops: run step by step by NumPy, they return what the function returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.roll import rolled
from kernels.foundation.specs import spec_of
from kernels.operations.views import GUARD
from kernels.programs.program import ProgramNode, StepKind, Steps
from kernels.programs.rolled_program import Index, Ref, RolledInstruction, RolledProgram, Uncompiled
from tests.support.rolled_reference import Reference, differences, instructions

pytestmark = pytest.mark.quick

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
STEP = 0.01


def of(fun: Function, *arguments: Any, roll: bool = True) -> RolledProgram:
    """Return a function's program, with loops or without."""
    return rolled(tape.record(fun, *arguments)._recipe, roll=roll)


def agreed(fun: Function, *arguments: Any) -> RolledProgram:
    """Return a function's program of loops, once it and the straight one have returned what the function does."""
    expected = fun(*[tape.tensor(argument, requires_grad=True) for argument in arguments])
    expected = [value.detach().numpy() for value in (expected if isinstance(expected, tuple) else (expected,))]
    recipe = tape.record(fun, *arguments)._recipe
    looped, straight = rolled(recipe), rolled(recipe, roll=False)
    assert not straight.loops
    for program in (looped, straight):
        outputs = Reference(program).outputs(*arguments)
        for output, value in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(output, value)
    assert not differences(looped, straight)
    return looped


def sizes(program: RolledProgram) -> tuple[int, list[int], int]:
    """Return how many instructions a program has, how often its loops run, and how many values they carry."""
    counts = [loop.count for loop in program.loops]
    return instructions(program.body), counts, sum(len(loop.phis) for loop in program.loops)


def test_a_runge_kutta_method_of_scalars() -> None:
    def fun(alpha: Any, beta: Any, x: Any, y: Any) -> Any:
        def slope(x: Any, y: Any) -> tuple[Any, Any]:
            return alpha * x - x * y, x * y - beta * y

        for _ in range(50):
            x1, y1 = slope(x, y)
            x2, y2 = slope(x + STEP / 2 * x1, y + STEP / 2 * y1)
            x, y = x + STEP * x2, y + STEP * y2
        return x + y

    program = agreed(fun, 1.5, 3.0, 1.0, 1.2)
    assert sizes(program) == (21, [50], 2)


def test_a_loop_in_a_loop_reads_moving_parts() -> None:
    def fun(data: Any, x: Any) -> Any:
        for i in range(10):
            for j in range(90):
                x = x + STEP * (data[i, j] - x * (0.1 * j))
            x = x * data[i, 0]
        return x

    program = agreed(fun, np.linspace(0.1, 1.0, 900).reshape(10, 90), 0.7)
    assert sizes(program) == (5, [10, 90], 2)
    inner = program.loops[1]
    operands = [operand for item in inner.body if isinstance(item, RolledInstruction) for operand in item.operands]
    (part,) = [operand for operand in operands if isinstance(operand, Ref) and operand.offset.terms]
    assert part.offset == Index(0, ((0, 720), (1, 8)))


def test_short_loops_in_a_loop_stay_unrolled() -> None:
    def fun(x: Any) -> Any:
        for _ in range(20):
            for _ in range(4):
                x = x + STEP * x * x
            x = x * 0.5
        return x

    assert sizes(agreed(fun, 0.7)) == (13, [20], 1)


def test_every_tenth_step_differs() -> None:
    def fun(x: Any, y: Any) -> Any:
        for i in range(200):
            x, y = x + STEP * y, y - STEP * x
            if i % 10 == 9:
                x = x * 0.9
        return x * y

    assert sizes(agreed(fun, 0.7, 0.2)) == (42, [20], 2)


def test_columns_of_data_and_the_time() -> None:
    def fun(data: Any, x: Any) -> Any:
        for i in range(20):
            x = x * data[:, i] + i * STEP
        return x.sum()

    assert sizes(agreed(fun, np.linspace(0.5, 1.5, 60).reshape(3, 20), np.ones(3))) == (3, [20], 1)


def test_all_steps_in_a_list() -> None:
    def fun(x: Any) -> Any:
        steps = []
        for _ in range(30):
            x = x + STEP * x * x
            steps.append(x)
        return tape.stack(steps).sum() + steps[3]

    program = agreed(fun, 0.7)
    assert sizes(program) == (6, [30], 1)
    stack = next(i for i in program.body if isinstance(i, RolledInstruction) and i.op.name == "stack")
    assert [o.at for o in stack.operands if isinstance(o, Ref)] == [(Index(k),) for k in range(30)]


def test_a_loop_over_the_steps_of_an_earlier_one() -> None:
    def fun(x: Any) -> Any:
        steps, total = [], 0.0
        for _ in range(30):
            x = x + STEP * x * x
            steps.append(x)
        for k in range(29, -1, -1):
            total = total + steps[k] * (1.0 / (k + 1))
        return total

    program = agreed(fun, 0.7)
    assert sizes(program) == (5, [30, 30], 2)
    product = next(i for i in program.loops[1].body if isinstance(i, RolledInstruction) and i.op.name == "multiply")
    assert isinstance(product.operands[0], Ref)
    assert product.operands[0].at == (Index(29, ((1, -1),)),)


def test_a_nested_history_is_read_backward() -> None:
    def fun(x: Any, data: Any) -> Any:
        steps = []
        for i in range(12):
            for j in range(150):
                x = x + STEP * x * data[j]
                steps.append(x)
            x = x * data[i]
        for step in reversed(steps):
            x = x + step * step
        return x

    assert sizes(agreed(fun, 0.7, np.linspace(0.1, 0.9, 150)))[1] == [12, 150, 1800]


def test_a_method_of_two_steps() -> None:
    def fun(x: Any, y: Any) -> Any:
        for _ in range(25):
            x, y = y, 2.0 * y - x * 0.99
        return y

    program = agreed(fun, 0.7, 0.8)
    assert sizes(program) == (3, [25], 2)


def test_a_method_that_starts_with_one_step() -> None:
    def fun(x: Any) -> Any:
        before = x * x
        for _ in range(25):
            now = x * x
            x, before = x + STEP * (1.5 * now - 0.5 * before), now
        return x

    assert sizes(agreed(fun, 0.7))[1:] == ([25], 2)


def test_a_delay_of_ten_steps() -> None:
    def fun(x: Any) -> Any:
        steps = [x] * 10
        for _ in range(60):
            steps.append(steps[-1] + STEP * steps[-10])
        return steps[-1]

    program = agreed(fun, 0.7)
    assert sizes(program)[1] == [60]
    assert instructions(program.body) == 2


def test_a_total_that_starts_as_a_number() -> None:
    def fun(data: Any) -> Any:
        total: Any = 0.0
        for i in range(20):
            total = total + data[i] * data[i]
        return total

    program = agreed(fun, np.linspace(0.5, 1.5, 20))
    assert sizes(program) == (2, [20], 1)
    assert program.loops[0].phis[0].initial == 0.0


def test_a_total_that_starts_as_a_column() -> None:
    """Which has other strides than the totals."""

    def fun(data: Any) -> Any:
        total = data[:, 0]
        for i in range(1, 20):
            total = total + data[:, i]
        return total.sum()

    assert sizes(agreed(fun, np.linspace(0.5, 1.5, 60).reshape(3, 20))) == (2, [19], 1)


def test_a_state_that_starts_as_part_of_an_argument() -> None:
    def fun(data: Any) -> Any:
        u = data[1]
        for _ in range(20):
            u = tape.cat([u[:1], u[1:-1] + STEP * (u[2:] - u[:-2]), u[-1:]])
        return u.sum()

    program = agreed(fun, np.linspace(0.5, 1.5, 24).reshape(3, 8))
    assert sizes(program) == (5, [20], 1)
    initial = program.loops[0].phis[0].initial
    assert isinstance(initial, Ref)
    assert initial.offset == Index(64)


def test_a_stencil_in_place() -> None:
    def fun(u: Any) -> Any:
        u = u * 1.0
        for _ in range(20):
            u[1:-1] = u[1:-1] + STEP * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        return (u * u).sum()

    program = agreed(fun, np.linspace(0.5, 1.5, 8) ** 2)
    assert sizes(program) == (9, [20], 0)
    assert program.values[program.body[0].result].written  # type: ignore[union-attr]


def test_sums_in_place() -> None:
    def fun(u: Any) -> Any:
        u = u * 1.0
        for _ in range(20):
            u[1:-1] += STEP * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        return (u * u).sum()

    u = np.linspace(0.5, 1.5, 8) ** 2
    assert sizes(agreed(fun, u))[1:] == ([20], 0)


def test_an_array_made_and_written_in_each_step() -> None:
    def fun(u: Any) -> Any:
        for _ in range(20):
            new = u * 1.0
            new[1:-1] = STEP * (u[2:] + u[:-2])
            new[0] = new[1]
            u = new
        return u.sum()

    program = agreed(fun, np.linspace(0.5, 1.5, 8) ** 2)
    assert sizes(program) == (7, [20], 1)  # new[1] is a value: it is copied before new is written


def test_what_is_written_is_not_carried_from_before_the_write() -> None:
    """The first step reads an array that the loop writes; it is no beginning of what is carried."""

    def fun(u: Any, v: Any) -> Any:
        u, before = u * 1.0, v
        kept = u
        for _ in range(20):
            kept[1:3] = before[1:3] * 0.9
            before = before + kept * STEP
        return before.sum() + u.sum()

    agreed(fun, np.linspace(0.5, 1.5, 8), np.linspace(1.5, 2.0, 8))

    def aliased(u: Any) -> Any:
        u = u * 1.0
        before = u
        for _ in range(20):
            u[1:3] = before[2:4] * 0.9
            before = before + u * STEP
        return before.sum() + u.sum()

    agreed(aliased, np.linspace(0.5, 1.5, 8))


def test_a_sweep_over_the_elements_of_a_list() -> None:
    """As Gauss and Seidel: each element is replaced by what its neighbours are by then."""

    def fun(b: Any) -> Any:
        x = [b[i] for i in range(12)]
        for _ in range(15):
            for i in range(12):
                x[i] = 0.25 * (b[i] + x[i - 1] + x[(i + 1) % 12])
        return sum(x[1:], x[0])

    program = agreed(fun, np.linspace(0.5, 1.5, 12))
    assert sizes(program) == (47, [15], 11)


def test_rows_before_and_behind_a_loop() -> None:
    def fun(x: Any, y: Any) -> Any:
        z = tape.exp(x) / (y + 2.0)
        for _ in range(20):
            z = z - STEP * (z * z - x)
        return tape.sin(z) * y - tape.cos(z)

    assert sizes(agreed(fun, 0.7, 0.3)) == (11, [20], 1)


def test_other_constants_and_masks_in_each_step() -> None:
    weights = np.linspace(0.1, 0.9, 60).reshape(20, 3)

    def fun(x: Any) -> Any:
        for k in range(20):
            w = tape.tensor(weights[k])
            x = tape.where(x > 0.5, x * w, x + tape.tensor(float(k)))
        return x.sum()

    program = agreed(fun, np.array([0.2, 0.6, 1.5]))
    assert sizes(program) == (5, [20], 1)
    assert sum(value.constant is not None for value in program.values) == 1


def test_detached_values_stay_so() -> None:
    def fun(x: Any, y: Any) -> Any:
        x = x.detach() * 1.0
        for k in range(20):
            x = x + STEP * (x * y if k else x.detach() * y)
        return x

    agreed(fun, 0.7, 0.3)

    def every_other(x: Any) -> Any:
        for k in range(40):
            y = x.detach() if k % 2 else x
            x = x + STEP * y * x
        return x

    assert sizes(agreed(every_other, 0.7)) == (6, [20], 1)


def test_guards_are_instructions() -> None:
    seen: list[bool] = []

    def fun(x: Any) -> Any:
        for _ in range(20):
            seen.append(bool(x > 0.1))
            x = x * 0.9
        return x

    recipe = tape.record(fun, 7.0)._recipe
    guarded, steps = recipe.copy(), Steps()
    steps.kinds, steps.numbers = [*recipe.steps.kinds, StepKind(GUARD, None, (3,), 2)], recipe.steps.numbers
    words, answers = recipe.steps.words, iter(seen)
    for at, begin in enumerate(recipe.steps.starts):
        step = recipe.steps[at]
        steps.add(words[begin], step.result, words[begin + 2 : begin + 2 + len(step.operands)])
        if step.op.name == "greater":
            expected = np.array(next(answers))
            guarded.nodes.append(ProgramNode(spec_of(expected), constant=expected))
            steps.add(len(steps.kinds) - 1, step.result, (step.result, len(guarded.nodes) - 1))
    guarded.steps = steps
    program = rolled(guarded)
    assert sizes(program) == (3, [20], 1)
    Reference(program).outputs(np.array(7.0))
    with pytest.raises(AssertionError):
        Reference(program).outputs(np.array(0.05))


def test_what_cannot_be_a_program_of_loops_is_refused() -> None:
    def to_argument(x: Any) -> Any:
        x[0] = 1.0
        return x.sum()

    with pytest.raises(Uncompiled):
        of(to_argument, np.ones(4))


def test_memory_that_nothing_computed_may_be_written() -> None:
    """Its gradient is that of the version from the write on, which has the same memory."""

    def to_zeros(x: Any) -> Any:
        y = tape.zeros(4)
        y[1:] = x[1:]
        return (y * y).sum()

    agreed(to_zeros, np.arange(4.0))


def test_programs_without_instructions() -> None:
    for fun in (lambda x: x, lambda x: (x[1:], x.reshape(2, 2).T)):
        assert sizes(agreed(fun, np.ones(4)))[0] == 0


def test_too_few_steps_are_no_loop() -> None:
    def fun(x: Any) -> Any:
        for _ in range(2):
            for name in ("sin", "cos", "exp", "tanh", "sqrt", "sin", "exp"):
                x = getattr(tape, name)(x * x + 0.1)
        return x

    assert sizes(agreed(fun, 0.7))[1] == []
