"""Gradient mode, the tape of this thread, and the program being recorded: all per thread and context.

``active`` is what every operation asks first: the tape to record on.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from tape.tapes import Tape

Function = TypeVar("Function", bound=Callable[..., Any])


class Observer(Protocol):
    """What a program being recorded is told of."""

    def note(self, op: Any, operands: tuple[Any, ...], result: Any, params: tuple[Any, ...]) -> None:
        """Hear of an operation that has run."""

    def given(self, x: Any) -> bool:
        """Return whether a tensor is an argument, which the program may write to."""

    def overwrites(self, x: Any, value: Any) -> None:
        """Hear that a value is about to be written into a tensor."""

    def wrote(self, op: Any, x: Any, value: Any, params: tuple[Any, ...]) -> None:
        """Hear that it has been written."""

    def taken(self, x: Any, value: Any) -> None:
        """Hear that a tensor has become what another is."""

    def replaces(self, x: Any, other: Any) -> None:
        """Hear that a tensor is about to have another's memory for its own."""

    def left(self, tensor: Any) -> None:
        """Hear that a value leaves for Python."""


class Noting(Protocol):
    """What anomaly mode is, as seen from here."""

    def note(self, slot: Any) -> None:
        """Hear of the slot of an operation that has been recorded."""


class Mode(NamedTuple):
    """Whether gradients are recorded, the program being recorded, and the hooks that pack what is saved.

    ``unpackable`` is the message of whoever forbids such hooks. Then anomaly mode, and inference mode.
    """

    grad: bool = True
    recorder: Observer | None = None
    pack: tuple[Any, Any] | None = None
    unpackable: str = ""
    anomaly: Noting | None = None
    inference: bool = False


_mode: ContextVar[Mode] = ContextVar("tape_mode", default=Mode())  # noqa: B039 (a tuple)
_own: ContextVar[Tape | None] = ContextVar("tape_own", default=None)
_active: ContextVar[Any] = ContextVar("tape_active", default=None)
active = _active.get
"""The tape to record on; False where gradients are off; None where only the longer way of an operation will do."""
ON_MADE: list[Callable[[Any], None]] = []
"""Who hears of new leaves: an entry for each inference mode that some thread is in."""


def current() -> Mode:
    """Return the mode of this thread and context."""
    return _mode.get()


def own_tape() -> Tape:
    """Return this thread's tape, made at its first use."""
    tape = _own.get()
    if tape is None:
        tape = Tape()
        _own.set(tape)
    return tape


def wanted_tape() -> Tape | None:
    """Return the tape to record on, None where gradients are off."""
    mode = _mode.get()
    if not mode.grad or mode.inference:
        return None
    tape = own_tape()
    if _active.get() is not tape and _short(mode):
        _active.set(tape)
    return tape


def set_mode(mode: Mode) -> Mode:
    """Change the mode of this context; return the one before."""
    before = _mode.get()
    _mode.set(mode)
    _active.set(None if not _short(mode) else own_tape() if mode.grad else False)
    return before


def restore(mode: Mode) -> None:
    """Change the mode of this context back, whatever interrupt comes meanwhile."""
    try:
        set_mode(mode)
    finally:
        set_mode(mode)


def _short(mode: Mode) -> bool:
    """Return whether operations may take the short way: nobody but the tape is to hear of them."""
    _, recorder, pack, _, anomaly, inference = mode
    return recorder is None and pack is None and anomaly is None and not inference


@contextmanager
def unrecorded() -> Iterator[None]:
    """Within it nothing is recorded, by tapes or programs."""
    before = _mode.get()
    try:
        set_mode(before._replace(grad=False, recorder=None))
        yield
    finally:
        restore(before)


@contextmanager
def kept(**changed: Any) -> Iterator[None]:
    """Run the user's code in the middle of a backward: whatever modes it enters and does not leave end with it."""
    before, depth = _mode.get(), within()
    try:
        _user.depth = depth + 1
        if changed:
            set_mode(before._replace(**changed))
        yield
    finally:
        _user.depth = depth
        if _mode.get() is not before:
            restore(before)


_user = threading.local()


def within() -> int:
    """Return in how many backwards of this thread, each inside the next, the user's code runs."""
    return getattr(_user, "depth", 0)


def noted(slot: Any) -> None:
    """Tell anomaly mode that an operation has been recorded."""
    anomaly = _mode.get().anomaly
    if anomaly is not None and type(slot) is int:
        anomaly.note(slot)


def is_grad_enabled() -> bool:
    """Return whether operations on tensors that require grad are recorded."""
    return _mode.get().grad


class Switch:
    """A context manager and decorator that turns gradient mode to ``to``; entering again nests."""

    to: bool

    def __init__(self) -> None:
        self._before: list[tuple[Mode, Mode]] = []

    def __enter__(self) -> Self:
        mode = self.changed(_mode.get())
        self._before.append((set_mode(mode), mode))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now, (before, within) = _mode.get(), self._before.pop()
        restore(before if now is within else self.restored(now, before))

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return Mode(self.to, *mode[1:])

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode in which what this changes is as it was before."""
        return Mode(before.grad, *mode[1:])

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
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()  # type: ignore[misc]
        return self(function)

    def __init__(self, function: Any = None) -> None:  # noqa: ARG002 (__new__ has decorated it)
        super().__init__()


class enable_grad(no_grad):  # noqa: N801
    """Within it operations are recorded, inside ``no_grad`` too. Context manager and decorator."""

    to = True


class SwitchAtOnce(Switch):
    """A switch that acts when it is made; as a context manager the mode before comes back at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._set_at_once = set_mode(self.changed(_mode.get()))

    def __enter__(self) -> Self:
        mode = self.changed(_mode.get())
        set_mode(mode)
        self._before.append((self._set_at_once, mode))
        return self

    def __call__(self, function: Function) -> Function:
        """Decorate a function; the mode that the constructor set is taken back, as PyTorch does."""
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
