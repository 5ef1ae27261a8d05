"""Writes to places that arrays, lists and masks name, again and again: the later, native ones are as the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape

RNG = np.random.default_rng(12)
AGAIN = 4
A = RNG.normal(size=(4, 5))
C = RNG.normal(size=A.shape)
P, J = np.array([1, -2, 0]), np.array([0, 4, -5])
KEYS: dict[str, Any] = {
    "list": [2, 0, -1], "vector": P, "twice": np.array([1, 1, 0]), "two": (P, J), "behind a slice": (slice(None), J),
    "strided": (slice(1, None, 2), J), "with an int": (P, 2), "mask": A > 0.2, "rows": A[:, 1] > 0.0,
    "rows and a slice": (A[:, 1] > 0.0, slice(None, None, 2)), "columns": (slice(None), A[0] > 0),
    "nothing": np.zeros(0, np.int64), "no mask": np.zeros((4, 5), np.bool_), "narrow": P.astype(np.int32),
}  # fmt: skip
VALUES = ["number", "whole", "broadcast", "turned"]


def as_key(key: Any, kind: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(as_key(one, kind) for one in key)
    return kind(key) if isinstance(key, np.ndarray) else key


def value_of(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    if name == "number":
        return 3 if np.dtype(dtype).kind in "iu" else 1.5
    wanted = shape if name != "broadcast" else (1,) * (len(shape) - 1) + shape[-1:]
    found = (RNG.normal(size=wanted) * 5).astype(dtype)
    return np.asfortranarray(found) if name == "turned" else found


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int8, np.bool_])
def test_without_gradients(name: str, value: str, dtype: Any) -> None:
    key, a = KEYS[name], (A * 4).astype(dtype)
    given = value_of(value, a[key].shape, dtype)
    x = tape.tensor(a)
    y = tape.tensor(given) if isinstance(given, np.ndarray) else given
    for k in range(AGAIN):
        truth = a.copy()
        truth[key] = given
        x[as_key(key, tape.tensor)] = y
        np.testing.assert_array_equal(x.numpy().copy(), truth)
        assert x._version == 2 * k + 1
        x.copy_(tape.tensor(a))


@pytest.mark.parametrize("wants", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", KEYS)
def test_recorded(name: str, value: str, wants: tuple[bool, bool]) -> None:
    key = KEYS[name]
    given = value_of(value, A[key].shape, np.float64)
    for _ in range(AGAIN):
        x = tape.tensor(A, requires_grad=wants[0])
        v = tape.tensor(given, requires_grad=wants[1]) if isinstance(given, np.ndarray) else given
        y = x.clone() if wants[0] else tape.tensor(A)
        y[as_key(key, tape.tensor)] = v
        truth = A.copy()
        truth[key] = given
        np.testing.assert_array_equal(y.detach().numpy(), truth)
        if not y.requires_grad:
            continue
        (y * y * tape.tensor(C)).sum().backward()
        if wants[0]:
            wanted = 2 * A * C
            wanted[key] = 0.0
            assert x.grad is not None
            np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-13)
        if isinstance(given, np.ndarray) and wants[1]:
            numbers = np.full(A.shape, -1)
            numbers[key] = np.broadcast_to(np.arange(given.size).reshape(given.shape), A[key].shape)
            wanted = np.zeros(given.size)
            np.add.at(wanted, numbers[numbers >= 0], (2 * truth * C)[numbers >= 0])
            np.testing.assert_allclose(v.grad.numpy(), wanted.reshape(given.shape), rtol=1e-13)


def test_what_others_see_is_kept() -> None:
    for _ in range(AGAIN):
        x = tape.tensor(A, requires_grad=True)
        y = x.exp()
        z = y * y
        y[[0, 1]] = 2.0  # what the product needs is overwritten
        (z + y).sum().backward()
        wanted = 2 * np.exp(2 * A) + np.where(np.arange(4)[:, None] < 2, 0.0, np.exp(A))
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-13)
        w = tape.tensor(A)
        view, seen = w[1], w.numpy()
        w[[1, 2]] = 0.0
        assert view.tolist() == seen[1].tolist() == [0.0] * 5


def test_errors_leave_everything_as_it_was() -> None:
    x, leaf = tape.tensor(A), tape.tensor(A, requires_grad=True)
    y = leaf * 1.0
    for _ in range(AGAIN):
        for one in (x, y):
            one[[0, 1]] = tape.tensor(A[:2])
            version = one._version
            with pytest.raises(IndexError):
                one[[0, 4]] = tape.tensor(A[:2])
            with pytest.raises(RuntimeError):
                one[[0, 1]] = tape.tensor(A[:3])
            np.testing.assert_array_equal(one.detach().numpy().copy(), A)
            assert one._version == version
        with pytest.raises(RuntimeError, match="leaf"):
            leaf[[0, 1]] = 1.0
    n = tape.arange(4)
    for _ in range(AGAIN):
        n[[0, 1]] = 7
        n[[0, 1]] = 2.9
        assert n.tolist() == [2, 2, 2, 3]


def test_a_value_that_is_the_tensor_itself() -> None:
    for _ in range(AGAIN):
        x = tape.tensor([1.0, 2.0, 3.0])
        x[[2, 1, 0]] = x
        assert x.tolist() == [3.0, 2.0, 1.0]


def test_programs_record_them() -> None:
    def step(x: Any) -> Any:
        y = x * 1.0
        y[[0, 2]] = y[[1, 3]] * 2.0
        return (y * y).sum()

    truth = 2 * 4 * (A[[1, 3]] ** 2).sum() / 2 + (A[[1, 3]] ** 2).sum()
    for _ in range(AGAIN):
        np.testing.assert_allclose(step(tape.tensor(A, requires_grad=True)).item(), truth)
        program = tape.record(step, tape.tensor(A))
        np.testing.assert_allclose(np.asarray(program(A)), truth)
        np.testing.assert_allclose(np.asarray(program(3 * A)), 9 * truth)


def test_an_index_that_says_so_itself() -> None:
    class Place:
        def __init__(self, at: int) -> None:
            self.at = at

        def __index__(self) -> int:
            return self.at

    x, expected, place = tape.tensor(A), A.copy(), Place(0)
    for k in range(AGAIN):
        place.at = k
        x[place] = float(k)
        expected[k] = float(k)
        np.testing.assert_array_equal(x.numpy().copy(), expected)
        np.testing.assert_array_equal(x[place].numpy(), expected[k])
