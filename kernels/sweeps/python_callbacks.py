"""What Python does in the middle of a native sweep: hooks, and instructions that only Python can run."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.arrays.sweep_interface import Array, Observer
from kernels.instructions.entries import Instruction, instruction_at
from kernels.native.tape_structs import (
    ALIAS,
    PAUSED,
    PYTHON,
    RELEVANT,
    TOUCHED,
    VIEW,
    FormBlock,
    InputBlock,
    SweepHeader,
)
from kernels.programs.running.pullback_structs import REPLAYED
from kernels.sweeps.gradient_views import add_to, changed, pattern
from kernels.sweeps.reference_pullbacks import run
from kernels.sweeps.workspace import Workspace

_ACTED, _RAN = 1, 2
"""Where a sweep goes on (H_RESUME): at the instruction before which Python has acted; behind the one that it has run
(reverse_native.RAN)."""


class PythonCallbacks:
    """Acts on the buffers of a paused native sweep; its instructions share the dictionary ``stash``."""

    def __init__(self, space: Workspace, entries: Any, watched: dict[int, tuple[Observer, Array]], batch: int) -> None:
        self.space, self.entries, self.watched, self.batch = space, entries, watched, batch
        self.stash: dict[Any, Any] = {}
        self.hooked = -1

    def act(self) -> None:
        """Do what the instruction at H_FROM asks for, and say where the sweep goes on."""
        header = self.space.words
        at = header[SweepHeader.position]
        instruction = instruction_at(self.entries, int(self.space.order[at]))
        bucket = self.space.bucket(instruction.slot)
        if self.space.flat[bucket + 3] & PAUSED and self.hooked != at:
            self._hook(instruction.slot)
            self.hooked = at
            if instruction.form.kind != PYTHON and self.watched[instruction.slot][0].after is None:
                header[SweepHeader.resume] = _ACTED
                return
        self._run(instruction, bucket)
        header[SweepHeader.resume] = _RAN

    def _hook(self, slot: int) -> None:
        observer, buffer = self.watched[slot]
        place = pattern(buffer, observer.spec, observer.offset)
        replacement = observer.hook(place + place.dtype.type(0.0)) if observer.hook is not None else None
        if replacement is not None:
            place[...] = changed(place, replacement)

    def _run(self, instruction: Instruction, bucket: int) -> None:
        """Let Python compute what the instruction contributes to its operands, and add that."""
        form, slot = instruction.form, instruction.slot
        gradient = None
        if self.space.flat[bucket + 3] & TOUCHED:
            gradient = self._memory(self.space.flat[bucket + 1], form.spec)
        if form.kind == PYTHON and form.block[FormBlock.SIZE + InputBlock.kernel] == REPLAYED:
            self._gather(instruction)
        observer = self.watched[slot][0] if slot in self.watched else None
        start = self._start(instruction.operands[0]) if form.kind == VIEW else 0
        contributions = run(instruction, gradient, observer, self.stash, batch=self.batch, start=start)
        for operand, source, value in zip(instruction.operands, form.specs, contributions, strict=True):
            if operand is not None and source is not None and value is not None:
                key = operand if type(operand) is int else -id(operand)
                self._contribute(key, source, value, form.op.nothing)

    def _gather(self, instruction: Instruction) -> None:
        """Hand the cotangents of a program's results, which the sweep has left in their buffers, to the call."""
        call, space = instruction.saved[0], self.space
        if len(call.specs) == 1:
            return
        cotangents = self.stash.setdefault(instruction.slot, {})
        for k, (slot, spec) in enumerate(zip(call.outputs, call.specs, strict=True)):
            bucket = space.arrived(space.address, slot) if slot is not None else 0
            if bucket:
                address = space.flat[(bucket - space.words[SweepHeader.buckets]) // 8 + 1]
                cotangents[k] = pattern(self._memory(address, spec), spec, 0).copy()
                space.release(space.address, slot)

    def _start(self, operand: Any) -> int:
        """Return where the operand of a view begins in the gradient buffer of its family."""
        flat = self.space.flat
        bucket = self.space.bucket(operand if type(operand) is int else -id(operand))
        return int(flat[bucket + 2]) if flat[bucket + 3] & ALIAS else 0

    def _contribute(self, key: int, spec: Spec, value: Any, zero: float) -> None:
        header, flat = self.space.words, self.space.flat
        bucket = self.space.bucket(key)
        if header[SweepHeader.restrict] and not flat[bucket + 3] & RELEVANT:
            return
        offset = flat[bucket + 2] if flat[bucket + 3] & ALIAS else 0
        elements = spec.buffer_size * header[SweepHeader.batch]
        address = self.space.place(self.space.address, key, elements, spec.dtype.itemsize, spec.covers)
        if address == 0:
            raise MemoryError("no memory for the gradients of a backward sweep")
        target = pattern(self._memory(abs(address), spec), spec, offset)
        if address < 0:
            np.add(value, zero, out=target)
        else:
            add_to(target, value)

    def _memory(self, address: int, spec: Spec) -> Array:
        """Return a gradient buffer in native memory as an array."""
        shape = (self.batch, spec.buffer_size) if self.batch else (spec.buffer_size,)
        size = max(spec.buffer_size * (self.batch or 1) * spec.dtype.itemsize, 1)
        memory = (ctypes.c_char * size).from_address(address)
        return np.ndarray(shape, spec.dtype, memory)
