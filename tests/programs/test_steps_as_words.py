"""Where steps begin among the words of a program, whoever finds it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernels.operations import OPS
from kernels.programs.program import HEAD, StepKind, Steps

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("count", [0, 1, 7, 200, 5_000])
def test_begins_of_steps(count: int) -> None:
    steps, counts = Steps(), np.random.default_rng(count).integers(0, 4, count + 3).tolist()
    steps.kinds = [StepKind(op, None, (), k) for k, op in enumerate(itertools.islice(OPS, 4))]  # type: ignore[arg-type]
    for k, operands in enumerate(counts[:count]):
        steps.add(operands, k, [0] * operands)
    wanted = [0, *itertools.accumulate(HEAD + operands for operands in counts)]
    assert steps.starts.tolist() == wanted[:count]
    for k, operands in enumerate(counts[count:]):
        steps.add(operands, count + k, [0] * operands)
        assert steps.starts.tolist() == wanted[: count + k + 1]
    assert steps.each("abcd") == ["abcd"[operands] for operands in counts]
    kind = type(steps.kinds[2].op)
    steps.kinds = [kept._replace(op=None) for kept in steps.kinds[:2]] + steps.kinds[2:]  # type: ignore[arg-type]
    expected = [k for k, n in enumerate(counts) if isinstance(steps.kinds[n].op, kind)]
    assert steps.of_kind(kind) == expected
