"""``autograd.forward_ad``: dual tensors, values with a tangent that operations carry on.

A dual is recorded as any tensor that requires grad, and so is what is computed from it within its level;
``unpack_dual`` pushes the tangents forward, in one native sweep. So a level turns gradients on; what is computed
under ``no_grad`` within it has no tangent, and ``requires_grad`` is True of all that has one.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import field
from typing import Any, NamedTuple

from kernels.foundation.tables import dataclass
from tape.recording import views
from tape.recording.attributes import detach
from tape.tensors import grad_modes
from tape.tensors.tensor import Tensor
from tape.transforms.points import fresh_input, needs_graph, pushed, settle

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """What a dual is made of; ``tangent`` is None where there is none."""

    primal: Tensor
    tangent: Tensor | None


@dataclass(slots=True)
class _Level:
    """The duals of a level: what each begins with, and its tangent."""

    on: grad_modes.enable_grad
    sources: list[Tensor] = field(default_factory=list)
    tangents: list[Tensor] = field(default_factory=list)
    unchanged: dict[Any, Tensor] = field(default_factory=dict)
    """The tangents that duals were made with, by slot: unpacked again, they are those, not copies."""


_level: ContextVar[_Level | None] = ContextVar("tape_dual_level", default=None)


def enter_dual_level() -> int:
    """Begin a level, whose duals end with it; return its number, 0. RuntimeError within another."""
    if _level.get() is not None:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment: use tape.func.jvp inside of the level"
        )
    level = _Level(grad_modes.enable_grad())
    level.on.__enter__()
    _level.set(level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level."""
    current = _level.get()
    if current is None or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _level.set(None)
    current.on.__exit__(None, None, None)
    settle(current.sources)


class dual_level(ContextDecorator):  # noqa: N801 (PyTorch's name)
    """A level as a context manager, or decorator: duals lose their tangents at its end.

    >>> import tape
    >>> from tape.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(tape.tensor(3.0), tape.tensor(1.0))
    ...     forward_ad.unpack_dual(x * x).tangent
    tensor(6.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *error: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a tensor of the same value that carries a tangent of the same shape and dtype.

    Gradients flow back to both. RuntimeError outside of a level, or if the shapes differ.
    """
    current = _level.get()
    if current is None or level not in (None, 0):
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, operand in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(operand, Tensor) or operand.spec.dtype.kind != "f":
            kind = operand.spec.dtype if isinstance(operand, Tensor) else type(operand).__name__
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {kind}")
    if tensor.spec.shape != tangent.spec.shape or tensor.spec.dtype != tangent.spec.dtype:
        raise RuntimeError(
            "Expected tangent to have the same shape and dtype as primal, but got "
            f"{list(tangent.spec.shape)} {tangent.spec.dtype} and {list(tensor.spec.shape)} {tensor.spec.dtype}"
        )
    with grad_modes.enable_grad():
        source = fresh_input(tensor)
        dual = views.clone(source)  # computed, so that it may be written in place
        has_tangent = tensor._slot is not None and current.sources
        before = pushed([tensor], current.sources, current.tangents)[0] if has_tangent else None
        current.sources.append(source)
        current.tangents.append(tangent if before is None else tangent - before)
        if before is None:
            current.unchanged[dual._slot] = tangent
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return a tensor's value and its tangent; None for the tangent of what depends on no dual."""
    current = _level.get()
    if current is None or level not in (None, 0) or tensor._slot is None or not current.sources:
        return UnpackedDualTensor(tensor, None)
    tangent = current.unchanged.get(tensor._slot)
    if tangent is None:
        (tangent,) = pushed([tensor], current.sources, current.tangents)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(tensor if needs_graph([tensor], current.sources) else detach(tensor), tangent)
