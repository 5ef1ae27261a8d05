"""NumPy's functions that choose elements by values: one of several arrays, what is not nan, what is not zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations import indexing
from tape.operations.numpy_arguments import array_like, cast, not_nan, reduces
from tape.operations.operators import FUNCTIONS
from tape.operations.reductions.sorting import escaped_values
from tape.recording import integer_indices, views
from tape.recording.arguments import dims_of
from tape.tensors.operands import Number
from tape.tensors.registration import NUMPY, implements
from tape.tensors.tensor import Tensor


@implements(np.choose)
def _choose(a: Any, choices: Any, mode: str = "raise") -> Tensor:
    """Take each element from the choice of the number in a, broadcast together; the gradient goes to what is taken."""
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    options = list(choices)
    if not options:
        raise ValueError("0-length sequence.")
    at = escaped_values(array_like(a), np.choose.__name__)
    at = integer_indices.integers(at.astype(np.int64) if at.dtype == np.bool_ else at, np.choose.__name__, TypeError)
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
    ranges = [(int(at[0]), int(at[-1]) + 1) if at.size else (0, 0) for at in _places(x)]
    front, behind = "f" in trim.lower(), "b" in trim.lower()
    ends = [
        (low if front or low == high else 0, high if behind or low == high else n)
        for (low, high), n in zip(ranges, x.spec.shape, strict=True)
    ]
    return indexing.index(x, tuple(slice(*pair) if k in axes else slice(None) for k, pair in enumerate(ends)))


def _places(x: Tensor) -> list[Any]:
    """Return, of each axis, the places of what is not zero, in order."""
    return (
        [np.unique(at) for at in np.nonzero(escaped_values(x.detach(), np.trim_zeros.__name__))] if x.spec.shape else []
    )


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
