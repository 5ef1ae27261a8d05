"""The context of a custom function: what forward saves for backward."""

from __future__ import annotations

from typing import Any

from tape.tensors.tensor import Tensor


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
