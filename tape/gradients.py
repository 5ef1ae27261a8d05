"""Functions of NumPy arrays with their gradients: what an optimiser calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tape import modes, recording
from tape.autograd.engine import grad
from tape.operands import operand
from tape.tensor import Tensor, as_array, carried, leaf


def value_and_grad(fun: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., tuple[Any, Any]]:
    """Return a function that gives ``fun``'s value, a float, and its gradient as NumPy arrays.

    The arguments named by ``argnums`` reach ``fun`` as tensors of their own; others as they are. ``fun`` returns one
    floating element. The gradient has each argument's shape (a float for a number); with a tuple of ``argnums``
    it is a tuple. Fits ``scipy.optimize.minimize(value_and_grad(f), x0, jac=True)``.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(fun)
    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        full = list(args)
        with modes.enable_grad():
            for i in numbers:
                full[i] = _leaf(args[i])
            value = fun(*full, **kwargs)
            if not isinstance(value, Tensor) or value.spec.size != 1:
                what = f"shape {list(value.spec.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise TypeError(f"value_and_grad: the function returned {what}; it must return a tensor of one element")
            inputs = [full[i] for i in numbers]
            gradients = grad(value, inputs, materialize_grads=True) if value._slot is not None else map(_zeros, inputs)
        found = tuple(map(_plain, gradients))
        return float(as_array(value).item()), found[0] if isinstance(argnums, int) else found

    return both


def _leaf(value: Any) -> Tensor:
    recording.left(value)
    given = operand(value)
    array = np.array(given._value if isinstance(given, Tensor) else given)
    return leaf(carried(array if array.dtype.kind == "f" else array.astype(np.float64)), requires_grad=True)


def _zeros(x: Tensor) -> Tensor:
    return leaf(carried(np.zeros(x.spec.shape, x.spec.dtype)), requires_grad=False)


def _plain(gradient: Any) -> Any:
    value = gradient._value
    return value if isinstance(value, float) else as_array(gradient)
