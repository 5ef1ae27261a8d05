"""The array API standard: each function that is offered, called as the standard says, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tape import array_api

A = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]])
UNIT = np.array([[0.5, -0.25, 0.75], [0.1, 0.9, -0.5]])
ABOVE = UNIT + 2
B = np.array([[1.0, 2.0, -0.5], [2.0, 0.5, 1.5]])
K = np.array([[5, -3, 2], [1, 0, 7]])
J = np.array([[2, 1, 3], [1, 2, 2]])
M = K > 1
SQUARE = np.arange(9.0).reshape(3, 3)

# name -> operands; every other elementwise function takes A, or A and B
OPERANDS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["acos", "asin", "atanh"], (UNIT,)),
    **dict.fromkeys(["acosh", "sqrt", "log", "log2", "log10", "log1p"], (ABOVE,)),
    "pow": (ABOVE, B),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"], (K, J)),
    "bitwise_invert": (K,),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], (M, ~M)),
    "logical_not": (M,),
    "clip": (A, -0.5, 1.0),
}
TWO = """
add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp maximum minimum
multiply nextafter not_equal remainder subtract
"""
CALLS = """
all(M); all(M, axis=0, keepdims=True); any(M); any(M, axis=1); argmax(A); argmax(A, axis=1, keepdims=True); argmin(A)
astype(A, f4); astype(K, f8); broadcast_arrays(A, B[0]); broadcast_to(B[0], (2, 3)); concat((A, B))
concat((A, B), axis=None); count_nonzero(K); count_nonzero(K, axis=1, keepdims=True); cumulative_prod(A, axis=0)
cumulative_sum(A, axis=1); diff(A); diff(A, axis=0); cumulative_sum(A[0], include_initial=True)
expand_dims(A, axis=1); flip(A); flip(A, axis=1); matmul(A, SQUARE); matrix_transpose(A); max(A); max(A, axis=0)
mean(A); mean(A, axis=1, keepdims=True); meshgrid(A[0], B[0], indexing="ij"); min(A); min(A, axis=(0, 1))
moveaxis(A, 0, 1); nonzero(K); permute_dims(A, (1, 0)); prod(A); prod(K); prod(A, axis=1); repeat(A, 2)
repeat(A, 2, axis=1); reshape(A, (3, 2)); reshape(A, (3, 2), copy=True); reshape(A, (6,), copy=False); roll(A, 1)
roll(A, shift=1, axis=0); squeeze(A[None], axis=0); searchsorted(A[0][[1, 0, 2]], B[0]); stack((A, B))
stack((A, B), axis=1); std(A); std(A, correction=1.0); std(A, axis=0, keepdims=True); sum(A); sum(K)
sum(A, axis=1, dtype=f4); take(A, J[0] - 1, axis=1); take_along_axis(A, J - 1, axis=1); tensordot(A, SQUARE, axes=1)
tile(A, (2, 1)); tril(A); tril(A, k=1); triu(A, k=-1); unique_values(J); unique_counts(J); unique_inverse(J)
unique_all(J); unstack(A); unstack(A, axis=1); var(A); var(A, axis=1, correction=1); vecdot(A, B)
vecdot(A, B, axis=0); where(M, A, B)
"""


def names_of(make: Any) -> dict[str, Any]:
    arrays = {"A": A, "B": B, "K": K, "J": J, "M": M, "SQUARE": SQUARE}
    return {"f4": np.dtype(np.float32), "f8": np.dtype(np.float64), **{n: make(a) for n, a in arrays.items()}}


def compare(got: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            compare(a, b)
        return
    value = got.numpy() if isinstance(got, tape.Tensor) else np.asarray(got)
    assert (value.shape, value.dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("name", array_api.ELEMENTWISE)
def test_elementwise(name: str) -> None:
    operands = OPERANDS.get(name, (A, B) if f" {name} " in TWO.replace("\n", " ") else (A,))
    found = getattr(array_api, name)(*[tape.tensor(x) if isinstance(x, np.ndarray) else x for x in operands])
    assert isinstance(found, tape.Tensor)
    compare(found, getattr(np, name)(*operands))


@pytest.mark.parametrize("call", [c.strip() for line in CALLS.strip().splitlines() for c in line.split("; ")])
def test_others(call: str) -> None:
    found = eval(f"f.{call}", {"f": array_api, **names_of(tape.tensor)})  # noqa: S307 (the table above)
    compare(found, eval(f"f.{call}", {"f": np, **names_of(np.array)}))  # noqa: S307


def test_every_function_is_called() -> None:
    assert [name for name in array_api.OTHERS if f"{name}(" not in CALLS] == []


def test_creation() -> None:
    xp = tape.ones(2).__array_namespace__(api_version="2024.12")
    assert xp is array_api
    assert xp.arange(5).dtype == xp.int64
    assert xp.linspace(0, 1, 3).tolist() == [0.0, 0.5, 1.0]
    assert xp.eye(2, k=1, dtype=xp.float32).dtype == xp.float32
    assert xp.full((2,), 3).dtype == xp.int64
    assert xp.zeros((2, 1), device="cpu").shape == (2, 1)
    x = tape.ones(2, 3, dtype=xp.float32)
    for like in (xp.zeros_like, xp.ones_like, xp.empty_like):
        assert (like(x).shape, like(x).dtype) == ((2, 3), xp.float32)
    assert xp.full_like(x, 2.0).tolist() == [[2.0] * 3] * 2
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True) is not x
    assert xp.asarray([1.0, 2.0]).dtype == xp.float64
    with pytest.raises(ValueError, match="is a copy"):
        xp.asarray(x, dtype=xp.float64, copy=False)


def test_dtypes() -> None:
    xp, x = array_api, tape.ones(1, dtype=tape.float32)
    assert xp.isdtype(x.dtype, "real floating")
    assert xp.result_type(x, xp.float64) == xp.float64
    assert xp.can_cast(x, xp.float64)
    assert not xp.can_cast(xp.float64, xp.int64)
    assert xp.finfo(x).bits == 32
    assert xp.iinfo(xp.int8).max == 127
    info = xp.__array_namespace_info__()
    assert set(info.dtypes(kind="integral")) == {"int8", "int16", "int32", "int64", "uint8"}
    assert info.default_dtypes()["real floating"] == xp.float64
    assert info.devices() == [info.default_device()]
    assert info.capabilities()["boolean indexing"]


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="2030"):
        tape.ones(1).__array_namespace__(api_version="2030.01")


def test_gradients_go_through() -> None:
    x = tape.tensor(A, requires_grad=True)
    xp = x.__array_namespace__()
    xp.sum(xp.square(xp.permute_dims(x, (1, 0)))).backward()
    assert x.grad.tolist() == (2 * A).tolist()


LINALG = """
cholesky(P); cholesky(P, upper=True); cross(C, C[::-1], axis=-1); det(P); diagonal(A, offset=1); eigh(P); eigvalsh(P)
inv(P); matmul(A, P); matrix_norm(A); matrix_norm(A, keepdims=True, ord="nuc"); matrix_norm(A, ord=2)
matrix_power(P, 3); matrix_power(P, -2); matrix_rank(A); matrix_rank(A, rtol=0.5); matrix_transpose(A)
outer(A[0], B[0]); pinv(A); pinv(A, rtol=0.01); qr(P); qr(A, mode="complete"); slogdet(P); solve(P, C.T)
solve(P, A[0]); svd(A); svd(A, full_matrices=False); svdvals(A); tensordot(A, P, axes=1)
tensordot(A, B, axes=((0, 1), (0, 1))); trace(P); trace(A, offset=1); trace(A, offset=0, dtype=f4); vecdot(A, B)
vecdot(A, B, axis=0); vector_norm(A); vector_norm(A, axis=1, keepdims=True, ord=1); vector_norm(A, axis=(0, 1))
vector_norm(A, axis=0, ord=inf)
"""


@pytest.mark.parametrize("call", [c.strip() for line in LINALG.strip().splitlines() for c in line.split("; ")])
def test_linalg(call: str) -> None:
    more = {"P": SQUARE @ SQUARE.T + 30 * np.eye(3), "C": B}
    tensors = {**names_of(tape.tensor), **{n: tape.tensor(a) for n, a in more.items()}}
    found = eval(f"f.{call}", {"f": array_api.linalg, "inf": np.inf, **tensors})  # noqa: S307 (the table above)
    expected = eval(f"f.{call}", {"f": np.linalg, "inf": np.inf, **names_of(np.array), **more})  # noqa: S307
    if call.startswith(("qr", "svd(", "eigh")):  # signs are free
        found = [abs(x) for x in found]
        expected = [abs(x) for x in expected]
    if isinstance(expected, (tuple, list)):
        assert isinstance(found, (tuple, list))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-12)
    else:
        assert found.numpy().dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_every_function_of_linalg_is_called() -> None:
    assert [name for name in vars(array_api.linalg) if f"{name}(" not in LINALG] == []


def test_orders() -> None:
    xp, values = array_api, np.array([[3.0, 1.0, 1.0], [2.0, 5.0, -1.0]])
    x = tape.tensor(values)
    assert xp.sort(x).tolist() == np.sort(values).tolist()
    assert xp.sort(x, axis=0, descending=True).tolist() == (-np.sort(-values, 0)).tolist()
    assert xp.sort(tape.tensor([3, 1, 2]), descending=True).tolist() == [3, 2, 1]
    assert xp.argsort(x).tolist() == np.argsort(values, stable=True).tolist()
    assert xp.argsort(x, descending=True).tolist() == np.argsort(-values, stable=True).tolist()


def test_devices_and_signatures_of_creation() -> None:
    xp, x = array_api, tape.ones(2, 3)
    assert x.to_device("cpu") is x
    assert x.to_device(x.device, stream=None) is x
    with pytest.raises(RuntimeError, match="CPU only"):
        x.to_device("cuda")
    assert xp.arange(0, stop=6, step=2, dtype=xp.float32, device="cpu").tolist() == [0.0, 2.0, 4.0]
    assert xp.linspace(0.0, 1.0, num=4, endpoint=False, dtype=xp.float32).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert xp.eye(2, 3, k=-1).tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert xp.full((), True).dtype == xp.bool
    assert xp.empty((2, 3), dtype=xp.int8, device=None).shape == (2, 3)
    assert xp.zeros_like(x, dtype=xp.int64, device="cpu").dtype == xp.int64
    assert xp.asarray(True).dtype == xp.bool
    assert xp.asarray(5, dtype=xp.float32).tolist() == 5.0
    assert xp.from_dlpack(x).tolist() == x.tolist()
    assert xp.clip(x, 2, None).tolist() == [[2.0] * 3] * 2
    assert xp.clip(x, max=0.5).tolist() == [[0.5] * 3] * 2
    assert x.size == 6
    assert xp.__array_api_version__ == "2024.12"
