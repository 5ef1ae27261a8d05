"""The array API standard (2024.12) for real dtypes: what ``Tensor.__array_namespace__`` returns.

NumPy's main namespace follows the standard, and its functions find the records (``numpy_interface``); here they
stand beside creation functions that make tensors. Missing are complex dtypes, uint16 to uint64 and fft.
"""

from __future__ import annotations

import builtins
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from tape.operations import sorting
from tape.recording import creation, to_python
from tape.recording.promotion import common_dtype
from tape.recording.record import to_dtype
from tape.tensors.dtypes import bool as bool_dtype
from tape.tensors.dtypes import check_device, dtype_of, float32, float64, int8, int16, int32, int64, uint8
from tape.tensors.hooks import implements
from tape.tensors.operands import as_ndarray, usable
from tape.tensors.tensor import Tensor, method

__array_api_version__ = "2024.12"

ELEMENTWISE = """
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or
bitwise_right_shift bitwise_xor ceil clip copysign cos cosh divide equal exp expm1 floor floor_divide greater
greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not
logical_or logical_xor maximum minimum multiply negative not_equal positive pow reciprocal remainder round sign
signbit sin sinh sqrt square subtract tan tanh trunc
""".split()  # noqa: SIM905 (a list of words)
LINALG = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr
slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()  # noqa: SIM905 (a list of words)
OTHERS = """
all any argmax argmin astype broadcast_arrays broadcast_to concat count_nonzero cumulative_prod
cumulative_sum diff expand_dims flip matmul matrix_transpose max mean meshgrid min moveaxis nonzero permute_dims
prod repeat reshape roll searchsorted squeeze stack std sum take take_along_axis tensordot tile tril triu
unique_all unique_counts unique_inverse unique_values unstack var vecdot where
""".split()  # noqa: SIM905 (a list of words)
LIKE = "empty_like full_like ones_like zeros_like".split()  # noqa: SIM905 (a list of words)
BEYOND = "cumprod cumsum einsum gradient isin pad transpose".split()  # noqa: SIM905 (a list of words)
"""What the standard does not have and xarray asks for; and ``lib.stride_tricks``."""
e, inf, nan, pi, newaxis = float(np.e), float(np.inf), float(np.nan), float(np.pi), None
_DTYPES = {
    "bool": bool_dtype, "float32": float32, "float64": float64, "int8": int8, "int16": int16, "int32": int32,
    "int64": int64, "uint8": uint8,
}  # fmt: skip
_DEFAULTS = {"real floating": float64, "integral": int64, "indexing": int64}
globals().update(_DTYPES)
globals().update({name: getattr(np, name) for name in (*ELEMENTWISE, *OTHERS, *LIKE, *BEYOND)})
linalg = SimpleNamespace(**{name: getattr(np.linalg, name) for name in LINALG})
"""The linear algebra extension."""
from_dlpack, lib = to_python.from_dlpack, np.lib


def _made(array: Any, device: Any) -> Tensor:
    """Return a new array of NumPy's as a tensor."""
    if device is not None:
        check_device(device)
    return creation.from_numpy(np.asarray(array))


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return numbers from start up to, not including, stop; from 0 up to start if it is alone."""
    start, stop = (start, stop) if stop is not None else (0, start)
    return _made(np.arange(start, stop, step, dtype=dtype), device)


def linspace(
    start: Any, stop: Any, /, num: int = 50, endpoint: bool = True, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Return ``num`` evenly spaced numbers from start to stop, which is left out without ``endpoint``."""
    return _made(np.linspace(start, stop, num, endpoint, dtype=dtype), device)


def eye(n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: Any = float, *, device: Any = None) -> Tensor:
    """Return a matrix with ones on the k-th diagonal."""
    return _made(np.eye(n_rows, n_cols, k, dtype), device)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return a tensor filled with one number, whose type decides the dtype."""
    return _made(np.full(shape, fill_value, dtype), device)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return a tensor of ones."""
    return _made(np.ones(shape, dtype), device)


def zeros(shape: Any, dtype: Any = float, *, device: Any = None) -> Tensor:
    """Return a tensor of zeros."""
    return _made(np.zeros(shape, dtype), device)


def empty(shape: Any, dtype: Any = float, *, device: Any = None) -> Tensor:
    """Return a tensor whose elements are not set."""
    return _made(np.empty(shape, dtype), device)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return data as a tensor, sharing memory where it can, unless ``copy``; ValueError where ``copy=False`` cannot."""
    if device is not None:
        check_device(device)
    if not isinstance(obj, Tensor):
        data = obj if not isinstance(obj, np.ndarray) else as_ndarray(obj) if copy is False else usable(obj)
        return creation.from_numpy(np.array(data, dtype=None if dtype is None else dtype_of(dtype), copy=copy))
    same = dtype is None or dtype_of(dtype) == obj.spec.dtype
    if copy is False and not same:
        raise ValueError(f"asarray: a tensor of dtype {obj.spec.dtype} as {dtype_of(dtype)} is a copy")
    changed = obj if same else obj.to(dtype)
    return changed.clone() if copy and same else changed


@implements(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """Return a tensor in another dtype, recorded where both are floating; itself with ``copy=False`` if it has it."""
    if device is not None:
        check_device(device)
    return x if not copy and x.spec.dtype == dtype_of(dtype) else to_dtype(x, dtype_of(dtype))


def sort(x: Any, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """Return the elements in order along an axis; with ``descending`` the largest first."""
    return sorting.sort(x, axis, descending, stable).values  # type: ignore[no-any-return]


def argsort(x: Any, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """Return the places of the elements in order along an axis; equal elements keep theirs."""
    return sorting.argsort(x, axis, descending, stable)


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Return whether a dtype, or a tensor's, can be cast to another by promotion."""
    return np.can_cast(_dtype(from_), to)


def finfo(type: Any, /) -> Any:  # noqa: A002 (the standard's name)
    """Return the limits of a floating dtype, or a tensor's."""
    return np.finfo(_dtype(type))


def iinfo(type: Any, /) -> Any:  # noqa: A002
    """Return the limits of an integer dtype, or a tensor's."""
    return np.iinfo(_dtype(type))


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Return whether a dtype is of a kind such as ``"real floating"``."""
    return np.isdtype(dtype, kind)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return the dtype that operands are computed in: PyTorch's of tensors, numbers and dtypes, NumPy's beside arrays.

    >>> tape.result_type(tape.ones(2, dtype=tape.float32), tape.tensor(1.0)).name
    'float32'
    """
    return common_dtype(*arrays_and_dtypes)


def _dtype(x: Any) -> Any:
    return x.spec.dtype if isinstance(x, Tensor) else x


def __array_namespace_info__() -> SimpleNamespace:  # noqa: N807 (the standard's name)
    """Return what there is of the standard: devices, dtypes, capabilities."""
    return SimpleNamespace(
        capabilities=lambda: {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64},
        default_device=lambda: "cpu",
        default_dtypes=lambda *, device=None: dict(_DEFAULTS),  # noqa: ARG005 (there is one device)
        devices=lambda: ["cpu"],
        dtypes=lambda *, device=None, kind=None: {  # noqa: ARG005
            name: dtype for name, dtype in _DTYPES.items() if kind is None or np.isdtype(dtype, kind)
        },
    )


@method("__array_namespace__")
def array_namespace(x: Tensor, *, api_version: str | None = None) -> Any:
    """Return the module of the standard's functions. ValueError for another version than it has."""
    del x
    if api_version not in (None, "2021.12", "2022.12", "2023.12", __array_api_version__):
        raise ValueError(f"the array API standard {api_version} is not supported; {__array_api_version__} is")
    return sys.modules[__name__]


@method()
def to_device(x: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """Return the tensor itself: the only device is "cpu".

    >>> tape.ones(1).to_device("cpu")
    tensor([1.])
    """
    del stream
    check_device(device)
    return x


__all__ = [
    "__array_api_version__", "__array_namespace_info__", "arange", "argsort", "asarray", "can_cast", "e", "empty",
    "eye", "finfo", "from_dlpack", "full", "iinfo", "inf", "isdtype", "linalg", "linspace", "nan", "newaxis", "ones",
    "pi", "result_type", "sort", "zeros",
]  # fmt: skip
__all__ += [*ELEMENTWISE, *OTHERS, *LIKE, *BEYOND, *_DTYPES]  # noqa: PLE0604 (they are names)
