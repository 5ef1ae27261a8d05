"""What tape has in place of functions of SciPy's and of Python's own modules: what errors say to write."""

from __future__ import annotations

import sys

MODULES = ("math", "cmath", "statistics")  # Python's modules of functions of numbers
_DENSITIES = ("beta", "binom", "expon", "gamma", "lognorm", "multivariate_normal", "norm", "poisson", "t", "uniform")
_LINALG = (
    "block_diag", "cho_factor", "cho_solve", "cholesky", "det", "eigh", "eigvalsh", "expm", "inv", "lstsq", "lu",
    "lu_factor", "lu_solve", "norm", "pinv", "qr", "solve", "solve_banded", "solve_toeplitz", "solve_triangular",
    "solveh_banded", "svd", "svdvals", "toeplitz",
)  # fmt: skip
_IMAGES = ("convolve", "correlate", "gaussian_filter", "map_coordinates", "shift")
_INTERPOLATIONS = ("CubicSpline", "RegularGridInterpolator", "interp1d")
_SIGNALS = ("convolve", "fftconvolve", "lfilter")
MINIMIZERS = (
    "basinhopping", "differential_evolution", "dual_annealing", "fmin", "fmin_bfgs", "fmin_cg", "fmin_cobyla",
    "fmin_l_bfgs_b", "fmin_ncg", "fmin_powell", "fmin_slsqp", "fmin_tnc", "minimize", "shgo",
)  # fmt: skip
"""They take a TypeError of the function's for another mistake, and say so instead."""
_MINIMA = ("brent", "brute", "direct", "fminbound", "golden", "minimize_scalar")
_ROOTS = (
    "anderson", "bisect", "brenth", "brentq", "broyden1", "broyden2", "diagbroyden", "excitingmixing", "fsolve",
    "linearmixing", "newton", "newton_krylov", "ridder", "root", "root_scalar", "toms748",
)  # fmt: skip
_LEAST_SQUARES = "tape.implicit.minimize(lambda x, *args: (f(x, *args) ** 2).sum(), x0, *args)"
_INITIAL_VALUES = ("BDF", "DOP853", "LSODA", "RK23", "RK45", "Radau", "complex_ode", "ode", "odeint", "solve_ivp")
_SEVERAL_INTEGRALS = "tape.quadrature.quad(f, a, b, *args), whose f is such an integral"
KRYLOV = ("bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr")
_SOLVES = ("factorized", "lsmr", "lsqr", "spilu", "splu", "spsolve", "spsolve_triangular")
_SPECIAL = ("log_softmax", "logsumexp", "multigammaln", "polygamma", "sinc", "softmax", "zeta")
EQUIVALENTS: dict[str, str] = {
    **{f"scipy.special.{name}": f"tape.special.{name}" for name in _SPECIAL},
    **{f"scipy.linalg.{name}": f"tape.linalg.{name}" for name in _LINALG},
    **{f"scipy.optimize.{name}": "tape.implicit.minimize(f, x0, *args)" for name in (*MINIMIZERS, *_MINIMA)},
    **{f"scipy.optimize.{name}": "tape.implicit.root(f, x0, *args)" for name in _ROOTS},
    **{f"scipy.optimize.{name}": _LEAST_SQUARES for name in ("curve_fit", "least_squares", "leastsq")},
    "scipy.optimize.fixed_point": "tape.implicit.fixed_point(f, x0, *args)",
    **{f"scipy.integrate.{name}": "tape.ode.solve(f, y0, t, *args)" for name in _INITIAL_VALUES},
    **{f"scipy.integrate.{name}": "tape.quadrature.quad(f, a, b, *args)" for name in ("quad", "quad_vec")},
    **{f"scipy.integrate.{name}": _SEVERAL_INTEGRALS for name in ("dblquad", "nquad", "tplquad")},
    **{f"scipy.sparse.linalg.{name}": f'tape.implicit.linear_solve(A, b, solver="{name}")' for name in KRYLOV},
    **{f"scipy.sparse.linalg.{name}": "tape.implicit.linear_solve(A, b)" for name in _SOLVES},
    **{f"scipy.sparse.linalg.{name}": "tape.linalg.eigh" for name in ("eigs", "eigsh", "lobpcg")},
    "scipy.sparse.linalg.LinearOperator": "tape.implicit.linear_solve(product, b)",
    "scipy.sparse.linalg.svds": "tape.linalg.svd",
    **{f"scipy.stats.{name}": f"tape.stats.{name}" for name in _DENSITIES},
    **{f"scipy.ndimage.{name}": f"tape.ndimage.{name}" for name in _IMAGES},
    **{f"scipy.ndimage.{name}1d": f"tape.ndimage.{name}" for name in ("convolve", "correlate", "gaussian_filter")},
    "scipy.ndimage.uniform_filter": "tape.ndimage.correlate",
    **{f"scipy.interpolate.{name}": f"tape.interpolate.{name}" for name in _INTERPOLATIONS},
    "scipy.interpolate.make_interp_spline": "tape.interpolate.CubicSpline",
    **{f"scipy.signal.{name}": f"tape.signal.{name}" for name in _SIGNALS},
    **{f"scipy.signal.{name}": "tape.signal.convolve" for name in ("convolve2d", "oaconvolve")},
    "scipy.integrate.simpson": "tape.quadrature.simpson",
    "scipy.linalg.kron": "tape.kron",
    "scipy.integrate.trapezoid": "tape.trapezoid",
    "scipy.integrate.cumulative_trapezoid": "tape.quadrature.cumulative_trapezoid",
    "scipy.integrate.fixed_quad": "tape.quadrature.gauss_legendre",
    "scipy.interpolate.interpn": "tape.interpn",
    "scipy.spatial.distance.cdist": "tape.cdist",
    "scipy.spatial.distance.pdist": "tape.pdist",
    "math.degrees": "tape.rad2deg",
    "math.fabs": "tape.abs",
    "math.fsum": "tape.sum",
    "math.radians": "tape.deg2rad",
    "statistics.fmean": "tape.mean",
}
"""tape's functions by the names of SciPy's; for a distribution, the object with its methods."""

_SCALED = "tape.sparse.csr(A) * t, of a tape.sparse.CSR"
_OF_MATRICES = {"dot": "A @ t", "multiply": _SCALED, "__mul__": _SCALED, "__truediv__": _SCALED.replace("*", "/")}
"""What is written for methods of SciPy's sparse matrices."""

_ALIEN = ("math.remainder",)  # functions of numbers that mean something else than tape's of the same name


def advice(name: str) -> str:
    """Return a function's name, and what tape has instead."""
    known = EQUIVALENTS.get(name)
    module, _, function = name.rpartition(".")
    if known is None and module in EQUIVALENTS:
        known = f"{EQUIVALENTS[module]}.{function}"
    if known is None and name.startswith("scipy.sparse."):
        known = _OF_MATRICES.get(function, "tape.sparse.CSR, which has gradients")
    if name == "complex":
        return "complex(t): tape has no complex numbers; compute with two real tensors"
    if name in MODULES:
        return f"a function of {name}: write that of tape, or of tape.special"
    if module.partition(".")[0] in MODULES:
        owners = [owner for owner in ("tape", "tape.special") if hasattr(sys.modules[owner], function)]
        known = known or (f"{owners[0]}.{function}" if owners and name not in _ALIEN else None)
        return f"{name}(t): write {known}(t)" if known else f"{name}(t): it computes on numbers, without gradients"
    if known is None:
        return f"{name}: it computes on arrays, without gradients"
    return f"{name}: {'write' if '(' in known else 'use'} {known}"
