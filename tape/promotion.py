"""Integers and booleans as operands: where the result is floating they are cast to the default dtype first.

NumPy would give a half for a byte, and 0 for an integer divided by zero; PyTorch's dtype and exception stand here.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.op import Elementwise
from kernels.symbols import Unprinted, traced
from tape import broadcasting, dtypes, recording
from tape.operands import Number, operand, refused
from tape.tensor import Tensor, plain


def by_rows(op: Elementwise, *given: Any) -> Tensor:
    """Run an elementwise operation on tensors, arrays and Python numbers."""
    if not any(isinstance(o, Tensor) for o in given):
        _check_alone(given)
    floating = [o for o in given if isinstance(o, Tensor) and o._form.spec.dtype.kind == "f"]
    if floating and calls_scipy(op):
        given = _weak(given, floating)
    if op.condition and not floating and any(isinstance(o, float) for o in given[1:]):
        wanted = dtypes.get_default_dtype()
        given = (given[0], *[plain(np.asarray(o, wanted)) if isinstance(o, float) else o for o in given[1:]])
    if op.condition or floating:
        return broadcasting.elementwise(op, *given)
    operands = tuple(map(operand, given))
    kinds = {o.spec.dtype.kind for o in operands if isinstance(o, Tensor)}
    if "f" in kinds:
        return broadcasting.elementwise(op, *operands)
    if _is_float(op, tuple(o.spec.dtype if isinstance(o, Tensor) else type(o) for o in operands)):
        wanted = dtypes.get_default_dtype()
        cast = [recording.to_dtype(o, wanted) if isinstance(o, Tensor) else o for o in operands]
        return broadcasting.elementwise(op, *cast)
    try:
        with np.errstate(divide="raise"):
            return broadcasting.elementwise(op, *operands)
    except FloatingPointError:
        raise RuntimeError(f"ZeroDivisionError: {op.name} of integers where the divisor has a zero") from None


def _check_alone(given: tuple[Any, ...]) -> None:
    """Raise, as PyTorch does, for lists that do not stand beside a tensor."""
    for value in given:
        if not isinstance(value, (np.ndarray, np.generic, *Number)):
            raise refused(value)


@functools.cache
def calls_scipy(op: Elementwise) -> bool:
    """Whether the forward calls one of SciPy's ufuncs on several operands: a Python number is a double to those."""
    return len(op.inputs) > 1 and bool(traced(op.forward, Unprinted, {}).specials)


def _weak(given: tuple[Any, ...], floating: list[Tensor]) -> tuple[Any, ...]:
    """Give Python numbers the dtype of the tensors, as NumPy does."""
    dtype = np.result_type(*(o.spec.dtype for o in floating))
    if dtype == np.float64:
        return given
    return tuple([plain(np.asarray(o, dtype)) if isinstance(o, Number) else o for o in given])


@functools.cache
def _is_float(op: Elementwise, kinds: tuple[Any, ...]) -> bool:
    """Whether an operation on operands of these dtypes, or of Python's types of numbers, gives floats."""
    ones = [np.ones(1, kind) if isinstance(kind, np.dtype) else kind(1) for kind in kinds]
    try:
        with np.errstate(all="ignore"):
            return bool(np.asarray(op.ufunc(*ones)).dtype.kind == "f")
    except (TypeError, ValueError):  # the operation itself says so
        return False
