"""`autograd.Function`: the class, its context, what it saves, its calls, and the pullback of its backward."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.kinds import reference_tape
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction, unexposed
from tape import errors
from tape.engine import graph_observers, kind_rules
from tape.engine.saved_tensors import SavedTensors
from tape.errors import shorten
from tape.operations import writes
from tape.recording import record, views
from tape.recording.record import Packed, PackedValue
from tape.tensors import grad_modes, modes, view_families
from tape.tensors.hooks import Hooks
from tape.tensors.modes import Observer
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor, new, scalar_or_array
from tape.tensors.view_families import is_view

# Calls of an `autograd.Function`: contexts, forward, and the pullback of its backward.


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

    def output(self, slot: int, place: int) -> Any:
        """Return the slot of one of several results, None where it has no gradient; ``slot`` is that of the call."""
        del slot
        return self.outputs[place]

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
            elif kind == "output" and len(self.outputs) > 1 and saved_tensors.is_gone(slot):
                tensors.append(_output_of(self, source, instruction.slot, modes.own_tape()))
                tensors[-1]._value = scalar_or_array(value)
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
        self, instruction: Instruction, gradient: Any, stash: dict[Any, Any], *saved_tensors: Any, batch: int = 0
    ) -> list[Any]:
        """Leave the gradient, an array or a tensor, for the call, and contribute nothing."""
        del saved_tensors, batch
        others = stash.setdefault(instruction.operands[0], {})  # a result that is saved may have two instructions
        others[self.place] = others[self.place] + gradient if self.place in others else gradient
        return [None]

    pull_tensors = pull

    def jvp(
        self, instruction: Instruction, tangents: list[Array | None], stash: dict[Any, Any], *, batch: int
    ) -> Array | None:
        """Return the tangent that the call left."""
        del tangents, batch
        tangent: Array | None = stash[instruction.operands[0]][self.place]
        return tangent


# `autograd.Function`: the class, its context, what it saves.

_FIRST = frozenset({"self", "mat1", "input"})
_SECOND = frozenset({"other", "exponent", "mat2", "vec", "vec2", "tensor", "weight"})
"""What PyTorch's nodes call their operation's second operand."""


def saved_value(form: Form, find: Callable[[], Instruction], name: str) -> Any:
    """Return a saved value by PyTorch's name; None for an operand that the pullbacks did not need."""
    if form.op in (reference_tape.FUNCTION, reference_tape.OUTPUT):
        raise AttributeError(f"{form.name} has no attribute '_saved_{name}'; see saved_tensors")
    names = form.op.inputs
    operand_names = {alias: name for aliases, name in zip((_FIRST, _SECOND), names, strict=False) for alias in aliases}
    called = operand_names.get(name, "y" if name == "result" else name)
    if not form.saved or (called not in form.saved and name not in operand_names and form.saved != ("packed",)):
        raise AttributeError(f"{form.name} has no attribute '_saved_{name}'")
    instruction = find()
    if isinstance(instruction.saved[0], Packed):
        instruction = instruction.saved[0].unpacked(instruction)
    if called not in instruction.form.saved:
        return None
    value = SavedTensors([]).of(instruction)[called]
    if not isinstance(value, Tensor):
        return constant_tensor(np.asarray(value))
    return owner_of(value)


def saved_names(form: Form) -> list[str]:
    """Return PyTorch's names of what an operation saves: of operands first."""
    if form.op in (reference_tape.FUNCTION, reference_tape.OUTPUT) or form.saved == ("packed",):
        return []
    names = dict(zip(form.op.inputs, ("self", "other"), strict=False)) | {"y": "result"}
    return [names.get(name, name) for name in form.saved]


# Operations with a backward of one's own: ``autograd.Function``, as PyTorch has it.
#
# ``forward`` may call anything, NumPy, SciPy or a kernel of one's own; it runs without gradients. Compiled functions
# call it between native stretches; a program of ``tape.record`` cannot, and says so when it is called.

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class Function:
    """Subclass it with static methods ``forward`` and ``backward`` (or ``vjp``), and call ``apply``.

    Either ``forward(ctx, *args)``, or ``forward(*args)`` and ``setup_context(ctx, inputs, output)``. ``backward(ctx,
    *grad_outputs)`` returns one gradient, or None, for each argument of forward.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Return the gradients of forward's arguments."""
        raise NotImplementedError(errors.NO_BACKWARD)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Run on a batch: return the output, and where the dim of examples stands in it."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    vjp = backward
    generate_vmap_rule = False
    clear_saved_tensors_on_access = False

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Return the tangents of forward's results."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record it if an argument requires grad.

        Arguments given by name, and the defaults of forward's, reach ``setup_context`` and have a gradient as all; what
        forward takes by name alone only reaches forward.
        """
        try:
            return _apply(cls, args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a Function is called by its class."""
        del args, kwargs
        raise RuntimeError(f"{type(self).__name__} is not called as an object: use {type(self).__name__}.apply(...)")


def _apply(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    notify = getattr(modes.current().recorder, "called", None)
    if notify is not None and not kwargs and _is_mapped(cls):
        return notify(partial(_apply, cls), partial(MAPPED[0], cls), args)
    positional = len(args)
    args, kwargs = _bound(cls, args, kwargs)
    note = getattr(modes.current().recorder, "function_called", None)
    if note is not None:
        return note(cls, args, kwargs, positional)
    for x in args:
        record.note_unrecorded(x, "a Function")
    return called(cls, args, kwargs, positional)


def called(
    cls: type[Function],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    positional: int,
    observer: Observer | None = None,
) -> Any:
    """Run forward, which an ``observer`` may watch, and record it; ``positional`` arguments were given by position."""
    ctx, result, outputs = ran(cls, args, kwargs, observer)
    wanted = any(ctx.needs_input_grad) and modes.is_grad_enabled()
    finished = _recorded(cls, ctx, args, outputs, positional) if wanted else [_detached(x, args) for x in outputs]
    return tuple(finished) if isinstance(result, (tuple, list)) else finished[0]


def ran(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], observer: Observer | None = None
) -> tuple[FunctionCtx, Any, list[Any]]:
    """Run forward without gradients; return its context, its result, and what is in that. TypeError for no tensors."""
    ctx = FunctionCtx(tuple(isinstance(x, Tensor) and x._slot is not None for x in args))
    with modes.under(modes.current()._replace(grad=False, recorder=observer)):
        if not _is_split(cls):
            result = cls.forward(ctx, *args, **kwargs)
        else:
            result = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, result)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    for x in outputs:
        if not isinstance(x, Tensor) and x is not None and not isinstance(result, tuple):
            raise TypeError(f"{cls.__name__}.forward: expected to return a Tensor, or a tuple, got {type(x).__name__}")
    ctx._once = bool(getattr(cls, "clear_saved_tensors_on_access", False))
    return ctx, result, outputs


_PLAIN = len(vars(FunctionCtx(())))  # attributes of a context on which forward set none
MAPPED: list[Callable[..., Any]] = []
"""How a Function is run on a batch: ``(cls, size, args, batched)``."""


def _is_mapped(cls: type[Function]) -> bool:
    """Whether vmap knows how to run a Function on a batch. RuntimeError for two rules, or one that cannot be made."""
    has_rule = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule and has_rule:
        raise RuntimeError(
            f"{cls.__name__} has both generate_vmap_rule=True and an overridden vmap staticmethod. Please set "
            "generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity."
        )
    if (cls.generate_vmap_rule or has_rule) and not _is_split(cls):
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            "override the setup_context staticmethod."
        )
    return cls.generate_vmap_rule or has_rule


def _is_split(cls: type[Function]) -> bool:
    return cls.setup_context is not Function.setup_context


def _bound(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    names, signature = _parameters(cls.forward, _is_split(cls))
    if signature is None or (len(args) >= names and not kwargs):
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    if _is_split(cls):
        bound.apply_defaults()
    return bound.args, bound.kwargs


@functools.lru_cache(maxsize=1 << 10)
def _parameters(forward: Callable[..., Any], split: bool) -> tuple[int, inspect.Signature | None]:
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return 0, None
    parameters = (
        parameters
        if split or not parameters or parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
        else parameters[1:]
    )
    count = sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
    return count, inspect.Signature(parameters)


def _detached(x: Any, args: tuple[Any, ...]) -> Any:
    if isinstance(x, Tensor) and x._slot is not None and any(x is a for a in args):
        return view_families.mark_aliased(constant_tensor(as_array(x)), x)
    return x


def _recorded(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], outputs: list[Any], positional: int
) -> list[Any]:
    _check_dirty(cls, ctx, args, outputs)
    constant = {id(x) for x in ctx._constant}
    differentiable = [k for k, x in enumerate(outputs) if _differentiable(x) and id(x) not in constant]
    if not differentiable:
        return outputs
    finished = [_separate(x, args) if k in differentiable else x for k, x in enumerate(outputs)]
    call = CustomCall(cls, ctx, args, outputs, differentiable, positional)
    tape = modes.own_tape()
    tensors = [x for x in args if isinstance(x, Tensor)]
    specs = tuple(x.spec if x._slot is not None else None for x in tensors)
    slots = [x._slot for x in tensors]
    name, kept, pack = f"{cls.__name__}Backward", call.values(), modes.current().pack
    if pack is not None:
        kept = tuple(PackedValue(value, pack) for value in kept)
    spec = finished[differentiable[0]].spec if len(outputs) == 1 else None
    key = (name, specs, spec, len(kept))
    form = record.cached_form(key, lambda: reference_tape.function(name, specs, spec, len(kept)))
    anchor = new(Tensor) if spec is None else finished[differentiable[0]]
    tape.record(anchor, form.code, tuple(slots), (call, *unexposed(form, kept)[1]))
    if len(vars(ctx)) > _PLAIN:
        tape.keep_context(call)
    modes.current().notify_anomaly(anchor._slot)
    for k in differentiable if spec is None else ():
        _output_of(call, k, anchor._slot, tape, finished[k])
    for k in differentiable:
        record.watch(tape, finished[k], args)
    call.outputs = [finished[k]._slot if k in differentiable else None for k in range(len(outputs))]
    dirty, ctx._dirty, ctx._constant = ctx._dirty, (), ()
    return [_written(x, finished[k], dirty) for k, x in enumerate(outputs)]


def _output_of(call: CustomCall, place: int, slot: int, tape: Any, x: Any = None) -> Tensor:
    """Record one of several results of the call with this slot; again, in a new tensor, where it died."""
    name, spec = f"{call.cls.__name__}Backward", call.specs[place] if x is None else x.spec
    assert spec is not None
    x = new(Tensor) if x is None else x
    form = record.cached_form((name, spec, "output"), partial(reference_tape.output, name, spec))
    tape.record(x, form.code, (slot,), (Output(place, len(call.specs)),))
    return x  # type: ignore[no-any-return]


def _differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and x.spec.dtype.kind == "f"


def _separate(x: Tensor, args: tuple[Any, ...]) -> Tensor:
    """Return an output as a tensor of its own: inputs and views that forward returned are copied."""
    if any(x is a for a in args) or view_families.is_view(x):
        return constant_tensor(scalar_or_array(np.array(x._value, order="C")))
    return x


def _check_dirty(cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], outputs: list[Any]) -> None:
    for x in ctx._dirty:
        if not any(x is a for a in args):
            raise RuntimeError(f"{cls.__name__}: mark_dirty takes inputs of forward; this tensor is none")
        if not any(x is o for o in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
        if type(view_families.base_of(x)._slot) is AccumulateGrad:
            raise RuntimeError(
                errors.LEAF_VIEW_IN_PLACE
                if view_families.is_view(x)
                else errors.LEAF_IN_PLACE.replace("is being", "has been")
            )


def _written(x: Any, finished: Any, dirty: tuple[Tensor, ...]) -> Any:
    if not isinstance(finished, Tensor) or not any(x is d for d in dirty):
        return finished
    writes.rewrite(x, finished)
    return x


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward that must not be differentiated: it runs without gradients, and a second backward raises."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with grad_modes.no_grad():
            gradients = function(ctx, *grads)
        if not any(isinstance(g, Tensor) and g._slot is not None for g in grads):
            return gradients
        several = isinstance(gradients, tuple)
        guarded = _Once.apply(len(grads), *grads, *(gradients if several else (gradients,)))
        return guarded if several else guarded[0]

    return wrapper


class _Once(Function):
    """The identity, whose gradient raises when it is differentiated."""

    @staticmethod
    def forward(ctx: Any, count: int, *values: Any) -> Any:
        """Return copies of the values behind the first ``count``."""
        del ctx
        return tuple(constant_tensor(np.array(v._value)) if isinstance(v, Tensor) else v for v in values[count:])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Refuse."""
        del ctx, grads
        raise RuntimeError(errors.ONCE)
