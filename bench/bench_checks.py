"""The checks of this folder catch what they are for: planted faults, missed bars."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.bars import IMPORT, TIMES_FASTER, Bar, Scoreboard
from bench.rows import check
from bench.workloads import TINY, TINY_0D

VALUE = np.array([6.0 + 5.0 * math.log(10.0)])
GRADIENTS = tuple(np.array([entry]) for entry in (3.0, 2.0, math.log(10.0), 0.5))


@pytest.mark.quick
def test_right_answers_pass() -> None:
    """What is right passes, as arrays and as floats."""
    check((VALUE, GRADIENTS), TINY)
    check((VALUE.item(), tuple(entry.item() for entry in GRADIENTS)), TINY_0D)


@pytest.mark.quick
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((VALUE * (1 + 1e-9), GRADIENTS), id="value"),
        pytest.param((VALUE, (GRADIENTS[0] * (1 + 1e-9), *GRADIENTS[1:])), id="gradient"),
        pytest.param((VALUE, GRADIENTS[:3]), id="one gradient too few"),
        pytest.param((VALUE, (GRADIENTS[0][0], *GRADIENTS[1:])), id="shape"),
        pytest.param((VALUE, (GRADIENTS[0].astype(np.float32), *GRADIENTS[1:])), id="dtype"),
        pytest.param((VALUE, (np.array([math.nan]), *GRADIENTS[1:])), id="nan"),
    ],
)
def test_wrong_answers_fail(answer: tuple[np.ndarray, tuple[np.ndarray, ...]]) -> None:
    """Each planted fault is caught."""
    with pytest.raises(AssertionError):
        check(answer, TINY)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("bar", "figure", "verdict"),
    [
        (TIMES_FASTER[0], 5.0, "pass"),
        (TIMES_FASTER[0], 4.999, "FAIL"),
        (TIMES_FASTER[0], math.nan, "FAIL"),
        (IMPORT, 0.10, "pass"),
        (IMPORT, 0.101, "FAIL"),
    ],
)
def test_verdict(bar: Bar, figure: float, verdict: str) -> None:
    """The summary says pass or FAIL, with the bound and the figure, and what is missing."""
    board = Scoreboard()
    board.add(bar, figure, "the figure")
    line, missing = board.lines()
    assert line.startswith(verdict)
    assert bar.name in line
    assert f"{bar.wanted}  the figure" in line
    assert missing.startswith("not measured in this run")
    assert board.data()[0]["verdict"] == verdict


@pytest.mark.quick
def test_a_bar_is_measured_once() -> None:
    """A second figure is refused."""
    board = Scoreboard()
    board.add(IMPORT, 0.2, "")
    with pytest.raises(AssertionError, match="measured twice"):
        board.add(IMPORT, 0.05, "")
