"""What operations raise while a call is recorded that goes on, since the function catches it: guards of the program."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.arrays.sweep_interface import Array
from kernels.kinds.custom import Callback
from kernels.kinds.routine import Routine, computed
from tape.compiled.recording.sameness import same_params
from tape.tensors.tensor import Tensor, as_array, constant_tensor

RAISED = Callback(name="caught error", doc="Which error a routine raises.", pullback=(), grad_fn="")
"""A step that runs a routine for its error alone."""


class Attempt:
    """A routine that is tried: 0 where it raises nothing, else a number for the class and the text of the error."""

    graded = ()

    def __init__(self, op: Routine, params: dict[str, Any]) -> None:
        self.op, self.params = op, params

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Attempt)
            and other.op is self.op
            and same_params(sorted(self.params.items()), sorted(other.params.items()))
        )

    def __hash__(self) -> int:
        return hash(self.op)

    def __str__(self) -> str:
        return self.op.name

    def run(self, values: list[Array]) -> tuple[list[Array], None]:
        """Run the routine; return which error it raises."""
        try:
            computed(self.op, values, self.params)
        except Exception as error:  # noqa: BLE001 (whichever it is)
            return [np.array(number_of(error))], None
        return [np.array(0.0)], None

    def gradients(self, g: Array, saved: dict[str, Any], specs: tuple[Any, ...]) -> list[Array | None]:
        """Return none: errors have no gradient."""
        del g, saved
        return [None] * len(specs)

    def on_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Run on the values of tensors."""
        return [constant_tensor(float(x)) for x in self.run(list(map(as_array, tensors)))[0]]


def number_of(error: Exception) -> float:
    """Return a number for what the caller can see of an error: its class and its text."""
    return 1.0 + zlib.crc32(f"{type(error).__qualname__}: {error}".encode())
