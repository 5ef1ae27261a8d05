"""Optimizers and schedules: beside formulas in NumPy, and beside PyTorch where it is installed."""

from __future__ import annotations

import copy
import importlib.util
import math
from typing import Any

import numpy as np
import pytest

import tape
from tape.optim import lr_scheduler

pytestmark = pytest.mark.quick

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=shape) for shape in ((4, 3), (3,), (3, 1))]
X = RNG.normal(size=(20, 4))
Y = np.sin(X.sum(1, keepdims=True))

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 1e-4, "momentum": 0.5, "dampening": 0.5, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 1e-3, "maximize": True, "eps": 1e-3}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "amsgrad": True, "betas": (0.8, 0.99), "weight_decay": 0.1}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9, "weight_decay": 0.01}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1, "weight_decay": 0.1}),
]
SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 7, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 10, 10]}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.95**epoch}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: 0.95**epoch, lambda epoch: 1 / (1 + epoch)]}),
    ("ConstantLR", {}),
    ("LinearLR", {"total_iters": 8}),
    ("PolynomialLR", {"power": 2.0, "total_iters": 9}),
    ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.001}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 31, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.1, "epochs": 10, "steps_per_epoch": 4, "anneal_strategy": "linear",
                    "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": [0.1, 0.2], "total_steps": 31, "div_factor": 10.0}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 40, "three_phase": True, "base_momentum": 0.8}),
]  # fmt: skip


def pytorch() -> Any:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    torch = importlib.import_module("torch")
    torch.set_default_dtype(torch.float64)
    return torch


def trained(lib: Any, name: str, options: dict[str, Any], steps: int, schedule: Any = None) -> Any:
    """Return losses, weights and rates of a small network's training."""
    params = [lib.tensor(w.copy()).requires_grad_() for w in WEIGHTS]
    groups = params if name == "LBFGS" else [{"params": params[:2]}, {"params": params[2:], "lr": 0.02}]
    optimizer = getattr(lib.optim, name)(groups, **options)
    scheduler = schedule and getattr(lib.optim.lr_scheduler, schedule[0])(optimizer, **schedule[1])
    x, y, losses, rates = lib.tensor(X), lib.tensor(Y), [], []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((lib.tanh(x @ params[0] + params[1]) @ params[2] - y) ** 2).mean()
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(optimizer.step(closure).item())
        if scheduler:
            scheduler.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
    return losses, [p.detach().numpy().copy() for p in params], rates


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_numbers_are_pytorchs(name: str, options: dict[str, Any]) -> None:
    torch = pytorch()
    theirs, ours = (trained(lib, name, options, 100) for lib in (torch, tape))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9)
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"max_iter": 4, "history_size": 5, "lr": 0.8},
        {"line_search_fn": "strong_wolfe", "max_iter": 6},
        {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 5},
    ],
)
def test_lbfgs_has_pytorchs_numbers(options: dict[str, Any]) -> None:
    theirs, ours = (trained(lib, "LBFGS", options, 3) for lib in (pytorch(), tape))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_goes_on_from_where_a_closure_has_put_the_parameters(search: str | None) -> None:
    def found(lib: Any) -> Any:
        p = lib.tensor([-1.5, 2.0], requires_grad=True)
        optimizer = lib.optim.LBFGS([p], lr=0.5, max_iter=6, line_search_fn=search)

        def closure() -> Any:
            with lib.no_grad():
                p.clamp_(-1.0, 0.75)
            optimizer.zero_grad()
            loss = (1 - p[0]) ** 2 + 10 * (p[1] - p[0] ** 2) ** 2
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(4)], p.tolist()

    theirs, ours = found(pytorch()), found(tape)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=[name for name, _ in SCHEDULES])
def test_rates_are_pytorchs(schedule: Any) -> None:
    for name, options in (("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {"lr": 0.1})):
        if name == "Adam" and schedule[0] != "OneCycleLR":
            continue
        theirs, ours = (trained(lib, name, options, 30, schedule) for lib in (pytorch(), tape))
        np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-8)


def test_schedules_in_sequence_chained_and_on_a_plateau_are_pytorchs() -> None:
    def rates(lib: Any) -> list[float]:
        of, made = lib.optim.lr_scheduler, []

        def fresh() -> Any:
            return lib.optim.SGD([lib.ones(1).requires_grad_()], lr=0.1)

        optimizer = fresh()
        parts = [of.LinearLR(optimizer, total_iters=5), of.ExponentialLR(optimizer, 0.9)]
        schedule = of.SequentialLR(optimizer, [*parts, of.CosineAnnealingLR(optimizer, 10)], [5, 12])
        for _ in range(25):
            optimizer.step()
            schedule.step()
            made.append(optimizer.param_groups[0]["lr"])
        optimizer = fresh()
        schedule = of.ChainedScheduler([of.ConstantLR(optimizer), of.ExponentialLR(optimizer, 0.9)])
        for _ in range(9):
            optimizer.step()
            schedule.step()
            made.append(optimizer.param_groups[0]["lr"])
        optimizer = fresh()
        schedule = of.ReduceLROnPlateau(optimizer, patience=2, cooldown=1, min_lr=1e-3)
        for metric in [1, 0.9, 0.91, 0.92, 0.95, 0.99, 0.9, 0.95, 0.8, *np.linspace(0.81, 0.9, 12)]:
            schedule.step(metric)
            made.append(optimizer.param_groups[0]["lr"])
        return made

    np.testing.assert_allclose(rates(tape), rates(pytorch()), rtol=1e-12)


def test_steps_are_those_of_the_papers() -> None:
    w, g = np.array([1.0, -2.0]), np.array([0.5, 3.0])

    def after(name: str, **options: Any) -> Any:
        p = tape.tensor(w, requires_grad=True)
        optimizer = getattr(tape.optim, name)([p], **options)
        for _ in range(4):
            p.grad = tape.tensor(g)
            optimizer.step()
        return p.detach().numpy()

    v, p = np.zeros(2), w.copy()
    m, s, q = np.zeros(2), np.zeros(2), w.copy()
    total, r = np.zeros(2), w.copy()
    mean, u = np.zeros(2), w.copy()
    for k in range(1, 5):
        v = 0.9 * v + g
        p -= 0.1 * v
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        q -= 0.01 * (m / (1 - 0.9**k)) / (np.sqrt(s / (1 - 0.999**k)) + 1e-8)
        total += g * g
        r -= 0.1 * g / (np.sqrt(total) + 1e-10)
        mean = 0.99 * mean + 0.01 * g * g
        u -= 0.1 * g / (np.sqrt(mean) + 1e-8)
    np.testing.assert_allclose(after("SGD", lr=0.1, momentum=0.9), p, rtol=1e-13)
    np.testing.assert_allclose(after("Adam", lr=0.01), q, rtol=1e-13)
    np.testing.assert_allclose(after("Adagrad", lr=0.1), r, rtol=1e-13)
    np.testing.assert_allclose(after("RMSprop", lr=0.1), u, rtol=1e-13)


def test_lbfgs_finds_minima() -> None:
    x = tape.tensor([-1.2, 1.0], requires_grad=True)
    optimizer = tape.optim.LBFGS([x], line_search_fn="strong_wolfe", max_iter=60)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx(24.2)
    np.testing.assert_allclose(x.tolist(), [1.0, 1.0], rtol=1e-4)


def test_rates_follow_closed_forms() -> None:
    def rates(schedule: Any, steps: int) -> list[float]:
        optimizer = tape.optim.SGD([tape.ones(1, requires_grad=True)], lr=2.0)
        made, scheduler = [], schedule(optimizer)
        for _ in range(steps):
            made += scheduler.get_last_lr()
            scheduler.step()
        return made

    assert rates(lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5), 5) == [2.0, 2.0, 1.0, 1.0, 0.5]
    assert rates(lambda o: lr_scheduler.LambdaLR(o, lambda k: 1 / (1 + k)), 3) == [2.0, 1.0, 2.0 / 3.0]
    cosine = rates(lambda o: lr_scheduler.CosineAnnealingLR(o, 4), 5)
    np.testing.assert_allclose(cosine, [1 + math.cos(math.pi * k / 4) for k in range(5)], atol=1e-15)


def test_state_dicts_go_on_where_they_were_taken() -> None:
    def pair() -> tuple[Any, Any]:
        p = tape.tensor([1.0, 2.0], requires_grad=True)
        return p, tape.optim.Adam([p], lr=0.1, amsgrad=True)

    (p, one), (q, two) = pair(), pair()
    for k in range(6):
        if k == 3:
            two.load_state_dict(copy.deepcopy(one.state_dict()))
            with tape.no_grad():
                q.copy_(p)
        for x, optimizer in ((p, one), (q, two))[: 1 if k < 3 else 2]:
            optimizer.zero_grad()
            (x**4).sum().backward()
            optimizer.step()
    assert p.tolist() == q.tolist()
    state = one.state_dict()
    assert set(state["state"][0]) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
    assert state["param_groups"][0]["params"] == [0]
    assert "Parameter Group 0" in repr(one)
    with pytest.raises(ValueError, match="other parameter groups"):
        tape.optim.SGD([p, q], lr=1.0).load_state_dict(state)


def test_parameters_without_a_gradient_stay_and_begin_later() -> None:
    p, q = (tape.tensor([1.0], requires_grad=True) for _ in range(2))
    optimizer = tape.optim.Adam([p, q], lr=0.1)
    p.grad = tape.ones(1)
    optimizer.step()
    assert (p.item(), q.item()) == (pytest.approx(0.9), 1.0)
    q.grad = tape.ones(1)
    optimizer.step()
    assert q.item() == pytest.approx(0.9)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_float32_stays_float32() -> None:
    p = tape.ones(3, dtype=tape.float32, requires_grad=True)
    optimizer = tape.optim.Adam([p], lr=0.1)
    for _ in range(4):
        p.grad = tape.ones(3, dtype=tape.float32)
        optimizer.step()
    assert p.dtype == tape.float32
    assert optimizer.state[p]["exp_avg"].dtype == tape.float32


def test_ones_own_optimizer_is_pytorchs_subclass() -> None:
    class Descent(tape.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @tape.no_grad()
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])

    p = tape.tensor([1.0, 2.0], requires_grad=True)
    optimizer = Descent([p], lr=0.5)
    (p * p).sum().backward()
    optimizer.step()
    assert p.tolist() == [0.0, 0.0]


def test_bad_input_says_what() -> None:
    p = tape.ones(2, requires_grad=True)
    for call, error, said in (
        (lambda: tape.optim.SGD(p), TypeError, "not a tensor"),
        (lambda: tape.optim.SGD([]), ValueError, "empty parameter list"),
        (lambda: tape.optim.SGD([p * 2]), ValueError, "non-leaf"),
        (lambda: tape.optim.SGD([2.0]), TypeError, "one of the params is float"),
        (lambda: tape.optim.SGD([{"params": [p]}, {"params": [p]}]), ValueError, "more than one parameter group"),
        (lambda: tape.optim.SGD([p], lr=-1.0), ValueError, "Invalid lr value: -1.0"),
        (lambda: tape.optim.Adam([p], betas=(0.9, 1.0)), ValueError, "Invalid betas value: 1.0"),
        (lambda: tape.optim.Adam([p], beta=0.9), TypeError, "unexpected keyword argument 'beta'"),
        (lambda: tape.optim.SGD([p], nesterov=True), ValueError, "Nesterov momentum requires"),
        (lambda: tape.optim.lr_scheduler.OneCycleLR(tape.optim.Adagrad([p]), 0.1, 9), ValueError, "momentum or beta1"),
        (lambda: tape.optim.lr_scheduler.OneCycleLR(tape.optim.Adam([p]), 0.1), ValueError, "either total_steps"),
        (lambda: tape.optim.LBFGS([p], line_search_fn="armijo"), RuntimeError, "only 'strong_wolfe'"),
    ):  # fmt: skip
        with pytest.raises(error, match=said):  # type: ignore[arg-type]
            call()


def test_a_step_is_one_native_call() -> None:
    from tape.optim import optimizers

    p = [tape.ones(n, requires_grad=True) for n in (2, 3, 4)]
    optimizer = tape.optim.Adam(p)
    before = optimizers._updated.calls["dynamic"]
    for _ in range(10):
        for x in p:
            x.grad = tape.ones(len(x))
        optimizer.step()
    assert optimizers._updated.calls["dynamic"] <= before + 2
