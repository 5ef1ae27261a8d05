"""A kind of records that nobody has seen: what it says of itself in three places is enough for every way of running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

import tape
from kernels.compiler import composed_operations, statements
from kernels.foundation.specs import Spec
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form, Lowering, ProgramStep, rule_loop
from kernels.rules.loop_printer import KernelOperand
from kernels.rules.op import OPS, Flags, Op, Params, Shapes
from tape.autograd import grad, gradcheck, gradgradcheck
from tape.engine import kinds
from tape.engine.kind_rules import Kind, Operand, Planned, Pullbacks
from tape.recording import record
from tape.tensors.tensor import Tensor, as_array

# What stands in kernels/kinds: the declaration, arrays, tasks of programs, what a file may say.


@dataclass(frozen=True, eq=False, kw_only=True)
class Powered(Op):
    """Elements of one operand to the power of the parameter."""

    is_called: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("x",)
    reads: ClassVar[tuple[frozenset[str], ...]] = (frozenset({"g", "x", "p"}),)
    repeatable: ClassVar[bool] = True

    def form(self, specs: Any, spec: Spec, wanted: Flags = (True,), params: Params = (), name: str = "") -> Form:
        (source,) = specs
        operands = (
            KernelOperand("target", source.dtype, 0, source.gradient),
            KernelOperand("g", spec.dtype, 1, spec.gradient),
            KernelOperand("x", source.dtype, 2, source.strides),
        )
        loop = rule_loop(self, 0, spec.shape, operands, (("p", params[0]),))
        return Form(self, specs, spec, wanted, ("x",), (loop,), params, name)

    def fits(self, shapes: Shapes, params: Params, spec: Spec, specs: list[Any]) -> bool:
        return shapes == [spec.shape] and len(params) == len(specs) == 1

    def lower(self, step: ProgramStep, lowering: Lowering) -> None:
        lowering.ufunc(np.power, (*step.operands, step.params[0]), step.result)


# What stands in kernels/compiler/composed_operations.py: statements that fuse with others.


def powered_statements(instruction: Any, target: Any, program: Any) -> list[Any]:
    del program
    operation = statements.elementwise(OPS["power_scalar"], instruction.params, target.spec.dtype)
    wanted = composed_operations.wanted_of(instruction)
    return [statements.mapped(operation, target.spec.shape, instruction.operands, target, target.spec.strides, wanted)]


# What stands in tape/engine/kinds.py: pullbacks on tensors, and a batch of examples.


def powered_pullbacks(form: Form) -> Pullbacks:
    power = form.params[0]
    return Pullbacks(form, lambda *args: args[-2] * power * powered(args[-1]["x"], power - 1))


def powered_batch(step: Planned, operands: Sequence[Operand], _: Spec) -> Tensor:
    """A batch is an operand with one dim more."""
    return powered(operands[0].value, step.params[0])


@pytest.fixture(params=[True, False], ids=["statements", "called"], autouse=True)
def _registered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Know the kind for a test; machine code has statements for it, or calls its kernels."""
    monkeypatch.setitem(kinds.KINDS, Powered, Kind(powered_batch, powered_pullbacks, is_followed=True))
    if request.param:
        monkeypatch.setitem(composed_operations._MAKERS, Powered, powered_statements)
    Powered(name="powered", doc="Power.", grad_fn="PoweredBackward0", pullback=(lambda g, x, p: g * p * x ** (p - 1),))
    yield
    del OPS["powered"]


def powered(x: Tensor, power: float) -> Tensor:
    return record.finish(OPS["powered"], (x,), as_array(x) ** power, (power,))


def f(x: Tensor) -> Tensor:
    return (powered(x * 2.0, 3.0) + x).sum()


X = np.array([0.5, -1.5, 2.0])
SLOPES = 24 * X**2 + 1


def test_gradients() -> None:
    x = tape.tensor(X, requires_grad=True)
    y = f(x)
    np.testing.assert_allclose(y.item(), (8 * X**3 + X).sum())
    (gradient,) = grad(y, x)
    np.testing.assert_allclose(gradient.numpy(), SLOPES)
    assert gradcheck(f, x)
    assert gradgradcheck(f, x)


def test_programs(tmp_path: Any) -> None:
    program, compiled = tape.record(f, X), tape.compile(tape.value_and_grad(f), mode="max")
    program.save(tmp_path / "powered")
    for run in (program.value_and_grad, tape.load(tmp_path / "powered").value_and_grad, compiled):
        for _ in range(4):
            value, gradient = run(X)
            np.testing.assert_allclose(np.asarray(value), (8 * X**3 + X).sum())
            np.testing.assert_allclose(np.ravel(gradient), SLOPES)


def test_batches() -> None:
    batch = np.stack([X, 2 * X])
    found = tape.func.vmap(tape.func.grad(f))(tape.tensor(batch))
    np.testing.assert_allclose(found.numpy(), 24 * batch**2 + 1)
