"""tape: JIT-compiled, tape-based reverse-mode automatic differentiation with PyTorch's interface."""

from __future__ import annotations

import sys as _sys
import typing as _typing

import kernels as _kernels

if getattr(_kernels, "DISTRIBUTION", None) != "tape-autograd":
    raise ImportError(
        f"another distribution's package 'kernels' ({getattr(_kernels, '__file__', None) or 'a bare folder'}) stands "
        "before that of this checkout of tape-autograd on the path; use an environment of its own for the checkout, or "
        "install it as a wheel, which keeps its kernels apart: pip install ."
    )

from kernels import __version__
from kernels.foundation.tables import getattr_of as _found_in
from kernels.foundation.tables import uncollected as _uncollected
from kernels.language.jit import set_quiet

if not getattr(_sys, "_is_gil_enabled", lambda: True)():  # Numba, which the line above imports, may switch it on
    raise ImportError(
        "tape-autograd counts on the interpreter's lock, which this free-threaded Python runs without: start it with "
        "PYTHON_GIL=1 in the environment, or as python -X gil=1"
    )

with _uncollected(lasting=True):
    from tape import array_api, autograd, functions, linalg, random  # noqa: F401
    from tape.engine import nodes as _nodes  # noqa: F401
    from tape.numpy_interface import protocols as _protocols  # noqa: F401
    from tape.operations import copied_views as _methods  # noqa: F401
    from tape.operations import indexing as _indexing  # noqa: F401
    from tape.operations import matmul as _numpy_ufuncs  # noqa: F401
    from tape.recording import attributes as _attributes
    from tape.recording import creation as _creation
    from tape.recording import to_python as _to_python  # noqa: F401 (it installs methods, as those above)
    from tape.recording import views as _views
    from tape.tensors import dtypes as _dtypes
    from tape.tensors import grad_modes as _grad_modes
from tape.array_api import e, finfo, iinfo, inf, nan, newaxis, pi, result_type
from tape.functions import *  # noqa: F403 (one for each record)
from tape.numpy_interface.sampling import rand, rand_like, randint, randint_like, randn, randn_like, randperm
from tape.operations.matmul import dot, matmul, mm, mv
from tape.operations.reductions import amax, amin, max, mean, min, sum  # noqa: A004
from tape.random import Generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from tape.recording.attributes import *  # noqa: F403 (one for each dtype)
from tape.recording.creation import *  # noqa: F403
from tape.recording.to_python import _rebuild_tensor, equal, save  # noqa: F401 (pickles name it)
from tape.recording.views import *  # noqa: F403
from tape.tensors.dtypes import *  # noqa: F403
from tape.tensors.grad_modes import *  # noqa: F403
from tape.tensors.modes import is_grad_enabled
from tape.tensors.tensor import Tensor, is_tensor
from tape.transforms.value_and_grad import value_and_grad

if _typing.TYPE_CHECKING:
    from tape import (  # noqa: F401 (stats: a module)
        distributions,
        func,
        implicit,
        interpolate,
        mpi,
        ndimage,
        nn,
        numpy,
        ode,
        optim,
        optimize,
        quadrature,
        signal,
        sparse,
        special,
        stats,
        uncertainty,
        utils,
    )
    from tape.checkpoints import checkpoint
    from tape.checks.first_nonfinite import first_nonfinite
    from tape.compiled.compiled_function import CompiledFunction
    from tape.compiled.compiled_gradient import compile  # noqa: A004 (PyTorch's name)
    from tape.compiled.native_calls import load
    from tape.ensembles import ensemble
    from tape.module_parameters import parameters
    from tape.numpy_interface.op_table import op_table
    from tape.programs.drawing import graph, make_dot
    from tape.programs.program import Program, get_num_threads, set_num_threads
    from tape.programs.record import record
    from tape.recording.foreign_calls import custom
    from tape.tensors.printing import listing
    from tape.transforms.vmap import vmap

_MODULES = (
    "distributions", "func", "implicit", "interpolate", "mpi", "ndimage", "nn", "numpy", "ode", "optim",
    "optimize", "quadrature", "signal", "sparse", "special", "stats", "uncertainty", "utils",
)  # fmt: skip
# What many programs never call, and what installs nothing, is imported at its first use. Type checkers see it above.
if not _typing.TYPE_CHECKING:
    __getattr__ = _found_in(
        "tape",
        {
            "CompiledFunction": "tape.compiled.compiled_function",
            "Program": "tape.programs.program",
            "checkpoint": "tape.checkpoints",
            "compile": "tape.compiled.compiled_gradient",
            "custom": "tape.recording.foreign_calls",
            "ensemble": "tape.ensembles",
            "first_nonfinite": "tape.checks.first_nonfinite",
            "get_num_threads": "tape.programs.program",
            "graph": "tape.programs.drawing",
            "listing": "tape.tensors.printing",
            "load": "tape.compiled.native_calls",
            "make_dot": "tape.programs.drawing",
            "op_table": "tape.numpy_interface.op_table",
            "parameters": "tape.module_parameters",
            "record": "tape.programs.record",
            "set_num_threads": "tape.programs.program",
            "vmap": "tape.transforms.vmap",
            **{name: f"tape.{name}" for name in _MODULES},
        },
        instead={
            "jit": "tape.compile(f) compiles, tape.record keeps one path of a function as a program",
            **dict.fromkeys(
                ("fft", "complex64", "complex128", "cfloat", "cdouble"), "complex numbers are not supported"
            ),
            "bfloat16": "dtypes of floats are tape.float64, tape.float32 and tape.float16",
            "distributed": "tape.ensemble runs a function on many inputs in processes; tape.mpi communicates",
        },
        page="docs/from_pytorch.md",
    )
concat = concatenate = _views.cat

__all__ = [
    "CompiledFunction", "Generator", "Program", "Tensor", "__version__", "amax", "amin", "autograd", "checkpoint",
    "compile", "concat", "concatenate", "custom", "distributions", "dot", "e", "ensemble", "equal", "finfo",
    "first_nonfinite", "func", "get_num_threads", "get_rng_state", "graph", "iinfo", "implicit", "inf", "initial_seed",
    "interpolate", "is_grad_enabled", "is_tensor", "linalg", "listing", "load", "make_dot", "manual_seed", "matmul",
    "max", "mean", "min", "mm", "mpi", "mv", "nan", "ndimage", "newaxis", "nn", "numpy", "ode", "op_table", "optim",
    "optimize", "parameters", "pi", "quadrature", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "random", "randperm", "record", "result_type", "save", "seed", "set_num_threads", "set_quiet", "set_rng_state",
    "signal", "sparse", "special", "sum", "uncertainty", "value_and_grad", "vmap",
]  # fmt: skip
__all__ += functions.__all__ + _attributes.__all__ + _creation.__all__
__all__ += _views.__all__ + _dtypes.__all__ + _grad_modes.__all__


def __dir__() -> list[str]:
    """Return the public names; what this package is made of is found by its full name."""
    return sorted(__all__)
