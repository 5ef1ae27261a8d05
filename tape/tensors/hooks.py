"""Hooks of tensors, and the methods that other files add to Tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Self, TypeVar
from weakref import ref

from kernels.foundation.specs import Array, Spec
from tape.tensors import modes, tapes
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

    __slots__ = ("after", "before", "offset", "order", "spec", "tensor")

    def __init__(self, spec: Spec, offset: int = 0) -> None:
        self.spec = spec
        self.offset = offset
        self.tensor = Registered()
        self.before = Registered()
        self.after = Registered()
        self.order: tuple[int, ...] = ()
        """The numbers of the operands whose gradients hooks after the node see, in PyTorch's order."""

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
        order = self.order or range(len(inputs))
        changed = self._changed(self.after, [inputs[k] for k in order], lambda gradients: (gradients, outputs))
        for k, gradient in zip(order, changed, strict=True):
            inputs[k] = gradient
        return inputs

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
