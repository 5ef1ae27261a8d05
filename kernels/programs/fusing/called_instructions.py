"""Instructions that are called between loops: products by BLAS, others by kernels of their own or the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernels.arrays.specs import Spec, is_dense
from kernels.kinds.contraction import Contraction
from kernels.kinds.copy import Copy
from kernels.kinds.custom import Custom
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.gather import Gather
from kernels.kinds.reduction import Reduction
from kernels.kinds.routine import Routine
from kernels.kinds.select import Select
from kernels.programs.fusing.interpreted_calls import interpreted_call
from kernels.programs.fusing.matrix_products import product_call
from kernels.programs.fusing.native_call import NativeCall
from kernels.programs.fusing.scalar_rules import BOOL, COPY, FLOATS
from kernels.programs.fusing.statements import AnyStatement, CallStatement, dense_value, mapped, whole
from kernels.programs.rolling.rolled_program import Instruction, Numbers, Ref, RolledProgram, Uncompiled
from kernels.records.op import Op

_CALLED = Elementwise, Copy, Reduction, Routine, Contraction, Gather, Select, Custom
"""Kinds whose records are called, where there are no statements for them."""
_COPIED = *FLOATS, BOOL


def called(instruction: Instruction, program: RolledProgram) -> list[AnyStatement]:
    """Return an instruction as a call of a kernel or the interpreter; Uncompiled where that cannot be."""
    op = instruction.op
    if instruction.result < 0 or not isinstance(op, _CALLED):
        raise Uncompiled(f"{op.name} changes what is there, or its result")
    for operand in instruction.operands:
        _check(operand, op)
    spec = program.values[instruction.result].spec
    if spec.dtype.kind in "bi":  # which no gradient comes to
        refs = [o._replace(wanted=False) if isinstance(o, Ref) else o for o in instruction.operands]
        instruction = replace(instruction, form=None, operands=tuple(refs))
    if not spec.size or (instruction.form is not None and spec.dtype not in FLOATS):
        raise Uncompiled(f"a result of {spec.dtype} with {spec.size} elements")
    placed = _Placed(instruction, program, in_order=True)
    call = interpreted_call(replace(instruction, operands=placed.operands), placed.result.spec, wanted_of(instruction))
    return placed.statements(call)


def product(instruction: Instruction, program: RolledProgram) -> list[AnyStatement]:
    """Return a matrix product as a call of BLAS."""
    placed = _Placed(instruction, program, in_order=False)
    return placed.statements(product_call(*placed.operands, placed.result, wanted_of(instruction)))


def wanted_of(instruction: Instruction) -> tuple[bool, ...]:
    """Return which operands' gradients are wanted."""
    return tuple([isinstance(operand, Ref) and operand.wanted for operand in instruction.operands])


def _check(operand: Any, op: Op) -> None:
    """Raise Uncompiled where an operand has no memory, a copy of it would not do, or what has no gradient wants one."""
    if isinstance(operand, Numbers):
        raise Uncompiled("a number that changes from step to step")
    if not isinstance(operand, Ref):
        return
    dtype = operand.spec.dtype
    if not operand.spec.size:
        raise Uncompiled("an array has no elements")
    if operand.wanted and dtype not in FLOATS:
        raise Uncompiled(f"{dtype} with a gradient")
    if not is_dense(operand.spec) and (dtype not in _COPIED or isinstance(op, Gather)):
        raise Uncompiled(f"{op.name} of strides {operand.spec.strides}")


class _Placed:
    """Memory for a call: copies of what may be written afterwards, and with ``in_order`` of what is not in C order."""

    def __init__(self, instruction: Instruction, program: RolledProgram, *, in_order: bool) -> None:
        self.instruction, self.program, self.in_order = instruction, program, in_order
        self.copies: list[AnyStatement] = []
        value = program.values[instruction.result]
        self.loop = value.loop
        self.target = self.result = whole(program, instruction.result, wanted=instruction.form is not None)
        if value.written or (in_order and not is_dense(value.spec)):
            self.result = self._new(value.spec, wanted=self.target.wanted)
        self.operands: Any = tuple([self._placed(operand) for operand in instruction.operands])

    def _placed(self, operand: Any) -> Any:
        if not isinstance(operand, Ref):
            return operand
        spec = operand.spec
        if not self.program.values[operand.value].written and (is_dense(spec) or not self.in_order):
            return operand
        copy = self._new(spec, wanted=operand.wanted)
        self.copies.append(mapped(COPY, spec.shape, (operand,), copy, copy.spec.strides, (operand.wanted,)))
        return copy

    def _new(self, spec: Spec, *, wanted: bool) -> Ref:
        """Return a new value in C order, made where the result is."""
        return dense_value(self.program, spec.shape, spec.dtype, self.loop, wanted=wanted)

    def statements(self, call: NativeCall) -> list[AnyStatement]:
        """Return the call with the copies before and behind it."""
        pairs = zip(self.operands, wanted_of(self.instruction), strict=True)
        refs = [(operand, wanted) for operand, wanted in pairs if isinstance(operand, Ref)]
        operands, wanted = tuple([o for o, _ in refs]), tuple([w for _, w in refs])
        made = [*self.copies, CallStatement(call, operands, self.result, wanted)]
        if self.result is not self.target:
            spec = self.target.spec
            made.append(mapped(COPY, spec.shape, (self.result,), self.target, spec.strides, (self.target.wanted,)))
        return made
