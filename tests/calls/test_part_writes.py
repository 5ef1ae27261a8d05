"""Writes to parts that native code repeats: they do what the first, which Python did, has done."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.reference_tape import SavedValues

TIMES = range(4)
A = np.arange(12.0).reshape(4, 3) / 7 + 0.5
ROW, COLUMN = np.array([3.0, -0.5, 1.25]), np.array([[1.0], [2.0], [-1.0], [0.5]])
WRITES: dict[str, tuple[Any, Any]] = {
    "int": (2, ROW),
    "negative int": (-1, ROW),
    "number in a row": (1, 2.5),
    "element": ((1, 2), 3),
    "slice": (slice(1, 3), ROW),
    "steps back": (slice(None, None, -2), np.stack([ROW, 2 * ROW])),
    "column": ((slice(None), 1), COLUMN[:, 0]),
    "broadcast column": ((..., slice(0, 2)), COLUMN),
    "all": (..., ROW),
    "new axis": ((None, 0), ROW),
    "leading one": (0, ROW[None]),
    "scalar": ((3, 0), np.array(0.25)),
    "nothing": (slice(2, 2), ROW),
    "mask": (A > 1.0, 0.0),
    "list": ([0, 2], ROW),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", ["plain", "leaf under no_grad", "computed under no_grad"])
@pytest.mark.parametrize("name", WRITES)
def test_values(name: str, way: str, dtype: Any) -> None:
    key, value = WRITES[name]
    for times in TIMES:
        x = tape.tensor(A, dtype=dtype, requires_grad=way != "plain")
        if way.startswith("computed"):
            x = x * 1.0
        meant = A.astype(dtype)
        for k in range(times):
            own = tape.tensor(value * (k + 1), dtype=dtype) if isinstance(value, np.ndarray) else value * (k + 1)
            with tape.set_grad_enabled(way == "plain"):
                x[key] = own
            meant[key] = value * (k + 1)
            assert x._version == k + 1
        np.testing.assert_array_equal(x.detach().numpy(), meant)


@pytest.mark.parametrize("own", [False, True], ids=["of another", "its own"])
@pytest.mark.parametrize("name", [name for name in WRITES if name not in ("mask", "list")])
def test_gradients(name: str, own: bool) -> None:
    """What is overwritten has none, and the value that of its place: as a product with a mask has it."""
    key, value = WRITES[name]
    places = np.zeros_like(A)
    places[key] = 1.0
    for _ in TIMES:
        x = tape.tensor(A, requires_grad=True)
        v = tape.tensor(value, requires_grad=True) if isinstance(value, np.ndarray) else value
        y = x * 2.0 if own else tape.tensor(A)
        for k in range(3):
            y[key] = v * (k + 1) if k < 2 else v
        if y.requires_grad:
            (y * tape.tensor(A)).sum().backward()
        if own:
            np.testing.assert_allclose(x.grad.numpy(), 2 * A * (1 - places))
        if isinstance(value, np.ndarray):
            w = tape.tensor(value, requires_grad=True)
            part = tape.tensor(A[key])
            (w.reshape(value.shape[value.ndim - min(value.ndim, part.dim()) :]) * part).sum().backward()
            np.testing.assert_allclose(v.grad.numpy(), w.grad.numpy())


def test_what_pullbacks_need_and_others_see() -> None:
    for _ in TIMES:
        x = tape.tensor(A, requires_grad=True)
        y = x * 1.0
        z = (y * y).sum()  # needs y
        y[0] = 5.0
        row = y[1]
        y[1] = 7.0
        assert row.tolist() == [7.0] * 3
        (z + row.sum()).backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * A)
        array = np.array(A)
        shared = tape.from_numpy(array)
        replica = shared.detach()
        shared[0] = 1.0
        shared[0, 1] = 2.0
        assert array[0].tolist() == replica[0].tolist() == [1.0, 2.0, 1.0]


def test_a_part_of_itself() -> None:
    """The value is read from the memory that is written."""
    for _ in TIMES:
        x = tape.tensor(A)
        x[1:] = x[:-1]
        x[::-1] = x
        np.testing.assert_array_equal(x.numpy(), np.vstack([A[:1], A[:-1]])[::-1])
        x[0] = x[0]
        part = x[2]
        part[1] = x[0, 0]
        x[2] += 1.0
        assert x[2, 1].item() == x[0, 0].item() + 1.0


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda x: x.__setitem__(4, 1.0), IndexError),
        (lambda x: x.__setitem__(-5, 1.0), IndexError),
        (lambda x: x.__setitem__((0, 0, 0), 1.0), IndexError),
        (lambda x: x.__setitem__(0, tape.ones(2)), RuntimeError),
        (lambda x: x.__setitem__(0, "no"), (TypeError, ValueError)),
        (lambda x: operator.delitem(x, 0), TypeError),
        (lambda x: x[0, 0].clone().expand(4, 3).__setitem__(0, 1.0), RuntimeError),
        (lambda x: x.clone().requires_grad_().__setitem__(0, 1.0), RuntimeError),
    ],
)
def test_what_is_wrong_stays_wrong(write: Callable[[Any], Any], error: Any) -> None:
    x = tape.tensor(A)
    for _ in TIMES:
        x[0] = 1.0
        x[-1] = 2.0
        before = x.tolist()
        with pytest.raises(error):
            write(x)
        assert x.tolist() == before


def test_dtypes_are_kept() -> None:
    for _ in TIMES:
        single, integer, wide = tape.tensor(A, dtype=np.float32), tape.tensor([1, 2, 3]), tape.tensor(A)
        single[0] = tape.tensor(ROW)
        single[1] = 1
        integer[0] = 2.7
        wide[0] = tape.tensor([1, 2, 3])
        wide[1] = tape.tensor(ROW, dtype=np.float32)
        wide[2, 0] = True
        assert (single.dtype, integer.dtype, wide.dtype) == (np.float32, np.int64, np.float64)
        assert integer.tolist() == [2, 2, 3]
        assert wide[0].tolist() == [1.0, 2.0, 3.0]
        assert wide[2, 0].item() == 1.0


def test_programs_hear_of_writes() -> None:
    def step(x: Any, v: Any) -> Any:
        y = x * 1.0
        for i in range(3):
            y[i + 1] = y[i] * v
        y[0, 0] = 2.0
        return (y * y).sum()

    for _ in TIMES:
        x, v = tape.tensor(A, requires_grad=True), tape.tensor(ROW, requires_grad=True)
        value = step(x, v)
        value.backward()
    program = tape.record(step, 2 * A, 2 * ROW)
    found, gradients = program.value_and_grad(A, ROW)
    np.testing.assert_allclose(found, value.item())
    np.testing.assert_allclose(gradients[0], x.grad.numpy())
    np.testing.assert_allclose(gradients[1], v.grad.numpy())


def test_retained_gradients_are_of_the_last_version() -> None:
    for _ in TIMES:
        x = tape.tensor(A, requires_grad=True)
        y = x * 1.0
        y.retain_grad()
        y[0] = 2.0
        y[1] = x[1]
        (3.0 * y).sum().backward()
        np.testing.assert_array_equal(y.grad.numpy(), np.full_like(A, 3.0))
        np.testing.assert_array_equal(x.grad.numpy(), [[0.0] * 3, [6.0 - 3.0] * 3, [3.0] * 3, [3.0] * 3])


@tape.no_grad()
def _unrecorded(m: Any) -> None:
    m.y[m.i] = 1.0
    m.x[m.j] *= 0.9


STEPS: list[Callable[[Any], Any]] = [
    lambda m: m.y.__setitem__(m.i, m.value),
    lambda m: m.y.__setitem__((m.i, m.j), m.number),
    lambda m: m.y.__setitem__(slice(1, 3), m.value),
    lambda m: m.y.__setitem__((slice(None), m.j), m.number),
    lambda m: m.y.__setitem__(m.i, m.y[m.i - 1] * m.number),
    lambda m: m.y.__setitem__(slice(None, None, -1), m.y),
    lambda m: m.y.__iadd__(m.value).sum(),
    lambda m: m.y.mul_(0.75).sum(),
    lambda m: (m.y.sin() * m.y).sum(),
    lambda m: m.y[m.i],
    _unrecorded,
]


def _run(seed: int) -> list[np.ndarray[Any, Any]]:
    """Run a random program of writes, views and operations in place; return values and gradients."""
    draw = np.random.default_rng(seed)
    x, v, s = (tape.tensor(a, requires_grad=True) for a in (A, ROW, 1.5))
    m, kept = SimpleNamespace(x=x, y=x * 1.0), []
    for step in draw.integers(len(STEPS), size=draw.integers(4, 14)):
        m.value, m.number = [2.0, s, v, v * s][draw.integers(4)], [0.5, s, v.sum()][draw.integers(3)]
        m.i, m.j = int(draw.integers(4)), int(draw.integers(3))
        kept.append(STEPS[step](m))
        if draw.integers(3) == 0:
            kept = [one for one in kept if one is not None and not one.shape]  # views end
    total = (m.y * m.y).sum()
    for one in kept:
        total = total if one is None else total + one.sum()
    total.backward()
    return [m.y.detach().numpy(), x.detach().numpy(), *[g.numpy() for t in (x, v, s) if (g := t.grad) is not None]]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_repeat_themselves(seed: int) -> None:
    """With anomaly detection, which is notified of every operation, nothing of them is native."""
    with tape.autograd.detect_anomaly():
        meant = _run(seed)
    for _ in range(2):
        for got, wanted in zip(_run(seed), meant, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-10)


def test_elements_of_the_same_memory_make_nobody_look_through_the_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(SavedValues, "protect", lambda _, array: looked.append(array))
    x = tape.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1.0
    for _ in range(3):
        y[0] = y[2]
        y[3] = y[1]
    assert not looked
    kept = y[1:3]
    product = kept * kept  # whose pullback needs what is written next
    y[1] = y[2]
    assert len(looked) > 0
    del product


def test_what_pullbacks_saved_of_living_views_is_kept() -> None:
    x = tape.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1.0
    kept = y[1:3]
    total = (kept * kept).sum()
    y[1] = y[2]
    y[0] = y[1]
    (total + (y * y).sum()).backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, 4.0, 6.0 + 3 * 6.0, 8.0])
