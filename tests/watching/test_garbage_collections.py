"""Calls during which the garbage collector works rarely leave it as it was."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import tape
from tape.watching import frame_events

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def thresholds() -> Any:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_the_collector_works_rarely_during_a_recording_and_then_as_before(thresholds: Any) -> None:
    seen = []

    def threshold() -> tuple[int, int, int]:
        return gc.get_threshold()

    threshold.__module__ = "numpy"  # such functions are not looked into: this one reads what is in no object

    def f(x: Any) -> Any:
        seen.append(threshold())
        return x * 2

    with pytest.warns(tape.errors.CompileWarning, match="changed seen"):
        assert tape.compile(f)(2.0) == 4.0
    assert seen[0][0] > thresholds[0]
    assert gc.get_threshold() == thresholds


def test_an_error_leaves_the_collector_as_it_was(thresholds: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        frame_events.rarely_collected(lambda: 1 // 0)
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize("first", [0, 1 << 20])
def test_a_collector_that_is_off_or_works_rarely_already_is_left_alone(first: int) -> None:
    gc.set_threshold(first, 7, 7)
    assert frame_events.rarely_collected(gc.get_threshold) == (first, 7, 7)
    assert gc.get_threshold() == (first, 7, 7)


def test_what_the_function_itself_sets_stays() -> None:
    frame_events.rarely_collected(gc.set_threshold, 500, 5, 5)
    assert gc.get_threshold() == (500, 5, 5)
