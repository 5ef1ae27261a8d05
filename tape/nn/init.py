"""PyTorch's ``nn.init``: tensors filled in place with PyTorch's numbers for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tape.functions import where
from tape.linalg import qr
from tape.recording.creation import empty
from tape.recording.creation import eye as identity
from tape.tensors.grad_modes import no_grad

__all__ = [
    "calculate_gain", "constant_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

_GAINS = {"tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """Return by how much standard deviations are larger before an activation, by its name."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in (*_GAINS, "linear", "sigmoid", "conv1d", "conv2d", "conv3d", "conv_transpose2d"):
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS.get(nonlinearity, 1.0)


def _fill(name: str, doc: str, fill: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fills a tensor outside of all graphs, and returns it."""

    def run(tensor: Any, *args: Any, **named: Any) -> Any:
        with no_grad():
            fill(tensor, *args, **named)
        return tensor

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Fill with {doc}."
    return run


def _fans(tensor: Any) -> tuple[int, int]:
    """Return how many elements a number of the result is made of, and how many results are made of one element."""
    if tensor.dim() < 2:  # noqa: PLR2004
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _kaiming(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    fan = dict(zip(("fan_in", "fan_out"), _fans(tensor), strict=True))
    if mode not in fan:
        raise ValueError(f"Mode {mode} not supported, please use one of {list(fan)}")
    return calculate_gain(nonlinearity, a) / math.sqrt(fan[mode])


def _kaiming_uniform(
    x: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> None:
    bound = math.sqrt(3.0) * _kaiming(x, a, mode, nonlinearity)
    x.uniform_(-bound, bound, generator=generator)


def _kaiming_normal(
    x: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> None:
    x.normal_(0.0, _kaiming(x, a, mode, nonlinearity), generator=generator)


def _xavier(x: Any, gain: float) -> float:
    return gain * math.sqrt(2.0 / math.fsum(_fans(x)))


def _xavier_uniform(x: Any, gain: float = 1.0, generator: Any = None) -> None:
    bound = math.sqrt(3.0) * _xavier(x, gain)
    x.uniform_(-bound, bound, generator=generator)


def _orthogonal(x: Any, gain: float = 1.0, generator: Any = None) -> None:
    rows, columns = x.shape[0], x.numel() // x.shape[0]
    flat = empty(rows, columns, dtype=x.dtype).normal_(0.0, 1.0, generator=generator)
    q, r = qr(flat.t() if rows < columns else flat)
    q = q * r.diagonal().sign()
    x.copy_((q.t() if rows < columns else q).reshape(x.shape) * gain)


def _truncated(
    x: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> None:
    x.normal_(mean, std, generator=generator)
    while (outside := (x < a) | (x > b)).any():
        x.copy_(where(outside, empty(*x.shape, dtype=x.dtype).normal_(mean, std, generator=generator), x))


constant_ = _fill("constant_", "one number", lambda x, val: x.fill_(val))
zeros_ = _fill("zeros_", "zeros", lambda x: x.zero_())
ones_ = _fill("ones_", "ones", lambda x: x.fill_(1.0))
eye_ = _fill("eye_", "the identity matrix", lambda x: x.copy_(identity(*x.shape, dtype=x.dtype)))
uniform_ = _fill(
    "uniform_", "uniform numbers", lambda x, a=0.0, b=1.0, generator=None: x.uniform_(a, b, generator=generator)
)
normal_ = _fill(
    "normal_", "normal numbers", lambda x, mean=0.0, std=1.0, generator=None: x.normal_(mean, std, generator=generator)
)
trunc_normal_ = _fill("trunc_normal_", "normal numbers between a and b", _truncated)
kaiming_uniform_ = _fill(
    "kaiming_uniform_", "uniform numbers that keep the variance (He et al. 2015)", _kaiming_uniform
)
kaiming_normal_ = _fill("kaiming_normal_", "normal numbers that keep the variance (He et al. 2015)", _kaiming_normal)
xavier_uniform_ = _fill(
    "xavier_uniform_", "uniform numbers that keep the variance both ways (Glorot and Bengio 2010)", _xavier_uniform
)
xavier_normal_ = _fill(
    "xavier_normal_", "normal numbers that keep the variance both ways (Glorot and Bengio 2010)",
    lambda x, gain=1.0, generator=None: x.normal_(0.0, _xavier(x, gain), generator=generator),
)  # fmt: skip
orthogonal_ = _fill("orthogonal_", "a random matrix of orthonormal rows or columns (Saxe et al. 2013)", _orthogonal)
