"""What NumPy's reductions and scans share: arguments bound as NumPy binds them, ``axis``, ``where`` and ``out``.

A reduction over no axes, ``axis=()``, takes each element for itself: it runs over a dim of length one put in front.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tape.conversions import creation
from tape.foundation.dtypes import dtype_of
from tape.operations.operators import FUNCTIONS
from tape.recording import promotion, views
from tape.tensors import modes, pytrees
from tape.tensors.operands import tensor_of
from tape.tensors.registration import Function, implements
from tape.tensors.tensor import Tensor, as_array

_where: Any = FUNCTIONS["where"]


def cast(x: Tensor, dtype: Any) -> Tensor:
    """Return x in a dtype, or x itself for None."""
    return x if dtype is None or dtype_of(dtype) == x.spec.dtype else promotion.cast(x, dtype_of(dtype))


def floating(x: Any) -> Tensor:
    """Return a tensor, or an array as one, of floats: others as float64."""
    x = array_like(x)
    return x if x.spec.dtype.kind == "f" else cast(x, np.float64)


def array_like(x: Any) -> Tensor:
    """Return an array-like, nested lists too, as a tensor; a list with tensors in it is joined, and recorded."""
    if not isinstance(x, (list, tuple)):
        return tensor_of(x)
    return creation.tensor(x) if any(isinstance(e, Tensor) for e in pytrees.leaves(x)) else tensor_of(np.asarray(x))


def not_nan(x: Tensor) -> Tensor:
    """Return which elements are numbers."""
    return x == x  # noqa: PLR0124


def chosen(a: Any, where: Any, instead: Any) -> Tensor:
    """Return ``a`` where the mask ``where=`` of a NumPy reduction holds, elsewhere its neutral element ``instead``."""
    a = tensor_of(a)
    return a if where is True or where is None else _where(tensor_of(where), a, np.asarray(instead, a.spec.dtype))  # type: ignore[no-any-return]


def also(where: Any, there: Tensor) -> Tensor:
    """Return the mask where both hold; ``where`` may be True."""
    return there if where is True else there & tensor_of(where)


@functools.cache
def _names(function: Any) -> tuple[str, ...]:
    """Return the names of NumPy's parameters, the array's left out."""
    return tuple(inspect.signature(function).parameters)[1:]


def bound(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a NumPy function, the array left out, by name."""
    names = _names(function)
    if len(args) > len(names):
        raise TypeError(f"np.{function.__name__} takes {len(names) + 1} arguments, got {len(args) + 1}")
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: value for name, value in arguments.items() if value is not np._NoValue}


def written(name: str, out: Any, result: Any) -> Any:
    """Write a result into what was given as ``out=``, recorded as any write; an array has no room for a gradient."""
    if isinstance(out, tuple):
        (out,) = out
    if out is None:
        return result
    if not isinstance(out, Tensor) and result._slot is not None:
        raise TypeError(
            f"np.{name}: out= is a NumPy array, and the result requires grad; give a tensor, or detach() the operands"
        )
    have, wanted = result.spec, out.spec if isinstance(out, Tensor) else out
    if have.shape != wanted.shape:
        raise ValueError(f"np.{name}: out= has shape {wanted.shape}, but the result {have.shape}")
    if not np.can_cast(have.dtype, wanted.dtype, "same_kind"):
        raise TypeError(
            f"np.{name}: Cannot cast output from {have.dtype!r} to {wanted.dtype!r} with casting rule 'same_kind'"
        )
    if isinstance(out, Tensor):
        return out.copy_(result)
    out[...] = as_array(result)
    return out


def _over(x: Tensor, arguments: dict[str, Any]) -> Tensor:
    """Check ``axis`` as NumPy does; for ``axis=()`` return x with a new dim of length one to reduce over."""
    axis, rank = arguments.get("axis"), len(x.spec.shape)
    if axis is None:
        return x
    axes = normalize_axis_tuple(axis, rank if isinstance(axis, (tuple, list)) else max(rank, 1), "axis")
    if axes:
        arguments["axis"] = None if not rank else axes[0] if len(axes) == 1 else axes
        return x
    arguments["axis"] = 0
    arguments.pop("keepdims", None)
    if arguments.get("where", True) is not True:
        arguments["where"] = views.unsqueeze(views.expand(tensor_of(arguments["where"]), x.spec.shape), 0)
    for name in ("mean", "weights"):
        if arguments.get(name) is not None:
            arguments[name] = views.unsqueeze(array_like(arguments[name]), 0)
    return views.unsqueeze(x, 0)


def reduces(*functions: Any, records: str = "", one_axis: bool = False) -> Callable[[Function], Function]:
    """Let a function of a tensor and NumPy's names, without ``out``, serve a reduction of NumPy's.

    ``axis`` is an int, a tuple of several, or None; ``where`` is True or what fits the tensor. 0-d tensors take the
    axes 0 and -1, as those of NumPy's reductions do that are ufuncs. ``one_axis`` is of those that take no tuple;
    ``records`` is as in :func:`implements`.
    """

    def register(reduce: Function) -> Function:
        function = functions[0]

        def reduction(a: Any, *args: Any, **kwargs: Any) -> Any:
            x = a if type(a) is Tensor else array_like(a)
            if not args and (not kwargs or _plain_axis(x, kwargs)):
                return reduce(x, **kwargs)
            arguments = bound(function, args, kwargs)
            out = arguments.pop("out", None)
            if one_axis and arguments.get("axis") is not None:
                arguments["axis"] = operator.index(arguments["axis"])
            if arguments.get("where", True) is not True:
                arguments["where"] = _mask(function.__name__, arguments["where"])
            return written(function.__name__, out, reduce(_over(x, arguments), **arguments))

        reduction.__name__ = reduction.__qualname__ = function.__name__
        implements(*functions, records=records)(reduction)
        return reduce

    return register


def _plain_axis(x: Tensor, arguments: dict[str, Any]) -> bool:
    """Whether the only argument is one valid axis, an int."""
    axis = arguments.get("axis")
    rank = len(x._form.spec.shape)
    return len(arguments) == 1 and type(axis) is int and -rank <= axis < rank


def _mask(name: str, where: Any) -> Any:
    where = array_like(where)
    if where.spec.dtype != np.bool_:
        raise TypeError(f"np.{name}: where= holds booleans, not {where.spec.dtype}; write where != 0")
    return where


def into_array(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let NumPy write tensors' values into an array; TypeError if one requires grad, for which that has no room."""
    leaves = pytrees.leaves((args, kwargs))
    if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in leaves):
        raise TypeError(
            f"{name}: the first operand is a NumPy array, which has no room for a gradient; write into a tensor, "
            "as tape.tensor(array), or detach() the values"
        )
    plain = [np.asarray(x) if isinstance(x, Tensor) else x for x in args]
    return function(*plain, **{k: np.asarray(x) if isinstance(x, Tensor) else x for k, x in kwargs.items()})
