"""The errors for tensors given to functions that convert their arguments, of SciPy and of Python's own modules.

They name the function, and what tape has instead.
"""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from tape import errors

_DENSITIES = ("beta", "binom", "expon", "gamma", "lognorm", "multivariate_normal", "norm", "poisson", "t", "uniform")
_LINALG = (
    "cholesky", "det", "eigh", "eigvalsh", "inv", "lstsq", "lu", "lu_factor", "lu_solve", "norm", "pinv", "qr", "solve",
    "solve_banded", "solve_toeplitz", "solve_triangular", "solveh_banded", "svd",
)  # fmt: skip
_SPECIAL = ("log_softmax", "logsumexp", "multigammaln", "polygamma", "sinc", "softmax", "zeta")
EQUIVALENTS: dict[str, str] = {
    **{f"scipy.special.{name}": f"tape.special.{name}" for name in _SPECIAL},
    **{f"scipy.linalg.{name}": f"tape.linalg.{name}" for name in _LINALG},
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
    "scipy.optimize.minimize": "tape.value_and_grad",
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

_NUMBERS = ("math", "cmath", "statistics")
"""Python's modules of functions of numbers."""
_WITHOUT_GRADIENT = ("ceil", "floor", "isclose", "isfinite", "isinf", "isnan", "trunc")
"""Functions of numbers whose results have no gradient: what follows loses none."""
_LOADS = (
    "LOAD_NAME",
    "LOAD_GLOBAL",
    "LOAD_FAST",
    "LOAD_FAST_BORROW",
    "LOAD_FAST_CHECK",
    "LOAD_DEREF",
    "LOAD_CLASSDEREF",
)
_MISREAD = ("scipy.optimize.minimize",)
"""Functions of SciPy's that take a TypeError for another mistake, and say so instead."""
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
    if name == "__init__":
        return f"{package}.{kind}"
    owner_name = getattr(owner, "name", None)
    return f"{package}.{owner_name if isinstance(owner_name, str) else kind.removesuffix('_gen')}.{name}"


def called() -> str | None:
    """Return the name of the SciPy function that handed a tensor to NumPy; None if none did."""
    frame: FrameType | None = sys._getframe(1)
    scipy_frame = wrapped = None
    for _ in range(_DEEPEST):
        if frame is None:
            break
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package == "scipy" and not module.startswith("scipy._lib"):
            scipy_frame = frame
        elif package == "scipy":
            wrapped = wrapped or _wrapped(frame)
        elif scipy_frame is not None or wrapped is not None or package not in ("tape", "numpy"):
            break
        frame = frame.f_back
    return wrapped if scipy_frame is None else _public(scipy_frame)


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
    if not isinstance(module, str) or not module.startswith("scipy."):
        return None
    package = ".".join(part for part in module.split(".") if not part.startswith("_"))
    return f"{package}.{getattr(function, '__name__', 'function')}"


def refusal() -> Exception:
    """Return the error for a tensor that requires grad and is to become an array; it names a substitute for SciPy."""
    name = called()
    if name is None and (numpys := _numpy_function()) is not None:
        return TypeError(f"np.{numpys} computes on arrays, without gradients. {errors.NUMPY_EXIT}")
    if name is None:
        return RuntimeError(errors.NUMPY_EXIT)
    kind = RuntimeError if name in _MISREAD else TypeError
    return kind(f"{_advice(name)}. {errors.NUMPY_EXIT}")


def refusal_of_number(frame: FrameType, shape: tuple[int, ...]) -> Exception | None:
    """Return the error for a tensor that requires grad and that the function called in a frame turns into a number.

    None where the user does so himself, or where the function has no gradient.
    """
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    name = called() if package in ("scipy", "numpy") else _number_function(frame)
    if name is None:
        return None
    return TypeError(
        f"{_advice(name)}. A tensor of shape {shape} that requires grad, an argument or what a function given to it "
        "returned, would become a number and lose its gradient. Write .item() or .detach() where that is meant"
    )


def _number_function(frame: FrameType) -> str | None:
    """Return the name of the function of numbers that runs in a frame, or is called there from native code."""
    module = frame.f_globals.get("__name__", "")
    function = None if module in _NUMBERS else _callee(frame)
    if function is not None:
        module = getattr(function, "__module__", None)
    name = frame.f_code.co_name if function is None else getattr(function, "__name__", "")
    return f"{module}.{name}" if module in _NUMBERS and name not in _WITHOUT_GRADIENT else None


def _callee(frame: FrameType) -> Any:
    """Return what the instruction calls at which a frame is; None where no name says it."""
    path = _path(frame.f_code, frame.f_lasti)
    if not path:
        return None
    first, *attributes = path
    spaces = (frame.f_locals, frame.f_globals, frame.f_builtins)
    callee = next((space[first] for space in spaces if first in space), None)
    for attribute in attributes:  # of modules alone: an attribute of others may run code
        callee = vars(callee).get(attribute) if isinstance(callee, ModuleType) else None
    return callee


@functools.lru_cache(1024)
def _path(code: CodeType, at: int) -> tuple[str, ...]:
    """Return the dotted name that the call at an offset calls: what is loaded from where the call begins."""
    path: list[str] = []
    steps = list(dis.get_instructions(code))
    call = next((step for step in steps if step.offset == at), None)
    if call is None or not call.opname.startswith("CALL") or call.positions is None or call.positions.lineno is None:
        return ()
    begin = call.positions.lineno, call.positions.col_offset
    for step in steps[: steps.index(call)]:
        if step.positions is not None and (step.positions.lineno, step.positions.col_offset) == begin:
            if step.opname in _LOADS:
                path = [step.argval]
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                path.append(step.argval)
            elif step.opname.startswith("CALL"):
                path = []
    return tuple(path)


def _advice(name: str) -> str:
    """Return the name of a function and what to use instead."""
    known = EQUIVALENTS.get(name)
    module, _, function = name.rpartition(".")
    if known is None and module in EQUIVALENTS:
        known = f"{EQUIVALENTS[module]}.{function}"
    if known is None and name.startswith("scipy.sparse."):
        known = "tape.sparse.CSR, which has gradients"
    if module in _NUMBERS:
        known = known or (f"tape.{function}" if hasattr(sys.modules["tape"], function) else None)
        return f"{name}(t): write {known}(t)" if known else f"{name}(t): it computes on numbers, without gradients"
    return f"{name}: {f'use {known}' if known else 'it computes on arrays, without gradients'}"
