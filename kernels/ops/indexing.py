"""The table of reads and writes by index arrays, and of writes to part of a tensor; and their forms.

The memory of a family is one gradient buffer, so a write needs no gradient of its own: its result is the base tensor's
next version, which shares the gradient buffer of the version before.
"""

from __future__ import annotations

import numpy as np

from kernels.arrays.specs import Spec, Strides, broadcast, dense
from kernels.codegen.loop_printer import Loop
from kernels.codegen.operand_spaces import Operand
from kernels.instructions.forms import Form
from kernels.records.kinds import Gather, Write

_INT64 = np.dtype(np.int64)

Gather(name="index", doc="Elements picked by index arrays or a mask.", grad_fn="IndexBackward0", function=False)
Write(name="copy_", doc="Values copied into part of a tensor.", grad_fn="CopySlices", function=False)
Write(
    name="index_put_",
    doc="Values added to part of a tensor, repeatedly where an index repeats.",
    grad_fn="IndexPutBackward0",
    adds=True,
    function=False,
)


def gather(op: Gather, source: Spec, spec: Spec) -> Form:
    """Return the form of a read by positions ``i``, in elements of the source's gradient."""
    operands = (
        Operand("target", source.dtype, 0, (0,) * len(spec.shape)),
        Operand("g", spec.dtype, 1, spec.gradient),
        Operand("i", _INT64, 2, dense(spec.shape, _INT64.itemsize)),
    )
    loop = Loop(_cotangent, spec.shape, operands, scatter=source.dtype.itemsize)
    return Form(op, (source,), spec, (True,), ("i",), (loop,))


def write(op: Write, base: Spec, region: Spec, source: Spec | None, wanted: tuple[bool, bool]) -> Form:
    """Return the form of a write to ``region``, a pattern in the gradient of ``base``."""
    place = Operand("g", base.dtype, 1, region.gradient)
    target = Operand("target", base.dtype, 0, region.gradient)
    pull = None if source is None else Loop(_cotangent, region.shape, (_onto(source, region.shape), place))
    clear = Loop(_nothing, region.shape, (target,), pullback=False)
    return _form(op, base, source, wanted, ("offset",), (clear, pull), (region,))


def write_at(op: Write, base: Spec, shape: Strides, source: Spec | None, wanted: tuple[bool, bool]) -> Form:
    """Return the form of a write to positions ``i`` of this shape, in elements of the base's gradient."""
    item, apart = base.dtype.itemsize, (0,) * len(shape)
    places = Operand("i", _INT64, 3, dense(shape, _INT64.itemsize))
    place, target = Operand("g", base.dtype, 1, apart), Operand("target", base.dtype, 0, apart)
    pull = None
    if source is not None:
        pull = Loop(_cotangent, shape, (_onto(source, shape), place, places), gather=item)
    clear = Loop(_nothing, shape, (target, places), pullback=False, scatter=item)
    return _form(op, base, source, wanted, ("offset", "i"), (clear, pull), (None,))


def _form(
    op: Write,
    base: Spec,
    source: Spec | None,
    wanted: tuple[bool, bool],
    saved: tuple[str, ...],
    pulls: tuple[Loop, Loop | None],
    params: tuple[Spec | None],
) -> Form:
    clear, pull = pulls
    used = (clear if wanted[0] and not op.adds else None, pull if wanted[1] else None)
    return Form(op, (base if wanted[0] else None, source), base, wanted, saved, used, params)


def _onto(source: Spec, shape: Strides) -> Operand:
    return Operand("target", source.dtype, 0, broadcast(source.shape, source.gradient, shape))


def _cotangent(g: object) -> object:
    return g


def _nothing() -> float:
    return -0.0
