"""Modules beside PyTorch's: a LeNet's convolutions, pooling, norms, cross-entropy; and a whole compiled training step.

`python -m pytest bench/bench_nn.py -s` prints a line a row: the loss and all gradients, in dynamic mode, in float64, as
PyTorch's eager mode has them; of the training step of an MLP, a compiled function of loss, gradient and Adam's update.
Interleaved pairs, processor time, one thread each; medians. Losses and gradients are compared with PyTorch's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bench import bars
from bench.bars import Scoreboard
from bench.rows import tape
from tape.testing import ratio

Make = Callable[[Any], tuple[Any, Callable[..., Any]]]
"""Of a library: what holds the parameters, and the loss of inputs."""


@dataclass(frozen=True)
class Row:
    """A model, its inputs, and by how much of PyTorch's time its own is bounded."""

    name: str
    make: Make
    arrays: tuple[Any, ...]
    at_most: float

    def __str__(self) -> str:
        """Return the name, which pytest shows."""
        return self.name


def _module(layer: Callable[[Any], Any]) -> Make:
    def make(library: Any) -> tuple[Any, Callable[..., Any]]:
        module = layer(library.nn)
        return module, lambda x: (module(x) * x.mean()).sum()

    return make


def _lenet(library: Any) -> tuple[Any, Callable[..., Any]]:
    nn = library.nn
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    return model, lambda x, target: nn.functional.cross_entropy(model(x), target)


def _mlp(library: Any) -> tuple[Any, Callable[..., Any]]:
    nn = library.nn
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    return model, lambda x, target: nn.functional.cross_entropy(model(x), target)


def _scores(library: Any) -> tuple[Any, Callable[..., Any]]:
    return library.nn.Identity(), library.nn.functional.cross_entropy


def _array(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


def _rows(batch: int) -> list[Row]:
    classes, of = np.arange(batch) % 10, f"of {batch}"
    return [
        Row(f"conv2d 1 to 6 {of}", _module(lambda nn: nn.Conv2d(1, 6, 5)), (_array(batch, 1, 28, 28),), 1.0),
        Row(f"conv2d 6 to 16 {of}", _module(lambda nn: nn.Conv2d(6, 16, 5)), (_array(batch, 6, 12, 12),), 1.0),
        Row(f"max_pool2d {of}", _module(lambda nn: nn.MaxPool2d(2)), (_array(batch, 6, 24, 24),), 1.0),
        Row(f"avg_pool2d {of}", _module(lambda nn: nn.AvgPool2d(2)), (_array(batch, 6, 24, 24),), 1.0),
        Row(f"LeNet {of}", _lenet, (_array(batch, 1, 28, 28), classes), 1.0),
        Row(f"layer norm {of}", _module(lambda nn: nn.LayerNorm(64)), (_array(batch, 64),), 1.2),
        Row(f"batch norm {of}", _module(lambda nn: nn.BatchNorm1d(64)), (_array(batch, 64),), 1.2),
        Row(f"batch norm of images {of}", _module(lambda nn: nn.BatchNorm2d(6)), (_array(batch, 6, 12, 12),), 1.2),
        Row(f"group norm {of}", _module(lambda nn: nn.GroupNorm(2, 6)), (_array(batch, 6, 12, 12),), 1.2),
        Row(f"cross-entropy {of}", _scores, (_array(batch, 10), classes), 2.0),
    ]


ROWS = [row for batch in (8, 64) for row in _rows(batch)]
BATCHES = (8, 64)
STEP_AT_LEAST = 10.0
STEPS = 20


def _torch() -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.set_num_threads(1)
    return torch


def _differentiated(library: Any, row: Row) -> Callable[[], list[Any]]:
    """Return a function that gives the loss and the gradients of inputs and parameters."""
    library.manual_seed(0)
    before = library.get_default_dtype()
    library.set_default_dtype(library.float64)
    module, loss = row.make(library)
    inputs = [library.tensor(a) for a in row.arrays]
    library.set_default_dtype(before)
    leaves = [*[x.requires_grad_() for x in inputs if x.is_floating_point()], *module.parameters()]

    def run() -> list[Any]:
        for x in leaves:
            x.grad = None
        value = loss(*inputs)
        value.backward()
        return [value, *[x.grad for x in leaves]]

    return run


def _agree(found: list[Any], wanted: list[Any]) -> None:
    for x, y in zip(found, wanted, strict=True):
        known = y.detach().numpy()
        np.testing.assert_allclose(x.detach().numpy(), known, rtol=1e-9, atol=1e-10 * (1.0 + np.abs(known).max()))


def _note(board: Scoreboard, name: str, figure: Any, wanted: str, *, passed: bool) -> None:
    line = f"{'pass' if passed else 'FAIL'}  {name}: {figure}; wanted {wanted}"
    board.note(line)
    sys.stdout.write(line + "\n")


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_layers(row: Row, scoreboard: Scoreboard) -> None:
    """A loss and its gradients, of PyTorch's time."""
    ours, theirs = _differentiated(tape(), row), _differentiated(_torch(), row)
    _agree(ours(), theirs())
    measured = ratio(ours, theirs, pairs=bars.PAIRS, clock=time.process_time)
    _note(scoreboard, row.name, measured, f"<= {row.at_most}", passed=measured.median <= row.at_most)


def _ours(x: Any, target: Any) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    """Return a training step in one compiled function, and the parameters."""
    library = tape()
    library.manual_seed(0)
    model, _ = _mlp(library)
    adam = library.optim.optimizers.adam

    def loss(params: Any, x: Any, target: Any) -> Any:
        scores = library.func.functional_call(model, params, x)
        return library.nn.functional.cross_entropy(scores, target)

    @library.compile(mode="max")
    def step(params: Any, states: Any, count: float, x: Any) -> Any:
        value, gradients = library.value_and_grad(loss)(params, x, target)
        made = {n: adam(p, gradients[n], states[n], count, 1e-3, 0.9, 0.999, 1e-8, None) for n, p in params.items()}
        return value, {n: p for n, (p, _) in made.items()}, {n: state for n, (_, state) in made.items()}

    params = {name: p.detach().clone() for name, p in model.named_parameters()}
    zeros = {name: (library.zeros_like(p), library.zeros_like(p)) for name, p in params.items()}
    now: list[Any] = [params, zeros, 0.0]

    def run() -> Any:
        now[2] += 1.0
        value, now[0], now[1] = step(*now, x)
        return value

    return run, lambda: list(now[0].values())


def _theirs(x: Any, target: Any) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    torch = _torch()
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    model, loss = _mlp(torch)
    torch.set_default_dtype(before)
    optimizer = torch.optim.Adam(model.parameters())

    def run() -> Any:
        optimizer.zero_grad()
        value = loss(x, target)
        value.backward()
        optimizer.step()
        return value

    return run, lambda: list(model.parameters())


def _steps(batch: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return both training steps, after some in which they agree."""
    arrays = _array(batch, 64), np.arange(batch) % 10
    ours, params = _ours(*map(tape().tensor, arrays))
    theirs, others = _theirs(*map(_torch().tensor, arrays))
    for _ in range(STEPS):
        _agree([ours(), *params()], [theirs(), *others()])
    return ours, theirs


@pytest.mark.parametrize("batch", BATCHES)
def test_training_step(batch: int, scoreboard: Scoreboard) -> None:
    """PyTorch's time over that of loss, gradient and Adam in one compiled function."""
    ours, theirs = _steps(batch)
    measured = ratio(theirs, ours, pairs=bars.PAIRS, clock=time.process_time)
    name = f"training step of an MLP 64-64-10 with Adam, batches of {batch}"
    _note(scoreboard, name, measured, f">= {STEP_AT_LEAST}", passed=measured.median >= STEP_AT_LEAST)


@pytest.mark.quick
@pytest.mark.parametrize("row", _rows(2), ids=str)
def test_answers(row: Row) -> None:
    """Losses and gradients are PyTorch's."""
    _agree(_differentiated(tape(), row)(), _differentiated(_torch(), row)())


@pytest.mark.quick
def test_steps_agree() -> None:
    """The parameters of compiled training steps are PyTorch's."""
    _steps(4)
