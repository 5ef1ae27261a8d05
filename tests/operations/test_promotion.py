"""The dtype of mixed operands: PyTorch's between tensors, NumPy's beside arrays, in each pair, mode and random program.

What PyTorch gives for each pair of dtypes and ranks is stored; what NumPy gives it is asked for.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes, installed, our_settings

Array = np.ndarray[Any, Any]
DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64")
NUMBERS = (True, 3, 2.5)
RANKS = (1, 0)
KINDS: list[Any] = [*itertools.product(DTYPES, RANKS), *NUMBERS]


def array(dtype: str, rank: int) -> Array:
    """Return an operand as an array."""
    return np.array([3, 2, 5] if rank else 3).astype(dtype)


def operand(library: ModuleType, kind: Any) -> Any:
    """Return an operand as a tensor of the library, or a Python number."""
    return library.tensor(array(*kind).tolist(), dtype=getattr(library, kind[0])) if isinstance(kind, tuple) else kind


def written(_: ModuleType, x: Any, value: Any) -> Any:
    x = x.clone()
    x[0 if x.dim() else ()] = value if isinstance(value, int | float) or not value.dim() else value[0]
    return x


Function = Callable[[ModuleType, Any, Any], Any]
OPERATIONS: dict[str, Function] = {
    "add": lambda _, a, b: a + b,
    "multiply": lambda _, a, b: a * b,
    "divide": lambda _, a, b: a / b,
    "power": lambda _, a, b: a**b,
    "floor_divide": lambda _, a, b: a // b,
    "remainder": lambda _, a, b: a % b,
    "less": lambda _, a, b: a < b,
    "equal": lambda _, a, b: a == b,
    "where": lambda f, a, b: f.where(f.tensor([True, False, True]), a, b),
    "maximum": lambda f, a, b: f.maximum(a, b),
    "fmin": lambda f, a, b: f.fmin(a, b),
    "atan2": lambda f, a, b: f.atan2(a, b),
    "fmod": lambda f, a, b: f.fmod(a, b),
    "copysign": lambda f, a, b: f.copysign(a, b),
    "hypot": lambda f, a, b: f.hypot(a, b),
    "logaddexp": lambda f, a, b: f.logaddexp(a, b),
    "logical_or": lambda f, a, b: f.logical_or(a, b),
    "clamp": lambda f, a, b: f.clamp(a, b, b),
    "addcmul": lambda f, a, b: f.addcmul(a, b, b),
    "masked_fill": lambda f, a, b: a.masked_fill(f.tensor([True, False, True]), b),
    "cat": lambda f, a, b: f.cat([a, b]),
    "stack": lambda f, a, b: f.stack([a, b]),
    "hstack": lambda f, a, b: f.hstack([a, b]),
    "kron": lambda f, a, b: f.kron(a, b),
    "add_": lambda _, a, b: a.clone().add_(b),
    "multiply_": lambda _, a, b: a.clone().__imul__(b),
    "divide_": lambda _, a, b: a.clone().__itruediv__(b),
    "clamp_": lambda _, a, b: a.clone().clamp_(b, b),
    "write": written,
    "result_type": lambda f, a, b: f.zeros(1).to(f.result_type(a, b)),
}


def dtypes_of(library: ModuleType, function: Function) -> dict[str, str]:
    """Return, for each first operand, the dtypes with each second one, as codes such as f4; a dash where it raises."""
    return {str(a): " ".join([code(library, function, a, b) for b in KINDS]) for a in KINDS}


def code(library: ModuleType, function: Function, a: Any, b: Any) -> str:
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return "-"
    try:
        result = function(library, operand(library, a), operand(library, b))
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return "-"
    return np.dtype(str(result.dtype).removeprefix("torch.")).str[1:]


def disagreements(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Name pairs with another dtype than PyTorch has; what raises there may do anything."""
    return [
        f"{a} {b}: {one}, PyTorch has {other}"
        for a, row in theirs.items()
        for b, one, other in zip(KINDS, ours[a].split(), row.split(), strict=True)
        if other not in ("-", one)
    ]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.quick if n == "add" else ()) for n in OPERATIONS])
def test_tensors_have_pytorchs_dtype(pytorch: Outcomes, name: str) -> None:
    theirs = pytorch(lambda torch: dtypes_of(torch, OPERATIONS[name]), name)
    wrong = disagreements(dtypes_of(tape, OPERATIONS[name]), theirs)
    assert [one for one in wrong if (name, one.count("bool"), one.count("True")) != ("power", 1, 1)] == []  # int8


BESIDE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda _, a, b: a + b,
    "multiply": lambda _, a, b: a * b,
    "less": lambda _, a, b: a < b,
    "equal": lambda _, a, b: a == b,
    "where": lambda f, a, b: f.where(a == a, a, b),  # noqa: PLR0124 (a condition of the shape)
    "maximum": lambda f, a, b: f.maximum(a, b),
    "stack": lambda f, a, b: f.stack([a, b]),
    "concatenate": lambda f, a, b: f.concatenate([a, b]),
    "outer": lambda f, a, b: f.outer(a, b),
    "inner": lambda f, a, b: f.inner(a, b),
    "tensordot": lambda f, a, b: f.tensordot(a, b, 1),
    "einsum": lambda f, a, b: f.einsum("i,i->", a, b),
    "clip": lambda f, a, b: f.clip(a, b, b),
    "matmul": lambda _, a, b: a @ b,
}


def kinds_beside(kind: tuple[str, int]) -> list[Any]:
    """Return an array, and a NumPy scalar if it has no dims."""
    x = array(*kind)
    return [x] if x.shape else [x, x[()]]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.quick if n == "add" else ()) for n in BESIDE])
def test_beside_arrays_dtypes_are_numpys(name: str) -> None:
    function = BESIDE[name]
    for one, other in itertools.product(itertools.product(DTYPES, RANKS), repeat=2):
        for value in kinds_beside(other):
            a = array(*one)
            for pair, mixed in (((a, value), (tape.tensor(a), value)), ((value, a), (value, tape.tensor(a)))):
                try:
                    expected = np.asarray(function(np, *pair))
                except (ValueError, TypeError, IndexError):
                    continue
                if name not in ("outer", "concatenate") or (one[1] and other[1]):
                    with np.errstate(all="ignore"):
                        results = [function(tape, *mixed), function(np, tape.tensor(pair[0]), tape.tensor(pair[1]))]
                    for result in results if name not in OPERATORS else results[:1]:
                        assert result.dtype == expected.dtype, (name, one, other, type(value))
                        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


OPERATORS = ("add", "multiply", "less", "equal", "matmul")
"""What is written with operators, which between tensors are PyTorch's."""


@pytest.mark.quick
def test_numpys_functions_have_numpys_dtype_for_tensors() -> None:
    single, whole, zero = (tape.tensor(array(d, r)) for d, r in (("float32", 1), ("int64", 1), ("float64", 0)))
    for result in (np.add(single, whole), np.multiply(single, zero), np.where(single > 0, single, zero)):
        assert result.dtype == tape.float64
    assert np.concatenate([single, whole]).dtype == tape.float64
    assert (single + whole).dtype == (single * zero).dtype == tape.float32  # PyTorch's, as before


def of_several(a: Any, b: Any, c: Any) -> Any:
    """Mix float32 vectors, an int64 vector and a float64 number in operations of each kind."""
    f = tape if isinstance(a, tape.Tensor) else np
    total = a * b + c
    total = f.where(a < c, total, b) / b
    return total * f.maximum(c, a)


ARGUMENTS = array("float32", 1), array("int64", 1), array("float64", 0)


@pytest.mark.quick
@pytest.mark.parametrize("given", ["arrays", "tensors"])
def test_each_way_of_running_has_one_dtype(given: str) -> None:
    """A function gives the same dtype and values dynamically, recorded, compiled in both tiers, and mapped."""
    args: Any = ARGUMENTS if given == "arrays" else tuple(map(tape.tensor, ARGUMENTS))
    args = (*args[:2], args[2] if given == "tensors" else args[2][()])
    expected = np.asarray(of_several(*args))
    assert expected.dtype == (np.float64 if given == "arrays" else np.float32)
    program = tape.record(of_several, *args)
    interpreted, printed = (tape.compile(of_several, mode=mode) for mode in ("eager", "max"))
    for run in (program, interpreted, printed, of_several):
        for _ in range(4):
            result = run(*args)
            assert result.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6)


@pytest.mark.quick
def test_functions_given_arrays_have_the_dtypes_that_they_have_on_arrays() -> None:
    def total(a: Any, c: Any) -> Any:
        return (a * c * np.array([1, 2, 3])).sum()

    a, c = ARGUMENTS[0], np.array([0.1, 0.2, 0.3])
    for function in (tape.value_and_grad, lambda f, **by: tape.compile(tape.value_and_grad(f, **by))):
        for _ in range(3):
            value, gradients = function(total, argnums=(0, 1))(a, c)
            assert value == total(a, c)  # float64: in float32 it is another
            assert [g.dtype for g in gradients] == [np.float32, np.float64]


def test_mapped_numbers_have_no_dims_within() -> None:
    """In vmap a row of numbers is a number for each, as in PyTorch: it does not widen the vector's dtype."""
    single = tape.tensor(np.ones((2, 3), np.float32))
    numbers = tape.tensor([0.1, 0.2])
    result = tape.vmap(lambda x, c: x * c)(single, numbers)
    assert (result.dtype, result.shape) == (tape.float32, (2, 3))
    assert tape.vmap(lambda x, c: x * c, in_dims=(None, 0))(single, numbers).dtype == tape.float32
    assert tape.vmap(lambda x, c: x.sum() * c)(single, numbers).dtype == tape.float64


@pytest.mark.quick
def test_gradients_have_the_dtype_of_what_they_are_of() -> None:
    x = tape.tensor([1.0, 2.0], dtype=tape.float32, requires_grad=True)
    c = tape.tensor(0.1, requires_grad=True)
    y = x * c
    y.sum().backward()
    assert (y.dtype, x.grad.dtype, c.grad.dtype) == (tape.float32, tape.float32, tape.float64)
    assert (x.grad.tolist(), c.grad.item()) == ([float(np.float32(0.1))] * 2, 3.0)
    tangent = tape.func.jvp(lambda x, c: x * c, (x.detach(), c.detach()), (tape.ones(2).to(x), tape.tensor(1.0)))[1]
    assert tangent.dtype == tape.float32


def test_in_place_results_are_of_no_higher_category() -> None:
    whole, narrow = tape.tensor([1, 2]), tape.tensor([1, 2], dtype=tape.uint8)
    with pytest.raises(RuntimeError, match="result type float64 can't be cast to the desired output type int64"):
        whole += tape.tensor([0.5, 1.0])
    with pytest.raises(RuntimeError, match="can't be cast"):
        whole *= 0.5
    with pytest.raises(RuntimeError, match="can't be cast"):
        tape.add(whole, 0.5, out=whole)
    assert whole.tolist() == [1, 2]
    narrow += whole  # within a category it is
    assert (narrow.dtype, narrow.tolist()) == (tape.uint8, [2, 4])


def test_numbers_of_pythons_have_the_default_dtype_beside_integers() -> None:
    whole = tape.tensor([1, 2])
    assert (whole * 1.5).dtype == (whole + True * 0.5).dtype == tape.float64
    tape.set_default_dtype(tape.float32)
    try:
        assert (whole * 1.5).dtype == (whole / whole).dtype == tape.where(whole > 1, whole, 1.5).dtype == tape.float32
        assert tape.result_type(whole, 1.5) == tape.float32
    finally:
        tape.set_default_dtype(tape.float64)


EXAMPLES = 60
"""Random programs; run a thousand after a change of what promotes."""
STEPS = 8
BINARY: tuple[Function, ...] = (
    lambda _, a, b: a + b,
    lambda _, a, b: a * b,
    lambda _, a, b: a - b,
    lambda _, a, b: a / (b * b + 1),
    lambda f, a, b: f.where(a < b, a, b),
    lambda f, a, b: f.maximum(a, b),
    lambda f, a, b: f.stack([a.sum(), b.sum()]).prod() + a,
    lambda _, a, b: a.clone().add_(b),
    lambda _, a, b: a.clone().mul_(b),
    lambda _, a, b: a * 2 + b * 0.5,
    lambda _, a, b: (a < b) * a,
    lambda f, a, b: f.cat([a.reshape(-1), b.reshape(-1)])[:1] * b,
)
RECORDED = ("bool", "int32", "int64", "float32", "float64")
MIXED = ("uint8", *RECORDED)


OF_ARRAYS: tuple[Function, ...] = (
    *BINARY[:4],
    lambda f, a, b: f.where(a < b, a, b),
    lambda f, a, b: f.maximum(a, b),
    lambda f, a, b: f.stack([a.sum(), b.sum()]).prod() + a,
    lambda _, a, b: a * 2 + b * 0.5,
    lambda _, a, b: (a < b) * a,
    lambda f, a, b: f.concatenate([a.reshape(-1), b.reshape(-1)])[:1] * b,
    lambda f, a, b: f.clip(a, b, b + 1),
)


def random_program(
    seed: int, operations: tuple[Function, ...] = BINARY, dtypes: tuple[str, ...] = MIXED
) -> tuple[Callable[[ModuleType, list[Any]], list[Any]], list[Array]]:
    """Return a program of mixed operands, which the other library is to run first, and its arguments.

    Steps at which that raises are left out.
    """
    chance = random.Random(seed)  # noqa: S311
    kinds = [(chance.choice(dtypes), chance.random() < 0.6) for _ in range(4)]
    arguments = [np.array([chance.randint(0, 3) for _ in range(3)][: 3 if r else 1]).astype(d) for d, r in kinds]
    arguments = [x if r else x.reshape(()) for x, (_, r) in zip(arguments, kinds, strict=True)]
    steps = [(chance.choice(operations), chance.random(), chance.random()) for _ in range(STEPS)]
    raising: set[int] = set()

    def run(library: ModuleType, values: list[Any]) -> list[Any]:
        values, ours = list(values), any(isinstance(x, tape.Tensor) for x in values)
        for number, (step, first, second) in enumerate(steps):
            if number not in raising:
                a, b = (values[int(at * len(values))] for at in (first, second))
                try:
                    values.append(step(library, a, b))
                except (RuntimeError, TypeError):
                    assert not ours
                    raising.add(number)
        return values

    return run, arguments


def compared(ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert (str(one.dtype), one.shape) == (str(other.dtype).removeprefix("torch."), tuple(other.shape))
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not installed(), reason="PyTorch is not installed")
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_have_pytorchs_dtypes(seed: int) -> None:
    import torch

    with our_settings(torch):
        for number in range(EXAMPLES // 4):
            run, arguments = random_program(1000 * seed + number)
            theirs = run(torch, [torch.tensor(x) for x in arguments])
            tensors = [tape.tensor(x) for x in arguments]
            compared(run(tape, tensors), theirs)
            compared(run(tape, tensors), theirs)  # natively, what can be
            if all(x.dtype in RECORDED for x in arguments):
                program = tape.record(lambda *values, run=run: run(tape, list(values))[4:], *tensors)
                compared(program(*tensors), theirs[4:])
            floats = [i for i, x in enumerate(arguments) if x.dtype.kind == "f"]
            leaves = [[x.clone().requires_grad_() if i in floats else x for i, x in enumerate(xs)]
                      for xs in (tensors, [torch.tensor(x) for x in arguments])]  # fmt: skip
            results = run(tape, leaves[0])[-1], run(torch, leaves[1])[-1]
            assert results[0].requires_grad == results[1].requires_grad
            if results[0].requires_grad:
                for result in results:
                    result.sum().backward()
                for i in floats:
                    gradients = leaves[0][i].grad, leaves[1][i].grad
                    if gradients[1] is None:
                        assert gradients[0] is None or not gradients[0].any()
                    else:
                        compared([gradients[0]], [gradients[1]])


@pytest.mark.parametrize("seed", range(2))
def test_random_programs_given_arrays_have_numpys_dtypes(seed: int) -> None:
    for number in range(EXAMPLES // 4):
        run, arguments = random_program(1000 * seed + number, OF_ARRAYS, RECORDED)
        with np.errstate(all="ignore"):
            theirs = run(np, arguments)[4:]

            def ours(*values: Any, run: Any = run) -> list[Any]:
                return run(np, list(values))[4:]  # type: ignore[no-any-return]

            mapped = tape.vmap(ours)(*[np.stack([x, x]) for x in arguments])
            for results in (tape.record(ours, *arguments)(*arguments), [x[1] for x in mapped]):
                for one, other in zip(results, theirs, strict=True):
                    dtype = other.dtype if isinstance(one, float) else np.asarray(one).dtype  # floats are of no dtype
                    assert (dtype, np.shape(one)) == (other.dtype, other.shape)
                    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.quick
def test_unsigned_integers_are_summed_as_each_library_does() -> None:
    x = tape.tensor([200, 100], dtype=tape.uint8)
    for result in (x.sum(), x.sum(0), tape.sum(x), x.prod(), tape.cumsum(x, 0), tape.nansum(x), tape.trace(x[None])):
        assert result.dtype == tape.int64
    for function in (np.sum, np.prod, np.cumsum, np.nansum, np.add.reduce):
        assert function(x).dtype == function(x.numpy()).dtype == np.uint64
    assert np.trace(x[None]).dtype == np.trace(x.numpy()[None]).dtype
    assert (x.sum().item(), np.sum(x).item()) == (300, 300)
