"""PyTorch's ``nn.utils``: gradients clipped, parameters as one vector; `rnn`: sequences padded."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

from tape.linalg import vector_norm
from tape.nn import rnn
from tape.recording import views
from tape.recording.creation import tensor
from tape.tensors.grad_modes import no_grad
from tape.tensors.tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "rnn", "vector_to_parameters"]
sys.modules[f"{__name__}.rnn"] = rnn  # PyTorch's name of that module, as os.path is a name of posixpath


def _gradients(parameters: Any) -> list[Any]:
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    return [x.grad for x in parameters if x.grad is not None]


def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
    """Scale gradients so that the norm of all of them is at most ``max_norm``; return the norm that it was."""
    gradients = _gradients(parameters)
    if not gradients:
        return tensor(0.0)
    with no_grad():
        norms = [vector_norm(g, norm_type).reshape(1) for g in gradients]
        total = vector_norm(views.cat(norms), norm_type)
        if error_if_nonfinite and not math.isfinite(total):
            raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite")
        factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for g in gradients:
            g.mul_(factor)
    return total


def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Bring all elements of gradients between -clip_value and clip_value."""
    with no_grad():
        for g in _gradients(parameters):
            g.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """Return all parameters end to end."""
    return views.cat([x.reshape(-1) for x in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Set parameters to the parts of a vector."""
    start = 0
    for x in parameters:
        x.data = vec.detach()[start : start + x.numel()].reshape(x.shape).clone()
        start += x.numel()
