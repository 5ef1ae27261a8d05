"""NumPy's protocols on tensors: functions, ufuncs, methods of arrays.

Where a method means one thing to PyTorch and another to NumPy, PyTorch's stands: ``x.sort()``, ``x.max(axis=0)`` are
pairs, ``x.std()`` divides by one less than the number of elements, ``x.transpose(0, 1)`` exchanges two dims, and
``x.repeat(2)`` tiles. ``np.f(x)`` always is NumPy's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tape.errors import shorten
from tape.operations import diagonals, indexing
from tape.operations.elementwise import FUNCTIONS, cast_by_rule, into_array, numpy_name, parameters, written
from tape.recording import attributes, creation, foreign_calls, record, to_python, views
from tape.recording.parameters import ints_of, with_axis, with_name
from tape.tensors import modes, pytrees, view_families
from tape.tensors.hooks import NUMPY, implements
from tape.tensors.operands import PRIORITY, tensor_of
from tape.tensors.tensor import Array, Tensor, as_array, attribute, method

_VECTORS = 2


class Count(int):
    """How many elements a tensor has, as an int; called as PyTorch's method it gives the shape or an extent."""

    _of: Tensor

    def __call__(self, dim: int | None = None) -> Any:
        """Return the shape, or the extent of one dim."""
        return attributes.size(self._of, dim)

    def __reduce__(self) -> Any:
        return int, (int(self),)


class _SizeOf(property):
    """Read from a tensor it is a :class:`Count`; from the class the function, as PyTorch's method is."""

    def __get__(self, x: Any, owner: Any = None) -> Any:
        return attributes.size if x is None else super().__get__(x, owner)


def _count(x: Tensor) -> Count:
    """The number of elements, as NumPy's attribute; ``x.size()`` and ``x.size(dim)`` are PyTorch's shape and extent."""
    count = Count(x._form.spec.size)
    count._of = x
    return count


method("size")(_SizeOf(_count))


def _renewed(name: str) -> Callable[[Any], Any]:
    """Replace a method by one that accepts NumPy's arguments too; ``tape``'s function of that name stays PyTorch's."""

    def install(function: Any) -> Any:
        tensor_method = vars(Tensor)[name]
        function.__name__ = function.__qualname__ = name
        if function.__doc__:
            function.__doc__ = (
                f"{tensor_method.__doc__.rstrip() if tensor_method.__doc__ else name}\n\n    {function.__doc__}\n    "
            )
        setattr(Tensor, name, function)
        return tensor_method

    return install


def _scan(name: str) -> None:
    tensor_method, flat = vars(Tensor)[name], NUMPY[getattr(np, name)]

    @_renewed(name)
    @with_axis
    @with_name(name)
    def scan(x: Tensor, dim: Any = None, dtype: Any = None, out: Any = None) -> Tensor:
        """Without a dim it runs over all elements in order, as NumPy's method does."""
        if dim is None:
            return flat(x, None, dtype, out)  # type: ignore[no-any-return]
        return written(name, out, tensor_method(x, dim, dtype=dtype))  # type: ignore[no-any-return]


_scan("cumsum")
_scan("cumprod")


@_renewed("transpose")
def _transpose_method(x: Tensor, *axes: Any, dim0: Any = None, dim1: Any = None) -> Tensor:
    """As NumPy's: without dims they are reversed; with all of them, or a tuple, they stand in that order."""
    if len(axes) == _VECTORS or dim0 is not None or dim1 is not None:
        dims = {name: d for name, d in (("dim0", dim0), ("dim1", dim1)) if d is not None}
        return views.transpose(x, *axes, **dims)
    if not axes or axes == (None,):
        return x.T
    return views.permute(x, ints_of(axes))


@_renewed("flatten")
def _flat_copy(x: Tensor, start_dim: Any = 0, end_dim: int = -1, *, order: Any = None) -> Tensor:
    """``x.flatten("F")`` and ``order=`` are NumPy's: a copy of all elements in that order."""
    if isinstance(start_dim, str):
        start_dim, order = 0, start_dim
    return _flat_copy(x, start_dim, end_dim) if order is None else views.clone(NUMPY[np.ravel](x, order))


@_renewed("ravel")
def _flat_view(x: Tensor, order: Any = None) -> Tensor:
    """``order`` is NumPy's."""
    return diagonals.ravel(x) if order is None else NUMPY[np.ravel](x, order)  # type: ignore[no-any-return]


@_renewed("dot")
def _vectors(x: Tensor, tensor: Any) -> Any:
    """Matrices and numbers are taken as NumPy's method takes them."""
    both_vectors = isinstance(tensor, Tensor) and len(x.spec.shape) == len(tensor.spec.shape) == 1
    return _vectors(x, tensor) if both_vectors else NUMPY[np.dot](x, tensor)


@_renewed("round")
def _rounded(x: Tensor, decimals: int = 0) -> Tensor:
    """``x.round(1)`` is NumPy's."""
    return _rounded(x, decimals=decimals)  # type: ignore[no-any-return]


@_renewed("take")
def _taken(
    x: Tensor, index: Any = None, axis: Any = None, out: Any = None, mode: str = "raise", *, indices: Any = None
) -> Any:
    """With ``axis``, ``mode`` or ``indices``: NumPy's."""
    if axis is None and out is None and mode == "raise" and indices is None:
        return _taken(x, index)
    return written("take", out, NUMPY[np.take](x, index if indices is None else indices, axis, mode=mode))


@_renewed("argsort")
@with_axis
@with_name("argsort")
def _places(x: Tensor, dim: int = -1, descending: Any = False, stable: Any = False, *, kind: Any = None) -> Tensor:
    """``kind`` is NumPy's; equal elements always keep their order."""
    if isinstance(descending, str):  # NumPy's second argument
        kind, descending = descending, False
    del kind
    return _places(x, dim, descending, bool(stable))  # type: ignore[no-any-return]


@_renewed("item")
def _item(x: Tensor, *args: Any) -> Any:
    """With a number, or an index: that of the flat tensor, or that element."""
    if not args:
        return _item(x)
    (key,) = args if len(args) == 1 else (args,)
    return to_python.item(indexing.index(views.reshape(x, -1) if isinstance(key, int) else x, key))


@method()
def astype(
    x: Tensor, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
) -> Tensor:
    """Return the tensor in another dtype, recorded where both are floating; itself with ``copy=False`` if it has it.

    TypeError where ``casting`` does not allow it. ``order`` and ``subok`` are NumPy's and change nothing.

    >>> tape.tensor([1.5, 2.5]).astype(int)
    tensor([1, 2])
    """
    del order, subok
    result = cast_by_rule(x, np.dtype(dtype), casting)
    return views.clone(x) if copy and result is x else result


@method()
def copy(x: Tensor, order: str = "C") -> Tensor:
    """Return a copy, recorded: PyTorch's ``clone``.

    >>> tape.tensor([1.0, 2.0]).copy()
    tensor([1., 2.])
    """
    del order
    return views.clone(x)


@method()
def fill(x: Tensor, value: Any) -> None:
    """Write a number to all elements, recorded as ``x.fill_(value)``, and return None, as NumPy does."""
    x.fill_(value)


@method()
def ptp(x: Tensor, axis: Any = None, out: Any = None, keepdims: bool = False) -> Tensor:
    """Return the largest element less the smallest, over ``axis``.

    >>> tape.tensor([1.0, 4.0, 2.0]).ptp()
    tensor(3.)
    """
    return NUMPY[np.ptp](x, axis, out, keepdims)  # type: ignore[no-any-return]


@method()
def compress(x: Tensor, condition: Any, axis: Any = None) -> Tensor:
    """Return the places along ``axis``, or of the flat tensor, where the condition holds.

    >>> tape.tensor([1.0, 4.0, 2.0]).compress([True, False, True])
    tensor([1., 2.])
    """
    return NUMPY[np.compress](condition, x, axis)  # type: ignore[no-any-return]


@method()
def tobytes(x: Tensor, order: Any = "C") -> bytes:
    """Return the bytes of the elements."""
    record.note_escape(x)
    return as_array(x).tobytes(order)


@attribute
def strides(x: Tensor) -> tuple[int, ...]:
    """The steps along the dims in bytes, as NumPy counts them; ``x.stride()`` counts elements."""
    return x.spec.strides


@attribute
def imag(x: Tensor) -> Tensor:
    """Zeros: there are no complex tensors."""
    return NUMPY[np.imag](x)  # type: ignore[no-any-return]


class Flat:
    """The elements of a tensor in order, to be read, written and iterated over: what ``x.flat`` is."""

    __slots__ = ("_of",)

    def __init__(self, x: Tensor) -> None:
        self._of = x

    def __len__(self) -> int:
        return self._of.spec.size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(views.reshape(self._of, -1))

    def __getitem__(self, key: Any) -> Tensor:
        return indexing.index(views.reshape(self._of, -1), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        numbers = np.arange(self._of.spec.size)[key]
        indexing.put(self._of, np.asarray(numbers), value if isinstance(value, Tensor) else np.asarray(value), "flat")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(views.reshape(self._of, -1), dtype=dtype)


def _set_flat(x: Tensor, value: Any) -> None:
    every = np.arange(x.spec.size)
    resize = NUMPY[np.resize] if isinstance(value, Tensor) else np.resize
    indexing.put(x, every, resize(value, every.shape), "flat")


method("flat")(
    property(Flat, _set_flat, doc="The elements in order: iterated over, indexed and written to as NumPy's.")
)


# ``np.f(tensor)``: NumPy's functions find the records, with NumPy's meaning; one without a record raises TypeError.

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
        raise TypeError(f"{numpy_name(func)} has no record for tensors; {remedy}")
    if func in _WRITE and args and not isinstance(args[0], Tensor):
        return into_array(func, numpy_name(func), args, kwargs)
    out = None
    if "out" not in parameters(function):
        args, kwargs, out = _without_out(func, args, kwargs)
    tape = modes.own_tape()
    before = tape.in_numpy
    try:
        tape.in_numpy = True  # here: what a call adds to the traceback would hide whose arguments do not fit
        result = function(*args, **kwargs)
        return result if out is None else written(numpy_name(func).removeprefix("np."), out, result)
    except Exception as error:
        is_within = error.__traceback__ is None or error.__traceback__.tb_next is not None
        if is_within or not isinstance(error, TypeError):
            shorten(error)
            raise
        problem = str(error).partition("() ")[2]  # the arguments do not fit
        raise TypeError(f"{numpy_name(func)} of a tensor {problem}") from None
    finally:
        tape.in_numpy = before


def _without_out(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any, Any]:
    names = parameters(func)
    at = names.index("out") if "out" in names else len(args)
    named = {**dict(zip(names[at:], args[at:], strict=False)), **kwargs}
    out = named.pop("out", None)
    return args[:at], named, out


@method("__array__")
def array(x: Tensor, dtype: Any = None, copy: bool | None = None) -> Array:
    """Return the value for NumPy; a tensor that requires grad raises rather than lose its gradient.

    Of a product with SciPy's sparse matrix it is an object without dims: SciPy then leaves the product to the tensor.
    """
    asking = sys._getframe(1)
    if asking.f_code.co_name == "_matmul_dispatch" and asking.f_globals["__name__"].startswith("scipy.sparse"):
        held = np.empty((), object)
        held[()] = x
        return held
    if x._slot is not None and modes.is_grad_enabled():
        raise foreign_calls.refusal(x)
    record.note_escape(x)
    if modes.given_arrays() and view_families.is_scalar(x):
        copy = True  # NumPy's scalars share no memory
    if copy or (dtype is not None and dtype != x.spec.dtype):
        return np.array(as_array(x), dtype=dtype, copy=copy)
    shown: Array | None = view_families.shown(x)
    return view_families.handed_out(x) if shown is None else shown


@implements(np.where, records="where")
def _where(condition: Any, *values: Any) -> Any:
    if not values:
        return NUMPY[np.nonzero](condition)
    return FUNCTIONS["where"](condition, *values)


@implements(np.concatenate, records="concatenate")
def _concatenate(arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Tensor:
    tensors = [cast_by_rule(tensor_of(a), dtype, casting) for a in arrays]
    if axis is None:
        return views.cat([views.reshape(x, -1) for x in tensors])
    ranks = [len(x.spec.shape) for x in tensors]
    if len(set(ranks)) > 1:  # shapes of (0,) are none that join anything here
        raise ValueError(f"np.concatenate: the arrays must have as many dims as each other; they have {ranks}")
    return views.cat(tensors, axis)


@implements(np.stack, records="stack")
def _stack(arrays: Any, axis: int = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Tensor:
    return views.stack([cast_by_rule(tensor_of(a), dtype, casting) for a in arrays], axis)


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


implements(np.broadcast_to, records="expand")(lambda array, shape: array.expand(shape))


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
    del subok  # a tensor is a tensor
    if order not in ("K", "A", "C"):
        raise TypeError(f"np.{name}: order={order!r} is not supported; new tensors are C-contiguous")
    return a if shape is None else creation.empty(shape, dtype=a.spec.dtype)


def _like(numpys: Any, factory: Any) -> None:
    @implements(numpys)
    def like(
        a: Tensor, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Tensor:
        return factory(_model(numpys.__name__, a, order, subok, shape), dtype=dtype, device=device)  # type: ignore[no-any-return]


_like(np.zeros_like, creation.zeros_like)
_like(np.ones_like, creation.ones_like)
implements(np.empty_like)(
    lambda prototype, dtype=None, order="K", subok=True, shape=None, *, device=None: creation.empty_like(
        _model("empty_like", prototype, order, subok, shape), dtype=dtype, device=device
    )
)


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


implements(np.shape)(lambda a: a.spec.shape)
implements(np.ndim)(lambda a: len(a.spec.shape))
implements(np.size)(lambda a, axis=None: a.spec.size if axis is None else a.spec.shape[axis])
implements(np.copy)(lambda a: a.clone())
