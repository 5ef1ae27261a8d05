"""Random numbers: the generator of ``torch.random``, whose numbers for a seed are PyTorch's on the CPU.

A Mersenne Twister (Matsumoto and Nishimura 1998) gives 32 bits at a time. A float takes 24 of them, a double 53 of two
times 32; normal numbers are Box and Muller's (1958), in the two orders that PyTorch has: pairs one after the other
below 16 elements and where memory has gaps, else blocks of eight and eight. In float32 the last digit of a normal
number may differ.
"""

from __future__ import annotations

import contextlib
import copy
import secrets
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from kernels.foundation.specs import FLOAT32
from kernels.foundation.tables import Lock
from tape.recording import record
from tape.tensors import dtypes
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor

_DOUBLE_BITS, _FLOAT_BITS, _WORD = (1 << 53) - 1, (1 << 24) - 1, (1 << 32) - 1
_LARGEST_SEED = 1 << 64
_WIDE = 1 << 28
"""From this many integers on, one is made of 64 bits."""
_BLOCK = 16
"""Elements from which normal numbers are made in blocks: eight radii, eight angles."""
_HEAD = 4
"""64-bit words of a saved state before the twister's: seed, position, whether a normal number is kept, its bits."""


_drawing = Lock(waited_for=True)
"""Held while the state of any generator changes: NumPy's has a lock of its own, which no fork may leave held."""


class Generator:
    """A source of random numbers, PyTorch's ``Generator``: the functions of random numbers take one as ``generator``.

    Threads may share one: each draw is whole, their order is the threads'. A pickle of one, or a copy, goes on from the
    state that it has then, as PyTorch's.
    """

    __module__ = "tape"  # what pickles name

    def __init__(self, device: Any = "cpu") -> None:
        dtypes.check_device(device)
        self._twister = np.random.MT19937()
        self.changes = 0
        """How often numbers have been drawn, or the state was set."""
        self._kept: float | None = None
        self.manual_seed(secrets.randbits(53))

    @property
    def device(self) -> dtypes.device:
        """Always "cpu"."""
        return dtypes.device("cpu")

    def manual_seed(self, seed: int) -> Generator:
        """Start from a seed, -2**63 to 2**64 - 1, of which the low 32 bits count; return the generator."""
        seed = int(seed)
        if not -_LARGEST_SEED // 2 <= seed < _LARGEST_SEED:
            raise RuntimeError(f"Overflow when unpacking long: a seed is from -2**63 to 2**64 - 1, got {seed}")
        state: Any = np.random.RandomState(seed & _WORD).get_state(legacy=False)
        with _drawing:
            self._set(state["state"])
            self._seed, self._kept = seed % _LARGEST_SEED, None
        return self

    def seed(self) -> int:
        """Start from a seed that the operating system gives, and return it."""
        self.manual_seed(secrets.randbits(53))
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed that the numbers began with."""
        return self._seed

    def get_state(self) -> Tensor:
        """Return the state as a tensor of bytes, for ``set_state``."""
        record.note_unrecorded(None, "the state of a generator")
        with _drawing:
            inner: Any = self._twister.state["state"]
            kept = np.float64(self._kept or 0.0).view(np.uint64)
            head = np.array([self._seed, inner["pos"], self._kept is not None, kept], np.uint64)
            return constant_tensor(np.concatenate([head.view(np.uint8), inner["key"].astype(np.uint32).view(np.uint8)]))

    def set_state(self, new_state: Tensor) -> None:
        """Go on from a state that ``get_state`` gave."""
        state = np.ascontiguousarray(as_array(new_state))
        if state.dtype != np.uint8 or state.size != 8 * _HEAD + 4 * 624:
            raise RuntimeError(f"Generator.set_state: got {state.dtype.name}{list(state.shape)}, not a saved state")
        seed, position, kept, number = state[: 8 * _HEAD].view(np.uint64)
        inner = {"key": state[8 * _HEAD :].view(np.uint32).copy(), "pos": int(position)}
        with _drawing:
            self._set(inner)
            self._seed, self._kept = int(seed), float(number.view(np.float64)) if kept else None

    def snapshot(self) -> Any:
        """Return what :meth:`undo` goes back to."""
        with _drawing:
            return self._twister.state, self._kept, self._seed

    def undo(self, snapshot: Any, changes: int | None = None) -> None:
        """Go back to a snapshot; with ``changes``, unless another thread has drawn numbers since that many."""
        with _drawing:
            if changes is None or self.changes == changes:
                self._twister.state, self._kept, self._seed = snapshot
                self.changes += 1

    def clone_state(self) -> Generator:
        """Return another generator, which goes on from this one's state by itself."""
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle, and copy, by device and state."""
        return Generator, (self.device,), self.get_state()

    def __setstate__(self, state: Tensor) -> None:
        self.set_state(state)

    def _set(self, inner: Any) -> None:
        record.note_unrecorded(None, "the state of a generator")
        self.changes += 1
        self._twister.state = {"bit_generator": "MT19937", "state": inner}

    def words(self, count: int) -> Array:
        """Return numbers of 32 bits, as uint64."""
        with _drawing:
            self.changes += 1
            return np.asarray(self._twister.random_raw(count))

    def long_words(self, count: int) -> Array:
        """Return numbers of 64 bits: the high half is drawn first."""
        words = self.words(2 * count)
        return words[0::2] << np.uint64(32) | words[1::2]

    def uniform(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return numbers from [0, 1), in float32 for it and smaller dtypes, else in float64."""
        if dtype.itemsize < np.dtype(np.float64).itemsize:
            return (self.words(count) & np.uint64(_FLOAT_BITS)).astype(np.float32) * np.float32(2.0**-24)
        return (self.long_words(count) & np.uint64(_DOUBLE_BITS)) * 2.0**-53

    def normal(self, count: int, dtype: np.dtype[Any], dense: bool = True) -> Array:
        """Return standard normal numbers, before they are rounded to their dtype; ``dense``: memory without gaps."""
        if count < _BLOCK or not dense:
            return self._pairs(count)
        whole = count // _BLOCK * _BLOCK
        values = self.uniform(whole if dtype.itemsize < FLOAT32.itemsize else count, dtype)
        _to_normal(values[:whole])
        if whole < count:  # the last block is drawn anew, over what stands there
            last = self.uniform(_BLOCK, dtype)
            _to_normal(last)
            values = np.concatenate([values[: count - _BLOCK], last])
        return values

    def _pairs(self, count: int) -> Array:
        """Return normal numbers two at a time; the second of the last pair is kept for the next call."""
        with _drawing:
            self.changes += 1
            kept, self._kept = ([self._kept] if self._kept is not None and count else []), self._kept
        u = self.uniform(2 * ((count - len(kept) + 1) // 2), np.dtype(np.float64)).reshape(-1, 2)
        radius, angle = np.sqrt(-2.0 * np.log1p(-u[:, 1])), 2.0 * np.pi * u[:, 0]
        normals = np.concatenate([kept, np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()])
        if count:
            self._kept = float(normals[count]) if len(normals) > count else None
        return normals[:count]

    def integers(self, count: int, low: int, high: int, long: bool | None = None) -> Array:
        """Return integers from low up to, not including, high.

        ``long``: out of 64 bits each, not 32; if None, where the range is wide.
        """
        span = high - low
        drawn = (self.long_words if (span >= _WIDE if long is None else long) else self.words)(count)
        if span < _LARGEST_SEED:
            drawn = drawn % np.uint64(span) + np.uint64(low % _LARGEST_SEED)
        return drawn.view(np.int64)

    def permutation(self, count: int) -> Array:
        """Return the integers below count in a random order (Fisher and Yates 1938)."""
        order = list(range(count))
        steps = self.words(max(count - 1, 0)) % np.arange(count, 1, -1, dtype=np.uint64)
        for i, step in enumerate(steps.tolist()):
            order[i], order[i + step] = order[i + step], order[i]
        return np.array(order, np.int64)


def _to_normal(values: Array) -> None:
    """Turn uniform numbers, in blocks of sixteen, into normal ones."""
    first, second = values.reshape(-1, 2, _BLOCK // 2).swapaxes(0, 1)
    two = values.dtype.type(2.0)
    radius, angle = np.sqrt(-two * np.log(values.dtype.type(1.0) - first)), values.dtype.type(2.0 * np.pi) * second
    first[...], second[...] = radius * np.cos(angle), radius * np.sin(angle)


default_generator = Generator()


class Draw:
    """Numbers that a function made of a generator's, from plain values and arrays besides: made anew at each replay.

    ``order``: the axes of the result, counted from the last, in the order of those that the function gives.
    """

    __slots__ = ("_key", "args", "function", "generator", "order")

    def __init__(
        self, function: Callable[..., Array], generator: Generator | None, *args: Any, order: tuple[int, ...] = ()
    ) -> None:
        if generator is not None and not isinstance(generator, Generator):
            raise TypeError(f"generator: expected a tape.Generator, got {type(generator).__name__}")
        self.generator = default_generator if generator is None else generator
        self.function, self.args, self.order = function, args, order
        self._key = [order, *((x.dtype, x.shape, x.tobytes()) if isinstance(x, np.ndarray) else x for x in args)]

    def array(self) -> Array:
        """Draw the numbers."""
        record.note_drawing(self.generator)
        if (drawn := _drawn.get()) is not None and self.generator not in drawn:
            drawn[self.generator] = self.generator.snapshot()
        numbers = self.function(self.generator, *self.args)
        turned = np.moveaxis(numbers, range(-len(self.order), 0), self.order) if self.order else numbers
        return np.asarray(turned, order="C")  # replays read memory in order

    def repeated(self, size: int) -> Draw:
        """Return what draws so many sets of such numbers, one along each place of a leading axis."""
        if isinstance(self.args[0], tuple):  # the shape
            return Draw(self.function, self.generator, (size, *self.args[0]), *self.args[1:], order=self.order)
        return Draw(_stacked, self.generator, size, self.function, *self.args)

    def same(self, other: Any) -> bool:
        """Whether another one draws in the same way."""
        mine = self.function, self.generator, self._key
        return type(other) is Draw and mine == (other.function, other.generator, other._key)


Drawn = dict[Generator, Any]
"""Snapshots of generators before the first number was drawn."""
_drawn: ContextVar[Drawn | None] = ContextVar("tape_drawn", default=None)


@contextlib.contextmanager
def noting_drawn() -> Iterator[Drawn]:
    """Note which generators are drawn from within, and the state that each had before; those around it do so too."""
    drawn: Drawn = {}
    token = _drawn.set(drawn)
    try:
        yield drawn
    finally:
        _drawn.reset(token)
        around = _drawn.get()
        for generator in drawn if around is not None else ():
            around.setdefault(generator, drawn[generator])  # type: ignore[union-attr]


@contextlib.contextmanager
def redrawing(drawn: Drawn) -> Iterator[None]:
    """Within it the generators give again the numbers that were drawn; afterwards they go on from where they are."""
    now = {generator: generator.snapshot() for generator in drawn}
    try:
        for generator, snapshot in drawn.items():
            generator.undo(snapshot)
        yield
    finally:
        for generator, snapshot in now.items():
            generator.undo(snapshot)


def _stacked(source: Generator, size: int, function: Callable[..., Array], *args: Any) -> Array:
    return np.stack([function(source, *args) for _ in range(size)])


def manual_seed(seed: int) -> Generator:
    """Start the default generator from a seed and return it: what follows are PyTorch's numbers on the CPU.

    >>> tape.manual_seed(0).initial_seed()
    0
    >>> tape.rand(2)
    tensor([0.9701, 0.7078])

    They are those that PyTorch draws for the same dtype: ``torch.rand(2)`` is float32 unless its default is changed.
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Start the default generator from a seed of the operating system's, and return it."""
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed that the default generator began with."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator, a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Let the default generator go on from a state that ``get_rng_state`` gave."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = (), enabled: bool = True) -> Iterator[None]:  # noqa: ARG001 (PyTorch's arguments)
    """Within it random numbers are drawn that do not count afterwards."""
    before = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(before)


__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip
