"""PyTorch's ``torch.utils``: of it, ``checkpoint``."""

from tape.utils import checkpoint

__all__ = ["checkpoint"]
