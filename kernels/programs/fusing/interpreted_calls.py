"""Instructions that are no statements, as calls of the interpreter: a program of one step, and its pullback."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.codegen.tasks import Comparison, Fill, NodeRef, PythonCall, Steering, UfuncCall
from kernels.foundation.data_classes import dataclass
from kernels.kinds.custom import CustomKernel
from kernels.native.tape_structs import PULLS
from kernels.programs.fusing.native_call import (
    INTERPRETER,
    INTERRUPTS,
    KERNEL,
    PYTHON,
    RESULT,
    KernelCall,
    NativeCall,
    Place,
)
from kernels.programs.interpreter.machine import Machine, plan, pullback_plan
from kernels.programs.lowering.assembly import Plan
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import StepKind
from kernels.programs.rolling.rolled_program import Instruction, Ref

Array = np.ndarray[Any, Any]
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
"""Of a kernel: layout, pointers, whether it adds. Whoever calls it need not hold the interpreter's lock."""
_NO_KERNELS = Comparison, Fill, PythonCall, Steering, UfuncCall
"""Tasks that are called otherwise than kernels."""
_NO_LAYOUT = np.zeros(1, np.int64)


def interpreted_call(instruction: Instruction, spec: Spec, wanted: tuple[bool, ...]) -> NativeCall:
    """Return a call that does what an instruction does on dense operands, with a result of this spec."""
    name, recipe = instruction.op.name, _recipe_of(instruction, spec)
    forward = plan(recipe, reverse=False)
    kernel, pulls = _kernel_of(forward, len(recipe.arguments)), _pulls_of(recipe, wanted)
    if kernel is not None and pulls is not None:
        return NativeCall(name, KERNEL, kernel, pulls)
    refs = [k for k, operand in enumerate(instruction.operands) if isinstance(operand, Ref)]
    places = tuple(map(Place, range(len(refs))))
    pullbacks: tuple[KernelCall, ...] = ()
    if any(wanted):
        gradients = tuple([Place(k, gradient=True) for k, at in enumerate(refs) if wanted[at]])
        back = _Interpreted(pullback_plan(recipe), adds=True)
        pullbacks = (back.call((*gradients, *places, Place(RESULT, gradient=True))),)
    by = PYTHON if any(isinstance(call, PythonCall) for call in forward.tasks.calls) else INTERPRETER
    return NativeCall(name, by, _Interpreted(forward, adds=False).call((Place(RESULT), *places)), pullbacks)


def _kernel_of(forward: Plan, operands: int) -> KernelCall | None:
    """Return the one kernel that a plan is, called on operands and result alone; None if it is more."""
    tasks = forward.tasks
    if len(tasks) != 1 or isinstance(tasks.calls[0], _NO_KERNELS) or tasks.offsets or max(tasks.places) > operands:
        return None
    places = tuple([Place(RESULT if node == operands else node) for node in tasks.places])
    return _kernel(tasks.calls[0], places)


def _kernel(task: Any, places: tuple[Place, ...], *, adds: bool = False) -> KernelCall:
    address, layout = task.kernel()
    fails = isinstance(task, CustomKernel)
    layout = task.layout(tells=True) if fails else layout
    return KernelCall(address, layout, places, adds=adds, fails=fails, owner=task)


def _pulls_of(recipe: Recipe, wanted: tuple[bool, ...]) -> tuple[KernelCall, ...] | None:
    """Return the pullbacks of a recipe's one step that are kernels on operands and result; None if any is not."""
    step = recipe.steps[0]
    form = step.form
    if form is None or not any(wanted):
        return ()
    if form.kind != PULLS or not {"y", *form.op.inputs}.issuperset(form.saved):
        return None
    saved = [RESULT if name == "y" else _number(step.operands[form.op.inputs.index(name)]) for name in form.saved]
    pulls = [(_number(o), pull) for o, pull, want in zip(step.operands, form.pulls, wanted, strict=True) if want]
    if any(place is None for place in saved) or any(pull is None for _, pull in pulls):
        return None
    reads = (Place(RESULT, gradient=True), *map(Place, saved))
    return tuple([_kernel(pull, (Place(k, gradient=True), *reads), adds=True) for k, pull in pulls])


def _number(operand: Any) -> Any:
    """Return the number of an operand that is one of the arrays."""
    return operand.node if isinstance(operand, NodeRef) else None


def _recipe_of(instruction: Instruction, spec: Spec) -> Recipe:
    """Return a recipe of this instruction alone."""
    nodes, words, numbers = [], [], []
    for operand in instruction.operands:
        if isinstance(operand, Ref):
            words.append(len(nodes))
            nodes.append(Node(operand.spec, differentiable=operand.wanted, argument=True))
        else:
            numbers.append(operand)
            words.append(-len(numbers))
    result, arguments, form = len(nodes), [*range(len(nodes))], instruction.form
    nodes.append(Node(spec, differentiable=form is not None))
    recipe = Recipe(nodes, arguments=arguments, outputs=[result])
    if form is not None:
        pairs = zip(form.specs, instruction.operands, strict=True)
        specs = tuple([None if known is None else getattr(o, "spec", None) for known, o in pairs])
        form = instruction.op.reformed(form, specs, spec)
    recipe.steps.kinds.append(StepKind(instruction.op, form, instruction.params, len(words)))
    recipe.steps.numbers.extend(numbers)
    recipe.steps.add(0, result, words)
    for params, of_extra in instruction.extras:
        nodes.append(Node(of_extra))
        recipe.steps.kinds.append(StepKind(instruction.op, None, params, len(words)))
        recipe.steps.add(len(recipe.steps.kinds) - 1, len(nodes) - 1, words)
    return recipe


class _Interpreted:
    """A plan that is called as a kernel: results first, then arguments. It keeps nothing between calls."""

    def __init__(self, plan: Plan, *, adds: bool) -> None:
        self.machine = Machine(plan, marks=adds)
        self.adds, self.idle = adds, [self.machine]
        self.function = _SIGNATURE(self._run)

    def call(self, places: tuple[Place, ...]) -> KernelCall:
        """Return the call on these places."""
        address = ctypes.cast(self.function, ctypes.c_void_p).value
        assert address is not None
        return KernelCall(address, _NO_LAYOUT, places, adds=self.adds, fails=True, owner=self)

    def _run(self, layout: int, pointers: int, adds: int) -> None:
        """Run; whatever Python raises is raised again by the interpreter, which runs the whole program then."""
        del layout, adds
        count = len(self._results) + len(self.machine.inputs)
        words = (ctypes.c_int64 * (count + 1)).from_address(pointers)
        try:
            self._compute([*words[:count]])
        except Exception:  # noqa: BLE001 (it cannot pass through native code)
            words[count] = 1
        except BaseException as error:  # noqa: BLE001
            INTERRUPTS.append(error)
            words[count] = 1

    @property
    def _results(self) -> list[Array]:
        return self.machine.gradients if self.adds else self.machine.outputs

    def _compute(self, addresses: list[int]) -> None:
        machine = self._taken()
        try:
            results = machine.gradients if self.adds else machine.outputs
            for place, address in zip(machine.inputs, addresses[len(results) :], strict=True):
                place[...] = _array(place, address)
            machine.run(machine.forward)
            if self.adds:
                machine.run(machine.reverse)
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


@dataclass(slots=True)
class _Memory:
    """Memory that NumPy reads as an array."""

    __array_interface__: dict[str, Any]


def _array(like: Array, address: int) -> Array:
    """Return the array at an address, dense, of the shape and dtype of another."""
    interface = {"data": (address, False), "shape": like.shape, "typestr": like.dtype.str, "version": 3}
    return np.asarray(_Memory(interface))
