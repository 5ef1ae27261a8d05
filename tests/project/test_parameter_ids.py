"""Ids of tests tell what the parameters are, on one line, and alike in every process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.parameter_ids import name_of

CASES: list[tuple[Any, str | None]] = [
    (lambda x: x * 2, "x * 2"), (lambda: max([1], key=lambda v: -v), "max([1], key=lambda v: -v)"),
    ((2, 3), "(2, 3)"), ((1,), "(1,)"), ([0.5, None, slice(1, None)], "[0.5, None, slice(1, None, None)]"),
    ({"axis": (0, 1), "dtype": np.float32}, "axis=(0, 1), dtype=float32"), ({}, "{}"),
    ((np.sin, lambda x: -x), "(sin, -x)"), (np.dtype("int8"), "int8"), (np.array([1, 2]), "[1, 2]"),
    ({"at": np.zeros((3, 3))}, "at=float64(3, 3)"), ("short", None),
    ("two\nlines", "two lines"), ("x" * 99, "x" * 57 + "..."),
    (object(), None), ([object()], None), ({1, 2}, None), (3, None), (ValueError, None),
]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("case", range(len(CASES)))
def test_names(case: int) -> None:
    value, expected = CASES[case]
    assert name_of(value) == expected
