"""What kinds of records know of a program that is being lowered: its steps, and who makes tasks of them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np  # noqa: TC002 (as everywhere)

from kernels.arrays.specs import Spec, Strides
from kernels.codegen.tasks import Tasks


class Step(Protocol):
    """One operation of a program: ``result = op(operands, params)``."""

    @property
    def op(self) -> Any:
        """Its record."""

    @property
    def operands(self) -> tuple[Any, ...]:
        """Nodes, or Python numbers."""

    @property
    def result(self) -> int:
        """The node of the result; of a write, the part that it writes to."""

    @property
    def params(self) -> tuple[Any, ...]:
        """Static parameters."""

    @property
    def form(self) -> Any:
        """The instruction form, if the gradient was recorded."""

    @property
    def at(self) -> int:
        """Its place among the steps."""


class Lowering(Protocol):
    """What makes the tasks of steps: it knows the nodes of the program and adds further ones."""

    tasks: Tasks
    extra: dict[int, int]
    """Nodes that the pullbacks of steps read, by the places of the steps."""
    extras: dict[int, tuple[int, ...]]
    """The results without a gradient of routines, likewise."""
    loops: Any
    """The loops, told where they and their bodies begin and end."""

    def spec(self, node: int) -> Spec:
        """Return the spec of a node."""

    def number(self, value: float, dtype: np.dtype[Any] = ...) -> int:
        """Return the node of a constant number."""

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        """Return a new node for a constant array."""

    def temporary(self, shape: Strides, dtype: np.dtype[Any]) -> int:
        """Return a new node for a dense intermediate."""

    def operand(self, operand: Any, dtype: np.dtype[Any]) -> int:
        """Return an operand as a node of this dtype, cast if it has another."""

    def cast(self, node: int, dtype: np.dtype[Any]) -> int:
        """Return the node of a dense copy in this dtype."""

    def copy_between(
        self, source: int, target: int, strides: Strides | None = None, offset: int | None = None, *, adds: bool = False
    ) -> None:
        """Copy a node into another, broadcast; or into a part of it that has these strides."""

    def kernel(self, key: Any, make: Any) -> Any:
        """Return the kernel of a key, made at its first use in this program."""

    def ufunc(self, ufunc: Any, operands: tuple[Any, ...], result: int) -> None:
        """Run a ufunc in the dtype that NumPy would choose."""

    def wants_pullback(self, step: Step, name: str) -> bool:
        """Whether the pullback of a step, which is part of the program, reads a value of this name."""

    def places(self, step: Step) -> int:
        """Return the node of a step's places in memory; its pullback reads those in the gradient."""

    def keep_overwritten(self, step: Step) -> None:
        """Copy what pullbacks still read of the memory that a step is about to write."""

    def same_operands(self, step: Step) -> list[Any]:
        """Return the later steps of the same operation on the same operands."""
