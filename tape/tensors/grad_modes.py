"""Context managers and decorators that switch gradient mode: ``no_grad``, ``enable_grad``, ``set_grad_enabled``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from tape.tensors.modes import Mode, _mode, change, restore, set_mode, turned

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
