"""Random expressions: native sweep, plain sweep, replay, complex step and PyTorch agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tape
from kernels.sweeps import reverse
from tests.support.expressions import Expression, Tensors, by_complex_step, expressions

FEW = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def swept(expression: Expression, leaves: list[Any]) -> tuple[Any, list[Any]]:
    """Return the loss and the gradients that backward finds."""
    inputs = [tape.tensor(x, requires_grad=True) for x in leaves]
    loss = expression.loss(Tensors(tape), *inputs)
    if not loss.requires_grad:
        return loss.item(), [np.zeros(x.shape) for x in leaves]
    loss.backward()
    return loss.item(), [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in inputs]


def agree(found: list[Any], expected: list[Any], rtol: float = 1e-12) -> None:
    for one, other in zip(found, expected, strict=True):
        scale = np.abs(other).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale)


@given(expressions())
@FEW
def test_sweep_agrees_with_complex_step(expression: Expression) -> None:
    value, gradients = swept(expression, expression.leaves())
    expected, differences = by_complex_step(expression, expression.leaves())
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)
    agree(gradients, differences)


@given(expressions())
@FEW
def test_plain_sweep_agrees(expression: Expression) -> None:
    _, native = swept(expression, expression.leaves())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reverse, "NATIVE", False)
        _, plain = swept(expression, expression.leaves())
    agree(native, plain, rtol=1e-14)


@given(expressions())
@FEW
def test_replay_agrees_in_every_bit(expression: Expression) -> None:
    def loss(*leaves: Any) -> Any:
        return expression.loss(Tensors(tape), *leaves)

    program = tape.record(loss, *expression.leaves())
    for seed in (1, 0):
        leaves = expression.leaves(seed)
        value, gradients = program.value_and_grad(*leaves)
        expected, fresh = swept(expression, leaves)
        assert value == expected
        for one, other in zip(gradients, fresh, strict=True):
            np.testing.assert_array_equal(one, other)


@given(expressions())
@FEW
def test_pytorch_agrees(expression: Expression) -> None:
    torch = pytest.importorskip("torch")
    leaves = expression.leaves()
    inputs = [torch.tensor(x, requires_grad=True) for x in leaves]
    expression.loss(Tensors(torch), *inputs).backward()
    expected = [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in inputs]
    agree(swept(expression, leaves)[1], expected)


def observed(library: Any, tensor: Any, expression: Expression, *, retain: bool) -> list[Any]:
    """Return the gradients of intermediate values, views among them, asked for or retained."""
    inputs = [tensor(x, requires_grad=True) for x in expression.leaves()]
    values: list[Any] = []
    loss = expression.loss(Tensors(library), *inputs, notes=values)
    values = [v for v in values if v.requires_grad and not repeats(v)]
    if not retain:
        return list(library.autograd.grad(loss, [*values, *inputs], allow_unused=True))
    for v in values:
        v.retain_grad()
    loss.backward()
    return [v.grad for v in [*values, *inputs]]


@given(expression=expressions(), retain=st.booleans())
@FEW
def test_observed_values_agree_with_pytorch_and_plain(expression: Expression, retain: bool) -> None:
    native = observed(tape, tape.tensor, expression, retain=retain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reverse, "NATIVE", False)
        plain = observed(tape, tape.tensor, expression, retain=retain)
    assert [g is None for g in native] == [g is None for g in plain]
    agree(present(native), present(plain), rtol=1e-14)
    torch = pytest.importorskip("torch")
    expected = observed(torch, torch.tensor, expression, retain=retain)
    assert [g is None for g in native] == [g is None for g in expected]
    agree(present(native), present(expected))


def repeats(value: Any) -> bool:
    """Whether several elements share one place: test_graphs.py observes these."""
    return any(n > 1 and step == 0 for n, step in zip(value.shape, value.stride(), strict=True))


def present(gradients: list[Any]) -> list[Any]:
    """Return those that are there, as arrays."""
    return [g.numpy() for g in gradients if g is not None]
