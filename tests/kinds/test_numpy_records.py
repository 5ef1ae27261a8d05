"""The table of operations says which functions of NumPy's run a record: each of these is run, and looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from kernels.operations import OPS
from tape.operations.elementwise import numpy_name
from tape.tensors.hooks import NUMPY, RECORDS

A, B, V = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([[0.5, 2.0], [1.5, 1.0]]), np.array([0.5, 2.0])
CALLS = """
np.all(x > 1) np.any(x > 1) np.count_nonzero(x) np.mean(x) np.sum(x) np.prod(x) np.prod(x,1)
np.max(x) np.max(x,1) np.min(x) np.min(x,1) np.amax(x) np.amax(x,1) np.amin(x) np.amin(x,1)
np.argmax(x,1) np.argmin(x,1) np.argsort(x) np.sort(x) np.std(x) np.var(x) np.cumsum(x,0) np.cumprod(x,0)
np.linalg.cholesky(x) np.linalg.det(x) np.linalg.diagonal(x) np.linalg.eigh(x) np.linalg.eigvalsh(x) np.linalg.inv(x)
np.linalg.lstsq(x,y) np.linalg.matrix_rank(x) np.linalg.pinv(x) np.linalg.qr(x) np.linalg.slogdet(x)
np.linalg.solve(x,y) np.linalg.svd(x) np.linalg.svdvals(x) np.linalg.vector_norm(x)
np.cross(t,t) np.linalg.cross(t,t) np.convolve(v,v) np.dot(v,v) np.dot(x,v) np.dot(v,x) np.dot(x,y)
np.matmul(v,v) np.matmul(x,v) np.matmul(v,x) np.matmul(x,y) np.matmul(b,b)
np.concatenate([x,y]) np.stack([x,y]) np.squeeze(b) np.squeeze(b,0) np.transpose(x) np.swapaxes(x,0,1)
np.broadcast_to(v,(2,2)) np.expand_dims(v,0) np.diagonal(x) np.flip(x) np.interp(v,v,v) np.searchsorted(v,v)
np.sign(x) np.heaviside(x,y) np.degrees(x) np.radians(x) np.fabs(x) np.ldexp(x,v) np.clip(x,1,2) np.clip(x,1,None)
np.clip(x,None,2) np.nan_to_num(x) np.fix(x) np.sinc(x) np.i0(x) np.isposinf(x) np.isneginf(x)
np.lib.stride_tricks.sliding_window_view(v,2) np.round(x) np.round(x,1) np.around(x) np.around(x,1) np.where(x>1,x,y)
np.bincount([0,1,1],t)
""".replace(" > ", ">").split()


def ran(text: str) -> set[str]:
    """Return the names of the records that a call on tensors runs, written into a program."""
    arrays = {"x": A, "y": B, "v": V, "t": np.array([1.0, 2.0, 3.0]), "b": A[None]}

    def run(*tensors: Any) -> Any:
        result = eval(text, {"np": np, **dict(zip(arrays, tensors, strict=True))})  # noqa: S307 (the table above)
        results = result if isinstance(result, tuple) else (result,)
        return [one for one in results if isinstance(one, tape.Tensor)] or tensors[0] * 1.0

    return {step.op.name for step in tape.record(run, *arrays.values())._recipe.steps}


def told() -> dict[str, Any]:
    return {numpy_name(function): set(records) for function, records in RECORDS.items() if records}


def test_every_function_that_tells_is_run() -> None:
    assert {text.partition("(")[0] for text in CALLS} == set(told())
    assert all(name in OPS for records in told().values() for name in records)
    assert set(RECORDS) - {np.matmul} == set(NUMPY)


@pytest.mark.parametrize("name", sorted(told()))
def test_what_is_told_is_run(name: str) -> None:
    found = set().union(*(ran(text) for text in CALLS if text.partition("(")[0] == name))
    assert told()[name] <= found, f"{name} runs {sorted(found)}"


def test_a_record_that_is_not_run_is_noticed() -> None:
    assert "median" not in ran("np.median(x)")
    assert "transpose" not in ran("np.transpose(x)")
    assert "sum" not in ran("np.prod(x)")
