"""Devices, of which there is one: PyTorch's ``device``, and what programs ask before they choose one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn, Self

_KINDS = ("cpu", "cuda", "mps", "xpu", "hpu", "meta")


class device(str):  # noqa: N801 (PyTorch's name)
    """PyTorch's ``device``: its name, "cpu" or "cpu:0"; others can be named, and nothing can be put on them."""

    __slots__ = ()
    __module__ = "tape"  # what pickles name

    def __new__(cls, kind: Any = "cpu", index: int | None = None) -> Self:
        """Name a device by its kind and number, or as "cpu:0"."""
        name, _, number = str(kind).partition(":")
        if name not in _KINDS:
            raise RuntimeError(f"Expected one of {', '.join(_KINDS)} device type at start of device string: {kind}")
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
    def index(self) -> int | None:  # type: ignore[override]
        """Its number, None where none was given."""
        number = str(self).partition(":")[2]
        return int(number) if number else None

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )


def check_device(device: Any) -> None:
    """Raise unless the device is None or "cpu"."""
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise RuntimeError(f"device {str(device)!r}: tape computes on the CPU only; leave device out or give 'cpu'")


def _none(*_: Any) -> NoReturn:
    raise RuntimeError("tape computes on the CPU only")


cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0, current_device=_none)
"""What programs ask of PyTorch's ``cuda``: there is none."""
accelerator = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0, current_accelerator=lambda: None)
"""Likewise PyTorch's ``accelerator``."""
backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False, is_built=lambda: False))
"""Likewise PyTorch's ``backends``."""
