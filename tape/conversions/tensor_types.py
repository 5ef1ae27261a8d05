"""PyTorch's older types, a dtype each: ``LongTensor([1, 2])``, ``isinstance(x, LongTensor)``, ``x.type()``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.conversions.attributes import to
from tape.conversions.creation import shape_of
from tape.foundation.dtypes import dtype_of
from tape.recording import record
from tape.tensors.tensor import Tensor, as_array, constant_tensor, method, scalar_or_array

_DTYPES = {
    "DoubleTensor": np.float64, "FloatTensor": np.float32, "LongTensor": np.int64, "IntTensor": np.int32,
    "ShortTensor": np.int16, "CharTensor": np.int8, "ByteTensor": np.uint8, "BoolTensor": np.bool_,
}  # fmt: skip


class _TensorType(type):
    """A type whose instances are the tensors of one dtype, and that makes them."""

    dtype: np.dtype[Any]

    def __call__(cls, *args: Any) -> Tensor:
        """Return zeros of a shape given by numbers, or a copy of a sequence, an array or a tensor."""
        if len(args) == 1 and not isinstance(args[0], int):
            record.note_escape(args[0])
            data = as_array(args[0]) if isinstance(args[0], Tensor) else args[0]
            return constant_tensor(scalar_or_array(np.array(data, dtype=cls.dtype)))
        return constant_tensor(np.zeros(shape_of(args) if args else (0,), cls.dtype))

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and x.spec.dtype == cls.dtype


def _made(name: str, dtype: Any) -> _TensorType:
    doc = f"Tensors of {dtype_of(dtype).name}: ``{name}(2, 3)`` makes zeros, ``{name}([1, 2])`` holds the numbers."
    return _TensorType(name, (), {"dtype": dtype_of(dtype), "__doc__": doc, "__module__": __name__})


TYPES = {name: _made(name, dtype) for name, dtype in _DTYPES.items()}
globals().update(TYPES)
_NAMES = {kind.dtype: f"torch.{name}" for name, kind in TYPES.items()}


@method("type")
def type_of(x: Tensor, dtype: Any = None) -> Any:
    """Return the name of the type, "torch.DoubleTensor", or the tensor with another dtype, type or name of one."""
    if dtype is None:
        return _NAMES.get(x.spec.dtype, f"torch.{x.spec.dtype.name}")
    if isinstance(dtype, str) and dtype.startswith("torch."):
        dtype = TYPES.get(dtype.removeprefix("torch."), dtype)
    return to(x, dtype=dtype.dtype if isinstance(dtype, _TensorType) else dtype)


type_of.__name__ = type_of.__qualname__ = "type"


__all__ = list(_DTYPES)
