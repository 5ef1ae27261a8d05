"""Forward mode: the sweep, and the pushforwards of forms."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.calls.object_types import header_of
from kernels.foundation.specs import Array, GradientObserver, Seed, Spec, empty, pattern, plant
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction, instruction_at
from kernels.language import jit
from kernels.native import structs
from kernels.native.memory import where
from kernels.native.structs import FormBlock, InputBlock, SweepHeader
from kernels.rules.loop_printer import Factor, KernelOperand, PrintedLoop, Product, RowPull
from kernels.sweeps import reverse
from kernels.sweeps.reference_pullbacks import add_by_elements, buffer_of, clear, product
from kernels.sweeps.workspace import Families, Workspace, key_of, mark, observe, relevant, run_mark, seed_buffer

# Pushforwards: each pullback read the other way, with the patterns of target and cotangent exchanged.
#
# A pullback is linear in its cotangent and acts element by element, so the same rule carries tangents forward: it
# reads an operand's tangent where it wrote the operand's gradient, and writes the result's where it read the
# cotangent.


def turned(pull: Any) -> PrintedLoop | Product | None:
    """Return the pushforward of a pullback; None for one that cannot be turned."""
    if isinstance(pull, Product):
        return _turned_product(pull)
    if isinstance(pull, RowPull):
        return pull.turned or pull  # type: ignore[return-value]
    if not isinstance(pull, PrintedLoop):
        return None
    target, cotangent, *reads = pull.operands
    result = KernelOperand("target", cotangent.dtype, 0, cotangent.strides, cotangent.offset)
    tangent = KernelOperand("g", target.dtype, 1, target.strides, target.offset)
    return replace(pull, operands=(result, tangent, *reads), scatter=pull.gather, gather=pull.scatter)


def _turned_product(pull: Product) -> Product:
    """Turn ``da (+)= g b^T`` to ``dy (+)= da b``, and ``db (+)= a^T g`` to ``dy (+)= a db``."""
    m, n, k = pull.extents
    moved = pull.target.strides
    if pull.left.place == 1:
        result, left, right, extents = pull.left, Factor(1, moved), pull.right.turned, (m, k, n)
    else:
        result, left, right, extents = pull.right, pull.left.turned, Factor(1, moved), (k, n, m)
    return Product(pull.dtype, extents, Factor(0, result.strides), left, right)


class Pushes:
    """The pushforwards of a form, one for each operand; ``block`` has a row of words for each, as a form's has."""

    def __init__(self, form: Form) -> None:
        self.name = form.name
        # The first of a write takes away what it overwrites, tangents as it does gradients.
        self.pulls = (None, *form.pulls[1:]) if form.kind in (structs.CLEARS, structs.ADDS) else form.pulls
        self.loops = tuple(turned(pull) for pull in self.pulls)
        # A push that meets each element of its result once may store a first contribution.
        whole, size = form.spec.covers, form.spec.size
        self.covers = tuple(
            push is not None and whole and push.covers and (isinstance(push, Product) or math.prod(push.shape) == size)
            for push in self.loops
        )
        self._tables: list[Array] = []
        self.block = np.zeros(InputBlock.SIZE * len(self.loops), np.int64)

    def compile(self) -> None:
        """Give the block the addresses of its kernels. NotImplementedError for a pullback that cannot be turned."""
        for i, (pull, push) in enumerate(zip(self.pulls, self.loops, strict=True)):
            if pull is None:
                continue
            if push is None:
                raise NotImplementedError(f"{self.name}: no pushforward, so forward mode cannot pass through it")
            address, layout = push.kernel()
            self._tables.append(layout)
            at = InputBlock.SIZE * i
            self.block[at + InputBlock.kernel], self.block[at + InputBlock.layout] = address, where(layout)
            self.block[at + InputBlock.covers] = self.covers[i]


def pushes_of(form: Form) -> Pushes:
    """Return the pushforwards of a form, made at their first use."""
    if form.pushes is None:
        form.pushes = Pushes(form)
    pushforwards: Pushes = form.pushes
    return pushforwards


def compile_pushes(form: Form) -> None:
    """Compile the pushforwards of a form, and let its block say where native code finds them."""
    pushforwards = pushes_of(form)
    pushforwards.compile()
    form.block[FormBlock.pushes] = where(pushforwards.block)


def push(form: Form, i: int, memory: Array, tangent: Array, saved: tuple[Any, ...], start: int, offset: int) -> None:
    """Add one pushforward to a flat tangent, in NumPy; ``start`` and ``offset`` are where the patterns begin, bytes."""
    loop, source = pushes_of(form).loops[i], form.specs[i]
    if loop is None:
        raise NotImplementedError(f"{form.name}: no pushforward, so forward mode cannot pass through it")
    if isinstance(loop, PrintedLoop):
        add_by_elements(loop, memory, start, tangent, offset, saved)
        return
    assert source is not None
    target = pattern(memory, form.spec, start)
    with np.errstate(all="ignore"):
        if isinstance(loop, Product):
            result = product(loop, (None, tangent[offset // tangent.itemsize :], *saved))
        else:
            result = np.asarray(loop.rule(pattern(tangent, source, offset), *saved))
        target += result.reshape(form.spec.shape)


# The forward sweep of a tape: tangents of leaves or slots in, tangents of other slots out, in one pass.
#
# Native where memory can be read; else, and for tests, in plain Python and NumPy.

_SOURCE = structs.RELEVANT | structs.KEPT | structs.TOUCHED
_TARGET = structs.USED | structs.KEPT


Leaves = list[tuple[Any, Spec]]  # leaves, and the slots of other tapes, with their specs


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
    if reverse.NATIVE:
        return _forward(reverse.workspace(), entries, sources, targets, batch, fixed)
    sweep = _ReferenceForward(entries, number, sources, targets, batch)
    return _foreign(sweep.leaf_rows, sources, fixed) or sweep.run()


def leaves(entries: Any, number: int, slots: list[int]) -> Leaves:
    """Return the leaves that slots were computed from, and with their specs the slots of other tapes."""
    if not reverse.NATIVE:
        seeds = [Seed(slot, _NOWHERE, 0.0) for slot in slots]
        return list(mark(entries, number, seeds).ends.items())
    space = reverse.workspace()
    header = space.words
    try:
        space.busy = True
        header[SweepHeader.tape] = header_of(entries)
        space.preset([(slot, 0, 0, _TARGET) for slot in slots])
        run_mark(space, entries)
        return _leaves(space, entries)
    finally:
        space.busy = False


_NOWHERE: Any = None


def _leaves(space: Workspace, entries: Any) -> Leaves:
    """Return the leaves that a mark has found."""
    return [(leaf, spec) for leaf, spec, _ in space.marked_leaves(entries)]


def _foreign(leaves: Leaves, sources: list[Seed], fixed: Sequence[int]) -> Leaves:
    slots = {seed.slot for seed in sources}.union(fixed)
    return [(leaf, spec) for leaf, spec in leaves if type(leaf) is int and leaf not in slots]


def _forward(
    space: Workspace,
    entries: Any,
    sources: list[Seed],
    targets: list[GradientObserver],
    batch: int,
    fixed: Sequence[int],
) -> Leaves:
    header, native = space.words, jit.load_module("sweeps.sweep_native")
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
        run_mark(space, entries)
        if foreign := _foreign(_leaves(space, entries), sources, fixed):
            return foreign
        space.relevant(space.address)
        while native.prepare(space.address) == structs.MISSING:  # and count the uses of each tangent
            compile_pushes(entries.form(header[SweepHeader.at]))
        header[SweepHeader.position] = header[SweepHeader.count] - 1
        stash: dict[Any, Any] = {}
        while (status := native.push(space.address)) == structs.PAUSE:
            _act(space, entries, stash, batch)
        reverse.check(status, "tangents of a forward")
        for observer, buffer in zip(targets, buffers, strict=True):
            observe(space, observer, buffer)
    finally:
        space.abandon(space.address)
        space.shrink_and_release()
        space.busy = False
    return []


def _act(space: Workspace, entries: Any, stash: dict[Any, Any], batch: int) -> None:
    """Let Python compute the tangent of an instruction that native code cannot run."""
    native, at = jit.load_module("sweeps.sweep_native"), space.words[SweepHeader.position]
    instruction = instruction_at(entries, int(space.order[at]))
    tangents: list[Array | None] = []
    for operand, spec in zip(instruction.operands, instruction.form.specs, strict=True):
        address = 0 if operand is None else native.tangent(space.address, key_of(operand))
        tangents.append(None if address == 0 or spec is None else _array(address, spec, batch).copy())
    tangent = _called(instruction, tangents, stash, batch)
    if tangent is not None:
        spec = instruction.form.spec
        size = spec.buffer_size * (batch or 1)
        address = native.tangent_at(space.address, instruction.slot, size, spec.dtype.itemsize)
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
        graph = mark(entries, number, roots)
        self.marked, self.leaf_rows = graph.marked, list(graph.ends.items())
        self.source_keys = {seed.slot for seed in sources}
        self.leading = relevant(graph, self.source_keys)
        self.state = Families(self.marked, {o.key for o in targets} | graph.split | self.source_keys)
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
        if form.kind == structs.PYTHON:
            self._python(instruction)
        elif form.kind == structs.PULLS:
            for i, pull in enumerate(form.pulls):
                if pull is not None:
                    self._add(instruction, i, slot, 0)
        elif form.kind != structs.VIEW:
            home, start = slot if apart else state.home(slot)[0], instruction.saved[0]
            if form.kind == structs.CLEARS and instruction.operands[0] is not None and home in state.buffers:
                for row in np.atleast_2d(state.buffers[home]):
                    clear(form.pulls[0], row, instruction.saved)
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
