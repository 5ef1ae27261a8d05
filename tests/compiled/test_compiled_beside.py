"""Programs that are compiled by a thread, while calls go on: when they take over, and what may go wrong meanwhile."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.machine_code.compiled_machine import CompiledMachine
from tape.programs import program as programs

pytestmark = pytest.mark.quick
X = np.linspace(0.1, 1.0, 50)


def chained(x: Any) -> Any:
    for _ in range(20):
        x = tape.sin(x) * 1.1
    return x.sum()


def started(monkeypatch: pytest.MonkeyPatch, calls: int = 40) -> Any:
    """Return a compiled function that is due after so many calls, and is not recorded any more."""
    monkeypatch.setattr(programs, "calls_until_compiled", lambda _: calls)
    monkeypatch.setattr(programs, "calls_meanwhile", lambda _: 2 * calls)
    monkeypatch.setattr(programs, "calls_in", lambda seconds, machine: int(seconds))  # noqa: ARG005 (its name)
    compiled = tape.compile(tape.value_and_grad(chained), check="never")
    while not compiled.programs or True not in compiled.programs[0]._due:
        compiled(X)
    return compiled


def is_machine_code(compiled: Any) -> bool:
    return isinstance(compiled.programs[0]._first[True], CompiledMachine)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have compiling wait until this is set, and say that its stages take so many seconds, that is, calls."""
    event, compile_now = threading.Event(), programs.compiled_machine

    def waiting(*args: Any, expected: Callable[[float], None], **kwargs: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        for stage in (10.0, 100.0, 20.0):
            expected(stage)
        assert event.wait(60.0)
        return compile_now(*args, **kwargs)

    monkeypatch.setattr(programs, "compiled_machine", waiting)
    return event


def test_calls_go_on_and_a_certain_one_is_the_first_of_machine_code(
    monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    compiled = started(monkeypatch)
    (program,) = compiled.programs
    expected = compiled(X)
    while True not in program._beside:
        compiled(X)
    left = program._due[True]
    assert left <= 80
    assert "while machine code is being made" in compiled.explain()
    for _ in range(left + (130 - 80) - 1):  # none of these waits
        assert compiled(X)[0] == expected[0]
    assert not is_machine_code(compiled)
    held.set()
    compiled(X)
    assert is_machine_code(compiled)
    value, gradient = compiled(X)
    assert value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-12)


def test_code_that_is_asked_for_is_waited_for(monkeypatch: pytest.MonkeyPatch, held: threading.Event) -> None:
    compiled = started(monkeypatch)
    (program,) = compiled.programs
    while True not in program._beside:
        compiled(X)
    beside = program._beside[True]
    threading.Timer(0.05, held.set).start()
    assert program._code(reverse=True) is beside.result().code  # type: ignore[union-attr]
    assert is_machine_code(compiled)


def test_a_fault_of_the_compiler_is_told_to_a_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any, **kwargs: Any) -> Any:
        raise KeyError(args, kwargs)

    monkeypatch.setattr(programs, "compiled_machine", failing)
    compiled = started(monkeypatch, 5)
    (program,) = compiled.programs
    while True not in program._beside or program._due[True] > 1:
        compiled(X)
    with pytest.warns(tape.errors.CompileWarning, match="the compiler failed") as caught:
        compiled(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert "interpreter: the compiler failed" in compiled.explain()


def test_where_there_are_no_threads_it_is_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    compiled = started(monkeypatch, 5)
    monkeypatch.setattr(threading.Thread, "start", refused)
    for _ in range(50):
        compiled(X)
    assert is_machine_code(compiled)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_compiles_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = started(monkeypatch, 5)
    (program,) = compiled.programs
    arrived, go = threading.Event(), threading.Event()
    compile_now = programs.compiled_machine

    def waiting(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            arrived.set()
            assert go.wait(60.0)
        return compile_now(*args, **kwargs)

    monkeypatch.setattr(programs, "compiled_machine", waiting)
    while True not in program._beside:
        compiled(X)
    assert arrived.wait(60.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:  # pragma: no cover (in another process)
        for _ in range(20):
            compiled(X)
        os._exit(0 if is_machine_code(compiled) else 1)
    go.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for _ in range(20):
        compiled(X)
    assert is_machine_code(compiled)
