"""The tour, `python -m tape`: a tape is printed and swept, a model fitted to data, and timed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from textwrap import indent
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

import tape
from kernels.language import jit
from tape.examples import for_scipy, lynx_hare
from tape.tensors.figures import panel, style_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Evaluate = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]

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
        for text in chain(graph(), fits(), cache()):
            progress.erase()
            print(text)


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


def cache() -> Iterator[str]:
    """Print where the compiled kernels are cached."""
    yield f"\n3. The kernels that ran are cached: {kernel_cache()}."
    yield "   `python -m tape cache --clear` deletes them; `python -m tape list` lists examples."


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
