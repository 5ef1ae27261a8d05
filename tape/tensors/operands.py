"""Operands: what the user gives, checked, as tensors, Python numbers and what NumPy computes on."""

from __future__ import annotations

import array
from typing import Any, TypeAlias

import numpy as np

from kernels.foundation.specs import unsupported
from kernels.kinds.reference_tape import copied, expose
from kernels.native.structs import COPIED
from tape.tensors import modes
from tape.tensors.tensor import Array, Tensor, constant_tensor, scalar_or_array

Number = (int, float)
ArrayLike: TypeAlias = Array | np.generic | float
"""What stands for a constant among operands: an array, a number of NumPy's or of Python's; lists do not."""
LARGEST = 1 << 53  # integers up to here are exact as doubles
WEAK: set[type] = set()
"""Classes of tensors that stand for Python numbers: their dtype counts as those do."""


def is_mask(condition: Any) -> bool:
    """Whether a condition is boolean."""
    return condition.spec.dtype == np.bool_ if isinstance(condition, Tensor) else isinstance(condition, bool)


def operand(value: Any) -> Any:
    """Return an operand as a tensor or a Python number; an array's memory must not be written through the tensor."""
    if isinstance(value, Tensor):
        return value
    if type(value) is float or type(value) is bool:
        return value
    if type(value) is int:
        return value if -LARGEST <= value <= LARGEST else _large(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return constant_tensor(scalar_or_array(lent(value)))
    if isinstance(value, Number):  # of a class derived from these
        return operand(float(value) if isinstance(value, float) else int(value))
    if is_array_like(value):
        return constant_tensor(scalar_or_array(lent(array_of(value))))
    raise refused(value)


def tensor_of(x: Any) -> Tensor:
    """Return an operand as a tensor, Python numbers too."""
    if type(x) is Tensor:
        return x
    x = operand(x)
    return x if isinstance(x, Tensor) else constant_tensor(scalar_or_array(np.asarray(x)))


def refused(value: Any) -> TypeError:
    """Return the error for a value that tensors do not take."""
    return TypeError(f"an operand is a {type(value).__name__}; tensors take tensors, NumPy arrays and numbers")


_SEQUENCES = (list, tuple, range, memoryview, array.array)
PRIORITY = 1000
"""The tensors' ``__array_priority__``."""


def is_array_like(value: Any) -> bool:
    """Whether NumPy converts an object to an array: a sequence, or one with ``__array__`` or its interface."""
    kind = type(value)
    return isinstance(value, _SEQUENCES) or hasattr(kind, "__array__") or hasattr(kind, "__array_interface__")


def array_of(value: Any) -> Array:
    """Return an array-like as an array. TypeError for a list that holds tensors which require grad."""
    if isinstance(value, (list, tuple)) and any(wants(x) for x in value):
        raise TypeError(
            f"an operand is a {type(value).__name__} of tensors that require grad; write tape.stack(...) or "
            "tape.tensor(...) of it, which are recorded"
        )
    converted = np.asarray(value)
    if converted.dtype.kind not in "fiub":
        raise TypeError(f"an operand is a {type(value).__name__} of {converted.dtype}; tensors take numbers")
    return converted


def wants(value: Any) -> bool:
    """Whether a value is, or a sequence holds, a tensor that requires grad."""
    if isinstance(value, (list, tuple)):
        return any(map(wants, value))
    return isinstance(value, Tensor) and value._slot is not None


def is_foreign(value: Any) -> bool:
    """Whether an operator leaves a value to the value's own operators: unknown types, and those of higher priority.

    As NumPy's arrays do: objects with ``__array_ufunc__`` of their own, or None, and those of a higher
    ``__array_priority__``. pandas' are converted: their operators know no gradients.
    """
    if isinstance(value, (Tensor, *Number, np.ndarray, np.generic, *_SEQUENCES)):
        return False
    kind = type(value)
    if kind.__module__.startswith("scipy.sparse"):
        raise TypeError(f"an operand is a {kind.__name__}; write its toarray(), or tape.sparse.csr of it")
    if not is_array_like(value):
        return True
    if hasattr(kind, "__pandas_priority__"):
        return False
    return hasattr(kind, "__array_ufunc__") or getattr(value, "__array_priority__", 0) > PRIORITY


def _large(value: int) -> Tensor:
    if not _INT64.min <= value <= _INT64.max:
        raise OverflowError(f"Python integer {value} does not fit into int64; write it as a float: float({value})")
    return constant_tensor(np.asarray(value))


_INT64 = np.iinfo(np.int64)


def beside(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a Python integer as operands of this dtype need it: a large one as a float, or as an unsigned array."""
    if type(value) is int and dtype.kind == "f" and not -LARGEST <= value <= LARGEST:
        return float(value)
    if type(value) is int and dtype.kind == "u" and _INT64.max < value <= np.iinfo(dtype).max:
        return np.asarray(value, dtype)
    return value


def usable(value: Any) -> Array:
    """Return an array, or a NumPy scalar, as an operand: copied, if kernels cannot read its byte order or alignment."""
    array = as_ndarray(value)
    readable = array.dtype.isnative and array.flags.aligned
    return native(array if readable else array.astype(array.dtype.newbyteorder("=")))


def lent(value: Any) -> Array:
    """Return an array, or a NumPy scalar, as an operand whose memory the caller may write afterwards.

    A small or strided one is copied at once; of a large one's memory what pullbacks keep is copied. Recorders see the
    memory itself: what they read from outside is read again at replays.
    """
    array = usable(value)
    recorded = modes.recorder() is not None
    if array.size <= COPIED and not recorded:
        return np.array(array, order="K")
    if not (recorded or array.flags.c_contiguous or array.flags.f_contiguous):
        return copied(array)
    expose(array)
    return array


def as_ndarray(value: Any) -> Array:
    """Return an ndarray of the same memory, so that the user's object keeps its shape; TypeError for a masked array."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            "a masked array: tensors have no mask, so it would be ignored; give x.filled(number), or compute with "
            "x.data and tape.where(x.mask, ...)"
        )
    return (value if type(value) is np.ndarray else np.asarray(value)).view(np.ndarray)


def native(array: Array) -> Array:
    """Check that an array can be a tensor's value: numbers of a supported dtype, native and aligned."""
    if not array.dtype.isnative or not array.flags.aligned:
        property_name = "byte order" if not array.dtype.isnative else "alignment"
        raise TypeError(
            f"array of dtype {array.dtype.str!r} has a foreign {property_name}; "
            "convert it first: array.astype(array.dtype.newbyteorder('='))"
        )
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:  # noqa: PLR2004
        raise TypeError(unsupported(array.dtype))
    return array


def check_broadcast(name: str, operands: tuple[Any, ...]) -> None:
    """Raise PyTorch's message, and the operation's name, if shapes do not broadcast."""
    shapes = [o.spec.shape for o in operands if isinstance(o, Tensor)]
    if len(shapes) < 2 or shapes.count(shapes[0]) == len(shapes):  # noqa: PLR2004
        return
    merged: tuple[int, ...] = ()
    for shape in shapes:
        merged = _merge(name, merged, shape)


def _merge(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for dim in range(rank - 1, -1, -1):
        if left[dim] != right[dim] and 1 not in (left[dim], right[dim]):
            raise RuntimeError(
                f"{name}: The size of tensor a ({left[dim]}) must match the size of tensor b ({right[dim]}) at "
                f"non-singleton dimension {dim}; the shapes are {list(a)} and {list(b)}"
            )
    return tuple(m if n == 1 else n for m, n in zip(left, right, strict=True))
