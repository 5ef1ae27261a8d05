"""What leads to a compiled program: recordings, plan, memory; and calls whose ways vary, beside dynamic mode.

`python -m pytest bench/bench_recording.py -s` prints each row as it is measured, and the table at the end; `-k heat`
selects; `-m long` takes what is minutes by itself. Whole calls are timed, by processor time: the first of a compiled
function is a recording, the second another one, with lines, and their comparison; what the third takes beyond the
fourth is the plan, and whatever else comes before the first replay.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from bench import bars, fresh
from bench.bars import Bar, Scoreboard
from bench.bench_compile import step
from bench.in_turn import readable
from bench.library_names import NUMPY
from bench.recorded_workloads import MODELS, RECORDED, SEQUENCES, SHORT, Recorded
from bench.rows import tape
from tape.errors import CompileWarning
from tape.testing import ratio

pytestmark = pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
ROUNDS = 7
# A row takes about this long, and one round at least.
ROW_SECONDS = 12.0
MEGABYTE = 1e6
_STEPS = 500
_WARM_SECONDS = 3.0


def _add(board: Scoreboard, bar: Bar, figure: float, text: str) -> None:
    """Put a figure on the board, and print it at once."""
    board.add(bar, figure, text)
    result = board.results[-1]
    sys.stdout.write(f"{result.verdict}  {bar.name}  {bar.wanted}  {text}\n")
    sys.stdout.flush()


def _seconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def _agree(found: Any, wanted: Any, rtol: float = 1e-9) -> None:
    """Assert value and gradients; small elements of a gradient to so much of its largest."""
    np.testing.assert_allclose(found[0], wanted[0], rtol=rtol)
    gradients = [given if isinstance(given, tuple) else (given,) for given in (found[1], wanted[1])]
    for x, y in zip(*gradients, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * float(np.max(np.abs(y), initial=0.0)))


def _first_calls(work: Recorded, mode: str, most: int = 4) -> tuple[list[float], str]:
    """Return the seconds of the first calls, which agree with dynamic mode, and what the function tells.

    There are four, and where machine code is made beside them as many as it takes, up to ``most``.
    """
    compiled, wanted = tape().compile(work.both(), mode=mode, check="never"), work.both()(*work.arguments)
    calls: list[float] = []
    while len(calls) < 4 or (len(calls) < most and "machine code:" not in compiled.explain()):
        found: list[Any] = []
        calls.append(_seconds(lambda found=found: found.append(compiled(*work.arguments))))  # type: ignore[misc]
        _agree(found[0], wanted, rtol=1e-7)
    return calls, compiled.explain().splitlines()[0]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.quick) if "bodies" in n else n for n in RECORDED])
def test_recordings(name: str, scoreboard: Scoreboard) -> None:
    """Both recordings, and what is between them and the first replay, over a dynamic call, in rounds."""
    work = RECORDED[name]()
    dynamic = partial(work.both(), *work.arguments)
    dynamic()
    (_, _, *later), _ = _first_calls(work, "max", 100)
    to_machine_code = f"{sum(later[:-1]) / _seconds(dynamic):.3g} in {len(later) - 1} calls"
    rounds: list[list[float]] = []
    start = time.perf_counter()
    while not rounds or (len(rounds) < ROUNDS and time.perf_counter() - start < ROW_SECONDS):
        plain = _seconds(dynamic)
        (first, second, third, fourth), counts = _first_calls(work, "eager")
        rounds.append([plain, first / plain, second / plain, (third - fourth) / plain])
    plain, *figures = map(statistics.median, zip(*rounds, strict=True))
    of = f"of {readable(plain)}, {len(rounds)} rounds"
    more = "", "", f"; to machine code {to_machine_code}; {counts.split(': ')[-1]}"
    kinds = bars.FIRST_RECORDING, bars.SECOND_RECORDING, bars.FIRST_REPLAY
    for kind, figure, text in zip(kinds, figures, more, strict=True):
        _add(scoreboard, kind[name], figure, f"{figure:.3g} times {of}{text}")


SIZES = (1_000, 10_000, 100_000)


def _beside(found: fresh.FirstCalls) -> float:
    """Return the bytes of recording and plan: what is held, or needed beyond a dynamic call and the workspace."""
    return max(*found.held[:2], found.held[2] - found.workspace, found.peak - max(found.dynamic_peak, found.workspace))


@pytest.mark.parametrize("name", bars.RECORDED_BYTES)
def test_memory_of_recordings(name: str, scoreboard: Scoreboard) -> None:
    """How memory of the first three calls grows with the steps, from 10,000 to 100,000, in fresh processes."""
    found = {steps: fresh.recording(name, steps) for steps in SIZES}
    texts, sizes = [], []
    for steps, one in found.items():
        sizes.append(math.inf if one.failed else _beside(one))
        peaks = f"{one.peak / MEGABYTE:.0f} MB, dynamic {one.dynamic_peak / MEGABYTE:.0f}"
        texts.append(f"{steps:,} steps: {one.failed or peaks + f', workspace {one.workspace / MEGABYTE:.0f}'}")
    figure = (sizes[2] - sizes[1]) / (SIZES[2] - SIZES[1])
    _add(scoreboard, bars.RECORDED_BYTES[name], figure, f"{figure:,.0f} bytes ({'; '.join(texts)})")


def test_memory_of_a_process(scoreboard: Scoreboard) -> None:
    """The peak of a whole process that has Gray and Scott's equations compiled, and runs them."""
    found = fresh.recording("Gray-Scott", 1000, dynamic=False)
    figure = math.inf if found.failed else found.whole / MEGABYTE
    text = found.failed or f"{figure:,.0f} MB, workspace {found.workspace / MEGABYTE:.0f}"
    _add(scoreboard, bars.RECORDED_PROCESS, figure, text)


@pytest.mark.long
@pytest.mark.parametrize(("name", "steps"), bars.LONG_RECORDINGS, ids=str)
def test_long_recordings(name: str, steps: int, scoreboard: Scoreboard) -> None:
    """The first three calls of long loops over a dynamic call, and what a run takes where memory is limited."""
    found = fresh.recording(name, steps)
    figure = math.inf if found.failed else sum(found.calls[:3]) / found.dynamic
    each = ", ".join(f"{seconds:.3g}" for seconds in found.calls)
    text = found.failed or f"{figure:.3g} times (dynamic {found.dynamic:.3g} s, calls {each} s; {found.tier})"
    _add(scoreboard, bars.LONG_RECORDINGS[name, steps], figure, text)
    limited = fresh.recording(name, steps, dynamic=False, budget="100 MB") if not found.failed else found
    figure = math.inf if limited.failed else limited.workspace / MEGABYTE
    if not limited.failed:
        assert limited.value == pytest.approx(found.value, rel=1e-9)
    text = limited.failed or f"{figure:.0f} MB of {found.workspace / MEGABYTE:.0f}; {limited.calls[-1]:.3g} s a call"
    _add(scoreboard, bars.RECORDED_BUDGET[name], figure, text)


@pytest.mark.parametrize("name", SEQUENCES)
def test_calls_that_vary(name: str, scoreboard: Scoreboard) -> None:
    """A sequence of calls, each beside one without compile; the worst of its beginnings of ten calls and more."""
    lib, sequence = tape(), SEQUENCES[name]
    arguments, rounds, reasons = list(sequence.calls()), [], []
    for _ in range(3):
        dynamic = lib.value_and_grad(partial(sequence.function, lib))
        dynamic(*arguments[0])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CompileWarning)
            rounds.append(_in_pairs(lib.compile(dynamic), dynamic, arguments))
        reasons += [str(warning.message) for warning in caught]
    plain, ours = np.median(np.array(rounds), 0).cumsum(0).T
    first = float(np.median([each[0][1] for each in rounds]))
    worst = float(np.max((ours[9:] - first) / plain[9:]))
    text = f"{worst:.3g} times, at the end {(ours[-1] - first) / plain[-1]:.3g} of {readable(plain[-1])}"
    _add(scoreboard, bars.VARYING[name], worst, f"{text}{'; ' + reasons[0] if reasons else ''}")


def _in_pairs(compiled: Any, dynamic: Any, arguments: list[tuple[Any, ...]]) -> list[tuple[float, float]]:
    """Return the seconds of each call without compile, and with it, after asserting that both agree."""
    lib, found = tape(), []
    for k, given in enumerate(arguments):
        results, seconds = {}, {}
        for run in (dynamic, compiled) if k % 2 else (compiled, dynamic):
            lib.manual_seed(k)
            start = time.thread_time()  # without what compiles beside the calls
            results[run] = run(*given)
            seconds[run] = time.thread_time() - start
        _agree(results[compiled], results[dynamic])
        found.append((seconds[dynamic], seconds[compiled]))
    return found


def test_a_compiled_step(scoreboard: Scoreboard) -> None:
    """A step of five bodies, 500 in a Python loop, and the way back."""
    lib = tape()
    start, masses = np.random.default_rng(0).normal(size=(5, 3)), lib.tensor(np.ones(5))

    def through(function: Any) -> Any:
        x = lib.tensor(start, requires_grad=True)
        position, velocity = x, x * 0
        for _ in range(_STEPS):
            position, velocity = function(position, velocity, masses)
        (position * position).sum().backward()
        return x.grad

    compiled = lib.compile(step, check="never")
    wanted = through(step).numpy()
    for _ in range(5):
        np.testing.assert_allclose(through(compiled).numpy(), wanted, rtol=1e-9)
    measured = ratio(lambda: through(step), lambda: through(compiled), pairs=15, clock=time.process_time)
    figure = measured.fast / _STEPS * 1e6
    text = f"{figure:.3g} us, dynamic {measured.slow / _STEPS * 1e6:.3g} us"
    _add(scoreboard, bars.COMPILED_STEP, figure, text)


@pytest.mark.parametrize("name", MODELS)
def test_on_tensors(name: str, scoreboard: Scoreboard) -> None:
    """A compiled loss on tensors with its backward, beside value and gradient of arrays, and beside dynamic mode."""
    lib, work = tape(), MODELS[name]()
    leaves = [lib.tensor(np.array(leaf), requires_grad=True) for leaf in work.leaves]
    constants = [lib.as_tensor(constant) for constant in work.constants]

    def loss(*given: Any) -> Any:
        return work.function(lib, *given)

    def swept(function: Any) -> Any:
        for leaf in leaves:
            leaf.grad = None
        value = function(*leaves, *constants)
        value.backward()
        return value.item(), tuple(leaf.grad.numpy() for leaf in leaves)

    compiled, arrays = lib.compile(loss, check="never"), lib.compile(work.both(), check="never")
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < _WARM_SECONDS or count < 100:  # machine code is made beside the calls
        found, count = (swept(compiled), arrays(*work.arguments)), count + 1
    for each in found:
        _agree(each, swept(loss))
    for kind, others in (
        (bars.ON_TENSORS, lambda: arrays(*work.arguments)),
        (bars.BESIDE_DYNAMIC, lambda: swept(loss)),
    ):
        measured = ratio(lambda: swept(compiled), others, pairs=15, clock=time.process_time)
        _add(scoreboard, kind[name], measured.median, str(measured))


def test_machine_code_of_an_adaptive_method(scoreboard: Scoreboard) -> None:
    """Processor seconds of the calls before the first that is machine code, in a process of a warm cache."""
    fresh.recording("Dormand-Prince", 20.0, dynamic=False)
    found = [fresh.recording("Dormand-Prince", 20.0) for _ in range(3)]
    failed = next((one.failed for one in found if one.failed), "")
    reached = not failed and all(one.tier.startswith("machine code") for one in found)
    figure = statistics.median(sum(one.calls[1:-1]) for one in found) if reached else math.inf
    calls = ", ".join(f"{seconds:.3g}" for seconds in found[0].calls)
    text = failed or f"{figure:.3g} s behind the first call (calls {calls} s; dynamic {found[0].dynamic:.3g} s)"
    _add(scoreboard, bars.ADAPTIVE_FIRST, figure, text)


def test_import(scoreboard: Scoreboard) -> None:
    """Importing tape over importing numba, by processor time, in fresh processes."""
    modules = "numba", "tape"
    for module in modules:
        fresh.import_seconds(module)  # writes byte code, fills the file cache
    pairs = [[fresh.import_seconds(module, "process_time") for module in modules] for _ in range(10)]
    figure = statistics.median(ours / theirs for theirs, ours in pairs)
    numba, ours = (statistics.median(times) for times in zip(*pairs, strict=True))
    _add(scoreboard, bars.IMPORT_BESIDE, figure, f"{figure:.3g} times ({readable(ours)} and {readable(numba)})")


@pytest.mark.quick
def test_a_tiny_call(scoreboard: Scoreboard) -> None:
    """Value and gradient of four floats, over a Python function of as many that computes the same."""
    lib = tape()

    def by_hand(a: float, b: float, c: float, d: float) -> Any:
        return a * b + math.log(d) * c, (b, a, math.log(d), c / d)

    tiny = lib.value_and_grad(lambda a, b, c, d: a * b + lib.log(d) * c, argnums=(0, 1, 2, 3))
    both = lib.compile(tiny, mode="max", check="never")
    given = 1.5, 2.5, 3.5, 4.5
    for _ in range(200):
        _agree(both(*given), by_hand(*given))
    measured = ratio(lambda: both(*given), lambda: by_hand(*given), clock=time.process_time)
    _add(scoreboard, bars.TINY_CALL, measured.median, str(measured))


@pytest.mark.quick
@pytest.mark.parametrize("name", SHORT)
def test_answers(name: str) -> None:
    """The first calls give NumPy's value of the same text, and gradients along which its differences go."""
    work, rng = SHORT[name](), np.random.default_rng(9)
    compiled = tape().compile(work.both(), mode="eager", check="never")
    value = float(work.function(NUMPY, *work.arguments))
    directions = [rng.normal(size=np.shape(leaf)) for leaf in work.leaves]
    ends = [
        float(work.function(NUMPY, *[x + h * d for x, d in zip(work.leaves, directions, strict=True)], *work.constants))
        for h in (-1e-6, 1e-6)
    ]
    for run in (work.both(), compiled, compiled, compiled):
        found, gradients = run(*work.arguments)
        assert found == pytest.approx(value, rel=1e-10)
        along = sum(float(np.sum(g * d)) for g, d in zip(gradients, directions, strict=True))
        assert along == pytest.approx((ends[1] - ends[0]) / 2e-6, rel=1e-5, abs=1e-7 * abs(value))
