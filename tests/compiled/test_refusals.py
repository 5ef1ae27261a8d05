"""What keeps a function, or a loop in it, from being replayed, each by its message; results are dynamic mode's."""

# ruff: noqa: ARG001, ARG004, ARG005 (all rows have the same arguments)

from __future__ import annotations

import io
import random
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from kernels.programs.program import ProgramError
from tape.autograd import Function
from tape.errors import CompileWarning

X = np.array([0.5, 1.5, 2.5])
GENERATOR = tape.Generator()
GAPS = tape.from_numpy(np.lib.stride_tricks.as_strided(np.ones(100), (4, 4), (160, 16)))[:3, 0]
TABLE = np.array([(1.0, 2), (3.0, 4), (5.0, 6)], [("a", float), ("b", int)])
WAVES = np.array([1.0 + 2.0j, 3.0 - 1.0j, 0.5j])
CALLS = 4


class World:
    """What functions read and write: each test has its own."""

    def __init__(self) -> None:
        self.number = 0.0
        self.held: Any = None
        self.tensor = tape.tensor([1.0, 2.0, 3.0])
        self.wanted = [tape.tensor([1.0, k, 3.0], requires_grad=True) for k in (2.0, 2.0)]
        self.shown = np.ones(3)


class Base(Function):
    """Twice its argument; its options take no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, option: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        return g[0] * 2, None


def function_of(forward: Callable[..., Any]) -> Any:
    """Return an ``autograd.Function``."""
    return type("Odd", (Base,), {"forward": staticmethod(forward)})


RETURNS_IT = function_of(lambda ctx, x, option: x)
RETURNS_DTYPES = function_of(lambda ctx, x, option: (x * 2, (x * 2).to(tape.float32)))
RETURNS_INT = function_of(lambda ctx, x, option: (x * 2, 3))
DRAWS = function_of(lambda ctx, x, option: x * tape.rand(3))


@function_of
def RAISES(ctx: Any, x: Any, option: Any) -> Any:  # noqa: N802 (a class)
    raise ValueError


def moved_data(w: World, x: Any) -> Any:
    x.data = x * 2.0
    return x.sum()


def squeezed(w: World, x: Any) -> Any:
    return x.clone().sum() + x.unsqueeze_(0).sum()


def kept(w: World, x: Any) -> Any:
    w.held = tape.sin(x)
    return x.sum()


def hooked(w: World, x: Any) -> Any:
    y = x * w.wanted[0]
    y.register_hook(lambda g: g)
    return y.sum()


def detached(w: World, x: Any) -> Any:
    y = x * 2
    y.detach_()
    return y.sum()


def written_wanted(w: World, x: Any) -> Any:
    with tape.no_grad():
        w.wanted[0].add_(0.0)
    return (x * w.wanted[0]).sum()


def written(w: World, x: Any) -> Any:
    w.tensor.add_(x.detach())
    return (w.tensor * x).sum()


def written_through_numpy(w: World, x: Any) -> Any:
    y = x * 2
    y.detach().numpy()[0] = 5.0
    return y.sum()


def caught(w: World, x: Any) -> Any:
    try:
        return RAISES.apply(x, 1)
    except ValueError:
        return x.sum()


def of_equal_eigenvalues(w: World, x: Any) -> Any:
    return tape.func.grad(lambda q: tape.linalg.eigh(tape.eye(3) * q.sum())[1].sum())(x).sum()


def reseeded(w: World, x: Any) -> Any:
    GENERATOR.manual_seed(3)
    return x.sum() * tape.rand((), generator=GENERATOR)


def state_set(w: World, x: Any) -> Any:
    state = GENERATOR.get_state()
    y = x.sum() * tape.rand((), generator=GENERATOR)
    GENERATOR.set_state(state)
    return y


def of_many_rows(w: World, x: Any) -> Any:
    def many_times(x: Any) -> Any:
        for _ in range(150):
            x = x * 1.001
        return x

    return tape.func.jacrev(many_times)(tape.cat([x] * 300)).sum()


class Refusal(NamedTuple):
    """A function of a world and a tensor, and what the warning says."""

    function: Callable[[World, Any], Any]
    said: str
    calls: int = CALLS
    on_tensors: bool = False


def slopes(w: World, x: Any) -> Any:
    """Return a result that requires grad by what only this call made a leaf."""
    y = x.clone().requires_grad_()
    (slope,) = tape.autograd.grad((y**3).sum(), y, create_graph=True)
    return (slope * slope).sum()


def odd(function: Any, option: Any = 1) -> Callable[[World, Any], Any]:
    """Return a function that calls an ``autograd.Function``."""
    return lambda w, x: tape.stack([y.sum().to(tape.float64) for y in _tensors(function.apply(x, option))]).sum()


def _tensors(result: Any) -> list[Any]:
    return [y for y in (result if isinstance(result, tuple) else (result,)) if isinstance(y, tape.Tensor)]


DYNAMIC = {
    "a Function takes a list": Refusal(odd(Base, [1]), "the Function Base takes a list at .*test_refusals"),
    "a Function returns its argument": Refusal(odd(RETURNS_IT), "the Function Odd returns an argument, or a view"),
    "a Function returns dtypes": Refusal(odd(RETURNS_DTYPES), "the Function Odd returns several dtypes"),
    "a Function returns an int": Refusal(odd(RETURNS_INT), "the Function Odd returns a int"),
    "a Function draws": Refusal(odd(DRAWS), "a Function that draws random numbers"),
    "a Function raises": Refusal(caught, r"forward raised an error, which the function caught, at .*test_refusals", 12),
    "equal eigenvalues": Refusal(of_equal_eigenvalues, "a derivative at equal eigenvalues or singular values"),
    "data of an argument": Refusal(moved_data, r"\.data of an argument is set at .* write x\.copy_", on_tensors=True),
    "shape of an argument": Refusal(squeezed, "unsqueeze_ of an argument", on_tensors=True),
    "a result is kept": Refusal(kept, "a result of sin, stays behind somewhere else than in its result"),
    "a hook": Refusal(hooked, "a hook at .*test_refusals", on_tensors=True),
    "detach_": Refusal(detached, "detach_ at .*test_refusals"),
    "a leaf from outside is written": Refusal(
        written_wanted, "a tensor from outside that requires grad was written to", on_tensors=True
    ),
    "a tensor from outside is written": Refusal(written, "the call writes to tensors from outside"),
    "an array from outside is written": Refusal(
        lambda w, x: tape.from_numpy(w.shown).add_(x).sum(), "to the memory of a NumPy array, where NumPy may read it"
    ),
    "memory is written through NumPy": Refusal(written_through_numpy, "memory that NumPy shares since .* was written"),
    "a Jacobian of many rows": Refusal(of_many_rows, "a Jacobian of 900 rows", 2),
    "memory with gaps": Refusal(lambda w, x: (x * GAPS).sum(), "an array with gaps, of memory with gaps"),
    "a column of a table": Refusal(lambda w, x: (x * TABLE["a"]).sum(), r"gaps, of memory of dtype \[\('a', '<f8'\)"),
    "a real part": Refusal(lambda w, x: (x * WAVES.real).sum(), "an array with gaps, of memory of dtype complex128"),
    "a leaf of its own": Refusal(slopes, "a result requires grad by a tensor that the call itself made a leaf"),
    "half precision": Refusal(lambda w, x: x.to(tape.float16).sum(), "programs hold no float16"),
    "numbers of Python's generator": Refusal(
        lambda w, x: (x * random.random()).sum(),  # noqa: S311 (no secret)
        "a Python number in an operation was another one|draws random numbers",
    ),
    "a generator starts anew": Refusal(reseeded, "the state of a generator at .*test_refusals"),
    "a generator's state is set": Refusal(state_set, "the state of a generator at .*test_refusals"),
    "the seed is set": Refusal(
        lambda w, x: x.sum() * tape.rand((), generator=tape.manual_seed(3)), "the state of a generator"
    ),
}  # fmt: skip


def results_of(row: Refusal, *, compiled: bool) -> tuple[list[Any], str, str]:
    """Return the results of calls of a function, what the warnings say, and ``explain()``."""
    world, function = World(), row.function
    tape.manual_seed(5)
    GENERATOR.manual_seed(5)
    random.seed(5)

    def run(x: Any) -> Any:
        return function(world, x)

    call, results = tape.compile(run) if compiled else run, []
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        for _ in range(row.calls):
            y = call(X.copy() if compiled and not row.on_tensors else tape.tensor(X))
            results.append(np.asarray(y.detach() if isinstance(y, tape.Tensor) else y))
    said = [str(w.message) for w in caught_warnings if w.category is CompileWarning]
    return results, "\n".join(said), call.explain() if compiled else ""


def agrees(row: Refusal) -> tuple[str, str]:
    """Return what the warnings and ``explain()`` say, after comparing results with dynamic mode."""
    expected, _, _ = results_of(row, compiled=False)
    results, said, explained = results_of(row, compiled=True)
    for got, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    return said, explained


@pytest.mark.parametrize("name", DYNAMIC)
def test_what_stays_in_dynamic_mode(name: str) -> None:
    said, explained = agrees(DYNAMIC[name])
    assert re.search(f"stays in dynamic mode: .*({DYNAMIC[name].said})", said), said
    assert re.search(f"dynamic: .*({DYNAMIC[name].said})", explained), explained


# Loops that stay Python: their iterations are operations of the program.


def ended(w: World, x: Any, body: Callable[[World, Any], Any]) -> Any:
    """Run a loop that a value ends around a body, whose code belongs to it."""
    t = 0.0 * x.sum()
    while t < 3.0:
        x = body(w, x)
        t = t + 1.0
    return x.sum()


def looped(body: Callable[[World, Any], Any]) -> Callable[[World, Any], Any]:
    """Return a function with such a loop."""
    return lambda w, x: ended(w, x, body)


def lengthening(w: World, x: Any) -> Any:
    t, found = 0.0 * x.sum(), []
    while t < 3.0:
        found.append(t)
        t = t + 1.0
    return sum(found) + x.sum()


def with_much(w: World, x: Any) -> Any:
    t, data = 0.0 * x.sum(), list(range(100_000))
    while t < 3.0:
        x = x + data[3]
        t = t + 1.0
    return x.sum()


def with_text(w: World, x: Any) -> Any:
    t, data = 0.0 * x.sum(), b"0" * (1 << 26)
    while t < 3.0:
        x = x + data[3]
        t = t + 1.0
    return x.sum()


def with_objects(w: World, x: Any) -> Any:
    t, data = 0.0 * x.sum(), np.array([1, "a"], dtype=object)
    while t < 3.0:
        x = x + data[0]
        t = t + 1.0
    return x.sum()


def written_argument(w: World, x: Any) -> Any:
    y = w.tensor
    t, z = 0.0 * x.sum(), x
    while t < 3.0:
        z[0] = z[0] * 0.5 + y[0]
        t = t + 1.0
    return z.sum()


class Counted:
    """A number of iterations."""

    def __index__(self) -> int:
        return 4


def of_odd_extent(w: World, x: Any) -> Any:
    count = Counted()
    for _ in range(count):
        if x.sum() < 0.1:
            break
        x = x * 0.5
    return x.sum()


def differentiated(w: World, x: Any) -> Any:
    return tape.func.grad(lambda q: ended(w, q, lambda w, y: tape.sin(y)))(x).sum()


def with_function(w: World, x: Any) -> Any:
    return tape.func.grad(lambda q: (q * q).sum())(x).sum() + ended(w, x * w.wanted[0], lambda w, y: Base.apply(y, 1))


def timed(w: World, x: Any) -> Any:
    time.time()
    return x * 0.5


UNROLLED = {
    "a list grows": Refusal(lengthening, "found changes with each iteration"),
    "much is held": Refusal(with_much, r"data\[\d+\] is part of more than can be compared"),
    "long bytes are held": Refusal(with_text, "data is larger than what is compared"),
    "objects are held": Refusal(with_objects, "data is an array of objects"),
    "an argument is written": Refusal(written_argument, "it writes to an argument, or to a constant"),
    "random numbers": Refusal(looped(lambda w, x: x + tape.rand(3)), "random numbers are drawn in it, or behind it"),
    "a gradient goes through": Refusal(differentiated, "a gradient is taken through its iterations"),
    "a Function is called": Refusal(with_function, "an autograd.Function is called in it", on_tensors=True),
    "an extent of Python's": Refusal(of_odd_extent, "what the loop at .* runs over is not plain"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNROLLED)
def test_what_keeps_a_loop_from_being_native(name: str) -> None:
    said, explained = agrees(UNROLLED[name])
    assert not said
    assert re.search(f"unrolled: the loop at .*({UNROLLED[name].said})", explained), explained


# What the arguments of ``compile`` may be, and what needs a program.

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "check": ({"check": "often"}, "compile: check is 'often'; it is one of 'sample', 'always', 'never'"),
    "mode": ({"mode": "fast"}, "compile: mode is 'fast'; it is one of 'eager', 'default', 'max'"),
    "memory": ({"memory": "lots"}, "compile: memory is 'lots'; it is a number of bytes, or text such as \"500 MB\""),
    "no memory": ({"memory": 0}, "compile: memory is 0; it is a number of bytes"),
    "memory of the interpreter": (
        {"memory": "1 MB", "mode": "eager"}, 'memory is of machine code, which mode="eager" has none of'
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_of_compile(name: str) -> None:
    arguments, said = WRONG[name]
    with pytest.raises(ValueError, match=re.escape(said)):
        tape.compile(lambda x: x, **arguments)


def test_programs_that_draw_are_in_no_file_and_have_no_machine_code() -> None:
    function = tape.compile(lambda x: x * tape.rand(3))
    for _ in range(3):
        function(X)
    with pytest.raises(ProgramError, match="save: the function draws random numbers, which no file holds"):
        function.save(io.BytesIO())
    with pytest.raises(ProgramError, match="no machine code: the function draws random numbers"):
        _ = function.native


def test_functions_that_stay_dynamic_are_not_profiled() -> None:
    function = tape.compile(lambda x: x.to(tape.float16).sum())
    with pytest.warns(CompileWarning, match="programs hold no float16"):
        function(X)
    with pytest.raises(
        ProgramError, match=r"profile: calls on these arguments stay dynamic\n.*\n.*\n *dynamic: programs"
    ):
        function.profile(X)


def test_what_a_file_is_loaded_by(tmp_path: Path) -> None:
    function, file = tape.compile(lambda x: x * 2), tmp_path / "twice"
    for _ in range(3):
        function(X)
    function.save(file)
    with pytest.raises(ValueError, match="load: mmap_mode is 'w'; it may be 'r', or None"):
        tape.load(file, mmap_mode="w")
    with pytest.raises(ValueError, match="load: mmap_mode needs the path of a file"):
        tape.load(io.BytesIO(file.read_bytes()), mmap_mode="r")


def test_who_runs_a_program_is_told() -> None:
    def halved(x: Any) -> Any:
        x[0] = x[0] * 0.5
        return x.sum()

    function, other = tape.compile(halved), tape.compile(lambda x: x * 2 if x.sum() > 0 else x)
    for _ in range(3):
        function(X.copy())
    assert "interpreter: it writes to arguments" in function.explain()
    for sign in (1, 1, 1, -1):
        other(sign * X)
    assert "1 ways that were taken once: recorded again before they are replayed" in other.explain()


def test_an_argument_that_is_read_from_outside_is_told_of() -> None:
    world = World()
    function = tape.compile(lambda x: (x * world.tensor).sum())
    for x in (X, X, X, world.tensor, world.tensor):
        function(tape.as_tensor(x))
    assert function(world.tensor).item() == (world.tensor**2).sum().item()
    assert "3 dynamic: an argument is read from outside, too, or shares memory with that" in function.explain()


def test_what_needs_a_program_says_that_there_is_none() -> None:
    function = tape.compile(lambda x: x * 2)
    for ask in (function.loops, function.memory, function.graph):
        with pytest.raises(
            ProgramError, match=r"there is no program yet\n.*\ncall it first: two calls that do the same"
        ):
            ask()
