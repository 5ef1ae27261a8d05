"""Replays as operations of other functions: native forward, and differentiable through the recorded rules.

A replay among operations is recorded as one, by its arguments. Its backward is a native replay where that suffices:
for one number whose gradient is not differentiated again. Otherwise the program is run on tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import SCALAR, Array, Spec
from kernels.kinds.reference_tape import Instruction
from kernels.kinds.saved_values import kept_arguments, unexposed
from kernels.native.structs import LARGE
from kernels.programs.program import Recipe
from tape.engine.backward import grad
from tape.engine.custom_calls import CustomCall, FunctionCtx
from tape.engine.custom_function import Function
from tape.func import jvp
from tape.programs.interpreting import interpreted
from tape.programs.pulling import SAVED, CallForm, Pulling
from tape.recording import record
from tape.recording.views import clone
from tape.tensors import hooks, modes
from tape.tensors.hooks import Hooks
from tape.tensors.tensor import Tensor, constant_tensor, new, scalar_or_array
from tape.transforms.forward_mode import filled_with, fresh_input, needs_graph, pulled, settle, zeros_for


class Replay(Function):
    """The results of a program, as functions of its arguments."""

    @staticmethod
    def forward(ctx: Any, program: Any, *arguments: Any) -> Any:
        """Replay."""
        _save(ctx, program, arguments)
        results = tuple(map(constant_tensor, program._replayed(arguments)))
        recipe = program._recipe
        constant = [y for y, node in zip(results, recipe.outputs, strict=True) if not recipe.wants(node)]
        ctx.mark_non_differentiable(*constant)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Replay backward, or differentiate the program run on tensors."""
        recipe, arguments = ctx.program._recipe, _restored(ctx)
        if len(cotangents) == 1 and recipe.nodes[recipe.outputs[0]].spec.size == 1 and not modes.is_grad_enabled():
            if cotangents[0] is None:
                return (None,) * (1 + len(arguments))
            replayed = iter(ctx.program._replayed_back(arguments)[1])
            nodes = [recipe.nodes[node] for node in recipe.arguments]
            gradients = [constant_tensor(next(replayed)) if node.differentiable else None for node in nodes]
            g = cotangents[0].reshape(())
            return None, *(
                None if x is None or not n else x * g for x, n in zip(gradients, ctx.needs_input_grad[1:], strict=True)
            )
        with hooks.enable_grad():
            inputs, places = _inputs(ctx, arguments)
            pairs = [
                (y, g)
                for y, g in zip(interpreted(recipe, inputs), cotangents, strict=True)
                if g is not None and y._slot is not None
            ]
        return _placed(inputs, places, *zip(*pairs, strict=True)) if pairs else (None,) * (1 + len(arguments))

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        """Push tangents through the program run on tensors."""
        recipe = ctx.program._recipe
        return _pushed(lambda inputs: tuple(interpreted(recipe, inputs)), _restored(ctx), tangents)


class ReplayGradient(Function):
    """The value of a program and its gradients, as functions of its arguments."""

    @staticmethod
    def forward(ctx: Any, program: Any, *arguments: Any) -> Any:
        """Replay forward and backward."""
        _save(ctx, program, arguments)
        values, gradients = program._replayed_back(arguments)
        return tuple(map(constant_tensor, (*values, *gradients)))

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Differentiate the program, run on tensors, and its gradients."""
        arguments = _restored(ctx)
        with hooks.enable_grad():
            inputs, places = _inputs(ctx, arguments)
            results = value_and_gradients(ctx.program._recipe, inputs, create=True)
            pairs = [(y, g) for y, g in zip(results, cotangents, strict=True) if g is not None and y._slot is not None]
        return _placed(inputs, places, *zip(*pairs, strict=True)) if pairs else (None,) * (1 + len(arguments))

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        """Push tangents through the gradients of the program run on tensors."""
        recipe = ctx.program._recipe
        return _pushed(lambda inputs: tuple(value_and_gradients(recipe, inputs, create=True)), _restored(ctx), tangents)


def value_and_gradients(recipe: Recipe, arguments: Sequence[Any], *, create: bool | None = None) -> list[Tensor]:
    """Run a program on tensors; return its results, and the gradients of the first by each differentiable argument.

    ``create``: record how gradients are computed, or, for None, if anything but the arguments requires grad.
    """
    with hooks.enable_grad():
        pairs = list(zip(arguments, recipe.arguments, strict=True))
        inputs = [_input_of(x) if recipe.nodes[node].differentiable else x for x, node in pairs]
        written = [isinstance(x, Tensor) and node in recipe.written for x, (_, node) in zip(inputs, pairs, strict=True)]
        results = interpreted(recipe, [clone(x) if w else x for x, w in zip(inputs, written, strict=True)])
        wanted = [x for x, (_, node) in zip(inputs, pairs, strict=True) if recipe.nodes[node].differentiable]
        y = results[0]
        gradients = zeros_for(pulled([y], wanted, [filled_with(1.0, y)], create=create, retain=True), wanted)
        settle(wanted)
    return [x if x._slot is None or create or needs_graph([x], wanted) else x.detach() for x in (*results, *gradients)]


def _input_of(argument: Any) -> Tensor:
    """Return an argument as a tensor to differentiate by, linked to what it was computed from."""
    if not isinstance(argument, Tensor):
        argument = constant_tensor(scalar_or_array(np.array(argument)))
    return fresh_input(argument)


def _save(ctx: Any, program: Any, arguments: Sequence[Any]) -> None:
    ctx.program = program
    ctx.arguments = kept_arguments([SAVED if isinstance(x, Tensor) else x for x in arguments])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*(x for x in arguments if isinstance(x, Tensor)))


def _restored(ctx: Any) -> list[Any]:
    saved = iter(ctx.saved_tensors)
    return [next(saved) if x is SAVED else x for x in ctx.arguments]


def _inputs(ctx: Any, arguments: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the arguments, and the places of those that are to be differentiated by, as tensors that can be."""
    places = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
    return [_input_of(x) if i in places else x for i, x in enumerate(arguments)], places


def _placed(inputs: list[Any], places: list[int], outputs: Any, cotangents: Any) -> tuple[Any, ...]:
    """Return the gradient of each argument, and None for the program."""
    gradients = grad(
        outputs, [inputs[i] for i in places], cotangents, create_graph=modes.is_grad_enabled(), allow_unused=True
    )
    by_place = dict(zip(places, gradients, strict=True))
    return None, *(by_place.get(i) for i in range(len(inputs)))


def _pushed(run: Any, arguments: list[Any], tangents: Sequence[Any]) -> Any:
    places = [i for i, t in enumerate(tangents) if t is not None]

    def of_those(*xs: Tensor) -> Any:
        inputs = list(arguments)
        for i, x in zip(places, xs, strict=True):
            inputs[i] = x
        return run(inputs)

    return jvp(of_those, tuple(arguments[i] for i in places), tuple(tangents[i] for i in places))[1]


# A replay among recorded operations: one instruction, whose pullback is a native replay forward and back.


class ReplayCall(CustomCall):
    """What the tape saves of a replay: the program and its arguments; results are computed anew."""

    cls = Replay
    hooks: Hooks | None = None
    _context: FunctionCtx | None = None

    def __init__(self, program: Any, arguments: list[Any], needs: list[bool]) -> None:
        self._program, self.arguments, self.needs = program.pinned(), arguments, needs

    @property
    def program(self) -> Any:
        """The program, with what it read from outside then."""
        return self._program()

    @property
    def positional(self) -> int:  # type: ignore[override]
        """The count of positional arguments, the program first."""
        return len(self.needs)

    @property
    def constant(self) -> frozenset[int]:  # type: ignore[override]
        """The numbers of outputs that have no gradient."""
        return self.program.pulling.constant  # type: ignore[no-any-return]

    @property
    def specs(self) -> list[Any]:  # type: ignore[override]
        """The specs of the outputs."""
        return self.program.pulling.specs  # type: ignore[no-any-return]

    @property
    def is_tensor(self) -> list[bool]:  # type: ignore[override]
        """Whether each argument is a tensor."""
        return [False, *[x is SAVED for x in self.arguments]]

    @property
    def _sources(self) -> list[tuple[str, Any]]:  # type: ignore[override]
        return [("input", k) for k in range(sum(self.is_tensor))]

    @property
    def ctx(self) -> Any:  # type: ignore[override]
        """The context that the program's rules on tensors use, made where they are asked for."""
        if self._context is None:
            self._context = ctx = FunctionCtx(tuple(self.needs))
            ctx.program = self.program  # type: ignore[attr-defined]
            ctx.arguments = self.arguments  # type: ignore[attr-defined]
            ctx.set_materialize_grads(False)
        return self._context

    def own_hooks(self, instruction: Instruction) -> Hooks:
        """Return the hooks of the call's node; from now on Python runs its pullback."""
        if len(instruction.saved) > 1 + sum(self.is_tensor):
            instruction.saved[-1][-1] = 1
        return super().own_hooks(instruction)

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Replay forward and back from the cotangents of the results; a batch of them row by row."""
        if self.hooks is not None:
            return super().pull(instruction, gradient, stash, batch=batch)
        cotangents = stash.pop(instruction.slot, {0: gradient} if len(self.specs) == 1 else {})
        saved = iter(instruction.saved[1:])
        values = [next(saved) if x is SAVED else x for x in self.arguments]
        if batch:
            rows = [
                self._pulled(values, {k: None if g is None else g[row] for k, g in cotangents.items()})
                for row in range(batch)
            ]
            return [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]
        return self._pulled(values, cotangents)

    def _pulled(self, values: list[Any], by_result: dict[int, Array | None]) -> list[Array | None]:
        """Return the gradient of each tensor among the arguments that needs one."""
        program = self.program
        cotangents = [by_result.get(k) for k in range(len(self.specs)) if k not in self.constant]
        pulling = program.pulling
        gradients = dict(zip(pulling.graded, pulling.pulled(values, cotangents), strict=True))
        reached = set().union(*[r for r, g in zip(pulling.reached, cotangents, strict=True) if g is not None])
        needed = [i for i, is_tensor in enumerate(self.is_tensor[1:]) if is_tensor]
        return [gradients.get(i) if self.needs[i + 1] and i in reached else None for i in needed]


def result_tensors(specs: Sequence[Spec], results: Sequence[Any]) -> list[Tensor]:
    """Return a replay's results as tensors; numbers come as floats, of float32 too."""
    return [
        constant_tensor(np.array(x, spec.dtype) if type(x) is float and spec is not SCALAR else x)
        for x, spec in zip(results, specs, strict=True)
    ]


def recorded(
    program: Any,
    arguments: Sequence[Any],
    results: Sequence[Any],
    values: Sequence[Any],
    memory: Array | None = None,
    known: CallForm | None = None,
) -> list[Tensor]:
    """Return the results of a replay as tensors, recorded as one instruction with these arguments.

    ``values`` are those of the arguments; ``memory`` is what the replay left, for the pullback; ``known`` the form of
    the call, if it has been looked up.
    """
    pulling: Pulling = program.pulling
    if not pulling.with_gradient:
        return result_tensors(pulling.specs, results)
    outputs = _outputs(pulling, results)
    form, table, needs, places, saved = known or pulling.call_form(arguments, kept=memory is not None)
    tensors, tape = arguments, modes.own_tape()
    if saved is None:
        tensors, values, saved = [arguments[i] for i in places], [values[i] for i in places], kept_arguments(arguments)
        for i in places:
            saved[i] = SAVED
    call = ReplayCall(program, saved, needs)
    kept: tuple[Any, ...] = () if table is None else (table, memory)
    anchor = outputs[0] if len(outputs) == 1 else new(Tensor)
    values = unexposed(form, tuple(values))[1]
    tape.record(anchor, form.code, tuple([x._slot for x in tensors]), (call, *values, *kept))
    if len(outputs) > 1:
        forms = pulling.kept_outputs if kept else pulling.outputs
        slots = (anchor._slot,)
        for k in pulling.with_gradient:
            form, source = forms[k]
            tape.record(outputs[k], form.code, slots, (source,))
        if kept and outputs[k]._slot != slots[0] + len(pulling.with_gradient):
            kept[1][-1] = 1  # a finalizer has recorded something between them: Python finds the results
    if memory is None or memory.nbytes >= LARGE:
        for k in pulling.with_gradient:
            record.watch(tape, outputs[k], tuple(arguments))
    call.outputs = tuple([y._slot for y in outputs])
    return outputs


def _outputs(pulling: Pulling, results: Sequence[Any]) -> list[Tensor]:
    """Return tensors for results; those that have a gradient get slot and form where they are recorded."""
    outputs = []
    if pulling.direct:
        for x in results:
            y = new(Tensor)
            y._value = x
            outputs.append(y)
        return outputs
    for x, spec, constant in zip(results, pulling.specs, pulling.without, strict=True):
        value = x if type(x) is not float or spec is SCALAR else np.array(x, spec.dtype)
        y = constant_tensor(value) if constant else new(Tensor)
        y._value = value
        outputs.append(y)
    return outputs
