"""Registering hooks on computed tensors: one at a time, or on several whose gradients belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self
from weakref import ref

from kernels.sweeps.graph import key_of
from tape.engine.graph.observers import family_offset
from tape.engine.graph.sweep_run import ENDED, REACH
from tape.engine.rules.accumulate_grad import separate_gradient, tape_of
from tape.recording import record
from tape.tensors import hooks
from tape.tensors.hooks import Hook, RemovableHandle
from tape.tensors.tensor import AccumulateGrad, Tensor, method
from tape.tensors.view_families import is_view


@method()
def register_hook(x: Tensor, hook: Hook) -> RemovableHandle:
    """Call ``hook(gradient)`` when backward has this tensor's gradient; a tensor it returns takes its place.

    The hook stays with the version it was registered on: after a write in place it sees the gradient of the value
    before. Hooks run in the order of registration. RuntimeError if the tensor does not require grad.
    """
    if x._slot is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    record.note_unrecorded(x, "a hook")
    return RemovableHandle(hooks_of(x).tensor, hook)


def hooks_of(x: Tensor) -> hooks.Hooks:
    """Return the hooks of a tensor's version now, an empty set at first."""
    if type(x._slot) is AccumulateGrad:
        return hooks.of_leaf(x._slot)
    separate_gradient(x, "register_hook")
    hidden = is_view(x) and x._form.op.hides  # type: ignore[union-attr]
    slot = x._base._slot if hidden else x._slot  # since writes to the tensor pass its view by
    return hooks.of_slot(tape_of(slot), slot, x.spec, family_offset(x) or 0)


class _Handles:
    """The handle of a hook on several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take the hook away from all."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> _Handles:
    """Call ``fn`` once a backward: with all gradients, None where there was none, or with the first (``mode="any"``).

    With "all" it runs when the backward has reached as many of the tensors as it will. Its result is not used.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    seen: dict[int, Tensor] = {}
    keys = [_key(x) for x in tensors]  # not the tensors: they would hold their own graph
    due, current = [0], list[Any]()

    def ended() -> None:
        gradients = [seen.get(k) for k in range(len(keys))]
        if mode == "all" and seen:
            seen.clear()
            fn(gradients)

    def make_hook(k: int) -> Hook:
        def hook(gradient: Tensor) -> None:
            if not current or current[0] is not ENDED.get():
                current[:] = [ENDED.get()]
                seen.clear()
                ENDED.get().append(ended)
                due[0] = _reaching(keys) if mode == "all" else 0
                if mode == "any":
                    fn(gradient)
            seen[k] = gradient
            if len(seen) == due[0]:
                ended()

        return hook

    return _Handles([register_hook(x, make_hook(k)) for k, x in enumerate(tensors)])


def _key(x: Tensor) -> Any:
    """Return a slot as a number, or a weak reference to a leaf: neither keeps the tensor's graph."""
    return ref(x._slot) if type(x._slot) is AccumulateGrad else None if x._slot is None else x._slot ^ 0


def _reaching(keys: list[Any]) -> int:
    """Return how many of these slots and leaves the running backward will reach; -1 if that is not known before."""
    reach = REACH.get()
    if reach is None:
        return -1
    reached = reach()
    return sum(key in reached if type(key) is int else key_of(key()) in reached for key in keys)
