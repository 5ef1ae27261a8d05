"""SciPy's ``scipy.signal`` with gradients to signals and filters, of any order: convolutions and recursive filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.autograd.function import Function
from tape.operations.elementwise import array_like
from tape.recording.promotion import alike
from tape.tensors.dtypes import get_default_dtype
from tape.tensors.tensor import Tensor, as_array, constant_tensor

__all__ = ["convolve", "fftconvolve", "lfilter"]


def _floats(*values: Any) -> tuple[Any, ...]:
    tensors = [array_like(x) for x in values]
    if all(x.spec.dtype.kind != "f" for x in tensors):
        tensors[0] = tensors[0].to(get_default_dtype())
    return tuple(alike(*tensors))


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """Return the convolution of two arrays of as many dims: SciPy's ``scipy.signal.convolve``.

    ``mode`` is "full", "same" (of in1's shape, in the middle) or "valid" (where one lies within the other). ``method``
    changes nothing: sums are taken one by one. ValueError for other modes, or dims that do not fit.

    >>> tape.signal.convolve(tape.tensor([1.0, 2.0, 3.0]), [1.0, 1.0]).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"convolve: method is 'auto', 'direct' or 'fft', not {method!r}")
    x, kernel = _floats(in1, in2)
    sizes, widths = x.spec.shape, kernel.spec.shape
    if len(sizes) != len(widths):
        raise ValueError(f"convolve: in1 has {len(sizes)} dims and in2 {len(widths)}; they have as many")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"convolve: mode is 'full', 'same' or 'valid', not {mode!r}")
    if mode == "valid" and not all(n >= k for n, k in zip(sizes, widths, strict=True)):
        if not all(n <= k for n, k in zip(sizes, widths, strict=True)):
            raise ValueError("convolve: of mode 'valid' one array is at least as large as the other in every dim")
        x, kernel, sizes, widths = kernel, x, widths, sizes
    if not sizes:
        return x * kernel
    if mode != "valid":
        x = np.pad(x, [(k - 1, k - 1) for k in widths])
    if mode == "same":
        starts = [(k - 1) // 2 for k in widths]
        x = x[tuple(slice(b, b + n + k - 1) for b, n, k in zip(starts, sizes, widths, strict=True))]
    return windowed(x, np.flip(kernel))


def windowed(x: Any, weights: Any) -> Any:
    """Return the sums of the weights times each window of their shape: what correlates them."""
    windows = np.lib.stride_tricks.sliding_window_view(x, weights.spec.shape)
    rank = len(weights.spec.shape)
    return np.tensordot(windows, weights, (tuple(range(rank, 2 * rank)), tuple(range(rank))))


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """Return what :func:`convolve` does, along all axes; NotImplementedError along some."""
    if axes is not None:
        raise NotImplementedError("fftconvolve: axes= is not supported; it runs along all axes")
    return convolve(in1, in2, mode)


class _Recursive(Function):
    """y with a[0] y[n] + a[1] y[n - 1] + ... = x[n] along the last axis, a[0] being 1: linear in x."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor) -> Any:
        """Run SciPy's filter."""
        from scipy import signal

        y = constant_tensor(np.ascontiguousarray(signal.lfilter([1.0], as_array(a), as_array(x))))
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Filter the cotangent backwards in time; the filter's gradient sums it with the results before each."""
        a, y = ctx.saved_tensors
        back = np.flip(_Recursive.apply(a, np.flip(gradients[0], -1)), -1)
        n = y.spec.shape[-1]
        terms = [-(back[..., k:] * y[..., : max(n - k, 0)]).sum() for k in range(1, a.spec.shape[0])]
        return np.stack([a[0] * 0.0, *terms]), back


def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """Return a signal filtered by b over a, rational in the delay: SciPy's ``scipy.signal.lfilter``, at rest before.

    Gradients go to b, a and x. NotImplementedError with ``zi``; ValueError if b and a are no vectors, or a[0] is 0.

    >>> tape.signal.lfilter([1.0], [1.0, -0.5], tape.tensor([1.0, 0.0, 0.0])).tolist()
    [1.0, 0.5, 0.25]
    """
    if zi is not None:
        raise NotImplementedError("lfilter: zi= is not supported; put what came before in front of the signal")
    b, a, x = _floats(b, a, x)
    b, a = (v.reshape(1) if not v.spec.shape else v for v in (b, a))
    if len(b.spec.shape) != 1 or len(a.spec.shape) != 1 or not b.spec.size or not a.spec.size:
        raise ValueError(f"lfilter: b and a are vectors; they have shapes {list(b.shape)} and {list(a.shape)}")
    if bool(a[0] == 0):
        raise ValueError("lfilter: a[0] is 0; the filter is not defined")
    x = np.moveaxis(x, axis, -1)
    taps = b.spec.shape[0]
    ahead = np.pad(x, [(0, 0)] * (len(x.spec.shape) - 1) + [(taps - 1, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(ahead, taps, axis=-1)
    y = np.tensordot(windows, np.flip(b / a[0]), 1)
    if a.spec.shape[0] > 1:
        y = _Recursive.apply(a / a[0], y)
    return np.moveaxis(y, -1, axis)
