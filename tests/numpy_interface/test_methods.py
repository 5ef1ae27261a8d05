"""NumPy's methods of arrays on tensors: what PyTorch has not, and NumPy's ways to call what it has."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tape

RNG = np.random.default_rng(11)
ARRAYS = {
    "A": RNG.normal(size=(3, 4)),
    "T": RNG.normal(size=(2, 3, 4)),
    "V": RNG.normal(size=3),
    "I": np.arange(6).reshape(2, 3),
}

CALLS = """
A.astype(np.float32); A.astype(float); A.astype("float32"); A.astype(int); I.astype(float)
A.astype(float, copy=False); A.copy(); A.copy("C"); A.std(ddof=1); A.std(ddof=0); A.var(ddof=1); A.var(0, ddof=0)
A.std(axis=1, ddof=1, keepdims=True); A.cumsum(); A.cumsum(0); A.cumsum(axis=1); I.cumsum(); A.cumprod()
A.cumprod(axis=0); A.cumsum(dtype=np.float32); A.transpose(); T.transpose(); T.transpose(1, 0, 2)
T.transpose((2, 0, 1)); T.transpose(None); V.transpose(); A.round(1); A.round(decimals=2); A.round(); A.T.dot(V)
A.dot(V[[0, 1, 2, 0]]); V.dot(V); V.dot(A); A.T.dot(A); A.dot(2.0); T.dot(A.T); A.size; A.nbytes; A.itemsize
A.strides; A.ravel(); A.tolist(); A.take([0, 5]); A.take([1, 0], axis=1); A.take(indices=[1, 0], axis=0)
A.take([7, 9], axis=1, mode="wrap"); A.argsort(axis=0); A.argsort(); A.argsort(-1, "stable"); A.argsort(kind="stable")
np.sort(V).searchsorted(V); np.sort(V).searchsorted(V, side="right"); A.clip(-0.5, 0.5); A.clip(0); A.clip(max=0.1)
A.conj(); A.real; A.imag; A.mean(axis=0, keepdims=True); A.mean(0); A.sum(axis=(0, 1)); A.sum(axis=-1, keepdims=True)
A.prod(axis=0); A.argmax(); A.argmax(axis=1); A.any(); A.all(axis=0); A.item(3); A.item((1, 2)); A.item(1, 2)
V[0].item(); A.swapaxes(0, 1); T.squeeze(); A[None].squeeze(axis=0); A.compress([True, False], axis=0)
A.reshape(4, 3); A.reshape((4, -1)); A.flatten(); A.diagonal(); A.trace(); I.max(); A.min(); A.nonzero is not None
A.ndim; A.shape; A.flat[3]; A.flat[2:5]; A.flat[[1, 3]]; A.T.flat[1]; len(A.flat); np.asarray(A.flat)
A.T.dot(A).dot(V[[0, 1, 2, 0]]); A.tobytes(); A.size == 12; list(range(V.size)); 1.0 / A.size; np.zeros(V.size)
A.size + 0; V.size * 2; f"{A.size}"; A.size // 5
"""


def calls() -> list[str]:
    return [call.strip() for line in CALLS.strip().splitlines() for call in line.split("; ")]


def run(call: str, names: dict[str, Any]) -> Any:
    return eval(call, {"np": np, **names})  # noqa: S307 (the table above)


@pytest.mark.parametrize("call", calls())
def test_as_arrays(call: str) -> None:
    expected = run(call, ARRAYS)
    got = run(call, {n: tape.tensor(a) for n, a in ARRAYS.items()})
    if isinstance(expected, (str, bytes, bool)):
        assert got == expected
        return
    value = got.numpy() if isinstance(got, tape.Tensor) else got
    assert np.shape(value) == np.shape(expected)
    if isinstance(got, tape.Tensor):
        assert value.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(value, expected, rtol=1e-6 if np.asarray(value).dtype == np.float32 else 1e-12)


def test_ptp() -> None:
    assert tape.tensor(ARRAYS["A"]).ptp() == np.ptp(ARRAYS["A"])
    assert tape.tensor(ARRAYS["A"]).ptp(axis=1).tolist() == np.ptp(ARRAYS["A"], 1).tolist()


def test_gradients() -> None:
    x = tape.tensor(ARRAYS["A"], requires_grad=True)
    for f in (
        lambda x: x.astype(float) * x.copy(),
        lambda x: x.cumsum() ** 2,
        lambda x: x.transpose().dot(x),
        lambda x: x.std(ddof=1) + x.var(axis=0, ddof=0),
        lambda x: x.take([0, 5]) * x.flat[2:4],
        lambda x: x.ptp(axis=0) + x.compress([True, False, True], axis=0),
    ):
        assert tape.autograd.gradcheck(f, x)


def test_writes() -> None:
    x = tape.tensor(ARRAYS["A"], requires_grad=True)
    for turned in (False, True):
        array, y = ARRAYS["A"].copy(), x * 1.0
        a, t = (array.T, y.T) if turned else (array, y)
        a.flat[3], t.flat[3] = 7.0, 7.0
        a.flat[4:8], t.flat[4:8] = [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]
        np.testing.assert_array_equal(y.detach().numpy(), array)
        (gradient,) = tape.autograd.grad(y.sum(), x)
        assert gradient.sum().item() == 12 - 5
    y = x * 1.0
    y.flat = [1.0, 2.0]
    assert y.tolist() == [[1.0, 2.0, 1.0, 2.0]] * 3
    assert y.fill(3.0) is None
    assert y.tolist() == [[3.0] * 4] * 3


def test_size_is_a_number_and_a_method() -> None:
    x = tape.zeros(2, 3)
    assert isinstance(x.size, int)
    assert x.size == 6
    assert x.size() == (2, 3)
    assert type(x.size()) is tape.Size
    assert x.size(0) == 2
    assert x.size(dim=-1) == 3
    assert tape.Tensor.size(x, 1) == 3
    assert np.size(x) == 6
    assert pickle.loads(pickle.dumps(x.size)) == 6  # noqa: S301 (our own)
    with pytest.raises(IndexError):
        x.size(2)


def test_where_the_two_differ_pytorchs_stands() -> None:
    x = tape.tensor(ARRAYS["A"])
    assert x.sort(axis=0).values.tolist() == np.sort(ARRAYS["A"], 0).tolist()
    assert x.max(axis=0).indices.tolist() == np.argmax(ARRAYS["A"], 0).tolist()
    assert x.std().item() == pytest.approx(np.std(ARRAYS["A"], ddof=1))
    assert x.transpose(0, 1).shape == (4, 3)
    assert x.repeat(2, 1).shape == (6, 4)
    with pytest.raises(TypeError):
        tape.cumsum(x)
    with pytest.raises(RuntimeError, match="dot takes a vector and a vector"):
        tape.dot(x, x)
    with pytest.raises(TypeError, match="ddof"):
        x.std(ddof=1, correction=0)
    with pytest.raises(TypeError, match="Cannot cast"):
        x.astype(int, casting="safe")
