"""A mode: whether gradients are recorded, and who else observes operations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import local
from typing import Any, NamedTuple, Protocol

from tape.tensors.tapes import Tape


class Observer(Protocol):
    """The recorder of a program, or of vmap's example: it is notified of operations, writes and escapes."""

    maps: bool = False
    """Whether it records one example of several, whose values may not leave for Python."""
    has_guards: bool = False
    """Whether it guards what leaves for Python: in replays that has the same value."""

    def notify(self, op: Any, operands: tuple[Any, ...], result: Any, params: tuple[Any, ...]) -> None:
        """Be notified of an operation that has run."""

    def is_argument(self, x: Any) -> bool:
        """Return whether a tensor is an argument, which the program may write to."""

    def overwrites(self, x: Any, value: Any) -> None:
        """Be notified that a value is about to be written into a tensor."""

    def wrote(self, op: Any, x: Any, value: Any, params: tuple[Any, ...]) -> None:
        """Be notified that a value has been written into a tensor."""

    def taken(self, x: Any, value: Any) -> None:
        """Be notified that a tensor has taken over the value and the slot of another."""

    def released(self, x: Any, value: Any) -> None:
        """Be notified that a view has ceased to be one: it is now the copy that another tensor is."""

    def replaces(self, x: Any, other: Any) -> None:
        """Be notified that a tensor is about to get another's memory: ``x.data = other``."""

    def becomes_view(self, x: Any, name: str) -> None:
        """Be notified that a tensor is about to become, by a method of this name, a view of its former self."""

    def note_unrecorded(self, tensor: Any, what: str) -> None:
        """Be notified of what a tensor is used for, beside its value, that no recorder can follow."""

    def note_drawn(self, tensor: Any, draw: Any) -> None:
        """Be notified of a new tensor of random numbers, and of what draws them."""

    def note_escape(self, tensor: Any) -> None:
        """Be notified of an escape: a value becomes a Python number or array, where no recorder can follow it."""

    def note_number(self, tensor: Any) -> None:
        """Be notified that the only element of a tensor becomes a Python number, by item or float."""

    def note_drawing(self, generator: Any) -> None:
        """Be notified that a generator is about to be drawn from."""
        del generator

    def note_raised(self, op: Any, operands: tuple[Any, ...], params: dict[str, Any], error: Exception) -> None:
        """Be notified that an operation raised by the values of its operands."""
        del op, operands, params, error

    def follows_indices(self, indices: Sequence[Any], *, adds: bool) -> bool:
        """Return whether index tensors are operands: of what they pick, or with ``adds`` of what is added there."""
        del indices, adds
        return False

    def checks_indices(self, index: Any, low: int, high: int) -> bool:
        """Return whether indices are within bounds, and see to it that those of all examples are; asked if it maps."""
        del index, low, high
        return False


class AnomalyObserver(Protocol):
    """Anomaly mode, as modes see it."""

    def notify(self, slot: Any) -> None:
        """Be notified of the slot of an operation that has been recorded."""


class Mode(NamedTuple):
    """Whether gradients are recorded, and who observes operations.

    ``recorder`` records a program, in ``thread``. ``pack`` are the hooks that pack and unpack saved values;
    ``unpackable``, where such hooks are forbidden, is the message that says so.
    """

    grad: bool = True
    recorder: Observer | None = None
    pack: tuple[Any, Any] | None = None
    unpackable: str = ""
    anomaly: AnomalyObserver | None = None
    inference: bool = False
    thread: int = 0

    def notify_anomaly(self, slot: Any) -> None:
        """Notify anomaly mode of an operation that has been recorded."""
        if self.anomaly is not None and type(slot) is int:
            self.anomaly.notify(slot)


keep: Callable[[], Any] = copy_context if sys.version_info < (3, 12) else lambda: None
"""Keeps the values of a context alive while one of them is changed.

Until Python 3.12 a garbage collection may come in the middle of ContextVar.set, and a finalizer that sets one too then
frees what the first is reading.
"""


class ThreadTape(local):
    """The tape of a thread. A context that is copied into another thread brings its mode there, but not its tape."""

    tape: Tape | None = None

    def set(self, tape: Tape | None) -> Tape | None:
        """Set this thread's tape; return the one before."""
        before, self.tape = self.tape, tape
        return before

    def reset(self, tape: Tape | None) -> None:
        """Set this thread's tape back to the one that :meth:`set` returned."""
        self.tape = tape
