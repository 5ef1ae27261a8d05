"""Convolution and pooling: of ``(n, c, h, w)``, ``(n, c, l)``, or of one example without n."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import tape.functions as f
from kernels.operations import OPS
from kernels.operations.convolutions import conv_size
from tape.operations.reductions import mean
from tape.recording import foreign_calls, views
from tape.recording.creation import ones

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "conv1d", "conv2d", "conv_transpose2d",
    "max_pool1d", "max_pool2d",
]  # fmt: skip
MODULES = {
    "MaxPool1d": "max_pool1d", "MaxPool2d": "max_pool2d", "AvgPool1d": "avg_pool1d", "AvgPool2d": "avg_pool2d",
    "AdaptiveAvgPool1d": "adaptive_avg_pool1d", "AdaptiveAvgPool2d": "adaptive_avg_pool2d",
}  # fmt: skip
"""Functions by the names of their modules."""
_OPS: Any = OPS


def each(x: Any, count: int) -> tuple[int, ...]:
    """Return one number for each axis."""
    return (int(x),) * count if isinstance(x, (int, np.integer)) else tuple(int(n) for n in x)


def _flat(x: Any) -> Any:
    return x.unsqueeze(-2)


def _conv(dims: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    rank, shape = input.dim(), list(input.shape)
    if rank not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to conv{dims}d, but got input of size: "
            f"{shape}"
        )
    if rank == dims + 1:
        return _conv(dims, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    if shape[1] != weight.shape[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{shape} to have "
            f"{weight.shape[1] * groups} channels, but got {shape[1]} channels instead"
        )
    strides, steps = each(stride, dims), each(dilation, dims)
    input, pads = _padded(input, weight, strides, padding, steps)
    sizes = [conv_size(*row) for row in zip(input.shape[2:], weight.shape[2:], strides, pads, steps, strict=True)]
    if min(sizes) < 1:
        size, kernel = [n + 2 * p for n, p in zip(input.shape[2:], pads, strict=True)], list(weight.shape[2:])
        raise RuntimeError(
            f"Calculated padded input size per channel: {size}. Kernel size: {kernel}. Kernel size can't be greater "
            "than actual input size"
        )
    if dims == 1:
        input, weight, strides, pads, steps = _flat(input), _flat(weight), (1, *strides), (0, *pads), (1, *steps)
    result = foreign_calls.call(_OPS["conv"], input, weight, how=(strides, pads, steps, groups))
    result = result if bias is None else result + bias.reshape(-1, 1, 1)
    return result.squeeze(-2) if dims == 1 else result


def _padded(input: Any, weight: Any, strides: Any, padding: Any, steps: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the input, with what is padded more behind than before, and what is padded on both sides."""
    if padding != "same":
        return input, each(0 if padding == "valid" else padding, len(steps))
    if any(s != 1 for s in strides):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [step * (k - 1) for step, k in zip(steps, weight.shape[2:], strict=True)]
    if any(n % 2 for n in total):
        input, total = f.pad(input, [w for n in reversed(total) for w in (n // 2, n - n // 2)]), [0 for _ in total]
    return input, tuple(n // 2 for n in total)


def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Return the cross-correlation of ``(n, c, l)`` with ``(out, c / groups, k)``; padding may be "same", "valid"."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Return the cross-correlation of ``(n, c, h, w)`` with ``(out, c / groups, kh, kw)``.

    ``padding`` may be "same" or "valid". RuntimeError for channels that differ, or a kernel larger than the input.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """Return the transpose of ``conv2d``, of ``(n, c, h, w)`` with ``(c, out / groups, kh, kw)``."""
    if input.dim() == 3:  # noqa: PLR2004 (without n)
        made = conv_transpose2d(input.unsqueeze(0), weight, bias, stride, padding, output_padding, groups, dilation)
        return made.squeeze(0)
    if input.shape[1] != weight.shape[0]:
        raise RuntimeError(
            f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
            f"{weight.shape[0]} channels, but got {input.shape[1]} channels instead"
        )
    strides, pads, more, steps = (each(x, 2) for x in (stride, padding, output_padding, dilation))
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, s, p, d, k, o in zip(input.shape[2:], strides, pads, steps, weight.shape[2:], more, strict=True)
    )
    result = foreign_calls.call(_OPS["conv_transpose"], input, weight, size=size, how=(strides, pads, steps, groups))
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _pooled(
    dims: int, pool: Any, input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    """Call a function of ``(n, c, h, w)`` with pairs: kernel, stride, padding, dilation, and what is padded behind."""
    if input.dim() == dims + 1:
        return _pooled(dims, pool, input.unsqueeze(0), kernel, stride, padding, dilation, ceil_mode).squeeze(0)
    if dims == 1:
        pairs = [
            (n, *each(x, 1)) for n, x in zip((1, 1, 0, 1), (kernel, stride or kernel, padding, dilation), strict=True)
        ]
        return _pooled(2, pool, _flat(input), pairs[0], pairs[1], pairs[2], pairs[3], ceil_mode).squeeze(-2)
    kernel, padding, dilation = each(kernel, 2), each(padding, 2), each(dilation, 2)
    stride = each(stride, 2) if stride else kernel
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise RuntimeError("pad should be at most half of effective kernel size")
    more = [0, 0]
    for i, (n, k, s, p, d) in enumerate(zip(input.shape[2:], kernel, stride, padding, dilation, strict=True)):
        room = n + 2 * p - d * (k - 1) - 1
        if ceil_mode and room % s and (room // s + 1) * s < n + p:
            more[i] = s - room % s
        if room + more[i] < 0:
            raise RuntimeError(f"max_pool2d: Given input size {list(input.shape[1:])}: Output size is too small")
        if p and d > n:
            raise RuntimeError(f"max_pool2d: a window of dilation {d} has no element of an image of extent {n}")
    return pool(input, kernel, stride, padding, dilation, more)


def _max(input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, more: Any) -> Any:
    return foreign_calls.call(
        _OPS["max_pool"], input, kernel=kernel, how=(stride, padding, dilation, 1), more=tuple(more)
    )[0]


def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Return the largest element of each window of ``(n, c, l)``; the gradient goes to the first of equals."""
    return _pooled(1, _max, input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Return the largest element of each window of ``(n, c, h, w)``; the gradient goes to the first of equals."""
    return _pooled(2, _max, input, kernel_size, stride, padding, dilation, ceil_mode)


_FEW = 16  # elements of a window up to which adding strided parts of the image is faster than a mean over two dims


def _mean(counts_padding: bool, input: Any, kernel: Any, stride: Any, padding: Any, _: Any, more: Any) -> Any:
    (n, c, h, w), (ph, pw) = input.shape, padding
    if not any((*padding, *more)) and kernel == stride and not h % kernel[0] and not w % kernel[1]:
        if kernel[0] * kernel[1] > _FEW:
            return mean(input.reshape(n, c, h // kernel[0], kernel[0], w // kernel[1], kernel[1]), (3, 5))
        parts = [input[:, :, i :: kernel[0], j :: kernel[1]] for i in range(kernel[0]) for j in range(kernel[1])]
        return sum(parts[1:], parts[0]) / len(parts)
    window = ones(1, 1, *kernel, dtype=input.dtype)
    behind = (0, more[1], 0, more[0])

    def total(x: Any) -> Any:
        return foreign_calls.call(_OPS["conv"], x, window, how=(stride, (0, 0), (1, 1), 1))

    around = (pw, pw, ph, ph)
    counted = ones(1, 1, h, w, dtype=input.dtype)
    counted = f.pad(f.pad(counted, around, value=float(counts_padding)), behind)
    sums = total(f.pad(f.pad(input.reshape(n * c, 1, h, w), around), behind)) / total(counted)
    return sums.reshape(n, c, *sums.shape[2:])


def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """Return the mean of each window of ``(n, c, l)``."""
    return _pooled(1, partial(_mean, count_include_pad), input, kernel_size, stride, padding, 1, ceil_mode)


def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """Return the mean of each window of ``(n, c, h, w)``."""
    return _pooled(2, partial(_mean, count_include_pad), input, kernel_size, stride, padding, 1, ceil_mode)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """Return means of windows that divide ``(..., h, w)`` into so many, as evenly as they can; None: as it is."""
    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    for dim, size in zip((-2, -1), sizes, strict=True):
        n = input.shape[dim]
        ends = [(i * n // (size or n), -(-(i + 1) * n // (size or n))) for i in range(size or n)]
        input = views.stack([mean(input.narrow(dim, a, b - a), dim) for a, b in ends], dim)
    return input


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """Return means of windows that divide ``(..., l)`` into so many."""
    return adaptive_avg_pool2d(_flat(input), (1, *each(output_size, 1))).squeeze(-2)
