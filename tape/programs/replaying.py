"""Replays as operations of other functions: native forward, and differentiable through the recorded rules.

A replay among operations is recorded as one, by its arguments. Its backward is a native replay where that suffices:
for one number whose gradient is not differentiated again. Otherwise the program is run on tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.instructions.exposed_memory import kept_arguments
from kernels.programs.recording.program import Recipe
from tape.engine.backward import grad
from tape.engine.forward_mode import filled_with, fresh_input, needs_graph, pulled, settle, zeros_for
from tape.engine.rules.custom_function import Function
from tape.func import jvp
from tape.programs.interpreting import interpreted
from tape.programs.pulling import SAVED
from tape.recording.views import clone
from tape.tensors import grad_modes, modes
from tape.tensors.tensor import Tensor, constant_tensor, scalar_or_array


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
        with grad_modes.enable_grad():
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
        with grad_modes.enable_grad():
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
    with grad_modes.enable_grad():
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
