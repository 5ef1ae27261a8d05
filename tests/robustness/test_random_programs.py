"""Random programs of reads, views and writes over shared memories agree with a replica that only ever copies.

`python -m tests.support.memories 100000` runs more of them, `python -m tests.support.replays 100000` as programs that
are replayed.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import tape
from kernels.kinds import views
from kernels.sweeps import reverse
from tape.operations import indexing
from tape.operations import writes as writing
from tape.recording import indexed_calls, record
from tape.tensors import view_families
from tests.support import memories
from tests.support.memories import (
    Author,
    Live,
    Program,
    Replica,
    Step,
    attempt,
    author_of,
    compared,
    disagreement,
    random_program,
    remaining,
    repeats,
    report,
    shrunk,
    text_of,
    trouble,
)
from tests.support.replays import function_of, gradients, pure, replayed
from tests.support.representatives import few

if TYPE_CHECKING:
    from conftest import Fresh

SEEDS = st.integers(0, 1 << 20)
"""Each step is written from a seed of its own, so that a failing program shrinks by losing steps."""


class Memories(RuleBasedStateMachine):
    """Writes one program, a step at a time; tensors and the replica run it side by side."""

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        self.author = Author(Random(seed))  # noqa: S311 (no secret)
        self.live = Live()
        self.agree = True
        self.before = remaining()
        for step in self.author.beginning():
            self.run(step)

    @rule(seed=SEEDS)
    def make(self, seed: int) -> None:
        self.propose(seed, "leaf", "buffer", "detach", "require")

    @rule(seed=SEEDS)
    def view(self, seed: int) -> None:
        self.propose(seed, "view", "reshape")

    @rule(seed=SEEDS)
    def read(self, seed: int) -> None:
        self.propose(seed, "apply", "where", "part")

    @rule(seed=SEEDS)
    def compute_in_place(self, seed: int) -> None:
        self.propose(seed, "method", "operator", "assign_with")

    @rule(seed=SEEDS)
    def write(self, seed: int) -> None:
        self.propose(seed, "assign", "masked_fill", "index_put")

    @rule(seed=SEEDS)
    def sweep(self, seed: int) -> None:
        self.propose(seed, "backward", "retain", "observe", "look")

    @rule(seed=SEEDS)
    def forget(self, seed: int) -> None:
        self.propose(seed, "forget", "grad_mode")

    def propose(self, seed: int, *kinds: str) -> None:
        self.author.random = Random(seed)  # noqa: S311
        if (step := self.author.propose(*kinds)) is not None:
            self.run(step)

    def run(self, step: Step) -> None:
        if self.agree and self.author.add(step):
            found = trouble(self.author.replica, self.live, step, self.author.expected)
            self.agree = found is None
            assert self.agree, f"{found}\n\n{text_of(self.author.program)}"

    def teardown(self) -> None:
        try:
            self.author.random = Random(len(self.author.program))  # noqa: S311
            for step in self.author.ending():
                self.run(step)
            self.live.names.clear()
            assert remaining() <= self.before or not self.agree, (
                f"the tape is not empty after\n\n{text_of(self.author.program)}"
            )
        finally:
            tape.set_grad_enabled(True)


TestMemories = Memories.TestCase
TestMemories.settings = settings(
    max_examples=100,
    stateful_step_count=18,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.exhaustive
class TestManyMemories(TestMemories):  # type: ignore[misc, valid-type]
    """The same, more often."""

    settings = settings(TestMemories.settings, max_examples=400)


@pytest.mark.parametrize("start", few(range(0, 1600, 100), 1))
def test_random_programs(start: int) -> None:
    for seed in range(start, start + 100):
        complaint = compared(author_of(seed))
        assert complaint is None, report(seed, complaint)


def test_random_programs_swept_in_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reverse, "NATIVE", False)
    for seed in range(10_000, 10_150):
        complaint = compared(author_of(seed))
        assert complaint is None, report(seed, complaint)


# --- against other references -----------------------------------------------------------------------------------


def test_differences_of_the_value() -> None:
    compared_ones = 0
    for seed in range(20_000, 20_150):
        program, replica = pure(seed)
        if replica.cuts or program[-1][0] != "loss":
            continue  # where a gradient is cut, differences see what it does not
        function, values = function_of(program)
        direction = [np.cos(np.arange(x.size)).reshape(x.shape) for x in values]
        step = 1e-6
        ahead, behind = (
            function(*[tape.tensor(x + sign * step * d) for x, d in zip(values, direction, strict=True)]).item()
            for sign in (1, -1)
        )
        _, found = gradients(function, values)
        slope = sum((g * d).sum() for g, d in zip(found, direction, strict=True))
        assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-6, abs=1e-6), text_of(program)
        compared_ones += 1
    assert compared_ones > 40


def test_replay_on_other_values() -> None:
    found = list(map(replayed, range(30_000, 30_120)))
    assert all(outcome in ("agrees", "nothing to replay") for outcome in found), [*filter(None, found)]
    assert found.count("agrees") > 80


def test_a_replay_that_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tape.Program.value_and_grad

    def faulty(self: Any, *values: Any) -> Any:
        value, found = run(self, *values)
        return value, [x * (1 + 1e-9) for x in found]

    monkeypatch.setattr(tape.Program, "value_and_grad", faulty)
    assert any("differ" in replayed(seed) for seed in range(30_000, 30_010))


PYTORCH_REFUSES = re.compile(
    "modified by an inplace|no_grad mode|multiple views|single memory location|requires_grad is True|leaf Variable"
)


def test_pytorch_agrees_where_it_does_not_refuse() -> None:
    torch: ModuleType = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    found: Counter[str] = Counter()
    try:
        for seed in range(40_000, 40_300):
            program = random_program(seed)
            if not like_pytorch(program):
                continue
            complaint = disagreement(program, torch)
            refused = complaint is not None and PYTORCH_REFUSES.search(complaint) is not None
            assert complaint is None or refused, f"{complaint}\n\n{text_of(program)}"
            found["refused" if refused else "agree"] += 1
    finally:
        torch.set_default_dtype(before)
    assert found["agree"] > 50
    assert found["refused"] > 50


def like_pytorch(program: Program) -> bool:
    """Whether PyTorch means the same.

    It does not see writes through .data and from_numpy, gives the gradient of a repeated place to each of its values,
    and fills retained gradients from autograd.grad, too; it reads what is added where it is written.
    """
    kinds = {step[0] for step in program}
    if {"retain", "observe"} <= kinds or {"retain", "second"} <= kinds or "index_put" in kinds:
        return False
    if any(step[0] == "detach" and step[3] != "{}.detach()" for step in program):
        return False
    replica, twice = Replica(), False
    for step in program:
        if step[0] in ("assign", "assign_with") and memories.advanced(step[2]) and step[1] in replica.handles:
            twice |= repeats(replica.handles[step[1]].places[memories.plain_key(step[2])])
        attempt(replica, step)
    return not twice


# --- the checks are checked -------------------------------------------------------------------------------------


def nothing(*_: Any, **__: Any) -> None:
    """Stand for what a fault leaves out."""


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "a slice is known by the tensor in it": (indexing, "_item", lambda key: key),
    "what pullbacks read is not saved": (writing, "protect", nothing),
    "the gradient of what is overwritten is not cleared": (views, "_nothing", lambda: 1.0),
    "views stay at the version before": (view_families, "invalidate_views", nothing),
    "a write through a view is one to the view alone": (writing, "record", nothing),
    "an overlapping source is read while it is written": (writing, "meets", lambda *_: False),
    "the first of several values for a place stays": (indexed_calls, "last_ones", lambda *_: None),
    "writes are not counted": (writing, "count_write", nothing),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in ("_forms", "_views"):
        monkeypatch.setattr(record, cache, {})
    monkeypatch.setattr(*FAULTS[fault])
    found = (seed for seed in range(2000) if compared(author_of(seed)) is not None)
    assert next(found, None) is not None


def test_a_failing_program_shrinks() -> None:
    wide = next(p for p in map(random_program, itertools.count()) if sum(s[0] == "assign" for s in p) > 2)
    small = shrunk(wide, lambda program: any(s[0] == "assign" for s in program) and runs(program))
    assert [step[0] for step in small][-1] == "assign"
    assert len(small) <= 4


def runs(program: Program) -> bool:
    replica = Replica()
    for step in program:
        attempt(replica, step)
    return True


def test_a_printed_program_runs_as_it_stands() -> None:
    program, _ = pure(3)
    names: dict[str, Any] = {}
    exec(text_of(program), names)  # noqa: S102 (the programs are text)
    function, values = function_of(program)
    expected = function(*[tape.tensor(x, requires_grad=True) for x in values])
    assert names[f"x{program[-1][1]}"].item() == expected.item()


def test_the_command_prints_what_it_ran(fresh: Fresh) -> None:
    code = "from tests.support import memories; memories.main(['20', '--seed', '5'])"
    out, error = fresh(code).communicate(timeout=300)
    assert error == ""
    assert "20 programs from seed 5 on: all agree" in out
    assert re.search(r"\d+ apply", out)
