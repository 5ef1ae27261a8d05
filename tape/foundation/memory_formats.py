"""PyTorch's keywords for memory: ``layout``, ``pin_memory`` and ``memory_format``, of which one kind each is served."""

from __future__ import annotations

from typing import Any


class layout:  # noqa: N801 (PyTorch's name)
    """How the elements of a tensor are stored; ``tape.strided`` is the one that there is."""

    __slots__ = ("_name",)
    __module__ = "tape"  # what pickles name

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"tape.{self._name}"

    def __reduce__(self) -> str:
        """Pickle and copy it by its name: there is one of each."""
        return self._name


class memory_format(layout):  # noqa: N801 (PyTorch's name)
    """In which order the elements of a new tensor stand: ``tape.contiguous_format`` or ``tape.preserve_format``."""

    __slots__ = ()
    __module__ = "tape"


strided = layout("strided")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
_FORMATS = (contiguous_format, preserve_format)
_OF_PYTORCH = ("torch.contiguous_format", "torch.preserve_format")


def check_memory(name: str, layout: Any, pin_memory: Any, memory_format: Any = None) -> None:
    """Raise unless a function is asked for memory such as there is: strided, not pinned, no channels last."""
    if pin_memory:
        raise RuntimeError(f"{name}(): pin_memory=True requires an accelerator; tape computes on the CPU only")
    if layout is not None:
        check_layout(name, layout)
    if memory_format is not None:
        check_format(name, memory_format)


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
