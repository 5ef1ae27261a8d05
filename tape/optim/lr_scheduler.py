"""PyTorch's schedules of learning rates, each a function of the epoch and of the rate at first."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau",
    "SequentialLR", "StepLR",
]  # fmt: skip


class LRScheduler:
    """A schedule: ``step()`` after each epoch sets ``group["lr"]`` to :meth:`rate` of the epoch and the rate at first.

    >>> optimizer = tape.optim.SGD([tape.ones(1, requires_grad=True)], lr=1.0)
    >>> schedule = tape.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.step()

    def rate(self, epoch: int, base: float, number: int) -> float:
        """Return the rate of a group, of this number, at an epoch."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, rate in zip(self.optimizer.param_groups, self.rates(self.last_epoch), strict=True):
            group["lr"] = rate

    def rates(self, epoch: int) -> list[float]:
        """Return the rates of all groups at an epoch."""
        return [self.rate(epoch, base, number) for number, base in enumerate(self.base_lrs)]

    def get_last_lr(self) -> list[float]:
        """Return the rates in force."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return all but the optimizer and functions."""
        return {k: v for k, v in vars(self).items() if k not in ("optimizer", "schedulers") and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        vars(self).update(state_dict)


Rate = Callable[..., float]


def _schedule(name: str, rate: Rate, doc: str, **defaults: Any) -> Any:
    """Return a class whose options are those of ``rate`` behind (epoch, base), in PyTorch's order."""
    names = rate.__code__.co_varnames[2 : rate.__code__.co_argcount]

    def begin(self: Any, optimizer: Any, *args: Any, last_epoch: int = -1, **named: Any) -> None:
        options = defaults | dict(zip(names, args, strict=False)) | named
        if len(args) > len(names):
            last_epoch = args[len(names)]
        if options.keys() != set(names):
            raise TypeError(f"{name}() takes the arguments optimizer, {', '.join(names)} and last_epoch")
        vars(self).update(options)
        LRScheduler.__init__(self, optimizer, last_epoch)

    def of_epoch(self: Any, epoch: int, base: float, number: int) -> float:
        options = [getattr(self, n) for n in names]
        return rate(epoch, base, *[x[number] if isinstance(x, list) and callable(x[0]) else x for x in options])

    return type(name, (LRScheduler,), {"__init__": begin, "rate": of_epoch, "__doc__": doc, "__module__": __name__})


def _polynomial(epoch: int, base: float, total_iters: int, power: float) -> float:
    return base * math.pow(1.0 - min(epoch, total_iters) / total_iters, power)


def _linear(epoch: int, base: float, start_factor: float, end_factor: float, total_iters: int) -> float:
    return base * (start_factor + (end_factor - start_factor) * min(epoch, total_iters) / total_iters)


def _several(epoch: int, base: float, milestones: Sequence[int], gamma: float) -> float:
    return base * gamma ** bisect_right(sorted(milestones), epoch)


def _cosine(epoch: int, base: float, T_max: int, eta_min: float) -> float:  # noqa: N803 (PyTorch's name)
    return eta_min + (base - eta_min) * (1 + math.cos(math.pi * epoch / T_max)) / 2


def _restarts(epoch: int, base: float, T_0: int, T_mult: int, eta_min: float) -> float:  # noqa: N803
    length = T_0
    while epoch >= length:
        epoch, length = epoch - length, length * T_mult
    return _cosine(epoch, base, length, eta_min)


StepLR = _schedule(
    "StepLR", lambda epoch, base, step_size, gamma: base * gamma ** (epoch // step_size),
    "The rate times ``gamma`` every ``step_size`` epochs.", gamma=0.1,
)  # fmt: skip
MultiStepLR = _schedule("MultiStepLR", _several, "The rate times ``gamma`` at each of the milestones.", gamma=0.1)
ExponentialLR = _schedule(
    "ExponentialLR", lambda epoch, base, gamma: base * gamma**epoch, "The rate times ``gamma`` every epoch."
)
LambdaLR = _schedule(
    "LambdaLR", lambda epoch, base, lr_lambda: base * lr_lambda(epoch),
    "The rate times a function of the epoch, or one of a list for each group.",
)  # fmt: skip
ConstantLR = _schedule(
    "ConstantLR", lambda epoch, base, factor, total_iters: base * (factor if epoch < total_iters else 1.0),
    "The rate times ``factor`` up to an epoch.", factor=1.0 / 3.0, total_iters=5,
)  # fmt: skip
LinearLR = _schedule(
    "LinearLR", _linear, "A factor that goes from one to another linearly.",
    start_factor=1.0 / 3.0, end_factor=1.0, total_iters=5,
)  # fmt: skip
PolynomialLR = _schedule(
    "PolynomialLR", _polynomial, "A power of what is left of the epochs.", total_iters=5, power=1.0
)
CosineAnnealingLR = _schedule("CosineAnnealingLR", _cosine, "Half a cosine, to ``eta_min`` and back.", eta_min=0.0)
CosineAnnealingWarmRestarts = _schedule(
    "CosineAnnealingWarmRestarts", _restarts, "Half cosines, each ``T_mult`` times as long as the one before.",
    T_mult=1, eta_min=0.0,
)  # fmt: skip


class OneCycleLR(LRScheduler):
    """Up to ``max_lr`` and down again within ``total_steps``, momentum the other way (Smith and Topin 2018).

    ``max_lr``: one rate, or a list of one a group. Where there are ``betas``, the first of them stands for momentum.
    """

    def __init__(
        self, optimizer: Any, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if cycle_momentum and optimizer.defaults.keys().isdisjoint(("momentum", "betas")):
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.total_steps: int = epochs * steps_per_epoch if total_steps is None else total_steps  # type: ignore[operator]
        rise = pct_start * self.total_steps - 1.0
        self.ends = [rise, 2.0 * rise, self.total_steps - 1.0] if three_phase else [rise, self.total_steps - 1.0]
        self.max_lrs = list(max_lr) if isinstance(max_lr, list | tuple) else [max_lr] * len(optimizer.param_groups)
        self.strategy, self.final_div_factor = anneal_strategy, final_div_factor
        self.momenta = [max_momentum, base_momentum, max_momentum, max_momentum] if cycle_momentum else []
        for group, top in zip(optimizer.param_groups, self.max_lrs, strict=True):
            if last_epoch == -1:
                group["initial_lr"] = top / div_factor
        super().__init__(optimizer, last_epoch)

    def rate(self, epoch: int, base: float, number: int) -> float:
        """Return the rate at a step."""
        if epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: tried to step {epoch} times; the number of steps is {self.total_steps}")
        again = [base] * (len(self.ends) - 2)
        return self._annealed(epoch, [base, self.max_lrs[number], *again, base / self.final_div_factor])

    def step(self, epoch: int | None = None) -> None:
        """Go to the next step."""
        super().step(epoch)
        if self.momenta:
            momentum = self._annealed(self.last_epoch, self.momenta)
            for group in self.optimizer.param_groups:
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum

    def _annealed(self, epoch: int, values: list[float]) -> float:
        """Return what lies between the values that the phases begin and end with."""
        phase = min(bisect_left(self.ends, epoch), len(self.ends) - 1)
        begin = self.ends[phase - 1] if phase else 0.0
        part = (epoch - begin) / (self.ends[phase] - begin)
        low, high = values[phase : phase + 2]
        return low + (high - low) * (part if self.strategy == "linear" else (1.0 - math.cos(math.pi * part)) / 2.0)


class SequentialLR(LRScheduler):
    """Schedules one behind the other: each begins, at its epoch 0, with a milestone."""

    def __init__(self, optimizer: Any, schedulers: list[Any], milestones: list[int], last_epoch: int = -1) -> None:
        self.schedulers, self.milestones = schedulers, milestones
        super().__init__(optimizer, last_epoch)

    def rates(self, epoch: int) -> list[float]:
        """Return the rates of the schedule in force."""
        at = bisect_right(self.milestones, epoch)
        return self.schedulers[at].rates(epoch - (self.milestones[at - 1] if at else 0))  # type: ignore[no-any-return]


class ChainedScheduler(LRScheduler):
    """Schedules at once: the rate at first times the factors of all."""

    def __init__(self, schedulers: Sequence[Any], optimizer: Any = None) -> None:
        self.schedulers = schedulers
        super().__init__(schedulers[0].optimizer if optimizer is None else optimizer)

    def rate(self, epoch: int, base: float, number: int) -> float:
        """Return the product."""
        factors = [float(s.rates(epoch)[number] / s.base_lrs[number]) for s in self.schedulers]
        return base * math.prod(factors)


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` where a metric has not become better for more than ``patience`` epochs."""

    def __init__(
        self, optimizer: Any, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        self.optimizer, self.last_epoch, self.mode, self.factor, self.patience = optimizer, 0, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = [min_lr] * len(optimizer.param_groups) if isinstance(min_lr, (int, float)) else list(min_lr)
        self.best, self.num_bad_epochs, self.cooldown_counter = math.inf if mode == "min" else -math.inf, 0, 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take notice of a metric."""
        metric, self.last_epoch = float(metrics), self.last_epoch + 1 if epoch is None else epoch
        up = self.mode != "min"
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1.0)
        bound = self.best if math.isinf(self.best) else self.best + (margin if up else -margin)
        better = metric > bound if up else metric < bound
        self.best = metric if better else self.best
        self.num_bad_epochs = 0 if better or self.cooldown_counter > 0 else self.num_bad_epochs + 1
        self.cooldown_counter = max(self.cooldown_counter - 1, 0)
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                rate = max(group["lr"] * self.factor, least)
                group["lr"] = rate if group["lr"] - rate > self.eps else group["lr"]
