"""`autograd.Function`: the class, its context, what it saves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kernels.kinds import reference_tape
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction, unexposed
from tape import errors
from tape.engine.custom_calls import CustomCall, FunctionCtx, Output, owner_of
from tape.engine.saved_tensors import SavedTensors
from tape.operations import writes
from tape.recording import record
from tape.recording.record import Packed, PackedValue
from tape.tensors import grad_modes, modes, tapes, view_families
from tape.tensors.modes import Observer
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor, new, scalar_or_array

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
        return _apply(cls, args, kwargs)

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


_PLAIN = len(vars(FunctionCtx(())))
"""Attributes of a context on which forward set none."""
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
        _output(tape, anchor._slot, k, len(outputs), name, finished[k])
    for k in differentiable:
        record.watch(tape, finished[k], args)
    call.outputs = [finished[k]._slot if k in differentiable else None for k in range(len(outputs))]
    dirty, ctx._dirty, ctx._constant = ctx._dirty, (), ()
    return [_written(x, finished[k], dirty) for k, x in enumerate(outputs)]


def _output(tape: tapes.Tape, anchor: int, k: int, count: int, name: str, result: Tensor) -> None:
    spec = result.spec
    form = record.cached_form((name, spec, "output"), lambda: reference_tape.output(name, spec))
    tape.record(result, form.code, (anchor,), (Output(k, count),))


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
