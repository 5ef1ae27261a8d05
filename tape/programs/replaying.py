"""Programs run on tensors: interpreted step by step, or replayed with their gradient on the tape."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import SCALAR, Array, Spec, dense
from kernels.foundation.tables import Recent, cached_property
from kernels.kinds import reference_tape
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction, kept_arguments, unexposed
from kernels.kinds.routine import Callback, Custom, Unsettled
from kernels.native.structs import GRADED, LARGE, REPLAYED, RERUN, RESULT, TAPE_BITS, FormBlock, InputBlock, KeptCalls
from kernels.programs.machine import KeptReplay, kept_replay
from kernels.programs.program import Recipe, RecipeLoop
from kernels.rules.scalar_loops import NodeRef
from tape.engine.backward import grad
from tape.engine.custom_function import CustomCall, Function, FunctionCtx, Output
from tape.engine.kind_rules import Planned
from tape.engine.kinds import GuardDiffersError
from tape.func import jvp
from tape.operations import writes
from tape.recording import record, views
from tape.recording.views import clone
from tape.tensors import grad_modes, modes, tapes
from tape.tensors.hooks import Hooks
from tape.tensors.tensor import Tensor, as_array, constant_tensor, leaf, new, scalar_or_array
from tape.transforms.batched_run import ProgramRun
from tape.transforms.points import filled_with, fresh_input, needs_graph, pulled, settle, zeros_for

# A program run on tensors, operation by operation: recorded, mapped and differentiated as in dynamic mode.


Random = np.random.Generator | None


def interpreted(recipe: Recipe, arguments: Sequence[Any], *, rounded: Random = None) -> list[Tensor]:
    """Run a program on checked arguments; return results that share no memory. Arguments that it writes are written.

    What each operation gives is moved by one rounding, ``rounded`` at random.
    """
    run = _UnbatchedRun(recipe, arguments) if rounded is None else _RoundedRun(recipe, arguments, rounded)
    modes.call_given(None, run.steps, 0, len(recipe.steps))
    results = [run.result(node) for node in recipe.outputs]
    write_back(recipe, arguments, [run.values[node] for node in recipe.arguments])
    return results


class _UnbatchedRun(ProgramRun):
    """One run of a program with its loops and guards."""

    unreachable = (
        "a program that writes to a part, with gaps, of memory from outside cannot be differentiated as a part of "
        "another function; let the function copy it first"
    )

    def __init__(self, recipe: Recipe, arguments: Sequence[Any]) -> None:
        super().__init__(recipe, recipe.steps.numbers, {})
        self._loops = {loop.begin: loop for loop in recipe.steps.loops()}
        for node, argument in zip(recipe.arguments, arguments, strict=True):
            if node in recipe.written and isinstance(argument, Tensor):
                writes.check(argument, "program")
            self.values[node] = self._taken(node, argument)

    def _taken(self, node: int, argument: Any) -> Tensor:
        """Return an argument as a C-contiguous tensor that may be written to, if the program does."""
        spec = self.nodes[node].spec
        if not isinstance(argument, Tensor):
            return constant_tensor(scalar_or_array(np.array(argument, spec.dtype, order="C")))
        x = argument if argument.spec.dtype == spec.dtype else record.to_dtype(argument, spec.dtype)
        ordered = x.spec.strides == dense(spec.shape, spec.dtype.itemsize)
        return views.clone(x) if node in self.recipe.written or not ordered else x

    def first(self, node: int) -> None:
        """Compute a constant, or a part of one, as a tensor of its own, or a view that no step made."""
        entry, memory = self.nodes[node], self.nodes[self.recipe.base_of(node)].constant
        if memory is None:
            self.values[node] = self.part(node)
            return
        spec, part = entry.spec, np.empty(entry.spec.shape, entry.spec.dtype)
        if spec.size:
            part = np.ndarray(spec.shape, spec.dtype, memory.ravel("K"), entry.offset, spec.strides)
            part = part.copy(order="K" if entry.base is None else "C")
        self.values[node] = constant_tensor(scalar_or_array(part) if spec.size else part)

    def steps(self, at: int, stop: int) -> None:
        """Run some steps, in order; loops as often as they go on."""
        while at < stop:
            number, result, operands, _ = self.recipe.steps.raw(at)
            kind = self.recipe.steps.kinds[number]
            if at in self._loops:
                at = self._loop(self._loops[at], operands)
            else:
                self.step(kind, operands, result, graded=kind.form is not None)
                at += 1

    def _loop(self, loop: RecipeLoop, operands: Sequence[int]) -> int:
        """Run a loop; return the step behind it."""
        most = int(as_array(self.tensor(operands[-1]))) if loop.has_count else loop.limit
        done = 0
        while most is None or done < most:
            updates = self._iteration(loop.bodies)
            if updates is None and loop.counted:
                raise GuardDiffersError(f"the loop at {loop.line} goes another way than when the program was recorded")
            if updates is None:
                break
            self.values.update(zip(loop.phis, updates, strict=True))
            done += 1
        return loop.end + 1

    def _iteration(self, bodies: list[tuple[int, int]]) -> list[Tensor] | None:
        """Run the body whose guards hold; return what the next iteration starts from, None if there is none."""
        before = dict(self.values)
        for first, last in bodies:
            try:
                self.steps(first, last)
                return list(map(self.tensor, self.recipe.steps.raw(last).operands))
            except GuardDiffersError:
                pass
            finally:  # each iteration makes its own
                self.values = dict(before)
        return None

    def result(self, node: int) -> Tensor:
        """Return a result of its own memory."""
        entry, x = self.nodes[node], self.tensor(node)
        unshared = entry.base is None and entry.constant is None and not entry.argument
        outputs = self.recipe.outputs
        seen = {self.recipe.base_of(o) for o in outputs if self.nodes[o].base is not None}
        return x if unshared and outputs.count(node) == 1 and node not in seen else views.clone(x)


class _RoundedRun(_UnbatchedRun):
    """A run as another rounding may have it: each floating result is moved by one, up or down, and so are gradients.

    Stochastic arithmetic (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993).
    """

    def __init__(self, recipe: Recipe, arguments: Sequence[Any], random: np.random.Generator) -> None:
        super().__init__(recipe, arguments)
        self._random = random

    def compute(self, step: Planned, operands: Sequence[int], result: int) -> Any:
        """Return the result of a step."""
        value, entry = super().compute(step, operands, result), self.nodes[result]
        if value is None or entry.base is not None or entry.spec.dtype.kind != "f":
            return value
        moved = 1.0 + np.finfo(entry.spec.dtype).eps * self._random.choice([-1.0, 1.0], entry.spec.shape)
        return value * constant_tensor(scalar_or_array(np.array(moved, entry.spec.dtype)))


def write_back(recipe: Recipe, arguments: Sequence[Any], values: Sequence[Any]) -> None:
    """Write the final values of arguments, tensors or arrays, into those that the program writes to."""
    for node, argument, value in zip(recipe.arguments, arguments, values, strict=True):
        if node in recipe.written and isinstance(argument, Tensor):
            argument.copy_(value)
        elif node in recipe.written and isinstance(argument, np.ndarray):
            argument[...] = as_array(value) if isinstance(value, Tensor) else value


# Replays as operations of other functions: native forward, and differentiable through the recorded rules.
#
# A replay among operations is recorded as one, by its arguments. Its backward is a native replay where that suffices:
# where no hook looks on, and the gradient is not differentiated again. Otherwise the program is run on tensors.

NAME = "ReplayBackward"
_MOST_KEPT, MOST_CALLS = 4, 32
"""Calls that keep gradients though no backward was taken of the ones before, at first; twice as many each time that one
was taken of a call that had kept none, up to so many."""
SAVED = object()  # stands among the arguments of a replay for a tensor that the tape has saved
_NO_TENSOR = "no tensor"


class CallForm(NamedTuple):
    """What calls on arguments of the same patterns have in common.

    ``table`` is what a sweep runs them back by, None where Python does; ``needs`` says of the program and of each
    argument whether it requires grad, ``tensors`` which arguments are tensors, ``saved`` stands for these if all are.
    Of a program that keeps gradients, ``reached`` has the number of each tensor's, None for none.
    """

    form: Form
    table: Array | None
    needs: list[bool]
    tensors: list[int]
    saved: list[Any] | None
    reached: list[int | None]

    @property
    def runs_natively(self) -> bool:
        """Whether native code can make, and run back, calls that keep gradients, or memory."""
        role = self.form.block[FormBlock.SIZE + InputBlock.kernel]
        return role in (GRADED, REPLAYED) and self.saved is not None


class ProgramPullback:
    """The pullback of a recipe, and what the tape has to know of its results.

    ``program`` computes results and gradients from arguments, and from cotangents unless it :attr:`returns_number`;
    then ``from_cotangents`` does. ``live`` is how many arrays from outside it reads by reference. ``constant`` and
    ``with_gradient`` are the numbers of the results without and with a gradient, ``graded`` those of the arguments that
    have one.
    """

    def __init__(self, recipe: Recipe, make: Callable[..., Any], *, live: int = 0) -> None:
        self.recipe, self._make, self._live = recipe, make, live
        nodes = recipe.nodes
        self.specs = [record.dense_spec(nodes[o].spec) for o in recipe.outputs]  # as results are copied
        self.constant = frozenset(k for k, o in enumerate(recipe.outputs) if not recipe.wants(o))
        self.direct = all(s.shape or s is SCALAR for s in self.specs)
        """Whether all results are values of tensors as they come from a replay."""
        self.with_gradient = [k for k in range(len(self.specs)) if k not in self.constant]
        self.graded = [i for i, node in enumerate(recipe.arguments) if nodes[node].differentiable]
        self.outputs = [(reference_tape.output(NAME, s), Output(k, len(self.specs))) for k, s in enumerate(self.specs)]
        """Of several results: the form of the instruction that each has, and what that saves."""
        specs = [s for k, s in enumerate(self.specs) if k not in self.constant]
        self.nothing = [np.full(s.shape, -0.0, s.dtype) for s in specs]
        self._calls: Recent[tuple[Any, ...], CallForm] = Recent()
        python = any(isinstance(kind.op, (Callback, Custom)) for kind in recipe.steps.kinds)
        self.returns_number = len(self.specs) == 1 == len(specs) and specs[0].size == 1 and not python
        """Whether calls compute gradients, too, at the cotangent 1, and keep them."""
        self.program = make(at_one=self.returns_number)
        self.kept_calls = np.array([0, _MOST_KEPT], np.int64)  # KeptCalls

    @cached_property
    def from_cotangents(self) -> Any:
        """The program that computes results and gradients from arguments and cotangents."""
        return self._make(at_one=False) if self.returns_number else self.program

    @cached_property
    def kept(self) -> KeptReplay | None:
        """What replays forward and keeps the memory for the pullback; None of programs that are not fit for that."""
        return kept_replay(self.recipe, self.graded) if not (self._live or self.returns_number) else None

    def keeps_gradients(self) -> bool:
        """Whether the next call is to compute gradients: not after some of which no backward was taken."""
        calls = self.kept_calls
        if not self.returns_number or calls[KeptCalls.count] >= calls[KeptCalls.most]:
            return False
        calls[KeptCalls.count] += 1
        return True

    @cached_property
    def kept_outputs(self) -> list[tuple[Form, Output]]:
        """The ``outputs`` of a call whose memory is kept: their cotangents stay where sweeps have them."""
        forms = [reference_tape.output(NAME, spec) for spec in self.specs]
        for form in forms:
            form.block[FormBlock.SIZE + InputBlock.kernel] = RESULT
        return [(form, output) for form, (_, output) in zip(forms, self.outputs, strict=True)]

    def call_form(self, arguments: Sequence[Any], *, kept: bool) -> CallForm:
        """Return the form of a call, and what a sweep runs it back by if its memory is ``kept``."""
        specs = [
            (None if x._slot is None else x._form.spec) if isinstance(x, Tensor) else _NO_TENSOR for x in arguments
        ]
        key = (kept, *specs)
        known = self._calls.get(key)
        return known if known is not None else self._calls.setdefault(key, self._call_form(specs, kept=kept))

    def _call_form(self, specs: list[Any], *, kept: bool) -> CallForm:
        tensors = [i for i, spec in enumerate(specs) if spec is not _NO_TENSOR]
        operands = tuple([specs[i] for i in tensors])
        spec = self.specs[0] if len(self.specs) == 1 else None
        fits = all(
            s is None or (s.in_order and s.dtype == self.recipe.nodes[self.recipe.arguments[i]].spec.dtype)
            for i, s in zip(tensors, operands, strict=True)
        )
        count, table = len(tensors) + self._live, None
        reached: list[int | None] = []
        if self.returns_number:
            places = {i: k for k, i in enumerate(self.graded) if i in self.reached[0] and specs[i] is not None}
            reached, table = [places.get(i) for i in tensors], self.kept_calls
            count += len(tensors) + 1
        elif kept and fits and self.kept is not None:
            slots = [0] if spec is not None else range(1, 1 + len(self.with_gradient))
            count, table = count + 2, self.kept.table(tensors, slots, self.reached)
        form = reference_tape.function(NAME, operands, spec, count)
        if table is not None and fits:
            form.block[FormBlock.SIZE + InputBlock.kernel] = GRADED if self.returns_number else REPLAYED
        saved = [SAVED] * len(specs) if len(tensors) == len(specs) else None
        needs = [False, *[s is not None and s is not _NO_TENSOR for s in specs]]
        return CallForm(form, table, needs, tensors, saved, reached)

    def code_form(self, arguments: Sequence[Tensor]) -> Form:
        """Return the form of a call on tensors of which machine code runs the pullback."""
        specs = tuple([None if x._slot is None else x._form.spec for x in arguments])
        spec = self.specs[0] if len(self.specs) == 1 else None
        form = reference_tape.function(NAME, specs, spec, len(arguments) + self._live + 1)
        form.block[FormBlock.SIZE + InputBlock.kernel] = RERUN
        return form

    @cached_property
    def reached(self) -> list[frozenset[int]]:
        """For each result with a gradient, the numbers of the arguments that it depends on."""
        recipe, before = self.recipe, None
        masks = {recipe.family_of(recipe.arguments[i]): 1 << i for i in self.graded}
        phis = {again: loop.phis for loop in recipe.steps.loops() for _, again in loop.bodies}
        self._reach(masks, phis)
        while phis and masks != before:  # loops give what they reach to what stands before
            before = dict(masks)
            self._reach(masks, phis)
        outputs = [masks.get(recipe.family_of(recipe.outputs[k]), 0) for k in self.with_gradient]
        return [frozenset(i for i in self.graded if mask >> i & 1) for mask in outputs]

    def _reach(self, masks: dict[int, int], phis: dict[int, list[int]]) -> None:
        """Take in, step by step, what arguments each value depends on, a bit for each."""
        recipe = self.recipe
        for step in recipe.steps:
            operands = [recipe.family_of(o.node) for o in step.operands if isinstance(o, NodeRef)]
            if step.at in phis:
                for phi, update in zip(map(recipe.family_of, phis[step.at]), operands, strict=True):
                    masks[phi] = masks.get(phi, 0) | masks.get(update, 0)
            elif step.form is not None:
                result = recipe.family_of(step.result)
                masks[result] = functools.reduce(operator.or_, [masks.get(o, 0) for o in (result, *operands)])

    def pulled(self, values: Sequence[Any], cotangents: Sequence[Array | None]) -> list[Array]:
        """Return the gradients of the graded arguments; -0.0 marks elements that nothing reached.

        ``values`` are those of all arguments, ``cotangents`` those of the results that have a gradient.
        """
        filled = [n if g is None else g for g, n in zip(cotangents, self.nothing, strict=True)]
        try:
            computed = self.from_cotangents.computed([*values, *map(scalar_or_array, filled)])
        except Unsettled:
            return self._pulled_by_operations(values, cotangents)
        return [np.asarray(g) for g in computed[len(self.specs) :]]

    def _pulled_by_operations(self, values: Sequence[Any], cotangents: Sequence[Array | None]) -> list[Array]:
        """Return what a replay does, by operations on tensors: where cotangents do not tell the gradient."""
        with modes.under(modes.current()._replace(grad=True, recorder=None)):
            inputs = [leaf(scalar_or_array(np.array(x)), requires_grad=i in self.graded) for i, x in enumerate(values)]
            outputs, wanted = interpreted(self.recipe, inputs), [inputs[i] for i in self.graded]
            numbers = zip(self.with_gradient, cotangents, strict=True)
            pairs = [(outputs[k], constant_tensor(scalar_or_array(g))) for k, g in numbers if g is not None]
            ys, gs = zip(*pairs, strict=True)
            gradients = grad(ys, wanted, gs, allow_unused=True)
        nothing = [np.full(x.spec.shape, -0.0, x.spec.dtype) for x in wanted]
        return [n if g is None else as_array(g) for g, n in zip(gradients, nothing, strict=True)]


class Replay(Function):
    """The results of a program, as functions of its arguments; :class:`ReplayCall` has computed them."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Differentiate the program run on tensors."""
        return _pulled(ctx, functools.partial(interpreted, ctx.program._complete), cotangents)

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        """Push tangents through the program run on tensors."""
        return _pushed(ctx, functools.partial(interpreted, ctx.program._complete), tangents)


class ReplayGradient(Function):
    """The value of a program and its gradients, as functions of its arguments."""

    @staticmethod
    def forward(ctx: Any, program: Any, *arguments: Any) -> Any:
        """Replay forward and backward."""
        ctx.program = program
        ctx.arguments = kept_arguments([SAVED if isinstance(x, Tensor) else x for x in arguments])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(x for x in arguments if isinstance(x, Tensor)))
        values, gradients = program._replayed_back(arguments)
        return tuple(map(constant_tensor, (*values, *gradients)))

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Differentiate the program, run on tensors, and its gradients."""
        return _pulled(ctx, functools.partial(value_and_gradients, ctx.program._complete, create=True), cotangents)

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        """Push tangents through the gradients of the program run on tensors."""
        return _pushed(ctx, functools.partial(value_and_gradients, ctx.program._complete, create=True), tangents)


def _arguments(ctx: Any) -> list[Any]:
    """Return the arguments of a replay."""
    saved = iter(ctx.saved_tensors)
    return [next(saved) if x is SAVED else x for x in ctx.arguments]


def _pulled(ctx: Any, run: Callable[[list[Any]], list[Tensor]], cotangents: Sequence[Any]) -> tuple[Any, ...]:
    """Return the gradient of each argument of a program that is run on tensors, and None for the program."""
    inputs, places = _arguments(ctx), [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
    with grad_modes.enable_grad():
        for i in places:
            inputs[i] = _input_of(inputs[i])
        pairs = zip(run(inputs), cotangents, strict=True)
        reached = [(y, g) for y, g in pairs if g is not None and y._slot is not None]
    if not reached:
        return (None,) * (1 + len(inputs))
    create, wanted = modes.is_grad_enabled(), [inputs[i] for i in places]
    outputs, weights = zip(*reached, strict=True)
    gradients = grad(outputs, wanted, weights, create_graph=create, allow_unused=True)
    by_place = dict(zip(places, gradients, strict=True))
    return None, *(by_place.get(i) for i in range(len(inputs)))


def _pushed(ctx: Any, run: Callable[[list[Any]], list[Tensor]], tangents: Sequence[Any]) -> Any:
    arguments, places = _arguments(ctx), [i for i, t in enumerate(tangents) if t is not None]

    def of_those(*xs: Tensor) -> Any:
        by_place = dict(zip(places, xs, strict=True))
        return tuple(run([by_place.get(i, x) for i, x in enumerate(arguments)]))

    return jvp(of_those, tuple(arguments[i] for i in places), tuple(tangents[i] for i in places))[1]


def _input_of(argument: Any) -> Tensor:
    """Return an argument as a tensor to differentiate by, linked to what it was computed from."""
    return fresh_input(
        argument if isinstance(argument, Tensor) else constant_tensor(scalar_or_array(np.array(argument)))
    )


def value_and_gradients(
    recipe: Recipe, arguments: Sequence[Any], *, create: bool | None = None, rounded: Random = None
) -> list[Tensor]:
    """Run a program on tensors; return its results, and the gradients of the first by each differentiable argument.

    ``create``: record how gradients are computed, or, for None, if anything but the arguments requires grad.
    """
    with grad_modes.enable_grad():
        pairs = list(zip(arguments, recipe.arguments, strict=True))
        inputs = [_input_of(x) if recipe.nodes[node].differentiable else x for x, node in pairs]
        written = [isinstance(x, Tensor) and node in recipe.written for x, (_, node) in zip(inputs, pairs, strict=True)]
        cloned = [clone(x) if w else x for x, w in zip(inputs, written, strict=True)]
        results = interpreted(recipe, cloned, rounded=rounded)
        wanted = [x for x, (_, node) in zip(inputs, pairs, strict=True) if recipe.nodes[node].differentiable]
        y = results[0]
        gradients = zeros_for(pulled([y], wanted, [filled_with(1.0, y)], create=create, retain=True), wanted)
        settle(wanted)
    return [x if x._slot is None or create or needs_graph([x], wanted) else x.detach() for x in (*results, *gradients)]


# A replay among recorded operations: one instruction, whose pullback is a native replay forward and back.


class ReplayCall(CustomCall):
    """What the tape saves of a replay: the program and its arguments; results are computed anew.

    Calls on tensors that native code makes share one.
    """

    cls = Replay
    hooks: Hooks | None = None
    outputs: Sequence[Any] = ()

    def __init__(self, program: Any, arguments: list[Any], needs: list[bool]) -> None:
        self.program, self.arguments, self.needs = program, arguments, needs
        self._contexts: dict[int, FunctionCtx] = {}  # by thread

    positional: Any = property(lambda self: len(self.needs))  # arguments, the program first
    constant: Any = property(lambda self: self.program.pulling.constant)  # numbers of outputs that have no gradient
    specs: Any = property(lambda self: self.program.pulling.specs)  # of the outputs
    is_tensor: Any = property(lambda self: [False, *[x is SAVED for x in self.arguments]])  # of each argument
    _sources: Any = property(lambda self: [("input", k) for k in range(sum(self.is_tensor))])

    @property
    def ctx(self) -> Any:  # type: ignore[override]
        """The context that the program's rules on tensors use, made where they are asked for."""
        ctx = self._contexts.get(get_ident())
        if ctx is None:
            ctx = self._contexts[get_ident()] = FunctionCtx(tuple(self.needs))
            ctx.arguments = self.arguments  # type: ignore[attr-defined]
            ctx.set_materialize_grads(False)
        return ctx

    def _bound(self, instruction: Instruction, saved_tensors: Any) -> tuple[Any, ...]:
        self.ctx.program = self._as_it_was(instruction)
        return super()._bound(instruction, saved_tensors)

    def _as_it_was(self, instruction: Instruction) -> Any:
        """Return the program with what it read from outside then."""
        count = len(instruction.operands)
        first = 1 + count + (count if self.program.pulling.returns_number else 0)
        return self.program.with_live(instruction.saved[first : first + len(self.program.live)])

    def own_hooks(self, instruction: Instruction) -> Hooks:
        """Return the hooks of the call's node; from now on Python runs its pullback."""
        if instruction.saved[0] is not self:
            return instruction.saved[0].own_hooks(instruction)  # type: ignore[no-any-return]
        role, saved = instruction.form.block[FormBlock.SIZE + InputBlock.kernel], instruction.saved
        if role == REPLAYED:
            saved[-1][-1] = 1
        if not self.outputs:  # the others that share it have no hooks
            call, last = copy.copy(self), instruction.stop - 1
            call.outputs = [self.output(instruction.slot, k) for k in range(len(self.specs))]
            replace = tapes.living[instruction.slot >> TAPE_BITS].entries.replace
            replace(last - len(saved), last, saved[0], call, instruction.form.code)
            if role != REPLAYED:
                replace(last - 1, last, saved[-1], np.zeros_like(saved[-1]), instruction.form.code)
            return CustomCall.own_hooks(call, instruction)
        return super().own_hooks(instruction)

    def output(self, slot: int, place: int) -> Any:
        """Return the slot of one of several results: they follow one another where native code has made the call."""
        if self.outputs or place in self.constant:
            return self.outputs[place] if self.outputs else None
        return slot + 1 + self.program.pulling.with_gradient.index(place)

    def _pull(self, cotangents: dict[int, Array | None], instruction: Instruction) -> list[Array | None]:
        """Replay forward and back from the cotangents of the results; by a Function's backward where hooks look on.

        Of a number, whose gradients were kept, these are scaled.
        """
        if self.hooks is not None:
            return super()._pull(cotangents, instruction)
        pulling, count = self.program.pulling, len(instruction.operands)
        kept = instruction.saved[1 + count : 1 + 2 * count] if pulling.returns_number else (None,)
        if all(x is not None for x in kept) and (scaled := _scaled(kept, cotangents.get(0))) is not None:
            pulling.kept_calls[KeptCalls.count] = 0
            return scaled
        if pulling.returns_number:
            pulling.kept_calls[:] = 0, min(2 * pulling.kept_calls[KeptCalls.most], MOST_CALLS)
        saved, pulling = iter(instruction.saved[1:]), self._as_it_was(instruction).pulling
        values = [next(saved) if x is SAVED else x for x in self.arguments]
        arrived = [cotangents.get(k) for k in pulling.with_gradient]
        gradients = dict(zip(pulling.graded, pulling.pulled(values, arrived), strict=True))
        reached = set().union(*[r for r, g in zip(pulling.reached, arrived, strict=True) if g is not None])
        needed = [i for i, is_tensor in enumerate(self.is_tensor[1:]) if is_tensor]
        return [gradients.get(i) if self.needs[i + 1] and i in reached else None for i in needed]


def _kept(gradients: Sequence[Any], reached: Sequence[int | None], specs: Sequence[Any]) -> list[Any]:
    """Return what the tape saves of gradients: for each operand its own, False for none, None where none was kept."""
    if not gradients:
        return [None] * len(reached)
    kept = [False if k is None else gradients[k] for k in reached]
    pairs = zip(kept, specs, strict=True)
    return [np.array(x, spec.dtype) if type(x) is float and spec is not SCALAR else x for x, spec in pairs]


def _scaled(kept: Sequence[Any], g: Array | None) -> list[Array | None] | None:
    """Return kept gradients, False for none, times a cotangent; None where that may have lost digits."""
    gradients = [None if x is False or g is None else np.asarray(x) for x in kept]
    if g is None or g.item() == 1.0:
        return gradients
    known = [x for x in gradients if x is not None]
    if any(x.dtype != np.float64 for x in (g, *known)):
        return None  # in float32 a gradient may be small only until it is scaled
    by = g.item()
    return [None if x is None else np.where((x != 0.0) | ~np.signbit(x), x * by + 0.0, x) for x in gradients]


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
    gradients: Sequence[Any] = (),
) -> list[Tensor]:
    """Return the results of a replay as tensors, recorded as one instruction with these arguments.

    ``values`` are those of the arguments; ``memory`` is what the replay left, for the pullback, ``gradients`` what it
    computed; ``known`` the form of the call, if it has been looked up.
    """
    pulling: ProgramPullback = program.pulling
    if not pulling.with_gradient:
        return result_tensors(pulling.specs, results)
    outputs = _outputs(pulling, results)
    form, table, needs, places, saved, reached = known or pulling.call_form(arguments, kept=memory is not None)
    tensors, tape = arguments, modes.own_tape()
    if saved is None:
        tensors, values, saved = [arguments[i] for i in places], [values[i] for i in places], kept_arguments(arguments)
        for i in places:
            saved[i] = SAVED
    call, count = ReplayCall(program, saved, needs), len(values)
    kept: tuple[Any, ...] = () if table is None else (table,) if memory is None else (table, memory)
    computed = _kept(gradients, reached, form.specs) if pulling.returns_number else []
    anchor = outputs[0] if len(outputs) == 1 else new(Tensor)
    values = unexposed(form, (*values, *program.live_now()))[1]
    values = call, *values[:count], *computed, *values[count:], *kept
    tape.record(anchor, form.code, tuple([x._slot for x in tensors]), values)
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


def _outputs(pulling: ProgramPullback, results: Sequence[Any]) -> list[Tensor]:
    """Return tensors for results; those that have a gradient get slot and form where they are recorded."""
    outputs = []
    for k, (x, spec) in enumerate(zip(results, pulling.specs, strict=True)):
        value = x if type(x) is not float or spec is SCALAR else np.array(x, spec.dtype)
        y = constant_tensor(value) if k in pulling.constant else new(Tensor)
        y._value = value
        outputs.append(y)
    return outputs
