"""Calls whose arguments are structures, or have fixed parts, are replayed at once, and only where they are alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from kernels.native.c_api import NATIVE
from tape.compiled.compiled_function import CompiledFunction
from tape.tensors import pytrees

pytestmark = pytest.mark.quick

X = np.array([1.0, 2.0, 3.0])


class Pair(NamedTuple):
    """Two values."""

    a: Any
    b: Any


def total(tree: Any, *more: Any, **named: Any) -> Any:
    """Return a sum in which each value counts by its place; what is no value counts, too."""
    leaves = pytrees.leaves((tree, more, dict(named)))
    weighed = [(k + 1) * (x if isinstance(x, tape.Tensor) else float(len(repr(x)))) for k, x in enumerate(leaves)]
    return sum(weighed[1:], weighed[0]).sum()


def settled(monkeypatch: pytest.MonkeyPatch, *args: Any, **kwargs: Any) -> tuple[Any, list[int]]:
    """Return a compiled function that replays calls like this one at once, and a list that other calls lengthen."""
    compiled, slow = tape.compile(total, check="never"), list[int]()
    for _ in range(4):
        compiled(*args, **kwargs)
    original = CompiledFunction._called

    def counted(self: Any, *rest: Any, **how: Any) -> Any:
        slow.append(1)
        return original(self, *rest, **how)

    monkeypatch.setattr(CompiledFunction, "_called", counted)
    return compiled, slow


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "dict": (({"w": X, "b": X + 1},), {}),
    "list of dicts": (([{"w": X}, {"w": X + 1}],), {}),
    "named tuple": ((Pair(X, [X + 1, 2.0]),), {}),
    "keywords": ((X,), {"scale": 2.0, "more": X + 1}),
    "an int": ((X, 3), {}),
    "fixed ones": ((X, "mean", None, True, (1, 2)), {"mode": b"x"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_alike_are_replayed_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args, kwargs = CALLS[name]
    compiled, slow = settled(monkeypatch, *args, **kwargs)
    moved_args, moved_kwargs = pytrees.mapped(lambda x: x + 1 if isinstance(x, np.ndarray) else x, (args, kwargs))
    for a, k in ((args, kwargs), (moved_args, moved_kwargs)):
        expected = total(*pytrees.mapped(_tensor, a), **pytrees.mapped(_tensor, k))
        assert compiled(*a, **k) == expected.item()
    assert not (NATIVE and slow)


def test_calls_that_give_one_array_twice_are_replayed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, slow = settled(monkeypatch, X, {"more": X})
    for x in (X, X + 1):
        assert compiled(x, {"more": x}) == total(tape.tensor(x), {"more": tape.tensor(x)}).item()
    assert not (NATIVE and slow)
    assert compiled(X, {"more": X + 1}) == total(tape.tensor(X), {"more": tape.tensor(X + 1)}).item()
    assert len(slow) == 1


def _tensor(x: Any) -> Any:
    return tape.tensor(x) if isinstance(x, (np.ndarray, float)) else x


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"keywords"}))  # there an array stays NumPy's in dynamic mode
def test_gradients_of_structures_are_replayed_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args, kwargs = CALLS[name]
    settled(monkeypatch, X)
    both = tape.compile(tape.value_and_grad(total), check="never")
    for _ in range(4):
        value, gradient = both(*args, **kwargs)
    expected, expected_gradient = tape.value_and_grad(total)(*args, **kwargs)
    assert value == expected
    pairs = zip(*map(pytrees.leaves, (gradient, expected_gradient)), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


OTHERS: dict[str, tuple[tuple[Any, ...], Callable[[], tuple[Any, ...]]]] = {
    "another order": (({"w": X, "b": X + 1},), lambda: ({"b": X + 1, "w": X},)),
    "another key": (({"w": X},), lambda: ({"v": X},)),
    "one more": (([X, X],), lambda: ([X, X, X],)),
    "a tuple for a list": (([X, X],), lambda: ((X, X),)),
    "another class": ((Pair(X, X),), lambda: ((X, X),)),
    "another int": ((X, 3), lambda: (X, 33)),
    "a bool for an int": ((X, 1), lambda: (X, True)),
    "a number for a fixed one": ((X, 3), lambda: (X, 3.0)),
    "a list for a value": (([X, 2.0],), lambda: ([X, [2.0]],)),
    "a fixed one for a value": (([X, 2.0],), lambda: ([X, 2],)),
    "another string": ((X, "mean"), lambda: (X, "total")),
    "None for a value": (([X, 2.0],), lambda: ([X, None],)),
    "another shape": (([X, 2.0],), lambda: ([X[:2], 2.0],)),
    "a float32 array": (([X, 2.0],), lambda: ([X.astype(np.float32), 2.0],)),
    "fewer arguments": ((X, 3), lambda: (X,)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_calls_that_are_not_alike_are_taken_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args, make = OTHERS[name]
    compiled, slow = settled(monkeypatch, *args)
    others = make()
    expected = total(*pytrees.mapped(_tensor, others)).item()
    assert [compiled(*others) for _ in range(4)] == [expected] * 4
    assert slow
    first = total(*pytrees.mapped(_tensor, args)).item()
    assert [compiled(*args) for _ in range(2)] == [first] * 2


def test_a_program_that_reads_a_tensor_from_outside_is_replayed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tape.tensor([1.0, 2.0, 3.0])
    compiled = tape.compile(lambda x: (x * outside).sum(), check="never")
    for _ in range(4):
        compiled(X)
    _, slow = settled(monkeypatch, X)
    assert compiled(X) == 14.0
    outside[0] = 5.0
    assert compiled(X) == 18.0
    assert not (NATIVE and slow)
    outside.mul_(2)
    assert compiled(X) == 36.0
    outside.data = tape.ones(3)
    assert compiled(X) == 6.0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.softmax(0), lambda x: x.log_softmax(0), lambda x: x.cumsum(0), lambda x: x.sort()[0],
        lambda x: x.prod(0), lambda x: x.var(0),
    ],
)  # fmt: skip
def test_small_rows_are_computed_by_kernels_in_programs(f: Callable[[Any], Any]) -> None:
    compiled = tape.compile(f, check="never")
    for k in range(4):
        np.testing.assert_array_equal(np.asarray(compiled(X + k)), f(tape.tensor(X + k)).numpy())
    (machine,) = compiled.programs[0]._machines[False]
    assert not (NATIVE and machine.rows.calls)
