"""New shapes without end: what is found out about them is forgotten again, and what tapes refer to stays."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest

import tape
from kernels.foundation import specs, tables
from kernels.foundation.specs import intern_spec
from kernels.foundation.tables import Recent
from kernels.kinds import routine
from kernels.kinds.reference_tape import instructions
from kernels.native.c_api import NATIVE
from kernels.native.memory import REGISTRY
from kernels.native.structs import SETS, WAYS
from tape.tensors.modes import own_tape
from tape.tensors.tensor import AccumulateGrad

if TYPE_CHECKING:
    from conftest import Fresh

GROWTH = """
import gc, tracemalloc
import numpy as np
import tape
from kernels.foundation import specs
from kernels.kinds import call_entries
from kernels.foundation import tables
from kernels.native.memory import REGISTRY

tables.MOST = {most}

def five(n):
    x = tape.tensor(np.linspace(0.1, 1.0, n), requires_grad=True)
    (tape.sin(x) * x + tape.exp(x[1:]).sum()).reshape(1, n).mean().backward()

def others(n):
    x = tape.tensor(np.ones((2, n)), requires_grad=True)
    y = tape.cat([x, x * 2]).sum() + tape.stack([x[0], x[1]]).max() + x.T[:, 0].sum() + x.var()
    y = y + x[:, ::2].cumsum(1).sum()
    y.backward()
    z = tape.tensor(np.ones(n + 3), requires_grad=True)
    w = z * 1.0
    w[1:-1] += z[2:]
    w[np.arange(n)[::2]] *= 2
    (w.sort().values @ z).backward()

def transforms(n):
    tape.vmap(lambda a: tape.sin(a).sum())(tape.ones(3, n))
    tape.record(lambda v: (v * v).sum(), np.ones(n)).value_and_grad(np.ones(n))
    tape.func.jvp(lambda a: tape.sin(a).sum(), (tape.ones(n),), (tape.ones(n),))

run, first, count = {run}, 50, {count}
tracemalloc.start()  # at once: what takes the place of older entries is no growth
for n in range(first, first + {warm}):
    run(n)
gc.collect()
before = tracemalloc.get_traced_memory()[0]
for n in range(first + {warm}, first + {warm} + count):
    run(n)
gc.collect()
grown = tracemalloc.get_traced_memory()[0] - before
print(grown, len(REGISTRY.living), len(specs._SPECS), len(call_entries._kept))
"""


def growth(fresh: Fresh, **given: object) -> list[int]:
    process = fresh(GROWTH.format(**given))
    printed, errors = process.communicate(timeout=600)
    assert (process.returncode, errors) == (0, "")
    return [int(word) for word in printed.split()]


@pytest.mark.parametrize("run", ["five", "others", "transforms"])
def test_new_lengths_are_forgotten(fresh: Fresh, run: str) -> None:
    memory, living, specs, calls = growth(fresh, run=run, most=400, warm=60, count=150)
    assert memory < 4_000_000  # dead instructions wait on the tape, with their arrays
    assert living < 1200
    assert specs < 1200
    assert calls <= WAYS * SETS


@pytest.mark.slow
@pytest.mark.exhaustive
def test_four_thousand_lengths(fresh: Fresh) -> None:
    memory, living, *_ = growth(fresh, run="five", most=tables.MOST, warm=3500, count=4000)
    assert memory < 5_000_000
    assert living < tables.MOST


def _python_calls(lengths: int) -> int:
    """How many sums of parts, each of its own length, go through Python in the second round."""
    x, seen = tape.ones(lengths + 1), 0

    def look(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event == "call" and frame.f_code.co_name == "sum"

    for around in range(2):
        if around:
            sys.setprofile(look)
        try:
            for n in range(1, lengths):
                assert x[:n].sum().item() == n
        finally:
            sys.setprofile(None)
    return seen


@pytest.mark.skipif(not NATIVE, reason="nothing is native")
def test_two_thousand_lengths_are_remembered() -> None:
    assert _python_calls(2000) < 1000  # tests before it may have filled a part of the tables


@pytest.mark.skipif(not NATIVE, reason="nothing is native")
def test_some_of_too_many_lengths_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST", 600)
    assert _python_calls(300) < 280


def test_tables_share_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recent, "_all", {})
    monkeypatch.setattr(Recent, "_counted", Recent._counted)
    monkeypatch.setattr(tables, "MOST", 10)
    Recent._counted = type(Recent._counted)()
    one: Recent[int, int] = Recent()
    two: Recent[int, int] = Recent()
    for k in range(100):
        one[k] = k
        assert two.setdefault(-k, k) == k
        assert one[k] == k
        assert len(one) + len(two) <= 11
    assert one[99] == 99
    assert 0 not in one


def test_what_a_tape_refers_to_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables are emptied between the forward and the backward sweep, with memory written over."""
    monkeypatch.setattr(tables, "MOST", tables.MOST)
    values = np.linspace(0.1, 1.0, 7)
    x = tape.tensor(values, requires_grad=True)
    y = (tape.sin(x) * x[::1]).sum() + tape.exp(x[1:]).sum() + tape.cat([x, x]).sum()
    for table in Recent.tables():
        table.clear()
    gc.collect()
    for n in range(8, 30):  # forms that would take the place of those that were freed
        z = tape.tensor(np.ones(n), requires_grad=True)
        (tape.cos(z) * 3).sum().backward()
    y.backward()
    want = np.cos(values) * values + np.sin(values) + 2
    want[1:] += np.exp(values[1:])
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-14)


def test_a_program_keeps_what_it_runs() -> None:
    program = tape.record(lambda v: (tape.sin(v) * v).sum(), np.ones(11))
    for table in Recent.tables():
        table.clear()
    gc.collect()
    again = tape.record(lambda v: (tape.cos(v) * v).sum(), np.ones(11))
    values = np.linspace(0.0, 1.0, 11)
    for one, want in (
        (program, np.cos(values) * values + np.sin(values)),
        (again, np.cos(values) - np.sin(values) * values),
    ):
        np.testing.assert_allclose(np.ravel(one.value_and_grad(values)[1]), want, rtol=1e-13, atol=1e-15)


def test_a_form_dies_with_what_refers_to_it() -> None:
    x = tape.tensor(np.ones(13), requires_grad=True)
    y = tape.sinh(x)
    code = int(y._form.code)
    y.sum().backward()
    del x, y
    for table in Recent.tables():
        table.clear()
    tape.recording.record.recorded()
    gc.collect()
    assert code not in REGISTRY.living


@pytest.mark.usefixtures("own_tape")
def test_a_gradient_goes_with_its_leaf() -> None:
    """The sum, which saved nothing, keeps the leaf's place on the tape."""
    x = tape.tensor(np.ones(600), requires_grad=True)
    y = x[1:].sum()
    y.backward(retain_graph=True)
    gradient = weakref.ref(x.grad)
    held = x.grad
    del x
    assert held.sum().item() == 599.0
    del held
    assert gradient() is None
    y.backward()  # to a leaf that is gone: nobody can see what comes to it
    operands = [o for instruction in instructions(own_tape().entries) for o in instruction.operands]
    assert not any(operand.grad is not None for operand in operands if type(operand) is AccumulateGrad)


def test_equal_specs_are_one_object() -> None:
    shape, dtype = (17,), np.dtype(np.float64)
    one = intern_spec(shape, (8,), dtype, (8,), 17)
    specs._LATELY.clear()
    assert intern_spec(shape, (8,), dtype, (8,), 17) is one
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(intern_spec((n,), (8,), dtype, (8,), n) for n in range(500, 900)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1600
    assert len(set(map(id, found))) == 400


def test_operations_of_the_users_own_are_forgotten() -> None:
    before = len(routine._made)

    def one(n: int) -> None:
        square = tape.custom(numba.njit(lambda x: x * x), numba.njit(lambda g, x: 2.0 * g * x))
        square(tape.ones(n).requires_grad_()).sum().backward()

    one(3)
    for table in Recent.tables():
        table.clear()
    tape.recording.record.recorded()
    gc.collect()
    assert len(routine.RUNNING) == 1 or not NATIVE  # plain sweeps compile no kernel of them
    assert len(routine._made) <= before


def test_tables_of_what_is_gone_count_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of one entry a program, of more programs than there is room for, does not empty the others for good."""
    monkeypatch.setattr(Recent, "_all", {})
    monkeypatch.setattr(Recent, "_counted", type(Recent._counted)())
    monkeypatch.setattr(tables, "MOST", 100)
    kept: Recent[int, int] = Recent()
    living = [Recent[int, int]() for _ in range(300)]
    for k, table in enumerate(living):
        table[0] = k
    assert sum(map(len, Recent.tables())) <= 101
    for _ in range(1000):
        Recent[int, int]()[0] = 1
    assert len(Recent.tables()) == 301
    for k in range(60):
        kept[k] = k
    assert len(kept) > 25
