"""The command line: `python -m tape [info | cache | list | run NAME | bench]`; without a command, the tour.

Exit codes: 0 done, 1 an example failed, 2 wrong usage, 130 interrupted, 141 a pipe's reader left.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import platform
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain, groupby, zip_longest
from pathlib import Path
from textwrap import indent
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

import tape
from kernels.language import jit
from tape import examples
from tape.examples import for_scipy, lynx_hare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType
    from typing import TextIO

    from numpy.typing import ArrayLike, NDArray

    Evaluate = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


# The tour, `python -m tape`: a tape is printed and swept, a model fitted to data, and timed.

COMPILING = "compiling kernels (first run only)"


@dataclass(frozen=True)
class Fit:
    """A minimum, the loss at the start and after each iteration, and what it took."""

    x: NDArray[np.float64]
    losses: list[float]
    evaluations: int
    seconds: float


def show() -> None:
    """Print the whole tour on stdout, and progress on stderr while kernels compile."""
    with compile_progress() as progress:
        for text in chain(graph(), fits()):
            progress.erase()
            print(text)
        progress.erase()
        print(f"\n3. The kernels that ran are cached: {kernel_cache()}.")
        print("   `python -m tape cache --clear` deletes them; `python -m tape list` lists examples.")


def graph() -> Iterator[str]:
    """Build a graph of four operations and sweep it backward: its listing and gradients."""
    a, b, c, d = (tape.tensor(value, requires_grad=True) for value in (2.0, 3.0, 5.0, 10.0))
    u = a * b
    t = tape.log(d)
    t.retain_grad()
    v = t * c
    e = u + v
    yield "1. Operations run at once and are recorded on a tape.\n"
    yield "   a, b, c, d = 2, 3, 5, 10;  u = a * b;  t = log(d);  v = t * c;  e = u + v\n"
    yield indent(tape.listing(e), "   ")
    e.backward()
    yield f"\n   e is {e.item():.5g}. e.backward() sweeps the tape from its end:\n"
    for name, tensor in zip("abcdt", (a, b, c, d, t), strict=True):
        yield f"   {name}.grad  {'none' if tensor.grad is None else f'{tensor.grad.item():.5g}'}"


def fits() -> Iterator[str]:
    """Fit the lynx-hare record in dynamic mode and by replay: losses, times and a plot."""
    yield "\n2. A fit: lynx and hare, Hudson Bay 1900 to 1920, by the Lotka-Volterra equations."
    yield "   Six parameters; Runge-Kutta, 20 steps a year, a Python loop of scalars; L-BFGS-B.\n"
    dynamic = fit(tape.value_and_grad(lynx_hare.loss))
    begin = perf_counter()
    program = tape.record(lynx_hare.loss, lynx_hare.START)
    replayed = for_scipy(program)
    replayed(lynx_hare.START)
    once = perf_counter() - begin
    replay = fit(replayed)
    yield indent(comparison(dynamic, replay, len(program)), "   ")
    yield f"\n   To record the program and replay it for the first time took {once:.3f} s.\n"
    for name, value in zip(lynx_hare.NAMES, np.exp(replay.x), strict=True):
        yield f"   {name:12}  {value:.5f}"
    yield "\n" + plot(replay.x)


def fit(value_and_grad: Evaluate) -> Fit:
    """Minimise from the example's start by SciPy's L-BFGS-B, timed with kernels ready."""
    from scipy.optimize import minimize

    losses = [value_and_grad(lynx_hare.START)[0]]

    def note(intermediate_result: object) -> None:  # SciPy asks for this very name
        losses.append(float(intermediate_result.fun))  # type: ignore[attr-defined]

    begin = perf_counter()
    result = minimize(value_and_grad, lynx_hare.START, jac=True, method="L-BFGS-B", callback=note)
    return Fit(result.x, losses, int(result.nfev), perf_counter() - begin)


def comparison(dynamic: Fit, replay: Fit, operations: int) -> str:
    """Return a table of both fits; `operations` are those of one evaluation."""

    def row(name: str, left: str, right: str, note: str = "") -> str:
        return f"{name:>22}  {left:>10}  {right:>10}  {note}".rstrip()

    def rate(done: Fit) -> str:
        return f"{done.evaluations * operations / done.seconds / 1e6:.2f} M"

    lines = [row("loss after iteration", "dynamic", "replay")]
    for i, pair in enumerate(zip_longest(dynamic.losses, replay.losses)):
        lines.append(row(str(i), *("" if loss is None else f"{loss:.4f}" for loss in pair)))
    faster = f"speed-up {dynamic.seconds / replay.seconds:.1f}"
    size = f"{operations} an evaluation"
    lines += [
        row("evaluations", str(dynamic.evaluations), str(replay.evaluations)),
        row("seconds", f"{dynamic.seconds:.3f}", f"{replay.seconds:.3f}", faster),
        row("operations a second", rate(dynamic), rate(replay), size),
    ]
    return "\n".join(lines)


def plot(logarithms: NDArray[np.float64]) -> str:
    """Return data and model as text, as wide as the terminal, for the stream that stdout is now."""
    with tape.no_grad():
        states = lynx_hare.simulate(tape.tensor(logarithms))
        curves = np.array([[hare.item(), lynx.item()] for hare, lynx in states]).T
    years = np.linspace(lynx_hare.YEAR[0], lynx_hare.YEAR[-1], len(states))
    data = {"hare": lynx_hare.HARE, "lynx": lynx_hare.LYNX}
    style = style_of(sys.stdout)
    return "\n".join(
        panel(name, (lynx_hare.YEAR, counts), (years, curve), style)
        for (name, counts), curve in zip(data.items(), curves, strict=True)
    )


def kernel_cache() -> str:
    """Return how many compiled kernels are cached, and where."""
    return f"{count_kernels(jit.cached_kernels())} in {jit.cache_folder()}"


def count_kernels(count: int) -> str:
    """Return `count` and the noun that goes with it."""
    return f"{count} kernel{'' if count == 1 else 's'}"


@contextmanager
def compile_progress(*, rewrite: bool = True) -> Iterator[Progress]:
    """Report on stderr that kernels are being compiled, if any are, while the block runs.

    A terminal sees one line rewritten for each kernel (so the block should call `erase` before it
    prints, or say `rewrite=False`), gone at the end; anything else gets one plain line.
    """
    progress = Progress(rewrite=rewrite and sys.stderr.isatty())
    jit.on_compile.append(progress)
    try:
        yield progress
    finally:
        jit.on_compile.remove(progress)
        progress.erase()


class Progress:
    """Called with the name of each kernel before it is compiled."""

    def __init__(self, *, rewrite: bool) -> None:
        """Write one line that changes if `rewrite`, else one plain line at the first kernel."""
        self.rewrite = rewrite
        self.count = self.width = 0

    def __call__(self, name: str) -> None:
        """Show that `name` is being compiled."""
        self.count += 1
        if self.rewrite:
            text = f"{COMPILING}: {self.count} {name}"[:79]
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
            self.width = len(text)
        elif self.count == 1:
            sys.stderr.write(f"{COMPILING} ...\n")

    def erase(self) -> None:
        """Leave the line empty for what is printed next."""
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
            self.width = 0


COMMANDS = ("info", "cache", "list", "run", "bench")
PACKAGES = {"numba": "numba", "NumPy": "numpy", "SciPy": "scipy"}
WRONG_USAGE, INTERRUPTED, READER_LEFT = 2, 130, 141  # the last two as a shell reports the signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; `arguments` default to those of the process."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # By the line, so that a pipe's reader sees progress; and no character may stop the show.
        sys.stdout.reconfigure(line_buffering=True, errors="replace")
    hook, sys.unraisablehook = sys.unraisablehook, _heed_interrupt
    try:
        run_command(parser(), sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        # Python flushes stdout once more when it exits: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        sys.unraisablehook = hook
    return 0


def run_command(top: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Parse and run; wrong usage prints a message on stderr and raises SystemExit(2)."""
    first = next(iter(arguments), "-")
    if not first.startswith("-") and first not in COMMANDS:
        top.error(unknown("command", first, COMMANDS))
    options, rest = top.parse_known_args(arguments)
    if options.command == "bench":
        raise SystemExit(bench(options.compare, options.html, rest))
    if rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "info":
        print(info())
    elif options.command == "cache":
        removed = f"removed {count_kernels(jit.clear_cache())} from {jit.cache_folder()}" if options.clear else ""
        print(removed or kernel_cache())
    elif options.command == "list":
        width = max(map(len, examples.names()))
        print("\n".join(f"{name:{width}}  {examples.summary(name)}" for name in examples.names()))
    elif options.command == "run" and options.show:
        print(examples.source(options.name), end="")
    elif options.command == "run":
        with compile_progress(rewrite=False):
            examples.load(options.name).main()
    else:
        show()


def parser() -> argparse.ArgumentParser:
    """Return the parser of a command, None for the tour, and its options."""
    top = argparse.ArgumentParser(
        prog="python -m tape",
        usage="%(prog)s [-h] [--version] [info | cache | list | run NAME | bench]",
        description="Automatic differentiation on a tape. Without a command: the tour.",
    )
    top.add_argument("--version", action="version", version=f"tape {tape.__version__}")
    commands = top.add_subparsers(prog=top.prog, dest="command", metavar="COMMAND")
    commands.add_parser("info", help="versions, the cache of compiled kernels, BLAS")
    of_cache = commands.add_parser("cache", help="say where compiled kernels are kept")
    of_cache.add_argument("--clear", action="store_true", help="delete them")
    commands.add_parser("list", help="list the examples")
    of_run = commands.add_parser("run", help="run an example")
    of_run.add_argument("name", metavar="NAME", type=example, help="one of: " + ", ".join(examples.names()))
    of_run.add_argument("--show", action="store_true", help="print its source instead")
    of_bench = commands.add_parser("bench", help="run the benchmarks' quick part; other options are pytest's")
    of_bench.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"), help="two files of --benchmark-json FILE")
    of_bench.add_argument("--html", metavar="PAGE", help="write the comparison as a page, too")
    return top


def bench(compare: Sequence[str] | None, page: str | None, rest: Sequence[str]) -> int:
    """Run the checkout's benchmarks, or compare two saved runs, in a process of one thread; return its exit code."""
    root = Path(tape.__file__).resolve().parents[1]
    if not (root / "bench" / "conftest.py").is_file():
        print("the benchmarks are in tape's source, not in the installed package", file=sys.stderr)
        return WRONG_USAGE
    if page is not None and compare is None:
        print("--html goes with --compare", file=sys.stderr)
        return WRONG_USAGE
    if compare is None and find_spec("pytest_benchmark") is None:
        print('the benchmarks need pytest-benchmark: pip install -e ".[test,bench]"', file=sys.stderr)
        return WRONG_USAGE
    if compare is not None:
        command = ["bench.compared", *compare, *([] if page is None else ["--html", page]), *rest]
    else:
        command = ["pytest", str(root / "bench"), *rest]
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    return subprocess.call([sys.executable, "-m", *command], env={**os.environ, "PYTHONPATH": path})  # noqa: S603 (ours)


def example(name: str) -> str:
    """Return the example's name as `examples.names()` spells it; underscores pass for hyphens."""
    hyphened = name.replace("_", "-")
    if hyphened not in examples.names():
        raise argparse.ArgumentTypeError(unknown("example", name, examples.names()))
    return hyphened


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not known, with the nearest one and all of them."""
    known = list(known)
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {name!r}{hint} There are: {', '.join(known)}"


def info() -> str:
    """Return versions, where kernels are kept and how many there are, and the BLAS libraries."""
    rows = {"tape": tape.__version__}
    rows |= {name: _version(package) for name, package in PACKAGES.items()}
    rows["Python"] = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    rows["kernels"] = kernel_cache()
    rows["BLAS"] = f"NumPy: {_blas(np)}"
    try:
        import scipy
    except ImportError:
        pass
    else:
        rows["BLAS"] += f"; SciPy, for matrix products: {_blas(scipy)}"
    return "\n".join(f"{name:8} {text}" for name, text in rows.items())


def _heed_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Leave when Ctrl-C came while a tensor was being deleted, where Python drops exceptions."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _blas(package: ModuleType) -> str:
    blas = package.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".rstrip()


# Curves of characters.
#
# A character cell holds 2 x 2 dots; its index here is the sum of the dots' weights:
# upper left 1, upper right 2, lower left 4, lower right 8.
BLOCKS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
ASCII = " '''.:::.:::.:::"
WEIGHTS = np.array([[1, 2], [4, 8]])

NARROWEST, WIDEST = 40, 100  # columns of a whole line
MARGIN = 7  # columns of the vertical axis
COLOURS = {"hare": "36", "lynx": "33"}
PLAIN_COLOUR = "32"


@dataclass(frozen=True)
class Style:
    """What a stream can show: columns, block characters, colour."""

    width: int = 80
    blocks: bool = False
    colour: bool = False


def style_of(stream: TextIO) -> Style:
    """Return what `stream` can show; NO_COLOR, COLUMNS and TERM are respected."""
    columns = shutil.get_terminal_size().columns
    return Style(
        width=min(max(columns, NARROWEST), WIDEST),
        blocks=_can_encode(stream, BLOCKS),
        colour=stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
    )


def panel(
    title: str, data: tuple[ArrayLike, ArrayLike], curve: tuple[ArrayLike, ArrayLike], style: Style, height: int = 9
) -> str:
    """Return a plot of points and a curve over the same horizontal axis.

    `data` and `curve` are pairs (x, y) of finite 1-D arrays, x increasing; y starts at 0. The text
    has `height` rows, a title above them, an axis below, and at most `style.width` columns.
    """
    data_x, data_y = (np.asarray(values, dtype=float) for values in data)
    curve_x, curve_y = (np.asarray(values, dtype=float) for values in curve)
    columns = style.width - MARGIN - 1
    top = _round_up(max(data_y.max(), curve_y.max()))
    left, right = curve_x[0], curve_x[-1]

    across = np.linspace(left, right, 2 * columns)
    dots = _trace(np.interp(across, curve_x, curve_y) / top, 2 * height)
    cells = [list(row) for row in _cells(dots, BLOCKS if style.blocks else ASCII)]
    for x, y in zip(data_x, data_y, strict=True):
        column = round((x - left) / (right - left) * (columns - 1))
        cells[height - 1 - _level(y / top, height)][column] = "o"

    rows = [_paint(row, title, style) for row in cells]
    sample = "▄▀▄" if style.blocks else ".'."
    lines = [f"{title}: o data, {sample} fit"]
    labels = {0: f"{top:g}", height // 2: f"{top / 2:g}", height - 1: "0"}
    lines += [f"{labels.get(k, ''):>{MARGIN - 1}} |{row}" for k, row in enumerate(rows)]
    lines += [" " * MARGIN + "+" + "-" * columns, " " * (MARGIN + 1) + _axis(left, right, columns)]
    return "\n".join(line.rstrip() for line in lines)


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _round_up(value: float) -> float:
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 2, 4, 5, 8, 10, 20) if step * power >= value))


def _level(fraction: float, levels: int) -> int:
    return min(max(int(fraction * levels), 0), levels - 1)


def _trace(fractions: NDArray[np.float64], levels: int) -> NDArray[np.bool_]:
    dots = np.zeros((levels, len(fractions)), dtype=bool)
    before = _level(fractions[0], levels)
    for column, fraction in enumerate(fractions):
        now = _level(fraction, levels)
        # From the step next to the last one, so that steep parts have no gaps and no doubled dots.
        start = now if now == before else before + (1 if now > before else -1)
        dots[min(start, now) : max(start, now) + 1, column] = True
        before = now
    return dots[::-1]


def _cells(dots: NDArray[np.bool_], characters: str) -> list[str]:
    height, width = dots.shape
    squares = dots.reshape(height // 2, 2, width // 2, 2).transpose(0, 2, 1, 3)
    return ["".join(characters[i] for i in row) for row in (squares * WEIGHTS).sum(axis=(2, 3))]


def _paint(cells: Sequence[str], title: str, style: Style) -> str:
    if not style.colour:
        return "".join(cells)
    colour = COLOURS.get(title, PLAIN_COLOUR)
    codes = {" ": "", "o": "1"}  # data bold
    runs = groupby(cells, lambda cell: codes.get(cell, colour))
    return "".join(f"\x1b[{code}m{''.join(run)}\x1b[0m" if code else "".join(run) for code, run in runs)


def _axis(left: float, right: float, columns: int) -> str:
    line = [" "] * columns
    for quarter in range(5):
        text = f"{left + (right - left) * quarter / 4:g}"
        centre = round((columns - 1) * quarter / 4)
        start = min(max(centre - len(text) // 2, 0), columns - len(text))
        line[start : start + len(text)] = text
    return "".join(line)


if __name__ == "__main__":
    sys.exit(main())
