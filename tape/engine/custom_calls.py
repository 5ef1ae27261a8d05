"""Calls of an `autograd.Function`: contexts, forward, and the pullback of its backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.kinds.reference_tape import Instruction
from tape.engine import graph_observers, kind_rules
from tape.engine.saved_tensors import SavedTensors
from tape.recording import record, views
from tape.recording.record import PackedValue
from tape.tensors import modes
from tape.tensors.hooks import Hooks
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor, scalar_or_array
from tape.tensors.view_families import is_view


class FunctionCtx:
    """What ``forward`` and ``setup_context`` save for ``backward``. Any attribute may be set on it."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.materialize_grads = True
        self._materialize_non_diff_grads = True
        """Whether backward gets zeros, not None, for outputs that have no gradient either."""
        self._once = False
        """Whether the saved tensors are dropped when they are read: ``clear_saved_tensors_on_access``."""
        self._to_save: tuple[Any, ...] = ()
        self._saved: tuple[Any, ...] | None = None
        self._read = False
        self._dirty: tuple[Tensor, ...] = ()
        self._constant: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors, inputs or outputs above all, for ``saved_tensors`` in backward. TypeError for others."""
        for k, x in enumerate(tensors):
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {k} is of type {type(x).__name__}; "
                    "set other values as attributes of ctx"
                )
        self._to_save = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, in that order, with the values that it had when it was saved."""
        saved = self._to_save if self._saved is None else self._saved
        if self._once and self._saved is not None:
            if self._read:
                raise RuntimeError(
                    "saved_tensors can only be accessed once when clear_saved_tensors_on_access is set; keep what the "
                    "first access returned"
                )
            self._read, self._saved = True, ()
        return saved

    def lay_out(self, saved: tuple[Any, ...]) -> None:
        """Make the saved tensors readable during one backward."""
        self._saved, self._read = saved, False

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs were changed in place; they must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether backward gets zeros (the default) or None for outputs that nothing depends on."""
        self.materialize_grads = bool(value)


CHANGED: ContextVar[list[int] | None] = ContextVar("tape_changed_cotangents", default=None)
"""While a check runs, the numbers of cotangents that a backward has written to; they are copies."""


class CustomCall:
    """One call: the class, its context, and where each saved tensor comes from.

    ``differentiable`` are the numbers of outputs with gradients, ``positional`` the count of positional arguments.
    """

    _histories: Sequence[tuple[Any, Any] | None] = (None,)

    def __init__(
        self,
        cls: Any,
        ctx: FunctionCtx,
        args: tuple[Any, ...],
        outputs: list[Any],
        differentiable: list[int],
        positional: int,
    ) -> None:
        self.cls, self.ctx, self.positional = cls, ctx, positional
        self.constant = frozenset(range(len(outputs))).difference(differentiable)
        """The numbers of outputs that have no gradient."""
        self.is_tensor = [isinstance(x, Tensor) for x in args]
        self.specs = [x.spec if isinstance(x, Tensor) else None for x in outputs]
        self.outputs: Sequence[Any] = []
        self._values: list[Any] = []
        self.hooks: Hooks | None = None
        """The hooks of the node of a call with several results; those of one result are on the tape."""
        self._sources: list[tuple[str, Any]] = []
        self._histories = histories = list[tuple[Any, Any] | None]()
        """Slot and descriptor of each saved tensor that is an input, and no view; None for others."""
        tensors = [x for x in args if isinstance(x, Tensor)]
        for x in ctx._to_save:
            histories.append(self._save(x, tensors, outputs))
        ctx._to_save, ctx._saved = (), ()

    def _save(self, x: Any, inputs: list[Tensor], outputs: list[Any]) -> tuple[Any, Any] | None:
        if x is None:
            self._sources.append(("nothing", None))
            return None
        for kind, tensors in (("input", inputs), ("output", outputs)):
            for k, tensor in enumerate(tensors):
                if x is tensor:
                    self._sources.append((kind, k))
                    self._values.append(x._value)
                    return (x._slot, x._form) if kind == "input" and not is_view(x) else None
        self._sources.append(("other", x._slot))
        self._values.append(x._value)
        return None

    def own_hooks(self, instruction: Instruction) -> Hooks:
        """Return the hooks of the node of a call with several results, made where there are none."""
        self.hooks = self.hooks or Hooks(instruction.form.spec)
        return self.hooks

    def values(self) -> tuple[Any, ...]:
        """Return what the instruction saves: arrays and numbers, which are copied before writes in place."""
        values, self._values = tuple(self._values), []
        return values

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Run backward on arrays; a batch of cotangents row by row."""
        cotangents = stash.pop(instruction.slot, {0: gradient} if len(self.specs) == 1 else {})
        if batch:
            rows = [
                self._pull({k: None if g is None else g[row] for k, g in cotangents.items()}, instruction)
                for row in range(batch)
            ]
            return [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]
        return self._pull(cotangents, instruction)

    def _pull(self, cotangents: dict[int, Array | None], instruction: Instruction) -> list[Array | None]:
        arrived = [cotangents.get(k) for k in range(len(self.specs))]
        grads = [None if g is None else constant_tensor(scalar_or_array(_added(g))) for g in arrived]
        self._lay_out(instruction)
        gradients = modes.call_user(self._backward, grads, instruction, grad=False)
        return [None if x is None else _added(as_array(x)) for x in gradients]

    def _lay_out(self, instruction: Instruction) -> None:
        saved = _values(instruction) if None not in self._histories else ()
        tensors = map(_with_history, saved, self._histories) if saved else self._bound(instruction, SavedTensors([]))
        self.ctx.lay_out(tuple(tensors))

    def jvp(
        self, instruction: Instruction, tangents: list[Array | None], stash: dict[Any, Any], *, batch: int
    ) -> Array | None:
        """Run the function's own jvp on the tangents of its operands; a batch of them row by row."""
        if "jvp" not in _defined(self.cls):
            raise NotImplementedError(f"{instruction.form.name}: no jvp, so forward mode cannot pass through it")
        if batch:
            rows = [self._push([None if t is None else t[k] for t in tangents], instruction) for k in range(batch)]
            pushed = [None if column[0] is None else np.stack(column) for column in zip(*rows, strict=True)]
        else:
            pushed = self._push(tangents, instruction)
        if len(self.specs) == 1:
            return pushed[0]
        stash[instruction.slot] = pushed
        return np.zeros((batch,) if batch else ())

    def _push(self, tangents: list[Array | None], instruction: Instruction) -> list[Array | None]:
        remaining = iter(tangents)
        arguments = [next(remaining) if is_tensor else None for is_tensor in self.is_tensor]
        self._lay_out(instruction)
        constants = [None if t is None else constant_tensor(scalar_or_array(t)) for t in arguments]
        result = modes.call_user(self.cls.jvp, self.ctx, *constants, grad=False)
        self.ctx._saved = ()
        pushed = result if isinstance(result, tuple) else (result,)
        if len(pushed) != len(self.specs):
            raise RuntimeError(
                f"{instruction.form.name}: jvp returned {len(pushed)} tangents for {len(self.specs)} results"
            )
        return [None if t is None else as_array(t) for t in pushed]

    def pull_tensors(
        self, instruction: Instruction, gradient: Tensor | None, stash: dict[Any, Any], saved_tensors: SavedTensors
    ) -> list[Tensor | None]:
        """Run backward on tensors, recorded: a backward made of operations is differentiable itself."""
        cotangents = stash.pop(instruction.slot, {0: gradient} if len(self.specs) == 1 else {})
        grads = [None if (g := cotangents.get(k)) is None else views.clone(g) for k in range(len(self.specs))]
        self.ctx.lay_out(self._bound(instruction, saved_tensors))
        return modes.call_user(self._backward, grads, instruction)

    def saved(self, instruction: Instruction) -> tuple[Any, ...]:
        """Return the saved tensors, as the graph's node shows them: a leaf as itself."""
        return tuple(x if x is None else owner_of(x) for x in self._bound(instruction, SavedTensors([])))

    def _bound(self, instruction: Instruction, saved_tensors: SavedTensors) -> tuple[Any, ...]:
        saved, tensors = _values(instruction), list[Any]()
        for kind, source in self._sources:
            if kind == "nothing":
                tensors.append(None)
                continue
            value, slot, spec = next(saved), source, None
            if kind == "input":
                slot, spec = instruction.operands[source], instruction.form.specs[source]
            elif kind == "output":
                slot, spec = self.outputs[source], self.specs[source]
            if spec is None or slot is None:
                tensors.append(constant_tensor(value))
            else:
                tensors.append(saved_tensors.tensor(slot, value, spec))
        return tuple(tensors)

    def _backward(self, grads: list[Any], instruction: Instruction) -> list[Any]:
        shown = grads = self.hooks.before_node(grads) if self.hooks else grads
        if self.ctx.materialize_grads:
            grads = [self._materialized(k, g) for k, g in enumerate(grads)]
        defined = _defined(self.cls)
        if {"backward", "vjp"} <= defined:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                f"implement one of them. {self.cls.__name__} has both"
            )
        function = self.cls.backward if "backward" in defined else self.cls.vjp
        with _watched(grads):
            gradients = graph_observers.explained(function, instruction)(self.ctx, *grads)
        self.ctx._saved = ()
        results = self._checked(gradients if isinstance(gradients, tuple) else (gradients,), instruction)
        graph_observers.look(instruction, results)
        return self.hooks.after_node(results, tuple(shown)) if self.hooks else results

    def _materialized(self, k: int, gradient: Tensor | None) -> Tensor | None:
        """Return a cotangent for backward: zeros if nothing reached the output, unless the context says otherwise."""
        spec = self.specs[k]
        if gradient is not None or spec is None or (k in self.constant and not self.ctx._materialize_non_diff_grads):
            return gradient
        return constant_tensor(scalar_or_array(np.zeros(spec.shape, spec.dtype)))

    def _checked(self, gradients: tuple[Any, ...], instruction: Instruction) -> list[Any]:
        """Check count, kinds and shapes; return one gradient for each tensor among the arguments."""
        name, count = instruction.form.name, len(self.is_tensor)
        if len(gradients) > count and all(x is None for x in gradients[count:]):
            gradients = gradients[:count]
        if self.positional <= len(gradients) < count and not any(self.is_tensor[len(gradients) :]):
            gradients = (*gradients, *(None,) * (count - len(gradients)))  # for defaults, or arguments given by name
        if len(gradients) != count:
            raise RuntimeError(
                f"function {name} returned an incorrect number of gradients (expected {count}, got {len(gradients)})"
            )
        results, specs = [], iter(instruction.form.specs)
        for k, (x, is_tensor) in enumerate(zip(gradients, self.is_tensor, strict=True)):
            if is_tensor:
                results.append(_in_shape_of(name, k, x, next(specs)))
            elif x is not None:
                raise RuntimeError(
                    f"function {name} returned a gradient different than None at position {k + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
        return results


def _with_history(value: Any, history: tuple[Any, Any] | None) -> Tensor:
    x = constant_tensor(value)
    if history is not None and history[0] is not None:
        slot, form = history
        if x._form is not form.spec:
            return x.requires_grad_()
        x._slot, x._form = slot, form
    return x


def _values(instruction: Instruction) -> Iterator[Any]:
    return (value.value() if isinstance(value, PackedValue) else value for value in instruction.saved[1:])


@contextmanager
def _watched(grads: list[Tensor | None]) -> Iterator[None]:
    """Report to a check which cotangents are written to within."""
    changed = CHANGED.get()
    before = {} if changed is None else {k: np.array(g._value) for k, g in enumerate(grads) if g is not None}
    yield
    if changed is not None:
        changed += [
            k for k, g in enumerate(grads) if g is not None and np.array(g._value).tobytes() != before[k].tobytes()
        ]


def _added(gradient: Array) -> Array:
    result: Array = gradient + gradient.dtype.type(0.0)
    return result


def owner_of(x: Tensor) -> Tensor:
    """Return the leaf itself for a tensor that has its slot and value."""
    owner = x._slot.owner() if type(x._slot) is AccumulateGrad else None
    return owner if owner is not None and owner._value is x._value else x


def _defined(cls: Any) -> set[str]:
    return {name for parent in cls.__mro__[:-2] for name in vars(parent)}


def _in_shape_of(name: str, k: int, x: Any, spec: Any) -> Any:
    if x is None or spec is None:
        return None
    if not isinstance(x, Tensor):
        raise RuntimeError(f"function {name}: expected Variable or None (got {type(x).__name__}) at index {k}")  # noqa: TRY004 (PyTorch's)
    try:
        fits = np.broadcast_shapes(x.spec.shape, spec.shape) == x.spec.shape
    except ValueError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"Function {name} returned an invalid gradient at index {k} - got {list(x.spec.shape)} but expected shape "
            f"compatible with {list(spec.shape)}"
        )
    x = kind_rules.onto(x, spec.shape)
    return x if x.spec.dtype == spec.dtype else record.to_dtype(x, spec.dtype)


class Output:
    """One of several results: its pullback hands the cotangent to the call."""

    def __init__(self, place: int, count: int) -> None:
        self.place, self.count = place, count

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Leave the gradient for the call, and contribute nothing."""
        del batch
        stash.setdefault(instruction.operands[0], {})[self.place] = gradient
        return (None,)

    def jvp(
        self, instruction: Instruction, tangents: list[Array | None], stash: dict[Any, Any], *, batch: int
    ) -> Array | None:
        """Return the tangent that the call left."""
        del tangents, batch
        tangent: Array | None = stash[instruction.operands[0]][self.place]
        return tangent

    def pull_tensors(
        self, instruction: Instruction, gradient: Tensor | None, stash: dict[Any, Any], saved_tensors: SavedTensors
    ) -> list[Tensor | None]:
        """Leave the gradient for the call, and contribute nothing."""
        del saved_tensors
        stash.setdefault(instruction.operands[0], {})[self.place] = gradient
        return [None]
