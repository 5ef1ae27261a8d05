"""Integers and booleans as operands: where the result is floating they are cast to the default dtype first.

NumPy would give a half for a byte, and 0 for an integer divided by zero; PyTorch's dtype and exception stand here.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.arrays.warnings_off import dividing
from kernels.call_cache.adopted_arrays import Adopted
from kernels.kinds.elementwise import Elementwise
from kernels.records.scipy_ufuncs import calls_scipy
from tape.foundation import dtypes
from tape.recording import elementwise
from tape.recording.casts import cast
from tape.repeated_calls.call_table import NATIVELY
from tape.tensors.operands import Number, operand, refused
from tape.tensors.tensor import Tensor, as_array, constant_tensor


def by_rows(op: Elementwise, *args: Any) -> Tensor:
    """Run an elementwise operation on tensors, arrays and Python numbers."""
    if not any(isinstance(o, Tensor) for o in args):
        _check_alone(args)
    floating = [o for o in args if isinstance(o, Tensor) and o._form.spec.dtype.kind == "f"]
    if floating and calls_scipy(op):
        args = _weak(args, floating)
    if op.condition and not floating and any(isinstance(o, float) for o in args[1:]):
        wanted = dtypes.get_default_dtype()
        args = (args[0], *[constant_tensor(np.asarray(o, wanted)) if isinstance(o, float) else o for o in args[1:]])
    if op.condition or floating:
        return elementwise.elementwise(op, *args)
    operands = tuple(map(operand, args))
    kinds = {o.spec.dtype.kind for o in operands if isinstance(o, Tensor)}
    if "f" in kinds:
        return elementwise.elementwise(op, *operands)
    if _is_float(op, tuple(o.spec.dtype if isinstance(o, Tensor) else type(o) for o in operands)):
        wanted = dtypes.get_default_dtype()
        return elementwise.elementwise(op, *[cast(o, wanted) if isinstance(o, Tensor) else o for o in operands])
    result: Tensor = dividing(op.name, elementwise.elementwise, op, *operands)
    return result


def of_one_dtype(op: Elementwise, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return operands cast, recorded, to their common float dtype; None if they need no cast.

    Arrays beside a tensor are tensors then. Casts are only of tensors and numbers, and of operations that have a
    gradient for each of them.
    """
    before, args = args, with_tensors(op, args)
    kinds = tuple([x._form.spec.dtype if type(x) is Tensor else type(x) for x in args])
    wanted = _wanted(op, kinds, dtypes.DEFAULT["dtype"])
    if wanted is None:
        return None if args is before else args
    return tuple([x if type(x) is not Tensor or x._form.spec.dtype is wanted else cast(x, wanted) for x in args])


def with_tensors(op: Elementwise, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operands with tensors in place of NumPy's arrays and scalars, if there is a tensor among them.

    Native code repeats calls of tensors. A scalar stays where a number of its own kind would count otherwise; but a
    double beside doubles is one of Python's.
    """
    arrays = np.ndarray if op.condition or calls_scipy(op) else (np.ndarray, np.generic)
    doubles = op.condition and any(type(x) is Tensor and x._form.spec.dtype == np.float64 for x in args)
    if doubles and np.float64 in map(type, args):
        args = tuple([float(x) if type(x) is np.float64 else x for x in args])
    if not any(isinstance(x, arrays) for x in args) or not any(type(x) is Tensor for x in args):
        return args
    return tuple([with_tensor(x) if isinstance(x, arrays) else x for x in args])


def with_tensor(value: Any) -> Tensor:
    """Return an array or a scalar as a tensor; native code converts the next one with its layout."""
    tensor: Tensor = operand(value)
    if NATIVELY:
        if not _adopted:
            _adopted.append(Adopted())
        if type(value) is np.ndarray and value.dtype is tensor.spec.dtype and value.flags.aligned:
            dense = value.flags.c_contiguous or value.flags.f_contiguous
            if dense or not np.may_share_memory(value, as_array(tensor)):
                _adopted[0].enter(value, tensor.spec)
    return tensor


_adopted: list[Adopted] = []
"""The native table of layouts: empty until its first use, then of one element."""


@functools.lru_cache(1024)
def _wanted(op: Elementwise, kinds: tuple[Any, ...], default: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype that operands of these dtypes, or types of Python's numbers, are cast to; None of none."""
    dtypes = [kind for kind in kinds if isinstance(kind, np.dtype)]
    if any(kind not in (float, int) for kind in kinds if kind not in dtypes) or len(kinds) != len(op.inputs):
        return None
    if not dtypes or not op.differentiable or op.condition or None in op.pullback or calls_scipy(op):
        return None
    if not any(dtype.kind == "f" for dtype in dtypes):
        return default if _is_float(op, kinds) else None
    promoted = np.result_type(*dtypes)
    return None if len(set(dtypes)) == 1 or promoted.itemsize < _SINGLE else promoted


_SINGLE = 4
"""Bytes of the smallest floats that have gradients."""


def _check_alone(args: tuple[Any, ...]) -> None:
    """Raise, as PyTorch does, for lists where no operand is a tensor."""
    for value in args:
        if not isinstance(value, (np.ndarray, np.generic, *Number)):
            raise refused(value)


def _weak(args: tuple[Any, ...], floating: list[Tensor]) -> tuple[Any, ...]:
    """Give Python numbers the dtype of the tensors, as NumPy does."""
    dtype = np.result_type(*(o.spec.dtype for o in floating))
    if dtype == np.float64:
        return args
    return tuple([constant_tensor(np.asarray(o, dtype)) if isinstance(o, Number) else o for o in args])


@functools.cache
def _is_float(op: Elementwise, kinds: tuple[Any, ...]) -> bool:
    """Whether an operation on operands of these dtypes, or of Python's types of numbers, gives floats."""
    ones = [np.ones(1, kind) if isinstance(kind, np.dtype) else kind(1) for kind in kinds]
    try:
        with np.errstate(all="ignore"):
            return bool(np.asarray(op.ufunc(*ones)).dtype.kind == "f")
    except (TypeError, ValueError):  # the operation itself says so
        return False
