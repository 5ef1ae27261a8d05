"""Which code a watched call runs: each with each of its globals, however often, and anew behind a loop's begin."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tape.watching.frame_events import CodeListener
from tape.watching.python_loops import HeadVisit, HeadWatch

pytestmark = pytest.mark.quick


def scaled(x: float) -> float:
    return x * scale  # type: ignore[name-defined]  # noqa: F821 (of the globals that it is given)


def test_code_with_other_globals_is_heard_of() -> None:
    ones, others = [types.FunctionType(scaled.__code__, {"scale": k, "__name__": "user"}) for k in (2.0, 3.0)]
    heard = list[tuple[Any, int]]()
    listener = CodeListener(lambda code, variables: heard.append((code, variables.get("scale", 0))))

    def run() -> float:
        return sum([ones(1.0), ones(1.0), others(1.0), ones(1.0), others(1.0)])

    assert listener.call(run) == 12.0
    assert [scale for code, scale in heard if code is scaled.__code__] == [2.0, 3.0]


def test_what_ran_before_a_loop_is_heard_of_in_it() -> None:
    user = types.FunctionType(scaled.__code__, {"scale": 2.0, "__name__": "user"})
    visits = list[HeadVisit]()

    def run() -> float:
        x = user(1.0) + user(1.0)
        while x < 100.0:
            x = user(x)
        return x

    def entered_again() -> float:
        return run() + run()

    watch = HeadWatch(lambda visit: visits.append(visit) or True)
    assert watch.call(entered_again) == 256.0
    entries = {visit.entry for visit in visits}
    assert len(entries) == 2
    names = [[name for name, _ in visit.state.template[0][1][1]] for visit in visits if visit.number == 2]
    assert len(names) == 2
    assert all("scale of scaled" in each for each in names)
