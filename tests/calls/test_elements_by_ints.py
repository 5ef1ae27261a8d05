"""Elements and rows by any ints: native code has one entry for all of them, of each pattern of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds import call_entries

SHAPE = (9, 10, 3)


def layouts() -> list[Any]:
    x = tape.tensor(np.arange(270.0).reshape(SHAPE), requires_grad=True)
    return [x, (x * 1.0).transpose(0, 2), (x * 2.0)[::-1, 1:, ::2], (x * 1.0)[3], (x * 1.0)[..., 1].T]


@pytest.mark.quick
@pytest.mark.parametrize("layout", range(5))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_reading(layout: int, count: int) -> None:
    x = layouts()[layout]
    count = min(count, x.ndim)
    values, total, places = x.detach().numpy(), x.sum() * 0.0, list(np.ndindex(*x.shape[:count]))
    expected = np.zeros(x.shape)
    for number, place in enumerate(places):
        for key in (
            place,
            tuple(k - n for k, n in zip(place, x.shape, strict=False)),
            (*place[:-1], place[-1] - x.shape[count - 1]),
        ):
            y = x[key] if count > 1 else x[key[0]]
            np.testing.assert_array_equal(y.detach().numpy(), values[key])
        total = total + (y * number).sum()
        expected[place] += number
    for key in ((x.shape[0],), (-x.shape[0] - 1,), (*(0,) * (x.ndim - 1), x.shape[-1]), (0,) * (x.ndim + 1)):
        with pytest.raises(IndexError):
            x[key]
    (gradient,) = tape.autograd.grad(total, x, retain_graph=True)
    np.testing.assert_array_equal(gradient.numpy(), expected)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_writing(count: int) -> None:
    weights = tape.tensor(np.random.default_rng(0).normal(size=SHAPE))
    x = tape.tensor(np.arange(270.0).reshape(SHAPE), requires_grad=True)
    y, z, numbers = x * 1.0, x.detach().numpy().copy(), tape.tensor(np.linspace(1, 2, 270), requires_grad=True)
    expected, kept = np.zeros(270), weights.numpy().copy()
    for number, place in enumerate(np.ndindex(*SHAPE[:count])):
        if number % 3:
            key = place if number % 2 else tuple(k - n for k, n in zip(place, SHAPE, strict=False))
            y[key if count > 1 else key[0]] = numbers[number]
            z[key] = numbers[number].item()
            expected[number], kept[place] = kept[place].sum(), 0.0
    np.testing.assert_array_equal(y.detach().numpy(), z)
    for key in ((9,), (-10,), (0, 10), (0, 0, -4)):
        with pytest.raises(IndexError):
            y[key] = 1.0
    (y * weights).sum().backward()
    np.testing.assert_allclose(numbers.grad.numpy(), expected)
    np.testing.assert_allclose(x.grad.numpy(), kept)


def test_elements_share_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    x, written = tape.tensor(np.ones((80, 80)), requires_grad=True), []
    write = call_entries._write
    monkeypatch.setattr(call_entries, "_write", lambda words, *rest: (written.append(words), write(words, *rest))[1])
    for place in np.ndindex(80, 80):
        x[place]
    assert len(written) < 400
