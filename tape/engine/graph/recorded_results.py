"""The results of a recorded backward: gradients of leaves, of tensors that retain theirs, and of ``inputs=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape import errors
from tape.engine.graph.observers import check_apart
from tape.engine.rules.accumulate_grad import accumulate, take_in
from tape.kinds import rules_on_tensors
from tape.recording import views
from tape.tensors import hooks
from tape.tensors.tensor import AccumulateGrad, Tensor


class Gathered:
    """The gradients of a recorded backward, delivered in PyTorch's order."""

    def __init__(self, *, restrict: bool, required: bool = False, accumulates: bool = False) -> None:
        self.restrict, self.required, self.accumulates = restrict, required, accumulates
        self.gradients: dict[Any, Tensor] = {}
        self.asked: dict[Any, Tensor] = {}
        self.leaves: dict[AccumulateGrad, Tensor] = {}
        self.retained: dict[Any, list[Tensor]] = {}
        self.served: set[Any] = set()  # leaves whose hooks have seen their gradient
        self.stash: dict[Any, Any] = {}

    def observe(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Ask for the gradients of leaves or computed tensors."""
        for x in tensors:
            check_apart(x)
            self.asked[x._slot] = x
        return [x._slot for x in tensors]

    def leaf(self, leaf: Any, value: Tensor) -> None:
        """Add to the gradient of a leaf; the value is free of -0.0."""
        if leaf in self.asked:
            self.keep(leaf, value)
        elif not self.restrict:
            self.leaves[leaf] = self.leaves[leaf] + value if leaf in self.leaves else value

    def keep(self, key: Any, value: Tensor) -> None:
        """Add to a gradient that was asked for; the value is free of -0.0."""
        self.gradients[key] = self.gradients[key] + value if key in self.gradients else value

    def check_used(self, keys: list[Any]) -> None:
        """Raise for an input that no output depends on."""
        for i, key in enumerate(keys):
            if self.required and key not in self.gradients:
                raise errors.GradError(errors.UNUSED.format(i))

    def result(self, key: Any) -> Tensor | None:
        """Return a gradient asked for, after the hooks of a leaf; None if nothing reached it, or it has been added."""
        value, leaf_hooks = self.gradients.get(key), hooks.existing(key)
        if key in self.served:
            return None if self.accumulates else value
        return leaf_hooks.on_tensor(value) if leaf_hooks and value is not None else value

    def serve(self, leaf: AccumulateGrad, value: Tensor) -> None:
        """Run the hooks of a leaf whose gradient is complete, and add it to ``.grad`` if this backward does."""
        self.served.add(leaf)
        gradient = (leaf_hooks := hooks.of_leaf(leaf)).on_tensor(
            views.clone(rules_on_tensors.added(value))
        )  # of its own: what follows may be written in place
        if leaf in self.asked:
            self.gradients[leaf] = gradient
        if self.accumulates:
            take_in(leaf, leaf_hooks, gradient, create=True)

    def arrived(self, key: Any) -> None:
        """Give a gradient to the tensors that retain it."""
        for tensor in self.retained.pop(key, ()) if key in self.gradients else ():
            accumulate(tensor, self.gradients[key], create=True)

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves, and of tensors that retain theirs."""
        for key in list(self.retained):
            self.arrived(key)
        for leaf, value in self.leaves.items():
            if hooks.existing(leaf) is None:
                accumulate(leaf, views.clone(value), create=True)
            else:
                self.serve(leaf, value)
