"""What runs in this thread during a call: frames as they begin, and in some of them chosen instructions.

Python 3.12 and later report single instructions (``sys.monitoring``, PEP 669), to several tools at once. Before it,
the thread is traced: lines are reported, and instructions where that is asked for.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Collection
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

from kernels.compiler.interrupts import is_untraced
from kernels.foundation.locks import Lock

Result = TypeVar("Result")
_Tracer = Callable[[FrameType, str, Any], Any]
monitoring: Any = getattr(sys, "monitoring", None)
REPORTS_INSTRUCTIONS = monitoring is not None


class Activation(Protocol):
    """What one activation of a function is asked to report."""

    @property
    def points(self) -> Collection[int]:
        """Offsets of the instructions that are reported; the same for all activations of one code object."""

    @property
    def setups(self) -> Collection[int]:
        """Offsets of instructions that make the iterators of for loops, which are entered behind them."""

    def at(self, frame: FrameType, offset: int) -> None:
        """Take in that an instruction is next."""

    def is_entry(self, offset: int) -> bool:
        """Return whether a for loop would be entered here."""


class Listener(Protocol):
    """Who is told what runs. It has a ``reason`` if what it was told does not count."""

    reason: str

    def begin(self, frame: FrameType) -> Activation | None:
        """Take in that a frame begins, or goes on as a generator does; return what is to be reported of it."""

    def concerns(self, frame: FrameType) -> bool:
        """Return whether anybody is to be told that frames of this code begin."""


def call(listener: Listener, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function; a listener is told what runs in this thread.

    No context manager: an interrupt as its end begins would leave the thread traced.
    """
    return _call_traced(listener, function, *args) if monitoring is None else _call_monitored(listener, function, *args)


def _call_traced(listener: Listener, function: Callable[..., Result], *args: Any) -> Result:
    if sys.gettrace() is not None:
        listener.reason = "loops are not watched while another trace function is set"
        return function(*args)
    tracer = _Traced(listener).began
    try:
        sys.settrace(tracer)
        return function(*args)
    finally:
        try:
            if sys.gettrace() is not tracer:
                listener.reason = listener.reason or "the trace function was changed while the function ran"
            sys.settrace(None)
        except BaseException:  # an interrupt
            sys.settrace(None)
            raise


class _Traced:
    """Hears of lines and instructions as a trace function."""

    __slots__ = ("activation", "listener")

    def __init__(self, listener: Listener, activation: Activation | None = None) -> None:
        self.listener, self.activation = listener, activation

    def began(self, frame: FrameType, *_: Any) -> _Tracer | None:
        """Return what traces a frame, called at its beginning: nothing for nearly all."""
        activation = self.listener.begin(frame)
        return None if activation is None else _Traced(self.listener, activation).goes_on

    def goes_on(self, frame: FrameType, event: str, _: Any) -> _Tracer | None:
        """Follow the frame to a line, or, where an iterator is made, to an instruction."""
        activation, at = self.activation, frame.f_lasti
        if self.listener.reason or activation is None:
            return None
        if event == "line":
            if not activation.is_entry(at):
                activation.at(frame, at)
            frame.f_trace_opcodes = frame.f_trace_opcodes or at in activation.setups
        elif event == "opcode":
            if activation.is_entry(at):
                activation.at(frame, at)
            if at not in activation.setups:
                frame.f_trace_opcodes = False
        return self.goes_on


class _Monitored:
    """A call that is monitored, with the activations in it by the numbers of their frames.

    Frames are not held, since their locals would be. A number may be that of a frame that is gone, until one of the
    same code begins.
    """

    __slots__ = ("activations", "listener")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.activations: dict[int, Activation] = {}


_lock = Lock(waited_for=True)
_tools: list[int] = []
"""This library's number among the tools that monitor, once it has one."""
_calls: dict[int, _Monitored] = {}
"""The calls that are monitored, by thread."""
_points: dict[int, tuple[CodeType, Collection[int]]] = {}
"""The code of which instructions are reported, and which."""


def _call_monitored(listener: Listener, function: Callable[..., Result], *args: Any) -> Result:
    thread = threading.get_ident()
    if thread in _calls or not _is_tool():
        others = "others are" if thread in _calls else "all numbers of sys.monitoring are taken by other tools"
        listener.reason = f"loops are not watched while {others}"
        return function(*args)
    try:
        _calls[thread] = _Monitored(listener)
        _settle()
        return function(*args)
    finally:
        try:
            _end(thread)
        except BaseException:  # an interrupt
            _end(thread)
            raise


def _end(thread: int) -> None:
    _calls.pop(thread, None)
    _settle()


def _settle() -> None:
    """Have events reported while calls are monitored, and no longer."""
    events = monitoring.events
    with _lock:
        monitoring.set_events(_tools[0], events.PY_START | events.PY_RESUME | events.PY_THROW if _calls else 0)
        while _points and not _calls:
            code, _ = next(iter(_points.values()))
            monitoring.set_local_events(_tools[0], code, 0)
            del _points[id(code)]


def _is_tool() -> bool:
    """Return whether this library is one of the tools that monitor; it becomes one if it can."""
    with _lock:
        free = [number for number in (4, 3, 5, 2, 1, 0) if monitoring.get_tool(number) is None]
        if not _tools and free:  # Python names no purpose of 3 and 4; Hypothesis takes 3
            monitoring.use_tool_id(free[0], "tape")
            events = monitoring.events
            for event in (events.PY_START, events.PY_RESUME):
                monitoring.register_callback(free[0], event, _began)
            monitoring.register_callback(free[0], events.PY_THROW, _thrown)
            monitoring.register_callback(free[0], events.INSTRUCTION, _at)
            _tools.append(free[0])
        return bool(_tools)


def _began(code: CodeType, _: int) -> Any:
    return _notified(code, sys._getframe(1))


def _thrown(code: CodeType, *_: Any) -> None:
    """Take in that a generator goes on with an exception; this event cannot be disabled."""
    _notified(code, sys._getframe(1))


def _notified(code: CodeType, frame: FrameType) -> Any:
    """Tell the listener of this thread that a frame begins; return whether that is of interest."""
    call = _calls.get(threading.get_ident())
    if call is None:
        return None
    call.activations.pop(id(frame), None)
    if call.listener.reason or is_untraced():
        return None
    activation = call.listener.begin(frame)
    if activation is None:
        return None if call.listener.concerns(frame) else monitoring.DISABLE
    call.activations[id(frame)] = activation
    if id(code) not in _points:
        with _lock:
            _points[id(code)] = code, activation.points
            monitoring.set_local_events(_tools[0], code, monitoring.events.INSTRUCTION)
    return None


def _at(code: CodeType, offset: int) -> Any:
    """Tell an activation of this thread where its frame is, if that is of interest."""
    known = _points.get(id(code))
    if known is None or offset not in known[1]:
        return monitoring.DISABLE
    call = _calls.get(threading.get_ident())
    if call is not None and not call.listener.reason:
        frame = sys._getframe(1)
        activation = call.activations.get(id(frame))
        if activation is not None:
            activation.at(frame, offset)
    return None


# The garbage collector: whether it is at work in this thread, and calls during which it works rarely.
#
# What finalizers and callbacks do while it works is part of no call.

_MANY = 1 << 17
"""New objects after which the collector looks at them, where most are known to be alive."""
_collecting: set[int] = set()
"""The threads in which the collector is at work."""


def _begun(phase: str, _: dict[str, Any]) -> None:
    if phase == "start":
        _collecting.add(get_ident())


def _ended(phase: str, _: dict[str, Any]) -> None:
    if phase == "stop":
        _collecting.discard(get_ident())


def observe() -> None:
    """Have the collector tell when it begins, before its other callbacks, and when it has ended, behind them.

    The two callbacks stay: taken away while another thread is watched, or while an interrupt comes, they would leave
    it with half of what it needs.
    """
    callbacks = gc.callbacks
    if not callbacks or callbacks[0] is not _begun or callbacks[-1] is not _ended:
        others = [callback for callback in callbacks if callback not in (_begun, _ended)]
        callbacks[:] = [_begun, *others, _ended]


def is_collecting() -> bool:
    """Whether the collector is at work in this thread."""
    return bool(_collecting) and get_ident() in _collecting


def rarely_collected(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function whose objects stay alive, as what is recorded does: the collector looks at new ones rarely.

    No context manager: an interrupt as its end begins would leave the collector so.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _MANY:
        return function(*args)
    try:
        gc.set_threshold(_MANY, *before[1:])
        return function(*args)
    finally:
        try:
            _restore(before)
        except BaseException:  # an interrupt
            _restore(before)
            raise


def _restore(before: tuple[int, int, int]) -> None:
    if gc.get_threshold()[0] == _MANY:  # nobody else has changed it
        gc.set_threshold(*before)
