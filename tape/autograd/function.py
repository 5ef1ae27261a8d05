"""PyTorch's ``torch.autograd.function``: operations with a backward of their own."""

from __future__ import annotations

from tape.engine.custom_function import Function, FunctionCtx, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
