"""The plan of a mapped function: its steps on one example, with tensors as numbered nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import ref

from kernels.arrays.specs import Spec
from tape.engine.derivations import Derivation
from tape.tensors import view_families
from tape.tensors.tensor import Tensor, as_array, constant_tensor

Nodes = tuple[int, ...]


class Operation(NamedTuple):
    """An operation: its operands as nodes, or as they were, in a tuple; and the spec of one example's result.

    ``graded``: gradients were recorded when it ran; ``detached``: it left the graph behind.
    """

    op: Any
    operands: Sequence[Any]
    params: tuple[Any, ...]
    result: int
    spec: Spec
    graded: bool
    detached: bool


@dataclass(slots=True)
class Derivative:
    """Derivatives of outputs by inputs; with ``rows``, weights and results have an axis of rows."""

    derivation: Derivation
    outputs: Nodes
    inputs: Nodes
    weights: Nodes
    rows: int
    results: list[int | None]
    graded: bool


@dataclass(slots=True)
class Called:
    """A call with a batching rule of its own: ``mapped(size, args, batched)`` returns the results for all examples."""

    mapped: Callable[..., Any]
    operands: Sequence[Any]
    results: list[int | None]
    graded: bool


class Start:
    """The values that a tensor from before the recording had at its first use, to be put back."""

    def __init__(self, x: Tensor, node: int) -> None:
        self.tensor, self.node = ref(x), node
        self.value, self.slot, self.form = as_array(x), x._slot, x._form
        self.held: Tensor | None = None

    def as_tensor(self) -> Tensor:
        """Return a tensor of the kept values; the tensor itself if its memory was not written."""
        x = constant_tensor(self.value)
        x._slot, x._form = self.slot, self.form
        return x

    def restore(self) -> None:
        """Put it back."""
        x = self.tensor()
        if x is not None:
            if self.held is not None:
                self.value[...] = as_array(self.held)
            view_families.outdate(x)
            x._value = self.value
            view_families.move(x, self.slot, self.form)


Step = Operation | Derivative | Called
