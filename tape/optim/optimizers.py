"""Optimizers: an update is one function of a parameter, its gradient and its state, and compiled for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, ClassVar

from tape.compiled.compiled_gradient import compile as compiled
from tape.functions import maximum, sqrt
from tape.recording.creation import full_like, zeros_like
from tape.recording.views import clone
from tape.tensors.grad_modes import enable_grad, no_grad
from tape.tensors.tensor import Tensor, constant_tensor

Update = Callable[..., tuple[Any, tuple[Any, ...]]]


def sgd(p: Any, g: Any, state: Any, step: Any, lr: Any, momentum: Any, dampening: Any, nesterov: bool) -> Any:
    """Return a parameter, and its momentum, after a step of gradient descent (Sutskever et al. 2013)."""
    del step
    if momentum is None:
        return p - lr * g, ()
    moved = momentum * state[0] + (1 - dampening) * g if state else g
    return p - lr * (g + momentum * moved if nesterov else moved), (moved,)


def adam(p: Any, g: Any, state: Any, step: Any, lr: Any, beta1: Any, beta2: Any, eps: Any, decoupled: Any) -> Any:
    """Return a parameter, and both moments, after a step of Adam (Kingma and Ba 2015); AdamW with ``decoupled``."""
    p = p if decoupled is None else p * (1 - lr * decoupled)
    first, second = state[0] + (g - state[0]) * (1 - beta1), beta2 * state[1] + (1 - beta2) * g * g
    largest = maximum(state[2], second) if state[2:] else second
    size = sqrt(largest) / sqrt(1 - beta2**step) + eps
    return p - lr / (1 - beta1**step) * (first / size), (first, second, *([largest] if state[2:] else []))


def rmsprop(p: Any, g: Any, state: Any, step: Any, lr: Any, alpha: Any, eps: Any, momentum: Any, centered: bool) -> Any:
    """Return a parameter, and its averages, after a step of RMSprop (Hinton 2012; centered: Graves 2013)."""
    del step
    square, *others = state
    square = alpha * square + (1 - alpha) * g * g
    made = [square]
    if centered:
        mean = others.pop(0)
        made.append(mean + (g - mean) * (1 - alpha))
        square = square - made[1] * made[1]
    change = g / (sqrt(square) + eps)
    if momentum is not None:
        change = momentum * others[0] + change
        made.append(change)
    return p - lr * change, tuple(made)


def adagrad(p: Any, g: Any, state: Any, step: Any, lr: Any, lr_decay: Any, eps: Any) -> Any:
    """Return a parameter, and its sum of squares, after a step of Adagrad (Duchi, Hazan, Singer 2011)."""
    total = state[0] + g * g
    return p - lr / (1 + (step - 1) * lr_decay) * (g / (sqrt(total) + eps)), (total,)


@compiled
def _updated(
    update: Update, params: Any, gradients: Any, states: Any, steps: Any, numbers: Any, decay: Any, maximize: bool
) -> Any:
    made = []
    for p, g, state, step in zip(params, gradients, states, steps, strict=True):
        upward = -g if maximize else g
        made.append(update(p, upward if decay is None else upward + decay * p, state, step, *numbers))
    return made


class Optimizer:
    """What PyTorch's optimizers share: ``param_groups``, ``state`` by parameter, ``zero_grad``, state dicts."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults, self.state = defaults, defaultdict[Any, dict[str, Any]](dict)
        self.param_groups: list[dict[str, Any]] = []
        if isinstance(params, Tensor):
            raise TypeError("params should be an iterable of tensors or dicts, not a tensor")
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, with options that are not the defaults."""
        params = param_group["params"]
        params = [p[1] if isinstance(p, tuple) else p for p in ([params] if isinstance(params, Tensor) else params)]
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        if not {id(p) for p in self.parameters()}.isdisjoint(map(id, params)):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append({**self.defaults, **param_group, "params": params})

    def parameters(self) -> list[Tensor]:
        """Return the parameters of all groups."""
        return [p for group in self.param_groups for p in group["params"]]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters by their gradients; ``closure`` computes the loss again, which is returned."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        for p in self.parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad.detach_().zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return the state and the groups, parameters by their numbers, as PyTorch has it."""
        numbers = {id(p): k for k, p in enumerate(self.parameters())}
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        return {"state": {numbers[id(p)]: dict(s) for p, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned; ValueError if the groups are others."""
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("loaded state dict has other parameter groups than this optimizer")
        by_number = dict(zip([k for g in groups for k in g["params"]], self.parameters(), strict=True))
        for group, loaded in zip(self.param_groups, groups, strict=True):
            group.update({k: deepcopy(value) for k, value in loaded.items() if k != "params"})
        self.state.clear()
        for k, state in state_dict["state"].items():
            self.state[by_number[k]] = {n: clone(x) if isinstance(x, Tensor) else x for n, x in state.items()}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {k}", *(f"    {n}: {group[n]}" for n in sorted(group) if n != "params")]
        return "\n".join([*lines, ")"])


_FURTHER = frozenset(("capturable", "differentiable", "foreach", "fused", "maximize"))


class Updating(Optimizer):
    """An optimizer that updates each parameter by itself: a step is one native call for all of a group.

    ``options`` are PyTorch's, in its order, with its defaults. ValueError for those that make no sense.
    """

    update: ClassVar[Update]
    options: ClassVar[dict[str, Any]]
    counts: ClassVar[bool] = True  # whether the state has PyTorch's ``step``

    def __init__(self, params: Any, *args: Any, **named: Any) -> None:
        options = self.options | dict(zip(self.options, args, strict=False)) | named
        for name in options.keys() - self.options.keys() - _FURTHER:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")
        for name in self.options:
            for x in options[name] if name == "betas" else (options[name],):
                if not 0 <= x < (1 if name == "betas" else float("inf")):
                    raise ValueError(f"Invalid {name} value: {x}")
        super().__init__(params, {"maximize": False} | options)

    def names(self, group: dict[str, Any]) -> Sequence[str]:
        """Return the names of what the state of a parameter holds, as the update has it."""
        raise NotImplementedError

    def first(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a parameter at first."""
        return {name: zeros_like(p) for name in self.names(group)}

    def coefficients(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Return the numbers that the update takes; None where a 0 makes no difference."""
        raise NotImplementedError

    def decay(self, group: dict[str, Any]) -> Any:
        """Return the weight decay that is added to gradients."""
        return group["weight_decay"] or None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters by their gradients; ``closure`` computes the loss again, which is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self._step(group, [p for p in group["params"] if p.grad is not None])
        return loss

    def _step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        names, states = self.names(group), [self.state[p] for p in params]
        for p, state in zip(params, states, strict=True):
            if self.counts:
                state["step"] = state.get("step", 0.0) + constant_tensor(1.0)
            if len(state) == self.counts:
                state.update(self.first(p, group))
        rows = [[state[name] for name in names if name in state] for state in states]
        made = _updated(
            type(self).update, [p.detach() for p in params], [p.grad for p in params], rows,
            [state.get("step") for state in states], self.coefficients(group), self.decay(group),
            bool(group["maximize"]),
        )  # fmt: skip
        for p, state, (value, values) in zip(params, states, made, strict=True):
            p.copy_(value)
            state.update(zip(names, values, strict=True))


class SGD(Updating):
    """Stochastic gradient descent with momentum; options and numbers are PyTorch's.

    >>> w = tape.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = tape.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.8, 1.6]
    """

    update, counts = staticmethod(sgd), False
    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-3,
        "momentum": 0,
        "dampening": 0,
        "weight_decay": 0,
        "nesterov": False,
    }

    def __init__(self, params: Any, *args: Any, **named: Any) -> None:
        super().__init__(params, *args, **named)
        if self.defaults["nesterov"] and (not self.defaults["momentum"] or self.defaults["dampening"]):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def names(self, group: dict[str, Any]) -> Sequence[str]:
        """Return the name of the momentum."""
        return ("momentum_buffer",) if group["momentum"] else ()

    def first(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Return nothing: the first gradient is the momentum."""
        return {}

    def coefficients(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Return the numbers of the group."""
        return group["lr"], group["momentum"] or None, float(group["dampening"]), group["nesterov"]


class Adam(Updating):
    """Adam; options and numbers are PyTorch's.

    >>> w = tape.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = tape.optim.Adam([w], lr=0.1)
    >>> for _ in range(100):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> bool((abs(w) < 0.1).all())
    True
    """

    update = staticmethod(adam)
    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False,
        "decoupled_weight_decay": False,
    }  # fmt: skip

    def names(self, group: dict[str, Any]) -> Sequence[str]:
        """Return the names of both moments, and of the largest."""
        return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []))

    def coefficients(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Return the numbers of the group."""
        decoupled = group["weight_decay"] if group["decoupled_weight_decay"] else 0
        return group["lr"], *map(float, group["betas"]), group["eps"], decoupled or None

    def decay(self, group: dict[str, Any]) -> Any:
        """Return the weight decay that is part of the gradient."""
        return None if group["decoupled_weight_decay"] else super().decay(group)


class AdamW(Adam):
    """Adam, whose weight decay is no part of the gradient (Loshchilov and Hutter 2019)."""

    options: ClassVar[dict[str, Any]] = Adam.options | {"weight_decay": 1e-2, "decoupled_weight_decay": True}


class RMSprop(Updating):
    """RMSprop; options and numbers are PyTorch's."""

    update = staticmethod(rmsprop)
    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": False,
    }  # fmt: skip

    def names(self, group: dict[str, Any]) -> Sequence[str]:
        """Return the names of the averages."""
        more = {"grad_avg": group["centered"], "momentum_buffer": group["momentum"] > 0}
        return ("square_avg", *(name for name, wanted in more.items() if wanted))

    def coefficients(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Return the numbers of the group."""
        return group["lr"], group["alpha"], group["eps"], group["momentum"] or None, group["centered"]


class Adagrad(Updating):
    """Adagrad; options and numbers are PyTorch's."""

    update = staticmethod(adagrad)
    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-2, "lr_decay": 0, "weight_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10,
    }  # fmt: skip

    def names(self, group: dict[str, Any]) -> Sequence[str]:
        """Return the name of the sum."""
        return ("sum",)

    def first(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Return the sum at first."""
        return {"sum": full_like(p, group["initial_accumulator_value"])}

    def coefficients(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Return the numbers of the group."""
        return group["lr"], float(group["lr_decay"]), group["eps"]
