"""uint8 tensors as indices are masks, as in PyTorch, with a warning; in functions of NumPy arrays they are integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning

pytestmark = pytest.mark.filterwarnings("ignore:a uint8 tensor as an index")

MATRIX = [[0.5, -1.0, 2.0, 3.0], [4.0, -2.0, 1.0, 7.0]]


def picked(x: Any, cast: Callable[[Any], Any]) -> Any:
    return (
        x[cast(x > 1)].sum(),
        x[:, cast(x[0] > 1)].sum(0),
        x[cast(x[:, 0] > 1), 1],
        x[..., cast(x[1] > 1)].prod(),
        x[[cast(x > 1)]],
    )


def assigned(x: Any, cast: Callable[[Any], Any]) -> Any:
    x = x * 1.0
    x[cast(x > 1)] = -1.0
    x[cast(x[:, 0] > 0)] *= 2.0
    x[1, cast(x[0] < 0)] = x[0, :3]
    return x


def added(x: Any, cast: Callable[[Any], Any]) -> Any:
    x = x * 1.0
    x.index_put_((cast(x > 1),), x[0, 1], accumulate=True)
    x.index_put_((cast(x < 0),), x[0, 2])
    x[cast(x > 3)] += 10.0
    return x


@pytest.mark.quick
@pytest.mark.parametrize("program", [picked, assigned, added])
def test_they_are_masks(program: Callable[..., Any]) -> None:
    x = tape.tensor(MATRIX, requires_grad=True)
    expected = tape.value_and_grad(lambda x: sum((y * y).sum() for y in program(x, lambda m: m)))(x)
    by_bytes: Callable[[Any], Any] = lambda x: sum((y * y).sum() for y in program(x, lambda m: m.byte()))  # noqa: E731
    for _ in range(3):
        for a, b in zip(tape.value_and_grad(by_bytes)(tape.tensor(MATRIX)), expected, strict=True):
            np.testing.assert_array_equal(a.detach(), b.detach())


@pytest.mark.parametrize("flag", [0, 1])
def test_without_dims(flag: int) -> None:
    x = tape.tensor(MATRIX)
    assert x[tape.tensor(flag, dtype=tape.uint8)].shape == (flag, 2, 4)
    x[tape.tensor(flag, dtype=tape.uint8)] = 5.0
    assert (x == 5.0).all() == bool(flag)


def test_a_mask_of_another_shape_raises() -> None:
    with pytest.raises(IndexError):
        tape.tensor(MATRIX)[tape.ones(3, dtype=tape.uint8)]


def test_arrays_are_integers() -> None:
    numbers = np.array([1, 0, 1], np.uint8)
    x, array = tape.tensor(MATRIX), np.array(MATRIX)
    np.testing.assert_array_equal(x[numbers], array[numbers])
    np.testing.assert_array_equal(np.delete(x, tape.tensor(numbers), 1), np.delete(array, numbers, 1))
    f = tape.compile(lambda x, i: x[i])
    with pytest.warns(CompileWarning, match="uint8"):
        results = [f(array, numbers) for _ in range(3)]
    for result in results:
        np.testing.assert_array_equal(result, array[numbers])


def test_a_warning_says_what_they_are() -> None:
    x, index = tape.tensor(MATRIX), tape.tensor([1, 0], dtype=tape.uint8)
    for _ in range(2):
        with pytest.warns(UserWarning, match="is a mask, as in PyTorch") as caught:
            x[index]
        assert caught[0].filename == __file__
        with pytest.warns(UserWarning, match="is a mask, as in PyTorch"):
            x[index] = 1.0
    with pytest.warns(UserWarning, match="is integers, as in NumPy"):
        tape.value_and_grad(lambda x: x[index].sum())(np.array(MATRIX))
