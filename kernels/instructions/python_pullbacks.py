"""Instructions whose pullback is user code in Python: a method of an object that the instruction saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kernels.arrays.specs import SCALAR, Spec
from kernels.arrays.sweep_interface import Array
from kernels.foundation.data_classes import dataclass
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from kernels.records.op import Op


class Pullback(Protocol):
    """What an instruction of this kind saves first."""

    def pull(
        self, instruction: Instruction, gradient: Array | None, stash: dict[Any, Any], *, batch: int
    ) -> Sequence[Array | None]:
        """Return what the instruction contributes to each operand; ``gradient`` is its result's, None if it has none.

        ``stash`` is shared by the instructions of one sweep. With ``batch`` gradients have a leading
        axis of that length.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class PythonPullback(Op):
    """A call of user code; its name and pullback are those of the object that it saves. Not in the tables."""

    def __post_init__(self) -> None:
        """Register nothing."""


FUNCTION = PythonPullback(name="function", doc="A Python function with a backward of its own.", pullback=(), grad_fn="")
OUTPUT = PythonPullback(name="output", doc="One of several results of a function.", pullback=(), grad_fn="")


def function(name: str, specs: tuple[Spec | None, ...], spec: Spec | None, count: int) -> Form:
    """Return the form of a function with one result of this spec, or with several; ``count`` arrays are saved."""
    saved = ("context", *(f"saved{k}" for k in range(count)))
    wanted = tuple(source is not None for source in specs)
    nothing = (None,) * len(specs)
    return Form(FUNCTION, specs, spec or SCALAR, wanted, saved, nothing, (), name, python=True)


def output(name: str, spec: Spec) -> Form:
    """Return the form of one of several results."""
    return Form(OUTPUT, (SCALAR,), spec, (True,), ("context",), (None,), (), name, python=True)


def packed(form: Form) -> Form:
    """Return the form of an instruction whose saved values have been packed away by the user."""
    return Form(
        form.op, form.specs, form.spec, form.wanted, ("packed",), form.pulls, form.params, form.name, python=True
    )
