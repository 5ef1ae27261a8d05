"""Cotangents that are one number: the native sweep and replays keep them so, the plain sweep writes them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.foundation import tables
from kernels.kinds.form import Form
from kernels.native.memory import REGISTRY
from kernels.native.structs import REQUESTED, FormBlock, InputBlock
from kernels.rules import loop_printer
from kernels.sweeps import reverse

SHAPE = (2, max(loop_printer.LEAST // 2, 30) + 3)
RNG = np.random.default_rng(5)
X, W = RNG.normal(size=SHAPE), RNG.normal(size=SHAPE)
ROW, COLUMN = RNG.normal(size=SHAPE[1]), RNG.normal(size=(SHAPE[0], 1))
MASK = X > 0
PLACES = np.array([[0, 1], [5, 5]])
Program = Callable[[Any], Any]


def written(x: Any) -> Any:
    y = x * 2
    y[0] = W[0]
    y[1, 3:] *= x[0, 3:]
    return y.sum()


def added(x: Any) -> Any:
    y = x * 2
    y += W
    z = y[1:]
    z -= x[:1]
    return y.mean()


def twice(first: Program, then: Program) -> Program:
    """Return a program whose product of x and weights gets two contributions, in either order on the tape."""

    def program(x: Any) -> Any:
        y = x * W
        return first(y) + then(y)

    return program


PROGRAMS: dict[str, Program] = {
    "product": lambda x: (x * W).sum(),
    "mean": lambda x: (x * W).mean(),
    "leaf": lambda x: x.sum(),
    "chain": lambda x: (-((x + W) - 3.0) * 2.0).mean(),
    "negative zero": lambda x: (x * W).sum() * -0.0,
    "square": lambda x: (x * x).sum(),
    "row": lambda x: (x * ROW + COLUMN).sum(),
    "sums of rows": lambda x: (x * W).sum(1).sum(),
    "sums of columns": lambda x: (x * W).sum(0).mean(),
    "rows kept": lambda x: ((x * W).mean(1, keepdim=True) * x).sum(),
    "constant, whole": twice(lambda y: y.sum(), lambda y: (y * W).sum()),
    "whole, constant": twice(lambda y: (y * W).sum(), lambda y: y.sum()),
    "constant twice": twice(lambda y: y.mean(), lambda y: y.sum()),
    "a part as well": twice(lambda y: y.sum(), lambda y: y[0].sum()),
    "turned": lambda x: (x * W).T.sum(),
    "flat": lambda x: (x * W).reshape(-1).sum() + x.ravel().mean(),
    "part": lambda x: (x * W)[:, 1:].sum(),
    "every other": lambda x: (x * W)[:, ::2].mean(),
    "expanded": lambda x: ((x * W).sum(0) * tape.ones(())).expand(3, SHAPE[1]).sum(),
    "matrix": lambda x: ((x * W) @ ROW).sum() + ((x * W) @ W.T).sum(),
    "routine": lambda x: (tape.cumsum(x * W, 1) * 0.5).sum() + tape.cumsum(x * 2, 1).sum(),
    "softmax": lambda x: tape.softmax(x * W, 1).sum() + (tape.softmax(x, 1) * W).sum(),
    "where": lambda x: tape.where(tape.tensor(MASK), x * W, tape.tensor(0.0)).sum(),
    "maximum": lambda x: tape.maximum(x * W, tape.tensor(W)).sum(),
    "extremum": lambda x: (x * W).amax(1).sum() + (x * W).max(),
    "picked": lambda x: (x * W)[:, PLACES].sum() + tape.gather(x * W, 1, tape.tensor(PLACES)).sum(),
    "joined": lambda x: tape.cat([x * W, x + 1]).sum() + tape.stack([x * 2, x * W]).mean(),
    "narrower": lambda x: (x * W).to(tape.float32).sum().to(tape.float64),
    "single": lambda x: (x.to(tape.float32) * W.astype("f")).sum() * tape.tensor(1.0),
    "copied": lambda x: (x * W).clone().sum() + (x * W).contiguous().mean(),
    "sine": lambda x: tape.sin(x * W).sum(),
    "quotient": lambda x: (x / (W * W + 1.0)).sum() + (1.0 / (x * x + 1.0)).mean(),
    "written": written,
    "added": added,
}


def gradients(program: Program) -> list[Any]:
    """Return the gradient of two sweeps: the first says which kernels it wants, the second has them."""
    found = []
    for _ in range(2):
        x = tape.tensor(X, requires_grad=True)
        program(x).backward()
        found.append(x.grad.numpy())
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_sweeps_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = gradients(PROGRAMS[name])
    monkeypatch.setattr(reverse, "NATIVE", False)
    expected = gradients(PROGRAMS[name])[0]
    np.testing.assert_allclose(first, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(second, first)


@pytest.mark.parametrize("name", PROGRAMS)
def test_replay_agrees(name: str) -> None:
    program = tape.record(PROGRAMS[name], tape.tensor(X, requires_grad=True))
    _, (gradient,) = program.value_and_grad(X)
    np.testing.assert_allclose(np.asarray(gradient), gradients(PROGRAMS[name])[1], rtol=1e-12, atol=1e-13)


def shifted(x: Any) -> tuple[Any, Any]:
    y = x * W
    return y, (y + 1.0).mean()


@pytest.mark.parametrize("watch", ["hook", "retain_grad", "node"])
def test_who_looks_on_sees_all_elements(watch: str) -> None:
    for _ in range(2):
        x, seen = tape.tensor(X, requires_grad=True), []
        y, loss = shifted(x)
        if watch == "hook":
            y.register_hook(lambda g: seen.append(g.numpy()) or g * 2)  # noqa: B023 (called below)
        elif watch == "node":
            y.grad_fn.register_hook(lambda _, given: seen.append(given[0].numpy()))  # noqa: B023
        else:
            y.retain_grad()
        loss.backward()
        given = seen[0] if seen else y.grad.numpy()
        np.testing.assert_allclose(given, np.full(SHAPE, 1 / X.size), rtol=1e-15)
        np.testing.assert_allclose(x.grad.numpy(), W * (2 if watch == "hook" else 1) / X.size, rtol=1e-14)


def test_gradient_of_a_computed_tensor() -> None:
    x = tape.tensor(X, requires_grad=True)
    y, loss = shifted(x)
    (gradient,) = tape.autograd.grad(loss, y, retain_graph=True)
    assert np.all(gradient.numpy() == 1 / X.size)
    both = tape.autograd.grad(loss, (x, y))
    np.testing.assert_allclose(both[0].numpy(), W / X.size, rtol=1e-14)


def test_second_gradient() -> None:
    x = tape.tensor(X, requires_grad=True)
    (gradient,) = tape.autograd.grad((x * x * W).sum(), x, create_graph=True)
    gradient.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * W, rtol=1e-14)


def test_batch_of_cotangents() -> None:
    x = tape.tensor(X, requires_grad=True)
    for count in (1, 3):
        weights = tape.tensor(np.arange(1.0, 1.0 + count))
        loss = (x * W).sum()
        (rows,) = tape.autograd.grad(loss, x, weights, is_grads_batched=True)
        np.testing.assert_allclose(rows.numpy(), [k * W for k in range(1, 1 + count)], rtol=1e-14)


def doubled(y: Any) -> Any:
    y.register_hook(lambda g: g.mul_(2.0))
    return y


def replaced(y: Any) -> Any:
    y[1, :5] = 1.0
    return y


ROOTS: dict[str, Program] = {"result": lambda y: y, "hook": doubled, "written": replaced, "view": lambda y: y[:, ::1]}


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("name", ROOTS)
def test_given_cotangent_is_left_as_it_is(name: str, zero: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may stand for the root's buffer; what writes there writes to a copy. -0.0 in it is a zero like another."""
    weights, scale, found = W.copy(), X.copy(), []
    weights[0, :3], scale[0, 1] = zero, np.inf
    given = tape.tensor(weights)
    for native in (reverse.NATIVE, False):
        monkeypatch.setattr(reverse, "NATIVE", native)
        x = tape.tensor(X, requires_grad=True)
        with np.errstate(invalid="ignore"):
            y = ROOTS[name](x * tape.tensor(scale))
            y.backward(given)
            tape.autograd.backward([x * 2.0, x * 3.0], [given, given])
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)
    assert np.isnan(found[0]).sum() == 1
    np.testing.assert_array_equal(given.numpy().view(np.int64), weights.view(np.int64))


def _forms() -> dict[int, Form]:
    """Return the living forms by their numbers."""
    found = {code: reference() for code, reference in list(REGISTRY.living.items())}
    return {code: form for code, form in found.items() if form is not None}


@pytest.mark.skipif(not reverse.NATIVE, reason="this interpreter's memory cannot be read")
def test_kernels_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sweep that meets such a cotangent asks for the kernels of all that it would reach."""
    monkeypatch.setattr(tables, "MOST", 2 * tables.MOST)  # no table is to forget them meanwhile
    before = _forms()  # kept: no new form takes the number of an old one
    shape = (loop_printer.LEAST + 11,)

    def sweep(function: Program) -> None:
        x = tape.tensor(np.ones(shape), requires_grad=True)
        function(x).backward()

    for _ in range(2):
        sweep(lambda x: (-tape.exp(x) * 2.0 + 1.0).sum())
    made = {f.op.name: f for code, f in _forms().items() if code not in before}
    about = FormBlock.SIZE + InputBlock.one
    assert made["sum"].block[about] > REQUESTED
    assert all(made[name].block[about] > REQUESTED for name in ("add", "multiply", "negative"))
    assert made["exp"].block[about] == 0
    assert made["exp"].block[about + 2] > REQUESTED
    assert len(made["exp"].block) == FormBlock.SIZE + InputBlock.SIZE + len(made["exp"].saved)
