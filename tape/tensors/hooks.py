"""Hooks of tensors, the methods that other files add to Tensor, modes of gradients."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import ref

from kernels.foundation.specs import Array, Spec
from kernels.kinds.form import Form
from tape.tensors import modes, tapes
from tape.tensors.modes import ON_MADE, Mode, _mode, change, restore, set_mode, turned
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor, method, scalar_or_array

Function = TypeVar("Function", bound=Callable[..., Any])

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions of ``tape``, by name, that are no single elementwise record."""

NUMPY: dict[Any, Callable[..., Any]] = {}
"""Implementations of NumPy's functions for tensors: with NumPy's arguments, defaults and meaning."""


def public(*names: str, methods: bool = True) -> Callable[[Function], Function]:
    """Offer a function as ``tape.f`` under its own name and these; with ``methods`` also as ``Tensor.f``."""

    def offer(function: Function) -> Function:
        for name in (function.__name__, *names):
            if name in FUNCTIONS:
                raise TypeError(f"tape.{name} is declared twice")
            FUNCTIONS[name] = function
            if methods:
                method(name)(function)
        return function

    return offer


RECORDS: dict[Any, tuple[str, ...]] = {}
"""Which records functions of NumPy's come down to, by the records' names: the table of operations shows them there."""


def implements(*functions: Any, records: str = "") -> Callable[[Function], Function]:
    """Let a function serve these of NumPy's: it takes their arguments. ``records`` names those that do the work."""

    def register(function: Function) -> Function:
        for numpy_function in functions:
            if NUMPY.get(numpy_function, function) is not function:
                raise TypeError(f"np.{numpy_function.__name__} is served twice")
            NUMPY[numpy_function] = function
            RECORDS[numpy_function] = tuple(records.split())
        return function

    return register


# Hooks: functions that are called with gradients during a backward, and may replace them.
#
# A hook of a computed tensor belongs to the version of the tensor that it was registered on: its slot. Those of a leaf
# belong to the leaf.

Hook = Callable[..., Any]
_numbers = itertools.count()


class Registered(dict[int, Hook]):
    """Hooks in the order of their registration, by the number of their handle."""

    __slots__ = ("__weakref__",)


class RemovableHandle:
    """What registering a hook returns: ``remove()``, or the end of a ``with`` block, takes the hook away."""

    def __init__(self, hooks: Registered, hook: Hook) -> None:
        self.id = next(_numbers)
        self._hooks = ref(hooks)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away; again is no error."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one slot: of its tensor, and before and after its node.

    ``spec`` and ``offset`` say where the tensor's gradient is in the gradient buffer of its family.
    """

    __slots__ = ("after", "before", "offset", "spec", "tensor")

    def __init__(self, spec: Spec, offset: int = 0) -> None:
        self.spec = spec
        self.offset = offset
        self.tensor = Registered()
        self.before = Registered()
        self.after = Registered()

    def __bool__(self) -> bool:
        return bool(self.tensor or self.before or self.after)

    def on_tensor(self, gradient: Tensor) -> Tensor:
        """Run the hooks of the tensor; return its gradient, replaced or not."""
        for hook in list(self.tensor.values()):
            result = modes.call_user(hook, gradient)
            gradient = replaced(hook, result, gradient)
        return gradient

    def before_node(self, outputs: list[Tensor | None]) -> list[Tensor | None]:
        """Run the hooks before the node; return the gradients of its outputs, replaced or not."""
        return self._changed(self.before, outputs, lambda gradients: (gradients,))

    def after_node(self, inputs: list[Tensor | None], outputs: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        """Run the hooks after the node; return the gradients of its inputs, replaced or not."""
        return self._changed(self.after, inputs, lambda gradients: (gradients, outputs))

    def _changed(
        self, registered: Registered, gradients: list[Tensor | None], arguments: Callable[[Any], tuple[Any, ...]]
    ) -> list[Tensor | None]:
        for hook in list(registered.values()):
            result = modes.call_user(hook, *arguments(tuple(gradients)))
            if result is not None:
                replacements = _counted(hook, result, len(gradients))
                gradients = [_changed(hook, new, old) for old, new in zip(gradients, replacements, strict=True)]
        return gradients

    def after_arrays(self, inputs: list[Array | None], output: Array) -> list[Array | None]:
        """Run the hooks after the node on the gradients of its inputs and of its output."""
        gradients = [None if i is None else constant_tensor(scalar_or_array(i)) for i in inputs]
        changed = self.after_node(gradients, (constant_tensor(scalar_or_array(output)),))
        return [None if t is None else as_array(t) for t in changed]


def _counted(hook: Hook, result: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(result, tuple):
        raise TypeError(
            f"expected tuple, but hook returned '{type(result).__name__}' (hook '{name_of(hook)}' of a node: return "
            "a tuple of Tensors and None, or None)"
        )
    if len(result) != count:
        raise RuntimeError(
            f"hook '{name_of(hook)}' has returned an incorrect number of values (got {len(result)}, "
            f"but expected {count})"
        )
    return result


def _changed(hook: Hook, new: Any, old: Tensor | None) -> Tensor | None:
    if new is None:
        return None
    if old is None:
        raise RuntimeError(f"can't replace a None gradient with a non-None value (hook '{name_of(hook)}')")
    return replaced(hook, new, old)


def name_of(hook: Hook) -> str:
    """Return a hook's name for messages."""
    return str(getattr(hook, "__name__", type(hook).__name__))


def replaced(hook: Hook, result: Any, gradient: Tensor) -> Tensor:
    """Check what a hook returned; return it, or the gradient as it was for None."""
    if result is None:
        return gradient
    if not isinstance(result, Tensor):
        raise TypeError(
            f"expected Variable, but hook returned '{type(result).__name__}' (hook '{name_of(hook)}': return a Tensor, "
            "or None)"
        )
    if result.spec.shape != gradient.spec.shape:
        raise RuntimeError(
            f"hook '{name_of(hook)}' has changed the size of value: {list(gradient.spec.shape)} became "
            f"{list(result.spec.shape)}"
        )
    if result.spec.dtype != gradient.spec.dtype:
        raise RuntimeError(
            f"hook '{name_of(hook)}' has changed the type of value: {gradient.spec.dtype} became {result.spec.dtype}"
        )
    return result


class LeafHooks(Hooks):
    """The hooks of a leaf: also those that run when its ``.grad`` has been added to."""

    __slots__ = ("accumulated",)

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.accumulated = Registered()

    def take(self, other: LeafHooks) -> None:
        """Take over the hooks of another leaf, to which existing handles still refer."""
        self.tensor, self.before, self.after = other.tensor, other.before, other.after
        self.accumulated = other.accumulated

    def ended(self, owner: Tensor | None, gradient: Tensor) -> None:
        """Run the hooks that follow the addition to ``.grad``."""
        for hook in list(self.accumulated.values()) if owner is not None else ():
            result = modes.call_user(hook, owner)
            if result is not None and not isinstance(result, Tensor):
                raise TypeError(
                    f"expected Variable, but hook returned '{type(result).__name__}' (hook '{name_of(hook)}': what it "
                    "returns is not used; return None)"
                )
        self.after_node([], (gradient,))


LEAVES: dict[int, Any] = {}
"""The living leaves that have hooks, by id: while this is empty, no leaf is asked for its hooks.

An interrupt may leave the entry of a dead leaf. The leaf holds its hooks itself, so that the garbage collector finds
cycles through them.
"""


def of_leaf(leaf: AccumulateGrad) -> LeafHooks:
    """Return the hooks of a leaf, an empty set at first."""
    hooks = existing(leaf)
    if hooks is None:
        key, forget = id(leaf), LEAVES.pop  # at the end of the process this module is empty before the leaves are gone
        LEAVES[key] = ref(leaf, lambda _: forget(key, None))
        leaf.hooks = hooks = LeafHooks(leaf.spec)
    return hooks


def existing(leaf: Any) -> LeafHooks | None:
    """Return the hooks of a leaf, None if it has none, or is none."""
    return getattr(leaf, "hooks", None) if type(leaf) is AccumulateGrad else None


def of_slot(tape: tapes.Tape, slot: int, spec: Spec, offset: int) -> Hooks:
    """Return the hooks of a computed tensor, an empty set at first."""
    key = slot ^ 0  # an equal number: references to the slot itself are counted
    hooks: Hooks = tape.hooks.setdefault(key, Hooks(spec, offset))
    return hooks


@method()
def register_post_accumulate_grad_hook(x: Tensor, hook: Hook) -> RemovableHandle:
    """Call ``hook(x)`` after each time that backward has added to this leaf's ``.grad``."""
    if type(x._slot) is not AccumulateGrad:
        raise RuntimeError(
            "post accumulate grad hooks cannot be registered on non-leaf tensors"
            if x._slot is not None
            else "cannot register a hook on a tensor that doesn't require gradient"
        )
    return RemovableHandle(of_leaf(x._slot).accumulated, hook)


class Switch:
    """A context manager and decorator that turns gradient mode to ``to``; entering again nests."""

    to: bool
    _entered: Any = None

    def __enter__(self) -> Self:
        before = _mode.get()
        self._entered = (before, within := self.changed(before), self._entered)
        return change(within, before, self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered = self._entered
        try:
            self._leave(*entered)
        except BaseException:  # an interrupt
            self._leave(*entered)
            raise

    def _leave(self, before: Mode, within: Mode, outer: Any) -> None:
        now = _mode.get()
        restore(before if now is within else self.restored(now, before))
        self._entered = outer

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return turned(mode, grad=self.to)

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode in which what this changes is as it was before."""
        return turned(mode, grad=before.grad)

    def clone(self) -> Switch:
        """Return another that does the same."""
        return type(self)()

    def __call__(self, function: Function) -> Function:
        """Decorate a function, or a generator function: the mode holds while its own code runs."""
        if inspect.isgeneratorfunction(function):
            return _around_generator(self, function)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


def _around_generator(switch: Switch, function: Function) -> Function:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        resume: Callable[[Any], Any] = generator.send
        sent: Any = None
        while True:
            try:
                with switch.clone():
                    item = resume(sent)
            except StopIteration as stop:
                return stop.value
            try:
                resume, sent = generator.send, (yield item)
            except GeneratorExit:
                with switch.clone():
                    generator.close()
                raise
            except BaseException as error:  # noqa: BLE001 (the generator's own business)
                resume, sent = generator.throw, error

    return wrapper  # type: ignore[return-value]


class no_grad(Switch):  # noqa: N801 (PyTorch's name)
    """Within it nothing is recorded and results do not require grad. Context manager and decorator."""

    to = False

    def __new__(cls, function: Any = None) -> Any:
        """Allow ``@no_grad`` without parentheses, as PyTorch does."""
        self = object.__new__(cls)
        return self if function is None else self(function)

    def __init__(self, function: Any = None) -> None:
        """Do nothing: ``__new__`` has decorated the function."""


class enable_grad(no_grad):  # noqa: N801
    """Within it operations are recorded, inside ``no_grad`` too. Context manager and decorator."""

    to = True


class SwitchAtOnce(Switch):
    """A switch that takes effect when it is made; as a context manager it restores the mode from before at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._set_at_once = before = _mode.get()
        change(self.changed(before), before, None)

    def __enter__(self) -> Self:
        self._entered = (self._set_at_once, within := self.changed(_mode.get()), self._entered)
        return change(within, self._set_at_once, self)

    def __call__(self, function: Function) -> Function:
        """Decorate a function; the mode that the constructor set is undone, as in PyTorch."""
        set_mode(self.restored(_mode.get(), self._set_at_once))
        return super().__call__(function)


class set_grad_enabled(SwitchAtOnce):  # noqa: N801
    """Set gradient mode at once; as a context manager the mode before comes back at its end."""

    def __init__(self, mode: bool) -> None:
        self.to = bool(mode)
        super().__init__()

    def clone(self) -> Switch:
        """Return another that sets the same mode."""
        return set_grad_enabled(self.to)


# Inference mode: nothing is recorded within, and tensors made there cannot be part of what is recorded later.
#
# A tensor made in it has a spec of its own class: no key of what is known of other tensors, so that an operation on it
# takes the longer way the first time, where it is checked. Other tensors are never asked.

__all__ = ["inference_mode", "is_inference", "is_inference_mode_enabled"]

_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
    "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in "
    "autograd, or use `tape.no_grad()` instead of `tape.inference_mode()`."
)
_WRITTEN = (
    "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal "
    "tensor before doing inplace update."
)
_WANTED = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
_COUNTED = "Inference tensors do not track version counter."


class InferenceSpec(Spec):
    """The spec of a tensor made in inference mode: equal to another spec in content, but another object and class.

    It says that its elements overlap, so that writes look closer: see :func:`overlapping`.
    """

    __slots__ = ("plain",)

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec.shape, spec.strides, spec.dtype, spec.gradient, spec.buffer_size)
        self.overlaps = True
        self.plain = spec


def alike(spec: Spec, source: Spec) -> Spec:
    """Return a spec as an inference spec if ``source`` is one."""
    if type(source) is not InferenceSpec or type(spec) is InferenceSpec:
        return spec
    return _marked(spec)


def _marked(spec: Spec) -> InferenceSpec:
    if spec.inference is None:
        spec.inference = InferenceSpec(spec)
    inference_spec: InferenceSpec = spec.inference
    return inference_spec


def made(x: Tensor) -> None:
    """Make a new tensor an inference tensor if it was made in that mode."""
    if modes.current().inference and type(x._form.spec) is not InferenceSpec:
        as_array(x)  # a Python float would be known to the fast path
        x._form = _marked(x._form.spec)


@method()
def is_inference(input: Tensor) -> bool:
    """Return whether the tensor was made in inference mode, or views one that was."""
    return type(input._form.spec) is InferenceSpec


def is_inference_mode_enabled() -> bool:
    """Return whether inference mode is on in this thread and context."""
    return modes.current().inference


def checked(form: Form) -> Form:
    """Return a new form; RuntimeError if an instruction of it would keep an inference tensor for its backward."""
    if any(type(spec) is InferenceSpec and name in form.saved for name, spec in named(form)):
        raise RuntimeError(_SAVED)
    return form


def named(form: Form) -> list[tuple[str, Spec | None]]:
    """Return the operands that rules may mention, by the names that they have there, with their specs."""
    return list(zip(form.op.inputs, form.specs, strict=False))


def overlapping(x: Tensor, base: Tensor) -> bool:
    """Return whether elements of a tensor, or of its base, share memory.

    Raises RuntimeError for an inference tensor outside of the mode, which must not be written.
    """
    if is_inference(x) and not modes.current().inference:
        raise RuntimeError(_WRITTEN)
    specs = x._form.spec, base._form.spec
    return any(spec.plain.overlaps if isinstance(spec, InferenceSpec) else spec.overlaps for spec in specs)


def check_requires_grad(x: Tensor) -> None:
    """Raise for an inference tensor that is to require grad outside of the mode."""
    if is_inference(x) and not modes.current().inference:
        raise RuntimeError(_WANTED)


def check_counted(x: Tensor) -> None:
    """Raise for an inference tensor: writes to it are not counted."""
    if is_inference(x):
        raise RuntimeError(_COUNTED)


class inference_mode(Switch):  # noqa: N801 (PyTorch's name)
    """Like ``no_grad``; besides, tensors made within cannot be saved for a backward, or be written later.

    ``inference_mode(False)`` within it is ordinary recording. Context manager and decorator, of this thread.
    """

    def __new__(cls, mode: Any = True) -> Any:
        """Allow ``@inference_mode`` without parentheses, as PyTorch does."""
        if isinstance(mode, bool):
            return super().__new__(cls)
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def __enter__(self) -> Self:
        if self.mode:
            ON_MADE.append(made)
        try:
            return super().__enter__()
        except BaseException:  # an interrupt
            if self.mode:
                ON_MADE.pop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self.mode:
                ON_MADE.pop()

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return mode._replace(grad=not self.mode, inference=self.mode)

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode in which what this changes is as it was before."""
        return mode._replace(grad=before.grad, inference=before.inference)

    def clone(self) -> inference_mode:
        """Return another of the same mode."""
        return inference_mode(self.mode)
