"""Derivatives between tensors in which a recorder takes part: vmap's maps them, that of a compiled call notes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tape.tensors import modes
from tape.tensors.tensor import Tensor

Derivatives = list[Tensor | None]
"""A gradient for each input, or a tangent for each output; None where one does not depend on the other."""


class Derivation(NamedTuple):
    """How derivatives are computed, by ``run(outputs, inputs, weights, rows, again=False)``.

    With ``rows``, weights and results have a leading axis of that length. With ``again`` the graph is kept, since the
    derivatives will be asked for once more. ``pulls``: they are gradients, not tangents. ``create``: they can be
    differentiated; None: if outputs depend on anything but the inputs that requires grad.
    """

    run: Callable[..., Derivatives]
    pulls: bool
    create: bool | None


def takes_part(recorder: Any) -> bool:
    """Whether a recorder computes derivatives itself."""
    return hasattr(recorder, "derived")


def derived(
    derivation: Derivation, outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor], rows: int
) -> Derivatives:
    """Compute derivatives, or let the recorder do it, if it has a ``derived`` of its own."""
    recorder: Any = modes.current().recorder
    if takes_part(recorder):
        return recorder.derived(derivation, outputs, inputs, weights, rows)  # type: ignore[no-any-return]
    return derivation.run(outputs, inputs, weights, rows)
