"""PyTorch's ``nn.parameter``, where many programs import ``Parameter`` from."""

from tape.nn.modules import Buffer, Parameter

__all__ = ["Buffer", "Parameter"]
