"""Tables of what was seen before: a key holds values or objects that cannot change, never an id or a stand-in.

Examined, table by table: the table of calls that native code repeats (`call_cache`: forms and specs by address, which
live as long as an entry; numbers by their bits); `recording._forms`, `_views` and `_patterns`;
`adding._added`; `families._forms`; `inference._specs`;
`routine_calls._calls`; `packing._FORMS`; `numpy_ufuncs._known`; the `functools` caches of promotion,
einsums, quantiles, diagonals, quadrature, index_arrays and numpy_linalg; `primals._made`; what recorders know by the id
of a tensor that they hold; the numbers of `lowered_elements` (by their bits); `layouts._SPECS` and `_BASES`;
`Form.restrided`; `pushes._made`; `replay._kernels`; `forwards._kernels`; kernels of `custom`; `loops.find`;
`logsums._compiled`; factors in `sparsity` (an address, and a copy that must agree in every bit).
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tape
from kernels.foundation.tables import exact
from kernels.kinds.call_entries import arguments
from tape.recording.cached_calls import NATIVELY

# --- joins of views whose base was written ----------------------------------------------------------------------


def joined(part: Any, join: str) -> np.ndarray[Any, Any]:
    """Return the gradient of a join of a part with a vector, the part's base written before."""
    leaf = tape.zeros(4, 4, requires_grad=True)
    w, c = leaf * 1.0, tape.zeros(4)
    v = w[part]
    w[3, 3] = 0.0
    getattr(tape, join)([v, c[: v.shape[0]]]).sum().backward()
    return np.asarray(leaf.grad)


@pytest.mark.parametrize("join", ["cat", "stack"])
def test_joins_of_views_whose_base_was_written(join: str) -> None:
    parts = [0, (slice(None), 1), (slice(None), 2), (slice(1, 3), 0), (0, slice(0, 2)), 2]
    for part in [*parts, *parts]:
        expected = np.zeros((4, 4))
        expected[part] = 1.0
        expected[3, 3] = 0.0
        np.testing.assert_array_equal(joined(part, join), expected, err_msg=str(part))


def test_a_join_of_tensors_after_one_of_arrays() -> None:
    x = tape.ones(3, requires_grad=True)
    for other in (np.zeros(3), tape.zeros(3), np.zeros(3), x):
        x.grad = None
        tape.stack([x * 2.0, other]).sum().backward()
        np.testing.assert_array_equal(x.grad, np.full(3, 3.0 if other is x else 2.0))


# --- indices that hold what can change --------------------------------------------------------------------------


class Mutable:
    """An index that changes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


ENDS: dict[str, Any] = {
    "x[i:]": lambda x, i: x[i:],
    "x[:i]": lambda x, i: x[:i],
    "x[::i]": lambda x, i: x[::i],
    "x[i:, 0]": lambda x, i: x[i:, 0],
    "x[0, :i]": lambda x, i: x[0, :i],
    "x[..., i:]": lambda x, i: x[..., i:],
    "x[i]": lambda x, i: x[i],
    "x[i, 1]": lambda x, i: x[i, 1],
    "x[None, i]": lambda x, i: x[None, i],
}


def changed(index: Any, number: int) -> Any:
    """Return an index of this number: the same object, if it can change."""
    if isinstance(index, Mutable):
        index.number = number
    elif isinstance(index, tape.Tensor):
        index.fill_(number)
    elif isinstance(index, np.ndarray):
        index[...] = number
    else:
        index = type(index)(number)
    return index


@pytest.mark.parametrize("form", ENDS)
@pytest.mark.parametrize("kind", ["tensor", "array", "mutable", "int64", "int"])
def test_an_index_that_changed_is_read_again(form: str, kind: str) -> None:
    values = np.arange(16.0).reshape(4, 4)
    index: Any = {"tensor": tape.tensor(1), "array": np.array(1), "mutable": Mutable(1), "int64": np.int64(1)}.get(
        kind, 1
    )
    leaf = tape.tensor(values, requires_grad=True)
    for number in (1, 3, 2, 1):
        index = changed(index, number)
        leaf.grad = None
        part = ENDS[form](leaf * 1.0, index)
        np.testing.assert_array_equal(part.detach(), ENDS[form](values, number))
        part.sum().backward()
        expected = np.zeros(16)
        expected[ENDS[form](np.arange(16).reshape(4, 4), number)] = 1.0
        np.testing.assert_array_equal(leaf.grad.reshape(-1), expected)


@pytest.mark.parametrize("kind", ["tensor", "array", "mutable"])
def test_a_write_by_an_index_that_changed(kind: str) -> None:
    index: Any = {"tensor": tape.tensor(1), "array": np.array(1), "mutable": Mutable(1)}[kind]
    x, expected = tape.zeros(4), np.zeros(4)
    for number in (1, 3, 2):
        index = changed(index, number)
        x[index:] += 1.0
        x[index] = 7.0
        expected[number:] += 1.0
        expected[number] = 7.0
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("wrong", [1.0, np.float64(1.0), Fraction(1), "1", tape.tensor(1.0), np.array(1.0)])
def test_what_equals_an_index_is_none(wrong: Any) -> None:
    x = tape.arange(4.0)
    for key in (slice(1, None), slice(None, 1), slice(None, None, 1), (slice(1, None),), 1):
        x[key]
    for key in (slice(wrong, None), slice(None, wrong), slice(None, None, wrong), (slice(wrong, None),)):
        with pytest.raises((TypeError, IndexError)):
            x[key]
    with pytest.raises((TypeError, IndexError)):
        x[wrong]


def test_a_program_hears_of_an_index_that_is_a_tensor() -> None:
    with pytest.raises(RuntimeError):
        tape.record(lambda x, i: x[i:].sum(), np.arange(3.0), np.array(1))(np.arange(3.0), np.array(2))


# --- values as keys ---------------------------------------------------------------------------------------------

APART = [
    (1, True), (1, 1.0), (0, False), (0.0, -0.0), (1, np.int64(1)), (1.0, np.float64(1.0)), ("a", np.str_("a")),
    (np.float64(0.0), np.float64(-0.0)), (np.int32(1), np.int64(1)), ((1, 2), (True, 2)), ((1, (0.0,)), (1, (-0.0,))),
    (slice(1, 2), slice(1.0, 2)), (np.dtype("<f8"), np.dtype(">f8")), (None, 0), ((), None), (int, np.int64),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), APART, ids=repr)
def test_values_that_are_equal_and_mean_different_things(one: Any, other: Any) -> None:
    assert exact(one) != exact(other)
    assert exact(one) == exact(copy.deepcopy(one))
    assert hash(exact(one)) == hash(exact(copy.deepcopy(one)))


def test_nan_is_one_key() -> None:
    assert exact(float("nan")) == exact(float("nan"))
    assert exact((np.float32("nan"), 1)) == exact((np.float32("nan"), 1))


@pytest.mark.parametrize("value", [np.zeros(2), [1, 2], {1: 2}, {1}], ids=repr)
def test_what_can_change_is_no_key(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be part of a key"):
        exact((1, value))


def test_tensors_are_no_keys() -> None:
    with pytest.raises(TypeError, match="cannot be part of a key"):
        exact(tape.tensor(1))


@pytest.mark.skipif(not NATIVELY, reason="native code finds calls by them")
def test_calls_of_routines_are_told_apart_by_names_and_types() -> None:
    calls: list[dict[str, Any]] = [
        {"dim": 0}, {"axis": 0}, {"dim": False}, {"dim": 0.0}, {"dim": -0.0}, {"dim": (0,)}, {"dim": None},
        {"dim": 0, "keepdim": False}, {"dim": False, "keepdim": 0},
    ]  # fmt: skip
    asked = [arguments((), params) for params in calls]
    keys = [None if one is None else (one.words.tobytes(), one.objects[0]) for one in asked]
    for (one, a), (other, b) in itertools.combinations(zip(calls, keys, strict=True), 2):
        assert a is None or b is None or a != b, f"{one} and {other}"  # None: Python does it each time


@pytest.mark.parametrize("truth", [1, np.True_, np.int64(1)])
def test_arguments_that_equal_true(truth: Any) -> None:
    x = tape.tensor([[1.0, 2.0], [4.0, 3.0]], requires_grad=True)
    for keepdim in (True, truth, False, 0):
        assert x.sum(1, keepdim).shape == x.detach().numpy().sum(1, keepdims=bool(keepdim)).shape
        assert (x * 1.0).var(1, keepdim=keepdim).shape == x.detach().numpy().var(1, keepdims=bool(keepdim)).shape


# --- all tables -------------------------------------------------------------------------------------------------


def tables() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("tape", "kernels"):
            yield from (
                (f"{name}.{own}", value)
                for own, value in list(vars(module).items())
                if isinstance(value, dict) and not own.startswith("__")
            )


def parts(key: Any) -> Iterator[Any]:
    yield key
    if isinstance(key, (tuple, frozenset)):
        for part in key:
            yield from parts(part)


def test_no_table_of_the_process_has_a_key_that_can_change() -> None:
    x, i = tape.ones(4, 4, requires_grad=True), tape.tensor(2)
    y = x * 1.0
    v = y[:i]
    y[0, i] = 3.0
    loss = tape.cat([v, y[i:]]).sum(0).var() + tape.stack([y[0], y[:, 1]]).softmax(0).norm() + (x**2.0).prod()
    (g,) = tape.autograd.grad(loss, x, create_graph=True)
    g.sum().backward()
    seen = 0
    for name, table in tables():
        for key in list(table):
            seen += 1
            for part in parts(key):
                assert not isinstance(part, (tape.Tensor, np.ndarray, slice)), f"{name}: {key!r}"
    assert seen > 100
