"""Modules as arguments of transforms, and in compiled functions: what changes in a module is seen."""

import copy
from typing import Any

import numpy as np
import pytest

import tape
from tape import nn

pytestmark = pytest.mark.quick


def loss(model: Any, x: Any) -> Any:
    return (model(x) ** 2).sum()


def network() -> Any:
    tape.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1))


X = np.random.default_rng(0).normal(size=(5, 3))


class Tied(nn.Module):
    """Two layers of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        """Return both layers' result."""
        return self.b(tape.tanh(self.a(x)))


@pytest.mark.parametrize("make", [network, Tied])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_come_in_the_shape_of_a_module(make: Any, compiled: bool) -> None:
    model, x = make().eval(), tape.tensor(X)
    loss(model, x).backward()
    frozen = copy.deepcopy(model).requires_grad_(False)
    run = tape.compile(tape.value_and_grad(loss), mode="max") if compiled else tape.value_and_grad(loss)
    for _ in range(4):
        value, gradient = run(frozen, x)
    assert not value.requires_grad
    assert type(gradient) is type(model)
    assert [n for n, _ in gradient.named_parameters()] == [n for n, _ in model.named_parameters()]
    for p, g in zip(model.parameters(), gradient.parameters(), strict=True):
        np.testing.assert_allclose(g, p.grad, rtol=1e-12)
    if compiled:
        assert "replayed" in run.explain().splitlines()[0]


@pytest.mark.parametrize("make", [network, Tied])
def test_compiled_gradients_of_parameters_that_require_grad_have_gradients(make: Any) -> None:
    model, x = make().eval(), tape.tensor(X)
    run, seconds = tape.value_and_grad(loss), []
    compiled = tape.compile(run, mode="max")
    for function in (run, compiled, compiled, compiled, compiled):
        value, gradient = function(model, x)
        model.zero_grad()
        (value + sum((g**2).sum() for g in gradient.parameters())).backward()
        seconds.append([p.grad for p in model.parameters()])
    for found in seconds[1:]:
        for a, b in zip(found, seconds[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)
    assert compiled.calls["dynamic"] == 0


def test_transforms_take_modules() -> None:
    model, x = network().eval(), tape.tensor(X)
    assert tape.vmap(lambda m, row: m(row), in_dims=(None, 0))(model, x).shape == (5, 1)
    gradient = tape.func.grad(loss)(model, x)
    assert gradient[0].weight.shape == (4, 3)
    _, tangent = tape.func.jvp(loss, (model, x), (gradient, tape.zeros_like(x)))
    total = sum((g.detach().numpy() ** 2).sum() for g in gradient.parameters())
    np.testing.assert_allclose(tangent.item(), total)
    with pytest.raises(RuntimeError, match="structure"):
        tape.func.jvp(loss, (model, x), (nn.Linear(3, 1), tape.zeros_like(x)))
    found = tape.optimize.minimize(lambda m: ((m(x) - 1.0) ** 2).sum(), model)
    assert found.fun < 1e-6
    np.testing.assert_allclose(found.x(x).detach(), 1.0, atol=1e-3)


def test_a_compiled_function_sees_what_changes_in_a_module_that_it_reads() -> None:
    model, x = network(), tape.tensor(X)
    run = tape.compile(lambda x: model(x).sum(), mode="max")

    def check() -> None:
        for _ in range(3):
            tape.manual_seed(1)
            found = run(x).item()
            tape.manual_seed(1)
            assert abs(found - model(x).sum().item()) < 1e-12

    check()
    assert "replayed" in run.explain()
    changes = [
        model.eval,
        lambda: [p.data.add_(1.0) for p in model.parameters()],
        lambda: setattr(model[0], "weight", nn.Parameter(tape.ones(4, 3))),
        lambda: model.__setitem__(1, nn.ReLU()),
        lambda: model.append(nn.Linear(1, 2)),
        lambda: model[0].register_forward_hook(lambda _m, _i, y: y * 2.0),
        model.train,
    ]
    for change in changes:
        change()
        check()
    run(x).backward()
    assert model[0].bias.grad is not None


@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
def test_batch_norms_note_what_they_see_in_compiled_functions() -> None:
    norm, x = nn.BatchNorm1d(3), tape.tensor(X)
    other, run = copy.deepcopy(norm), tape.compile(lambda x: (norm(x) ** 3).sum(), mode="max")

    def check() -> None:
        for _ in range(4):
            assert abs(run(x).item() - (other(x) ** 3).sum().item()) < 1e-9
        np.testing.assert_array_equal(norm.running_var, other.running_var)
        assert int(norm.num_batches_tracked) == int(other.num_batches_tracked)

    check()
    for layer in (norm, other):
        layer.eval()
    check()
    for layer in (norm, other):
        layer.running_mean = tape.ones(3) * 7.0
    check()


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "elu", "leaky_relu"])
def test_compiled_calls_look_at_no_signature(name: str) -> None:
    """What ``help`` reads of functions is nothing that a replay depends on: to compare it took 100 times a replay."""
    function = getattr(tape.nn.functional, name)
    run = tape.compile(lambda x: function(x, x * 2.0).sum() if "loss" in name else function(x).sum(), mode="max")
    for k in range(4):
        run(np.arange(3.0) + k)
    assert "replayed" in run.explain()
    assert "class Signature" not in run.explain()
