"""PyTorch's ``torch.autograd``: backward, grad, gradient modes, Variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernels.foundation.tables import getattr_of
from tape.autograd import graph
from tape.autograd.function import Function, once_differentiable
from tape.autograd.graph import Node, set_multithreading_enabled
from tape.engine.backward import backward_all as backward
from tape.engine.backward import grad
from tape.engine.graph_observers import detect_anomaly, set_detect_anomaly
from tape.engine.sweep_run import register_hook  # noqa: F401 (installs the method)
from tape.tensors.grad_modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from tape.tensors.modes import is_grad_enabled
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import AccumulateGrad, Tensor, constant_tensor

if TYPE_CHECKING:
    from tape.autograd import forward_ad, functional, profiler
    from tape.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

__getattr__ = getattr_of(
    "tape.autograd",
    {
        "forward_ad": "tape.autograd.forward_ad",
        "functional": "tape.autograd.functional",
        "GradcheckError": "tape.autograd.gradcheck",
        "gradcheck": "tape.autograd.gradcheck",
        "gradgradcheck": "tape.autograd.gradcheck",
        "profiler": "tape.autograd.profiler",
    },
)
__all__ = [
    "AccumulateGrad", "Function", "GradcheckError", "Node", "Variable", "backward", "detect_anomaly", "enable_grad",
    "forward_ad", "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled",
    "no_grad", "once_differentiable", "profiler", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _IsTensor(type):
    """Every tensor is a Variable, as in PyTorch."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_IsTensor):
    """``Variable(data)`` is a tensor of the same memory; kept for code from before tensors had gradients."""

    def __new__(cls, data: Any, requires_grad: bool = False) -> Tensor:  # type: ignore[misc]
        """Return the data as a tensor."""
        result = constant_tensor(tensor_of(data)._value)
        return result.requires_grad_() if requires_grad else result
