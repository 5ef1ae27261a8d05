"""``tape.compile``: what becomes a program, what is watched and guarded, what stays dynamic and says so."""

from __future__ import annotations

import ctypes
import functools
import math
import pickle
import re
import signal
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from tape.autograd import grad
from tape.compiled.compiled_program import CompiledProgram
from tape.errors import CompileWarning
from tests.conftest import Fresh

X = np.array([0.5, -1.0, 2.0, 3.0])


def replays(compiled: Any) -> int:
    return sum(program.hits for program in compiled.programs)


def called(compiled: Any, *args: Any, times: int = 4) -> Any:
    """Call several times with the same arguments; return the last result."""
    return [compiled(*args) for _ in range(times)][-1]


def same(one: Any, other: Any) -> None:
    one, other = (x.detach().numpy() if isinstance(x, tape.Tensor) else np.asarray(x) for x in (one, other))
    np.testing.assert_array_equal(one, other)


# --- what a user does ---


class Pair(NamedTuple):
    """Two values."""

    first: Any
    second: Any


@dataclass
class Spring:
    """A value and a name."""

    stiffness: float
    name: str = "spring"


class Model:
    """A method, its state, and a property."""

    def __init__(self) -> None:
        self.scale, self.layers = 2.0, [np.ones(4), np.arange(4.0)]
        self.config = {"power": 2}

    @property
    def shift(self) -> float:
        return self.scale + 1

    @tape.compile
    def method(self, x: Any) -> Any:
        return x * self.scale

    def plain(self, x: Any) -> Any:
        return (x * self.layers[0] + self.layers[1]) ** self.config["power"] + self.shift


def double(x: Any, n: int = 2, *, shift: float = 1.0) -> Any:
    return x * n + shift


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "function": (double, (X,)),
    "lambda": (lambda x: tape.sin(x) * 2, (X,)),
    "partial": (functools.partial(double, n=3), (X,)),
    "int argument": (double, (X, 3)),
    "bound method": (Model().plain, (X,)),
    "numpy functions": (lambda x: np.sin(x) + np.where(x > 0, x, 0.0), (X,)),
    "named tuple": (lambda p: p.first * p.second, (Pair(X, 2.0),)),
    "dict and list": (lambda d: d["a"] * d["b"][0] + d["b"][1], ({"a": X, "b": [2.0, X]},)),
    "dataclass": (lambda s, x: s.stiffness * x, (Spring(2.0), X)),
    "None": (lambda x, other: x if other is None else x + other, (X, None)),
    "float32": (lambda x: x * 2 + 1, (X.astype(np.float32),)),
    "integers": (lambda x: x * 2, (np.arange(4),)),
    "fortran order": (lambda x: x @ x.T, (np.asfortranarray(np.arange(6.0).reshape(2, 3)),)),
    "strided": (lambda x: x.sum() * x, (np.arange(8.0)[::2],)),
    "no dims": (tape.exp, (0.5,)),
    "empty": (lambda x: x * 2, (np.zeros(0),)),
    "several results": (lambda x: (x * 2, {"sum": x.sum()}), (X,)),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_gives_what_the_function_gives(name: str) -> None:
    function, args = FUNCTIONS[name]
    compiled = tape.compile(function, check="always")
    result, expected = called(compiled, *args), tape.compile(function)(*args)
    leaves, others = (tape.tensors.pytrees.leaves(r) for r in (result, expected))
    for one, other in zip(leaves, others, strict=True):
        same(one, other)
        assert type(one) is type(other)
    assert replays(compiled) == 2, compiled.explain()


def test_results_are_numpys_where_arguments_are() -> None:
    compiled = tape.compile(lambda x: (x.sum(), x * 2))
    for argument, kinds in ((X, (float, np.ndarray)), (tape.tensor(X), (tape.Tensor, tape.Tensor))):
        for _ in range(4):
            assert tuple(map(type, compiled(argument))) == kinds


def test_results_own_their_memory() -> None:
    compiled = tape.compile(lambda x: (x, x[:2], x * 2))
    x = tape.tensor(X)
    results = [compiled(x) for _ in range(4)]
    results[3][0][0] = 100.0
    results[3][2][0] = 100.0
    for result in results[:3]:
        assert result[0][0] == 0.5
        assert result[2][0] == 1.0
    assert x[0] == 0.5


def test_arrays_that_are_no_values_are_each_calls_own() -> None:
    compiled = tape.compile(lambda x: (x * 2, np.ones(3)), check="never")
    for _ in range(6):
        _, ones = compiled(X)
        assert ones.tolist() == [1.0, 1.0, 1.0]
        ones[:] = 9.0


def test_dicts_of_another_order() -> None:
    compiled = tape.compile(lambda d: d["a"] - d["b"], check="never")
    for _ in range(4):
        same(compiled({"a": X, "b": 2 * X}), -X)
        same(compiled({"b": X, "a": 2 * X}), X)


def test_a_decorator_with_arguments() -> None:
    @tape.compile(static=("p",), traced=["n"], check="always")
    def f(x: Any, p: float, n: int) -> Any:
        return x**p * n

    for n in range(6):
        same(f(X**2, p=2.0, n=n), X**4 * n)
    assert f.__name__ == "f"
    assert len(f.programs) == 1
    assert replays(f) == 4
    with pytest.raises(ValueError, match="check is 'often'"):
        tape.compile(lambda x: x, check="often")
    with pytest.raises(TypeError, match="got a int, which cannot be called"):
        tape.compile(3)


@pytest.mark.parametrize("static", [("p",), (1,)])
def test_static_arguments_by_name_and_by_position(static: tuple[Any, ...]) -> None:
    for compiled in (
        tape.compile(lambda x, p=1.0: x * p, static=static),
        tape.compile(tape.value_and_grad(lambda x, p=1.0: (x * p).sum()), static=static),
    ):
        for _ in range(4):
            compiled(X, 2.0)
            compiled(X, p=3.0)
        assert len(compiled.programs) == 2  # a number that is fixed has a program of its own
        assert all("float)" not in line for line in compiled.explain().splitlines())


def test_a_compiled_method_belongs_to_its_object() -> None:
    one, other = Model(), Model()
    other.scale = 5.0
    for model in (one, other) * 3:
        same(model.method(X), X * model.scale)
    one.scale = 7.0
    same(called(one.method, X), X * 7)
    same(other.method(X), X * 5)


def test_a_time_loop_records_one_instruction_a_step() -> None:
    step = tape.compile(lambda x, v: (x + 0.1 * v, v - 0.1 * tape.sin(x)))
    start = tape.tensor(X, requires_grad=True)

    def run(function: Any) -> Any:
        x, v = start, start * 0
        for _ in range(20):
            x, v = function(x, v)
        return (x * v).sum()

    run(step)
    y = run(step)
    names = y.grad_fn.next_functions[0][0].next_functions[0][0].next_functions
    assert names[0][0].name() == "ReplayBackward"
    (one,), (other,) = (grad(run(f), start) for f in (step, step.__wrapped__))
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-13)
    (g,) = grad(run(step), start, create_graph=True)
    (h,) = grad(run(step.__wrapped__), start, create_graph=True)
    for first, second in ((g, h), (grad(g.sum(), start)[0], grad(h.sum(), start)[0])):
        np.testing.assert_allclose(first.detach().numpy(), second.detach().numpy(), rtol=1e-12)


def test_transforms_of_a_compiled_function() -> None:
    def f(x: Any) -> Any:
        return (x**3).sum()

    compiled = tape.compile(f)
    called(compiled, tape.tensor(X))
    same(tape.func.grad(compiled)(tape.tensor(X)), 3 * X**2)
    same(tape.func.vmap(compiled)(tape.tensor(np.stack([X, 2 * X]))), [(X**3).sum(), (8 * X**3).sum()])
    np.testing.assert_allclose(tape.func.hessian(compiled)(tape.tensor(X)).numpy(), np.diag(6 * X))
    same(tape.func.jvp(compiled, (tape.tensor(X),), (tape.ones(4),))[1], (3 * X**2).sum())
    inside = tape.compile(lambda x: compiled(x) * 2)
    assert called(inside, X) == 2 * (X**3).sum()


GRADIENTS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...]]] = {
    "vector": (lambda x: (x**4).sum(), {}, (X,)),
    "number": (lambda x: x * x, {}, (3.0,)),
    "int": (lambda x: x * x, {}, (3,)),
    "two": (lambda x, y: (x * y).sum(), {"argnums": (1, 0)}, (X, 2.0)),
    "structure": (lambda p: (p["w"] * p["b"]).sum(), {}, ({"w": X, "b": 2.0},)),
    "aux": (lambda x, n: ((x**n).sum(), {"x": x * 2}), {"has_aux": True}, (X, 2)),
    "branch": (lambda x: (x * x).sum() if x.sum() > 0 else x.sum(), {}, (X,)),
    "constant": (lambda x: x.detach().sum(), {}, (X,)),
    "float32": (lambda x: (x * x).sum(), {}, (X.astype(np.float32),)),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", GRADIENTS)
def test_value_and_gradient_are_one_replay(name: str) -> None:
    function, options, args = GRADIENTS[name]
    both = tape.value_and_grad(function, **options)
    for compiled in (tape.compile(both, check="always"), tape.value_and_grad(tape.compile(function), **options)):
        for sign in (1, 1, 1, -1, -1, -1, 1):
            at = tuple(x * sign if isinstance(x, (np.ndarray, float)) else x for x in args)
            leaves, others = (tape.tensors.pytrees.leaves(r(*at)) for r in (compiled, both))
            for one, other in zip(leaves, others, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12 if name != "float32" else 1e-5)
                assert type(one) is type(other)
        assert replays(compiled) > 0, compiled.explain()
    with pytest.raises(TypeError, match="must return a tensor of one floating element"):
        tape.compile(tape.value_and_grad(lambda x: x))(X)


def test_a_compiled_gradient_of_tensors_can_be_differentiated() -> None:
    compiled = tape.compile(tape.value_and_grad(lambda x: (x**3).sum()))
    x = tape.tensor(X, requires_grad=True)
    for _ in range(4):
        _, g = compiled(x)
        np.testing.assert_allclose(grad(g.sum(), x)[0].numpy(), 6 * X)


# --- guards ---


def raising(x: Any) -> Any:
    try:
        if x[0] < 0:
            raise ValueError("negative")  # noqa: TRY301
        return x + 1
    except ValueError:
        return x - 1


GUARDS: dict[str, Callable[[Any], Any]] = {
    "comparison": lambda x: x * 2 if x.sum() > 0 else x - 1,
    "float": lambda x: x + float(x[0]),
    "item": lambda x: x + round(x[0].item()),
    "int": lambda x: x * int(x[0]),
    "tolist": lambda x: x + max(x.tolist()),
    "numpy": lambda x: x + np.median(x.numpy()),
    "asarray": lambda x: x + np.asarray(x).max(),
    "mask": lambda x: x[x > 0].sum(),
    "nonzero": lambda x: x.sum() * len(tape.nonzero(x > 0)),
    "equal": lambda x: x if tape.equal(x, abs(x)) else -x,
    "math": lambda x: x * math.floor(x[0]),
    "index": lambda x: x[int(x.argmax())],
    "format": lambda x: x * len(f"{x[0]:.3g}"),
    "exception": raising,
}


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore::tape.errors.DetachWarning")
@pytest.mark.parametrize("name", GUARDS)
def test_a_value_that_leaves_for_python_is_a_guard(name: str) -> None:
    function = GUARDS[name]
    compiled = tape.compile(function, check="never")
    points = [X, -X, X + 0.3]
    for k in (0, 0, 0, 1, 1, 1, 0, 1, 2, 2, 2, 0, 1):
        same(compiled(points[k]), function(tape.tensor(points[k])))
    assert replays(compiled) >= 5, compiled.explain()
    assert all(sum(program.misses) for program in compiled.programs[1:]) or len(compiled.programs) == 1
    assert "guard at" in compiled.explain()


def test_only_what_was_recorded_twice_alike_is_replayed() -> None:
    times: list[int] = []

    def f(x: Any) -> Any:
        times.append(len(times))
        return x * float(np.random.default_rng(len(times) // 2).random())

    compiled = tape.compile(f)
    with pytest.warns(CompileWarning, match="the call itself changed times"):
        compiled(X)
    draws = np.random.default_rng(0)
    compiled = tape.compile(lambda x: x * draws.random())
    with pytest.warns(CompileWarning, match="draws random numbers from draws"):
        called(compiled, X)
    assert not compiled.programs
    draw = ctypes.CDLL(None).rand  # what code of C reads is not seen
    compiled = tape.compile(lambda x: x * draw())
    with pytest.warns(CompileWarning, match="went the same way differed: a Python number in an operation"):
        called(compiled, X)
    assert not compiled.programs


def test_a_way_that_is_never_taken_twice_stays_dynamic() -> None:
    compiled = tape.compile(lambda x: x + float(x.sum()))
    with pytest.warns(CompileWarning, match=r"each call goes another way, by the value that leaves at .*test_compile"):
        results = [compiled(X + k) for k in range(32)]
    for k, result in enumerate(results):
        same(result, X + k + float((X + k).sum()))
    assert "each call goes another way" in compiled.explain()
    for _ in range(2):
        same(compiled(X), X + float(X.sum()))
    assert replays(compiled) == 0
    same(compiled(X), X + float(X.sum()))
    assert replays(compiled) == 1, "what goes the same way in the end is replayed"


def test_too_many_signatures_stay_dynamic() -> None:
    compiled = tape.compile(lambda x, n: x * n)
    with pytest.warns(CompileWarning, match="more than 64 signatures; .* traced="):
        results = [compiled(X, n) for n in range(70)]
    for n, result in enumerate(results):
        same(result, X * n)


# --- what is outside ---


def test_numbers_and_objects_outside_are_watched() -> None:
    model, numbers = Model(), {"scale": 1.0}
    factor = 2.0

    def helper(x: Any) -> Any:
        return x * numbers["scale"]

    def f(x: Any, unit: float = 10.0) -> Any:
        return helper(x) * factor + model.scale + model.shift + unit

    compiled = tape.compile(f, check="never")

    def check() -> None:
        for _ in range(4):
            same(compiled(X), f(tape.tensor(X)))

    check()
    numbers["scale"] = 3.0
    check()
    factor = 5.0
    check()
    model.scale = 7.0
    check()
    f.__defaults__ = (20.0,)
    check()
    helper.__code__ = (lambda x: x - numbers["scale"]).__code__
    check()
    assert replays(compiled) >= 10


def test_arrays_outside_are_read_live() -> None:
    weights, parameter, number = np.ones(4), tape.tensor(X, requires_grad=True), tape.tensor(2.0)

    def f(x: Any) -> Any:
        return (x * weights * parameter * number).sum()

    compiled = tape.compile(f, check="never")
    for k in range(8):
        same(compiled(X), f(tape.tensor(X)))
        (one,), (other,) = grad(compiled(X), parameter), grad(f(tape.tensor(X)), parameter)
        same(one, other)
        weights += k
        number.fill_(float(k))
        with tape.no_grad():
            parameter.mul_(1.5)
    assert replays(compiled) >= 8, compiled.explain()
    assert len(compiled.programs) == 1


def test_arrays_that_numpy_reads_are_watched() -> None:
    table = np.array([1.0, 2.0, 3.0])
    compiled = tape.compile(lambda x: x * table[:2].sum(), check="never")
    for change in (0, 0, 0, 2, 0, 0, 1, 1, 1):
        table[change % 3] += 1.0 if change else 0.0
        same(compiled(X), X * table[:2].sum())
    big = np.zeros(1 << 18)
    compiled = tape.compile(lambda x: x + big.max(), check="never")
    for k in range(4):
        big[k] = k
        same(compiled(X), X + big.max())


def test_an_object_argument_is_watched() -> None:
    model = Model()
    compiled = tape.compile(lambda m, x: x * m.scale, check="never")
    for k in range(8):
        model.scale = float(k // 4)
        same(compiled(model, X), X * model.scale)


def test_an_argument_may_be_what_is_outside() -> None:
    """Calls whose arguments are, or share memory with, what the function reads tell nothing of other calls."""
    array, tensor = np.ones(4), tape.tensor(X)
    for outside, other in ((array, X + 2), (tensor, tape.tensor(X + 2))):

        def f(x: Any, outside: Any = outside) -> Any:
            return x * outside

        compiled = tape.compile(f, check="never")
        called(compiled, outside)
        same(called(compiled, other), f(tape.as_tensor(other)))

    def writing(x: Any) -> Any:
        x += 1
        return x * array

    compiled = tape.compile(writing, check="never")
    for _ in range(4):
        same(compiled(X.copy()), writing(tape.tensor(X)))
    same(compiled(array), np.full(4, 4.0))
    assert array.tolist() == [2.0] * 4


@pytest.mark.parametrize("graded", [False, True])
def test_one_argument_may_come_twice(graded: bool) -> None:
    compiled = tape.compile(lambda a, b: a * b, check="never")
    x = tape.tensor(X, requires_grad=graded)
    same(called(compiled, x, x), X * X)
    same(called(compiled, x, x + 1), X * (X + 1))
    if graded:
        same(grad(compiled(x, x).sum(), x)[0], 2 * X)


def test_gradients_of_leaves_are_read_as_they_are() -> None:
    x = tape.tensor(X, requires_grad=True)
    (x * x).sum().backward()
    outside = tape.compile(lambda y: y.detach() - 0.1 * x.grad, check="never")
    inside = tape.compile(lambda y: y.detach() - 0.1 * y.grad, check="never")
    called(outside, x)
    with pytest.warns(CompileWarning, match=r"the function reads \.grad in"):
        called(inside, x)
    assert not inside.programs
    x.grad = None
    (x * 3).sum().backward()
    for compiled in (outside, inside):
        same(compiled(x), X - 0.1 * np.full(4, 3.0))


class Affine:
    """A callable object."""

    def __init__(self) -> None:
        self.weight, self.shift = tape.tensor(2.0), 3

    def __call__(self, x: Any) -> Any:
        return self.weight * x + self.shift


def test_callable_objects_and_partials_are_looked_into() -> None:
    affine, numbers = Affine(), [1.0]
    compiled = tape.compile(affine, check="never")
    partial = tape.compile(functools.partial(lambda n, x: x * n[0], numbers), check="never")
    for _ in range(4):
        same(compiled(X), affine(tape.tensor(X)))
        same(partial(X), X * numbers[0])
    affine.shift, numbers[0] = 4, 5.0
    same(called(compiled, X), affine(tape.tensor(X)))
    same(called(partial, X), X * 5)
    affine.weight = tape.tensor(5.0)
    same(called(compiled, X), affine(tape.tensor(X)))


IMPURE: dict[str, tuple[str, str]] = {
    "list": ("kept = []\ndef f(x):\n    y = x * 2\n    kept.append(y)\n    return y + 1", "stays behind|changed kept"),
    "counter": ("n = 0\ndef f(x):\n    global n\n    n += 1\n    return x * n", "the call itself changed n"),
    "buffer": ("b = np.zeros(4)\ndef f(x):\n    b[:] += 1\n    return x * b", "an array from outside|changed"),
    "tensor": ("t = tape.zeros(4)\ndef f(x):\n    t.add_(x)\n    return t * 1", "writes to tensors from outside"),
}


@pytest.mark.parametrize("name", IMPURE)
def test_a_function_that_changes_what_is_outside_stays_dynamic(name: str) -> None:
    text, reason = IMPURE[name]
    one: dict[str, Any] = {"tape": tape, "np": np}
    other = dict(one)
    exec(text, one)  # noqa: S102 (globals of its own)
    exec(text, other)  # noqa: S102
    compiled = tape.compile(one["f"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            same(compiled(X), other["f"](tape.tensor(X)))
    (warning,) = [w for w in caught if issubclass(w.category, CompileWarning)]
    assert re.search(reason, str(warning.message)), str(warning.message)
    assert warning.filename == __file__


class Doubled(tape.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        del ctx
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        del ctx
        return g * 2


UNRECORDED: dict[str, Callable[[Any], Any]] = {
    "a hook": lambda x: (x.requires_grad_().register_hook(lambda g: g), x.detach() * 2)[1],
}


@pytest.mark.parametrize("name", UNRECORDED)
def test_what_no_program_holds_runs_dynamically_and_says_so(name: str) -> None:
    compiled = tape.compile(UNRECORDED[name])
    with pytest.warns(CompileWarning, match=rf"stays in dynamic mode: {name} at .*test_compile.py:\d+"):
        results = [compiled(X) for _ in range(4)]
    for result in results:
        same(result, UNRECORDED[name](tape.tensor(X)))
    assert not compiled.programs


# --- writes, errors, checks, threads ---


@pytest.mark.parametrize("tensor", [False, True])
def test_arguments_are_written_as_by_the_function(tensor: bool) -> None:
    def f(x: Any, y: Any) -> Any:
        x[1:] = x[:-1] * 2
        x += y
        return x.sum() if x[0] > 100 else x * 1

    compiled, replayed = tape.compile(f), 0
    for k in range(6):
        pair = [X + k, X * k]
        given, expected = ([make(x.copy()) for x in pair] for make in (tape.tensor if tensor else np.copy, tape.tensor))
        same(compiled(*given), f(*expected))
        same(given[0], expected[0])
        replayed = replays(compiled)
    assert replayed >= 3
    both = np.arange(4.0)
    expected = tape.tensor(both)
    same(compiled(both, both), f(expected, expected))
    same(both, expected)


def test_nothing_is_written_before_the_last_guard() -> None:
    def f(x: Any) -> Any:
        x += 1
        return x * 2 if x.sum() > 0 else x

    compiled = tape.compile(f)
    for k in range(12):
        x = X * (-1) ** (k // 3)
        given, expected = x.copy(), tape.tensor(x.copy())
        same(compiled(given), f(expected))
        same(given, expected)


def test_errors_come_through_and_the_next_call_works() -> None:
    compiled = tape.compile(tape.linalg.inv)
    for _ in range(4):
        same(compiled(2 * np.eye(2)), 0.5 * np.eye(2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="singular"):
            compiled(np.zeros((2, 2)))
        same(compiled(2 * np.eye(2)), 0.5 * np.eye(2))
    compiled = tape.compile(lambda x, y: x @ y)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        compiled(np.ones((2, 3)), np.ones((2, 3)))


def damaged(program: CompiledProgram) -> None:
    """Let a program compute something else: a planted fault."""
    node = next(n for n in program._recipe.nodes if n.constant is not None)
    node.constant = node.constant + 1.0  # type: ignore[operator]


@pytest.mark.parametrize("check", ["always", "sample"])
def test_checks_catch_a_replay_that_is_wrong(check: str) -> None:
    constant = np.linspace(0, 1, 4)
    compiled = tape.compile(lambda x: x * np.linspace(0, 1, 4) + 1, check=check)
    called(compiled, X, times=2)
    damaged(compiled.programs[0])
    with pytest.warns(CompileWarning, match="a replay differed from dynamic mode"):
        results = [compiled(X + k) for k in range(10)]
    same(results[-1], (X + 9) * constant + 1)
    assert "a replay differed" in compiled.explain()


def test_modes_belong_to_the_signature() -> None:
    def f(x: Any) -> Any:
        return x * 2 if tape.is_grad_enabled() else x * 3

    compiled = tape.compile(f)
    for _ in range(4):
        same(compiled(X), X * 2)
        with tape.no_grad():
            same(compiled(X), X * 3)
    made = tape.compile(lambda x: x + tape.ones(4).sum() * tape.tensor(0.1))
    for dtype in (np.float64, np.float32) * 4:
        tape.set_default_dtype(dtype)
        try:
            assert made(X.astype(np.float32)).dtype == (np.float32 if dtype is np.float32 else np.float64)
            same(made(X), made.__wrapped__(tape.tensor(X)))
        finally:
            tape.set_default_dtype(np.float64)


AT_RANDOM = """
import random, signal, sys, time
import numpy as np
import tape
from tape.tensors import modes

class Interrupt(BaseException):
    pass

def interrupt(number, frame):
    raise Interrupt

lost = []
sys.unraisablehook = lambda given: lost.append(given.exc_type)  # Python cannot pass on what comes in a callback
signal.signal(signal.SIGALRM, interrupt)
weights, at, chance, caught = np.ones(4), np.arange(4.0), random.Random(1), 0

def f(x):
    y = x * weights
    if y.sum() > 0:
        for _ in range(20):
            y = tape.sin(y) * x
    return y.sum()

expected = [float(f(tape.tensor(sign * at))) for sign in (1, -1)]
for _ in range(40):
    value, both = tape.compile(f, mode="max"), tape.compile(tape.value_and_grad(f), mode="max")
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 0.008))
        for sign in (1, -1) * 4:
            value(sign * at)
            both(sign * at)
        x = tape.tensor(at, requires_grad=True)
        for _ in range(4):
            value(x).backward()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        caught += 1
    assert (tape.is_grad_enabled(), modes.current().recorder) == (True, None)
    for k, sign in enumerate((1, -1)):
        for _ in range(4):
            assert value(sign * at) == both(sign * at)[0] == expected[k]
print(caught > 10, set(lost) <= {Interrupt})
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer here")
def test_interrupts_leave_compiled_functions_usable(fresh: Fresh) -> None:
    assert fresh(AT_RANDOM).communicate(timeout=120) == ("True True\n", "")


LONG = """
import _thread, threading
import numpy as np
import tape

def walk(x):
    for _ in range(30000):
        x = tape.sin(x)
    return x.sum()

compiled = tape.compile(walk, check="never", mode="eager")
at = np.linspace(0, 1, 1000)
for _ in range(3):
    expected = compiled(at)
try:
    threading.Timer(0.02, _thread.interrupt_main).start()
    while True:
        compiled(at)
except KeyboardInterrupt:
    print(compiled(at) == expected)
"""


def test_an_interrupt_in_a_long_replay_is_taken_between_its_parts(fresh: Fresh) -> None:
    assert fresh(LONG).communicate(timeout=120) == ("True\n", "")


def test_many_threads_call_one_function() -> None:
    def f(x: Any) -> Any:
        return (tape.sin(x) * x).cumsum(0) if x.sum() > 0 else x * 2

    compiled, wrong = tape.compile(f, mode="eager"), []

    def work(seed: int) -> None:
        for k in range(30):
            x = np.random.default_rng([seed, k]).normal(size=5)
            if not np.array_equal(compiled(x), f(tape.tensor(x)).numpy()):
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert replays(compiled) > 0


def test_explain_tells_all() -> None:
    scale = 2.0
    compiled = tape.compile(lambda x, n: x * scale if x.sum() > 0 else x * n)
    assert "not called yet" in compiled.explain()
    called(compiled, X, 3, times=5)
    called(compiled, tape.tensor(X, requires_grad=True), 3)
    text = compiled.explain()
    for part in (
        "array float64[4]", "tensor float64[4], requires grad", "scale of", "guard at", "missed 0 times", "replayed",
        "test_compile.py", "checked",
    ):  # fmt: skip
        assert part in text, text
    assert "guard" in str(compiled.programs[0])


def tripled(x: Any) -> Any:
    return x * 3


TRIPLED = tape.compile(tripled)


@tape.compile
def quadrupled(x: Any) -> Any:
    return x * 4


def copied(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301


def test_a_compiled_function_is_pickled_by_name() -> None:
    assert copied(quadrupled) is quadrupled
    other = copied(TRIPLED)
    assert other is not TRIPLED
    same(called(other, X), 3 * X)
    both = tape.compile(tape.value_and_grad(tripled))
    assert copied(tape.compile(tripled, traced=["x"])).traced == ("x",)
    assert both(2.0) == (6.0, 3.0)


def test_programs_are_drawn_profiled_and_measured() -> None:
    compiled = tape.compile(lambda x: (tape.sin(x) * x).sum())
    for wrong in (compiled.graph, compiled.memory):
        with pytest.raises(tape.programs.program.ProgramError, match=r"there is no program yet\n.*not called yet"):
            wrong()
    profile = compiled.profile(X)
    assert {entry.name for entry in profile.groups["operation"]} >= {"sin", "sum"}
    assert "test_compile.py" in str(compiled.graph())
    assert compiled.memory().kinds["arguments"].bytes == X.nbytes
    dynamic = tape.compile(UNRECORDED["a hook"])
    with pytest.raises(tape.programs.program.ProgramError, match="stay dynamic"), pytest.warns(CompileWarning):
        dynamic.profile(X)


def test_a_result_leads_to_the_arguments_that_it_depends_on() -> None:
    compiled = tape.compile(lambda x, y: (x * y, x.sum()), check="never")
    called(compiled, *(x := tape.tensor(X, requires_grad=True), y := tape.tensor(2.0, requires_grad=True)))
    product, total = compiled(x, y)
    total.backward(retain_graph=True)
    assert y.grad is None
    same(x.grad, np.ones(4))
    with pytest.raises(RuntimeError, match="not have been used"):
        grad(total, y, retain_graph=True)
    product.sum().backward()
    same(y.grad, X.sum())


def test_a_compiled_function_is_part_of_what_records_it() -> None:
    inner = tape.compile(lambda x, y: (x * y).sum(), check="never")
    called(inner, X, 2.0)
    program = tape.record(lambda x: inner(x, X) + inner(X, x), X)
    assert program(2 * X) == 4 * (X * X).sum()
    outer = tape.compile(lambda x: inner(x, X) * tape.as_tensor(inner(X, 3.0)), check="never")
    same(called(outer, 2 * X), 2 * (X * X).sum() * 3 * X.sum())


def test_what_an_inner_compiled_function_reads_is_watched() -> None:
    numbers = {"scale": 2.0}
    inner = tape.compile(lambda x: x * numbers["scale"])
    outer = tape.compile(lambda x: inner(x) + 1, check="never")
    same(called(outer, X), X * 2 + 1)
    numbers["scale"] = 3.0
    same(called(outer, X), X * 3 + 1)


def test_long_series_by_elements_are_compiled() -> None:
    """Each element is another form: there are more than tables keep, and what they drop they make again."""
    n = 1500

    def variance(x: Any) -> Any:
        level, total = x[0], 0.0
        for k in range(1, n):
            level = 0.9 * level + 0.1 * x[k]
            total = total + level * level
        return total

    x = np.linspace(0.0, 1.0, n)
    compiled = tape.compile(tape.value_and_grad(variance), mode="eager", check="never")
    for shift in (0.0, 1.0, 2.0):
        value, gradient = compiled(x + shift)
    weights = np.tril(0.1 * 0.9 ** np.clip(np.subtract.outer(np.arange(n), np.arange(n)), 0, None))
    weights[:, 0] = 0.9 ** np.arange(n)
    levels = weights @ (x + 2.0)
    np.testing.assert_allclose(value, (levels[1:] ** 2).sum(), rtol=1e-10)
    np.testing.assert_allclose(gradient, 2 * levels[1:] @ weights[1:], rtol=1e-8)
    assert "1 replayed, 2 recorded" in compiled.explain()


def mixed(x: Any, y: Any) -> Any:
    x *= 2.0
    x[0] = x[0] + y[1]
    return (x * y).sum()


PAIRS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "the same": lambda a: (a, a),
    "backwards": lambda a: (a, a[::-1]),
    "a view of all": lambda a: (a[:], a),
    "parts that meet": lambda a: (a[1:], a[:-1]),
    "parts between each other": lambda a: (a[::2], a[1::2]),
}


@pytest.mark.parametrize("mode", ["eager", "max"])
@pytest.mark.parametrize("name", PAIRS)
def test_what_is_written_to_one_argument_is_seen_in_another(name: str, mode: str) -> None:
    """As NumPy has it, in calls of arrays and of tensors, whether the first calls shared memory or not."""
    pair, start = PAIRS[name], np.array([1.0, 2.0, 3.0, 5.0])
    expected = start.copy()
    value = mixed(*pair(expected))
    for known in (False, True):
        compiled = tape.compile(mixed, mode=mode, check="never")
        for call in range(8):
            a, t = start.copy(), tape.tensor(start)
            if known and call < 4:
                compiled(a, start.copy())
                continue
            assert compiled(*pair(a)) == value
            np.testing.assert_array_equal(a, expected)
            if name != "backwards":  # tensors refuse it
                assert compiled(*pair(t)).item() == value
                assert t.tolist() == expected.tolist()


def test_arguments_that_share_memory_which_is_not_written_are_replayed() -> None:
    compiled = tape.compile(lambda x, y: ((x[:, None] - y[None]) ** 2).sum() + (x * y).sum(), mode="eager")
    for call in range(6):
        x = np.array([1.0, 2.0 + call])
        assert compiled(x, x) == 2 * (1.0 + call) ** 2 + (x * x).sum()
        t = tape.tensor(x, requires_grad=True)
        compiled(t, t).backward()
        np.testing.assert_allclose(t.grad, 4 * np.array([-1.0 - call, 1.0 + call]) + 2 * x)
    assert replays(compiled) >= 6


@pytest.mark.filterwarnings("ignore:compile. ")
def test_a_gradient_writes_to_other_arguments_as_in_dynamic_mode() -> None:
    def loss(state: Any, x: Any, other: Any) -> Any:
        state[:] = state * 2.0
        return (state * x * other).sum()

    compiled, dynamic = tape.compile(tape.value_and_grad(loss, 1)), tape.value_and_grad(loss, 1)
    for shared in (False, True):
        for _ in range(5):
            one, two = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])
            found = compiled(one, X[:3], one if shared else X[:3])
            expected = dynamic(two, X[:3], two if shared else X[:3])
            same(found[0], expected[0])
            same(found[1], expected[1])
            np.testing.assert_array_equal(one, [2.0, 4.0, 6.0])


def test_explain_counts_the_guards_of_a_line() -> None:
    def f(values: Any) -> Any:
        return values.sum() * sum(float(x) for x in values)

    compiled, values = tape.compile(f), tape.ones(40)
    for _ in range(3):
        compiled(values)
    (line,) = [line for line in compiled.explain().splitlines() if "guard at" in line]
    assert line.strip().startswith("guard at ")
    assert line.endswith(", 40 of them: missed 0 times")
