"""`tape.checkpoint` and PyTorch's `utils.checkpoint`: gradients of what the tape has not kept."""

import random
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tape
from tape.recording.record import recorded
from tape.tensors import tapes
from tape.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

pytestmark = pytest.mark.quick


def plain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


class State(NamedTuple):
    """What a step takes and gives."""

    position: Any
    speed: Any
    name: str


W = np.random.default_rng(0).normal(size=(3, 3))
X = np.arange(3.0) + 1.0


def loss(x: Any, w: Any, keep: Callable[..., Any]) -> Any:
    """A loop whose step reads a computed tensor and a leaf from outside, and takes and returns structures."""
    c = tape.sin(w)

    def step(state: State, rate: float, *, scale: Any) -> dict[str, Any]:
        new = State(tape.tanh(c @ state.position) * scale + w[0], state.position[1:] * rate, state.name)
        return {"state": new, "energy": (new.speed**2).sum(), "count": 3}

    state, energy = State(x * 1.0, None, "a"), 0.0
    for _ in range(3):
        result = keep(step, state, 0.5, scale=state.position)
        assert result["count"] == 3
        state, energy = result["state"], energy + result["energy"]
    return (state.position**2).sum() + energy


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12)


def test_gradients_are_those_without_also_to_what_the_function_closes_over() -> None:
    gradients = []
    for keep in (plain, tape.checkpoint):
        w, x = tape.tensor(W, requires_grad=True), tape.tensor(X, requires_grad=True)
        loss(x, w, keep).backward()
        gradients.append((x.grad, w.grad))
    assert all(a.tolist() == b.tolist() for a, b in zip(*gradients, strict=True))


def test_second_derivatives_forward_mode_and_jacobians_are_those_without() -> None:
    for a, b in zip(_derivatives(plain), _derivatives(tape.checkpoint), strict=True):
        same(a, b)


def _derivatives(keep: Callable[..., Any]) -> list[Any]:
    w, x = tape.tensor(W, requires_grad=True), tape.tensor(X, requires_grad=True)
    by_x, by_w = tape.autograd.grad(loss(x, w, keep), (x, w), create_graph=True)
    ((by_w**2).sum() + tape.sin(by_x).sum()).backward()
    return [
        x.grad.numpy(),
        w.grad.numpy(),
        tape.func.hessian(lambda x: loss(x, tape.tensor(W), keep))(X),
        *tape.func.jvp(lambda x, w: loss(x, w, keep), (X, W), (np.ones(3), W)),
        tape.func.jacrev(lambda x: keep(lambda x: tape.exp(x) * x[0], x))(X),
        tape.func.jacfwd(lambda x: keep(lambda x: (tape.exp(x) * x[0], x[1:] * x[:-1]), x)[1])(X),
        tape.func.grad(tape.func.grad(tape.func.grad(_power(keep))))(2.0),
    ]


def _power(keep: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: keep(lambda x: x * keep(lambda x: x**3, x), x)


def test_checkpoints_stand_in_one_another_and_are_run_again_once_for_each_around() -> None:
    runs = []

    def inner(x: Any) -> Any:
        runs.append("inner")
        return tape.sin(x) * x

    def outer(x: Any) -> Any:
        runs.append("outer")
        return tape.checkpoint(inner, tape.checkpoint(inner, x)) * x

    x = tape.tensor(0.7, requires_grad=True)
    tape.checkpoint(outer, x).backward()
    assert (runs.count("outer"), runs.count("inner")) == (2, 6)
    expected = tape.func.grad(lambda x: inner(inner(x)) * x)(0.7)
    assert abs(x.grad.item() - expected) < 1e-15


def test_retained_graphs_run_again_each_time_and_freed_ones_raise() -> None:
    x = tape.tensor(X, requires_grad=True)
    y = tape.checkpoint(lambda x: (x**3).sum(), x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == (6.0 * X**2).tolist()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_random_numbers_are_drawn_again_and_go_on_from_where_they_were() -> None:
    own = tape.Generator().manual_seed(3)
    results = []
    for keep in (plain, tape.checkpoint):
        tape.manual_seed(0)
        own.manual_seed(3)
        x = tape.tensor(np.ones(40), requires_grad=True)

        def noisy(x: Any, keep: Any = keep) -> Any:
            x = x * tape.rand(40) + keep(lambda x: x * tape.randn(40, generator=own), x)
            return x**2

        y = keep(noisy, keep(noisy, x))
        between = tape.rand(3)
        y.sum().backward()
        results.append([x.grad, between, tape.rand(3), tape.rand(3, generator=own)])
    assert all(a.tolist() == b.tolist() for a, b in zip(*results, strict=True))


def test_preserve_rng_state_false_draws_others() -> None:
    tape.manual_seed(0)
    x = tape.tensor(np.ones(4), requires_grad=True)
    options = {"use_reentrant": False, "preserve_rng_state": False, "determinism_check": "none"}
    first = tape.rand(4)
    tape.manual_seed(0)
    y = checkpoint(lambda x: x * tape.rand(4), x, **options)
    y.sum().backward()
    assert y.tolist() == first.tolist() != x.grad.tolist()


@pytest.mark.parametrize("what", ["closure", "numpy", "random", "shape", "structure"])
def test_another_result_the_second_time_raises(what: str) -> None:
    held, calls = {"k": 1.0, "array": np.ones(3)}, []
    x = tape.tensor(X, requires_grad=True)

    def function(x: Any) -> Any:
        calls.append(1)
        again = len(calls) > 1
        if what == "shape":
            return x[again:] ** 2
        if what == "structure":
            return {"y" if again else "z": x * x}
        drawn = random.random() if what == "random" else 1.0  # noqa: S311
        return x**2 * held["k"] * held["array"] * drawn

    y = tape.checkpoint(function, x)
    held["k"] = 1.1 if what == "closure" else 1.0
    held["array"][1] = 2.0 if what == "numpy" else 1.0
    y = sum(y.values()) if isinstance(y, dict) else y
    with pytest.raises(CheckpointError, match=r"when it was run again|different metadata than during the forward pass"):
        y.sum().backward()
    assert x.grad is None


def test_a_name_that_stands_for_another_leaf_by_then_raises_or_the_first_gets_the_gradient() -> None:
    held = {"w": tape.tensor(2.0, requires_grad=True)}
    first, x = held["w"], tape.tensor(3.0, requires_grad=True)
    y = tape.checkpoint(lambda x: x * held["w"], x)
    held["w"] = tape.tensor(2.0, requires_grad=True)
    y.backward()
    assert (first.grad.item(), x.grad.item(), held["w"].grad) == (3.0, 2.0, None)
    held["w"] = first
    y = tape.checkpoint(lambda x: x * held["w"], x)
    held["w"] = tape.tensor(1.0, requires_grad=True) * tape.tensor(2.0, requires_grad=True) * 1.0
    z = held["w"]
    y.backward()
    assert z.grad_fn is not None
    assert first.grad.item() == 6.0


def test_arguments_written_after_the_call_count_as_they_were_and_within_it_raise() -> None:
    x = tape.tensor(X, requires_grad=True)
    y = x * 1.0
    z = tape.checkpoint(lambda y: y**3, y)
    y += 100.0
    z.sum().backward()
    assert x.grad.tolist() == (3.0 * X**2).tolist()
    with pytest.raises(RuntimeError, match="writes in place to one of its arguments"):
        tape.checkpoint(lambda y: y.add_(1.0) ** 2, x * 1.0)
    work = x * 1.0
    same(tape.checkpoint(lambda y: y.clone().add_(1.0) ** 2, work).detach(), (X + 1.0) ** 2)


def test_views_hooks_and_what_escapes_by_a_list() -> None:
    results: list[Any] = []
    for keep in (plain, tape.checkpoint):
        x, seen, kept = tape.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True), list[Any](), list[Any]()
        base = x * 2.0

        def function(row: Any, column: Any, seen: Any = seen, kept: Any = kept) -> tuple[Any, Any, Any]:
            y = tape.exp(row) * column.sum()
            y.register_hook(lambda g: seen.append(g.tolist()))
            kept.append(y.sum())
            return y, y[1:], row

        y, part, row = keep(function, base[1], base.T[0])
        assert row.shape == (3,)
        first = kept[0]
        (y.sum() + (part**2).sum() + (row**3).sum() + first).backward()
        results.append(x.grad.numpy())
        assert seen
    same(*results)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=5), st.integers(0, 1000))
def test_chains_of_any_steps(steps: list[tuple[int, bool]], seed: int) -> None:
    start = np.random.default_rng(seed).normal(size=(2, 3))
    kinds: list[Callable[[Any, Any], Any]] = [
        lambda s, w: {"a": tape.tanh(s["a"] * w), "b": s["b"] + s["a"][0]},
        lambda s, _: {"a": s["a"].T.reshape(2, 3), "b": s["b"] * 1.0},
        lambda s, w: {"b": s["b"] ** 2, "a": s["a"] + w},
        lambda s, _: {"a": s["a"], "b": s["a"][1] * s["b"]},
        lambda s, w: {"a": s["a"] @ w[:, :1] * s["a"], "b": tape.sin(s["b"])},
    ]

    def run(x: Any, w: Any, keep: Callable[..., Any]) -> Any:
        state, c = {"a": x, "b": x[0] * 2.0}, w * w
        for kind, own in steps:
            step = kinds[kind]
            row = slice(0, 3 if kind == 4 else 1)
            state = keep(lambda s, c=w, step=step, row=row: step(s, c[row]), state, *([c] if own else []))
        return sum((v**2).sum() for v in state.values())

    w0 = np.random.default_rng(seed + 1).normal(size=(3, 3)) * 0.5
    value, gradients = tape.value_and_grad(lambda x, w: run(x, w, plain), (0, 1))(start, w0)
    other, others = tape.value_and_grad(lambda x, w: run(x, w, tape.checkpoint), (0, 1))(start, w0)
    assert value == pytest.approx(other, rel=1e-12, nan_ok=True)
    for a, b in zip(gradients, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_compiled_functions_vmap_and_programs_hold_the_function_itself() -> None:
    expected = tape.value_and_grad(lambda x, w: loss(x, w, plain), (0, 1))(X, W)
    compiled = tape.compile(tape.value_and_grad(lambda x, w: loss(x, w, tape.checkpoint), (0, 1)), mode="max")
    for _ in range(4):
        value, gradients = compiled(X, W)
        assert value == pytest.approx(expected[0])
        for a, b in zip(gradients, expected[1], strict=True):
            same(a, b)
    assert compiled.calls["dynamic"] == 0
    assert len(compiled.programs) == 1
    mapped = tape.func.vmap(lambda x: tape.checkpoint(tape.sin, x) * 2.0)(X)
    same(mapped, np.sin(X) * 2.0)
    program = tape.record(lambda x: tape.checkpoint(lambda x: (x**2).sum(), x), X)
    assert program.value_and_grad(X)[0] == (X**2).sum()


@pytest.mark.parametrize("steps", [300, 700])
def test_in_compiled_functions_a_checkpoint_is_a_hint_for_the_plan_of_memory(tmp_path: Path, steps: int) -> None:
    def run(x: Any, rate: Any, keep: Callable[..., Any]) -> Any:
        for _ in range(steps):
            x = keep(lambda x: x + 0.01 * rate * tape.sin(x), x)
        return (x * x).sum()

    start, kept = np.linspace(0.1, 1.0, 40), []
    for keep in (plain, tape.checkpoint):
        both = tape.compile(tape.value_and_grad(lambda x, rate, keep=keep: run(x, rate, keep), (0, 1)), mode="max")
        for _ in range(4):
            value, (by_start, by_rate) = both(start, 0.3)
        assert len(both.programs) == 1
        both.save(tmp_path / "both")
        loaded = tape.load(tmp_path / "both")
        assert loaded(start, 0.3)[0] == pytest.approx(value, rel=1e-12)
        kept.append((value, by_start, by_rate, both.memory().block))
    for a, b in zip(*[row[:3] for row in kept], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert kept[1][3] * 4 < kept[0][3]  # some twice the root of the steps, and no more


def test_a_compiled_step_in_a_checkpoint_in_a_python_loop() -> None:
    step = tape.compile(lambda x, k: x + 0.1 * tape.sin(x) * k, mode="max")

    def block(x: Any, k: Any) -> Any:
        for _ in range(5):
            x = step(x, k)
        return x

    def run(x: Any, k: Any, keep: Callable[..., Any]) -> Any:
        for _ in range(4):
            x = keep(block, x, k)
        return (x**2).sum()

    a = tape.value_and_grad(lambda x, k: run(x, k, plain), (0, 1))(X, 0.3)
    b = tape.value_and_grad(lambda x, k: run(x, k, tape.checkpoint), (0, 1))(X, 0.3)
    same(a[0], b[0])
    same(a[1][0], b[1][0])
    same(a[1][1], b[1][1])


def test_nothing_is_left_of_the_runs() -> None:
    def once() -> None:
        x = tape.tensor(X, requires_grad=True)
        tape.checkpoint(lambda x: tape.checkpoint(tape.exp, tape.sin(x)), x).sum().backward()

    once()
    before, numbers = len(tapes.living), {tape.number for tape in tapes.every()}
    for _ in range(50):
        once()
    assert len(tapes.living) == before
    assert {tape.number for tape in tapes.every()} == numbers
    with pytest.raises(ZeroDivisionError):
        tape.checkpoint(lambda x: (tape.sin(x), 1 / 0), tape.tensor(X, requires_grad=True))
    assert tape.is_grad_enabled()
    once()


def test_the_tape_keeps_one_instruction_and_the_arguments() -> None:
    kept: list[weakref.ref[Any]] = []

    def block(x: Any) -> Any:
        for _ in range(10):
            inner = np.sin(x.detach().numpy()) + 1.0
            kept.append(weakref.ref(inner))
            x = tape.sin(x) * tape.tensor(inner)
        return x

    before = recorded()
    y = tape.tensor(X, requires_grad=True)
    for _ in range(20):
        y = tape.checkpoint(block, y)
    assert recorded() - before == 20
    assert not any(reference() is not None for reference in kept)
    y.sum().backward()
    assert len(kept) == 400
    assert recorded() == before


def test_without_gradients_it_is_a_call() -> None:
    assert tape.checkpoint(lambda x, k: (x, k), 1.0, k=2) == (1.0, 2)
    with tape.no_grad():
        assert not tape.checkpoint(tape.sin, tape.tensor(1.0, requires_grad=True)).requires_grad
    assert tape.checkpoint(lambda: "text") == "text"


# PyTorch's function.


def test_the_reentrant_variant_gives_gradients_by_a_backward_within() -> None:
    w, x = tape.tensor(W, requires_grad=True), tape.tensor(X, requires_grad=True)
    y = checkpoint(lambda x, k: tape.tanh(w @ x) * k, x, 2.0, use_reentrant=True)
    assert y.requires_grad
    y.sum().backward()
    other_w, other_x = tape.tensor(W, requires_grad=True), tape.tensor(X, requires_grad=True)
    (tape.tanh(other_w @ other_x) * 2.0).sum().backward()
    same(x.grad, other_x.grad)
    same(w.grad, other_w.grad)


def test_the_reentrant_variant_refuses_what_pytorch_refuses() -> None:
    x = tape.tensor(X, requires_grad=True)
    for ask in (
        lambda y: tape.autograd.grad(y, x),
        lambda y: y.backward(inputs=[x]),
        lambda y: tape.autograd.grad(y + x.sum(), x, allow_unused=True),
    ):
        with pytest.raises(RuntimeError, match=r"incompatible with .grad\(\) or passing an `inputs`"):
            ask(checkpoint(tape.sin, x, use_reentrant=True).sum())
    with pytest.raises(RuntimeError, match="incompatible"):
        tape.func.grad(lambda x: checkpoint(tape.sin, x, use_reentrant=True).sum())(X)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: k"):
        checkpoint(tape.sin, x, k=1, use_reentrant=True)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(tape.sin, x, use_reentrant=True, debug=True)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not checkpoint(lambda k: x * k, 2.0, use_reentrant=True).requires_grad
    y = checkpoint(lambda x: x.detach() * 2.0, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        y.sum().backward()
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(tape.sin, x).sum().backward()


def test_options_of_the_other_variant() -> None:
    entered: list[str] = []

    class Context:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            entered.append(self.name)

        def __exit__(self, *_: object) -> None:
            entered.append(f"end of {self.name}")

    x = tape.tensor(X, requires_grad=True)
    y = checkpoint(lambda x, k: x * k, x, k=3.0, use_reentrant=False, context_fn=lambda: (Context("a"), Context("b")))
    y.sum().backward()
    assert entered == ["a", "end of a", "b", "end of b"]
    assert x.grad.tolist() == [3.0] * 3
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        checkpoint(tape.sin, x, use_reentrant=False, determinism_check="all")
    with pytest.raises(ValueError, match="debug=True is incompatible"):
        checkpoint(tape.sin, x, use_reentrant=False, debug=True, context_fn=lambda: (Context("a"), Context("b")))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequences_in_segments(segments: int, reentrant: bool) -> None:
    layers = [tape.sin, tape.exp, lambda x: x * 2.0, tape.tanh, lambda x: x + 1.0]
    x = tape.tensor(X, requires_grad=True)
    checkpoint_sequential(layers, segments, x, use_reentrant=reentrant).sum().backward()
    other = tape.tensor(X, requires_grad=True)
    (tape.tanh(tape.exp(tape.sin(other)) * 2.0) + 1.0).sum().backward()
    same(x.grad, other.grad)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: k"):
        checkpoint_sequential(layers, 2, x, use_reentrant=False, k=1)


@pytest.mark.parametrize("reentrant", [True, False])
def test_pytorch_gives_the_same(reentrant: bool) -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("torch.utils.checkpoint")
    gradients = []
    for library, module, make in ((tape, tape.utils.checkpoint, tape.tensor), (torch, theirs, torch.tensor)):
        x, w = make(X, requires_grad=True), make(W, requires_grad=True)
        library.manual_seed(0)

        def step(x: Any, library: Any = library, w: Any = w) -> Any:
            return library.tanh(w @ x) * library.rand(3, dtype=library.float64)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y = module.checkpoint(step, module.checkpoint(step, x, use_reentrant=reentrant), use_reentrant=reentrant)
            (y**2).sum().backward()
        gradients.append([x.grad.tolist(), w.grad.tolist()])
    for a, b in zip(*gradients, strict=True):
        same(a, b)
