"""What compiling costs, against what the calls take without it: by a clock that the calls themselves turn."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tape
from tape.compiled import compiled_function, specialization
from tape.compiled.call_key import SHARE, SHARE_OF_MISSES, Overhead
from tape.compiled.specialization import Specialization
from tape.tensors import modes

pytestmark = pytest.mark.usefixtures("accounted")
RECORDING, MISS = 20.0, 0.5  # how long a recording, and a replay in vain, take, of which a call takes 1

BOTH = SHARE + SHARE_OF_MISSES


class Clock:
    """Turned by calls: dynamic ones, recordings, and replays that end at a guard."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.recorded = self.missed = 0.0
        self.dynamic = 0
        monkeypatch.setattr(Overhead, "clock", lambda _: self.now)
        record, given, replay = compiled_function.record_call, modes.call_given, Specialization.replay

        def recorded(*args: Any, **kwargs: Any) -> Any:
            self.now += RECORDING - 1  # the call that it records turns the clock, too
            self.recorded += RECORDING - 1
            return record(*args, **kwargs)

        def call_given(*args: Any, **kwargs: Any) -> Any:
            self.now += 1
            self.dynamic += 1
            return given(*args, **kwargs)

        def replayed(state: Specialization, call: Any) -> Any:
            result = replay(state, call)
            if result is None and state.programs:
                self.now += MISS
                self.missed += MISS
            return result

        monkeypatch.setattr(compiled_function, "record_call", recorded)
        # its code runs in recorded calls: as code of the package that it stands in for, it is not looked at
        ours = FunctionType(
            call_given.__code__, {**globals(), "__name__": modes.__name__}, closure=call_given.__closure__
        )
        monkeypatch.setattr(modes, "call_given", ours)
        monkeypatch.setattr(Specialization, "replay", replayed)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def ways(x: Any) -> Any:
    for i in range(6):
        x = x * 2.0 if x[i] > 0 else x + 1.0
    return x


DRAWS = np.random.default_rng(0).normal(size=(400, 6))
SEQUENCES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "each call another way": (lambda x: x + float(x.sum()), lambda k: (DRAWS[k],)),
    "many ways": (ways, lambda k: (DRAWS[k],)),
    "a new length each time": (lambda x: (x * x).sum(), lambda k: (np.ones(k + 1),)),
    "a new shape each time": (lambda x: x * 2.0, lambda k: (np.ones((k % 19 + 1, k % 7 + 1)),)),
    "a number that is part of the signature": (lambda x, n: x * n, lambda k: (DRAWS[0], k)),
    "a name that is part of the signature": (lambda x, name: x * len(name), lambda k: (DRAWS[0], "a" * k)),
    "the index of the largest": (lambda x: x * int(x.argmax()), lambda k: (DRAWS[k],)),
    "a table": (lambda x: x + np.arange(9.0)[np.asarray(abs(x * 3) % 9).astype(int)], lambda k: (DRAWS[k],)),
}


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::tape.errors.DetachWarning", "ignore::tape.errors.CompileWarning")
@pytest.mark.parametrize("name", SEQUENCES)
def test_no_sequence_of_calls_takes_much_longer_than_without(name: str, clock: Clock) -> None:
    function, arguments = SEQUENCES[name]
    compiled = tape.compile(function, check="never")
    for k in range(300):
        given = arguments(k)
        result = compiled(*given)
        expected = function(*[tape.tensor(x) if isinstance(x, np.ndarray) else x for x in given])
        np.testing.assert_array_equal(result, np.asarray(expected.detach()))
        assert clock.recorded + clock.missed <= BOTH * (k + 1) + RECORDING, (k, compiled.explain())
    assert clock.recorded >= 2 * (RECORDING - 1) or "signatures" in compiled.explain()


def test_what_comes_again_is_replayed_in_the_end(clock: Clock) -> None:
    """Two ways, three signatures: each is replayed once its recordings have been paid by the calls before."""
    compiled, waiting = tape.compile(lambda x: x * 2.0 if x.sum() > 0 else x - 1.0, check="never"), False
    for k in range(600):
        x = DRAWS[k % 400][: 2 + k % 3]
        np.testing.assert_array_equal(compiled(x), x * 2.0 if x.sum() > 0 else x - 1.0)
        assert clock.recorded + clock.missed <= BOTH * (k + 1) + RECORDING
        waiting |= k % 50 == 0 and "what is new waits" in compiled.explain()  # but where a recording is due
    before = clock.dynamic
    for k in range(4000):
        x = DRAWS[k % 400][: 2 + k % 3]
        np.testing.assert_array_equal(compiled(x), x * 2.0 if x.sum() > 0 else x - 1.0)
    assert waiting
    assert len(compiled.programs) == 6
    assert clock.dynamic < before + 4000
    before = clock.dynamic
    for k in range(300):
        compiled(DRAWS[k][: 2 + k % 3])
    assert clock.dynamic == before


@pytest.mark.parametrize(
    "way", ["plain", "with branches", "with a loop", "with an array that NumPy changes", "with indices"]
)
def test_steady_functions_wait_for_nothing(way: str) -> None:
    """Where no value leaves for Python but that indices are within bounds; where another does, in mode max."""
    work = np.ones(6)

    def halved(x: Any) -> Any:
        while (x * x).sum() > 1:
            x = x * 0.5
        return x

    functions: dict[str, Any] = {"with branches": ways, "with a loop": halved, "plain": lambda x: (x * x).sum()}
    functions["with indices"] = lambda x: x[x.argsort()] * 2.0
    mode = "max" if way in ("with branches", "with a loop") else "default"
    compiled = tape.compile(functions.get(way, lambda x: x * work), check="never", mode=mode)
    for k in range(6):
        work += k
        compiled(abs(DRAWS[k]) + 1.0)
    assert compiled.calls["dynamic"] == 0, compiled.explain()
    assert compiled.calls["recorded"] <= 4


def test_branches_on_elements_need_two_recordings() -> None:
    """The first one leaves out which elements are picked, as it may repeat; the nodes tell."""
    compiled = tape.compile(lambda x: x * x[1] if x[0] > x[2] else x, check="never", mode="max")
    swapped = tape.compile(lambda x, first: x * (x[0] if first else x[1]) if x[0] > x[2] else x, static=["first"])
    for x in abs(DRAWS[:6]):
        x[2] = 0.0
        np.testing.assert_array_equal(compiled(x), x * x[1])
        np.testing.assert_array_equal(swapped(x, True), x * x[0])
        np.testing.assert_array_equal(swapped(x, False), x * x[1])
    assert compiled.calls == {"recorded": 2, "dynamic": 0, "checked": 0}


def test_what_is_outside_picks_another_element() -> None:
    at = [1]
    compiled = tape.compile(lambda x: x * x[at[0]] if x[0] > 0 else x, check="never", mode="max")
    x = abs(DRAWS[0]) + 1.0
    for at[0] in (1, 2, 2, 1, 1, 3, 3):
        np.testing.assert_array_equal(compiled(x), x * x[at[0]])


def test_replays_that_always_miss_are_tried_more_rarely(clock: Clock) -> None:
    compiled = tape.compile(lambda x: x + float(x.sum()), check="never")
    for k in (*[0] * 250, *range(1, 200)):  # the way is recorded again when the calls have paid for that
        np.testing.assert_array_equal(compiled(DRAWS[k]), DRAWS[k] + float(DRAWS[k].sum()))
    assert len(compiled.programs) == 1
    assert 0 < clock.missed <= SHARE_OF_MISSES * 450 + 2 * MISS
    compiled = tape.compile(lambda x: x + float(x[0] > 0), check="never")
    for k in (*[0] * 250, *[0 if j % 10 else 1 for j in range(1, 200)]):
        compiled(DRAWS[k] * DRAWS[0, 0])
    assert compiled.programs[0].hits > 150, compiled.explain()


def test_methods_of_several_objects_have_one_account(clock: Clock) -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @tape.compile(check="never")
        def __call__(self, x: Any) -> Any:
            return x * self.scale

    for k in range(100):
        np.testing.assert_array_equal(Model.__call__.__get__(Model(float(k)))(DRAWS[0]), DRAWS[0] * k)
    assert clock.recorded <= SHARE * 100 + RECORDING


def test_the_ways_taken_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in {"MOST_PROGRAMS": 3, "MOST_PENDING": 4}.items():
        monkeypatch.setattr(specialization, name, most)
    for name in ("allows_recordings", "allows_replays"):
        monkeypatch.setattr(Overhead, name, lambda _: True)
    compiled = tape.compile(lambda x: x + float(x[0]), check="never")
    for k in range(8):
        for _ in range(3):
            compiled(DRAWS[k])
    (states,) = compiled._keys.values()
    assert [p.hits for p in states[0].programs] == [1, 1, 1]
    assert len(states[0].pending) == 0
    for k in range(20, 30):
        compiled(DRAWS[k])
    assert len(states[0].pending) == 4
    assert not states[0].dynamic
