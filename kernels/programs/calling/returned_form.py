"""How calls of compiled programs return their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.foundation.data_classes import dataclass
from kernels.programs.calling.direct_call_structs import DK_ARRAY, FLAT, GRAD, GRAD_AND_VALUE, SINGLE


@dataclass(frozen=True)
class Form:
    """How a call returns results: FLAT, SINGLE, ... of direct_call_structs.py.

    ``chosen`` are the numbers, among all results, of those in the gradient; ``alone``: it is one of them, no tuple.
    ``steps`` lead through its structure, if it is no tuple either, which ``filled`` returns with its leaves.
    """

    kind: int = FLAT
    chosen: tuple[int, ...] = ()
    alone: bool = False
    steps: tuple[int, ...] = ()
    filled: Callable[[list[Any]], Any] | None = None

    def returned(self, results: list[Any]) -> Any:
        """Return results in this form."""
        if self.kind in (FLAT, SINGLE):
            return tuple(results) if self.kind == FLAT else results[0]
        picked = [results[k] for k in self.chosen]
        gradient = picked[0] if self.alone else tuple(picked) if self.filled is None else self.filled(picked)
        if self.kind == GRAD:
            return gradient
        return (gradient, results[0]) if self.kind == GRAD_AND_VALUE else (results[0], gradient)

    def leaves_out(self, kinds: list[int]) -> bool:
        """Whether some result, of these kinds, is an array that is not returned."""
        shown = set(self.chosen) | (set() if self.kind == GRAD else {0})
        return self.kind != FLAT and any(kind == DK_ARRAY for k, kind in enumerate(kinds) if k not in shown)
