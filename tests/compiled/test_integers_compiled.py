"""Index arrays, masks and labels as arguments of compiled functions: integers in machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(4)


def embedded(x: Any, w: Any, index: Any) -> Any:
    return (tape.tanh(x[index] @ w) ** 2).sum()


def labelled(x: Any, w: Any, labels: Any) -> Any:
    logs = tape.log_softmax(x @ w, -1)
    return -(logs[np.arange(len(x)), labels]).mean()


def masked(x: Any, w: Any, index: Any) -> Any:
    chosen = index[: len(w)] > 2
    return (x.sum(1)[: len(w)] * chosen).sum() * (x > 0).sum() + (w[:, 0] * index[: len(w)]).sum()


def in_steps(x: Any, w: Any, index: Any) -> Any:
    u = x.sum(1)
    for k in range(20):
        u = u + 0.01 * tape.sin(u[index]) * w[0, 0] * k
    return (u * u).sum()


CASES: list[tuple[Callable[..., Any], int]] = [(embedded, 30), (labelled, 5), (masked, 7), (in_steps, 30)]


def arguments(most: int, seed: int) -> tuple[Any, ...]:
    chance = np.random.default_rng(seed)
    return chance.normal(size=(30, 8)), chance.normal(size=(8, 5)), chance.integers(0, most, 30)


@pytest.mark.parametrize(("function", "most"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_gradients_are_those_of_dynamic_mode(function: Callable[..., Any], most: int) -> None:
    gradient = tape.value_and_grad(function, (0, 1))
    compiled = tape.compile(gradient, mode="max", check="never")
    for seed in range(8):
        given = arguments(most, seed)
        value, gradients = gradient(*given)
        got, slopes = compiled(*given)
        assert got == pytest.approx(value, rel=1e-12)
        for one, other in zip(slopes, gradients, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    text = compiled.explain()
    assert "machine code" in text
    assert "interpreter" not in text


@pytest.mark.parametrize("place", [30, -31, 1 << 40])
def test_a_place_out_of_bounds_raises(place: int) -> None:
    compiled = tape.compile(tape.value_and_grad(embedded, (0, 1)), mode="max", check="never")
    for seed in range(4):
        compiled(*arguments(30, seed))
    x, w, index = arguments(30, 5)
    before = compiled(x, w, index)
    index[7] = place
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(x, w, index)
    index[7] = -1
    value, _ = tape.value_and_grad(embedded, (0, 1))(x, w, index)
    assert compiled(x, w, index)[0] == pytest.approx(value, rel=1e-12)
    assert before[0] != value


@pytest.mark.parametrize("keeps_python", [False, True])
def test_a_guard_in_a_loop_tells_its_step(keeps_python: bool) -> None:
    """Guards in rolled loops have the numbers of those that were recorded: another way is recorded, and found again."""

    def stepped(x: Any) -> Any:
        s = 0.0 * x[0]
        for k in range(60):
            s = s * 0.99 + tape.sin(x[k % 7] * (k + 1.0))
            s = s + 1.0 if s > k - 50.0 else s - 2.0 * x[1]
        return s

    def unrolled(x: Any) -> Any:
        s = 0.0 * x[0]
        for k in range(60):
            s = s * 0.99 + tape.sin(x[k % 7] * (k + 1.0))
            s = s + 1.0 if s > [k - 50.0][-isinstance(k, int)] else s - 2.0 * x[1]
        return s

    gradient = tape.value_and_grad(unrolled if keeps_python else stepped)
    compiled = tape.compile(gradient, mode="max", check="never")
    points = [np.linspace(0.0, 1.0, 7) * scale for scale in (1.0, 2.0, -40.0, 0.5, -90.0)]
    for x in points * 4:
        value, slope = gradient(x)
        got = compiled(x)
        assert got[0] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(got[1], slope, rtol=1e-11, atol=1e-12)
    told = compiled.explain()
    assert ("loop, 60 times" if keeps_python else "loop, until it ends") in told
    assert "remainder by the interpreter" not in told


@pytest.mark.parametrize("divisor", [1, 7, 1 << 40, (1 << 53) + 1, -3])
def test_quotients_of_large_integers(divisor: int) -> None:
    def parted(k: Any) -> tuple[Any, ...]:
        return k // divisor, k % divisor, k // divisor * divisor + k % divisor

    compiled = tape.compile(parted, mode="max", check="never")
    ends = np.array([-(1 << 63), -(1 << 60) - 1, -8, -7, -1, 0, 1, 6, 7, (1 << 53) + 1, (1 << 62) + 3, (1 << 63) - 1])
    for k in (ends, ends[::-1].copy(), ends - 1, ends // 3):
        for got, expected in zip(compiled(k), (k // divisor, k % divisor, k), strict=True):
            np.testing.assert_array_equal(got, expected)
        for number in (7, divisor):  # in dynamic mode the second is the first, with another number
            np.testing.assert_array_equal(tape.tensor(k) // number, k // number)
    assert ("floor_divide by" in compiled.explain()) == (not 0 < divisor < 1 << 53)


def counted(x: Any, w: Any, index: Any) -> tuple[Any, Any]:
    """Return a loss, and what is counted and found beside it."""
    scores = x @ w
    best, hits = tape.argmax(scores, -1), 0 * index.sum()
    for k in range(15):
        hits = hits + (best == (index + k) % 5).sum()
    return scores.square().mean(), {"hits": hits, "best": best, "index": index[::2] * 3, "none": x[:3, :3] > 0.0}


@pytest.mark.parametrize("mode", ["max", "eager"])
def test_results_that_are_integers(mode: str) -> None:
    gradient = tape.value_and_grad(counted, has_aux=True)
    compiled = tape.compile(gradient, mode=mode, check="never")
    for seed in range(6):
        given = arguments(5, seed)
        ((value, aux), slope), ((got, others), found) = gradient(*given), compiled(*given)
        assert got == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(found, slope, rtol=1e-12)
        for name, expected in aux.items():
            assert others[name].dtype == expected.dtype
            assert others[name].shape == expected.shape
            np.testing.assert_array_equal(others[name], expected)
    assert ("machine code:" in compiled.explain()) == (mode == "max")


def test_native_code_takes_integers_out() -> None:
    compiled = tape.compile(lambda x: ((x > 0.0).sum(), tape.argmax(x, 0)), mode="max")
    x = np.random.default_rng(1).normal(size=40)
    for _ in range(4):
        count, place = compiled(x)
    assert (count, place) == ((x > 0.0).sum(), x.argmax())
    native = compiled.native

    @numba.njit
    def called(x: Any) -> Any:
        return native(x)

    assert tuple(called(x))[-2:] == (count, place)


LARGE = (1 << 60) + 1  # no float64


WHOLE: dict[str, Callable[..., Any]] = {  # of tensors and of arrays
    "truths times a number": lambda _, i: i + (i < 0) * 3,
    "truths times integers": lambda x, i: (i > 0) * i - (x[:3] > 0) * 1,
    "a number of 61 bits": lambda _, i: (i > 0) * LARGE,
    "floats as integers": lambda x, _: (x * 1e15).astype(np.int64),
    "the first largest": lambda x, _: x.argmax(),
    "the first least of rows": lambda x, _: x.reshape(2, -1).argmin(1),
    "how many": lambda x, _: np.count_nonzero(x),
    "one truth": lambda x, _: x[0].any(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_integers_are_exact(name: str) -> None:
    compiled = tape.compile(WHOLE[name], mode="max", check="never")
    x, index = RNG.normal(size=6), np.array([LARGE, -5, 3])
    for k in range(3):
        compiled(x + k, index)
    for values in (
        x,
        -x,
        [np.nan, 1, np.inf, np.nan, 2, 2],
        [-np.inf] * 6,
        [0.0, -0.0, 0, 1, 1, 1],
        [-1e300, 2e9, np.nan, 1, 2, 3],
    ):
        given = np.array(values, np.float64)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(compiled(given, index), WHOLE[name](given, index))
    text = compiled.explain()
    assert "machine code:" in text
    assert "call of" not in text
