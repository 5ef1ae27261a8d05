"""The tape of a thread, with its hooks, nodes and readers; cycles through tapes, which Python does not collect."""

from __future__ import annotations

import builtins
import gc
import itertools
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from types import FunctionType, ModuleType, TracebackType
from typing import Any
from weakref import WeakValueDictionary

from kernels.foundation.specs import FreedError
from kernels.kinds.reference_tape import SavedValues, entries_of, locate
from kernels.native.memory import MOST_TAPES
from kernels.native.structs import LARGEST_GROWTH
from tape import errors

_MOST = 1 << 16  # objects that are looked at; hooks that lead to more keep what they hold


def let_go(held: list[Any]) -> int:
    """Release the slots of tensors and nodes that only ``held`` can reach; return the work of a search in vain.

    ``held`` are objects that a tape alone refers to; the list grows. This is trial deletion: an object with more
    references than come from within is reachable from elsewhere, and so is what it refers to. The work is the number of
    objects that were looked at, 0 if something was released.
    """
    inner = {id(obj): 1 for obj in held}  # references that are accounted for: the tape's
    for obj in held:
        for referent in _referents(obj):
            if id(referent) not in inner:
                inner[id(referent)] = 0
                held.append(referent)
            inner[id(referent)] += 1
        if len(held) > _MOST:
            return len(held)
    reached = _reached([obj for obj, count in zip(held, _counts(held), strict=True) if count - _ALONE > inner[id(obj)]])
    tensors = [obj for obj in held if id(obj) not in reached and hasattr(type(obj), "_unheld")]
    alone = [x for x in tensors if type(x._slot) is int]
    for obj in alone:
        obj._unheld()
    return 0 if alone else len(held)


def _reached(outer: list[Any]) -> set[int]:
    """Return the ids of these objects and of all that they refer to, directly or not; the list grows."""
    ids = {id(obj) for obj in outer}
    for obj in outer:
        for referent in _referents(obj):
            if id(referent) not in ids:
                ids.add(id(referent))
                outer.append(referent)
    return ids


def _referents(obj: Any) -> list[Any]:
    """Return the objects that an object refers to and that can be part of a cycle through a hook."""
    referents = [referent for referent in gc.get_referents(obj) if gc.is_tracked(referent)]
    if type(obj) is FunctionType:
        referents = [
            referent for referent in referents if referent is not obj.__globals__ and referent is not vars(builtins)
        ]
    return [referent for referent in referents if not isinstance(referent, (type, ModuleType))]


def _counts(held: list[Any]) -> list[int]:
    return [sys.getrefcount(obj) for obj in held]


_ALONE = _counts([object()])[0]  # the count of references to an object that is in the counted list alone


# The tape of a thread, with the hooks, retained gradients, nodes and readers that belong to it.

_numbers = itertools.count(1)
_spare: list[tuple[int, int]] = []
"""Numbers of tapes that are gone, to be used again, with the count of their next slot: no slot is given out twice."""
SETTLE: list[Callable[[], None]] = []
"""Functions that make a context copied from another thread record on its own thread's tape: ``modes.settle``."""
"""Bytes from which on a value is large: when such a tensor dies, the tape counts the bytes that it may free."""
LONG = 1 << 14  # words swept by backwards, and perhaps dead, from which on the end of a root makes the tape collect
FIRST_SEARCH = 1 << 10  # contexts of custom functions from which on they are searched for cycles
living: WeakValueDictionary[int, Tape] = WeakValueDictionary()


def every() -> list[Tape]:
    """Return the living tapes; other threads may make more at any moment."""
    return [tape for reference in living.valuerefs() if (tape := reference()) is not None]


orphans: set[Tape] = set()  # the tapes of threads that have ended, as long as something on them can be reached


def _new_number() -> tuple[int, int]:
    number = next(_numbers)
    if number >= MOST_TAPES:
        raise RuntimeError(f"{MOST_TAPES} threads have a tape each, or have left tensors behind that hold theirs")
    return number, 0


class Reading:
    """A reader of a tape, as a context manager: while there is one, no instruction is dropped or moved."""

    __slots__ = ("counted", "readers")

    def __init__(self, readers: list[None]) -> None:
        self.readers, self.counted = readers, False

    def __enter__(self) -> None:
        try:
            self.counted = True
            self.readers.append(None)
        except BaseException:  # an interrupt
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if isinstance(error, FreedError):
            raise errors.GradError(errors.SECOND_TIME) from None

    def _leave(self) -> None:
        if getattr(self, "counted", False):  # an interrupt may have come while it was made
            self.counted = False  # nothing is called until the next line has, so that no interrupt comes between
            if self.readers:
                self.readers.pop()

    def __del__(self) -> None:
        """Leave: an interrupt in the first instruction of ``__exit__`` kept it from that."""
        self._leave()


class Tape:
    """A Wengert list: for each instruction its result slot, operands, saved values and form, end to end.

    Instructions whose results nobody can reach are dropped when half of them are, and when many bytes have died.
    """

    __slots__ = (
        "__weakref__", "contexts", "entries", "given_arrays", "grown", "hooks", "in_numpy", "in_transform", "lines",
        "metadata", "next_search", "nodes", "number", "patience", "readers", "record", "retained", "saved_values",
        "shapes", "swept", "thread",
    )  # fmt: skip

    def __init__(self, *, brief: bool = False) -> None:
        """Make a tape; one of a ``brief`` life drops less as tensors die, since it is dropped as a whole soon."""
        self.number, count = _spare.pop() if _spare else _new_number()
        self.thread = get_ident()
        self.entries: Any = entries_of(self.number, count)
        self.entries.notify(partial(_grown, [0], weakref.ref(self)) if brief else partial(_full, weakref.ref(self)))
        self.record: Callable[..., None] = self.entries.record
        """Appends an instruction: its result, which gets slot and form, the form's code, operands, saved values."""
        self.retained: dict[int, Any] = {}
        self.hooks: dict[int, Any] = {}
        self.lines: dict[int, Any] = {}
        self.metadata: dict[int, dict[str, Any]] = {}
        self.contexts: list[weakref.ref[Any]] = []
        """What instructions saved of the calls of custom functions whose contexts hold something of the user's."""
        self.shapes: dict[int, Any] = {}
        """Names and edges of instructions that a backward has freed, of some: ``tape.engine.nodes.note_shape``."""
        self.nodes: dict[int, Any] = {}  # weak references to the nodes of the graph that somebody holds
        self.saved_values = SavedValues(self.entries)
        self.readers: list[None] = []  # an item for each sweep that reads the entries: nothing may be dropped
        self.given_arrays = False
        """Whether a function runs in this thread that was given NumPy's arrays: ``modes.given_arrays``."""
        self.in_transform = False
        """Whether a function runs in this thread that is differentiated or recorded: ``modes.makes_tensors``."""
        self.in_numpy = False
        """Whether one of NumPy's functions runs in this thread, on tensors: ``modes.promotes_as_numpy``."""
        self.swept = self.patience = 0
        self.next_search = FIRST_SEARCH
        living[self.number] = self

    @property
    def writes(self) -> bool:
        """Whether a write has ever been recorded here."""
        return bool(self.entries.writes)

    @property
    def writes_elsewhere(self) -> bool:
        """Whether a write to a version that another tape has made has ever been recorded here."""
        return bool(self.entries.writes & 2)

    def __del__(self) -> None:
        """Keep the tape of an ended thread while it has instructions: slots are numbers, and hold no tape."""
        if orphans is None or not hasattr(self, "entries"):  # at the end of the process, or not begun
            return
        if self.entries:
            living[self.number] = self
            orphans.add(self)
        else:
            _spare.append((self.number, self.entries.next))

    def collect(self) -> int:
        """Drop the instructions whose results nobody can reach; return how many words they had."""
        for orphan in list(orphans) if orphans and self not in orphans else ():
            orphan.collect()
            if not orphan.entries:
                orphans.discard(orphan)
        if self.hooks or self.metadata or self.contexts:
            self._let_go()
        gone: int = self.entries.collect(self.readers)
        if gone:
            self.saved_values.dropped(gone)
        if self.hooks or self.lines or self.metadata:
            self.forget_hooks()
        return gone

    def _let_go(self) -> None:
        """Break reference cycles through what users attached.

        After a search that found none the next ones are skipped, in proportion to its work.
        """
        self._forget_contexts()
        if self.patience:
            self.patience -= 1
        else:
            self.patience = let_go(self._attached()) // 64

    def _forget_contexts(self) -> None:
        self.contexts = [reference for reference in self.contexts if reference() is not None]

    def _attached(self) -> list[Any]:
        """Return what users attached; the caller holds the list alone."""
        calls = (reference() for reference in self.contexts)
        return [x for x in (*self.hooks.values(), *self.metadata.values(), *calls) if x is not None]

    def keep_context(self, call: Any) -> None:
        """Search what a call saved for cycles; collect each time that so many more have been saved as are living."""
        self.contexts.append(weakref.ref(call))
        if len(self.contexts) >= self.next_search:
            self.patience = 0
            self.collect()
            self._forget_contexts()
            self.next_search = 2 * len(self.contexts) + FIRST_SEARCH

    def reading(self) -> Reading:
        """Return a reader, a context manager that also turns FreedError into GradError."""
        return Reading(self.readers)

    def forget_hooks(self) -> None:
        """Drop the hooks, the user's lines and the notes of instructions that are gone."""
        tables = self.hooks, self.lines, self.metadata
        with self.reading():
            for slot in {slot for table in tables for slot in list(table)}:  # others may add to them meanwhile
                if locate(self.entries, slot) is None:
                    for table in tables:
                        table.pop(slot, None)

    def retain(self, tensor: Any) -> None:
        """Let backward give this tensor of the tape its gradient."""
        retained, key = self.retained, id(tensor)
        retained[key] = weakref.ref(tensor, lambda _: retained.pop(key, None))

    def watch(self, tensor: Any, size: int) -> None:
        """Count this many bytes when a tensor dies: many bytes make the tape collect, as many dead slots do."""
        tensor._bytes = size

    def grow(self, size: int) -> None:
        """Count the bytes of a new large value; collect when they are many."""
        self.entries.grown += size
        if self.entries.grown > max(LARGEST_GROWTH, 100 * len(self.entries)):
            self.entries.grown = 0
            self.collect()

    def leave(self, root: Any) -> None:
        """Let the death of a backward's root collect, if much was swept: instructions that saved nothing remain."""
        if self.swept > LONG and 4 * self.swept > len(self.entries):
            self.swept = 0
            self.watch(root, MOST)


MOST = 1 << 40  # more bytes than any tensor has


def _full(reference: weakref.ref[Tape]) -> None:
    """Collect: half of the instructions are dead, or many bytes."""
    tape = reference()
    if tape is not None and not sys.is_finalizing():
        for settle in SETTLE:
            settle()
        with suppress(MemoryError):  # the next time will find what died
            tape.collect()


def _grown(kept: list[int], reference: weakref.ref[Tape]) -> None:
    """Collect where there are twice as many instructions as the last time, and some more: ``kept`` is how many."""
    tape = reference()
    if tape is not None and tape.entries.count > 2 * kept[0] + _FEW:
        _full(reference)
        kept[0] = tape.entries.count


_FEW = 1 << 10
