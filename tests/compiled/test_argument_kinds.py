"""What an argument is inside a compiled function: the same in dynamic mode, when recorded, and when checked."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.tensors.pytrees import flattened

pytestmark = pytest.mark.quick


@dataclasses.dataclass
class Pair:
    """A structure of a user's."""

    a: Any
    n: int


class Heir(np.ndarray):
    """A subclass of arrays."""


OTHERS = {
    "integers": lambda: np.arange(3),
    "bools": lambda: np.array([True, False]),
    "float": lambda: 0.5,
    "int": lambda: 2,
    "np.float64": lambda: np.float64(0.5),
    "np.float32": lambda: np.float32(0.5),
    "np.int64": lambda: np.int64(2),
    "0-d": lambda: np.array(2.0),
    "0-d int": lambda: np.array(2),
    "list": lambda: [np.arange(2), 0.5, 2],
    "dict": lambda: {"a": np.ones(2), "b": "s"},
    "dataclass": lambda: Pair(np.ones(2), 3),
    "float32": lambda: np.ones(2, np.float32),
    "str": lambda: "abc",
    "None": lambda: None,
    "objects": lambda: np.array([1, "a"], object),
    "complex": lambda: np.ones(2) * 1j,
    "subclass": lambda: np.ones(2).view(Heir),
    "strided": lambda: np.ones((3, 2))[:, 0],
    "swapped": lambda: np.ones(2, ">f8"),
    "tensor": lambda: tape.ones(2),
    "graph": lambda: tape.ones(2, requires_grad=True),
}
POINTS = {
    "array": lambda: np.ones(2),
    "float": lambda: 1.5,
    "int": lambda: 2,
    "float32": lambda: np.ones(2, np.float32),
    "integers": lambda: np.arange(2),
    "tensor": lambda: tape.ones(2),
    "leaf": lambda: tape.ones(2, requires_grad=True),
}
COMPILED: dict[str, Callable[..., Any]] = {
    "compile": tape.compile,
    "compile(value_and_grad)": lambda f, **options: tape.compile(tape.value_and_grad(f), **options),
    "value_and_grad(compile)": lambda f, **options: tape.value_and_grad(tape.compile(f, **options)),
    "compile(grad)": lambda f, **options: tape.compile(tape.func.grad(f), **options),
    "compile(grad_and_value)": lambda f, **options: tape.compile(tape.func.grad_and_value(f), **options),
}


def kind_of(x: Any) -> Any:
    if isinstance(x, (list, tuple, dict)):
        return type(x), [kind_of(part) for part in (x.values() if isinstance(x, dict) else x)]
    if isinstance(x, Pair):
        return Pair, kind_of(x.a), kind_of(x.n)
    return (type(x), x.dtype, x.ndim) if isinstance(x, (tape.Tensor, np.ndarray)) else type(x)


@pytest.mark.parametrize("check", ["sample", "always"])
@pytest.mark.parametrize("name", COMPILED)
def test_an_argument_is_the_same_at_each_call(name: str, check: str) -> None:
    for x in POINTS.values():
        for other in OTHERS.values():
            inside, results = [], []

            def function(x: Any, other: Any, seen: list[Any] = inside) -> Any:
                seen.append((kind_of(x), kind_of(other)))
                return np.sum(x * x)

            compiled = COMPILED[name](function, check=check)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results += [kind_of(compiled(x(), other())) for _ in range(5)]
            assert all(kind == inside[0] for kind in inside), inside
            assert all(kind == results[0] for kind in results), results


def test_an_index_array_beside_what_a_gradient_is_by() -> None:
    def loss(x: Any, places: Any) -> Any:
        return (x[places] ** 2).sum() + places.float().sum()

    compiled = tape.compile(tape.value_and_grad(loss))
    for seed in range(9):
        rng = np.random.default_rng(seed)
        x, places = rng.normal(size=5), rng.permutation(5)[:3]
        value, gradient = compiled(x, places)
        expected = np.zeros(5)
        expected[places] = 2 * x[places]
        assert value == pytest.approx((x[places] ** 2).sum() + places.sum())
        np.testing.assert_allclose(gradient, expected)


@pytest.mark.quick
def test_what_is_no_value_belongs_to_the_signature_and_is_told() -> None:
    def function(x: Any, z: complex, name: str, count: int, step: Any, nothing: Any) -> Any:
        assert (name, step, nothing) == ("a", np.int64(3), None)
        return (x * z.real * count).sum() + z.imag

    compiled = tape.compile(function)
    for _ in range(3):
        for z in (2j, complex(-0.0, 2.0), complex(1.0, -0.0)):
            assert compiled(np.ones(3), complex(z), "a", 4, np.int64(3), None) == 12.0 * z.real + z.imag
    text = compiled.explain()
    assert text.count("signature (") == 3
    assert "signature (array float64[3], (-0+2j), 'a', 4, np.int64(3), None)" in text


@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
def test_an_inner_gradient_that_depends_on_no_argument_is_of_one_kind_at_each_call() -> None:
    compiled = tape.compile(lambda x, y: (*tape.value_and_grad(lambda z: z * z)(2), x * y))
    kinds = [kind_of(compiled(tape.ones(2), 3)) for _ in range(6)]
    assert kinds == kinds[:1] * 6


def test_means_of_integers_are_numbers_as_of_arrays() -> None:
    def function(x: Any, image: Any) -> Any:
        return ((x - image.mean(axis=0)) ** 2).sum() * image.mean()

    compiled = tape.compile(tape.value_and_grad(function))
    for k in range(4):
        x, image = np.arange(3.0) + k, np.arange(6).reshape(2, 3) * (k + 1)
        value, gradient = compiled(x, image)
        assert value == pytest.approx(function(x, image))
        np.testing.assert_allclose(gradient, 2 * (x - image.mean(axis=0)) * image.mean())
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        tape.tensor([1, 2]).mean()


def turned(x: Any) -> Any:
    y = x * 2.0
    y[0] = x[1]
    return (y @ x.mT).sum() + (x.mT.reshape(-1)[:7] ** 3).sum()


@pytest.mark.parametrize("shape", [(4, 5), (40, 50), (3, 4, 5)])
def test_arguments_in_fortran_order_are_read_as_they_are(shape: tuple[int, ...]) -> None:
    """Their gradients are in C order, as in dynamic mode."""
    gradient = tape.value_and_grad(turned)
    compiled = tape.compile(gradient, mode="max", check="never")
    for k in range(6):
        x = np.asfortranarray(np.random.default_rng(k).normal(size=shape))
        for got, expected in zip(compiled(x), gradient(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-11)
            assert np.asarray(got).strides == np.asarray(expected).strides
    assert "machine code" in compiled.explain()


@pytest.mark.parametrize("mode", ["default", "eager"])
def test_the_interpreter_keeps_gradients_by_arrays_in_fortran_order(mode: str) -> None:
    """They are summed in the order of memory, and in dynamic mode in another: by rounding they differ."""
    gradient = tape.value_and_grad(lambda a: (a * a[0]).sum() + (a * a[:, :1]).sum())
    compiled = tape.compile(gradient, mode=mode)
    for k in range(20):
        x = np.asfortranarray(np.random.default_rng(k).normal(size=(7, 5)))
        for got, expected in zip(compiled(x), gradient(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)
    assert compiled.calls["dynamic"] == 0


LABELS: dict[str, Callable[[Any, Any], Any]] = {
    "indices": lambda x, i: (x[i] ** 2).sum(),
    "numbers": lambda x, i: (x[:4] * i + x[i] / (i + 1.5)).sum(),
    "compared": lambda x, i: tape.where(i == 2, x[:4], -1.0).sum() + x.sum() * (i > 3).sum(),
    "a condition": lambda x, i: (x * x).sum() if i.sum() > 9 else x.sum(),
    "in a loop": lambda x, i: sum((x[i] * k).sum() for k in range(9)),
    "a power": lambda x, i: (x[:4] ** i).sum(),
    "casts": lambda x, i: (x * x).sum() * (x > 0).int().sum() + tape.stack([x[:4], i]).sum(),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LABELS)
def test_integers_of_32_bits_do_not_bar_a_program(name: str, dtype: type) -> None:
    gradient = tape.value_and_grad(LABELS[name])
    compiled = tape.compile(gradient, mode="max", check="never")
    for k in range(8):
        rng = np.random.default_rng(k)
        x, i = rng.normal(size=6).astype(dtype), rng.integers(0, 6, 4).astype(np.int32)
        for got, expected in zip(compiled(x, i), gradient(x, i), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype is np.float64 else 1e-5)
    assert "machine code" in compiled.explain()


def test_results_of_32_bits_and_flags_of_no_dims() -> None:
    compiled = tape.compile(lambda x, b, i: (tape.where(b, x, -x), i, (x > 0).int(), i * x), mode="max")
    x, i = np.array([0.5, -1.0]), np.array([7, -(2**31)], np.int32)
    for k in range(8):
        results = compiled(x, np.array(k % 2 == 0), i)
        for got, expected in zip(results, (x * (-1) ** k, i, np.array([1, 0], np.int32), i * x), strict=True):
            np.testing.assert_array_equal(got, expected)
            assert got.dtype == expected.dtype
    assert "machine code" in compiled.explain()
    assert compiled.native(x, True, i, *results) == 0


def in_steps(x: Any, n: Any) -> Any:
    t, s = 0.0, x.sum()
    while t < n:
        s, t = s + n / 8.0 * tape.sin(s) * t, t + n / 4.0
    return s * t


FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda x, n: (x.sum() + n, n + x.sum(), x.sum() - n, n - x.sum()),
    "products": lambda x, n: (x.sum() * n, n * x.sum(), x.sum() / n, n / x.sum()),
    "powers": lambda x, n: (x.sum() ** n, n ** (x.sum() + 1.0), n**2 * x.sum()),
    "divisions": lambda x, n: (x.sum() % n, x.sum() // n, n % x.sum()),
    "numbers of it": lambda x, n: (x.sum() * (n * 2 + 1) / 3 - abs(-n) ** 3, x[0] * tape.exp(n)),
    "an array": lambda x, n: (x * n, tape.where(x > n, n, x), x.clamp(max=n), tape.full_like(x, n)),
    "filled": lambda x, n: (tape.full((3,), n) * x.sum(), tape.scalar_tensor(n)),
    "written": lambda x, n: x.clone().fill_(n) + x,
    "a condition": lambda x, n: x.sum() * n if n > 1.0 else x.sum(),
    "in a loop": in_steps,
}


@pytest.mark.parametrize("dtype", [tape.float64, tape.float32, tape.float16])
@pytest.mark.filterwarnings("ignore:compile. .* programs hold no float16")
@pytest.mark.parametrize("mode", ["default", "max"])
@pytest.mark.parametrize("name", FLOATS)
def test_a_float_computes_as_a_number_beside_any_precision(name: str, mode: str, dtype: Any) -> None:
    function = FLOATS[name]
    compiled = tape.compile(function, mode=mode)
    for k in range(8):
        x, n = tape.tensor(np.linspace(-0.5, 1.0, 6) + 0.1 * k, dtype=dtype), (1.3, 1.7, 0.9)[k % 3]
        with np.errstate(over="ignore"):
            pairs = zip(flattened(compiled(x, n))[0], flattened(function(x, n))[0], strict=True)
        for got, expected in pairs:
            assert (type(got), got.dtype, got.shape) == (tape.Tensor, expected.dtype, expected.shape)
            np.testing.assert_allclose(got, expected, rtol=16 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_beside_a_float_are_of_their_precision_whatever_was_called_before(dtype: Any) -> None:
    gradient = tape.value_and_grad(lambda x, n: (x * n).sum() / (n + 1))
    compiled = tape.compile(gradient)
    for k in range(16):
        x = np.arange(4, dtype=dtype if k % 2 else np.float64) + k
        n = [k, k / 3.0, np.float32(k)][k % 3]
        (value, by_x), (expected, by_x_expected) = compiled(x, n), gradient(x, n)
        assert (type(value), by_x.dtype) == (type(expected), by_x_expected.dtype)
        assert value == expected
        np.testing.assert_array_equal(by_x, by_x_expected)
