"""README's command leaves out what is exhaustive, and still takes a case of each record in every table of records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kernels.operations import OPS
from tests.checks import test_gradcheck
from tests.compiled import test_compiled_records, test_inner_gradients, test_records_as_machine_code
from tests.compiled.test_inner_gradients import KINDS, LOSSES, TRANSFORMS
from tests.compiled.test_records_as_machine_code import WAYS
from tests.engine import test_forward_mode
from tests.programs import test_recipe_encoding, test_seen_records
from tests.rules import test_records
from tests.support.record_cases import cases_of
from tests.transforms import test_vmap

ALL, REPLAYED, DIFFERENTIABLE = (
    {op.name for op in OPS.values() if any(map(wanted, cases_of(op)))}
    for wanted in (lambda _: True, lambda case: case.replayed, lambda case: case.differentiable)
)
TESTS: dict[Callable[..., Any], set[str]] = {
    test_records.test_value: ALL,
    test_records.test_gradient: DIFFERENTIABLE,
    test_records.test_second_gradient: DIFFERENTIABLE,
    test_records.test_replay: REPLAYED,
    test_vmap.test_each_record_against_a_loop: ALL,
    test_vmap.test_the_gradient_of_each_record_against_a_loop: DIFFERENTIABLE,
    test_gradcheck.test_every_record_is_accepted: DIFFERENTIABLE,
    test_gradcheck.test_every_record_is_accepted_twice: DIFFERENTIABLE,
    test_forward_mode.test_each_record_against_reverse_mode: DIFFERENTIABLE,
    test_recipe_encoding.test_every_record_comes_back: REPLAYED,
    test_seen_records.test_every_record: REPLAYED,
    test_records_as_machine_code.test_each_record: REPLAYED,
    test_compiled_records.test_each_record_is_replayed_bit_for_bit: REPLAYED,
    test_compiled_records.test_each_record_is_differentiated_as_in_dynamic_mode: REPLAYED & DIFFERENTIABLE,
    test_inner_gradients.test_each_record: REPLAYED & DIFFERENTIABLE,
}


def taken(test: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the parameters with which README's command runs a test of one table."""
    (table,) = (mark.args[1] for mark in test.pytestmark if mark.name == "parametrize")
    module = getattr(sys.modules[test.__module__], "pytestmark", pytest.mark.slow).name
    for row in table:
        marks = {module, *(mark.name for mark in row.marks)}
        if "quick" in marks or "exhaustive" not in marks:
            yield row.values


@pytest.mark.parametrize("test", TESTS, ids=lambda test: f"{test.__module__}.{test.__name__}")
def test_each_record_is_in_every_run(test: Callable[..., Any]) -> None:
    assert {case.name.partition("-")[0] for case, *_ in taken(test)} == TESTS[test]


def test_each_kind_is_in_every_run_in_all_its_forms() -> None:
    """Layouts, keys of views and writes, parameters: of a record of each kind, in both dtypes."""
    whole = {case.name: OPS[name] for name in test_records.WHOLE for case in cases_of(OPS[name])}
    assert {*map(type, whole.values())} == {type(op) for op in OPS.values() if cases_of(op)}
    for test in (test_records.test_value, test_records.test_replay):
        assert {dtype for case, dtype in taken(test) if case.name in whole} == {np.float64, np.float32}
    assert {case.name for case, _ in taken(test_records.test_value)} >= whole.keys()


def test_each_way_and_each_transform_is_in_every_run() -> None:
    assert {way for _, way in taken(test_records_as_machine_code.test_each_record)} == {*WAYS}
    assert {kind for _, kind in taken(test_inner_gradients.test_each_kind_as_machine_code)} == {*KINDS}
    pairs = [*taken(test_inner_gradients.test_losses)]
    assert ({loss for loss, _ in pairs}, {transform for _, transform in pairs}) == ({*LOSSES}, {*TRANSFORMS})
