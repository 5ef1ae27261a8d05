"""NumPy's elementwise functions that are no ufunc with a record of its own: with NumPy's arguments and meaning."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations import elementwise
from tape.operations.operators import FUNCTIONS, RUN
from tape.recording import views
from tape.recording.arguments import either
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements
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
