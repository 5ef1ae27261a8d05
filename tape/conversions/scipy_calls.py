"""The error for a tensor given to a SciPy function that converts its arguments: it names what tape has instead."""

from __future__ import annotations

import sys
from types import FrameType

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
    "scipy.optimize.minimize": "tape.value_and_grad",
    "scipy.sparse.linalg.spsolve": "tape.sparse.spsolve",
    "scipy.spatial.distance.cdist": "tape.cdist",
    "scipy.spatial.distance.pdist": "tape.pdist",
}
"""tape's functions by the names of SciPy's; for a distribution, the object with its methods."""

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


def _wrapped(frame: FrameType) -> str | None:
    """Return the name of the function that one of SciPy's decorators is about to call."""
    function = frame.f_locals.get("f") or frame.f_locals.get("func")
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or not module.startswith("scipy."):
        return None
    package = ".".join(part for part in module.split(".") if not part.startswith("_"))
    return f"{package}.{getattr(function, '__name__', 'function')}"


def refusal() -> str:
    """Return the message for a tensor that requires grad and is to become an array; names a substitute for SciPy."""
    name = called()
    if name is None:
        return errors.NUMPY_EXIT
    known = EQUIVALENTS.get(name)
    if known is None and (owner := name.rpartition(".")[0]) in EQUIVALENTS:
        known = f"{EQUIVALENTS[owner]}.{name.rpartition('.')[2]}"
    if known is None and name.startswith("scipy.sparse."):
        known = "tape.sparse.CSR, which has gradients"
    remedy = f"use {known}" if known else "it computes on arrays, without gradients"
    return f"{name}: {remedy}. {errors.NUMPY_EXIT}"
