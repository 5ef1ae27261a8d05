"""PyTorch's keywords for memory: ``layout``, ``pin_memory`` and ``memory_format``, of which one kind each is served."""

from __future__ import annotations

from typing import Any


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
