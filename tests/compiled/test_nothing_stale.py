"""Nothing that a compiled function reads is stale: whatever changes between calls, the next one is that of Python.

The programs and the changes are a table, ``changes.txt``. No replay is checked, so nothing else finds a stale value.
"""

from __future__ import annotations

import builtins
import contextlib
import decimal
import fractions
import gc
import math
import os
import string
import sys
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning

_HEAD = """
import array, collections, ctypes, datetime, decimal, fractions, pathlib, queue, random, re, struct, types
import numpy as np
import tape

class Sub(np.ndarray):
    pass

def sub():
    made = np.ones(2).view(Sub)
    made.r = 2.0
    return made
"""
_PLACES = {
    "": "C = {made}\ndef f(x): return x * {use}",
    " passed": "C = {made}\ndef g(x, C): return x * {use}\ndef f(x): return g(x, C)",
    " in an object": (
        "class H:\n    def __init__(self, v): self.h = v\n    def s(self, x):\n        C = self.h\n"
        "        return x * {use}\nC = {made}\nh = H(C)\ndef f(x): return h.s(x)"
    ),
}


class Row(NamedTuple):
    """A program, a change of what it reads, and what is said if it stays dynamic."""

    program: str
    change: str
    said: str


def _rows() -> Iterator[tuple[str, Row]]:
    text = (Path(__file__).parent / "changes.txt").read_text(encoding="utf-8")
    *blocks, containers = text.split("\n== ")[1:]
    for block in blocks:
        head, _, rest = block.partition("\n")
        name, _, said = head.partition(" | ")
        program, _, change = rest.partition("\n--\n")
        yield name, Row(program, change, said)
    for line in containers.strip().split("\n")[1:]:
        name, made, use, change, said = [*line.split(" | "), ""][:5]
        bound = change.startswith(("C ", "C=")) and not change.startswith("C[")
        for place, program in _PLACES.items():
            if not (bound and place == " in an object"):
                yield name + place, Row(program.format(made=made, use=use), change, said)


ROWS = dict(_rows())
OURS = ("STALE", "mod_", "pk", "rowmod", "helper_of_builtins")
"""How names begin that rows make in what all share."""


@contextlib.contextmanager
def _restored(folder: Path) -> Iterator[None]:
    """Leave the process as it was; modules are found in a folder meanwhile."""
    modules = [builtins, math, time, string, np, tape]
    held: list[Any] = [os.environ, *[vars(module) for module in modules], sys.modules]
    before, place = [(x, dict(x)) for x in held], Path.cwd()
    fraction, numpy = fractions.Fraction.limit_denominator, (np.geterr(), np.get_printoptions())
    path, arguments, limit = [*sys.path], [*sys.argv], sys.getrecursionlimit()
    sys.path.insert(0, str(folder))
    try:
        with decimal.localcontext():
            yield
    finally:
        for x, values in before:
            for name in [name for name in x if name not in values and name.startswith(OURS)]:
                del x[name]
            for name, value in values.items():
                if x.get(name) is not value:
                    x[name] = value
        fractions.Fraction.limit_denominator = fraction  # type: ignore[method-assign]
        sys.path[:], sys.argv[:] = path, arguments
        sys.setrecursionlimit(limit)
        np.seterr(**numpy[0])
        np.set_printoptions(**numpy[1])
        tape.set_default_dtype(tape.float64)
        gc.enable()
        os.chdir(place)


def _calls(row: Row, folder: Path, *, compiled: bool) -> tuple[list[float], list[str], Any]:
    """Return what four calls give, before the change, after it, and after another one; what is said; the function."""
    folder.mkdir()
    module = sys.modules["rowmod"] = types.ModuleType("rowmod")
    space: dict[str, Any] = vars(module)
    space["DIR"] = str(folder)
    results: list[float] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(_HEAD + row.program, space)  # noqa: S102 (a row of the table)
        f = space["f0"] = space["f"]
        called: Any = tape.compile(f, check="never") if compiled else lambda x: f(tape.tensor(x))
        for space["n"] in (0, 1, 2):
            if space["n"]:
                exec(row.change, space)  # noqa: S102 (likewise)
            results += [round(float(called(1.5)), 9) for _ in range(4)]
    return results, [str(x.message) for x in caught if issubclass(x.category, CompileWarning)], called


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.quick if k % 16 == 0 else ()) for k, name in enumerate(ROWS)]
)
def test_the_next_call_is_that_of_python(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    with _restored(tmp_path / "python"):
        expected, _, _ = _calls(row, tmp_path / "python", compiled=False)
    with _restored(tmp_path / "compiled"):
        results, said, compiled = _calls(row, tmp_path / "compiled", compiled=True)
        if row.said:
            assert said
            assert row.said in said[0]
            assert not compiled.programs
        else:
            assert len(set(expected)) > 1, "the change changes nothing"
            assert not said
            assert sum(program.hits for program in compiled.programs) > 0, compiled.explain()
        assert results == expected


ORDINARY = """
with np.errstate(divide="ignore"): y = x * np.log(2.0)
y = x * sys.float_info.epsilon * np.finfo(np.float64).eps
y = x * len(os.path.join("a", "b")) * len(os.sep) * (os.environ.get("HOME") is None)
y = sum(x * a * b for a, b in itertools.product([1.0, 2.0], [3.0]))
y = x * scipy.special.gamma(3.0) * scipy.constants.pi
with lock: y = x * config.rate
with contextlib.nullcontext(): y = x * 2.0 if config.mode is Mode.FIRST else x
y = x * 2.0 if isinstance(config.names, collections.abc.Sequence) else x
y = tape.where(x > 0, x, -x) * np.sqrt(2.0) + math.pi
with warnings.catch_warnings(): y = x * 2.0
y = x * np.random.default_rng(3).random() * random.Random(0).random()
print("printed", file=sys.stderr, flush=True); y = x * 2.0
y = x * copy.deepcopy(config).rate * dataclasses.replace(config, rate=0.2).rate
y = x * max(map(operator.itemgetter(0), [(1.0,), (2.0,)])) * len(re.sub("a", "bb", "aa"))
assert x.shape == (), f"shape of {x}"; y = typing.cast(float, x) * 2.0
y = x * np.vectorize(lambda v: v * 2)(np.ones(2)).sum() * np.trapezoid(np.ones(3))
time.sleep(0); y = x * functools.reduce(operator.mul, [1.0, 2.0])
log.debug("x is %s", x); y = x * holder.run(x)
from scipy.special import erf; import math as m; y = x * erf(0.5) * m.e
"""
_ORDINARY_HEAD = """
import abc, collections.abc, contextlib, copy, dataclasses, enum, functools, itertools, logging, math, operator, os
import random, re, sys, threading, time, typing, warnings
import numpy as np
import scipy.constants, scipy.special
import tape

Mode = enum.Enum("Mode", "FIRST SECOND")
lock, log = threading.Lock(), logging.getLogger("ordinary")

@dataclasses.dataclass
class Config:
    rate: float = 0.1
    mode: Mode = Mode.FIRST
    names: list = dataclasses.field(default_factory=lambda: ["a"])

class Holder(abc.ABC):
    def __init__(self):
        self.lock, self.log, self.random, self.unused = threading.RLock(), log, np.random.default_rng(0), iter([1])
        self.rate = 2.0
    def run(self, x):
        with self.lock:
            return scaled(self, x)

def scaled(holder, x):
    return x * getattr(holder, "rate", None)

config, holder = Config(), Holder()

def f(x):
    LINE
    return y
"""


@pytest.mark.quick
@pytest.mark.parametrize("line", ORDINARY.strip().split("\n"))
def test_ordinary_code_is_replayed(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("ordinary")
    monkeypatch.setitem(sys.modules, "ordinary", module)
    space: dict[str, Any] = vars(module)
    exec(_ORDINARY_HEAD.replace("LINE", line), space)  # noqa: S102 (written here)
    compiled = tape.compile(space["f"], check="never")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        results = {float(compiled(1.5)) for _ in range(5)}
    assert results == {float(space["f"](tape.tensor(1.5)))}
    assert compiled.calls["recorded"] == 2
