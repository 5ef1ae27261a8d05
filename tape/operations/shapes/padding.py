"""Padding: a tensor with more places at its ends, as PyTorch's functional.pad and as np.pad."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tape.conversions import creation
from tape.operations import indexing, sums_and_extrema
from tape.operations.shapes.rearranging import part
from tape.recording import views
from tape.recording.arguments import ints_of
from tape.tensors.operands import tensor_of
from tape.tensors.registration import NUMPY, implements, public
from tape.tensors.tensor import Array, Tensor

Widths = list[tuple[int, int]]
_COPYING = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""PyTorch's modes that copy elements, and what NumPy calls them."""


@public(methods=False)
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Return the tensor with places put before and behind, as ``torch.nn.functional.pad`` does.

    ``pad`` holds a pair of widths for the last dim, then for the one before, and so on; what is negative is cut off.
    ``mode`` fills with ``value`` ("constant"), or copies: "reflect" without the border, "replicate" the border,
    "circular" from the other end. RuntimeError where the widths do not fit the shape.

    >>> tape.pad(tape.tensor([1.0, 2.0, 3.0]), (1, 2))
    tensor([0., 1., 2., 3., 0., 0.])
    >>> tape.pad(tape.tensor([1.0, 2.0, 3.0]), (1, 1), "reflect")
    tensor([2., 1., 2., 3., 2.])
    """
    input, amounts = tensor_of(input), ints_of((pad,))
    shape = input.spec.shape
    if len(amounts) % 2:
        raise RuntimeError(f"pad: Padding length must be divisible by 2, got {len(amounts)}")
    if len(amounts) > 2 * len(shape):
        raise RuntimeError(
            "pad: Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(amounts)} and input of dimension {len(shape)}"
        )
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    widths = [(0, 0)] * (len(shape) - len(pairs)) + pairs
    if mode == "constant":
        return _filled(_cropped(input, widths), _positive(widths), 0 if value is None else value)
    if mode not in _COPYING:
        raise NotImplementedError(f"pad: Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'pad: Padding mode "{mode}" doesn\'t take in value argument')
    if mode == "circular":  # what is cut off does not come back at the other end
        input, widths = _cropped(input, widths), _positive(widths)
    _check_copied(mode, input.spec.shape, widths)
    return _cropped(_copied(input, _positive(widths), _COPYING[mode]), widths)


def _positive(widths: Widths) -> Widths:
    return [(max(a, 0), max(b, 0)) for a, b in widths]


def _cropped(x: Tensor, widths: Widths) -> Tensor:
    """Cut off what is negative."""
    for axis, (a, b) in enumerate(widths):
        n = x.spec.shape[axis]
        if n + a + b < 0 or n + min(a, 0) + min(b, 0) < 0:
            raise RuntimeError(
                f"pad: The input size {n}, plus negative padding {a} and {b} resulted in a negative output size, which "
                f"is invalid. Check dimension {axis} of your input."
            )
        if min(a, b) < 0:
            x = part(x, axis, -min(a, 0), n + min(b, 0))
    return x


def _check_copied(mode: str, shape: tuple[int, ...], widths: Widths) -> None:
    for axis, (n, pair) in enumerate(zip(shape, widths, strict=True)):
        if mode == "reflect" and max(pair) >= max(n, 1):
            raise RuntimeError(
                "pad: Padding size should be less than the corresponding input dimension, but got: padding "
                f"{pair} at dimension {axis} of input {list(shape)}"
            )
        if mode == "circular" and max(pair) > n:
            raise RuntimeError(
                f"pad: Padding value causes wrapping around more than once: padding {pair} at dimension {axis} of "
                f"input {list(shape)}"
            )
        if mode == "replicate" and n == 0 and max(pair) > 0:
            raise RuntimeError(f"pad: Expected non-empty dimension {axis} for replication, got shape {list(shape)}")


def _copied(x: Tensor, widths: Widths, mode: str) -> Tensor:
    """Let NumPy pad the values; if they are recorded, also the indices of the elements, which say what was copied."""
    if not any(map(any, widths)):
        return views.clone(x)
    shape, size = x.spec.shape, x.spec.size

    def numbers() -> Array:
        return np.pad(np.arange(size).reshape(shape), widths, mode)  # type: ignore[call-overload,no-any-return]

    return indexing.pick(x, numbers, lambda array: np.pad(array, widths, mode))  # type: ignore[call-overload]


def _filled(x: Tensor, widths: Widths, value: Any) -> Tensor:
    """Join blocks of one value to the ends."""
    source = x
    for axis, pair in enumerate(widths):
        x = _with_ends(x, axis, *(_block(x, axis, width, value) for width in pair))
    return views.clone(x) if x is source else x


def _block(x: Tensor, axis: int, width: int, value: Any) -> Tensor | None:
    if not width:
        return None
    shape = tuple(width if k == axis else n for k, n in enumerate(x.spec.shape))
    if isinstance(value, Tensor):
        return views.expand(value if value.spec.dtype == x.spec.dtype else value.to(x.spec.dtype), shape)
    return creation.full(shape, value, dtype=x.spec.dtype)


def _with_ends(x: Tensor, axis: int, before: Tensor | None, behind: Tensor | None) -> Tensor:
    parts = [p for p in (before, x, behind) if p is not None]
    return views.cat(parts, axis) if len(parts) > 1 else x


@implements(np.pad)
def _pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Tensor:
    """Pad as NumPy does, with zeros for mode "empty"; with functions, and odd reflections: TypeError."""
    x = tensor_of(array)
    widths = _widths(pad_width, len(x.spec.shape))
    if min((min(pair) for pair in widths), default=0) < 0:
        raise ValueError("index can't contain negative values")
    if mode in ("constant", "empty"):
        return _ends(
            x, widths, _pairs(kwargs.pop("constant_values", 0) if mode == "constant" else 0, x, kwargs), _constant
        )
    if mode in ("edge", "wrap") or (mode in ("reflect", "symmetric") and kwargs.pop("reflect_type", "even") == "even"):
        _nothing_left(mode, kwargs)
        return _copied(x, widths, mode)
    if mode == "linear_ramp":
        return _ends(x, widths, _pairs(kwargs.pop("end_values", 0), x, kwargs), _ramp)
    if mode in _STATISTICS:
        lengths = _pairs(kwargs.pop("stat_length", None), x, kwargs)
        return _ends(x, widths, lengths, functools.partial(_statistic, _STATISTICS[mode]))
    raise TypeError(f"np.pad of a tensor has no mode {mode!r} with these arguments; compose it of other modes")


def _nothing_left(mode: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {set(kwargs)}")


def _widths(widths: Any, rank: int) -> Widths:
    if isinstance(widths, dict):
        named = {axis % rank: pair for axis, pair in widths.items()}
        widths = [named.get(axis, (0, 0)) for axis in range(rank)]
        widths = [(pair, pair) if isinstance(pair, (int, np.integer)) else pair for pair in widths]
    wide = np.broadcast_to(np.asarray(widths), (rank, 2))
    if wide.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    return [(int(a), int(b)) for a, b in wide]


def _pairs(values: Any, x: Tensor, kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return an argument of np.pad (a number, a pair, or pairs) as a pair of values for each axis."""
    _nothing_left("this", kwargs)
    if isinstance(values, Tensor):
        if values.spec.shape:
            raise TypeError("np.pad: a tensor for the ends is one number, of no dims")
        return [(values, values)] * len(x.spec.shape)
    wide = np.broadcast_to(np.asarray(values, object if values is None else None), (len(x.spec.shape), 2))
    return [(a, b) for a, b in wide.tolist()]


def _ends(x: Tensor, widths: Widths, values: list[tuple[Any, Any]], make: Any) -> Tensor:
    """Join the ends that ``make`` computes, axis by axis: those of later axes are computed from the padded tensor."""
    source = x
    for axis, (pair, limits) in enumerate(zip(widths, values, strict=True)):
        ends = [
            make(x, axis, w, limit, behind=bool(k)) if w else None
            for k, (w, limit) in enumerate(zip(pair, limits, strict=True))
        ]
        x = _with_ends(x, axis, *ends)
    return views.clone(x) if x is source else x


def _constant(x: Tensor, axis: int, width: int, value: Any, *, behind: bool) -> Tensor | None:
    del behind
    return _block(x, axis, width, value)


def _ramp(x: Tensor, axis: int, width: int, end: Any, *, behind: bool) -> Tensor:
    """Return steps of one height from the border to a value, which is the last."""
    n = x.spec.shape[axis]
    edge = part(x, axis, n - 1, n) if behind else part(x, axis, 0, 1)
    steps = np.arange(1, width + 1) if behind else np.arange(width, 0, -1)
    slope = steps.reshape([-1 if k == axis else 1 for k in range(len(x.spec.shape))]) / width
    return edge + (end - edge) * slope.astype(x.spec.dtype, copy=False)  # type: ignore[no-any-return]


def _median(x: Tensor, axis: int, keepdims: bool) -> Any:
    return NUMPY[np.median](x, axis, keepdims=keepdims)


_STATISTICS = {
    "maximum": sums_and_extrema.amax,
    "minimum": sums_and_extrema.amin,
    "mean": sums_and_extrema.mean,
    "median": _median,
}


def _statistic(reduce: Any, x: Tensor, axis: int, width: int, length: Any, *, behind: bool) -> Tensor:
    """Return the extremum or mean of so many places at an end, as often as is wanted."""
    n = x.spec.shape[axis]
    count = n if length is None else min(int(length), n)
    if count < 1:
        raise ValueError(f"np.pad: stat_length of {length} yields no value for padding")
    source = part(x, axis, n - count, n) if behind else part(x, axis, 0, count)
    rounds = x.spec.dtype.kind in "iu" and reduce in (sums_and_extrema.mean, _median)
    value = reduce(source.double() if rounds else source, axis, True)
    value = value.round().to(x.spec.dtype) if rounds else value
    return views.expand(value, tuple(width if k == axis else m for k, m in enumerate(x.spec.shape)))
