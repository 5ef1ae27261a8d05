"""Operations in place that native code repeats: they do what the first, which Python did, has done."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+=": lambda x, v: x.__iadd__(v),
    "-=": lambda x, v: x.__isub__(v),
    "*=": lambda x, v: x.__imul__(v),
    "/=": lambda x, v: x.__itruediv__(v),
    "add_": lambda x, v: x.add_(v),
    "sub_": lambda x, v: x.sub_(v),
    "mul_": lambda x, v: x.mul_(v),
    "alpha": lambda x, v: x.add_(v, alpha=2.0),
    "**= 2": lambda x, _: x.__ipow__(2),
    "sin_": lambda x, _: x.sin_(),
    "clamp_": lambda x, v: x.clamp_(0.5).add_(v),
}
MEANT: dict[str, Callable[[Any, Any], Any]] = {
    "+=": lambda x, v: x + v,
    "-=": lambda x, v: x - v,
    "*=": lambda x, v: x * v,
    "/=": lambda x, v: x / v,
    "add_": lambda x, v: x + v,
    "sub_": lambda x, v: x - v,
    "mul_": lambda x, v: x * v,
    "alpha": lambda x, v: x + 2.0 * v,
    "**= 2": lambda x, _: x**2,
    "sin_": lambda x, _: np.sin(x),
    "clamp_": lambda x, v: np.maximum(x, 0.5) + v,
}
TIMES = range(4)
A, B = np.array([0.25, 1.5, -2.0]), np.array([3.0, -0.5, 1.25])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_leaf_is_written_under_no_grad(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    a, b = (x.astype(dtype) if shape else dtype(x[0]) for x in (A, B))
    x, v = tape.tensor(a, dtype=dtype, requires_grad=True), tape.tensor(b, dtype=dtype)
    for version in TIMES:
        with tape.no_grad():
            before, meant = id(x), MEANT[name](x.numpy().copy(), v.numpy())
            assert id(OPERATIONS[name](x, v)) == before
        assert (x.dtype, x.shape, x.is_leaf, x.requires_grad) == (dtype, shape, True, True)
        np.testing.assert_allclose(x.detach().numpy(), meant.astype(dtype), rtol=1e-6 if dtype == np.float32 else 1e-14)
        assert x._version >= version + 1


@pytest.mark.parametrize("other", [B, 0.75, 2, B[:1]], ids=["tensor", "float", "int", "broadcast"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_recorded_as_the_operation_itself(name: str, other: Any) -> None:
    meant = {"sin_": lambda x, _: x.sin(), "clamp_": lambda x, v: x.clamp(0.5) + v}.get(name, MEANT[name])
    for _ in TIMES:
        results = []
        for run in (OPERATIONS[name], meant):
            x = tape.tensor(A, requires_grad=True)
            v = tape.tensor(other, requires_grad=True) if isinstance(other, np.ndarray) else other
            y = x * x
            z = y * 3.0  # needs no value of y
            w = y.sin()  # needs it
            y = run(y, v)
            (y * y + z + w).sum().backward()
            own = getattr(v, "grad", None)
            results.append((y.detach().numpy(), x.grad.numpy(), 0 if own is None else own.numpy()))
        for got, wanted in zip(*results, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_value_that_a_pullback_needs_stays() -> None:
    """A leaf whose value is saved is not written over; nor is it when only a result refers to it."""
    x, v = tape.tensor(A, requires_grad=True), tape.tensor(B)
    for _ in TIMES:
        y = (x * x).sum()
        meant = 2 * x.detach().numpy()
        with tape.no_grad():
            x -= v
        (gradient,) = tape.autograd.grad(y, x)
        np.testing.assert_array_equal(gradient.numpy(), meant)


def test_views_and_numpy_see_the_write() -> None:
    for _ in TIMES:
        x = tape.tensor(A)
        row, array, replica = x[1:], x.numpy(), x.detach()
        x += 1.0
        x.mul_(2.0)
        for seen in (row, array[1:], replica[1:]):
            np.testing.assert_array_equal(np.asarray(seen), 2 * (A[1:] + 1))
        own = np.array(A)
        y = tape.from_numpy(own)
        y += y
        np.testing.assert_array_equal(own, 2 * A)
        z = tape.tensor(A, requires_grad=True)
        shown = z.detach()
        with tape.no_grad():
            z -= 1.0
        np.testing.assert_array_equal(shown.numpy(), A - 1)


def test_a_part_is_written_through_its_base() -> None:
    for _ in TIMES:
        x = tape.tensor(A, requires_grad=True)
        y = x * 1.0
        part = y[1:]
        part *= y[:-1]
        y -= 1.0
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), [1 + A[1], A[0] + A[2], A[1]])


def test_itself_is_an_operand() -> None:
    x = tape.tensor(A, requires_grad=True)
    meant = A
    for _ in TIMES:
        with tape.no_grad():
            x *= x
        meant = meant * meant
        np.testing.assert_array_equal(x.detach().numpy(), meant)


@pytest.mark.parametrize("name", ["+=", "mul_"])
def test_what_is_wrong_stays_wrong(name: str) -> None:
    run = OPERATIONS[name]
    x, y = tape.tensor(A, requires_grad=True), tape.tensor(A)
    for _ in TIMES:
        with tape.no_grad():
            run(x, 1.0)
            run(y, 1.0)
        with pytest.raises(RuntimeError, match="leaf"):
            run(x, 1.0)
        with pytest.raises(RuntimeError, match="shape"):
            run(y, tape.ones(2, 3))
        wide = tape.tensor([1.0]).expand(3)
        with pytest.raises(RuntimeError, match="memory"):
            run(wide, 1.0)
        fixed = np.array(A)
        fixed.flags.writeable = False
        with pytest.raises(RuntimeError, match="read-only"):
            run(tape.from_numpy(fixed), 1.0)
        with pytest.raises(RuntimeError, match="cast"):
            run(tape.tensor([1, 2, 3]), 1.5)
        with tape.inference_mode():
            inferred = tape.tensor(A) * 1.0
            run(inferred, 1.0)
        with pytest.raises(RuntimeError, match="nference"):
            run(inferred, 1.0)


@np.errstate(over="ignore", divide="ignore")
def test_other_dtypes_and_shapes() -> None:
    for _ in TIMES:
        single, integer = tape.tensor(A, dtype=np.float32), tape.tensor([1, 2, 3])
        single += tape.tensor(B)
        assert single.dtype == np.float32
        single *= 1e300  # no single
        assert not np.isfinite(single.numpy()).any()
        integer += 2
        assert integer.tolist() == [3, 4, 5]
        x = tape.tensor(A)
        x += integer
        np.testing.assert_array_equal(x.numpy(), A + np.array([3, 4, 5]))
        turned = tape.tensor(np.arange(6.0).reshape(2, 3)).t()
        turned *= turned
        np.testing.assert_array_equal(turned.numpy(), np.arange(6.0).reshape(2, 3).T ** 2)
        zero = tape.tensor(1.0)
        zero /= 0.0
        assert zero.item() == math.inf


def test_retained_gradients_and_hooks_are_of_their_versions() -> None:
    for _ in TIMES:
        x = tape.tensor(A, requires_grad=True)
        y = x * 1.0
        seen: list[Any] = []
        y.register_hook(lambda g, seen=seen: seen.append(g.numpy().copy()))
        y.retain_grad()
        y *= 3.0
        y.sum().backward()
        np.testing.assert_array_equal(y.grad.numpy(), [1.0] * 3)
        np.testing.assert_array_equal(seen[0], [3.0] * 3)


def test_a_history_stays_under_no_grad() -> None:
    for _ in TIMES:
        x = tape.tensor(A, requires_grad=True)
        y = x * 2.0
        with tape.no_grad():
            y += 1.0
        np.testing.assert_array_equal(y.detach().numpy(), 2 * A + 1)
        (y * y).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), 4 * (2 * A + 1))


def test_writes_are_counted_with_those_of_detached_tensors() -> None:
    for _ in TIMES:
        x = tape.tensor(A, requires_grad=True) * 1.0
        for k in TIMES:
            assert x._version == k
            x += 1.0
        replica = x.detach()
        replica -= 1.0
        x *= 2.0
        assert x._version == replica._version == len(TIMES) + 2


def test_programs_hear_of_writes() -> None:
    def step(x: Any, v: Any) -> Any:
        y = x * 1.0
        y += v
        y.mul_(y)
        return y.sum()

    for _ in TIMES:
        step(tape.tensor(A), tape.tensor(B))
    program = tape.record(step, A, B)
    np.testing.assert_allclose(float(program(B, A)), ((A + B) ** 2).sum())
    _, gradients = program.value_and_grad(2 * A, B)
    np.testing.assert_allclose(gradients[0], 2 * (2 * A + B))


def test_memory_is_given_back() -> None:
    """Neither the tensors, nor their counts, nor their values before outlive them."""

    def run() -> list[Any]:
        x = tape.tensor(A, requires_grad=True)
        y = x * 1.0
        y += x
        y.sum().backward()
        with tape.no_grad():
            x -= 1.0
        return [weakref.ref(x), weakref.ref(y)]

    for _ in range(20):
        run()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        assert all(one() is None for one in run())
    gc.collect()
    assert len(gc.get_objects()) <= before + 20


@pytest.mark.parametrize("data", [1.5, A, A.reshape(3, 1)], ids=["0-d", "vector", "column"])
@pytest.mark.parametrize("way", ["leaf", "computed", "plain", "part", "turned"])
def test_detached_tensors_share_memory(way: str, data: Any) -> None:
    for _ in TIMES:
        x = tape.tensor(data, requires_grad=way != "plain")
        if way in ("computed", "part"):
            x = x * 1.0
        if way == "part" and x.dim():
            x = x[1:]
        if way == "turned" and x.dim() == 2:
            x = x.t()
        before = x.detach().tolist()
        y = x.detach()
        assert (y.requires_grad, y.is_leaf, y.shape, y.dtype, y.tolist()) == (False, True, x.shape, x.dtype, before)
        y += 1.0
        y[...] = y * 2.0
        np.testing.assert_array_equal(np.asarray(x.tolist()), 2 * (np.asarray(before) + 1))
        assert x._version == y._version == 2
        with tape.no_grad():
            x -= 1.0
        np.testing.assert_array_equal(np.asarray(x.tolist()), np.asarray(y.tolist()))
        assert x._version == y._version == 3
        assert y.detach().detach().numpy() is not None
        if way == "computed":
            (x * x).sum().backward()


def test_detached_tensors_and_their_counts_end_with_them() -> None:
    x = tape.tensor(A, requires_grad=True)
    for _ in range(20):
        x.detach()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        y = x.detach()
        gone = weakref.ref(y)
        del y
        assert gone() is None
    gc.collect()
    assert len(gc.get_objects()) <= before + 20


def test_inference_tensors_stay_so_when_detached() -> None:
    for _ in TIMES:
        with tape.inference_mode():
            x = tape.tensor(A)
            assert x.detach().is_inference()
        assert x.detach().is_inference()
        assert not tape.tensor(A).detach().is_inference()
