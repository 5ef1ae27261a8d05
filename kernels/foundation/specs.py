"""Arrays: specs (shape, dtype, strides), the nest that walks one in NumPy's order, memory intervals, ufunc loops."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from kernels.foundation.tables import Lock, Recent, dataclass

Array = np.ndarray[Any, Any]
FLOAT64, FLOAT32, INT64, BOOL = map(np.dtype, (np.float64, np.float32, np.int64, np.bool_))

_LEAST = 6  # ranges up to 64 bytes, a cache line, are filed in blocks of the same size
_FEW = 64


class Intervals:
    """Items by the range of bytes [low, high) that they stand for.

    An item is filed in blocks of a power of two just above its own length, so that it stands in one or two, and a
    question looks into the blocks of each length that it touches: both take a time that does not grow with the rest.
    Threads, and finalizers in the middle of a method, may add, ask and discard: a list of a block is never replaced,
    and is copied before it is gone through. A dict is copied as a whole: ``list(items())`` allocates, and a garbage
    collection in its midst lets another thread run.
    """

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, list[tuple[int, int, Any]]]] = {}

    def add(self, low: int, high: int, item: Any) -> None:
        """File an item; one of no bytes meets nothing."""
        if high <= low:
            return
        level = max(_LEAST, (high - low - 1).bit_length())
        blocks = self._levels.setdefault(level, {})
        entry = low, high, item
        for block in range(low >> level, ((high - 1) >> level) + 1):
            blocks.setdefault(block, []).append(entry)

    def meeting(self, low: int, high: int) -> list[Any]:
        """Return the items whose range meets [low, high), each once, in no order."""
        if high <= low or not self._levels:
            return []
        entries = {id(entry): entry for entry in self._near(low, high)}
        return [item for a, b, item in entries.values() if a < high and low < b]

    def discard(self, low: int, high: int, item: Any) -> None:
        """Take an item out again, filed under the same range."""
        level = max(_LEAST, (high - low - 1).bit_length())
        blocks = self._levels.get(level, {})
        for block in range(low >> level, ((high - 1) >> level) + 1):
            with contextlib.suppress(ValueError):
                blocks.get(block, []).remove((low, high, item))

    def _near(self, low: int, high: int) -> Iterator[tuple[int, int, Any]]:
        for level, blocks in self._levels.copy().items():
            first, last = low >> level, (high - 1) >> level
            if last - first < _FEW:
                for block in range(first, last + 1):
                    yield from tuple(blocks.get(block, ()))
            else:
                for block, entries in blocks.copy().items():
                    if first <= block <= last:
                        yield from tuple(entries)


Strides = tuple[int, ...]

Key = tuple[Strides, Strides, np.dtype[Any], Strides, int]

_SPECS: WeakValueDictionary[Key, Spec] = WeakValueDictionary()
_lock = Lock(waited_for=True)


class Spec:
    """The pattern of an operand: shape, dtype, strides of its value and of its gradient, all strides in bytes.

    ``buffer_size`` is the number of elements of the family's gradient buffer. A base tensor's gradient is dense and its
    own; a view's is a pattern in the gradient buffer of its base; ``in_order`` if it stands there as in a C array.
    ``bytes`` are those of the elements. ``alike``: the strides of value and gradient are the same. ``overlaps``:
    elements share memory. Specs are interned: of those that something refers to, equal ones are one object, so that
    they serve as dictionary keys by identity.
    """

    __slots__ = (
        "__weakref__", "alike", "buffer_size", "bytes", "covers", "dtype", "gradient", "in_order", "inference",
        "overlaps", "shape", "size", "spec", "strides", "words",
    )  # fmt: skip
    kind = 0  # so that a tensor's form may be asked for its kind, too

    def __init__(
        self, shape: Strides, strides: Strides, dtype: np.dtype[Any], gradient: Strides, buffer_size: int
    ) -> None:
        self.spec = self  # so that a tensor's form may be a bare spec; a property is read at a call's cost
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.gradient = gradient
        self.buffer_size = buffer_size
        self.size = math.prod(shape)
        # Whether the gradient pattern meets each element of the gradient buffer exactly once.
        apart = all(stride != 0 for stride, n in zip(gradient, shape, strict=True) if n > 1)
        self.covers = self.size == buffer_size and apart
        self.bytes = min(self.size, buffer_size) * dtype.itemsize
        self.overlaps = self.size > 0 and any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True))
        self.alike = strides == gradient
        self.words: np.ndarray[Any, Any] | None = None  # what native code makes gradients of leaves by
        self.inference: Any = None  # the spec of the same pattern in inference mode, made when it is asked for
        self.in_order = self.size == 0 or gradient == dense(shape, dtype.itemsize)

    def native_shape_words(self) -> np.ndarray[Any, Any]:
        """Return how many dims there are, the number of the dtype, and the shape, as native code reads them."""
        if self.words is None:
            self.words = np.array([len(self.shape), self.dtype.num, *self.shape], np.int64)
        return self.words

    def __repr__(self) -> str:
        return f"Spec({self.shape}, {self.strides}, {self.dtype}, {self.gradient}, {self.buffer_size})"


def intern_spec(shape: Strides, strides: Strides, dtype: np.dtype[Any], gradient: Strides, buffer_size: int) -> Spec:
    """Return the one spec of these values: equal specs are the same object."""
    key = (shape, strides, dtype, gradient, buffer_size)
    spec = _LATELY.get(key)
    return spec if spec is not None else _interned(key)


def _interned(key: Key) -> Spec:
    new = Spec(*key)
    with _lock:
        spec = _SPECS.get(key)
        if spec is None:
            spec = _SPECS[key] = new
    _LATELY[key] = spec
    return spec


_LATELY: Recent[Key, Spec] = Recent()
_BASES: Recent[tuple[Any, ...], Spec] = Recent()


def spec_of(value: np.ndarray[Any, Any] | float) -> Spec:
    """Return the spec of a base tensor holding this value."""
    if type(value) is float:
        return SCALAR
    dtype = value.dtype
    key = (value.shape, value.strides, dtype.num, dtype.isnative)  # a dtype's own hash costs more than the rest
    spec = _BASES.get(key)
    if spec is None:
        if not dtype.isnative:
            raise TypeError(
                f"dtype {dtype.str!r} has a foreign byte order; convert it: a.astype(a.dtype.newbyteorder('='))"
            )
        if dtype.kind not in "fiub" or dtype.itemsize > _LARGEST:
            raise TypeError(unsupported(dtype))
        gradient = value.strides if fills(value) else dense(value.shape, value.itemsize)
        spec = _BASES[key] = intern_spec(value.shape, value.strides, value.dtype, gradient, value.size)
    return spec


def unsupported(dtype: np.dtype[Any]) -> str:
    """Return why there are no tensors of a dtype, for errors."""
    if dtype.kind == "c":
        return f"complex numbers are not supported, got {dtype}: convert to two tensors, z.real and z.imag"
    also = "; Python integers beyond 64 bits make it: write them as floats" if dtype.kind == "O" else ""
    return f"tensors hold floats, integers and booleans, not dtype {dtype}{also}; convert with astype"


_LARGEST = 8  # bytes of the largest numbers that tensors hold


def fills(value: np.ndarray[Any, Any]) -> bool:
    """Whether an array meets each element of a block of memory once, from its first on, in whatever order of axes."""
    step = value.itemsize
    for stride, n in sorted(zip(value.strides, value.shape, strict=True)):
        if stride != step:
            return False
        step *= n
    return True


def dense(shape: Strides, itemsize: int) -> Strides:
    """Return the strides of a C-contiguous array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


SCALAR = intern_spec((), (), np.dtype(np.float64), (), 1)
"""The spec of every 0-d float64 tensor, whether a Python float carries it or an array."""


def is_dense(spec: Spec) -> bool:
    """Whether the elements fill their memory in C order."""
    return spec.strides == dense(spec.shape, spec.dtype.itemsize) or math.prod(spec.shape) <= 1


def part_of(spec: Spec, shape: Strides, strides: Strides) -> Spec:
    """Return the spec of some elements of another's."""
    return intern_spec(shape, strides, spec.dtype, strides, spec.size)


def broadcast(shape: Strides, strides: Strides, to: Strides) -> Strides:
    """Return the strides by which an operand of ``shape`` is read over the space ``to``."""
    if 1 in shape:
        strides = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
    return (0,) * (len(to) - len(shape)) + strides


def nest(shape: Strides, operands: list[Strides]) -> tuple[list[int], list[list[int]]]:
    """Return extents and strides by operand, merged outermost first as NumPy's ``nditer_constr.c`` does for sums."""
    axes = [(n, [s[i] for s in operands]) for i, n in enumerate(shape) if n != 1]
    axes.reverse()
    for i in range(1, len(axes)):
        _insert(axes, i)
    merged: list[tuple[int, list[int]]] = []
    for n, strides in axes:
        if merged:
            m, inner = merged[-1]
            if all(a * m == b for a, b in zip(inner, strides, strict=True)):
                merged[-1] = (m * n, inner)
                continue
        merged.append((n, strides))
    merged.reverse()
    if not merged:
        return [], [[] for _ in operands]
    extents = [n for n, _ in merged]
    return extents, [[strides[k] for _, strides in merged] for k in range(len(operands))]


def _insert(axes: list[tuple[int, list[int]]], i: int) -> None:
    """One step of the iterator's insertion sort: smaller strides inward, conflicts left in C order."""
    place = i
    for j in range(i - 1, -1, -1):
        swap, ambiguous = False, True
        for p, q in zip(axes[i][1], axes[j][1], strict=True):
            if p and q:
                if abs(q) <= abs(p):
                    swap = False
                elif ambiguous:
                    swap = True
                ambiguous = False
        if not ambiguous:
            if not swap:
                break
            place = j
    axes.insert(place, axes.pop(i))


def view_spec(shape: Strides, strides: Strides, dtype: np.dtype[Any], gradient: Strides, buffer_size: int) -> Spec:
    """Return the spec of a view, which may meet an element twice; Spec itself sees only axes without a stride."""
    spec = intern_spec(shape, strides, dtype, gradient, buffer_size)
    spec.overlaps = spec.overlaps or meets_itself(shape, strides, dtype.itemsize)
    spec.covers = spec.covers and not meets_itself(shape, gradient, dtype.itemsize)
    return spec


def meets_itself(shape: Strides, strides: Strides, itemsize: int) -> bool:
    """Whether a pattern may meet an element twice, as the windows that overlap do."""
    reach = itemsize
    for stride, n in sorted((abs(stride), n) for stride, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return 0 not in shape
        reach += stride * (n - 1)
    return False


# NumPy as kernels see it: the address and inner loops of ufuncs, what sweeps take and give, warnings off.

_TYPE_COUNT = 4  # the most levels of metatypes
_HEADER = 16


def word_at(address: int) -> int:
    """Return the word at an address that is known to be memory."""
    return ctypes.c_int64.from_address(address).value


def with_subclasses(kind: int) -> Iterator[int]:
    """Yield the address of a type and those of all that derive from it."""
    if kind:
        yield kind
        for derived in type.__subclasses__(ctypes.cast(kind, ctypes.py_object).value):
            yield from with_subclasses(id(derived))


def is_object(address: int) -> bool:
    """Whether there is memory at an address, with a type in it as objects have one; types are objects likewise."""
    for _ in range(_TYPE_COUNT):
        if address <= 0 or address % 8 or not _is_memory(address):
            return False
        kind = word_at(address + 8)
        if kind == id(type):
            return True
        address = kind
    return False


@functools.cache
def _pipe() -> tuple[int, int, Any]:
    inward, outward = os.pipe()
    os.set_blocking(inward, False)
    os.set_blocking(outward, False)
    write = ctypes.CDLL(None).write
    write.restype, write.argtypes = ctypes.c_ssize_t, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    return inward, outward, write


def _is_memory(address: int) -> bool:
    """Whether an object's header can be read: the system refuses to write them where they cannot."""
    inward, outward, write = _pipe()
    written: int = write(outward, address, _HEADER)
    if written > 0:
        os.read(inward, written)
    return written == _HEADER


# NumPy's own inner loops by address: a replay computes with the very code that dynamic mode ran.

Dtypes = tuple[np.dtype[Any], ...]

# Where PyUFuncObject keeps its fields, in bytes (NumPy's ufuncobject.h; unchanged since NumPy 1.0).
_NIN, _NOUT, _NARGS, _FUNCTIONS, _DATA, _NTYPES, _TYPES = 16, 20, 24, 32, 40, 48, 64


@dataclass(frozen=True)
class InnerLoop:
    """``void loop(char **args, npy_intp *dimensions, npy_intp *steps, void *data)``."""

    address: int
    data: int


@functools.cache
def inner_loop(ufunc: np.ufunc, dtypes: Dtypes) -> InnerLoop:
    """Return the loop of a ufunc for exactly these dtypes, inputs then outputs; LookupError if there is none."""
    if not loops_readable():
        raise LookupError("this NumPy keeps its ufunc loops elsewhere")
    start, count = id(ufunc), ufunc.nargs
    codes = ctypes.string_at(word_at(start + _TYPES), count * ufunc.ntypes)
    wanted = bytes(dtype.num for dtype in dtypes)
    for k in range(ufunc.ntypes):
        if codes[k * count : (k + 1) * count] == wanted:
            table = word_at(start + _DATA)
            data = word_at(table + 8 * k) if table else 0
            return InnerLoop(word_at(word_at(start + _FUNCTIONS) + 8 * k), data)
    names = ", ".join(dtype.name for dtype in dtypes)
    raise LookupError(f"{ufunc.__name__} has no loop for ({names})")


@functools.cache
def loops_readable() -> bool:
    """Check on known ufuncs that their fields stand where they are read, and that a loop computes."""
    for ufunc in (np.add, np.sin, np.matmul):
        start = id(ufunc)
        fields = [ctypes.c_int.from_address(start + at).value for at in (_NIN, _NOUT, _NARGS, _NTYPES)]
        if fields != [ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes]:
            return False
        codes = ctypes.string_at(word_at(start + _TYPES), ufunc.nargs * ufunc.ntypes)
        kinds = [code.split("->") for code in ufunc.types]
        if codes != b"".join(bytes(np.dtype(c).num for c in a + b) for a, b in kinds):
            return False
    return _computes()


def _computes() -> bool:
    start = id(np.add)
    k = np.add.types.index("dd->d")
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
    loop = prototype(word_at(word_at(start + _FUNCTIONS) + 8 * k))
    a, b, y = np.array([1.5, 2.5]), np.array([0.25, 4.0]), np.zeros(2)
    pointers = np.array([array.ctypes.data for array in (a, b, y)], np.int64)
    extents, strides = np.array([2], np.int64), np.array([8, 8, 8], np.int64)
    loop(*[words.ctypes.data for words in (pointers, extents, strides)], None)
    return bool(np.array_equal(y, a + b))


# Tensors give no warnings of floating point, as PyTorch's: ``tape.first_nonfinite`` tells where a NaN came from.


@np.errstate(all="ignore")  # a tenth of what a `with` block costs
def silently(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function gives, without NumPy's warnings."""
    return function(*args, **kwargs)


def dividing(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function gives; where it divides integers by zero raise as PyTorch does."""
    try:
        with np.errstate(divide="raise"):
            return function(*args)
    except FloatingPointError:
        raise RuntimeError(f"ZeroDivisionError: {name} of integers where the divisor has a zero") from None


@np.errstate(all="ignore")
def tried(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function gives, without NumPy's warnings; None where it raises, for the caller to run it anew."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001 (it is raised then)
        return None


class FreedError(Exception):
    """An instruction that the sweep needs is no longer on the tape."""


class CrossingError(Exception):
    """The graph of a sweep of one tape leads to another."""


class Readers(Protocol):
    """The readers of a tape, an item each in ``readers``; ``swept`` counts the entries that sweeps have looked at."""

    readers: list[None]
    swept: int


@dataclass(slots=True)
class Seed:
    """The cotangent that a sweep starts from; in a batched sweep its value has a leading axis of the batch."""

    slot: Any  # a number; a leaf, before the leaves among the roots are served
    spec: Spec
    value: Any  # an array or a number; of a recorded sweep a tensor
    offset: int | None = None  # in the family's gradient buffer


@dataclass(slots=True)
class GradientObserver:
    """A slot or leaf whose gradient is looked at."""

    key: Any  # a slot number or a leaf, an object with a ``spec``
    spec: Spec
    offset: int = 0
    gradient: Any = None  # an array, or a tensor of a recorded sweep; None if nothing reached it
    hook: Callable[[Array], Array | None] | None = None
    """Called with the gradient at the slot's instruction; an array that it returns takes its place."""
    after: Callable[[list[Array | None], Array], list[Array | None]] | None = None
    """From the gradients of the instruction's operands and of its result to those of the operands."""
    asked: bool = True  # whether a sweep that computes only what is asked for computes this


@dataclass(slots=True)
class Task:
    """What a sweep is to do: go back from the seeds over the entries of the tape of this number."""

    entries: Any
    number: int
    seeds: list[Seed]
    observers: Sequence[GradientObserver] = ()  # receive their gradients
    restrict: bool = False  # whether to compute only what leads to an observer, and deliver no leaf
    free: Readers | None = None
    """Where these are all readers, instructions that saved values are dropped, and those that need them."""
    cross_tape: bool = False  # whether the graph may lead to other tapes
    required: bool = False  # whether to drop nothing where nothing reached an observer that is asked for
    batch: int = 0  # so many sweeps in one: of that length is a leading axis of seeds and gradients
    hooked: Collection[int] = ()  # ids of leaves that have hooks
    reached: Callable[[Any, Any], None] | None = None  # gets each of these, with its gradient, once that is whole

    def releasing(self) -> Readers | None:
        """Return the readers of a tape whose instructions may go, now that the sweep is done."""
        starved = self.required and any(o.asked and o.gradient is None for o in self.observers)
        return None if starved else self.free


Outcome = tuple[list[tuple[Any, Array | float]], list[tuple[int, Spec, Array]]]
"""What a sweep leaves: the gradient of each leaf, and the cotangents of slots on other tapes with their specs."""


def empty(spec: Spec, batch: int) -> Array:
    """Return a gradient buffer to which nothing has been contributed."""
    gradient_buffer = np.empty((batch, spec.buffer_size) if batch else spec.buffer_size, spec.dtype)
    gradient_buffer.fill(-0.0)
    return gradient_buffer


def plant(buffer: Array, seed: Seed) -> None:
    """Write a seed into a gradient buffer; where the pattern meets an element many times, their sum."""
    spec = seed.spec
    if spec.size == 1 and buffer.ndim == 1:
        buffer[(seed.offset or 0) // spec.dtype.itemsize] = np.add(seed.value, 0.0).item()
        return
    place = pattern(buffer, spec, seed.offset or 0)
    add_to(place, seed.value)
    np.add(place, 0.0, out=place)


def add_to(place: Array, value: Any) -> None:
    """Add to the part of a gradient buffer that a pattern shows; where it meets an element many times, their sum."""
    if np.shape(value) != place.shape:
        value = np.broadcast_to(value, place.shape)
    if 0 in place.strides:
        repeated = tuple(i for i, (n, s) in enumerate(zip(place.shape, place.strides, strict=True)) if s == 0 and n > 1)
        first = tuple(slice(0, 1) if i in repeated else slice(None) for i in range(place.ndim))
        place, value = place[(*first, ...)], silently(value.sum, repeated, keepdims=True) if repeated else value
    if not meets_itself(place.shape, place.strides, place.itemsize):
        silently(np.add, place, value, out=place)
        return
    axis = min((i for i, n in enumerate(place.shape) if n > 1), key=lambda i: place.shape[i])
    for part, values in zip(np.moveaxis(place, axis, 0), np.moveaxis(value, axis, 0), strict=True):
        add_to(part, values)  # windows that overlap: one after another


def changed(before: Array, after: Array) -> Array:
    """Return what a hook made of a gradient: elements that it left alone stay -0.0 where nothing contributed."""
    return np.where(after == before, before, after + before.dtype.type(0.0))


def pattern(buffer: Array, spec: Spec, offset: int) -> Array:
    """Return the part of a buffer that is the gradient of a tensor of this spec; a batch of them for a batch."""
    lead = buffer.shape[:-1] if buffer.ndim > 1 else ()
    if spec.size == 0 or 0 in lead:
        return np.zeros((*lead, *spec.shape), spec.dtype)
    strides = (buffer.strides[0], *spec.gradient) if lead else spec.gradient
    return np.ndarray((*lead, *spec.shape), spec.dtype, buffer.reshape(-1).view(np.uint8), offset, strides)


def shaped(buffer: Array, spec: Spec) -> Array:
    """Return a base tensor's whole gradient buffer in the tensor's shape."""
    return buffer.reshape(spec.shape) if spec.in_order else pattern(buffer, spec, 0)
