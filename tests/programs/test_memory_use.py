"""The memory of programs, held against the machines that are made, and against values counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick

N = 1000
DATA = np.linspace(0.0, 1.0, N)


def chain(x: Any, k: Any) -> Any:
    for _ in range(20):
        x = x + 0.1 * tape.sin(x * k)
    return x.sum()


def with_constants(x: Any, k: Any) -> Any:
    return (x * tape.tensor(DATA) * k + tape.tensor(DATA)).sum()


def written(x: Any, k: Any) -> Any:
    y = tape.zeros(N)
    y[1:] = x[1:] * k
    y *= y
    return (y * x).sum()


def picked(x: Any, k: Any) -> Any:
    values, _ = tape.sort(x)
    return (values[:10] * k).sum() + x[np.array([1, 2, 2])].sum() + x.float().sum()


def small(x: Any, k: Any) -> Any:
    y = x[0] * k
    for _ in range(50):
        y = tape.sin(y) * y + 1.0
    return y


FUNCTIONS = [chain, with_constants, written, picked, small]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_block_is_that_of_the_machine(function: Callable[..., Any], reverse: bool) -> None:
    program = tape.record(function, DATA, 2.0)
    use = program.memory(reverse=reverse)
    machine = program._machine(reverse=reverse)
    assert use.block == machine.size
    assert use.block <= machine.memory.nbytes < use.block + 128  # it begins at a line of the cache
    assert use.total == use.block + use.constants
    numbers, lines = str(use).splitlines()[1:], use.kinds.values()
    assert [int(line.split()[-1].replace(",", "")) for line in numbers[:6]] == [share.bytes for share in lines]


def test_values_counted_by_hand() -> None:
    use = tape.record(with_constants, DATA, 2.0).memory(reverse=True)
    vector, number = 8 * N, 8
    assert use.constants == vector  # the same contents, kept once
    counted = {kind: (share.count, share.bytes) for kind, share in use.kinds.items()}
    assert counted["arguments"] == (2, vector + number)
    assert counted["results"] == (1, number)
    assert counted["values"] == (3, 3 * vector)  # two products and a sum
    assert counted["gradients"] == (6, 4 * vector + 2 * number)
    (block,) = use.groups["block"]
    assert (block.name, block.count, block.bytes) == ("once", 8, 6 * vector + 2 * number)
    shares = {share.name: (share.count, share.bytes) for share in use.groups["operation"]}
    assert shares == {
        "multiply": (4, 4 * vector),
        "add": (2, 2 * vector),
        "sum": (2, 2 * number),
    }
    assert "line" not in use.groups


def test_a_loop_is_one_block_and_values_share_memory() -> None:
    program = tape.record(lines=True)(chain, DATA, 2.0)
    use = program.memory()
    blocks = {share.name: (share.count, share.bytes) for share in use.groups["block"]}
    assert blocks == {"20 times multiply .. add (4) from 0": (80, 80 * 8 * N), "once": (1, 8)}
    first = chain.__code__.co_firstlineno
    lines = {share.name: share.count for share in use.groups["line"]}
    assert lines == {
        f"{__file__}:{first + 2}: x = x + 0.1 * tape.sin(x * k)": 80,
        f"{__file__}:{first + 3}: return x.sum()": 1,
    }
    assert use.block < 6 * 8 * N  # not eighty vectors
    assert program.memory(reverse=True).block > 20 * 8 * N  # the pullbacks read some of each time


def test_loops_within_loops_are_blocks_of_blocks() -> None:
    def fun(x: Any) -> Any:
        for _ in range(4):
            for _ in range(3):
                x = tape.sin(x) * 2.0
            x = x + 1.0
        return x

    names = {share.name: share.count for share in tape.record(fun, 1.0).memory().groups["block"]}
    outer = "4 times sin .. add (7) from 0"
    assert names == {f"{outer} / 3 times sin .. multiply (2) from 0": 24, outer: 4}


def test_no_machine_is_made_for_it() -> None:
    program = tape.record(lambda x: (tape.sin(x) * x).sum(), np.ones(3))
    nodes = program._recipe.nodes
    assert program.memory().block < 200
    assert program._first == {}
    assert nodes == program._recipe.nodes


def test_nothing_is_asked_of_an_unfinished_program() -> None:
    x = tape.tensor(1.0, requires_grad=True)
    with tape.record() as program:
        x * 2.0
        with pytest.raises(RuntimeError, match="still being recorded"):
            program.memory()
    assert program.memory().kinds["arguments"].bytes == 8
