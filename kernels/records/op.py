"""The record of an operation: one declaration, many readers. Its class is its kind, one file of kernels/kinds each.

A rule is an expression in a fixed vocabulary: ``g`` (the cotangent of the result), ``y`` (the result), the
inputs (``x``, or ``a, b``, or ``c, a, b``), and for reductions ``n`` (how many elements met in one result).
It uses operators, NumPy ufuncs, ``np.where`` and :func:`kernels.records.symbols.cut`, so that arrays can run it,
symbols can print it and tensors can record it. What a rule reads decides what the tape keeps alive.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from kernels.foundation.data_classes import dataclass
from kernels.native.tape_structs import PULLS
from kernels.records.symbols import DeclarationError, Rule

OPS: dict[str, Op] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """What every record says about its operation, and what every interpreter may ask its kind.

    ``name`` is NumPy's name (PyTorch's where NumPy has none), ``torch`` PyTorch's other names, ``grad_fn`` the
    name of the backward node, ``function`` whether there is a public function of that name, beside the others.
    """

    name: str
    doc: str
    pullback: tuple[Rule | None, ...]
    torch: tuple[str, ...] = ()
    grad_fn: str
    function: bool = True

    inputs: ClassVar[tuple[str, ...]] = ()
    """What rules call the operands."""
    extras: ClassVar[tuple[str, ...]] = ()
    """What rules call the results that have no gradient."""
    tape_kind: ClassVar[int] = PULLS
    """How a sweep treats its instructions: PULLS to PYTHON of kernels/native/tape_structs.py."""
    counts_ties: ClassVar[bool] = False
    """Whether ``n`` is an array of counts, and not one number."""
    nothing: ClassVar[float] = -0.0
    """What is added to a contribution that Python computed; 0.0 makes its -0.0, nothing, a gradient of zero."""
    contribution: ClassVar[str] = "{}"
    """How the table of operations says where the gradient of a rule goes."""
    repeatable: ClassVar[bool] = False
    """Whether the tasks of a step depend on specs and parameters alone."""

    def __post_init__(self) -> None:
        if self.name in OPS:
            msg = f"{self.name}: declared twice; rename or remove one of the records"
            raise DeclarationError(msg)
        self.check()
        OPS[self.name] = self

    def check(self) -> None:
        """Raise DeclarationError, naming the record, where the declaration contradicts itself."""

    @property
    def differentiable(self) -> bool:
        """Whether an input has a pullback."""
        return any(rule is not None for rule in self.pullback)

    def form(
        self, specs: Any, spec: Any, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = ""
    ) -> Any:
        """Return the instruction form: of operands of these specs, None where a number or not wanted, and a result.

        ``params`` are the form's own, static; ``name`` is the node's where the record has several.
        """
        raise NotImplementedError(f"{self.name}: {type(self).__name__} makes no form from {specs}, {spec}, {params}")

    def reformed(self, form: Any, specs: Any, spec: Any) -> Any:
        """Return the form of the same instruction with other specs: of saved values that were copied."""
        return self.form(specs, spec, form.wanted, form.params, form.name)

    def lower(self, step: Any, lowering: Any) -> None:
        """Add the tasks of a step of a program: see :class:`kernels.kinds.program_interface.Lowering`."""
        raise NotImplementedError(f"{self.name}: {type(self).__name__} has no tasks for {step} ({lowering})")

    def recomputed(self, form: Any, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result from those of its operands; None where that is not known."""
        del form, saved, values


# Functions of arrays that tensors run their own way, by the protocol that NumPy's functions follow.
#
# A rule calls SciPy's solvers through such functions: on arrays they run as written, on tensors what is registered for
# them runs, and is recorded.

Function = TypeVar("Function", bound=Callable[..., Any])


def dispatched(function: Function) -> Function:
    """Let operands that are no arrays, but know ``__array_function__``, run a function instead."""

    @functools.wraps(function)
    def run(*operands: Any, **params: Any) -> Any:
        for x in operands:
            if not isinstance(x, np.ndarray) and hasattr(x, "__array_function__"):
                return x.__array_function__(run, (type(x),), operands, params)
        return function(*operands, **params)

    return run  # type: ignore[return-value]


def turned(x: Any) -> Any:
    """Return matrices with their last two axes exchanged."""
    n = x.ndim
    return np.transpose(x, (*range(n - 2), n - 1, n - 2))
