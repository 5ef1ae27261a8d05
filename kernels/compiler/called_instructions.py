"""Instructions that are called between loops: products by BLAS, others by kernels of their own or the interpreter."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.compiler import statements as fused
from kernels.compiler.statements import FLOATS, AnyStatement, CalledKernel, NativeCall, PrintedCall
from kernels.foundation.specs import Array, Spec, is_dense
from kernels.kinds.routine import CustomKernel
from kernels.kinds.views import Gather
from kernels.native.structs import PULLS
from kernels.programs.assembly import ProgramPlan
from kernels.programs.machine import Machine, plan, pullback_plan
from kernels.programs.program import ProgramNode, Recipe, StepKind
from kernels.programs.rolled_program import Numbers, Ref, RolledInstruction, RolledProgram, Uncompiled
from kernels.rules import banded_native, dense_native
from kernels.rules.loop_printer import Factor, Product, matrices
from kernels.rules.op import Op, parameters_of
from kernels.rules.scalar_loops import ByteComparison, ConstantFill, NodeRef, PythonCall, Steering, UfuncCall

# Instructions that are no statements, as calls of the interpreter: a program of one step, and its pullback.

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
"""Of a kernel: layout, pointers, whether it adds. Whoever calls it need not hold the interpreter's lock."""
_NO_KERNELS = ByteComparison, ConstantFill, PythonCall, Steering, UfuncCall
"""Tasks that are called otherwise than kernels."""
_NO_LAYOUT = np.zeros(1, np.int64)


def interpreted_call(instruction: RolledInstruction, spec: Spec, wanted: tuple[bool, ...]) -> NativeCall:
    """Return a call that does what an instruction does on dense operands, with a result of this spec."""
    name, recipe = instruction.op.name, _recipe_of(instruction, spec)
    forward = plan(recipe, reverse=False)
    if not len(forward.tasks):
        raise Uncompiled(f"{name} is computed with another result")
    kernel, pulls = _kernel_of(forward, len(recipe.arguments)), _pulls_of(recipe, wanted)
    if kernel is not None and pulls is not None:
        return NativeCall(name, fused.KERNEL, kernel, pulls)
    refs = [k for k, operand in enumerate(instruction.operands) if isinstance(operand, Ref)]
    places = tuple(map(fused.CalledOperand, range(len(refs))))
    pullbacks: tuple[CalledKernel, ...] = ()
    if any(wanted):
        gradients = tuple([fused.CalledOperand(k, gradient=True) for k, at in enumerate(refs) if wanted[at]])
        back = _Interpreted(pullback_plan(recipe), adds=True)
        pullbacks = (back.call((*gradients, *places, fused.CalledOperand(fused.RESULT, gradient=True))),)
    by = fused.PYTHON if any(isinstance(call, PythonCall) for call in forward.tasks.calls) else fused.INTERPRETER
    return NativeCall(
        name, by, _Interpreted(forward, adds=False).call((fused.CalledOperand(fused.RESULT), *places)), pullbacks
    )


def _kernel_of(forward: ProgramPlan, operands: int) -> CalledKernel | None:
    """Return the one kernel that a plan is, called on operands and result alone; None if it is more."""
    tasks = forward.tasks
    if len(tasks) != 1 or isinstance(tasks.calls[0], _NO_KERNELS) or tasks.offsets or max(tasks.places) > operands:
        return None
    places = tuple([fused.CalledOperand(fused.RESULT if node == operands else node) for node in tasks.places])
    return _kernel(tasks.calls[0], places)


def _kernel(task: Any, places: tuple[fused.CalledOperand, ...], *, adds: bool = False) -> CalledKernel:
    address, layout = task.kernel()
    fails = isinstance(task, CustomKernel)
    layout = task.layout(tells=True) if fails else layout
    return CalledKernel(address, layout, places, adds=adds, fails=fails, owner=task)


def _pulls_of(recipe: Recipe, wanted: tuple[bool, ...]) -> tuple[CalledKernel, ...] | None:
    """Return the pullbacks of a recipe's one step that are kernels on operands and result; None if any is not."""
    step = recipe.steps[0]
    form = step.form
    if form is None or not any(wanted):
        return ()
    if form.kind != PULLS or not {"y", *form.op.inputs}.issuperset(form.saved):
        return None
    saved = [fused.RESULT if name == "y" else _number(step.operands[form.op.inputs.index(name)]) for name in form.saved]
    pulls = [(_number(o), pull) for o, pull, want in zip(step.operands, form.pulls, wanted, strict=True) if want]
    if any(place is None for place in saved) or any(pull is None for _, pull in pulls):
        return None
    reads = (fused.CalledOperand(fused.RESULT, gradient=True), *map(fused.CalledOperand, saved))
    return tuple([_kernel(pull, (fused.CalledOperand(k, gradient=True), *reads), adds=True) for k, pull in pulls])


def _number(operand: Any) -> Any:
    """Return the number of an operand that is one of the arrays."""
    return operand.node if isinstance(operand, NodeRef) else None


def _recipe_of(instruction: RolledInstruction, spec: Spec) -> Recipe:
    """Return a recipe of this instruction alone, in which integers stay integers."""
    nodes, words, numbers = [], [], []
    whole = spec.dtype.kind == "i" and all(o.spec.dtype.kind == "i" for o in instruction.operands if isinstance(o, Ref))
    for operand in instruction.operands:
        if isinstance(operand, Ref):
            words.append(len(nodes))
            nodes.append(ProgramNode(operand.spec, differentiable=operand.wanted, argument=True))
        else:
            numbers.append(int(operand) if whole else operand)
            words.append(-len(numbers))
    result, arguments, form = len(nodes), [*range(len(nodes))], instruction.form
    nodes.append(ProgramNode(spec, differentiable=form is not None))
    recipe = Recipe(nodes, arguments=arguments, outputs=[result])
    if form is not None:
        pairs = zip(form.specs, instruction.operands, strict=True)
        specs = tuple([None if known is None else getattr(o, "spec", None) for known, o in pairs])
        form = instruction.op.reformed(form, specs, spec)
    recipe.steps.kinds.append(StepKind(instruction.op, form, instruction.params, len(words)))
    recipe.steps.numbers.extend(numbers)
    recipe.steps.add(0, result, words)
    for params, of_extra in instruction.extras:
        nodes.append(ProgramNode(of_extra))
        recipe.steps.kinds.append(StepKind(instruction.op, None, params, len(words)))
        recipe.steps.add(len(recipe.steps.kinds) - 1, len(nodes) - 1, words)
    return recipe


class _Interpreted:
    """A plan that is called as a kernel: results first, then arguments. It keeps nothing between calls."""

    def __init__(self, plan: ProgramPlan, *, adds: bool) -> None:
        self.machine = Machine(plan, marks=adds)
        self.adds, self.idle = adds, [self.machine]
        self.function = _SIGNATURE(self._run)

    def call(self, places: tuple[fused.CalledOperand, ...]) -> CalledKernel:
        """Return the call on these places."""
        address = ctypes.cast(self.function, ctypes.c_void_p).value
        assert address is not None
        return CalledKernel(address, _NO_LAYOUT, places, adds=self.adds, fails=True, owner=self)

    def _run(self, layout: int, pointers: int, adds: int) -> None:
        """Run; whatever Python raises is raised again by the interpreter, which runs the whole program then."""
        count = len(self.machine.gradients if self.adds else self.machine.outputs) + len(self.machine.inputs)
        words = (ctypes.c_int64 * (count + 1)).from_address(pointers)
        try:
            self._compute([*words[:count]])
        except Exception:  # noqa: BLE001 (it cannot pass through native code)
            words[count] = 1
        except BaseException as error:  # noqa: BLE001
            fused.INTERRUPTS.append(error)
            words[count] = 1

    def _compute(self, addresses: list[int]) -> None:
        machine = self._taken()
        try:
            results = machine.gradients if self.adds else machine.outputs
            pairs = zip(machine.inputs, addresses[len(results) :], strict=True)
            machine.run([_array(place, address) for place, address in pairs])
            for result, address in zip(results, addresses, strict=False):
                target = _array(result, address)
                target[...] = target + result if self.adds else result
        finally:
            self.idle.append(machine)

    def _taken(self) -> Machine:
        try:
            return self.idle.pop()
        except IndexError:  # other calls run
            return self.machine.copy()


def _array(like: Array, address: int) -> Array:
    """Return the array at an address, dense, of the shape and dtype of another."""
    if not like.size:
        return like
    return np.frombuffer((ctypes.c_byte * like.nbytes).from_address(address), like.dtype).reshape(like.shape)


# Matrix products by BLAS, as calls of a program.


def product_call(left: Ref, right: Ref, target: Ref, wanted: tuple[bool, ...]) -> NativeCall:
    """Return the product of two operands of one or two dimensions each."""
    a, b, dtype = left.spec, right.spec, left.spec.dtype
    (m, k, n), rows, columns, result = matrices(a.shape, a.strides, b.shape, b.strides, target.spec.strides)
    first, second = Factor(1, rows), Factor(2, columns)
    forward = Product(dtype, (m, n, k), Factor(0, result), first, second)
    by_left = Product(dtype, (m, k, n), Factor(0, rows), Factor(1, result), second.turned)
    by_right = Product(dtype, (k, n, m), Factor(0, columns), first.turned, Factor(2, result))
    x, y, z = map(fused.CalledOperand, (0, 1, fused.RESULT))
    dx, dy, dz = [place._replace(gradient=True) for place in (x, y, z)]
    pulls = zip((by_left, by_right), ((dx, dz, y), (dy, x, dz)), wanted, strict=True)
    pullbacks = tuple([_kernel(pull, places, adds=True) for pull, places, is_wanted in pulls if is_wanted])
    return NativeCall("matmul", fused.BLAS, _kernel(forward, (z, x, y)), pullbacks, covers=True)


_COPIED = *FLOATS, fused.BOOL


def called(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    """Return an instruction as a call of a kernel or the interpreter; Uncompiled where that cannot be."""
    op = instruction.op
    if instruction.result < 0 or not op.is_called:
        raise Uncompiled(f"{op.name} changes what is there, or its result")
    for operand in instruction.operands:
        _check(operand, op)
    spec = program.values[instruction.result].spec
    if spec.dtype.kind in "bi":  # which no gradient comes to
        refs = [o._replace(wanted=False) if isinstance(o, Ref) else o for o in instruction.operands]
        instruction = replace(instruction, form=None, operands=tuple(refs))
    if instruction.form is not None and spec.dtype not in FLOATS:
        raise Uncompiled(f"a result of {spec.dtype} with {spec.size} elements")
    placed = _CallMemory(instruction, program, in_order=True)
    call = interpreted_call(replace(instruction, operands=placed.operands), placed.result.spec, wanted_of(instruction))
    return placed.statements(call)


def called_directly(
    instruction: RolledInstruction, program: RolledProgram, name: str, numbers: dict[str, float]
) -> list[AnyStatement]:
    """Return an instruction as a call of a function of kernels.rules, and of those of its pullbacks."""
    placed = _CallMemory(instruction, program, in_order=True)
    numbers = {**numbers, "rounding": float(np.finfo(placed.operands[0].spec.dtype).eps) ** 0.5}
    names, wanted = instruction.op.inputs, wanted_of(instruction)
    places = {name: fused.CalledOperand(k) for k, name in enumerate(names)}
    reads = {**places, "y": fused.CalledOperand(fused.RESULT), "g": fused.CalledOperand(fused.RESULT, gradient=True)}

    def call(function: str, *targets: fused.CalledOperand) -> PrintedCall:
        asked = parameters_of(_printed(function))[len(targets) :]
        operands = (*targets, *[reads[name] for name in asked if name in reads])
        return PrintedCall(function, operands, tuple([numbers[name] for name in asked if name not in reads]))

    targets = {x: places[x]._replace(gradient=True) for x, want in zip(names, wanted, strict=True) if want}
    joint = f"{name}_to_{'_and_'.join(targets)}"
    if len(targets) > 1 and _printed(joint) is not None:
        pullbacks = [call(joint, *targets.values())]
    else:
        pullbacks = [call(f"{name}_to_{x}", target) for x, target in targets.items()]
    return placed.statements(NativeCall(name.partition(".")[2], "", call(name, reads["y"]), tuple(pullbacks)))


_PRINTED = {module.__name__.rpartition(".")[2]: module for module in (banded_native, dense_native)}


def _printed(name: str) -> Any:
    """Return a function by the names of its module and its own; None if there is none."""
    module, _, function = name.partition(".")
    return getattr(_PRINTED[module], function, None)


def of_nothing(instruction: RolledInstruction, target: Ref, program: RolledProgram) -> AnyStatement:
    """Return what an instruction gives whose operands have no elements: a constant, the sum of nothing say."""
    machine = Machine(plan(_recipe_of(instruction, target.spec), reverse=False))
    with np.errstate(all="ignore"):
        machine.run([np.empty_like(place) for place in machine.inputs])
    constant, dtype = fused.constant_value(program, machine.outputs[0].copy()), target.spec.dtype
    copy = fused.CONVERSIONS.get((dtype, dtype), fused.COPY)
    return fused.mapped(copy, target.spec.shape, (constant,), target, target.spec.strides, (False,))


def product(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    """Return a matrix product as a call of BLAS."""
    placed = _CallMemory(instruction, program, in_order=False)
    return placed.statements(product_call(*placed.operands, placed.result, wanted_of(instruction)))


def wanted_of(instruction: RolledInstruction) -> tuple[bool, ...]:
    """Return which operands' gradients are wanted."""
    return tuple([isinstance(operand, Ref) and operand.wanted for operand in instruction.operands])


def _check(operand: Any, op: Op) -> None:
    """Raise Uncompiled where an operand has no memory, a copy of it would not do, or what has no gradient wants one."""
    if isinstance(operand, Numbers):
        raise Uncompiled("a number that changes from step to step")
    if not isinstance(operand, Ref):
        return
    dtype = operand.spec.dtype
    if operand.wanted and dtype not in FLOATS:
        raise Uncompiled(f"{dtype} with a gradient")
    if not is_dense(operand.spec) and (dtype not in _COPIED or isinstance(op, Gather)):
        raise Uncompiled(f"{op.name} of strides {operand.spec.strides}")


def guard_of_array(instruction: RolledInstruction, x: Ref, program: RolledProgram) -> list[AnyStatement]:
    """Return a guard of more than one element: a call that keeps what it finds."""
    spec, loop = x.spec, program.values[x.value].loop
    kept = fused.dense_value(program, spec.shape, spec.dtype, loop)
    placed = _CallMemory(replace(instruction, result=kept.value), program, in_order=True)
    places = tuple([fused.CalledOperand(k) for k in (fused.RESULT, 0, 1)])
    call = NativeCall(instruction.op.name, "", PrintedCall("dense_native.differs", places, (spec.size,)), ())
    *copies, statement = placed.statements(call)
    assert isinstance(statement, fused.CallStatement)
    statement.guards = True
    return [*copies, statement]


class _CallMemory:
    """Memory for a call: copies of what may be written afterwards, and with ``in_order`` of what is not in C order."""

    def __init__(self, instruction: RolledInstruction, program: RolledProgram, *, in_order: bool) -> None:
        self.instruction, self.program, self.in_order = instruction, program, in_order
        self.copies: list[AnyStatement] = []
        value = program.values[instruction.result]
        self.loop = value.loop
        self.target = self.result = fused.ref_to_all(program, instruction.result, wanted=instruction.form is not None)
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
        self.copies.append(fused.mapped(fused.COPY, spec.shape, (operand,), copy, copy.spec.strides, (operand.wanted,)))
        return copy

    def _new(self, spec: Spec, *, wanted: bool) -> Ref:
        """Return a new value in C order, made where the result is."""
        return fused.dense_value(self.program, spec.shape, spec.dtype, self.loop, wanted=wanted)

    def statements(self, call: NativeCall) -> list[AnyStatement]:
        """Return the call with the copies before and behind it."""
        pairs = zip(self.operands, wanted_of(self.instruction), strict=True)
        refs = [(operand, wanted) for operand, wanted in pairs if isinstance(operand, Ref)]
        operands, wanted = tuple([o for o, _ in refs]), tuple([w for _, w in refs])
        made = [*self.copies, fused.CallStatement(call, operands, self.result, wanted)]
        if self.result is not self.target:
            spec = self.target.spec
            made.append(
                fused.mapped(fused.COPY, spec.shape, (self.result,), self.target, spec.strides, (self.target.wanted,))
            )
        return made
