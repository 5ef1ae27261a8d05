"""Inference mode: nothing is recorded within, and tensors made there cannot be part of what is recorded later.

A tensor made in it has a spec of its own class: no key of what is known of other tensors, so that an operation on it
takes the longer way the first time, where it is checked. Other tensors are never asked.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from kernels.arrays.specs import Spec
from kernels.instructions.form import Form
from tape.tensors import modes
from tape.tensors.grad_modes import Switch
from tape.tensors.modes import ON_MADE, Mode
from tape.tensors.tensor import Tensor, as_array, method

__all__ = ["inference_mode", "is_inference", "is_inference_mode_enabled"]

_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
    "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in "
    "autograd, or use `tape.no_grad()` instead of `tape.inference_mode()`."
)
_WRITTEN = (
    "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal "
    "tensor before doing inplace update."
)
_WANTED = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
_COUNTED = "Inference tensors do not track version counter."


class InferenceSpec(Spec):
    """The spec of a tensor made in inference mode: equal to another spec in content, but another object and class.

    It says that its elements overlap, so that writes look closer: see :func:`overlapping`.
    """

    __slots__ = ("plain",)

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec.shape, spec.strides, spec.dtype, spec.gradient, spec.buffer_size)
        self.overlaps = True
        self.plain = spec


def alike(spec: Spec, source: Spec) -> Spec:
    """Return a spec as an inference spec if ``source`` is one."""
    if type(source) is not InferenceSpec or type(spec) is InferenceSpec:
        return spec
    return _marked(spec)


def _marked(spec: Spec) -> InferenceSpec:
    if spec.inference is None:
        spec.inference = InferenceSpec(spec)
    inference_spec: InferenceSpec = spec.inference
    return inference_spec


def made(x: Tensor) -> None:
    """Make a new tensor an inference tensor if it was made in that mode."""
    if modes.current().inference and type(x._form.spec) is not InferenceSpec:
        as_array(x)  # a Python float would be known to the fast path
        x._form = _marked(x._form.spec)


@method()
def is_inference(input: Tensor) -> bool:
    """Return whether the tensor was made in inference mode, or views one that was."""
    return type(input._form.spec) is InferenceSpec


def is_inference_mode_enabled() -> bool:
    """Return whether inference mode is on in this thread and context."""
    return modes.current().inference


def checked(form: Form) -> Form:
    """Return a new form; RuntimeError if an instruction of it would keep an inference tensor for its backward."""
    if any(type(spec) is InferenceSpec and name in form.saved for name, spec in named(form)):
        raise RuntimeError(_SAVED)
    return form


def named(form: Form) -> list[tuple[str, Spec | None]]:
    """Return the operands that rules may mention, by the names that they have there, with their specs."""
    return list(zip(form.op.inputs, form.specs, strict=False))


def overlapping(x: Tensor, base: Tensor) -> bool:
    """Return whether elements of a tensor, or of its base, share memory.

    Raises RuntimeError for an inference tensor outside of the mode, which must not be written.
    """
    if is_inference(x) and not modes.current().inference:
        raise RuntimeError(_WRITTEN)
    specs = x._form.spec, base._form.spec
    return any(spec.plain.overlaps if isinstance(spec, InferenceSpec) else spec.overlaps for spec in specs)


def check_requires_grad(x: Tensor) -> None:
    """Raise for an inference tensor that is to require grad outside of the mode."""
    if is_inference(x) and not modes.current().inference:
        raise RuntimeError(_WANTED)


def check_counted(x: Tensor) -> None:
    """Raise for an inference tensor: writes to it are not counted."""
    if is_inference(x):
        raise RuntimeError(_COUNTED)


class inference_mode(Switch):  # noqa: N801 (PyTorch's name)
    """Like ``no_grad``; besides, tensors made within cannot be saved for a backward, or be written later.

    ``inference_mode(False)`` within it is ordinary recording. Context manager and decorator, of this thread.
    """

    def __new__(cls, mode: Any = True) -> Any:
        """Allow ``@inference_mode`` without parentheses, as PyTorch does."""
        if isinstance(mode, bool):
            return super().__new__(cls)
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def __enter__(self) -> Self:
        if self.mode:
            ON_MADE.append(made)
        try:
            return super().__enter__()
        except BaseException:  # an interrupt
            if self.mode:
                ON_MADE.pop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self.mode:
                ON_MADE.pop()

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return mode._replace(grad=not self.mode, inference=self.mode)

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode in which what this changes is as it was before."""
        return mode._replace(grad=before.grad, inference=before.inference)

    def clone(self) -> inference_mode:
        """Return another of the same mode."""
        return inference_mode(self.mode)
