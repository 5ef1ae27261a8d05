"""The tape in Python: its rows and entries; values that pullbacks read later, and who else can write them."""

from __future__ import annotations

import bisect
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakValueDictionary, ref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.calls.object_types import words_of_tape
from kernels.foundation.specs import SCALAR, Array, Intervals, Spec
from kernels.foundation.tables import cached_property, dataclass
from kernels.kinds.form import Form, restrided
from kernels.language.jit import bound
from kernels.native import pool
from kernels.native.c_api import NATIVE
from kernels.native.memory import REGISTRY, where
from kernels.native.structs import ADDS, CLEARS, EXPOSED, LARGE, LARGEST_LOSS, TAPE_BITS
from kernels.rules.op import Op

# The tape in Python: its rows and entries, and pullbacks that Python runs.

living: WeakValueDictionary[int, PlainTape] = WeakValueDictionary()  # by number
_SLOT = operator.itemgetter(0)
Row = tuple[int, tuple[Any, ...], tuple[Any, ...], Form]


class PlainTape:
    """Rows of slot, operands, saved values and form, and counts of who has a slot; see object_types.py."""

    def __init__(self, number: int, count: int) -> None:
        self.number, self.next = number, count
        self.rows: list[Row] = []
        self.held: Counter[int] = Counter()
        self.moves = self.grown = self.writes = self.dead = self.lost = 0
        self.room = _LEAST
        self.notified: Callable[[], Any] | None = None
        living[number] = self

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def count(self) -> int:
        """How many instructions there are."""
        return len(self.rows)

    def record(self, result: Any, code: int, operands: tuple[Any, ...], saved: tuple[Any, ...]) -> None:
        """Append an instruction; a tensor gets its slot, which has the count ``next``, and its form."""
        form = REGISTRY.form(code)
        if len(operands) != len(form.specs) or len(saved) != len(form.saved):
            raise TypeError(f"{form.name}: not {len(operands)} operands and {len(saved)} saved values")
        if len(self.rows) >= self.room:
            if self.notified is not None and 2 * self.dead > len(self.rows):
                self.notified()
            self.room = len(self.rows) * 3 // 2 + _LEAST
        if form.kind in (CLEARS, ADDS):
            self.writes |= 2 if self._foreign(operands[:1]) else 1
        for operand in self._foreign(operands):
            hold(operand)
        if form.numbers:
            saved = form.numbered(saved)
        rows, held, base, slot = self.rows, self.held, self.number << TAPE_BITS, 0
        try:
            # This line calls no Python code before the row is there, so slots ascend whichever thread records.
            # fmt: off
            slot = base | self.next; self.next += 1; held[slot] = 1; rows.append((slot, operands, saved, form))  # noqa: E702
            # fmt: on
            result._slot, result._form = slot, form  # noqa: SLF001 (tensors know no more of tapes)
        finally:
            if slot:
                let_go(slot)

    def _foreign(self, operands: tuple[Any, ...]) -> list[int]:
        return [o for o in operands if type(o) is int and o >> TAPE_BITS != self.number]

    def at(self, last: int) -> tuple[int, int, int, tuple[Any, ...], tuple[Any, ...], Form]:
        """Return the instruction at a place."""
        return (last, last + 1, *self.rows[last])

    def form(self, last: int) -> Form:
        """Return the form of the instruction at a place."""
        return self.rows[last][3]

    def find(self, slot: int) -> int:
        """Return the end of the last instruction whose slot is at most this."""
        return bisect.bisect_right(self.rows, slot, key=_SLOT)

    def arrays(self, after: int) -> list[Any]:
        """Return the arrays saved by instructions behind a slot, each with slot and number."""
        return [item for slot, j, value in self._saved(after) for item in (value, slot, j)]

    def meeting(self, low: int, high: int, after: int) -> list[int]:
        """Return slots and numbers of those of them that may stand in a range of memory."""
        ranges = [(slot, j, byte_bounds(value)) for slot, j, value in self._saved(after) if value.size]
        return [item for slot, j, (first, last) in ranges if first < high and low < last for item in (slot, j)]

    def _saved(self, after: int) -> Iterator[tuple[int, int, Any]]:
        for k in range(len(self.rows) - 1, self.find(after) - 1, -1):
            slot, _, values, _ = self.rows[k]
            yield from ((slot, j, value) for j, value in enumerate(values) if isinstance(value, np.ndarray))

    def placed(self, slot: int, number: int) -> tuple[tuple[int, int], int] | None:
        """Return where a saved value stands, and its instruction's end; None if that is gone."""
        last = self.find(slot) - 1
        return ((last, number), last) if last >= 0 and self.rows[last][0] == slot else None

    def kept(self, place: tuple[int, int], last: int) -> Any:
        """Return what an instruction saved there."""
        return self.rows[last][2][place[1]]

    def replace(self, place: tuple[int, int], last: int, saved: Any, copy: Any, code: int) -> Any:
        """If a saved array is still there, put a copy and another form in its place."""
        slot, operands, values, _ = self.rows[last]
        if values[place[1]] is not saved:
            return None
        self.rows[last] = slot, operands, (*values[: place[1]], copy, *values[place[1] + 1 :]), REGISTRY.form(code)
        return saved

    def remove(self, readers: list[None], lasts: tuple[int, ...]) -> int:
        """Drop the instructions at these places, unless the tape has other readers."""
        gone = {self.rows[k][0] for k in lasts}
        return self._take_out(lambda _: gone, readers, 1)

    def collect(self, readers: list[None]) -> int:
        """Drop the instructions whose results nobody can reach, unless the tape has readers."""
        self.dead = self.lost = 0
        return self._take_out(self._unreachable, readers, 0)

    def _unreachable(self, rows: list[Row]) -> set[int]:
        needed, gone = set[Any](), set[int]()
        for slot, operands, _, _ in reversed(rows):
            if self.held[slot] or slot in needed:
                needed.update(operands)
            else:
                gone.add(slot)
        return gone

    def _take_out(self, find: Callable[[list[Row]], set[int]], readers: list[None], most: int) -> int:
        """Drop instructions, if the tape has at most so many readers; finalizers may drop others meanwhile."""
        while len(readers) <= most:
            moves, before = self.moves, self.rows[:]
            gone, n = find(before), len(before)
            kept = [row for row in before if row[0] not in gone]
            new = self.rows[n:]
            if not most and any(not gone.isdisjoint(operands) for _, operands, _, _ in new):
                continue  # instructions recorded meanwhile may need results that nobody else has
            # This line calls no Python code, so no other thread can start reading or record meanwhile.
            # fmt: off
            if self.moves == moves and self.rows[n:] == new and not readers[most:]: self.rows[:n] = kept; self.moves += 1; break  # noqa: E701, E702, E501
            # fmt: on
        else:
            return 0
        self.room = min(self.room, 2 * len(self.rows) + _LEAST)
        for row in before:
            if row[0] in gone:
                for operand in self._foreign(row[1]):
                    let_go(operand)
        return len(before) - len(kept)

    def notify(self, call: Callable[[], Any]) -> None:
        """Set what is called when half of the tape is dead."""
        self.notified = call


_LEAST = 256
_WORDS = 5  # about how many words an instruction of the native tape has


def hold(slot: int) -> None:
    """Count one more owner of a slot."""
    tape = living.get(slot >> TAPE_BITS)
    if tape is not None:
        tape.held[slot] += 1


def let_go(slot: int, size: int = 0) -> None:
    """Count one owner less, whose value has so many bytes."""
    tape = living.get(slot >> TAPE_BITS) if living is not None else None
    if tape is not None:
        tape.held[slot] -= 1
        if not tape.held[slot]:
            del tape.held[slot]
            tape.dead += 1
        tape.lost += size
        if tape.lost * 10_000 > LARGEST_LOSS * _WORDS * len(tape) and tape.notified is not None:
            tape.lost = 0
            tape.notified()


class SlotHolder:
    """The base of tensors without native code: they count as owners of their ``_slot`` as long as they live."""

    __slots__ = ("_place",)
    _place: Any

    @property
    def _slot(self) -> Any:
        """None, a slot, or a leaf; AttributeError where it has been taken away."""
        place = getattr(self, "_place", None)
        if place is _TAKEN:
            raise AttributeError("_slot")
        return place[0] if type(place) is tuple else place

    @_slot.setter
    def _slot(self, slot: Any) -> None:
        self._exchange(slot)

    @_slot.deleter
    def _slot(self) -> None:
        self._exchange(_TAKEN)

    def _exchange(self, place: Any) -> None:
        if type(place) is int:
            hold(place)
        before, self._place = getattr(self, "_place", None), place
        if type(before) is int:
            let_go(before)

    def _unheld(self) -> None:
        """Refer to its slot without counting as its owner."""
        if type(self._slot) is int:
            self._exchange((self._slot,))

    def __del__(self) -> None:
        place = getattr(self, "_place", None)
        if type(place) is int:
            let_go(place, getattr(self, "_bytes", 0))


_TAKEN = object()


@dataclass(slots=True)
class Instruction:
    """One instruction taken apart. Where it stands is a place among words, or in the list of the plain tape."""

    start: int
    stop: int
    slot: int
    operands: tuple[Any, ...]
    saved: tuple[Any, ...]
    form: Form


def entries_of(number: int, count: int) -> Any:
    """Return what a new tape of this number writes to, whose first slot has this count."""
    return words_of_tape(number, count) if NATIVE else PlainTape(number, count)


class SavedArrays(NamedTuple):
    """What finds the arrays that a tape's instructions saved: see kernels/native/record_native.py."""

    arrays: Callable[[int], list[Any]]
    meeting: Callable[[int, int, int], list[int]]
    placed: Callable[[int, int], Any]


def saved_arrays(entries: Any) -> SavedArrays:
    """Return it for a tape; native code for it is there from the first write on."""
    if isinstance(entries, PlainTape):
        return SavedArrays(entries.arrays, entries.meeting, entries.placed)
    return SavedArrays(*[bound("native.record_native", name, entries) for name in SavedArrays._fields])


def instruction_at(entries: Any, last: int) -> Instruction:
    """Return the instruction whose last word stands there."""
    instruction = Instruction(*entries.at(last))
    if instruction.form.numbers:
        instruction.saved = instruction.form.shaped(instruction.saved)
    return instruction


def instructions(entries: Any, down_to: int = 0) -> Iterator[Instruction]:
    """Yield a tape's instructions, last first, down to a slot; the caller is registered as a reader."""
    stop = len(entries)
    while stop > 0:
        instruction = instruction_at(entries, stop - 1)
        if instruction.slot < down_to:
            return
        yield instruction
        stop = instruction.start


def locate(entries: Any, slot: int) -> Instruction | None:
    """Return the instruction with this result; None if it is gone."""
    stop = entries.find(slot)
    instruction = instruction_at(entries, stop - 1) if stop else None
    return instruction if instruction is not None and instruction.slot == slot else None


@dataclass(frozen=True, eq=False, kw_only=True)
class PythonPullback(Op):
    """A call of user code; its name and pullback are those of the object that it saves. Not in the tables."""

    def __post_init__(self) -> None:
        """Register nothing."""


FUNCTION = PythonPullback(name="function", doc="A Python function with a backward of its own.", pullback=(), grad_fn="")
OUTPUT = PythonPullback(name="output", doc="One of several results of a function.", pullback=(), grad_fn="")


def function(name: str, specs: tuple[Spec | None, ...], spec: Spec | None, count: int) -> Form:
    """Return the form of a function with one result of this spec, or with several; ``count`` arrays are saved."""
    saved = ("context", *(f"saved{k}" for k in range(count)))
    wanted = tuple(source is not None for source in specs)
    nothing = (None,) * len(specs)
    return Form(FUNCTION, specs, spec or SCALAR, wanted, saved, nothing, (), name, python=True)


def output(name: str, spec: Spec) -> Form:
    """Return the form of one of several results."""
    return Form(OUTPUT, (SCALAR,), spec, (True,), ("context",), (None,), (), name, python=True)


def packed(form: Form) -> Form:
    """Return the form of an instruction whose saved values have been packed away by the user."""
    return Form(
        form.op, form.specs, form.spec, form.wanted, ("packed",), form.pulls, form.params, form.name, python=True
    )


# Memory that code outside may write without anybody seeing it, as NumPy does: what pullbacks keep of it is copied.

HOLDERS: dict[int, dict[int, ReferenceType[Any]]] = {}
"""By the id of an array that owns memory: those through whom others may write there, as long as they live."""
SHOWN: dict[int, Array] = {}
"""The same of holders that native code has made: arrays by the ids of these (kernels/calls/tensor_native.py)."""
_roots: dict[int, ReferenceType[Array]] = {}
_counts = memoryview(np.zeros(2 * EXPOSED + 1, np.int64))  # of which Python reads elements faster than of an array
"""How many such arrays there are by their addresses, for native code, and in all: never too few. Then which one of each
place it is, or _SEVERAL."""
_only = _counts[EXPOSED + 1 :]
_SEVERAL = -1
REGISTRY.set(exposed=where(_counts.obj))
REGISTRY.set_objects(shown=SHOWN)


def root_of(array: Array) -> Array:
    """Return the array that owns an array's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def expose(array: Array, holder: Any = None) -> bool:
    """Mark the memory of an array as exposed while ``holder`` lives, by default the array that owns the memory.

    Return whether it was not already by this holder; of exposed memory the tape keeps copies.
    """
    root = root_of(array)
    key, holder = id(root), root if holder is None else holder
    if type(root.base) is bytes or id(holder) in HOLDERS.get(key, ()):
        return False
    place = _place(key)
    _only[place] = key if _counts[place] == 0 or _only[place] == key else _SEVERAL
    _counts[place] += 1
    _counts[EXPOSED] += 1
    holders = HOLDERS.setdefault(key, {})
    _roots[key] = ref(root, partial(_died, key))
    holders[id(holder)] = ref(holder, partial(_end, key, id(holder)))
    return True


def _place(key: int) -> int:
    return (key >> 4 ^ key >> 18) & (EXPOSED - 1)  # objects of one size are at few of all offsets in an arena


def _end(key: int, holder: int, _: Any) -> None:
    holders = HOLDERS.get(key)
    if holders is not None and holders.pop(holder, None) is not None:
        if not holders:
            HOLDERS.pop(key, None)
            _roots.pop(key, None)
        _counts[_place(key)] -= 1
        _counts[EXPOSED] -= 1


def _died(key: int, _: Any) -> None:
    """Forget an array that has died, whose id is free, although a holder may live on."""
    for holder in list(HOLDERS.get(key, ())):
        _end(key, holder, None)


def copied(array: Array) -> Array:
    """Return a copy in the order of the elements in memory; what stands at several places is copied once."""
    source = array[(*[slice(0, 1) if step == 0 else slice(None) for step in array.strides], ...)]
    copy = pool.call(partial(source.copy, "K")) if source.nbytes >= LARGE else source.copy("K")
    return copy if copy.shape == array.shape else np.broadcast_to(copy, array.shape)


def kept_arguments(arguments: Iterable[Any]) -> list[Any]:
    """Return the arguments of a call as its pullback may keep them: the caller's arrays copied."""
    return [copied(x) if isinstance(x, np.ndarray) else x for x in arguments]


def is_exposed(array: Array) -> bool:
    """Whether others may write the memory of an array."""
    root = root_of(array)
    key = id(root)
    place = _place(key)
    if _counts[place] == 0 or _only[place] not in (key, _SEVERAL):
        return False
    return _only[place] == key or key in HOLDERS or any(root is shown for shown in list(SHOWN.values()))


def exposed_roots() -> list[Array]:
    """Return the arrays that own exposed memory."""
    return [*[root for reference in list(_roots.values()) if (root := reference()) is not None], *SHOWN.values()]


def unexposed(form: Form, saved: tuple[Any, ...]) -> tuple[Form, tuple[Any, ...]]:
    """Return the form and the saved values of an instruction with copies of exposed memory."""
    if not _counts[EXPOSED]:
        return form, saved
    values = list(saved)
    for k, value in enumerate(saved):
        if type(value) is np.ndarray and is_exposed(value):
            values[k] = copy = copied(value)
            if copy.strides != value.strides:
                form = restrided(form, k, copy.strides)
    return form, tuple(values)


# Saved values that a write is about to overwrite are copied first; recording costs nothing for this. A write looks
# through the tape for saved arrays where it writes; when writes have looked at many, the arrays are filed by their
# memory, so that a loop of n writes takes a time that grows as n. What is on file names instructions by their slots,
# and so outlives that others are dropped.

_WORK = 10_000  # work limit for finding out whether two strided arrays share an element; undecided counts as yes
_LOOKS_PER_FILING = 200  # so many saved arrays are looked at in the time that one takes to be filed
_SAVED_WORDS = 8  # words of an instruction, about
_COUNT = (1 << TAPE_BITS) - 1


class _File(NamedTuple):
    """Saved arrays by their memory: all of those of the instructions up to a slot, and how many were filed."""

    places: Intervals
    seen: int = 0
    count: int = 0


class SavedValues:
    """The saved arrays of one tape by their memory. Callers are registered as readers of the tape."""

    def __init__(self, entries: Any) -> None:
        self.entries = entries
        self.forget()

    @cached_property
    def _saved(self) -> SavedArrays:
        return saved_arrays(self.entries)

    def forget(self) -> None:
        """Have nothing on file."""
        self._file = _File(Intervals())
        self._gone = self._looked = 0

    def dropped(self, words: int) -> None:
        """Count instructions of so many words as dropped; what is on file of them is skipped, up to a half."""
        self._gone += words
        if self._gone > _SAVED_WORDS * self._file.count:
            self.forget()

    def protect(self, array: Array) -> None:
        """Replace each saved array that shares elements with this one, about to be written, by a copy."""
        copies: dict[int, Array] = {}
        for slot, number in self._meeting(*span(array)):
            at = self._saved.placed(slot, number)
            if at is None:
                continue
            saved = self.entries.kept(*at)  # if that is a copy by now, it meets nothing
            if meet(saved, array):
                if id(saved) not in copies:
                    copies[id(saved)] = np.array(saved, order="K")
                self._replace(*at, saved, copies[id(saved)])
                self._file.places.discard(*span(saved), (slot, number))

    def _meeting(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return slots and numbers of saved arrays in a range; many that are looked at one by one are filed first."""
        fresh = min(self.entries.next - (self._file.seen & _COUNT), self.entries.count)
        self._looked += fresh
        if self._looked > _LOOKS_PER_FILING * fresh:
            self._bring_up_to_date()
        file = self._file
        places: list[int] = self._saved.meeting(low, high, file.seen)
        return [*file.places.meeting(low, high), *zip(places[::2], places[1::2], strict=True)]

    def _bring_up_to_date(self) -> None:
        """File what was saved since the last time, counted as seen at the end: interrupts or threads miss none."""
        file = self._file
        fresh = self._saved.arrays(file.seen)
        for array, slot, number in zip(fresh[::3], fresh[1::3], fresh[2::3], strict=True):
            file.places.add(*span(array), (slot, number))
        self._file = _File(file.places, max((file.seen, *fresh[1::3])), file.count + len(fresh) // 3)
        self._looked = 0

    def _replace(self, place: Any, last: int, saved: Array, copy: Array) -> None:
        """Put a copy in the place of a saved array, with a form of its strides, unless a finalizer has just done so."""
        form = self.entries.form(last)
        if copy.strides != saved.strides:
            instruction = instruction_at(self.entries, last)
            at = next(k for k, value in enumerate(instruction.saved) if value is saved)
            form = restrided(form, at, copy.strides)
        self.entries.replace(place, last, saved, copy, form.code)


def span(array: Array) -> tuple[int, int]:
    """Return the range of bytes that an array's elements stand in."""
    if not array.flags.c_contiguous:
        return byte_bounds(array)
    start = where(array)
    return start, start + array.nbytes


def meet(a: Array, b: Array) -> bool:
    """Whether two arrays share an element, or may: where that is too hard to say."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_WORK)
    except np.exceptions.TooHardError:
        return True
