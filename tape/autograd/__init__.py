"""PyTorch's ``torch.autograd``: backward, grad, gradient modes, Variable."""

from __future__ import annotations

from typing import Any

from tape import errors
from tape.autograd.engine import backward_all as backward
from tape.autograd.engine import grad
from tape.autograd.graph import Node
from tape.modes import enable_grad, no_grad, set_grad_enabled
from tape.reducing import tensor_of
from tape.tensor import AccumulateGrad, Tensor, method, plain

__all__ = [
    "AccumulateGrad",
    "Function",
    "Node",
    "Variable",
    "backward",
    "enable_grad",
    "grad",
    "no_grad",
    "set_grad_enabled",
]


class _IsTensor(type):
    """Every tensor is a Variable, as in PyTorch."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_IsTensor):
    """``Variable(data)`` is a tensor of the same memory; kept for code from before tensors had gradients."""

    def __new__(cls, data: Any, requires_grad: bool = False) -> Tensor:  # type: ignore[misc]
        """Return the data as a tensor."""
        result = plain(tensor_of(data)._value)
        return result.requires_grad_() if requires_grad else result


class Function:
    """Operations with a backward of one's own: not in this version."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        raise NotImplementedError(errors.LATER.format("autograd.Function", "compose the operation from tape's own"))


def _later(name: str, remedy: str) -> None:
    def refuse(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(errors.LATER.format(name, remedy))

    refuse.__name__ = name
    method(name)(refuse)


_later("register_hook", "use retain_grad and read .grad after backward")
_later("register_post_accumulate_grad_hook", "read .grad after backward")
