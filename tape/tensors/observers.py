"""A mode: whether gradients are recorded, and who else hears of operations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from threading import local
from typing import Any, NamedTuple, Protocol

from tape.tensors.tapes import Tape


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

    ``unpackable`` is the message of whoever forbids such hooks. Then anomaly mode, and inference mode. ``thread``: the
    one that records the program.
    """

    grad: bool = True
    recorder: Observer | None = None
    pack: tuple[Any, Any] | None = None
    unpackable: str = ""
    anomaly: Noting | None = None
    inference: bool = False
    thread: int = 0

    def noted(self, slot: Any) -> None:
        """Tell anomaly mode that an operation has been recorded."""
        if self.anomaly is not None and type(slot) is int:
            self.anomaly.note(slot)


keep: Callable[[], Any] = copy_context if sys.version_info < (3, 12) else lambda: None
"""Holds what a context holds while that is changed.

Until Python 3.12 a collection may come in the middle of ContextVar.set, and a finalizer that sets one too then frees
what the first is reading.
"""


class Own(local):
    """The tape of a thread. A context may be copied into another thread, and carries its mode there, not its tape."""

    tape: Tape | None = None

    def set(self, tape: Tape | None) -> Tape | None:
        """Give this thread another tape; return the one before."""
        before, self.tape = self.tape, tape
        return before

    def reset(self, tape: Tape | None) -> None:
        """Give this thread the tape back that it had."""
        self.tape = tape
