"""The bars: what each measurement is wanted to reach, and the board the results go on.

A bar is met or missed by the figure of one run; it is never loosened to fit a figure, and never
measured again until one fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from bench import array_workloads, workloads
from bench.workloads import CHAINS, MatrixWorkload, Workload

PYTORCH = "PyTorch eager"
DYNAMIC = "tape dynamic"
REPLAY = "tape replay"
BY_HAND = "NumPy by hand"
# Gradients asked for otherwise: of leaves that are kept, and of arrays.
GRAD, PYTORCH_GRAD = "tape autograd.grad", "PyTorch autograd.grad"
VALUE_AND_GRAD, PYTORCH_ARRAYS = "tape value_and_grad", "PyTorch autograd.grad of arrays"

# Rows of a whole Jacobian or Hessian.
ONE_SWEEP = "tape functional"
BACKWARDS = "tape, a backward a row"
PYTORCH_FUNCTIONAL = "PyTorch functional"
PYTORCH_FUNC = "PyTorch func"

# A quoted ratio is the median of this many interleaved pairs.
PAIRS = 30


@dataclass(frozen=True)
class Bar:
    """A figure's name and the bound it is held to."""

    name: str
    at_least: float = -math.inf
    at_most: float = math.inf
    unit: str = ""

    def __str__(self) -> str:
        """Return the name, which pytest shows."""
        return self.name

    @property
    def wanted(self) -> str:
        """The bound as text."""
        sign, bound = (">=", self.at_least) if self.at_least > -math.inf else ("<=", self.at_most)
        return f"{sign} {bound:g}{self.unit}"

    def passed(self, figure: float) -> bool:
        """Whether a figure meets the bar; NaN does not."""
        return self.at_least <= figure <= self.at_most


@dataclass(frozen=True)
class RatioBar(Bar):
    """A bar on the time of one row of a workload over the time of another."""

    workload: Workload = field(kw_only=True)
    slow: str = field(kw_only=True)
    fast: str = field(kw_only=True)


@dataclass(frozen=True)
class MatrixBar(Bar):
    """A bar on the time of one row of a Jacobian or Hessian over the time of another."""

    workload: MatrixWorkload = field(kw_only=True)
    slow: str = field(kw_only=True)
    fast: str = field(kw_only=True)


def _matrix_faster(workload: MatrixWorkload, slow: str, at_least: float) -> MatrixBar:
    name = f"{workload}: {slow} / {ONE_SWEEP}"
    return MatrixBar(name, at_least=at_least, workload=workload, slow=slow, fast=ONE_SWEEP)


def _times_faster(workload: Workload, fast: str, slow: str, at_least: float) -> RatioBar:
    name = f"{workload}: {slow} / {fast}"
    return RatioBar(name, at_least=at_least, workload=workload, slow=slow, fast=fast)


def _each_way(workload: Workload, at_least: float) -> tuple[RatioBar, ...]:
    """Return the bars on ``backward()``, and on the other ways, which may be a fifth slower."""
    return (
        _times_faster(workload, DYNAMIC, PYTORCH, at_least),
        _times_faster(workload, GRAD, PYTORCH_GRAD, 0.8 * at_least),
        _times_faster(workload, VALUE_AND_GRAD, PYTORCH_ARRAYS, 0.8 * at_least),
    )


TIMES_FASTER = (
    _times_faster(workloads.TINY, DYNAMIC, PYTORCH, 8),
    _times_faster(workloads.TINY_0D, DYNAMIC, PYTORCH, 10),
    _times_faster(workloads.ROSENBROCK, DYNAMIC, PYTORCH, 8),
    _times_faster(workloads.LOTKA_VOLTERRA, DYNAMIC, PYTORCH, 40),
    _times_faster(workloads.LOTKA_VOLTERRA, REPLAY, PYTORCH, 1000),
    _times_faster(workloads.LOTKA_VOLTERRA, REPLAY, DYNAMIC, 15),
    _times_faster(workloads.N_BODY, DYNAMIC, PYTORCH, 7),
    _times_faster(workloads.STENCIL, DYNAMIC, PYTORCH, 8),
    _times_faster(workloads.STENCIL, REPLAY, PYTORCH, 15),
    *_each_way(array_workloads.BLACK_SCHOLES, 2.0),
    *_each_way(array_workloads.ROSENBROCK_LARGE, 2.0),
    *_each_way(array_workloads.LOGSUMEXP, 2.5),
    *_each_way(array_workloads.SOFTMAX, 1.5),
    *_each_way(array_workloads.MLP_LARGE, 1.25),
    _times_faster(array_workloads.MLP_SMALL, DYNAMIC, PYTORCH, 5.0),
)

MATRICES = (
    _matrix_faster(workloads.REACTION, BACKWARDS, 5),
    _matrix_faster(workloads.REACTION, PYTORCH_FUNCTIONAL, 60),
    _matrix_faster(workloads.ROSENBROCK_HESSIAN, PYTORCH_FUNCTIONAL, 30),
)

# Rosenbrock by slices, n = 10: the ways of asking for gradients cost what backward() does.
TRANSFORMS = {
    way: Bar(f"Rosenbrock by slices, n=10, {way}: {PYTORCH} / {DYNAMIC}", at_least=at_least)
    for way, at_least in (
        ("backward()", 3),
        ("autograd.grad", 3),
        ("value_and_grad of arrays", 3),
        ("func.grad", 3),
        ("backward() of a new leaf", 3),
        ("autograd.grad of lists, a gradient given", 3),
        ("autograd.grad, graph retained", 3),
        ("func.grad_and_value", 3),
        ("func.vjp", 2),
        ("grad of grad", 1),
        ("vmap", 1),
        ("vmap of func.grad", 1),
    )
}
# Small functions of one example, mapped over a few.
MAPPED = {
    way: Bar(f"vmap, {way}: {PYTORCH} / {DYNAMIC}", at_least=1)
    for way in (
        "of numbers",
        "of a linear layer",
        "in vmap",
        "by chunks",
        "of func.grad of a number",
        "of func.vjp",
        "of func.jacrev",
        "of func.hessian",
        "of an MLP's gradients",
    )
}
BEYOND_BACKWARD = {
    way: Bar(f"Rosenbrock by slices, n=10, {way}, over backward()", at_most=5, unit=" us")
    for way in (
        "autograd.grad",
        "value_and_grad of arrays",
        "func.grad",
        "backward() of a new leaf",
        "autograd.grad of lists, a gradient given",
        "autograd.grad, graph retained",
        "func.grad_and_value",
        "func.vjp",
    )
}
# a*b + log(d)*c of four scalars, by all of them.
_OF_FOUR = (
    "autograd.grad",
    "autograd.grad, a gradient given",
    "value_and_grad of numbers",
    "func.grad",
    "func.grad_and_value",
    "func.vjp",
)
TINY_TRANSFORMS = {
    way: Bar(f"tiny graph, 0-d, {way}: {PYTORCH} / {DYNAMIC}", at_least=3) for way in ("backward()", *_OF_FOUR)
}
TINY_BEYOND_BACKWARD = {way: Bar(f"tiny graph, 0-d, {way}, over backward()", at_most=5, unit=" us") for way in _OF_FOUR}
# A small backward on shapes that are all new.
SHAPE_AGAIN = Bar("a shape again after 10,000 others, over a new one", at_most=1.05)
NEW_SHAPES = Bar("50,000 new shapes: growth of resident memory after the first 5,000", at_most=5, unit=" MB")
# Programs: four numbers in, one and their gradients out; and what recording and planning take.
JAX_REPLAY = Bar(f"tiny graph, 0-d, value and gradients: JAX's jit / {REPLAY}", at_least=1)
REPLAY_BEYOND_ARRAYS = {
    workload.name: Bar(f"{workload}, replay over the arrays' own handling", at_most=1.5, unit=" us")
    for workload in (workloads.TINY_0D, workloads.TINY)
}
RECORDING = Bar("recording a program, an operation, over dynamic mode", at_most=1, unit=" us")
PLANNING = Bar("planning a program, an operation", at_most=5, unit=" us")
# Compiled functions, value and gradient where nothing else is said.
COMPILED_CALL = Bar("compiled: a call of the tiny graph", at_most=2, unit=" us")
COMPILED_ROSENBROCK = Bar("compiled: Rosenbrock, n = 10: JAX's jit / tape", at_least=3)
COMPILED_STEPS = Bar(f"compiled step of five bodies, 500 in a Python loop: {PYTORCH} / tape", at_least=10)
COMPILED_RECORDINGS = Bar("compiled: Lotka-Volterra, 1000 steps: two recordings, compared", at_most=0.3, unit=" s")
COMPILED_FIRST = Bar("compiled: Lotka-Volterra, 1000 steps: until the first replay is done", at_most=1.5, unit=" s")
COMPILED_GUARD = Bar("compiled: a guard", at_most=20, unit=" ns")
COMPILED_NEWTON = Bar("compiled: Newton's iteration, changing counts / one count", at_most=1.5)
COMPILED_THREADS = Bar("compiled: Lotka-Volterra, 1000 steps: two threads / one, calls a second", at_least=1.7)
# Recordings: what leads to a compiled program, over a dynamic call of the same value and gradient.
RECORDED = (
    "heat by slices and cat, 3000 steps",
    "heat in place, 3000 steps",
    "wave in place, 100 x 100, 300 steps",
    "Lotka-Volterra on scalars, 10,000 steps",
    "five bodies, 500 steps",
    "LSTM",
    "lattice Boltzmann, 100 steps",
    "Kalman filter, 1000 steps",
)
FIRST_RECORDING = {name: Bar(f"{name}: first recording / dynamic", at_most=1.5) for name in RECORDED}
SECOND_RECORDING = {name: Bar(f"{name}: second recording, compared / dynamic", at_most=2.5) for name in RECORDED}
FIRST_REPLAY = {name: Bar(f"{name}: before the first replay / dynamic", at_most=2) for name in RECORDED}
# Memory that grows with the steps beside a dynamic call's and the workspace: a number that differs takes 16 bytes.
RECORDED_BYTES = {
    name: Bar(f"{name}: memory of recording and plan, a step", at_most=at_most, unit=" bytes")
    for name, at_most in (("heat", 1), ("Lotka-Volterra", 1), ("driven oscillator", 17))
}
RECORDED_PROCESS = Bar("Gray-Scott 100 x 100, 1000 steps: whole process", at_most=300, unit=" MB")
LONG_RECORDINGS = {
    (name, steps): Bar(f"{name}, {steps:,} steps: three calls / dynamic", at_most=4)
    for name, steps in (("Lotka-Volterra", 1_000_000), ("heat", 100_000))
}
RECORDED_BUDGET = {
    name: Bar(f'{name}, {steps:,} steps, memory="100 MB": memory of a run', at_most=100, unit=" MB")
    for name, steps in LONG_RECORDINGS
}
VARYING = {
    name: Bar(f"calls, {name}: all but one recording / without compile", at_most=1.3)
    for name in (
        "branching states in a loop over data",
        "formatted output",
        "argmax for a diagnosis",
        "a NumPy table indexed by a tensor",
        "growing data",
        "a new shape at each call",
        "arrays that grow in a loop",
        "random branches",
    )
}
COMPILED_STEP = Bar("compiled step of five bodies, 500 in a Python loop: a step", at_most=5, unit=" us")
_MODELS = (
    "polynomial",
    "character MLP",
    "MLP 784-256-10",
    "matrix factorisation",
    "Gaussian process",
    "GPT block",
)
ON_TENSORS = {name: Bar(f"{name}: compiled, tensors / arrays", at_most=1.2) for name in _MODELS}
BESIDE_DYNAMIC = {name: Bar(f"{name}: tensors, compiled / dynamic", at_most=1) for name in _MODELS}
ADAPTIVE_FIRST = Bar("adaptive Dormand-Prince: calls until machine code, warm cache", at_most=0.3, unit=" s")
# What these took before recordings were made anew.
IMPORT_BESIDE = Bar("import tape / import numba, processor time", at_most=1.6)
TINY_CALL = Bar("compiled: a call of the tiny graph / of a Python function", at_most=0.65)
# Checkpoints: the wave equation on 200 x 200 points in dynamic mode.
CHECKPOINT_PEAK = Bar("wave 200 x 200, 10,000 steps, checkpoints of 100: whole process", at_most=300, unit=" MB")
CHECKPOINT_STEP = Bar("wave 200 x 200, a step: checkpoints of 100 / without", at_most=1.4)
# Derivatives of derivatives: recorded backwards.
SECOND = {
    program: Bar(f"{program}: {PYTORCH} / {DYNAMIC}", at_least=1)
    for program in (
        "x*y + sin(x), second",
        "x*y + sin(x), third",
        "x*y + sin(x), func.grad(func.grad)",
        "Rosenbrock n=1000, second",
        "Rosenbrock n=10, third",
        "Rosenbrock n=10, Hessian-vector product",
        "Rosenbrock n=10, func.grad of func.grad",
        "Rosenbrock n=10, backward(create_graph)",
        "MLP 64-64-10, Hessian-vector product",
        "MLP 64-64-10, gradient penalty",
    )
}

# Operations, forward and backward (bench_cells.py): at each size the median, and the least of all.
CELL_MEDIANS = {
    size: Bar(f"cells of {size} elements: median of {PYTORCH} / {DYNAMIC}", at_least=at_least)
    for size, at_least in ((8, 6.0), (1_000, 4.0), (1_000_000, 1.6))
}
LEAST_CELL = Bar(f"cells: the least {PYTORCH} / {DYNAMIC}", at_least=1.0)

# Of the backward call alone, graphs built outside the timing. The last one takes 30 backward
# calls of a million operations in PyTorch, minutes by itself: `-m long`.
CHAIN_BACKWARD = tuple(
    RatioBar(
        f"{chain}, backward only: {PYTORCH} / {DYNAMIC}",
        at_least=100,
        workload=chain,
        slow=PYTORCH,
        fast=DYNAMIC,
    )
    for chain in map(CHAINS.__getitem__, (100, 10_000, 100_000, 1_000_000))
)

# Linear: the slope of log(cost) against log(n). 1 is linear, n*log(n) reads 1.08 over these
# sizes, quadratic 2; below 1 a fixed cost still shows.
CHAIN_TIME = Bar("chain: slope of time, n = 1e3 to 1e6", at_most=1.1)
CHAIN_BYTES = Bar("chain: slope of peak memory, n = 1e4 to 1e6", at_most=1.1)
CHAIN_PEAK = {
    operations: Bar(
        f"chain of {operations} operations, growth of peak memory: {PYTORCH} / {DYNAMIC}",
        at_least=4,
    )
    for operations in (100_000, 1_000_000)
}
# What the interpreter and the C library keep for themselves is not the graph's.
CHAIN_FREED = Bar("chain of 1000000 operations: part of that growth kept afterwards", at_most=0.05)

IMPORT = Bar("import tape, over import numba", at_most=0.10, unit=" s")
FIRST_OF_ALL = Bar("first gradient, empty kernel cache, whole process / import numba, processor time", at_most=8.3)
FIRST_BACKWARD = Bar("first backward after import, warm kernel cache", at_most=0.4, unit=" s")

# The functions of kernels/language/vectormath.py by NumPy's names, and SciPy's where NumPy has none.
VECTOR_MATH = {
    (name, dtype): Bar(f"{name} of 1e5 {dtype}: the ufunc / vector math", at_least=1)
    for name in (
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "arctan", "sinh", "cosh"),
        *("tanh", "power", "erf", "erfc", "expit"),
    )
    for dtype in ("float64", "float32")
}

# Beside SuperLU's factors and one solve with them transposed; f's own vjp, which any way needs, is taken off.
IMPLICIT_ROOTS = {
    name: Bar(f"gradient of a root over a factorisation and a solve: {name}", at_most=1.2)
    for name in ("tridiagonal, n = 1000", "Laplacian, n = 1024")
} | {  # whose Jacobian is by tape: a few sweeps more
    name: Bar(f"gradient of a root over a factorisation and a solve: {name}", at_most=1.5)
    for name in ("tridiagonal, n = 1000, no jac", "Laplacian, n = 1024, no jac")
}

_SPARSE = {
    "pattern and colouring": Bar("", at_most=1.0, unit=" s"), "colours": Bar(""),
    "Jacobian / (colours x compiled jvp)": Bar("", at_most=1.5),
    **{f"{rival} / tape": Bar("", at_least=1.0) for rival in ("asdex", "sparsejac", "CasADi")},
}  # fmt: skip
_PUBLISHED = {  # the most colours that greedy colourings are known to need
    "Brusselator 2-D, 100 x 100": 12, "Laplacian 2-D, 100 x 100": 7, "chain of 20,000": 3, "arrow of 400": 3,
    "optimal control, 5,000 nodes": 6,
}  # fmt: skip
SPARSE = {
    (name, what): replace(bar, name=f"{name}: {what}", at_most=colours if what == "colours" else bar.at_most)
    for name, colours in _PUBLISHED.items()
    for what, bar in _SPARSE.items()
}

_MADE = ("zeros", "ones", "empty", "array", "asarray", "linspace", "eye", "full", "zeros_like")
NEW_ARRAYS = {name: Bar(f"tape.numpy.{name}, overhead", at_most=100, unit=" ns") for name in _MADE}

ALL: tuple[Bar, ...] = (
    *SPARSE.values(),
    *NEW_ARRAYS.values(),
    *TIMES_FASTER,
    *MATRICES,
    *TRANSFORMS.values(),
    *MAPPED.values(),
    *BEYOND_BACKWARD.values(),
    *TINY_TRANSFORMS.values(),
    *TINY_BEYOND_BACKWARD.values(),
    SHAPE_AGAIN,
    NEW_SHAPES,
    JAX_REPLAY,
    *REPLAY_BEYOND_ARRAYS.values(),
    RECORDING,
    PLANNING,
    COMPILED_CALL,
    COMPILED_ROSENBROCK,
    COMPILED_STEPS,
    COMPILED_RECORDINGS,
    COMPILED_FIRST,
    COMPILED_GUARD,
    COMPILED_NEWTON,
    COMPILED_THREADS,
    *FIRST_RECORDING.values(),
    *SECOND_RECORDING.values(),
    *FIRST_REPLAY.values(),
    *RECORDED_BYTES.values(),
    RECORDED_PROCESS,
    *LONG_RECORDINGS.values(),
    *RECORDED_BUDGET.values(),
    *VARYING.values(),
    COMPILED_STEP,
    *ON_TENSORS.values(),
    *BESIDE_DYNAMIC.values(),
    ADAPTIVE_FIRST,
    *IMPLICIT_ROOTS.values(),
    IMPORT_BESIDE,
    TINY_CALL,
    CHECKPOINT_PEAK,
    CHECKPOINT_STEP,
    *SECOND.values(),
    *CELL_MEDIANS.values(),
    LEAST_CELL,
    *CHAIN_BACKWARD,
    CHAIN_TIME,
    CHAIN_BYTES,
    *CHAIN_PEAK.values(),
    CHAIN_FREED,
    IMPORT,
    FIRST_OF_ALL,
    FIRST_BACKWARD,
    *VECTOR_MATH.values(),
)


def ratio_bars_of(*wanted: Workload) -> list[RatioBar]:
    """Return the bars on whole calls of these workloads."""
    return [bar for bar in TIMES_FASTER if bar.workload in wanted]


@dataclass(frozen=True)
class Result:
    """One bar measured: the figure, and a text with it and where it came from."""

    bar: Bar
    figure: float
    text: str

    @property
    def verdict(self) -> str:
        """`pass` or `FAIL`."""
        return "pass" if self.bar.passed(self.figure) else "FAIL"


class Scoreboard:
    """The bars measured in this run."""

    def __init__(self) -> None:
        """Start with none."""
        self.results: list[Result] = []
        self.notes: list[str] = []
        self.times: dict[str, dict[str, float]] = {}  # seconds by case and by who ran it, beside pytest-benchmark's

    def add(self, bar: Bar, figure: float, text: str) -> None:
        """Note the figure of a bar; each bar is measured once a run."""
        assert all(result.bar is not bar for result in self.results), f"measured twice: {bar}"
        self.results.append(Result(bar, figure, text))

    def note(self, line: str) -> None:
        """Add a line of a table that goes below the bars."""
        self.notes.append(line)

    def lines(self) -> list[str]:
        """Return the table, in the order of `ALL`: verdict, bar, wanted, figure."""
        results = sorted(self.results, key=lambda result: ALL.index(result.bar))
        width = max((len(result.bar.name) for result in results), default=0)
        table = [
            f"{result.verdict}  {result.bar.name:{width}}  {result.bar.wanted:>8}  {result.text}" for result in results
        ]
        if len(results) < len(ALL):
            table.append(f"not measured in this run: {len(ALL) - len(results)} of {len(ALL)} bars")
        return table

    def data(self) -> list[dict[str, object]]:
        """Return the results for the JSON report."""
        return [
            {
                "bar": result.bar.name,
                "wanted": result.bar.wanted,
                "figure": result.figure,
                "verdict": result.verdict,
                "text": result.text,
            }
            for result in self.results
        ]
