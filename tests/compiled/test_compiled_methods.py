"""Compiled methods live as long as their objects; compiled functions and gradients are pickled by what they are of."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import pickle
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick


class Model:
    """An object that leads back to itself."""

    def __init__(self, k: float) -> None:
        self.k, self.me = k, self

    @tape.compile
    def scaled(self, x: Any) -> Any:
        return x * self.k

    def loss(self, x: Any) -> Any:
        return (x * x * self.k).sum()

    @tape.compile
    @functools.partial(tape.value_and_grad, argnums=1)
    def fitted(self, x: Any) -> Any:
        return (x * x * self.k).sum()


@dataclasses.dataclass(frozen=True)
class Frozen:
    """An object that compares by its fields."""

    k: float

    @tape.compile
    def scaled(self, x: Any) -> Any:
        return x * self.k


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("__weakref__", "k")

    def __init__(self, k: float) -> None:
        self.k = k

    @tape.compile
    def scaled(self, x: Any) -> Any:
        return x * self.k


@pytest.mark.parametrize(("kind", "most"), [(Model, 0), (Frozen, 0), (Slotted, 20)])
@pytest.mark.parametrize("calls", [1, 4])
def test_objects_with_a_compiled_method_are_freed(kind: Any, most: int, calls: int) -> None:
    references = []
    for k in range(40):
        made = kind(float(k))
        references.append(weakref.ref(made))
        assert [made.scaled(2.0) for _ in range(calls)] == [2.0 * k] * calls
    del made
    gc.collect()
    assert sum(reference() is not None for reference in references) <= most


def test_copies_have_methods_of_their_own() -> None:
    model = Model(2.0)
    assert [model.scaled(1.0) for _ in range(4)] == [2.0] * 4
    assert model.scaled is model.scaled
    for copied in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 (ours)
        copied.k = 5.0
        assert [copied.scaled(1.0), model.scaled(1.0)] * 4 == [5.0, 2.0] * 4


def test_a_compiled_method_is_no_part_of_its_object() -> None:
    one, other = Frozen(2.0), Frozen(2.0)
    function = tape.compile(lambda x, given: given.scaled(x) * one.scaled(1.0) * given.k)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [function(1.0, other) for _ in range(5)] == [8.0] * 5
        assert [function(1.0, Frozen(2.0)) for _ in range(3)] == [8.0] * 3
    assert len(function.programs) == 1
    assert one == other
    assert hash(one) == hash(other)
    assert dataclasses.asdict(one) == {"k": 2.0}


def test_a_bound_method_keeps_its_object() -> None:
    bound = Model(3.0).scaled
    gc.collect()
    assert [bound(1.0) for _ in range(4)] == [3.0] * 4


def plain(x: Any) -> Any:
    return (x * x).sum()


@tape.compile
def compiled(x: Any) -> Any:
    return (x * x).sum()


@tape.value_and_grad
def differentiated(x: Any) -> Any:
    return (x * x).sum()


@tape.compile
@tape.value_and_grad
def both(x: Any) -> Any:
    return (x * x).sum()


MODEL = Model(1.0)
PICKLED = {
    "by name": compiled,
    "gradient by name": both,
    "value_and_grad": tape.compile(tape.value_and_grad(plain), mode="max", check="never"),
    "grad": tape.compile(tape.func.grad(plain)),
    "grad_and_value": tape.compile(tape.func.grad_and_value(plain, (0,))),
    "of a compiled one": tape.value_and_grad(compiled),
    "of a differentiated one": tape.compile(differentiated),
    "of a partial": tape.compile(tape.value_and_grad(functools.partial(plain))),
    "of a method": tape.compile(tape.value_and_grad(MODEL.loss)),
    "bound": MODEL.scaled,
    "bound gradient": MODEL.fitted,
}


@pytest.mark.parametrize("name", PICKLED)
def test_compiled_functions_are_pickled(name: str) -> None:
    function: Any = PICKLED[name]
    again = pickle.loads(pickle.dumps(function))  # noqa: S301 (ours)
    assert type(again) is type(function)
    assert (again.mode, again.check) == (function.mode, function.check)
    x = np.array([1.0, 2.0])
    for _ in range(4):
        np.testing.assert_equal(again(x), function(x))
