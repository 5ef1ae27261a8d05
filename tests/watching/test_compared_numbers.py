"""Numbers that are just compared: which uses count as that, and that nothing else does."""

from __future__ import annotations

import builtins
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import DetachWarning

pytestmark = [pytest.mark.quick, pytest.mark.filterwarnings("ignore::tape.errors.DetachWarning")]

FUNCTION = """
def f(x, self=HOLDER):
    tol = 0.5
    y = x * 1.0
    if CONDITION:
        return y * 2.0
    return y * 3.0
"""


class Holder:
    """Something with a number."""

    def __init__(self) -> None:
        self.tol = 0.5
        self.inner = self

    @property
    def computed(self) -> float:
        """What code is run for."""
        return self.tol


def function_of(condition: str, **names: Any) -> Any:
    """Return the function ``f`` with a condition."""
    space = {"HOLDER": Holder(), "np": np, "tape": tape, "LIMIT": 0.5, **names}
    exec(compile(FUNCTION.replace("CONDITION", condition), "<written>", "exec"), space)  # noqa: S102 (written here)
    return space["f"]


def called(function: Any, values: Any) -> Any:
    """Return a function, compiled and called with values, of which each has the result of dynamic mode."""
    compiled = tape.compile(function, check="never")
    for x in values:
        assert compiled(x) == float(function(tape.tensor(x))), x
    return compiled


COMPARED = (
    "y.item() < 0.5", "y.item() <= tol", "0.5 > y.item()", "tol >= y.item()", "float(y) < tol", "float(y * 1.0) < 1",
    "y.item() < self.tol", "y.item() < self.inner.tol", "y.item() < LIMIT", "abs(y.item()) < 0.5",
    "abs(float(y)) < 0.5", "float(tape.sum(y[None], dim=0) - 0.0) < tol", "float(y[None][0]) < tol",
    "not y.item() >= 0.5", "y.item() > 0 and y.item() < 0.5", "y.detach().abs().max().item() < 0.5",
    "y.item() == 0.25", "0.25 != float(y)", "(y.item() < tol) or (y.item() > 7.0)", "y.reshape(1, 1).item() < 0.5",
    "(v := y.item()) < 0.5", "(v := y.item()) < 0.5 and v > -0.3",
)  # fmt: skip
TAKEN = (
    "(v := y.item()) < 0.5 and v + 0.0 < 9.0", "0.1 < y.item() < 0.5", "y.item() + 0.0 < 0.5",
    "round(y.item(), 1) < 0.5", "abs(v := y.item()) < 0.5", "abs(v := y.item()) < 0.5 and v + 0.0 < 9.0",
    "y.item() < self.computed", "y.item() in (0.25, 0.7)", "[y.item()] < [0.5]", "max(y.item(), 0.0) < 0.5",
    "y.item() < y.item() + 1.0", "np.float32(y.item()) < 0.5", "int(y) < 1", "-y.item() > -0.5",
    "y.item(0) < 0.5", "y.tolist() < 0.5",
)  # fmt: skip


@pytest.mark.parametrize("condition", COMPARED)
def test_the_comparison_alone_is_guarded(condition: str) -> None:
    values = (0.1, 0.11, 0.9, 0.91, 0.25, 0.25, *np.linspace(-0.4, 2.0, 30).tolist(), 0.25)
    compiled = called(function_of(condition), values)
    assert compiled.calls["recorded"] <= 8
    assert compiled.calls["dynamic"] == 0


@pytest.mark.parametrize("condition", TAKEN)
def test_what_is_more_than_a_comparison_is_guarded_by_its_value(condition: str) -> None:
    values = np.linspace(-0.4, 2.0, 12).tolist()
    compiled = called(function_of(condition), values * 2)
    if not condition.startswith("int"):
        assert compiled.calls["recorded"] >= len(values)


@pytest.mark.parametrize("name", ["float", "abs"])
def test_names_that_are_not_the_builtins(name: str) -> None:
    def other(x: Any) -> float:
        return float(x) if name == "float" else getattr(builtins, name)(x) + float(x > 0.3)

    called(function_of("abs(float(y)) < 0.5", **{name: other}), np.linspace(-0.4, 2.0, 12).tolist() * 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
@pytest.mark.parametrize("limit", [1, 0.1, float(np.float32(0.1)), (1 << 53) + 1])
def test_dtypes_are_compared_as_numbers(dtype: Any, limit: float) -> None:
    """A float32 is a double in Python: it is not 0.1, but 0.100000001."""

    def f(x: Any) -> Any:
        return x * 2 if x.sum().item() <= limit else x * 3

    compiled = tape.compile(f, check="never")
    for value in (0.1, 0.2, 1.0, 0.0, 3.0, 0.1, 2.0, 9007199254740993.0, 0.1, np.nan) * 2:
        x = np.array([0 if np.isnan(value) and dtype in (np.int64, np.bool_) else value]).astype(dtype)
        np.testing.assert_array_equal(compiled(x), np.asarray(f(tape.tensor(x))))


def test_a_limit_that_changes_is_the_one_of_the_call() -> None:
    holder = Holder()

    def f(x: Any) -> Any:
        return x * 2.0 if x.item() < holder.tol else x * 3.0

    compiled = tape.compile(f, check="never")
    for k in range(24):
        holder.tol = 0.5 if k % 8 < 4 else 1.5
        assert compiled(1.0 + 0.01 * k) == pytest.approx((1.0 + 0.01 * k) * (2.0 if holder.tol > 1.0 + 0.01 * k else 3))


def test_a_loop_that_ends_by_a_number() -> None:
    def solved(x: Any) -> Any:
        y, n = x * 1.0, 0
        while abs((y * y - x).item()) > 1e-9 and n < 50:
            y, n = 0.5 * (y + x / y), n + 1
        return y

    compiled = tape.compile(tape.value_and_grad(solved), mode="max")
    for x in (2.0, 3.0, 5.0, 0.1, 77.0, 1e4, 1e-2):
        value, slope = compiled(x)
        assert value == pytest.approx(x**0.5, rel=1e-6)
        assert slope == pytest.approx(0.5 * x**-0.5, rel=1e-3)
    assert compiled.calls["recorded"] <= 3
    assert "until it ends" in compiled.explain()


STORED = """
def f(x, tol=0.5):
    y = x * 1.0
    LINES
    return y * 2.0 if err < tol or 3.0 < err else y * 3.0
"""
JUST_COMPARED = (
    "err = y.item()", "err = float(y * 1.0)", "err = abs(y.item())", "err = 1.0\n    if y.item() > 0.2: err = y.item()",
    "err = y.item()\n    if err == LIMIT: y = y + 1.0", "err = y.item(); other = y.item()",
)  # fmt: skip
READ = (
    "err = y.item(); y = y + err * 0.0", "err = y.item(); print(err, end='')", "err = y.item(); [err]",
    "err = y.item(); err += 0.0", "err = y.item(); tol = err - 0.1", "err = y.item(); (lambda: err)",
    "err = y.item(); locals()", "err = y.item(); tol = 0.25 if y.item() > 1 else 0.75",
    "err = y.item(); tol < err < 9.0", "err = y.item(); (a := err) < 0.5; y = y + a * 0.0",
    "err = y.item()\n    global LIMIT\n    LIMIT = 0.3\n    err > LIMIT", "err = y.item(); del err; err = y.item()",
)  # fmt: skip


@pytest.mark.parametrize("lines", JUST_COMPARED)
def test_a_local_that_is_just_compared(lines: str) -> None:
    values = (0.1, 0.11, 0.9, 0.91, 3.5, 3.6, *np.linspace(-0.4, 4.0, 30).tolist(), 0.5, 0.5)
    compiled = called(written(lines), values)
    assert compiled.calls["recorded"] <= 12
    assert compiled.calls["dynamic"] == 0


@pytest.mark.parametrize("lines", READ)
def test_a_local_of_which_more_is_read(lines: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.linspace(-0.4, 4.0, 12).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = called(written(lines), values * 2)
    assert compiled.calls["recorded"] + compiled.calls["dynamic"] >= len(values)
    capsys.readouterr()


def written(lines: str) -> Any:
    """Return the function of some lines."""
    space: dict[str, Any] = {"LIMIT": 0.5}
    exec(compile(STORED.replace("LINES", lines), "<written>", "exec"), space)  # noqa: S102 (written here)
    return space["f"]


LOOPS = (
    """
    err = abs(y * y - x).item()
    while err > 1e-10:
        y = 0.5 * (y + x / y)
        err = abs(y * y - x).item()
    """,
    """
    err, n = 1.0, 0
    while err > 1e-10 and n < 60:
        y = 0.5 * (y + x / y)
        err = float(abs(y * y - x))
        n += 1
    """,
    """
    while True:
        y = 0.5 * (y + x / y)
        err = abs((y * y - x).item())
        if err < 1e-10: break
    """,
    """
    for _ in range(50):
        err = (y * y - x).item()
        if -1e-10 < err and err < 1e-10:
            break
        y = 0.5 * (y + x / y)
    """,
    """
    while (err := abs(y * y - x).item()) > 1e-10:
        y = 0.5 * (y + x / y)
        if err < 1e-20: break
    """,
    """
    done = False
    while not done:
        y = 0.5 * (y + x / y)
        err = (y * y - x).item()
        done = err < 1e-10
    """,
)


@pytest.mark.parametrize("lines", LOOPS)
def test_loops_that_numbers_end(lines: str) -> None:
    space: dict[str, Any] = {}
    exec(compile(f"def f(x):\n    y = x * 1.0 + 0.1{lines}\n    return y", "<written>", "exec"), space)  # noqa: S102
    compiled = tape.compile(tape.value_and_grad(space["f"]), mode="max", check="never")
    for x in (2.0, 3.0, 5.0, 0.3, 7.0, 90.0, 0.7, 2.5, 4.0):
        value, slope = compiled(x)
        expected, expected_slope = tape.value_and_grad(space["f"])(x)
        assert (value, slope) == (pytest.approx(expected, rel=1e-12), pytest.approx(expected_slope, rel=1e-10))
    assert compiled.calls["recorded"] <= 6
    assert "until it ends" in compiled.explain()


def test_float_warns_as_ever() -> None:
    f = function_of("float(y) < tol")
    with pytest.warns(DetachWarning):
        f(tape.tensor(0.3, requires_grad=True))


SHOWN = (
    "print(f'{y:.3f}')", "print('loss', y, x)", "print('%g %d' % (y, 3))", "print('{:.3f}'.format(y), end=' ')",
    "print(str(y) + ' ' + repr(x))", "s = f'{y:.3f}'; print(s); print(s, s)", "s = f'{y}'; s += f', {x:g}'; print(s)",
    "LOG.error('loss %g', y)", "LOG.warning(f'loss {y}')", "STREAM.write(f'{y:.3f}')", "print(f'{y:.3f}', file=STREAM)",
    "sys.stdout.write('%g' % y)", "print(round(y, 3))", "print(f'{y:8.3f} {\"*\" if k else \"\"}')",
    "print(', '.join(f'{v:.2f}' for v in (x, y)))", "print(described(y))", "print(Described(y), 1)", "f'{y:.3f}'",
    "s = f'{y:.3f}'", "print(f'{Described(y)}')", "warnings.warn(f'{y:.3f}', stacklevel=1)",
)  # fmt: skip
DECIDING = (
    "y = y * (2.0 if f'{y:.1f}' < '1.0' else 3.0)", "s = f'{y:.3f}'; print(s); y = y * float(s)",
    "y = y * len(str(y))", "y = y * float(f'{y:.1f}')", "y = y * float('%.1f' % y)", "y = y * float(repr(y)[7:-1])",
    "y = y * {'1': 5.0}.get(f'{y:.0f}', 7.0)", "s = [f'{y:.1f}']; print(s); y = y * float(s[0])",
    "s = []; t = s; s += [f'{y:.1f}']; print(s); y = y * float(t[0])", "print(y, file=OUT); y = y * len(OUT.parts[-2])",
    "OUT.write(f'{y:.1f}'); y = y * float(OUT.parts[-1])", "y = y * float(described(y)[1:-1])",
    "o = io.StringIO(); print(f'{y:.1f}', file=o); y = y * float(o.getvalue())",
    "o = io.StringIO()\n    with redirect_stdout(o):\n        print(f'{y:.1f}')\n    y = y * float(o.getvalue())",
    "print = OUT.write; print(f'{y:.1f}'); y = y * float(OUT.parts[-1])", "y = y * STREAM.write(f'{y * 1000:.0f}')",
    "s = f'{y:.1f}'; print(s); y = y * float(locals()['s'])", "s = f'{y:.1f}'; print(s); y = y * (lambda: float(s))()",
    "s = t = f'{y:.1f}'; print(s); y = y * float(t)", "o = Output(); o += f'{y:.1f}'; y = y * float(o.parts[0])",
    "y = y * float(''.join(f'{v:.0f}' for v in (y, y)))", "y = y * (2.0 if '1' in f'{y:.1f}' else 3.0)",
    "y = y * len('x' * int('%d' % (y * 3)))", "o = Output(); p = o; o = o + f'{y:.1f}'; y = y * float(p.parts[0])",
    "try: raise ValueError(f'{y:.1f}')\n    except ValueError as e: y = y * float(str(e))",
)  # fmt: skip
TEXTS = """
import io, logging, sys, warnings
from contextlib import redirect_stdout

class Output:
    def __init__(self):
        self.parts = []
    def write(self, text):
        self.parts.append(text)
        return len(text)
    def __add__(self, text):
        self.parts.append(text)
        return self

class Described:
    def __init__(self, y):
        self.y = y
    def __str__(self):
        return f"<{self.y:.3f}>"

def described(y):
    return f"<{y:.1f}>"

def f(x, k=1):
    OUT = Output()
    y = x * 1.0
    LINES
    return y * 2.0
"""


def printing(lines: str, stream: Any) -> Any:
    """Return the function ``f`` with lines that print."""
    log = logging.Logger("shown")  # noqa: LOG001 (one that no other test has)
    log.addHandler(logging.StreamHandler(stream))
    space: dict[str, Any] = {"STREAM": stream, "LOG": log}
    exec(compile(TEXTS.replace("LINES", lines), "<written>", "exec"), space)  # noqa: S102 (written here)
    return space["f"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lines", SHOWN)
def test_what_is_printed_is_no_guard(lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "log").open("w") as stream:
        compiled = called(printing(lines, stream), np.linspace(0.1, 4.0, 12).tolist())
    assert compiled.calls == {"recorded": 2, "dynamic": 0, "checked": 0}, capsys.readouterr()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lines", DECIDING)
def test_a_text_that_decides_is_a_guard(lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "log").open("w") as stream:
        called(printing(lines, stream), np.linspace(0.1, 4.0, 12).tolist() * 2)
    assert capsys.readouterr().err == ""
