"""Operations on one double, which replay computes without a call: each as the record says, in every bit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import tape
from kernels.foundation.specs import SCALAR
from kernels.kinds.elementwise import Elementwise
from kernels.language import jit
from kernels.native.memory import address_of
from kernels.native.structs import ROW, RUN_INLINE, ProgramRow
from kernels.operations import OPS
from kernels.rules import scalar_loops
from kernels.rules.scalar_loops import forward

VALUES = (0.0, -0.0, 1.0, -2.5, 1e-310, 1e308, math.inf, -math.inf, math.nan)


def texts_of_records() -> set[tuple[str, bool]]:
    """Return what exact records print, by the places of operands."""
    found = set()
    for op in [op for op in OPS.values() if isinstance(op, Elementwise) and op.exact and not op.condition]:
        count = len(op.inputs)
        loops: list[tuple[Any, int]] = [(forward(op, SCALAR, (SCALAR,) * count), 1 + count)]
        for wanted in itertools.product((True, False), repeat=count):
            if any(wanted):
                form = op.form((SCALAR,) * count, SCALAR, wanted)
                loops += [(pull, 2 + len(form.saved)) for pull in form.pulls if pull is not None]
        kinds = {scalar_loops.kind_of(loop, places) for loop, places in loops}
        found |= {key for key, kind in scalar_loops.KINDS.items() if kind in kinds}
    return found


def test_each_text_is_that_of_a_record() -> None:
    assert texts_of_records() == scalar_loops.KINDS.keys()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("key", scalar_loops.KINDS, ids=str)
def test_entries_agree_with_their_text(key: tuple[str, bool]) -> None:
    text, pullback = key
    names = [name for name in ("x1", "x2", "x3") if name in text]
    for values in itertools.product(VALUES, repeat=len(names)):
        given = dict.fromkeys(("x1", "x2", "x3"), 7.0) | dict(zip(names, values, strict=True))
        for accumulates in (False, True) if pullback else (False,):
            memory = np.array([0.75, *given.values()])
            entry = np.array([scalar_loops.KINDS[key] + scalar_loops.ACCUMULATES * accumulates, 0, 1, 2, 3], np.int32)
            _run(entry, memory)
            with np.errstate(all="ignore"):
                scope = {name: np.float64(x) for name, x in given.items()}
                expected = eval(text, {"math": np}, scope)  # noqa: S307 (our own text)
                if pullback:
                    skipped = given["x1"] == 0.0 and math.copysign(1.0, given["x1"]) < 0
                    expected = np.float64(-0.0) if skipped else expected + 0.0
                    expected = 0.75 + expected if accumulates else expected
            assert np.array_equal(memory[0], expected, equal_nan=True)
            assert math.isnan(expected) or math.copysign(1.0, memory[0]) == math.copysign(1.0, expected)
            assert memory[1:].tobytes() == np.array(list(given.values())).tobytes()


def _run(entries: Any, memory: Any) -> None:
    """Run a row of entries over a memory."""
    row = np.zeros(ROW, np.int64)
    row[ProgramRow.kind], row[ProgramRow.address] = RUN_INLINE, address_of(entries)
    row[ProgramRow.layout] = scalar_loops.address()
    row[ProgramRow.operands], row[ProgramRow.data] = len(entries) // scalar_loops.ENTRY, address_of(memory)
    jit.load_module("programs.replay_native").run(address_of(row), 0, 1)


def mixed(x: Any, y: Any, a: Any) -> Any:
    """Numbers, elements of arrays and of constants, Python in the middle, and what is no plain arithmetic."""
    c = tape.tensor([1.5, -2.0, 0.25])
    z = x * y - x / y + a[0] * c[1] + c[2] / a[1]
    z = tape.sqrt(z * z + 1.0) + tape.sin(x) * tape.reciprocal(y) - (-x)
    z = z + tape.cumsum(a, 0)[1] * x.square()
    a[2] = z * x
    return z * y + (a * a).sum() + a[2]


POINT = (0.7, -1.3, np.array([0.4, 2.0, 0.9]))


def _assert_as_dynamic(program: Any, point: Any) -> None:
    value, found = program.value_and_grad(*point)
    expected, gradients = tape.value_and_grad(lambda x, y, a: mixed(x, y, a * 1), argnums=(0, 1, 2))(*point)
    assert value == expected
    for one, other in zip(found, gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_entries_among_other_rows() -> None:
    program = tape.record(lambda x, y, a: mixed(x, y, a * 1), *POINT)
    for factor in (1.0, 0.5, 2.0):
        _assert_as_dynamic(program, [x * factor for x in POINT])


def test_entries_in_another_machine() -> None:
    program = tape.record(lambda x, y, a: mixed(x, y, a * 1), *POINT)
    program.value_and_grad(*POINT)
    taken = program._machines[True].pop()  # as where a call is under way
    before = taken.memory.copy()
    for factor in (1.0, 0.5):
        _assert_as_dynamic(program, [x * factor for x in POINT])
    assert np.array_equal(taken.memory, before)


def test_rows_of_few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tape.record(lambda x, y, a: mixed(x, y, a * 1), *POINT).value_and_grad(*POINT)
    monkeypatch.setattr(scalar_loops, "MOST", 3)
    parts = tape.record(lambda x, y, a: mixed(x, y, a * 1), *POINT).value_and_grad(*POINT)
    assert whole[0] == parts[0]
    assert all(np.array_equal(a, b) for a, b in zip(whole[1], parts[1], strict=True))


def test_a_chain_of_numbers_is_one_row() -> None:
    def chain(x: Any) -> Any:
        y = x
        for _ in range(100):
            y = y * 1.01 + x
        return y

    program = tape.record(chain, 0.5)
    program.value_and_grad(0.5)
    (machine,) = program._machines[True]
    assert machine.rows.forward == 1
    assert len(machine.rows.words) <= 5  # the seeds are filled in
