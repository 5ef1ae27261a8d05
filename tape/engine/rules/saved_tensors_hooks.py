"""``autograd.graph``'s contexts for saved tensors: packed by hooks, copied, or with such hooks forbidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.grad_modes import Switch
from tape.tensors.modes import Mode
from tape.tensors.tensor import Tensor


class saved_tensors_hooks(Switch):  # noqa: N801 (PyTorch's name)
    """Within it each tensor that an operation saves goes through ``pack_hook``, and back through ``unpack_hook``.

    ``pack_hook(tensor)`` may return anything; ``unpack_hook`` gets that and returns a tensor of the same shape. What
    is packed is a copy. Backward through such operations runs in Python.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.hooks = pack_hook, unpack_hook

    def __enter__(self) -> Self:
        if modes.current().unpackable:
            raise RuntimeError(modes.current().unpackable)
        return super().__enter__()

    def changed(self, mode: Mode) -> Mode:
        """Return a mode as it is within."""
        return mode._replace(pack=self.hooks)

    def restored(self, mode: Mode, before: Mode) -> Mode:
        """Return a mode with the hooks of before."""
        return mode._replace(pack=before.pack)

    def clone(self) -> Switch:
        """Return another with the same hooks."""
        return saved_tensors_hooks(*self.hooks)


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """Within it what operations save is copied to memory of its own; on the CPU that is all there is to it."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        del pin_memory, device_type
        super().__init__(clone, lambda packed: packed)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within it entering ``saved_tensors_hooks`` raises RuntimeError with this message."""
    before = modes.current()
    try:
        modes.set_mode(before._replace(unpackable=error_message))
        yield
    finally:
        modes.restore(modes.current()._replace(unpackable=before.unpackable))


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Nothing to do: what is saved is always kept from writes in place."""
    yield
