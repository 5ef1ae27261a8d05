"""PyTorch's ``torch.nn``: modules, layers, losses, initialisations."""

from typing import TYPE_CHECKING

from tape.nn import functional, init, layers, modules, parameter, sequences, utils
from tape.nn.layers import *  # noqa: F403
from tape.nn.modules import *  # noqa: F403
from tape.nn.sequences import *  # noqa: F403

if TYPE_CHECKING:
    from tape.nn.made_modules import *  # noqa: F403 (a stub, which .ci/stubs.py writes)

__all__ = ["functional", "init", "parameter", "utils"]
__all__ += layers.__all__ + modules.__all__ + sequences.__all__
