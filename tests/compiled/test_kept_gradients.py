"""A compiled function that returns a number, on tensors: gradients are kept until ``backward``, as in dynamic mode."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.reference_tape import saved_arrays
from kernels.machine_code.call_structs import CallPlan
from kernels.sweeps.reverse import NATIVE, PausedSweep
from tape.tensors import modes

pytestmark = pytest.mark.quick
VALUES = [1.0, 2.0, -3.0], [0.5, -1.0, 2.0]


def _loss(a: Any, b: Any) -> Any:
    return (a * b).sum() + (a * a * a).mean()


def _leaves(dtype: Any = np.float64) -> list[Any]:
    return [tape.tensor(np.array(v, dtype), requires_grad=True) for v in VALUES]


def _grads(tensors: Any) -> list[Any]:
    return [None if t.grad is None else np.array(t.grad.detach()) for t in tensors]


def _arrays(tensors: Any) -> list[Any]:
    return [np.array(t.detach()) for t in tensors]


def _warm(f: Any, calls: int = 12, make: Callable[[], list[Any]] = _leaves) -> Any:
    for _ in range(calls):
        f(*make()).backward()
    return f


def _retained(f: Any) -> list[Any]:
    ts = _leaves()
    loss = f(*ts)
    loss.backward(retain_graph=True)
    first = _grads(ts)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    return [*first, *_grads(ts)]


def _freed(f: Any) -> list[Any]:
    ts = _leaves()
    loss = f(*ts)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    return _grads(ts)


def _scaled(f: Any) -> list[Any]:
    found = []
    for weigh in (
        lambda y: (y * -2.5).backward(),
        lambda y: y.backward(tape.tensor(3.0)),
        lambda y: (y * 0).backward(),
    ):
        ts = _leaves()
        weigh(f(*ts))
        found += _grads(ts)
    return found


def _accumulated(f: Any) -> list[Any]:
    ts = _leaves()
    f(*ts).backward()
    held = {id(a) for a in saved_arrays(entries).arrays(0)[::3] if a.size == x.numel()}
    assert len(held) < 10
    del results
    gc.collect()
    f(x).backward()
    x.grad = None


def test_threads() -> None:
    """Each has its own tape, and all one program."""
    f, failed = _warm(tape.compile(_loss, mode="max")), []

    def through() -> list[Any]:
        ts = _leaves()
        for _ in range(20):
            (f(*ts) * 1.5).backward()
            f(*ts).backward()
        return _grads(ts)

    expected = through()

    def work() -> None:
        for _ in range(10):
            for one, other in zip(through(), expected, strict=True):
                if not np.array_equal(one, other):
                    failed.append(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_errors_are_the_functions() -> None:
    """Of the forward; a gradient that cannot be computed raises in the backward alone."""

    class Failing(tape.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(*_: Any) -> Any:
            raise ValueError("no gradient here")

    f = tape.compile(lambda x: Failing.apply(x).sum())
    for _ in range(6):
        x = tape.tensor([1.0, 2.0], requires_grad=True)
        loss = f(x)
        assert loss.item() == 6.0
        with pytest.raises(ValueError, match="no gradient here"):
            loss.backward()
    g = tape.compile(lambda x: tape.linalg.cholesky(x).sum(), mode="max")
    for k in range(8):
        x = tape.tensor(np.eye(2) * (1.0 if k < 6 else -1.0), requires_grad=True)
        if k < 6:
            g(x).backward()
        else:
            with pytest.raises(np.linalg.LinAlgError):
                g(x)
