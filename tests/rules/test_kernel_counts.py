"""Kernels belong to operations, dtypes and patterns of strides: never to lengths, places or numbers."""

# ruff: noqa: ARG005 (a case takes of the numbers what it needs)

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.language import jit
from kernels.rules.op import SMALL
from kernels.sweeps import reverse
from tape import Tensor

pytestmark = pytest.mark.skipif(not reverse.NATIVE, reason="no kernels without native code")

RNG = np.random.default_rng(0)
SIZES = ((3, 7, 2), (5, 11, 3), (4, 8, 5))


def leaf(*shape: int) -> Tensor:
    """Return a tensor of numbers between 1 and 2."""
    return tape.tensor(RNG.random(shape) + 1.0, requires_grad=True)


def written(n: int, m: int, p: int) -> Tensor:
    x = leaf(m + 9) * 1.0
    x[n : n + m] = leaf(m)
    x[n] = float(p)
    x[n + 1] = leaf()
    x[np.arange(p)] = leaf(p)
    return x


def weighted(parts: Any) -> Tensor:
    total: Tensor = sum(part.sum() * float(k) for k, part in enumerate(parts))
    return total


CASES: dict[str, Callable[[int, int, int], Tensor]] = {
    "stack": lambda n, m, p: tape.stack([leaf(m) for _ in range(n)]),
    "stack along 1": lambda n, m, p: tape.stack([leaf(m) for _ in range(n)], 1),
    "np.stack": lambda n, m, p: np.stack([leaf(m) for _ in range(n)]),
    "cat": lambda n, m, p: tape.cat([leaf(m + i) for i in range(n)]),
    "cat along 1": lambda n, m, p: tape.cat([leaf(3, m + i) for i in range(n)], 1),
    "tensor of tensors": lambda n, m, p: tape.tensor([leaf() for _ in range(n)]),
    "slice": lambda n, m, p: leaf(m + 9)[n : n + m],
    "strided slice": lambda n, m, p: leaf(m + 9)[n : n + m : 2],
    "integer": lambda n, m, p: leaf(m + 9)[n],
    "column": lambda n, m, p: leaf(m, m)[:, n],
    "index": lambda n, m, p: leaf(m + 9)[np.arange(n) + p],
    "split": lambda n, m, p: weighted(tape.split(leaf(n * m), m)),
    "unbind": lambda n, m, p: weighted(leaf(n, m)),
    "pad": lambda n, m, p: np.pad(leaf(m), (n, p)),
    "write": written,
    "cumsum": lambda n, m, p: leaf(n, m).cumsum(0),
    "sum along 0": lambda n, m, p: leaf(n, m).sum(0),
    "sum along 1": lambda n, m, p: leaf(n, m).sum(1),
    "max": lambda n, m, p: leaf(n, m).max(1).values,
    "amax": lambda n, m, p: leaf(n, m).amax(1),
    "norm": lambda n, m, p: tape.linalg.norm(leaf(n, m), dim=1),
    "quantile": lambda n, m, p: tape.quantile(leaf(n, 8), p / 10),
    "roll": lambda n, m, p: tape.roll(leaf(m + 9), n),
    "diff": lambda n, m, p: tape.diff(leaf(m + 9), n=2),
    "unfold": lambda n, m, p: leaf(m + 9).unfold(0, n, 1),
    "var": lambda n, m, p: leaf(n, m).var(1),
    "logsumexp": lambda n, m, p: tape.logsumexp(leaf(n, m), 1),
    "diagonal": lambda n, m, p: leaf(n + 4, m + 4).diagonal(n % 3),
    "tril": lambda n, m, p: tape.tril(leaf(n + 4, m + 4), p % 3),
    "matmul": lambda n, m, p: leaf(n, m) @ leaf(m, n + 1),
    "clamp": lambda n, m, p: tape.clamp(leaf(m), p / 9, float(p)),
    "add a number": lambda n, m, p: leaf(m) + p,
    "multiply by a number": lambda n, m, p: leaf(m) * p,
    "number to a power": lambda n, m, p: p ** leaf(m),
    "remainder": lambda n, m, p: leaf(m) % p,
    "where": lambda n, m, p: tape.where(leaf(m) > 1.5, leaf(m), p),
    "lerp": lambda n, m, p: tape.lerp(leaf(m), leaf(m), p / 20),  # from 1/2 on it is another operation
    "whole power": lambda n, m, p: leaf(m) ** p,
    "power and a half": lambda n, m, p: leaf(m) ** (p + 0.5),
    "power": lambda n, m, p: leaf(m) ** (p / 3 - 1.7),
    "inverse power": lambda n, m, p: leaf(m) ** -p,
}


def kernels_of(run: Callable[[], Tensor]) -> set[str]:
    before = set(jit._loaded)
    (run() ** 2).sum().backward()
    return set(jit._loaded) - before


@pytest.mark.parametrize("name", CASES)
def test_no_kernel_for_a_length_a_place_or_a_number(name: str) -> None:
    run = CASES[name]
    kernels_of(lambda: run(*SIZES[0]))
    for sizes in SIZES[1:]:
        assert kernels_of(lambda sizes=sizes: run(*sizes)) == set()  # type: ignore[misc]


def test_a_replay_joins_by_one_kernel() -> None:
    def joined(*parts: Tensor) -> Tensor:
        return tape.stack(parts).sum() + (tape.cat(parts) ** 2).sum()

    tape.record(joined, *[leaf(7) for _ in range(3)]).value_and_grad(*[leaf(7) for _ in range(3)])
    before = set(jit._loaded)
    tape.record(joined, *[leaf(9) for _ in range(5)]).value_and_grad(*[leaf(9) for _ in range(5)])
    assert set(jit._loaded) == before


# Powers.

EXPONENTS = sorted(SMALL)
NUMBERS = np.concatenate([np.exp(RNG.uniform(-60, 60, 400)), 1.0 + RNG.random(400)])


def off(found: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> float:
    """Return by how many units in the last place the worst is off."""
    return float(np.max(np.abs(found - exact) / np.spacing(np.abs(exact.astype(found.dtype)))))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("p", EXPONENTS)
def test_small_powers_are_products(p: float, dtype: type) -> None:
    numbers = NUMBERS.astype(dtype) if dtype is np.float64 else NUMBERS[400:].astype(dtype)
    exact = np.longdouble(numbers) ** np.longdouble(p)
    x = tape.tensor(numbers, requires_grad=True)
    y = x**p
    y.sum().backward()
    slope = p * np.longdouble(numbers) ** np.longdouble(p - 1)
    assert y.dtype == dtype
    assert off(y.detach().numpy(), exact) <= 4.0
    assert off(x.grad.numpy(), slope) <= 6.0


@pytest.mark.parametrize("p", [*EXPONENTS, 0.0, 5.0, 1.7, -2.3])
def test_replayed_powers_agree_in_every_bit(p: float) -> None:
    with np.errstate(all="ignore"):
        edges = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.5, 1e-310, 1e300]
        numbers = np.concatenate([edges, RNG.normal(size=50)])
        dynamic = tape.tensor(numbers, requires_grad=True)
        value = (dynamic**p).sum()
        value.backward()
        program = tape.record(lambda x: (x**p).sum(), tape.tensor(numbers))
        replayed, gradient = program.value_and_grad(numbers)
    assert np.asarray(replayed).tobytes() == value.detach().numpy().tobytes()
    assert np.asarray(gradient).tobytes() == dynamic.grad.numpy().tobytes()


@pytest.mark.parametrize("p", EXPONENTS)
def test_small_powers_end_as_numpy_s_do(p: float) -> None:
    edges = np.array([0.0, np.inf, np.nan, -2.0, *([-0.0, -np.inf] if (2 * p) % 2 == 0 else [])])
    with np.errstate(all="ignore"):
        expected = edges**p
        found = (tape.tensor(edges) ** p).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(found)]))


def test_inverses_too_small_to_overflow_do_not_warn() -> None:
    with np.errstate(all="raise", under="ignore"):
        assert (tape.tensor([1e200]) ** -3).item() == 0.0
