"""Writes of what stands elsewhere in the same memory: ``u[0] = u[-2]``, ``u[1:] = u[:-1]``, columns, transposes.

The truth of random programs is NumPy's, with a copy of what is read; their gradients come from complex steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tape
from kernels.foundation.specs import spec_of
from kernels.kinds import views
from kernels.language import jit
from kernels.native import structs
from kernels.native.c_api import NATIVE
from kernels.native.memory import where
from tests.support.representatives import few

SEEDS = 100
"""Some thousands were run once."""
A = np.arange(30.0).reshape(5, 6) / 7 + 0.5
WRITES: dict[str, Callable[[Any], None]] = {
    "ghost cells": lambda u: (u.__setitem__(0, u[-2]), u.__setitem__(-1, u[1])),
    "elements": lambda u: (u.__setitem__((0, 1), u[2, 3]), u.__setitem__((-1, 1), u[1, -1])),
    "columns": lambda u: (u.__setitem__((slice(None), 0), u[:, -2]), u.__setitem__((..., -1), u[..., 1])),
    "blocks": lambda u: u.__setitem__((slice(0, 2), slice(0, 2)), u[2:4, 3:5]),
    "every other row": lambda u: u.__setitem__(slice(0, 4, 2), u[1:4:2]),
    "every other column": lambda u: u.__setitem__((slice(None), slice(1, None, 2)), u[:, ::2]),
    "forth": lambda u: u.__setitem__(slice(1, None), u[:-1]),
    "back": lambda u: u.__setitem__(slice(None, -1), u[1:]),
    "turned": lambda u: u.__setitem__(slice(None, None, -1), u[:]),
    "rows turned": lambda u: u.__setitem__((slice(None), slice(None, None, -1)), u[:, :]),
    "transposed": lambda u: u.__setitem__((slice(0, 5), slice(0, 5)), u[:, :5].T),
    "broadcast": lambda u: u.__setitem__(slice(1, 4), u[3]),
    "broadcast element": lambda u: u.__setitem__(2, u[2, 2]),
    "picked rows": lambda u: u.__setitem__([0, 3], u[1:3]),
    "itself": lambda u: u.__setitem__((slice(1, 3), 2), u[1:3, 2]),
    "a view's view": lambda u: u.__setitem__(1, u[1:][2][:]),
}


@pytest.fixture
def calls() -> Iterator[list[str]]:
    """Python functions that are called."""
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_qualname) if event == "call" else None)
    yield seen
    sys.setprofile(None)


@pytest.mark.quick
@pytest.mark.skipif(not NATIVE, reason="nothing is native")
@pytest.mark.parametrize("grad", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("name", WRITES)
def test_they_are_native_calls(name: str, grad: bool, calls: list[str]) -> None:
    write_it, u = WRITES[name], tape.tensor(A, requires_grad=grad) * 1.0
    for _ in range(4):
        write_it(u)
    del calls[:]
    write_it(u)
    assert not [name for name in calls if "assign" in name], calls


class Array(np.ndarray[Any, Any]):
    """An array whose parts are written as if what is read there were copied first."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, np.array(value))


class Elements(Array):
    """Elements of it are views, as of tensors."""

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        return super().__getitem__(keys if ... in keys else (*keys, ...))


def _meant(function: Callable[[Any], Any], a: Any, kind: Any = Elements) -> tuple[float, Any]:
    """The value, and the gradient by complex steps."""
    value, gradient = complex(function(a.astype(complex).view(kind))).real, np.zeros(a.shape)
    for place in np.ndindex(a.shape):
        moved = a.astype(complex)
        moved[place] += 1e-30j
        gradient[place] = complex(function(moved.view(kind))).imag / 1e-30
    return value, gradient


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", WRITES)
def test_values_and_gradients(name: str, dtype: Any) -> None:
    def function(x: Any) -> Any:
        u, total = x * 2.0, 0.0
        for k in range(3):
            kept = u[k : k + 2]
            total = total + (kept * kept).sum()
            WRITES[name](u)
            del kept
            WRITES[name](u)
        return (u * u * A.astype(dtype)).sum() + total

    meant, gradient = _meant(function, A)
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    for _ in range(3):
        x = tape.tensor(A, dtype=dtype, requires_grad=True)
        y = function(x)
        y.backward()
        np.testing.assert_allclose(y.item(), meant, rtol=tolerance)
        np.testing.assert_allclose(x.grad.numpy(), gradient, rtol=tolerance)
        with tape.no_grad():
            np.testing.assert_allclose(function(tape.tensor(A, dtype=dtype)).item(), meant, rtol=tolerance)


def _index(draw: Any, extent: int, size: int | None) -> Any:
    """A random index of an axis: an int where no size is asked for."""
    if size is None:
        return int(draw.integers(-extent, extent))
    step = int(draw.integers(1, max((extent - 1) // max(size - 1, 1), 1) + 1))
    start = int(draw.integers(0, extent - step * (size - 1)))
    picked = range(start, extent, step)[:size]
    numbers = picked[::-1] if draw.integers(2) else picked
    last = numbers[-1] + (1 if numbers.step > 0 else -1)
    return slice(numbers[0], None if last < 0 else last, numbers.step)


def _keys(draw: Any, shape: tuple[int, ...]) -> tuple[Any, Any, bool]:
    """Two random keys of parts of one shape; the second, perhaps, of the transpose."""
    sizes = [None if draw.integers(3) == 0 else int(draw.integers(1, n + 1)) for n in shape]
    turned = len(shape) == 2 and shape[0] == shape[1] and bool(draw.integers(3) == 0)
    key = tuple(_index(draw, n, size) for n, size in zip(shape, sizes, strict=True))
    other = tuple(_index(draw, n, size) for n, size in zip(shape, sizes, strict=True))
    return key, other, turned


def _program(seed: int) -> tuple[Callable[[Any], Any], Any]:
    """A random program that writes parts of its memory to others, beside products that need what stood there."""
    draw = np.random.default_rng(seed)
    shape = [(7,), (4, 5), (4, 4), (2, 3, 4)][draw.integers(4)]
    a, weights = draw.normal(size=shape), draw.normal(size=shape)
    steps = [(int(draw.integers(9)), *_keys(draw, shape)) for _ in range(draw.integers(2, 8))]
    times = int(draw.integers(1, 5))

    def program(x: Any) -> Any:
        u, total, kept = x * 1.5, 0.0, None
        for _ in range(times):
            for kind, key, other, turned in steps:
                source = u.T if turned else u
                if kind < 4:
                    u[key] = source[other]
                elif kind == 4:
                    u[key] = source[other] * 0.75
                elif kind == 5:
                    kept = u[key]
                elif kind == 6:
                    total = total + (u[key] * source[other]).sum()
                elif kind == 7:
                    u[key] = u[key] * 0.5 + source[other]
                elif kept is not None and kept.shape:
                    total = total + (kept * kept).sum()
                    kept[...] = kept * 0.9
        return (u * u * weights).sum() + total

    return program, a


@pytest.mark.parametrize("way", ["dynamic", "compile", "record", "arrays"])
@pytest.mark.parametrize("seed", few(range(SEEDS), 25))
def test_random_programs(seed: int, way: str) -> None:
    program, a = _program(seed)
    meant, gradient = _meant(program, a, Array if way == "arrays" else Elements)
    for found in _run(program, a, way):
        np.testing.assert_allclose(found[0], meant, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found[1], gradient, rtol=1e-9, atol=1e-12)


def _run(program: Any, a: Any, way: str) -> Iterator[tuple[Any, Any]]:
    if way in ("record", "arrays"):
        function = tape.record(program, a).value_and_grad if way == "record" else tape.value_and_grad(program)
        for _ in range(2):
            value, gradient = function(a)
            yield value, gradient[0] if way == "record" else gradient
        return
    function = program if way == "dynamic" else tape.compile(program)
    for _ in range(4 if way == "compile" else 2):
        x = tape.tensor(a, requires_grad=True)
        y = function(x)
        y.backward()
        yield y.item(), x.grad.numpy()


@pytest.mark.parametrize("seed", few(range(300), 60))
def test_what_is_apart_has_no_element_in_common(seed: int) -> None:
    """Native code may take patterns for overlapping that do not, but never the other way round."""
    draw = np.random.default_rng(seed)
    shape = [(9,), (4, 6), (5, 5), (3, 4, 5)][draw.integers(4)]
    whole = np.zeros(shape, order="CF"[draw.integers(2)])
    key, other, turned = _keys(draw, shape)
    part, value = whole[(*key, ...)], (whole.T if turned else whole)[(*other, ...)]
    how = views.write_computation(spec_of(value), spec_of(whole), part)
    if how is not None and part.shape == value.shape:
        relation = jit.load_module("calls.writes_native").relation
        found = relation(where(how.layout), where(value), where(part), part.itemsize)
        if found == structs.APART:
            assert not np.shares_memory(part, value)
        elif found == structs.SAME:
            assert where(part) == where(value)
            steps = zip(part.shape, part.strides, value.strides, strict=True)
            assert all(n == 1 or a == b for n, a, b in steps)
        elif not turned and all(type(k) is int or k.step in (1, -1) for k in (*key, *other)):
            assert np.shares_memory(part, value)
