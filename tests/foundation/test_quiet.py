"""Tensors give no warnings of floating point, at the first call and at later ones, forward and back: as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

NASTY = np.array([[0.0, -1.0, 1e308], [np.inf, -np.inf, np.nan], [-0.0, 1e-320, -1e308]])
CALLS: dict[str, Callable[[Any], Any]] = {
    "quotient": lambda x: x / 0.0, "inverse": lambda x: 1.0 / x, "power": lambda x: x**x, "root": tape.sqrt,
    "number's power": lambda x: x**-1, "product": lambda x: x * x, "difference": lambda x: x - x, "log": tape.log,
    "remainder": lambda x: x % 0.0, "floor": lambda x: x // 0.0, "exp": tape.exp, "sine": tape.sin,
    "of Python": lambda x: tape.softplus(x, 2.0), "sinc": tape.special.sinc, "matmul": lambda x: x @ x,
    "batches": lambda x: x[None] @ x[None], "sum": lambda x: x.sum(0), "mean": lambda x: x.mean(),
    "prod": lambda x: x.prod(0), "cumsum": lambda x: x.cumsum(0), "var": lambda x: x.var(0), "norm": lambda x: x.norm(),
    "softmax": lambda x: x.softmax(0), "logsumexp": lambda x: x.logsumexp(0), "extremum": lambda x: x.max(0)[0],
    "singles": lambda x: x.to(tape.float32), "integers": lambda x: x.int(), "array": lambda x: x / np.zeros(3),
    "in place": lambda x: (x * 1.0).div_(0.0), "written": lambda x: tape.zeros(3).copy_(x[0] / 0.0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CALLS)
def test_no_warnings(name: str, dtype: Any) -> None:
    with np.errstate(all="ignore"):
        values = NASTY.astype(dtype)
    x = tape.tensor(values, requires_grad=True)
    with np.errstate(all="warn"):  # which the suite turns to errors
        for _ in range(3):
            y = CALLS[name](x)
            if y.requires_grad:
                y.sum().backward()  # and is added to what there is


def test_integers_divided_by_zero_raise() -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            tape.arange(3) // tape.zeros(3, dtype=tape.int64)
