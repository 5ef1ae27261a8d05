"""Modules as functions of their state, hooks that want gradients, and the profiler: as PyTorch's programs use them."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from tape import nn
from tape.autograd import profiler
from tape.func import functional_call, stack_module_state, vmap

pytestmark = pytest.mark.quick


class Net(nn.Module):
    """A layer, a norm and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        """Return scores."""
        return self.last(tape.relu(self.norm(self.first(x))))


def networks(count: int) -> list[Any]:
    tape.manual_seed(0)
    made = [Net() for _ in range(count)]
    for i, net in enumerate(made):
        net.norm.running_mean.fill_(0.1 * i)
    return [net.eval() for net in made]


X = tape.tensor(np.random.default_rng(0).normal(size=(6, 4)))


def test_an_ensemble_is_one_mapped_call() -> None:
    models = networks(3)
    params, buffers = stack_module_state(models)
    one = copy.deepcopy(models[0]).to("meta")
    assert params["first.weight"].shape == (3, 5, 4)
    assert params["first.weight"].is_leaf
    assert not buffers["norm.running_mean"].requires_grad
    together = vmap(lambda p, b, x: functional_call(one, (p, b), (x,)), in_dims=(0, 0, None))(params, buffers, X)
    np.testing.assert_allclose(together.detach(), [m(X).detach() for m in models], rtol=1e-12)
    together.square().sum().backward()
    models[1](X).square().sum().backward()
    np.testing.assert_allclose(params["last.weight"].grad[1], models[1].last.weight.grad, rtol=1e-10)


def test_gradients_of_single_examples() -> None:
    (model,), target = networks(1), tape.tensor([0, 2, 1, -100, 2, 1])
    own = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: Any, x: Any, t: Any) -> Any:
        scores = functional_call(model, params, x.unsqueeze(0))
        return nn.functional.cross_entropy(scores, t.unsqueeze(0), reduction="sum")

    found = vmap(tape.func.grad(loss), in_dims=(None, 0, 0))(own, X, target)
    for i in range(len(X)):
        model.zero_grad()
        loss({}, X[i], target[i]).backward()
        np.testing.assert_allclose(found["first.weight"][i], model.first.weight.grad, atol=1e-12)
    assert not found["first.weight"][3].any()


def test_state_is_replaced_for_one_call() -> None:
    model, x = nn.Linear(2, 1), tape.ones(2)
    ones = {"weight": tape.ones(1, 2), "bias": tape.zeros(1)}
    before = model(x).item()
    assert functional_call(model, ones, x).item() == 2.0
    assert functional_call(model, (ones,), kwargs={"input": x}).item() == 2.0
    assert model(x).item() == before
    with pytest.raises(RuntimeError, match="Missing"):
        functional_call(model, {"weight": ones["weight"]}, x, strict=True)
    with pytest.raises(RuntimeError, match="Unexpected"):
        functional_call(model, {**ones, "more": x}, x, strict=True)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        functional_call(model, (ones, ones), x)
    with pytest.raises(RuntimeError, match="got 0"):
        stack_module_state([])
    with pytest.raises(RuntimeError, match="mode"):
        stack_module_state([model, nn.Linear(2, 1).eval()])
    norm = nn.BatchNorm1d(2)
    seen = tape.zeros(2)
    functional_call(norm, {"running_mean": seen}, (tape.tensor([[0.0, 1.0], [2.0, 3.0]]),))
    assert seen.tolist() == [0.1, 0.2]
    assert norm.running_mean.tolist() == [0.0, 0.0]


def test_shared_parameters_are_replaced_together() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    x, two = tape.ones(2), 2.0 * tape.eye(2)
    assert functional_call(model, {"0.weight": two}, x).tolist() == [4.0, 4.0]
    alone = functional_call(model, {"0.weight": two}, x, tie_weights=False)
    np.testing.assert_allclose(alone.detach(), 2.0 * model[1](x).detach())
    with pytest.raises(ValueError, match="shared"):
        functional_call(model, {"0.weight": two, "1.weight": two.clone()}, x)


def test_backward_hooks_see_gradients_and_change_them() -> None:
    tape.manual_seed(0)
    model, x, seen = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), tape.ones(5, 3), list[Any]()

    def note(module: Any, grad_input: Any, grad_output: Any) -> None:
        seen.append((type(module).__name__, grad_input, grad_output))

    handles = [layer.register_full_backward_hook(note) for layer in model]
    model(x).sum().backward()
    assert [name for name, _, _ in seen] == ["Linear", "Tanh", "Linear"]
    assert seen[2][1] == (None,)
    np.testing.assert_array_equal(seen[0][1][0], seen[1][2][0])
    np.testing.assert_array_equal(seen[0][2][0], np.ones((5, 2)))
    for handle in handles:
        handle.remove()
    plain = [p.grad for p in model.parameters()]
    model.zero_grad()
    twice = model[1].register_full_backward_hook(lambda _m, grad_input, _o: (2.0 * grad_input[0],))
    model[2].register_full_backward_pre_hook(lambda _m, grad_output: (3.0 * grad_output[0],))
    model(x).sum().backward()
    for p, g, factor in zip(model.parameters(), plain, (6.0, 6.0, 3.0, 3.0), strict=True):
        np.testing.assert_allclose(p.grad, factor * g)
    twice.remove()
    model[1].register_full_backward_hook(lambda _m, _i, _o: (None, None))
    with pytest.raises(RuntimeError, match="invalid number of grad_input, got 2, but expected 1"):
        model(x).sum().backward()


@pytest.mark.filterwarnings("ignore::tape.errors.CompileWarning")
def test_backward_hooks_run_in_compiled_functions() -> None:
    model, x, seen = nn.Linear(3, 2), tape.ones(4, 3, requires_grad=True), list[int]()
    model.register_full_backward_hook(lambda _m, grad_input, _o: seen.append(1) or (2.0 * grad_input[0],))
    run = tape.compile(lambda x: model(x).sum(), mode="max")
    for _ in range(4):
        x.grad = None
        run(x).backward()
        np.testing.assert_allclose(x.grad[0], 2.0 * model.weight.detach().sum(0))
    assert len(seen) == 4


def test_forward_hooks_are_called_in_order() -> None:
    model, seen = nn.Identity(), list[str]()
    model.register_forward_hook(lambda *_: seen.append("b"))
    model.register_forward_hook(lambda *_: seen.append("a"), prepend=True)
    model(tape.ones(1))
    assert seen == ["a", "b"]


def test_a_profile_counts_operations_and_backwards(tmp_path: Path) -> None:
    model, x = nn.Linear(4, 3), X
    with profiler.profile(record_shapes=True) as prof:
        for _ in range(3):
            with profiler.record_function("model"):
                y = model(x)
            y.sum().backward()
    counts = {event.key: event.count for event in prof.key_averages()}
    assert counts == {"model": 3, "t": 3, "mm": 3, "add": 3, "sum": 3, "backward": 3}
    assert [e.input_shapes for e in prof.key_averages(group_by_input_shape=True) if e.key == "mm"] == [[[6, 4], [4, 3]]]
    text = prof.key_averages().table(sort_by="count", row_limit=2)
    assert "# of Calls" in text
    assert "Self CPU time total" in text
    assert 0.0 < prof.self_cpu_time_total == pytest.approx(sum(e.self_cpu_time_total for e in prof.function_events))
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == len(prof.function_events)
    with pytest.raises(RuntimeError, match="profile"):
        vmap(lambda row: profiler.profile().__enter__() and row)(x)
    with profiler.profile(enabled=False) as prof:
        model(x)
    assert not prof.key_averages()
