"""Gradient mode, the tape of this thread, and the program being recorded: all per thread and context.

``active`` is what every operation asks first: the tape to record on.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident, local
from types import TracebackType
from typing import Any, Self, TypeVar

from tape import tapes
from tape.observers import Mode, Observer, Own, keep
from tape.tapes import Tape

__all__ = ["Mode", "Observer", "Own", "keep"]

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

_own = Own()
_mode: ContextVar[Mode] = ContextVar("tape_mode", default=Mode())  # noqa: B039 (a tuple)
_active: ContextVar[Any] = ContextVar("tape_active", default=None)
active = _active.get
"""The tape to record on; False where gradients are off; None where only the longer way of an operation will do.

In a context copied from another thread it is that thread's at first, until a leaf is made, a longer way taken or a
chunk of slots given out (:func:`settle`): to ask each time costs a tenth of an operation, and appending is one call.
"""
ON_MADE: list[Callable[[Any], None]] = []
"""Who hears of new leaves: an entry for each inference mode that some thread is in."""


def current() -> Mode:
    """Return the mode of this thread and context; RuntimeError in the middle of a recording by another thread."""
    mode = _mode.get()
    if mode.recorder is not None and mode.thread != get_ident():
        raise RuntimeError(
            "this context was copied from a thread that records a program, or maps a function; what runs in another "
            "thread would be missing in it. Run it in the thread that records, or in a context of its own"
        )
    return mode


def own_tape() -> Tape:
    """Return this thread's tape, made at its first use."""
    tape = _own.tape
    if tape is None:
        tape = _own.tape = Tape()
    return tape


def settle() -> None:
    """Let a context that was copied from another thread record on the tape of this one."""
    tape = _active.get()
    if tape and tape.thread != get_ident():
        kept = keep()
        _active.set(own_tape())
        del kept


tapes.SETTLE.append(settle)


def wanted_tape() -> Tape | None:
    """Return the tape to record on, None where gradients are off."""
    mode = _mode.get()
    if not mode.grad or mode.inference:
        return None
    tape = own_tape()
    if _active.get() is not tape and _short(mode):
        kept = keep()
        _active.set(tape)
        del kept
    return tape


def set_mode(mode: Mode) -> None:
    """Change the mode of this context. Whoever does changes it back in ``finally``, entered before."""
    if mode.recorder is not None and mode.recorder is not _mode.get().recorder and mode.thread != get_ident():
        mode = mode._replace(thread=get_ident())
    kept = keep()
    _active.set(None)  # an interrupt may come between the two: the longer way asks for the mode
    _mode.set(mode)
    _active.set(None if not _short(mode) else own_tape() if mode.grad else False)
    del kept


def restore(mode: Mode) -> None:
    """Change the mode of this context back, whatever interrupt comes meanwhile."""
    try:
        set_mode(mode)
    except BaseException:
        set_mode(mode)
        raise


def change(mode: Mode, before: Mode, result: Result) -> Result:
    """Change the mode of this context, or if an interrupt comes leave it as it was; return what is given."""
    try:
        set_mode(mode)
        return result  # noqa: TRY300 (nothing is left to do for whoever returns it in turn)
    except BaseException:
        restore(before)
        raise


@contextmanager
def under(mode: Mode) -> Iterator[None]:
    """Change the mode of this context for a while."""
    before = _mode.get()
    try:
        set_mode(mode)
        yield
    finally:
        try:
            set_mode(before)
        except BaseException:
            set_mode(before)
            raise


def _short(mode: Mode) -> bool:
    """Return whether operations may take the short way: nobody but the tape is to hear of them."""
    _, recorder, pack, _, anomaly, inference, _ = mode
    return recorder is None and pack is None and anomaly is None and not inference


@contextmanager
def unrecorded() -> Iterator[None]:
    """Within it nothing is recorded, by tapes or programs."""
    with under(_mode.get()._replace(grad=False, recorder=None)):
        yield


class _User(local):
    """What is known of the user's code in each thread."""

    depth = 0


user = _User()
"""``depth``: in how many backwards of this thread, each inside the next, the user's code runs."""


@contextmanager
def kept(**changed: Any) -> Iterator[None]:
    """Run the user's code in the middle of a backward: whatever modes it enters and does not leave end with it."""
    before, depth = _mode.get(), user.depth
    try:
        user.depth = depth + 1
        if changed:
            set_mode(before._replace(**changed))
        yield
    finally:
        user.depth = depth
        if _mode.get() is not before:
            restore(before)


def is_grad_enabled() -> bool:
    """Return whether operations on tensors that require grad are recorded."""
    return _mode.get().grad


class Switch:
    """A context manager and decorator that turns gradient mode to ``to``; entering again nests."""

    to: bool

    def __init__(self) -> None:
        self._entered: Any = None

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
        self._set_at_once = before = _mode.get()
        change(self.changed(before), before, None)

    def __enter__(self) -> Self:
        self._entered = (self._set_at_once, within := self.changed(_mode.get()), self._entered)
        return change(within, self._set_at_once, self)

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
