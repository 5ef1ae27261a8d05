"""Inference mode: what is made in it, and what may be done with that outside; as PyTorch has it where it is there."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tape
from tape.recording.record import recorded
from tape.tensors import modes
from tests.support.pytorch_outcomes import LIBRARIES

SAVED = "Inference tensors cannot be saved for backward."
WRITTEN = "Inplace update to inference tensor outside InferenceMode is not allowed."
WANTED = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
COUNTED = "Inference tensors do not track version counter."


@pytest.fixture(autouse=True)
def _own_tape() -> None:
    """Record on a tape of which no other test knows."""
    modes._thread_tape.set(None)
    modes.set_mode(modes.current())


@pytest.fixture(params=LIBRARIES)
def lib(request: pytest.FixtureRequest) -> Any:
    """Run the test with ours and, if it is there, with PyTorch."""
    return import_module(request.param)


def made(lib: Any) -> tuple[Any, Any, Any, Any]:
    """Return a leaf, a plain tensor, and inference tensors: a vector and a number."""
    w = lib.tensor([1.0, 2.0], dtype=lib.float64, requires_grad=True)
    p = lib.tensor([3.0, 4.0], dtype=lib.float64)
    with lib.inference_mode():
        return w, p, lib.ones(2, dtype=lib.float64) * 2, lib.tensor(5.0, dtype=lib.float64)


def complaint(function: Callable[[], Any]) -> str:
    try:
        function()
    except RuntimeError as error:
        return str(error)
    return ""


# What an expression gives in the mode, of a leaf w and a plain tensor p: whether it is an inference tensor.
INSIDE = {
    "lib.zeros(2)": True,
    "lib.tensor(1.5)": True,
    "lib.tensor([1.5], requires_grad=True)": True,
    "lib.arange(3)": True,
    "lib.zeros_like(p)": True,
    "lib.from_numpy(np.ones(2))": True,
    "lib.as_tensor([1.0, 2.0])": True,
    "w * p": True,
    "w.sum()": True,
    "1.0 - p": True,
    "w.clone()": True,
    "p > 3": True,
    "p[[0, 1]]": True,
    "p.max(0).values": True,
    "p.max(0).indices": True,
    "p.to(dtype=lib.float32)": True,
    "w @ p": True,
    "(p * 2)[0]": True,
    "(p * 2).detach()": True,
    "p[0]": False,
    "p.reshape(2, 1)": False,
    "p.detach()": False,
    "p.data": False,
    "p.add_(1)": False,
    "p[0:1].mul_(2)": False,
    "w.mul_(2)": False,
    "p.contiguous()": False,
}


@pytest.mark.quick
@pytest.mark.parametrize(("expression", "expected"), INSIDE.items())
def test_what_is_an_inference_tensor(expression: str, expected: bool, lib: Any) -> None:
    w, p, *_ = made(lib)
    with lib.inference_mode():
        result = eval(expression, {"lib": lib, "np": np, "w": w, "p": p})  # noqa: S307 (from the table above)
        assert result.is_inference() is expected
    assert result.is_inference() is expected
    assert lib.is_inference(result) is expected
    assert not w.is_inference()
    assert not p.is_inference()


# What is said of an expression outside of it, in which i and s are inference tensors; "" for nothing.
USES = {
    "w * i": SAVED,
    "i * w": SAVED,
    "w * s": SAVED,
    "w / i": SAVED,
    "i / w": SAVED,
    "w**i": SAVED,
    "w @ i": SAVED,
    "i @ w": SAVED,
    "w * i[0]": SAVED,
    "w * i.detach()": SAVED,
    "(w * 1).mul_(i)": SAVED,
    "lib.where(m, w, p)": SAVED,
    "w + i": "",
    "s - w": "",
    "(w * 1).add_(i)": "",
    "lib.where(p > 3, w, i)": "",
    "lib.cat([w, i])": "",
    "lib.stack([w, i])": "",
    "(w * 1).copy_(i)": "",
    "(w * 1).__setitem__(0, s)": "",
    "i * p": "",
    "i * i": "",
    "w * i.clone()": "",
    "(w * 2).backward(i)": "",
    "i.add_(1)": WRITTEN,
    "s.add_(1)": WRITTEN,
    "i.__setitem__(0, 1.0)": WRITTEN,
    "i.reshape(2, 1).zero_()": WRITTEN,
    "i.copy_(p)": WRITTEN,
    "i.requires_grad_()": WANTED,
    "setattr(i, 'requires_grad', True)": WANTED,
    "i.requires_grad_(False)": "",
    "i._version": COUNTED,
}


def masked(lib: Any) -> Any:
    with lib.inference_mode():
        return lib.tensor([True, False])


@pytest.mark.quick
@pytest.mark.parametrize(("expression", "expected"), USES.items())
def test_uses_outside(expression: str, expected: str, lib: Any) -> None:
    space = {"lib": lib, "m": masked(lib), **dict(zip("wpis", made(lib), strict=True))}
    for _ in range(2):  # what has been refused once is refused again
        said = complaint(lambda: eval(expression, space))  # noqa: S307 (from the table above)
        assert said.startswith(expected)
        assert bool(said) == bool(expected), said


def test_what_fast_operators_know_does_not_help() -> None:
    w, p, i, s = made(tape)
    number = tape.tensor(2.0, requires_grad=True)
    for _ in range(3):
        assert (w * p)._slot is not None
        assert (number * tape.tensor(3.0)).item() == 6
        assert (i * p).tolist() == [6, 8]
        assert (s * 2.0).item() == 10
        for refused in (lambda: w * i, lambda: i * w, lambda: number * s, lambda: s * number):
            assert complaint(refused).startswith(SAVED)
    (w * p).sum().backward()
    assert w.grad.tolist() == [3, 4]


def test_a_refused_use_leaves_everything_as_it_was() -> None:
    w, _, i, _ = made(tape)
    h = w * 3
    count, version = recorded(), h._version
    assert complaint(lambda: h.mul_(i)).startswith(SAVED)
    assert complaint(lambda: h * i).startswith(SAVED)
    assert complaint(lambda: i.add_(1)).startswith(WRITTEN)
    assert (recorded(), h._version) == (count, version)
    assert (h.tolist(), i.tolist()) == ([3, 6], [2, 2])
    h.sum().backward()
    assert w.grad.tolist() == [3, 3]


def test_a_gradient_through_inference_tensors_that_are_not_saved() -> None:
    w, p, i, s = made(tape)
    (((w + i) * p - s) * tape.cat([w, i])[1:3]).sum().backward()
    # (w0 + 2) 3 - 5 and (w1 + 2) 4 - 5, times w1 and 2
    assert w.grad.tolist() == [3 * 2, 4 * 2 + (3 * 3 - 5)]


def test_inside_everything_goes() -> None:
    w, p, i, _ = made(tape)
    with tape.inference_mode():
        i.add_(1)
        i[0] = 7.0
        i *= p
        p += i
        w.mul_(2)
        grown = (i * 2).requires_grad_()
        assert grown.requires_grad
        assert grown.is_inference()
    assert (i.tolist(), p.tolist(), w.tolist()) == ([21, 12], [24, 16], [2, 4])
    assert i.is_inference()
    assert not p.is_inference()
    assert p._version == 1
    assert (w * p)._slot is not None
    assert complaint(lambda: w * i).startswith(SAVED)
    assert complaint(lambda: grown * grown).startswith(SAVED)
    (grown + 1).sum().backward()
    assert grown.grad.tolist() == [1, 1]
    assert not grown.grad.is_inference()


def test_history_stays_through_a_write_inside() -> None:
    w = tape.tensor(3.0, requires_grad=True)
    h = w * 2
    with tape.inference_mode():
        h.add_(1)
    assert h.item() == 7
    assert not h.is_inference()
    (h * h).backward()
    assert w.grad.item() == 2 * 7 * 2


def test_copies_are_ordinary_tensors(lib: Any) -> None:
    *_, i, s = made(lib)
    for x in (i, s):
        for one in (x.clone(), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), lib.tensor(x.tolist())):  # noqa: S301
            assert not one.is_inference()
            assert one.tolist() == x.tolist()


def state(lib: Any) -> tuple[bool, bool, bool, bool]:
    w = lib.ones(1, requires_grad=True)
    made_inside, recorded_inside = (lib.ones(1) * 2).is_inference(), (w * 2).requires_grad
    return lib.is_grad_enabled(), lib.is_inference_mode_enabled(), made_inside, recorded_inside


@pytest.mark.quick
def test_modes_within(lib: Any) -> None:
    outside, inside = (True, False, False, True), (False, True, True, False)
    with lib.inference_mode():
        assert state(lib) == inside
        with lib.enable_grad():
            assert (lib.is_grad_enabled(), lib.ones(1).is_inference()) == (True, True)
            assert not (made(lib)[0] * 2).requires_grad
        with lib.no_grad():
            assert state(lib) == inside
        with lib.inference_mode(False):
            assert state(lib) == outside
            with lib.inference_mode():
                assert state(lib) == inside
            assert state(lib) == outside
        assert state(lib) == inside
    assert state(lib) == outside
    with lib.no_grad(), lib.inference_mode(False):
        assert state(lib) == outside


def test_a_switch_of_another_kind_stays(lib: Any) -> None:
    lib.set_grad_enabled(False)
    with lib.inference_mode():
        pass
    assert not lib.is_grad_enabled()
    with lib.inference_mode(False):
        lib.set_grad_enabled(False)
    assert not lib.is_grad_enabled()
    lib.set_grad_enabled(True)


def test_the_mode_ends_with_an_error() -> None:
    def fail() -> None:
        with tape.inference_mode():
            raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        fail()
    assert not tape.is_inference_mode_enabled()
    assert tape.is_grad_enabled()
    assert not tape.ones(1).is_inference()
    assert modes.ON_MADE == []


def test_decorators() -> None:
    def inside() -> tuple[bool, bool]:
        return tape.is_inference_mode_enabled(), tape.ones(1).is_inference()

    assert tape.inference_mode(inside)() == (True, True)
    assert tape.inference_mode()(inside)() == (True, True)
    with tape.inference_mode():
        assert tape.inference_mode(False)(inside)() == (False, False)

    @tape.inference_mode
    def generate() -> Iterator[tuple[bool, bool]]:
        yield inside()
        yield inside()

    generator = generate()
    assert next(generator) == (True, True)
    assert inside() == (False, False)
    assert list(generator) == [(True, True)]
    assert modes.ON_MADE == []


def test_the_mode_is_of_its_thread() -> None:
    entered, asked = threading.Event(), threading.Event()
    found: list[bool] = []

    def other() -> None:
        with tape.inference_mode():
            entered.set()
            asked.wait(10)
            found.append(tape.ones(1).is_inference())

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(10)
    here = [tape.is_inference_mode_enabled(), tape.ones(1).is_inference(), (tape.ones(1) * 2).is_inference()]
    asked.set()
    thread.join()
    assert here == [False, False, False]
    assert found == [True]


def test_nothing_is_recorded_inside() -> None:
    w = tape.ones(3, requires_grad=True)
    count = recorded()
    with tape.inference_mode():
        y = (tape.exp(w) * w)[1:].sum()
        with tape.enable_grad():
            y = y + w.sum()
        assert recorded() == count
    assert not y.requires_grad
    assert y.grad_fn is None


def test_a_program_is_recorded_and_replayed_inside() -> None:
    with tape.inference_mode():
        program = tape.record(lambda x: (x * x).sum() + 1.0, tape.tensor([1.0, 2.0]))
        assert program(tape.tensor([3.0, 4.0])).item() == 26
    assert program(tape.tensor([1.0, 1.0])).item() == 3


def test_a_loss_from_outside_goes_back_inside() -> None:
    w = tape.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    with tape.inference_mode():
        loss.backward()
    assert w.grad.tolist() == [2, 4]
