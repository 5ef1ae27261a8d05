"""Lists of tensors joined again and again: the later calls, which are native, are the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

RNG = np.random.default_rng(13)
AGAIN = 4
A, B, V = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 2)), RNG.normal(size=3)
JOINS: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "cat": (lambda m, x: m.cat(x), [A, A, A]),
    "cat of other lengths": (lambda m, x: m.cat(tuple(x), 1), [A, A[:, :1], np.zeros((2, 0))]),
    "cat by name": (lambda m, x: m.cat(x, dim=-1), [A, A]),
    "cat by axis": (lambda m, x: m.cat(x, axis=1), [A, B.T]),
    "cat of what is turned": (lambda m, x: m.cat(x, 0), [B.T, A]),
    "one": (lambda m, x: m.cat(x), [V]),
    "stack": (lambda m, x: m.stack(x), [A, A]),
    "stack at the end": (lambda m, x: m.stack(tuple(x), -1), [A, B.T, A]),
    "stack in the middle": (lambda m, x: m.stack(x, dim=1), [V, V, V, V, V]),
    "stack of numbers": (lambda m, x: m.stack(x), [np.array(1.5), np.array(-0.0), np.array(np.nan)]),
}


def truth_of(name: str, given: list[Any]) -> Any:
    class Arrays:
        cat = staticmethod(lambda x, dim=0, axis=None: np.concatenate(x, dim if axis is None else axis))
        stack = staticmethod(lambda x, dim=0: np.stack(x, dim))

    return JOINS[name][0](Arrays, given)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int8, np.bool_])
@pytest.mark.parametrize("name", JOINS)
def test_joins(name: str, dtype: Any) -> None:
    given = [np.nan_to_num(x * 4).astype(dtype) if dtype != np.float64 else x for x in JOINS[name][1]]
    floats = dtype in (np.float64, np.float32)
    truth = truth_of(name, given)
    weights = RNG.normal(size=truth.shape)
    for _ in range(AGAIN):
        leaves = [tape.tensor(x, requires_grad=floats) for x in given]
        y = JOINS[name][0](tape, leaves)
        found = y.detach().numpy()
        assert found.dtype == truth.dtype
        assert found.flags.c_contiguous
        assert found.tobytes() == np.ascontiguousarray(truth).tobytes()
        with tape.no_grad():
            assert not JOINS[name][0](tape, leaves).requires_grad
        if floats:
            (y * tape.tensor(weights.astype(dtype))).sum().backward()
            numbers = [np.arange(x.size).reshape(x.shape) + 100 * k for k, x in enumerate(given)]
            places = truth_of(name, numbers)
            for k, (x, own) in enumerate(zip(leaves, numbers, strict=True)):
                wanted = [weights[places == n][0] for n in own.ravel()]
                assert x.grad is not None, k
                np.testing.assert_allclose(x.grad.numpy().ravel(), wanted, rtol=1e-6)


def test_some_are_wanted_and_one_stands_twice() -> None:
    for wants in ((True, False), (False, True), (True, True), (False, False)) * AGAIN:
        x, y = (tape.tensor(A, requires_grad=own) for own in wants)
        z = tape.cat([x, y, x])
        assert z.requires_grad is any(wants)
        if any(wants):
            z.sum().backward()
            assert [one.grad is not None for one in (x, y)] == list(wants)
            assert not wants[0] or x.grad.tolist() == [[2.0] * 3] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [2, 70, 1500])
def test_many(count: int) -> None:
    for _ in range(3):
        parts = [tape.tensor([float(k)], requires_grad=True) for k in range(count)]
        y = tape.cat(parts)
        assert y.tolist() == [float(k) for k in range(count)]
        (y * y).sum().backward()
        assert parts[-1].grad is not None
        assert parts[-1].grad.tolist() == [2.0 * (count - 1)]


def test_errors_each_time() -> None:
    x, y = tape.tensor(A), tape.tensor(B)
    for _ in range(AGAIN):
        assert tape.cat([x, x]).shape == (4, 3)
        with pytest.raises(RuntimeError):
            tape.cat([x, y])
        with pytest.raises(RuntimeError):
            tape.stack([x, y])
        with pytest.raises(IndexError):
            tape.cat([x, x], 2)
        with pytest.raises((RuntimeError, ValueError)):
            tape.cat([])
        with pytest.raises(TypeError):
            tape.cat([x, "x"])
        with pytest.raises(TypeError):
            tape.cat([x, x], dim=0, axis=0)


def test_other_dtypes_among_them() -> None:
    for _ in range(AGAIN):
        assert tape.cat([tape.tensor(A), tape.tensor(A).float()]).dtype == tape.float64
        assert tape.cat([tape.tensor(A).float(), tape.tensor(A).float()]).dtype == tape.float32
        assert tape.cat([tape.arange(2), tape.tensor([1.5])]).tolist() == [0.0, 1.0, 1.5]


def test_second_derivatives_programs_and_maps() -> None:
    def join(x: Any) -> Any:
        return (tape.stack([x * x, x, x * 2.0], 1) ** 2).sum() + tape.cat([x, x * x]).sum()

    truth = (V**4 + 5 * V**2).sum() + (V + V * V).sum()
    for _ in range(AGAIN):
        x = tape.tensor(V, requires_grad=True)
        (g,) = tape.autograd.grad(join(x), x, create_graph=True)
        (h,) = tape.autograd.grad(g.sum(), x)
        np.testing.assert_allclose(g.detach().numpy(), 4 * V**3 + 12 * V + 1, rtol=1e-12)
        np.testing.assert_allclose(h.numpy(), 12 * V**2 + 12, rtol=1e-12)
        program = tape.record(join, tape.tensor(V))
        np.testing.assert_allclose(np.asarray(program(V)), truth)
        maps = tape.func.vmap(join)(tape.tensor(np.stack([V, V]))).numpy()
        np.testing.assert_allclose(maps, [truth, truth])


def test_a_view_of_what_has_been_written_since() -> None:
    for _ in range(AGAIN):
        x = tape.tensor(V, requires_grad=True)
        y = x * 1.0
        part = y[1:]
        y[0] = 5.0
        z = tape.cat([part, y])
        z.sum().backward()
        np.testing.assert_array_equal(z.detach().numpy(), [*V[1:], 5.0, *V[1:]])
        assert x.grad is not None
        assert x.grad.tolist() == [0.0, 2.0, 2.0]
