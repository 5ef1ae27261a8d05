"""Locks that a fork leaves usable, and the garbage collector held still."""

from __future__ import annotations

import gc
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar, overload
from weakref import WeakSet

Value = TypeVar("Value")


class Lock:
    """A reentrant lock, for ``with``; in a forked process no thread holds it but the one that forked.

    A fork waits for one that is ``waited_for``, which is never forgotten; if such nest, the outer one must be made
    later. Whatever interrupts come, a lock is free in the end: in Python 3.14 ``with`` leaves a lock of ``threading``
    held if an interrupt comes just when that has been taken.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self, *, waited_for: bool = False) -> None:
        self._lock: Any = threading.RLock()
        _locks.add(self)
        if waited_for and hasattr(os, "register_at_fork"):
            take, leave = self._lock.acquire, self._lock.release  # in C, as for interrupts in ``with``
            os.register_at_fork(before=take, after_in_parent=leave, after_in_child=leave)

    def __enter__(self) -> None:
        taken: list[bool] = []
        try:
            taken.extend(map(self._lock.acquire, (True,)))  # all in C: no interrupt comes before it is known
        except BaseException:
            if taken:
                self._lock.release()
            raise

    if sys.version_info[:2] != (3, 14):  # in C, where ``with`` has no such fault: a half of the time
        __enter__: Any = property(operator.attrgetter("_lock.__enter__"))  # type: ignore[no-redef]

    __exit__: Any = property(operator.attrgetter("_lock.__exit__"))
    """In C, since an interrupt may come before the first instruction of a function in Python."""

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Hold it if nobody does, not even this thread; the value says whether that is so."""
        taken: list[bool] = []
        try:
            if not self.is_inside:
                taken.extend(map(self._lock.acquire, (False,)))
            yield any(taken)
        finally:
            if taken and taken[0]:  # calls nothing before, so that no interrupt comes
                self._lock.release()

    @property
    def is_inside(self) -> bool:
        """Whether this thread holds it."""
        inside: bool = self._lock._is_owned()  # noqa: SLF001 (threading has no other question)
        return inside

    def forked(self) -> None:
        """Be free in a new process, unless its one thread is inside."""
        if not self.is_inside:
            self._lock = threading.RLock()


_locks: WeakSet[Lock] = WeakSet()


def _forked() -> None:
    for lock in list(_locks):
        lock.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class cached_property(Generic[Value]):  # noqa: N801 (the name in functools)
    """``functools.cached_property`` without its lock of before Python 3.12, which a fork may leave held."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        if instance is None:
            return self
        value: Value = vars(instance).setdefault(self.name, self.compute(instance))
        return value


@contextmanager
def uncollected(*, lasting: bool = False) -> Iterator[None]:
    """Collect no garbage within, as imports make none; with ``lasting``, what is made joins the oldest generation."""
    before = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if before:
            if lasting and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
