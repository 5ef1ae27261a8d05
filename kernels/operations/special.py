"""The tables of special functions, of softmaxes and sums of exponentials, and of distances."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec, Strides, dense
from kernels.foundation.tables import cached_property
from kernels.kinds.elementwise import Elementwise, Reduction
from kernels.kinds.routine import Routine
from kernels.language import jit
from kernels.native import pool
from kernels.native.structs import LARGE
from kernels.operations.pointwise import ONE, POSITIVE, REAL, flat
from kernels.rules import loop_printer
from kernels.rules.loop_printer import KernelOperand, PrintedLoop, RowPull, RowValue, row_pull, row_value
from kernels.rules.op import LateUfunc, Rule, cut, special, wide
from kernels.rules.scalar_loops import spread

# The table of softmax, its logarithm, and distances between rows.

# Large arrays go through our own kernels, row by row or some columns at a time, while they are in the cache; small ones
# go through NumPy.

BLOCK = 1 << 14  # elements of a block: three arrays of doubles in half a megabyte
PART = 1 << 10  # elements that a kernel goes through at a time (logsums_native.PART)
COLUMNS = 64  # the least number of columns that a kernel goes through at a time, if there are as many


def by_kernel(x: Array) -> bool:
    """Whether our own kernels do this."""
    return x.nbytes >= LARGE and x.dtype in (np.float64, np.float32) and jit.makes_native_code()


def run(name: str, shape: tuple[int, ...], dim: int, result: Array, *operands: Array) -> Array:
    """Run a kernel along a dim of arrays of this shape; the operands are made contiguous."""
    outer, length, inner = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    columns = min(inner, max(BLOCK // max(length, 1), COLUMNS))
    scratch = np.empty(max(PART, 2 * columns), result.dtype)
    inputs = [np.ascontiguousarray(x, result.dtype) for x in operands]
    layout = np.array([outer, length, inner, columns], np.int64)
    name = name if inner == 1 else f"column_{name}"
    kernel = loop_printer.address("rules.logsums_native", name, result.dtype)
    loop_printer.run_at(kernel, layout, (result, *inputs, scratch))
    return result


def _largest(x: Array, dim: int) -> Array:
    return np.asarray(np.maximum.reduce(x, dim, None, None, True, -np.inf))


class LogSumExp:
    """What reduces arrays as a ufunc does."""

    __name__ = "logsumexp"

    def reduce(self, array: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Return the logarithm of the sum of exponentials over axes; large arrays along one axis by rows."""
        axes = tuple(range(array.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        if len(axes) == 1 and array.size > BLOCK and by_kernel(array):
            shape = tuple(1 if i in axes else n for i, n in enumerate(array.shape) if keepdims or i not in axes)
            return run("logsumexp", array.shape, axes[0], pool.call(np.empty, shape, array.dtype), array)
        with np.errstate(all="ignore"):
            top = array.real.max(axis=axes, keepdims=True, initial=-np.inf)
            if not np.isfinite(top).all():
                top = np.where(np.isfinite(top), top, array.dtype.type(0))
            y = np.log(np.exp(array - top).sum(axis=axes, keepdims=True)) + top
        return y if keepdims else y.squeeze(axes)


def _softmax(x: Array, *, dim: int) -> Array:
    if by_kernel(x):
        return run("softmax", x.shape, dim, pool.call(np.empty, x.shape, x.dtype), x)
    with np.errstate(all="ignore"):
        y = np.exp(x - _largest(x, dim))
        return np.divide(y, np.add.reduce(y, dim, None, None, True), out=y)


def _softmax_vjp(g: Any, y: Any, dim: int) -> Any:
    """Return the product with the Jacobian, which is symmetric."""
    if isinstance(g, np.ndarray) and by_kernel(y):
        return run("softmax_vjp", y.shape, dim, pool.call(np.empty, y.shape, y.dtype), g, y)
    return y * (g - np.sum(g * y, axis=dim, keepdims=True))


def _softmax_native(source: Spec, spec: Spec, dim: int) -> RowPull | None:
    """Return the pullback in native code: of large rows that stand in order, and of small ones."""
    if spec.bytes < LARGE:
        return row_pull(source, spec, (dim,), "softmax_vjp", functools.partial(_softmax_vjp, dim=dim))
    item = source.dtype.itemsize
    rows = dim == len(source.shape) - 1 and source.gradient == spec.gradient == dense(source.shape, item)
    if not rows or source.dtype.kind != "f" or not jit.makes_native_code():
        return None
    where = functools.partial(loop_printer.address, "rules.logsums_native", "softmax_vjp")
    layout = (math.prod(source.shape[:-1]), source.shape[-1])
    return RowPull(source.shape, spec.shape, source.dtype, layout, where, functools.partial(_softmax_vjp, dim=dim))


def _log_softmax_native(source: Spec, spec: Spec, dim: int) -> RowPull | None:
    vjp, jvp = (functools.partial(rule, dim=dim) for rule in (_log_softmax_vjp, _log_softmax_jvp))
    return row_pull(source, spec, (dim,), "log_softmax_vjp", vjp, "log_softmax_jvp", jvp)


def _log_softmax(x: Array, *, dim: int) -> Array:
    if by_kernel(x):
        return run("log_softmax", x.shape, dim, pool.call(np.empty, x.shape, x.dtype), x)
    with np.errstate(all="ignore"):
        y = x - _largest(x, dim)
        return np.subtract(y, np.log(np.add.reduce(np.exp(y), dim, None, None, True)), out=y)


def _log_softmax_vjp(g: Any, y: Any, dim: int) -> Any:
    if isinstance(g, np.ndarray) and by_kernel(y):
        return run("log_softmax_vjp", y.shape, dim, pool.call(np.empty, y.shape, y.dtype), g, y)
    return g - np.exp(y) * np.sum(g, axis=dim, keepdims=True)


def _log_softmax_jvp(t: Any, y: Any, dim: int) -> Any:
    return t - np.sum(np.exp(y) * t, axis=dim, keepdims=True)


def _exponentials(x: Any, top: Any, axes: Any) -> tuple[Any, Any]:
    """Return the exponentials of what is left without the largest, and their sum."""
    powers = np.exp(x - top)
    return powers, np.add.reduce(powers, axis=axes, keepdims=True)


def _logsumexp_parts(x: Any, axes: Any) -> Any:
    top = np.maximum.reduce(x, axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, np.where(top > 0.0, np.finfo(x.dtype).max, 0.0))
    _, total = _exponentials(x, top, axes)
    return np.log(total) + top


def _softmax_parts(x: Any, dim: int) -> Any:
    powers, total = _exponentials(x, np.maximum.reduce(x, axis=(dim,), keepdims=True), (dim,))
    return powers * (1.0 / total)


def _log_softmax_parts(x: Any, dim: int) -> Any:
    top = np.maximum.reduce(x, axis=(dim,), keepdims=True)
    _, total = _exponentials(x, top, (dim,))
    return x - top - np.log(total)


Reduction(
    name="logsumexp", doc="Logarithm of the sum of exponentials over dims, without overflow on the way.",
    ufunc=LogSumExp(), pullback=(lambda g, y, x: g * np.exp(x - y),), parts=_logsumexp_parts,
)  # fmt: skip
Routine(
    name="softmax", doc="Exponentials divided by their sum along a dim.",
    forward=_softmax, vjp=_softmax_vjp, jvp=lambda t, y, dim: _softmax_vjp(t, y, dim), native=_softmax_native,
    rows=lambda shape, dtype, dim: row_value(shape, dtype, "softmax", (dim,)), parts=_softmax_parts,
    samples=((((5,),), {"dim": 0}), (((2, 3, 2),), {"dim": 1})),
)  # fmt: skip
Routine(
    name="log_softmax", doc="Logarithm of softmax along a dim, without loss where it is small.",
    forward=_log_softmax, vjp=_log_softmax_vjp, jvp=_log_softmax_jvp, native=_log_softmax_native,
    rows=lambda shape, dtype, dim: row_value(shape, dtype, "log_softmax", (dim,)), parts=_log_softmax_parts,
    samples=((((5,),), {"dim": 0}), (((2, 3, 2),), {"dim": 1})),
)  # fmt: skip


# ``order`` is the exponent p of the norm, 0 (how many are not zero) and both infinities included. Where a norm is 0 its
# gradient is 0.


def _vector_norm(x: Array, *, order: float, dims: tuple[int, ...], keepdim: bool) -> Array:
    def norm(x: Array) -> Array:
        if order == 2 and len(dims) == 1 and not keepdim and x.shape[dims[0]] < SHORT:  # noqa: PLR2004
            return np.sqrt(np.vecdot(x, x, axis=dims[0]))  # no squares in new memory
        return np.asarray(np.linalg.vector_norm(x, axis=dims, keepdims=keepdim, ord=order))

    with np.errstate(all="ignore"):
        y = norm(x)
        if not (0 < order < math.inf) or order == 1 or not x.size:
            return y
        lost = (y == np.inf) | (y < (np.finfo(x.dtype).tiny / np.finfo(x.dtype).eps) ** (1 / order))
        if not lost.any():
            return y
        top = np.max(np.abs(x), axis=dims, keepdims=True)
        top = np.where((top > 0) & (top < np.inf), top, 1)  # powers of the elements leave the range: scale them
        return np.where(lost, norm(x / top) * top.reshape(y.shape), y)


def _slope(x: Any, y: Any, order: float, dims: tuple[int, ...]) -> Any:
    """Return the derivative of a norm by each element; y is its value, beside x."""
    if math.isinf(order):
        ties = (np.abs(x) == y) & (x != 0)
        return np.where(ties, np.sign(x) / np.sum(ties, axis=dims, keepdims=True), -0.0)
    if order == 0:
        return np.zeros_like(x)
    if order == 1:
        return np.sign(x)
    if order == 2:  # noqa: PLR2004
        return x / np.where(y == 0, np.inf, y)
    length = np.where(y == 0, 1.0, y)
    some = x != 0
    powers = (np.where(some, np.abs(x), 1.0) / length) ** (order - 1)
    return np.where(some, np.sign(x) * powers, 0.0)


def _vector_norm_vjp(g: Any, y: Any, x: Any, order: float, dims: tuple[int, ...]) -> Any:
    g, y = wide(g, x, dims), wide(y, x, dims)
    slope = _slope(x, y, order, dims)
    return np.where(np.abs(x) == y, g * slope, -0.0) if math.isinf(order) else g * slope


def _vector_norm_native(
    source: Spec, spec: Spec, order: float, dims: tuple[int, ...], keepdim: bool
) -> PrintedLoop | None:
    """Return the pullback of lengths, and of sums of absolute values, which are read element by element."""
    if order not in _RULES:
        return None
    strides, gradient = (spread(s, len(source.shape), dims, keepdim) for s in (spec.strides, spec.gradient))
    operands = [
        KernelOperand("target", source.dtype, 0, source.gradient),
        KernelOperand("g", spec.dtype, 1, gradient),
        KernelOperand("x", source.dtype, 2, source.strides),
        KernelOperand("y", spec.dtype, 3, strides),
    ]
    return PrintedLoop(_RULES[order], source.shape, tuple(operands if order != 1 else operands[:3]))


def _vector_norm_rows(shape: Strides, dtype: Any, order: float, dims: Strides, keepdim: bool) -> RowValue | None:
    name = {1.0: "norm1", 2.0: "norm2"}.get(order)
    return None if name is None else row_value(shape, dtype, name, dims, keepdim=keepdim)


_RULES = {1.0: lambda g, x: g * np.sign(x), 2.0: lambda g, x, y: g * (x / np.where(y == 0, np.inf, y))}

Routine(
    name="vector_norm", doc="Norm of vectors along dims; its gradient at 0 is 0.", grad_fn="LinalgVectorNormBackward0",
    cuts=True, forward=_vector_norm, vjp=_vector_norm_vjp,
    jvp=lambda t, y, x, order, dims, keepdim: np.sum(
        t * _slope(x, wide(y, x, dims), order, dims), axis=dims, keepdims=keepdim
    ),
    native=_vector_norm_native, rows=_vector_norm_rows,
    samples=(
        (((5,),), {"order": 2.0, "dims": (0,), "keepdim": False}),
        (((2, 3),), {"order": 3.0, "dims": (1,), "keepdim": True}),
        (((2, 3),), {"order": math.inf, "dims": (0, 1), "keepdim": False}),
    ),
)  # fmt: skip

DISTANCE_BLOCK = 1 << 16  # coordinates of pairs of points that are looked at together
SHORT = 1 << 13  # elements up to which BLAS does not share one product out to threads
_METRICS = {1.0: "cityblock", 2.0: "euclidean", math.inf: "chebyshev"}


def _cdist(a: Array, b: Array, *, order: float) -> Array:
    from scipy.spatial import distance

    result = np.empty((*a.shape[:-1], b.shape[-2]), a.dtype)
    for at in np.ndindex(a.shape[:-2]):
        if order == 0:
            result[at] = (a[at][:, None] != b[at][None]).sum(-1)
        elif order in _METRICS:
            result[at] = distance.cdist(a[at], b[at], _METRICS[order])
        else:
            result[at] = distance.cdist(a[at], b[at], "minkowski", p=order)
    return result


def _apart(a: Any, b: Any, y: Any, order: float) -> Any:
    apart = np.expand_dims(a, -2) - np.expand_dims(b, -3)
    return _slope(apart, np.expand_dims(y, -1), order, (len(apart.shape) - 1,))


def _cdist_vjp(g: Any, y: Any, a: Any, b: Any, order: float) -> tuple[Any, Any]:
    if not isinstance(g, np.ndarray):
        parts = np.expand_dims(g, -1) * _apart(a, b, y, order)
        return np.sum(parts, -2), -np.sum(parts, -3)
    if order == 2.0 and np.isfinite(y).all():  # noqa: PLR2004 (from the middle of b, so that far origins cost no digits)
        middle, slope = b.mean(-2, keepdims=True), np.divide(g, y, out=np.zeros_like(y), where=y != 0)
        a, b = a - middle, b - middle
        return (
            a * slope.sum(-1)[..., None] - np.matmul(slope, b),
            b * slope.sum(-2)[..., None] - np.matmul(np.swapaxes(slope, -1, -2), a),
        )
    da, db = np.zeros_like(a), np.zeros_like(b)
    some = max(DISTANCE_BLOCK // max(b.size, 1), 1)
    for i in range(0, a.shape[-2], some):  # a few points at a time: all pairs at once would need much memory
        row = (..., slice(i, i + some), slice(None))
        part = np.expand_dims(g[row], -1) * _apart(a[row], b, y[row], order)
        da[row] += part.sum(-2)
        db -= part.sum(-3)
    return da, db


def _cdist_jvp(t_a: Any, t_b: Any, y: Any, a: Any, b: Any, order: float) -> Any:
    apart = (0.0 if t_a is None else np.expand_dims(t_a, -2)) - (0.0 if t_b is None else np.expand_dims(t_b, -3))
    return np.sum(_apart(a, b, y, order) * apart, -1)


Routine(
    name="cdist", doc="Distances between all points of two sets, which are rows.", forward=_cdist, vjp=_cdist_vjp,
    jvp=_cdist_jvp, samples=((((3, 2), (2, 2)), {"order": 2.0}), (((2, 3, 2), (2, 2, 2)), {"order": 3.0})),
)  # fmt: skip


# The table of special functions: SciPy's names and SciPy's ufuncs.

# Derivatives: Abramowitz and Stegun, chapters 6, 7 and 9, and where they lose digits, the asymptotic series there.

FRACTION = "fraction"  # A domain: between 0 and 1

_ROOT = math.sqrt(math.pi)
_FAR = 1000.0  # from here on the differences of Bessel functions lose digits, and few terms of their series do
_FURTHER = 60.0  # likewise for erfcx
_BELOW = -5.0  # likewise for the quotient of the normal density and its area
_NEAR = 0.25  # up to here quotients of Bessel functions lose digits in derivatives, and few terms of their series do


class _Zeta(LateUfunc):
    """Hurwitz's zeta function, which ``scipy.special.zeta`` wraps."""

    @cached_property
    def ufunc(self) -> Any:
        import scipy.special._ufuncs as private

        return private._zeta  # noqa: SLF001 (there is no public ufunc)


vars(special)["zeta"] = _Zeta("zeta")


_MIDDLE = 0.2  # so near to a half the logarithm of x / (1 - x) loses digits


def _special(
    name: str, doc: str, pullback: Any, domain: tuple[str, ...] = ONE, *, grad_fn: str = "Special{}Backward0",
    ufunc: str = "", **more: Any,
) -> None:  # fmt: skip
    """Declare one of SciPy's functions; the pullback, if there is one for several operands, is that of the last."""
    rules = pullback if isinstance(pullback, tuple) else (*(None,) * (len(domain) - 1), pullback)
    ufunc_of_scipy = getattr(special, ufunc or name)
    Elementwise(name=name, doc=doc, grad_fn=grad_fn, pullback=rules, domain=domain, ufunc=ufunc_of_scipy, **more)


def _i0e_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays, tensors and symbols)
    far = 0.5 + (0.125 + (0.125 + 25 / 128 / np.absolute(x)) / np.absolute(x)) / np.absolute(x)
    return np.where(np.absolute(x) > _FAR, -y * far / x, special.i1e(x) - np.sign(x) * y)


def _bessel_series(s):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return the derivative of i1 near 0, of the square of its argument; of j1, of that with the other sign."""
    return 0.5 + s * (3 / 16 + s * (5 / 384 + s * (7 / 18432 + s * (9 / 1474560 + s * (11 / 176947200)))))


def _i1e_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    far = 0.5 - (0.375 + (0.375 + 63 / 128 / np.absolute(x)) / np.absolute(x)) / np.absolute(x)
    series = np.exp(-np.absolute(x)) * _bessel_series(x * x)
    near = np.where(np.absolute(x) < _NEAR, series, special.i0e(x) - y / x) - np.sign(x) * y
    return np.where(np.absolute(x) > _FAR, -y * far / x, near)


def _i1_slope(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    quotient = np.exp(np.absolute(x)) * (special.i0e(x) - special.i1e(x) / x)
    return np.where(np.absolute(x) < _NEAR, _bessel_series(x * x), quotient)


def _j1_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return np.where(np.absolute(x) < _NEAR, _bessel_series(-x * x), special.j0(x) - y / x)


def _erfcx_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    t = 0.5 / x / x
    far = -2 / _ROOT * t * (1 - 3 * t * (1 - 5 * t * (1 - 7 * t * (1 - 9 * t))))
    return np.where(x > _FURTHER, far, 2 * x * y - 2 / _ROOT)


def _log_ndtr_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    near = math.sqrt(0.5 / math.pi) * np.exp(-0.5 * x * x - y)
    return np.where(x < _BELOW, math.sqrt(2 / math.pi) / special.erfcx(-math.sqrt(0.5) * x), near)


def _gamma_density(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return np.exp(special.xlogy(a - 1, b) - b - special.gammaln(a))


_special("erf", "Error function.", lambda g, x: g * (2 / _ROOT * np.exp(-x * x)), grad_fn="{}Backward0", vector=True)
_special(
    "erfc", "One less the error function.", lambda g, x: g * (-2 / _ROOT * np.exp(-x * x)), grad_fn="{}Backward0",
    vector=True,
)  # fmt: skip
_special(
    "erfinv", "Number whose error function this is.", lambda g, y: g * (_ROOT / 2 * np.exp(y * y)), ("unit",),
    grad_fn="{}Backward0",
)  # fmt: skip
_special(
    "erfcinv", "Number whose complementary error function this is.", lambda g, y: g * (-_ROOT / 2 * np.exp(y * y)),
    (FRACTION,), function=False,
)  # fmt: skip
_special("erfcx", "Complementary error function times exp(x x).", lambda g, x, y: g * _erfcx_slope(x, y))
_special(
    "lgamma", "Logarithm of the absolute value of the gamma function.", lambda g, x: g * special.psi(x),
    grad_fn="{}Backward0", ufunc="gammaln",
)  # fmt: skip
_special(
    "digamma", "Derivative of the logarithm of the gamma function.", lambda g, x: g * special.zeta(2.0, x), (POSITIVE,),
    grad_fn="{}Backward0", ufunc="psi",
)  # fmt: skip
_special("gamma", "Gamma function.", lambda g, x, y: g * (y * special.psi(x)), (POSITIVE,), function=False)
_special(
    "logit", "Logarithm of x / (1 - x).", lambda g, x: g / np.where((x < 0) | (x > 1), math.nan, x * (1 - x)),
    (FRACTION,), grad_fn="{}Backward0", function=False, vector=True,
    forward=lambda x: np.where(
        np.absolute(x - 0.5) < _MIDDLE, np.log1p(2 * x - 1) - np.log1p(1 - 2 * x), np.log(x / (1 - x))
    ),
)  # fmt: skip
_special(
    "i0", "Modified Bessel function of the first kind of order 0.", lambda g, x: g * special.i1(x),
    grad_fn="{}Backward0",
)  # fmt: skip
_special("i0e", "Modified Bessel function of order 0 times exp(-|x|).", lambda g, x, y: g * _i0e_slope(x, y))
_special("i1", "Modified Bessel function of the first kind of order 1.", lambda g, x: g * _i1_slope(x))
_special("i1e", "Modified Bessel function of order 1 times exp(-|x|).", lambda g, x, y: g * _i1e_slope(x, y))
_special(
    "ndtr", "Area under the normal density up to x.", lambda g, x: g * (math.sqrt(0.5 / math.pi) * np.exp(-0.5 * x * x))
)
_special(
    "ndtri", "Number up to which the area under the normal density is x.",
    lambda g, y: g * (math.sqrt(2 * math.pi) * np.exp(0.5 * y * y)), (FRACTION,),
)  # fmt: skip
_special(
    "log_ndtr", "Logarithm of the area under the normal density up to x.", lambda g, x, y: g * _log_ndtr_slope(x, y)
)
_special(
    "j0", "Bessel function of the first kind of order 0.", lambda g, x: -g * special.j1(x),
    grad_fn="SpecialBesselJ0Backward0", function=False,
)  # fmt: skip
_special(
    "j1", "Bessel function of the first kind of order 1.", lambda g, x, y: g * _j1_slope(x, y),
    grad_fn="SpecialBesselJ1Backward0", function=False,
)  # fmt: skip
_special(
    "y0", "Bessel function of the second kind of order 0.", lambda g, x: -g * special.y1(x), (POSITIVE,),
    grad_fn="SpecialBesselY0Backward0", function=False,
)  # fmt: skip
_special(
    "y1", "Bessel function of the second kind of order 1.", lambda g, x, y: g * (special.y0(x) - y / x), (POSITIVE,),
    grad_fn="SpecialBesselY1Backward0", function=False,
)  # fmt: skip
_special(
    "k0", "Modified Bessel function of the second kind of order 0.", lambda g, x: -g * special.k1(x), (POSITIVE,),
    grad_fn="SpecialModifiedBesselK0Backward0", function=False,
)  # fmt: skip
_special(
    "k1", "Modified Bessel function of the second kind of order 1.", lambda g, x, y: -g * (special.k0(x) + y / x),
    (POSITIVE,), grad_fn="SpecialModifiedBesselK1Backward0", function=False,
)  # fmt: skip
_special("entr", "Entropy, -x log x; 0 at 0 and -inf below.", lambda g, x: -g * (1 + np.log(x)), (POSITIVE,))

Elementwise(
    name="xlogy", doc="First tensor times the logarithm of the second; 0 where the first is 0.",
    reversed_grad_fn="XlogyBackward1", ufunc=special.xlogy,
    pullback=(
        lambda g, a, b: cut((a == 0) & (b <= 0), g * np.log(b)),
        lambda g, a, b: cut((a == 0) & (b <= 0), g * (a / b)),
    ),
    number_grad_fn="XlogyBackward2", domain=(REAL, POSITIVE),
)  # fmt: skip
Elementwise(
    name="xlog1py", doc="First tensor times the logarithm of one plus the second; 0 where the first is 0.",
    grad_fn="SpecialXlog1PyBackward0", reversed_grad_fn="SpecialXlog1PyBackward1", ufunc=special.xlog1py,
    pullback=(
        lambda g, a, b: cut((a == 0) & (b <= -1), g * np.log1p(b)),
        lambda g, a, b: cut((a == 0) & (b <= -1), g * (a / (1 + b))),
    ),
    number_grad_fn="SpecialXlog1PyBackward2", domain=(REAL, POSITIVE),
)  # fmt: skip
_special(
    "zeta", "Hurwitz's zeta function; its first argument has no gradient.",
    lambda g, a, b: -g * (a * special.zeta(a + 1, b)), ("constant", POSITIVE), arguments=("input", "other"),
    function=False,
)  # fmt: skip
Elementwise(
    name="polygamma", doc="Derivative of the digamma function: a times Hurwitz's zeta function of b, of order b - 1.",
    function=False, composed=True, forward=lambda a, b, c: np.multiply(a, special.zeta(b, c)),
    pullback=(None, None, lambda g, a, b, c: -g * (a * b * special.zeta(b + 1, c))),
    domain=("constant", "constant", POSITIVE),
)  # fmt: skip
_special(
    "gammainc", "Regularised lower incomplete gamma function; its first argument has no gradient.",
    lambda g, a, b: g * _gamma_density(a, b), ("constant", POSITIVE), grad_fn="IgammaBackward0",
    arguments=("input", "other"), function=False,
)  # fmt: skip
_special(
    "gammaincc", "Regularised upper incomplete gamma function; its first argument has no gradient.",
    lambda g, a, b: -g * _gamma_density(a, b), ("constant", POSITIVE), grad_fn="IgammacBackward0",
    arguments=("input", "other"), function=False,
)  # fmt: skip


# Bessel functions of any order: Abramowitz and Stegun, 9.1.27 and 9.6.26.


def _bessel(name: str, doc: str, slope: Rule, domain: str = POSITIVE) -> None:
    """Declare a function of an order and a tensor."""
    doc = f"{doc}; its first argument, the order, has no gradient."
    _special(name, doc, slope, ("constant", domain), arguments=("v", "z"), function=False)


_bessel(
    "jv", "Bessel function of the first kind", lambda g, a, b: g * (0.5 * (special.jv(a - 1, b) - special.jv(a + 1, b)))
)
_bessel(
    "yv", "Bessel function of the second kind",
    lambda g, a, b: g * (0.5 * (special.yv(a - 1, b) - special.yv(a + 1, b))),
)  # fmt: skip
_bessel(
    "iv", "Modified Bessel function of the first kind",
    lambda g, a, b: g * (0.5 * (special.iv(a - 1, b) + special.iv(a + 1, b))),
)  # fmt: skip
_bessel(
    "ive", "Modified Bessel function of the first kind, times exp(-|x|)",
    lambda g, a, b, y: g * (0.5 * (special.ive(a - 1, b) + special.ive(a + 1, b)) - np.sign(b) * y), REAL,
)  # fmt: skip
_bessel(
    "kv", "Modified Bessel function of the second kind",
    lambda g, a, b: -g * (0.5 * (special.kv(a - 1, b) + special.kv(a + 1, b))),
)  # fmt: skip
_bessel(
    "kve", "Modified Bessel function of the second kind, times exp(x)",
    lambda g, a, b, y: g * (y - 0.5 * (special.kve(a - 1, b) + special.kve(a + 1, b))),
)  # fmt: skip


# Beta functions and areas: Abramowitz and Stegun, 6.2 and 26.5. By the parameters of a density the areas have no
# derivative in closed form.


def _beta_density(a, b, c):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays, tensors and symbols)
    return np.exp(special.xlogy(a - 1, c) + special.xlog1py(b - 1, -c) - special.betaln(a, b))


def _student_density(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    log = special.gammaln(0.5 * a + 0.5) - special.gammaln(0.5 * a) - 0.5 * np.log(math.pi * a)
    return np.exp(log - (0.5 * a + 0.5) * np.log1p(b * b / a))


def _rgamma_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    at_poles = np.cos(math.pi * x) * special.gamma(1 - x)  # of gamma, where psi has poles too
    return np.where((x <= 0) & (x == np.floor(x)), at_poles, -special.psi(x) * y)


def _area(name: str, doc: str, slope: Rule, *domain: str) -> None:
    """Declare an area, or its inverse: a gradient to the last argument alone."""
    _special(name, f"{doc}; only its last argument has a gradient.", slope, domain, function=False)


_special(
    "beta", "Beta function.",
    (
        lambda g, a, b, y: g * (y * (special.psi(a) - special.psi(a + b))),
        lambda g, a, b, y: g * (y * (special.psi(b) - special.psi(a + b))),
    ),
    (POSITIVE, POSITIVE), function=False,
)  # fmt: skip
_special(
    "betaln", "Logarithm of the absolute value of the beta function.",
    (
        lambda g, a, b: g * (special.psi(a) - special.psi(a + b)),
        lambda g, a, b: g * (special.psi(b) - special.psi(a + b)),
    ),
    (POSITIVE, POSITIVE), function=False,
)  # fmt: skip
_special("rgamma", "One divided by the gamma function.", lambda g, x, y: g * _rgamma_slope(x, y), function=False)
_special("gammasgn", "Sign of the gamma function; the gradient is 0.", flat, (POSITIVE,), function=False)
_area(
    "betainc", "Area under the beta density up to x", lambda g, a, b, c: g * _beta_density(a, b, c), "constant",
    "constant", FRACTION,
)  # fmt: skip
_area(
    "betaincc", "Area under the beta density from x on", lambda g, a, b, c: -g * _beta_density(a, b, c), "constant",
    "constant", FRACTION,
)  # fmt: skip
_area(
    "betaincinv", "Number up to which the area under the beta density is this",
    lambda g, a, b, y: g / _beta_density(a, b, y), "constant", "constant", FRACTION,
)  # fmt: skip
_area(
    "gammaincinv", "Number up to which the area under the gamma density is this",
    lambda g, a, y: g / _gamma_density(a, y), "constant", FRACTION,
)  # fmt: skip
_area(
    "gammainccinv", "Number from which on the area under the gamma density is this",
    lambda g, a, y: -g / _gamma_density(a, y), "constant", FRACTION,
)  # fmt: skip
_area(
    "stdtr", "Area under Student's density of so many degrees of freedom up to x",
    lambda g, a, b: g * _student_density(a, b), "constant", REAL,
)  # fmt: skip
_area(
    "stdtrit", "Number up to which the area under Student's density is this",
    lambda g, a, y: g / _student_density(a, y), "constant", FRACTION,
)  # fmt: skip
