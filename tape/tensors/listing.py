"""A graph as text: the instructions of the tape that a tensor depends on, one line each."""

from __future__ import annotations

from typing import Any

from kernels.instructions.entries import Instruction, instructions
from kernels.native.tape_structs import TAPE_BITS
from kernels.programs.recording.program import line, parameters
from tape.tensors import tapes
from tape.tensors.tensor import Tensor


def listing(input: Tensor) -> str:
    """Return the instructions between a tensor and the leaves it was computed from, in the order they ran."""
    tape = tapes.living.get(input._slot >> TAPE_BITS) if type(input._slot) is int else None
    if tape is None:
        return "  nothing recorded: the tensor is a leaf or does not require grad"
    wanted, kept = {input._slot}, []
    with tape.reading():
        for instruction in instructions(tape.entries):
            if instruction.slot in wanted:
                wanted.update(o for o in instruction.operands if type(o) is int)
                kept.append(instruction)
    if not kept:
        return "  nothing left: backward has released this graph"
    return _print(kept[::-1])


def _print(kept: list[Instruction]) -> str:
    names: dict[Any, str] = {}
    lines: list[str] = []
    for instruction in kept:
        operands = [
            _operand(o, spec, names, lines)
            for o, spec in zip(instruction.operands, instruction.form.specs, strict=True)
        ]
        names[instruction.slot] = result = f"%{len(names)}"
        form = instruction.form
        kept_names = () if form.is_view else form.saved
        keeps = f"  keeps {', '.join(kept_names)}" if kept_names else ""
        lines.append(line(result, form.op.name, operands, parameters(form.params), form.spec) + keeps)
    return "\n".join(lines)


def _operand(operand: Any, spec: Any, names: dict[Any, str], lines: list[str]) -> str:
    """Name an operand; a leaf gets a line of its own at its first use."""
    if operand is None:
        return "constant"
    if operand not in names:
        names[operand] = f"%{len(names)}"
        kind = "other thread's" if type(operand) is int else "leaf"
        lines.append(line(names[operand], kind, [], "", spec))
    return names[operand]
