"""NumPy's elementwise functions that are no ufunc with a record of its own: with NumPy's arguments and meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations import elementwise, indexing
from tape.operations.numpy_arguments import array_like, cast, not_nan, reduces
from tape.operations.operators import FUNCTIONS, RUN
from tape.operations.reductions.sorting import escaped_values
from tape.recording import pick_calls, views
from tape.recording.arguments import dims_of, either
from tape.tensors.operands import Number, tensor_of
from tape.tensors.registration import NUMPY, implements
from tape.tensors.tensor import Tensor, method

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


@method("__rdivmod__")
def _reflected_divmod(x2: Tensor, x1: Any) -> tuple[Tensor, Tensor]:
    return _divmod(x1, x2)


@implements(np.clip, records="clamp clamp_above clamp_below")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002
    low, high = either("a_min", a_min, "min", min, None), either("a_max", a_max, "max", max, None)
    return views.clone(tensor_of(a)) if low is None and high is None else elementwise.clamp(a, low, high)


@implements(np.round, np.around, records="rint round_decimals")
def _round(a: Any, decimals: int = 0) -> Tensor:
    return elementwise.round(a, decimals=decimals)


@method("__round__")
def _rounded(x: Tensor, ndigits: int | None = None) -> Tensor:
    """Round each element, as ``np.round``: ``round(x)`` is a tensor, too."""
    return elementwise.round(x, decimals=ndigits or 0)


@method("__reversed__")
def _reversed(x: Tensor) -> Tensor:
    """Return the tensor reversed along its first dim, as PyTorch does."""
    return x.flip(0) if x.spec.shape else x


@implements(np.nan_to_num, records="nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Tensor:
    if not copy:
        raise TypeError("np.nan_to_num of a tensor takes no copy=False; use tensor.nan_to_num_()")
    return elementwise.nan_to_num(x, nan, posinf, neginf)


@implements(np.isclose)
def _isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    return elementwise.isclose(a, b, rtol, atol, equal_nan)


@implements(np.allclose)
def _allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return elementwise.allclose(a, b, rtol, atol, equal_nan)


@implements(np.fix, records="trunc")
def _fix(x: Any) -> Tensor:
    return FUNCTIONS["trunc"](x)  # type: ignore[no-any-return]


@implements(np.sinc, records="sinc")
def _sinc(x: Any) -> Tensor:
    return FUNCTIONS["sinc"](x)  # type: ignore[no-any-return]


@implements(np.i0, records="i0")
def _i0(x: Any) -> Tensor:
    return FUNCTIONS["i0"](x)  # type: ignore[no-any-return]


@implements(np.isposinf, records="isposinf")
def _isposinf(x: Any) -> Tensor:
    return FUNCTIONS["isposinf"](x)  # type: ignore[no-any-return]


@implements(np.isneginf, records="isneginf")
def _isneginf(x: Any) -> Tensor:
    return FUNCTIONS["isneginf"](x)  # type: ignore[no-any-return]


# NumPy's functions that choose elements by values: one of several arrays, what is not nan, what is not zero.


@implements(np.choose)
def _choose(a: Any, choices: Any, mode: str = "raise") -> Tensor:
    """Take each element from the choice of the number in a, broadcast together; the gradient goes to what is taken."""
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    options = list(choices)
    if not options:
        raise ValueError("0-length sequence.")
    at = escaped_values(array_like(a), np.choose.__name__)
    at = pick_calls.integers(at.astype(np.int64) if at.dtype == np.bool_ else at, np.choose.__name__, TypeError)
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
