"""Large results that our own kernels compute: as the ufuncs do, in dynamic mode and in replays alike."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.elementwise import Elementwise
from kernels.native.structs import LARGE
from kernels.operations import OPS
from kernels.rules import scalar_loops
from kernels.rules.op import resolved
from tape.operations import elementwise
from tape.recording import promotion

VECTOR: list[Any] = [op for op in OPS.values() if isinstance(op, Elementwise) and op.vector]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 5e-324, -3e-310, 1e-300, -1e300, 1.7e308, 0.5, 1e22, math.inf, -math.inf, math.nan]
DTYPES = [np.float64, np.float32]


def operands(op: Any, dtype: Any) -> list[Any]:
    """Return numbers of all sizes, and every tuple of the special ones."""
    count, size = len(op.inputs), LARGE // 4 + 7
    special = np.array(list(itertools.product(SPECIAL, repeat=count))).T
    rng = np.random.default_rng(11)
    usual = rng.normal(size=(count, size)) * 10.0 ** rng.uniform(-9, 9, size=(count, size))
    with np.errstate(over="ignore"):
        return [np.concatenate(pair).astype(dtype) for pair in zip(usual, special, strict=True)]


def test_which() -> None:
    assert {op.name for op in VECTOR} >= {"sin", "cos", "sigmoid", "erf", "hypot", "logaddexp", "rsqrt", "frac"}


WIDE = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "hypot": np.hypot, "silu": lambda x: x / (1 + np.exp(-x)),
}  # fmt: skip
"""In long doubles, where SciPy's and NumPy's own results are further off."""
UNITS = {"erfc": 1000, "gelu": 1000, "silu": 3}
"""Units in the last place that SciPy's erfc is off, which takes exp(-x x) of a rounded square; tails underflow."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", VECTOR, ids=lambda op: op.name)
def test_values(op: Any, dtype: Any) -> None:
    given = operands(op, dtype)
    found = scalar_loops.run(op, *given)
    assert found is not None
    assert found.dtype == dtype
    with np.errstate(all="ignore"):
        wide = [x.astype(np.longdouble) for x in given]
        expected = (WIDE[op.name](*wide) if op.name in WIDE else resolved(op.ufunc)(*given)).astype(dtype)
        # Where terms cancel, the unit is that of the largest operand.
        size = np.fmax(np.abs(expected), np.max(np.abs(given), axis=0) if op.name.startswith("logaddexp") else 0)
        near = np.abs(found - expected) <= UNITS.get(op.name, 3) * np.spacing(size.astype(dtype))
        near |= (op.name in UNITS) & (np.abs(found - expected) < np.finfo(dtype).tiny)
    bad = np.flatnonzero(~(near | (found == expected) | (np.isnan(found) & np.isnan(expected))))
    assert not bad.size, [(op.name, [x[k] for x in given], found[k], expected[k]) for k in bad[:5]]
    if op.name != "relu":  # the maximum of zeros of either sign is either
        zeros = (found == 0) & (expected == 0)
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("op", VECTOR, ids=lambda op: op.name)
def test_replay_agrees_in_every_bit(op: Any) -> None:
    tensors_of = [domain != "constant" for domain in op.domain]
    given = [
        np.ascontiguousarray(x[: LARGE // 8])
        for x, wanted in zip(operands(op, np.float64), tensors_of, strict=True)
        if wanted
    ]

    def function(*xs: Any) -> Any:
        return promotion.run_with_promotion(op, *xs, *[0.75] * tensors_of.count(False))

    tensors = [tape.tensor(x) for x in given]
    expected = function(*tensors).numpy()
    replayed = tape.record(function, *tensors)(*given)
    np.testing.assert_array_equal(np.asarray(replayed).view(np.int64), expected.view(np.int64))


@pytest.mark.parametrize("shape", ["turned", "apart", "broadcast"])
def test_other_layouts(shape: str) -> None:
    a, b = (np.random.default_rng(k).normal(size=(100, 200)) for k in (0, 1))
    if shape == "turned":
        a, b = a.T, b.T
    elif shape == "apart":
        a = np.asfortranarray(a)
    else:
        b = b[:1]
    for name in ("hypot", "logaddexp"):
        x, y = tape.tensor(a), tape.tensor(b)
        np.testing.assert_allclose(getattr(tape, name)(x, y).numpy(), getattr(np, name)(a, b), 1e-15, 1e-15)
    np.testing.assert_allclose(tape.sin(tape.tensor(a)).numpy(), np.sin(a), rtol=1e-15)


@pytest.mark.quick
@pytest.mark.parametrize("size", [5, LARGE // 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_calls_that_native_code_repeats_read_numbers_as_the_first_did(dtype: Any, size: int) -> None:
    """A number among the operands is a single where the loop is one of singles."""
    x = tape.tensor(np.linspace(-3.0, 3.0, size).astype(dtype), requires_grad=True)
    for op in (op for op in VECTOR if "constant" in op.domain):
        operands = [x if domain != "constant" else 0.75 for domain in op.domain]
        first, *others = [promotion.run_with_promotion(op, *operands).detach().numpy() for _ in range(3)]
        run = elementwise.RUN[op.name]
        for other in (*others, *[run(*operands).detach().numpy() for _ in range(3)]):
            np.testing.assert_array_equal(other, first, err_msg=op.name)
