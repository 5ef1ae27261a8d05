"""The rules of records run on tensors, by operations that are recorded themselves.

A cotangent without dims may stand for one of the full shape with the same number everywhere, as a sum of all elements
gives it, as long as what follows is elementwise. In a cotangent that is not ``clean`` -0.0 marks the elements to which
nothing has been contributed; in one that is, a zero is a zero.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from tape.operations import numpy_ufuncs, operators, sums_and_extrema
from tape.recording import views
from tape.tensors import modes
from tape.tensors.tensor import Tensor, constant_tensor

choose = operators.RUN["where"]


def full(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a cotangent in its full shape."""
    have = g._form.spec.shape
    if have == shape:
        return g
    if have:
        return views.reshape(g, shape)
    if g._slot is None and modes.active() is not None:
        return constant_tensor(np.full(shape, g._value, g._form.spec.dtype))
    return views.expand(g, shape)


def onto(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum over the dims that were broadcast from this shape."""
    have = value._form.spec.shape
    if have == shape:
        return value
    lead = len(have) - len(shape)
    ones = [lead + k for k, n in enumerate(shape) if n == 1 and have[lead + k] != 1]
    if not ones:
        return sums_and_extrema.sum(value, 0 if lead == 1 else tuple(range(lead)))
    return views.reshape(sums_and_extrema.sum(value, (*range(lead), *ones), keepdim=True), shape)


def added(value: Tensor) -> Tensor:
    """Turn -0.0, the mark of no contribution, to 0.0."""
    return value + 0.0 if _follower() is not None or marks_of(value) is not None else value


def negative_zeros(value: Tensor) -> Any:
    """Return where a tensor has -0.0; None if nowhere. To a recorder that follows this backward, that is a guard."""
    follower = _follower()
    return marks_of(value) if follower is None else follower.negative_zeros(value)


def _follower() -> Any:
    """Return the recorder that follows a recorded backward, operation by operation; None where there is none."""
    recorder = modes.current().recorder if modes.active() is None else None
    return recorder if hasattr(recorder, "negative_zeros") else None


def marks_of(value: Tensor) -> Any:
    """Return where a tensor has -0.0; None if nowhere."""
    array: Any = value._value
    if (array != 0.0) if type(array) is float else np.count_nonzero(array) == array.size:
        return None
    marks = np.signbit(array) & np.equal(array, 0)
    return np.asarray(marks) if marks.any() else None


def rule_cuts(rule: Callable[..., Any]) -> bool:
    """Whether a rule itself marks elements as not contributed to, by ``cut``."""
    return "cut" in rule.__code__.co_names


def on_tensors(rule: Any) -> Any:
    """Return a rule that calls tape's functions directly, and not by NumPy's dispatch."""
    namespace = {**rule.__globals__, **{name: x for name, x in _NAMES.items() if name in rule.__globals__}}
    return FunctionType(rule.__code__, namespace, rule.__name__, rule.__defaults__, rule.__closure__)


class _Numpy:
    """The ``np`` of rules on tensors: unary functions and ``where`` go to tape's functions directly."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if (
            isinstance(function, np.ufunc)
            and function.nin == 1
            and (serves := numpy_ufuncs.served(function)) is not None
        ):
            function = _of_tensors(function, serves)
        setattr(self, name, function)
        return function

    @staticmethod
    def logical_not(mask: Any) -> Any:
        """Negate a mask, a constant; as an operation only where a recorder must be notified of it."""
        if type(mask) is Tensor and mask._slot is None and modes.active() is not None:
            return constant_tensor(np.asarray(np.logical_not(mask._value)))
        return np.logical_not(mask)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        """Choose."""
        return (choose if type(condition) is Tensor else np.where)(condition, x, y)


def _of_tensors(ufunc: np.ufunc, serves: Callable[..., Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return serves(x) if type(x) is Tensor else ufunc(x)

    return function


def _cut(where: Any, value: Any) -> Any:
    """Do what :func:`kernels.records.kinds.cut` does."""
    return _Numpy.where(where, -0.0, added(value) if isinstance(value, Tensor) else value + 0.0)


_NAMES = {"np": _Numpy(), "cut": _cut}
SHORTER = {("power_scalar", 1.0): lambda g: g, ("power_scalar", 2.0): lambda g, x: g * 2.0 * x}
"""Rules that agree in every bit with the record's for this exponent, in fewer operations."""
