"""tape: JIT-compiled, tape-based reverse-mode automatic differentiation with PyTorch's interface."""

from __future__ import annotations

import kernels as _kernels

if getattr(_kernels, "DISTRIBUTION", None) != "tape-autograd":
    raise ImportError(
        f"another distribution's package 'kernels' ({getattr(_kernels, '__file__', None) or 'a bare folder'}) stands before "
        "tape-autograd's on the path; use an environment of its own, or uninstall the other distribution"
    )

from tape import autograd, in_place, numpy_protocols  # noqa: F401 (they install methods)
from tape.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    manual_seed,
    ones,
    ones_like,
    rand,
    rand_like,
    randn,
    randn_like,
    tensor,
    zeros,
    zeros_like,
)
from tape.dtypes import *  # noqa: F403 (the names of dtypes)
from tape.dtypes import get_default_dtype, set_default_dtype
from tape.arithmetic import FUNCTIONS as _FUNCTIONS
from tape.gradients import value_and_grad
from tape.listing import listing
from tape.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from tape.products import dot, matmul, mm, mv
from tape.programs import Program, record
from tape.reducing import amax, amin, max, mean, min, sum  # noqa: A004
from tape.shape import Size
from tape.shaping import cat, clone, flatten, permute, reshape, squeeze, stack, t, transpose, unsqueeze
from tape.tensor import Tensor

__version__ = "0.1.0"
globals().update(_FUNCTIONS)
concat = concatenate = cat


def is_tensor(x: object) -> bool:
    """Return whether an object is a tensor."""
    return isinstance(x, Tensor)
