"""What an array is besides its values: dtype, device, memory format, size; PyTorch's names."""

from __future__ import annotations

import builtins
import math
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import numpy as np

float64 = double = np.dtype(np.float64)
float32 = float = np.dtype(np.float32)  # noqa: A001 (PyTorch's names)
float16 = half = np.dtype(np.float16)
int64 = long = np.dtype(np.int64)
int32 = int = np.dtype(np.int32)  # noqa: A001
int16 = short = np.dtype(np.int16)
int8 = np.dtype(np.int8)
uint8 = np.dtype(np.uint8)
bool = np.dtype(np.bool_)  # noqa: A001

dtype = np.dtype

__all__ = [
    "Size", "accelerator", "backends", "bool", "contiguous_format", "cuda", "device", "double", "dtype", "float",
    "float16", "float32", "float64", "get_default_device", "get_default_dtype", "half", "int", "int8", "int16", "int32",
    "int64", "layout", "long", "memory_format", "preserve_format", "set_default_device", "set_default_dtype", "short",
    "strided", "uint8",
]  # fmt: skip


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """Return a dtype as tensors have it: of this machine's byte order, whatever order it is given in."""
    wanted: np.dtype[Any] = np.dtype(dtype)
    if not wanted.isnative:
        wanted = wanted.newbyteorder("=")
    return wanted


def check_gradient(dtype: np.dtype[Any]) -> None:
    """Raise RuntimeError where tensors of a dtype have no gradients."""
    if dtype not in (float64, float32):
        kind = "floating point and complex dtype" if dtype.kind != "f" else "dtype float64 and float32"
        raise RuntimeError(f"Only Tensors of {kind} can require gradients, got {dtype.name}; give dtype=tape.float64")


DEFAULT = {"dtype": float64}
"""What ``get_default_dtype`` returns, for those who cannot spare a call."""


def set_default_dtype(dtype: Any) -> None:
    """Make float32 or float64 the dtype of new tensors of Python floats."""
    wanted = np.dtype(dtype)
    if wanted not in (float32, float64):
        raise TypeError(f"only floating-point types are supported as the default type, got {wanted}")
    DEFAULT["dtype"] = wanted


def get_default_dtype() -> np.dtype[Any]:
    """Return the dtype of new tensors of Python floats."""
    return DEFAULT["dtype"]


_DEVICE_TYPES = ("cpu", "cuda", "mps", "xpu", "hpu", "meta")


class device(str):  # noqa: N801 (PyTorch's name)
    """PyTorch's ``device``: its name, "cpu" or "cpu:0"; others can be named, and nothing can be put on them."""

    __slots__ = ()
    __module__ = "tape"  # what pickles name

    def __new__(cls, kind: Any = "cpu", index: builtins.int | None = None) -> Self:
        """Name a device by its kind and number, or as "cpu:0"."""
        name, _, number = str(kind).partition(":")
        if name not in _DEVICE_TYPES:
            known = ", ".join(_DEVICE_TYPES)
            raise RuntimeError(f"Expected one of {known} device type at start of device string: {kind}")
        if number and not number.isdecimal():
            raise RuntimeError(f"Invalid device string: '{kind}'")
        if number and index is not None:
            raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {kind}")
        place = number if index is None else str(index)
        return super().__new__(cls, f"{name}:{place}" if place else name)

    @property
    def type(self) -> str:
        """The kind of device."""
        return str(self).partition(":")[0]

    @property
    def index(self) -> builtins.int | None:  # type: ignore[override]
        """Its number, None where none was given."""
        number = str(self).partition(":")[2]
        return builtins.int(number) if number else None

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )


def check_device(device: Any) -> None:
    """Raise unless the device is None or "cpu"."""
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise RuntimeError(f"device {str(device)!r}: tape computes on the CPU only; leave device out or give 'cpu'")


def set_default_device(device: Any) -> None:
    """Do nothing for "cpu" and None; RuntimeError for other devices: tape computes on the CPU only."""
    check_device(device)


def get_default_device() -> device:
    """Return device("cpu")."""
    return device("cpu")


def _none(*_: Any) -> NoReturn:
    raise RuntimeError("tape computes on the CPU only")


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: there is no device to do it on."""


def _no(*_: Any) -> builtins.bool:
    return False


def _zero(*_: Any) -> builtins.int:
    return 0


_NOTHING = "empty_cache init ipc_collect manual_seed manual_seed_all reset_peak_memory_stats set_device synchronize"
_ZERO = "device_count max_memory_allocated max_memory_reserved memory_allocated memory_reserved"
cuda = SimpleNamespace(
    is_available=_no, is_bf16_supported=_no, is_initialized=_no, current_device=_none, get_device_name=_none,
    get_device_properties=_none, **dict.fromkeys(_ZERO.split(), _zero), **dict.fromkeys(_NOTHING.split(), _nothing),
)  # fmt: skip
"""What programs ask of PyTorch's ``cuda``: there is none."""
accelerator = SimpleNamespace(is_available=_no, device_count=_zero, current_accelerator=_nothing)
"""Likewise PyTorch's ``accelerator``."""
backends = SimpleNamespace(
    mps=SimpleNamespace(is_available=_no, is_built=_no),
    cuda=SimpleNamespace(is_built=_no, matmul=SimpleNamespace(allow_tf32=False)),
    cudnn=SimpleNamespace(
        is_available=_no, version=_nothing, enabled=False, benchmark=False, deterministic=True, allow_tf32=False
    ),
)
"""Likewise PyTorch's ``backends``."""


# PyTorch's keywords for memory: ``layout``, ``pin_memory`` and ``memory_format``, of which one kind each is served.


class _Named:
    """A constant of which there is one, found again by its name in ``tape``."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"tape.{self._name}"

    def __reduce__(self) -> str:
        """Pickle and copy it by its name."""
        return self._name


class layout(_Named):  # noqa: N801 (PyTorch's name)
    """How the elements of a tensor are stored; ``tape.strided`` is the one that there is."""

    __slots__ = ()
    __module__ = "tape"  # what pickles name


class memory_format(_Named):  # noqa: N801 (PyTorch's name)
    """In which order the elements of a new tensor stand: ``tape.contiguous_format`` or ``tape.preserve_format``."""

    __slots__ = ()
    __module__ = "tape"


strided = layout("strided")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
_FORMATS = (contiguous_format, preserve_format)
_OF_PYTORCH = ("torch.contiguous_format", "torch.preserve_format")


def check_memory(name: str, layout: Any, pin_memory: Any) -> None:
    """Raise unless a function is asked for memory such as there is: strided, and not pinned."""
    if pin_memory:
        raise RuntimeError(f"{name}(): pin_memory=True requires an accelerator; tape computes on the CPU only")
    if layout is not None:
        check_layout(name, layout)


def check_layout(name: str, layout: Any) -> None:
    """Raise unless a layout is the strided one, PyTorch's too."""
    if layout is not strided and str(layout) != "torch.strided":
        raise RuntimeError(f"{name}(): layout {layout} is not supported; tensors are tape.strided")


def check_format(name: str, memory_format: Any) -> None:
    """Raise unless a memory format is contiguous, or that of the tensor itself; PyTorch's are taken too."""
    if memory_format not in _FORMATS and str(memory_format) not in _OF_PYTORCH:
        raise RuntimeError(
            f"{name}(): memory format {memory_format} is not supported; there are tape.contiguous_format and "
            "tape.preserve_format"
        )


class Size(tuple[builtins.int, ...]):
    """The extents of a tensor's dims."""

    __slots__ = ()
    __module__ = "tape"  # what pickles name

    def __getitem__(self, key: Any) -> Any:
        extents = tuple.__getitem__(self, key)
        return Size(extents) if isinstance(key, slice) else extents

    def numel(self) -> builtins.int:
        """Return the number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"tape.Size([{', '.join(map(str, self))}])"
