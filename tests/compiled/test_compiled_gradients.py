"""Compiled gradients, of all transforms that give one: the same as in dynamic mode, natively, on arrays and tensors."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.tensors.pytrees import flattened
from tests.support.rounding import assert_same

pytestmark = pytest.mark.quick

TRANSFORMS: dict[str, Callable[..., Any]] = {
    "value_and_grad": tape.value_and_grad, "grad": tape.func.grad, "grad_and_value": tape.func.grad_and_value,
}  # fmt: skip
CALLS = 6


def loss(x: Any, y: Any) -> Any:
    return (tape.sin(x) * x * y).sum()


def with_aux(x: Any, y: Any) -> Any:
    return loss(x, y), {"scaled": x * 2, "name": "aux"}


def of_a_structure(p: Any, y: Any) -> Any:
    return (p["a"] * y).sum() + p["b"][0] ** 2


def arrays(seed: int, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=3).astype(dtype), rng.normal(size=3).astype(dtype)


def tensors(seed: int, dtype: Any) -> tuple[Any, Any]:
    x, y = arrays(seed, dtype)
    return tape.tensor(x), tape.tensor(y)


def mixed(seed: int, dtype: Any) -> tuple[Any, Any]:
    x, y = arrays(seed, dtype)
    return x, tape.tensor(y)


def numbers(seed: int, dtype: Any) -> tuple[Any, Any]:
    del dtype
    rng = np.random.default_rng(seed)
    return float(rng.normal()), tape.tensor(rng.normal())


def scalars(seed: int, dtype: Any) -> tuple[Any, Any]:
    x, y = arrays(seed, dtype)
    return tape.tensor(x[0]), y[1]


def check(function: Callable[..., Any], transform: Callable[..., Any], given: Any, **options: Any) -> Any:
    """Check the calls of a compiled gradient against those of the gradient; return the compiled one."""
    dynamic = transform(function, **options)
    compiled = tape.compile(transform(function, **options))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(CALLS):
            found, expected = compiled(*given(seed)), dynamic(*given(seed))
            assert type(found) is type(expected)
            leaves, structure = flattened(found, none=True)
            others, other = flattened(expected, none=True)
            assert structure == other
            for a, b in zip(leaves, others, strict=True):
                assert type(a) is type(b)
                if isinstance(a, tape.Tensor):
                    assert (a.dtype, a.requires_grad) == (b.dtype, b.requires_grad)
                    a, b = a.numpy(), b.numpy()  # noqa: PLW2901
                assert_same(a, b)
                assert not isinstance(a, np.ndarray) or a.dtype == b.dtype
    assert compiled.calls["dynamic"] == 0
    assert compiled.calls["recorded"] == 2
    return compiled


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("given", [arrays, tensors, mixed, numbers, scalars])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_gradients_are_those_of_dynamic_mode(name: str, given: Any, dtype: Any) -> None:
    for options in ({}, {"argnums": 1}, {"argnums": (1, 0)}, {"argnums": (0,)}):
        check(loss, TRANSFORMS[name], lambda seed: given(seed, dtype), **options)
    check(with_aux, TRANSFORMS[name], lambda seed: given(seed, dtype), has_aux=True)


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_structures(name: str, kind: str) -> None:
    def given(seed: int) -> tuple[Any, Any]:
        x, y = (arrays if kind == "arrays" else tensors)(seed, np.float64)
        return {"a": x, "b": [y[0] if kind == "tensors" else float(y[0])]}, y

    check(of_a_structure, TRANSFORMS[name], given)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_of_a_compiled_function_is_compiled(name: str) -> None:
    transformed = TRANSFORMS[name](tape.compile(loss))
    for seed in range(CALLS):
        found, expected = transformed(*arrays(seed, np.float64)), TRANSFORMS[name](loss)(*arrays(seed, np.float64))
        assert_same(flattened(found)[0][0], flattened(expected)[0][0])
    assert transformed.calls == {"recorded": 2, "dynamic": 0, "checked": 1}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_can_be_differentiated_further_is_replayed_with_its_graph(name: str) -> None:
    x, y = tensors(1, np.float64)
    compiled, dynamic = tape.compile(TRANSFORMS[name](loss)), TRANSFORMS[name](loss)
    for _ in range(CALLS):
        x = x.detach().requires_grad_()
        found = []
        for function in (compiled, dynamic):
            leaves, x.grad = flattened(function(x, y))[0], None
            assert all(leaf.requires_grad for leaf in leaves)
            sum((leaf * leaf).sum() for leaf in leaves).backward()
            found.append(x.grad)
        np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert compiled.calls == {"recorded": 2, "dynamic": 0, "checked": 1}
    compiled(*tensors(2, np.float64))  # another signature, that of values
    assert sum(compiled.calls.values()) == 4


@pytest.mark.filterwarnings("ignore")  # of arrays: a gradient is lost
@pytest.mark.parametrize("name", TRANSFORMS)
def test_tensors_from_outside_that_require_grad(name: str) -> None:
    """Of tensors, the results require grad then; of arrays, they are numbers."""
    w = tape.tensor([1.0, -2.0, 0.5], requires_grad=True)
    compiled = tape.compile(TRANSFORMS[name](lambda x, y: loss(x * w, y)))
    for seed in range(CALLS):
        w.grad = None
        leaves = flattened(compiled(*tensors(seed, np.float64)))[0]
        assert all(leaf.requires_grad for leaf in leaves)
        leaves[0].sum().backward()
        found = w.grad.numpy()
        w.grad = None
        flattened(TRANSFORMS[name](lambda x, y: loss(x * w, y))(*tensors(seed, np.float64)))[0][0].sum().backward()
        np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-12)
    for seed in range(CALLS):
        found = compiled(*arrays(seed, np.float64))
        assert not any(isinstance(leaf, tape.Tensor) for leaf in flattened(found)[0])


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("has_aux", [False, True])
def test_files_hold_them(name: str, has_aux: bool) -> None:
    def function(x: Any, y: Any) -> Any:
        return (loss(x, y), (x * y).sum()) if has_aux else loss(x, y)

    compiled = tape.compile(TRANSFORMS[name](function, (1, 0), has_aux))
    for seed in range(CALLS):
        expected = compiled(*arrays(seed, np.float64))
    file = io.BytesIO()
    compiled.save(file)
    file.seek(0)
    found = tape.load(file)(*arrays(CALLS - 1, np.float64))
    leaves, structure = flattened(found)
    others, other = flattened(expected)
    assert structure == other
    for a, b in zip(leaves, others, strict=True):
        assert_same(a, b)


def test_results_that_are_no_numbers_raise_as_in_dynamic_mode() -> None:
    for transform in TRANSFORMS.values():
        compiled, dynamic = tape.compile(transform(lambda x: x * 2)), transform(lambda x: x * 2)
        for _ in range(3):
            with pytest.raises((TypeError, RuntimeError)) as found:
                compiled(np.ones(2))
            with pytest.raises((TypeError, RuntimeError)) as expected:
                dynamic(np.ones(2))
            assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))


def product_beside(x: Any, y: Any) -> Any:
    return (x * x).sum(), x @ y


def product_compared(x: Any, y: Any) -> Any:
    loss = (x * x).sum()
    return (loss if (x @ y).sum() < 1e9 else x.sum()), None


@pytest.mark.parametrize("function", [product_beside, product_compared])
@pytest.mark.parametrize("shape", [(33, 33), (5, 40), (2, 3, 7, 7)])
def test_nothing_comes_to_what_meets_the_loss_in_products_beside_it(function: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape), rng.normal(size=(*shape[:-2], shape[-1], shape[-2]))
    compiled = tape.compile(tape.value_and_grad(function, (0, 1), has_aux=True), mode="max", check="never")
    for _ in range(6):
        garbage = [np.full(size, np.nan) for size in (x.shape, y.shape) for _ in range(20)]
        del garbage  # results may be where these were
        _, (by_x, by_y) = compiled(x, y)
        np.testing.assert_array_equal(by_x, 2 * x)
        np.testing.assert_array_equal(by_y, np.zeros_like(y))
    assert "machine code: none" not in compiled.explain()
