"""Functions of NumPy's that make arrays, or take lists: those of ``tape.numpy``, which give tensors where they must."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.calls.object_types import where_empty
from tape.operations.elementwise import array_like
from tape.recording import creation, promotion, record, views
from tape.tensors import modes, view_families
from tape.tensors.tensor import Tensor, leaf, scalar_or_array

_ASKING = (modes.RUNNING, modes.LEAVES)  # where both are empty, nobody asks for tensors


def tensor_of_new(array: Any) -> Any:
    """Return a new array of floats as a tensor; anything else as it is."""
    if type(array) is not np.ndarray or array.dtype.kind != "f" or array.dtype.itemsize > 8:  # noqa: PLR2004
        return array
    modes.take_numpys_meaning()
    return leaf(scalar_or_array(array), requires_grad=False)


def _run(numpys: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: tensor_of_new(numpys(*args, **kwargs))


def _made(name: str, make: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return one of NumPy's functions that gives ``make``'s tensor where tensors are made."""
    numpys = getattr(np, name)
    make = _run(numpys) if make is None else make

    def choose(*args: Any, **named: Any) -> Any:
        tensors = modes.makes_tensors() or any(map(_holds, (*args, *named.values())))
        return (make if tensors else numpys)(*args, **named)

    function: Any = where_empty(_ASKING, numpys, choose)
    function.__module__ = "tape.numpy"
    function.__doc__ = f"Run NumPy's ``{name}``; of floats it gives a tensor while something differentiates."
    return function  # type: ignore[no-any-return]


def _holds(x: Any) -> bool:
    return isinstance(x, Tensor) or creation.holds_tensors(x)


def _array(
    object: Any,  # noqa: A002 (NumPy's name)
    dtype: Any = None,
    *,
    copy: Any = True,
    order: Any = "K",
    subok: Any = False,
    ndmin: int = 0,
    like: Any = None,
    **further: Any,
) -> Any:
    if not _holds(object):
        array = np.array(object, dtype, copy=copy, order=order, subok=subok, ndmin=ndmin, like=like, **further)
        return array if array is object else tensor_of_new(array)
    modes.take_numpys_meaning()
    x = array_like(object)
    if dtype is not None and np.dtype(dtype) != x.spec.dtype:
        x = promotion.cast(x, np.dtype(dtype))
    elif x is object and copy:
        x = views.clone(x)
    return views.reshape(x, (1,) * (ndmin - len(x.spec.shape)) + x.spec.shape) if ndmin > len(x.spec.shape) else x


def _asarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None
) -> Any:
    del device
    return _array(a, dtype, copy=copy, order=order or "K", like=like)


def _of_array(numpys: Callable[..., Any], least: int) -> Callable[..., Any]:
    def make(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
        if _holds(a):
            return _array(a, dtype, copy=None, ndmin=least)
        array = numpys(a, dtype, like=like)
        return array if array is a else tensor_of_new(array)

    return make


def _copy(a: Any, order: Any = "K", subok: Any = False) -> Any:
    return _array(a, copy=True, order=order, subok=subok)


def _empty(shape: Any, dtype: Any = float, order: Any = "C", *, device: Any = None, like: Any = None) -> Any:
    model = np.empty(shape, dtype, order, device=device, like=like)
    return tensor_of_new(record.unset(model.shape, model.dtype) if model.flags.c_contiguous else model)


def _full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **further: Any) -> Any:
    if not _holds(fill_value):
        return tensor_of_new(np.full(shape, fill_value, dtype, order, **further))
    return views.clone(views.expand(_array(fill_value, dtype), _shape(shape)))


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, shape)) if np.iterable(shape) else (operator.index(shape),)


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None,
    *, device: Any = None,
) -> Any:  # fmt: skip
    if not _holds(fill_value):
        return tensor_of_new(np.full_like(a, fill_value, dtype, order, subok, shape, device=device))
    kind = getattr(a, "dtype", None) if dtype is None else dtype
    return _full(np.shape(a) if shape is None else shape, fill_value, np.asarray(a).dtype if kind is None else kind)


def _arange(*args: Any, **kwargs: Any) -> Any:
    """With tensors among its numbers: how many there are is control, where they stand has gradients."""
    names = dict(zip(("start", "stop", "step", "dtype"), args, strict=False)) | kwargs
    start, stop, step = names.get("start"), names.get("stop"), names.get("step")
    if not any(isinstance(x, Tensor) for x in (start, stop, step)):
        return tensor_of_new(np.arange(*args, **kwargs))
    if stop is None:
        start, stop = 0, start
    start, step = 0 if start is None else start, 1 if step is None else step
    count = np.arange(*(x.item() if isinstance(x, Tensor) else x for x in (start, stop, step))).size
    points = start + step * np.arange(count)
    return points if names.get("dtype") is None else _array(points, names["dtype"])


def _geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    if not isinstance(start, Tensor) and not isinstance(stop, Tensor):
        return tensor_of_new(np.geomspace(start, stop, num, endpoint, dtype, axis))
    points = np.exp(np.linspace(np.log(start), np.log(stop), num, endpoint, axis=axis))
    return points if dtype is None else _array(points, dtype)


def _fromiter(iter: Any, dtype: Any, count: int = -1, *, like: Any = None) -> Any:  # noqa: A002 (NumPy's name)
    items = list(iter) if count < 0 else [item for item, _ in zip(iter, range(count), strict=False)]
    if not creation.holds_tensors(items):
        return tensor_of_new(np.fromiter(items, dtype, count, like=like))
    return _array(items, dtype)


def _of_parts(numpys: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose first argument is an array or a sequence of such: lists of tensors in it count as one."""

    def make(parts: Any, *args: Any, **kwargs: Any) -> Any:
        if creation.holds_tensors(parts):
            parts = [array_like(x) if creation.holds_tensors(x) else x for x in parts]
        return tensor_of_new(numpys(parts, *args, **kwargs))

    return make


def _of_list(numpys: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose first argument is an array: a list of tensors counts as one."""

    def make(a: Any, *args: Any, **kwargs: Any) -> Any:
        return tensor_of_new(numpys(array_like(a) if creation.holds_tensors(a) else a, *args, **kwargs))

    return make


class _Joined:
    """What ``r_`` and ``c_`` are: NumPy's, which take tensors among what they join."""

    def __init__(self, numpys: Any, *, columns: bool) -> None:
        self._numpys, self._columns = numpys, columns
        self.__doc__ = numpys.__doc__

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if not any(map(_holds, keys)):
            made = self._numpys[key]
            return tensor_of_new(made) if modes.makes_tensors() else made
        if any(isinstance(x, str) for x in keys):
            name = "c_" if self._columns else "r_"
            raise TypeError(f"np.{name}: of tensors it takes no directive such as {keys[0]!r}; write np.concatenate")
        modes.take_numpys_meaning()
        return modes.call_in_numpy(views.cat, [self._part(x) for x in keys], -1 if self._columns else 0)

    def _part(self, x: Any) -> Tensor:
        x = array_like(np.r_[x] if isinstance(x, slice) else x)
        shape = x.spec.shape or (1,)
        return views.reshape(x, (*shape, 1) if self._columns and len(shape) == 1 else shape)


r_, c_ = _Joined(np.r_, columns=False), _Joined(np.c_, columns=True)


class _ArrayKind(type):
    """The class of ``ndarray``: tensors are arrays where ``isinstance`` asks."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, (np.ndarray, Tensor)) if cls is ndarray else super().__instancecheck__(x)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, (np.ndarray, Tensor)) if cls is ndarray else super().__subclasscheck__(kind)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (cls is ndarray and (other is np.ndarray or other is Tensor))

    def __hash__(cls) -> int:
        return hash(np.ndarray) if cls is ndarray else super().__hash__()


class ndarray(np.ndarray, metaclass=_ArrayKind):  # noqa: N801 (NumPy's name)
    """NumPy's ``ndarray``; ``isinstance(t, np.ndarray)`` holds for a tensor too."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return NumPy's array, a class's own where it is derived from this one."""
        return np.ndarray(*args, **kwargs) if cls is ndarray else super().__new__(cls, *args, **kwargs)


def isscalar(element: Any) -> bool:
    """Return whether an object is a number, as NumPy's scalars are: a tensor without dims that NumPy would give so."""
    return view_families.is_scalar(element) if isinstance(element, Tensor) else np.isscalar(element)


_PLAIN = "zeros ones eye identity tri fromfunction linspace logspace zeros_like ones_like empty_like where"
_OF_PARTS = "block column_stack concatenate concat dstack hstack stack vstack"
_OF_LISTS = (
    "amax amin average cumprod cumsum diag diagflat diff dot flip max mean median min pad prod repeat reshape roll std "
    "sum tile var"
)
_MAKERS: dict[str, Callable[..., Any] | None] = {
    **dict.fromkeys(_PLAIN.split()),
    **{name: _of_parts(getattr(np, name)) for name in _OF_PARTS.split()},
    **{name: _of_list(getattr(np, name)) for name in _OF_LISTS.split()},
    "arange": _arange, "array": _array, "asanyarray": _asarray, "asarray": _asarray, "copy": _copy, "empty": _empty,
    "fromiter": _fromiter, "full": _full, "full_like": _full_like, "geomspace": _geomspace,
    "ascontiguousarray": _of_array(np.ascontiguousarray, 1),
}  # fmt: skip

FUNCTIONS = {name: _made(name, make) for name, make in _MAKERS.items()}
"""The functions by NumPy's names."""
