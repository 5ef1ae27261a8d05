"""SciPy's ``scipy.ndimage`` with gradients to images, weights and coordinates: filters and interpolation.

Images have any number of dims. Modes at borders are SciPy's: "reflect" (d c b a | a b c d), "grid-mirror" the same,
"mirror" (d c b | a b c d), "nearest", "wrap" and "constant", where all outside is ``cval``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tape.interpolate import floating
from tape.operations.elementwise import array_like
from tape.recording.promotion import alike
from tape.signal import windowed
from tape.tensors.tensor import Tensor

__all__ = ["convolve", "correlate", "gaussian_filter", "map_coordinates", "shift"]

_PADS: dict[Any, Any] = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap",
    "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant",
}  # fmt: skip


def _each(value: Any, rank: int, name: str) -> list[Any]:
    """Return one value for each axis."""
    values = list(value) if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) else [value] * rank
    if len(values) != rank:
        raise RuntimeError(f"{name}: {len(values)} values for an image of {rank} dims")
    return values


def _padded(name: str, x: Any, widths: Sequence[tuple[int, int]], mode: Any, cval: Any) -> Any:
    for axis, (width, way) in enumerate(zip(widths, _each(mode, len(widths), name), strict=True)):
        if way not in _PADS:
            raise RuntimeError(f"{name}: boundary mode {way!r} is not supported; there are {', '.join(_PADS)}")
        if width == (0, 0):
            continue
        if _PADS[way] == "constant":
            x = np.pad(x, [width if k == axis else (0, 0) for k in range(len(widths))], constant_values=cval)
        else:
            x = np.take(x, np.pad(np.arange(x.spec.shape[axis]), width, mode=_PADS[way]), axis=axis)
    return x


def _filtered(name: str, x: Any, weights: Any, mode: Any, cval: Any, origin: Any, *, flips: bool) -> Any:
    x, weights = alike(floating(x), floating(weights))
    sizes, rank = weights.spec.shape, len(x.spec.shape)
    if len(sizes) != rank:
        raise RuntimeError(f"{name}: the weights have {len(sizes)} dims, the image {rank}; they have as many")
    widths = []
    for size, shifted in zip(sizes, _each(origin, rank, name), strict=True):
        place = operator.index(shifted)
        if not -(size // 2) <= place <= (size - 1) // 2:
            raise ValueError(f"{name}: origin {place} is outside of weights of {size}")
        before = size // 2 + (place if not flips else -place - (size % 2 == 0))
        widths.append((before, size - 1 - before))
    padded = _padded(name, x, widths, mode, cval)
    return windowed(padded, np.flip(weights) if flips else weights)


def correlate(input: Any, weights: Any, *, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0) -> Any:
    """Return the sums of weights times what stands around each element: SciPy's ``scipy.ndimage.correlate``.

    The weights have as many dims as the image; ``origin`` shifts them, one number or one for each axis.

    >>> tape.ndimage.correlate(tape.tensor([1.0, 2.0, 4.0]), [0.0, 0.0, 1.0]).tolist()
    [2.0, 4.0, 4.0]
    """
    return _filtered(correlate.__name__, input, weights, mode, cval, origin, flips=False)


def convolve(input: Any, weights: Any, *, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0) -> Any:
    """Return the convolution with weights of as many dims: SciPy's ``scipy.ndimage.convolve``; see :func:`correlate`.

    >>> tape.ndimage.convolve(tape.tensor([1.0, 2.0, 4.0]), [0.0, 0.0, 1.0]).tolist()
    [1.0, 1.0, 2.0]
    """
    return _filtered(convolve.__name__, input, weights, mode, cval, origin, flips=True)


def gaussian_filter(
    input: Any, sigma: Any, order: Any = 0, *, mode: Any = "reflect", cval: Any = 0.0, truncate: float = 4.0,
    radius: Any = None,
) -> Any:  # fmt: skip
    """Return the image smoothed by a Gaussian: SciPy's ``scipy.ndimage.gaussian_filter``.

    ``sigma``, ``order`` (of a derivative of the Gaussian), ``mode`` and ``radius`` are one value, or one for each axis.
    Gradients go to the image, and of order 0 to sigma, whose support is then a constant.

    >>> tape.ndimage.gaussian_filter(tape.tensor([0.0, 1.0, 0.0]), 0.5).sum()
    tensor(1.)
    """
    x = floating(input)
    rank = len(x.spec.shape)
    modes, radii = _each(mode, rank, "gaussian_filter"), _each(radius, rank, "gaussian_filter")
    sigmas = _each(sigma.unbind() if isinstance(sigma, Tensor) and sigma.spec.shape else sigma, rank, "gaussian_filter")
    for axis, (width, power) in enumerate(zip(sigmas, _each(order, rank, "gaussian_filter"), strict=True)):
        number = width.item() if isinstance(width, Tensor) else float(width)
        if number <= 1e-15:  # noqa: PLR2004 (SciPy's)
            continue
        reach = int(truncate * number + 0.5) if radii[axis] is None else operator.index(radii[axis])
        weights = _gaussian(width, number, power, reach)
        shape = [-1 if k == axis else 1 for k in range(rank)]
        x = correlate(x, weights.reshape(shape), mode=modes[axis], cval=cval)
    return x


def _gaussian(sigma: Any, number: float, order: int, reach: int) -> Any:
    """Return the weights of a Gaussian, or of a derivative of one, as they are correlated with."""
    places = np.arange(-reach, reach + 1)
    if order == 0:
        weights = np.exp(-0.5 / (sigma * sigma) * places**2)
        return weights / weights.sum()
    if isinstance(sigma, Tensor) and sigma._slot is not None:
        raise NotImplementedError(f"gaussian_filter: no gradient to sigma of order {order}; give sigma.detach()")
    from scipy import ndimage

    impulse = (places == 0).astype(float)
    return ndimage.gaussian_filter1d(impulse, number, order=order, mode="constant", radius=reach)[::-1]


_ORDERS = (0, 1, 3)
_SPLINE_PAD = 12  # SciPy's: so far an edge is continued before a spline goes through it


def map_coordinates(
    input: Any, coordinates: Any, *, order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True
) -> Any:
    """Return the image at coordinates (dims, ...), interpolated: SciPy's ``scipy.ndimage.map_coordinates``.

    ``order`` is 0 (nearest), 1 (linear) or 3 (cubic spline); gradients go to the image, and of order 1 and 3 to the
    coordinates. NotImplementedError for other orders, and modes "grid-constant" and "grid-wrap".

    >>> tape.ndimage.map_coordinates(tape.tensor([0.0, 1.0, 4.0]), [[0.5, 1.5]], order=1).tolist()
    [0.5, 2.5]
    """
    if order not in _ORDERS:
        raise NotImplementedError(f"map_coordinates: order {order} is not supported; there are 0, 1 and 3")
    if mode not in ("reflect", "grid-mirror", "mirror", "nearest", "wrap", "constant"):
        raise NotImplementedError(f"map_coordinates: boundary mode {mode!r} is not supported")
    x, at = alike(floating(input), floating(coordinates))
    shape = x.spec.shape
    if at.spec.shape[:1] != (len(shape),):
        raise RuntimeError(f"map_coordinates: coordinates {list(at.shape)} of an image of {len(shape)} dims")
    outside: Any = None
    if mode == "constant":
        inside = [(at[k] >= 0) & (at[k] <= n - 1) for k, n in enumerate(shape)]
        outside = ~np.logical_and.reduce(np.stack(inside), axis=0) if len(inside) > 1 else ~inside[0]
    if order == 3 and mode == "nearest":  # noqa: PLR2004
        x, at = _padded("map_coordinates", x, [(_SPLINE_PAD, _SPLINE_PAD)] * len(shape), mode, 0.0), at + _SPLINE_PAD
    if order == 3 and prefilter:  # noqa: PLR2004
        x = _spline_coefficients(x, mode)
    value = _interpolated(x, [_folded(at[k], n, mode) for k, n in enumerate(x.spec.shape)], order, mode)
    return value if outside is None else np.where(outside, cval, value)


def _spline_coefficients(x: Any, mode: str) -> Any:
    """Return the coefficients of the cubic spline through an image: along each axis a matrix times it."""
    from scipy import ndimage

    way = mode if mode in ("reflect", "grid-mirror", "nearest") else "mirror"
    for axis, n in enumerate(x.spec.shape):
        if n > 1:
            matrix = ndimage.spline_filter1d(np.eye(n), 3, axis=0, mode=way).astype(x.spec.dtype)
            x = np.moveaxis(np.tensordot(matrix, x, ((1,), (axis,))), 0, axis)
    return x


def _folded(at: Any, n: int, mode: str) -> Any:
    """Return coordinates along an axis of n places within it, as a border's mode continues the axis."""
    if mode in ("constant", "nearest"):
        return np.clip(at, 0, n - 1)
    if n == 1:
        return at * 0.0
    if mode == "wrap":
        within = (at >= 0) & (at <= n - 1)
        return np.where(within, at, at - (n - 1) * np.floor(at.detach() / (n - 1)))
    if mode == "mirror":
        period = 2.0 * (n - 1)
        at = at - period * np.floor(at.detach() / period)
        return np.where(at > n - 1, period - at, at)
    at = at - 2.0 * n * np.floor((at.detach() + 0.5) / (2.0 * n))  # from -0.5 on
    return np.where(at > n - 0.5, 2.0 * n - 1 - at, at)


def _interpolated(x: Any, at: list[Any], order: int, mode: str) -> Any:
    """Return the sums of coefficients times the weights of splines of an order, at coordinates within the image."""
    ways = []
    for place, n in zip(at, x.spec.shape, strict=True):
        start = np.floor(place.detach() + (0.5 if order == 0 else 0.0))
        indices = [_reflected(start + k, n, mode) for k in range(-(order // 2), order - order // 2 + 1)]
        ways.append(list(zip(indices, _weights(place - start, order), strict=True)))
    chosen: list[tuple[tuple[Any, ...], Any]] = [((), 1.0)]
    for way in ways:
        chosen = [((*where, index), weight * w) for where, weight in chosen for index, w in way]
    total: Any = 0.0
    for where, weight in chosen:
        total = total + x[where] * weight
    return total


def _weights(t: Any, order: int) -> list[Any]:
    if order == 0:
        return [1.0]
    if order == 1:
        return [1 - t, t]
    return [(1 - t) ** 3 / 6, (4 - 6 * t**2 + 3 * t**3) / 6, (1 + 3 * t + 3 * t**2 - 3 * t**3) / 6, t**3 / 6]


def _reflected(index: Any, n: int, mode: str) -> Any:
    """Return the places that a spline takes beyond the ends of an axis."""
    if n == 1:
        return (index * 0).to(np.int64)
    if mode in ("reflect", "grid-mirror", "nearest"):
        index = index - 2 * n * np.floor(index / (2 * n))
        return np.where(index >= n, 2 * n - 1 - index, index).to(np.int64)
    period = 2 * (n - 1)
    index = index - period * np.floor(index / period)
    return np.where(index > n - 1, period - index, index).to(np.int64)


def shift(
    input: Any, shift: Any, *, order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True
) -> Any:
    """Return the image moved by ``shift``, one number or one for each axis: SciPy's ``scipy.ndimage.shift``.

    Gradients, orders and modes are those of :func:`map_coordinates`.

    >>> tape.ndimage.shift(tape.tensor([0.0, 1.0, 4.0]), 1.0, order=1).tolist()
    [0.0, 0.0, 1.0]
    """
    x = floating(input)
    rank = len(x.spec.shape)
    by = _each(shift.unbind() if isinstance(shift, Tensor) and shift.spec.shape else shift, rank, "shift")
    grid = np.indices(x.spec.shape).astype(x.spec.dtype)
    at = np.stack([grid[k] - array_like(by[k]) for k in range(rank)])
    return map_coordinates(x, at, order=order, mode=mode, cval=cval, prefilter=prefilter)
