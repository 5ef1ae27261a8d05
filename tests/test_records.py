"""Every record: value, gradient, replay, special values, by cases that are made from the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import record_cases
from record_cases import Case, bits, tensors

import tape
from kernels.op import Elementwise
from kernels.tables import OPS
from tape import recording

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = [case for op in OPS.values() for case in record_cases.cases_of(op)]
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f8", "f4"])
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_each_record_has_cases() -> None:
    for op in OPS.values():
        assert record_cases.cases_of(op), op.name


@DTYPES
@every
def test_value(case: Case, dtype: type) -> None:
    record_cases.check_value(case, dtype)


@DTYPES
@pytest.mark.parametrize("case", [c for c in CASES if c.differentiable], ids=lambda case: case.name)
def test_gradient(case: Case, dtype: type) -> None:
    record_cases.check_gradient(case, dtype)


@DTYPES
@every
def test_replay(case: Case, dtype: type) -> None:
    record_cases.check_replay(case, dtype)
