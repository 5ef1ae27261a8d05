"""Elements picked by arrays, lists and masks, again and again: the later calls, which are native, are the first."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

RNG = np.random.default_rng(11)
AGAIN = 4
A = RNG.normal(size=(4, 5))
MASK, ROWS = A > 0.2, A[:, 1] > 0.0
P, J = np.array([1, -2, 1]), np.array([0, 4, -5])
KEYS: dict[str, Any] = {
    "list": [2, 0, -1, 2], "vector": P, "matrix": np.array([[0, 1], [-1, 3]]), "two": (P, J),
    "two lists": ([0, 1], [4, -5]),
    "behind a slice": (slice(None), J), "strided": (slice(1, None, 2), J), "before a slice": (P, slice(1, 3)),
    "with an int": (P, 2), "behind an int": (-1, J), "behind ...": (..., J), "broadcast": (P[:, None], J),
    "mask": MASK, "rows": ROWS, "rows and a slice": (ROWS, slice(None, None, 2)), "columns": (slice(None), A[0] > 0),
    "nothing": np.zeros(0, np.int64), "no mask": np.zeros((4, 5), np.bool_),
    "with a new dim": (None, P), "row, ints": (ROWS, 1),
    "narrow": P.astype(np.int32), "apart": (P, None, J), "turned": np.array([[0, 1], [2, 3]]).T,
}  # fmt: skip


def as_key(key: Any, kind: Callable[[Any], Any]) -> Any:
    if isinstance(key, tuple):
        return tuple(as_key(one, kind) for one in key)
    return kind(key) if isinstance(key, np.ndarray) else key


NODES = {f"{name}Backward0" for name in ("Gather", "Index", "IndexSelect", "MaskedSelect", "Take")}
"""PyTorch's, of which the record of picks has one for each function."""


def check(picked: Callable[[Any], Any], a: Any, numbers: Any) -> None:
    """Check values, gradients and second derivatives; ``numbers`` are those of the elements in C order."""
    for _ in range(AGAIN):
        x = tape.tensor(a, requires_grad=a.dtype.kind == "f" and a.dtype.itemsize > 2)
        y = picked(x)
        np.testing.assert_array_equal(y.detach().numpy(), a.reshape(-1)[numbers])
        assert y.dtype == x.dtype
        assert not x.requires_grad or type(y.grad_fn).__name__ in NODES
        with tape.no_grad():
            np.testing.assert_array_equal(picked(x).numpy(), y.detach().numpy())
        if x.requires_grad:
            (g,) = tape.autograd.grad((y * y * y).sum(), x, create_graph=True)
            (h,) = tape.autograd.grad(g.sum(), x)
            counts = np.bincount(np.reshape(numbers, -1), minlength=a.size).reshape(a.shape)
            close = 1e-5 if a.dtype == np.float32 else 1e-12
            np.testing.assert_allclose(g.detach().numpy(), 3 * a * a * counts, rtol=close)
            np.testing.assert_allclose(h.numpy(), 6 * a * counts, rtol=close)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int16, np.bool_])
@pytest.mark.parametrize("name", KEYS)
def test_by_index(name: str, dtype: Any) -> None:
    key, numbers = KEYS[name], np.arange(A.size).reshape(A.shape)
    for kind in (tape.tensor, np.array):
        check(lambda x, kind=kind: x[as_key(key, kind)], (A * 4).astype(dtype), numbers[key])


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "take": (lambda x: tape.take(x, tape.tensor([0, -1, 7, 0])), lambda n: n.reshape(-1)[[0, -1, 7, 0]]),
    "gather": (
        lambda x: x.gather(1, tape.tensor([[4, 0], [1, 1]])),
        lambda n: np.take_along_axis(n[:2], np.array([[4, 0], [1, 1]]), 1),
    ),
    "gather rows": (
        lambda x: tape.gather(x, -2, tape.tensor([[3, 0, 1]])),
        lambda n: np.take_along_axis(n[:, :3], np.array([[3, 0, 1]]), 0),
    ),
    "index_select": (lambda x: x.index_select(-1, tape.tensor([4, 0, 4])), lambda n: n[:, [4, 0, 4]]),
    "index_select of rows": (lambda x: tape.index_select(x, 0, tape.tensor([2])), lambda n: n[[2]]),
    "take_along_dim": (
        lambda x: tape.take_along_dim(x, tape.tensor([[-1], [0], [1], [2]]), 1),
        lambda n: np.take_along_axis(n, np.array([[-1], [0], [1], [2]]), 1),
    ),
    "take_along_dim, broadcast": (lambda x: tape.take_along_dim(x, tape.tensor([[-1, 0]]), 1), lambda n: n[:, [-1, 0]]),
    "masked_select": (lambda x: x.masked_select(tape.tensor(MASK)), lambda n: n[MASK]),
    "masked_select, broadcast": (lambda x: x.masked_select(tape.tensor(MASK[0])), lambda n: n[:, MASK[0]].ravel()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_by_function(name: str) -> None:
    function, truth = FUNCTIONS[name]
    numbers = truth(np.arange(A.size).reshape(A.shape))
    check(function, A, numbers)
    check(lambda x: function(x.clone().T.contiguous().T), A, numbers)  # another order in memory


def test_other_places_of_the_same_shape() -> None:
    x = tape.tensor(A, requires_grad=True)
    for _ in range(30):
        key, size = RNG.integers(-4, 4, 3), RNG.integers(0, 21)
        mask = RNG.permutation(np.arange(20) < size).reshape(4, 5)
        for one, truth in ((key.tolist(), key), (tape.tensor(key), key), (tape.tensor(mask), mask)):
            x.grad = None
            y = x[one]
            np.testing.assert_array_equal(y.detach().numpy(), A[truth])
            y.sum().backward()
            counts = np.zeros_like(A)
            np.add.at(counts, truth, 1.0)
            assert x.grad is not None
            np.testing.assert_array_equal(x.grad.numpy(), counts)


@pytest.mark.parametrize("key", [[0, 4], [-5, 0], (slice(None), [5, 0]), ([0, 1], [0, 9])])
def test_out_of_bounds_each_time(key: Any) -> None:
    x = tape.tensor(A, requires_grad=True)
    inside = [0, 1] if isinstance(key, list) else (slice(None), [0, 1]) if key[0] == slice(None) else ([0, 1], [0, 1])
    for _ in range(AGAIN):
        np.testing.assert_array_equal(x[inside].detach().numpy(), A[inside])
        with pytest.raises(IndexError):
            x[key]
    with pytest.raises(RuntimeError):
        tape.gather(x, 1, tape.tensor([[-1]]))
    for _ in range(AGAIN):
        tape.gather(x, 1, tape.tensor([[1]]))
        with pytest.raises(RuntimeError):
            tape.gather(x, 1, tape.tensor([[-1]]))
        with pytest.raises(RuntimeError):
            tape.gather(x, 1, tape.tensor([[1]]).double())


def test_lists_of_other_things() -> None:
    x = tape.tensor(A)
    for _ in range(AGAIN):
        np.testing.assert_array_equal(x[[1, 2, 3]].numpy(), A[[1, 2, 3]])
        np.testing.assert_array_equal(x[[True, False, True, True]].numpy(), A[[True, False, True, True]])
        np.testing.assert_array_equal(x[[1, tape.tensor(2)]].numpy(), A[1, 2])
        np.testing.assert_array_equal(x[[np.int64(1), 2, 3]].numpy(), A[[1, 2, 3]])
        assert x[[]].shape == (0, 5)
        with pytest.raises(IndexError):
            x[[1.0, 2.0, 3.0]]


@pytest.mark.parametrize("part", [lambda x: x.T, lambda x: x[::2], lambda x: x[1:, 1:4], lambda x: x.expand(2, 4, 5)])
def test_of_views(part: Callable[[Any], Any]) -> None:
    seen = []
    for _ in range(AGAIN):
        x = tape.tensor(A, requires_grad=True)
        y = part(x * 1.0)[[1, 0, 1]]
        (y * y).sum().backward()
        assert x.grad is not None
        seen.append((y.detach().numpy(), x.grad.numpy()))
    numbers = np.broadcast_to(A, (2, 4, 5)) if y.ndim > 2 else part(A)
    np.testing.assert_array_equal(seen[0][0], numbers[[1, 0, 1]])
    for one in seen[1:]:
        for a, b in zip(one, seen[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_special_values_come_as_they_are() -> None:
    a = np.array([-0.0, np.nan, np.inf, 0.0])
    x = tape.tensor(a, requires_grad=True)
    for _ in range(AGAIN):
        y = x[[0, 1, 2]].detach().numpy()
        assert y.tobytes() == a[:3].tobytes()


def test_hooks_hear_and_gradients_are_retained() -> None:
    for _ in range(AGAIN):
        heard: list[Any] = []
        x = tape.tensor(A, requires_grad=True)
        y = x[[1, 1, 0]]
        y.retain_grad()
        y.register_hook(lambda g, heard=heard: heard.append(g.numpy().copy()))
        (y * 2.0).sum().backward()
        np.testing.assert_array_equal(heard[0], np.full((3, 5), 2.0))
        assert y.grad is not None
        np.testing.assert_array_equal(y.grad.numpy(), heard[0])


def test_an_index_that_is_written_later() -> None:
    for _ in range(AGAIN):
        x, i = tape.tensor(A, requires_grad=True), tape.tensor([1, 2])
        y = x[i]
        i[0] = 3
        y.sum().backward()
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy().sum(1), [0.0, 5.0, 5.0, 0.0])


def test_programs_and_maps() -> None:
    def step(x: Any) -> Any:
        return (x[[1, -1, 1]] * 2.0).sum() + tape.index_select(x, 0, tape.tensor([1])).sum()

    truth = 2.0 * (2 * A[1].sum() + A[-1].sum()) + A[1].sum()
    for _ in range(AGAIN):
        np.testing.assert_allclose(step(tape.tensor(A, requires_grad=True)).item(), truth)
        program = tape.record(step, tape.tensor(A))
        np.testing.assert_allclose(np.asarray(program(A)), truth)
        np.testing.assert_allclose(np.asarray(program(2 * A)), 2 * truth)
        np.testing.assert_allclose(tape.func.vmap(step)(tape.tensor(np.stack([A, 3 * A]))).numpy(), [truth, 3 * truth])
        _, tangent = tape.func.jvp(step, (tape.tensor(A),), (tape.tensor(A),))
        np.testing.assert_allclose(tangent.item(), truth)


def test_nothing_is_left_behind() -> None:
    x, i, m = tape.tensor(A, requires_grad=True), tape.tensor(P), tape.tensor(MASK)

    def work() -> None:
        for _ in range(50):
            y = x[i].sum() + x[[0, 1]].sum() + x[m].sum() + tape.take(x, i).sum()
            y.backward()
            with pytest.raises(IndexError):
                x[[0, 9]]

    work()
    gc.collect()
    before = len(gc.get_objects())
    work()
    gc.collect()
    assert len(gc.get_objects()) < before + 100


def test_index_tensors_of_no_dims_are_their_numbers() -> None:
    x = tape.tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    for k in (0, 1, 2, -1, -3):
        i = tape.tensor(k)
        for _ in range(3):  # entered by Python, then found by native code
            for key, numbers in (
                (i, k),
                ((i, i), (k, k)),
                ((slice(None), i), (slice(None), k)),
                ((i, None), (k, None)),
            ):
                part, expected = x[key], x[numbers]
                assert part.tolist() == expected.tolist()
                assert part._base is x
                assert type(part.grad_fn) is type(expected.grad_fn)
    y = x.detach().clone()
    for k in (0, 1, 0):
        i = tape.tensor(k)
        y[i] = 7.0
        y[i, i] += 1.0
        y[i][3] = 3.0
        assert y[k].tolist() == [8.0 if j == k else 7.0 for j in range(3)] + [3.0]
    for key in (tape.tensor(3), (tape.tensor(-4), 0)):
        for _ in range(2):
            with pytest.raises(IndexError, match="out of bounds"):
                x[key]
    assert tape.vmap(lambda row, j: row[j])(x.detach(), tape.tensor([0, 1, 2])).tolist() == [0.0, 5.0, 10.0]
