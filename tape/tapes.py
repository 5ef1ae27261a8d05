"""The tape of a thread, and what is kept with it: who watches, who retains, which hooks."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import get_ident
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from kernels import backend, direct_calls
from kernels.entries import MOVES, MOVING, instructions, nested, settled, snapshot
from kernels.mentions import Mentions
from kernels.observing import FreedError
from kernels.words import TAPE_BITS
from tape import cycles, errors

_numbers = itertools.count(1)
_spare: list[tuple[int, Iterator[int]]] = []
"""The numbers of tapes that are gone, with the counts that go on where theirs ended: no slot comes twice."""
_MOST = 1 << 63 - TAPE_BITS
"""Native code reads slots of 63 bits: so many tapes can live at a time."""
SETTLE: list[Callable[[], None]] = []
"""What lets a context that was copied from another thread record on its own thread's tape."""
_FIRST_CHUNK = 1024
_CHUNK_BITS = 40
"""No chunk has more slots than this many bits count."""
LARGE = direct_calls.LARGE
"""Bytes from which a value is worth watching; the fast path leaves such operations to others."""
_LARGEST_GROWTH = 1 << 25
"""Bytes of large values after which a short tape looks for what died: small tensors may have kept it."""
LONG = 1 << 14
"""Entries that may stand on a tape, dead, until a chunk is full."""
LARGEST_LOSS = 1 << 20
"""Bytes of dead tensors after which a tape of 10,000 entries looks for what they held."""
living: WeakValueDictionary[int, Tape] = WeakValueDictionary()


def every() -> list[Tape]:
    """Return the living tapes; other threads may make more at any moment."""
    return [tape for reference in living.valuerefs() if (tape := reference()) is not None]


orphans: set[Tape] = set()
"""The tapes of threads that have ended, as long as something on them can be reached."""


def _new_number() -> tuple[int, Iterator[int]]:
    number = next(_numbers)
    if number >= _MOST:
        raise RuntimeError(f"{_MOST} threads have a tape each, or have left tensors behind that hold theirs")
    return number, itertools.count(number << TAPE_BITS)


def _next_chunk(reference: weakref.ref[Tape]) -> None:
    """Drop what died, if the tape has grown by a quarter since the last time, and let it give out another chunk."""
    tape = reference()
    if tape is not None:
        if next(tape.slots) >> _CHUNK_BITS >= (tape.number + 1 << TAPE_BITS - _CHUNK_BITS) - 1:
            raise OverflowError("this thread's tape has given out all its slots; go on in another thread")
        try:
            for settle in SETTLE:
                settle()
            with suppress(MemoryError):  # the next chunk will find what died
                tape.collect()
        finally:
            tape.fresh = tape._chunk()
    raise StopIteration


class Reading:
    """Somebody who reads a tape, as a context manager: it counts among the readers."""

    __slots__ = ("readers",)

    def __init__(self, readers: list[None]) -> None:
        self.readers = readers

    def __enter__(self) -> None:
        try:
            self.readers.append(None)
            settled()
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        if isinstance(error, FreedError):
            raise errors.GradError(errors.SECOND_TIME) from None

    def _leave(self) -> None:
        with suppress(IndexError):  # a tracer may raise between `try` and the line below it
            self.readers.pop()


class Tape:
    """A Wengert list: for each instruction its result slot, operands, saved values and opcode, end to end.

    Instructions whose results nobody can reach are dropped each time the slots of a chunk have been given out.
    """

    __slots__ = (
        "__weakref__",
        "entries",
        "extend",
        "fresh",
        "grown",
        "hooks",
        "lines",
        "lost",
        "metadata",
        "nodes",
        "number",
        "overwrite",
        "patience",
        "readers",
        "retained",
        "slots",
        "swept",
        "thread",
        "turn",
        "watched",
        "writes",
    )

    def __init__(self) -> None:
        self.number, self.slots = _spare.pop() if _spare else _new_number()
        self.thread = get_ident()
        self.turn: Iterator[Any] = map(_next_chunk, itertools.repeat(weakref.ref(self)))
        self.entries: list[Any] = []
        self.extend = self.entries.extend
        self.fresh = self._chunk()
        self.retained: dict[int, Any] = {}
        self.watched: dict[int, tuple[Any, int]] = {}
        self.hooks: dict[int, Any] = {}
        self.lines: dict[int, Any] = {}
        self.metadata: dict[int, dict[str, Any]] = {}
        self.nodes: dict[int, Any] = {}
        """Weak references to the nodes of the graph that somebody holds."""
        self.overwrite: Callable[[Any], None] = Mentions(self.entries).overwrite
        self.readers: list[None] = []
        """An item for each sweep that reads the entries: nothing may be dropped."""
        self.writes = False
        """Whether a write has ever been recorded here."""
        self.lost = self.grown = self.swept = self.patience = 0
        living[self.number] = self

    def __del__(self) -> None:
        """Live on if tensors may refer to what is recorded here: a slot is a number, and holds no tape."""
        if orphans is None:  # at the end of the process
            return
        if self.entries:
            living[self.number] = self
            orphans.add(self)
        else:
            _spare.append((self.number, self.slots))

    def _chunk(self) -> Callable[[], int]:
        """Return what gives out a chunk of slots, then calls :func:`_next_chunk`.

        It is made of iterators in C that no exception ends: what the call raises is raised to whoever wanted a slot,
        and the next one calls again. When it has been called (several may, at once) the slots simply go on.
        """
        size = max(_FIRST_CHUNK, len(self.entries) // 4)
        parts = iter([itertools.islice(self.slots, size), self.turn])
        return itertools.chain.from_iterable(itertools.chain(parts, itertools.repeat(self.slots))).__next__

    def collect(self, dying: int = 0) -> int:
        """Drop the instructions whose results nobody can reach; return how many entries they had."""
        for orphan in list(orphans) if orphans and self not in orphans else ():
            orphan.collect()
            if not orphan.entries:
                orphans.discard(orphan)
        if nested():
            return 0
        if self.hooks or self.metadata:
            self._let_go()
        gone, dropped = 0, None
        with MOVES:
            try:
                MOVING.append(None)
                if not self.readers:
                    gone, dropped = backend.collect(self.entries, self.number, dying)
            finally:
                MOVING.clear()
        del dropped  # finalizers run now, which may record, write and sweep
        if self.hooks or self.lines or self.metadata:
            self.forget_hooks()
        return gone

    def _let_go(self) -> None:
        """Break cycles of hooks and what they hold; the more that cost for nothing, the later the next time."""
        if self.patience:
            self.patience -= 1
        else:
            self.patience = cycles.let_go([*self.hooks.values(), *self.metadata.values()]) // 64

    def reading(self) -> Reading:
        """Keep the instructions where they are; FreedError within is GradError."""
        return Reading(self.readers)

    def forget_hooks(self) -> None:
        """Let go of the hooks, the user's lines and the notes of instructions that are gone."""
        tables = self.hooks, self.lines, self.metadata
        known = {slot for table in tables for slot in list(table)}  # other threads may add to them from now on
        alive = {i.slot for i in instructions(snapshot(self.entries), min(known))} if known else set()
        for slot in known - alive:
            for table in tables:
                table.pop(slot, None)

    def retain(self, tensor: Any) -> None:
        """Let backward give this tensor of the tape its gradient."""
        retained, key = self.retained, id(tensor)
        retained[key] = weakref.ref(tensor, lambda _: retained.pop(key, None))

    def watch(self, tensor: Any, size: int) -> None:
        """Collect when a tensor dies whose instruction may hold many bytes: not only when a chunk is full.

        Whoever gives the tensor another slot tells so: the slot of before does not die with it (families.move).
        """
        # A slot of equal value, not the same object: references to that are counted.
        slot, tape, key = tensor._slot ^ 0, weakref.ref(self), id(tensor)
        ending = sys.is_finalizing  # at the end of the process nothing is collected: modules are gone

        def died(reference: Any) -> None:
            own = tape()
            if own is not None and own.watched.get(key, (None,))[0] is reference and not ending():
                del own.watched[key]
                own.lose(slot, size)

        self.watched[key] = weakref.ref(tensor, died), size

    def grow(self, size: int) -> None:
        """Count the bytes of new large values; look for what died when they are many."""
        self.grown += size
        if self.grown > max(_LARGEST_GROWTH, 100 * len(self.entries)):
            self.grown = 0
            self.collect()

    def leave(self, root: Any) -> None:
        """Collect when the root of a backward dies, if much has been swept: what saved nothing still stands here."""
        if self.swept > LONG and 4 * self.swept > len(self.entries):
            self.swept = 0
            self.watch(root, sys.maxsize)

    def lose(self, slot: int, size: int) -> None:
        """Count the bytes of dead tensors. Pullbacks still need most of them: the longer the tape, the rarer a look."""
        self.lost += size
        if self.lost * 10_000 > LARGEST_LOSS * len(self.entries):
            self.lost = 0
            self.collect(slot)
