"""Calls within a recording: functions, raised errors, numbers compared, sameness of objects."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec
from kernels.kinds import reference_tape
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.routine import Callback, Routine, computed
from kernels.kinds.views import Gather, Write
from kernels.native.structs import ADDS, CLEARS, PULLS, VIEW
from kernels.programs.machine import GuardMissed
from kernels.programs.program import Recipe, Step
from kernels.programs.recording import Tables
from kernels.rules.scalar_loops import NodeRef, node_of
from tape.engine import custom_function
from tape.engine.custom_function import CustomCall
from tape.engine.kinds import kind_of
from tape.engine.saved_tensors import SavedTensors
from tape.random import Draw
from tape.recording.foreign_calls import TensorCall
from tape.tensors import modes
from tape.tensors.bytecode import users_frame
from tape.tensors.modes import Observer
from tape.tensors.recorder import same_params
from tape.tensors.tensor import Tensor, as_array, constant_tensor, leaf, scalar_or_array
from tape.tensors.view_families import base_of, is_view
from tape.watching.number_uses import OPERATORS, Compared, compared_in

# What operations raise while a call is recorded that goes on, since the function catches it: guards of the program.

RAISED = Callback(name="caught error", doc="Which error a routine raises.", pullback=(), grad_fn="")
"""A step that runs a routine for its error alone."""


class Attempt:
    """A routine that is tried: 0 where it raises nothing, else a number for the class and the text of the error."""

    graded = ()

    def __init__(self, op: Routine, params: dict[str, Any]) -> None:
        self.op, self.params = op, params

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attempt) or other.op is not self.op:
            return False
        return same_params(sorted(self.params.items()), sorted(other.params.items()))

    def __hash__(self) -> int:
        return hash(self.op)

    def __str__(self) -> str:
        return self.op.name

    def run(self, values: list[Array]) -> tuple[list[Array], None]:
        """Run the routine; return which error it raises."""
        try:
            computed(self.op, values, self.params)
        except Exception as error:  # noqa: BLE001 (whichever it is)
            return [np.array(number_of(error))], None
        return [np.array(0.0)], None

    def gradients(self, g: Array, saved: dict[str, Any], specs: tuple[Any, ...]) -> list[Array | None]:
        """Return none: errors have no gradient."""
        return [None] * len(specs)

    def on_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Run on the values of tensors."""
        return [constant_tensor(float(x)) for x in self.run(list(map(as_array, tensors)))[0]]


def number_of(error: Exception) -> float:
    """Return a number for what the caller can see of an error: its class and its text."""
    return 1.0 + zlib.crc32(f"{type(error).__qualname__}: {error}".encode())


# Calls of an ``autograd.Function`` in compiled functions: Python between native stretches, forward and back.

_TENSOR = object()  # stands for a tensor among the arguments of a call
_FIXED = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic, type)


class FunctionCall:
    """A call as it was recorded: the Function, its arguments short of the values of tensors, the specs of its results.

    Raises NotImplementedError for what a program cannot call again.
    """

    def __init__(
        self, cls: Any, args: Sequence[Any], kwargs: dict[str, Any], positional: int, outputs: Sequence[Any]
    ) -> None:
        self.cls, self.kwargs, self.positional = cls, kwargs, positional
        self.name = f"the Function {cls.__name__}"
        self.arrays = modes.given_arrays()
        self.args = [_TENSOR if isinstance(x, Tensor) else x for x in args]
        self.needs = [isinstance(x, Tensor) and x._slot is not None for x in args]
        for x in (*self.args, *kwargs.values()):
            if x is not _TENSOR and not _is_fixed(x):
                raise NotImplementedError(f"{self.name} takes a {type(x).__name__}")
        for x in outputs:
            if not isinstance(x, Tensor):
                raise NotImplementedError(f"{self.name} returns a {type(x).__name__}")
            if is_view(x) or any(x is a for a in args):
                raise NotImplementedError(f"{self.name} returns an argument, or a view")
        self.specs = [x.spec for x in outputs]
        self.graded = [x._slot is not None for x in outputs]  # which results have a gradient
        if len({spec.dtype for spec in self.specs}) > 1:
            raise NotImplementedError(f"{self.name} returns several dtypes")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionCall) and same_params(self._identity(), other._identity())

    def __hash__(self) -> int:
        return hash((self.cls, len(self.args)))

    def _identity(self) -> tuple[Any, ...]:
        keywords = tuple(sorted(self.kwargs.items()))
        needs = tuple(self.needs), tuple(self.specs), tuple(self.graded)
        return self.cls, tuple(self.args), keywords, *needs, self.arrays

    def __str__(self) -> str:
        return str(self.cls.__name__)

    def _filled(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        remaining = iter(tensors)
        return tuple([next(remaining) if x is _TENSOR else x for x in self.args])

    def run(self, values: list[Array]) -> tuple[list[Array], Instruction | None]:
        """Run forward; return the results, and what the tape would save if one has a gradient."""
        needs = [need for need, x in zip(self.needs, self.args, strict=True) if x is _TENSOR]
        tensors = [leaf(scalar_or_array(x), requires_grad=need) for x, need in zip(values, needs, strict=True)]
        args = self._filled(tensors)
        ctx, _, outputs = modes.call_given(self.arrays, custom_function.ran, self.cls, args, self.kwargs)
        specs = [(x.spec.shape, x.spec.dtype) if isinstance(x, Tensor) else None for x in outputs]
        if specs != [(spec.shape, spec.dtype) for spec in self.specs] or ctx._dirty:
            raise GuardMissed(-1, b"", self.name)
        results = [as_array(x) for x in outputs]
        if not any(self.graded):
            return results, None
        graded = [k for k, has in enumerate(self.graded) if has]
        call = CustomCall(self.cls, ctx, args, outputs, graded, self.positional)
        kept, call.outputs = call.values(), [None] * len(outputs)  # saved outputs are values: no tape has them
        sources = tuple([x.spec if need else None for x, need in zip(tensors, needs, strict=True)])
        form = reference_tape.function(f"{self.cls.__name__}Backward", sources, None, len(kept))
        return results, Instruction(0, 0, 0, tuple([x._slot for x in tensors]), (call, *kept), form)

    def gradients(self, g: Array, saved: dict[str, Any], specs: tuple[Spec | None, ...]) -> list[Array | None]:
        """Run backward on the cotangents of the results that one has reached."""
        instruction = saved["context"]
        ends = np.cumsum([spec.size for spec in self.specs]).tolist()
        flat = zip(self.specs, ends, strict=True)
        parts = [g] if len(ends) == 1 else [g[end - spec.size : end].reshape(spec.shape) for spec, end in flat]
        arrived = {
            k: part for k, part in enumerate(parts) if self.graded[k] and np.any((part != 0.0) | ~np.signbit(part))
        }
        if not arrived:
            return [None] * len(instruction.form.specs)
        return instruction.saved[0].pull(instruction, None, {instruction.slot: arrived}, batch=0)  # type: ignore[no-any-return]

    def on_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Call the Function as in dynamic mode."""
        result = modes.call_given(self.arrays, self.cls.apply, *self._filled(tensors), **self.kwargs)
        return list(result) if isinstance(result, (tuple, list)) else [result]


class Inside(Observer):
    """Watches forward while a call is recorded: it may use its arguments, and nothing else that the call made.

    A write is looked at before it is made, and so is that before which an element gets memory of its own.
    """

    def __init__(self, knows: Callable[[Tensor], bool], stop: Callable[[str], None], args: Sequence[Any]) -> None:
        self._knows, self._stop = knows, stop
        self._args = {id(x) for x in args if isinstance(x, Tensor)}

    def _look(self, *tensors: Any) -> None:
        for x in tensors:
            mine = isinstance(x, Tensor) and (id(x) in self._args or id(base_of(x)) in self._args)
            if isinstance(x, Tensor) and not mine and self._knows(x):
                self._stop("a Function that uses more of the call than its arguments")

    def _changes(self, x: Tensor) -> None:
        if self._knows(x):
            self._stop("a Function that changes its arguments")

    def notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        """Look at the operands of an operation."""
        self._look(*operands)

    def overwrites(self, x: Tensor, value: Any) -> None:
        """Look at a write, or at a tensor that takes over another's value."""
        self._look(value)
        self._changes(x)

    taken = overwrites

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Look at a tensor that gets another's memory."""
        self.overwrites(x, other)

    def becomes_view(self, x: Tensor, name: str) -> None:
        """Look at a tensor that changes its shape."""
        self._changes(x)

    def note_unrecorded(self, tensor: Tensor | None, what: str) -> None:
        """Look at what is used."""
        self._look(tensor)

    def note_drawn(self, tensor: Tensor, draw: Draw) -> None:
        """Refuse: replays draw before they run."""
        self._stop("a Function that draws random numbers")

    def note_escape(self, tensor: Tensor) -> None:
        """Look at what becomes NumPy's, or Python's: each replay calls the Function, which asks anew."""
        self._look(tensor)

    note_number = note_escape


def _is_fixed(x: Any) -> bool:
    return all(map(_is_fixed, x)) if type(x) is tuple else isinstance(x, _FIXED) or callable(x)


_PART_AND_VALUE = 2


class KnownTensors:
    """The tensors of a recorder by node and by slot, and the steps that made them."""

    def __init__(self, tables: Tables, recipe: Recipe) -> None:
        self._tables, self._recipe = tables, recipe
        self._seen = self._steps = 0
        self._by_node: dict[int, int] = {}
        """Where they are among the results that are held, so that nothing more holds them."""
        self._by_slot: dict[int, int] = {}
        self._made: dict[int, int] = {}
        self._written: dict[int, int] = {}  # the last step that wrote to the memory of a node
        self._placed: dict[int, list[Step]] = {}  # the writes to places, by the node whose memory it is
        self.earliest = 0  # the first step whose gradient was asked for, since it was set

    def _catch_up(self) -> None:
        tables = self._tables
        held = tables.results
        for at in range(self._seen, len(held)):
            node = None if held[at] is None else tables.node_of(held[at])
            if node is not None:
                self._by_node[node] = at
                if type(held[at]._slot) is int:
                    self._by_slot[held[at]._slot] = node
        self._seen = len(held)
        for at in range(self._steps, len(tables.steps)):
            kind, result, operands, _ = tables.steps.raw(at)
            step = tables.steps.kinds[kind]
            if isinstance(step.op, Write):
                base = self._recipe.base_of(result)
                self._written[base] = at
                if step.params or len(operands) > _PART_AND_VALUE:
                    self._placed.setdefault(base, []).append(tables.steps[at])
            else:
                self._made[result] = at
        self._steps = len(tables.steps)

    def first(self, tensors: Iterable[Tensor]) -> int:
        """Return the first step that made one of some tensors; 0 where one was not made by a step."""
        self._catch_up()
        return min((self._made.get(self._tables.node_of(x), 0) for x in tensors), default=0)  # type: ignore[arg-type]

    def saved_by(self, instruction: Instruction) -> tuple[Any, ...] | None:
        """Return what an instruction saved, as tensors that are known; None where that is not possible."""
        form = instruction.form
        self._catch_up()
        node = self._by_slot.get(instruction.slot, -1)
        self.earliest = min(self.earliest, self._made.get(node, self._steps))
        if form.kind in (CLEARS, ADDS) and type(instruction.operands[0]) is int:
            self._by_slot.setdefault(instruction.operands[0], node)  # the version before, of the same node
        if form.kind == VIEW or form.kind in (CLEARS, ADDS):
            return self._where(instruction, node)
        if node not in self._made:
            return None
        step = self._tables.steps[self._made[node]]
        runs_routine = isinstance(form.op, Routine) and type(next(iter(instruction.saved), None)) is TensorCall
        if step.op is not form.op or not (form.kind == PULLS or runs_routine):
            return None
        if isinstance(form.op, Gather):
            return self._places(instruction.saved, step)
        if not kind_of(form.op).is_followed:
            return None
        pairs = zip(form.saved, instruction.saved, strict=True)
        saved = tuple([self._saved(name, value, instruction, step) for name, value in pairs])
        return None if any(x is None for x in saved) else saved

    def _saved(self, name: str, value: Any, instruction: Instruction, step: Step) -> Any:
        """Return a saved value as a tensor, or number, that is known; None where it is not."""
        op, form = instruction.form.op, instruction.form
        if name == "y":
            return self._wanted(step.result, instruction.slot, step.at, value, form.spec)
        if name not in op.inputs:  # how many elements a shape has, if that is all it is; a routine's parameters
            return value if type(value) is TensorCall or (name == "n" and not getattr(op, "selects", False)) else None
        i = op.inputs.index(name)
        operand = step.operands[i]
        if not isinstance(operand, NodeRef):
            return value
        if instruction.operands[i] is not None:
            return self._wanted(operand.node, instruction.operands[i], step.at, value, form.specs[i])
        if self._is_written(operand.node, step.at):
            return None
        return self._held(constant_tensor(scalar_or_array(value)), operand.node)

    def _where(self, instruction: Instruction, node: int) -> tuple[Any, ...] | None:
        """Return where a view, or what was written, is: a part, which does not vary, or places, which may."""
        if instruction.form.kind == VIEW or len(instruction.saved) == 1:
            return instruction.saved
        by_base = [self._placed.get(self._recipe.base_of(node), [])] if node >= 0 else self._placed.values()
        placed = [step for steps in by_base for step in steps]
        if all(step.params for step in placed):
            return instruction.saved
        return self._places(instruction.saved, placed[0]) if node >= 0 and len(placed) == 1 else None

    def _places(self, saved: tuple[Any, ...], step: Step) -> tuple[Any, ...] | None:
        """Return what was saved, with the last, the places of a step, as a tensor where the program computes them."""
        if step.params:
            return saved
        node = node_of(step.operands[-1])
        if self._is_written(node, step.at):
            return None
        return (*saved[:-1], self._held(constant_tensor(scalar_or_array(saved[-1])), node))

    def _held(self, x: Tensor, node: int) -> Tensor:
        self._tables.made(x)
        self._tables.know(x, node)
        return x

    def _wanted(self, node: int, slot: Any, since: int, value: Any, spec: Any) -> Tensor | None:
        """Return a saved value as the tensor that is known, or a new one where that has taken over another's value."""
        if self._is_written(node, since):
            return None
        x = self._tables.results[self._by_node[node]] if node in self._by_node else None
        if x is None and self._recipe.nodes[node].base is None and type(slot) is int:
            return self._held(SavedTensors([]).tensor(slot, value, spec), node)
        return x if isinstance(x, Tensor) and x._slot == slot else None

    def _is_written(self, node: int, since: int) -> bool:
        return self._written.get(self._recipe.base_of(node), -1) > since


_LARGEST = 1 << 53  # integers up to this are floats, too
_CONVERSIONS = {
    ("tape.recording.to_python", "item"): "item",
    ("tape.numpy_interface.protocols", "_item"): "item",
    ("tape.recording.to_python", "to_float"): "float",
    **dict.fromkeys((("tape.recording.to_python", name) for name in ("to_int", "formatted")), "shown"),
    ("tape.recording.attributes", "representation"): "shown",
}
"""What users call the functions of this package that give numbers, by where these are."""


def comparisons_of(x: Tensor, streams: Sequence[Any]) -> list[Tensor] | None:
    """Return the comparisons for which alone a tensor becomes a number, or a text to be shown: bools of no dimensions.

    None if more becomes of it. The comparisons are recorded, and have the values that Python's have.
    """
    frame, steps = users_frame(sys._getframe(1))
    inner = sys._getframe(steps)
    how = _CONVERSIONS.get((inner.f_globals.get("__name__", ""), inner.f_code.co_name))
    compared = None if how is None or frame is None else compared_in(frame, how, streams)
    of_float, of_int = x.spec.dtype.kind == "f", x.spec.dtype == np.int64
    for each in compared or ():  # where tensors are not compared as Python's numbers are
        is_int = type(each.other) is int
        if (is_int and abs(each.other) > _LARGEST) or not (of_float or (of_int and is_int)):
            return None
    return None if compared is None else [_made(x.detach(), each) for each in compared]


def _made(x: Tensor, compared: Compared) -> Tensor:
    if x.spec.dtype.kind == "f" and x.spec.dtype != np.float64:
        x = x.double()
    if x.spec.shape:
        x = x.reshape(())
    result: Tensor = OPERATORS[compared.operator](abs(x) if compared.absolute else x, compared.other)
    return result
