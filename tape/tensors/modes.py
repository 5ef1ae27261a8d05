"""Gradient mode, the tape of this thread, and the program being recorded: all per thread and context.

``active`` is what every operation asks first: the tape to record on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident, local
from typing import Any, TypeVar

from tape.tensors import tapes
from tape.tensors.observers import Mode, Observer, Own, keep
from tape.tensors.tapes import Tape

__all__ = ["Mode", "Observer", "Own", "keep"]

Result = TypeVar("Result")

_own = Own()
ON, OFF = Mode(), Mode(grad=False)
"""The modes of nearly all code: told by identity, they are entered without asking who else hears of operations."""
_mode: ContextVar[Mode] = ContextVar("tape_mode", default=ON)
_active: ContextVar[Any] = ContextVar("tape_active", default=None)
_heard: ContextVar[Any] = ContextVar("tape_heard", default=None)
"""Where a recorder alone is to hear of operations: the mode, the tape or False, the thread, what it is told by."""
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
    if mode is ON or mode is OFF:  # nobody but the tape hears of operations
        kept = keep()
        _active.set(None)
        _mode.set(mode)
        if _heard.get() is not None:
            _heard.set(None)
        _active.set((_own.tape or own_tape()) if mode is ON else False)
        del kept
        return
    if mode.recorder is not None and mode.recorder is not _mode.get().recorder and mode.thread != get_ident():
        mode = mode._replace(thread=get_ident())
    kept = keep()
    _active.set(None)  # an interrupt may come between the two: the longer way asks for the mode
    _mode.set(mode)
    if mode.recorder is not None or _heard.get() is not None:
        _heard.set(_hearing(mode))
    _active.set(None if not _short(mode) else own_tape() if mode.grad else False)
    del kept


def turned(mode: Mode, *, grad: bool) -> Mode:
    """Return a mode with gradients on or off, and all else as it is."""
    if mode is ON or mode is OFF:
        return ON if grad else OFF
    return Mode(grad, *mode[1:])


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


def _hearing(mode: Mode) -> tuple[Any, ...] | None:
    """Return what native code looks at where only a recorder hears of operations, beside the tape."""
    recorder = mode.recorder
    if recorder is None or not _short(mode._replace(recorder=None)):
        return None
    return mode, mode.grad and own_tape(), mode.thread, recorder.note


def listening() -> Tape | bool | None:
    """Return the tape to record on, False without gradients; None where others hear of operations than a recorder.

    Of a thread that has recorded nothing as yet it is made: from now on native code repeats its calls.
    """
    tape: Tape | bool | None = _active.get()
    if tape is not None:
        return tape
    heard, mode = _heard.get(), _mode.get()
    if heard is not None and heard[0] is mode:
        recorded: Tape | bool | None = heard[1]
        return recorded
    return wanted_tape() if _short(mode) else None


def alone() -> Tape | bool | None:
    """Return the tape to record on, False without gradients; None where anybody else hears of operations."""
    listening()  # which makes a tape
    tape: Tape | bool | None = _active.get()
    return tape


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
