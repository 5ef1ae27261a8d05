"""NumPy as kernels see it: the address and inner loops of ufuncs, what sweeps take and give, warnings off."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from kernels.foundation.specs import Array, Spec, meets_itself
from kernels.foundation.tables import dataclass

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


def _pointer(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


@functools.cache
def find(ufunc: np.ufunc, dtypes: Dtypes) -> InnerLoop:
    """Return the loop of a ufunc for exactly these dtypes, inputs then outputs; LookupError if there is none."""
    if not readable():
        raise LookupError("this NumPy keeps its ufunc loops elsewhere")
    start, count = id(ufunc), ufunc.nargs
    codes = ctypes.string_at(_pointer(start + _TYPES), count * ufunc.ntypes)
    wanted = bytes(dtype.num for dtype in dtypes)
    for k in range(ufunc.ntypes):
        if codes[k * count : (k + 1) * count] == wanted:
            table = _pointer(start + _DATA)
            data = _pointer(table + 8 * k) if table else 0
            return InnerLoop(_pointer(_pointer(start + _FUNCTIONS) + 8 * k), data)
    names = ", ".join(dtype.name for dtype in dtypes)
    raise LookupError(f"{ufunc.__name__} has no loop for ({names})")


@functools.cache
def readable() -> bool:
    """Check on known ufuncs that their fields stand where they are read, and that a loop computes."""
    for ufunc in (np.add, np.sin, np.matmul):
        start = id(ufunc)
        fields = [ctypes.c_int.from_address(start + at).value for at in (_NIN, _NOUT, _NARGS, _NTYPES)]
        if fields != [ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes]:
            return False
        codes = ctypes.string_at(_pointer(start + _TYPES), ufunc.nargs * ufunc.ntypes)
        kinds = [code.split("->") for code in ufunc.types]
        if codes != b"".join(bytes(np.dtype(c).num for c in a + b) for a, b in kinds):
            return False
    return _computes()


def _computes() -> bool:
    start = id(np.add)
    k = np.add.types.index("dd->d")
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
    loop = prototype(_pointer(_pointer(start + _FUNCTIONS) + 8 * k))
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
    value: Array | float
    offset: int | None = None  # in the family's gradient buffer


@dataclass(slots=True)
class GradientObserver:
    """A slot or leaf whose gradient is looked at."""

    key: Any  # a slot number or a leaf, an object with a ``spec``
    spec: Spec
    offset: int = 0
    gradient: Array | None = None  # set by the sweep; None if nothing reached it
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
