"""``np.f(tensor)``: NumPy's functions find the records, with NumPy's meaning; one without a record raises TypeError."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tape.operations.elementwise import FUNCTIONS, into_array, written
from tape.recording import creation, foreign_calls, record, views
from tape.tensors import modes, pytrees, view_families
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import NUMPY, implements
from tape.tensors.operands import PRIORITY, tensor_of
from tape.tensors.tensor import Array, Tensor, as_array, method

method("__array_priority__")(PRIORITY)  # type: ignore[type-var]
method("__pandas_priority__")(5000)  # type: ignore[type-var]  # above a DataFrame's: series * t is recorded


_WRITE = (np.copyto, np.put, np.put_along_axis, np.place, np.putmask, np.fill_diagonal)
"""Functions of NumPy's that write to their first argument."""


_OUTWARD = (
    np.save, np.savez, np.savez_compressed, np.savetxt, np.array2string, np.array_repr, np.array_str,
    np.may_share_memory, np.shares_memory,
)  # fmt: skip
"""Functions of NumPy's that write, print or look at arrays: they give none."""


@method("__array_function__")
def array_function(_x: Tensor, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
    """Run one of NumPy's other functions through its record."""
    function = NUMPY.get(func)
    if func in _OUTWARD:
        args, kwargs = pytrees.mapped(lambda x: array(x) if isinstance(x, Tensor) else x, (args, kwargs))
        return func(*args, **kwargs)
    if function is None:
        remedy = "use tensor.detach().numpy() where no gradient is needed"
        raise TypeError(f"np.{_name(func)} has no record for tensors; {remedy}")
    if func in _WRITE and args and not isinstance(args[0], Tensor):
        return into_array(func, f"np.{_name(func)}", args, kwargs)
    out = None
    if "out" not in parameters(function):
        args, kwargs, out = _without_out(func, args, kwargs)
    tape = modes.own_tape()
    before = tape.in_numpy
    try:
        tape.in_numpy = True  # here: what a call adds to the traceback would hide whose arguments do not fit
        result = function(*args, **kwargs)
        return result if out is None else written(_name(func), out, result)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        problem = str(error).partition("() ")[2]  # the arguments do not fit
        raise TypeError(f"np.{_name(func)} of a tensor {problem}") from None
    finally:
        tape.in_numpy = before


def _name(func: Any) -> str:
    """Return the name of one of NumPy's functions as users write it behind ``np.``."""
    return f"{func.__module__.removeprefix('numpy')}.{func.__name__}".lstrip(".")


@functools.cache
def parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters; none where they are not known."""
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:
        return ()


def _without_out(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any, Any]:
    """Return the arguments of one of NumPy's functions without ``out``, by place or name, and that."""
    names = parameters(func)
    at = names.index("out") if "out" in names else len(args)
    named = {**dict(zip(names[at:], args[at:], strict=False)), **kwargs}
    out = named.pop("out", None)
    return args[:at], named, out


@method("__array__")
def array(x: Tensor, dtype: Any = None, copy: bool | None = None) -> Array:
    """Return the value for NumPy; a tensor that requires grad raises rather than lose its gradient."""
    if x._slot is not None and modes.is_grad_enabled():
        raise foreign_calls.refusal(x)
    record.note_escape(x)
    if modes.given_arrays() and view_families.is_scalar(x):
        copy = True  # NumPy's scalars share no memory
    if copy or (dtype is not None and dtype != x.spec.dtype):
        return np.array(as_array(x), dtype=dtype, copy=copy)
    return view_families.handed_out(x)


@implements(np.where, records="where")
def _where(condition: Any, *values: Any) -> Any:
    if not values:
        return NUMPY[np.nonzero](condition)
    return FUNCTIONS["where"](condition, *values)


@implements(np.concatenate, records="concatenate")
def _concatenate(arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Tensor:
    if dtype is not None:
        arrays = [_cast(a, dtype, casting) for a in arrays]
    if axis is None:
        return views.cat([views.reshape(tensor_of(a), -1) for a in arrays])
    tensors = [tensor_of(a) for a in arrays]
    ranks = [len(x.spec.shape) for x in tensors]
    if len(set(ranks)) > 1:  # shapes of (0,) are none that join anything here
        raise ValueError(f"np.concatenate: the arrays must have as many dims as each other; they have {ranks}")
    return views.cat(tensors, axis)


@implements(np.stack, records="stack")
def _stack(arrays: Any, axis: int = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Tensor:
    if dtype is not None:
        arrays = [_cast(a, dtype, casting) for a in arrays]
    return views.stack([tensor_of(a) for a in arrays], axis)


def _cast(value: Any, dtype: Any, casting: Any) -> Tensor:
    """Return a tensor of a dtype; TypeError where NumPy's rule of casting forbids that."""
    x, dtype = tensor_of(value), dtype_of(dtype)
    if not np.can_cast(x.spec.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {x.spec.dtype!r} to {dtype!r} according to the rule {casting!r}")
    return x if x.spec.dtype == dtype else record.to_dtype(x, dtype)


@implements(np.reshape)
def _reshape(a: Tensor, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    if order not in ("C", "F"):
        raise TypeError(f"np.reshape of a tensor takes order='C' or 'F', not {order!r}")
    if order == "F":
        sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        return _transpose(_reshape(_transpose(a), sizes[::-1], copy=copy))
    if copy:
        return views.reshape(views.clone(a), shape)
    try:
        return views.reshape(a, shape) if copy is None else views.view(a, shape)
    except RuntimeError as error:
        if copy is None:
            raise
        raise ValueError("np.reshape: a tensor of these strides cannot be viewed so, and copy=False") from error


@implements(np.ravel)
def _ravel(a: Tensor, order: str = "C") -> Tensor:
    if order not in ("C", "F"):
        raise TypeError(f"np.ravel of a tensor takes order='C' or 'F', not {order!r}")
    return views.reshape(a if order == "C" else _transpose(a), -1)


@implements(np.transpose, np.permute_dims, records="permute")
def _transpose(a: Tensor, axes: Any = None) -> Tensor:
    return views.permute(a, tuple(range(len(a.spec.shape)))[::-1] if axes is None else axes)


@implements(np.squeeze, records="squeeze squeeze_dims")
def _squeeze(a: Tensor, axis: Any = None) -> Tensor:
    if axis is not None and (a.spec.shape or isinstance(axis, tuple) or axis not in (0, -1)):  # as NumPy
        axis = normalize_axis_tuple(axis, len(a.spec.shape))
        if any(a.spec.shape[i] != 1 for i in axis):
            raise ValueError(
                f"cannot select an axis to squeeze out which has size not equal to one: axis {axis} of {a.spec.shape}"
            )
    return views.squeeze(a, axis)


@implements(np.expand_dims, records="unsqueeze")
def _expand_dims(a: Tensor, axis: Any) -> Tensor:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = normalize_axis_tuple(axes, len(a.spec.shape) + len(axes))
    sizes = iter(a.spec.shape)
    shape = tuple(1 if i in places else next(sizes) for i in range(len(a.spec.shape) + len(axes)))
    return views.unsqueeze(a, places[0]) if len(places) == 1 else views.reshape(a, shape)


@implements(np.broadcast_to, records="expand")
def _broadcast_to(array: Tensor, shape: Any) -> Tensor:
    return views.expand(array, shape)


@implements(np.lib.stride_tricks.sliding_window_view, records="unfold")
def _sliding_window_view(
    x: Tensor, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tensor:  # fmt: skip
    del subok, writeable
    sizes = window_shape if isinstance(window_shape, (tuple, list)) else (window_shape,)
    rank = len(x.spec.shape)
    axes = range(rank) if axis is None else normalize_axis_tuple(axis, rank, allow_duplicate=True)
    if len(sizes) != len(axes):
        raise ValueError(f"np.sliding_window_view: {len(sizes)} extents of windows for {len(axes)} axes")
    for size, dim in zip(sizes, axes, strict=True):
        x = x.unfold(dim, size, 1)
    return x


def _model(name: str, a: Tensor, order: str, subok: bool, shape: Any) -> Tensor:
    """Return a tensor of the shape and dtype that a function of NumPy's is to give."""
    del subok  # a tensor is a tensor
    if order not in ("K", "A", "C"):
        raise TypeError(f"np.{name}: order={order!r} is not supported; new tensors are C-contiguous")
    return a if shape is None else creation.empty(shape, dtype=a.spec.dtype)


@implements(np.zeros_like)
def _zeros_like(
    a: Tensor, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Tensor:
    return creation.zeros_like(_model("zeros_like", a, order, subok, shape), dtype=dtype, device=device)


@implements(np.ones_like)
def _ones_like(
    a: Tensor, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Tensor:
    return creation.ones_like(_model("ones_like", a, order, subok, shape), dtype=dtype, device=device)


@implements(np.full_like)
def _full_like(
    a: Tensor, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Tensor:  # fmt: skip
    model = _model("full_like", tensor_of(a), order, subok, shape)
    if not isinstance(fill_value, (Tensor, np.ndarray)):
        return creation.full_like(model, fill_value, dtype=dtype, device=device)
    result = creation.zeros_like(model, dtype=dtype, device=device)
    NUMPY[np.copyto](result, fill_value, "unsafe")
    return result


@implements(np.shape)
def _shape(a: Tensor) -> tuple[int, ...]:
    return a.spec.shape


@implements(np.ndim)
def _ndim(a: Tensor) -> int:
    return len(a.spec.shape)


@implements(np.size)
def _size(a: Tensor, axis: int | None = None) -> int:
    return a.spec.size if axis is None else a.spec.shape[axis]


@implements(np.copy)
def _copy(a: Tensor) -> Tensor:
    return views.clone(a)
