"""What objects of Python are in memory, in bytes, for Python and for native code."""

from __future__ import annotations

from kernels.compiler.native_types import Array, Int32, Struct


class TensorObject(Struct, start=8, step=8):
    """A tensor: after its header references, then what is no reference."""

    type: int
    value: ArrayObject
    form: int
    base: int
    views: int
    shared: int
    extras: TensorExtras
    slot: int  # 0, a slot, one that the tensor does not hold (marked UNHELD), a leaf's address turned negative
    offset: int
    bytes: int
    weak: int


MOST_SPARES = 32
"""Tensors that have died whose memory is kept for new ones, each with the address of the next for its value."""
UNHELD = 1 << 62
STALE = -1
"""No slot: the tensor is a view of a version that has been overwritten."""


class LeafObject(Struct, start=16, step=8):
    """The slot of a leaf."""

    grad: int
    hooks: int
    over: int  # whether the transform that made it is done
    owner: int
    spec: int


SMALL_GRADIENT = 1 << 12
"""Bytes from which a gradient of a leaf is dropped with the leaf, not with the last instruction that refers to it."""


class TensorExtras(Struct, start=16, step=8):
    """What few tensors have."""

    counter: int
    grad: int
    leaf: int
    retains: int


class FunctionObject(Struct, start=16, step=8):
    """A function of tensors."""

    call: int  # its entry
    number: int
    slow: int  # who does what is no hit
    always: int  # who does what is always Python's
    attributes: int


class ArrayObject(Struct, start=16, step=8):
    """An array of NumPy's; kernels/native/memory.py and numpy_api.py check that it is so."""

    data: int
    ndim: Int32
    shape: Array[int]
    strides: Array[int]
    base: int
    dtype: DTypeObject
    flags: Int32


A_SIMPLE, A_ALIGNED, A_WRITEABLE, A_DENSE = 0x101, 0x100, 0x400, 0x3
"""Flags of arrays: C-contiguous and aligned; that may be written."""


class DTypeObject(Struct, start=28, step=8):
    """A dtype of NumPy's."""

    number: Int32


LONGS, SINGLES, DOUBLES = 7, 11, 12
"""The numbers of the dtypes int64, float32 and float64 in NumPy."""
