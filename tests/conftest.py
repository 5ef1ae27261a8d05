"""What every test may use: fresh processes, restored global state, a summary of the house."""

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tape.compiled.call_key import Overhead
from tests.support import parameter_ids
from tests.support.pytorch_outcomes import libraries, pytorch  # noqa: F401 (fixtures for every test)

# Their asserts are to tell what they compared, whichever test file imports them first.
pytest.register_assert_rewrite(
    "tests.support.agreement",
    "tests.support.record_cases",
    "tests.support.rearrangements",
    "tests.conventions.test_conventions",
)

ROOT = Path(__file__).resolve().parents[1]
FIGURES = pytest.StashKey[list[str]]()

# The first example compiles kernels, so a deadline would measure the compiler. A failure found
# once is found on every run.
hypothesis.settings.register_profile("tape", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tape")

Fresh = Callable[..., subprocess.Popen[str]]

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # new processes find byte code, as after an installation
os.environ.setdefault("TAPE_QUIET", "1")  # what a process writes on stderr does not depend on what is cached


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so; the tests of interrupts, and their processes, want the default.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    """Start Python code in a new process: ``fresh(code, *folders_in_front, **environment)``.

    The process runs in an empty folder and finds this checkout behind `folders_in_front`.
    """
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *front: Path, **environment: str) -> subprocess.Popen[str]:
        path = os.pathsep.join(map(str, (*front, ROOT)))
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def _calls_decide(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compiled functions record when calls ask for it, however long they take, unless a test is about that."""
    if "accounted" not in request.fixturenames:
        for name in ("allows_recordings", "allows_replays"):
            monkeypatch.setattr(Overhead, name, lambda _: True)


@pytest.fixture
def accounted() -> None:
    """Have compiled functions record as much as the time that calls take allows."""


@pytest.fixture(autouse=True, scope="module")
def _old_heap() -> None:
    """Leave what earlier modules made out of garbage collections: many tests ask for one, of a heap that grows."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _restored_state() -> Iterator[None]:
    """Give back the default dtype and the gradient mode that a test may have changed."""
    tape = sys.modules.get("tape")  # not imported here: the house test runs without it
    if tape is None:
        yield
        return
    dtype, mode = tape.get_default_dtype(), tape.is_grad_enabled()
    yield
    tape.set_default_dtype(dtype)
    tape.set_grad_enabled(mode)


@pytest.fixture(autouse=True)
def _nothing_compiles_beside() -> Iterator[None]:
    """Wait for machine code that a test left to be made: its memory would count as the next test's."""
    yield
    for thread in threading.enumerate():
        if thread.name == "tape: compiling":
            thread.join()


@pytest.fixture(autouse=True)
def _numpy_error_state() -> Iterator[None]:
    """Fail the test that leaves NumPy's error state changed, and give it back for those that want a warning."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        yield
        return
    before = numpy.geterr()
    yield
    after = numpy.geterr()
    numpy.seterr(**before)
    assert after == before


@pytest.fixture
def own_tape() -> Iterator[None]:
    """Record on a tape of which no other test knows, where nobody looks on."""
    tape = importlib.import_module("tape")
    before = tape.tensors.modes._thread_tape.set(None)
    tape.tensors.modes.set_mode(tape.tensors.modes.current())
    yield
    tape.tensors.modes._thread_tape.reset(before)
    tape.tensors.modes.set_mode(tape.tensors.modes.current())


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines that the run prints at its end."""
    return pytestconfig.stash.setdefault(FIGURES, [])


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name parameters in the ids of tests."""
    return parameter_ids.name_of(val)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let a process that has nothing left to do take tests from another one, unless --dist says otherwise."""
    stealing = importlib.import_module("xdist.scheduler").WorkStealingScheduling
    return stealing(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are collected, which live as long as the run: a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests: at the end of a run in several processes none is left alone with them."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the figures of a worker to the process that prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = session.config.stash.get(FIGURES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's figures."""
    node.config.stash.setdefault(FIGURES, []).extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures that the house test left."""
    if lines := config.stash.get(FIGURES, []):
        terminalreporter.section("the house")
        for line in lines:
            terminalreporter.write_line(line)
