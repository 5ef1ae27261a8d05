"""Compiled gradients beside those of dynamic mode, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tape


def assert_agrees(compiled: Callable[..., Any], function: Callable[..., Any], *arguments: float) -> None:
    """Assert that value and slope by the first argument are those of dynamic mode, but for rounding."""
    value, slope = compiled(*arguments)
    expected, expected_slope = tape.value_and_grad(function)(*arguments)
    assert value == pytest.approx(expected, rel=1e-12), arguments
    assert slope == pytest.approx(expected_slope, rel=1e-12), arguments
