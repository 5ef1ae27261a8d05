"""tape: JIT-compiled, tape-based reverse-mode automatic differentiation with PyTorch's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

import kernels as _kernels

if getattr(_kernels, "DISTRIBUTION", None) != "tape-autograd":
    raise ImportError(
        f"another distribution's package 'kernels' ({getattr(_kernels, '__file__', None) or 'a bare folder'}) stands "
        "before tape-autograd's on the path, or in its place; use an environment of its own, or uninstall the other "
        "distribution and install tape-autograd again, since the two share a folder: "
        "pip uninstall kernels; pip install --force-reinstall --no-deps tape-autograd"
    )

from kernels.foundation.garbage_collector import uncollected as _uncollected

with _uncollected(lasting=True):
    from tape import (  # noqa: F401 (some install methods)
        array_api,
        autograd,
        exits,
        functions,
        in_place,
        indexing,
        linalg,
        numpy_protocols,
        numpy_ufuncs,
        random,
        tensor_types,
        turning,
    )
from tape.array_api import e, finfo, iinfo, inf, nan, newaxis, pi, result_type
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
    logspace,
    ones,
    ones_like,
    scalar_tensor,
    tensor,
    zeros,
    zeros_like,
)
from tape.devices import accelerator, backends, cuda, device
from tape.dtypes import (
    bool,  # noqa: A004 (PyTorch's names)
    double,
    float,  # noqa: A004
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int,  # noqa: A004
    int8,
    int16,
    int32,
    int64,
    long,
    set_default_dtype,
    short,
    uint8,
)
from tape.exits import equal
from tape.functions import *  # noqa: F403 (one for each record)
from tape.gradients import value_and_grad
from tape.inference import inference_mode, is_inference, is_inference_mode_enabled
from tape.later import found_in as _found_in
from tape.modes import is_grad_enabled
from tape.products import dot, matmul, mm, mv
from tape.quiet import set_quiet
from tape.random import Generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from tape.reducing import amax, amin, max, mean, min, sum  # noqa: A004
from tape.sampling import rand, rand_like, randint, randint_like, randn, randn_like, randperm
from tape.serialization import load, save
from tape.shape import Size
from tape.shaping import as_strided, cat, clone, flatten, permute, reshape, squeeze, stack, t, transpose, unsqueeze
from tape.switches import enable_grad, no_grad, set_grad_enabled
from tape.tensor import Tensor, is_tensor
from tape.tensor_types import *  # noqa: F403 (one for each dtype)

if _TYPE_CHECKING:
    from tape import func, optimize, quadrature, sparse, special, stats  # noqa: F401 (stats: a module)
    from tape.compiled_ops import custom
    from tape.documentation import op_table
    from tape.listings import listing
    from tape.nonfinite import first_nonfinite
    from tape.program_making import record
    from tape.programs import Program
    from tape.vmapping import vmap

# What many programs never call, and what installs nothing, is imported at its first use.
__getattr__ = _found_in(
    "tape",
    {
        "Program": "tape.programs",
        "custom": "tape.compiled_ops",
        "first_nonfinite": "tape.nonfinite",
        "func": "tape.func",
        "listing": "tape.listings",
        "op_table": "tape.documentation",
        "optimize": "tape.optimize",
        "quadrature": "tape.quadrature",
        "record": "tape.program_making",
        "sparse": "tape.sparse",
        "special": "tape.special",
        "stats": "tape.stats",
        "vmap": "tape.vmapping",
    },
)
__version__ = "0.1.0"
concat = concatenate = cat

__all__ = [
    "Generator",
    "Program",
    "Size",
    "Tensor",
    "__version__",
    "accelerator",
    "amax",
    "amin",
    "arange",
    "as_strided",
    "as_tensor",
    "autograd",
    "backends",
    "bool",
    "cat",
    "clone",
    "concat",
    "concatenate",
    "cuda",
    "custom",
    "device",
    "dot",
    "double",
    "e",
    "empty",
    "empty_like",
    "enable_grad",
    "equal",
    "eye",
    "finfo",
    "first_nonfinite",
    "flatten",
    "float",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "full",
    "full_like",
    "func",
    "get_default_dtype",
    "get_rng_state",
    "half",
    "iinfo",
    "inf",
    "inference_mode",
    "initial_seed",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "is_tensor",
    "linalg",
    "linspace",
    "listing",
    "load",
    "logspace",
    "long",
    "manual_seed",
    "matmul",
    "max",
    "mean",
    "min",
    "mm",
    "mv",
    "nan",
    "newaxis",
    "no_grad",
    "ones",
    "ones_like",
    "op_table",
    "optimize",
    "permute",
    "pi",
    "quadrature",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random",
    "randperm",
    "record",
    "reshape",
    "result_type",
    "save",
    "scalar_tensor",
    "seed",
    "set_default_dtype",
    "set_grad_enabled",
    "set_quiet",
    "set_rng_state",
    "short",
    "sparse",
    "special",
    "squeeze",
    "stack",
    "sum",
    "t",
    "tensor",
    "transpose",
    "uint8",
    "unsqueeze",
    "value_and_grad",
    "vmap",
    "zeros",
    "zeros_like",
]
__all__ += functions.__all__ + tensor_types.__all__


def __dir__() -> list[str]:
    """Return the public names; what this package is made of is found by its full name."""
    return sorted(__all__)
