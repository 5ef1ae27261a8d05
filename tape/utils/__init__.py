"""PyTorch's ``torch.utils``: of it, ``checkpoint`` and ``data``."""

from tape.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
