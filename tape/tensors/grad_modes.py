"""Modes of gradients: `no_grad`, `enable_grad`, `set_grad_enabled`, inference mode."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from kernels.foundation.specs import Spec
from kernels.kinds.form import Form
from tape.tensors import modes
from tape.tensors.modes import ON_MADE, Mode, _mode, change, restore, set_mode, turned
from tape.tensors.tensor import Tensor, as_array, method

Function = TypeVar("Function", bound=Callable[..., Any])


class Switch:
    """A context manager and decorator that turns gradient mode to ``to``; entering again nests."""

    to: bool
    _entered: Any = None

    def __enter__(self) -> Self:
        before = _mode.get()
        self._entered = (before, within := self.changed(before), self._entered)
        return change(within, before, self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered = self._entered
        try:
            self._leave(*entered)
        except BaseException:  # an interrupt
            self._leave(*entered)
            raise

    def _leave(self, before: Mode, within: Mode, outer: Any) -> None:
        now = _mode.get()
        restore(before if now is within else self.restored(now, before))
        self._entered = outer

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return turned(mode, grad=self.to)

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode in which what this changes is as it was before."""
        return turned(mode, grad=before.grad)

    def clone(self) -> Switch:
        """Return another that does the same."""
        return type(self)()

    def __call__(self, function: Function) -> Function:
        """Decorate a function, or a generator function: the mode holds while its own code runs."""
        if inspect.isgeneratorfunction(function):
            return _around_generator(self, function)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


def _around_generator(switch: Switch, function: Function) -> Function:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        resume: Callable[[Any], Any] = generator.send
        sent: Any = None
        while True:
            try:
                with switch.clone():
                    item = resume(sent)
            except StopIteration as stop:
                return stop.value
            try:
                resume, sent = generator.send, (yield item)
            except GeneratorExit:
                with switch.clone():
                    generator.close()
                raise
            except BaseException as error:  # noqa: BLE001 (the generator's own business)
                resume, sent = generator.throw, error

    return wrapper  # type: ignore[return-value]


class no_grad(Switch):  # noqa: N801 (PyTorch's name)
    """Within it nothing is recorded and results do not require grad. Context manager and decorator."""

    to = False

    def __new__(cls, function: Any = None) -> Any:
        """Allow ``@no_grad`` without parentheses, as PyTorch does."""
        self = object.__new__(cls)
        return self if function is None else self(function)

    def __init__(self, function: Any = None) -> None:
        """Do nothing: ``__new__`` has decorated the function."""


class enable_grad(no_grad):  # noqa: N801
    """Within it operations are recorded, inside ``no_grad`` too. Context manager and decorator."""

    to = True


class SwitchAtOnce(Switch):
    """A switch that takes effect when it is made; as a context manager it restores the mode from before at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._set_at_once = before = _mode.get()
        change(self.changed(before), before, None)

    def __enter__(self) -> Self:
        self._entered = (self._set_at_once, within := self.changed(_mode.get()), self._entered)
        return change(within, self._set_at_once, self)

    def __call__(self, function: Function) -> Function:
        """Decorate a function; the mode that the constructor set is undone, as in PyTorch."""
        set_mode(self.restored(_mode.get(), self._set_at_once))
        return super().__call__(function)


class set_grad_enabled(SwitchAtOnce):  # noqa: N801
    """Set gradient mode at once; as a context manager the mode before comes back at its end."""

    def __init__(self, mode: bool) -> None:
        self.to = bool(mode)
        super().__init__()

    def clone(self) -> Switch:
        """Return another that sets the same mode."""
        return set_grad_enabled(self.to)


# Inference mode: nothing is recorded within, and tensors made there cannot be part of what is recorded later.
#
# A tensor made in it has a spec of its own class: no key of what is known of other tensors, so that an operation on it
# takes the longer way the first time, where it is checked. Other tensors are never asked.

__all__ = [
    "enable_grad", "inference_mode", "is_inference", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip

INFERENCE_SAVED = (
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
