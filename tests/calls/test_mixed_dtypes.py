"""Arithmetic of integers and masks, and casts, again and again: the later calls, which are native, are the first."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.elementwise import Elementwise
from kernels.operations import OPS
from tape.operations.elementwise import RUN

RNG = np.random.default_rng(3)
AGAIN = 4
INTEGERS = [np.int64, np.int32, np.int16, np.int8, np.uint8]
OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.lt, operator.le, operator.gt, operator.ge, operator.eq,
    operator.ne, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.floordiv,
    operator.mod, operator.truediv,
]  # fmt: skip


def values(dtype: Any, *shape: int) -> Any:
    return RNG.integers(1, 7, shape).astype(dtype)


def check(function: Callable[..., Any], *arrays: Any, dtype: Any = None) -> None:
    truth = np.asarray(function(*arrays))
    for _ in range(AGAIN):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = function(*[tape.tensor(x) if isinstance(x, np.ndarray) else x for x in arrays])
        assert found.numpy().dtype == (truth.dtype if dtype is None else dtype)
        np.testing.assert_array_equal(found.numpy(), truth)
        assert not found.requires_grad


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", OPERATORS)
def test_two_tensors(op: Any, dtype: Any) -> None:
    a, b = values(dtype, 3, 4), values(dtype, 4)
    wide = np.float64 if op is operator.truediv else None  # PyTorch: the default dtype; NumPy has halves
    check(op, a, b, dtype=wide) if wide is None else check(op, a.astype(int), b.astype(int))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", OPERATORS[:-1])
def test_a_number_on_either_side(op: Any, dtype: Any) -> None:
    a = values(dtype, 3, 4).T
    check(lambda x: op(x, 3), a)
    check(lambda x: op(3, x), a)
    check(lambda x: op(x[1], 3), a)


@pytest.mark.parametrize("op", [operator.add, operator.mul, operator.mod, operator.floordiv, operator.truediv])
@pytest.mark.parametrize("numbers", [(2, 2.0), (2.0, 2), (2.5, 3), (-2, 2), (2, -2, -2.0)])
def test_the_type_of_a_number_decides(op: Any, numbers: Any) -> None:
    a = np.arange(6)
    for _ in range(AGAIN):
        for number in numbers:
            truth = op(a, number)
            found = op(tape.tensor(a), number)
            assert found.numpy().dtype == truth.dtype
            np.testing.assert_array_equal(found.numpy(), truth)


def test_powers_by_the_type_of_the_exponent() -> None:
    x = tape.arange(5)
    for _ in range(AGAIN):
        assert (x**2).tolist() == [0, 1, 4, 9, 16]
        assert (x**2).dtype == tape.int64
        assert (x**2.0).dtype == tape.float64
        with pytest.raises((RuntimeError, ValueError), match="negative"):
            x**-1


def test_division_by_zero_raises_each_time() -> None:
    x = tape.arange(4)
    for divisor in (0, tape.tensor([1, 0, 1, 1])):
        for _ in range(AGAIN):
            assert (x // 2).tolist() == [0, 0, 1, 1]
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                x // divisor
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                x % divisor


@pytest.mark.parametrize(("dtype", "number"), [(np.uint8, 300), (np.uint8, -1), (np.int8, 200), (np.int64, 1 << 62)])
def test_numbers_at_the_ends_of_a_dtype(dtype: Any, number: int) -> None:
    a = np.array([1, 2], dtype)
    x = tape.tensor(a)
    for _ in range(AGAIN):
        assert (x + 1).tolist() == [2, 3]
        assert (x < number).tolist() == (a < number).tolist()
        if number <= np.iinfo(dtype).max and number >= np.iinfo(dtype).min:
            assert (x + number).tolist() == [1 + number, 2 + number]
        else:
            with pytest.raises(OverflowError):
                x + number


def test_sums_wrap_without_a_warning() -> None:
    check(lambda x: x + x, np.array([np.iinfo(np.int64).max, 1]))
    check(abs, np.array([np.iinfo(np.int64).min, -1]))
    check(lambda x: -x, np.array([3, 250], np.uint8))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.bool_])
def test_where_and_masks_of_integers(dtype: Any) -> None:
    a, b = values(dtype, 3, 4), np.zeros((3, 1), dtype)
    mask = RNG.random((3, 4)) > 0.5
    for _ in range(AGAIN):
        found = tape.where(tape.tensor(mask), tape.tensor(a), tape.tensor(b)).numpy()
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.where(mask, a, b))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (2, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    check(lambda x: x + 1, values(np.int64, *shape))
    check(lambda x: x * x, values(np.int32, *shape))
    check(lambda x: x == 2, values(np.int64, *shape))


def test_in_place() -> None:
    x = tape.arange(4)
    for k in range(1, 5):
        x += 1
        x.mul_(1)
        assert x.tolist() == [k, k + 1, k + 2, k + 3]
    assert x._version == 8
    with pytest.raises(RuntimeError):
        x += 1.5
    assert x.tolist() == [4, 5, 6, 7]


MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "times": lambda x, n: x * n, "turned": lambda x, n: n * x, "over": lambda x, n: x / n, "less": lambda x, n: n - x,
    "power": lambda x, n: x**n, "twice": lambda x, n: x * n * n, "by a half": lambda x, n: x * (n / 2),
    "by a float": lambda x, n: x * (n * 1.5), "a function": lambda x, n: x * np.exp(n),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("other", [np.int64, np.int8, np.bool_])
@pytest.mark.parametrize("name", MIXED)
def test_floats_beside_integers(name: str, other: Any, dtype: Any) -> None:
    function = MIXED[name]
    a, n = RNG.uniform(0.5, 1.5, (3, 4)).astype(dtype), values(other, 4)
    wide = n.astype(np.float64 if other != np.bool_ else dtype)
    truth = function(a.astype(np.float64), wide.astype(np.float64))
    seen = []
    for _ in range(AGAIN):
        x = tape.tensor(a, requires_grad=True)
        y = function(x, tape.tensor(n))
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.dtype == dtype
        np.testing.assert_allclose(y.detach().numpy(), truth, rtol=2e-6 if dtype == np.float32 else 1e-13)
        seen.append((y.detach().numpy(), x.grad.numpy()))
    for later in seen[1:]:
        for one, first in zip(later, seen[0], strict=True):
            assert one.dtype == first.dtype
            np.testing.assert_array_equal(one, first)


def test_the_default_dtype_may_change() -> None:
    x = tape.arange(3)
    for dtype in (tape.float32, tape.float64, tape.float32):
        tape.set_default_dtype(dtype)
        try:
            for _ in range(AGAIN):
                assert (x / 2).dtype == (x * 1.5).dtype == tape.sin(x).dtype == dtype
        finally:
            tape.set_default_dtype(tape.float64)


def test_casts() -> None:
    a = RNG.uniform(-3.0, 3.0, (2, 3))
    for _ in range(AGAIN):
        x = tape.tensor(a, requires_grad=True)
        y = x.T.float()
        assert y.dtype == tape.float32
        assert type(y.grad_fn).__name__ == "ToCopyBackward0"
        (y.double() ** 2).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), 2 * a, rtol=1e-6)
        assert x.detach().long().tolist() == a.astype(int).tolist()
        assert x.detach().bool().tolist() == a.astype(bool).tolist()
        assert tape.tensor(2.5).float().item() == tape.tensor(2.5).half().item() == 2.5
        assert tape.tensor([True, False]).double().tolist() == [1.0, 0.0]
        with pytest.raises(RuntimeError, match="no gradients"):
            x.half()


def test_a_program_records_integers_and_casts() -> None:
    def step(x: Any, n: Any) -> Any:
        return x * (n + 1) + (n / 2)

    a, n = np.array([1.0, 2.0]), np.array([3, 4])
    program = tape.record(step, tape.tensor(a), tape.tensor(n))
    for k in range(AGAIN):
        np.testing.assert_allclose(np.asarray(program(a + k, n + k)), step(a + k, n + k))
        np.testing.assert_allclose(step(tape.tensor(a + k), tape.tensor(n + k)).numpy(), step(a + k, n + k))


RECORDS = [
    op
    for op in OPS.values()
    if isinstance(op, Elementwise) and op.name in RUN and len(op.inputs) > 1 and op.differentiable and not op.condition
]
OTHERS = [tape.bool, tape.int64, tape.int32, tape.float32]


def gradients(op: Elementwise, place: int, dtype: Any, *, cast: bool) -> Any:
    """Return value and gradients of an operation, one of whose operands has another dtype, or was cast from it."""
    x = tape.tensor([0.3, 0.6, 0.7, 0.2, 0.9], requires_grad=True)
    operands = [x * 0.9, x * 0.7 + 0.1, x * 1.1, x * 0.5 + 0.3]
    operands = [v if rule else v.detach() for v, rule in zip(operands, op.pullback, strict=False)]
    operands[place] = (x.detach() * 2.9).to(dtype)
    if cast:
        operands[place] = operands[place].to(tape.float64)
    try:
        y = RUN[op.name](*operands)
        found = tape.autograd.grad(y, x, tape.tensor([1.0, 0.5, 2.0, -1.0, 3.0]), allow_unused=True)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        return str(type(error))
    return [np.array(v.detach().numpy()) for v in (y, *found) if v is not None]


@pytest.mark.parametrize("op", RECORDS, ids=lambda op: op.name)
def test_gradients_of_repeated_calls_are_those_of_cast_operands(op: Elementwise) -> None:
    for place, dtype in itertools.product(range(len(op.inputs)), OTHERS):
        expected = gradients(op, place, dtype, cast=True)
        for call in range(AGAIN):
            found = gradients(op, place, dtype, cast=False)
            if isinstance(found, str) or isinstance(expected, str):
                break  # refused, or another operation: of integers, say
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=f"operand {place}, {dtype}, call {call}")
