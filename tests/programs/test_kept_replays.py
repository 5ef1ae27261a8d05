"""Replays among recorded operations keep their memory for the pullback: against the function itself in dynamic mode."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.reference_tape import locate
from kernels.sweeps.reverse import PausedSweep
from tape.tensors import modes

pytestmark = pytest.mark.quick


def _step(x: Any, v: Any, m: Any) -> Any:
    pull = (x * x).sum() * m
    v = v - 0.1 * x * pull
    return x + 0.1 * v, v, pull


def _program(function: Callable[..., Any] = _step, dtype: Any = np.float64) -> Any:
    return tape.record(function, np.ones(3, dtype), np.ones(3, dtype), np.array(2.0, dtype))


def _leaves(dtype: Any = np.float64) -> list[Any]:
    values = [np.array([0.3, -0.5, 0.7], dtype), np.array([0.1, 0.2, -0.4], dtype), np.array(1.5, dtype)]
    return [tape.tensor(value, requires_grad=True) for value in values]


def _gradients(leaves: list[Any]) -> list[Any]:
    return [None if x.grad is None else x.grad.numpy() for x in leaves]


def _same(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        if a is None or b is None:
            assert a is b
        else:
            np.testing.assert_array_equal(a, b)


def _ran_in_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that is to hold the names of what Python runs in sweeps."""
    ran: list[str] = []
    call = PausedSweep.call

    def noted(self: Any, instruction: Any, gradient: Any) -> None:
        ran.append(instruction.form.name)
        call(self, instruction, gradient)

    monkeypatch.setattr(PausedSweep, "call", noted)
    return ran


LOSSES = {
    "all": lambda r: (r[0] * r[1]).sum() * r[2],
    "first": lambda r: (r[0] * r[0]).sum(),
    "number": lambda r: r[2] * 2.0,
    "view": lambda r: r[0][1:].sum() + r[1][0],
    "twice": lambda r: (r[0] * r[0]).sum() + r[0].sum(),
    "constant": lambda r: r[0].sum() + r[1].mean() + r[2],
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_are_those_of_the_function(loss: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through two steps, all results used or some, in a second backward, and no Python in the sweep."""
    program, ran = _program(dtype=dtype), _ran_in_python(monkeypatch)

    def through(step: Any) -> list[Any]:
        x, v, m = leaves = _leaves(dtype)
        for _ in range(2):
            x, v, p = step(x, v, m)
        y = LOSSES[loss]((x, v, p))
        y.backward(retain_graph=True)
        first = _gradients(leaves)
        for leaf in leaves:
            leaf.grad = None
        y.backward()
        _same(first, _gradients(leaves))
        return first

    for a, b in zip(through(program), through(_step), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12 if dtype == np.float64 else 1e-5)
    if program.pulling.kept is not None:
        assert ran == []


def test_what_a_result_does_not_depend_on_has_no_gradient() -> None:
    """None, not zeros."""
    program = tape.record(lambda x, v, m: (x * 2.0, v * m), np.ones(3), np.ones(3), 1.0)
    x, v, m = leaves = _leaves()
    program(x, v, m)[0].sum().backward()
    _same(_gradients(leaves), [np.full(3, 2.0), None, None])


@pytest.mark.parametrize("kind", ["slice", "transposed", "expanded", "same twice", "computed", "written"])
def test_operands_of_all_patterns(kind: str) -> None:
    """Views have their part of a gradient buffer; a tensor may be two operands, and be written afterwards."""

    def through(step: Any) -> Any:
        x = tape.tensor(np.linspace(-1, 1, 18).reshape(6, 3), requires_grad=True)
        y = x * 1.0
        a, b = {
            "slice": lambda: (y[2:4], y[0:2]),
            "transposed": lambda: (y.T[:2], y.T[1:]),
            "expanded": lambda: (y[0, :1].expand(2, 3), y[:2]),
            "same twice": lambda: (y, y),
            "computed": lambda: (y.exp(), y),
            "written": lambda: (y, y * 2.0),
        }[kind]()
        p, q = step(a, b)
        if kind == "written":
            y.mul_(3.0)
            p.mul_(2.0)
            p[0] = q[0] * 2.0
        (p.sum() + (q * q).sum() + y.sum()).backward()
        return x.grad.numpy()

    def pair(a: Any, b: Any) -> Any:
        return a * b + 1.0, a.sin() * b

    shape = {"slice": (2, 3), "transposed": (2, 6), "expanded": (2, 3)}.get(kind, (6, 3))
    np.testing.assert_allclose(
        through(tape.record(pair, np.ones(shape), np.ones(shape))), through(pair), rtol=1e-12, atol=1e-14
    )


def test_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of results, retained gradients, and of the node of the call, which Python then runs."""
    program = _program()

    def through(step: Any, *, node: bool) -> tuple[list[Any], list[Any]]:
        x, v, m = leaves = _leaves()
        seen: list[Any] = []
        x, v, p = step(x, v, m)
        x.register_hook(lambda g: g * 2.0)
        v.register_hook(lambda g: seen.append(g.numpy().copy()))
        v.retain_grad()
        if node:
            x.grad_fn.register_prehook(lambda grads: tuple(None if g is None else g * 1.0 for g in grads))
        x, w, p = step(x, v, m)
        ((x * w).sum() * p).backward()
        return _gradients(leaves), [*seen, v.grad.numpy()]

    expected = through(lambda *args: [y * 1.0 for y in _step(*args)], node=False)
    for node in (False, True):
        for one, other in zip(through(program, node=node), expected, strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)
    ran = _ran_in_python(monkeypatch)
    through(program, node=True)
    if program.pulling.kept is not None and ran:
        assert "ReplayBackward" in ran


def test_batches_of_cotangents() -> None:
    """Python runs the call once for the batch, and the results not at all."""
    program = _program()

    def both(step: Any) -> list[Any]:
        functions = (lambda x, v: step(x, v, 1.5)[0], lambda x, v: step(x, v, 1.5)[1] * 2.0)
        x, v = (leaf.detach() for leaf in _leaves()[:2])
        return [j.numpy() for f in functions for j in tape.func.jacrev(f, argnums=(0, 1))(x, v)]

    for a, b in zip(both(program), both(_step), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_second_derivatives() -> None:
    """``create_graph`` runs the recorded rules; the first derivatives stay the same."""
    program = _program()

    def second(step: Any) -> list[Any]:
        x, v, m = leaves = _leaves()
        x, v, p = step(*step(x, v, m)[:2], m)
        first = tape.autograd.grad((x * v).sum() * p, leaves, create_graph=True)
        return [g.numpy() for g in tape.autograd.grad(sum((g * g).sum() for g in first), leaves)]

    for a, b in zip(second(program), second(_step), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_the_graph_owns_the_memory() -> None:
    """It goes with the backward that frees the graph, or with the results."""
    program = _program()
    if program.pulling.kept is None:
        pytest.skip("nothing is kept without native code")

    def memory_of(result: Any) -> Any:
        entries = modes.own_tape().entries
        call = locate(entries, locate(entries, result._slot).operands[0])
        return weakref.ref(call.saved[-1])

    x, v, m = _leaves()
    y, w, p = program(x, v, m)
    memory = memory_of(y)
    assert memory() is not None
    y.sum().backward()
    assert memory() is None
    y, w, p = program(x, v, m)
    memory = memory_of(y)
    del y, w, p
    modes.own_tape().collect()
    gc.collect()
    assert memory() is None


def test_an_error_in_a_hook_leaves_the_graph_to_be_swept_again() -> None:
    """Of a result: what is left in the buffers of other results is freed, and the next backward is right."""
    program = _program()
    x, v, m = leaves = _leaves()
    y, w, p = program(x, v, m)

    def fail(_: Any) -> None:
        raise KeyboardInterrupt

    handle = y.register_hook(fail)
    loss = (y * w).sum() * p
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
    handle.remove()
    _same(_gradients(leaves), [None] * 3)
    loss.backward()
    found = _gradients(leaves)
    others = _leaves()
    y, w, p = _step(*others)
    ((y * w).sum() * p).backward()
    for a, b in zip(found, _gradients(others), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_finalizer_that_records_between_the_results() -> None:
    """Then slots do not follow one another, and Python runs the call."""
    program = _program()
    entries = modes.own_tape().entries
    x, v, m = leaves = _leaves()
    kept = []
    y, w, p = program(x, v, m)
    ((y * w).sum() * p).backward()
    expected = _gradients(leaves)
    form = program.pulling.kept_outputs if program.pulling.kept is not None else program.pulling.outputs

    class Recording(list):  # type: ignore[type-arg]
        def __getitem__(self, k: Any) -> Any:
            kept.append(x * 2.0)
            return super().__getitem__(k)

    program.pulling.__dict__["kept_outputs"] = Recording(form)
    program.pulling.outputs = Recording(program.pulling.outputs)
    for leaf in leaves:
        leaf.grad = None
    y, w, p = program(x, v, m)
    assert kept
    assert locate(entries, y._slot) is not None
    ((y * w).sum() * p).backward()
    _same(_gradients(leaves), expected)


def test_threads() -> None:
    """One machine runs all programs back, each thread its own forward."""
    program, expected, failed = _program(), [], []

    def through() -> list[Any]:
        x, v, m = leaves = _leaves()
        for _ in range(30):
            x, v, p = program(x, v, m)
        ((x * v).sum() * p).backward()
        return _gradients(leaves)

    expected = through()

    def work() -> None:
        for _ in range(20):
            try:
                _same(through(), expected)
            except BaseException as error:  # noqa: BLE001 (told by the test)
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_large_programs_keep_nothing() -> None:
    """Their forward runs again."""
    program = tape.record(lambda x: (x.exp() * x, x.sin()), np.ones(20_000))
    assert program.pulling.kept is None
    x = tape.tensor(np.linspace(0, 1, 20_000), requires_grad=True)
    y, z = program(x)
    (y + z).sum().backward()
    value = x.numpy() if not x.requires_grad else x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(value) * (value + 1) + np.cos(value), rtol=1e-12)


def test_results_that_are_views_are_computed_with_as_they_stand() -> None:
    """A transposed result is copied in C's order, and what native code repeats on it reads it so."""
    a, b = np.linspace(-1, 1, 6).reshape(2, 3), np.linspace(2, 3, 6).reshape(3, 2)
    program = tape.record(lambda x: (x.T, x * 2.0), a)
    for _ in range(3):
        x = tape.tensor(a, requires_grad=True)
        y = program(x)[0] * tape.tensor(b)
        np.testing.assert_array_equal(y.detach().numpy(), a.T * b)
        (y * y).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), (2 * a.T * b**2).T, rtol=1e-14)
