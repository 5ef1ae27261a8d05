"""The checks of this folder catch what they are for: planted faults, missed bars."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.bars import IMPORT, TIMES_FASTER, Bar, Scoreboard
from bench.bench_autograd import check_matrix
from bench.rows import check
from bench.workloads import REACTION, TINY, TINY_0D

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


def _planted(place: tuple[int, int], value: float) -> np.ndarray:
    """Return the right Jacobian but for one entry."""
    matrix = REACTION.answer.copy()
    matrix[place] = value
    return matrix


@pytest.mark.quick
@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param(_planted((3, 4), REACTION.answer[3, 4] * (1 + 1e-8)), id="entry"),
        pytest.param(_planted((0, 50), 1e-300), id="what is zero"),
        pytest.param(_planted((3, 4), math.nan), id="nan"),
        pytest.param(REACTION.answer[1:], id="one row too few"),
        pytest.param(REACTION.answer.T, id="transposed"),
        pytest.param(REACTION.answer.astype(np.float32), id="dtype"),
    ],
)
def test_wrong_matrices_fail(matrix: np.ndarray) -> None:
    """The right Jacobian passes, each planted fault is caught."""
    check_matrix(REACTION.answer.copy(), REACTION)
    with pytest.raises(AssertionError):
        check_matrix(matrix, REACTION)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("bar", "figure", "verdict"),
    [
        (TIMES_FASTER[0], TIMES_FASTER[0].at_least, "pass"),
        (TIMES_FASTER[0], math.nextafter(TIMES_FASTER[0].at_least, 0.0), "FAIL"),
        (TIMES_FASTER[0], math.nan, "FAIL"),
        (IMPORT, IMPORT.at_most, "pass"),
        (IMPORT, math.nextafter(IMPORT.at_most, 1.0), "FAIL"),
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
