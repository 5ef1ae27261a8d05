"""NumPy's functions on tensors that are no ufuncs: elementwise, ranges, polynomials, linear algebra."""

from __future__ import annotations

import functools
import operator
import warnings
from typing import Any

import numpy as np

from tape.numpy_interface import predicates
from tape.operations import contractions, decompositions, diagonals, elementwise, indexing, rearranging, solves
from tape.operations.decompositions import MATRIX, square_of
from tape.operations.elementwise import FUNCTIONS, RUN, array_like, cast, floating, not_nan, reduces
from tape.operations.matmul import matmul
from tape.operations.sorting import escaped_values
from tape.recording import indexed_calls, record, views
from tape.recording.parameters import dim_of, dims_of
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import NUMPY, implements
from tape.tensors.operands import Number, tensor_of
from tape.tensors.tensor import Tensor, as_array, method

# NumPy's elementwise functions that are no ufuncs, choices by values, ranges and polynomials.

for _ufunc, _name in (
    (np.sign, "sign"),  # nan of nan, where PyTorch has 0
    (np.heaviside, "heaviside"),  # likewise
    (np.degrees, "rad2deg"),
    (np.radians, "deg2rad"),
    (np.fabs, "absolute"),
):
    implements(_ufunc, records=_name)(RUN[_name])
implements(np.float_power)(elementwise.float_power)
implements(np.ldexp, records="ldexp")(elementwise.ldexp)


@implements(np.divmod)
def _divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    return FUNCTIONS["floor_divide"](x1, x2), FUNCTIONS["remainder"](x1, x2)


method("__divmod__")(_divmod)


method("__rdivmod__")(lambda x2, x1: _divmod(x1, x2))


@implements(np.clip, records="clamp clamp_above clamp_below")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002
    if not (a_min is None is a_max or min is None is max):
        raise TypeError("np.clip: give a_min and a_max, or min and max, which mean the same, not both")
    low, high = a_min if min is None else min, a_max if max is None else max
    return views.clone(tensor_of(a)) if low is None is high else elementwise.clamp(a, low, high)


implements(np.round, np.around, records="rint round_decimals")(
    lambda a, decimals=0: elementwise.round(a, decimals=decimals)
)
method("__round__")(lambda x, ndigits=None: elementwise.round(x, decimals=ndigits or 0))
method("__reversed__")(lambda x: x.flip(0) if x.spec.shape else x)


@implements(np.nan_to_num, records="nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    if not copy:
        raise TypeError("np.nan_to_num of a tensor takes no copy=False; use tensor.nan_to_num_()")
    return elementwise.nan_to_num(x, nan, posinf, neginf)


implements(np.isclose)(
    lambda a, b, rtol=1e-05, atol=1e-08, equal_nan=False: elementwise.isclose(a, b, rtol, atol, equal_nan)
)
implements(np.allclose)(
    lambda a, b, rtol=1e-05, atol=1e-08, equal_nan=False: elementwise.allclose(a, b, rtol, atol, equal_nan)
)


def _of_one_array(name: str) -> Any:
    return lambda x: FUNCTIONS[name](x)  # noqa: PLW0108 (NumPy's names)


implements(np.fix, records="trunc")(_of_one_array("trunc"))
for _function in (np.sinc, np.i0, np.isposinf, np.isneginf):
    implements(_function, records=_function.__name__)(_of_one_array(_function.__name__))


@implements(np.choose)
def _choose(a: Any, choices: Any, mode: str = "raise") -> Tensor:
    """Take each element from the choice of the number in a, broadcast together; the gradient goes to what is taken."""
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    options = list(choices)
    if not options:
        raise ValueError("0-length sequence.")
    at = escaped_values(array_like(a), np.choose.__name__)
    at = indexed_calls.integers(at.astype(np.int64) if at.dtype == np.bool_ else at, np.choose.__name__, TypeError)
    if mode == "raise":
        if at.size and not 0 <= at.min() <= at.max() < len(options):
            raise ValueError(f"invalid entry in choice array: there are {len(options)}; give mode='wrap' or 'clip'")
    else:
        at = at % len(options) if mode == "wrap" else at.clip(0, len(options) - 1)
    kinds = [x if isinstance(x, Number) else array_like(x).spec.dtype for x in options]
    tensors = [cast(array_like(x), np.result_type(*kinds)) for x in options]
    shape = np.broadcast_shapes(at.shape, *(x.spec.shape for x in tensors))
    rows = views.stack([views.expand(x, shape) for x in tensors])
    return indexing.index(rows, (np.broadcast_to(at, shape), *np.ogrid[tuple(map(slice, shape))]))


@implements(np.trim_zeros)
def _trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Tensor:
    """Cut off zeros at the ends: a view."""
    x = array_like(filt)
    if trim.lower() not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim.lower()!r}")
    axes = dims_of(x, axis) if axis != () else ()
    places = np.nonzero(escaped_values(x.detach(), np.trim_zeros.__name__)) if x.spec.shape else ()
    ranges = [(int(at.min()), int(at.max()) + 1) if at.size else (0, 0) for at in places]
    front, behind = "f" in trim.lower(), "b" in trim.lower()
    ends = [
        (low if front or low == high else 0, high if behind or low == high else n)
        for (low, high), n in zip(ranges, x.spec.shape, strict=True)
    ]
    return indexing.index(x, tuple(slice(*pair) if k in axes else slice(None) for k, pair in enumerate(ends)))


def _without_nan(place: Any, worst: float) -> Any:
    def at(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        if x.spec.dtype.kind == "f" and x.spec.size:
            there = not_nan(x.detach())
            if not escaped_values(NUMPY[np.any](there, axis), place.__name__).all():
                raise ValueError("All-NaN slice encountered")
            x = FUNCTIONS["where"](there, x.detach(), worst)
        return NUMPY[place](x, axis, keepdims=keepdims)  # type: ignore[no-any-return]

    return at


reduces(np.nanargmax, one_axis=True)(_without_nan(np.argmax, -np.inf))
reduces(np.nanargmin, one_axis=True)(_without_nan(np.argmin, np.inf))


# NumPy's polynomials, given by their coefficients, the highest power first: arithmetic, calculus and fits.


implements(np.polyadd)(lambda a1, a2: operator.add(*_of_one_length(a1, a2)))
implements(np.polysub)(lambda a1, a2: operator.sub(*_of_one_length(a1, a2)))


def _of_one_length(*values: Any) -> list[Tensor]:
    each = [_vector(x) for x in values]
    most = max(x.spec.size for x in each)
    return [views.cat([x.new_zeros(most - x.spec.size), x]) if x.spec.size < most else x for x in each]


def _vector(x: Any) -> Tensor:
    return NUMPY[np.atleast_1d](array_like(x))  # type: ignore[no-any-return]


implements(np.polymul)(lambda a1, a2: contractions.convolve(_without_zeros(a1), _without_zeros(a2)))


def _without_zeros(x: Any) -> Tensor:
    x = _vector(x)
    trimmed: Tensor = NUMPY[np.trim_zeros](x, "f")
    if trimmed.spec.size < x.spec.size and x._slot is not None:
        raise RuntimeError(
            f"np.polymul: NumPy cuts off the {x.spec.size - trimmed.spec.size} zeros in front of the coefficients, "
            "which then have no gradient; use np.convolve, which keeps them"
        )
    return trimmed if trimmed.spec.size else x.new_zeros(1)


@implements(np.polyder)
def _derivative(p: Any, m: int = 1) -> Tensor:
    times, coefficients = operator.index(m), _vector(p)
    if times < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    for _ in range(times):
        powers = np.arange(coefficients.spec.size - 1, 0, -1)
        coefficients = coefficients[:-1] * powers.astype(coefficients.spec.dtype, copy=False)
    return coefficients


@implements(np.polyint)
def _integral(p: Any, m: int = 1, k: Any = None) -> Tensor:
    times, coefficients = operator.index(m), _vector(p)
    if times < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = _vector(np.zeros(max(times, 1)) if k is None else k)
    if constants.spec.size == 1 < times:
        constants = views.expand(constants, times)
    if constants.spec.size < times:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for i in range(times):
        coefficients = views.cat([coefficients / np.arange(coefficients.spec.size, 0, -1), constants[i : i + 1]])
    return coefficients


@implements(np.polyfit)
def _fit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Tensor:
    """Fit by least squares; gradients go to points, values and weights. TypeError for ``full=`` and ``cov=``."""
    if full or cov:
        raise TypeError("np.polyfit of a tensor takes no full= and no cov=; it returns the coefficients")
    at, values, order = floating(x), floating(y), operator.index(deg) + 1
    shapes = list(at.spec.shape), list(values.spec.shape)
    if order < 1:
        raise ValueError("expected deg >= 0")
    if len(shapes[0]) != 1 or not at.spec.size:
        raise TypeError(f"expected non-empty 1D vector for x; the shape is {shapes[0]}")
    if len(shapes[1]) not in (1, 2) or shapes[1][0] != at.spec.size:
        raise TypeError(f"expected x and y to have same length; the shapes are {shapes[0]}, {shapes[1]}")
    powers = predicates.vander(at, order)
    if w is not None:
        weights = floating(w)
        if weights.spec.shape != at.spec.shape:
            raise TypeError("expected w and y to have the same length, of one dim")
        powers = powers * weights[:, None]
        values = values * (weights if len(values.spec.shape) == 1 else weights[:, None])
    lengths = (powers * powers).sum(0) ** 0.5
    limit = at.spec.size * np.finfo(at.spec.dtype).eps if rcond is None else rcond
    coefficients = NUMPY[np.linalg.lstsq](powers / lengths, values, limit)
    if int(as_array(coefficients[2]) if isinstance(coefficients[2], Tensor) else coefficients[2]) != order:
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=4)
    return coefficients[0] / (lengths if len(values.spec.shape) == 1 else lengths[:, None])  # type: ignore[no-any-return]


implements(np.correlate)(lambda a, v, mode="valid": contractions.convolve(array_like(a), array_like(v).flip(0), mode))


@implements(np.linspace)
def _linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """Space numbers evenly, along a new axis where the ends have dims."""
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    low, high = floating(start), floating(stop)
    count = num - 1 if endpoint else num
    apart = high - low
    at = np.arange(num, dtype=np.result_type(apart.spec.dtype, low.spec.dtype)).reshape(
        -1, *(1,) * len(apart.spec.shape)
    )
    points = low * (1 - at / max(count, 1)) + high * (at / max(count, 1))
    if axis:
        points = points.movedim(0, dim_of(points, axis))
    if dtype is not None:
        whole = dtype_of(dtype).kind in "iu"
        points = cast(points.floor() if whole else points, dtype)
    return (points, apart / count if count else apart * np.nan) if retstep else points


@implements(np.logspace)
def _logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Tensor:
    """Raise the base, a number, to numbers spaced evenly."""
    if isinstance(base, Tensor) or np.ndim(base):
        base = array_like(base)
        if base.spec.shape:
            raise TypeError("np.logspace of tensors takes one number, or a 0-d tensor, for base")
    points = base ** _linspace(start, stop, num, endpoint, axis=axis)
    return points if dtype is None else cast(points, dtype)


# NumPy's linear algebra on tensors: np.linalg.* and the products, with NumPy's arguments, defaults and results.


@functools.lru_cache(8)
def _kind(function: Any, *shape: int) -> Any:
    """Return the class of the named tuple that a function of NumPy's returns."""
    return type(function(np.ones(shape)))


def _only(name: str, value: Any, supported: Any, argument: str) -> None:
    if value is not supported:
        raise TypeError(f"np.{name} of a tensor takes {argument}={supported!r} only")


@implements(np.dot, records="dot mv vm mm")
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    _only("dot", out, None, "out")
    a, b = array_like(a), array_like(b)
    ranks = len(a.spec.shape), len(b.spec.shape)
    if 0 in ranks:
        return a * b
    return matmul(a, b) if max(ranks) <= MATRIX else contractions.tensordot(a, b, ([-1], [-2 if ranks[1] > 1 else -1]))


implements(np.linalg.matmul)(lambda x1, x2: matmul(array_like(x1), array_like(x2)))
implements(np.inner)(lambda a, b: contractions.inner(array_like(a), array_like(b)))


@implements(np.outer)
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    _only("outer", out, None, "out")
    return contractions.outer(*(views.reshape(array_like(x), -1) for x in (a, b)))


implements(np.linalg.outer)(lambda x1, x2: contractions.outer(array_like(x1), array_like(x2)))
implements(np.vdot)(lambda a, b: contractions.vdot(*(views.reshape(array_like(x), -1) for x in (a, b))))
implements(np.matvec)(lambda x1, x2: views.squeeze(matmul(array_like(x1), views.unsqueeze(array_like(x2), -1)), -1))
implements(np.vecmat)(lambda x1, x2: views.squeeze(matmul(views.unsqueeze(array_like(x1), -2), array_like(x2)), -2))


@implements(np.vecdot, np.linalg.vecdot)
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    a, b = (rearranging.movedim(array_like(x), axis, -1) for x in (x1, x2))
    if a.spec.shape[-1] != b.spec.shape[-1]:
        raise ValueError(f"np.vecdot: axes of {a.spec.shape[-1]} and {b.spec.shape[-1]} elements do not fit")
    product: Any = a * b
    kind = product.spec.dtype  # sums of bools are bools, and integers stay as wide as they are
    return NUMPY[np.sum](product, -1, kind if kind.kind in "iub" else None)


@implements(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    left, right = array_like(a), array_like(b)
    for i, j in zip(*contractions.contracted_dims(left, right, axes), strict=True):
        if left.spec.shape[i] != right.spec.shape[j]:  # no extent of 1 is broadcast here
            raise ValueError(
                f"np.tensordot: shapes {left.spec.shape} and {right.spec.shape} differ in axes {i} and {j}"
            )
    return contractions.tensordot(left, right, axes)


implements(np.linalg.tensordot)(lambda x1, x2, *, axes=2: _tensordot(x1, x2, axes))
implements(np.kron)(lambda a, b: contractions.kron(array_like(a), array_like(b)))


@implements(np.einsum)
def _einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Tensor:
    _only("einsum", out, None, "out")
    if kwargs:
        raise TypeError(f"np.einsum of a tensor does not take {', '.join(kwargs)}")
    del optimize  # the order is always planned
    return contractions.einsum(*operands)


@implements(np.cross, records="cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = (rearranging.movedim(array_like(x), at, -1) for x, at in ((a, axisa), (b, axisb)))
    return rearranging.movedim(contractions.vector_product("cross", a, b, -1), -1, axisc)


implements(np.linalg.cross, records="cross")(
    lambda x1, x2, *, axis=-1: contractions.vector_product("cross", array_like(x1), array_like(x2), axis)
)


@implements(np.trace)
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    _only("trace", out, None, "out")
    return diagonals.diagonal(a, offset, axis1, axis2).sum(-1, dtype=dtype)


implements(np.linalg.trace)(lambda x, *, offset=0, dtype=None: _trace(x, offset, -2, -1, dtype))
implements(np.linalg.diagonal, records="diagonal")(lambda x, *, offset=0: diagonals.diagonal(x, offset, -2, -1))
implements(np.convolve, records="convolve")(
    lambda a, v, mode="full": contractions.convolve(array_like(a), array_like(v), mode)
)


@implements(np.polyval)
def _polyval(p: Any, x: Any) -> Any:
    p, x = array_like(p), array_like(x)
    y = x * 0
    for k in range(len(p)):
        y = y * x + p[k]
    return y


@implements(np.linalg.solve, records="solve")
def _solve(a: Any, b: Any) -> Tensor:
    a, b = square_of("linalg.solve", a), array_like(b)
    if len(b.spec.shape) == 1 and len(a.spec.shape) > MATRIX:
        return views.squeeze(solves.solve(a, views.unsqueeze(b, -1)), -1)
    if len(b.spec.shape) == len(a.spec.shape) - 1 > 1:  # matrices to NumPy; PyTorch could see vectors
        b = views.unsqueeze(b, 0)
    return solves.solve(a, b)


implements(np.linalg.inv, records="inv")(lambda a: solves.inverse(a))  # noqa: PLW0108 (NumPy's names)
implements(np.linalg.pinv, records="pinv")(
    lambda a, rcond=None, hermitian=False, *, rtol=None: solves.pinv(a, rcond, hermitian, rtol=rtol)
)
implements(np.linalg.det, records="det")(lambda a: solves.det(a))  # noqa: PLW0108 (NumPy's names)
implements(np.linalg.slogdet, records="slogdet")(lambda a: _kind(np.linalg.slogdet, 1, 1)(*solves.slogdet(a)))
implements(np.linalg.cholesky, records="cholesky")(lambda a, /, *, upper=False: decompositions.cholesky(a, upper))


@implements(np.linalg.qr, records="qr")
def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode == "raw":
        raise TypeError("np.linalg.qr of a tensor takes mode 'reduced', 'complete' or 'r'")
    factors = decompositions.qr(a, mode)
    return factors.R if mode == "r" else _kind(np.linalg.qr, 1, 1)(*factors)


implements(np.linalg.eigh, records="eigh")(
    lambda a, UPLO="L": _kind(np.linalg.eigh, 1, 1)(*decompositions.eigh(a, UPLO))  # noqa: N803
)
implements(np.linalg.eigvalsh, records="eigvalsh")(lambda a, UPLO="L": decompositions.eigvalsh(a, UPLO))  # noqa: N803


@implements(np.linalg.svd, records="svd")
def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    _only("linalg.svd", hermitian, supported=False, argument="hermitian")
    if not compute_uv:
        return decompositions.svdvals(a)
    return _kind(np.linalg.svd, 1, 1)(*decompositions.svd(a, full_matrices))


implements(np.linalg.svdvals, records="svdvals")(lambda x, /: decompositions.svdvals(x))


@implements(np.linalg.lstsq, records="lstsq")
def _lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    a, b = array_like(a), array_like(b)
    solution = solves.lstsq(a, b, None if rcond is None else max(float(rcond), 0.0), driver="gelsd")
    residuals = solution.residuals
    if int(solution.rank.item()) < a.spec.shape[-1]:
        residuals = residuals[:0]
    if len(b.spec.shape) == 1 and residuals.spec.size:
        residuals = views.reshape(residuals, -1)
    return solution.solution, residuals, int(solution.rank.item()), solution.singular_values


implements(np.linalg.matrix_rank, records="matrix_rank")(
    lambda A, tol=None, hermitian=False, *, rtol=None: solves.matrix_rank(A, tol, hermitian, rtol=rtol)  # noqa: N803
)
implements(np.linalg.matrix_power)(lambda a, n: solves.matrix_power(a, n))  # noqa: PLW0108 (NumPy's names)
implements(np.linalg.cond)(lambda x, p=None: solves.cond(x, p))


@implements(np.linalg.multi_dot)
def _multi_dot(arrays: Any, *, out: Any = None) -> Tensor:
    _only("linalg.multi_dot", out, None, "out")
    return contractions.multi_dot(arrays)


implements(np.linalg.tensorsolve)(lambda a, b, axes=None: solves.tensorsolve(a, b, axes))
implements(np.linalg.tensorinv)(lambda a, ind=2: solves.tensorinv(a, ind))


@implements(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:  # noqa: A002 (NumPy's name)
    x = array_like(x)
    x = x if x.spec.dtype.kind == "f" else record.to_dtype(x, np.dtype(np.float64))
    if ord is not None and axis is None and len(x.spec.shape) not in (1, MATRIX):
        raise ValueError("Improper number of dimensions to norm.")
    return solves.norm(x, ord, axis, keepdims)


implements(np.linalg.matrix_norm)(
    lambda x, /, *, keepdims=False, ord="fro": solves.matrix_norm(x, ord, keepdim=keepdims)  # noqa: A006
)
