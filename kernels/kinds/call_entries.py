"""The table of calls that have been seen, which native code computes and records again (calls_native.py).

An entry has the key of a call, how its result is computed, where that goes, and what a recorder is notified of.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from kernels.calls.object_types import Computation
from kernels.foundation.specs import Array, Spec, Strides, broadcast, spec_of
from kernels.foundation.tables import Lock, dataclass
from kernels.kinds.form import Descriptor, Form
from kernels.language import jit
from kernels.native import memory, structs
from kernels.native.c_api import A_WRITEABLE
from kernels.native.memory import REGISTRY, row, where
from kernels.native.structs import CallEntry, KnownArray, RegistryTable

# The arguments of a call, as part of its key in native code's table.


@dataclass(frozen=True)
class Arguments:
    """Arguments of a call: as words, with their hash, how many are arrays, and the objects that the words refer to."""

    words: Array
    hashed: int
    arrays: int
    objects: tuple[Any, ...]


_CONSTANT = frozenset((int, float, bool, str, type, type(None)))


def _constant(x: Any) -> Any:
    """Return an argument that is immutable, a list as a tuple; NotImplemented of any other."""
    if type(x) in (tuple, list):
        return tuple(x) if all(type(item) in _CONSTANT for item in x) else NotImplemented
    return x if type(x) in _CONSTANT or isinstance(x, np.dtype) else NotImplemented


def arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], forms: tuple[int, ...] = (), *, indexed: bool = False
) -> Arguments | None:
    """Return arguments as part of a key; None if they are mutable, or too many.

    If ``indexed``, arrays and lists are indices, of which the key has the shapes. ``forms``: of tensors in a list.
    """
    everything, names = (*args, *kwargs.values()), tuple(kwargs)
    objects = () if indexed else tuple(map(_constant, everything))
    if any(x is NotImplemented for x in objects):
        return None
    words, addresses = (
        np.zeros(structs.MOST_WORDS + len(forms), np.int64),
        np.array([*map(id, everything), 0], np.int64),
    )
    words_of, hash_words = _key_functions()
    marks = structs.INDEXED if indexed else 0
    arrays = words_of(where(addresses), len(args), id(names) if names else 0, marks, where(words))
    if arrays < 0:
        return None
    if forms:
        used = int(words[0]) or 1
        words[0], words[used : used + len(forms)] = used + len(forms), forms
    return Arguments(words[: max(1, words[0])].copy(), hash_words(where(words)), arrays, (*names, *objects))


@functools.cache
def _key_functions() -> tuple[Any, Any]:
    native = jit.load_module("calls.keys_native")
    return native.words_of.entry_point, native.hash_words.entry_point


OPERATORS = {
    ("+", 2): structs.OP_ADD, ("-", 2): structs.OP_SUBTRACT, ("*", 2): structs.OP_MULTIPLY, ("/", 2): structs.OP_DIVIDE,
    ("**", 2): structs.OP_POWER, ("-", 1): structs.OP_NEGATIVE, ("@", 2): structs.OP_MATMUL,
}  # fmt: skip
"""The operators that have slots in the type of tensors, by sign and how many operands there are."""
_kept: dict[int, Any] = {}  # what the entries refer to, by their addresses
_turn = itertools.count()
_REMOVED = -1  # what stands for the operation of an entry that was removed


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
        forms = [structs.NUMBER_FORM if form is None else id(form) for form in self.forms]
        forms += [0] * (structs.MOST_OPERANDS - len(forms))
        return [self.op, *forms, sum(want << k for k, want in enumerate(self.wanted)), self.number]


@dataclass(frozen=True)
class Notification:
    """What a recorder is notified of after a repeated call: the operation, how many of the operands, the parameters."""

    op: Any
    count: int
    params: tuple[Any, ...] | None = ()  # None: only recorders that need none are notified


def cache_call(
    key: Key,
    form: Descriptor,
    how: Computation | None,
    *,
    notification: Notification | None = None,
    largest: int = 0,
    asked: Arguments | None = None,
    axes: tuple[tuple[int, ...], ...] = (),
    others: tuple[Descriptor, ...] = (),
) -> None:
    """Let native code repeat a call; without a computation let it leave all such calls to Python.

    ``notification``: of recorders, None where Python notifies them. ``largest``: bytes of the largest operand or
    result. ``asked``: the arguments that are part of the key; in place of ints in an index the ``axes`` that they
    index, extent and strides in memory and in the gradient, so that the entry stands for any ints. ``others``: forms
    that the key names too.
    """
    key = replace(key, number=len(axes) or (key.number if asked is None else asked.hashed))
    fields = {"form": id(form)}
    arrays = {"key": _flat(axes) if axes else None if asked is None else asked.words}
    objects: dict[str, Any] = {}
    if how is not None:
        _describe(replace(how, start=0, offset=0, extent=len(axes)) if axes else how, form.spec, fields, arrays)
        objects = {"loop": how.function, "context": how.context, "extra": how.extra, "pair": how.pair}
        if any(key.wanted) and isinstance(form, Form):
            fields |= {"block": where(form.block), "code": form.code}
        if notification is not None:
            fields["operands"] = notification.count
            objects |= {"operation": notification.op, "params": notification.params}
        if how.target == structs.NEW:
            same = key.forms[0] is not None and key.forms[0].spec is form.spec and not form.spec.overlaps
            fields |= {"bytes": form.spec.bytes if form.spec.bytes >= structs.LARGE else 0, "takes": same}
        fields["large"] = largest if largest >= structs.LARGE else 0
    for address, referents in ((where, arrays), (id, objects)):
        fields |= {name: address(referent) for name, referent in referents.items() if referent is not None}
    held = [*arrays.values(), *objects.values(), how and how.kept, asked and asked.objects]
    with _writing.if_free() as free:  # another thread, or a finalizer that runs meanwhile, may be writing too
        if free:
            _write([*key.words(), *row(CallEntry, **fields)[structs.KEY :]], held, [*key.forms, form, *others])


def _describe(how: Computation, spec: Spec, fields: dict[str, int], arrays: dict[str, Array | None]) -> None:
    """Enter how a result of this spec is computed, and where it goes, into the fields of an entry."""
    shape = spec.shape if how.shape is None else how.shape
    initial, scale = (bits(how.initial), bits(how.scale)) if how.bounds is None else how.bounds
    fields |= {
        "kind": how.kind, "count": how.count, "target": how.target, "start": how.start, "offset": how.offset,
        "extent": how.extent, "flags": A_WRITEABLE if how.writeable else 0, "dtype": spec.dtype.num,
        "ndim": len(shape), "loop": how.loop.address, "data": how.loop.data, "initial": initial, "scale": scale,
        "saved": sum(pick << structs.PICK * k for k, pick in enumerate(how.picks)),
    }  # fmt: skip
    if how.ties is not None:
        fields["counts"] = jit.load_module("calls.computing_native").ties.address
    strides = _flat(how.strides) if how.strides else None
    arrays |= {"shape": _flat(shape), "strides": strides, "ties": how.ties, "layout": how.layout, "data": how.offsets}


def _write(words: list[int], held: list[Any], forms: list[Descriptor | None]) -> None:
    """Write an entry into the table, in one step, and keep what it refers to; it is removed with its forms."""
    address = _place(words)
    at = (address - REGISTRY.calls) // 8
    end = partial(_end, at)
    held += [ref(form, end) for form in forms if form is not None]
    before = _kept.get(address)
    _kept[address] = [held, before]
    _table[at : at + CallEntry.SIZE] = np.array(words, np.int64)
    _kept[address] = held


_writing = Lock()
_table = np.frombuffer(
    (ctypes.c_int64 * (CallEntry.SIZE * structs.WAYS * structs.SETS)).from_address(REGISTRY.calls), np.int64
)


def _end(at: int, _: Any) -> None:
    """Remove an entry: one of its forms is gone, and another form may get the same address."""
    _table[at + CallEntry.op] = _REMOVED


def kind_of(key: Key) -> int | None:
    """Return what computes a call that is in the table, None for one that is not.

    Native code may still leave it to Python at times, and does each time if the kind is SLOWLY.
    """
    words = key.words()
    place = next((place for place, known in _places(words).items() if known == words), None)
    return None if place is None else ctypes.c_int64.from_address(place + 8 * CallEntry.kind).value


@functools.cache
def _find_place() -> Any:
    return jit.load_module("calls.calls_native").place.entry_point


_KeyWords = ctypes.c_int64 * structs.KEY  # made once: ctypes' types are reference cycles


def _places(words: list[int]) -> dict[int, list[int]]:
    """Return the keys that stand at the addresses at which a call may be entered."""
    first, size = _find_place()(*words[: structs.KEY]), 8 * CallEntry.SIZE
    return {place: _KeyWords.from_address(place)[:] for place in range(first, first + structs.WAYS * size, size)}


def _place(words: list[int]) -> int:
    """Return where to enter a call: at its own place, that of a removed one, an empty one, or in place of another."""
    places = _places(words)
    same = [place for place, key in places.items() if key == words[: structs.KEY]]
    removed = [place for place, key in places.items() if key[CallEntry.op] == _REMOVED]
    return (
        same or removed or [place for place in places if place not in _kept] or [*places][next(_turn) % structs.WAYS :]
    )[0]


# Arrays and NumPy's doubles among operands of calls: native code wraps them in tensors once their spec is known.


class WrappedArray:
    """Specs of arrays by dtype, shape and strides: a hash table that native code reads, one entry a row."""

    def __init__(self) -> None:
        self._rows = np.zeros((structs.KNOWN_ARRAYS, KnownArray.SIZE), np.int64)
        self._specs: list[Spec | None] = [None] * structs.KNOWN_ARRAYS
        self._double = spec_of(0.0)
        self._add_layout = jit.load_module("calls.functions_native").add_layout.entry_point
        for at, word in {
            RegistryTable.known_arrays: where(self._rows),
            RegistryTable.numpy_spec: id(self._double),
        }.items():
            memory.put(memory.REGISTRY.address, at, word)

    def add_layout(self, array: Array, spec: Spec) -> None:
        """Add the spec of a tensor of an array's memory."""
        number = self._add_layout(id(array), id(spec))
        if number >= 0:
            self._specs[number] = spec


# How native code shows, joins, picks and writes elements.

LARGEST = 1 << 11  # the most elements that are picked: their description takes as many words, or more
_MOST = np.iinfo(np.int64).max


def axes_of(spec: Spec, index: Any) -> tuple[tuple[int, ...], ...]:
    """Return the axes that an index of ints takes, as :func:`cache_call` wants them; of any other index none."""
    ints = index if type(index) is tuple else (index,)
    if not all(type(i) in (int, np.int64) for i in ints):
        return ()
    return tuple([axis for *axis, _ in zip(spec.shape, spec.strides, spec.gradient, ints)])  # noqa: B905 (the first)


def view_computation(above: Descriptor, shown: Array, start: int, offset: int) -> Computation:
    """Return how native code makes a view of a tensor that begins so many bytes behind it, in its gradient too."""
    of_view = isinstance(above, Form) and above.is_view
    return Computation(
        structs.NEST, target=structs.SHOWN, count=of_view, picks=(1,), shape=shown.shape, strides=shown.strides,
        start=start, offset=offset, writeable=shown.flags.writeable,
    )  # fmt: skip


@dataclass(frozen=True)
class IndexAxis:
    """How one index array picks: which of its elements belongs to each of the result's, and the stride of its axis."""

    which: Array
    step: int
    extent: int
    least: int


@dataclass(frozen=True)
class GatherPlan:
    """How elements are picked: a base offset for each element, and what index arrays add to it.

    For a mask: the numbers of all elements that it could pick, in order, and how many go with each of its own.
    """

    base: Array
    axes: tuple[IndexAxis, ...] = ()
    inner: int = 0

    def places(self, arrays: list[Array]) -> Array:
        """Return the numbers of the elements that these arrays, or one mask, pick."""
        if self.inner:
            return self.base[arrays[0].reshape(-1)]
        places = self.base.copy()
        for axis, array in zip(self.axes, arrays, strict=True):
            indices = np.asarray(array, np.int64).reshape(-1)[axis.which.reshape(places.shape)]
            places += np.where(indices < 0, indices + axis.extent, indices) * axis.step
        return places

    def layout(self) -> tuple[Array, tuple[Any, ...]]:
        """Return the description as words, and the arrays that they refer to."""
        base, *whiches = (_flat(array) for array in (self.base, *[axis.which for axis in self.axes]))
        layout = [len(base) // max(self.inner, 1), len(self.axes), self.inner, where(base)]
        for axis, which in zip(self.axes, whiches, strict=True):
            layout += [axis.step, axis.extent, axis.least, where(which)]
        return np.array(layout, np.int64), (base, whiches)


def _flat(numbers: Any) -> Array:
    """Return numbers as words; native code reads the address of none, too."""
    return np.array(numbers, np.int64).reshape(-1)


def gather_computation(plan: GatherPlan, spec: Spec) -> Computation | None:
    """Return how native code picks elements; None if these are too many."""
    if not spec.shape or max(plan.base.size, spec.size) > LARGEST:
        return None
    layout, kept = plan.layout()
    return Computation(structs.PICKED, layout=layout, kept=kept, count=spec.dtype.itemsize, picks=(1,))


def scatter_computation(
    plan: GatherPlan, spec: Spec, source: Spec | None, shape: Strides, *, adds: bool, once: bool
) -> Computation | None:
    """Return how native code writes a value, or adds it, to places of this shape; None if these are too many.

    ``source`` is the value's spec, None of a number; ``once``: no place may be written twice.
    """
    strides = (0,) * len(shape) if source is None else broadcast(source.shape, source.strides, shape)
    offsets, dtype = np.zeros(shape, np.int64), spec.dtype
    for axis, stride in enumerate(strides):
        offsets += (np.arange(shape[axis]) * stride).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    if not shape or max(plan.base.size, offsets.size) > LARGEST:
        return None
    kind = {"f8": structs.NEST, "f4": structs.NEST4}.get(dtype.str[1:], structs.NEST_INT)
    bounds = (int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), _MOST)) if dtype.kind in "iu" else None
    layout, kept = plan.layout()
    return Computation(
        kind, layout=layout, kept=kept, count=dtype.itemsize, picks=(2, structs.PICK_RESULT), bounds=bounds,
        shape=shape, target=structs.ADDED_TO_PLACES if adds else structs.TO_PLACES, offsets=_flat(offsets),
        extent=spec.size if once else 0,
    )  # fmt: skip
