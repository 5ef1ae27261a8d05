"""The table of convolution and pooling: strided windows and one product; direct passes over the places of a window.

Three operations are bilinear and each other's gradients: ``conv`` of an input and weights, ``conv_transpose`` of what
conv gives, and ``conv_weight``, by which weights change. Shapes: input ``(n, c, h, w)``, weights
``(out, c / groups, kh, kw)``, result ``(n, out, oh, ow)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec
from kernels.kinds.form import scattered_from
from kernels.kinds.routine import Routine
from kernels.language import jit
from kernels.native.c_api import NATIVE
from kernels.operations.solves import plus
from kernels.rules.loop_printer import PrintedLoop, RowValue, address, run_at
from kernels.rules.op import dispatched, picked, placed, put

Pair = tuple[int, ...]
How = tuple[Pair, Pair, Pair, int]
"""Stride, padding and dilation along both axes, and how many groups of channels there are."""


def conv_size(n: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return how many windows there are along an axis."""
    return (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _padded(x: Array, padding: Pair, more: Pair = (0, 0), value: float = 0.0) -> Array:
    (ph, pw), (mh, mw) = padding, more
    if not (ph or pw or mh or mw):
        return x
    n, c, h, w = x.shape
    wide = np.full((n, c, h + 2 * ph + mh, w + 2 * pw + mw), value, x.dtype)
    wide[:, :, ph : ph + h, pw : pw + w] = x
    return wide


def _windows(x: Array, sizes: Pair, kernel: Pair, stride: Pair, dilation: Pair) -> Array:
    """Return the view ``(n, c, kh, kw, oh, ow)`` of an input."""
    n, c, h, w = x.strides
    (sh, sw), (dh, dw) = stride, dilation
    strides = (n, c, h * dh, w * dw, h * sh, w * sw)
    return np.lib.stride_tricks.as_strided(x, (*x.shape[:2], *kernel, *sizes), strides)


def _columns(x: Array, kernel: Pair, how: How) -> tuple[Array, Pair]:
    """Return windows as columns ``(n, groups, c / groups * kh * kw, oh * ow)``, and how many there are."""
    stride, padding, dilation, groups = how
    sizes = tuple(map(conv_size, x.shape[2:], kernel, stride, padding, dilation))
    wide = np.ascontiguousarray(_padded(x, padding))
    columns = np.empty((*x.shape[:2], *kernel, *sizes), x.dtype)
    if not _moved(wide, columns, stride, dilation, adds=False):
        columns[...] = _windows(wide, sizes, kernel, stride, dilation)
    return columns.reshape(len(x), groups, -1, sizes[0] * sizes[1]), sizes


def _moved(wide: Array, columns: Array, stride: Pair, dilation: Pair, *, adds: bool) -> bool:
    """Copy the windows of padded images to columns, or add these to the images, in native code; False without it."""
    if columns.dtype not in (np.float64, np.float32) or not jit.makes_native_code():
        return False
    words = (wide.shape[0] * wide.shape[1], *wide.shape[2:], *columns.shape[2:], *stride, *dilation)
    made = address("rules.rows_native", "columns", columns.dtype), np.array(words, np.int64)
    run_at(*made, (columns, wide), accumulate=adds)
    return True


@dispatched
def conv(x: Any, w: Any, *, how: How) -> Any:
    """Return the cross-correlation."""
    columns, sizes = _columns(x, w.shape[2:], how)
    return np.matmul(w.reshape(how[3], len(w) // how[3], -1), columns).reshape(len(x), len(w), *sizes)


@dispatched
def conv_transpose(small: Any, w: Any, *, size: Pair, how: How) -> Any:
    """Return the gradient by the input, whose last two extents are ``size``."""
    n, (oh, ow), (kh, kw) = len(small), small.shape[2:], w.shape[2:]
    (sh, sw), (ph, pw), (dh, dw), groups = how
    weights = np.swapaxes(w.reshape(groups, len(w) // groups, -1), 1, 2)
    columns = np.matmul(weights, small.reshape(n, groups, -1, oh * ow)).reshape(n, -1, kh, kw, oh, ow)
    wide = np.zeros((n, columns.shape[1], size[0] + 2 * ph, size[1] + 2 * pw), small.dtype)
    if _moved(wide, columns, (sh, sw), (dh, dw), adds=True):
        return wide[:, :, ph : ph + size[0], pw : pw + size[1]]
    for i in range(kh):
        for j in range(kw):
            top, left = i * dh, j * dw
            wide[:, :, top : top + (oh - 1) * sh + 1 : sh, left : left + (ow - 1) * sw + 1 : sw] += columns[:, :, i, j]
    return wide[:, :, ph : ph + size[0], pw : pw + size[1]]


@dispatched
def conv_weight(x: Any, small: Any, *, kernel: Pair, how: How) -> Any:
    """Return the gradient by the weights, whose last two extents are ``kernel``."""
    columns, sizes = _columns(x, kernel, how)
    by_example = np.matmul(small.reshape(len(x), how[3], -1, sizes[0] * sizes[1]), np.swapaxes(columns, 2, 3))
    return by_example.sum(0).reshape(small.shape[1], -1, *kernel)


_HOW = (((1, 1), (0, 0), (1, 1), 1), ((2, 1), (1, 0), (1, 2), 2))
Routine(
    name="conv", doc="The cross-correlation of images with weights.", grad_fn="ConvolutionBackward0", forward=conv,
    vjp=lambda g, x, w, needs, how: (
        conv_transpose(g, w, size=tuple(x.shape[2:]), how=how) if needs[0] else None,
        conv_weight(x, g, kernel=tuple(w.shape[2:]), how=how) if needs[1] else None,
    ),
    jvp=lambda t_x, t_w, x, w, how: plus(
        None if t_x is None else conv(t_x, w, how=how), None if t_w is None else conv(x, t_w, how=how)
    ),
    samples=((((2, 1, 4, 5), (2, 1, 2, 3)), {"how": _HOW[0]}), (((2, 4, 5, 6), (2, 2, 2, 2)), {"how": _HOW[1]})),
)  # fmt: skip
Routine(
    name="conv_transpose", doc="The gradient of a convolution by its input.", grad_fn="ConvolutionBackward0",
    forward=conv_transpose,
    vjp=lambda g, small, w, needs, how: (
        conv(g, w, how=how) if needs[0] else None,
        conv_weight(g, small, kernel=tuple(w.shape[2:]), how=how) if needs[1] else None,
    ),
    jvp=lambda t_small, t_w, small, w, size, how: plus(
        None if t_small is None else conv_transpose(t_small, w, size=size, how=how),
        None if t_w is None else conv_transpose(small, t_w, size=size, how=how),
    ),
    samples=(
        (((2, 2, 3, 3), (2, 1, 2, 3)), {"size": (4, 5), "how": _HOW[0]}),
        (((2, 2, 3, 4), (2, 2, 2, 2)), {"size": (5, 6), "how": _HOW[1]}),
    ),
)  # fmt: skip
Routine(
    name="conv_weight", doc="The gradient of a convolution by its weights.", grad_fn="ConvolutionBackward0",
    forward=conv_weight,
    vjp=lambda g, x, small, needs, how: (
        conv_transpose(small, g, size=tuple(x.shape[2:]), how=how) if needs[0] else None,
        conv(x, g, how=how) if needs[1] else None,
    ),
    jvp=lambda t_x, t_small, x, small, kernel, how: plus(
        None if t_x is None else conv_weight(t_x, small, kernel=kernel, how=how),
        None if t_small is None else conv_weight(x, t_small, kernel=kernel, how=how),
    ),
    samples=(
        (((2, 1, 4, 5), (2, 2, 3, 3)), {"kernel": (2, 3), "how": _HOW[0]}),
        (((2, 4, 5, 6), (2, 2, 3, 4)), {"kernel": (2, 2), "how": _HOW[1]}),
    ),
)  # fmt: skip


def _max_pool(x: Array, *, kernel: Pair, how: How, more: Pair) -> tuple[Array, Array]:
    """Return the maxima and where each stands in the image, flat; a nan is the largest, the first of equals counts."""
    stride, padding, dilation, _ = how
    wide = _padded(x, padding, more, -np.inf)
    sizes = tuple(map(conv_size, wide.shape[2:], kernel, stride, (0, 0), dilation))
    windows = _windows(wide, sizes, kernel, stride, dilation)
    best, at = windows[:, :, 0, 0].copy(), np.zeros((*x.shape[:2], *sizes), np.int64)
    for k in range(1, kernel[0] * kernel[1]):
        one = windows[:, :, k // kernel[1], k % kernel[1]]
        larger = ~(one <= best) & (best == best)  # a nan stays
        np.copyto(best, one, where=larger)
        np.copyto(at, k, where=larger)
    rows = np.arange(sizes[0])[:, None] * stride[0] - padding[0] + at // kernel[1] * dilation[0]
    columns = np.arange(sizes[1]) * stride[1] - padding[1] + at % kernel[1] * dilation[1]
    return best, rows * x.shape[3] + columns


def _flattened(x: Any) -> Any:
    return x.reshape((x.shape[0], x.shape[1], x.shape[2] * x.shape[3]))


def _max_pool_vjp(g: Any, x: Any, places: Any, kernel: Pair, how: How) -> Any:
    apart = all(s >= d * (k - 1) + 1 for s, d, k in zip(how[0], how[2], kernel, strict=True))
    back = (put if apart else placed)(_flattened(g), _flattened(places), 2, x.shape[2] * x.shape[3])
    return back.reshape(x.shape)


def _max_pool_rows(shape: tuple[int, ...], dtype: Any, kernel: Pair, how: How, more: Pair) -> RowValue | None:
    stride, padding, dilation, _ = how
    if dtype not in (np.float64, np.float32) or not NATIVE or 0 in shape:
        return None
    around = [n + 2 * p + q for n, p, q in zip(shape[2:], padding, more, strict=True)]
    sizes = tuple(map(conv_size, around, kernel, stride, (0, 0), dilation))
    words = (shape[0] * shape[1], *shape[2:], *sizes, *kernel, *stride, *padding, *dilation)
    return RowValue("max_pool", dtype, (*shape[:2], *sizes), words, places=True)


def _max_pool_native(source: Spec, spec: Spec, **_: Any) -> PrintedLoop | None:
    """Return the pullback that adds to the places of an image, which are flat."""
    item = source.dtype.itemsize
    if source.gradient[2:] != (source.shape[3] * item, item):
        return None
    return scattered_from(source, spec, (*source.gradient[:2], 0, 0), item, 3)


Routine(
    name="max_pool", doc="The largest element of each window of an image, and its place.", extras=("places",),
    cuts=True, grad_fn="MaxPool2DWithIndicesBackward0", forward=_max_pool, vjp=_max_pool_vjp,
    jvp=lambda t, places: picked(_flattened(t), _flattened(places), 2).reshape(places.shape),
    native=_max_pool_native, rows=_max_pool_rows,
    samples=(
        (((2, 1, 4, 6),), {"kernel": (2, 2), "how": ((2, 2), (0, 0), (1, 1), 1), "more": (0, 0)}),
        (((2, 1, 4, 6),), {"kernel": (3, 3), "how": ((1, 2), (1, 1), (1, 1), 1), "more": (0, 1)}),
    ),
)  # fmt: skip
