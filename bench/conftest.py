"""What every benchmark run has: one thread, a summary of the bars, versions in the JSON report.

`python -m pytest bench` runs the quick part, one short form of each, in minutes; with a file, `-k` or
`-m` what these select: `-m "not long"` runs everything, `-m long` what takes minutes by itself.
`python -m tape bench` is the same, and compares two saved runs.

A test here fails when a value or a gradient is wrong. A missed bar does not fail it: timings
depend on the machine and on what else it does, so bars are reported as `pass` or `FAIL` in the
summary at the end, as measured once, and the exit code says only that all answers were right.
Rows and bars of a library that is not installed are skipped with the reason.

The report of pytest-benchmark, with machine, versions and bars, is written to
`.benchmarks/latest.json` unless `--benchmark-json` names another file.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench import ONE_THREAD
from bench.bars import Scoreboard
from bench.report import Comparison, Progress, aligned

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

_BOARD = pytest.StashKey[Scoreboard]()
_NO_MARK = "quick or not exhaustive"  # of pyproject.toml
_DISTRIBUTIONS = ("tape-autograd", "numpy", "numba", "llvmlite", "scipy", "torch")


def pytest_configure(config: pytest.Config) -> None:
    """Make the board, the marker of the longest measurements, and a default for the report."""
    config.stash[_BOARD] = Scoreboard()
    config.option.benchmark_quiet = True  # one table of all cases in place of one for each
    # A row that is skipped, or fails its check, is not timed; that alone is what happened.
    config.addinivalue_line("filterwarnings", "ignore:Benchmark fixture was not used at all")
    config.addinivalue_line("markers", "long: minutes by itself; runs only with `-m long`")
    if config.getoption("benchmark_json", None) is None and not config.option.collectonly:
        config.option.benchmark_json = _default_report(config.rootpath)


def _default_report(root: Path) -> Path | None:
    folder = root / ".benchmarks"
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None  # a read-only checkout: the summary is printed all the same
    return folder / "latest.json" if os.access(folder, os.W_OK) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the longest measurements to `-m long`, and of a run of all benchmarks take the quick part."""
    option = config.option
    if "long" in option.markexpr:
        return
    chosen = option.keyword or option.markexpr != _NO_MARK or any(Path(a).is_file() or "::" in a for a in config.args)
    wanted = [
        item for item in items if not item.get_closest_marker("long") and (chosen or item.get_closest_marker("quick"))
    ]
    if len(wanted) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Show how far the run is."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not config.option.collectonly:
        config.pluginmanager.register(Progress(reporter, getattr(config, "cache", None)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish() -> Generator[None, None, None]:
    """Let a run of tests without a row end without a report, and without a warning about that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Not saving anything, no benchmarks")
        yield


@pytest.fixture(scope="session")
def scoreboard(pytestconfig: pytest.Config) -> Scoreboard:
    """Return the board that the summary prints."""
    return pytestconfig.stash[_BOARD]


@pytest.hookimpl(trylast=True)  # below the tables of pytest-benchmark
def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Print each bar measured in this run: bar, figure, pass or FAIL."""
    if config.option.collectonly:
        return
    board = config.stash[_BOARD]
    rows = _compared(config).rows()
    if len(rows) > 1:
        terminalreporter.section("tape's time, and the rivals' times over it")
        for line in aligned(rows):
            terminalreporter.line(line)
    terminalreporter.section("bars (medians; times are seconds of one call)")
    terminalreporter.line(_setting())
    for line in board.lines():
        failed = line.startswith("FAIL")
        terminalreporter.line(line, red=failed, green=line.startswith("pass"))
    for line in board.notes:
        terminalreporter.line(line)


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Add versions and the number of threads to the report's account of the machine."""
    machine_info["versions"] = _versions()
    machine_info["threads"] = ONE_THREAD


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add the bars to the report."""
    output_json["bars"] = config.stash[_BOARD].data()
    output_json["times"] = config.stash[_BOARD].times


def _compared(config: pytest.Config) -> Comparison:
    board, comparison = config.stash[_BOARD], Comparison()
    comparison.times.update(board.times)
    comparison.take(config._benchmarksession.benchmarks, board.data())  # noqa: SLF001 (its only place)
    return comparison


def _versions() -> dict[str, str | None]:
    """Return the versions of what is measured; None for what is not installed."""
    versions: dict[str, str | None] = {"python": sys.version.split()[0]}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _setting() -> str:
    named = (f"{name} {version or '(none)'}" for name, version in _versions().items())
    return f"{', '.join(named)}; {os.cpu_count()} cores, one thread"
