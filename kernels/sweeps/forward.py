"""The forward sweep of a tape: tangents of leaves or slots in, tangents of other slots out, in one pass.

Native where memory can be read; else, and for tests, in plain Python and NumPy.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.calls.object_types import header_of
from kernels.foundation.numpy_arrays import GradientObserver, Seed, empty, pattern, plant
from kernels.foundation.specs import Array, Spec
from kernels.kinds.reference_tape import Instruction, instruction_at
from kernels.language import jit
from kernels.native.structs import (
    CLEARS,
    KEPT,
    MISSING,
    PAUSE,
    PULLS,
    PYTHON,
    RELEVANT,
    TOUCHED,
    USED,
    VIEW,
    FoundLeaf,
    SweepHeader,
)
from kernels.sweeps import backend
from kernels.sweeps import graph as graphs
from kernels.sweeps.leaves import operand_spec
from kernels.sweeps.pushforwards import PushforwardTable, clear, push, table
from kernels.sweeps.reference_pullbacks import buffer_of
from kernels.sweeps.workspace import Workspace, key_of, mark, observe, seed_buffer

_SOURCE = RELEVANT | KEPT | TOUCHED
_TARGET = USED | KEPT


Leaves = list[tuple[Any, Spec | None]]
"""Leaves, and the slots of other tapes with their specs."""


def forward(
    entries: Any,
    number: int,
    sources: list[Seed],
    targets: list[GradientObserver],
    batch: int = 0,
    fixed: Sequence[int] = (),
) -> Leaves:
    """Sweep a tape forward: give each target, a slot, its tangent as ``gradient``, None where no source leads there.

    Sources are leaves or slots of base tensors, each with the tangent that it has, whatever it was computed from.
    With ``batch`` tangents have a leading axis of that length. Where targets depend on slots of other tapes, and
    these are neither sources nor ``fixed``, without a tangent, nothing is done but to return them. Raises FreedError
    if a needed instruction is gone, NotImplementedError naming an operation that has no pushforward.
    """
    if backend.NATIVE:
        return _forward(backend.workspace(), entries, sources, targets, batch, fixed)
    sweep = _ReferenceForward(entries, number, sources, targets, batch)
    return _foreign(sweep.leaf_rows, sources, fixed) or sweep.run()


def leaves(entries: Any, number: int, slots: list[int]) -> Leaves:
    """Return the leaves that slots were computed from, and with their specs the slots of other tapes."""
    if not backend.NATIVE:
        seeds = [Seed(slot, _NOWHERE, 0.0) for slot in slots]
        return list(graphs.mark(entries, number, seeds).ends.items())
    space = backend.workspace()
    header = space.words
    try:
        space.busy = True
        header[SweepHeader.tape] = header_of(entries)
        space.preset([(slot, 0, 0, _TARGET) for slot in slots])
        mark(space, entries)
        return _leaves(space, entries)
    finally:
        space.busy = False


_NOWHERE: Any = None


def _leaves(space: Workspace, entries: Any) -> Leaves:
    """Return the leaves that a mark has found."""
    leaves: Leaves = []
    for at in range(0, FoundLeaf.SIZE * space.words[SweepHeader.leaf], FoundLeaf.SIZE):
        leaf = entries.operand(space.leaf_rows[at], space.leaf_rows[at + 1])
        foreign = type(leaf) is int
        leaves.append((leaf, operand_spec(entries, space.leaf_rows[at], space.leaf_rows[at + 1]) if foreign else None))
    return leaves


def _foreign(leaves: Leaves, sources: list[Seed], fixed: Sequence[int]) -> Leaves:
    slots = {seed.slot for seed in sources}.union(fixed)
    return [(leaf, spec) for leaf, spec in leaves if type(leaf) is int and leaf not in slots]


@functools.cache
def _native() -> Any:
    return jit.load_module("sweeps.native.forward_native")


def _forward(
    space: Workspace,
    entries: Any,
    sources: list[Seed],
    targets: list[GradientObserver],
    batch: int,
    fixed: Sequence[int],
) -> Leaves:
    header = space.words
    tangents = [seed_buffer(seed, batch) for seed in sources]
    buffers = [empty(o.spec, batch) for o in targets]
    rows = [(key_of(s.slot), -id(buffer), 0, _SOURCE) for s, buffer in zip(sources, tangents, strict=True)]
    rows += [(o.key, -id(buffer), 0, _TARGET) for o, buffer in zip(targets, buffers, strict=True)]
    try:
        space.busy = True
        header[SweepHeader.tape] = header_of(entries)
        header[SweepHeader.restrict], header[SweepHeader.batch] = 0, batch or 1
        space.preset(rows)
        space.held = [*tangents, *buffers]
        mark(space, entries)
        if foreign := _foreign(_leaves(space, entries), sources, fixed):
            return foreign
        space.relevant(space.address)
        _run(space, entries, batch, _compiled(space, entries))
        for observer, buffer in zip(targets, buffers, strict=True):
            observe(space, observer, buffer)
    finally:
        space.abandon(space.address)
        space.shrink_and_release()
        space.busy = False
    return []


def _compiled(space: Workspace, entries: Any) -> PushforwardTable:
    """Make the pushforwards that are missing, and count the uses of each tangent."""
    native = _native()
    known = table()
    while native.prepare(space.address, known.address, known.mask) == MISSING:
        known.add(entries.form(space.words[SweepHeader.at]))
    return known


def _run(space: Workspace, entries: Any, batch: int, known: PushforwardTable) -> None:
    """Sweep, and let Python act where the native sweep pauses."""
    header, native = space.words, _native()
    header[SweepHeader.position] = header[SweepHeader.count] - 1
    stash: dict[Any, Any] = {}
    while (status := native.push(space.address, known.address, known.mask)) == PAUSE:
        _act(space, entries, stash, batch)
    backend.check(status, "tangents of a forward")


def _act(space: Workspace, entries: Any, stash: dict[Any, Any], batch: int) -> None:
    """Let Python compute the tangent of an instruction that native code cannot run."""
    native, at = _native(), space.words[SweepHeader.position]
    instruction = instruction_at(entries, int(space.order[at]))
    tangents: list[Array | None] = []
    for operand, spec in zip(instruction.operands, instruction.form.specs, strict=True):
        address = 0 if operand is None else native.tangent(space.address, key_of(operand))
        tangents.append(None if address == 0 or spec is None else _array(address, spec, batch).copy())
    tangent = _called(instruction, tangents, stash, batch)
    if tangent is not None:
        spec = instruction.form.spec
        size = spec.buffer_size * (batch or 1)
        address = native.place(space.address, instruction.slot, size, spec.dtype.itemsize)
        if address == 0:
            raise MemoryError("no memory for the tangents of a forward sweep")
        _array(address, spec, batch)[...] = tangent + spec.dtype.type(0.0)
    native.passed(space.address, at)


def _called(instruction: Instruction, tangents: list[Array | None], stash: dict[Any, Any], batch: int) -> Array | None:
    """Run the jvp of an instruction in Python; None where its result has no tangent."""
    if all(t is None for t in tangents):
        return None
    function = getattr(instruction.saved[0], "jvp", None)
    if function is None:
        raise NotImplementedError(f"{instruction.form.name}: no jvp, so forward mode cannot pass through it")
    return function(instruction, tangents, stash, batch=batch)  # type: ignore[no-any-return]


def _array(address: int, spec: Spec, batch: int) -> Array:
    """Return the tangent of a tensor, in native memory, as an array."""
    shape, strides = spec.shape, spec.gradient
    if batch:
        shape, strides = (batch, *shape), (spec.buffer_size * spec.dtype.itemsize, *strides)
    if 0 in shape:
        return np.zeros(shape, spec.dtype)
    ends = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    first, last = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    memory = (ctypes.c_char * (last - first + spec.dtype.itemsize)).from_address(address + first)
    return np.ndarray(shape, spec.dtype, memory, -first, strides)


class _ReferenceForward:
    """The sweep in plain Python: what the native one is tested against."""

    def __init__(
        self, entries: Any, number: int, sources: list[Seed], targets: list[GradientObserver], batch: int
    ) -> None:
        self.targets, self.batch = targets, batch
        roots = [Seed(o.key, o.spec, 0.0, o.offset) for o in targets]
        graph = graphs.mark(entries, number, roots)
        self.marked, self.leaf_rows = graph.marked, list(graph.ends.items())
        self.source_keys = {seed.slot for seed in sources}
        self.leading = graphs.relevant(graph, self.source_keys)
        self.state = graphs.Families(self.marked, {o.key for o in targets} | graph.split | self.source_keys)
        self.stash: dict[Any, Any] = {}
        for seed in sources:
            plant(self._buffer_of(seed.slot, seed.spec), seed)

    def _buffer_of(self, key: Any, spec: Spec) -> Array:
        return buffer_of(self.state.buffers, key, spec, self.batch)

    def run(self) -> Leaves:
        for instruction in reversed(self.marked):
            if instruction.slot in self.leading and instruction.slot not in self.source_keys:
                self._step(instruction)
        for o in self.targets:
            if o.key in self.state.buffers:
                o.gradient = pattern(self.state.buffers[o.key], o.spec, o.offset) + o.spec.dtype.type(0.0)
        return []

    def _step(self, instruction: Instruction) -> None:
        form, slot, state = instruction.form, instruction.slot, self.state
        apart = slot in state.homes and slot in state.kept
        if apart and (above := state.above(instruction)) in state.buffers:
            state.buffers[slot] = state.buffers[above].copy()
        if form.kind == PYTHON:
            self._python(instruction)
        elif form.kind == PULLS:
            for i, pull in enumerate(form.pulls):
                if pull is not None:
                    self._add(instruction, i, slot, 0)
        elif form.kind != VIEW:
            self._write(instruction, slot if apart else state.home(slot)[0])

    def _write(self, instruction: Instruction, home: Any) -> None:
        form, start = instruction.form, instruction.saved[0]
        if form.kind == CLEARS and instruction.operands[0] is not None and home in self.state.buffers:
            for row in np.atleast_2d(self.state.buffers[home]):
                clear(form, row, instruction.saved, start)
        if form.pulls[1] is not None:
            self._add(instruction, 1, home, start)

    def _add(self, instruction: Instruction, i: int, home: Any, start: int) -> None:
        """Add the pushforward of one operand to the tangent of a family."""
        form = instruction.form
        source, offset = self.state.home(instruction.operands[i])
        tangent = self.state.buffers.get(source)
        if tangent is None:
            return
        memory = self._buffer_of(home, form.spec)
        for row, tangent_row in zip(np.atleast_2d(memory), np.atleast_2d(tangent), strict=True):
            push(form, i, row, tangent_row, instruction.saved, start, offset)

    def _python(self, instruction: Instruction) -> None:
        tangents: list[Array | None] = []
        for operand, spec in zip(instruction.operands, instruction.form.specs, strict=True):
            home, offset = self.state.home(operand)
            gradient_buffer = None if operand is None else self.state.buffers.get(home)
            tangents.append(
                None if gradient_buffer is None or spec is None else pattern(gradient_buffer, spec, offset).copy()
            )
        result = _called(instruction, tangents, self.stash, self.batch)
        if result is not None:
            spec = instruction.form.spec
            pattern(self._buffer_of(instruction.slot, spec), spec, 0)[...] = result + spec.dtype.type(0.0)
