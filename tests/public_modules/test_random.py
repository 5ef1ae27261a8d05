"""Random numbers: PyTorch's for the same seed, its signatures and errors, in place and into `out`."""

from __future__ import annotations

import copy
import math
import pickle
import random
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes


def _both(pytorch: Outcomes, key: str, draw: Any, seed: int = 11, **tolerance: float) -> None:
    """Run the same lines on both libraries; ``draw`` takes the library and a float dtype."""
    for name in ("float64", "float32"):

        def drawn(library: Any, name: str = name) -> list[Any]:
            library.manual_seed(seed)
            return list(draw(library, getattr(library, name)))

        for got, expected in zip(drawn(tape), pytorch(drawn, f"{key} {name}"), strict=True):
            np.testing.assert_allclose(
                got.numpy(), expected.numpy(), **({"rtol": 1e-6} if name == "float32" else {"rtol": 1e-15}) | tolerance
            )
            assert got.numpy().dtype == expected.numpy().dtype


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**32 + 5, 2**63, -3])
def test_seeds_are_pytorchs(seed: int, pytorch: Outcomes) -> None:
    _both(pytorch, f"seed {seed}", lambda lib, dtype: [lib.rand(5, dtype=dtype), lib.randint(0, 1000, (4,))], seed)


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 31, 32, 100])
def test_normal_numbers_are_pytorchs(count: int, pytorch: Outcomes) -> None:
    _both(
        pytorch,
        f"{count} normal numbers",
        lambda lib, dtype: [lib.randn(count, dtype=dtype), lib.randn(3, dtype=dtype), lib.rand(2, dtype=dtype)],
        atol=2e-6,
    )


DRAWS = {
    "rand": lambda lib, dtype: [lib.rand(2, 3, dtype=dtype), lib.rand((2,), dtype=dtype)],
    "randint": lambda lib, dtype: [lib.randint(10, (5,)), lib.randint(-3, 4, (2, 2)),
        lib.randint(0, 5, (3,), dtype=dtype)],
    "wide randint": lambda lib, _: [lib.randint(-(2**40), 2**41, (5,)), lib.randint(5, (2,))],
    "randperm": lambda lib, _: [lib.randperm(n) for n in (0, 1, 2, 9, 40)],
    "like": lambda lib, dtype: [
        lib.rand_like(lib.zeros(3, dtype=dtype)), lib.randn_like(lib.zeros(3, dtype=dtype)),
        lib.randint_like(lib.zeros(3, dtype=dtype), 7),
    ],
    "uniform_": lambda lib, dtype: [lib.empty(7, dtype=dtype).uniform_(-2, 3), lib.empty(2, dtype=dtype).uniform_()],
    "normal_": lambda lib, dtype: [lib.empty(3, dtype=dtype).normal_(1, 2),
        lib.empty(3, dtype=dtype).normal_(mean=1.0, std=0.5)],
    "normal of a size": lambda lib, dtype: [lib.normal(1.0, 2.0, (4,), dtype=dtype),
        lib.normal(0, 1, size=(20,), dtype=dtype)],
    "normal of tensors": lambda lib, dtype: [
        lib.normal(lib.arange(3, dtype=dtype), 0.5), lib.normal(1.0, lib.ones(3, dtype=dtype)),
        lib.normal(lib.zeros(3, dtype=dtype), lib.ones(3, dtype=dtype)),
    ],
    "multinomial": lambda lib, dtype: [
        *(lib.multinomial(lib.rand(3, 7, dtype=dtype), n, over) for n in (1, 3) for over in (False, True)),
        lib.multinomial(lib.tensor([0.0, 2.0, 1.0], dtype=dtype), 9, replacement=True), lib.rand(2, dtype=dtype)],
    "random_": lambda lib, _: [lib.zeros(4, dtype=lib.int64).random_(0, 9), lib.zeros(4, dtype=lib.int32).random_(5)],
    "transposed": lambda lib, dtype: [lib.zeros(2, 3, dtype=dtype).uniform_().t()],
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_pytorchs(name: str, pytorch: Outcomes) -> None:
    _both(pytorch, name, DRAWS[name], atol=1e-6)


FLOATS, INTEGERS = ("float64", "float32", "float16"), ("int64", "int32", "int16", "int8", "uint8", "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (17,), (2, 9))


def _filled(name: str, *args: Any) -> Any:
    """Return a draw that fills tensors: whole ones, every other element of one, a transposed one."""

    def fill(lib: Any, dtype: Any, generator: Any) -> list[Any]:
        made = [lib.zeros(shape, dtype=dtype) for shape in SHAPES]
        made += [lib.zeros(34, dtype=dtype)[::2], lib.zeros(6, 3, dtype=dtype).t()]
        return [getattr(x, name)(*args, generator=generator) for x in made]

    return fill


def _odds(lib: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return (lib.arange(math.prod(shape), dtype=lib.float64) * 0.37 % 1.0).reshape(shape).to(dtype)


FILLS = {
    "rand": (FLOATS, lambda lib, dtype, g: [lib.rand(s, dtype=dtype, generator=g) for s in SHAPES]),
    "randn": (FLOATS, lambda lib, dtype, g: [lib.randn(s, dtype=dtype, generator=g) for s in SHAPES]),
    "normal of a size": (FLOATS, lambda lib, dtype, g: [lib.normal(1.5, 2.0, s, dtype=dtype, generator=g)
        for s in SHAPES]),
    "normal of tensors": (FLOATS, lambda lib, dtype, g: [lib.normal(_odds(lib, s, dtype), 0.3, generator=g)
        for s in SHAPES]),
    "randint": ((*FLOATS, *INTEGERS[:-1]), lambda lib, dtype, g: [lib.randint(3, 100, s, dtype=dtype, generator=g)
        for s in SHAPES]),
    "far randint": (("int64",), lambda lib, dtype, g: [lib.randint(n, (3,), dtype=dtype, generator=g)
        for n in (2**28 - 1, 2**28, 2**32, 2**62)]),
    "randperm": (INTEGERS[:3], lambda lib, dtype, g: [lib.randperm(n, dtype=dtype, generator=g) for n in (1, 20)]),
    "uniform_": (FLOATS, _filled("uniform_", 1000.0, 1000.01)),
    "normal_": (FLOATS, _filled("normal_", -3.0, 0.5)),
    "exponential_": (FLOATS, _filled("exponential_", 2.5)),
    "bernoulli_": (FLOATS + INTEGERS, _filled("bernoulli_", 0.3)),
    "random_": (FLOATS + INTEGERS, _filled("random_")),
    "random_ to": (FLOATS + INTEGERS[:-1], _filled("random_", 100)),
    "random_ from to": (FLOATS + INTEGERS[:-2], _filled("random_", -4, 9)),
    "random_ from": (FLOATS + INTEGERS[:-1], _filled("random_", 3, None)),
    "random_ of all": (("int64",), _filled("random_", -(2**63), None)),
    "bernoulli of a tensor": (FLOATS, lambda lib, dtype, g: [lib.bernoulli(_odds(lib, s, dtype), generator=g)
        for s in SHAPES]),
    "bernoulli_ of a tensor": (FLOATS, lambda lib, dtype, g: [
        lib.zeros(s).bernoulli_(_odds(lib, s, dtype), generator=g) for s in SHAPES]),
    "bernoulli with p": (("float32", "int64"), lambda lib, dtype, g: [
        lib.ones(s, dtype=dtype).bernoulli(0.4, generator=g) for s in SHAPES]),
}  # fmt: skip
"""Draws of every kind, by the dtypes that they are for."""


def _assert_alike(got: Any, expected: Any) -> None:
    assert got.dtype == expected.dtype
    rtol, atol = {"float64": (1e-12, 1e-14), "float32": (2e-6, 3e-6), "float16": (2e-3, 1e-3)}.get(
        got.dtype.name, (0, 0)
    )
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


@pytest.mark.quick
@pytest.mark.parametrize("name", FILLS)
def test_each_dtype_and_layout_has_pytorchs_numbers(name: str, pytorch: Outcomes) -> None:
    dtypes, draw = FILLS[name]
    for dtype in dtypes:

        def drawn(lib: Any, dtype: str = dtype) -> list[Any]:
            generator = lib.Generator().manual_seed(3)
            numbers = draw(lib, getattr(lib, dtype), generator)
            return [*numbers, lib.rand(2, dtype=lib.float64, generator=generator)]  # the state is the same, too

        for got, expected in zip(drawn(tape), pytorch(drawn, f"{name} of {dtype}"), strict=True):
            _assert_alike(got.numpy(), expected.numpy())


@pytest.mark.parametrize("seed", range(10))
def test_sequences_of_draws_have_pytorchs_numbers(seed: int, pytorch: Outcomes) -> None:
    def drawn(lib: Any) -> list[Any]:
        choices, generator = random.Random(seed), lib.Generator().manual_seed(seed)  # noqa: S311 (no secret)
        numbers = []
        for _ in range(8):
            dtypes, draw = FILLS[choices.choice(list(FILLS))]
            some = draw(lib, getattr(lib, choices.choice(dtypes)), generator)
            numbers.append(choices.choice(some))
        return numbers

    for got, expected in zip(drawn(tape), pytorch(drawn, f"sequence {seed}"), strict=True):
        _assert_alike(got.numpy(), expected.numpy())


def test_bounds_of_random_integers() -> None:
    x = tape.zeros(3, dtype=tape.int8)
    assert x.random_(**{"from": 120}).min() >= 120
    assert x.random_(**{"from": 3, "to": 5}).max() < 5
    for bounds in ((200,), (-200, 3), (5, 5)):
        with pytest.raises(RuntimeError, match="random_"):
            x.random_(*bounds)
    with pytest.raises(RuntimeError, match="floating type"):
        tape.ones(3, dtype=tape.int64).bernoulli()


def test_one_seed_twice() -> None:
    def numbers() -> list[Any]:
        return [tape.rand(2).numpy(), tape.randn(3).numpy(), tape.randn(40).numpy(), tape.randperm(5).numpy()]

    first, second = (tape.manual_seed(3) and numbers() for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_generators_are_apart() -> None:
    a, b = tape.Generator().manual_seed(7), tape.Generator().manual_seed(7)
    tape.rand(3)
    np.testing.assert_array_equal(tape.rand(3, generator=a).numpy(), tape.rand(3, generator=b).numpy())
    assert a.initial_seed() == 7
    assert a.device == "cpu"
    assert a.seed() == a.initial_seed()
    with pytest.raises(TypeError, match="generator"):
        tape.rand(3, generator=np.random.default_rng())


def test_states_go_on_where_they_were() -> None:
    tape.manual_seed(5)
    tape.randn(3)  # keeps the second of a pair
    state = tape.get_rng_state()
    first = tape.randn(5).numpy()
    tape.set_rng_state(state)
    np.testing.assert_array_equal(tape.randn(5).numpy(), first)
    with tape.random.fork_rng():
        tape.rand(9)
    again = tape.randn(2).numpy()
    tape.set_rng_state(state)
    tape.randn(5)
    np.testing.assert_array_equal(tape.randn(2).numpy(), again)
    with pytest.raises(RuntimeError, match="not a saved state"):
        tape.set_rng_state(tape.zeros(3))


def test_moments() -> None:
    tape.manual_seed(0)
    n = 200_000
    for drawn, mean, deviation in (
        (tape.rand(n), 0.5, 12**-0.5),
        (tape.randn(n), 0.0, 1.0),
        (tape.empty(n).exponential_(2.0), 0.5, 0.5),
        (tape.full((n,), 0.25).bernoulli(), 0.25, 0.1875**0.5),
    ):
        assert abs(drawn.mean().item() - mean) < 6 * deviation / n**0.5
        assert abs(drawn.std().item() - deviation) < 0.01


def test_out_takes_the_numbers() -> None:
    out = tape.empty(2, 3)
    tape.manual_seed(1)
    assert tape.rand(2, 3, out=out) is out
    tape.manual_seed(1)
    np.testing.assert_array_equal(out.numpy(), tape.rand(2, 3).numpy())
    assert tape.randint(0, 3, (2, 3), out=tape.empty(2, 3, dtype=tape.int32)).dtype == tape.int32
    with pytest.raises(RuntimeError, match="out has shape"):
        tape.rand(4, out=out)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        tape.rand(3, out=tape.zeros(3, requires_grad=True))


def test_a_fill_cuts_the_gradient() -> None:
    x = tape.ones(3, requires_grad=True)
    y = x * 2
    y[1:].uniform_()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 0.0, 0.0])
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.normal_()
    with tape.no_grad():
        before = x._version
        assert x.uniform_() is x
        assert x._version == before + 1


def test_bad_arguments_draw_nothing() -> None:
    tape.manual_seed(2)
    state = tape.get_rng_state().numpy().copy()
    for call, match in (
        (lambda: tape.rand(2, dtype=tape.int64), "randint"),
        (lambda: tape.randint(5, 5, (2,)), "less than"),
        (lambda: tape.randint(5), "size"),
        (lambda: tape.randint(0, 300, (2,), dtype=tape.uint8), "out of bounds"),
        (lambda: tape.zeros(2).uniform_(2, 1), "from=2 > to=1"),
        (lambda: tape.zeros(2).normal_(0, -1), "std"),
        (lambda: tape.normal(0.0, 1.0), "size"),
        (lambda: tape.rand(-1), "negative dimension"),
        (lambda: tape.randperm(-1), "non-negative"),
        (lambda: tape.full((2,), 1.5).bernoulli(), "probabilities"),
        (lambda: tape.multinomial(tape.ones(2), 3), "without replacement"),
        (lambda: tape.multinomial(tape.ones(2), 0), "n_sample <= 0"),
        (lambda: tape.multinomial(tape.zeros(2, 2), 1), "sum of probabilities <= 0"),
        (lambda: tape.multinomial(tape.tensor([-1.0, 2.0]), 1), "element < 0"),
        (lambda: tape.multinomial(tape.tensor([1, 2]), 1), "floating-point"),
        (lambda: tape.multinomial(tape.ones(2, 2, 2), 1), "1 or 2 dim"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=match):
            call()
    np.testing.assert_array_equal(tape.get_rng_state().numpy(), state)


@pytest.mark.parametrize(
    "again",
    [lambda g: pickle.loads(pickle.dumps(g)), copy.copy, copy.deepcopy, tape.Generator.clone_state],  # noqa: S301
)
def test_a_generator_that_was_pickled_or_copied_goes_on_by_itself(again: Any) -> None:
    """With a normal number kept for the next call, and from the middle of the twister's block."""
    a = tape.Generator().manual_seed(3)
    tape.randn(5, generator=a)
    tape.rand(100, generator=a)
    b = again(a)
    assert (b is not a, type(b), b.initial_seed()) == (True, tape.Generator, 3)
    np.testing.assert_array_equal(b.get_state().numpy(), a.get_state().numpy())
    for _ in range(2):
        drawn = tape.randn(3, generator=a).numpy()
        np.testing.assert_array_equal(tape.randn(3, generator=b).numpy(), drawn)
    tape.rand(1, generator=a)
    assert not np.array_equal(b.get_state().numpy(), a.get_state().numpy())


def test_a_kept_generator_copies() -> None:
    a = tape.Generator().manual_seed(3)
    b = tape.Generator()
    b.set_state(a.get_state())
    assert copy.copy(b.initial_seed()) == 3
    np.testing.assert_array_equal(tape.randn(3, generator=a).numpy(), tape.randn(3, generator=b).numpy())
