"""Random functions, compiled, against dynamic mode, call by call: branches, loops, writes, views, what is outside."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tape
from tape.autograd import Function, grad
from tape.tensors import modes
from tests.support.representatives import examples

EXAMPLES = int(os.environ.get("TAPE_COMPILE_EXAMPLES", "2000"))
UNARY = [tape.sin, tape.tanh, abs, lambda x: x * 2.0, lambda x: x * x, lambda x: -x, lambda x: x.clone()]
BINARY = [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, tape.maximum]
instruction = st.tuples(st.integers(0, 27), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
change = st.tuples(
    st.sampled_from(["none", "none", "number", "element", "array", "shape", "static", "grad"]), st.integers(0, 3)
)


class World:
    """What the function reads from outside."""

    def __init__(self) -> None:
        self.number = 0.5
        self.array = np.array([1.0, -2.0, 0.5])
        self.tensor = tape.tensor([0.5, 1.5, -1.0])
        self.names: dict[str, float] = {"scale": 2.0}

    def apply(self, kind: str, size: int) -> None:
        if kind == "number":
            self.number = [0.5, -1.0, 3.0, 0.25][size]
            self.names["scale"] = self.number * 2
        elif kind == "element":
            self.array[size % 3] += 1.0
            self.tensor[size % 3] = float(size)
        elif kind == "array":
            self.array = np.array([float(size), 1.0, 2.0])
            self.tensor = tape.tensor([1.0, float(size), 2.0])


class At(NamedTuple):
    """Where an instruction runs: two values, a choice, the int argument, what is outside."""

    a: Any
    b: Any
    k: int
    n: int
    world: World


def write(s: At) -> Any:
    c = s.a.clone()
    c.reshape(-1)[:1] = s.b.sum() if s.k % 2 else float(s.k)
    return c


def scale(s: At) -> Any:
    c = s.a * 1.0
    c *= s.b.mean()
    return c


def branch(s: At) -> Any:
    return s.a * 2 if s.a.sum() > s.k - 4 else s.b - 1


def loop(s: At) -> Any:
    a = s.a
    for _ in range(s.n + s.k % 3):
        a = a * 0.5 + s.b
    return a


def without_gradient(s: At) -> Any:
    with tape.no_grad():
        return s.a * 3


def number(s: At) -> Any:
    return s.a * s.world.number + s.world.names["scale"]


def array(s: At) -> Any:
    return s.a.sum() * (s.world.array if s.k % 2 else s.world.tensor)[: 1 + s.k % 3].sum()


def caught(s: At) -> Any:
    try:
        if s.b.sum() > 1:
            raise ValueError  # noqa: TRY301
        return s.a + 1
    except ValueError:
        return s.a - 1


def buffer(s: At) -> Any:
    """Views of memory without values of the arguments are written, in turns with what they are parts of."""
    r = tape.zeros(2, 3) if s.k % 2 else s.world.tensor.clone()
    v, whole = r[..., :2], r[..., 1:]
    before = v.sum()
    v.copy_(s.a.sum()) if s.k % 3 else whole.mul_(s.a.mean())
    between = whole.sum()
    r[..., s.k % 3] += s.b.mean()
    return before + between * v.sum() + (r * tape.tensor([1.0, -2.0, 0.5])).sum() * s.a


def diagonal(s: At) -> Any:
    d = s.a.reshape(-1)[:2]
    m = tape.diag_embed(d, s.k % 2)
    m.diagonal().add_(s.b.sum())
    return (m @ m).sum() + tape.block_diag(m, tape.zeros(0, 2), d).sum()


class Scaled(Function):
    """Three times its argument, and its sum, by Python."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * 3, (x * x).sum() + y.sum()

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * 3 + 2 * h * x, h * tape.ones_like(y)


def called(s: At) -> Any:
    first, second = Scaled.apply(s.a, s.b)
    return first + second if s.k % 2 else second * s.a


def indices(x: Any, n: int) -> Any:
    return ((abs(x.detach()).reshape(-1) * 1.5).long() + n) % 3


def picked(s: At) -> Any:
    flat = tape.cat([s.a.reshape(-1), s.b.reshape(-1), tape.ones(2)])
    return flat[indices(s.b, s.k)] * (tape.take(flat, indices(s.a, s.k)).sum() if s.k % 2 else 1.0)


def deposited(s: At) -> Any:
    return tape.zeros(3).index_add(0, indices(s.b, s.k), s.b.reshape(-1)) * s.a.sum()


def differentiated(s: At) -> Any:
    return tape.func.grad(lambda q: (tape.sin(q) * q).sum() * s.b.mean() + (q.reshape(-1)[:1] ** 3).sum())(s.a)


def twice(s: At) -> Any:
    return tape.func.grad(tape.func.grad(lambda q: tape.sin(q * s.k) * q**3))(s.a.mean()) * s.b


def along(s: At) -> Any:
    q, p = s.a.detach().requires_grad_(), s.b.detach().requires_grad_()
    g, h = grad((q * q).sum() * (p * p * p).sum(), (q, p))
    return g * s.a + h.sum()


STEPS: list[Any] = [
    write, scale, branch, loop, without_gradient, number, array, caught,
    lambda s: UNARY[s.k % len(UNARY)](s.a),
    lambda s: BINARY[s.k % len(BINARY)](s.a, s.b),
    lambda s: s.a[..., ::2].sum() if s.a.ndim and s.k % 2 else s.a.reshape(-1)[: 1 + s.k % 2].sum(),
    lambda s: s.a + round(float(s.a.detach().sum()), 0),
    lambda s: s.a.sum(-1) if s.a.ndim else s.a + 1,
    lambda s: tape.where(s.a > 0, s.a, s.a * 0.1),
    lambda s: s.a + np.linspace(0, 1, 1 + s.k % 2).sum(),
    lambda s: s.a.detach() * s.a,
    lambda s: s.a + s.n,
    lambda s: s.a.reshape(-1)[s.a.reshape(-1) > 0].sum(),
    lambda s: tape.stack([s.a.sum(), s.b.sum()]) @ tape.tensor([1.0, -1.0]),
    lambda s: s.a.T.reshape(-1).cumsum(0) if s.a.ndim == 2 else s.a,
    buffer, diagonal, called, picked, deposited, differentiated, twice, along,
]  # fmt: skip


def made(code: list[tuple[int, int, int, int]], world: World) -> Any:
    """Return a function that runs these instructions."""

    def run(x: Any, y: Any, n: int) -> Any:
        values = [x * 1.0, y]
        for kind, i, j, k in code:
            values.append(STEPS[kind](At(values[i % len(values)], values[j % len(values)], k, n, world)))
        return values[-1], {"sum": sum((v.sum() for v in values[2:]), values[0].sum()), "n": n}

    return run


def outcome(function: Any, x: Any, y: Any, n: int) -> Any:
    """Return values and gradients as bits."""
    if not isinstance(x, tape.Tensor):
        first, rest = function(x, y, n)
        return [np.asarray(first), np.asarray(rest["sum"]), rest["n"]]
    first, rest = function(x, y, n)
    (g,) = grad(rest["sum"], (x,), allow_unused=True)
    return [first.detach().numpy(), rest["sum"].detach().numpy(), rest["n"], np.zeros(1) if g is None else g.numpy()]


def dynamic(function: Any, x: Any, y: Any, n: int) -> Any:
    if isinstance(x, tape.Tensor):
        return outcome(function, x, y, n)
    first, rest = modes.call_given(True, function, tape.tensor(x), tape.tensor(y), n)
    return [first.numpy(), rest["sum"].numpy(), rest["n"]]


def tried(run: Any, *args: Any) -> Any:
    """Return the outcome, or the message of the error: shapes that do not fit raise in both modes."""
    try:
        return run(*args)
    except RuntimeError as error:
        return str(error)


TAKE_GRADIENTS = {STEPS.index(step) for step in (differentiated, twice, along)}


def agree(one: list[Any], other: list[Any], *, bits: bool) -> bool:
    """Whether values agree, to the bit but where gradients taken inside may be summed in another order."""
    *values, gradient = zip(one, other, strict=True)
    if len(one) < 4:
        values.append(gradient)
    same = all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        or (np.array_equal if bits else partial(np.allclose, rtol=1e-12, atol=1e-12))(a, b, equal_nan=True)
        for a, b in values
    )
    return same and bool(len(one) < 4 or np.allclose(*gradient, rtol=1e-9, atol=1e-9, equal_nan=True))


@given(
    st.lists(instruction, min_size=1, max_size=7),
    st.lists(st.tuples(change, st.integers(0, 2**31)), min_size=4, max_size=9),
)
def check(code: Any, calls: Any) -> None:
    """Compare a compiled function with dynamic mode, call by call."""
    world = World()
    function = made(code, world)
    compiled = tape.compile(function, check="never")
    shape, n, graded = (3,), 2, False
    for (kind, size), seed in calls:
        world.apply(kind, size)
        shape = [(3,), (2, 2), (), (4,)][size] if kind == "shape" else shape
        n = size if kind == "static" else n
        graded = not graded if kind == "grad" else graded
        draw = np.random.default_rng(seed % 7)
        x, y = np.asarray(draw.normal(size=shape)), np.asarray(draw.normal(size=shape))
        arguments: Any = (tape.tensor(x, requires_grad=True), tape.tensor(y)) if graded else (x, y)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got, expected = tried(outcome, compiled, *arguments, n), tried(dynamic, function, *arguments, n)
        bits = TAKE_GRADIENTS.isdisjoint(step for step, *_ in code)
        assert got == expected if isinstance(expected, str) else agree(got, expected, bits=bits), (got, expected)


@pytest.mark.filterwarnings("ignore")
@examples(60, EXAMPLES)
def test_a_compiled_function_is_what_dynamic_mode_gives(count: int) -> None:
    settings(max_examples=count, deadline=None, derandomize=EXAMPLES <= 2000)(check)()
