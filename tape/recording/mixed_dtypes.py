"""Operands of several dtypes, which are cast to one before an operation runs: so all that runs has one.

Integers and booleans are cast to the default dtype where the result is floating. NumPy would give a half for a byte,
and 0 for an integer divided by zero; PyTorch's dtype and exception stand here.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.arrays.warnings_off import dividing
from kernels.call_cache.entries import Adopted
from kernels.kinds.elementwise import Elementwise
from kernels.records.scipy_ufuncs import calls_scipy
from tape.foundation import dtypes
from tape.recording import elementwise
from tape.recording.casts import cast
from tape.recording.promotion import of_numpy, promoted
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
    """Return operands cast, recorded, to the dtype that they are computed in; None if they need no cast.

    Arrays beside a tensor are tensors then. Casts are only of tensors; a condition stays as it is.
    """
    before, args = args, with_tensors(op, args)
    kinds = tuple([(x._form.spec.dtype, bool(x._form.spec.shape)) if type(x) is Tensor else type(x) for x in args])
    wanted, numpys = _wanted(op, kinds, dtypes.DEFAULT["dtype"])
    if numpys is not wanted and of_numpy(before):
        wanted = numpys
    if wanted is None:
        return None if args is before else args
    first = args[:1] if op.condition else ()
    rest = args[len(first) :]
    return (*first, *[x if type(x) is not Tensor or x._form.spec.dtype is wanted else cast(x, wanted) for x in rest])


def with_tensors(op: Elementwise, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return operands with tensors in place of NumPy's arrays and scalars, if there is a tensor among them.

    Native code repeats calls of tensors. Where there is a condition, a double beside doubles is one of Python's.
    """
    arrays = (np.ndarray, np.generic)
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


@functools.lru_cache(4096)
def _wanted(op: Elementwise, kinds: tuple[Any, ...], default: np.dtype[Any]) -> tuple[np.dtype[Any] | None, ...]:
    """Return the dtypes that operands of these kinds are cast to, PyTorch's and NumPy's; None for no cast."""
    return tuple([_wanted_of(op, kinds, default, numpy=numpy) for numpy in (False, True)])


def _wanted_of(op: Elementwise, kinds: tuple[Any, ...], default: np.dtype[Any], *, numpy: bool) -> Any:
    """Return the dtype that operands of these kinds are cast to; None for no cast.

    That is also the default dtype, of integers where the result is floating.
    """
    tensors = [kind for kind in kinds if isinstance(kind, tuple)]
    if any(kind not in (float, int, bool) for kind in kinds if kind not in tensors) or len(kinds) != len(op.inputs):
        return None
    chosen = kinds[1:] if op.condition else kinds
    dtypes = {kind[0] for kind in chosen if isinstance(kind, tuple)}
    if not dtypes:
        return None
    common = next(iter(dtypes))
    if len(dtypes) > 1 or op.condition:
        common = promoted(chosen, numpy=numpy, default=default)
        if common.kind == "f" and not op.differentiable and all(dtype.kind != "f" for dtype in dtypes):
            return None  # int64 and uint64, which NumPy compares exactly
    if common.kind != "f" and not op.condition and not calls_scipy(op):
        known = tuple([kind[0] if isinstance(kind, tuple) else kind for kind in kinds])
        common = default if _is_float(op, known) else common
    return None if dtypes == {common} else common


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
