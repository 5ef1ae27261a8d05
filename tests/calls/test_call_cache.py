"""Calls that native code repeats: the first runs in Python, the later ones do not, and nobody can tell."""

from __future__ import annotations

import contextvars
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tape
from kernels.foundation.specs import Spec
from kernels.kinds import call_entries
from tape.recording.cached_calls import NATIVELY

pytestmark = pytest.mark.skipif(not NATIVELY, reason="native code repeats nothing here")

RNG = np.random.default_rng(5)
LARGE = 20_000
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "where": (lambda a, b: tape.where(a > 0.5, a, b), lambda a, b: np.where(a > 0.5, a, b), ((3, 4), (4,))),
    "where with a number": (lambda a: tape.where(a > 0.5, a, -1.5), lambda a: np.where(a > 0.5, a, -1.5), ((3, 4),)),
    "masks": (lambda a, b: ((a > b) & ~(a < 0.3)) * a * b, lambda a, b: ((a > b) & ~(a < 0.3)) * a * b, ((5,), (5,))),
    "clamp": (lambda a: tape.clamp(a, 0.2, 0.7), lambda a: np.clip(a, 0.2, 0.7), ((3, 4),)),
    "relu": (lambda a: tape.relu(a - 0.5), lambda a: np.maximum(a - 0.5, 0), ((3, 4),)),
    "0-d relu": (lambda a: tape.relu(a - 0.1), lambda a: np.maximum(a - 0.1, 0), ((),)),
    "lerp": (tape.lerp, lambda a, b, c: a + c * (b - a), ((4,), (4,), (3, 4))),
    "matrix times matrix": (lambda a, b: a @ b, lambda a, b: a @ b, ((3, 4), (4, 2))),
    "matrix times vector": (lambda a, b: a.T @ b, lambda a, b: a.T @ b, ((3, 4), (3,))),
    "vector times matrix": (lambda a, b: a @ b[:, ::2], lambda a, b: a @ b[:, ::2], ((3,), (3, 4))),
    "vector times vector": (lambda a, b: a @ b, lambda a, b: a @ b, ((5,), (5,))),
    "mm": (tape.mm, lambda a, b: a @ b, ((3, 4), (4, 2))),
    "sum that keeps its dim": (lambda a: a * a.sum(1, keepdim=True), lambda a: a * a.sum(1, keepdims=True), ((3, 4),)),
    "mean by axis": (lambda a: a * a.mean(axis=-1, keepdims=True), lambda a: a * a.mean(-1, keepdims=True), ((3, 4),)),
    "sum of all": (lambda a: a * a.sum(keepdim=True), lambda a: a * a.sum(keepdims=True), ((3, 4),)),
    "large": (lambda a, b: a * b + tape.exp(a), lambda a, b: a * b + np.exp(a), ((LARGE,), (LARGE,))),
    "part of a large one": (lambda a: a[1:] * 2.0, lambda a: a[1:] * 2.0, ((LARGE,),)),
    "elements": (lambda a: sum(a[i] * i for i in range(70)), lambda a: sum(a[i] * i for i in range(70)), ((70,),)),
    "views": (
        lambda a: a.reshape(4, 3).T.unsqueeze(0).expand(2, 3, 4).permute(2, 0, 1).flatten(1) * 2.0,
        lambda a: np.broadcast_to(a.reshape(4, 3).T[None], (2, 3, 4)).transpose(2, 0, 1).reshape(4, 6) * 2.0,
        ((3, 4),),
    ),
    "views of what is turned": (lambda a: a.T.reshape(12) * a.t().flatten(), lambda a: a.T.ravel() ** 2, ((3, 4),)),
    "views of views": (
        lambda a: a[1:].view(8)[2:].reshape((3, 2)) * 1.0,
        lambda a: a[1:].ravel()[2:].reshape(3, 2),
        ((3, 4),),
    ),
    "clone": (lambda a: a.clone() * a.T.clone().T, lambda a: a * a, ((3, 4),)),
    "extrema": (
        lambda a: a.amax(1) * a.amin(1) + a.max() - a.min(),
        lambda a: a.max(1) * a.min(1) + a.max() - a.min(),
        ((3, 4),),
    ),
    "ties": (lambda a: (a * 0.0 + 2.0).amax(0, keepdim=True) * a, lambda a: a * 2.0, ((3, 4),)),
    "by a number": (lambda a: a**3 + a**0.3, lambda a: a**3 + a**0.3, ((6,),)),
    "turned operator": (lambda a: 2.0 // a + 7 % a, lambda a: 2.0 // a + 7 % a, ((6,),)),
}  # fmt: skip


def values(name: str, dtype: Any = np.float64) -> list[Any]:
    return [np.asarray(RNG.uniform(0.1, 1.0, shape), dtype) for shape in CALLS[name][2]]


def gradients(function: Callable[..., Any], given: list[Any]) -> list[Any]:
    leaves = [tape.tensor(x, requires_grad=True) for x in given]
    y = function(*leaves)
    (y * y).sum().backward()
    return [y.detach().numpy(), *[x.grad.numpy() for x in leaves]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CALLS)
def test_later_calls_are_the_first(name: str, dtype: Any) -> None:
    function, truth, _ = CALLS[name]
    given = values(name, dtype)
    first, *later = [gradients(function, given) for _ in range(4)]
    close = 3e-6 if dtype == np.float32 else 1e-13
    assert first[0].dtype == dtype
    np.testing.assert_allclose(first[0], truth(*given), rtol=close)
    for one in later:
        for a, b in zip(one, first, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    other = values(name, dtype)
    np.testing.assert_allclose(
        gradients(function, other)[0], truth(*other), rtol=3e-6 if dtype == np.float32 else 1e-13
    )


@pytest.mark.parametrize("name", [name for name in CALLS if name != "large"])
def test_nobody_wants_gradients(name: str) -> None:
    function, truth, _ = CALLS[name]
    for _ in range(3):
        given = values(name)
        with tape.no_grad():
            y = function(*[tape.tensor(x, requires_grad=True) for x in given])
        z = function(*map(tape.tensor, given))
        assert y.is_leaf
        assert z.is_leaf
        np.testing.assert_array_equal(y.numpy(), z.numpy())
        np.testing.assert_allclose(y.numpy(), truth(*given), rtol=1e-13)


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("large", "0-d relu")])
def test_a_recorder_hears_of_them(name: str) -> None:
    function, truth, _ = CALLS[name]
    given = values(name)
    for _ in range(3):
        gradients(function, given)
    programs = [tape.record(lambda *xs: (function(*xs) ** 2).sum(), *given) for _ in range(2)]
    assert str(programs[0]) == str(programs[1])
    other = values(name)
    np.testing.assert_allclose(programs[1](*other), (truth(*other) ** 2).sum(), rtol=1e-12)
    found, want = programs[1].value_and_grad(*other)[1], gradients(function, other)[1:]
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_number_that_is_no_single_is_told_each_time() -> None:
    x = tape.tensor(np.ones(3, np.float32))
    for _ in range(3):
        np.testing.assert_array_equal((x * 2.5).numpy(), np.full(3, 2.5, np.float32))
    with np.errstate(over="warn"), pytest.warns(RuntimeWarning, match="overflow"):
        x * 1e300


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.sin(2), TypeError),
        (lambda x: x.sum(0, True, 1), TypeError),
        (lambda x: x.sum(5), IndexError),
        (lambda x: x.sum(dim=0, axis=0), TypeError),
        (lambda x: x.mm(x), RuntimeError),
        (lambda x: x @ 2.0, TypeError),
        (lambda x: x[7], IndexError),
        (lambda x: x[-8], IndexError),
        (lambda x: tape.where(x, x, x), RuntimeError),
    ],
)
def test_what_is_wrong_stays_wrong(call: Callable[[Any], Any], error: type[Exception]) -> None:
    x = tape.tensor(np.linspace(0.1, 1.0, 4), requires_grad=True)
    for _ in range(3):
        x.sin(), x.sum(0, True), x.sum(dim=0), x @ x, x[2], tape.where(x > 0, x, x)
        with pytest.raises(error):
            call(x)


def test_a_composed_function_may_change_what_it_is_given() -> None:
    """Python runs in the middle of such a call: what it changes is seen, the instruction is that of the operands."""
    from kernels.operations import OPS

    x = tape.tensor([-1.0, 2.0], requires_grad=True)
    y = x * 1.0
    before = OPS["clamp_min"].ufunc

    def writes(value: Any, least: float) -> Any:
        found = before(value, least)
        if armed:
            armed.clear()
            y.mul_(3.0)
        return found

    armed: list[int] = []
    object.__setattr__(OPS["clamp_min"], "ufunc", writes)
    try:
        z = tape.tensor(np.ones(2), requires_grad=True) * 1.0
        for _ in range(2):
            tape.clamp_min(z, 0.0)
        armed.append(1)
        found = tape.clamp_min(y, 0.0)
    finally:
        object.__setattr__(OPS["clamp_min"], "ufunc", before)
    found.sum().backward()
    assert y.tolist() == [-3.0, 6.0]
    assert found.tolist() in ([0.0, 2.0], [0.0, 6.0])
    assert x.grad.tolist() == [0.0, found.tolist()[1] / 2.0]


def test_results_of_large_calls_are_let_go() -> None:
    x = tape.tensor(np.ones(LARGE), requires_grad=True)
    for _ in range(3):
        y = x * x
        held = weakref.ref(y._value)
        del y
        tape.recording.record.recorded()
        gc.collect()
        assert held() is None


def test_an_entry_is_made_once() -> None:
    """What the table has, and native code leaves to Python now and then, is not worked out again."""
    x, zero = tape.tensor(2.0, requires_grad=True), tape.tensor(0.0)
    with np.errstate(divide="ignore"):
        for _ in range(2):
            x / zero
    entries = {address: id(kept) for address, kept in call_entries._kept.items()}
    with np.errstate(divide="ignore"):
        for _ in range(3):
            assert (x / zero).item() == np.inf
    assert {address: id(kept) for address, kept in call_entries._kept.items()} == entries


def test_a_call_that_is_entered_leaves_no_cycle() -> None:
    """But for specs that bounded caches have dropped, behind calls of many shapes: these refer to themselves."""

    def calls(length: int) -> None:
        x = tape.ones(2, length).requires_grad_()
        y = x * x + tape.relu(x[1:]) - x.T.reshape(2, length).sum(0)
        assert (y @ y.T).shape == (2, 2)

    calls(30)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        calls(31)
        calls(32)
        gc.collect()
        assert [thing for thing in gc.garbage if type(thing) is not Spec] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(
    "call", [lambda m: tape.where(m, 1.0, 2.0), tape.rsqrt, tape.sqrt, lambda m: tape.where(m, 0.5, m), lambda m: m / m]
)
def test_the_default_dtype_decides_of_masks_and_numbers(call: Callable[[Any], Any]) -> None:
    mask = tape.tensor([True, True])
    for dtype in (tape.float64, tape.float32, tape.float64):
        tape.set_default_dtype(dtype)
        for _ in range(3):
            assert call(mask).dtype == dtype


@pytest.mark.parametrize("setting", ["a thread", "a context", "a thread without gradients"])
def test_who_has_recorded_nothing_is_repeated_natively_too(setting: str) -> None:
    x, called = tape.tensor([0.5, 1.5]), list[str]()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    def work() -> None:
        with tape.no_grad() if "without" in setting else nullcontext():
            for _ in range(2):
                y = x * x + 1.0
            sys.setprofile(profile)
            y = x * x + 1.0
            sys.setprofile(None)
        called.append(str(y.tolist()))

    if setting == "a context":
        contextvars.Context().run(work)
    else:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert called == ["[1.25, 3.25]"]
