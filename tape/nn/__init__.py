"""PyTorch's ``torch.nn``: modules, layers, losses, initialisations."""

import sys
from typing import TYPE_CHECKING

from tape.nn import functional, init, layers, modules, sequences, utils
from tape.nn.layers import *  # noqa: F403
from tape.nn.modules import *  # noqa: F403
from tape.nn.sequences import *  # noqa: F403

if TYPE_CHECKING:
    from tape.nn.made_modules import *  # noqa: F403 (a stub, which .ci/stubs.py writes)

parameter = modules
for _name in ("parameter", "modules.module"):  # where programs import Parameter and Module from
    sys.modules[f"{__name__}.{_name}"] = modules
__all__ = ["functional", "init", "utils"]
__all__ += layers.__all__ + modules.__all__ + sequences.__all__
