"""Native code does the work: Python calls are counted, and the way without native code is forced."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numba import njit

import tape
from kernels.native import memory, pool
from kernels.sweeps import reverse
from tape.tensors import hooks

if TYPE_CHECKING:
    from types import FrameType

    from conftest import Fresh

native = pytest.mark.skipif(not reverse.NATIVE, reason="this interpreter's memory cannot be read")


CHECKS = {
    "kernels.sweeps.debug_checks",
    "kernels.native.pool",
    "kernels.foundation.specs",
}


def checks(frame: FrameType | None) -> bool:
    """Whether a function runs for ``TAPE_DEBUG=1``, which looks at the tape in Python."""
    while frame is not None and frame.f_globals.get("__name__") not in CHECKS:
        frame = frame.f_back
    return frame is not None


def python_calls(function: Callable[..., Any], *args: Any) -> list[str]:
    """Return the names of the Python functions that a call runs, itself among them."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not (pool.DEBUG and checks(frame)):
            names.append(frame.f_code.co_name)

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # a collection would call what other tests left behind
    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
        gc.enable()
    return names


def scalars(n: int) -> Any:
    y: Any = tape.tensor(1.5, requires_grad=True)
    for _ in range(n):
        y = y * 1.0
    return y


def arrays(n: int) -> Any:
    y: Any = tape.ones(3).requires_grad_()
    for _ in range(n // 2):
        y = tape.sin(y) + 1.0
    return y.sum()


def views(n: int) -> Any:
    y: Any = tape.ones(4).requires_grad_()
    for _ in range(n // 2):
        y = (y * 1.0).reshape(2, 2).T.reshape(4)[:]
    return y[0]


@native
@pytest.mark.usefixtures("own_tape")
@pytest.mark.parametrize("chain", [scalars, arrays, views])
def test_few_python_calls_in_backward(chain: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "LEAVES", {})  # hooked leaves of other tests may be alive, and are looked for
    for n in (10, 10_000):
        chain(n).backward()  # compiles, and makes room
        loss = chain(n)
        names = python_calls(loss.backward)
        assert len(names) <= 20, names


@native
@pytest.mark.usefixtures("own_tape")
def test_few_python_calls_once_jitted_operations_have_run() -> None:
    square = tape.custom(njit(lambda a: a * a), njit(lambda g, a: g * 2.0 * a))
    square(tape.ones(3).requires_grad_()).sum().backward()
    arrays(10).backward()
    loss = arrays(10)
    names = python_calls(loss.backward)
    assert len(names) <= 20, names


def test_the_count_sees_python_calls() -> None:
    def many() -> None:
        for _ in range(25):
            scalars(0)

    assert len(python_calls(many)) > 25


@pytest.mark.parametrize("chain", [scalars, arrays])
def test_no_python_in_a_replay(chain: Callable[[int], Any]) -> None:
    counts = []
    for n in (10, 10_000):
        start = 1.5 if chain is scalars else np.ones(3)

        def f(x: Any, n: int = n) -> Any:
            y = x
            for _ in range(n // 2):
                y = tape.sin(y) * 1.0
            return y.sum()

        program = tape.record(f, start)
        assert len(program) >= n
        program(start)  # plans the memory of replays forward, as the next line does of both ways
        program.value_and_grad(start)
        counts.append(
            (
                len(python_calls(program, start)),
                len(python_calls(program.value_and_grad, start)),
            )
        )
    assert counts[0] == counts[1]
    assert max(counts[0]) < 50


def test_self_check_reads_this_interpreter() -> None:
    expected = sys.implementation.name == "cpython" and sys.byteorder == "little"
    assert memory.readable() is expected


def test_self_check_refuses_what_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_objects_agree", lambda: False)
    assert memory.readable() is False


@pytest.mark.parametrize("offset", [8, -8])
def test_self_check_notices_another_layout(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    word = memory.word_at
    header = [0, 0, 0, 0]
    monkeypatch.setattr(memory, "word_at", lambda at: word(at + offset) if header else 0)
    assert memory.readable() is False


FALLBACK = """
import numpy as np, tape
from kernels.sweeps import reverse
assert reverse.NATIVE is {native}
x = tape.tensor([1., 2., 3.], requires_grad=True)
y = x[1:] * x[:-1]
y.retain_grad()
(tape.exp(y).max(0).values + tape.cat([x, y]).reshape(5) @ tape.arange(5.)).backward()
print(x.grad.tolist(), y.grad.tolist())
print(tape.record(lambda v: (v * v).sum(), np.ones(2)).value_and_grad(np.array([3., 4.])))
"""


@native
def test_forced_fallback_agrees(fresh: Fresh) -> None:
    texts = [
        fresh(FALLBACK.format(native=not plain), **({"TAPE_PLAIN": "1"} if plain else {})) for plain in (True, False)
    ]
    (plain, error), (found, other) = (process.communicate() for process in texts)
    assert (error, other) == ("", "")
    assert plain == found != ""
