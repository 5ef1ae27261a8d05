"""PyTorch's ``torch.optim``: optimizers over parameters and their ``.grad``, and schedules of learning rates."""

from __future__ import annotations

from tape.optim import lr_scheduler
from tape.optim.lbfgs import LBFGS
from tape.optim.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

__all__ = ["LBFGS", "SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]
