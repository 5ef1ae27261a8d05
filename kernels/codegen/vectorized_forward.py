"""Large results by our own kernels, where that is much faster than the ufunc: one pass, vectorised.

Dynamic mode and replays choose alike, by operation, dtype and size, and so agree in every bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec, spec_of
from kernels.codegen.forward_loops import Expression, forward
from kernels.compiler.jit import callable_at
from kernels.foundation.recent_table import Recent
from kernels.native.memory import where
from kernels.native.pool import reused_arrays
from kernels.native.pool.pool_structs import LARGE

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
