"""Large results by our own kernels, where that is much faster than the ufunc: one pass, vectorised.

Dynamic mode and replays choose alike, by operation, dtype and size, and so agree in every bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import loops
from kernels.direct_calls import LARGE, callable_at
from kernels.layouts import Spec, spec_of
from kernels.lowered_loops import forward
from kernels.memory import address_of
from kernels.op import Elementwise

Array = np.ndarray[Any, Any]

_kernels: dict[tuple[Elementwise, Spec, Spec], tuple[Any, Array]] = {}


def suits(op: Elementwise, source: Spec, spec: Spec) -> bool:
    """Whether the kernel computes this: one operand, of the result's floating dtype, large."""
    alike = spec.dtype.kind == "f" and source.dtype == spec.dtype
    return op.vector and alike and spec.bytes >= LARGE and loops.readable()


def run(op: Elementwise, x: Array) -> Array | None:
    """Return the result for an operand; None where the ufunc is to compute it."""
    if x.nbytes < LARGE or x.dtype.kind != "f":
        return None
    result = np.empty_like(x, subok=False)
    key = (op, spec_of(x), spec_of(result))
    if not suits(*key):
        return None
    call, layout = _kernels.get(key) or _kernels.setdefault(key, _compiled(*key))
    pointers = np.array([address_of(result), address_of(x)], np.int64)
    call(address_of(layout), address_of(pointers), 0)
    return result


def _compiled(op: Elementwise, source: Spec, spec: Spec) -> tuple[Any, Array]:
    address, layout = forward(op, spec, (source,)).kernel(op.name)
    return callable_at(address), layout
