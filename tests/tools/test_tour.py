"""The tour and the command line: what is printed where, the fit, exit codes, pipes, Ctrl-C."""

import io
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from numpy.typing import NDArray

import tape
from kernels.language import jit
from tape import __main__ as cli
from tape import examples
from tape.__main__ import Style, panel, style_of
from tape.examples import lynx_hare

ROOT = Path(__file__).resolve().parents[2]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and pipes as POSIX has them")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Return True."""
        return True


# The fit, against a model that shares nothing with the example.


def residuals(logarithms: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the 42 differences of logarithms; complex parameters give complex steps."""
    *rates, hare, lynx = np.exp(logarithms)
    growth = np.array([rates[0], -rates[2]])
    meeting = np.array([-rates[1], rates[3]])

    def slope(state: NDArray[np.complex128]) -> NDArray[np.complex128]:
        return growth * state + meeting * state.prod()

    table = np.loadtxt(ROOT / "tape" / "examples" / "lynx_hare.csv", delimiter=",", skiprows=1)
    state, h = np.array([hare, lynx]), 0.05
    rows = [state]
    for _ in table[1:]:
        for _ in range(20):
            k1 = slope(state)
            k2 = slope(state + h * k1 / 2)
            k3 = slope(state + h * k2 / 2)
            k4 = slope(state + h * k3)
            state = state + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        rows.append(state)
    return (np.log(rows) - np.log(table[:, 1:])).ravel()


@pytest.fixture(scope="module")
def modes() -> dict[str, "cli.Evaluate"]:
    """Value and gradient of the loss in both modes."""
    program = tape.record(lynx_hare.loss, lynx_hare.START)
    return {
        "dynamic": tape.value_and_grad(lynx_hare.loss),
        "replay": examples.for_scipy(program),
    }


@pytest.fixture(scope="module")
def fits(modes: dict[str, "cli.Evaluate"]) -> dict[str, cli.Fit]:
    """The fit in both modes."""
    return {mode: cli.fit(value_and_grad) for mode, value_and_grad in modes.items()}


@pytest.mark.parametrize("mode", ["dynamic", "replay"])
def test_fit_agrees_with_least_squares(fits: dict[str, cli.Fit], mode: str) -> None:
    best = scipy.optimize.least_squares(residuals, lynx_hare.START, xtol=1e-10, ftol=1e-10)
    fit = fits[mode]
    assert fit.losses[0] == pytest.approx(sum(residuals(lynx_hare.START) ** 2), rel=1e-12)
    assert fit.losses[-1] == pytest.approx(2 * best.cost, rel=1e-6)
    np.testing.assert_allclose(np.exp(fit.x), np.exp(best.x), rtol=1e-3)
    # And the trial run that came with the task.
    assert (fit.losses[0], fit.losses[-1]) == pytest.approx((11.036, 2.0187), abs=5e-4)
    trial = [0.5402, 0.02717, 0.7964, 0.02369, 34.60, 5.844]
    np.testing.assert_allclose(np.exp(fit.x), trial, rtol=5e-4)


def test_both_modes_take_the_same_way(fits: dict[str, cli.Fit]) -> None:
    dynamic, replay = fits["dynamic"], fits["replay"]
    assert dynamic.evaluations == replay.evaluations < 40
    np.testing.assert_allclose(replay.losses, dynamic.losses, rtol=1e-9)
    assert all(after < before for before, after in zip(replay.losses, replay.losses[1:], strict=False))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gradients_agree_with_complex_steps(modes: dict[str, "cli.Evaluate"], seed: int) -> None:
    x = lynx_hare.START + np.random.default_rng(seed).normal(scale=0.05, size=6)
    steps = x + 1e-30j * np.eye(6)
    expected = np.array([(residuals(row) ** 2).sum().imag / 1e-30 for row in steps])
    for value_and_grad in modes.values():
        value, gradient = value_and_grad(x)
        assert value == pytest.approx((residuals(x) ** 2).sum(), rel=1e-12)
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-10 * abs(expected).max())


def test_comparison_shows_both_columns() -> None:
    slow = cli.Fit(np.zeros(6), [3.0, 2.0, 1.5], evaluations=4, seconds=2.0)
    fast = cli.Fit(np.zeros(6), [3.0, 2.0], evaluations=5, seconds=0.1)
    rows = [line.split() for line in cli.comparison(slow, fast, 1_000_000).splitlines()]
    assert rows[1:4] == [["0", "3.0000", "3.0000"], ["1", "2.0000", "2.0000"], ["2", "1.5000"]]
    assert rows[4] == ["evaluations", "4", "5"]
    assert rows[5] == ["seconds", "2.000", "0.100", "speed-up", "20.0"]
    assert rows[6][3:7] == ["2.00", "M", "50.00", "M"]


# The graph.


def test_graph_tells_listing_and_gradients() -> None:
    text = "\n".join(cli.graph())
    a, b, c, d = (tape.tensor(value, requires_grad=True) for value in (2.0, 3.0, 5.0, 10.0))
    listing = tape.listing(a * b + tape.log(d) * c)
    assert len(listing.splitlines()) >= 4
    assert textwrap.indent(listing, "   ") in text
    gradients = dict(re.findall(r"(\w)\.grad +(\S+)", text))
    assert gradients == {"a": "3", "b": "2", "c": "2.3026", "d": "0.5", "t": "5"}


# Progress while kernels compile.


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], object]]:
    nobody: list[Callable[[str], object]] = []
    monkeypatch.setattr(jit, "on_compile", nobody)
    return nobody


def test_progress_on_a_terminal_is_one_line_and_erased(
    listeners: list[Callable[[str], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with cli.compile_progress() as progress:
        for name in ("a_long_name", "b"):
            listeners[0](name)
        progress.erase()
    written = sys.stderr.getvalue()
    assert "\n" not in written
    assert "1 a_long_name" in written
    assert "2 b" in written
    shown = written.split("\r")
    assert len(shown[2]) >= len(shown[1])  # the second text covers the first
    assert shown[-2].isspace()
    assert len(shown[-2]) >= len(shown[2].rstrip())
    assert shown[-1] == ""
    assert listeners == []


def test_progress_elsewhere_is_one_plain_line(
    listeners: list[Callable[[str], object]], capsys: pytest.CaptureFixture[str]
) -> None:
    with cli.compile_progress():
        for name in ("a", "b"):
            listeners[0](name)
    assert capsys.readouterr().err == "compiling kernels (first run only) ...\n"
    assert listeners == []


def test_progress_ends_when_the_block_fails(listeners: list[Callable[[str], object]]) -> None:
    with pytest.raises(ZeroDivisionError), cli.compile_progress():
        1 // len(listeners[1:])
    assert listeners == []


def test_no_kernels_no_progress(listeners: list[Callable[[str], object]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with cli.compile_progress():
        assert len(listeners) == 1
    assert sys.stderr.getvalue() == ""


# The plot.

WAVE = np.linspace(0, 20, 401)


@pytest.mark.parametrize("width", [40, 63, 100])
@pytest.mark.parametrize("blocks", [False, True])
def test_panel_keeps_its_width_and_its_characters(width: int, *, blocks: bool) -> None:
    style = Style(width=width, blocks=blocks)
    years = np.arange(21)
    text = panel("hare", (years, 40 + 30 * np.sin(years)), (WAVE, 40 + 30 * np.sin(WAVE)), style)
    lines = text.splitlines()
    assert len(lines) == 1 + 9 + 2
    assert max(map(len, lines)) <= width
    assert text.isascii() is not blocks
    assert text.count("o") > 15  # neighbours may share a cell, and the title has one
    assert lines[-1].split() == ["0", "5", "10", "15", "20"]


def test_panel_draws_curve_and_data_where_they_are() -> None:
    text = panel("x", ([0, 4], [0, 8]), ([0, 2, 4], [0, 8, 8]), Style(width=40), height=4)
    assert text.splitlines() == [
        "x: o data, .'. fit",
        "     8 |            ..'''''''''''''''''o",
        "       |        ..''",
        "     4 |    ..''",
        "     0 |o.''",
        "       +--------------------------------",
        "        0       1       2      3       4",
    ]


def test_panel_colours_only_when_asked() -> None:
    arguments = ("hare", ([0, 1], [1, 2]), ([0, 1], [1, 2]))
    coloured = panel(*arguments, Style(colour=True))
    assert "\x1b[36m" in coloured
    assert "\x1b[1mo\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == panel(*arguments, Style())


def test_style_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "72")
    assert style_of(Terminal()) == Style(width=72, blocks=True, colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not style_of(Terminal()).colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not style_of(Terminal()).colour


@pytest.mark.parametrize("columns", ["1", "1000"])
def test_style_of_a_file(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for encoding in ("ascii", "cp1252"):
        style = style_of(io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert style == Style(width=40 if columns == "1" else 100)
    assert style_of(io.TextIOWrapper(io.BytesIO(), encoding="cp437")).blocks is False
    assert style_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-16")).blocks


# Commands, in this process.


def test_list_names_every_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == examples.names()
    assert all(len(line.split()) > 4 for line in lines)


@pytest.mark.parametrize("name", ["lynx-hare", "lynx_hare"])
def test_run_show_prints_the_source(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", name, "--show"]) == 0
    assert capsys.readouterr().out == examples.source("lynx-hare")


def test_run_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "rosenbrock"]) == 0
    assert capsys.readouterr().out.endswith(", ok\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lits"], "unknown command 'lits'; did you mean 'list'?"),
        (["zzz"], "unknown command 'zzz'. There are: info, cache, list, run"),
        (["run", "lynx"], "unknown example 'lynx'; did you mean 'lynx-hare'?"),
        (["run", "rosenbrok"], "did you mean 'rosenbrock'? There are: heat, heat-inverse, kinetics"),
        (["run", "qqq"], "unknown example 'qqq'. There are: heat, heat-inverse, kinetics, lynx-hare"),
        (["run"], "NAME"),
        (["list", "more"], "more"),
        (["--nonsense"], "--nonsense"),
        ([""], "unknown command ''"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    assert raised.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("usage: python -m tape")


def test_info_names_versions_cache_and_blas(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["NumPy"] == np.__version__
    assert rows["SciPy"] == scipy.__version__
    assert rows["Python"].startswith(sys.version.split()[0])
    assert set(rows) >= {"tape", "numba", "kernels", "BLAS"}
    assert str(jit.cache_folder()) in rows["kernels"]
    assert re.match(r"\d+ kernels? in ", rows["kernels"])
    assert re.match(r"NumPy: \S+", rows["BLAS"])
    assert "SciPy" in rows["BLAS"]


def test_info_without_scipy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)  # the import system's mark for "there is none"
    monkeypatch.setitem(cli.PACKAGES, "SciPy", "a-distribution-that-nobody-has")
    assert cli.main(["info"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["SciPy"] == "not installed"
    assert "SciPy" not in rows["BLAS"]


def test_cache_shows_and_clears(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(jit, "cached_kernels", lambda: 1)
    monkeypatch.setattr(jit, "clear_cache", lambda: 12)
    assert cli.main(["cache"]) == 0
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"1 kernel in {tmp_path}",
        f"removed 12 kernels from {tmp_path}",
    ]


def test_ctrl_c_gives_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "show", interrupted)
    assert cli.main([]) == 130


def test_ctrl_c_while_a_tensor_dies_gives_130(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying:
        def __del__(self) -> None:
            raise KeyboardInterrupt  # Python drops it here

    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(cli, "show", Dying)
    before = sys.unraisablehook
    cli.main([])
    assert codes == [130]
    assert sys.unraisablehook is before


# Commands, in processes of their own.

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start ``start(*arguments, stdout=..., **environment)`` in a new process and empty folder."""

    def started(*arguments: str, stdout: int = subprocess.PIPE, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tape", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **more},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


@pytest.mark.slow
def test_tour_into_a_file(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "tour.txt"
    with path.open("wb") as file:
        process = start(stdout=file.fileno(), PYTHONIOENCODING="ascii", COLUMNS="70")
        _, err = process.communicate(timeout=120)
    text = path.read_text(encoding="ascii")
    assert process.returncode == 0
    assert err in {"", f"{cli.COMPILING} ...\n"}
    assert "\x1b" not in text
    assert "\r" not in text
    assert "?" not in text  # what a character that cannot be encoded would become
    assert re.search(r"\n +0 +11\.0362 +11\.0362\n", text)
    assert re.search(r"\n +\d+ +2\.0187 +2\.0187\n +evaluations", text)
    assert re.search(r"alpha +0\.540", text)
    assert text.count("o data") == 2
    assert str(jit.cache_folder()) in text
    plots = text[text.index("hare: o data") : text.index("\n3.")]
    assert max(map(len, plots.splitlines())) == 70


@pytest.mark.slow
def test_first_run_compiles_into_a_cache_that_can_be_cleared(start: Start, tmp_path: Path) -> None:
    def outputs(*arguments: str) -> tuple[str, str]:
        process = start(*arguments, TAPE_CACHE_DIR=str(tmp_path / "kernels"))
        outputs = process.communicate(timeout=120)
        assert process.returncode == 0, outputs
        return outputs

    alone = outputs("cache")[0].split()  # what importing makes: tensors and tapes are native code
    first, second = outputs("run", "rosenbrock"), outputs("run", "rosenbrock")
    assert first == (second[0], f"{cli.COMPILING} ...\n")
    assert second[1] == ""
    count = int(outputs("cache")[0].split()[0])
    assert count > 0
    assert outputs("cache", "--clear")[0].startswith(f"removed {count} kernel")
    left = outputs("cache")[0].split()
    assert left[0] == alone[0] != str(count)
    assert left[-1] == str(tmp_path / "kernels")


@POSIX
def test_a_reader_that_leaves_is_no_error(start: Start) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start("list", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=120)
    assert err == ""
    assert process.returncode == 141


@POSIX
@pytest.mark.slow
def test_ctrl_c_during_the_tour(start: Start) -> None:
    process = start()
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("2."):
        assert line, process.communicate()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Exception ignored" not in err
