"""The table of calls that have been seen, which native code computes and records again (kernels/calls_native.py)."""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from kernels import jit, words
from kernels.form import Form
from kernels.layouts import Spec, broadcast
from kernels.loops import InnerLoop
from kernels.memory import where
from kernels.registry import REGISTRY
from kernels.tasks import UfuncCall, nest_layout

OPERATORS = {
    ("+", 2): words.OP_ADD, ("-", 2): words.OP_SUBTRACT, ("*", 2): words.OP_MULTIPLY, ("/", 2): words.OP_DIVIDE,
    ("**", 2): words.OP_POWER, ("-", 1): words.OP_NEGATIVE,
}  # fmt: skip
"""The operators that native code repeats, by sign and how many operands there are."""
_INLINE = {
    words.OP_ADD: words.ADD, words.OP_SUBTRACT: words.SUBTRACT, words.OP_MULTIPLY: words.MULTIPLY,
    words.OP_DIVIDE: words.DIVIDE,
}  # fmt: skip
_kept: dict[int, Any] = {}
"""What the entries refer to, by their addresses."""
_turn = itertools.count()


def _bits(number: float) -> int:
    """Return the bits of a double."""
    return int(struct.unpack("q", struct.pack("d", number))[0])


@dataclass(frozen=True)
class Key:
    """What a call is found by: the forms or specs of one or two operands, None of a number; which are wanted."""

    op: int
    forms: tuple[Form | Spec | None, ...]
    wanted: tuple[bool, ...]
    number: float | None = None

    def words(self) -> tuple[int, int, int, int, int]:
        """Return it as it stands in the table."""
        a, b, *_ = [*(words.NUMBER_FORM if form is None else id(form) for form in self.forms), 0]
        bits = 0 if self.number is None else _bits(self.number)
        return self.op, a, b, sum(want << k for k, want in enumerate(self.wanted)), bits


@dataclass(frozen=True)
class Computation:
    """How native code finds the value: NumPy's inner loop on operands of these specs, for a result of this one."""

    loop: InnerLoop
    sources: tuple[Spec | None, ...]
    spec: Spec
    picks: tuple[int, ...] = ()
    """What is saved: the number of an operand, 2 for the result."""


def enter(key: Key, form: Form | Spec, how: Computation | None) -> None:
    """Let native code repeat a call; without a computation let it leave all such calls to Python."""
    row = [*key.words(), *([0] * (words.CALL - 5))]
    kept: list[Any] = []
    if how is not None:
        recorded = isinstance(form, Form) and any(key.wanted)
        row[words.E_BLOCK] = where(form.block) if recorded else 0  # type: ignore[union-attr]
        row[words.E_CODE] = form.code if recorded else 0  # type: ignore[union-attr]
        row[words.E_FORM] = id(form)
        _computed(row, key, how, kept)
    _write(row, [*key.forms, form], kept)


def _write(row: list[int], forms: list[Any], kept: list[Any]) -> None:
    """Put an entry in its place, and keep what it refers to; it goes with the forms that it is about.

    An entry is written at once, or not at all: another thread, or a finalizer in the middle of this, may be writing.
    """
    if not _writing.acquire(blocking=False):
        return
    try:
        address = _place(row)
        at = (address - REGISTRY.calls) // 8
        end = partial(_end, at)
        held = [*kept, *[ref(form, end) for form in forms if form is not None]]
        before = _kept.get(address)
        _kept[address] = [held, before]
        _table[at : at + words.CALL] = np.array(row, np.int64)
        _kept[address] = held
    finally:
        _writing.release()


def _end(at: int, _: Any) -> None:
    """Take out an entry: a form that it is about is gone, and another may come to stand where it was."""
    _table[at + words.K_OP] = -1


_writing = threading.Lock()
_table = np.frombuffer((ctypes.c_int64 * (words.CALL * words.WAYS * words.SETS)).from_address(REGISTRY.calls), np.int64)


@dataclass(frozen=True)
class Reducing:
    """How native code reduces an operand: NumPy's inner loop, its start, and what the result is divided by."""

    loop: InnerLoop
    source: Spec
    spec: Spec
    onto: tuple[int, ...]
    """The strides of the result along the dims of the operand."""
    start: float
    scale: float
    picks: tuple[int, ...]
    """What is saved: 0 for the operand, 2 for the result, 3 for what it is divided by."""


def enter_reduction(key: Key, form: Form | Spec, how: Reducing | None) -> None:
    """Let native code repeat a reduction; without ``how`` let it leave all such calls to Python."""
    if how is None:
        enter(key, form, None)
        return
    row = [*key.words(), *([0] * (words.CALL - 5))]
    recorded = isinstance(form, Form) and any(key.wanted)
    row[words.E_BLOCK] = where(form.block) if recorded else 0  # type: ignore[union-attr]
    row[words.E_CODE] = form.code if recorded else 0  # type: ignore[union-attr]
    row[words.E_FORM], row[words.E_KIND], row[words.E_COUNT] = id(form), words.REDUCE, 3
    row[words.E_LOOP], row[words.E_DATA] = how.loop.address, how.loop.data
    row[words.E_SAVED] = sum(pick << 2 * k for k, pick in enumerate(how.picks))
    row[words.E_INITIAL], row[words.E_SCALE] = _bits(how.start), _bits(how.scale)
    shape, strides = np.array([*how.spec.shape, 0], np.int64), (how.onto, how.source.strides, how.onto)
    layout = nest_layout(UfuncCall(how.loop, how.source.shape, strides, ()))
    row[words.E_DTYPE], row[words.E_NDIM] = how.spec.dtype.num, len(how.spec.shape)
    row[words.E_SHAPE], row[words.E_LAYOUT] = where(shape), where(layout)
    _write(row, [*key.forms, form], [shape, layout])


def enter_part(above: Form | Spec, key: Any, form: Form, part: tuple[Any, Any, int], *, wanted: bool) -> None:
    """Let native code repeat ``x[key]`` of tensors of a form.

    ``part``: an array, the one that it shows a part of, and where the part begins in the gradient, in bytes.
    """
    index = np.zeros(32, np.int64)
    hashed = _words_of()(id(key), where(index))
    if hashed < 0:
        return
    shown, whole, offset = part
    shape, strides = (np.array([*one, 0], np.int64) for one in (shown.shape, shown.strides))
    row = [words.OP_PART, id(above), hashed, int(wanted), *([0] * (words.CALL - 4))]
    row[words.E_BLOCK], row[words.E_CODE] = (where(form.block), form.code) if wanted else (0, 0)
    row[words.E_FORM], row[words.E_KIND] = id(form), words.NEST
    row[words.E_COUNT] = isinstance(above, Form) and above.is_view
    row[words.E_NDIM], row[words.E_SHAPE], row[words.E_STRIDES] = shown.ndim, where(shape), where(strides)
    row[words.E_START], row[words.E_OFFSET] = where(shown) - where(whole), offset
    row[words.E_KEY] = where(index)
    _write(row, [above, form], [shape, strides, index])


@functools.cache
def _words_of() -> Any:
    return jit.entry(jit.load_module("parts_native").words_of)


def _computed(row: list[int], key: Key, how: Computation, kept: list[Any]) -> None:
    spec = how.spec
    row[words.E_LOOP], row[words.E_DATA] = how.loop.address, how.loop.data
    row[words.E_COUNT] = len(how.sources) + 1
    row[words.E_SAVED] = sum(pick << 2 * k for k, pick in enumerate(how.picks))
    if not spec.shape and spec.dtype == np.float64:
        row[words.E_KIND] = _INLINE.get(key.op, words.ONCE)
        return
    shape = np.array([*spec.shape, 0], np.int64)
    strides = tuple(
        (0,) * len(spec.shape) if source is None else broadcast(source.shape, source.strides, spec.shape)
        for source in (*how.sources, spec)
    )
    layout = nest_layout(UfuncCall(how.loop, spec.shape, strides, ()))
    row[words.E_KIND] = words.NEST if spec.dtype == np.float64 else words.NEST4
    row[words.E_DTYPE], row[words.E_NDIM] = spec.dtype.num, len(spec.shape)
    row[words.E_SHAPE], row[words.E_LAYOUT] = where(shape), where(layout)
    kept += [shape, layout]


@functools.cache
def _find_place() -> Any:
    return jit.entry(jit.load_module("calls_native").place)


def _place(row: list[int]) -> int:
    """Return where to enter a call: where it stands, where nothing does, or where another then has to go."""
    first = _find_place()(*row[:5])
    places = [first + 8 * words.CALL * k for k in range(words.WAYS)]
    for place in places:
        if (ctypes.c_int64 * 5).from_address(place)[:] == row[:5]:
            return int(place)
    for place in places:
        if place not in _kept:
            return int(place)
    return int(places[next(_turn) % words.WAYS])
