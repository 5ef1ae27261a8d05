"""``np.add(tensor, ...)`` and the methods of ufuncs: they find the records, with NumPy's meaning.

A ufunc of ``scipy.special`` finds its record by name. What has no counterpart raises TypeError.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.operations.registry import OPS
from kernels.rules.op import LateUfunc
from tape.operations.elementwise import FUNCTIONS, cast, into_array, written
from tape.operations.matmul import matmul
from tape.recording import foreign_calls, record, views
from tape.recording.parameters import names_of
from tape.recording.pick_calls import array_key
from tape.repeated_calls.call_table import repeated_as
from tape.tensors import modes
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import FUNCTIONS as PUBLIC
from tape.tensors.hooks import NUMPY, RECORDS
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, method

_REMEDY = "use tensor.detach().numpy() where no gradient is needed"
_UFUNCS: dict[Any, Callable[..., Any]] = {}
_LATE: dict[str, tuple[LateUfunc, Callable[..., Any]]] = {}


def _in_numpy(op: Elementwise | str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of several operands as NumPy's: operands of several dtypes, which are not in the table."""
    return repeated_as(op, function, partial(modes.call_in_numpy, function))


for _op in OPS.values():
    if isinstance(_op, Elementwise) and names_of(_op):
        _serves = FUNCTIONS[names_of(_op)[0]]
        if len(_op.inputs) > 1:
            _serves = _in_numpy(_op, _serves)
        if isinstance(_op.ufunc, LateUfunc):
            _LATE[_op.ufunc.__name__] = _op.ufunc, _serves
        elif isinstance(_op.ufunc, np.ufunc):
            _UFUNCS[_op.ufunc] = _serves

RECORDS[np.matmul] = ("dot", "mv", "vm", "mm", "bmm")
_UFUNCS[np.matmul] = _in_numpy("matmul", matmul)
_UFUNCS[np.positive] = lambda x: views.clone(tensor_of(x))  # +x is x itself, as in PyTorch


def _isnan(x: Any) -> Any:
    """Run np.isnan; refuse what SciPy's root finders ask of: their native code goes on after the error of a number."""
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == _ROOT_FINDERS and x._slot is not None and modes.is_grad_enabled():
        refused = foreign_calls.refusal_of_number(frame, x)
        assert refused is not None
        raise refused
    return FUNCTIONS["isnan"](x)


_ROOT_FINDERS = "scipy.optimize._zeros_py"
_UFUNCS[np.isnan] = _isnan
# What reduces, and what accumulates, as a ufunc's methods do: functions of NumPy's that serve tensors.
_REDUCE = {np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
           np.logical_and: np.all, np.logical_or: np.any}  # fmt: skip
_ACCUMULATE = {np.add: np.cumsum, np.multiply: np.cumprod}
_RUNNING = {np.maximum: "cummax", np.minimum: "cummin", np.logaddexp: "logcumsumexp"}


def serve(name: str, late: LateUfunc, function: Callable[..., Any]) -> None:
    """Let a function of more than the record serve a ufunc of SciPy's, by the ufunc's own name."""
    _LATE[name] = late, function


_known: dict[np.ufunc, Callable[..., Any] | None] = {}
"""What serves the ufuncs that have been asked for."""


def served(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return what serves a ufunc: a function with NumPy's meaning, else its record; None if there is neither."""
    if ufunc not in _known:
        function = NUMPY.get(ufunc) or _UFUNCS.get(ufunc)
        if function is None and ufunc.__name__ in _LATE:
            late, tensor_function = _LATE[ufunc.__name__]
            function = tensor_function if late.ufunc is ufunc else None
        _known[ufunc] = function
    return _known[ufunc]


@method("__array_ufunc__")
def array_ufunc(_x: Tensor, ufunc: np.ufunc, how: str, *inputs: Any, **kwargs: Any) -> Any:
    """Run a ufunc, or one of its methods, through its record."""
    function = _known.get(ufunc) or served(ufunc)
    if how == "__call__" and not kwargs and function is not None:
        return function(*inputs)
    return modes.call_in_numpy(_run, ufunc, function, how, inputs, kwargs)


def _run(ufunc: np.ufunc, function: Any, how: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a ufunc with keywords, or one of its methods."""
    way = _WAYS.get(how)
    if way is None or (function is None and how in ("__call__", "outer")):
        raise _unknown(ufunc, how)
    out = kwargs.pop("out", None)
    if how == "__call__":
        result = _called(ufunc, function, inputs, kwargs, out)
    else:
        result = way(ufunc, function, inputs, kwargs)
    return written(ufunc.__name__, out, result)


def _unknown(ufunc: np.ufunc, how: str, what: str = "") -> TypeError:
    name = ufunc.__name__ + ("" if how == "__call__" else f".{how}")
    is_scipys = getattr(sys.modules.get("scipy.special"), ufunc.__name__, None) is ufunc
    owner = "np." if getattr(np, ufunc.__name__, None) is ufunc else "scipy.special." if is_scipys else "the ufunc "
    return TypeError(f"{owner}{name}{what} has no record for tensors; {_REMEDY}")


def _called(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Call the record; ``dtype=`` is what NumPy computes in, ``where=`` needs an ``out=`` that has the rest."""
    if ufunc in NUMPY:
        return function(*inputs, **kwargs)
    where, dtype = kwargs.pop("where", True), kwargs.pop("dtype", None)
    if kwargs.pop("casting", "same_kind") != "same_kind" or kwargs.pop("order", "K") != "K":
        raise _unknown(ufunc, "__call__", " with casting= or order=")
    kwargs.pop("subok", None)
    if kwargs:
        raise _unknown(ufunc, "__call__", f" with {', '.join(kwargs)}")
    if dtype is not None:
        inputs = tuple([record.to_dtype(tensor_of(x), dtype_of(dtype)) for x in inputs])
    result = function(*inputs)
    if where is True:
        return result
    if out is None:
        raise _unknown(ufunc, "__call__", " with where= but no out=")
    return FUNCTIONS["where"](where, result, out[0])


def _reduce(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Reduce as ``ufunc.reduce(array, axis=0, dtype=None, out=None, keepdims=False, initial, where)``."""
    del function
    (x, *rest) = inputs
    arguments = {"axis": 0, **dict(zip(("axis", "dtype", "out", "keepdims", "initial", "where"), rest, strict=False))}
    arguments = {k: v for k, v in {**arguments, **kwargs}.items() if v is not np._NoValue}
    if ufunc is np.logaddexp and not arguments.keys() - {"axis", "keepdims"}:
        return PUBLIC["logsumexp"](x, arguments["axis"], arguments.get("keepdims", False))
    if ufunc not in _REDUCE:
        raise _unknown(ufunc, "reduce")
    if ufunc in (np.logical_and, np.logical_or):  # NumPy's all and any take no dtype and no initial
        first = arguments.pop("initial", None)
        if arguments.pop("dtype", None) not in (None, bool, np.bool_):
            raise _unknown(ufunc, "reduce", " with dtype=")
        result = NUMPY[_REDUCE[ufunc]](x, **arguments)
        return result if first is None else ufunc(result, first)
    if arguments.get("dtype", ...) is None or ufunc in (np.maximum, np.minimum):
        dtype = arguments.pop("dtype", None)
        x = x if dtype is None else cast(tensor_of(x), dtype)
    return NUMPY[_REDUCE[ufunc]](x, **{k: v for k, v in arguments.items() if v is not None or k == "axis"})


def _accumulate(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del function
    (x, *rest) = inputs
    axis = kwargs.pop("axis", rest[0] if rest else 0)
    if ufunc in _ACCUMULATE:
        return NUMPY[_ACCUMULATE[ufunc]](x, axis=axis, **{k: v for k, v in kwargs.items() if v is not None})
    if ufunc not in _RUNNING or kwargs.get("dtype") is not None:
        raise _unknown(ufunc, "accumulate")
    result = PUBLIC[_RUNNING[ufunc]](x, axis)
    return result[0] if isinstance(result, tuple) else result


def _outer(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = map(tensor_of, inputs)
    spread = views.reshape(a, (*a.spec.shape, *(1,) * len(b.spec.shape)))
    return _called(ufunc, function, (spread, b), kwargs, None)


_REDUCED = {np.multiply: "prod", np.maximum: "amax", np.minimum: "amin"}
"""What ``ufunc.at`` is to the reduction of a scatter."""


def _at(ufunc: np.ufunc, function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Combine with elements at places, in place, where an index may repeat."""
    del function
    x, key, *values = inputs
    if not isinstance(x, Tensor):
        into_array(ufunc.at, f"np.{ufunc.__name__}.at", inputs, kwargs)
    elif ufunc in (np.add, np.subtract):
        value = values[0] if ufunc is np.add else operator.neg(tensor_of(values[0]))
        x.index_put_(key if isinstance(key, tuple) else (key,), value, accumulate=True)
    elif ufunc in _REDUCED:
        numbers = np.arange(x.spec.size).reshape(x.spec.shape)[array_key(key)]
        value = views.expand(cast(tensor_of(values[0]), x.spec.dtype), numbers.shape)
        source, at = views.reshape(value, -1), tensor_of(numbers.reshape(-1))
        flat = PUBLIC["scatter_reduce"](views.reshape(x, -1), 0, at, source, _REDUCED[ufunc])
        x.copy_(views.reshape(flat, x.spec.shape))
    else:
        raise _unknown(ufunc, "at")


_WAYS: dict[str, Callable[..., Any]] = {
    "__call__": _called,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "outer": _outer,
    "at": _at,
}
