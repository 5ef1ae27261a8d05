"""Every record in a program that is drawn, whose memory is told, and whose calls are timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from kernels.operations import OPS
from kernels.programs.machine import call_times
from tests.support.dot_graphs import parse
from tests.support.record_cases import Case, cases_of, params

CASES = [case for op in OPS.values() for case in cases_of(op) if case.replayed]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", params(CASES, pytest.mark.quick))
def test_every_record(case: Case) -> None:
    """The block is the machine's; calls are in the order of operations, back in the other; results are the usual."""

    def function(*leaves: Any) -> Any:
        result = case.run(*leaves)
        return (result * 1.5).sum() if case.differentiable else result

    leaves, reverse = case.leaves(np.float64), bool(case.differentiable)
    program = tape.record(lines=True)(function, *leaves)
    parsed = parse(program.graph().dot)
    assert reverse == any(label.startswith("gradient of") for label in parsed.labels.values())
    assert program.memory(reverse=reverse).block == program._machine(reverse=reverse).size
    values, _ = program._checked(leaves, {}, writes=False)
    times = call_times(program._recipe, [getattr(x, "_value", x) for x in values], reverse=reverse)
    owners = times.steps.tolist()
    assert owners[: times.forward] == sorted(owners[: times.forward])
    assert owners[times.forward :] == sorted(owners[times.forward :], reverse=True)
    profile = program.profile(*leaves, reverse=reverse)
    assert sum(entry.calls for entry in profile.groups["line"]) == len(owners)
