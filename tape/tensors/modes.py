"""The modes of a thread: recorder, observers, gradients on or off."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from threading import get_ident, local
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import ReferenceType

from tape.tensors import tapes
from tape.tensors.tapes import Tape


class Observer:
    """The recorder of a program, or of vmap's example: it is notified of operations, writes and escapes."""

    maps: bool = False  # whether it records one example of several, whose values may not leave for Python
    has_guards: bool = False  # whether it guards what leaves for Python: in replays that has the same value
    bounds: int = 0  # how many values that left for Python said that indices are within bounds
    tables_words: Any = None  # what native code needs to record what it repeats

    def notify(self, op: Any, operands: tuple[Any, ...], result: Any, params: tuple[Any, ...]) -> None:
        """Be notified of an operation that has run."""

    def is_argument(self, x: Any) -> bool:
        """Return whether a tensor is an argument, which the program may write to."""
        return False

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

    def note_checkpoint(self) -> None:
        """Be notified that a checkpointed function is called."""

    def note_drawn(self, tensor: Any, draw: Any) -> None:
        """Be notified of a new tensor of random numbers, and of what draws them."""

    def note_escape(self, tensor: Any) -> None:
        """Be notified of an escape: a value becomes a Python number or array, where no recorder can follow it."""

    def note_number(self, tensor: Any) -> None:
        """Be notified that the only element of a tensor becomes a Python number, by item or float."""

    def note_drawing(self, generator: Any) -> None:
        """Be notified that a generator is about to be drawn from."""

    def note_raised(self, op: Any, operands: tuple[Any, ...], params: dict[str, Any], error: Exception) -> None:
        """Be notified that an operation raised by the values of its operands."""

    def follows_indices(self, indices: Sequence[Any], *, adds: bool) -> bool:
        """Return whether index tensors are operands: of what they pick, or with ``adds`` of what is added there."""
        return False

    def checks_indices(self, index: Any, low: int, high: int) -> bool:
        """Return whether indices are within bounds, and see to it that those of all examples are; asked if it maps."""
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


# Gradient mode, the tape of this thread, and the program being recorded: all per thread and context.
#
# Every operation first calls ``active`` for the tape to record on.

Result = TypeVar("Result")

_thread_tape = ThreadTape()
ON, OFF = Mode(), Mode(grad=False)
"""The modes of nearly all code, recognised by identity: nobody but the tape observes operations."""
_mode: ContextVar[Mode] = ContextVar("tape_mode", default=ON)

ActiveTape: TypeAlias = Tape | Literal[False, 0] | None
"""Where an operation is recorded, if one of its operands requires grad.

- a tape, which is true: on that;
- ``GRADIENTS_OFF``: nowhere; ``OFF_GIVEN_ARRAYS``: nor there, in a function that was given NumPy's arrays;
- ``ASK_MODE``: the operation must ask the mode (:func:`current`, :func:`wanted_tape`), for somebody else observes it,
  or nothing has been recorded in this context yet.

Native code reads this, from the context variable.
"""
GRADIENTS_OFF: Final = False
OFF_GIVEN_ARRAYS: Final = 0
ASK_MODE: Final = None
_active: ContextVar[ActiveTape] = ContextVar("tape_active", default=ASK_MODE)


class SoleRecorder:
    """A recorder where nobody else but the tape observes operations, as native code reads it.

    Whom to notify, on which tape operations are recorded (or False), the thread, and the words of native code, if any.
    """

    __slots__ = ("notify", "tape", "thread", "words")

    def __init__(self, recorder: Observer, tape: Tape | Literal[False], thread: int) -> None:
        self.notify, self.words = recorder.notify, recorder.tables_words
        self.tape, self.thread = tape, thread


_sole_recorder: ContextVar[SoleRecorder | None] = ContextVar("tape_sole_recorder", default=None)
"""The recorder that alone observes operations in this mode: native code reads it, from the context variable."""
active: Callable[[], ActiveTape] = _active.get
"""Return the active tape.

In a context copied from another thread it is that thread's at first, until a leaf is made, an operation asks the mode,
or a chunk of slots is given out (:func:`settle`): checking the thread each time costs a tenth of an operation.
"""
ON_MADE: list[Callable[[Any], None]] = []
"""Functions to call with new leaves: one for each inference mode that some thread is in."""


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
    tape = _thread_tape.tape
    if tape is None:
        tape = _thread_tape.tape = Tape()
    return tape


def settle() -> None:
    """Make a context that was copied from another thread record on the tape of this thread."""
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
    """Change the mode of this context. The caller changes it back in a ``finally`` that it has entered before."""
    if mode is ON or mode is OFF:  # nobody but the tape observes operations
        kept = keep()
        _active.set(ASK_MODE)
        if _sole_recorder.get() is not None:
            _sole_recorder.set(None)
        _mode.set(mode)
        tape = _thread_tape.tape or own_tape()
        _active.set(tape if mode is ON else _off(tape))
        del kept
        return
    if mode.recorder is not None and mode.recorder is not _mode.get().recorder and mode.thread != get_ident():
        mode = mode._replace(thread=get_ident())
    kept = keep()
    _active.set(ASK_MODE)  # an interrupt may come between them
    if _sole_recorder.get() is not None:
        _sole_recorder.set(None)
    _mode.set(mode)
    if mode.recorder is not None and _short(mode._replace(recorder=None)):
        _sole_recorder.set(SoleRecorder(mode.recorder, mode.grad and own_tape(), mode.thread))
    _active.set(ASK_MODE if not _short(mode) else own_tape() if mode.grad else _off(own_tape()))
    del kept


def _off(tape: Tape) -> ActiveTape:
    return OFF_GIVEN_ARRAYS if tape.given_arrays else GRADIENTS_OFF


def recorder() -> Observer | None:
    """Return the recorder, if there is one: then no tape is active by itself."""
    return current().recorder if active() is None else None


def turned(mode: Mode, *, grad: bool) -> Mode:
    """Return a mode with gradients on or off, and all else as it is."""
    if mode is ON or mode is OFF:
        return ON if grad else OFF
    return Mode(grad, *mode[1:])


def restore(mode: Mode) -> None:
    """Change the mode of this context back, also if an interrupt comes meanwhile."""
    try:
        set_mode(mode)
    except BaseException:
        set_mode(mode)
        raise


def change(mode: Mode, before: Mode, result: Result) -> Result:
    """Change the mode of this context and return ``result``; if an interrupt comes, leave the mode as it was."""
    try:
        set_mode(mode)
        return result  # noqa: TRY300 (nothing is left to do for whoever returns it in turn)
    except BaseException:
        restore(before)
        raise


def call_under(mode: Mode, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function under another mode of this context; no interrupt leaves that mode behind."""
    before = _mode.get()
    try:
        set_mode(mode)
        return function(*args)
    finally:
        try:
            restore(before)
        except BaseException:  # an interrupt
            restore(before)
            raise


def given_arrays() -> bool:
    """Whether a function is running in this thread that was given NumPy's arrays.

    What NumPy gives as a scalar is then a value: an element is not changed by later writes to its base, nor a tensor
    without dims by ``x += y``.
    """
    return own_tape().given_arrays


def promotes_as_numpy() -> bool:
    """Whether operands of several dtypes are computed in NumPy's dtype: in its functions, too, whatever is given."""
    tape = own_tape()
    return tape.given_arrays or tape.in_numpy


def call_in_numpy(function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Call a function that serves one of NumPy's: dtypes promote as NumPy's do, whatever it is given."""
    tape = own_tape()
    before = tape.in_numpy
    try:
        tape.in_numpy = True
        return function(*args, **kwargs)
    finally:
        tape.in_numpy = before


def call_given(arrays: bool | None, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Call a function that is given NumPy's ``arrays``, or else tensors, with which all stays as it is around it.

    None: what repeats operations as they were recorded, whose views are views.
    """
    tape = own_tape()
    before, within = tape.given_arrays, tape.in_transform
    RUNNING.append(None)
    try:
        tape.in_transform = within or arrays is not None
        tape.given_arrays = arrays is not None and (arrays or before)
        if _active.get() in (GRADIENTS_OFF, OFF_GIVEN_ARRAYS):
            _active.set(_off(tape))
        return function(*args, **kwargs)
    finally:
        RUNNING.pop()
        tape.given_arrays, tape.in_transform = before, within
        if _active.get() in (GRADIENTS_OFF, OFF_GIVEN_ARRAYS):
            _active.set(_off(tape))


RUNNING: list[None] = []
"""An item for each function that a transform is running, in any thread: where there is none, nobody need ask more."""
LEAVES: list[ReferenceType[Any]] = []
"""Leaves that users made to require grad; dead ones are dropped now and then."""
_FEW_LEAVES = 1000
_leaves_at_most = [_FEW_LEAVES]


def note_leaf(x: Any) -> None:
    """Keep in mind that a user's leaf requires grad: while it lives, something may want its gradient."""
    while LEAVES and LEAVES[-1]() is None:
        LEAVES.pop()
    LEAVES.append(x._slot.owner)
    if len(LEAVES) > _leaves_at_most[0]:
        LEAVES[:] = [leaf for leaf in LEAVES if leaf() is not None]
        _leaves_at_most[0] = 2 * len(LEAVES) + _FEW_LEAVES


def makes_tensors() -> bool:
    """Whether what is made of numbers may have to hold tensors' values later, and their gradients.

    It may in a function that is differentiated or recorded, and wherever a user's leaf that requires grad is alive.
    """
    tape = _thread_tape.tape
    if tape is not None and tape.in_transform:
        return True
    while LEAVES and getattr(LEAVES[-1](), "_slot", None) is None:
        LEAVES.pop()
    return bool(LEAVES) and is_grad_enabled()


def take_numpys_meaning() -> None:
    """Give elements and scalars NumPy's meaning: while the transform's function runs, or in a script a leaf lives."""
    tape = own_tape()
    if not tape.given_arrays:
        tape.given_arrays = True
        if _active.get() in (GRADIENTS_OFF, OFF_GIVEN_ARRAYS):
            _active.set(_off(tape))
        if not tape.in_transform:
            _end_with_leaves(tape.number)


_ends: dict[int, Any] = {}  # by the number of a tape, a reference to a leaf with which NumPy's meaning may end


def _end_with_leaves(number: int, _: Any = None) -> None:
    """End NumPy's meaning on a tape when the last of the users' leaves is gone."""
    leaf, tape = next((x for at in LEAVES if (x := at()) is not None), None), tapes.living.get(number)
    _ends.pop(number, None)
    if leaf is not None:
        _ends[number] = ReferenceType(leaf, partial(_end_with_leaves, number))
    elif tape is not None:
        tape.given_arrays = False
        if tape is _thread_tape.tape and _active.get() in (GRADIENTS_OFF, OFF_GIVEN_ARRAYS):
            _active.set(_off(tape))


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


@contextmanager
def on_tape(tape: Tape) -> Iterator[None]:
    """Record on another tape of this thread for a while."""
    before, around = _mode.get(), own_tape()
    tape.given_arrays, tape.in_numpy = around.given_arrays, around.in_numpy
    try:
        _thread_tape.set(tape)
        set_mode(before)
        yield
    finally:
        _thread_tape.reset(around)
        restore(before)


def _short(mode: Mode) -> bool:
    """Return whether operations may take the short way: nobody but the tape observes them."""
    _, recorder, pack, _, anomaly, inference, _ = mode
    return recorder is None and pack is None and anomaly is None and not inference


def tape_beside_recorder() -> ActiveTape:
    """Return the active tape, also where a recorder observes operations; ASK_MODE where others do.

    A thread that has recorded nothing yet gets its tape: from then on native code repeats its calls.
    """
    tape = _active.get()
    if tape is not ASK_MODE:
        return tape
    recorder = _sole_recorder.get()
    if recorder is not None:
        return recorder.tape
    return wanted_tape() if _short(_mode.get()) else ASK_MODE


def unobserved_tape() -> ActiveTape:
    """Return the active tape; ASK_MODE where anybody else observes operations. It is made where there is none yet."""
    tape_beside_recorder()
    return _active.get()


class _User(local):
    """The user's code that runs in a thread."""

    depth = 0


user = _User()
"""``depth``: how many backwards of this thread, one inside the other, are running the user's code."""


def call_user(function: Callable[..., Result], *args: Any, **changed: Any) -> Result:
    """Call the user's function in the middle of a backward; modes that it enters and does not leave end with it.

    No context manager: an interrupt as its end begins would leave the mode to whoever frees the traceback.
    """
    before, depth = _mode.get(), user.depth
    try:
        user.depth = depth + 1
        if changed:
            set_mode(before._replace(**changed))
        return function(*args)
    finally:
        user.depth = depth
        if _mode.get() is not before:
            restore(before)


def is_grad_enabled() -> bool:
    """Return whether operations on tensors that require grad are recorded."""
    return _mode.get().grad
