"""Medians, modes and quantiles, under PyTorch's names and meaning; NumPy's functions of these names too."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape import return_types
from tape.operations.indexing import index
from tape.operations.numpy_arguments import cast, reduces
from tape.operations.operators import FUNCTIONS
from tape.operations.reductions.sorting import along, filled, sort
from tape.recording import record, routine_calls, views
from tape.recording.arguments import dim_of, dims_of, either
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Array, Tensor, as_array

_MODE: Any = OPS["mode"]
_where: Any = FUNCTIONS["where"]


def _middle(name: str, of_what: str, example: str) -> Any:
    op, over_all, kind = OPS[name], OPS[f"{name}_all"], getattr(return_types, name)

    def middle(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
        input = tensor_of(input)
        if input.spec.dtype == np.bool_:
            raise NotImplementedError(f'"{name}" not implemented for bool; convert it first: x.long().{name}()')
        dim = either("dim", dim, "axis", axis, None)
        if dim is not None:
            keep = bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))
            return kind(*along(op, input, filled(name, input, dim), keepdim=keep))
        if input.spec.size == 0:
            return tensor_of(
                np.array(np.nan, input.spec.dtype) if input.spec.dtype.kind == "f" else np.zeros((), input.spec.dtype)
            )
        return routine_calls.call(over_all, input)  # type: ignore[arg-type]

    middle.__name__ = middle.__qualname__ = name
    middle.__doc__ = f"""Return the lower median of {of_what}, or of each row along ``dim`` with its int64 place.

    Of an even number the lower of the two in the middle, as PyTorch has it; ``np.{name}`` takes their mean. Ties share
    the gradient of the median of all evenly; along a dim it goes to the place.

    >>> tape.{name}(tape.tensor([[4.0, 1.0, 3.0, 2.0], [1.0, 3.0, float('nan'), 2.0]]), 1).values.tolist()
    {example}
    """
    return public()(argued(middle))


median = _middle("median", "all elements, nan if one is nan", "[2.0, nan]")
nanmedian = _middle("nanmedian", "all elements that are not nan", "[2.0, 2.0]")


@public()
@argued
def mode(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Any:
    """Return the most frequent element along ``dim`` (the last), the smallest of several, and its last int64 place.

    >>> tape.mode(tape.tensor([[1, 2, 2], [3, 3, 0]])).values.tolist()
    [2, 3]
    """
    input = tensor_of(input)
    keep = bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))
    at = filled("mode", input, either("dim", dim, "axis", axis, -1))
    return return_types.mode(*along(_MODE, input, at, keepdim=keep))


def _last(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return x with dims run together as the last."""
    shape = x.spec.shape
    kept = tuple(i for i in range(len(shape)) if i not in dims)
    turned = views.permute(x, (*kept, *dims)) if shape else x
    return views.reshape(turned, (*(shape[i] for i in kept), math.prod(shape[i] for i in dims)))


@functools.lru_cache(256)
def _positions(count: int, q: tuple[float, ...], method: str) -> Array:
    """Return where quantiles lie between the sorted elements: NumPy finds them in 0, 1, 2, ... itself."""
    return np.quantile(np.arange(max(count, 1), dtype=np.float64), q, method=method)  # type: ignore[call-overload, no-any-return]


def _in_rows(counts: Array, q: tuple[float, ...], method: str) -> Array:
    """Return where each quantile lies in rows of so many elements, a column for each row."""
    positions = np.zeros((len(q), len(counts)))
    for count in np.unique(counts):
        positions[:, counts == count] = _positions(int(count), q, method)[:, None]
    return positions


def quantiles(
    x: Tensor,
    q: Array,
    dims: tuple[int, ...],
    method: str,
    *,
    without_nan: bool = False,
    keepdim: bool = False,
    shift: Tensor | None = None,
) -> Tensor:
    """Return quantiles over dims, for each q along leading dims; nan where an element is nan, or all are.

    ``shift`` is a tensor of zeros through which q gets its gradient; see :func:`_shift`.
    """
    rows = sort(_last(x, dims)).values
    n, lead = rows.spec.shape[-1], rows.spec.shape[:-1]
    if without_nan:
        record.note_escape(x)  # how many are no nan decides what is picked
        counts = (~np.isnan(as_array(rows))).sum(-1).reshape(-1)
    else:
        counts = np.full(math.prod(lead), n)
    at = _in_rows(counts, tuple(q.reshape(-1).tolist()), method)
    flat = views.reshape(rows, (math.prod(lead), n))
    every = np.arange(math.prod(lead))
    low, high = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
    below: Any = index(flat, (every, low))
    result = below
    if shift is not None or not np.array_equal(low, high):
        between: Any = (at - low).astype(x.spec.dtype)
        if shift is not None:
            between = between + views.reshape(cast(shift, x.spec.dtype), (-1, 1)) * np.maximum(counts - 1, 0).astype(
                x.spec.dtype
            )
        above: Any = index(flat, (every, high))
        apart = above - below
        result = _where(between < 0.5, below + apart * between, above - apart * (1 - between))  # noqa: PLR2004 (as NumPy)
        result = _where(low == high, below, result)
    if not without_nan:
        largest = index(flat, (every, np.full_like(low, n - 1)))
        result = _where(largest == largest, result, largest)  # noqa: PLR0124 (nan)
    shape = [1 if i in dims else m for i, m in enumerate(x.spec.shape)] if keepdim else lead
    return views.reshape(result, (*q.shape, *shape))


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _checked(name: str, x: Any, q: Any, interpolation: str) -> tuple[Tensor, Array]:
    x = tensor_of(x)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype, not {x.spec.dtype.name}")
    if x.spec.size == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty; the shape is {list(x.spec.shape)}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of {', '.join(_INTERPOLATIONS[:-1])} or nearest, "
            f"but got {interpolation}"
        )
    if not isinstance(q, (Tensor, float, int)):
        raise TypeError(f"{name}(): argument 'q' must be a number or a Tensor, not {type(q).__name__}")
    at = _fractions(q)
    if at.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, not of shape {list(at.shape)}")
    if isinstance(q, Tensor) and q.spec.dtype != x.spec.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor: {q.spec.dtype}, {x.spec.dtype}")
    if not ((at >= 0) & (at <= 1)).all():
        raise RuntimeError(
            f"{name}() q must be in the range [0, 1] but got {at.tolist()}; q values must be in the range [0, 1]"
        )
    return x, at


def _fractions(q: Any) -> Array:
    if isinstance(q, Tensor):
        record.note_escape(q)
        return np.asarray(as_array(q), np.float64)
    return np.asarray(q, np.float64)


def _shift(name: str, q: Any, method: str, scale: float = 1.0) -> Tensor | None:
    """Return zeros with the gradient of q, where it has one: the others of PyTorch's methods make steps."""
    if not isinstance(q, Tensor) or q._slot is None or method in _INTERPOLATIONS[1:]:
        return None
    if method != _INTERPOLATIONS[0]:
        raise NotImplementedError(f"{name}() with method {method!r}: no gradient to q; give q.detach()")
    return (q - q.detach()) / scale


def _function(name: str, doc: str, example: str) -> Any:
    without_nan = name.startswith("nan")

    def function(
        input: Any,
        q: Any,
        dim: Any = None,
        keepdim: Any = None,
        *,
        interpolation: str = "linear",
        axis: Any = None,
        keepdims: Any = None,
    ) -> Tensor:
        input, at = _checked(name, input, q, interpolation)
        dim = either("dim", dim, "axis", axis, None)
        dims = dims_of(input, None) if dim is None else (dim_of(input, dim),) if input.spec.shape else ()
        keep = bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))
        shift = _shift(name, q, interpolation)
        return quantiles(input, at, dims, interpolation, without_nan=without_nan, keepdim=keep, shift=shift)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}

    ``q`` is a number, or a tensor of numbers that become the first dim of the result; ``interpolation`` is linear,
    lower, higher, midpoint or nearest. q has a gradient where it is linear. RuntimeError for q outside of [0, 1],
    integers and empty tensors.

    >>> x = tape.tensor([[1.0, 2.0, 3.0, 5.0], [1.0, 2.0, float('nan'), 4.0]])
    >>> tape.{name}(x, 0.5, 1).tolist()
    {example}
    """
    return public()(function)


quantile = _function(
    "quantile", "Return quantiles of all elements or along ``dim``; nan where an element is nan.", "[2.5, nan]"
)
nanquantile = _function(
    "nanquantile", "Return quantiles, of all or along ``dim``, of the elements that are not nan.", "[2.5, 2.0]"
)


def _numpy(name: str, scale: float) -> Any:
    without_nan = name.startswith("nan")

    def function(
        x: Tensor,
        q: Any,
        axis: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        weights: Any = None,
    ) -> Tensor:
        del overwrite_input
        if weights is not None:
            raise TypeError(f"np.{name} of a tensor takes no weights=")
        x = x if x.spec.dtype.kind == "f" else cast(x, np.float64)
        if not isinstance(q, (float, int)):  # as NumPy: an array is not weak
            x = cast(x, np.result_type(x.spec.dtype, q.spec.dtype if isinstance(q, Tensor) else np.asarray(q).dtype))
        at = _fractions(q) / scale
        if not ((at >= 0) & (at <= 1)).all():
            raise ValueError(f"{name}: q must be in the range [0, {scale:g}]")
        if x.spec.size == 0:
            raise IndexError(f"np.{name} of an empty tensor of shape {list(x.spec.shape)}")
        shift = _shift(f"np.{name}", q, method, scale)
        return quantiles(x, at, dims_of(x, axis), method, without_nan=without_nan, keepdim=keepdims, shift=shift)

    return function


for _name, _scale in (("quantile", 1.0), ("percentile", 100.0), ("nanquantile", 1.0), ("nanpercentile", 100.0)):
    reduces(getattr(np, _name))(_numpy(_name, _scale))


def _mean_of_middle(name: str) -> Any:
    between = _numpy(name.replace("median", "quantile"), 1.0)

    def function(x: Tensor, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
        del overwrite_input
        if x.spec.size == 0:
            dtype = x.spec.dtype if x.spec.dtype.kind == "f" else np.float64
            return tensor_of(np.full(np.sum(as_array(x), axis, keepdims=keepdims).shape, np.nan, dtype))
        return between(x, 0.5, axis, method="midpoint", keepdims=keepdims)  # type: ignore[no-any-return]

    return function


reduces(np.median)(_mean_of_middle("median"))
reduces(np.nanmedian)(_mean_of_middle("nanmedian"))
