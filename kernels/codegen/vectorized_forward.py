"""Large results by our own kernels, where that is much faster than the ufunc: one pass, vectorised.

Dynamic mode and replays choose alike, by operation, dtype and size, and so agree in every bit.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec, Strides, broadcast, spec_of
from kernels.codegen.loop_printer import Loop, Operand
from kernels.compiler.jit import callable_at
from kernels.foundation.recent_table import Recent
from kernels.native.memory import where
from kernels.native.pool import reused_arrays
from kernels.native.pool.pool_structs import LARGE

# The loops that lowered operations run, and what they compute.


class Expression(Protocol):
    """An elementwise operation, as far as a loop needs it."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the expression calls its operands."""

    @property
    def forward(self) -> Any:
        """The expression."""

    @property
    def vector(self) -> bool:
        """Whether large results are computed by our own kernel."""


def forward(op: Expression, result: Spec, specs: tuple[Spec, ...]) -> Loop:
    """Return the loop of an elementwise expression over its operands."""
    reads = [
        Operand(name, spec.dtype, k, broadcast(spec.shape, spec.strides, result.shape))
        for k, (name, spec) in enumerate(zip(op.inputs, specs, strict=True), start=1)
    ]
    target = Operand("target", result.dtype, 0, result.strides)
    return Loop(op.forward, result.shape, (target, *reads), pullback=False)


def same(x: Any) -> Any:
    """Return the operand: a copy."""
    return x


def tie(x: Any, y: Any) -> Any:
    """Count an element that ties with the extremum ``y``; nan ties with nan."""
    return np.where((x == y) | ((x != x) & (y != y)), 1.0, 0.0)


def spread(strides: Strides, rank: int, axes: Strides, keepdims: bool) -> Strides:
    """Return the strides of a reduction's result over the space of its input."""
    remaining = iter(strides)
    kept = [next(remaining) if keepdims or i not in axes else 0 for i in range(rank)]
    return tuple(0 if i in axes else stride for i, stride in enumerate(kept))


Array = np.ndarray[Any, Any]

_kernels: Recent[tuple[Expression, Spec, tuple[Spec, ...]], tuple[Any, Array]] = Recent()


def suits(op: Expression, spec: Spec, sources: tuple[Spec, ...]) -> bool:
    """Whether the kernel computes this: operands of the result's floating dtype, large, and several laid out alike."""
    if not op.vector or spec.dtype.kind != "f" or spec.bytes < LARGE or not numpy_loops.readable():
        return False
    alike = len(sources) == 1 or all(s.shape == spec.shape and s.strides == spec.strides for s in sources)
    return alike and all(s.dtype == spec.dtype for s in sources)


def run(op: Expression, *operands: Any) -> Array | None:
    """Return the result for operands; None where the ufunc is to compute it."""
    if any(type(x) is not np.ndarray or x.nbytes < LARGE or x.dtype.kind != "f" for x in operands):
        return None
    result = reused_arrays.call(np.empty_like, operands[0])
    key = (op, spec_of(result), tuple([spec_of(x) for x in operands]))
    if not suits(*key):
        return None
    call, layout = _kernels.get(key) or _kernels.setdefault(key, _compiled(*key))
    pointers = np.array([where(x) for x in (result, *operands)], np.int64)
    call(where(layout), where(pointers), 0)
    return result


def _compiled(op: Expression, spec: Spec, sources: tuple[Spec, ...]) -> tuple[Any, Array]:
    address, layout = forward(op, spec, sources).kernel()
    return callable_at(address), layout
