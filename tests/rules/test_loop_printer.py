"""The printer of kernels: its text for a loop of each kind, as it was reviewed, and what the text computes.

tests/rules/printed_loops.txt has the texts; the values are those of the rules, run on numbers one by one.
"""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.language.jit import callable_at
from kernels.native.memory import where
from kernels.rules.loop_printer import KernelOperand, PrintedLoop
from tests.rules.loop_cases import COMMAND, F4, LOOPS, stored, text_of, texts

SIZE = 4096
"""Bytes of each operand's memory, more than any case reaches but the constant ones."""


def differing(printed: dict[str, str], reviewed: dict[str, str]) -> list[str]:
    """Return the names of the loops whose text is not the one that was reviewed."""
    return [name for name in {**printed, **reviewed} if printed.get(name) != reviewed.get(name)]


@pytest.mark.parametrize("name", LOOPS)
def test_text_is_as_reviewed(name: str) -> None:
    assert texts()[name] == stored()[name], f"read what has changed, then: {COMMAND}"


def test_every_text_that_is_stored_is_compared() -> None:
    assert differing(texts(), stored()) == []
    assert [*stored()] == [*LOOPS]


def test_a_changed_text_is_noticed() -> None:
    """Planted faults: another rule, another dtype, a line that is missing, a loop that is not stored."""
    reviewed, name = stored(), "unary, pullback: exp"
    loop = LOOPS[name]
    others = [
        replace(loop, rule=lambda g, y: g * y * 1.001), replace(loop, skips=False), replace(loop, pullback=False),
        replace(loop, operands=tuple(replace(o, dtype=F4) for o in loop.operands)),
    ]  # fmt: skip
    for other in others:
        assert text_of(other) != text_of(loop)
    lines = reviewed[name].splitlines(keepends=True)
    assert differing(texts(), {**reviewed, name: "".join(lines[:-1])}) == [name]
    assert differing(texts(), {other: text for other, text in reviewed.items() if other != name}) == [name]


def test_text_tells_nothing_of_extents() -> None:
    """One kernel serves all lengths, and all strides that are neither 0 nor an element."""
    loop = LOOPS["unary, pullback: exp"]
    assert text_of(replace(loop, shape=(7,))) == text_of(loop)
    table = LOOPS["ties of an extremum, counted"]
    wider = [replace(o, strides=(5 * o.strides[0], o.strides[1])) for o in table.operands]
    assert text_of(replace(table, shape=(30, 20), operands=tuple(wider))) == text_of(table)


def memory(loop: PrintedLoop, seed: int) -> list[Any]:
    """Return bytes for each operand, filled with numbers; places lead to the first few elements."""
    rng = np.random.default_rng(seed)
    found = []
    for operand in loop.operands:
        count = max(
            SIZE, 8 * (1 + sum(abs(s) // 8 * (n - 1) for s, n in zip(operand.strides, loop.shape, strict=True)))
        )
        values = rng.uniform(0.5, 2.0, count // operand.dtype.itemsize)
        if operand.name == "i":
            values = rng.permutation(4)[np.arange(len(values)) % 4]
        elif operand.dtype == np.bool_:
            values = rng.integers(0, 2, len(values))
        found.append(values.astype(operand.dtype))
    if loop.pullback and loop.skips:
        found[1][::3] = -0.0  # a cotangent that is nothing
    return found


def place(operand: KernelOperand, index: tuple[int, ...], more: int = 0) -> int:
    """Return which element of its memory an operand's is."""
    start = (operand.offset or 0) + more
    return (start + sum(i * s for i, s in zip(index, operand.strides, strict=True))) // operand.dtype.itemsize


def contribution(loop: PrintedLoop, given: dict[str, Any]) -> Any:
    """Return what the rule makes of numbers: as a pullback nothing, -0.0, of a cotangent that is nothing."""
    dtype = loop.operands[0].dtype
    numbers = {name: given[name] for name in inspect.signature(loop.rule).parameters}
    value = dtype.type(loop.rule(**{n: x if x.dtype == np.bool_ else dtype.type(x) for n, x in numbers.items()}))
    if loop.pullback and loop.skips and given["g"] == 0 and np.signbit(given["g"]):
        return dtype.type(-0.0)
    return value + dtype.type(0.0) if loop.pullback and loop.expression.head != "cut" else value


def expected(loop: PrintedLoop, values: list[Any], *, accumulate: bool) -> Any:
    """Run the rule for one element after the other."""
    result, located = values[0].copy(), 0 if loop.scatter is not None else 1
    adds = accumulate if loop.pullback and loop.covers else loop.pullback or loop.adds
    for index in itertools.product(*map(range, loop.shape)):
        more = [0] * len(loop.operands)
        for operand, own in zip(loop.operands, values, strict=True):
            if operand.name == "i":
                more[located] = int(own[place(operand, index)]) * (loop.scatter or loop.gather or 0)
        at = [place(o, index, extra) for o, extra in zip(loop.operands, more, strict=True)]
        given = {o.name: own[i] for o, own, i in zip(loop.operands, values, at, strict=True)}
        value = contribution(loop, given | {name: np.float64(number) for name, number in loop.static})
        result[at[0]] = result[at[0]] + value if adds else value
    return result


def run(loop: PrintedLoop, values: list[Any], *, accumulate: bool) -> None:
    """Run the kernel on these memories."""
    address, layout = loop.kernel()
    pointers = np.zeros(len(values), np.int64)
    for operand, own in zip(loop.operands, values, strict=True):
        pointers[operand.place] = where(own)
    callable_at(address)(where(layout), where(pointers), int(accumulate))


def check_values(loop: PrintedLoop, rule: Any, *, accumulate: bool) -> None:
    """Compare what the kernel of a loop computes with a rule, signs of zeros too."""
    loop = replace(loop, shape=(6,)) if loop.shape == (9000,) else loop
    values = memory(loop, 5)
    wanted = expected(replace(loop, rule=rule), values, accumulate=accumulate)
    run(loop, values, accumulate=accumulate)
    np.testing.assert_allclose(values[0], wanted, rtol=1e-6 if values[0].dtype == F4 else 1e-13)
    assert np.array_equal(np.signbit(values[0]), np.signbit(wanted))


@pytest.mark.parametrize("accumulate", [True, False], ids=["added", "stored"])
@pytest.mark.parametrize("name", LOOPS)
def test_kernels_compute_what_the_rules_say(name: str, accumulate: bool) -> None:
    check_values(LOOPS[name], LOOPS[name].rule, accumulate=accumulate)


def test_wrong_values_are_noticed() -> None:
    """Planted faults: a factor, and a zero of the other sign."""
    with pytest.raises(AssertionError):
        check_values(LOOPS["unary, pullback: exp"], lambda g, y: g * y * (1 + 1e-9), accumulate=False)
    with pytest.raises(AssertionError):
        check_values(LOOPS["a copy of a matrix transposed"], lambda x: -x, accumulate=False)
