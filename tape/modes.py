"""Gradient mode, the tape of this thread, and the program being recorded: all per thread and context.

``active`` is what every operation asks first: the tape to record on.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from kernels import backend
from kernels.words import TAPE_BITS

Function = TypeVar("Function", bound=Callable[..., Any])

_numbers = itertools.count(1)
_FIRST_CHUNK = 1024
LARGE = 1 << 16
"""Bytes from which a value is worth watching."""
LARGEST_LOSS = 1 << 20
"""Bytes of dead tensors after which a tape of 10,000 entries looks for what they held."""
tapes: WeakValueDictionary[int, Tape] = WeakValueDictionary()


class Tape:
    """A Wengert list: for each instruction its result slot, operands, saved values and opcode, end to end.

    Instructions whose results nobody can reach are dropped each time the slots of a chunk have been given out.
    """

    __slots__ = ("__weakref__", "busy", "entries", "extend", "fresh", "lock", "lost", "number", "retained", "watched")

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.entries: list[Any] = []
        self.extend = self.entries.extend
        self.lock = threading.RLock()
        self.fresh: Callable[[], int] = itertools.chain.from_iterable(self._chunks()).__next__
        self.retained: dict[int, Any] = {}
        self.watched: set[Any] = set()
        self.busy = False
        self.lost = 0
        tapes[self.number] = self

    def _chunks(self) -> Iterator[range]:
        """Yield ranges of slots; before each, drop what died if the tape has doubled since the last time."""
        start, size = self.number << TAPE_BITS, _FIRST_CHUNK
        while True:
            yield range(start, start + size)
            start += size
            self.collect()
            size = max(_FIRST_CHUNK, len(self.entries) // 4)

    def collect(self, dying: int = 0) -> int:
        """Drop the instructions whose results nobody can reach; return how many entries they had."""
        if self.busy or not self.lock.acquire(blocking=False):
            return 0  # a sweep is reading the entries
        self.busy = True
        try:
            return backend.collect(self.entries, self.number, dying)
        finally:
            self.busy = False
            self.lock.release()

    def watch(self, tensor: Any, size: int) -> None:
        """Collect when a tensor dies whose instruction may hold many bytes: not only when a chunk is full."""
        # A slot of equal value, not the same object: references to that are counted.
        slot, tape = tensor._slot ^ 0, weakref.ref(self)

        def died(reference: Any) -> None:
            own = tape()
            if own is not None:
                own.watched.discard(reference)
                own.lose(slot, size)

        self.watched.add(weakref.ref(tensor, died))

    def lose(self, slot: int, size: int) -> None:
        """Count the bytes of dead tensors. Pullbacks still need most of them: the longer the tape, the rarer a look."""
        self.lost += size
        if self.lost * 10_000 > LARGEST_LOSS * len(self.entries):
            self.lost = 0
            self.collect(slot)


class Observer(Protocol):
    """What a program being recorded is told of."""

    def note(self, op: Any, operands: tuple[Any, ...], result: Any, params: tuple[Any, ...]) -> None:
        """Hear of an operation that has run."""

    def left(self, tensor: Any) -> None:
        """Hear that a value leaves for Python."""


class Mode(NamedTuple):
    """Whether gradients are recorded, and the program being recorded."""

    grad: bool = True
    recorder: Observer | None = None


_mode: ContextVar[Mode] = ContextVar("tape_mode", default=Mode())  # noqa: B039 (a tuple)
_own: ContextVar[Tape | None] = ContextVar("tape_own", default=None)
_active: ContextVar[Any] = ContextVar("tape_active", default=None)
active = _active.get
"""The tape to record on; False where gradients are off; None where only the longer way of an operation will do."""


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
    if not mode.grad:
        return None
    tape = own_tape()
    if mode.recorder is None and _active.get() is not tape:
        _active.set(tape)
    return tape


def set_mode(mode: Mode) -> Mode:
    """Change the mode of this context; return the one before."""
    before = _mode.get()
    _mode.set(mode)
    _active.set(None if mode.recorder is not None else own_tape() if mode.grad else False)
    return before


def is_grad_enabled() -> bool:
    """Return whether operations on tensors that require grad are recorded."""
    return _mode.get().grad


class _Switch:
    """A context manager and decorator that turns gradient mode to ``to``; entering again nests."""

    to: bool

    def __init__(self) -> None:
        self._before: list[Mode] = []

    def __enter__(self) -> Self:
        self._before.append(set_mode(_mode.get()._replace(grad=self.to)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_mode(self._before.pop())

    def clone(self) -> _Switch:
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


def _around_generator(switch: _Switch, function: Function) -> Function:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        sent: Any = None
        while True:
            try:
                with switch.clone():
                    item = generator.send(sent)
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield item
            except GeneratorExit:
                generator.close()
                raise

    return wrapper  # type: ignore[return-value]


class no_grad(_Switch):  # noqa: N801 (PyTorch's name)
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


class set_grad_enabled(_Switch):  # noqa: N801
    """Set gradient mode at once; as a context manager the mode before comes back at its end."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.to = bool(mode)
        self._set_at_once = set_mode(_mode.get()._replace(grad=self.to))

    def __enter__(self) -> Self:
        self._before.append(self._set_at_once)
        set_mode(_mode.get()._replace(grad=self.to))
        return self

    def clone(self) -> _Switch:
        """Return another that sets the same mode."""
        return set_grad_enabled(self.to)

    def __call__(self, function: Function) -> Function:
        """Decorate a function; the mode that the constructor set is taken back, as PyTorch does."""
        set_mode(self._set_at_once)
        return super().__call__(function)
