"""The table of calls that have been seen, which native code computes and records again (calls_native.py)."""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from kernels.foundation import numpy_arrays
from kernels.foundation.locks import Lock
from kernels.foundation.specs import Spec, spec_of
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Descriptor, Form
from kernels.language import jit
from kernels.native import allocation
from kernels.native.allocation import REGISTRY
from kernels.native.call_structs import (
    BY_ARRAYS,
    JOINED,
    KEY,
    KNOWN_ARRAYS,
    MOST_ARGUMENT_WORDS,
    MOST_OPERANDS,
    NUMBER_FORM,
    OP_ADD,
    OP_DIVIDE,
    OP_MATMUL,
    OP_MULTIPLY,
    OP_NEGATIVE,
    OP_POWER,
    OP_SUBTRACT,
    PICK,
    SETS,
    WAYS,
    CallEntry,
    KnownArray,
)
from kernels.native.calls.computation import Computation
from kernels.native.memory import where
from kernels.native.structs import LARGE, RegistryTable
from kernels.rules.scalar_loops import UfuncCall, nest_layout

# The arguments behind the tensors of a call, as part of its key in native code's table.


@dataclass(frozen=True)
class Arguments:
    """The arguments behind the tensors of a call: as words, with their hash, and the objects that these refer to."""

    words: np.ndarray[Any, Any]
    hashed: int
    objects: tuple[Any, ...]


_CONSTANT = frozenset((bool, str, type, type(None)))


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
    """Return arguments as part of a key; None if they are mutable, or too many."""
    everything = (*args, *kwargs.values())
    for x in everything:
        if type(x) not in (int, float, tuple, list) and type(x) not in _CONSTANT and not isinstance(x, np.dtype):
            return None  # native code compares sequences by their items
    names = tuple(kwargs)
    argument_words = np.zeros(MOST_ARGUMENT_WORDS, np.int64)
    addresses = np.array([*map(id, everything), 0], np.int64)
    native = jit.load_module("native.calls.arguments_native")
    hashed = native.words_of(where(addresses), len(args), id(names), where(argument_words)) if everything else 0
    return Arguments(argument_words, hashed, (names, everything)) if hashed >= 0 else None


OPERATORS = {
    ("+", 2): OP_ADD, ("-", 2): OP_SUBTRACT, ("*", 2): OP_MULTIPLY, ("/", 2): OP_DIVIDE,
    ("**", 2): OP_POWER, ("-", 1): OP_NEGATIVE, ("@", 2): OP_MATMUL,
}  # fmt: skip
"""The operators that have slots in the type of tensors, by sign and how many operands there are."""
_kept: dict[int, Any] = {}
"""What the entries refer to, by their addresses."""
_turn = itertools.count()
_REMOVED = -1
"""What stands for the operation of an entry that was removed."""


def bits(number: float) -> int:
    """Return the bits of a double."""
    return int(struct.unpack("q", struct.pack("d", number))[0])


@dataclass(frozen=True)
class Key:
    """The key of a call: operation, forms or specs of its operands (None: a number), which are wanted, a number."""

    op: int
    forms: tuple[Descriptor | None, ...]
    wanted: tuple[bool, ...] = ()
    number: int = 0

    def words(self) -> list[int]:
        """Return the key as words of the table."""
        forms = [NUMBER_FORM if form is None else id(form) for form in self.forms]
        forms += [0] * (MOST_OPERANDS - len(forms))
        return [self.op, *forms, sum(want << k for k, want in enumerate(self.wanted)), self.number]


@dataclass(frozen=True)
class Notification:
    """What a recorder is notified of after a repeated call: the operation, how many of the operands, the parameters."""

    op: Any
    count: int
    params: tuple[Any, ...] = ()


class Entry:
    """An entry under construction: its words, and the objects that these refer to."""

    def __init__(self, key: Key, form: Descriptor) -> None:
        self.row = [*key.words(), *([0] * (CallEntry.SIZE - KEY))]
        self.kept: list[Any] = []
        self.forms = [*key.forms, form]
        self[CallEntry.form] = id(form)

    def __setitem__(self, at: int, value: int) -> None:
        self.row[at] = value

    def keep(self, at: int, referent: Any, address: int) -> None:
        """Refer to an object by its address, and keep it alive with the entry."""
        self.row[at] = address
        self.kept.append(referent)

    def words_of(self, at: int, numbers: Any) -> None:
        """Refer to an array of words."""
        array = np.array([*numbers, 0], np.int64)
        self.keep(at, array, where(array))

    def records(self, form: Descriptor) -> None:
        """Let the call be recorded as an instruction of this form."""
        assert isinstance(form, Form)
        self[CallEntry.block], self[CallEntry.code] = where(form.block), form.code

    def sizes(self, largest: int, result: int) -> None:
        """Enter the bytes of the largest value and of the result, if they are large."""
        self[CallEntry.large], self[CallEntry.bytes] = [size if size >= LARGE else 0 for size in (largest, result)]

    def shapes(self, spec: Spec) -> None:
        """Set dtype and shape of the result."""
        self[CallEntry.dtype], self[CallEntry.ndim] = spec.dtype.num, len(spec.shape)
        self.words_of(CallEntry.shape, spec.shape)

    def begins(self, hashed: int, start: int, offset: int) -> None:
        """Set where a view begins in memory and in the gradient buffer, and the hash of its index."""
        self[CallEntry.second], self[CallEntry.start], self[CallEntry.offset] = hashed, start, offset

    def notifies(self, notification: Notification) -> None:
        """Notify recorders of the call."""
        self[CallEntry.operands] = notification.count
        self.keep(CallEntry.operation, notification.op, id(notification.op))
        self.keep(CallEntry.params, notification.params, id(notification.params))

    def computes(self, how: Computation) -> None:
        """Set how the result is computed."""
        self[CallEntry.kind], self[CallEntry.count] = how.kind, how.count
        self[CallEntry.loop], self[CallEntry.data] = how.loop.address, how.loop.data
        self[CallEntry.saved] = sum(pick << PICK * k for k, pick in enumerate(how.picks))
        self[CallEntry.initial], self[CallEntry.scale] = bits(how.initial), bits(how.scale)
        if how.bounds is not None:
            self[CallEntry.initial], self[CallEntry.scale] = how.bounds
        if how.ties is not None:
            self[CallEntry.counts] = jit.load_module("native.calls.choosing_native").ties.address
            self.keep(CallEntry.ties, how.ties, where(how.ties))
        if how.function is not None:
            self.keep(CallEntry.loop, how.function, id(how.function))
        if how.layout is not None:
            self.keep(CallEntry.layout, how.layout, where(how.layout))
        for at, referent in (
            (CallEntry.context, how.context),
            (CallEntry.extra, how.extra),
            (CallEntry.pair, how.pair),
        ):
            if referent is not None:
                self.keep(at, referent, id(referent))

    def is_known(self) -> bool:
        """Whether the call is in the table."""
        return _is_known(self.row[:KEY])

    def write(self) -> None:
        """Write the entry into the table, and keep what it refers to; it is removed with the forms that it names.

        It is written in one step, or not at all: another thread, or a finalizer that runs meanwhile, may be writing
        too.
        """
        with _writing.if_free() as free:
            if free:
                self._write()

    def _write(self) -> None:
        address = _place(self.row)
        at = (address - REGISTRY.calls) // 8
        end = partial(_end, at)
        held = [*self.kept, *[ref(form, end) for form in self.forms if form is not None]]
        before = _kept.get(address)
        _kept[address] = [held, before]
        _table[at : at + CallEntry.SIZE] = np.array(self.row, np.int64)
        _kept[address] = held


_writing = Lock()
_table = np.frombuffer((ctypes.c_int64 * (CallEntry.SIZE * WAYS * SETS)).from_address(REGISTRY.calls), np.int64)


def _end(at: int, _: Any) -> None:
    """Remove an entry: one of its forms is gone, and another form may get the same address."""
    _table[at + CallEntry.op] = _REMOVED


def enter(
    key: Key,
    form: Descriptor,
    how: Computation | None,
    notification: Notification,
    largest: int,
    asked: Arguments | None = None,
) -> None:
    """Let native code repeat a call; without a computation let it leave all such calls to Python.

    ``largest``: bytes of the largest operand or result; ``asked``: the arguments behind the tensors. If there
    is a second result, Python notifies recorders of the call.
    """
    entry = Entry(key, form)
    if asked is not None:
        entry.keep(CallEntry.key, asked, where(asked.words))
    if how is not None:
        spec = form.spec
        if any(key.wanted) and isinstance(form, Form):
            entry.records(form)
        entry.computes(how)
        entry.shapes(spec)
        if how.extra is None:
            entry.notifies(notification)
        entry.sizes(largest, spec.bytes)
        entry[CallEntry.takes] = key.forms[0] is not None and key.forms[0].spec is spec and not spec.overlaps
    entry.write()


def is_known(key: Key) -> bool:
    """Whether a call is in the table: native code may still leave it to Python at times."""
    return _is_known(key.words())


def _is_known(row: list[int]) -> bool:
    return any(_words_at(place) == row for place in _places(row))


@functools.cache
def _find_place() -> Any:
    return jit.load_module("native.calls.calls_native").place.entry_point


def _places(row: list[int]) -> list[int]:
    """Return the addresses at which a call may be entered."""
    first = _find_place()(*row[:KEY])
    return [first + 8 * CallEntry.SIZE * k for k in range(WAYS)]


_KeyWords = ctypes.c_int64 * KEY  # made once: ctypes' types are reference cycles


def _words_at(place: int) -> list[int]:
    return list(_KeyWords.from_address(place))


def _place(row: list[int]) -> int:
    """Return where to enter a call: at its own place, that of a removed one, an empty one, or in place of another."""
    places = _places(row)
    known = [_words_at(place) for place in places]
    if row[:KEY] in known:
        return places[known.index(row[:KEY])]
    for place, key in zip(places, known, strict=True):
        if key[CallEntry.op] == _REMOVED:
            return place
    for place in places:
        if place not in _kept:
            return place
    return places[next(_turn) % WAYS]


# Arrays and NumPy's doubles among operands of calls: native code wraps them in tensors once their spec is known.

Array = np.ndarray[Any, Any]


class Adopted:
    """Specs of arrays by dtype, shape and strides: a hash table that native code reads, one entry a row."""

    def __init__(self) -> None:
        self._rows = np.zeros((KNOWN_ARRAYS, KnownArray.SIZE), np.int64)
        self._specs: list[Spec | None] = [None] * KNOWN_ARRAYS
        self._double = spec_of(0.0)
        native = jit.load_module("native.calls.adopting_native")
        self._enter, hit = native.enter.entry_point, native.hit_adopted.address
        for at, word in {
            RegistryTable.known_arrays: where(self._rows),
            RegistryTable.numpy_double: id(np.float64),
            RegistryTable.numpy_spec: id(self._double),
            RegistryTable.hit_adopted: hit,
        }.items():
            allocation.put(allocation.REGISTRY.address, at, word)

    def enter(self, array: Array, spec: Spec) -> None:
        """Enter the spec of a tensor of an array's memory."""
        row = self._enter(id(array), id(spec))
        if row >= 0:
            self._specs[row] = spec


# Calls in the table that join tensors (kernels/native/calls/joining_native.py).


@dataclass(frozen=True)
class Joined:
    """A tensor that is joined: its form, whether it is wanted, where it begins in the result, and its strides there."""

    form: Descriptor
    wanted: bool
    start: int
    strides: tuple[int, ...]


def enter_join(op: int, dim: int, joined: list[Joined], form: Descriptor, notification: Notification) -> None:
    """Let native code repeat a join of tensors along a dim."""
    spec, forms, wanted = form.spec, [tensor.form for tensor in joined], [tensor.wanted for tensor in joined]
    index = np.array([len(forms), dim, *[id(f) + want for f, want in zip(forms, wanted, strict=True)]], np.int64)
    hashed = jit.load_module("native.calls.joining_native").hash_words(where(index))
    entry = Entry(Key(op, (forms[0],), (any(wanted),), hashed), form)
    entry.forms += forms[1:]
    entry[CallEntry.second] = BY_ARRAYS
    loop = numpy_arrays.find(np.positive, (spec.dtype, spec.dtype))
    layout = []
    for tensor in joined:
        source = tensor.form.spec
        nest = nest_layout(UfuncCall(loop, source.shape, (source.strides, tensor.strides), ()))
        entry.kept.append(nest)
        layout += [where(nest), tensor.start]
    entry.computes(Computation(JOINED, loop, layout=np.array(layout, np.int64)))
    entry.shapes(spec)
    entry.notifies(notification)
    entry.sizes(max(spec.bytes, *[f.spec.bytes for f in forms]), spec.bytes)
    entry.keep(CallEntry.key, index, where(index))
    if any(wanted) and isinstance(form, Form):
        entry.records(form)
    entry.write()
