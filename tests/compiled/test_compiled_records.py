"""Each record in a compiled function: replayed on new values, bit for bit what dynamic mode gives."""

from __future__ import annotations

import numpy as np
import pytest

import tape
from kernels.operations import OPS
from tape.autograd import grad
from tests.support import record_cases
from tests.support.record_cases import Case, bits, tensors

pytestmark = pytest.mark.exhaustive

CASES = [case for op in OPS.values() for case in record_cases.cases_of(op) if case.replayed]
PARAMETERS = [
    pytest.param(case, np.float64, id=f"{case.name}-f8", marks=[pytest.mark.quick] * case.quick) for case in CASES
] + [pytest.param(case, np.float32, id=f"{case.name}-f4") for case in CASES if case.single]
CALLS = 6


@pytest.mark.parametrize(("case", "dtype"), PARAMETERS)
def test_each_record_is_replayed_bit_for_bit(case: Case, dtype: type) -> None:
    compiled = tape.compile(case.run, check="never")
    with np.errstate(all="ignore"):
        for seed in range(CALLS):
            leaves = [tape.tensor(x) for x in case.leaves(dtype, seed)]
            assert bits(compiled(*leaves)) == bits(case.run(*leaves))
    assert any(p.hits for p in compiled.programs), compiled.explain()


@pytest.mark.parametrize(("case", "dtype"), [p for p in PARAMETERS if p.values[0].differentiable])
def test_each_record_is_differentiated_as_in_dynamic_mode(case: Case, dtype: type) -> None:
    compiled = tape.compile(case.run, check="never")
    for seed in range(CALLS):
        leaves = tensors(case.leaves(dtype, seed))
        wanted = [x for x in leaves if x.requires_grad]
        gradients = [grad((y * y).sum(), wanted) for y in (compiled(*leaves), case.run(*leaves))]
        for one, other in zip(*gradients, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12 if dtype is np.float64 else 1e-5)
    assert any(p.hits for p in compiled.programs), compiled.explain()
