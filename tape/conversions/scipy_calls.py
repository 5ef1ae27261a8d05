"""The errors for tensors given to functions that convert their arguments, of SciPy and of Python's own modules.

They name the function, and what tape has instead.
"""

from __future__ import annotations

import sys
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FrameType
from typing import Any

import numpy as np

from tape import errors
from tape.conversions import number_calls

_DENSITIES = ("beta", "binom", "expon", "gamma", "lognorm", "multivariate_normal", "norm", "poisson", "t", "uniform")
_LINALG = (
    "cholesky", "det", "eigh", "eigvalsh", "inv", "lstsq", "lu", "lu_factor", "lu_solve", "norm", "pinv", "qr", "solve",
    "solve_banded", "solve_toeplitz", "solve_triangular", "solveh_banded", "svd",
)  # fmt: skip
_MINIMIZERS = (
    "basinhopping", "differential_evolution", "dual_annealing", "fmin", "fmin_bfgs", "fmin_cg", "fmin_cobyla",
    "fmin_l_bfgs_b", "fmin_ncg", "fmin_powell", "fmin_slsqp", "fmin_tnc", "minimize", "shgo",
)  # fmt: skip
"""They take a TypeError of the function's for another mistake, and say so instead."""
_SPECIAL = ("log_softmax", "logsumexp", "multigammaln", "polygamma", "sinc", "softmax", "zeta")
EQUIVALENTS: dict[str, str] = {
    **{f"scipy.special.{name}": f"tape.special.{name}" for name in _SPECIAL},
    **{f"scipy.linalg.{name}": f"tape.linalg.{name}" for name in _LINALG},
    **{f"scipy.optimize.{name}": "tape.value_and_grad" for name in _MINIMIZERS},
    **{f"scipy.stats.{name}": f"tape.stats.{name}" for name in _DENSITIES},
    "scipy.linalg.expm": "tape.linalg.matrix_exp",
    "scipy.linalg.svdvals": "tape.linalg.svdvals",
    "scipy.linalg.cho_solve": "tape.linalg.cholesky_solve",
    "scipy.linalg.block_diag": "tape.block_diag",
    "scipy.linalg.kron": "tape.kron",
    "scipy.integrate.trapezoid": "tape.trapezoid",
    "scipy.integrate.cumulative_trapezoid": "tape.cumulative_trapezoid",
    "scipy.integrate.fixed_quad": "tape.quadrature.gauss_legendre",
    "scipy.interpolate.interp1d": "tape.interp",
    "scipy.interpolate.interpn": "tape.interpn",
    "scipy.integrate.quad": "tape.quadrature.gauss_legendre",
    "scipy.optimize.fsolve": "tape.optimize.root",
    "scipy.optimize.root": "tape.optimize.root",
    "scipy.sparse.linalg.spsolve": "tape.sparse.spsolve",
    "scipy.spatial.distance.cdist": "tape.cdist",
    "scipy.spatial.distance.pdist": "tape.pdist",
    "math.degrees": "tape.rad2deg",
    "math.fabs": "tape.abs",
    "math.fsum": "tape.sum",
    "math.radians": "tape.deg2rad",
    "statistics.fmean": "tape.mean",
}
"""tape's functions by the names of SciPy's; for a distribution, the object with its methods."""

_ALIEN = ("math.remainder",)
"""Functions of numbers that mean something else than tape's of the same name."""
_DEEPEST = 40
"""Frames of SciPy's and NumPy's between a tensor and the call of the user."""


def _public(frame: FrameType) -> str:
    """Return the public name of the function that a frame runs; a method's name includes its class or object."""
    module = frame.f_globals["__name__"].split(".")
    package = ".".join(part for part in module if not part.startswith("_"))
    name = frame.f_code.co_name
    owner = frame.f_locals.get("self")
    if owner is None:
        return f"{package}.{name}"
    owner = getattr(owner, "dist", owner)  # of a frozen distribution
    kind = type(owner).__name__
    if name in ("__init__", "__call__"):
        return f"{package}.{kind}"
    owner_name = getattr(owner, "name", None)
    return f"{package}.{owner_name if isinstance(owner_name, str) else kind.removesuffix('_gen')}.{name}"


def called(x: Any) -> tuple[str | None, str]:
    """Return the name of the SciPy function that handed a tensor to NumPy, None if none did; and which argument."""
    frame: FrameType | None = sys._getframe(1)
    scipy_frame = wrapped = wrapper = None
    for _ in range(_DEEPEST):
        if frame is None:
            break
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package == "scipy" and not module.startswith("scipy._lib"):
            scipy_frame = frame
        elif package == "scipy":
            if wrapped is None:
                wrapped, wrapper = _wrapped(frame), frame
        elif scipy_frame is not None or wrapped is not None or package not in ("tape", "numpy"):
            break
        frame = frame.f_back
    if scipy_frame is None and wrapped is None and frame is not None:
        callee = number_calls.native_callee(frame)
        if getattr(callee, "__objclass__", None) is np.ndarray or callee in (np.array, np.asarray):
            return f"ndarray.{callee.__name__}", "an argument"
        if str(getattr(callee, "__module__", "")).startswith("scipy."):
            return _name(callee), "an argument"
    last = scipy_frame or wrapper
    part = (last and _parameter(last, x)) or "what a function given to it returned, or computed of its arguments"
    return (wrapped if scipy_frame is None else _public(scipy_frame)), part


def _parameter(frame: FrameType, x: Any) -> str | None:
    """Return which argument of the function that a frame runs is a tensor, or has it among others."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    named = {name: frame.f_locals.get(name) for name in code.co_varnames[:count]}
    extra = list(
        code.co_varnames[count : count + bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)]
    )
    if code.co_flags & CO_VARKEYWORDS:
        named.update(frame.f_locals.get(extra.pop()) or {})
    if code.co_flags & CO_VARARGS:
        named.update({str(i + 1): value for i, value in enumerate(frame.f_locals.get(extra.pop()) or ())})
    for name, value in named.items():
        if value is x or (isinstance(value, (list, tuple)) and any(part is x for part in value)):
            return f"its argument {name!r}"
    return None


def _numpy_function() -> str | None:
    """Return the name of NumPy's Python function that converts a tensor; None where it is NumPy's array of it."""
    frame: FrameType | None = sys._getframe(1)
    name = None
    while frame is not None and (package := frame.f_globals.get("__name__", "").partition(".")[0]) in ("tape", "numpy"):
        owner = frame.f_locals.get("self")
        called_name = frame.f_code.co_name if owner is None else type(owner).__name__
        if package == "numpy" and callable(getattr(np, called_name, None)):
            name = called_name
        frame = frame.f_back
    return name


def _wrapped(frame: FrameType) -> str | None:
    """Return the name of the function that one of SciPy's decorators is about to call."""
    function = frame.f_locals.get("f") or frame.f_locals.get("func")
    module = getattr(function, "__module__", None)
    return _name(function) if isinstance(module, str) and module.startswith("scipy.") else None


def _name(function: Any) -> str:
    """Return the public name of a function or class."""
    package = ".".join(part for part in function.__module__.split(".") if not part.startswith("_"))
    return f"{package}.{getattr(function, '__name__', 'function')}"


def refusal(x: Any) -> Exception:
    """Return the error for a tensor that requires grad and is to become an array; it names a substitute for SciPy."""
    name, part = called(x)
    if name in ("ndarray.array", "ndarray.asarray"):
        return RuntimeError(f"{errors.NUMPY_EXIT} Of tensors, tape.tensor([...]) and np.stack([...]) keep the gradient")
    if name is not None and name.startswith("ndarray."):
        method = name.removeprefix("ndarray.")
        better = f"np.{method}(array, t)" if hasattr(np, method) else "a function of tape"
        return RuntimeError(f"{name} makes an array of its argument: write {better}. {errors.NUMPY_EXIT}")
    if name is None and (numpys := _numpy_function()) is not None:
        return TypeError(f"np.{numpys} computes on arrays, without gradients. {errors.NUMPY_EXIT}")
    if name is None:
        return RuntimeError(errors.NUMPY_EXIT)
    is_minimizer = name.rpartition(".")[2] in _MINIMIZERS and name.startswith("scipy.optimize.")
    return (RuntimeError if is_minimizer else TypeError)(f"{_advice(name)}. {errors.NUMPY_EXIT} The tensor is {part}")


def refusal_of_number(frame: FrameType, x: Any) -> Exception | None:
    """Return the error for a tensor that requires grad and that the function called in a frame turns into a number.

    None where the user does so himself, or where the function has no gradient.
    """
    module = frame.f_globals.get("__name__", "")
    part: str | None = None
    if module in number_calls.MODULES:
        while frame.f_back is not None and frame.f_back.f_globals.get("__name__") == module:
            frame = frame.f_back
        name: str | None = _public(frame)
        part = _parameter(frame, x)
    elif module.partition(".")[0] in ("scipy", "numpy"):
        name, part = called(x)
    else:
        name, part = number_calls.number_function(frame, x)
    if name is None:
        return None
    return TypeError(
        f"{_advice(name)}. A tensor of shape {x.spec.shape} that requires grad, {part or 'an argument'}, would become "
        "a number and lose its gradient. Write .item() or .detach() where that is meant"
    )


def _advice(name: str) -> str:
    """Return the name of a function and what to use instead."""
    known = EQUIVALENTS.get(name)
    module, _, function = name.rpartition(".")
    if known is None and module in EQUIVALENTS:
        known = f"{EQUIVALENTS[module]}.{function}"
    if known is None and name.startswith("scipy.sparse."):
        known = "tape.sparse.CSR, which has gradients"
    if name == "complex":
        return "complex(t): tape has no complex numbers; compute with two real tensors"
    if name in number_calls.MODULES:
        return f"a function of {name}: write that of tape, or of tape.special"
    if module.partition(".")[0] in number_calls.MODULES:
        owners = [owner for owner in ("tape", "tape.special") if hasattr(sys.modules[owner], function)]
        known = known or (f"{owners[0]}.{function}" if owners and name not in _ALIEN else None)
        return f"{name}(t): write {known}(t)" if known else f"{name}(t): it computes on numbers, without gradients"
    return f"{name}: {f'use {known}' if known else 'it computes on arrays, without gradients'}"
