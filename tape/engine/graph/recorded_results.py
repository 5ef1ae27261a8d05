"""What a backward that is recorded finds: gradients for leaves, for tensors that retain theirs, for who asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tape import errors
from tape.engine.graph.observers import check_apart
from tape.engine.rules import tensor_rules
from tape.engine.rules.accumulate_grad import accumulate, take_in
from tape.recording import views
from tape.tensors import hooks
from tape.tensors.tensor import AccumulateGrad, Tensor


class Gathered:
    """What a recorded backward has found, and who is given it when."""

    def __init__(self, *, restrict: bool, required: bool = False, accumulates: bool = False) -> None:
        self.restrict, self.required, self.accumulates = restrict, required, accumulates
        self.found: dict[Any, Tensor] = {}
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
        """Note what a leaf gets, free of -0.0."""
        if leaf in self.asked:
            self.keep(leaf, value)
        elif not self.restrict:
            self.leaves[leaf] = self.leaves[leaf] + value if leaf in self.leaves else value

    def keep(self, key: Any, value: Tensor) -> None:
        """Note the gradient of what was asked for, free of -0.0."""
        self.found[key] = self.found[key] + value if key in self.found else value

    def check_used(self, keys: list[Any]) -> None:
        """Raise for an input that no output depends on."""
        for i, key in enumerate(keys):
            if self.required and key not in self.found:
                raise errors.GradError(errors.UNUSED.format(i))

    def result(self, key: Any) -> Tensor | None:
        """Return a gradient asked for, after the hooks of a leaf; None if nothing reached it, or it has been added."""
        value, own = self.found.get(key), hooks.found_on(key)
        if key in self.served:
            return None if self.accumulates else value
        return own.on_tensor(value) if own and value is not None else value

    def serve(self, leaf: AccumulateGrad, value: Tensor) -> None:
        """Serve a leaf with hooks, all of whose gradient is there."""
        self.served.add(leaf)
        given = (own := hooks.of_leaf(leaf)).on_tensor(
            views.clone(tensor_rules.added(value))
        )  # of its own: what follows may be written in place
        if leaf in self.asked:
            self.found[leaf] = given
        if self.accumulates:
            take_in(leaf, own, given, create=True)

    def arrived(self, key: Any) -> None:
        """Give a gradient to the tensors that retain it."""
        for tensor in self.retained.pop(key, ()) if key in self.found else ():
            accumulate(tensor, self.found[key], create=True)

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves, and of tensors that retain theirs."""
        for key in list(self.retained):
            self.arrived(key)
        for leaf, value in self.leaves.items():
            if hooks.found_on(leaf) is None:
                accumulate(leaf, views.clone(value), create=True)
            else:
                self.serve(leaf, value)
