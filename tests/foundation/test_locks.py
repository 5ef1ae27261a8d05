"""Locks that interrupts and forks never leave held."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import warnings
from typing import TYPE_CHECKING

import pytest

from kernels.foundation.tables import Lock, cached_property

if TYPE_CHECKING:
    from conftest import Fresh

pytestmark = pytest.mark.quick


class _Interrupt(BaseException):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer here")
def test_interrupts_leave_a_lock_free() -> None:
    lock, rng, listens, interrupts = Lock(), random.Random(0), [False], 0  # noqa: S311 (no secret)

    def interrupt(*_: object) -> None:
        if listens[0]:
            raise _Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            try:
                listens[0] = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 2e-4), 5e-5)
                while True:
                    with lock, lock, lock.if_free() as free:
                        assert not free
                    with lock.if_free() as free:
                        assert free
            except _Interrupt:
                listens[0] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert not lock.is_inside
            interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_holds_what_its_thread_held() -> None:
    others, own, held, leave = Lock(), Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with others:
            held.set()
            leave.wait(60.0)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60.0)
    with own, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns where there are threads
        child = os.fork()
        if child == 0:  # pragma: no cover (in another process)
            with others:
                os._exit(0 if own.is_inside else 1)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not own.is_inside


def test_a_lock_that_is_held_is_not_free_for_others() -> None:
    lock, found = Lock(), list[bool]()

    def ask() -> None:
        with lock.if_free() as free:
            found.append(free)

    for held in (False, True):
        thread = threading.Thread(target=ask)
        if held:
            with lock:
                thread.start()
                thread.join()
        else:
            thread.start()
            thread.join()
    assert found == [True, False]


def test_a_cached_property_is_computed_once() -> None:
    class Counted:
        computed = 0

        @cached_property
        def value(self) -> int:
            """How often it was computed."""
            self.computed += 1
            return self.computed

    counted = Counted()
    assert [counted.value, counted.value] == [1, 1]
    assert Counted.value.__doc__ == "How often it was computed."


FORKS = """
import faulthandler, os, random, signal, sys, threading, time, traceback, warnings
import numpy as np, numpy.testing, tape  # Python itself hangs where a thread was importing
from tape.programs import program
warnings.simplefilter("ignore", DeprecationWarning)
program.calls_until_compiled = lambda machine: 20
program.calls_meanwhile = lambda machine: 40
program.calls_in = lambda seconds, machine: int(seconds)  # callers wait for the thread
X, W, rng, forks = np.linspace(0.2, 1.0, 16), 0.7, random.Random(0), 0

def value(x, w, k, sin, exp, total):
    u = x * 1.0
    for _ in range(3 + k % 3):
        u = sin(u * (0.5 + 0.01 * k)) + w * x
    return total(u * u) + exp(-w)

def by_numpy(k):  # the derivatives, by complex steps
    steps = 1e-30j * np.eye(17)
    return np.array([value(X + s[:-1], W + s[-1], k, np.sin, np.exp, np.sum).imag / 1e-30 for s in steps])

def compiled(k):
    return tape.compile(tape.value_and_grad(
        lambda x, w: value(x, w, k, tape.sin, tape.exp, lambda v: v.sum()), argnums=(0, 1)))

def check(f, expected):
    _, (x, w) = f(X, W)
    np.testing.assert_allclose([*x, w], expected, rtol=1e-9)

def child(f, expected, k):
    faulthandler.dump_traceback_later(60, exit=True)
    code = 1
    try:
        for _ in range(200): check(f, expected)
        assert all(program.is_machine_code for program in f.programs), f.explain()
        check(compiled(k + 1), by_numpy(k + 1))
        tape.rand(4)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)

def drive():
    while running:
        f, expected, _ = current
        check(f, expected)
        tape.rand(100_000)

current, running = (compiled(0), by_numpy(0), 0), True
for _ in range(200): check(*current[:2])  # kernels that all programs share are compiled once, not by each child
tape.rand(4)
thread = threading.Thread(target=drive, daemon=True)
thread.start()
end = time.monotonic() + SECONDS
for k in range(1000):
    current = compiled(k), by_numpy(k), k
    children = []
    for _ in range(3):
        time.sleep(rng.uniform(0.0, 0.2))
        number = os.fork()
        if number == 0: child(*current)
        children.append(number)
    for number in children:
        assert os.waitpid(number, 0)[1] == 0
        forks += 1
    if time.monotonic() > end: break
running = False
thread.join()
print(forks)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_processes_that_are_forked_while_a_thread_compiles(fresh: Fresh) -> None:
    seconds = os.environ.get("TAPE_STRESS_SECONDS", "2")
    printed, errors = fresh(FORKS.replace("SECONDS", seconds)).communicate(timeout=120 + 10 * float(seconds))
    assert errors == ""
    assert int(printed) > 0
