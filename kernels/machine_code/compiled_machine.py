"""A compiled program as what Python calls: with a workspace of its own, and the table by which native code calls it."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.compiler.statements import INTERRUPTS
from kernels.foundation.specs import Array, Spec, Strides, dense
from kernels.foundation.tables import Lock, cached_property, dataclass
from kernels.kinds.views import Write
from kernels.language.jit import bound
from kernels.machine_code import call_structs
from kernels.machine_code.call_structs import DirectArgument, DirectCall, DirectResult
from kernels.native import c_api, pool, structs
from kernels.native.memory import REGISTRY, row, where
from kernels.native.structs import LARGE, RegistryTable
from kernels.native.threads import called
from kernels.programs.assembly import MemoryLayout
from kernels.programs.machine import GuardMissed, Machine, plan
from kernels.programs.program import Recipe, native, value_kind
from kernels.programs.steps import groups_of

# Memory of compiled programs: aligned, and with ``TAPE_DEBUG=1`` between canaries.

ALIGN = 64
_CANARY = 0xA7
DEBUG = bool(os.environ.get("TAPE_DEBUG"))
"""Whether calls go through guarded memory, and what a program writes beside its results is an error."""


class AlignedMemory:
    """Memory for so many bytes, aligned, between canaries."""

    def __init__(self, size: int) -> None:
        self.size, edge = size, ALIGN if DEBUG else 0
        if size >= LARGE:  # a recording before it may have left as much
            pool.give_back(size)
        self.memory = np.empty(size + ALIGN + 2 * edge, np.uint8)
        self.start = where(self.memory) + edge
        self.start += -self.start % ALIGN
        self._edges: list[Array] = []
        if DEBUG:
            first = self.start - where(self.memory)
            self._edges = [self.memory[:first], self.memory[first + size :]]
            for part in self._edges:
                part[:] = _CANARY

    def array(self, spec: Spec, offset: int, strides: tuple[int, ...]) -> Array:
        """Return an array in it, whose memory begins ``offset`` bytes behind its start."""
        offset += self.start - where(self.memory)
        offset -= sum((n - 1) * step for n, step in zip(spec.shape, strides, strict=True) if n and step < 0)
        return np.ndarray(spec.shape, spec.dtype, self.memory, offset, strides)

    def check(self, name: str) -> None:
        """Raise if something has been written beside it."""
        if any((part != _CANARY).any() for part in self._edges):
            raise RuntimeError(f"TAPEDEBUG: a compiled program has written beside its {name}")


def arrays_of(layouts: Sequence[tuple[Spec, Strides]]) -> tuple[AlignedMemory, list[Array]]:
    """Return memory for arrays of these specs with these strides, one behind the other, aligned; and the arrays."""
    offsets, end = [], 0
    for spec, strides in layouts:
        offsets.append(end)
        reach = sum((n - 1) * abs(step) for n, step in zip(spec.shape, strides, strict=True))
        room = spec.dtype.itemsize + reach if spec.size else 0
        end += room + -room % ALIGN
    memory = AlignedMemory(end)
    return memory, [memory.array(spec, at, strides) for (spec, strides), at in zip(layouts, offsets, strict=True)]


def size(spec: Spec) -> int:
    """Return the bytes of a spec's elements."""
    return spec.size * spec.dtype.itemsize


# How calls of compiled programs return their results.


@dataclass(frozen=True)
class ReturnForm:
    """How a call returns results: FLAT, SINGLE, ... of call_structs.py.

    ``chosen`` are the numbers, among all results, of those in the gradient; ``alone``: it is one of them, no tuple.
    ``steps`` lead through its structure, if it is no tuple either, which ``filled`` returns with its leaves.
    """

    kind: int = call_structs.FLAT
    chosen: tuple[int, ...] = ()
    alone: bool = False
    steps: tuple[int, ...] = ()
    filled: Callable[[list[Any]], Any] | None = None

    def returned(self, results: list[Any]) -> Any:
        """Return results in this form."""
        if self.kind in (call_structs.FLAT, call_structs.SINGLE):
            return tuple(results) if self.kind == call_structs.FLAT else results[0]
        picked = [results[k] for k in self.chosen]
        gradient = picked[0] if self.alone else tuple(picked) if self.filled is None else self.filled(picked)
        if self.kind == call_structs.GRAD:
            return gradient
        return (gradient, results[0]) if self.kind == call_structs.GRAD_AND_VALUE else (results[0], gradient)

    def leaves_out(self, kinds: list[int]) -> bool:
        """Whether some result, of these kinds, is an array that is not returned."""
        shown = set(self.chosen) | (set() if self.kind == call_structs.GRAD else {0})
        return self.kind != call_structs.FLAT and any(
            kind == structs.XK_ARRAY for k, kind in enumerate(kinds) if k not in shown
        )


# What native code calls a compiled program by: the words that direct_calls_native.py reads.

LONG = 10_000
"""Elements that a program computes, from which on other threads may run Python meanwhile: some ten microseconds."""


def call_table(
    code: CompiledCode, form: ReturnForm, places: Array, scratch: Array, busy: Array, *, exactly: bool
) -> tuple[Array, Array]:
    """Return the words of the table of one caller of a program, and an array of shapes that they refer to.

    ``places`` is the program's table, ``scratch`` has a word for each argument and result, ``busy`` says whether the
    workspace is in use; the words refer to all of them by address.
    """
    specs, count = [*code.arguments, *code.outputs, *code.gradients], len(code.arguments)
    extents = [n for spec in specs for n in (*spec.shape, *spec.strides)]
    shapes = np.array([*form.chosen, *form.steps, *extents, 0], np.int64)
    kinds, at = list[int](), where(shapes) + 8 * len(form.chosen)
    pooled = _pooled() if any(size(spec) >= LARGE for spec in specs[count:]) else 0
    words = row(
        DirectCall, busy=where(busy), arguments=count, results=len(specs) - count, run=code.address,
        table=where(places), places=count + len(code.constants), releases=code.elements >= LONG,
        float_type=id(float), double_type=id(np.float64), single_type=id(np.float32),
        int_type=0 if exactly else id(int), array_type=id(np.ndarray), new_array=c_api.table()[c_api.NEW],
        pooled=pooled, large=pooled != 0, form=form.kind, alone=form.alone, count=len(form.chosen),
        chosen=where(shapes), steps=at if form.steps else 0,
    )  # fmt: skip
    at += 8 * len(form.steps)
    for k, spec in enumerate(specs):
        ndim, room = len(spec.shape), where(scratch) + 8 * k
        kind = value_kind(spec)
        if k < count:
            strides = at + 8 * ndim
            entry = row(
                DirectArgument, kind=kind, dtype=id(spec.dtype), ndim=ndim, shape=at, strides=strides, scratch=room
            )
        else:
            kinds.append(structs.XK_ARRAY if kind == structs.XK_INTEGER else kind)
            large = pooled != 0 and size(spec) >= LARGE
            entry = row(
                DirectResult, kind=kinds[-1], ndim=ndim, shape=at, number=spec.dtype.num, large=large, scratch=room
            )
        words, at = words + entry, at + 16 * ndim
    words[DirectCall.arrays] = kinds.count(structs.XK_ARRAY)
    words[DirectCall.left_out] = form.leaves_out(kinds)
    return np.array(words, np.int64), shapes


def rows_table(form: ReturnForm, results: int, busy: Array) -> tuple[Array, Array]:
    """Return the same of a program whose results, so many, the interpreter makes: it says how they are returned."""
    shapes = np.array([*form.chosen, *form.steps, 0], np.int64)
    words = row(
        DirectCall, busy=where(busy), results=results, form=form.kind, alone=form.alone, count=len(form.chosen),
        chosen=where(shapes), steps=where(shapes) + 8 * len(form.chosen) if form.steps else 0, left_out=1,
    )  # fmt: skip
    return np.array(words + row(DirectResult, kind=structs.XK_ARRAY) * results, np.int64), shapes


@functools.cache
def _pooled() -> int:
    """Return the address of what makes an array in memory that is used again; 0 if there is no such memory."""
    pool.call(int)
    return ctypes.c_int64.from_address(REGISTRY.address + 8 * RegistryTable.pooled).value


_LARGE = 1 << 20  # bytes of a workspace from which on it is worth sharing
_NATIVE = "machine_code.direct_calls_native"
_FLAT = ReturnForm()
_MOST_SINGLE = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class GuardPlace:
    """A guard of a compiled program: its line, and where in the workspace the value stands that it found.

    ``offset`` is -1 where that is not kept.
    """

    line: str
    offset: int = -1
    size: int = 0


class CompiledMachine:
    """A program's machine code, with a workspace: runs one call at a time, others on copies.

    ``exactly``: :meth:`whole` takes floats and arrays of the recorded strides only, where others also ints and any
    strides. ``form`` is how it returns results. ``interpreter`` makes the machine of calls that the code gives up on:
    where something raises, it does so there.
    """

    def __init__(
        self,
        code: CompiledCode,
        *,
        exactly: bool = False,
        guards: Sequence[GuardPlace] = (),
        form: ReturnForm = _FLAT,
        interpreter: Callable[[], Machine] | None = None,
    ) -> None:
        self.code, self.exactly, self.form, self._places = code, exactly, form, list(guards)
        self._interpreter = interpreter
        self.guards = [guard.line for guard in self._places]  # the line of each guard
        self._results = [*code.outputs, *code.gradients]
        self._work, self._busy = AlignedMemory(code.work), np.zeros(1, np.int64)
        self._scratch = np.zeros(len(code.arguments) + len(self._results), np.float64)
        self._lock = Lock()  # held by calls that go through Python
        self._open()

    def _open(self) -> None:
        self.places = self._new_places(self._work)  # the program's table
        self.words: Array | None = None  # what native code calls it by; None where calls go through Python
        self._call = self._claim = None
        if native() and not DEBUG:
            held = self.places, self._scratch, self._busy
            self.words, self._shapes = call_table(self.code, self.form, *held, exactly=self.exactly)
            self._call, self._claim = (bound(_NATIVE, name, self.words) for name in ("whole", "claim"))

    def copy(self, form: ReturnForm | None = None) -> CompiledMachine:
        """Return another with a workspace of its own, for a call while this one runs, or for another form."""
        form = form or self.form
        return CompiledMachine(
            self.code, exactly=self.exactly, guards=self._places, form=form, interpreter=self._interpreter
        )

    def formed(self, form: ReturnForm) -> CompiledMachine:
        """Return another that returns its results in a form; both have one workspace if that is large."""
        other: CompiledMachine = self.copy(form)
        if self.code.work > _LARGE:
            other._work, other._busy = self._work, self._busy
            other._open()
        return other

    @property
    def size(self) -> int:
        """The bytes of its memory."""
        exchange = vars(self).get("_exchange", ())
        return self._work.size + self._scratch.nbytes + sum(block.size for block, _ in exchange)

    @cached_property
    def _exchange(self) -> list[tuple[AlignedMemory, list[Array]]]:
        """Memory for arguments and for results, of calls that go through Python, and the arrays in it."""
        results = [(spec, dense(spec.shape, spec.dtype.itemsize)) for spec in self._results]
        return [arrays_of([(spec, spec.strides) for spec in self.code.arguments]), arrays_of(results)]

    @property
    def inputs(self) -> list[Array]:
        """Arrays that :meth:`run` reads the arguments from."""
        return self._exchange[0][1]

    @property
    def _outcome(self) -> list[Array]:
        return self._exchange[1][1]

    @property
    def outputs(self) -> list[Array]:
        """Arrays that :meth:`run` writes the results to."""
        return self._outcome[: len(self.code.outputs)]

    @property
    def gradients(self) -> list[Array]:
        """Arrays that :meth:`run` writes the gradients to."""
        return self._outcome[len(self.code.outputs) :]

    def run(self, values: Sequence[Any]) -> None:
        """Run on values; :class:`GuardMissed` where a guard stops it."""
        for place, x in zip(self.inputs, values, strict=True):
            if x is not place:
                place[...] = x
        claimed = self._claim is None or bool(self._claim())
        work = self._work if claimed else AlignedMemory(self.code.work)  # a call of another thread runs in this one
        places = self._new_places(work)
        places[: len(self.inputs)] = [where(x) for x in self.inputs]
        first = len(self.inputs) + len(self.code.constants)
        places[first : first + len(self._results)] = [where(x) for x in self._outcome]
        try:
            status = called(self.code, where(places))
        finally:
            if claimed:
                self._busy[0] = 0
        (arguments_block, _), (results_block, _) = self._exchange
        for name, block in (("workspace", work), ("arguments", arguments_block), ("results", results_block)):
            block.check(name)
        if self._gives_up(status):
            self._interpret(self.inputs)
        elif status >= 0:
            raise self._missed(status, work)

    def _gives_up(self, status: int) -> bool:
        """Whether that is no guard's number, but the code's giving up."""
        return status == len(self._places) and self._interpreter is not None

    def _interpret(self, arguments: Sequence[Any]) -> None:
        """Have the interpreter compute the results."""
        assert self._interpreter is not None
        _raise_interrupts()
        machine = self._interpreter()
        machine.run(arguments)
        for place, x in zip(self._outcome, [*machine.outputs, *machine.gradients], strict=False):
            place[...] = x
        for gradient in self.gradients if not machine.marks else ():
            gradient[...] = gradient + gradient.dtype.type(0.0)  # what nothing reached is -0.0

    def _new_places(self, work: AlignedMemory) -> Array:
        """Return a program's table, in which addresses of arguments and of arrays for results are missing."""
        code, scratch = self.code, where(self._scratch) + 8 * len(self.code.arguments)
        results = [scratch + 8 * k for k in range(len(self._results))]
        constants = [where(x) for x in code.constants]
        last = [work.start] if code.parts is None else [work.start, where(code.parts)]
        return np.array([0] * len(code.arguments) + constants + results + last, np.int64)

    def _missed(self, number: int, work: AlignedMemory) -> GuardMissed:
        if number >= len(self._places):
            return GuardMissed(-1, b"", "a guard")
        guard = self._places[number]
        at = guard.offset + work.start - where(work.memory)
        value = work.memory[at : at + guard.size].tobytes() if guard.offset >= 0 else b""
        return GuardMissed(number if value else -1, value, guard.line)

    def missed(self, number: int) -> GuardMissed:
        """Return which guard stopped the program in the last call, and the value that it found."""
        return self._missed(number, self._work)

    def whole(self, args: Sequence[Any]) -> Any:
        """Run on floats and arrays as they were recorded; return results and gradients, None for other arguments."""
        _raise_interrupts()  # of a call that native code has made
        if self._call is None:
            fits = len(args) == len(self.code.arguments) and all(map(self._takes, args, self.code.arguments))
            return self._in_own_memory(CompiledMachine.run, args) if fits else None
        results = self._call(*args)
        if (
            type(results) is int
            and results == call_structs.OTHERS
            and not self.exactly
            and len(args) == len(self.code.arguments)
        ):
            results = self._call(*[_laid(x, spec) for x, spec in zip(args, self.code.arguments, strict=True)])
        if type(results) is not int:
            return results
        if results <= call_structs.MISSED and self._gives_up(call_structs.MISSED - results):
            return self._in_own_memory(CompiledMachine._interpret, args)
        if results <= call_structs.MISSED:
            raise self.missed(call_structs.MISSED - results)
        return self.copy().whole(args) if results == call_structs.BUSY else None

    def _in_own_memory(self, run: Callable[[CompiledMachine, Sequence[Any]], None], args: Sequence[Any]) -> Any:
        """Return the results that a method leaves in memory of the machine's own, copied from there."""
        with self._lock.if_free() as free:
            if not free:
                return self.copy()._in_own_memory(run, args)  # noqa: SLF001 (another of this class)
            run(self, args)
            return self.form.returned([_returned(x) for x in self._outcome])

    def _takes(self, x: Any, spec: Spec) -> bool:
        if type(x) is np.ndarray:
            same = [a == b for a, b, n in zip(x.strides, spec.strides, spec.shape, strict=False) if n != 1]
            return bool(x.dtype == spec.dtype and x.shape == spec.shape and (not self.exactly or all(same)))
        kind = value_kind(spec)
        if type(x) in (float, np.float64):
            return kind == structs.XK_DOUBLE or (
                kind == structs.XK_SINGLE and bool(abs(float(x)) <= _MOST_SINGLE or x - x != 0)
            )
        if type(x) is np.float32:
            return kind == structs.XK_SINGLE
        return type(x) is int and not self.exactly and kind != structs.XK_ARRAY and abs(x) < 1 << 63


def _raise_interrupts() -> None:
    if INTERRUPTS:
        raise INTERRUPTS.pop()


def _laid(x: Any, spec: Spec) -> Any:
    """Return an array with the strides of a spec; anything else as it is."""
    if type(x) is not np.ndarray or x.dtype != spec.dtype or x.shape != spec.shape:
        return x
    _, (laid,) = arrays_of([(spec, spec.strides)])
    laid[...] = x
    return laid


def _returned(x: Array) -> Any:
    """Return a result as the caller gets it."""
    return float(x) if x.ndim == 0 and x.dtype in _FLOATS else x.copy()


_FLOATS = (np.dtype("f8"), np.dtype("f4"))


# The memory that a program needs, before it runs: bytes of values and gradients, and of the block they share.

SHARE_KINDS = ("arguments", "results", "numbers", "values", "intermediates", "gradients")
"""What stands in the block: numbers are constants of one element, intermediates what operations need besides."""


@dataclass(slots=True)
class Share:
    """What stands there for one kind, or what operations of one group made: how many, and their bytes."""

    name: str
    count: int = 0
    bytes: int = 0


@dataclass(slots=True)
class MemoryUse:
    """The bytes of a program; ``print`` it for a table.

    ``kinds`` are what stands in the program's block of memory, as if each had bytes of its own; ``block`` is how large
    that block is: values and gradients that are not needed at the same time share bytes of it. Each call that runs at
    the same time as others needs a block. ``constants`` are bytes of arrays outside of it. ``groups`` has what the
    operations made, values and gradient buffers, by operation, by what repeats, and by line, if lines are kept.

    The block of machine code is its workspace: most values stand in registers, arguments and results in memory of their
    own, and there are no ``groups``.
    """

    reverse: bool
    kinds: dict[str, Share]
    block: int
    constants: int
    groups: dict[str, list[Share]] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list, repr=False)
    """Of ``groups``, the bytes of each operation."""

    @property
    def total(self) -> int:
        """Bytes of the block and of the constants outside of it."""
        return self.block + self.constants

    def __str__(self) -> str:
        apart = sum(share.bytes for share in self.kinds.values())
        shared = [("shared, aligned", "", f"{self.block - apart:,}"), ("block", "", f"{self.block:,}")]
        rows = [*_rows(self.kinds.values()), *shared, ("constants", "", f"{self.constants:,}")]
        text = [_table("forward and reverse" if self.reverse else "forward", rows)]
        text += [_table(f"by {name}", _rows(shares)) for name, shares in self.groups.items()]
        return "\n\n".join(text)


def _rows(shares: Iterable[Share]) -> list[tuple[str, str, str]]:
    return [(share.name, f"{share.count:,}", f"{share.bytes:,}") for share in shares]


def _table(title: str, rows: list[tuple[str, str, str]]) -> str:
    width = max(len(name) for name, *_ in [(title,), *rows])
    lines = [f"{name:<{width}} {count:>10} {size:>16}" for name, count, size in [(title, "number", "bytes"), *rows]]
    return "\n".join(lines)


def memory_use(recipe: Recipe, *, reverse: bool) -> MemoryUse:
    """Return the memory that a program needs; with ``reverse`` for its value and gradient. Nothing is allocated."""
    layout = MemoryLayout(plan(recipe, reverse=reverse))
    nodes, count = layout.recipe.nodes, len(layout.recipe.nodes)
    bytes_of = np.where(layout.offsets >= 0, layout.rooms, 0).tolist()
    kinds = {kind: Share(kind) for kind in SHARE_KINDS}
    arguments, results = (set(map(recipe.base_of, group)) for group in (recipe.arguments, recipe.outputs))
    for i, size in enumerate(bytes_of):
        if not size:
            continue
        if i >= count:
            kind = "gradients"
        elif i in arguments:
            kind = "arguments"
        elif nodes[i].constant is not None:
            kind = "numbers"
        elif i in results:
            kind = "results"
        else:
            kind = "values" if i < len(recipe.nodes) else "intermediates"
        kinds[kind].count += 1
        kinds[kind].bytes += size
    constants = {id(node.constant): node.constant for node in nodes if node.constant is not None and node.constant.ndim}
    outside = sum(constant.nbytes for constant in constants.values())
    return MemoryUse(reverse, kinds, layout.size, outside, *_grouped(recipe, bytes_of, count))


def compiled_memory_use(code: CompiledCode, *, reverse: bool) -> MemoryUse:
    """Return the memory that machine code needs."""
    kinds = {kind: Share(kind) for kind in SHARE_KINDS}
    for kind, (count, size) in (code.account.memory if code.account is not None else {}).items():
        kinds[kind] = Share(kind, count, size)
    constants = {id(constant): constant.nbytes for constant in code.constants}
    return MemoryUse(reverse, kinds, code.work, sum(constants.values()))


def _grouped(recipe: Recipe, bytes_of: list[int], count: int) -> tuple[dict[str, list[Share]], list[int]]:
    """Return what steps made, their results and the gradients of these: by group, the largest first, and by step."""
    tables: dict[str, dict[str, Share]] = {}
    steps = [0] * len(recipe.steps)
    names, seen = groups_of(recipe).named(), set(recipe.arguments)
    for kind, node, _, at in map(recipe.steps.raw, range(len(recipe.steps))):
        is_new = recipe.nodes[node].base is None and node not in seen  # what a guard looks at is not
        if not is_new or isinstance(recipe.steps.kinds[kind].op, Write):
            continue
        seen.add(node)
        steps[at] = bytes_of[node] + bytes_of[count + node]
        for by, of_steps in names.items():
            share = tables.setdefault(by, {}).setdefault(of_steps[at], Share(of_steps[at]))
            for size in (bytes_of[node], bytes_of[count + node]):
                share.count += size > 0
                share.bytes += size
    return {by: sorted(table.values(), key=lambda share: -share.bytes) for by, table in tables.items()}, steps
