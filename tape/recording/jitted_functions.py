"""``tape.custom``: jitted functions of the user's as operations that stay native in sweeps and replays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.specs import spec_of
from kernels.kinds.custom import Custom, apart
from tape.recording import record, views
from tape.recording.promotion import alike
from tape.tensors.operands import operand
from tape.tensors.tensor import Tensor, as_array, scalar_or_array


def custom(forward: Callable[..., Any], vjp: Callable[..., Any], *, name: str = "") -> Callable[..., Tensor]:
    """Make an operation of two ``@njit`` functions; no Python runs between kernels when it is swept or replayed.

    ``forward(*operands)`` returns the result, an array or a number; ``vjp(cotangent, *operands)`` the gradient of its
    only operand, or a tuple with that of each. Operands are floating tensors, arrays or numbers; they reach the
    functions in one dtype, C-contiguous, 0-d ones as numbers, and must not be changed. The result has that dtype.
    They are compiled once a process for operands of these ranks. The vjp cannot be differentiated again.

    Raises TypeError if a function is not jitted, RuntimeError naming the operation if one raises.
    """
    for role, function in (("forward", forward), ("vjp", vjp)):
        if not hasattr(function, "py_func"):
            raise TypeError(f"custom: {role} is a {type(function).__name__}; decorate it with numba.njit")
    title = name or forward.__name__
    op = Custom(
        name=title, doc=forward.__doc__ or "", pullback=(None,), grad_fn=f"{title}Backward", forward=forward, vjp=vjp
    )

    def operation(*operands: Any) -> Tensor:
        return call(op, operands)

    operation.__name__ = operation.__qualname__ = title
    operation.__doc__ = forward.__doc__
    return operation


def call(op: Custom, args: tuple[Any, ...]) -> Tensor:
    """Run a custom operation on operands as users give them."""
    if not args:
        raise TypeError(f"{op.name}: takes at least one operand")
    operands = alike(*[_floating(op, x) for x in args])
    dtype = operands[0].spec.dtype
    shapes = tuple(x.spec.shape for x in operands)
    flat = views.cat([views.reshape(x, -1) for x in operands])
    try:
        result = op.forward(*apart(as_array(flat), shapes))
    except Exception as error:
        record.note_raised(op, (flat,), {}, error)
        raise
    value = np.asarray(result, dtype if type(result) is float else None)  # Numba boxes float32 as a Python float
    if value.dtype != dtype:
        raise TypeError(f"{op.name}: forward returned {value.dtype} for operands of {dtype}")
    value = np.array(value, order="C")
    return record.finish(
        op,
        (flat,),
        value,
        lambda: op.form((flat.spec,), spec_of(scalar_or_array(value)), (True,), (shapes,)),
        lambda _form: (flat._value,),
        (shapes,),
    )


def _floating(op: Custom, value: Any) -> Any:
    """Return an operand as it is, a Python number as a float; raise unless it is floating."""
    x = operand(value)
    if not isinstance(x, Tensor):
        return float(x)
    if x.spec.dtype.kind != "f":
        raise TypeError(f"{op.name}: an operand has dtype {x.spec.dtype.name}; operands are floating")
    if math.prod(x.spec.shape) == 0:
        raise ValueError(f"{op.name}: an operand of shape {list(x.spec.shape)} has no elements")
    return value
