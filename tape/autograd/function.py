"""PyTorch's ``torch.autograd.function``: operations with a backward of their own."""

from __future__ import annotations

from tape.engine.custom_calls import FunctionCtx
from tape.engine.custom_function import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
